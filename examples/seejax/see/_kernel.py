"""The grid of a Pallas kernel: which program gets which block of which array, and in what order."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.extend.core as jex_core
import jax.numpy as jnp
import numpy as np

from seejax.see import _jax_private, _source
from seejax.see._i18n import count
from seejax.see._jaxpr import short_dtype
from seejax.see._parts import HUES, Line, Pane, Span, Spans
from seejax.see._picture import Picture

_WIDE = 40  # letters that a phone has room for; a grid that is wider becomes a list of blocks
_LIT = 400  # programs that light up, as many as a page shows
_MOST = 10_000  # programs that are followed

_OUTSIDE = "a block lies outside of its array"
_AT_ONCE = "programs that may run at once get the same block of a result"
_AGAIN = "a block of a result is left, and given again later"
_NOBODY = "a block of a result is given to no program"

Index = tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Operand:
    """An argument or a result of a kernel, and the block of it that each program gets.

    Attributes:
      ref: what the kernel calls it: `x_ref`.
      role: "argument" or "result".
      type: dtype and shape of the whole array: `f32[8,4]`.
      shape: of the whole array.
      block: size of a block along each axis; None where the axis is squeezed out of the ref.
      blocks: for each program in order its block: along each axis (start, stop), in elements of
        the array. A block may reach past the array's end, or lie outside.
      space: where the kernel finds it, if it is not the usual place: `any`, `smem`. Of an array in
        `any` the kernel gets the whole, and copies parts of it by itself.
      problems: tuple of sentences: what will go wrong, or depends on the machine.
    """

    ref: str
    role: str
    type: str
    shape: tuple[int, ...]
    block: tuple[int | None, ...]
    blocks: tuple[Index, ...]
    space: str = ""
    problems: tuple[str, ...] = ()

    @property
    def programs(self) -> dict[Index, tuple[int, ...]]:
        """For each block that is given to a program: the numbers of these programs, in order."""
        found: dict[Index, list[int]] = {}
        for number, index in enumerate(self.blocks):
            found.setdefault(index, []).append(number)
        return {index: tuple(numbers) for index, numbers in found.items()}


@dataclasses.dataclass(frozen=True)
class Launch:
    """One `pallas_call` of a function.

    Attributes:
      name: that of the kernel.
      grid: its sizes; () is one program. `vmap` puts a further axis in front.
      parallel: for each axis of the grid whether its programs may run at once, as the compiler's
        parameters declare it.
      operands: tuple of `Operand`: the arguments, then the results.
      scratch: the types of the kernel's further memory: `f32[8,128]`.
    """

    name: str
    grid: tuple[int, ...]
    parallel: tuple[bool, ...]
    operands: tuple[Operand, ...]
    scratch: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[tuple[int, ...], ...]:
        """What `pl.program_id` says in each program, in order: the last axis changes first."""
        return tuple(np.ndindex(*self.grid))


def _starts(mapping: Any, ids: np.ndarray) -> np.ndarray:
    """What the index map returns for each program: (programs, axes)."""
    program = _jax_private.opened(mapping.index)
    grid, further = program.invars[: ids.shape[1]], set(map(id, program.invars[ids.shape[1] :]))
    used = {id(var) for eqn in program.eqns for var in eqn.invars} | set(map(id, program.outvars))
    if used & further:
        raise ValueError(
            f"see.kernel: the index map of {mapping.ref} reads prefetched scalars; which block a "
            "program gets is known only when it runs"
        )
    alone = _jax_private.subprogram(mapping.index, grid, program.eqns, program.outvars)
    f = jex_core.jaxpr_as_fun(alone)
    with jax.ensure_compile_time_eval():
        columns = [jnp.asarray(ids[:, i], var.aval.dtype) for i, var in enumerate(grid)]
        rows = jax.vmap(f)(*columns) if columns else [x[None] for x in map(jnp.asarray, f())]
        found = [np.broadcast_to(np.asarray(row), len(ids)) for row in rows]
    return np.stack(found, 1).astype(int) if found else np.zeros((len(ids), 0), int)


def _operand(mapping: Any, ids: np.ndarray, parallel: tuple[bool, ...]) -> Operand:
    given, axes = _starts(mapping, ids), []
    for axis, (kind, size, before) in enumerate(mapping.dims):
        if kind not in ("Blocked", "Squeezed", "Element"):
            raise ValueError(f"see.kernel: {mapping.ref} has blocks of a kind not drawn: {kind}")
        start = given[:, axis] - before if kind == "Element" else given[:, axis] * size
        axes.append(np.stack([start, start + size], 1))
    cut = np.stack(axes, 1) if axes else np.zeros((len(ids), 0, 2), int)
    blocks = tuple(tuple((int(a), int(b)) for a, b in block) for block in cut)
    operand = Operand(
        mapping.ref,
        "result" if mapping.result else "argument",
        f"{short_dtype(mapping.dtype)}[{','.join(map(str, mapping.shape))}]",
        mapping.shape,
        tuple(None if kind == "Squeezed" else size for kind, size, _ in mapping.dims),
        blocks,
        mapping.space,
    )
    exact = all(kind != "Element" for kind, _, _ in mapping.dims)
    found = () if mapping.space in _jax_private.WHOLE else _problems(operand, ids, parallel, exact)
    return dataclasses.replace(operand, problems=tuple(found))


def _problems(
    operand: Operand, ids: np.ndarray, parallel: tuple[bool, ...], exact: bool
) -> Iterator[str]:
    programs = operand.programs
    inside = [index for index in programs if not _outside(index, operand.shape)]
    if len(inside) < len(programs):
        yield _OUTSIDE
    if operand.role == "argument":
        return
    several = [list(numbers) for numbers in programs.values() if len(numbers) > 1]
    if any(
        on and len(set(ids[numbers, i])) > 1 for numbers in several for i, on in enumerate(parallel)
    ):
        yield _AT_ONCE
    if any(numbers[-1] - numbers[0] >= len(numbers) for numbers in several):
        yield _AGAIN
    if exact and len(inside) < math.prod(map(len, _cuts(operand))):
        yield _NOBODY


def _outside(index: Index, shape: tuple[int, ...]) -> bool:
    return any(start >= n or stop <= 0 for (start, stop), n in zip(index, shape, strict=True))


def _cuts(operand: Operand) -> list[list[tuple[int, int]]]:
    """Where the array is cut along each axis."""
    sizes = (max(1, size or 1) for size in operand.block)
    return [
        [(start, start + size) for start in range(0, n, size)]
        for n, size in zip(operand.shape, sizes, strict=True)
    ]


def _launch(eqn: Any) -> Launch:
    said = _jax_private.launch(eqn)
    if not all(isinstance(n, int) for n in said.grid):
        raise ValueError(f"see.kernel: the grid of {said.name} is known only when it runs")
    if (n := math.prod(said.grid)) > _MOST:
        most = f"draw a smaller case of at most {_MOST:,}"
        raise ValueError(f"see.kernel: the grid of {said.name} has {n:,} programs; {most}")
    ids = np.array(list(np.ndindex(*said.grid)), int).reshape(n, len(said.grid))
    operands = tuple(_operand(mapping, ids, said.parallel) for mapping in said.mappings)
    scratch = tuple(
        f"{short_dtype(aval.dtype)}[{','.join(map(str, aval.shape))}]" for aval in said.scratch
    )
    return Launch(said.name, said.grid, said.parallel, operands, scratch)


class Kernel(Picture):
    """What `see.kernel` returns.

    Attributes:
      launches: tuple of `Launch`, one for each `pallas_call`, in the order of the jaxpr.
      jaxpr: the `ClosedJaxpr` in which they were found.
    """

    kind = "kernel"
    name: str = ""

    def __init__(self, f: Callable[..., Any], args: tuple, kwargs: dict) -> None:
        self.name = _source.name(f)
        self.jaxpr = jax.make_jaxpr(f)(*args, **kwargs)
        found = list(_jax_private.pallas_calls(self.jaxpr))
        if not found:
            raise ValueError(f"see.kernel: {self.name} contains no pallas_call")
        self.launches = tuple(map(_launch, found))
        if self.name == "wrapped":  # f is what pallas_call returned
            self.name = self.launches[0].name

    @property
    def doubt(self) -> Spans:
        said = [p for launch in self.launches for each in launch.operands for p in each.problems]
        return (Span(said[0], word=True),) if said else ()

    def summary(self) -> Spans:
        programs = sum(len(launch.programs) for launch in self.launches)
        said = [count(len(self.launches), "kernel")] * (len(self.launches) > 1)
        if len(self.launches) == 1 and self.launches[0].grid:
            said.append(f"grid {' × '.join(map(str, self.launches[0].grid))}")
        spans: list[Span] = []
        for each in said:
            head, _, rest = each.partition(" ")
            word = head == "grid"
            spans += [Span(head, word=True), Span(f" {rest}")] if word else [Span(each, word=True)]
            spans.append(Span(" · "))
        return (*spans, Span(count(programs, "program"), word=True))

    def parts(self) -> Iterable[Pane]:
        first, fresh = 0, itertools.count(-1, -1)
        for launch in self.launches:
            yield Pane("blocks", tuple(_blocks(launch, first, fresh)), rest=".launches")
            yield Pane("programs, in order", tuple(_programs(launch, first)), rest=".programs")
            first += min(len(launch.programs), _LIT)


# --- the drawing


def _programs(launch: Launch, first: int) -> Iterator[Line]:
    for number, ids in enumerate(launch.programs):
        spans = [Span(f"({', '.join(map(str, ids))})", "t")]
        for each in launch.operands:
            cut = _index(each.blocks[number], each)
            spans += [Span("  "), Span(each.ref, "v"), Span(cut)]
        own = (first + number,) if number < _LIT else ()
        yield Line(tuple(spans), mark=(Span(str(number), f"c{number % HUES}"),), own=own)


def _blocks(launch: Launch, first: int, fresh: Iterator[int]) -> Iterator[Line]:
    spans = [Span(launch.name, "k")]
    if launch.grid:
        sizes = " × ".join(map(str, launch.grid))
        spans += [Span("  "), Span("grid", "t", word=True), Span(f" {sizes}", "t")]
    for each in launch.scratch:
        spans += [Span("  "), Span("scratch", "t", word=True), Span(f" {each}", "t")]
    yield Line(tuple(spans))
    for operand in launch.operands:
        yield Line()
        yield Line(tuple(_title(operand)))
        for spans, numbers in _rows(operand, first):
            covers = tuple(first + n for n in numbers if n < _LIT)
            yield Line(spans, own=(next(fresh),) if covers else (), covers=covers)
        for spans in _notes(operand):
            yield Line(spans)


def _title(operand: Operand) -> Iterator[Span]:
    yield Span(operand.ref, "k")
    yield Span("  ")
    yield Span(operand.role, "t", word=True)
    yield Span(f" {operand.type} {operand.space}".rstrip() + "  ", "t")
    yield Span("block", "t", word=True)
    yield Span(f" {operand.block}", "t")


def _notes(operand: Operand) -> Iterator[Spans]:
    """What reaches past the end, and what will go wrong."""
    for axis, n in enumerate(operand.shape):
        past = {i[axis] for i in operand.blocks if not _outside(i, operand.shape)}
        for start, stop in sorted(cut for cut in past if cut[0] < 0 or cut[1] > n):
            where = f"{start}:{stop}"
            yield (Span(where, "t"), Span(" "), Span(f"reaches outside of 0:{n}", word=True))
    for problem in operand.problems:
        yield (Span("! ", "b"), Span(problem, "b", word=True))


def _rows(operand: Operand, first: int) -> Iterator[tuple[Spans, tuple[int, ...]]]:
    """A vector or a matrix as it lies; of any other array, or a wide one, one line a block."""
    given, cuts = operand.programs, _cuts(operand)
    rows = [[index] for index in sorted(given)]
    labels = [_index(index, operand) for (index,) in rows]
    cells = {index: _numbers(numbers) for index, numbers in given.items()}
    wide, heads = max(map(len, cells.values()), default=1), []
    whole = [index for index in given if _on(index, cuts)]
    if len(cuts) in (1, 2) and len(whole) == len(given) and math.prod(map(len, cuts)) <= _LIT:
        across = [_cut(cut) for cut in cuts[1]] if len(cuts) == 2 else []
        down = [_cut(cut) for cut in cuts[0]]
        cell = max([wide, *map(len, across)])
        if max(map(len, down), default=0) + 1 + max(1, len(across)) * (cell + 2) <= _WIDE:
            heads, labels, wide = across, down, cell
            rows = [
                [(a, *b) for b in ([(c,) for c in cuts[1]] if across else [()])] for a in cuts[0]
            ]
    margin = max(map(len, labels), default=0)
    if heads:
        above = "".join(f" {head:^{wide}} " for head in heads)
        yield (Span(" " * (margin + 1) + above, "t"),), ()
    for label, row in zip(labels, rows, strict=True):
        spans = [Span(f"{label.ljust(margin) if '[' in label else label.rjust(margin)} ", "t")]
        for index in row:
            numbers = given.get(index, ())
            links = tuple(first + n for n in numbers if n < _LIT)
            text = f" {cells.get(index, '·'):^{wide}} "
            hue = f"block c{numbers[0] % HUES}" if numbers else "t"
            spans.append(Span(text, hue, links=links))
        yield tuple(spans), tuple(n for index in row for n in given.get(index, ()))


def _on(index: Index, cuts: list[list[tuple[int, int]]]) -> bool:
    return all(cut in cuts[axis] for axis, cut in enumerate(index))


def _cut(cut: tuple[int, int]) -> str:
    return f"{cut[0]}:{cut[1]}"


def _index(index: Index, operand: Operand) -> str:
    """The block as Python cuts it: `[0:2,:]`; what is squeezed out has one number."""
    said = []
    for cut, n, size in zip(index, operand.shape, operand.block, strict=True):
        said.append(str(cut[0]) if size is None else ":" if cut == (0, n) else _cut(cut))
    return f"[{','.join(said)}]"  # without a space, at which a line might break


def _numbers(numbers: tuple[int, ...]) -> str:
    """Numbers of programs; a run by its ends, and of many the first and the last.

    >>> _numbers((0, 1, 2, 3)), _numbers((0, 4)), _numbers((1, 5, 9, 13))
    ('0–3', '0 4', '1 5 … 13')
    """
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] + 1 == n:
            runs[-1].append(n)
        else:
            runs.append([n])
    said = []
    for run in runs:
        said += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run)
    return " ".join(said) if len(said) < 4 else f"{said[0]} {said[1]} … {said[-1]}"


def kernel(f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Kernel:
    """Which program of a Pallas kernel gets which block of its arguments and results.

    Every `pallas_call` of f is drawn, wherever it is nested: the blocks of each array as they lie,
    with the numbers of the programs that get them, and beside them the programs in order. Nothing
    is executed but the index maps. What the kernel does with a block is not looked at: it need not
    read all of it, or write it.

    The order is that of a loop over the grid, whose last axis changes first. A TPU keeps to it
    but along an axis that is declared parallel; a GPU runs many programs at once.

    Args:
      f: a function, plain or jitted, that calls `jax.experimental.pallas.pallas_call` somewhere.
      args, kwargs: its arguments: arrays, `jax.ShapeDtypeStruct`, or pytrees of them.
    Returns:
      `Kernel`: `.launches`, each with `.grid`, `.programs` and `.operands`.
    Raises:
      TypeError: f is not callable.
      ValueError: there is no `pallas_call`; the grid has more than 10,000 programs, or is known
        only when it runs, or an index map reads prefetched scalars; a kind of block that is not
        drawn, such as `pl.Indirect`. Whatever f raises, too.
    Source: the `grid_mapping` of the equation; its index maps, evaluated for each program.

    >>> from jax.experimental import pallas as pl
    >>> def double(x_ref, o_ref):
    ...     o_ref[...] = 2 * x_ref[...]
    >>> spec = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    >>> x = jnp.ones((4, 8))
    >>> call = pl.pallas_call(double, x, grid=(2, 2), in_specs=[spec], out_specs=spec)
    >>> picture = kernel(call, x)
    >>> picture.launches[0].programs
    ((0, 0), (0, 1), (1, 0), (1, 1))
    >>> picture.launches[0].operands[0].blocks[1]
    ((0, 2), (4, 8))
    """
    if not callable(f):
        raise TypeError(f"see.kernel needs a function, got {type(f).__name__}")
    return Kernel(f, args, kwargs)
