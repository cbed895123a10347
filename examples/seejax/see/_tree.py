"""A pytree as it is nested: every container, every leaf, and where a second tree differs."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np

from seejax.see import _i18n
from seejax.see._jaxpr import short_dtype
from seejax.see._parts import Column, Line, Pane, Span, Spans, Table
from seejax.see._picture import Picture
from seejax.see._signature import cut, one_line

_MOST = 60  # rows of differences that are shown
_EXTENDED = jax.dtypes.extended  # dtypes of JAX's own, such as that of a PRNG key


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One leaf.

    Attributes:
      path: as `jax.tree_util.keystr` writes it; "" if the leaf is the whole tree.
      type: name of its class; `Array` for a `jax.Array`.
      shape, dtype: of an array, or of what JAX makes of a Python number; None if it is neither.
      weak: it is weakly typed.
      bytes: elements times bytes of one, on however many devices they lie; None if unknown.
    """

    path: str
    type: str
    shape: tuple[Any, ...] | None = None
    dtype: str | None = None
    weak: bool = False
    bytes: int | None = None

    def __str__(self) -> str:
        if self.dtype is None:
            return self.type
        return f"{self._typed}[{','.join(map(str, self.shape or ()))}]"

    @property
    def _typed(self) -> str:
        return short_dtype(self.dtype) + "~" * self.weak


@dataclasses.dataclass(frozen=True)
class Difference:
    """One difference between two trees.

    Attributes:
      path: where, as in `Leaf`.
      kind: `missing` here or there; another `container`, or a leaf in place of one; a `static`
        field of a container; `type`, `shape` or `dtype` of a leaf.
      first, second: what stands there in each tree.
    """

    path: str
    kind: str
    first: str
    second: str

    def __str__(self) -> str:
        kind = "" if self.kind == "missing" else f"{self.kind} "
        return f"{self.path or 'root'}: {kind}{self.first} → {self.second}"


@dataclasses.dataclass(frozen=True, eq=False)
class _Node:
    key: str
    path: str
    depth: int
    type: type
    structure: Any  # of this level alone
    leaf: Leaf | None
    children: "dict[str, _Node]" = dataclasses.field(default_factory=dict)
    absent: bool = False  # it is in the other tree only

    @property
    def static(self) -> str:
        """What JAX says of a registered class besides its name: static fields, mostly."""
        text = one_line(self.structure)
        name = text.removeprefix(f"CustomNode({self.type.__name__}[")
        said = "" if name == text else name.rpartition("], [")[0]
        return "" if said in ("()", "None") else said

    def __str__(self) -> str:
        if self.leaf or self.absent:
            return str(self.leaf or "missing")
        return "None" if self.type is type(None) else self.type.__name__

    def walk(self) -> "Iterator[_Node]":
        waiting: list[_Node] = [self]
        while waiting:
            yield (node := waiting.pop())
            waiting += reversed(node.children.values())


def described(path: str, value: Any) -> Leaf:
    """What is known of a leaf, none of which is its value."""
    kind = "Array" if isinstance(value, jax.Array) else type(value).__name__
    if isinstance(value, jax.core.Tracer):
        kind = type(value).__name__
    try:
        typed = value if hasattr(value, "dtype") else jax.typeof(value)
        shape, dtype = tuple(typed.shape), typed.dtype
        weak = bool(getattr(typed, "weak_type", False))
        dtype = np.dtype(dtype) if isinstance(dtype, str) else dtype
        if not isinstance(dtype, np.dtype) and not jax.dtypes.issubdtype(dtype, _EXTENDED):
            return Leaf(path, kind)
        name = "float0" if dtype == jax.dtypes.float0 else str(dtype)
    except Exception:  # no array; or an object that only looks like one
        return Leaf(path, kind)
    try:
        return Leaf(path, kind, shape, name, weak, int(math.prod(shape)) * dtype.itemsize)
    except Exception:  # a symbolic shape has no size
        return Leaf(path, kind, shape, name, weak)


def _key(entry: Any) -> str:
    try:
        return jax.tree_util.keystr((entry,))
    except Exception:  # a key whose repr raises
        return f"[<{type(getattr(entry, 'key', entry)).__name__}>]"


def _nodes(tree: Any) -> _Node:
    """The tree level by level, each flattened by JAX; no value is kept."""
    roots: dict[str, _Node] = {}
    waiting = [(tree, "", "", 0, roots)]
    while waiting:
        value, key, path, depth, siblings = waiting.pop()
        place = key
        while place in siblings:  # keys of somebody else's class need not be different
            place += "\0"
        try:
            inside, structure = jax.tree_util.tree_flatten_with_path(
                value, is_leaf=lambda x, value=value: x is not value
            )
        except Exception as error:
            # Keys that cannot be sorted; or a class of somebody else's.
            why = " ".join(str(error.__cause__ or error).split("\n")[0].split())
            where = f"at {path}" if path else "at the root"
            message = f"see.tree: JAX cannot flatten the {type(value).__name__} {where}: {why}"
            raise ValueError(message) from error
        if jax.tree_util.treedef_is_leaf(structure) and inside and not inside[0][0]:
            leaf = described(path, value)
            siblings[place] = _Node(key, path, depth, type(value), structure, leaf)
            continue
        node = siblings[place] = _Node(key, path, depth, type(value), structure, None)
        below = [("".join(map(_key, entries)), child) for entries, child in inside]
        waiting += [(v, k, path + k, depth + 1, node.children) for k, v in reversed(below)]
    return roots[""]


def _compared(a: _Node, b: _Node) -> Iterator[Difference]:
    """The differences in order; what only one tree has leaves an empty place in the other."""
    waiting = [(a, b)]
    while waiting:
        a, b = waiting.pop()
        if a.absent or b.absent:
            yield Difference(a.path, "missing", str(a), str(b))
        elif a.leaf and b.leaf:
            yield from _leaves_differ(a.leaf, b.leaf)
        else:
            alike = a.children.keys() == b.children.keys()
            if a.type is not b.type or a.leaf or b.leaf:
                yield Difference(a.path, "container", str(a), str(b))
                if not alike:
                    continue  # nothing to compare below
            elif alike and not _same(a.structure, b.structure):
                yield Difference(a.path, "static", cut(a.static), cut(b.static))
            waiting += reversed(_pairs(a, b))


def _pairs(a: _Node, b: _Node) -> list[tuple[_Node, _Node]]:
    keys, at = list(a.children), 0
    for key in b.children:
        if key in a.children:
            at = keys.index(key, at) + 1 if key in keys[at:] else len(keys)
        else:
            keys.insert(at, key)
            at += 1
    for one, two in ((a, b), (b, a)):
        for key in keys:
            if key not in one.children:
                node = two.children[key]
                one.children[key] = dataclasses.replace(node, leaf=None, children={}, absent=True)
        in_order = {key: one.children[key] for key in keys}
        one.children.clear()
        one.children.update(in_order)
    return list(zip(a.children.values(), b.children.values(), strict=True))


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # an array among static fields: JAX cannot compare them either
        return False


def _leaves_differ(a: Leaf, b: Leaf) -> Iterator[Difference]:
    if a.dtype is None or b.dtype is None:
        if str(a) != str(b):
            yield Difference(a.path, "type", str(a), str(b))
        return
    if a.shape != b.shape:
        yield Difference(a.path, "shape", str(a.shape), str(b.shape))
    if a._typed != b._typed:
        yield Difference(a.path, "dtype", a._typed, b._typed)


class Tree(Picture):
    """What `see.tree` returns. It keeps no value of the tree, only what it says of them.

    Attributes:
      leaves: tuple of `Leaf`, in the order of `jax.tree.leaves`.
      bytes: of all leaves whose size is known; an array that stands at two paths counts twice.
      other: the `Tree` of the second tree, or None.
      differences: tuple of `Difference`, from this tree to `other`.
    """

    kind = "tree"

    def __init__(self, tree: Any, *other: Any) -> None:
        self._root = _nodes(tree)
        self.leaves = tuple(node.leaf for node in self._root.walk() if node.leaf)
        self.bytes = sum(leaf.bytes or 0 for leaf in self.leaves)
        self.other = Tree(*other) if other else None
        self.differences: tuple[Difference, ...] = ()
        if self.other:
            self.differences = tuple(_compared(self._root, self.other._root))

    @property
    def name(self) -> str:
        return str(self._root) + (f" ↔ {self.other._root}" if self.other else "")

    def summary(self) -> Spans:
        if self.other:
            return (Span(_i18n.count(len(self.differences), "difference"), word=True),)
        n, unknown = len(self.leaves), sum(leaf.bytes is None for leaf in self.leaves)
        said = [f"{n} {'leaf' if n == 1 else 'leaves'}", _i18n.size(self.bytes)]
        said += [f"{unknown} of unknown size"] * bool(unknown)
        spans = [span for each in said for span in (Span(", ", word=True), Span(each, word=True))]
        return tuple(spans[1:])

    def parts(self) -> Iterable[Pane | Table]:
        if not self.other:
            yield self._pane("tree", self, {})
            return
        nodes = [*self._root.walk(), *self.other._root.walk()]
        numbers = {path: i for i, path in enumerate({node.path: 0 for node in nodes})}
        yield self._pane("first tree", self, numbers)
        yield self._pane("second tree", self.other, numbers)
        if self.differences:
            yield Table(
                caption="differences",
                columns=tuple(map(Column, ("path", "difference", "first tree", "second tree"))),
                rows=tuple(map(_row, self.differences[:_MOST])) + self._rest(),
            )

    def _rest(self) -> tuple[tuple[Spans, ...], ...]:
        left = len(self.differences) - _MOST
        more = Span(f"… {left} more in differences", word=True)
        return (((more,), (), (), ()),) if left > 0 else ()

    def _pane(self, title: str, tree: "Tree", numbers: dict[str, int]) -> Pane:
        different = {d.path for d in self.differences}
        lines = []
        for node in tree._root.walk():
            if node.absent and not numbers:
                continue  # `other` by itself
            marked = node.path in different
            lines.append(
                Line(
                    (Span(node.key, "k"), Span("  " * bool(node.key)), *_told(node, marked)),
                    mark=(Span("≠", "c1"),) if marked else (),
                    depth=node.depth,
                    own=(numbers[node.path],) if numbers else (),
                    label=(Span(node.path),) if node.path else (),
                )
            )
        return Pane(title, tuple(lines), rest="leaves" if tree is self else "other.leaves")


def _row(difference: Difference) -> tuple[Spans, ...]:
    d = difference
    where = Span(d.path, "mono") if d.path else Span("root", word=True)
    sides = ((Span(side, "mono", side == "missing"),) for side in (d.first, d.second))
    return ((where,), (Span(d.kind, word=True),), *sides)


def _told(node: _Node, marked: bool) -> Spans:
    wavy = "wavy" * marked
    if leaf := node.leaf:
        size = Span("size unknown", "t", word=True)
        if leaf.bytes is not None:
            size = Span(_i18n.size(leaf.bytes), "t")
        kind = () if leaf.dtype is None else (Span(f"  {leaf.type}", "t"),)
        return Span(str(leaf), wavy), Span("  "), size, *kind
    if node.absent:
        return (Span("missing", wavy, word=True),)
    spans = [Span(str(node), wavy or "p")]
    if node.static:
        spans += [Span("  "), Span("static", "t", word=True), Span(f" {cut(node.static)}", "t")]
    if not node.children:
        spans += [Span("  "), Span("no leaf", "t", word=True)]
    return tuple(spans)


def tree(pytree: Any, /, *other: Any) -> Tree:
    """A pytree drawn as it is nested, or two with their differences marked.

    Each leaf has its path, shape, dtype and size; a Python number counts as the array that JAX
    makes of it. No value is shown, and none is kept, so tracers may be drawn inside `jit`. What a
    registered class calls static is no leaf: the picture has the text that JAX has for it.

    Args:
      pytree: any object: one that JAX takes no further apart is a tree of one leaf.
      other: a second pytree, at most one. Where the two differ is marked in both.
    Returns:
      `Tree`: `.leaves`, `.bytes`, `.other`, `.differences`.
    Raises:
      TypeError: three trees or more.  ValueError: JAX cannot flatten it, such as a dict with keys
        that cannot be sorted; the message says where.
    Source: `jax.tree_util.tree_flatten_with_path`, level by level.

    >>> import jax.numpy as jnp
    >>> from seejax import see
    >>> see.tree({"w": jnp.ones((2, 3)), "layers": [1.0, None]})
    dict: 2 leaves, 28 B
    <BLANKLINE>
    tree
      dict
        ['layers']  list
          [0]  f32~[]  4 B  float
          [1]  None  no leaf
        ['w']  f32[2,3]  24 B  Array
    >>> [str(d) for d in see.tree({"w": 1.0}, {"w": 1, "b": 2}).differences]
    ["['b']: missing → i32~[]", "['w']: dtype f32~ → i32~"]
    """
    if len(other) > 1:
        raise TypeError(f"see.tree draws one tree or two, got {1 + len(other)}")
    return Tree(pytree, *other)
