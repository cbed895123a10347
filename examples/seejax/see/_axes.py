"""Where the batch axis goes: into a function of one example, through its operations, and out."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import jax.extend.core as jex_core

from seejax.see import _jax_private, _jaxpr, _source
from seejax.see._i18n import count
from seejax.see._jaxpr import short_dtype
from seejax.see._parts import HUES, Column, Line, Pane, Span, Spans, Table, joined
from seejax.see._picture import Picture

_TAG = "seejax_one_"
_SIGN = "ᴮ"  # behind the length of the batch axis

Axis = int | None | Literal["unknown"]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf of the arguments or results, on both sides of `jax.vmap`.

    Attributes:
      path: where it is: `params['w']`, `result[0]`.
      dtype: its dtype; of a number that is not mapped, and thus no array, its Python type.
      outside: its shape in the batch.
      axis: which axis of `outside` is the batch axis, from 0; None if it has none.
      inside: its shape in the function of one example.
    """

    path: str
    dtype: str
    outside: tuple[int, ...]
    axis: int | None
    inside: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Operation:
    """An equation of the batched function.

    Attributes:
      index: its number, depth first; an equation inside another one comes after it.
      primitive: its name: `dot_general`.
      axes: for each of its results the batch axis, from 0; None if it has none; "unknown" if the
        batch is merged with another axis, or the results cannot be followed.
      of: number of the equation of one example that it comes from; None if that is not known.
      depth: 0 in the function itself, 1 inside one of its equations, and so on.
    """

    index: int
    primitive: str
    axes: tuple[Axis, ...]
    of: int | None
    depth: int


class Axes(Picture):
    """What `see.axes` returns.

    Attributes:
      size: the number of examples.
      arguments, results: tuples of `Leaf`.
      operations: tuple of `Operation`: the equations of `many`, those inside others included.
      one, many: the `ClosedJaxpr` of one example, and of the batch.
    """

    kind = "axes"
    lead = "vmap of"
    name: str = ""

    def __init__(
        self, f: Callable[..., Any], in_axes: Any, out_axes: Any, args: tuple, kwargs: dict
    ) -> None:
        self.name = _source.name(f)
        self.arguments = _arguments(f, in_axes, args, kwargs)
        self.size = _size(self.arguments)
        leaves, tree = jax.tree.flatten((args, kwargs))
        axes = [leaf.axis for leaf in self.arguments]
        # A number that is not mapped stays a number inside vmap, and so it does here.
        traced = [i for i, axis in enumerate(axes) if axis is not None or _shaped(leaves[i])]

        def called(g: Callable[..., Any]) -> Callable[..., Any]:
            def of_traced(*given: Any) -> Any:
                full = dict(enumerate(leaves)) | dict(zip(traced, given, strict=True))
                args, kwargs = jax.tree.unflatten(tree, full.values())
                return g(*args, **kwargs)

            return of_traced

        def sized(size: int | None) -> list[jax.ShapeDtypeStruct]:
            return [_resized(leaves[i], self.arguments[i], size) for i in traced]

        one = jax.make_jaxpr(called(f), return_shape=True)
        many = jax.make_jaxpr(called(jax.vmap(f, in_axes, out_axes)), return_shape=True)
        self.one, _ = one(*sized(None))
        self.many, results = many(*sized(self.size))
        self.results = _results(results, out_axes)
        out = [leaf.axis for leaf in self.results]
        tagged, _ = _jax_private.tagged(self.one, _TAG)
        again = jax.vmap(jex_core.jaxpr_as_fun(tagged), tuple(axes[i] for i in traced), out)
        other = _prime_above(max(0, *_sizes(self.one), *_sizes(self.many)))
        twin = jax.make_jaxpr(again)(*sized(other))  # the same for another number of examples
        equations, twins = list(_walk(self.many)), list(_walk(twin))
        self._axis: dict[int, Axis] = {}  # by the id of a variable of `many`
        if [e.primitive.name for e, _ in equations] != [e.primitive.name for e, _ in twins]:
            twins = []
        for a, b in zip(_programs(self.many), _programs(twin) if twins else (), strict=False):
            for var, its_twin in zip(_bound(a), _bound(b), strict=False):
                self._axis[id(var)] = _moved(_shape(var), _shape(its_twin), self.size, other)
        scopes = [_jax_private.scope(e) for e, _ in twins] or [""] * len(equations)
        self.operations = tuple(
            Operation(
                index,
                eqn.primitive.name,
                tuple(self._axis.get(id(var), "unknown") for var in eqn.outvars),
                next((int(n) for n in re.findall(_TAG + r"(\d+)", scope)[::-1]), None),
                depth,
            )
            for index, ((eqn, depth), scope) in enumerate(zip(equations, scopes, strict=True))
        )

    def summary(self) -> Spans:
        spans = [Span(count(self.size, "example"), word=True)]
        spans += [Span(f" · {_SIGN} "), Span("batch axis", word=True)]
        if any("unknown" in operation.axes for operation in self.operations):
            spans += [Span(" · ? "), Span("unknown", word=True)]
        return tuple(spans)

    def parts(self) -> Iterator[Table | Pane]:
        outside, inside = (Column(side, "mono", number=True) for side in ("outside", "inside"))
        axis = Column("batch axis", number=True)
        rows = [
            ((Span(leaf.path),), _typed(leaf), _place(leaf), _typed(leaf, True))
            for leaf in self.arguments
        ]
        yield Table("arguments", (Column("path"), outside, axis, inside), tuple(rows))
        yield Pane("jaxpr of one example", tuple(self._one()), rest=".one")
        yield Pane("jaxpr of the batch", tuple(self._many()), rest=".many")
        rows = [
            ((Span(leaf.path),), _typed(leaf, True), _place(leaf), _typed(leaf))
            for leaf in self.results
        ]
        yield Table("results", (Column("path"), inside, axis, outside), tuple(rows))

    def _one(self) -> Iterator[Line]:
        for row in _jaxpr.rows(self.one):
            own = () if row.index is None else (row.index,)
            yield Line(row.spans, depth=row.depth, own=own, dim=row.index is None)

    def _many(self) -> Iterator[Line]:
        def typed(var: Any) -> Spans:
            (plain,) = _jaxpr.typed(var)
            axis = self._axis.get(id(var), "unknown")
            if axis is None:
                return (plain,)
            return _marked(plain.text, axis)

        for row in _jaxpr.rows(self.many, typed):
            if row.index is None:
                yield Line(row.spans, depth=row.depth, dim=True)
                continue
            operation = self.operations[row.index]
            places = dict.fromkeys(axis for axis in operation.axes if axis is not None)
            marks = [_mark(axis) for axis in places]
            yield Line(
                row.spans,
                mark=joined([(mark,) for mark in marks], ","),
                depth=row.depth,
                own=() if operation.of is None else (operation.of,),
                label=joined([(Span(f"batch axis {m.text}", word=True),) for m in marks], ", "),
            )


def _mark(axis: Axis) -> Span:
    return Span(str(axis), f"c{axis % HUES}") if isinstance(axis, int) else Span("?", "x")


def _marked(typed: str, axis: Axis) -> Spans:
    """The type with its batch axis marked: `f32[5ᴮ,3]`."""
    if not isinstance(axis, int):
        return (Span(typed, "t"), Span("?", "x"))
    start = typed.rindex("[") + 1
    sizes = typed[start:].rstrip("]").split(",")
    before = "".join(f"{n}," for n in sizes[:axis])
    after = "".join(f",{n}" for n in sizes[axis + 1 :])
    marked = Span(sizes[axis] + _SIGN, "b")
    return (Span(typed[:start] + before, "t"), marked, Span(after + "]", "t"))


def _typed(leaf: Leaf, inside: bool = False) -> Spans:
    shape = leaf.inside if inside else leaf.outside
    typed = f"{leaf.dtype}[{','.join(map(str, shape))}]"
    return (Span(typed),) if inside or leaf.axis is None else _marked(typed, leaf.axis)


def _place(leaf: Leaf) -> Spans:
    return (Span("None"),) if leaf.axis is None else (_mark(leaf.axis),)


# --- the leaves of arguments and results


def _shaped(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _arguments(f: Any, in_axes: Any, args: tuple, kwargs: dict) -> tuple[Leaf, ...]:
    """The leaves in the order of `jax.tree.flatten((args, kwargs))`; checks what `vmap` checks."""
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        given = count(len(args), "argument")
        raise ValueError(f"in_axes has length {len(in_axes)}, f got {given} by position")
    entries = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    found = []
    for name, value, entry in zip(_source.argument_names(f, args), args, entries, strict=True):
        found += _leaves(name, value, entry, "in_axes")
    for name in sorted(kwargs):
        found += _leaves(name, kwargs[name], 0, "in_axes")
    return tuple(found)


def _spread(entry: Any, tree: Any, what: str, name: str) -> list[Any]:
    """The axis of each leaf: `entry` may be a prefix of the tree."""
    try:
        spread = jax.tree.broadcast(entry, tree, is_leaf=lambda x: x is None)
    except ValueError:
        shown = jax.tree.structure(tree)
        raise ValueError(f"{what} of {name} is {entry}, which is no prefix of {shown}") from None
    axes = jax.tree.leaves(spread, is_leaf=lambda x: x is None)
    for axis in axes:
        if axis is not None and not isinstance(axis, int):
            raise TypeError(f"{what} of {name} must be made of int and None, got {axis!r}")
    return axes


def _leaves(name: str, value: Any, entry: Any, what: str) -> Iterator[Leaf]:
    leaves, _ = jax.tree.flatten_with_path(value)
    for (path, leaf), axis in zip(leaves, _spread(entry, value, what, name), strict=True):
        where = name + jax.tree_util.keystr(path)
        if axis is None and not _shaped(leaf):
            yield Leaf(where, type(leaf).__name__, (), None, ())
            continue
        try:
            aval = jax.typeof(leaf)
        except TypeError:
            raise TypeError(f"{where} is mapped, but is no array: {type(leaf).__name__}") from None
        yield _leaf(where, aval.dtype, aval.shape, axis)


def _leaf(where: str, dtype: Any, outside: tuple[int, ...], axis: int | None) -> Leaf:
    if axis is None:
        return Leaf(where, short_dtype(dtype), outside, None, outside)
    if not -len(outside) <= axis < len(outside):
        raise ValueError(f"{where} has no axis {axis}: its shape is {outside}")
    axis %= len(outside)
    inside = outside[:axis] + outside[axis + 1 :]
    return Leaf(where, short_dtype(dtype), outside, axis, inside)


def _size(arguments: tuple[Leaf, ...]) -> int:
    sizes = {leaf.path: leaf.outside[leaf.axis] for leaf in arguments if leaf.axis is not None}
    if not sizes:
        raise ValueError("no argument is mapped: in_axes has no axis for any array")
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{path} has {n}" for path, n in sizes.items())
        raise ValueError(f"the mapped axes differ in size: {said}")
    return next(iter(sizes.values()))


def _results(results: Any, out_axes: Any) -> tuple[Leaf, ...]:
    leaves, _ = jax.tree.flatten_with_path(results)
    axes = _spread(out_axes, results, "out_axes", "the result")
    return tuple(
        _leaf("result" + jax.tree_util.keystr(path), leaf.dtype, leaf.shape, axis)
        for (path, leaf), axis in zip(leaves, axes, strict=True)
    )


def _resized(leaf: Any, known: Leaf, size: int | None) -> jax.ShapeDtypeStruct:
    """The type of the leaf for that many examples; None: for one."""
    shape = list(known.inside)
    if known.axis is not None and size is not None:
        shape.insert(known.axis, size)
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(tuple(shape), aval.dtype, weak_type=aval.weak_type)


# --- two programs that differ only in the number of examples


def _programs(jaxpr: Any) -> Iterator[Any]:
    """The program and those inside its equations, in the order of `_walk`."""
    yield (program := _jax_private.opened(jaxpr))
    for eqn in program.eqns:
        for _, inner in _jax_private.subjaxprs(eqn):
            yield from _programs(inner)


def _walk(jaxpr: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    for eqn in _jax_private.opened(jaxpr).eqns:
        yield eqn, depth
        for _, inner in _jax_private.subjaxprs(eqn):
            yield from _walk(inner, depth + 1)


def _bound(program: Any) -> list[Any]:
    """The variables of a program, those of its equations included, in order."""
    results = [var for eqn in program.eqns for var in eqn.outvars]
    return [*program.constvars, *program.invars, *results]


def _shape(var: Any) -> tuple[int, ...]:
    return tuple(getattr(var.aval, "shape", ()))


def _sizes(jaxpr: Any) -> Iterator[int]:
    return (n for program in _programs(jaxpr) for var in _bound(program) for n in _shape(var))


def _moved(shape: tuple[int, ...], twin: tuple[int, ...], size: int, other: int) -> Axis:
    """Which axis follows the number of examples, which is `other` in the twin.

    >>> _moved((3, 5), (3, 11), 5, 11), _moved((3,), (3,), 5, 11), _moved((15,), (33,), 5, 11)
    (1, None, 'unknown')
    """
    if len(shape) != len(twin):
        return "unknown"
    changed = [i for i in range(len(shape)) if shape[i] != twin[i]]
    if not changed:
        return None
    exact = [(shape[i], twin[i]) for i in changed] == [(size, other)]
    return changed[0] if exact else "unknown"


def _prime_above(n: int) -> int:
    """The least prime above n: no size divides it, and it divides none.

    >>> _prime_above(1), _prime_above(10), _prime_above(128)
    (2, 11, 131)
    """
    n = max(n + 1, 2)
    while any(n % d == 0 for d in range(2, int(n**0.5) + 1)):
        n += 1
    return n


def axes(f: Callable[..., Any], in_axes: Any, out_axes: Any, /, *args: Any, **kwargs: Any) -> Axes:
    """Where the batch axis goes in `jax.vmap(f, in_axes, out_axes)(*args, **kwargs)`.

    Above, each argument outside and inside of f; below, each result; in between the operations of
    f on one example and on the batch, in which the batch axis of each array is marked. Point at an
    operation to see what became of it. Nothing is executed: f is traced as under `jax.jit`.

    Args:
      f: the function of one example.
      in_axes, out_axes: as for `jax.vmap`: an int, None, or a prefix of the structure.
      args: the batch: arrays, `jax.ShapeDtypeStruct`, or pytrees of them. A Python number that
        is not mapped reaches f as it is.
      kwargs: arguments by name, which `vmap` maps along axis 0.
    Returns:
      `Axes`: `.arguments`, `.results`, `.operations`, `.size`.
    Raises:
      TypeError: f is not callable; an axis is no int; what is mapped is no array.
      ValueError: mapped axes of several sizes; an axis that an array does not have; in_axes or
        out_axes of another structure; nothing is mapped. Whatever f or `jax.vmap` raises, too.
    Source: the batch axis of an operation is the one whose size follows the number of examples,
      in two traces with different numbers.

    >>> import jax.numpy as jnp
    >>> w, x = jnp.ones((3, 4)), jnp.ones((4, 5))
    >>> picture = axes(lambda w, x: jnp.tanh(w @ x), (None, 1), 0, w, x)
    >>> picture.size, [leaf.inside for leaf in picture.arguments], picture.results[0].outside
    (5, [(3, 4), (4,)], (5, 3))
    >>> [(operation.primitive, operation.axes) for operation in picture.operations]
    [('dot_general', (1,)), ('tanh', (1,)), ('transpose', (0,))]
    """
    if not callable(f):
        raise TypeError(f"see.axes needs a function, got {type(f).__name__}")
    return Axes(f, in_axes, out_axes, args, kwargs)
