"""Each page as Markdown with the outputs of its code, for machines that read: NAME.md by NAME.html.

llms.txt says what a language's pages are about; llms-full.txt has all of them, one after another.
"""

import base64
import hashlib
import re
import shutil
from copy import deepcopy
from html import unescape
from pathlib import Path

import nbformat
from myst_nb.core.read import myst_nb_reader_plugin
from myst_nb.core.utils import coalesce_streams

from book.cache import Kept
from book.export.notebooks import site
from book.export.plain import glued, names, parts, plain, sections
from book.extensions.languages import address
from book.keys import code_cells
from book.paths import LANGUAGES, BuildError, page_name, pages
from book.tables import words

FIGURES = {"image/svg+xml": ".svg", "image/png": ".png"}
IMAGES = "_images"  # where Sphinx puts them
LONGEST = 50_000  # characters that a program may be asked to read at one go


def fenced(text: str, language: str) -> str:
    """Code or its output, between fences that it does not contain.

    >>> print(fenced("```", "text"))
    ````text
    ```
    ````
    """
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def figure(output: nbformat.NotebookNode) -> str:
    """The name that MyST-NB gives to the file of a figure; nothing where an output is none."""
    for kind, suffix in FIGURES.items():
        if drawn := output.data.get(kind):
            plain = "\n".join(drawn.splitlines()).encode()
            content = plain if suffix == ".svg" else base64.b64decode(drawn)
            return hashlib.sha256(content).hexdigest() + suffix
    return ""


def shown(output: nbformat.NotebookNode, tags: set[str], alt: str, images: Path, home: str) -> str:
    """An output as the page shows it: a figure by its words and its place, all else as text."""
    if output.output_type == "error":
        return fenced("\n".join(output.traceback), "text")
    if output.output_type == "stream":
        return "" if f"remove-{output.name}" in tags else fenced(output.text, "text")
    if name := figure(output):
        if not (images / name).is_file():
            raise BuildError(f"the figure {alt!r} is not among the images of the site")
        return f"![{alt}]({home}{IMAGES}/{name})"
    text = output.data.get("text/plain")  # of a picture of seejax.see too; glue leaves none
    return fenced(text, "text") if text else ""


def page(path: Path, language: str, executed: nbformat.NotebookNode, html: Path) -> str:
    """A page as Markdown: what it says, its code, and what the code showed."""
    name = page_name(path, language)
    home = site(language) or "../" * name.count("/")
    said, values = words(language), glued(executed)
    outputs = iter(code_cells(executed))
    blocks = []
    for cell in myst_nb_reader_plugin(str(path)).cells:
        if cell.cell_type == "markdown":
            link = home + "{page}.md"
            blocks.append(plain(cell.source, name, language, values, link, folds=False))
            continue
        tags = set(cell.metadata.get("tags", []))
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if "solution" in tags:
            blocks.append(f"**{said['solution']}**")
        if not tags & {"remove-cell", "remove-input"}:
            blocks.append(fenced(cell.source, "python"))
        executed_cell = next(outputs)
        if not tags & {"remove-cell", "remove-output"}:
            images = html / IMAGES
            outs = coalesce_streams(deepcopy(executed_cell.outputs))  # it changes them
            blocks += [shown(each, tags, alt, images, home) for each in outs]
    title, _, rest = "\n\n".join(filter(None, blocks)).partition("\n")
    about = said["markdown"].format(page=f"{home}{name}.html", llms=f"{home}llms.txt")
    return f"{title}\n\n{about}\n\n{rest.lstrip()}\n"


def description(html: str) -> str:
    """What a page of the site says of itself."""
    found = re.search(r'<meta name="description" content="([^"]*)"', html)
    return unescape(found[1]) if found else ""


def listed(language: str, about: dict[str, str], titles: dict[str, str]) -> str:
    """llms.txt: the book, and part by part where its pages are and what they say of themselves."""
    said, home = words(language), site(language)
    other = next(each for each in LANGUAGES if each != language)
    places = {"full": f"{home}llms-full.txt", "other": address("llms.txt", language, other)}
    blocks = [f"# {said['title']}", f"> {about['index']}", said["llms"].format(**places)]
    left = {page: title for page, title in titles.items() if page not in names(language)}
    for part, group in [*parts(language).items(), (said["pages"], left)]:
        lines = [f"- [{name}]({home}{page}.md): {about[page]}" for page, name in group.items()]
        blocks += [f"## {part}", "\n".join(lines)] if lines else []
    return "\n\n".join(blocks) + "\n"


def write(language: str, executed: dict[Path, Kept], html: Path, changed: set[str]) -> None:
    """Write the Markdown of a language's pages that have changed into its site, and llms.txt.

    What a program would have to read at one go and is longer than LONGEST, is written by section.
    """
    made, about = {}, {}
    for path in pages(language):
        name = page_name(path, language)
        whole = html.parent / "markdown" / f"{name}.md"
        if name in changed or not whole.exists():
            outputs = executed[path].notebook() if path in executed else nbformat.v4.new_notebook()
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_text(page(path, language, outputs, html), "utf8")
            shutil.rmtree(html / f"{name}.sections", ignore_errors=True)
            for place, text in pieces(whole.read_text("utf8"), name, language).items():
                (html / place).parent.mkdir(parents=True, exist_ok=True)
                (html / place).write_text(text, "utf8")
        made[name] = whole.read_text("utf8")
        about[name] = description((html / f"{name}.html").read_text("utf8"))
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in made.items()}
    everything = [made[name] for name in dict.fromkeys([*names(language), *made])]
    (html / "llms.txt").write_text(listed(language, about, titles), "utf8")
    (html / "llms-full.txt").write_text("\n".join(everything), "utf8")


def pieces(text: str, name: str, language: str) -> dict[str, str]:
    """The files of a page: one, or of a long one a list of its sections, and a file for each."""
    if len(text) <= LONGEST:
        return {f"{name}.md": text}
    top, *rest = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    anchors = {s.title: anchor for anchor, s in sections(language).items() if s.page == name}
    home = site(language) or "../" * name.count("/")
    files, links = {}, []
    for number, section in enumerate(rest, 1):
        title = section.partition("\n")[0].removeprefix("## ")
        place = f"{name}.sections/{anchors.get(title, number)}.md"
        if not site(language):  # links that are relative are seen from one folder below
            section = re.sub(r"(\]\()(?![a-z]+:|#)", r"\1../", section)
        files[place] = f"# {title}\n\n" + section.partition("\n")[2].lstrip()
        links.append(f"- [{title}]({home}{place})")
    return {f"{name}.md": top.rstrip() + "\n\n" + "\n".join(links) + "\n", **files}
