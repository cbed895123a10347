"""What the book is made of, counted when it is built: the page about shows it."""

import ast
import functools
import os
import platform
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from book import cache, keys, private
from book.keys import code_cells
from book.paths import DOCS, ROOT
from book.tables import words


class Page(NamedTuple):
    """A page that has cells."""

    cells: int
    seconds: float | None  # that executing it took, where that is known
    checks: int


def machine() -> str:
    """The system and the processors of this machine, and nothing that says whose it is."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = platform.system()
    return f"{system}, {platform.machine()}, {os.cpu_count()} CPU"


@functools.cache
def number_of_tests() -> int:
    """How many functions test this book."""
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


def is_check(node: ast.AST) -> bool:
    """An assert, or a call of a function that checks, such as `check_grads` or `assert_equal`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        name = getattr(called, "attr", getattr(called, "id", ""))
        return name.startswith(("assert_", "check_"))
    return isinstance(node, ast.Assert)


def checks(source: str) -> int:
    """How many checks a cell holds.

    >>> checks("x = 1\\nassert x\\nfor y in x:\\n    check_grads(y)")
    2
    """
    return sum(map(is_check, ast.walk(ast.parse(source))))


@functools.cache
def known() -> keys.Known:
    return keys.Known()


def sources(path: Path) -> list[str]:
    """The source of every cell of a page; the page is parsed only if it was not executed."""
    parse = functools.partial(private.read_notebook, path)
    kept = cache.find(known().key(path, parse))
    return [cell.source for cell in code_cells(kept.notebook() if kept else parse())]


@functools.cache
def counted() -> dict[str, Page]:
    """Every page that has cells, by its name; both languages have the same."""
    found = {}
    for path in sorted((DOCS / "en").glob("*.md")):
        if cells := sources(path):
            number = sum(map(checks, cells))
            found[path.stem] = Page(len(cells), cache.seconds(path.stem), number)
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
