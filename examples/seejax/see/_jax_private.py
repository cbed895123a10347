"""The only file that reads attributes of JAX's objects that JAX does not document.

`JaxprEqn.source_info` says where an equation comes from, `Traced._params` what a jitted function
carries besides its program; neither has a public counterpart. They are used through their own
methods, so nothing is imported from `jax._src`; a test fails here first when JAX changes them.

What else is not promised stands where it is read: the text of optimised HLO in `_hlo.py`; the
names of events, of classes of tracers, of configuration, and the text of a tree in `_calls.py`.
"""

import contextlib
import copy
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

import jax
import jax.extend.core as jex_core


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
