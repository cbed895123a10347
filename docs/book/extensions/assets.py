"""What a page loads: one style sheet and one script of ours (two with `see`), none of the theme's.

The theme gives the page its parts, its tables of contents and its words; how it looks and what it
does is docs/_templates, docs/_static and the browser. Each extension registers its own small script
(app.add_js_file); here they are joined, as are the style sheets.
"""

import re
import shutil
from pathlib import Path

import myst_nb
from docutils import nodes
from pygments.formatters import HtmlFormatter
from pygments.token import Comment, Keyword, Name, String
from sphinx.highlighting import PygmentsBridge

from book.paths import DOCS

OURS = DOCS / "_static"
# Files of the theme, of MyST-NB and of Sphinx's search that no page of ours needs.
THEIRS = re.compile(
    r"_static/(styles/|scripts/|pygments|mystnb|doc\w+\.js|sphinx_highlight|translations)"
)
WRITTEN = {"pygments.css", "pygments_dark.css", "language_data.js", "translations.js"}  # by Sphinx
MYSTNB = re.compile(r"mystnb\.\w+\.css$")
# What docutils says of each element and no rule or script of ours asks for: a tenth of a page.
NOISE = re.compile(
    r' docutils container(?=")| class="(?:reference (?:in|ex)ternal|field-odd|field-even|simple)"'
    r'|<span></span>|<span class="std std-ref">([^<]*)</span>'
)
# A block of code: one box where Sphinx and Pygments make two.
TWO_BOXES = re.compile(
    r'<div class="(highlight-\w+ notranslate)"><div class="highlight">'
    r"(<pre>.*?</pre></div>)\n</div>",
    re.DOTALL,
)
COLOURED = {Comment: "c", Keyword: "k", String: "s"}
COLOURED |= {Name.Function: "nf", Name.Class: "nf", Name.Decorator: "deco"}


class Plain(HtmlFormatter):
    """Code with a span for what has a colour in book.css, and for nothing else."""

    def _get_css_class(self, ttype) -> str:
        while ttype and ttype not in COLOURED:
            ttype = ttype.parent
        return COLOURED.get(ttype, "")

    _get_css_classes = _get_css_class


def open_code(translator, node) -> None:
    translator.body.append(translator.starttag(node, "code", ""))


def close_code(translator, node) -> None:
    translator.body.append("</code>")


def registered(files: list[tuple[str, dict]]) -> list[Path]:
    return [OURS / name for name, _ in files if name and (OURS / name).is_file()]


def squeezed(css: str) -> str:
    """A style sheet without its comments and its layout.

    >>> squeezed("/* why */ a > b { color: red;\\n  margin: 0 1px; }")
    'a>b{color:red;margin:0 1px}'
    """
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    css = re.sub(r"\s+", " ", css)
    css = re.sub(r" ?([{};,>]) ?", r"\1", css)
    return re.sub(r": ", ":", css).replace(";}", "}").strip()


def join(app) -> None:
    """Write site.css and site.js; each script keeps its names to itself."""
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    sheets = [squeezed(each.read_text("utf8")) for each in registered(app.registry.css_files)]
    (static / "site.css").write_text("\n".join(sheets), "utf8")
    comments = re.compile(r"^ *//.*\n|^ +|  //.*$", re.MULTILINE)
    sources = [each.read_text("utf8") for each in registered(app.registry.js_files)]
    scripts = [comments.sub("", source) for source in sources]
    (static / "site.js").write_text(
        "".join(f"(() => {{\n{script}}})();\n" for script in scripts), "utf8"
    )


def drop_the_rest(app, pagename, templatename, context, doctree) -> None:
    joined = {f"_static/{file.name}" for file in OURS.iterdir()}

    def wanted(asset) -> bool:
        name = str(getattr(asset, "filename", asset))
        if not name or name == "None":  # a line of the theme's for its own script
            return False
        return name not in joined and not THEIRS.match(name)

    for kind in "css_files", "script_files":
        context[kind] = [asset for asset in context[kind] if wanted(asset)]


def lean(app, pagename, templatename, context, doctree) -> None:
    if body := context.get("body"):
        body = NOISE.sub(lambda noise: noise[1] or "", body)
        context["body"] = TWO_BOXES.sub(r'<div class="highlight \1">\2', body)


def theirs(app) -> set[str]:
    """The names of what the theme, Sphinx and MyST-NB put among the static files."""
    places = [Path(folder) for folder in app.builder.theme.get_theme_dirs()]
    places.append(Path(myst_nb.__file__).parent)
    files = [file.name for place in places for file in place.glob("static/*")]
    return {name.removesuffix(".jinja").removesuffix("_t") for name in files} | WRITTEN


def clear(app, error) -> None:
    """Take out of the site what they put there and no page asks for: of the theme alone, 7 MB."""
    static, away = (
        Path(app.outdir) / "_static",
        theirs(app) - {file.name for file in OURS.iterdir()},
    )
    for path in static.iterdir() if static.is_dir() and not error else ():
        if path.name in away or MYSTNB.match(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def setup(app) -> dict:
    PygmentsBridge.html_formatter = Plain
    app.add_node(nodes.literal, override=True, html=(open_code, close_code))  # no span a word
    app.add_css_file("book.css")
    app.add_css_file("site.css")
    app.add_js_file("page.js")
    app.add_js_file("site.js", loading_method="defer")
    app.connect("builder-inited", join)
    app.connect("html-page-context", drop_the_rest, priority=900)  # after the theme has added
    app.connect("html-page-context", lean, priority=900)
    app.connect("build-finished", clear, priority=900)  # when all are copied
    return {"parallel_read_safe": True, "parallel_write_safe": True}
