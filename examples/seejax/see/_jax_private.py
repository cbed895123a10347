"""The only file that touches what JAX does not document.

Where an equation comes from: `JaxprEqn.source_info` has no public counterpart. What JAX's caches
compare: only JAX itself reads that. Tests fail here first when JAX changes either.
"""

from collections.abc import Iterator
from types import CodeType
from typing import Any

import jax
import jax.extend.core as jex_core
from jax._src import config, core, mesh, monitoring
from jax._src.interpreters import partial_eval


def frames(eqn: Any) -> list[tuple[CodeType, int]]:
    """The Python frames that made the equation, outermost first: code and instruction offset."""
    traceback = eqn.source_info.traceback
    if traceback is None:
        return []
    codes, offsets = traceback.raw_frames()
    return list(zip(codes, offsets, strict=True))[::-1]


def scope(eqn: Any) -> str:
    """The transformations and named scopes around the equation: `transpose(jvp())`."""
    return str(eqn.source_info.name_stack)


def subjaxprs(eqn: Any) -> Iterator[tuple[str, Any]]:
    """The programs inside the equation: (parameter name, Jaxpr or ClosedJaxpr)."""
    for name, value in eqn.params.items():
        for item in value if _is_container(value) else (value,):
            if isinstance(item, jex_core.Jaxpr | jex_core.ClosedJaxpr):
                yield name, item


def _is_container(value: Any) -> bool:
    return type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def opened(jaxpr: Any) -> Any:
    """The Jaxpr of a ClosedJaxpr; newer versions of JAX have one class for both."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def tagged(jaxpr: Any, tag: str) -> tuple[Any, int]:
    """A copy in which equation n carries the innermost scope `{tag}{n}`, and how many there are.

    Equations count depth first: one, then those of its `subjaxprs`, then the next.

    XLA keeps the scope of an instruction as its `op_name` through every optimisation, and
    scopes change no instruction: that is an exact map from equations to optimised HLO.
    """
    count = 0

    def copy(value: Any) -> Any:
        if _is_container(value):
            items = [copy(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if not isinstance(value, jex_core.Jaxpr | jex_core.ClosedJaxpr):
            return value
        inner = opened(value)
        if inner is not value:
            return value.replace(jaxpr=copy(inner))
        return value.replace(eqns=[tag_one(eqn) for eqn in value.eqns])

    def tag_one(eqn: Any) -> Any:
        nonlocal count
        info = eqn.source_info
        info = info.replace(name_stack=info.name_stack.extend(f"{tag}{count}"))
        count += 1
        params = {name: copy(value) for name, value in eqn.params.items()}
        return eqn.replace(params=params, source_info=info)

    return copy(jaxpr), count


# --- what JAX's caches know; JAX offers these to itself only


def trace_context() -> dict[str, Any]:
    """Every setting that is part of the key of JAX's trace cache, by name."""
    return dict(zip(config.trace_context_names(), config.trace_context(), strict=True))


def device_mesh() -> Any:
    """The mesh of `jax.set_mesh` with its devices; `trace_context` has it without."""
    return mesh.get_concrete_mesh()


def is_jitted(f: Any) -> bool:
    """Whether f is what `jax.jit` returned."""
    return hasattr(f, "_jit_info") and hasattr(f, "_fun")


def at_top_level() -> bool:
    """Whether no transformation is under way; only there does JAX report what it traces."""
    return core.trace_ctx.is_top_level()


def tracing() -> bool:
    """Whether operations are now written down instead of executed."""
    return any(type(trace).__name__ == "DynamicJaxprTrace" for trace in _traces())


def statics(jitted: Any) -> tuple[frozenset[int], frozenset[str]]:
    """The positions and the names that are static, as `jax.jit` resolved its options."""
    info = jitted._jit_info
    return frozenset(info.static_argnums), frozenset(info.static_argnames)


def trace_count() -> tuple[int, int]:
    """Changes whenever JAX traces any function, or forgets a trace."""
    info = partial_eval.trace_to_jaxpr.cache_info()
    return info.misses, info.currsize


def cached_traces(jitted: Any) -> int:
    """How many traces of the function JAX keeps. It drops one only when its caches are cleared."""
    keys = partial_eval.trace_to_jaxpr.cache_keys()
    return sum(key[0]() is jitted._fun for key in keys)


def listening(listener: Any) -> bool:
    """Whether the listener for durations is registered: anyone can clear them all."""
    return any(listener is other for other in monitoring.get_event_duration_listeners())


_TRANSFORMATION = {
    "Batch": "vmap",
    "JVP": "jvp",
    "Linearize": "grad",
    "Jaxpr": "grad",
    "ShardMap": "shard_map",
}


def _traces() -> Iterator[Any]:
    trace = core.trace_ctx.trace
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent_trace", None)


def transformations(values: list[Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]], list[Any]]:
    """What transforms the values, for example `jax.vmap(jax.grad(f))` inside f.

    Returns:
      The transformations, outermost first: `("vmap", "grad")`. The outermost is `"jit"` if the
        values have no numbers yet; what is outside of that is not seen.
      For each value what each transformation does to it, as pairs: `(("batch axis", 0), …)`.
      For each value what is under all tracers; the tracer itself under `"jit"`.
    """
    if core.trace_state_clean():
        return (), [()] * len(values), values
    unwrapped = [_unwrapped(value) for value in values]
    known = {trace for role, _ in unwrapped for trace in role}
    nest = []
    for trace in _traces():
        kind = type(trace).__name__.removesuffix("Trace")
        if kind == "DynamicJaxpr":
            nest.append((trace, "jit"))
            break
        if trace in known or kind == "Batch":  # vmap compiles anew even what it does not batch
            name = _TRANSFORMATION.get(kind, kind.lower())
            if name == "grad" and not getattr(trace, "is_vjp", True):
                name = "linearize"
            nest.append((trace, name))
    nest.reverse()
    roles = [tuple(role.get(trace, ()) for trace, _ in nest) for role, _ in unwrapped]
    return tuple(name for _, name in nest), roles, [value for _, value in unwrapped]


def _unwrapped(value: Any, of: str = "") -> tuple[dict[Any, tuple[Any, ...]], Any]:
    role: dict[Any, tuple[Any, ...]] = {}
    while isinstance(value, jax.core.Tracer):
        trace = value._trace
        if hasattr(value, "batch_dim"):
            axis, value = value.batch_dim, value.val
            size = value.shape[axis] if isinstance(axis, int) else None
            role[trace] = ((f"batch axis{of}", axis), (f"batch size{of}", size))
        elif hasattr(value, "primal"):
            tangents, _ = _unwrapped(value.tangent, " of the tangent")
            role = tangents | role | {trace: ((f"differentiated{of}", "yes"),)}
            value = value.primal
        else:
            role[trace] = ()
            break
    return role, value
