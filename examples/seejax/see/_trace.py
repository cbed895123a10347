"""Python source · jaxpr · optimized HLO, side by side, every line tied to its counterparts."""

import dataclasses
import itertools
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import jax

from seejax.see import _hlo, _jax_private, _jaxpr, _source, _tie
from seejax.see._parts import Line, Note, Pane, Span, Spans, joined
from seejax.see._picture import Picture

_HUES = 6


@dataclasses.dataclass(frozen=True)
class Equation:
    """One equation of the jaxpr, with where it came from and what became of it.

    Attributes:
      index: its number, depth first; an equation inside another one comes after it.
      primitive: its name: `sin`, `dot_general`, `scan`.
      line, lineno: the source line as text and its number in the picture; "" and 0 if it has none.
      file_lineno: the number of that line in its file, or 0.
      source: name of the Python function that the line is in, or "".
      backward: `jax.grad` or `jax.vjp` made it when going backward; its line is the forward line
        that caused it.
      hlo: names of the HLO instructions it became; () if XLA folded it away.
      kernels: names of the kernels that compute them, one name for all that was fused.
      depth: 0 in f itself, 1 inside one of its equations, and so on.
    """

    index: int
    primitive: str
    line: str
    lineno: int
    file_lineno: int
    source: str
    backward: bool
    hlo: tuple[str, ...]
    kernels: tuple[str, ...]
    depth: int


@dataclasses.dataclass
class _Node:
    """An equation while its place is being found."""

    index: int
    eqn: Any
    parent: "_Node | None"
    span: _source.Span | None  # the expression it came from
    callers: list[_source.Span]  # the calls around that expression, outermost first
    frames: list[_source.Frame]
    backward: bool
    depth: int
    last: int = 0  # index of the last equation inside it


class Trace(Picture):
    """What `see.trace` returns.

    Attributes:
      jaxpr: the `ClosedJaxpr`, or None if tracing failed.
      hlo: the optimized HLO as XLA prints it, "" if there is none.
      equations: tuple of `Equation`, those inside others included.
      exact: the HLO was tied to the equations one by one. If not, `doubt` says so on the picture:
        by primitive and source line then, or with a few instructions that XLA made of an
        equation without a trace.
      error: the exception that tracing or compiling raised, else None.
    """

    kind = "trace"
    name: str = ""

    def __init__(self, f: Callable[..., Any], args: tuple, kwargs: dict, options: dict) -> None:
        self.name = _name(f)
        self.jaxpr: Any = None
        self.hlo = ""
        self.error: Exception | None = None
        self.equations: tuple[Equation, ...] = ()
        self.exact = False
        self._world = _source.World(f)
        self._nodes: list[_Node] = []
        self._rows: list[_hlo.Row] = []
        self._ties = _tie.Ties(True)
        self._failed_at: _source.Span | None = None
        self._run(f, args, kwargs, options)
        spans = [span for node in self._nodes for span in [*node.callers, node.span]]
        self._world.show([span for span in [*spans, self._failed_at] if span])
        self._finish()

    def _run(self, f: Any, args: tuple, kwargs: dict, options: dict) -> None:
        try:
            traced = _traced(f, args, kwargs, options)
        except Exception as error:  # whatever f raises is what the picture shows
            self.error, self._failed_at = error, self._blame(error)
            return
        self.jaxpr = traced.jaxpr
        self._locate()
        try:
            self.hlo = traced.lower().compile().as_text()
        except Exception as error:
            self.error, self._failed_at = error, self._blame(error)
            return
        computations = _hlo.parse(self.hlo)
        self._ties = _tie.tie(traced, self.hlo, computations, len(self._nodes))
        self.exact = self._ties.exact and not self._ties.unknown
        if not self._ties.exact:
            places = [
                (n.eqn.primitive.name, (n.span.file, n.span.line) if n.span else None)
                for n in self._nodes
            ]
            _tie.by_line(self.hlo, computations, places)
        self._rows = _hlo.rows(computations)

    # --- equations → source

    def _locate(self) -> None:
        """Numbers the equations and finds their lines, in another file too if f only calls it."""
        outer = [_jax_private.frames(eqn) for eqn in _jax_private.opened(self.jaxpr).eqns]
        self._world.choose(outer)
        self._number(self.jaxpr, None)
        code = self._world.code
        if code is None or len({(n.span.file, n.span.line) for n in self._nodes if n.span}) > 1:
            return
        stacks = []
        for frames in outer:
            inside = [i for i, (entered, _) in enumerate(frames) if entered is code]
            if inside:
                stacks.append(frames[inside[0] :])
        for level in zip(*stacks, strict=False):
            if len(set(level)) > 1:  # here the equations part: this function is the one to show
                file = level[0][0].co_filename
                mine = _source.internal(code.co_filename)
                if not self._world.has(file) and (mine or not _source.internal(file)):
                    self._world.families.add(_source.family(file))
                    self._nodes.clear()
                    self._number(self.jaxpr, None)
                return

    def _number(
        self, jaxpr: Any, parent: _Node | None, made_in: _source.Span | None = None
    ) -> None:
        """Numbers the equations depth first and finds where each came from.

        JAX records the frames from where a trace begins. What a function jitted inside JAX does
        thus has none of ours and shares the place of its call, also if its jaxpr was made for
        another call; what one of ours does has its own lines. `made_in`: the function of a custom
        rule, whose frames JAX loses when it differentiates a loop or a jitted call.
        """
        depth = 0 if parent is None else parent.depth + 1
        for eqn in _jax_private.opened(jaxpr).eqns:
            frames = self._world.frames(_jax_private.frames(eqn))
            place = self._world.definition()
            node = _Node(len(self._nodes), eqn, parent, place, [], [], _backward(eqn), depth)
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
            self._nodes.append(node)
            for _, inner in _jax_private.subjaxprs(eqn):
                custom = eqn.primitive.name in ("custom_vjp_call", "custom_jvp_call")
                known = _jax_private.made_by(inner) if custom else None
                self._number(inner, node, self._world.body(*known) if known else None)
            node.last = len(self._nodes) - 1

    def _blame(self, error: BaseException) -> _source.Span | None:
        frames = [(tb.tb_frame.f_code, tb.tb_lasti) for tb in _links(error.__traceback__)]
        inside = self._world.frames(frames)
        return _source.span(inside[-1]) if inside else self._world.definition()

    # --- all together

    def _finish(self) -> None:
        text = {line.number: line.text.strip() for line in self._world.lines()}
        rows = list(_hlo.walk(self._rows))
        became: dict[int, list[_hlo.Row]] = {}
        for row in rows:
            for index in row.instruction.own:
                became.setdefault(index, []).append(row)
        equations = []
        for node in self._nodes:
            number = (self._world.number(node.span) if node.span else None) or 0
            mine = became.get(node.index, [])
            equations.append(
                Equation(
                    index=node.index,
                    primitive=node.eqn.primitive.name,
                    line=text.get(number, ""),
                    lineno=number,
                    file_lineno=node.span.line if node.span else 0,
                    source=node.span.code.co_name if node.span else "",
                    backward=node.backward,
                    hlo=tuple(row.instruction.name for row in mine),
                    kernels=_kernels(mine),
                    depth=node.depth,
                )
            )
        self.equations = tuple(equations)
        kernels = dict.fromkeys(row.kernel for row in rows if row.kernel)
        fusions = [r for r in rows if r.instruction.opcode == "fusion"]
        self._kernels = {name: i for i, name in enumerate(kernels, 1)}
        self._fusions = {row.instruction.name: i for i, row in enumerate(fusions, 1)}
        self._gone = self._eliminated()

    def _eliminated(self) -> set[int]:
        """Equations of which XLA left nothing: folded, merged with an equal one, never needed.

        Only where the ties are exact: otherwise it may just not have been found.
        """
        if not self._rows or not self._ties.exact:
            return set()
        left = [0, *itertools.accumulate(bool(e.hlo) for e in self.equations)]
        maybe = self._ties.doubtful
        return {
            node.index
            for node in self._nodes
            if left[node.last + 1] == left[node.index]
            and maybe.isdisjoint(range(node.index, node.last + 1))
        }

    @property
    def doubt(self) -> Spans:
        """What the picture is not sure of; () if it is sure of everything."""
        said = [f"{name} has changed since it was imported" for name in self._world.changed]
        if self._rows and not self._ties.exact:
            said.append("approximate: lines matched by primitive")
        elif self._ties.unknown:
            said.append(_count(len(self._ties.unknown), "instruction") + " of unknown origin")
        return joined([(Span(phrase, word=True),) for phrase in said], "; ")

    def summary(self) -> Spans:
        if self.jaxpr is None:
            return (Span("not traced", word=True),)
        leaves = sum(node.last == node.index for node in self._nodes)
        spans = [Span(_count(leaves, "equation"), word=True)]
        if self._rows:
            spans += [Span(" → "), Span(_count(len(self._kernels), "kernel"), word=True)]
            if self._fusions:
                fusions = _count(len(self._fusions), "fusion")
                spans += [Span(each, word=True) for each in (" (", fusions, ")")]
        legend = []
        if any(e.backward for e in self.equations):
            legend.append(("ᵀ", "backward"))
        if self._gone:
            legend.append(("∅", "eliminated"))
        for sign, phrase in legend:
            spans += [Span(f" · {sign} "), Span(phrase, word=True)]
        return tuple(spans)

    # --- what it shows

    def parts(self) -> Iterator[Pane]:
        own: dict[int, list[int]] = {}  # by source line
        for equation in self.equations:
            if equation.lineno:
                own.setdefault(equation.lineno, []).append(equation.index)
        yield Pane("Python source", tuple(self._source_lines(own)), self._no_source(), ".equations")
        if self.jaxpr is not None:
            yield Pane("jaxpr", tuple(self._jaxpr_lines()), rest=".jaxpr")
        if self._rows:
            yield Pane("optimized HLO", tuple(self._hlo_lines(self._rows, 0)), rest=".hlo")

    def _no_source(self) -> str:
        for name in self._world.changed:
            return f"{name} has changed since it was imported"
        return "source not available"

    def _source_lines(self, own: dict[int, list[int]]) -> Iterator[Line | Note]:
        pieces: dict[int, list[tuple[_source.Span, int]]] = {}  # by line: what is on it
        for node in self._nodes:
            for piece in [*node.callers, *([node.span] if node.span else [])]:
                for number in self._world.numbers(piece):
                    pieces.setdefault(number, []).append((piece, node.index))
        failed = self._world.number(self._failed_at) if self._failed_at else None
        for block in self._world.blocks:
            if block is not self._world.blocks[0]:
                yield Line()
            kinds = _source.tokens(block)
            for line in block:
                here = pieces.get(line.number, [])
                mine = own.get(line.number, [])
                calls = {i for piece, i in here if piece.line == line.line} - set(mine)
                primitives = dict.fromkeys(self.equations[i].primitive for i in mine)
                yield Line(
                    spans=_segments(line, here, kinds, "wavy" * (line.number == failed)),
                    mark=(Span(str(line.number), _hue(line.number) if mine else ""),),
                    own=tuple(mine),
                    covers=tuple(sorted(calls)),
                    label=(Span(", ".join(primitives)),) if mine else (),
                )
                if line.number == failed:
                    yield Note(self._message())
        if self.error is not None and failed is None:
            yield Note(self._message())

    def _message(self) -> tuple[str, ...]:
        """The class and the first lines of the error, without the paths of this machine."""
        text = "".join(traceback.format_exception_only(self.error))
        name, separator, rest = text.partition(":")
        text = name.rpartition(".")[2] + separator + rest
        text = re.sub(r"(?<![\w:/.])(?:/[^\s/:]+)+/([^\s/:]+)", r"\1", text)
        text = re.sub(r" at 0x[0-9a-f]+", "", text)
        text = re.sub(r"\b\d{6,}\.py:", "cell:", text)  # a notebook's file is a random number
        text = text.partition("\n----")[0]
        return tuple([line for line in text.splitlines() if line.strip()][:4])

    def _jaxpr_lines(self) -> Iterator[Line]:
        for row in _jaxpr.rows(self.jaxpr):
            if row.index is None:
                yield Line(row.spans, depth=row.depth, dim=True)
                continue
            node, equation = self._nodes[row.index], self.equations[row.index]
            gone = row.index in self._gone
            gutter = self._gutter([row.index])
            label = self._label(gutter, [row.index], equation.kernels)
            yield Line(
                spans=(*row.spans, Span("  ∅", "x")) if gone else row.spans,
                mark=_marks(gutter),
                depth=row.depth,
                own=(row.index,),
                covers=tuple(range(row.index + 1, node.last + 1)),
                label=(*label, Span(" · "), Span("eliminated", word=True)) if gone else label,
            )

    def _hlo_lines(self, rows: list[_hlo.Row], depth: int) -> Iterator[Line]:
        for row in rows:
            if row.heading:
                yield Line((Span(row.heading, "t"),), depth=depth, dim=True, boxed=depth > 0)
            gutter = self._gutter(row.own)
            kernels = (row.kernel,) if row.kernel else ()
            yield Line(
                spans=tuple(Span(text, kind) for kind, text in row.parts),
                mark=_marks(gutter),
                depth=depth,
                own=tuple(sorted(row.own)),
                covers=tuple(sorted(row.group - row.own)),
                label=self._label(gutter, sorted(row.own), kernels),
                dim=row.plumbing or not row.own,
                boxed=depth > 0,
            )
            yield from self._hlo_lines(row.nested, depth + 1)

    def _gutter(self, indices: Iterable[int]) -> list[tuple[int, bool]]:
        """The source lines of the equations: (number, whether all of them are backward)."""
        lines: dict[int, bool] = {}
        for index in indices:
            equation = self.equations[index]
            if equation.lineno:
                lines[equation.lineno] = lines.get(equation.lineno, True) and equation.backward
        return sorted(lines.items())

    def _label(self, gutter, indices, kernels) -> Spans:
        """What a screen reader adds to the line: its counterparts."""
        said: list[Spans] = []
        if gutter:
            numbers = "".join(span.text for span in _marks(gutter))
            said.append((Span(f"line {numbers}", word=True),))
        names = dict.fromkeys(self._nodes[i].eqn.primitive.name for i in indices)
        if names:
            said.append((Span(", ".join(names)),))
        for kernel in kernels:
            number = self._fusions.get(kernel)
            text = f"fusion {number}" if number else f"kernel {self._kernels[kernel]}"
            said.append((Span(text, word=True),))
        return joined(said, " · ")


def _traced(f: Any, args: tuple, kwargs: dict, options: dict) -> Any:
    """The `jax.stages.Traced` of f; of a function that a library jitted, what it wrapped."""
    if not options and hasattr(f, "trace") and hasattr(f, "lower"):
        found = _jax_private.traced(f.trace(*args, **kwargs))
        if found is not None:
            return found
    return jax.jit(f, **options).trace(*args, **kwargs)


def _backward(eqn: Any) -> bool:
    """Made by the transposition of a derivative: not by one that a program itself asked for."""
    scopes = _jax_private.scope(eqn).split("/")
    return any(re.match(r"(\w+\()*transpose\((\w+\()*jvp\(", scope) for scope in scopes)


def _links(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _name(f: Any) -> str:
    inner = _source.innermost_function(f)
    return getattr(f, "__name__", getattr(inner, "__name__", type(f).__name__))


def _kernels(rows: list[_hlo.Row]) -> tuple[str, ...]:
    """The kernels that compute something for an equation, or at least move its result."""
    working = [row for row in rows if row.instruction.opcode not in _hlo.MOVES]
    return tuple(dict.fromkeys(row.kernel for row in working or rows if row.kernel))


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def _hue(number: int) -> str:
    return f"c{number % _HUES}"


def _marks(gutter: list[tuple[int, bool]]) -> Spans:
    """The numbers as they stand in the margin; of more than three, the first and the last."""
    spans = [(Span(f"{number}{'ᵀ' * back}", _hue(number)),) for number, back in gutter]
    return joined(spans, ",") if len(spans) <= 3 else joined([spans[0], spans[-1]], "–")


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


def trace(
    f: Callable[..., Any],
    /,
    *args: Any,
    static_argnums: int | tuple[int, ...] | None = None,
    static_argnames: str | tuple[str, ...] | None = None,
    **kwargs: Any,
) -> Trace:
    """Python source, jaxpr and optimized HLO of f side by side; point at a line to see its others.

    Nothing is executed: f is traced, and compiled twice, for these arguments, which may be arrays
    or `jax.ShapeDtypeStruct`; the second program is the first with the numbers of the equations
    in it. A function that fails to trace is shown with JAX's error at its line.

    Args:
      f: any function JAX can trace: plain, jitted, under grad or vmap, a partial, a method.
      args, kwargs: its arguments.
      static_argnums, static_argnames: as for `jax.jit`; a jitted f has its own.
    Returns:
      `Trace`: `.jaxpr`, `.hlo`, `.equations`, `.error`.
    Raises:
      TypeError: f is not callable.
    Source: lines from the frames JAX records with each equation; HLO from the scope of each
      instruction, after giving every equation a scope of its own.

    >>> import jax.numpy as jnp
    >>> picture = trace(lambda x: jnp.sin(x) * 2, jnp.ones(3))
    >>> [equation.primitive for equation in picture.equations]
    ['sin', 'mul']
    >>> picture.equations[0].kernels == picture.equations[1].kernels  # fused into one kernel
    True
    """
    if not callable(f):
        raise TypeError(f"see.trace needs a function, got {type(f).__name__}")
    given = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    return Trace(f, args, kwargs, {k: v for k, v in given.items() if v is not None})
