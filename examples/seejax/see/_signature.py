"""What JAX compares when it decides whether it has seen arguments before, and how they differ."""

import dataclasses
import enum
import functools
import re
from typing import Any, NamedTuple

import jax
import numpy as np

from seejax.see._jaxpr import short_dtype

MOST = 6  # leaves in a signature, differences in a cause


class Value:
    """Equal as JAX takes it: the same object, or of one type and equal; so 1 is not True."""

    __slots__ = ("value",)
    __hash__ = None

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value):
            return NotImplemented
        a, b = self.value, other.value
        try:
            return a is b or (type(a) is type(b) and bool(a == b))
        except Exception:  # __eq__ of arrays and of a user's class can do anything
            return False

    def __str__(self) -> str:
        return one_line(self.value)


class Leaf(NamedTuple):
    aval: Any  # None if it is no array
    sharding: Any  # None if JAX may place it where it likes
    roles: tuple[Any, ...]  # what each transformation does to it
    other: str  # what it is if it is no array

    def __str__(self) -> str:
        if self.aval is None:
            return f"{self.other} (no array)"
        return re.sub("~?" + re.escape(str(self.aval.dtype)), self.typed, str(self.aval), count=1)

    @property
    def typed(self) -> str:
        return short_dtype(self.aval.dtype) + "~" * getattr(self.aval, "weak_type", False)


Difference = tuple[str, str]  # where, and what


@dataclasses.dataclass
class Argument:
    passed: str
    static: bool
    value: Value  # of a static argument itself, of any other the structure of its pytree
    leaves: tuple[Leaf, ...]
    paths: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    left_out: str = dataclasses.field(default="absent", compare=False)


@dataclasses.dataclass
class Signature:
    arguments: dict[str, Argument]
    context: Value  # the settings that a trace depends on, by name
    mesh: Value
    nest: tuple[str, ...]  # transformations, outermost first
    epoch: int = dataclasses.field(default=0, compare=False)  # how often caches had been cleared
    compiled: bool = dataclasses.field(default=True, compare=False)  # or traced ahead of time only

    @functools.cached_property
    def text(self) -> str:
        parts = []
        for name, argument in self.arguments.items():
            if argument.static:
                parts.append(f"{name}={cut(str(argument.value))} static")
            elif not argument.leaves:
                parts.append(f"{name} {cut(str(argument.value))}")
            leaves = zip(argument.paths[:MOST], argument.leaves, strict=False)
            parts += [f"{name}{path} {leaf}" for path, leaf in leaves]
            if len(argument.leaves) > MOST:
                parts.append(f"… {name} has {len(argument.leaves)} leaves")
        return ", ".join(parts)


def one_line(value: Any) -> str:
    """Any object in one line, without the address that differs from run to run."""
    try:
        if isinstance(value, jax.tree_util.PyTreeDef):
            text = str(value).removeprefix("PyTreeDef(").removesuffix(")")
        elif hasattr(value, "axis_types"):  # a mesh
            text = f"({_axes(value.shape, value.axis_types)})" + _devices(value)
        elif hasattr(value, "axis_sizes"):  # the named axes of vmap
            text = f"({_axes(value.axis_sizes)})"
        elif isinstance(getattr(value, "val", None), dict):  # the metadata for XLA
            text = repr(value.val)
        else:
            text = repr(value)
    except Exception:  # a broken __repr__ of a user's class must not break the call
        text = f"<{type(value).__name__}>"
    return " ".join(re.sub(r" at 0x[0-9a-f]+", "", text).split())


def _axes(sizes: Any, kinds: Any = None) -> str:
    kinds = [f" {kind.name}" for kind in kinds] if kinds else [""] * len(sizes)
    axes = zip(sizes.items(), kinds, strict=True)
    return ", ".join(f"{name}={size}{kind}" for (name, size), kind in axes)


def _devices(mesh: Any) -> str:
    if not isinstance(mesh, jax.sharding.Mesh):
        return ""  # an abstract one
    return f" of devices {', '.join(str(d.id) for d in mesh.devices.flat)}"


def _place(sharding: Any, detail: int) -> str:
    """Where an array is: `P('d') on (d=2)`; then with kinds of axes and devices; then memory."""
    if sharding is None:
        return "default"
    if not isinstance(sharding, jax.sharding.NamedSharding):
        text = "+".join(sorted(f"{d.platform}:{d.id}" for d in sharding.device_set))
    else:
        mesh = sharding.mesh
        if mesh.empty:
            return "no mesh"
        kinds = mesh.axis_types if detail else None
        text = f"P({', '.join(map(repr, sharding.spec))}) on ({_axes(mesh.shape, kinds)})"
        text += _devices(mesh) if detail else ""
    return f"{text} in {sharding.memory_kind}" if detail > 1 else text


def cut(text: str, at: int = 0) -> str:
    """At most 40 characters, those around the place."""
    if len(text) <= 40:
        return text
    start = max(0, min(at - 15, len(text) - 39))
    return "…" * (start > 0) + text[start : start + 39] + "…" * (start + 39 < len(text))


def _change(was: object, now: object) -> str:
    """`was → now`, both cut to where they differ."""
    was, now = str(was), str(now)
    if was == now:
        return f"{cut(was)} → {cut(now)} (another object)"
    pairs = enumerate(zip(was, now, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(was), len(now)))
    return f"{cut(was, at)} → {cut(now, at)}"


def _placement(was: Any, now: Any) -> str:
    for detail in range(3):
        a, b = _place(was, detail), _place(now, detail)
        if a != b:
            return f"placement {a} → {b}"
    return f"placement {_change(a, b)}"


def _type_changes(was: Leaf, now: Leaf) -> list[str]:
    """What differs in the types of two leaves, that is in all that a trace knows of them."""
    a, b = was.aval, now.aval
    if a is None or b is None:
        return [] if a is b and was.other == now.other else [_change(was, now)]
    if a == b:
        return []
    changes = []
    if a.shape != b.shape:
        changes.append(f"shape {a.shape} → {b.shape}")
    if a.dtype != b.dtype:
        changes.append(f"dtype {was.typed} → {now.typed}")
    elif was.typed != now.typed:
        changes.append(f"weak type {was.typed} → {now.typed}")
    # A mesh is a part of the type; with explicit axes all of the sharding is.
    meant = [getattr(aval, "sharding", None) for aval in (a, b)]
    if len(a.shape) == len(b.shape) and meant[0] != meant[1]:
        real = [was.sharding, now.sharding]
        changes.append(_placement(*(real if real[0] != real[1] else meant)))
    was_in, now_in = (getattr(aval, "memory_space", None) for aval in (a, b))
    if was_in is not None and now_in is not None and was_in != now_in:
        changes.append(f"memory {was_in.name} → {now_in.name}")
    return changes or [f"type {_change(a, b)}"]


def differences(old: Signature, new: Signature) -> tuple[list[Difference], list[Difference]]:
    """What JAX traces again for, and what it compiles again for from the same trace."""
    types: list[Difference] = []
    places: list[Difference] = []
    for name in dict.fromkeys([*old.arguments, *new.arguments]):
        if name not in old.arguments:
            types.append((name, f"{new.arguments[name].left_out} → given"))
            continue
        if name not in new.arguments:
            types.append((name, f"given → {old.arguments[name].left_out}"))
            continue
        a, b = old.arguments[name], new.arguments[name]
        if a.passed != b.passed:
            types.append((name, f"{a.passed} → {b.passed}"))
        if a.static != b.static:
            types.append((name, "static → array" if a.static else "array → static"))
        elif a.value != b.value:
            kind = "static" if a.static else "structure"
            types.append((name, f"{kind} {_change(a.value, b.value)}"))
        else:
            for path, x, y in zip(b.paths, a.leaves, b.leaves, strict=True):
                if x == y:
                    continue
                leaf = name + path
                types += [(leaf, change) for change in _type_changes(x, y)]
                if x.sharding != y.sharding:
                    places.append((leaf, _placement(x.sharding, y.sharding)))
                if old.nest == new.nest:
                    places += [(f"{_nest(new)}: {leaf}", c) for c in _role_changes(x, y)]
    if old.context != new.context:
        was, now = old.context.value, new.context.value
        for setting in now:
            if Value(was[setting]) != Value(now[setting]):
                change = _change(_setting(was[setting]), _setting(now[setting]))
                types.append(("", f"config {_setting_name(setting)}: {change}"))
    if old.mesh != new.mesh:
        places.append(("", f"config mesh: {_change(old.mesh, new.mesh)}"))
    if old.nest != new.nest:
        places.insert(0, ("", _nest(new)))
    return types, places


def described(found: list[Difference]) -> str:
    """`x: shape (3,) → (4,); y: …`; what many leaves share is named once."""
    where: dict[str, list[str]] = {}
    for leaf, change in found:
        where.setdefault(change, []).append(leaf)
    parts = []
    for leaf, change in found:
        leaves = where[change]
        if len(leaves) <= 3:
            parts.append(f"{leaf}: {change}" if leaf else change)
        elif leaf == leaves[0]:
            parts.append(f"{leaf} and {len(leaves) - 1} more: {change}")
    more = [f"… {len(parts) - MOST} more"] if len(parts) > MOST else []
    return "; ".join(parts[:MOST] + more)


def _nest(signature: Signature) -> str:
    nest = " of ".join(signature.nest)
    return f"under {nest}" if nest else "not under a transformation"


def _setting(value: Any) -> str:
    value = value.value if isinstance(value, enum.Enum) else value
    return value if isinstance(value, str) else one_line(value)


def _setting_name(setting: str) -> str:
    if setting == "axis_env_state":
        return "named axes"
    return setting.removeprefix("jax_").removesuffix("_context_manager")


def _role_changes(was: Leaf, now: Leaf) -> list[str]:
    changes = []
    for a, b in zip(map(dict, was.roles), map(dict, now.roles), strict=True):
        for fact in dict.fromkeys([*a, *b]):
            if a.get(fact) != b.get(fact):
                changes.append(f"{fact} {a.get(fact, 'no')} → {b.get(fact, 'no')}")
    return changes


def _context() -> Any:
    """What the type of a NumPy array depends on."""
    return jax.config.jax_enable_x64, jax.sharding.get_abstract_mesh()


@functools.lru_cache(maxsize=512)
def _numpy_type(shape: tuple[int, ...], dtype: np.dtype, context: Any) -> Any:
    return jax.typeof(np.broadcast_to(np.zeros((), dtype), shape))  # takes no memory


def typed_leaf(value: Any, roles: tuple[Any, ...], inner: Any) -> Leaf:
    try:
        if not roles and isinstance(value, jax.Array):  # many: jax.typeof would take longer
            return Leaf(value.aval, value.sharding if value.committed else None, roles, "")
        if type(value) is np.ndarray:  # likewise
            return Leaf(_numpy_type(value.shape, value.dtype, _context()), None, roles, "")
        aval = jax.typeof(value)
    except Exception:  # the call itself will say what is wrong with it
        plain = isinstance(value, str | bytes | int | float | complex)
        return Leaf(
            None, None, roles, cut(one_line(value)) if plain else f"<{type(value).__name__}>"
        )
    placed = isinstance(inner, jax.Array) and not isinstance(inner, jax.core.Tracer)
    sharding = inner.sharding if placed and inner.committed else None
    return Leaf(aval, sharding, roles, "")
