"""The only file that imports JAX's private modules, or reads its private attributes.

`JaxprEqn.source_info` says where an equation comes from, `Traced._params` what a jitted function
carries besides its program, `grid_mapping` how a Pallas kernel
cuts its arrays, and only JAX itself knows what its caches compare; what it has just lowered or
compiled is a local variable of it. None of them has a public counterpart; tests fail here first
when JAX changes one.

What else is not promised stands where it is read: the text of optimised HLO in `_hlo.py` and
`_memory.py`, that of StableHLO in `_stablehlo.py`; the names of events in `_calls.py` and
`_profile.py`; the text of a `PyTreeDef` in `_signature.py` and `_tree.py`, and that of XLA's
options in `_signature.py`; the text of a type, as in `float32[8@d]`, in `_signature.py` and
`_jaxpr.py`.
"""

import contextlib
import copy
import dataclasses
import inspect
import os
import re
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import jax
import jax.extend.core as jex_core
from jax._src import config, core, distributed, mesh, monitoring
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


def named_scopes(eqn: Any) -> tuple[str, ...]:
    """The named scopes around the equation, outermost first, without the transformations."""
    stack = eqn.source_info.name_stack.stack
    return tuple(part.name for part in stack if type(part).__name__ == "Scope")


def recomputed(eqn: Any) -> bool:
    """`jax.checkpoint` runs it on the way back, to have again what it did not keep."""
    return "rematted_computation" in scope(eqn).split("/")


def subjaxprs(eqn: Any) -> Iterator[tuple[str, Any]]:
    """The programs inside the equation: (parameter name, Jaxpr or ClosedJaxpr)."""
    for name, value in eqn.params.items():
        for item in value if _is_container(value) else (value,):
            if isinstance(item, jex_core.Jaxpr | jex_core.ClosedJaxpr):
                yield name, item


def made_by(jaxpr: Any) -> tuple[str, str, int] | None:
    """The function that a jaxpr was traced from: its name, its file and its first line."""
    info = getattr(opened(jaxpr), "debug_info", None)
    found = re.match(r"(\S+) at (.*):(\d+)$", str(getattr(info, "func_src_info", "")))
    return (found[1], found[2], int(found[3])) if found else None


def _is_container(value: Any) -> bool:
    return type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def opened(jaxpr: Any) -> Any:
    """The Jaxpr of a ClosedJaxpr; newer versions of JAX have one class for both."""
    return jaxpr if isinstance(jaxpr, jex_core.Jaxpr) else jaxpr.jaxpr


def subprogram(closed: Any, invars: list[Any], eqns: list[Any], outvars: list[Any]) -> Any:
    """Some equations of the program as a program of their own, with the same variables."""
    inner = opened(closed)
    used = {id(var) for eqn in eqns for var in eqn.invars} | set(map(id, outvars))
    used -= set(map(id, invars))
    known = [
        (var, const)
        for var, const in zip(inner.constvars, closed.consts, strict=True)
        if id(var) in used
    ]
    part = jex_core.Jaxpr(
        [var for var, _ in known],
        invars,
        outvars,
        eqns,
        debug_info=inner.debug_info.with_unknown_names(),
        is_high=inner.is_high,
    )
    return jex_core.ClosedJaxpr(part, [const for _, const in known])


def traced(stage: Any) -> Any:
    """The `jax.stages.Traced` of what `.trace()` returned: itself, or what a library wrapped.

    None if there is none: the method `trace` was about something else.
    """
    for candidate in (stage, getattr(stage, "traced", None)):
        if hasattr(candidate, "jaxpr") and hasattr(candidate, "lower"):
            return candidate
    return None


def with_jaxpr(stage: Any, jaxpr: Any) -> Any:
    """The same `Traced` of another program with the same inputs and outputs.

    Everything else that the jitted function carries stays: donation, shardings, `keep_unused`,
    compiler options, mesh, constants, its name.
    """
    other = copy.copy(stage)
    other._params = {**stage._params, "jaxpr": jaxpr}
    for name in ("_lojax", "_closure_converted"):  # what it remembers of the first program
        if hasattr(other, name):
            setattr(other, name, None)
    return other


def without_donation(stage: Any) -> Any:
    """The same `Traced`, which keeps all its arguments for the caller."""
    donated = stage._params["donated_invars"]
    other = with_jaxpr(stage, stage._params["jaxpr"])
    other._params["donated_invars"] = (False,) * len(donated)
    return other


def argument_paths(jaxpr: Any) -> tuple[str, ...]:
    """What JAX calls each argument of a program: `state['w']`; () if it does not say."""
    info = getattr(opened(jaxpr), "debug_info", None)
    return tuple(map(str, getattr(info, "arg_names", None) or ()))


@dataclasses.dataclass(frozen=True)
class Mapping:
    """How one array is cut into blocks: for each axis (class, size, padding in front)."""

    ref: str
    shape: tuple[int, ...]
    dtype: Any
    dims: tuple[tuple[str, int, int], ...]
    index: Any  # a ClosedJaxpr: from the numbers of a program to those of its block
    result: bool
    space: str


@dataclasses.dataclass(frozen=True)
class Launch:
    """What a `pallas_call` says of its grid."""

    name: str
    grid: tuple[Any, ...]
    parallel: tuple[bool, ...]
    mappings: tuple[Mapping, ...]
    scratch: tuple[Any, ...]


WHOLE = ("any", "hbm")
"""Memory in which a kernel gets the whole array."""


def pallas_calls(jaxpr: Any) -> Iterator[Any]:
    """The equations that launch a Pallas kernel, in order; those inside others included."""
    for eqn in opened(jaxpr).eqns:
        if eqn.primitive.name == "pallas_call":
            yield eqn
            continue
        for _, inner in subjaxprs(eqn):
            yield from pallas_calls(inner)


def launch(eqn: Any) -> Launch:
    """The grid of a `pallas_call`, and the blocks of its arguments and results."""
    said, inner = eqn.params["grid_mapping"], eqn.params["jaxpr"]
    skipped, inputs = said.num_index_operands, said.num_inputs
    names = [name.removeprefix("refs_") for name in argument_paths(inner)]
    names += [f"ref {i}" for i in range(len(names), len(inner.invars))]
    mappings = []
    for i, each in enumerate(said.block_mappings):
        array, ref = each.array_aval, each.transformed_block_aval
        dims = (_block_dim(dim) for dim in each.block_shape)
        space = str(getattr(ref, "memory_space", None) or "").removeprefix("default")
        mapping = Mapping(
            names[skipped + i],
            tuple(array.shape),
            array.dtype,
            tuple(dims),
            each.index_map_jaxpr,
            i >= inputs,
            "" if space == "None" else space,
        )
        mappings.append(mapping)
    found = made_by(inner)
    name = eqn.params.get("name") or (found[0] if found else "kernel")
    declared = _parallel(eqn.params.get("compiler_params"), len(said.grid))
    scratch = tuple(getattr(aval, "inner_aval", aval) for aval in said.scratch_avals)
    return Launch(name, tuple(said.grid), declared, tuple(mappings), scratch)


def _block_dim(dim: Any) -> tuple[str, int, int]:
    kind = type(dim).__name__
    padding = getattr(dim, "padding", None) or (0, 0)
    return kind, 1 if kind == "Squeezed" else getattr(dim, "block_size", 0), padding[0]


def _parallel(params: Any, axes: int) -> tuple[bool, ...]:
    """Which axes of the grid the compiler may run at once; `vmap` adds its axes in front."""
    if "triton" in type(params).__module__:
        return (True,) * axes
    declared = [
        str(getattr(s, "value", s)) for s in getattr(params, "dimension_semantics", ()) or ()
    ]
    at_once = ["parallel" in each for each in declared]
    return (False,) * (axes - len(at_once)) + tuple(at_once[:axes])


@contextlib.contextmanager
def compiled_anew() -> Iterator[None]:
    """The compilation cache on disk tells programs apart that differ in their scopes alone."""
    option = "jax_compilation_cache_include_metadata_in_key"
    before = getattr(jax.config, option)
    jax.config.update(option, True)
    try:
        yield
    finally:
        jax.config.update(option, before)


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


def trace_context_key() -> tuple:
    """The same settings as JAX has them: quick to take, to compare with an earlier one."""
    return config.trace_context()


def device_mesh() -> Any:
    """The mesh of `jax.set_mesh` with its devices; `trace_context` has it without."""
    return mesh.get_concrete_mesh()


def is_jitted(f: Any) -> bool:
    """Whether f is what `jax.jit` returned.

    `jax.vmap` of such a function has its attributes too, but is an ordinary function.
    """
    return hasattr(f, "_jit_info") and hasattr(f, "_fun") and not inspect.isfunction(f)


def at_top_level() -> bool:
    """Whether no transformation is under way; only there does JAX report what it traces."""
    return core.trace_ctx.is_top_level()


def tracing() -> bool:
    """Whether operations are now written down instead of executed."""
    return any(type(trace).__name__ == "DynamicJaxprTrace" for trace in _traces())


def only_shapes() -> bool:
    """Whether `jax.eval_shape` is under way, or that of a jitted function: nothing of it runs."""
    frame = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("eval_shape", "jit_eval_shape") and code.co_filename.startswith(_JAX):
            return True
        frame = frame.f_back
    return False


_JAX = os.path.dirname(jax.__file__) + os.sep


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
    return listener in monitoring.get_event_duration_listeners()


# --- what JAX has just made when it calls a listener of `jax.monitoring`


def lowered(frame: FrameType | None) -> Any:
    """The jaxpr of the program that was lowered, from the frame that called the listener."""
    return _nearby(frame, "closed_jaxpr")


def compiled_memory(frame: FrameType | None) -> dict[str, int]:
    """Bytes of the program that was compiled, on each device; {} if XLA does not say.

    They are public in `Compiled.memory_analysis()` alone, which takes a compilation of its own.
    """
    executable = _nearby(frame, "xla_executable")
    said = executable and executable.get_compiled_memory_stats()
    if not said:
        return {}
    return {
        "arguments": said.argument_size_in_bytes,
        "results": said.output_size_in_bytes,
        "taken": said.alias_size_in_bytes,
        "temporary": said.temp_size_in_bytes,
    }


def process() -> tuple[int, int] | None:
    """Which process of how many `jax.distributed` made of this one; None if of none.

    `jax.process_index` would make JAX look for devices, before the script has said which.
    """
    state = distributed.global_state
    return (state.process_id, state.num_processes) if state.num_processes > 1 else None


def _nearby(frame: FrameType | None, name: str) -> Any:
    """A local variable of the frame or of one of the few that called it; None if there is none."""
    for _ in range(6):
        if frame is None:
            return None
        if name in frame.f_locals:
            return frame.f_locals[name]
        frame = frame.f_back
    return None


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
            axis: Any = value.batch_dim
            batched: Any = value.val
            size = batched.shape[axis] if isinstance(axis, int) else None
            role[trace] = ((f"batch axis{of}", axis), (f"batch size{of}", size))
            value = batched
        elif hasattr(value, "primal"):
            tangents, _ = _unwrapped(value.tangent, " of the tangent")
            role = tangents | role | {trace: ((f"differentiated{of}", "yes"),)}
            value = value.primal
        else:
            role[trace] = ()
            break
    return role, value
