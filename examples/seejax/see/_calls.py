"""A jitted function that remembers every call: what JAX did, how long it took, and why."""

import bisect
import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from seejax.see import _jax_private
from seejax.see._jaxpr import short_dtype
from seejax.see._parts import Bar, Column, Span, Spans, Table, joined
from seejax.see._picture import Picture

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_COMPILE = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)

_MOST = 6  # leaves in a signature, differences in a cause


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: what JAX had to do for it, and why.

    Attributes:
      outcome: `compiled` traced and compiled; `traced` traced only, for an outer transformation;
        `recompiled` compiled from a trace it already had; `cached` neither; `eager` not jitted,
        because `jax.disable_jit` is on; `failed` raised.
      cause: why it was not cached, by argument: `x: shape (3,) → (4,)`; `""` when cached;
        `unknown` when nothing that JAX compares is seen to differ.
      trace_ms, compile_ms, run_ms: wall time in milliseconds, adding up to the whole call.
        `compile_ms` is lowering plus XLA; `run_ms` is the rest, until the result is ready.
      signature: the arguments as JAX saw them: `x f32[3], n=2 static`; `~` is a weak type.
      error: the exception of a failed call, else None.
    """

    outcome: str
    cause: str
    trace_ms: float
    compile_ms: float
    run_ms: float
    signature: str
    error: BaseException | None = None


# --- how long: JAX reports durations to listeners; each call under way collects its own


@dataclasses.dataclass(eq=False)
class _UnderWay:
    owner: "Calls"
    signature: "_Signature"
    earlier: "list[_Signature]"  # what had been seen when it began, or rather when its trace did
    events: list[tuple[str, str, float]] = dataclasses.field(default_factory=list)
    traced: bool = False
    trace_ms: float = 0.0


class _Stack(threading.local):
    def __init__(self) -> None:
        self.calls: list[_UnderWay] = []


_stack = _Stack()


def _listen(event: str, duration_secs: float, **details: Any) -> None:
    for call in _stack.calls:
        call.events.append((event, str(details.get("fun_name", "")), duration_secs * 1e3))


# --- why: what JAX looks at when it decides whether it has seen these arguments before


class _Value:
    """Equal as JAX takes it: the same object, or of one type and equal; so 1 is not True."""

    __slots__ = ("value",)
    __hash__ = None

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Value):
            return NotImplemented
        a, b = self.value, other.value
        try:
            return a is b or (type(a) is type(b) and bool(a == b))
        except Exception:  # __eq__ of arrays and of a user's class can do anything
            return False

    def __str__(self) -> str:
        return _text(self.value)


class _Leaf(NamedTuple):
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


_Difference = tuple[str, str]  # where, and what


@dataclasses.dataclass
class _Argument:
    passed: str
    static: bool
    value: _Value  # of a static argument itself, of any other the structure of its pytree
    leaves: tuple[_Leaf, ...]
    paths: tuple[str, ...] = dataclasses.field(default=(), compare=False)
    left_out: str = dataclasses.field(default="absent", compare=False)


@dataclasses.dataclass
class _Signature:
    arguments: dict[str, _Argument]
    context: _Value  # the settings that a trace depends on, by name
    mesh: _Value
    nest: tuple[str, ...]  # transformations, outermost first
    epoch: int = dataclasses.field(default=0, compare=False)  # how often caches had been cleared
    compiled: bool = dataclasses.field(default=True, compare=False)  # or traced ahead of time only

    @functools.cached_property
    def text(self) -> str:
        parts = []
        for name, argument in self.arguments.items():
            if argument.static:
                parts.append(f"{name}={_cut(str(argument.value))} static")
            elif not argument.leaves:
                parts.append(f"{name} {_cut(str(argument.value))}")
            leaves = zip(argument.paths[:_MOST], argument.leaves, strict=False)
            parts += [f"{name}{path} {leaf}" for path, leaf in leaves]
            if len(argument.leaves) > _MOST:
                parts.append(f"… {name} has {len(argument.leaves)} leaves")
        return ", ".join(parts)


def _text(value: Any) -> str:
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


def _cut(text: str, at: int = 0) -> str:
    """At most 40 characters, those around the place."""
    if len(text) <= 40:
        return text
    start = max(0, min(at - 15, len(text) - 39))
    return "…" * (start > 0) + text[start : start + 39] + "…" * (start + 39 < len(text))


def _change(was: object, now: object) -> str:
    """`was → now`, both cut to where they differ."""
    was, now = str(was), str(now)
    if was == now:
        return f"{_cut(was)} → {_cut(now)} (another object)"
    pairs = enumerate(zip(was, now, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(was), len(now)))
    return f"{_cut(was, at)} → {_cut(now, at)}"


def _placement(was: Any, now: Any) -> str:
    for detail in range(3):
        a, b = _place(was, detail), _place(now, detail)
        if a != b:
            return f"placement {a} → {b}"
    return f"placement {_change(a, b)}"


def _type_changes(was: _Leaf, now: _Leaf) -> list[str]:
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


def _differences(old: _Signature, new: _Signature) -> tuple[list[_Difference], list[_Difference]]:
    """What JAX traces again for, and what it compiles again for from the same trace."""
    types: list[_Difference] = []
    places: list[_Difference] = []
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
            if _Value(was[setting]) != _Value(now[setting]):
                change = _change(_setting(was[setting]), _setting(now[setting]))
                types.append(("", f"config {_setting_name(setting)}: {change}"))
    if old.mesh != new.mesh:
        places.append(("", f"config mesh: {_change(old.mesh, new.mesh)}"))
    if old.nest != new.nest:
        places.insert(0, ("", _nest(new)))
    return types, places


def _told(differences: list[_Difference]) -> str:
    """`x: shape (3,) → (4,); y: …`; what many leaves share is told once."""
    where: dict[str, list[str]] = {}
    for leaf, change in differences:
        where.setdefault(change, []).append(leaf)
    parts = []
    for leaf, change in differences:
        leaves = where[change]
        if len(leaves) <= 3:
            parts.append(f"{leaf}: {change}" if leaf else change)
        elif leaf == leaves[0]:
            parts.append(f"{leaf} and {len(leaves) - 1} more: {change}")
    more = [f"… {len(parts) - _MOST} more"] if len(parts) > _MOST else []
    return "; ".join(parts[:_MOST] + more)


def _nest(signature: _Signature) -> str:
    nest = " of ".join(signature.nest)
    return f"under {nest}" if nest else "not under a transformation"


def _setting(value: Any) -> str:
    value = value.value if isinstance(value, enum.Enum) else value
    return value if isinstance(value, str) else _text(value)


def _setting_name(setting: str) -> str:
    if setting == "axis_env_state":
        return "named axes"
    return setting.removeprefix("jax_").removesuffix("_context_manager")


def _role_changes(was: _Leaf, now: _Leaf) -> list[str]:
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


def _leaf(value: Any, roles: tuple[Any, ...], inner: Any) -> _Leaf:
    try:
        if not roles and isinstance(value, jax.Array):  # many: jax.typeof would take longer
            return _Leaf(value.aval, value.sharding if value.committed else None, roles, "")
        if type(value) is np.ndarray:  # likewise
            return _Leaf(_numpy_type(value.shape, value.dtype, _context()), None, roles, "")
        aval = jax.typeof(value)
    except Exception:  # the call itself will say what is wrong with it
        plain = isinstance(value, str | bytes | int | float | complex)
        return _Leaf(
            None, None, roles, _cut(_text(value)) if plain else f"<{type(value).__name__}>"
        )
    placed = isinstance(inner, jax.Array) and not isinstance(inner, jax.core.Tracer)
    sharding = inner.sharding if placed and inner.committed else None
    return _Leaf(aval, sharding, roles, "")


class Calls(Picture):
    """What `see.calls` returns: call it like the function; show it to see its calls.

    Attributes:
      calls: list of `Call`, in the order in which they began.
      traces: how many times JAX ran the Python function to trace it.
    """

    kind = "calls"
    lead = "calls of"

    def __init__(self, f: Callable[..., Any], jit_options: dict[str, Any]) -> None:
        functools.update_wrapper(self, f)
        self.__name__ = _name(f)
        self.traces = 0
        self.calls: list[Call] = []
        self._begun: list[float] = []  # when each call began
        self._lock = threading.RLock()
        self._seen: list[_Signature] = []  # all different ones that JAX took
        self._epoch = 0  # how often JAX's caches have been cleared
        self._state = (-1, -1)
        self._kept = 0
        inside = f._jit if isinstance(f, Calls) else getattr(f, "jitted_fn", f)  # of nnx.jit
        self._jit: Any  # the jitted function itself: JAX names no public type for it
        self._jitted = not jit_options and _jax_private.is_jitted(inside)
        if self._jitted:
            self._call, self._jit = f, inside
        else:
            self._call = self._jit = jax.jit(self._counting(f), **jit_options)
        self._static = _jax_private.statics(self._jit)
        self._names: list[str] = []
        self._variadic = "args"
        self._defaults: set[str] = set()
        with contextlib.suppress(TypeError, ValueError):  # a few builtins have no signature
            for p in inspect.signature(f).parameters.values():
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                    self._names.append(p.name)
                elif p.kind is p.VAR_POSITIONAL:
                    self._variadic = p.name
                if p.default is not p.empty:
                    self._defaults.add(p.name)
        # The same methods as a jitted function has.
        self.lower, self.trace = self._ahead("lower"), self._ahead("trace")
        self.eval_shape = self._ahead("eval_shape")

    def clear_cache(self) -> None:
        """Forgets what was traced and compiled, as the method of a jitted function does."""
        self._jit.clear_cache()

    def _counting(self, f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def counted(*args, **kwargs):
            if jax.config.jax_disable_jit or not _jax_private.tracing():
                return f(*args, **kwargs)  # op by op: disable_jit, or debug_nans in search of one
            call = next((c for c in reversed(_stack.calls) if c.owner is self), None)
            with self._lock:
                self.traces += 1
                if call is not None:
                    self._trace_begins(call)
            heard = len(call.events) if call else 0
            start = time.perf_counter()
            try:
                return f(*args, **kwargs)
            finally:
                if call is not None:
                    call.trace_ms = (time.perf_counter() - start) * 1e3
                    del call.events[heard:]  # what f itself makes JAX trace and compile

        counted.__name__ = self.__name__
        return counted

    def _trace_begins(self, call: _UnderWay) -> None:
        if not call.traced:
            call.traced, call.earlier = True, list(self._seen)
            self._see(call.signature)

    def _see(self, signature: _Signature) -> None:
        if not any(old is signature for old in self._seen):
            self._seen.append(signature)

    def _ahead(self, method: str) -> Callable[..., Any]:
        """`lower`, for example: traces as a call does, but is no call."""

        @functools.wraps(getattr(self._call, method))
        def ahead(*args, **kwargs):
            call = self._begin(args, kwargs)
            _stack.calls.append(call)
            before = self._traces_kept()
            try:
                result = getattr(self._call, method)(*args, **kwargs)
            except BaseException:
                self._forget(call)
                raise
            finally:
                _stack.calls.pop()
            with self._lock:
                if self._was_traced(call, before):
                    self.traces += self._jitted
                    self._trace_begins(call)
                    call.signature.compiled, call.signature.epoch = False, self._epoch
            return result

        return ahead

    def _traces_kept(self, fresh: bool = False) -> int:
        """How many traces of it JAX keeps. Fewer than last time: its caches were cleared.

        JAX counts a trace before it keeps it, so after one of ours the count may be known already.
        """
        with self._lock:
            state = _jax_private.trace_count()
            if fresh or state != self._state:
                self._state, kept = state, _jax_private.cached_traces(self._jit)
                self._epoch += kept < self._kept
                self._kept = kept
            return self._kept

    def _was_traced(self, call: _UnderWay, before: int) -> bool:
        # No way into the function, but JAX now keeps one more trace of it. Another thread may have
        # made it, so JAX must have reported it in this one, which it does at the top level only.
        reported = any(event == _TRACE and name == self.__name__ for event, name, _ in call.events)
        kept = self._traces_kept(fresh=reported)
        if not self._jitted:
            return call.traced
        return kept > before and (reported or not _jax_private.at_top_level())

    def _begin(self, args: tuple, kwargs: dict[str, Any]) -> _UnderWay:
        if not _jax_private.listening(_listen):
            jax.monitoring.register_event_duration_secs_listener(_listen)
        signature = self._signature(args, kwargs)
        with self._lock:
            seen = list(self._seen)
        same = next((old for old in reversed(seen) if old == signature), None)
        if same is None:
            self._add_paths(signature, args, kwargs)
        return _UnderWay(self, same or signature, seen)

    def _given(self, args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[str, Any, str, bool]]:
        numbers, names = self._static
        for i, value in enumerate(args):
            many = len(self._names)
            name = self._names[i] if i < many else f"{self._variadic}[{i - many}]"
            yield name, value, "positional", i in numbers or i - len(args) in numbers
        for name, value in kwargs.items():
            # In f(x, /, **others) the name x can stand for two.
            twice = name in self._names[: len(args)]
            yield f"{name} by name" if twice else name, value, "keyword", name in names

    def _signature(self, args: tuple, kwargs: dict[str, Any]) -> _Signature:
        flat: dict[str, tuple[list[Any], Any]] = {}
        for name, value, _, static in self._given(args, kwargs):
            try:
                flat[name] = ([], value) if static else jax.tree.flatten(value)
            except Exception:  # a pytree that JAX will refuse, too
                flat[name] = ([], None)
        values = [value for values, _ in flat.values() for value in values]
        nest, roles, inner = _jax_private.transformations(values)
        leaves = iter(map(_leaf, values, roles, inner))
        arguments = {}
        for name, _, passed, static in self._given(args, kwargs):
            values, value = flat[name]
            own = tuple(next(leaves) for _ in values)
            arguments[name] = _Argument(passed, static, _Value(value), own)
        context = _Value(_jax_private.trace_context())
        return _Signature(arguments, context, _Value(_jax_private.device_mesh()), nest)

    def _add_paths(self, signature: _Signature, args: tuple, kwargs: dict[str, Any]) -> None:
        for name, value, _, static in self._given(args, kwargs):
            argument = signature.arguments[name]
            if name in self._defaults:
                argument.left_out = "default"
            if argument.leaves and not static:
                paths, _ = jax.tree_util.tree_flatten_with_path(value)
                argument.paths = tuple(jax.tree_util.keystr(path) for path, _ in paths)

    def _forget(self, call: _UnderWay) -> None:
        """A trace that failed is in no cache."""
        with self._lock:
            if not any(old is call.signature for old in call.earlier):
                self._seen = [old for old in self._seen if old is not call.signature]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, error = self._begin(args, kwargs), None
        eager, before = jax.config.jax_disable_jit, self._traces_kept()
        _stack.calls.append(call)
        start = time.perf_counter()
        try:
            result = self._call(*args, **kwargs)
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result)):
                jax.block_until_ready(result)
            return result
        except BaseException as exception:
            error = exception
            raise
        finally:
            wall_ms = (time.perf_counter() - start) * 1e3
            _stack.calls.pop()
            with self._lock:
                record = self._record(call, eager, self._was_traced(call, before), wall_ms, error)
                place = bisect.bisect(self._begun, start)
                self._begun.insert(place, start)
                self.calls.insert(place, record)
            del error  # it refers to this frame

    def _record(
        self,
        call: _UnderWay,
        eager: bool,
        traced: bool,
        wall_ms: float,
        error: BaseException | None,
    ) -> Call:
        # Only events of this very function: lowering it may compile others.
        own = {self.__name__, f"jit({self.__name__})", f"jit_{self.__name__}"}
        heard = [(event, ms) for event, name, ms in call.events if name in own]
        compile_ms = sum(ms for event, ms in heard if event in _COMPILE and not eager)
        trace_ms = 0.0
        if traced:
            # Inside another jit JAX reports no trace. Then our own watch has to do, or the whole.
            reported = max((ms for event, ms in heard if event == _TRACE), default=0.0)
            within = wall_ms if self._jitted else call.trace_ms
            trace_ms = min(wall_ms - compile_ms, reported or within)
        compiled = compile_ms > 0
        signature, cause = call.signature, ""
        if error is not None:
            outcome, cause = "failed", _failure(error, signature)
            self._forget(call)
        elif eager:
            outcome, cause = "eager", "not jitted: disable_jit"
        else:
            outcome = {
                (True, True): "compiled",
                (True, False): "traced",
                (False, True): "recompiled",
                (False, False): "cached",
            }[traced, compiled]
            if traced or compiled:
                cause = self._cause(call, traced)
            if traced and self._jitted:
                self.traces += 1
            self._see(signature)
            signature.epoch, signature.compiled = self._epoch, True
        run_ms = max(0.0, wall_ms - trace_ms - compile_ms)
        return Call(outcome, cause, trace_ms, compile_ms, run_ms, signature.text, error)

    def _cause(self, call: _UnderWay, traced: bool) -> str:
        """The difference from the nearest signature seen before, the one with the fewest."""
        if not call.earlier:
            outcomes = [earlier.outcome for earlier in self.calls]
            if outcomes[-1:] == ["failed"]:
                return "after a failed call"
            return "first call that is jitted" if "eager" in outcomes else "first call"
        found = [(_differences(old, call.signature), old) for old in reversed(call.earlier)]
        if traced:
            (differences, _), old = min(found, key=lambda pair: len(pair[0][0]))
            if not differences:
                cleared = all(old.epoch < self._epoch for (types, _), old in found if not types)
                return "caches cleared" if cleared else "unknown"
        else:
            nest = call.signature.nest
            found.sort(key=lambda pair: (len(pair[0][0]), pair[1].nest != nest, len(pair[0][1])))
            (types, places), old = found[0]
            differences = types + places
            if not differences:
                return "unknown" if old.compiled else "traced before, not compiled"
        return _told(differences)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def name(self) -> str:
        return self.__name__

    def summary(self) -> Spans:
        calls, traces = len(self.calls), self.traces
        return (
            Span(f"{calls} call{'s' * (calls != 1)}", word=True),
            Span(", ", word=True),
            Span(f"{traces} trace{'s' * (traces != 1)}", word=True),
        )

    def parts(self) -> Iterable[Table]:
        most = max((sum(_parts(c)) for c in self.calls), default=0.0) or 1.0
        yield Table(
            caption="wall time of each call",
            columns=(
                Column("#"),
                Column("outcome"),
                *(Column(f"{name} ms", f"ms {name}-ms", number=True) for name in _TIMES),
                Column("", "bar"),
                Column("signature", "sig"),
                Column("cause", "why"),
            ),
            rows=tuple(
                (
                    (Span(str(i)),),
                    (Span(c.outcome, f"badge {c.outcome}", word=True),),
                    *((Span(_ms(ms)),) for ms in _parts(c)),
                    Bar(tuple((f"{n}-ms", ms / most) for n, ms in _named(c))),
                    (Span(c.signature, "mono"),),
                    _phrases(c.cause),
                )
                for i, c in enumerate(self.calls, 1)
            ),
        )


_TIMES = ("trace", "compile", "run")


def _named(call: Call) -> Iterable[tuple[str, float]]:
    return zip(_TIMES, _parts(call), strict=True)


def _phrases(cause: str) -> Spans:
    """The cause cut where several stand side by side: each may be one of our own words."""
    return joined([(Span(each, word=True),) for each in cause.split("; ") if each], "; ")


def _parts(call: Call) -> tuple[float, float, float]:
    return call.trace_ms, call.compile_ms, call.run_ms


def _ms(ms: float) -> str:
    return f"{ms:.2f}"


def _failure(error: BaseException, signature: _Signature) -> str:
    kind = type(error).__name__
    if re.search("as an abstract array|not a valid JAX type", str(error)):
        for name, argument in signature.arguments.items():
            for path, leaf in zip(argument.paths, argument.leaves, strict=True):
                if leaf.aval is None:
                    return f"{kind}: {name}{path} is neither an array nor static: {leaf.other}"
    lines = re.sub(r" at 0x[0-9a-f]+", "", str(error)).strip().splitlines()
    return f"{kind}: {lines[0][:80]}" if lines else kind


def _name(f: Any) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", type(f).__name__)


def calls(f: Callable[..., Any] | None = None, /, **jit_options: Any) -> Any:
    """`jax.jit` that remembers every call: traced, compiled or cached, how long, and why.

    The result is the same, and so are the exceptions. Each call waits until its result is ready,
    otherwise `run_ms` would be the time of dispatching it; so do not time overlapping work this
    way. Under another transformation there is nothing to wait for.

    Args:
      f: the function, not yet jitted. Left out, `@see.calls(static_argnames="n")` decorates.
        An already jitted f, by `nnx.jit` too, keeps its own options and what it has compiled.
      jit_options: those of `jax.jit`.
    Returns:
      `Calls`, a function that shows its history: `.calls`, `.traces`.
    Raises:
      TypeError: f is not callable.
    Source: durations from `jax.monitoring`; traces counted in Python, or in JAX's cache if f is
      jitted; causes by comparing all that JAX compares with the nearest earlier call, the one
      with the fewest differences.

    >>> import jax.numpy as jnp
    >>> from seejax import see
    >>> @see.calls(static_argnames="n")
    ... def power(x, n):
    ...     return x**n
    >>> _ = power(jnp.arange(3.0), n=2), power(jnp.arange(4.0), n=2), power(jnp.arange(4.0), n=2)
    >>> power.traces
    2
    >>> [call.cause for call in power.calls]
    ['first call', 'x: shape (3,) → (4,)', '']
    """
    if f is None:
        return functools.partial(calls, **jit_options)
    if not callable(f):
        raise TypeError(f"see.calls needs a function, got {type(f).__name__}: {_cut(_text(f))}")
    return Calls(f, jit_options)
