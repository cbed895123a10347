"""Where in the Python source a program came from: functions, lines, and spans inside a line."""

import ast
import dataclasses
import functools
import importlib.machinery
import inspect
import io
import keyword
import linecache
import os
import re
import sys
import sysconfig
import textwrap
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

import jax

_JAX = os.path.dirname(jax.__file__) + os.sep
_MACHINERY = tuple(os.path.join(_JAX, "_src", name) for name in ("core.py", "interpreters"))
_HERE = os.path.dirname(__file__) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARIES = tuple(
    sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)

Frame = tuple[CodeType, int]


@dataclasses.dataclass(frozen=True)
class Span:
    """A piece of source: lines count from 1, columns are UTF-8 bytes from 0, as Python counts."""

    code: CodeType
    line: int
    end_line: int
    column: int
    end_column: int

    @property
    def file(self) -> str:
        return self.code.co_filename


@functools.lru_cache(maxsize=1024)
def _positions(code: CodeType) -> list[tuple]:
    return list(code.co_positions())


def span(frame: Frame) -> Span:
    """The expression that a frame was evaluating."""
    code, offset = frame
    line, end_line, column, end_column = _positions(code)[offset // 2]
    line = line or code.co_firstlineno
    if column is None or end_column is None:  # python -X no_debug_ranges
        column, end_column = 0, 1 << 30
    return Span(code, line, end_line or line, column, end_column)


def innermost_function(f: Any) -> Any:
    """The function written by a person under partial, jit, grad, vmap, a method or a callable."""
    while True:
        if isinstance(f, functools.partial):
            f = f.func
        elif inspect.ismethod(f):
            f = _applied(f) or f.__func__
        elif hasattr(f, "__wrapped__"):
            f = f.__wrapped__
        elif hasattr(f, "__code__"):
            return f
        elif not inspect.isclass(f) and hasattr(type(f).__call__, "__code__"):
            return type(f).__call__
        else:
            return f


def is_linen(f: Any) -> bool:
    """A module of Flax Linen itself, bound to parameters or not: `jax.jit` refuses both."""
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(f).__mro__}
    return "flax.linen.module.Module" in kinds


def _applied(method: Any) -> Any:
    """What Flax' `module.apply` runs: the module's own `__call__`."""
    module = str(getattr(method.__func__, "__module__", ""))
    if module.startswith("flax.linen") and method.__func__.__name__ == "apply":
        return inspect.getattr_static(type(method.__self__), "__call__", None)
    return None


def name(f: Any) -> str:
    """What a function is called."""
    inner = innermost_function(f)
    return getattr(f, "__name__", getattr(inner, "__name__", type(f).__name__))


def argument_names(f: Any, args: tuple) -> list[str]:
    """What f calls its positional arguments.

    >>> argument_names(lambda x, *rest: x, (1, 2))
    ['x', 'args[1]']
    """
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [plain[i] if i < len(plain) else f"args[{i}]" for i in range(len(args))]


@functools.cache
def internal(file: str) -> bool:
    """A file of JAX, or of these pictures, which stand between JAX and f."""
    return file.startswith((_JAX, _HERE))


@functools.cache
def machinery(file: str) -> bool:
    """A file of JAX that traces and differentiates what others compute."""
    return file.startswith(_MACHINERY)


@functools.cache
def library(file: str) -> bool:
    """A file of Python, of JAX or of another installed package."""
    if internal(file) or file.startswith((*_LIBRARIES, "<frozen ")):
        return True
    return bool({"site-packages", "dist-packages"} & set(re.split(r"[/\\]", file)))


@functools.cache
def family(file: str) -> str:
    """Files that belong together: the cells of one notebook, the lines of one session.

    >>> family("/tmp/ipykernel_7/1.py") == family("/tmp/ipykernel_7/2.py") != family("/a/1.py")
    True
    >>> family("<ipython-input-3-0a1b2c3d4e5f>") == family("ipython-input-4-1234567.py")
    True
    """
    if re.search(r"[/\\]ipykernel_\d+[/\\]", file):
        return re.split(r"(?<=[/\\])[^/\\]*$", file)[0]
    if re.search(r"(^|[/\\<])ipython-input-\d+", file):
        return "<ipython-input->"
    return re.sub(r"\d+", "", file) if file.startswith("<") else file


def beyond(frames: list[Frame], ours: list[Frame]) -> list[CodeType]:
    """The outermost function of another package that the innermost of our frames calls, if any."""
    if not ours or ours[-1] not in frames:
        return []
    inside = frames[len(frames) - frames[::-1].index(ours[-1]) :]
    others = (code for code, _ in inside if not internal(code.co_filename))
    return [code for code in others if library(code.co_filename)][:1]


def short(file: str) -> str:
    """What a file is called; the cells of a notebook have numbers for names.

    >>> short("/srv/me/lib/model.py"), short("/tmp/ipykernel_7/123.py")
    ('model.py', 'notebook')
    """
    if family(file) != file and not file.startswith("<stdin"):
        return "notebook"
    return os.path.basename(file)


# --- is the file still what was imported?


@functools.lru_cache(maxsize=64)
def _codes(file: str, text: str) -> dict[tuple[int, str], list[CodeType]]:
    """The code objects of a file as it is now, by first line and name."""
    found: dict[tuple[int, str], list[CodeType]] = {}
    try:
        waiting = [compile(text, file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return found
    while waiting:
        code = waiting.pop()
        found.setdefault((code.co_firstlineno, code.co_name), []).append(code)
        waiting += [const for const in code.co_consts if isinstance(const, CodeType)]
    return found


def unchanged(code: CodeType) -> bool:
    """Whether the file of a code object still says what it was compiled from."""
    file = code.co_filename
    if not os.path.exists(file):  # a cell of a notebook: what linecache has is what was run
        return True
    linecache.checkcache(file)
    same = _codes(file, "".join(linecache.getlines(file))).get((code.co_firstlineno, code.co_name))
    if not same:
        return False
    return code in same or _rewritten(file)


def _kept(code: CodeType) -> bool:
    """Whether its source is to be had; `exec`, `eval` and `python -c` all call theirs <string>."""
    text = "".join(linecache.getlines(code.co_filename))
    if code.co_filename != "<string>":
        return bool(text)
    same = _codes(code.co_filename, text).get((code.co_firstlineno, code.co_name), [])
    return code in same


@functools.cache
def _rewritten(file: str) -> bool:
    """The module was loaded by something that changes code, as pytest does with asserts."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            plain = importlib.machinery.SourceFileLoader
            return type(getattr(module, "__loader__", None)) not in (plain, type(None))
    return False


@dataclasses.dataclass
class Line:
    """A line of source as shown: its number in the picture, and where it stands in its file."""

    number: int
    text: str
    file: str
    line: int
    dedent: int


class World:
    """The source a reader wrote: f's own file, or all cells of its notebook."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.function = innermost_function(f)
        code = getattr(self.function, "__code__", None)
        self.code: CodeType | None = code
        self.families = {family(code.co_filename)} if code else set()
        self.blocks: list[list[Line]] = []
        self.changed: dict[str, None] = {}  # names of files that no longer say what was run
        self._without: set[CodeType] = set()  # of these there is no source to show
        self._numbers: dict[tuple[str, int], int] = {}

    def has(self, file: str) -> bool:
        return family(file) in self.families

    def choose(self, stacks: list[list[Frame]]) -> None:
        """If f is a library's, shows the function of the reader that it runs, if it does most.

        So `module.apply` shows the module, and what `jax.vjp` returns shows what it is the
        derivative of. `stacks` are the frames of the equations.
        """
        if self.code is not None and not library(self.code.co_filename):
            return
        entered = any(code is self.code for stack in stacks for code, _ in stack)
        outside = [library, internal]
        if entered:  # f itself can be shown; only a function of the reader is better
            outside = [library]
        for foreign in outside:
            if entered or self.code is None or internal(self.code.co_filename):
                firsts = [self._first(stack, foreign, entered) for stack in stacks]
                found = Counter(code for code in firsts if code is not None)
                for code, times in found.most_common(1):
                    if 2 * times > len(stacks):
                        self.code, self.families = code, {family(code.co_filename)}
                        return

    def include(self, stacks: list[list[Frame]]) -> None:
        """Takes in every file of the reader that f calls: those of a model beside its training.

        What f was called by is not of f, so a stack counts from f on.
        """
        for stack in stacks:
            entered = [i for i, (code, _) in enumerate(stack) if code is self.code]
            for code, _ in stack[entered[-1] :] if entered else ():
                file = code.co_filename
                if not library(file) and not file.startswith(_PACKAGE):
                    self.families.add(family(file))

    def _first(
        self, stack: list[Frame], foreign: Callable[[str], bool], entered: bool
    ) -> CodeType | None:
        """The outermost function that is not foreign, below f or else below JAX."""
        below = False
        for code, _ in stack:
            if below and not foreign(code.co_filename) and code.co_name != "<module>":
                return code
            below |= code is self.code if entered else internal(code.co_filename)
        return None

    def definition(self) -> Span | None:
        """The line that f begins on, for what no line inside f did."""
        if self.code is None:
            return None
        first = self.code.co_firstlineno
        return Span(self.code, first, first, 0, 1 << 30)

    def body(self, name: str, file: str, line: int) -> Span | None:
        """The line of a function of which no more is known; its first if it has several."""
        if not self.has(file):
            return None
        codes = _codes(file, "".join(linecache.getlines(file))).get((line, name.split(".")[-1]))
        if not codes:
            return None
        (code, *others) = codes
        start = next((n for *_, n in code.co_lines() if n), line)
        lines = {n for *_, n in code.co_lines() if n and n not in (line, start)}
        only = lines.pop() if len(lines) == 1 and not others else line
        return Span(code, only, only, 0, 1 << 30)

    def frames(self, frames: Iterable[Frame]) -> list[Frame]:
        """The frames of this world, outermost first, without those of whoever called f."""
        kept: list[Frame] = []
        entered = False
        for frame in frames:
            code = frame[0]
            if code is self.code and not entered:
                kept, entered = [], True
            if self.has(code.co_filename) and code.co_name != "<module>":
                kept.append(frame)
        return kept

    def show(self, spans: Iterable[Span]) -> None:
        """Lays out f and then every other function of this world that a span lies in."""
        if self.code is not None:
            self._add(self.code)
        for piece in dict.fromkeys(spans):
            if (piece.file, piece.line) not in self._numbers and piece.code not in self._without:
                self._add(piece.code, piece)

    def number(self, piece: Span) -> int | None:
        """The line number in the picture."""
        return self._numbers.get((piece.file, piece.line))

    def numbers(self, piece: Span) -> list[int]:
        """The line numbers of all lines that the span lies on."""
        lines = range(piece.line, piece.end_line + 1)
        found = (self._numbers.get((piece.file, line)) for line in lines)
        return [number for number in found if number]

    def lines(self) -> list[Line]:
        return [line for block in self.blocks for line in block]

    def _add(self, code: CodeType, piece: Span | None = None) -> None:
        file = code.co_filename
        if not unchanged(code):
            self.changed[os.path.basename(file)] = None
            self._without.add(code)
            return
        if not _kept(code):
            self._without.add(code)
            return
        try:
            if code.co_name == "<module>":
                raise OSError
            raw, first = inspect.getsourcelines(code)
            first = max(first, 1)
        except (OSError, TypeError):
            if piece is None:
                return
            raw, first = [], piece.line
        last = max(first + len(raw) - 1, piece.end_line if piece else 0)
        if len(raw) <= last - first:
            raw = [linecache.getline(file, n) for n in range(first, last + 1)]
        if not "".join(raw).strip():
            return
        raw = [text.rstrip() for text in raw]
        dedent = len(raw[0]) - len(raw[0].lstrip())
        folded = _docstrings(raw)
        block = []
        start = len(self.lines()) + 1
        for i, text in enumerate(raw):
            if i in folded and folded[i] is None:
                continue
            text = folded.get(i) or text
            if not text.strip() and (not block or not block[-1].text.strip()):
                continue
            cut = min(dedent, len(text) - len(text.lstrip()))
            block.append(Line(start + len(block), text[cut:], file, first + i, cut))
        for line in block:
            self._numbers.setdefault((file, line.line), line.number)
        self.blocks.append(block)


def _docstrings(raw: list[str]) -> dict[int, str | None]:
    """Index of line → one line instead (None: drop), for docstrings of several lines."""
    folded: dict[int, str | None] = {}
    try:
        tree = ast.parse(textwrap.dedent("\n".join(raw)))
    except SyntaxError:  # a lambda in the middle of a call
        return folded
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            doc = node.body[0]
            end = doc.end_lineno or doc.lineno
            if text and end > doc.lineno:
                first = raw[doc.lineno - 1]
                indent = first[: len(first) - len(first.lstrip())]
                summary = text.splitlines()[0]
                folded[doc.lineno - 1] = f'{indent}"""{summary} …"""'
                folded.update({i: None for i in range(doc.lineno, end)})
    return folded


def columns(line: Line, piece: Span) -> tuple[int, int]:
    """Where in the shown line the span begins and ends, in characters."""
    original = linecache.getline(line.file, line.line).rstrip("\n")
    encoded = original.encode()

    def characters(byte: int) -> int:
        return len(encoded[:byte].decode(errors="ignore")) - line.dedent

    start = characters(piece.column) if line.line == piece.line else 0
    end = characters(piece.end_column) if line.line == piece.end_line else len(line.text)
    indent = len(line.text) - len(line.text.lstrip())
    return max(start, indent), min(end, len(line.text))


def tokens(block: list[Line]) -> dict[tuple[int, int], tuple[int, str]]:
    """(line number, start) → (end, kind) of keywords, strings and comments; empty if unreadable."""
    found: dict[tuple[int, int], tuple[int, str]] = {}
    text = "\n".join(line.text for line in block) + "\n"
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            kind = {tokenize.STRING: "s", tokenize.COMMENT: "m"}.get(token.type)
            if token.type == tokenize.NAME and keyword.iskeyword(token.string):
                kind = "k"
            if kind is None:
                continue
            (row, start), (end_row, end) = token.start, token.end
            for r in range(row, end_row + 1):
                line = block[r - 1]
                stop = end if r == end_row else len(line.text)
                found[line.number, start if r == row else 0] = (stop, kind)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return {}
    return found
