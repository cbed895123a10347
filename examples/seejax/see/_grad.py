"""What a gradient carries from its forward program to its backward program."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import jax.extend.core as jex_core
import jax.numpy as jnp
import numpy as np

from seejax.see import _i18n, _jax_private, _jaxpr, _source
from seejax.see._dataflow import Flow
from seejax.see._jaxpr import short_dtype
from seejax.see._locate import Node, Placed, Places
from seejax.see._parts import Column, Line, Pane, Span, Spans, Table, joined
from seejax.see._picture import Picture

_NAMES = 3  # so many are named of values alike


@dataclasses.dataclass(frozen=True)
class Step(Placed):
    """One equation of the forward or of the backward program.

    Attributes:
      index, primitive, line, lineno, file_lineno, source, depth: as in `Placed`; the numbers of
        the backward program go on where those of the forward program end.
      backward: it is in the backward program.
      recomputed: `jax.checkpoint` runs it on the way back, to have again what it did not keep.
    """

    recomputed: bool


@dataclasses.dataclass(frozen=True)
class Crossing:
    """A value of the forward program that the backward program gets.

    Attributes:
      name: its variable, as the picture prints it.
      shape, dtype: its type; dtype as text: `float32`.
      bytes: elements times bytes of one; None if unknown. A number that is written into the
        program, such as the 2 of `x / 2`, stands in the backward program and does not cross.
      kind: `value` if the forward program computes it, `argument`, or `constant`, which is what f
        closes over.
      made_by: the equation that computes it, also where that is inside a `jit`; None for an
        argument or a constant.
      read_by: the equations of the backward program that read it; () if it is kept for nothing.
      path: of an argument where it is: `params['w']`; else "".
      line: the source line that computes it, or None.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int | None
    kind: Literal["value", "argument", "constant"]
    made_by: Step | None
    read_by: tuple[Step, ...]
    path: str
    line: str | None


class Grad(Picture):
    """What `see.grad` returns.

    Attributes:
      forward, backward: tuples of `Step`: the equations, those inside others included.
      crossing: tuple of `Crossing`: what goes from the forward to the backward program.
      bytes: of all that crosses; an array that crosses under two names counts twice.
      kept_bytes: the same without arguments and constants, which exist anyway.
      forward_jaxpr: the `ClosedJaxpr` from the arguments to the results of f, and what crosses.
      backward_jaxpr: the `ClosedJaxpr` from what crosses and one cotangent for each result that is
        float or complex, to the gradients.
    """

    kind = "grad"
    lead = "grad of"
    name: str = ""

    def __init__(
        self, f: Callable[..., Any], argnums: int | tuple[int, ...], args: tuple, kwargs: dict
    ) -> None:
        self.name = _source.name(f)
        wanted = _positions(argnums, len(args))
        paths, leaves, tree, traced = _inputs(f, wanted, args, kwargs)

        def both(*given: Any) -> tuple[list, list, list, Any]:
            full = dict(enumerate(leaves)) | dict(zip(traced, given, strict=True))
            args, kwargs = jax.tree.unflatten(tree, [full[i] for i in range(len(leaves))])

            def of_wanted(*some: Any) -> Any:
                replaced = dict(enumerate(args)) | dict(zip(wanted, some, strict=True))
                return f(*(replaced[i] for i in range(len(args))), **kwargs)

            out, pullback = jax.vjp(of_wanted, *(args[i] for i in wanted))
            results, out_tree = jax.tree.flatten(out)
            types = [jax.typeof(x) for x in results]
            smooth = [i for i, t in enumerate(types) if _differentiable(t.dtype)]
            if not smooth:
                raise TypeError("see.grad: no result of f is float or complex")
            # The one equation between the two programs: it makes the cotangents.
            starts = jax.lax.optimization_barrier([results[i] for i in smooth])
            cotangents: list[Any] = [np.zeros(t.shape, jax.dtypes.float0) for t in types]
            for i, start in zip(smooth, starts, strict=True):
                cotangents[i] = start
            gradients = pullback(jax.tree.unflatten(out_tree, cotangents))
            return results, jax.tree.leaves(pullback), starts, gradients

        program, shapes = jax.make_jaxpr(both, return_shape=True)(*(leaves[i] for i in traced))
        self._cut(program, [len(jax.tree.leaves(part)) for part in shapes])
        self._places = Places(f)
        self._places.locate([*self.forward_jaxpr.eqns, *self.backward_jaxpr.eqns])
        self._places.show()
        self._name_all([paths[i] for i in traced])

    def _cut(self, program: Any, counts: list[int]) -> None:
        """The two programs, and the variables that cross."""
        inner = _jax_private.opened(program)
        outvars = iter(inner.outvars)
        results, held, starts, gradients = [[next(outvars) for _ in range(n)] for n in counts]
        (middle,) = (i for i, e in enumerate(inner.eqns) if any(v is starts[0] for v in e.outvars))
        forward, backward = inner.eqns[:middle], inner.eqns[middle + 1 :]
        needed = [var for eqn in backward for var in eqn.invars] + held + gradients
        needed = {var for var in needed if not isinstance(var, jex_core.Literal)}
        known = [var for eqn in forward for var in eqn.outvars]
        self._crossing = [v for v in (*inner.invars, *inner.constvars, *known) if v in needed]
        self._arguments, self._constants = inner.invars, inner.constvars
        self._cotangents = starts
        outside = [*results, *self._crossing]
        self.forward_jaxpr = _jax_private.subprogram(program, inner.invars, forward, outside)
        given = [*self._crossing, *starts]
        self.backward_jaxpr = _jax_private.subprogram(program, given, backward, gradients)

    def _name_all(self, paths: list[str]) -> None:
        """Steps, rows and crossings, each with the others that it belongs to."""
        nodes = self._places.nodes
        tops = [node.index for node in nodes if node.depth == 0]
        first = [*tops, len(nodes)][len(self.forward_jaxpr.eqns)]
        for node in nodes:
            node.backward = node.index >= first
        flow = Flow(nodes)
        new = flow.downstream(self._cotangents)  # the way forward had no cotangent
        steps = [
            Step(
                **self._places.placed(node),
                recomputed=node.backward and node.index not in new and _recomputed(node),
            )
            for node in nodes
        ]
        self.forward, self.backward = tuple(steps[:first]), tuple(steps[first:])
        numbers = {var: (len(nodes) + k,) for k, var in enumerate(self._crossing)}
        names: dict[Any, str] = {}
        self._rows = [
            _jaxpr.rows(self.forward_jaxpr, names=names, links=numbers),
            _jaxpr.rows(self.backward_jaxpr, names=names, links=numbers),
        ]
        self._linked: dict[int, set[int]] = {}  # by step: the numbers of what it makes and reads
        where = dict(zip(self._arguments, paths, strict=True))
        crossing = []
        for var in self._crossing:
            value = flow.values.get(var, 0)
            made = steps[flow.made[value]] if value in flow.made else None
            read = tuple(steps[i] for i in flow.read.get(value, ()) if i >= first)
            kind = "value" if made else "argument" if var in where else "constant"
            for step in (*read, *([made] if made else [])):
                self._linked.setdefault(step.index, set()).update(numbers[var])
            crossing.append(
                Crossing(
                    name=names[var],
                    shape=tuple(getattr(var.aval, "shape", ())),
                    dtype=str(getattr(var.aval, "dtype", var.aval)),
                    bytes=_bytes(var.aval),
                    kind=kind,
                    made_by=made,
                    read_by=read,
                    path=where.get(var, ""),
                    line=(made.line or None) if made else None,
                )
            )
        self.crossing = tuple(crossing)
        self.bytes = sum(c.bytes or 0 for c in crossing)
        self.kept_bytes = sum(c.bytes or 0 for c in crossing if c.kind == "value")

    # --- what it shows

    @property
    def doubt(self) -> Spans:
        said = self._places.changed()
        said += ["size unknown"] * any(c.bytes is None for c in self.crossing)
        return joined([(Span(phrase, word=True),) for phrase in said], "; ")

    def summary(self) -> Spans:
        nodes, first = self._places.nodes, len(self.forward)
        counts = [sum(n.last == n.index for n in part) for part in (nodes[:first], nodes[first:])]
        spans = [Span("forward", word=True), Span(" "), _equations(counts[0])]
        spans += [Span(", ", word=True), Span("backward", word=True), Span(" ")]
        spans += [_equations(counts[1]), Span(" · ")]
        spans += [Span(f"{_i18n.size(self.bytes)} cross", word=True), Span(", ", word=True)]
        spans += [Span(f"{_i18n.size(self.kept_bytes)} of it computed", word=True)]
        legend = [("ᵀ", "backward")]
        if any(step.recomputed for step in self.backward):
            legend.append(("↻", "recomputed"))
        for sign, phrase in legend:
            spans += [Span(f" · {sign} "), Span(phrase, word=True)]
        return (*spans, Span(" · "), Span("the program before the compiler", word=True))

    def parts(self) -> Iterator[Pane | Table]:
        places = self._places
        yield Pane("Python source", tuple(places.source_lines()), places.no_source(), ".forward")
        first = len(self.forward)
        for title, rows, start, rest in (
            ("forward program", self._rows[0], 0, ".forward_jaxpr"),
            ("backward program", self._rows[1], first, ".backward_jaxpr"),
        ):
            yield Pane(title, tuple(self._lines(rows, start)), rest=rest)
        if not self.crossing:
            return
        head = Column("value"), Column("type", "mono", True), Column("bytes", number=True)
        rows = tuple(map(self._row, self._alike()))
        yield Table("what crosses from forward to backward", (*head, Column("made by")), rows)

    def _lines(self, rows: list[_jaxpr.Row], start: int) -> Iterator[Line]:
        steps = [*self.forward, *self.backward]
        for row in rows:
            if row.index is None:
                yield Line(row.spans, depth=row.depth, dim=True)
                continue
            index = start + row.index
            mark = self._places.gutter([index], "↻" if steps[index].recomputed else "ᵀ")
            yield Line(
                row.spans,
                mark=mark,
                depth=row.depth,
                own=(index, *sorted(self._linked.get(index, ()))),
                covers=tuple(range(index + 1, self._places.nodes[index].last + 1)),
                label=joined(self._places.label(mark, [index]), " · "),
            )

    def _alike(self) -> list[list[int]]:
        """The crossings by number, those together that differ in nothing but their names."""
        groups: dict[Any, list[int]] = {}
        for k, c in enumerate(self.crossing):
            by = (c.made_by.primitive, c.made_by.lineno) if c.made_by else c.path or k
            groups.setdefault((c.shape, c.dtype, by, bool(c.read_by)), []).append(k)
        return list(groups.values())

    def _row(self, group: list[int]) -> tuple[Spans, ...]:
        c, n, start = self.crossing[group[0]], len(group), len(self._places.nodes)
        named = group if n <= _NAMES + 1 else group[:_NAMES]
        names = [(Span(self.crossing[k].name, "mono b", links=(start + k,)),) for k in named]
        name = joined(names, ", ")
        if rest := group[len(named) :]:
            links = tuple(start + k for k in rest)
            name += (Span(" "), Span(f"… {n} alike", links=links, word=True))
        typed = f"{short_dtype(c.dtype)}[{','.join(map(str, c.shape))}]"
        size = "" if c.bytes is None else _i18n.size(n * c.bytes)
        made: list[Span] = [Span(c.kind, word=True)]
        if c.made_by:
            makers = [self.crossing[k].made_by for k in group]
            links = tuple(step.index for step in makers if step)
            made = [Span(c.made_by.primitive, "o", links=links)]
            if c.made_by.lineno:
                made += [Span(" · "), Span(f"line {c.made_by.lineno}", word=True)]
        made += [Span(f" {c.path}")] * bool(c.path)
        made += [Span(" · "), Span("not read", word=True)] * (not c.read_by)
        return name, (Span(f"{n} × " * (n > 1) + typed),), (Span(size),), tuple(made)


def _recomputed(node: Node | None) -> bool:
    while node:
        if _jax_private.recomputed(node.eqn):
            return True
        node = node.parent
    return False


def _equations(n: int) -> Span:
    return Span(_i18n.count(n, "equation"), word=True)


def _differentiable(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.inexact)


def _bytes(aval: Any) -> int | None:
    try:
        return int(math.prod(aval.shape)) * aval.dtype.itemsize
    except Exception:  # a symbolic shape has no size
        return None


def _positions(argnums: Any, n: int) -> list[int]:
    """The differentiated arguments, counted from 0."""
    several = argnums if isinstance(argnums, tuple | list) else (argnums,)
    for i in several:
        if not isinstance(i, int) or isinstance(i, bool):
            raise TypeError(f"argnums must be an int or a tuple of int, got {argnums!r}")
        if not -n <= i < n:
            given = _i18n.count(n, "argument")
            raise ValueError(f"argnums has {i}, f got {given} by position")
    return list(dict.fromkeys(i % n for i in several))


def _inputs(
    f: Any, wanted: list[int], args: tuple, kwargs: dict
) -> tuple[list[str], list[Any], Any, list[int]]:
    """The leaves: where each is, what it is, their structure, and which of them are traced.

    A number or any other thing that is no array, and is not differentiated, reaches f as it is.
    """
    found, tree = jax.tree.flatten_with_path((args, kwargs))
    names = _source.argument_names(f, args)
    paths, traced, chosen = [], [], 0
    for i, ((side, at, *rest), leaf) in enumerate(found):
        by_position = side.idx == 0
        path = (names[at.idx] if by_position else at.key) + jax.tree_util.keystr(tuple(rest))
        if by_position and at.idx in wanted:
            chosen += 1
            try:
                dtype = jax.typeof(leaf).dtype
            except (TypeError, AttributeError):
                kind = type(leaf).__name__
                raise TypeError(f"{path} is differentiated, but is no array: {kind}") from None
            if not _differentiable(dtype):
                raise TypeError(f"{path} is differentiated, but not float or complex: {dtype}")
            traced.append(i)
        elif hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            traced.append(i)
        paths.append(path)
    if not chosen:
        raise ValueError("nothing to differentiate by: the arguments of argnums have no leaf")
    return paths, [leaf for _, leaf in found], tree, traced


def grad(
    f: Callable[..., Any],
    /,
    *args: Any,
    argnums: int | tuple[int, ...] = 0,
    **kwargs: Any,
) -> Grad:
    """What `jax.grad(f, argnums)(*args, **kwargs)` keeps of its way forward for its way back.

    Python source, forward program and backward program side by side, and a table of the values
    that cross from one to the other; point at a value to see what makes and what reads it. Nothing
    is executed: f is traced once, as under `jax.jit`, and its results may be any arrays.

    Both programs are as JAX wrote them. Under `jax.jit` XLA compiles them as one: it may merge
    what is equal, compute a value twice rather than keep it, or never store it. Of that the
    picture knows nothing; `compile().memory_analysis()` does.

    Args:
      f: any function JAX can differentiate: plain, jitted, with `jax.checkpoint` or a custom rule.
      args: its arguments: arrays, `jax.ShapeDtypeStruct`, or pytrees of them. What is no array and
        is not differentiated, such as a Python number, reaches f as it is.
      argnums: the differentiated arguments by position, as for `jax.grad`.
      kwargs: arguments by name, which are not differentiated.
    Returns:
      `Grad`: `.forward`, `.backward`, `.crossing`, `.bytes`, `.kept_bytes`.
    Raises:
      TypeError: f is not callable; argnums is no int; a differentiated leaf is no array, or not
        float or complex; no result of f is.
      ValueError: argnums out of range; nothing to differentiate by. Whatever f raises, too.
    Source: the leaves of what `jax.vjp` returns, and what its call reads, in one trace.

    >>> import jax.numpy as jnp
    >>> picture = grad(lambda w, x: jnp.sum(jnp.sin(x @ w)), jnp.ones(4), jnp.ones((3, 4)))
    >>> [step.primitive for step in picture.forward]
    ['dot_general', 'sin', 'cos', 'reduce_sum']
    >>> [(c.kind, c.bytes, c.path or c.made_by.primitive) for c in picture.crossing]
    [('argument', 48, 'x'), ('value', 12, 'cos')]
    >>> picture.bytes, picture.kept_bytes
    (60, 12)
    """
    if not callable(f):
        raise TypeError(f"see.grad needs a function, got {type(f).__name__}")
    return Grad(f, argnums, args, kwargs)
