"""What search.js searches: every section's words, in pieces that are loaded when they are needed.

Sphinx's own search is off: it cannot cut a query that is written as Chinese is, without spaces.
In its place stand, in OUT/search, index.js, which says where everything lies, and for this state of
the book a folder with postings (a term, and the sections that have it), the text of each page for
excerpts, and the words that a misspelt one may have meant. Pieces are scripts and not JSON, because
a page that was opened from the disk may load nothing else.
"""

import functools
import hashlib
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from docutils import nodes
from sphinx import addnodes

from book.extensions.toc import names
from book.paths import THEME, language_of
from book.tables import table

SCRIPT = THEME / "static" / "search.js"  # loaded when the search is opened

# -- terms: as search.js makes them of a query ---------------------------------------------------

HAN = "\u3400-\u9fff"
LATIN = "0-9A-Za-z_\u00c0-\u024f\u0370-\u03ff"
RUN = re.compile(rf"[{HAN}]+|(?<![{LATIN}])[Cc]\+\+|\.?[{LATIN}]+(?:\.[{LATIN}]+)*")
PARTS = re.compile(r"_+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
NAME, PART = 2, 0.5  # what a name of several parts counts, and what each of them
ENDING = re.compile(
    r"^(.{3,}?)(?:at(?:e[ds]?|ions?|ors?|ing)|ions?|ings?|ments?|able|ly|e(?:d|s|rs?)?|s)$"
)


def is_chinese(word: str) -> bool:
    return word[0] >= "\u3400"


@functools.cache
def stem(word: str) -> str:
    """A word without its ending, so that one form finds the others.

    >>> [stem(word) for word in ("compile", "compiled", "compilation", "scanning")]
    ['compil', 'compil', 'compil', 'scan']
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
        if is_chinese(run):
            yield from ((run[i : i + 2], 1) for i in range(max(1, len(run) - 1)))
        elif re.match(r"\.?\d", run):
            yield from [(run, 1)] if len(run) <= 4 else []
        else:
            yield from code(run.split("."))


def code(path: list[str]) -> Iterator[tuple[str, float]]:
    whole = PART if len(path) > 1 and path[0] else 1
    for i, name in enumerate(path):
        if name and i < len(path) - 1:
            yield ".".join(path[i:]).lower(), PART if i else NAME
        if name and i:
            yield f".{name.lower()}", whole
        words = [word for word in PARTS.split(name) if word]
        if len(words) > 1:
            yield name.lower(), NAME * whole
        share = PART if len(words) > 1 else whole
        yield from ((stem(word.lower()), share) for word in words if len(word) > 1)


# -- sections, as a page shows them --------------------------------------------------------------

# A title is kept by itself; of a picture, and of what is written as HTML, nothing can be shown.
SILENT = (
    nodes.Invisible | nodes.raw | nodes.image | nodes.title | nodes.term | addnodes.desc_signature
)
KINDS = {"cell_input": "code", "cell_output": "output"}
OUTPUT = 800  # characters of a cell's output: what it is about stands at its beginning


class Section(TypedDict):
    anchor: str
    title: str
    text: list[tuple[str, str]]  # prose, code and output, in their order
    # How the messages of an error or a warning begin, by which of the two it is.
    says: NotRequired[dict[str, list[str]]]


class Counted(TypedDict):
    """A section as a page's note keeps it until the index is made."""

    anchor: str
    title: str
    text: str
    counts: dict[str, float]  # how much it says of each term
    says: NotRequired[dict[str, list[str]]]


class Page(TypedDict):
    url: str
    name: str  # as the sidebar has it
    title: str
    sections: list[Counted]


def sections(node: nodes.Node, section: Section | None = None, kind: str = "prose") -> list:
    """Everything on a page that has an anchor and a title: sections, terms, documented objects."""
    found = []
    for child in node.children:
        classes = child.get("classes", []) if isinstance(child, nodes.Element) else []
        if isinstance(child, SILENT) or "no-search" in classes:
            continue
        if new := begun(child):
            found += [new, *sections(child, new)]
        elif not isinstance(child, nodes.TextElement):
            here = next((KINDS[name] for name in classes if name in KINDS), kind)
            found += sections(child, section, here)
        elif section and (text := " ".join(plain(child).split())):
            section["text"].append((kind, text[:OUTPUT] if kind == "output" else text))
    return found


def begun(node: nodes.Node) -> Section | None:
    """The section that begins with this node, still without its text."""
    if not isinstance(node, nodes.section | nodes.definition_list_item | addnodes.desc):
        return None
    head = node.children[0]
    if not (anchors := [*node["ids"], *head["ids"]]):
        return None
    title = head.get("fullname") or plain(head)
    return {"anchor": anchors[0], "title": title, "text": [], "says": node.get("says", {})}


def plain(node: nodes.Node) -> str:
    """What is read of a node; nobody types a formula as LaTeX has it."""
    if isinstance(node, nodes.math | nodes.math_block):
        return "…" if "\\" in node.astext() else node.astext()
    if isinstance(node, nodes.Text):
        return str(node)
    return "".join(plain(child) for child in node.children if not isinstance(child, nodes.raw))


# -- the index -----------------------------------------------------------------------------------

WEIGHTS = {"title": 12.0, "anchor": 6.0, "page": 1.0, "prose": 1.0, "code": 0.7, "output": 0.5}
SATURATION, LENGTH = 3.0, 0.6  # BM25's k1 and b
SHORT = 0.7  # of the mean length: what is shorter is no better an answer
SHARED = 0.6  # what a section counts whose title others have: exercises, takeaways
# What a page counts where one looks something up: a lesson answers a question better. An error
# that is pasted still finds its entry, by its many words.
REFERENCE = {"api.html": 0.5, "errors.html": 0.5, "today.html": 0.5, "terms.html": 0.8}
LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789abcdefghijklmnopqrstuv"
PIECE = 16_000  # characters of postings


def counted(texts: list[tuple[str, str]]) -> Counter:
    """How much texts of these kinds say of each term."""
    counts: Counter = Counter()
    for kind, text in texts:
        for term, share in terms(text):
            counts[term] += WEIGHTS[kind] * share
    return counts


def count(url: str, section: Section) -> Counted:
    """A section with its terms counted, all but those of its page's name and title."""
    anchor, title = section["anchor"], section["title"]
    named = [("title", title), ("anchor", anchor.replace("-", " "))]
    own = anchor.removeprefix(url.removesuffix(".html") + "-")
    if "-" in own:  # vmap-in-axes is about in_axes
        named.append(("anchor", own.replace("-", "_")))
    text = " ".join(text for _, text in section["text"])
    counts = counted([*named, *section["text"]])
    return {**section, "text": text, "counts": counts}


def postings(pages: list[Page]) -> dict[str, str]:
    """For every term its sections: the step to the next one's number, and a letter for how much."""
    everything = []
    for page in pages:
        of_page = counted([("page", f"{page['name']} {page['title']}")])
        everything += [(page, each, of_page + Counter(each["counts"])) for each in page["sections"]]
    titles = Counter(section["title"] for _, section, _ in everything)
    lengths = [sum(counts.values()) for *_, counts in everything]
    mean = sum(lengths) / len(lengths)
    found: dict[str, list[str]] = {}
    last: dict[str, int] = {}
    for number, ((page, section, counts), length) in enumerate(
        zip(everything, lengths, strict=True)
    ):
        norm = SATURATION * (1 - LENGTH + LENGTH * max(SHORT, length / mean))
        shared = SHARED if titles[section["title"]] > 2 else 1
        most = len(LEVELS) * min(shared, REFERENCE.get(page["url"], 1))
        for term, times in counts.items():
            level = LEVELS[int(most * times / (times + norm))]
            found.setdefault(term, []).append(base32(number - last.get(term, 0)) + level)
            last[term] = number
    return {term: "".join(found[term]) for term in sorted(found)}


def base32(n: int) -> str:
    """A number in few characters; nothing for zero.

    >>> base32(0), base32(33)
    ('', '11')
    """
    return base32(n // 32) + DIGITS[n % 32] if n else ""


def pieces(pages: list[Page], language: str) -> dict[str, Any]:
    """Every piece by its name; `index` says what the others hold."""
    found = postings(pages)
    groups = in_groups(found)
    made: dict[str, Any] = {f"terms-{n}": group for n, group in enumerate(groups)}
    words = sorted((term for term in found if re.fullmatch("[a-z]{4,}", term)), key=len)
    made["words"] = {n: " ".join(alike) for n, alike in itertools.groupby(words, len)}
    made["messages"] = messages(pages)
    firsts = []
    number = 0
    for n, page in enumerate(pages):
        texts = [[each["anchor"], each["title"], each["text"]] for each in page["sections"]]
        made[f"page-{n}"] = [page["url"], page["name"], texts]
        firsts.append(number)
        number += len(texts)
    terms_of = [next(iter(group)) for group in groups]
    made["index"] = {"sections": number, "pages": firsts, "terms": terms_of, **spoken(language)}
    return made


def messages(pages: list[Page]) -> dict[str, list]:
    """Of errors and of warnings: how each message begins, "…" for what varies, and the number of
    its section."""
    made: dict[str, list] = {"error": [], "warning": []}
    everything = (section for page in pages for section in page["sections"])
    for number, section in enumerate(everything):
        for kind, beginnings in section.get("says", {}).items():
            made[kind] += [[text, number] for text in beginnings]
    return made


def in_groups(found: dict[str, str]) -> list[dict[str, str]]:
    """Postings in groups of about a piece's size each, in their order."""
    groups: list[dict[str, str]] = []
    size = PIECE
    for term, posting in found.items():
        if size >= PIECE:
            groups.append({})
            size = 0
        groups[-1][term] = posting
        size += len(term) + len(posting)
    return groups


def spoken(language: str) -> dict[str, object]:
    """How readers ask: words that say nothing or little, and other names for the book's names."""
    data = table("search.toml")
    faint = [word if is_chinese(word) else stem(word) for word in data["faint"]]
    return {
        "empty": pattern(data["empty"]),
        "faint": list(dict.fromkeys(faint)),
        "same": synonyms({*data["empty"]}, data["same"], language),
    }


def pattern(empty: list[str]) -> str:
    """A regular expression for words that say nothing.

    A single Chinese character is such a word only where it stands alone.
    """
    chinese = [word for word in empty if is_chinese(word)]
    han = "|".join(word for word in chinese if len(word) > 1)
    alone = "".join(word for word in chinese if len(word) == 1)
    alone = rf"(?<=^|[^{HAN}]|{han})[{alone}](?=$|[^{HAN}]|{han})"
    latin = "|".join(word for word in empty if not is_chinese(word))
    return rf"{han}|{alone}|(?<![\w.])(?:{latin})(?![\w(\[]|\.\w)"


def synonyms(empty: set[str], same: dict[str, str], language: str) -> list[list[list[str]]]:
    """The terms of what readers say, each with the terms of what the book says."""
    other = "en" if language == "zh" else "zh"
    book = table("terms.toml").values()
    pairs = [*same.items(), *((term[other], term[language]) for term in book)]
    pairs += [(word, term[language]) for term in book for word in term.get("avoid", [])]
    found = []
    for pair in pairs:
        theirs, ours = (
            list(dict.fromkeys(t for t, share in terms(name) if t not in empty and share >= least))
            for name, least in zip(pair, (0, 1), strict=True)  # ours: names whole, not their parts
        )
        if language == "en" and not any(map(is_chinese, theirs)):
            # Chinese is so rare there that it would outweigh what was typed.
            ours = [term for term in ours if not is_chinese(term)]
        if theirs and ours and theirs != ours:
            found.append([theirs, ours])
    return found


# -- in Sphinx -----------------------------------------------------------------------------------


def turn_off_sphinx(app) -> None:
    if app.builder.name == "html":
        app.builder.search = False
        app.config.html_additional_pages["search"] = "search.html"


def noted(app, pagename: str) -> Path:
    return Path(app.doctreedir, "search", f"{pagename}.json")


def note(app, pagename, templatename, context, doctree) -> None:
    """Keep what a page says when it is written: the next build counts only pages that changed."""
    context["search_version"] = hashlib.sha256(SCRIPT.read_bytes()).hexdigest()[:8]
    if doctree is None or app.builder.name != "html":
        return
    url, title = app.builder.get_target_uri(pagename), app.env.titles[pagename].astext()
    page = {"url": url, "title": title, "sections": [count(url, s) for s in sections(doctree)]}
    path = noted(app, pagename)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(page, ensure_ascii=False), "utf8")


def write(app, error) -> None:
    """Write the index, in a folder named by what it is made of, so that no reader's cache mixes two
    states of the book, and nothing is made again of what has not changed."""
    if error or app.builder.name != "html":
        return
    known = {page: name for page, name in names(app.env).items() if page in app.env.found_docs}
    order = [*known, *sorted(app.env.found_docs - set(known))]
    notes = [noted(app, name).read_text("utf8") for name in order]
    made_of = [
        known,
        notes,
        *map(table, ("search.toml", "terms.toml")),
        Path(__file__).read_text("utf8"),
    ]
    version = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:8]
    out = Path(app.outdir, "search")
    if (out / version).exists() and (out / "index.js").exists():  # which is written last
        return
    (out / "index.js").unlink(missing_ok=True)
    shutil.rmtree(out, ignore_errors=True)
    (out / version).mkdir(parents=True)
    pages = [json.loads(text) for text in notes]
    for name, page in zip(order, pages, strict=True):
        page["name"] = known.get(name, page["title"])
    made = pieces(pages, language_of(app.config))
    index = made.pop("index")
    for name, content in made.items():
        write_piece(out / version / f"{name}.js", name, content)
    write_piece(out / "index.js", "index", {**index, "folder": version})


def write_piece(path: Path, name: str, content: object) -> None:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    path.write_text(f'searchPiece("{name}",{text})\n', "utf8")


def setup(app) -> dict:
    app.connect("builder-inited", turn_off_sphinx)
    app.connect("html-page-context", note)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
