"""A jaxpr as lines: like JAX prints it, with the programs inside an equation below it."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.extend.core as jex_core
import numpy as np

from seejax.see import _jax_private, _source
from seejax.see._parts import Span, Spans

_MOST = 12  # arguments with paths that a program is headed by; each is named where it is read

CALLS = {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
CALLS |= {"custom_jvp_call", "custom_vjp_call", "custom_lin", "eval_jaxpr"}
"""Equations that call a program: its inputs and outputs are theirs."""


def short_dtype(dtype: object) -> str:
    """The dtype as a jaxpr prints it.

    >>> short_dtype("float32"), short_dtype("bfloat16"), short_dtype("bool")
    ('f32', 'bf16', 'bool')
    """
    pattern = r"^(bf|f|ui|u|i|c)(?:loat|nt|omplex)(\d.*)$"
    return re.sub(pattern, lambda m: m[1].replace("ui", "u") + m[2], str(dtype))


def traced(f: Any, args: tuple, kwargs: dict, options: dict) -> Any:
    """The `jax.stages.Traced` of f; of a function that a library jitted, what it wrapped."""
    if not options and hasattr(f, "trace") and hasattr(f, "lower"):
        if inspect.ismethod(f):  # `trace` is that of the function, which needs `self`
            f, args = f.__func__, (f.__self__, *args)
        found = _jax_private.traced(f.trace(*args, **kwargs))
        if found is not None:
            return found
    return jax.jit(f, **options).trace(*args, **kwargs)


def callable_tree(f: Any, args: tuple) -> tuple[Any, tuple]:
    """A function for an object that is called and is a pytree of arrays, and its arguments.

    So are modules of Equinox and Flax NNX: `jax.jit` refuses them as functions, but takes their
    arrays as an argument. Anything else stays as it is.
    """
    written = hasattr(type(f).__call__, "__code__") and not inspect.isfunction(f)
    leaves = jax.tree.leaves(f) if written else []
    if not leaves or leaves[0] is f or not any(map(_is_array, leaves)):
        return f, args
    arrays = jax.tree.map(lambda leaf: leaf if _is_array(leaf) else None, f)
    none = {"is_leaf": lambda leaf: leaf is None}

    @functools.wraps(type(f).__call__)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        whole = jax.tree.map(lambda a, b: b if a is None else a, self, f, **none)
        return whole(*args, **kwargs)

    call.__name__ = type(f).__name__
    return call, (arrays, *args)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def input_names(jaxpr: Any, f: Any, args: tuple, kwargs: dict) -> tuple[str, ...]:
    """What each input of f's program is called: `x`, or `params['w']` for a leaf of a pytree.

    JAX says it. Of a function that a library jitted it knows what the library made of the
    arguments; there the leaves that f was given are counted, if they are those of the program.
    """
    names = _jax_private.argument_paths(jaxpr)
    if not hasattr(f, "trace") or _jax_private.is_jitted(f) or inspect.ismethod(f):
        return names
    leaves, _ = jax.tree_util.tree_flatten_with_path((args, kwargs))
    avals = [var.aval for var in _jax_private.opened(jaxpr).invars]
    given = [(getattr(leaf, "shape", ()), getattr(leaf, "dtype", None)) for _, leaf in leaves]
    if given != [(aval.shape, aval.dtype) for aval in avals]:
        return names
    roots = _source.argument_names(f, args)
    found = []
    for (_, root, *rest), _ in leaves:
        first = roots[root.idx] if hasattr(root, "idx") else root.key
        found.append(first + jax.tree_util.keystr(tuple(rest)).removesuffix(".value"))
    return tuple(found)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A line: an equation by its number, or what stands around some (index None)."""

    depth: int
    spans: Spans
    index: int | None = None


def typed(var: Any) -> Spans:
    """The type of a variable, as JAX prints it: `f32[3]`."""
    return (Span(_type(var.aval), "t"),)


def rows(
    jaxpr: Any,
    type_of: Callable[[Any], Spans] = typed,
    names: dict[Any, str] | None = None,
    links: Mapping[Any, tuple[int, ...]] | None = None,
    paths: Mapping[Any, str] | None = None,
) -> list[Row]:
    """The lines; equations count depth first, as `_jax_private.tagged` numbers them.

    Args:
      names: of variables so far, for a program that goes on where another one ended.
      links: of variables, which are then marked wherever they stand.
      paths: of variables that are called by theirs; the others have the letters that JAX gives.
    """
    names = {} if names is None else names
    paths = paths or {}
    found: list[Row] = []
    count = 0

    def name(var: Any) -> str:
        if isinstance(var, jex_core.Literal):
            return _literal(var)
        if isinstance(var, jex_core.DropVar):
            return "_"
        return names.setdefault(var, paths.get(var) or _letters(len(names)))

    def named(var: Any, kind: str = "") -> Span:
        here = () if not links or isinstance(var, jex_core.Literal) else links.get(var, ())
        return Span(name(var), "b" if here else kind, links=here)

    def bound(variables: Iterable[Any]) -> list[Span]:
        spans: list[Span] = []
        for var in variables:
            spans += [Span(" ")] if spans else []
            spans += [named(var, "v"), Span(":", "t"), *type_of(var)]
        return spans

    def used(variables: Iterable[Any]) -> list[Span]:
        return [span for var in variables for span in (Span(" "), named(var))]

    def program(jaxpr: Any, depth: int) -> None:
        nonlocal count
        inner = _jax_private.opened(jaxpr)
        variables = [*inner.constvars, *inner.invars]
        head = [Span("λ", "o"), Span(" "), *bound(variables[:_MOST] if paths else variables)]
        if paths and len(variables) > _MOST:
            head += [Span(" "), Span(f"… {len(variables) - _MOST} more", "t", word=True)]
            for var in variables[_MOST:]:
                name(var)
        found.append(Row(depth, tuple(head)))
        for eqn in inner.eqns:
            left = bound(eqn.outvars)
            left += [Span(" = ")] if left else []
            right = used(eqn.invars)
            middle = (Span(eqn.primitive.name, "o"), Span(_params(eqn), "p"))
            found.append(Row(depth + 1, (*left, *middle, *right), count))
            count += 1
            inside = list(_jax_private.subjaxprs(eqn))
            for key, sub in inside:
                if len(inside) > 1:
                    found.append(Row(depth + 2, (Span(key, "t"),)))
                program(sub, depth + 2)
        found.append(Row(depth + 1, (Span("→", "o"), *used(inner.outvars))))

    program(jaxpr, 0)
    return found


def _letters(n: int) -> str:
    """The n-th variable name of a jaxpr, counted as JAX does: a … z, ba, bb …"""
    text = chr(97 + n % 26)
    while n >= 26:
        n //= 26
        text = chr(97 + n % 26) + text
    return text


def _type(aval: Any) -> str:
    text = str(aval).lstrip("~")
    dtype = re.match(r"[a-z]+\d*", text)
    return short_dtype(dtype[0]) + text[dtype.end() :] if dtype else text


def _literal(literal: Any) -> str:
    try:
        value = np.asarray(literal.val)
        return str(value.astype(literal.aval.dtype)[()]) if value.ndim == 0 else str(value)
    except (TypeError, ValueError):  # a key or another extended dtype
        return str(literal.val)


# Parameters that say how, not what.
_QUIET = {"name", "preferred_element_type", "linear", "inline", "weak_type", "mode", "debug"}
_QUIET |= {"num_consts", "num_carry", "cond_nconsts", "body_nconsts", "ft_in", "ft_out", "unroll"}
_QUIET |= {"in_layouts", "out_layouts", "in_shardings", "out_shardings", "donated_invars"}
_QUIET |= {"ctx_mesh", "keep_unused", "compiler_options_kvs", "symbolic_zeros"}
_QUIET |= {"prevent_cse", "differentiated"}


def _params(eqn: Any) -> str:
    """The parameters that say what the equation computes, short."""
    parts = [str(eqn.params["name"])] if isinstance(eqn.params.get("name"), str) else []
    for key, value in eqn.params.items():
        if key == "new_dtype":
            parts.append(short_dtype(value))
            continue
        if key == "dimension_numbers" and eqn.primitive.name == "dot_general":
            (left, right), (batch, _) = value
            parts += [f"contract {_dims(left)}·{_dims(right)}"] if left else []
            parts += [f"batch {_dims(batch)}"] if batch else []
            continue
        simple = isinstance(value, int | float | str | tuple | np.dtype)
        if key in _QUIET or not simple or value is False or value == ():
            continue
        text = re.sub(r"np\.int\d+\((-?\d+)\)", r"\1", re.sub(r"\s+", " ", str(value)))
        if "object at 0x" not in text and "lambda ;" not in text:
            parts.append(f"{key}={text if len(text) <= 32 else text[:31] + '…'}")
    text = " ".join(parts)
    return f"[{text if len(text) <= 64 else text[:63] + '…'}]" if text else ""


def _dims(dims: Iterable[int]) -> str:
    return ",".join(map(str, dims))
