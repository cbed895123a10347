"""Python source · jaxpr · (StableHLO ·) optimized HLO, every line tied to its counterparts."""

import dataclasses
import itertools
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from seejax.see import _hlo, _jax_private, _jaxpr, _match_hlo, _source, _stablehlo
from seejax.see._i18n import count, number, size
from seejax.see._locate import Placed, Places
from seejax.see._modules import Module, modules
from seejax.see._parts import Branch, Column, Line, Outline, Pane, Span, Spans, joined
from seejax.see._picture import Picture


@dataclasses.dataclass(frozen=True)
class Equation(Placed):
    """One equation of the jaxpr, with where it came from and what became of it.

    Attributes:
      index, primitive, line, lineno, file_lineno, source, backward, depth: as in `Placed`.
      hlo: names of the HLO instructions it became; () if XLA folded it away.
      kernels: names of the kernels that compute them, one name for all that was fused.
      stablehlo: the StableHLO operations it became, in order; () if it needs none, if JAX left
        it out, without that pane, and where `doubt` says that its lines are not tied.
    """

    hlo: tuple[str, ...]
    kernels: tuple[str, ...]
    stablehlo: tuple[str, ...] = ()


_BIG = 100  # equations from which on a picture shows the modules that they are in
_FEW = 2000  # lines of HLO up to which all are shown


class Trace(Picture):
    """What `see.trace` returns.

    Attributes:
      jaxpr: the `ClosedJaxpr`, or None if tracing failed.
      stablehlo: what JAX hands to the compiler, as it prints it; "" if it was not asked for.
      hlo: the optimized HLO as XLA prints it, "" if there is none.
      arguments: what each input of the jaxpr is called: `x`, or with its path `params['w']`.
      equations: tuple of `Equation`, those inside others included.
      modules: the program as a tree of modules, with what each has to compute; None if tracing
        failed. A program of more than 100 equations is drawn with it.
      exact: the HLO was tied to the equations one by one. If not, `doubt` says so on the picture:
        by primitive and source line then, or with a few instructions that XLA made of an
        equation without a trace.
      error: the exception that tracing or compiling raised, else None.
    """

    kind = "trace"
    name: str = ""

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple,
        kwargs: dict,
        options: dict,
        stablehlo: bool = False,
    ) -> None:
        self.name = _source.name(f)
        self.jaxpr: Any = None
        self.stablehlo = ""
        self.hlo = ""
        self.error: Exception | None = None
        self.arguments: tuple[str, ...] = ()
        self.equations: tuple[Equation, ...] = ()
        self.modules: Module | None = None
        self.exact = False
        self._places = Places(f)
        self._rows: list[_hlo.Row] = []
        self._lowered: tuple[list[_stablehlo.Line], bool] = [], True
        self._ties = _match_hlo.Ties(True)
        self._run(f, args, kwargs, options, stablehlo)
        self._places.show()
        self._finish()

    def _run(self, f: Any, args: tuple, kwargs: dict, options: dict, stablehlo: bool) -> None:
        try:
            traced = _jaxpr.traced(f, args, kwargs, options)
        except Exception as error:  # whatever f raises is what the picture shows
            self.error = error
            self._places.blame(error)
            return
        self.jaxpr = traced.jaxpr
        self.arguments = _jaxpr.input_names(self.jaxpr, f, args, kwargs)
        self._places.locate(_jax_private.opened(self.jaxpr).eqns)
        self.modules = modules(self.jaxpr, self._places.nodes, f)
        try:
            lowered = traced.lower()
            if stablehlo:
                self.stablehlo = lowered.as_text()
                self._lowered = _stablehlo.lines(traced, self.stablehlo)
            self.hlo, computations, self._ties = _match_hlo.compiled(
                traced, lowered, len(self._places.nodes)
            )
        except Exception as error:
            self.error = error
            self._places.blame(error)
            return
        self.exact = self._ties.exact and not self._ties.unknown
        if not self._ties.exact:
            places = [
                (n.eqn.primitive.name, (n.span.file, n.span.line) if n.span else None)
                for n in self._places.nodes
            ]
            _match_hlo.by_line(self.hlo, computations, places)
        self._rows = _hlo.rows(computations)

    def _finish(self) -> None:
        rows = list(_hlo.walk(self._rows))
        became: dict[int, list[_hlo.Row]] = {}
        for row in rows:
            for index in row.instruction.own:
                became.setdefault(index, []).append(row)
        equations = []
        for node in self._places.nodes:
            mine = became.get(node.index, [])
            names = tuple(row.instruction.name for row in mine)
            place = self._places.placed(node)
            steps = (line.operation for line in self._lowered[0] if node.index in line.own)
            below = tuple(filter(None, steps))
            equations.append(Equation(**place, hlo=names, kernels=_kernels(mine), stablehlo=below))
        self.equations = tuple(equations)
        kernels = dict.fromkeys(row.kernel for row in rows if row.kernel)
        fusions = [r for r in rows if r.instruction.opcode == "fusion"]
        self._kernels = {name: i for i, name in enumerate(kernels, 1)}
        self._fusions = {row.instruction.name: i for i, row in enumerate(fusions, 1)}
        self._gone = self._without_hlo()
        self._long = len(rows) > _FEW

    def _without_hlo(self) -> set[int]:
        """Equations with no line of HLO of their own: folded, never needed, or merged with another.

        Only where the ties are exact: otherwise it may just not have been found.
        """
        if not self._rows or not self._ties.exact:
            return set()
        left = [0, *itertools.accumulate(bool(e.hlo) for e in self.equations)]
        maybe = self._ties.doubtful
        return {
            node.index
            for node in self._places.nodes
            if left[node.last + 1] == left[node.index]
            and maybe.isdisjoint(range(node.index, node.last + 1))
        }

    @property
    def doubt(self) -> Spans:
        """What the picture is not sure of; () if it is sure of everything."""
        said = self._places.changed()
        if self._rows and not self._ties.exact:
            said.append("approximate: lines matched by primitive")
        elif self._ties.unknown:
            said.append(count(len(self._ties.unknown), "instruction") + " of unknown origin")
        if not self._lowered[1]:
            said.append("lines of StableHLO not tied")
        return joined([(Span(phrase, word=True),) for phrase in said], "; ")

    def summary(self) -> Spans:
        if self.jaxpr is None:
            return (Span("not traced", word=True),)
        leaves = sum(node.last == node.index for node in self._places.nodes)
        spans = [Span(count(leaves, "equation"), word=True)]
        if self._rows:
            spans += [Span(" → "), Span(count(len(self._kernels), "kernel"), word=True)]
            if self._fusions:
                fusions = count(len(self._fusions), "fusion")
                spans += [Span(each, word=True) for each in (" (", fusions, ")")]
        legend = []
        if any(e.backward for e in self.equations):
            legend.append(("ᵀ", "backward"))
        if self._gone:
            legend.append(("∅", "gone or merged"))
        for sign, phrase in legend:
            spans += [Span(f" · {sign} "), Span(phrase, word=True)]
        return tuple(spans)

    # --- what it shows

    def parts(self) -> Iterator[Outline | Pane]:
        places = self._places
        if self.modules and self.modules.equations > _BIG:
            yield _outline(self.modules)
        lines = tuple(places.source_lines(self._message() if self.error else ()))
        yield Pane("Python source", lines, places.no_source(), ".equations")
        if self.jaxpr is not None:
            yield Pane("jaxpr", tuple(self._jaxpr_lines()), rest=".jaxpr")
        if self._lowered[0]:
            yield Pane("StableHLO", tuple(self._stablehlo_lines()), rest=".stablehlo")
        if self._rows:
            yield Pane("optimized HLO", tuple(self._hlo_lines(self._rows, 0)), rest=".hlo")

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
        inputs = zip(_jax_private.opened(self.jaxpr).invars, self.arguments, strict=False)
        paths = {var: path for var, path in inputs if not path.isidentifier()}
        for row in _jaxpr.rows(self.jaxpr, paths=paths):
            if row.index is None:
                yield Line(row.spans, depth=row.depth, dim=True)
                continue
            node, equation = self._places.nodes[row.index], self.equations[row.index]
            gone = row.index in self._gone
            gutter = self._places.gutter([row.index])
            label = self._label(gutter, [row.index], equation.kernels)
            yield Line(
                spans=(*row.spans, Span("  ∅", "x")) if gone else row.spans,
                mark=gutter,
                depth=row.depth,
                own=(row.index,),
                covers=tuple(range(row.index + 1, node.last + 1)),
                label=(*label, Span(" · "), Span("gone or merged", word=True)) if gone else label,
            )

    def _stablehlo_lines(self) -> Iterator[Line]:
        nodes = self._places.nodes
        for line in self._lowered[0]:
            own = sorted(line.own)
            inside = {i for index in own for i in range(index + 1, nodes[index].last + 1)}
            gutter = self._places.gutter(own)
            kernels = dict.fromkeys(k for index in own for k in self.equations[index].kernels)
            yield Line(
                spans=line.spans,
                mark=gutter,
                depth=line.depth,
                own=tuple(own),
                covers=tuple(sorted(inside - line.own)),
                label=self._label(gutter, own, kernels),
                dim=not own,
            )

    def _hlo_lines(self, rows: list[_hlo.Row], depth: int) -> Iterator[Line]:
        """Of a long program without parameters, and each fusion as one line."""
        if self._long and depth == 0:
            yield Line((Span("parameters, and what is inside fusions: .hlo", word=True),), dim=True)
        for row in rows:
            if self._long and row.instruction.opcode == "parameter":
                continue
            if row.heading:
                yield Line((Span(row.heading, "t"),), depth=depth, dim=True, boxed=depth > 0)
            gutter = self._places.gutter(row.own)
            kernels = (row.kernel,) if row.kernel else ()
            yield Line(
                spans=tuple(Span(text, kind) for kind, text in row.parts),
                mark=gutter,
                depth=depth,
                own=tuple(sorted(row.own)),
                covers=tuple(sorted(row.group - row.own)),
                label=self._label(gutter, sorted(row.own), kernels),
                dim=row.plumbing or not row.own,
                boxed=depth > 0,
            )
            if not self._long or row.instruction.opcode != "fusion":
                yield from self._hlo_lines(row.nested, depth + 1)

    def _label(self, gutter: Spans, indices: Iterable[int], kernels: Iterable[str]) -> Spans:
        """What a screen reader adds to the line: its counterparts."""
        said = self._places.label(gutter, indices)
        for kernel in kernels:
            number = self._fusions.get(kernel)
            text = f"fusion {number}" if number else f"kernel {self._kernels[kernel]}"
            said.append((Span(text, word=True),))
        return joined(said, " · ")


def _outline(module: Module) -> Outline:
    titles = "module", "equations", "FLOPs", "results in bytes"
    columns = tuple(Column(title, number=title != "module") for title in titles)
    return Outline("modules", columns, _branch(module), ".modules")


def _branch(module: Module) -> Branch:
    least = "" if module.bounded else "≥ "
    cells = str(module.equations), least + number(module.flops), least + size(module.bytes)
    below = tuple(map(_branch, module.modules))
    return Branch(module.name, module.path, cells, tuple(module.numbers), below)


def _kernels(rows: list[_hlo.Row]) -> tuple[str, ...]:
    """The kernels that compute something for an equation, or at least move its result."""
    working = [row for row in rows if row.instruction.opcode not in _hlo.MOVES]
    return tuple(dict.fromkeys(row.kernel for row in working or rows if row.kernel))


def trace(
    f: Callable[..., Any],
    /,
    *args: Any,
    static_argnums: int | tuple[int, ...] | None = None,
    static_argnames: str | tuple[str, ...] | None = None,
    stablehlo: bool = False,
    **kwargs: Any,
) -> Trace:
    """Python source, jaxpr and optimized HLO of f side by side; point at a line to see its others.

    Nothing is executed: f is traced and compiled once for these arguments, which may be arrays or
    `jax.ShapeDtypeStruct`. What is compiled is f's program with the numbers of its equations as
    names of scopes. A function that fails to trace is shown with JAX's error at its line.

    Args:
      f: any function JAX can trace: plain, jitted, under grad or vmap, a partial, a method; a
        module of Equinox or Flax NNX; of Flax Linen its `apply`.
      args, kwargs: its arguments.
      static_argnums, static_argnames: as for `jax.jit`; a jitted f has its own.
      stablehlo: show the program between the two as well, which JAX hands to the compiler.
    Returns:
      `Trace`: `.jaxpr`, `.stablehlo`, `.hlo`, `.equations`, `.error`.
    Raises:
      TypeError: f is not callable, or a Linen module and not its `apply`.
    Source: lines from the frames JAX records with each equation; HLO from the scope of each
      instruction, after giving every equation a scope of its own.

    >>> import jax.numpy as jnp
    >>> picture = trace(lambda x: jnp.sin(x) * 2, jnp.ones(3))
    >>> [equation.primitive for equation in picture.equations]
    ['sin', 'mul']
    >>> [equation.stablehlo for equation in trace(jnp.sin, 1.0, stablehlo=True).equations]
    [('sine',)]
    >>> picture.equations[0].kernels == picture.equations[1].kernels  # fused into one kernel
    True
    """
    if not callable(f):
        raise TypeError(f"see.trace needs a function, got {type(f).__name__}")
    if _source.is_linen(f):
        raise TypeError(
            f"JAX takes no Linen module as a function; write see.trace({type(f).__name__}(…).apply,"
            " params, x), where params is what its init returned"
        )
    f, args = _jaxpr.callable_tree(f, args)
    given = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    options = {name: value for name, value in given.items() if value is not None}
    return Trace(f, args, kwargs, options, stablehlo)
