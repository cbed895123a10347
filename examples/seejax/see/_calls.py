"""A jitted function that remembers every call: what JAX did, how long it took, and why."""

import dataclasses
import functools
import inspect
import re
import threading
import time
import types
from collections.abc import Callable, Iterable
from typing import Any

import jax

from seejax.see._parts import Bar, Column, Span, Spans, Table, joined
from seejax.see._picture import Picture

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_COMPILE = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)

# What JAX adds to its cache key besides the arguments, as far as a program can set it.
_CONFIG = (
    "enable_x64",
    "default_matmul_precision",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "default_prng_impl",
    "threefry_partitionable",
    "legacy_prng_key",
    "debug_nans",
    "debug_infs",
    "disable_jit",
    "default_device",
    "allow_f16_reductions",
    "check_tracer_leaks",
    "enable_checks",
    "softmax_custom_jvp",
)

_TRANSFORM = {"Batch": "vmap", "JVP": "jvp", "Linearize": "grad", "Jaxpr": "grad"}


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: what JAX had to do for it, and why.

    Attributes:
      outcome: `compiled` traced and compiled; `traced` traced only, for an outer transformation;
        `recompiled` compiled from a trace it already had; `cached` neither; `failed` raised.
      cause: why it was not cached, by argument: `x: shape (3,) → (4,)`; `""` when cached.
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


class _UnderWay(threading.local):
    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str, float]]] = []


_under_way = _UnderWay()


def _listen(event: str, seconds: float, **details: Any) -> None:
    if _under_way.calls:
        _under_way.calls[-1].append((event, str(details.get("fun_name", "")), seconds * 1e3))


jax.monitoring.register_event_duration_secs_listener(_listen)


# --- why: what JAX looks at when it decides whether it has seen these arguments before


@dataclasses.dataclass(frozen=True)
class _Leaf:
    shape: tuple[int, ...]
    dtype: str
    weak: bool
    placement: str

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"{self.typed}[{dims}]"

    @property
    def typed(self) -> str:
        return self.dtype + "~" * self.weak


@dataclasses.dataclass(frozen=True)
class _Argument:
    passed: str
    static: bool
    value: Any
    structure: str
    leaves: dict[str, _Leaf]


@dataclasses.dataclass(frozen=True)
class _Signature:
    arguments: dict[str, _Argument]
    config: dict[str, Any]
    transform: str

    def __str__(self) -> str:
        parts = []
        for name, argument in self.arguments.items():
            if argument.static:
                parts.append(f"{name}={_brief(argument.value)} static")
            parts.extend(f"{path} {leaf}" for path, leaf in list(argument.leaves.items())[:6])
            if len(argument.leaves) > 6:
                parts.append(f"… {name} has {len(argument.leaves)} leaves")
        return ", ".join(parts)


def short_dtype(dtype: object) -> str:
    """The dtype as a jaxpr prints it.

    >>> short_dtype("float32"), short_dtype("bfloat16"), short_dtype("bool")
    ('f32', 'bf16', 'bool')
    """
    pattern = r"^(bf|f|ui|u|i|c)(?:loat|nt|omplex)(\d.*)$"
    return re.sub(pattern, lambda m: m[1].replace("ui", "u") + m[2], str(dtype))


def _brief(value: object) -> str:
    try:
        text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    except Exception:  # a broken __repr__ of a user's class must not break the call
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 40 else text[:39] + "…"


def _same(a: object, b: object) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:  # __eq__ of arrays and of a user's class can do anything
        return a is b


def _placement(leaf: Any) -> str:
    if not isinstance(leaf, jax.Array) or isinstance(leaf, jax.core.Tracer):
        return "default"
    if not getattr(leaf, "committed", True):
        return "default"
    sharding = leaf.sharding
    if isinstance(sharding, jax.sharding.NamedSharding):
        axes = ",".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
        return f"{sharding.spec} on ({axes})".replace("PartitionSpec", "P")
    return "+".join(f"{d.platform}:{d.id}" for d in sorted(leaf.devices(), key=lambda d: d.id))


def _leaf(value: Any) -> _Leaf | None:
    try:
        aval = jax.typeof(value)
    except TypeError:
        return None
    weak = bool(getattr(aval, "weak_type", False))
    return _Leaf(tuple(aval.shape), short_dtype(aval.dtype), weak, _placement(value))


def _argument(name: str, value: Any, passed: str, static: bool) -> _Argument:
    leaves: dict[str, _Leaf] = {}
    if not static:
        paths, structure = jax.tree_util.tree_flatten_with_path(value)
        for path, child in paths:
            leaf = _leaf(child)
            if leaf is None:  # not an array: either jit will refuse it or it knows it is static
                return _Argument(passed, True, value, "", {})
            leaves[name + jax.tree_util.keystr(path)] = leaf
        text = re.sub(r"^PyTreeDef\((.*)\)$", r"\1", str(structure))
        return _Argument(passed, False, None, text, leaves)
    return _Argument(passed, True, value, "", leaves)


def _transform(tree: Any) -> str:
    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.core.Tracer):
            kind = type(leaf).__name__.removesuffix("Tracer")
            return _TRANSFORM.get(kind, "jit")
    return ""


def _differences(old: _Signature, new: _Signature) -> list[str]:
    found = []
    for name in dict.fromkeys([*old.arguments, *new.arguments]):
        a, b = old.arguments.get(name), new.arguments.get(name)
        if a is None or b is None:
            found.append(f"{name}: {'default → given' if a is None else 'given → default'}")
            continue
        if a.passed != b.passed:
            found.append(f"{name}: {a.passed} → {b.passed}")
        if a.static and b.static:
            if not _same(a.value, b.value):
                was, now = _brief(a.value), _brief(b.value)
                note = " (another object)" if was == now else ""
                found.append(f"{name}: static {was} → {now}{note}")
        elif a.static or b.static:
            found.append(f"{name}: {'static → array' if a.static else 'array → static'}")
        elif a.structure != b.structure:
            was, now = (re.sub(r" at 0x[0-9a-f]+", "", x.structure) for x in (a, b))
            note = " (another object in it)" if was == now else ""
            found.append(f"{name}: structure {was} → {now}{note}")
        else:
            for path, x in a.leaves.items():
                y, changes = b.leaves[path], []
                if x.shape != y.shape:
                    changes.append(f"shape {x.shape} → {y.shape}")
                if x.dtype != y.dtype:
                    changes.append(f"dtype {x.typed} → {y.typed}")
                elif x.weak != y.weak:
                    changes.append(f"weak type {x.typed} → {y.typed}")
                found += [f"{path}: {change}" for change in changes]
    for name, value in new.config.items():
        if not _same(old.config[name], value):
            found.append(f"config {name}: {old.config[name]} → {value}")
    return found


def _placements(old: _Signature, new: _Signature) -> list[str]:
    found = []
    if old.transform != new.transform:
        found.append(f"under {new.transform}" if new.transform else "not under a transformation")
    for name, argument in new.arguments.items():
        for path, leaf in argument.leaves.items():
            was = old.arguments[name].leaves[path].placement
            if was != leaf.placement:
                found.append(f"{path}: placement {was} → {leaf.placement}")
    return found


class Calls(Picture):
    """What `see.calls` returns: call it like the function; show it to see its calls.

    Attributes:
      calls: list of `Call`, oldest first.
      traces: how many times JAX ran the Python function to trace it.
    """

    kind = "calls"
    lead = "calls of"

    def __init__(self, f: Callable[..., Any], jit_options: dict[str, Any]) -> None:
        functools.update_wrapper(self, f)
        self.__name__ = _name(f)
        self.traces = 0
        self.calls: list[Call] = []
        self._trace_ms = 0.0
        self._seen: list[_Signature] = []  # one for each successful trace or compilation
        self._jaxprs: list[Any] = []
        self._jitted = not jit_options and all(
            hasattr(f, method) for method in ("lower", "trace", "clear_cache")
        )
        if self._jitted:
            self._jit = f
        else:
            self._jit = jax.jit(self._counting(f), **jit_options)
        try:
            self._parameters = inspect.signature(f)
        except (TypeError, ValueError):  # a few builtins have none
            self._parameters = None
        self._static = self._static_names(jit_options)
        # The same methods as a jitted function has.
        self.lower, self.trace = self._jit.lower, self._jit.trace
        self.eval_shape, self.clear_cache = self._jit.eval_shape, self._jit.clear_cache

    def _counting(self, f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def counted(*args, **kwargs):
            self.traces += 1
            start = time.perf_counter()
            try:
                return f(*args, **kwargs)
            finally:
                self._trace_ms = (time.perf_counter() - start) * 1e3

        counted.__name__ = self.__name__
        return counted

    def _static_names(self, options: dict[str, Any]) -> set[str | int]:
        def several(value):
            if value is None:
                return []
            return [value] if isinstance(value, str | int) else list(value)

        names: set[str | int] = set(several(options.get("static_argnames")))
        parameters = list(self._parameters.parameters) if self._parameters else []
        for number in several(options.get("static_argnums")):
            try:
                names.add(parameters[number])
            except IndexError:
                names.add(number)
        return names

    def _signature(self, args: tuple, kwargs: dict[str, Any]) -> _Signature:
        given: list[tuple[str, Any, str]] = []
        names: list[str] = []
        variadic = "args"
        if self._parameters is not None:
            for p in self._parameters.parameters.values():
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                    names.append(p.name)
                elif p.kind is p.VAR_POSITIONAL:
                    variadic = p.name
        for i, value in enumerate(args):
            name = names[i] if i < len(names) else f"{variadic}[{i - len(names)}]"
            given.append((name, value, "positional"))
        given += [(name, value, "keyword") for name, value in kwargs.items()]
        arguments = {}
        for i, (name, value, passed) in enumerate(given):
            static = name in self._static or i in self._static
            arguments[name] = _argument(name, value, passed, static)
        config = {name: getattr(jax.config, f"jax_{name}", None) for name in _CONFIG}
        config["mesh"] = jax.sharding.get_abstract_mesh()
        return _Signature(arguments, config, _transform((args, kwargs)))

    def _cause(self, signature: _Signature, traced: bool) -> str:
        if not self._seen:
            return "after a failed call" if self.calls else "first call"
        by_distance = [(_differences(old, signature), old) for old in reversed(self._seen)]
        differences, _ = min(by_distance, key=lambda pair: len(pair[0]))
        if differences:
            return "; ".join(differences)
        if traced:
            return "caches cleared"
        same = [old for differences, old in by_distance if not differences]
        return "; ".join(min((_placements(old, signature) for old in same), key=len)) or (
            "caches cleared"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature = self._signature(args, kwargs)
        traces, events, result, error = self.traces, [], None, None
        self._trace_ms = 0.0
        _under_way.calls.append(events)
        start = time.perf_counter()
        try:
            if self._jitted:
                # No way into the jitted function: ask it for its jaxpr, and a new one is a trace.
                jaxpr = self._jit.trace(*args, **kwargs).jaxpr
                if not any(jaxpr is seen for seen in self._jaxprs):
                    self._jaxprs.append(jaxpr)
                    self.traces += 1
            result = self._jit(*args, **kwargs)
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result)):
                jax.block_until_ready(result)
            return result
        except BaseException as exception:
            error = exception
            raise
        finally:
            wall_ms = (time.perf_counter() - start) * 1e3
            _under_way.calls.pop()
            self._record(signature, self.traces > traces, events, wall_ms, error)

    def _record(self, signature, traced, events, wall_ms, error) -> None:
        # Only events of this very function: tracing and lowering it may compile others.
        own = {self.__name__, f"jit({self.__name__})", f"jit_{self.__name__}"}
        longest = {event: 0.0 for event in (_TRACE, *_COMPILE)}
        for event, name, ms in events:
            if name in own and event in longest:
                longest[event] = max(longest[event], ms)
        compile_ms = sum(longest[event] for event in _COMPILE)
        # Inside another jit JAX reports no trace, then the wrapper's own watch has to do.
        trace_ms = min(wall_ms - compile_ms, longest[_TRACE] or self._trace_ms) if traced else 0.0
        compiled = compile_ms > 0
        outcome = {
            (True, True): "compiled",
            (True, False): "traced",
            (False, True): "recompiled",
            (False, False): "cached",
        }[traced, compiled]
        cause = ""
        if error is not None:
            outcome = "failed"
            lines = str(error).strip().splitlines()
            cause = type(error).__name__ + (f": {lines[0][:80]}" if lines else "")
        elif traced or compiled:
            cause = self._cause(signature, traced)
            self._seen.append(signature)
        run_ms = max(0.0, wall_ms - trace_ms - compile_ms)
        self.calls.append(Call(outcome, cause, trace_ms, compile_ms, run_ms, str(signature), error))

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
        An already jitted f keeps its own options; each call then also asks it for its jaxpr.
      jit_options: those of `jax.jit`.
    Returns:
      `Calls`, a function that shows its history: `.calls`, `.traces`.
    Raises:
      TypeError: f is not callable.
    Source: durations from `jax.monitoring`; traces counted in Python; causes by comparing the
      arguments with the nearest earlier signature, the one with the fewest differences.

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
        raise TypeError(f"see.calls needs a function, got {type(f).__name__}: {_brief(f)}")
    return Calls(f, jit_options)
