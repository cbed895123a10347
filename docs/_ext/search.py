"""What search.js searches: every section's words, in pieces that are loaded when they are needed.

Sphinx's own search is off: it cannot cut a query that is written as Chinese is, without spaces.
In its place stand, in OUT/search, index.js, which says where everything lies, and for this state of
the book a folder with postings (a term, and the sections that have it), the text of each page for
excerpts, and the words that a misspelt one may have meant. Pieces are scripts and not JSON, because
a page that was opened from the disk may load nothing else.
"""

import hashlib
import json
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from names import names
from sphinx import addnodes

from tools.book import DOCS

DATA = DOCS / "data"
PIECE = 16_000  # characters of postings
OUTPUT = 800  # characters of a cell's output: what it is about stands at its beginning

# -- terms: as search.js makes them of a query ---------------------------------------------------

HAN = "\u3400-\u9fff"
LATIN = "0-9A-Za-z_\u00c0-\u024f\u0370-\u03ff"
RUN = re.compile(rf"[{HAN}]+|\.?[{LATIN}]+(?:\.[{LATIN}]+)*")
PARTS = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
NAME, PART = 2, 0.5  # what a name of several parts counts, and what each of them
ENDING = re.compile(
    r"^(.{3,}?)(?:at(?:e[ds]?|ions?|ors?|ing)|ions?|ings?|ments?|able|ly|e(?:d|s|rs?)?|s)$"
)


def stem(word: str) -> str:
    """A word without its ending, so that one form finds the others.

    >>> [stem(word) for word in ("compile", "compiled", "compilation", "scanning", "trees")]
    ['compil', 'compil', 'compil', 'scan', 'tre']
    """
    return re.sub(r"(.)\1$", r"\1", ENDING.sub(r"\1", word))


def terms(text: str) -> Iterator[tuple[str, float]]:
    """The terms of a text, and how much each counts: pairs of Chinese characters; words, and code
    both whole and in parts.

    >>> [term for term, _ in terms("求雅可比")]
    ['求雅', '雅可', '可比']
    >>> [term for term, _ in terms("lax.scan(static_argnums)")]
    ['lax.scan', 'lax', '.scan', 'scan', 'static_argnums', 'static', 'argnum']
    """
    for run in RUN.findall(text):
        if run[0] >= "\u3400":
            yield from ((run[i : i + 2], 1) for i in range(max(1, len(run) - 1)))
        elif re.match(r"\.?\d", run):
            yield from [(run, 1)] if len(run) <= 4 else []
        else:
            yield from code(run.split("."))


def code(names: list[str]) -> Iterator[tuple[str, float]]:
    for i, name in enumerate(names):
        if i < len(names) - 1 and name:
            yield ".".join(names[i:]).lower(), NAME
        if i and name:
            yield f".{name.lower()}", 1
        parts = [part for part in PARTS.split(name) if part]
        if len(parts) > 1:
            yield name.lower(), NAME
        share = PART if len(parts) > 1 else 1
        yield from ((stem(part.lower()), share) for part in parts if len(part) > 1)


# -- sections, as a page shows them --------------------------------------------------------------

Section = dict[str, str]  # anchor, title, and the text of each kind

# A title is kept by itself; of a picture, and of what is written as HTML, nothing can be shown.
SILENT = nodes.Invisible | nodes.raw | nodes.image | nodes.title | nodes.term | addnodes.desc_signature
KINDS = {"cell_input": "code", "cell_output": "output"}


def sections(node: nodes.Node, section: Section | None = None, kind: str = "prose") -> list:
    """Everything on a page that has a name and a title: sections, terms, functions."""
    found = []
    for child in node.children:
        if isinstance(child, SILENT):
            continue
        classes = child.get("classes", []) if isinstance(child, nodes.Element) else []
        if "no-search" in classes:
            continue
        if heading := titled(child):
            new = {"anchor": heading[0], "title": heading[1], "text": []}
            found += [new, *sections(child, new)]
        elif isinstance(child, nodes.TextElement):
            if section is not None and (text := " ".join(plain(child).split())):
                section["text"].append((kind, text))
        else:
            here = next((KINDS[name] for name in classes if name in KINDS), kind)
            found += sections(child, section, here)
    return found


def titled(node: nodes.Node) -> tuple[str, str] | None:
    """The anchor and the title of a section, of an explained term, of a documented object."""
    if not isinstance(node, nodes.section | nodes.definition_list_item | addnodes.desc):
        return None
    head = node.children[0]
    anchor = [*node["ids"], *head["ids"]]
    return (anchor[0], head.get("fullname") or plain(head)) if anchor else None


def plain(node: nodes.Node) -> str:
    """What is read of a node; a formula that LaTeX writes is not how people type it."""
    if isinstance(node, nodes.math | nodes.math_block):
        return "…" if "\\" in node.astext() else node.astext()
    if isinstance(node, nodes.Text):
        return str(node)
    return "".join(plain(child) for child in node.children if not isinstance(child, nodes.raw))


# -- the index -----------------------------------------------------------------------------------

WEIGHTS = {"title": 12.0, "anchor": 6.0, "page": 1.0, "prose": 1.0, "code": 0.7, "output": 0.5}
SATURATION, LENGTH = 3, 0.6  # BM25's k1 and b
SHARED, SHORT = 0.6, 0.7
LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789abcdefghijklmnopqrstuv"


def postings(pages: list[dict]) -> dict[str, str]:
    """For every term its sections: the step to the number of the next, and how much it says there."""
    counted = [count(page, section) for page in pages for section in page["sections"]]
    lengths = [sum(counts.values()) for counts in counted]
    mean = sum(lengths) / len(lengths)
    shared = Counter(section["title"] for page in pages for section in page["sections"])
    found: dict[str, str] = {}
    last: dict[str, int] = {}
    titles = [section["title"] for page in pages for section in page["sections"]]
    lengths = [max(length, SHORT * mean) for length in lengths]
    for number, (counts, length) in enumerate(zip(counted, lengths, strict=True)):
        prior = SHARED if shared[titles[number]] > 2 else 1
        norm = SATURATION * (1 - LENGTH + LENGTH * length / mean)
        for term, times in counts.items():
            level = LEVELS[int(prior * times / (times + norm) * len(LEVELS))]
            step = base32(number - last.get(term, 0))
            found[term] = f"{found.get(term, '')}{step}{level}"
            last[term] = number
    return dict(sorted(found.items()))


def count(page: dict, section: dict) -> Counter:
    counts: Counter = Counter()
    named = [("title", section["title"]), ("anchor", section["anchor"].replace("-", " "))]
    for kind, text in [*named, ("page", f"{page['name']} {page['title']}"), *section["text"]]:
        for term, share in terms(text):
            counts[term] += WEIGHTS[kind] * share
    return counts


def base32(n: int) -> str:
    """
    >>> base32(0), base32(33)
    ('', '11')
    """
    return base32(n // 32) + DIGITS[n % 32] if n else ""


def pieces(pages: list[dict], language: str) -> Iterator[tuple[str, object]]:
    """Every piece by its name; the last is the index."""
    found = postings(pages)
    starts, piece, size = [], {}, 0
    for term, posting in found.items():
        if not piece:
            starts.append(term)
        piece[term] = posting
        size += len(term) + len(posting)
        if size > PIECE:
            yield f"terms-{len(starts) - 1}", piece
            piece, size = {}, 0
    if piece:
        yield f"terms-{len(starts) - 1}", piece
    yield "words", " ".join(term for term in found if re.fullmatch("[a-z]{4,}", term))
    first = 0
    firsts = []
    for number, page in enumerate(pages):
        texts = [
            [section["anchor"], section["title"], " ".join(text for _, text in section["text"])]
            for section in page["sections"]
        ]
        yield f"page-{number}", [page["url"], page["name"], texts]
        firsts.append(first)
        first += len(texts)
    yield "index", {"sections": first, "pages": firsts, "terms": starts, **spoken(language)}


def spoken(language: str) -> dict[str, object]:
    """How readers ask: words that say nothing, and other names for what the book calls otherwise."""
    data = tomllib.loads((DATA / "search.toml").read_text("utf8"))
    other = "en" if language == "zh" else "zh"
    book = tomllib.loads((DATA / "terms.toml").read_text("utf8")).values()
    same = [*data["same"].items(), *((term[other], term[language]) for term in book)]
    han = "|".join(word for word in data["empty"] if word >= HAN[0])
    latin = "|".join(word for word in data["empty"] if word < HAN[0])
    empty = rf"{han}|(?<![\w.])(?:{latin})(?![\w(\[]|\.\w)"
    telling = [
        [list(dict.fromkeys(t for t, _ in terms(text) if t not in data["empty"])) for text in pair]
        for pair in same
    ]
    return {"empty": empty, "same": [pair for pair in telling if pair[0] != pair[1]]}


# -- in Sphinx -----------------------------------------------------------------------------------


def turn_off_sphinx_search(app) -> None:
    app.builder.search = False
    app.config.html_additional_pages = {"search": "search.html"} | app.config.html_additional_pages


def note_page(app, pagename, templatename, context, doctree) -> None:
    """Keep what a page says when it is written: a later build writes only what has changed."""
    if doctree is None or app.builder.format != "html":
        return
    title = app.env.titles[pagename].astext()
    noted = {"url": app.builder.get_target_uri(pagename), "title": title, "sections": sections(doctree)}
    for section in noted["sections"]:
        section["text"] = [
            (kind, text[:OUTPUT] if kind == "output" else text) for kind, text in section["text"]
        ]
    path = place(app, pagename)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(noted), "utf8")


def place(app, pagename: str) -> Path:
    return Path(app.doctreedir, "search", f"{pagename}.json")


def write_index(app, error) -> None:
    if error or app.builder.format != "html" or app.builder.name != "html":
        return
    known = names(app.env)
    order = [*known, *sorted(app.env.found_docs - set(known))]
    pages = []
    for name in order:
        if name in app.env.found_docs:
            page = json.loads(place(app, name).read_text("utf8"))
            pages.append({"name": known.get(name, page["title"]), **page})
    out = Path(app.outdir, "search")
    shutil.rmtree(out, ignore_errors=True)
    written = list(pieces(pages, "zh" if app.config.language.startswith("zh") else "en"))
    version = hashlib.sha256(json.dumps(written).encode()).hexdigest()[:8]
    (out / version).mkdir(parents=True)
    for name, content in written:
        folder = out
        if name == "index":
            content["folder"] = version
        else:
            folder = out / version
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        (folder / f"{name}.js").write_text(f'searchPiece("{name}",{text})\n', "utf8")
    for name in ("searchtools.js", "language_data.js"):  # Sphinx's own
        Path(app.outdir, "_static", name).unlink(missing_ok=True)


def setup(app) -> dict:
    app.connect("builder-inited", turn_off_sphinx_search)
    app.connect("html-page-context", note_page)
    app.connect("build-finished", write_index)
    app.add_css_file("search.css")
    app.add_js_file("search.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
