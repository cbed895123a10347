"""Python source · jaxpr · optimized HLO, side by side, every line tied to its counterparts."""

import dataclasses
import itertools
import os
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import jax
import jax.extend.core as jex_core
import numpy as np

from seejax.see import _hlo, _jax_private, _source
from seejax.see._picture import Picture, escape
from seejax.see._calls import short_dtype

_TAG = "SEEJAX"
_FOLD = 60  # lines of a pane that are shown without asking
_MOST = 400  # lines of a pane that are in the page at all
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
      backward: it belongs to a backward pass; its line is the forward line that caused it.
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
    last: int = 0  # index of the last equation inside it

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1


@dataclasses.dataclass
class _Text:
    """A line of the jaxpr pane."""

    indent: int
    parts: list[tuple[str, str]]
    index: int | None = None


class Trace(Picture):
    """What `see.trace` returns.

    Attributes:
      jaxpr: the `ClosedJaxpr`, or None if tracing failed.
      hlo: the optimized HLO as XLA prints it, "" if there is none.
      equations: tuple of `Equation`, those inside others included.
      exact: the HLO was tied to the equations one by one; otherwise, for a program that JAX cannot
        rebuild equation by equation, by primitive and source line.
      error: the exception that tracing or compiling raised, else None.
    """

    kind = "trace"

    def __init__(self, f: Callable[..., Any], args: tuple, kwargs: dict, options: dict) -> None:
        self.name = _name(f)
        self.jaxpr: Any = None
        self.hlo = ""
        self.error: Exception | None = None
        self.equations: tuple[Equation, ...] = ()
        self.exact = False
        self._world = _source.World(f)
        self._nodes: list[_Node] = []
        self._texts: list[_Text] = []
        self._rows: list[_hlo.Row] = []
        self._failed_at: _source.Span | None = None
        self._run(f, args, kwargs, options)
        spans = [span for node in self._nodes for span in [*node.callers, node.span]]
        self._world.show([span for span in [*spans, self._failed_at] if span])
        self._finish()

    def _run(self, f: Any, args: tuple, kwargs: dict, options: dict) -> None:
        jitted = not options and hasattr(f, "trace") and hasattr(f, "lower")
        try:
            traced = (f if jitted else jax.jit(f, **options)).trace(*args, **kwargs)
        except Exception as error:  # whatever f raises is what the picture shows
            self.error, self._failed_at = error, self._blame(error)
            return
        self.jaxpr = traced.jaxpr
        self._locate()
        self._print()
        try:
            self.hlo = traced.lower().compile().as_text()
        except Exception as error:
            self.error, self._failed_at = error, self._blame(error)
            return
        computations = _hlo.parse(self.hlo)
        self._tie(computations)
        self._rows = _hlo.rows(computations)

    # --- equations → source

    def _locate(self) -> None:
        """Numbers the equations and finds their lines, in another file too if f only calls it."""
        self._number(self.jaxpr, None)
        if len({(n.span.file, n.span.line) for n in self._nodes if n.span}) > 1:
            return
        stacks = []
        for node in self._nodes:
            frames = _jax_private.frames(node.eqn)
            inside = [i for i, (code, _) in enumerate(frames) if code is self._world.code]
            if node.parent is None and inside:
                stacks.append(frames[inside[0] :])
        for level in zip(*stacks, strict=False):
            if len(set(level)) > 1:  # here the equations part: this function is the one to show
                file = level[0][0].co_filename
                internal = os.path.dirname(jax.__file__) + os.sep
                mine = self._world.code.co_filename.startswith(internal)
                if not self._world.has(file) and (mine or not file.startswith(internal)):
                    self._world.families.add(_source.family(file))
                    self._nodes.clear()
                    self._number(self.jaxpr, None)
                return

    def _number(self, jaxpr: Any, parent: _Node | None) -> None:
        """Numbers the equations depth first and finds where each came from.

        JAX records the frames from where a trace begins. What a function jitted inside JAX does
        thus has none of ours and shares the place of its call, also if its jaxpr was made for
        another call; what one of ours does has its own lines.
        """
        for eqn in _jax_private.opened(jaxpr).eqns:
            frames = self._world.frames(_jax_private.frames(eqn))
            node = _Node(len(self._nodes), eqn, parent, self._world.definition(), [], [], False)
            node.backward = "transpose(" in _jax_private.scope(eqn)
            around: list[_source.Span] = []
            if parent is not None:
                node.span, node.callers, node.frames = parent.span, parent.callers, parent.frames
                node.backward |= parent.backward
                if frames[: len(parent.frames)] != parent.frames:
                    around = [*parent.callers, *([parent.span] if parent.span else [])]
            if frames:
                *node.callers, node.span = [*around, *map(_source.span, frames)]
                node.frames = frames
            self._nodes.append(node)
            for _, inner in _jax_private.subjaxprs(eqn):
                self._number(inner, node)
            node.last = len(self._nodes) - 1

    def _blame(self, error: BaseException) -> _source.Span | None:
        frames = [(tb.tb_frame.f_code, tb.tb_lasti) for tb in _links(error.__traceback__)]
        inside = self._world.frames(frames)
        return _source.span(inside[-1]) if inside else self._world.definition()

    # --- equations → HLO

    def _tie(self, computations: dict[str, _hlo.Computation]) -> None:
        """Gives each instruction the equations it computes."""
        try:
            program, count = _jax_private.tagged(self.jaxpr, _TAG)
            avals = [v.aval for v in _jax_private.opened(program).invars]
            inputs = [
                jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=getattr(a, "weak_type", False))
                for a in avals
            ]
            function = jex_core.jaxpr_as_fun(program)
            twin = _hlo.parse(jax.jit(function).lower(*inputs).compile().as_text())
        except Exception:  # an exotic primitive that cannot be rebuilt; lines still can be matched
            twin, count = {}, -1
        self.exact = count == len(self._nodes) and (
            _hlo.skeleton(twin) == _hlo.skeleton(computations)
        )
        if self.exact:
            for one, other in zip(computations.values(), twin.values(), strict=True):
                for a, b in zip(one.instructions, other.instructions, strict=True):
                    tags = re.findall(_TAG + r"(\d+)", b.op_name)
                    a.own = frozenset(map(int, tags[-1:]))
            self._adopt(computations)
        else:
            self._tie_by_line(computations)

    def _adopt(self, computations: dict[str, _hlo.Computation]) -> None:
        """XLA rewrites a few products without saying from what; one of that kind must miss one."""
        kinds = {"dot": "dot_general", "convolution": "conv_general_dilated"}
        instructions = [i for c in computations.values() for i in c.instructions]
        for opcode, primitive in kinds.items():
            orphans = [i for i in instructions if i.opcode == opcode and not i.own]
            taken = frozenset().union(*(i.own for i in instructions if i.opcode == opcode))
            missing = [
                node
                for node in self._nodes
                if node.eqn.primitive.name == primitive and node.index not in taken
            ]
            for orphan in orphans:
                size = _elements(orphan.type)
                fitting = [n for n in missing if n.eqn.outvars[0].aval.size == size]
                if fitting:
                    orphan.own = frozenset({fitting[0].index})
                    missing.remove(fitting[0])

    def _tie_by_line(self, computations: dict[str, _hlo.Computation]) -> None:
        """Without tags: same primitive and same source line."""
        places = _hlo.places(self.hlo)
        for i in (i for c in computations.values() for i in c.instructions):
            primitive = i.op_name.rpartition("/")[2]
            lines = places.get(i.frame, ())
            i.own = frozenset(
                node.index
                for node in self._nodes
                if node.span
                and node.eqn.primitive.name == primitive
                and (node.span.file, node.span.line) in lines
            )

    # --- jaxpr → text

    def _print(self) -> None:
        names: dict[int, str] = {}

        def name(var: Any) -> str:
            if isinstance(var, jex_core.Literal):
                return _literal(var)
            if isinstance(var, jex_core.DropVar):
                return "_"
            return names.setdefault(id(var), _letters(len(names)))

        def typed(variables: Iterable[Any]) -> list[tuple[str, str]]:
            parts: list[tuple[str, str]] = []
            for var in variables:
                parts += [("", " ")] if parts else []
                parts += [("v", name(var)), ("t", f":{_type(var.aval)}")]
            return parts

        nodes = iter(self._nodes)

        def program(jaxpr: Any, indent: int) -> None:
            inner = _jax_private.opened(jaxpr)
            variables = [*inner.constvars, *inner.invars]
            self._texts.append(_Text(indent, [("o", "λ"), ("", " "), *typed(variables)]))
            for eqn in inner.eqns:
                node = next(nodes)
                left = typed(eqn.outvars)
                inside = list(_jax_private.subjaxprs(eqn))
                right = "".join(f" {name(var)}" for var in eqn.invars) if not inside else None
                text = _Text(indent + 1, [], node.index)
                self._texts.append(text)
                for key, sub in inside:
                    if len(inside) > 1:
                        self._texts.append(_Text(indent + 2, [("t", key)]))
                    program(sub, indent + 2)
                if right is None:
                    right = "".join(f" {name(var)}" for var in eqn.invars)
                text.parts = [*left, ("", " = " if left else ""), ("o", eqn.primitive.name)]
                text.parts += [("p", _params(eqn)), ("", right)]
            result = " ".join(map(name, inner.outvars))
            self._texts.append(_Text(indent + 1, [("o", "→"), ("", f" {result}")]))

        program(self.jaxpr, 0)

    # --- all together

    def _finish(self) -> None:
        text = {line.number: line.text.strip() for line in self._world.lines()}
        rows = list(_hlo.walk(self._rows))
        equations = []
        for node in self._nodes:
            number = self._world.number(node.span) if node.span else None
            mine = [row for row in rows if node.index in row.instruction.own]
            equations.append(
                Equation(
                    index=node.index,
                    primitive=node.eqn.primitive.name,
                    line=text.get(number, ""),
                    lineno=number or 0,
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

    def _summary(self) -> str:
        if self.jaxpr is None:
            return "not traced"
        leaves = sum(node.last == node.index for node in self._nodes)
        text = _count(leaves, "equation")
        if self._rows:
            text += f" → {_count(len(self._kernels), 'kernel')}"
            if self._fusions:
                text += f" ({_count(len(self._fusions), 'fusion')})"
        return text

    def _eliminated(self, node: _Node) -> bool:
        """XLA left nothing of it: folded, merged with an equal one, or never needed."""
        inside = range(node.index, node.last + 1)
        return bool(self._rows) and not any(self.equations[i].hlo for i in inside)

    def _gutter(self, indices: Iterable[int]) -> list[tuple[int, bool]]:
        """The source lines of the equations: (number, whether all of them are backward)."""
        lines: dict[int, bool] = {}
        for index in indices:
            equation = self.equations[index]
            if equation.lineno:
                lines[equation.lineno] = lines.get(equation.lineno, True) and equation.backward
        return sorted(lines.items())

    def __str__(self) -> str:
        lines = [f"{self.name}: {self._summary()}", "", "Python"]
        width = len(str(len(self._world.lines())))
        failed = self._world.number(self._failed_at) if self._failed_at else None
        for block in self._world.blocks:
            lines += [""] if block is not self._world.blocks[0] else []
            for line in block:
                lines.append(f"{line.number:>{width}}  {line.text}".rstrip())
                if line.number == failed:
                    lines += [f"{'!':>{width}}  {text}" for text in self._message()]
        if self.error is not None and failed is None:
            lines += [f"{'!':>{width}}  {text}" for text in self._message()]
        if self._texts:
            rows = [
                ("" if t.index is None else _marks(self._gutter([t.index])), t.indent, t.parts)
                for t in self._texts
            ]
            lines += ["", "jaxpr", *_columns(rows)]
        if self._rows:
            rows = []

            def add(row: _hlo.Row, indent: int) -> None:
                if row.heading:
                    rows.append(("", indent, [("t", row.heading)]))
                rows.append((_marks(self._gutter(row.own)), indent, row.parts))
                for nested in row.nested:
                    add(nested, indent + 1)

            for row in self._rows:
                add(row, 0)
            lines += ["", "optimized HLO", *_columns(rows)]
        return "\n".join(lines)

    def _message(self) -> list[str]:
        """The class and the first lines of the error, without the paths of this machine."""
        text = "".join(traceback.format_exception_only(self.error))
        name, separator, rest = text.partition(":")
        text = name.rpartition(".")[2] + separator + rest
        text = re.sub(r"(?<![\w:/.])(?:/[^\s/:]+)+/([^\s/:]+)", r"\1", text)
        text = re.sub(r" at 0x[0-9a-f]+", "", text)
        text = re.sub(r"\b\d{6,}\.py:", "cell:", text)  # a notebook's file is a random number
        text = text.partition("\n----")[0]
        return [line for line in text.splitlines() if line.strip()][:4]

    def _body(self) -> str:
        panes = [self._source_pane()]
        if self._texts:
            panes.append(self._jaxpr_pane())
        if self._rows:
            panes.append(self._hlo_pane())
        legend = "<span>ᵀ backward</span>" * any(e.backward for e in self.equations)
        legend += "<span>∅ eliminated</span>" * any(map(self._eliminated, self._nodes))
        return (
            f'<p class="see-head"><b>{escape(self.name)}</b> {self._summary()}{legend}</p>'
            f'<div class="see-panes">{"".join(panes)}</div>'
        )

    def _source_pane(self) -> str:
        pieces: dict[int, list[tuple[_source.Span, int]]] = {}  # by line: what is on it
        for node in self._nodes:
            for piece in [*node.callers, *([node.span] if node.span else [])]:
                numbers = {
                    self._world.number(dataclasses.replace(piece, line=n))
                    for n in range(piece.line, piece.end_line + 1)
                }
                for number in numbers - {None}:
                    pieces.setdefault(number, []).append((piece, node.index))
        failed = self._world.number(self._failed_at) if self._failed_at else None
        rows = []
        for block in self._world.blocks:
            kinds = _source.tokens(block)
            for line in block:
                here = pieces.get(line.number, [])
                own = [e.index for e in self.equations if e.lineno == line.number]
                calls = {i for piece, i in here if piece.line == line.line} - set(own)
                code = _segments(line, here, kinds)
                if line.number == failed:
                    text = code.lstrip()
                    code = f'{" " * (len(code) - len(text))}<span class="see-wavy">{text}</span>'
                primitives = dict.fromkeys(self.equations[i].primitive for i in own)
                mark = _chip(line.number) if own else f"<i>{line.number}</i>"
                label = f" · {', '.join(primitives)}" if own else ""
                rows.append(_line(own, sorted(calls), mark, code, label))
                if line.number == failed:
                    rows.append(self._error_box())
            rows.append('<div class="see-gap"></div>')
        rows = rows[:-1]
        if self.error is not None and failed is None:
            rows.append(self._error_box())
        return _pane("Python", rows, "source not available")

    def _error_box(self) -> str:
        return f'<pre class="see-error" role="note">{escape(chr(10).join(self._message()))}</pre>'

    def _jaxpr_pane(self) -> str:
        rows = []
        for t in self._texts:
            if t.index is None:
                rows.append(_line((), (), "", _code(t.indent, t.parts), "", ' class="see-dim"'))
                continue
            node, equation = self._nodes[t.index], self.equations[t.index]
            inside = range(t.index + 1, node.last + 1)
            gone = self._eliminated(node)
            parts = [*t.parts, ("x", "  ∅")] if gone else t.parts
            gutter = self._gutter([t.index])
            label = self._label(gutter, [t.index], equation.kernels)
            label += " · eliminated" if gone else ""
            code = _code(t.indent, parts)
            rows.append(_line([t.index], inside, _chips(gutter), code, label))
        return _pane("jaxpr", rows, "")

    def _hlo_pane(self) -> str:
        rows: list[str] = []

        def add(row: _hlo.Row, indent: int, box: int) -> None:
            style = f' data-box="{box}"' if box else ""
            if row.heading:
                name = _code(indent, [("t", row.heading)])
                rows.append(_line((), (), "", name, "", ' class="see-dim"' + style))
            gutter = self._gutter(row.own)
            dim = ' class="see-dim"' if row.plumbing or not row.own else ""
            kernels = (row.kernel,) if row.kernel else ()
            label = self._label(gutter, sorted(row.own), kernels)
            code = _code(indent, row.parts)
            rows.append(
                _line(
                    sorted(row.own),
                    sorted(row.group - row.own),
                    _chips(gutter),
                    code,
                    label,
                    dim + style,
                )
            )
            for nested in row.nested:
                add(nested, indent + 1, box + 1)

        for row in self._rows:
            add(row, 0, 0)
        return _pane("optimized HLO", rows, "")

    def _label(self, gutter, indices, kernels) -> str:
        """What a screen reader adds to the line: its counterparts."""
        parts = [f"line {_marks(gutter)}"] if gutter else []
        names = dict.fromkeys(self._nodes[i].eqn.primitive.name for i in indices)
        parts += [", ".join(names)] if names else []
        for kernel in kernels:
            number = self._fusions.get(kernel)
            parts.append(f"fusion {number}" if number else f"kernel {self._kernels[kernel]}")
        return "".join(f" · {part}" for part in parts)


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


def _letters(n: int) -> str:
    """The n-th variable name of a jaxpr, counted as JAX does: a … z, ba, bb …"""
    text = chr(97 + n % 26)
    while n >= 26:
        n //= 26
        text = chr(97 + n % 26) + text
    return text


def _type(aval: Any) -> str:
    text = str(aval).lstrip("~")
    dtype = re.match(r"[a-z]+\d*", text)
    return short_dtype(dtype[0]) + text[dtype.end() :] if dtype else text


def _literal(literal: Any) -> str:
    try:
        value = np.asarray(literal.val)
        return str(value.astype(literal.aval.dtype)[()]) if value.ndim == 0 else str(value)
    except (TypeError, ValueError):  # a key or another extended dtype
        return str(literal.val)


# Parameters that say how, not what.
_QUIET = {"name", "preferred_element_type", "linear", "inline", "weak_type", "mode", "debug"}
_QUIET |= {"num_consts", "num_carry", "cond_nconsts", "body_nconsts", "ft_in", "ft_out", "unroll"}
_QUIET |= {"in_layouts", "out_layouts", "in_shardings", "out_shardings", "donated_invars"}
_QUIET |= {"ctx_mesh", "keep_unused", "compiler_options_kvs", "symbolic_zeros"}


def _params(eqn: Any) -> str:
    """The parameters that say what the equation computes, short."""
    parts = [str(eqn.params["name"])] if isinstance(eqn.params.get("name"), str) else []
    for key, value in eqn.params.items():
        if key == "new_dtype":
            parts.append(short_dtype(value))
            continue
        if key == "dimension_numbers" and eqn.primitive.name == "dot_general":
            (left, right), (batch, _) = value
            parts += [f"contract {_dims(left)}·{_dims(right)}"] if left else []
            parts += [f"batch {_dims(batch)}"] if batch else []
            continue
        simple = isinstance(value, int | float | str | tuple | np.dtype)
        if key in _QUIET or not simple or value is False or value == ():
            continue
        text = re.sub(r"\s+", " ", str(value))
        if "object at 0x" not in text and "lambda ;" not in text:
            parts.append(f"{key}={text if len(text) <= 32 else text[:31] + '…'}")
    text = " ".join(parts)
    return f"[{text if len(text) <= 64 else text[:63] + '…'}]" if text else ""


def _dims(dims: Iterable[int]) -> str:
    return ",".join(map(str, dims))


def _elements(type_: str) -> int:
    dims = re.search(r"\[([\d,]*)\]", type_)
    return int(np.prod([int(d) for d in dims[1].split(",") if d])) if dims else -1


def _marks(gutter: list[tuple[int, bool]]) -> str:
    if len(gutter) > 4:
        return f"{gutter[0][0]}–{gutter[-1][0]}"
    return ",".join(f"{number}{'ᵀ' * backward}" for number, backward in gutter)


def _columns(rows: list[tuple[str, int, list[tuple[str, str]]]]) -> list[str]:
    width = max(len(mark) for mark, _, _ in rows)
    return [
        f"{mark:>{width}}  {'  ' * indent}{''.join(text for _, text in parts)}".rstrip()
        for mark, indent, parts in rows
    ]


# --- HTML


def _chip(number: int, backward: bool = False) -> str:
    return f'<i class="see-c{number % _HUES}">{number}{"ᵀ" * backward}</i>'


def _chips(gutter: list[tuple[int, bool]]) -> str:
    if len(gutter) > 3:
        (first, b), (last, c) = gutter[0], gutter[-1]
        return f"{_chip(first, b)}–{_chip(last, c)}"
    return "".join(_chip(number, backward) for number, backward in gutter)


def _code(indent: int, parts: Iterable[tuple[str, str]]) -> str:
    inside = "".join(
        f'<span class="see-{kind}">{escape(text)}</span>' if kind and text else escape(text)
        for kind, text in parts
    )
    return "  " * indent + inside


def _segments(line: _source.Line, pieces: list[tuple[_source.Span, int]], kinds: dict) -> str:
    """The line cut where an expression of an equation or a token begins or ends."""
    spans = [(*_source.columns(line, piece), index) for piece, index in pieces]
    spans = [s for s in spans if s[0] < s[1]]
    marks = [(start, *end) for (number, start), end in kinds.items() if number == line.number]
    cuts = {0, len(line.text) - len(line.text.lstrip()), len(line.text)}
    cuts.update(x for start, end, _ in [*spans, *marks] for x in (start, min(end, len(line.text))))
    edges = sorted(cuts)
    out = []
    for a, b in itertools.pairwise(edges):
        text = escape(line.text[a:b])
        kind = next((f"see-{k}" for start, end, k in marks if start <= a and b <= end), "")
        over = [(end - start, index) for start, end, index in spans if start <= a and b <= end]
        data = ""
        if over:
            least = min(over)[0]
            inner = sorted(index for size, index in over if size == least)
            outer = sorted(index for size, index in over if size > least)
            data = f' data-e="{_ids(inner)}"' + (f' data-o="{_ids(outer)}"' if outer else "")
        attributes = (f' class="{kind}"' if kind else "") + data
        out.append(f"<span{attributes}>{text}</span>" if attributes else text)
    return "".join(out)


def _ids(indices: Iterable[int]) -> str:
    return " ".join(map(str, indices))


def _line(own, inside, gutter: str, code: str, label: str, more: str = "") -> str:
    data = f' data-e="{_ids(own)}"' if own else ""
    data += f' data-g="{_ids(inside)}"' if inside else ""
    focus = ' tabindex="-1"' if data else ""
    heard = f'<span class="see-sr">{escape(label)}</span>' if label else ""
    classes = "see-l"
    if match := re.search(r' class="([^"]*)"', more):
        classes += " " + match[1]
        more = more.replace(match[0], "")
    text = re.sub(r"<[^>]*>", "", code)
    if indent := len(text) - len(text.lstrip(" ")):  # a long line wraps below its own beginning
        more += f' style="--i:{indent}"'
    return (
        f'<div class="{classes}" role="listitem"{data}{focus}{more}>'
        f'<span class="see-g">{gutter}</span><code>{code}</code>{heard}</div>'
    )


def _pane(title: str, rows: list[str], empty: str) -> str:
    # One tab stop: the first line that has counterparts.
    for i, row in enumerate(rows):
        if ' tabindex="-1"' in row:
            rows[i] = row.replace(' tabindex="-1"', ' tabindex="0"', 1)
            break
    body = "".join(rows[:_FOLD]) or f'<div class="see-l see-dim">{empty}</div>'
    if len(rows) > _FOLD:
        rest = "".join(rows[_FOLD:_MOST])
        body += f"<details><summary>+ {len(rows) - _FOLD} lines</summary>{rest}"
        if len(rows) > _MOST:
            body += f'<div class="see-l see-dim">… {len(rows) - _MOST} more in .hlo</div>'
        body += "</details>"
    return (
        f'<section class="see-pane" aria-label="{title}"><div class="see-title">{title}</div>'
        f'<div class="see-code" role="list">{body}</div></section>'
    )


def trace(
    f: Callable[..., Any],
    /,
    *args: Any,
    static_argnums: int | tuple[int, ...] | None = None,
    static_argnames: str | tuple[str, ...] | None = None,
    **kwargs: Any,
) -> Trace:
    """Python source, jaxpr and optimized HLO of f side by side; point at a line to see its others.

    Nothing is executed: f is traced and compiled for these arguments, which may be arrays or
    `jax.ShapeDtypeStruct`. A function that fails to trace is shown with JAX's error at its line.

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
