"""The modules of a program: a tree of its named scopes, with what each has to compute."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from seejax.see import _jax_private, _source
from seejax.see._locate import Node


@dataclasses.dataclass
class Module:
    """A part of a program: all that was traced in one `jax.named_scope`, whatever the order.

    Flax's Linen gives each module a scope, and so do `jax.named_scope` and `jnp.einsum`. What has
    none is sorted by the functions that made it, with brackets: `loss()`.

    Attributes:
      name, path: `attn`, and `block_0/attn`; the path of the whole program is "".
      equations: how many equations it has that have no program inside.
      flops: floating-point operations before XLA sees the program: 2 a multiplication and
        addition of a `dot_general` or a convolution, the padding included; 1 an element for what
        else computes, `exp` too; 0 for what moves. A `scan` counts each round, a `cond` the
        costliest branch, a `while` one round.
      bytes: of all that its equations return, before XLA fuses them; what the rounds of a `scan`
        return is counted each time.
      bounded: `flops` and `bytes` are all of it: nothing in it runs an unknown number of times.
      numbers: of its equations in `Trace.equations`, those of the modules in it included.
      modules: those in it, in the order in which they begin.
    """

    name: str
    path: str
    equations: int = 0
    flops: int = 0
    bytes: int = 0
    bounded: bool = True
    numbers: list[int] = dataclasses.field(default_factory=list)
    modules: list["Module"] = dataclasses.field(default_factory=list)

    def walk(self) -> Iterator["Module"]:
        """It and every module in it, a module before those in it."""
        yield self
        for module in self.modules:
            yield from module.walk()


def modules(jaxpr: Any, nodes: Sequence[Node], f: Any) -> Module:
    """The whole program as a module; `nodes` are its equations, depth first."""
    root = Module(_source.name(f), "")
    known: dict[tuple[str, ...], Module] = {(): root}
    numbers = iter(range(len(nodes)))

    def chain(path: tuple[str, ...]) -> list[Module]:
        found = [root]
        for depth, name in enumerate(path, 1):
            key = path[:depth]
            if key not in known:
                known[key] = Module(name, "/".join(key))
                found[-1].modules.append(known[key])
            found.append(known[key])
        return found

    def walk(eqns: Any, above: tuple[str, ...], times: int, bounded: bool) -> None:
        for eqn in eqns:
            number = next(numbers)
            scopes = above + tuple(s for s in _jax_private.named_scopes(eqn) if s not in _NO_MODULE)
            mine = chain(scopes or _functions(nodes[number], f))
            inside = list(_jax_private.subjaxprs(eqn))
            by_itself = not inside or eqn.primitive.name.startswith(_BY_ELEMENTS)
            work = flops(eqn) * times if by_itself else 0
            size = sum(map(_bytes, eqn.outvars)) * times if by_itself else 0
            for module in mine:
                module.numbers.append(number)
                module.equations += nodes[number].last == number
                module.flops += work
                module.bytes += size
                module.bounded &= bounded
            rounds = [0] * len(inside) if by_itself else _rounds(eqn, [sub for _, sub in inside])
            endless = eqn.primitive.name in _ENDLESS
            for (_, sub), each in zip(inside, rounds, strict=True):
                walk(_jax_private.opened(sub).eqns, scopes, times * each, bounded and not endless)

    walk(_jax_private.opened(jaxpr).eqns, (), 1, True)
    return root


def _functions(node: Node, f: Any) -> tuple[str, ...]:
    """The functions that led to an equation, without the one that is drawn."""
    codes = [span.code for span in [*node.callers, *([node.span] if node.span else [])]]
    outer = getattr(_source.innermost_function(f), "__code__", None)
    codes = list(dict.fromkeys(code for code in codes if code is not outer))
    beyond = _source.beyond(_jax_private.frames(node.eqn), node.frames)
    return tuple(f"{_called(code)}()" for code in [*codes, *beyond])


def _called(code: Any) -> str:
    """What a function is called: `Block` for its `__call__`, without the functions around it."""
    name = code.co_qualname.rpartition("<locals>.")[2]
    return name.removesuffix(".__call__") or name


# --- what an equation costs

_NO_MODULE = {"checkpoint", "rematted_computation", "while", "body", "cond"}
_ENDLESS = {"while", "pallas_call"}
_BY_ELEMENTS = ("reduce", "scatter", "select_and_", "sort", "arg", "cum")
_MOVES = {"reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "split"}
_MOVES |= {"dynamic_slice", "dynamic_update_slice", "concatenate", "pad", "gather", "rev", "copy"}
_MOVES |= {"copy_p", "convert_element_type", "bitcast_convert_type", "iota", "stop_gradient"}
_MOVES |= {"optimization_barrier", "device_put", "random_wrap", "random_unwrap", "scatter"}
_MOVES |= {"sharding_constraint", "reshard", "pvary", "create_token", "debug_callback"}


def flops(eqn: Any) -> int:
    """Floating-point operations of one equation that has no program inside, or one for elements.

    >>> import jax, jax.numpy as jnp
    >>> (product,) = jax.make_jaxpr(jnp.dot)(jnp.ones((3, 4)), jnp.ones((4, 5))).eqns
    >>> flops(product)
    120
    """
    name, given = eqn.primitive.name, [getattr(var.aval, "shape", ()) for var in eqn.invars]
    made = sum(_size(var) for var in eqn.outvars)
    if name in _MOVES:
        return 0
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * made * math.prod(given[0][axis] for axis in contracted)
    if name == "conv_general_dilated":
        features = eqn.params["dimension_numbers"].rhs_spec[0]
        return 2 * made * math.prod(given[1]) // max(given[1][features], 1)
    if name.startswith("reduce_window") or name.startswith("select_and_"):
        return made * math.prod(eqn.params.get("window_dimensions", ()))
    if name.startswith("scatter"):
        return math.prod(given[-1])
    if name.startswith(("reduce", "arg")) and name != "reduce_precision":
        return max(_size(eqn.invars[0]) - made, 0)
    if name == "sort":
        length = given[0][eqn.params["dimension"]] if given[0] else 1
        return _size(eqn.invars[0]) * max(length - 1, 0).bit_length()
    return made


def _rounds(eqn: Any, programs: list[Any]) -> list[int]:
    """How often each program inside runs when the equation does; of branches, the costliest."""
    if eqn.primitive.name == "scan":
        return [eqn.params["length"]] * len(programs)
    if eqn.primitive.name == "shard_map":
        return [getattr(eqn.params.get("mesh"), "size", 1)] * len(programs)
    if eqn.primitive.name == "cond":
        costs = [_cost(program) for program in programs]
        return [int(n == costs.index(max(costs))) for n in range(len(costs))]
    return [1] * len(programs)


def _cost(jaxpr: Any) -> int:
    total = 0
    for eqn in _jax_private.opened(jaxpr).eqns:
        inside = [sub for _, sub in _jax_private.subjaxprs(eqn)]
        if not inside or eqn.primitive.name.startswith(_BY_ELEMENTS):
            total += flops(eqn)
        else:
            rounds = _rounds(eqn, inside)
            total += sum(n * _cost(sub) for n, sub in zip(rounds, inside, strict=True))
    return total


def _size(var: Any) -> int:
    size = getattr(var.aval, "size", 0)
    return size if isinstance(size, int) else 0  # a dimension may have a name only


def _bytes(var: Any) -> int:
    return _size(var) * int(getattr(getattr(var.aval, "dtype", None), "itemsize", 0))
