"""Each page as Markdown with the outputs of its code, for machines that read: NAME.md by NAME.html.

llms.txt says what a language's pages are about; llms-full.txt has all of them, one after another.
"""

import base64
import hashlib
import re
from html import unescape
from pathlib import Path

import nbformat
from myst_nb.core.read import myst_nb_reader_plugin

from _ext.languages import address
from tools.book import DOCS, LANGUAGES, BuildError, pages, words
from tools.keys import code_cells
from tools.notebooks import site
from tools.plain import glued, parts, plain

FIGURES = {"image/svg+xml": ".svg", "image/png": ".png"}
IMAGES = "_images"  # where Sphinx puts them


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


def shown(output: nbformat.NotebookNode, tags: set[str], alt: str, images: Path, up: str) -> str:
    """An output as the page shows it: a figure by its words and its place, all else as text."""
    if output.output_type == "error":
        return fenced("\n".join(output.traceback), "text")
    if output.output_type == "stream":
        return "" if f"remove-{output.name}" in tags else fenced(output.text, "text")
    if name := figure(output):
        if not (images / name).is_file():
            raise BuildError(f"the figure {alt!r} is not among the images of the site")
        return f"![{alt}]({up}{IMAGES}/{name})"
    text = output.data.get("text/plain")  # of a picture of seejax.see too; glue leaves none
    return fenced(text, "text") if text else ""


def page(path: Path, language: str, executed: nbformat.NotebookNode, html: Path) -> str:
    """A page as Markdown: what it says, its code, and what the code showed."""
    name = path.relative_to(DOCS / language).with_suffix("").as_posix()
    up, said = "../" * name.count("/"), words(language)
    home, values = site(language) or up, glued(executed)
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
            blocks += [shown(each, tags, alt, images, up) for each in executed_cell.outputs]
    title, _, rest = "\n\n".join(filter(None, blocks)).partition("\n")
    about = said["markdown"].format(page=f"{home}{name}.html")
    return f"{title}\n\n{about}\n\n{rest.lstrip()}\n"


def description(html: str) -> str:
    """What a page of the site says of itself."""
    found = re.search(r'<meta name="description" content="([^"]*)"', html)
    return unescape(found[1]) if found else ""


def listed(language: str, html: Path) -> str:
    """llms.txt: the book, and part by part where its pages are and what they are about."""
    said, home = words(language), site(language)
    other = next(each for each in LANGUAGES if each != language)
    about = {
        name: description((html / f"{name}.html").read_text("utf8"))
        for names in parts(language).values()
        for name in names
    }
    place = said["llms"].format(
        full=f"{home}llms-full.txt", other=address("llms.txt", language, other)
    )
    blocks = [f"# {said['title']}", f"> {about['index']}", place]
    for part, names in parts(language).items():
        lines = [f"- [{name}]({home}{page}.md): {about[page]}" for page, name in names.items()]
        blocks += [f"## {part}", "\n".join(lines)]
    return "\n\n".join(blocks) + "\n"


def write(language: str, executed: dict[Path, nbformat.NotebookNode], html: Path) -> None:
    """Write a language's Markdown into its site."""
    made = {}
    for path in pages(language):
        name = path.relative_to(DOCS / language).with_suffix("").as_posix()
        made[name] = page(path, language, executed.get(path, nbformat.v4.new_notebook()), html)
        (html / f"{name}.md").write_text(made[name], "utf8")
    in_order = [name for names in parts(language).values() for name in names]
    whole = [made[name] for name in dict.fromkeys([*in_order, *made])]
    (html / "llms.txt").write_text(listed(language, html), "utf8")
    (html / "llms-full.txt").write_text("\n".join(whole), "utf8")
