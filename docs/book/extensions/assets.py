"""What a page loads: one style sheet and one script of ours (two with `see`), joined of small ones.

The theme, docs/theme, says how a page looks. What Sphinx, the themes below ours and MyST-NB add to
every page, and no page of ours needs, is named here: it is neither linked nor published.
"""

import fnmatch
import re
from pathlib import Path

from docutils import nodes
from pygments.token import Comment, Keyword, Name, String
from sphinx.highlighting import PygmentsBridge

from book import private
from book.paths import THEME
from seejax.see._html import _small as smaller  # private: a new name there executes pages anew

PAGE = THEME / "page"  # what is joined
# In _static; of the themes alone, 7 MB.
UNUSED = (
    *("basic.css", "pygments.css", "file.png", "minus.png", "plus.png"),  # of Sphinx
    *("doctools.js", "documentation_options.js", "sphinx_highlight.js", "translations.js"),
    *("language_data.js", "searchtools.js"),
    *("scripts/bootstrap.js*", "scripts/fontawesome.js*", "scripts/*sphinx*theme.js*"),  # of themes
    *("styles/theme.css", "styles/*sphinx*theme.css*", "*webpack-macros.html"),
    *("vendor/fontawesome/*", "images/logo_*", "locales/*"),
    "mystnb.*.css",
)
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


class Plain(private.Formatter):
    """Code with a span for what has a colour in book.css, and for nothing else."""

    def css_class(self, kind) -> str:
        while kind and kind not in COLOURED:
            kind = kind.parent
        return COLOURED.get(kind, "")


def open_code(translator, node) -> None:
    translator.body.append(translator.starttag(node, "code", ""))


def close_code(translator, node) -> None:
    translator.body.append("</code>")


def join(app) -> None:
    """Write site.css and site.js; each script keeps its names to itself."""
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    sheets = [smaller(each.read_text("utf8")) for each in sorted(PAGE.glob("*.css"))]
    (static / "site.css").write_text(re.sub(" ?> ?", ">", "\n".join(sheets)), "utf8")
    comments = re.compile(r"^ *//.*\n|^ +|  //.*$", re.MULTILINE)
    sources = [each.read_text("utf8") for each in sorted(PAGE.glob("*.js"))]
    scripts = [comments.sub("", source) for source in sources]
    (static / "site.js").write_text(
        "".join(f"(() => {{\n{script}}})();\n" for script in scripts), "utf8"
    )


def unused(path: str) -> bool:
    """Whether no page needs what has this path in _static.

    >>> unused("styles/theme.css"), unused("mystnb.8ecb98da.css"), unused("styles/copybutton.css")
    (True, True, False)
    """
    return any(fnmatch.fnmatch(path, name) for name in UNUSED)


def unlink(app, pagename, templatename, context, doctree) -> None:
    def wanted(asset) -> bool:
        if asset.filename:
            return not unused(str(asset.filename).removeprefix("_static/"))
        # lines of pydata-sphinx-theme for documentation_options.js
        return not private.inline_script(asset).lstrip().startswith("DOCUMENTATION_OPTIONS.")

    for kind in "css_files", "script_files":
        context[kind] = [asset for asset in context[kind] if wanted(asset)]


def lean(app, pagename, templatename, context, doctree) -> None:
    if body := context.get("body"):
        body = NOISE.sub(lambda noise: noise[1] or "", body)
        context["body"] = TWO_BOXES.sub(r'<div class="highlight \1">\2', body)


def clear(app, error) -> None:
    static = Path(app.outdir) / "_static"
    for path in [] if error else list(static.rglob("*")):
        if path.is_file() and unused(path.relative_to(static).as_posix()):
            path.unlink()


def setup(app) -> dict:
    app.add_html_theme("see_jax", str(THEME))
    app.add_js_file("site.js", loading_method="defer")
    PygmentsBridge.html_formatter = Plain
    app.add_node(nodes.literal, override=True, html=(open_code, close_code))  # no span a word
    app.connect("builder-inited", join)
    app.connect("html-page-context", unlink, priority=900)  # after the themes have added
    app.connect("html-page-context", lean, priority=900)
    app.connect("build-finished", clear, priority=900)  # when all are copied
    return {"parallel_read_safe": True, "parallel_write_safe": True}
