"""Scripts and notebooks: read as they are, written as they were."""

import ast
import codecs
import difflib
import io
import json
import os
import re
import stat
import tempfile
import tokenize
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from seejax.today.renaming import Edit, edited
from seejax.today.syntax import lines_of

SUFFIXES = (".py", ".ipynb")
SEPARATORS = ((",", ": "), (", ", ": "), (",", ":"))
NOT_OURS = {"__pycache__", "node_modules", "site-packages"}
GIVEN = r"(\s*(?:[\w.,\s\[\]]+=\s*)?)"
MAGIC = re.compile(GIVEN + r"((?:%{1,2}\w|!).*|[^#'\"]*\?\s*|\?.*)")
TIMED = re.compile(GIVEN + r"%%?(?:time|timeit|prun|memit|mprun|lprun)\b(?=\s)")
OTHER = re.compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b|memit\b|px\b|debug\b)\w")
PYTHON = re.compile(r"\s*(%%(?:python|pypy|script\s+py|(?:writefile|file)\b.*\.py\b)\S*)")
OURS = r"\b(?:jax|jaxlib|flax|optax)\b"


class Unreadable(Exception):
    """A file that cannot be looked at; the message is one line."""


def listed(paths: Collection[Path]) -> Iterator[Path]:
    """The files themselves, and the scripts and notebooks of folders, in the order of their names.

    Links to folders are not followed; hidden folders and installed packages are left out.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for folder, inner, names in os.walk(path):
            inner[:] = sorted(
                name
                for name in inner
                if not name.startswith(".")
                and name not in NOT_OURS
                and not Path(folder, name, "pyvenv.cfg").exists()
            )
            yield from (Path(folder, n) for n in sorted(names) if n.endswith(SUFFIXES))


@dataclass
class Cell:
    """A stretch of code: a whole script, or the code cell of a notebook with this number."""

    text: str
    number: int = 0
    first: int = 1  # its first line within the source


@dataclass
class File:
    """A file's code as one module, and how to write it again.

    Args:
      source: what is parsed; line for line and column for column what the cells hold.
      cells: one for a script.
      problems: cells that are no Python, each with a line that says so.
    """

    path: Path
    source: str
    cells: list[Cell]
    problems: list[str] = field(default_factory=list)

    def place(self, line: int, column: int) -> str:
        """Where a line of the source is, for people and editors."""
        cell = next(cell for cell in reversed(self.cells) if cell.first <= line)
        inside = f"cell {cell.number}:" if cell.number else ""
        return f"{self.path}:{inside}{line - cell.first + 1}:{column}"

    def after(self, edits: Collection[Edit]) -> list[str]:
        """The text of each cell after the edits."""
        new = []
        for cell, end in zip(self.cells, [*(c.first for c in self.cells[1:]), None], strict=True):
            ours = [e for e in edits if cell.first <= e.start[0] and (not end or e.start[0] < end)]
            moved = [Edit(_up(e.start, cell), _up(e.end, cell), e.text) for e in ours]
            newline = "\r\n" if "\r\n" in cell.text else "\n"
            moved = [Edit(e.start, e.end, e.text.replace("\n", newline)) for e in moved]
            new.append(edited(cell.text, moved))
        return new

    def diff(self, edits: Collection[Edit]) -> str:
        """A unified diff of each cell that changes."""
        lines = []
        for cell, text in zip(self.cells, self.after(edits), strict=True):
            name = f"{self.path}" + (f" cell {cell.number}" if cell.number else "")
            for line in difflib.unified_diff(lines_of(cell.text), lines_of(text), name, name):
                lines.append(line.rstrip("\r\n") + "\n")
        return "".join(lines)

    def renamed(self, edits: Collection[Edit]) -> bytes:
        """The whole file after the edits.

        Raises:
          Unreadable: it would be no Python, or its layout could not be kept.
        """
        if problem := syntax(edited(self.source, edits)):
            raise Unreadable(f"the renamed text would not parse: {problem}")
        return self.written(self.after(edits))

    def write(self, data: bytes) -> None:
        """Put this in the file's place, whole or not at all; OSError where it cannot be."""
        place = Path(os.path.realpath(self.path))
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with open(handle, "wb") as file:
                file.write(data)
            os.chmod(name, place.stat().st_mode & 0o7777)
            os.replace(name, place)
        except BaseException:
            os.unlink(name)
            raise

    def written(self, texts: list[str]) -> bytes:
        raise NotImplementedError


def _up(place: tuple[int, int], cell: Cell) -> tuple[int, int]:
    return place[0] - cell.first + 1, place[1]


class Script(File):
    """A file of Python."""

    def __init__(self, path: Path, data: bytes) -> None:
        try:
            self.encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            text = data.decode(self.encoding)
        except (SyntaxError, UnicodeDecodeError, LookupError) as error:
            raise Unreadable(f"cannot be decoded: {_line(error)}") from None
        if problem := syntax(text):
            raise Unreadable(problem)
        super().__init__(path, text, [Cell(text)])

    def written(self, texts: list[str]) -> bytes:
        return texts[0].encode(self.encoding)


class Notebook(File):
    """The code cells of a Jupyter notebook; its magics and shell lines stand for nothing."""

    def __init__(self, path: Path, data: bytes) -> None:
        try:
            self.text = data.decode("utf-8")
            self.notebook = json.loads(self.text)
            found = [(n, c) for n, c in enumerate(self.notebook["cells"], 1)]
            self.code = [(n, c) for n, c in found if c["cell_type"] == "code"]
            texts = [(n, "".join(c["source"])) for n, c in self.code]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Unreadable(f"is no notebook of format 4: {_line(error)}") from None
        source: list[str] = []
        cells, problems = [], []
        for number, text in texts:
            cell = Cell(text, number, len(source) + 1)
            cells.append(cell)
            count = len(text.split("\n"))
            python = text if not syntax(text) else masked(text)
            if (other := PYTHON.match(text)) and re.search(OURS, text):
                problems.append(f"{path}:cell {number}: not read: {other[1]}")
            if problem := syntax(python):
                problems.append(f"{path}:cell {number}: {problem}")
                python = ""
            source += [*python.split("\n"), *[""] * count][:count]
        super().__init__(path, "\n".join(source), cells, problems)

    def written(self, texts: list[str]) -> bytes:
        form = layout(self.text, self.notebook)
        for (_, cell), old, text in zip(self.code, self.cells, texts, strict=True):
            if text != old.text:
                whole = isinstance(cell["source"], str)
                cell["source"] = text if whole else text.splitlines(keepends=True)
        return form(self.notebook).encode()


def layout(text: str, value: object):
    r"""How to write JSON as this text writes it.

    Raises:
      Unreadable: it is written in no usual way, so that a new text would differ all over.

    >>> layout('{\n "a": 1\n}\n', {"a": 1})({"a": 2})
    '{\n "a": 2\n}\n'
    """
    end = text[len(text.rstrip()) :]
    html = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>&\x7f"})  # as Colab writes
    forms = product((1, 2, 4, "\t", 0, None), (False, True), SEPARATORS, ({}, html))
    for indent, ascii_only, separators, escapes in forms:

        def form(
            value, indent=indent, ascii_only=ascii_only, separators=separators, escapes=escapes
        ):
            text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=separators)
            return text.translate(escapes) + end

        if form(value) == text:
            return form
    raise Unreadable("it is laid out in an unusual way: save it once in Jupyter, then again")


def masked(text: str) -> str:
    r"""A cell without its magics; every line and column of its Python stays where it is.

    >>> masked("%time y = f(x)\n!pip install jax\nf?")
    '0    ;y = f(x)\n0\n0'
    >>> masked("x = (5  # or not?\n  %b)")
    'x = (5  # or not?\n  %b)'
    """
    if OTHER.match(text):
        return ""
    lines, begun = text.split("\n"), 0  # where the statement begins that is not yet at its end
    for at, line in enumerate(lines):
        if begun == at and (magic := MAGIC.fullmatch(line)):
            end = next((i for i in range(at, len(lines)) if not lines[i].endswith("\\")), at)
            if not (timed := TIMED.match(line)):
                lines[at : end + 1] = [magic[1] + "0", *[""] * (end - at)]
            else:
                lines[at] = timed_code(lines[at : end + 1], timed)
        begun = at + 1 if not unfinished(lines[begun : at + 1]) else begun
    return "\n".join(lines)


def timed_code(lines: list[str], magic: re.Match[str]) -> str:
    """The first line of a magic that runs code, without it and its options."""
    line, *more = lines
    for word in re.finditer(r"(?<=\s)[^\s-]", line[magic.end() :]):
        start = magic.end() + word.start()
        if not syntax("\n".join([line[start:], *more])):  # and not the value of an option
            return (magic[1] + "0").ljust(start - 1) + ";" + line[start:]
    return magic[1] + "0"


def unfinished(lines: list[str]) -> bool:
    """Whether a bracket, or a text in three quotes, is open after these lines."""
    try:
        list(tokenize.generate_tokens(io.StringIO("\n".join(lines)).readline))
    except tokenize.TokenError as error:
        return "EOF" in error.args[0] or "unterminated triple" in error.args[0]
    except SyntaxError:
        pass
    return False


def syntax(text: str) -> str:
    """What is wrong with a text as Python, in one line; "" if nothing is.

    >>> syntax("print 'x'")
    "line 1 is no Python 3: Missing parentheses in call to 'print'. Did you mean print(...)?"
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno or 1} is no Python 3: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"is no Python 3: {_line(error)}"
    return ""


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def read(path: Path) -> File | None:
    """The file, or None where it names none of the three libraries.

    Raises:
      Unreadable: it is no Python, no notebook, or not to be had.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise Unreadable("cannot be read: it is no file")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in data[:4096]:
        raise Unreadable("cannot be decoded: it is not UTF-8 text")
    if not re.search(OURS.encode(), data):
        return None
    if path.suffix == ".ipynb":
        return Notebook(path, data)
    return Script(path, data)
