"""Which device holds which block of an array, or of each array of a tree; before and after."""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, Sharding

from seejax.see._i18n import count, size
from seejax.see._parts import HUES, Column, Line, Pane, Span, Spans, Table, joined
from seejax.see._picture import Picture
from seejax.see._tree import described

_WIDE = 42  # letters that a phone has room for; a grid that is wider becomes a list of blocks
_MOST = 60  # rows of a table


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of an array that is cut no further.

    Attributes:
      index: for each axis of the array (start, stop), so that `x[start:stop, ...]` is the block.
      devices: numbers (`device.id`) of all devices that hold it, in order.
      elsewhere: those of them that belong to other processes.
      bytes: of one copy; None if unknown.
    """

    index: tuple[tuple[int, int], ...]
    devices: tuple[int, ...]
    elsewhere: tuple[int, ...] = ()
    bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where one array lies.

    Attributes:
      path: as `jax.tree_util.keystr` writes it; "" if the array is the whole tree.
      type: dtype and global shape: `f32[8,4]`.
      shape: the global shape.
      spec: its `PartitionSpec`, as `P('x', None)`, or the class of another sharding; with the kind
        of memory if that is not the device's usual one.
      mesh: names and sizes of the mesh's axes; empty if there is no mesh.
      place: "devices"; "host" for a NumPy array or a Python number; "deleted" if it was donated
        or deleted; "unknown" for a tracer, for a shape without a place, and for partial sums (an
        unreduced axis), of which no device holds a block.
      platform: `cpu`, `gpu` or `tpu`; "" unless its place is "devices".
      blocks: tuple of `Block`, in the order of their indices; empty unless its place is "devices".
    """

    path: str
    type: str
    shape: tuple[int, ...]
    spec: str = ""
    mesh: tuple[tuple[str, int], ...] = ()
    place: str = "unknown"
    platform: str = ""
    blocks: tuple[Block, ...] = ()

    @property
    def devices(self) -> tuple[int, ...]:
        """All devices that hold a block, in order."""
        return tuple(sorted({d for block in self.blocks for d in block.devices}))


def _layout(path: str, value: Any) -> Layout:
    leaf = described(path, value)
    if leaf.dtype is None or leaf.shape is None:
        at = f"at {path} there" if path else "this"
        raise TypeError(f"see.shards: {at} is a {leaf.type}, and not an array")
    if isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        return Layout(path, str(leaf), leaf.shape, place="host")
    traced = isinstance(value, jax.core.Tracer)  # where it will lie, the compiler decides
    sharding = None if traced else getattr(value, "sharding", None)
    try:
        if not isinstance(sharding, Sharding):
            return Layout(path, str(leaf), leaf.shape)
        if isinstance(value, jax.Array) and value.is_deleted():
            return Layout(path, str(leaf), leaf.shape, place="deleted")
        if getattr(getattr(sharding, "spec", None), "unreduced", None):
            return Layout(path, str(leaf), leaf.shape, _spec(sharding))
        where = sharding.devices_indices_map(leaf.shape)
        home = next(iter(where))
    except Exception:  # a mesh without devices; or a shape that cannot be cut that way
        return Layout(path, str(leaf), leaf.shape, _spec(sharding))
    holders: dict[tuple[tuple[int, int], ...], list[jax.Device]] = {}
    for device, slices in where.items():
        bounds = (s.indices(n)[:2] for s, n in zip(slices, leaf.shape, strict=True))
        holders.setdefault(tuple(bounds), []).append(device)
    here, elements = jax.process_index(), int(np.prod(leaf.shape))
    blocks = []
    for index, devices in sorted(holders.items()):
        part = int(np.prod([stop - start for start, stop in index]))
        ids = sorted(d.id for d in devices)
        away = sorted(d.id for d in devices if d.process_index != here)
        nbytes = None if leaf.bytes is None else leaf.bytes * part // max(1, elements)
        blocks.append(Block(index, tuple(ids), tuple(away), nbytes))
    mesh = getattr(sharding, "mesh", None)
    axes = tuple(mesh.shape.items()) if mesh is not None else ()
    kind = sharding.memory_kind
    spec = _spec(sharding) + f" {kind}" * (kind not in (None, home.default_memory().kind))
    place, platform = "devices", home.platform
    return Layout(path, str(leaf), leaf.shape, spec, axes, place, platform, tuple(blocks))


def _spec(sharding: Any) -> str:
    if isinstance(sharding, NamedSharding):
        cuts = getattr(sharding.spec, "partitions", sharding.spec)
        unreduced = getattr(sharding.spec, "unreduced", None)
        said = [*map(repr, cuts), *([f"unreduced={set(unreduced)}"] if unreduced else [])]
        return f"P({', '.join(said)})"
    return type(sharding).__name__


class Shards(Picture):
    """What `see.shards` returns. It keeps no array, only what it says of them.

    Attributes:
      arrays: tuple of `Layout`, in the order of `jax.tree.leaves`.
      bytes: a dict: for each device that holds a block, by its number, the bytes it holds; of
        arrays whose size is known. An array that stands at two paths counts twice.
      other: the `Shards` of the second tree, or None.
    """

    kind = "shards"

    def __init__(self, tree: Any, *other: Any) -> None:
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        self._one = jax.tree_util.treedef_is_leaf(structure) and bool(leaves)
        self._type = type(tree).__name__
        self.arrays = tuple(_layout(jax.tree_util.keystr(path), x) for path, x in leaves)
        held: Counter[int] = Counter()
        for block in (block for array in self.arrays for block in array.blocks):
            held.update(dict.fromkeys(block.devices, block.bytes or 0))
        self.bytes = dict(sorted(held.items()))
        self.other = Shards(*other) if other else None

    @property
    def name(self) -> str:
        said = [self._type, *([self.other._type] if self.other else [])]
        if all(shards._one for shards in self._both()):
            arrays = [array for shards in self._both() for array in shards.arrays]
            said = [f"{array.type} {array.spec}".strip() for array in arrays]
            if arrays[0].type == arrays[-1].type and arrays[-1].spec:
                said[1:] = [array.spec for array in arrays[1:]]
        return " → ".join(said)

    @property
    def doubt(self) -> Spans:
        blocks = [b for s in self._both() for array in s.arrays for b in array.blocks]
        away = len({device for block in blocks for device in block.elsewhere})
        if not away:
            return ()
        said = f"{count(away, 'device')} of other processes, in brackets"
        return (Span(said, word=True),)

    def summary(self) -> Spans:
        return joined((shards._said() for shards in self._both()), " → ")

    def parts(self) -> Iterable[Pane | Table]:
        titles = ("before", "after") if self.other else ("who holds what",)
        for title, shards in zip(titles, self._both(), strict=True):
            if all(each._one for each in self._both()):
                lines = _lines(shards.arrays[0], first=1 if title == "after" else 0)
                yield Pane(title, tuple(lines), empty=shards.arrays[0].place)
            else:
                yield shards._table(title)

    def _both(self) -> "tuple[Shards, ...]":
        return (self, self.other) if self.other else (self,)

    def _said(self) -> Spans:
        """How many blocks, on how many devices, and the bytes on each."""
        said = [] if self._one else [count(len(self.arrays), "array")]
        if self._one and self.arrays[0].blocks:
            said.append(count(len(self.arrays[0].blocks), "block"))
        if self.bytes:
            least, most = min(self.bytes.values()), max(self.bytes.values())
            said += [count(len(self.bytes), "device"), f"{size(most)} on each"]
            if least < most:
                said[-1] = f"{size(least)} to {size(most)} on each"
        for place in "host", "deleted", "unknown":
            n = sum(array.place == place for array in self.arrays)
            if n:
                where = "on the host" if place == "host" else place
                said.append(where if self._one else f"{n} {where}")
        return joined(((Span(each, word=True),) for each in said), " · ")

    def _table(self, caption: str) -> Table:
        rows = [_row(array) for array in self.arrays[:_MOST]]
        if (left := len(self.arrays) - _MOST) > 0:
            rows.append(((Span(f"… {left} more in arrays", word=True),), *[()] * 4))
        columns = ("path", "array", "spec", "blocks × copies", "on each")
        heads = (Column(title, number=title in columns[3:]) for title in columns)
        return Table(caption, tuple(heads), tuple(rows))


def _row(array: Layout) -> tuple[Spans, ...]:
    path = Span(array.path, "mono") if array.path else Span("root", word=True)
    spec = Span(array.spec, "mono") if array.spec else Span(array.place, word=True)
    blocks = f"{len(array.blocks)} × {_copies(array)}" if array.blocks else ""
    sizes = {block.bytes for block in array.blocks}
    each = " – ".join(size(n) for n in sorted(n for n in sizes if n is not None))
    return (path,), (Span(array.type, "mono"),), (spec,), (Span(blocks),), (Span(each),)


def _copies(array: Layout) -> int:
    return max(len(block.devices) for block in array.blocks)


def _lines(array: Layout, first: int = 0) -> Iterable[Line]:
    """A vector or a matrix as it lies; of any other array, or a wide one, one line a block."""
    if not array.blocks:
        return
    if array.mesh:
        axes = " × ".join(f"{name} {n}" for name, n in array.mesh)
        yield Line((Span("mesh", "t", word=True), Span(f" {axes}", "t")))
    cuts = [sorted({block.index[i] for block in array.blocks}) for i in range(len(array.shape))]
    wide = max(len(_devices(block)) for block in array.blocks)
    labels = [_index(block.index, array.shape) for block in array.blocks]
    rows, heads = [[block] for block in array.blocks], []
    if len(cuts) == 1:
        labels = [_cut(cut) for cut in cuts[0]]
    for stop in (True, False) if len(cuts) == 2 else ():  # with both ends; with the first alone
        across = [_cut(cut) if stop else f"{cut[0]}:" for cut in cuts[1]]
        cell = max(wide, *map(len, across))
        margin = max(len(_cut(cut)) for cut in cuts[0])
        if margin + 1 + len(across) * (cell + 2) <= _WIDE:
            by_index = {block.index: block for block in array.blocks}
            rows = [[by_index[down, cut] for cut in cuts[1]] for down in cuts[0]]
            labels, heads, wide = [_cut(cut) for cut in cuts[0]], across, cell
            break
    margin = max(map(len, labels))
    if heads:
        above = "".join(f" {head:^{wide}} " for head in heads)
        yield Line((Span(" " * (margin + 1) + above, "t"),))
    for n, (label, row) in enumerate(zip(labels, rows, strict=True)):
        label = label.ljust(margin) if label[0] == "[" else label.rjust(margin)
        spans = [Span(f"{label} ", "t")]
        for block in row:
            hue = f"c{block.devices[0] % HUES}"
            named = f" {_devices(block):^{wide}} "
            spans.append(Span(named, f"block {hue}", links=block.devices))
        holders = tuple(d for block in row for d in block.devices)
        yield Line(tuple(spans), own=(-2 * n - first - 1,), covers=holders)


def _cut(cut: tuple[int, int]) -> str:
    return f"{cut[0]}:{cut[1]}"


def _index(index: tuple[tuple[int, int], ...], shape: tuple[int, ...]) -> str:
    whole = zip(index, shape, strict=True)
    return f"[{', '.join(':' if cut == (0, n) else _cut(cut) for cut, n in whole)}]"


def _devices(block: Block) -> str:
    """Their numbers; a run of three or more by its ends.

    >>> _devices(Block((), (0, 1, 2, 3, 6, 7), (6, 7)))
    '0–3 (6) (7)'
    """
    runs: list[list[int]] = []
    for d in block.devices:
        last = runs[-1] if runs else []
        if last and last[-1] + 1 == d and (last[0] in block.elsewhere) == (d in block.elsewhere):
            last.append(d)
        else:
            runs.append([d])
    said = []
    for run in runs:
        names = [str(d) for d in run] if len(run) < 3 else [f"{run[0]}–{run[-1]}"]
        said += [f"({name})" for name in names] if run[0] in block.elsewhere else names
    return " ".join(said)


def shards(tree: Any, /, *after: Any) -> Shards:
    """Which device holds which block of an array; of a tree, how each of its arrays is cut.

    A vector or a matrix is drawn as it lies: a cell is a block, and says which devices hold it.
    Devices of other processes stand in brackets. Nothing is copied, moved or computed.

    Args:
      tree: a `jax.Array`, a `jax.ShapeDtypeStruct` with a sharding, or a pytree of them. A NumPy
        array or a Python number lies on the host; where a tracer will lie is unknown.
      after: a second one, at most: drawn beside the first.
    Returns:
      `Shards`: `.arrays`, `.bytes`, `.other`.
    Raises:
      TypeError: three arrays or more, or a leaf that is no array, such as a string.
    Source: `Sharding.devices_indices_map`.

    >>> from seejax import see
    >>> mesh = jax.make_mesh((4, 2), ("x", "y"))
    >>> place = lambda *spec: jax.NamedSharding(mesh, jax.P(*spec))
    >>> x = jax.device_put(jnp.ones((8, 4)), place("x", "y"))
    >>> see.shards(x)
    f32[8,4] P('x', 'y'): 8 blocks · 8 devices · 16 B on each
    <BLANKLINE>
    who holds what
       mesh x 4 × y 2
            0:2  2:4
       0:2   0    1
       2:4   2    3
       4:6   4    5
       6:8   6    7
    >>> whole = jax.device_put(jnp.ones(4), place())
    >>> see.shards(whole).arrays[0].blocks[0].devices
    (0, 1, 2, 3, 4, 5, 6, 7)
    """
    if len(after) > 1:
        raise TypeError(f"see.shards draws one tree or two, got {1 + len(after)}")
    return Shards(tree, *after)
