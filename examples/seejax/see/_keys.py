"""Where each random key came from, and which functions drew from it: a tree, with reuse marked."""

import dataclasses
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from seejax.see import _jax_private
from seejax.see._i18n import count
from seejax.see._jaxpr import short_dtype
from seejax.see._parts import Line, Pane, Span, Spans, joined
from seejax.see._picture import Picture

_MOST = 8  # keys of one split that are drawn though nothing is known of them
_DEEPEST = 12  # levels of indentation; a chain that goes on is not pushed off a phone

_MAKE = ("key", "PRNGKey", "wrap_key_data")


@dataclasses.dataclass(frozen=True)
class Use:
    """A call that took a key.

    Attributes:
      function: its name in `jax.random`.
      result: what it returned, as a jaxpr prints it: `f32[3]`; for a split, how many keys.
    """

    function: str
    result: str

    def __str__(self) -> str:
        return f"{self.function} {self.result}".strip()


@dataclasses.dataclass(frozen=True)
class Node:
    """A key, known by its data: two objects with the same data are one key.

    Attributes:
      number: its place in `Keys.nodes`.
      how: where it came from: `key(0)`, `split[1]`, `fold_in(3)`; `given` if it was made outside.
      parent: number of the key that it was split or folded from, else None.
      uses: the draws and splits that took it, in order. `fold_in` is none.
    """

    number: int
    how: str
    parent: int | None
    uses: tuple[Use, ...]

    @property
    def reused(self) -> bool:
        return len(self.uses) > 1


@dataclasses.dataclass
class _Batch:
    """The keys of one large split; a key becomes a node when it is met again."""

    parent: int | None
    how: str
    impl: str
    rows: np.ndarray  # (keys, words of a key)
    shape: tuple[int, ...]
    met: int = 0


class Keys(Picture):
    """What `see.keys` returns: the keys of a block, and what was done with them.

    Attributes:
      traced: the calls inside `jit`, `vmap` or a loop of JAX. The key there may have no value,
        or the call may run any number of times, so they are counted for no key. Under
        `jax.eval_shape` nothing runs, and nothing is noted: Flax asks it for the shapes of
        parameters.
    """

    kind = "keys"
    lead = "keys of"
    name = "jax.random"

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._known: dict[tuple[str, bytes], int] = {}
        self._batches: list[_Batch] = []
        self._traced: list[Use] = []
        self._thread = 0

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The keys that were made, used, or split into at most 8, in the order of appearance."""
        return tuple(self._nodes)

    @property
    def reused(self) -> tuple[Node, ...]:
        """The keys that were drawn from or split more than once, all together."""
        return tuple(node for node in self._nodes if node.reused)

    @property
    def traced(self) -> tuple[Use, ...]:
        return tuple(self._traced)

    def __enter__(self) -> "Keys":
        if self in _active:
            raise RuntimeError("these keys are watched already: use another see.keys() here")
        self._thread = threading.get_ident()
        with _lock:
            if not _active:
                _replace(_wrappers())
            _active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _active.remove(self)
            if not _active:
                _replace({id(w): w.__wrapped__ for w in _wrappers().values()})

    # --- what a call tells

    def _record(self, function: str, first: Any, second: Any, result: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        leaves = jax.tree.leaves(result)
        tracing = any(map(_unknown, (first, *leaves)))
        if function in _MAKE:
            if not tracing:
                argument = "" if function == "wrap_key_data" else f"({_short(first)})"
                self._add(result, function + argument, None)
            return
        use = Use(function, ", ".join(map(_type, leaves)))
        if function in ("split", "fold_in"):
            use = Use(function, "" if function == "fold_in" else str(_count(result)))
        if tracing:
            if not _jax_private.only_shapes():
                self._traced.append(use)
            return
        number = self._number(first)
        if function != "fold_in":
            node = self._nodes[number]
            self._nodes[number] = dataclasses.replace(node, uses=(*node.uses, use))
        if function in ("split", "fold_in"):
            how = function + (f"({_short(second)})" if function == "fold_in" else "")
            self._add(result, how, number)

    def _number(self, key: Any) -> int:
        """The node of one key; a new root if nobody has seen it."""
        impl, rows, _ = _data(key)
        if (number := self._find(impl, rows[0])) is None:
            number = self._new(impl, rows[0], "given", None)
        return number

    def _new(self, impl: str, row: np.ndarray, how: str, parent: int | None) -> int:
        number = self._known[impl, row.tobytes()] = len(self._nodes)
        self._nodes.append(Node(number, how, parent, ()))
        return number

    def _find(self, impl: str, row: np.ndarray) -> int | None:
        number = self._known.get((impl, row.tobytes()))
        if number is not None:
            return number
        for batch in self._batches:
            if batch.impl == impl:
                for place in np.flatnonzero((batch.rows == row).all(1))[:1]:
                    batch.met += 1
                    how = batch.how + _place(place, batch.shape)
                    return self._new(impl, row, how, batch.parent)
        return None

    def _add(self, keys: Any, how: str, parent: int | None) -> None:
        impl, rows, shape = _data(keys)
        if len(rows) > _MOST:
            self._batches.append(_Batch(parent, how, impl, rows, shape))
            return
        for place, row in enumerate(rows):
            if self._find(impl, row) is None:
                self._new(impl, row, how + _place(place, shape), parent)

    # --- what is shown

    @property
    def doubt(self) -> Spans:
        if not self._traced:
            return ()
        calls = count(len(self._traced), "call")
        return (Span(f"{calls} with unknown keys", word=True),)

    def summary(self) -> Spans:
        keys = len(self._nodes) + sum(len(batch.rows) - batch.met for batch in self._batches)
        uses = sum(len(node.uses) for node in self._nodes)
        said = [count(keys, "key"), count(uses, "use"), f"{len(self.reused)} reused"]
        return joined([(Span(each, word=True),) for each in said], ", ")

    def parts(self) -> Iterable[Pane]:
        yield Pane("keys", tuple(self._tree()), "no key was seen", "nodes")
        if self._traced:
            lines = tuple(Line((Span(str(use)),), dim=True) for use in self._traced)
            yield Pane("calls with unknown keys", lines, rest="traced")

    def _tree(self) -> Iterable[Line]:
        """Each key above those that came from it; a chain may be deeper than Python recurses."""
        below: dict[int | None, list[int]] = {}
        for node in self._nodes:
            below.setdefault(node.parent, []).append(node.number)
        rest: dict[int | None, list[_Batch]] = {}
        for batch in self._batches:
            rest.setdefault(batch.parent, []).append(batch)
        waiting: list[tuple[int | _Batch, int]] = []

        def wait(parent: int | None, depth: int) -> None:
            children = [*below.get(parent, []), *rest.get(parent, [])]
            waiting.extend((child, min(depth, _DEEPEST)) for child in reversed(children))

        wait(None, 0)
        while waiting:
            child, depth = waiting.pop()
            if isinstance(child, _Batch):
                if left := len(child.rows) - child.met:
                    said = Span(f"{left} with no use seen", word=True)
                    yield Line((Span(child.how), Span(": "), said), depth=depth, dim=True)
            else:
                yield self._line(self._nodes[child], depth, tuple(below.get(child, ())))
                wait(child, depth + 1)

    def _line(self, node: Node, depth: int, below: tuple[int, ...]) -> Line:
        spans = (Span(node.how, "o"),)
        if node.uses:
            kind = "wavy" if node.reused else ""
            spans += (Span(": "), *joined([(Span(str(use), kind),) for use in node.uses], ", "))
        elif not below:
            spans += (Span(": "), Span("no use seen", "t", word=True))
        if node.reused:
            spans += (Span("  "), Span("reused", "badge failed", word=True))
        mark = (Span(str(node.number)),)
        return Line(spans, mark, depth, own=(node.number,), covers=below)


def keys() -> Keys:
    """Watch the random keys of a block: which came from which, and what used them.

    Args: none. It is for `with`; the object that it gives is the picture.
    Returns:
      `Keys`, with `nodes`, `reused` and `traced`.
    Raises:
      RuntimeError: the same object is entered while it watches. TypeError: an argument is given.

    It sees calls of the public functions of `jax.random` in the thread that entered, by whatever
    module they are called: yours, Flax's, `jax.nn.initializers`. It does not see a function that
    was put elsewhere before the block (in a list, a closure, a `partial`), nor what a compiled
    program does when it runs again. A key whose use it could not see is drawn with `no use seen`.
    A key counts as reused if it was drawn from or split more than once. `fold_in` is no use, as
    for `jax.debug_key_reuse`. Unlike that, it compares data, not objects: `key(0)` made twice is
    one key, and so is a clone.

    >>> with keys() as k:
    ...     key = jax.random.key(0)
    ...     x = jax.random.normal(key, (3,))
    ...     first, second = jax.random.split(key)
    ...     y = jax.random.uniform(first)
    >>> k
    keys of jax.random: 3 keys, 3 uses, 1 reused
    <BLANKLINE>
    keys
    0  key(0): normal f32[3], split 2  reused
    1    split[0]: uniform f32[]
    2    split[1]: no use seen
    >>> [node.how for node in k.reused]
    ['key(0)']
    """
    return Keys()


# --- reading keys, without being seen ourselves

_key_data, _key_impl = jax.random.key_data, jax.random.key_impl


def _data(keys: Any) -> tuple[str, np.ndarray, tuple[int, ...]]:
    """Implementation, data of each key in a row of its own, and the shape of the array of keys."""
    typed = jax.dtypes.issubdtype(keys.dtype, jax.dtypes.prng_key)
    with jax.transfer_guard("allow"), jax.no_tracing(False):
        data = np.asarray(_key_data(keys) if typed else keys)
    return str(_key_impl(keys)), data.reshape(-1, data.shape[-1]), data.shape[:-1]


def _unknown(value: Any) -> bool:
    """It has no value, or a part of it lies with another process."""
    return isinstance(value, jax.core.Tracer) or not getattr(value, "is_fully_addressable", True)


def _count(keys: Any) -> int:
    typed = jax.dtypes.issubdtype(keys.dtype, jax.dtypes.prng_key)
    return int(np.prod(keys.shape if typed else keys.shape[:-1]))


def _place(place: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, np.unravel_index(place, shape)))}]" if shape else ""


def _type(value: Any) -> str:
    return f"{short_dtype(value.dtype)}[{','.join(map(str, value.shape))}]"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 20 else f"{text[:19]}…"


# --- seeing calls: every public function of jax.random is replaced while somebody watches

_active: list[Keys] = []
_lock = threading.RLock()


class _Inside(threading.local):
    deep = False  # a function of jax.random calls others, and those are not the user's calls


_inside = _Inside()


@functools.cache
def _functions() -> tuple[Callable[..., Any], ...]:
    def takes_a_key(name: str, f: Any) -> bool:
        if name.startswith("_") or name == "clone" or not inspect.isfunction(f):
            return False
        return name in _MAKE or next(iter(inspect.signature(f).parameters), "") == "key"

    return tuple(f for name, f in vars(jax.random).items() if takes_a_key(name, f))


@functools.cache
def _wrappers() -> dict[int, Any]:
    """What stands in for each function, by the identity of the function."""
    return {id(f): _watched(f) for f in _functions()}


def _watched(f: Callable[..., Any]) -> Any:
    parameters = list(inspect.signature(f).parameters)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _inside.deep or not _active:
            return f(*args, **kwargs)
        _inside.deep = True
        try:
            result = f(*args, **kwargs)
            given = dict(zip(parameters, args, strict=False)) | kwargs
            first, second = [*map(given.get, parameters), None][:2]
            for watcher in tuple(_active):
                watcher._record(f.__name__, first, second, result)
            return result
        finally:
            _inside.deep = False

    return call


def _replace(by: dict[int, Callable[..., Any]]) -> None:
    """In every module: what has an identity in `by` becomes what stands there."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict):
            for name, value in list(names.items()):
                if id(value) in by:
                    names[name] = by[id(value)]
