"""What the book is made of, counted when it is built: the page about shows it."""

import functools
import os
import platform
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from myst_nb.core.read import myst_nb_reader_plugin

from tools import cache
from tools.book import DOCS, ROOT, words
from tools.keys import code_cells
from tools.mutants import checks, digest, reports


class Page(NamedTuple):
    """A page that has cells."""

    cells: int
    seconds: float | None  # that executing it took, where that is known
    checks: int
    tried: int | None  # of the checks, by mutants; None where the last report is of other cells
    never_failed: int | None


def machine() -> str:
    """The system and the processors of this machine, and nothing that says whose it is."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = platform.system()
    return f"{system}, {platform.machine()}, {os.cpu_count()} CPU"


@functools.cache
def number_of_tests() -> int:
    """How many functions test this book.

    >>> number_of_tests() > 500
    True
    """
    found = re.compile(r"^(?:async )?def test_", re.MULTILINE)
    return sum(len(found.findall(p.read_text("utf8"))) for p in (ROOT / "tests").rglob("test_*.py"))


def versions() -> Iterator[tuple[str, str]]:
    """Python, and every package that pyproject.toml names for the pages and the site."""
    yield "Python", platform.python_version()
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
    project = table["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["training"]]
    for line in [*asked, *table["dependency-groups"]["docs"]]:
        name = re.split(r"[<>=!~\[ ]", line)[0]
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def sources(path: Path) -> list[str]:
    """The source of every cell of a page."""
    return [cell.source for cell in code_cells(myst_nb_reader_plugin(str(path)))]


@functools.cache
def counted() -> dict[str, Page]:
    """Every page that has cells, by its name; both languages have the same."""
    found = {}
    for path in sorted((DOCS / "en").glob("*.md")):
        if cells := sources(path):
            number = sum(len(checks(source)) for source in cells)
            last = reports().get(path.stem, {})
            known = last if last.get("cells") == digest(cells) else {}
            tried, stuck = known.get("tried"), known.get("never_failed")
            stuck = None if stuck is None else len(stuck)
            found[path.stem] = Page(len(cells), cache.seconds(path.stem), number, tried, stuck)
    return found


def cell(value: object) -> str:
    return "—" if value is None else f"{value:.0f}" if isinstance(value, float) else str(value)


def table(heads: list[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown, words at the left and numbers at the right; — for what is not known.

    >>> print(table(["page", "s"], [["jit", 21.2], ["vmap", None]]))
    | page | s |
    |:--|--:|
    | jit | 21 |
    | vmap | — |
    """
    sides = [":--", *["--:"] * (len(heads) - 1)]
    shown = [[cell(one) for one in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in [heads, *shown]]
    return "\n".join([lines[0], f"|{'|'.join(sides)}|", *lines[1:]])


def told(what: str, language: str, names: Mapping[str, str]) -> str:
    """A table of the page about, as Markdown.

    Args:
      what: "versions" or "pages".
      names: the name of every page, in the order of the book.
    Raises:
      ValueError: there is no such table.
    """
    said = words(language)
    if what == "versions":
        return table([said["about_package"], said["about_version"]], [[*row] for row in versions()])
    if what != "pages":
        raise ValueError(f"{{about}} knows versions and pages, not {what}")
    rows = {page: counted()[page] for page in names if page in counted()}
    heads = [said[f"about_{name}"] for name in ("page", *Page._fields)]
    listed = [[f"[{names[page]}]({page}.md)", *row] for page, row in rows.items()]
    totals = [sum(filter(None, column)) for column in zip(*rows.values(), strict=True)]
    return table(heads, [*listed, [said["about_total"], *totals]])
