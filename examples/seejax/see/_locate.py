"""Which line of Python an equation comes from, and the source with its equations marked."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from seejax.see import _jax_private, _source
from seejax.see._parts import HUES, Line, Note, Span, Spans, joined


@dataclasses.dataclass(frozen=True)
class Placed:
    """One equation of a jaxpr, and where it came from.

    Attributes:
      index: its number, depth first; an equation inside another one comes after it.
      primitive: its name: `sin`, `dot_general`, `scan`.
      line, lineno: the source line as text and its number in the picture; "" and 0 if it has none.
      file_lineno: the number of that line in its file, or 0.
      source: name of the Python function that the line is in, or "".
      backward: `jax.grad` or `jax.vjp` made it when going backward; its line is the forward line
        that caused it.
      depth: 0 in f itself, 1 inside one of its equations, and so on.
    """

    index: int
    primitive: str
    line: str
    lineno: int
    file_lineno: int
    source: str
    backward: bool
    depth: int


@dataclasses.dataclass
class Node:
    """An equation while its place is being found."""

    index: int
    eqn: Any
    parent: "Node | None"
    span: _source.Span | None  # the expression it came from
    callers: list[_source.Span]  # the calls around that expression, outermost first
    frames: list[_source.Frame]
    backward: bool
    depth: int
    last: int = 0  # index of the last equation inside it


class Places:
    """The equations of a program in the source of a reader's function.

    Attributes:
      world: the source.
      nodes: the equations, depth first.
      failed_at: where an exception was raised, if one was.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self.world = _source.World(f)
        self.nodes: list[Node] = []
        self.failed_at: _source.Span | None = None

    def locate(self, eqns: list[Any]) -> None:
        """Numbers the equations and finds their lines, in another file too if f only calls it."""
        outer = [_jax_private.frames(eqn) for eqn in eqns]
        self.world.choose(outer)
        self.world.include([*outer, *map(_jax_private.frames, _inside(eqns))])
        self._number(eqns, None)
        code = self.world.code
        if code is None or len({(n.span.file, n.span.line) for n in self.nodes if n.span}) > 1:
            return
        stacks = []
        for frames in outer:
            inside = [i for i, (entered, _) in enumerate(frames) if entered is code]
            if inside:
                stacks.append(frames[inside[0] :])
        for level in zip(*stacks, strict=False):
            if len(set(level)) > 1:  # here the equations part: this function is the one to show
                file = level[0][0].co_filename
                mine = _source.internal(code.co_filename) and not _source.machinery(file)
                if not self.world.has(file) and (mine or not _source.internal(file)):
                    self.world.families.add(_source.family(file))
                    self.nodes.clear()
                    self._number(eqns, None)
                return

    def _number(
        self, eqns: Iterable[Any], parent: Node | None, made_in: _source.Span | None = None
    ) -> None:
        """Numbers the equations depth first and finds where each came from.

        JAX records the frames from where a trace begins. What a function jitted inside JAX does
        thus has none of ours and shares the place of its call, also if its jaxpr was made for
        another call; what one of ours does has its own lines. `made_in`: the function of a custom
        rule, whose frames JAX loses when it differentiates a loop or a jitted call.
        """
        depth = 0 if parent is None else parent.depth + 1
        for eqn in eqns:
            frames = self.world.frames(_jax_private.frames(eqn))
            place = self.world.definition()
            node = Node(len(self.nodes), eqn, parent, place, [], [], _backward(eqn), depth)
            around: list[_source.Span] = []
            if parent is not None:
                node.span, node.callers, node.frames = parent.span, parent.callers, parent.frames
                node.backward |= parent.backward
                if frames[: len(parent.frames)] != parent.frames:
                    around = [*parent.callers, *([parent.span] if parent.span else [])]
            if parent is not None and made_in and frames in ([], parent.frames):
                node.callers = [*parent.callers, *([parent.span] if parent.span else [])]
                node.span = made_in
            elif frames:
                *node.callers, node.span = [*around, *map(_source.span, frames)]
                node.frames = frames
            self.nodes.append(node)
            for _, inner in _jax_private.subjaxprs(eqn):
                custom = eqn.primitive.name in ("custom_vjp_call", "custom_jvp_call")
                known = _jax_private.made_by(inner) if custom else None
                body = self.world.body(*known) if known else None
                self._number(_jax_private.opened(inner).eqns, node, body)
            node.last = len(self.nodes) - 1

    def blame(self, error: BaseException) -> None:
        """Remembers where the exception was raised."""
        frames = [(tb.tb_frame.f_code, tb.tb_lasti) for tb in _links(error.__traceback__)]
        inside = self.world.frames(frames)
        self.failed_at = _source.span(inside[-1]) if inside else self.world.definition()

    def show(self) -> None:
        """Lays out the source; to be called once, when all is located."""
        spans = [span for node in self.nodes for span in [*node.callers, node.span]]
        self.world.show([span for span in [*spans, self.failed_at] if span])
        self._text = {line.number: line.text.strip() for line in self.world.lines()}

    def number(self, node: Node) -> int:
        """Of its line in the picture; 0 if it has none."""
        return (self.world.number(node.span) if node.span else None) or 0

    def placed(self, node: Node) -> dict[str, Any]:
        """The fields of a `Placed`."""
        return {
            "index": node.index,
            "primitive": node.eqn.primitive.name,
            "line": self._text.get(self.number(node), ""),
            "lineno": self.number(node),
            "file_lineno": node.span.line if node.span else 0,
            "source": node.span.code.co_name if node.span else "",
            "backward": node.backward,
            "depth": node.depth,
        }

    # --- what is shown

    def changed(self) -> list[str]:
        """What is to be doubted: files that no longer say what was run."""
        return [f"{name} has changed since it was imported" for name in self.world.changed]

    def no_source(self) -> str:
        return next(iter(self.changed()), "source not available")

    def source_lines(self, message: tuple[str, ...] = ()) -> Iterator[Line | Note]:
        """The lines, cut where expressions of equations begin or end; a message where it failed."""
        own: dict[int, list[int]] = {}  # by line
        pieces: dict[int, list[tuple[_source.Span, int]]] = {}  # by line: what is on it
        for node in self.nodes:
            if number := self.number(node):
                own.setdefault(number, []).append(node.index)
            for piece in [*node.callers, *([node.span] if node.span else [])]:
                for number in self.world.numbers(piece):
                    pieces.setdefault(number, []).append((piece, node.index))
        failed = self.world.number(self.failed_at) if self.failed_at else None
        files = [_source.family(block[0].file) for block in self.world.blocks]
        for place, block in enumerate(self.world.blocks):
            if place:
                yield Line()
            if len({*files}) > 1 and files[place] not in files[max(place - 1, 0) : place]:
                yield Line((Span(_source.short(block[0].file), "t"),), dim=True)
            kinds = _source.tokens(block)
            for line in block:
                here = pieces.get(line.number, [])
                mine = own.get(line.number, [])
                calls = {i for piece, i in here if piece.line == line.line} - set(mine)
                primitives = dict.fromkeys(self.nodes[i].eqn.primitive.name for i in mine)
                yield Line(
                    spans=_segments(line, here, kinds, "wavy" * (line.number == failed)),
                    mark=(Span(str(line.number), _hue(line.number) if mine else ""),),
                    own=tuple(mine),
                    covers=tuple(sorted(calls)),
                    label=(Span(", ".join(primitives)),) if mine else (),
                )
                if line.number == failed:
                    yield Note(message)
        if message and failed is None:
            yield Note(message)

    def gutter(self, indices: Iterable[int], sign: str = "ᵀ") -> Spans:
        """The source lines of equations for the margin, signed where all of them are backward.

        Of more than three lines, the first and the last.
        """
        lines: dict[int, bool] = {}
        for node in map(self.nodes.__getitem__, indices):
            if number := self.number(node):
                lines[number] = lines.get(number, True) and node.backward
        spans = [(Span(f"{n}{sign * lines[n]}", _hue(n)),) for n in sorted(lines)]
        return joined(spans, ",") if len(spans) <= 3 else joined([spans[0], spans[-1]], "–")

    def label(self, gutter: Spans, indices: Iterable[int]) -> list[Spans]:
        """What a screen reader adds to a line: the source lines and the equations."""
        said: list[Spans] = []
        if gutter:
            numbers = "".join(span.text for span in gutter)
            said.append((Span(f"line {numbers}", word=True),))
        if names := dict.fromkeys(self.nodes[i].eqn.primitive.name for i in indices):
            said.append((Span(", ".join(names)),))
        return said


def _inside(eqns: Iterable[Any]) -> Iterator[Any]:
    for eqn in eqns:
        for _, inner in _jax_private.subjaxprs(eqn):
            yield from _jax_private.opened(inner).eqns
            yield from _inside(_jax_private.opened(inner).eqns)


def _backward(eqn: Any) -> bool:
    """Made by the transposition of a derivative: not by one that a program itself asked for."""
    scopes = _jax_private.scope(eqn).split("/")
    return any(re.match(r"(\w+\()*transpose\((\w+\()*jvp\(", scope) for scope in scopes)


def _links(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _hue(number: int) -> str:
    return f"c{number % HUES}"


def _segments(
    line: _source.Line, pieces: list[tuple[_source.Span, int]], kinds: dict, more: str
) -> Spans:
    """The line cut where an expression of an equation or a token begins or ends."""
    places: dict[_source.Span, list[int]] = {}
    for piece, index in pieces:
        places.setdefault(piece, []).append(index)
    spans = [(*_source.columns(line, piece), found) for piece, found in places.items()]
    spans = [s for s in spans if s[0] < s[1]]
    marks = [(start, *end) for (number, start), end in kinds.items() if number == line.number]
    cuts = {0, len(line.text) - len(line.text.lstrip()), len(line.text)}
    cuts.update(x for start, end, _ in [*spans, *marks] for x in (start, min(end, len(line.text))))
    out = []
    for a, b in itertools.pairwise(sorted(cuts)):
        kind = next((k for start, end, k in marks if start <= a and b <= end), "")
        over = [(end - start, found) for start, end, found in spans if start <= a and b <= end]
        least = min((size for size, _ in over), default=0)
        inner = sorted({i for size, found in over if size == least for i in found})
        outer = sorted({i for size, found in over if size > least for i in found})
        kind = f"{kind} {more}".strip() if line.text[a:b].strip() else kind
        out.append(Span(line.text[a:b], kind, False, tuple(inner), tuple(outer)))
    return tuple(out)
