"""Who makes each value of a program and who reads it."""

from typing import Any

import jax.extend.core as jex_core

from seejax.see import _jax_private, _jaxpr
from seejax.see._place import Node


class Flow:
    """The values of programs that share variables, seen through the equations that only call.

    Attributes:
      values: what each variable outside of all equations holds, as a number.
      made: by value: the number of the equation that computes it.
      read: by value: the numbers of the equations that compute with it.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self.made: dict[int, int] = {}
        self.read: dict[int, list[int]] = {}
        self._nodes = nodes
        self._inside: dict[int | None, list[Node]] = {}
        self._count = 0
        for node in nodes:
            self._inside.setdefault(node.parent.index if node.parent else None, []).append(node)
        self.values = self._program(None, {})

    def _value(self, var: Any, values: dict[Any, int]) -> int:
        if isinstance(var, jex_core.Literal) or var not in values:
            self._count += 1
            if isinstance(var, jex_core.Literal):
                return self._count
            values[var] = self._count
        return values[var]

    def _program(self, parent: int | None, values: dict[Any, int]) -> dict[Any, int]:
        """Follows the equations in order; `values` are those of its inputs, and all at the end."""
        for node in self._inside.get(parent, []):
            eqn = node.eqn
            given = [self._value(var, values) for var in eqn.invars]
            inner = [_jax_private.opened(sub) for _, sub in _jax_private.subjaxprs(eqn)]
            calls = eqn.primitive.name in _jaxpr.CALLS and len(inner) == 1
            if calls and len(inner[0].invars) == len(given):
                inside = self._program(node.index, dict(zip(inner[0].invars, given, strict=True)))
                for var, result in zip(eqn.outvars, inner[0].outvars, strict=True):
                    values[var] = self._value(result, inside)
                continue
            for value in dict.fromkeys(given):
                self.read.setdefault(value, []).append(node.index)
            for var in eqn.outvars:
                values[var] = value = self._value(var, {})
                self.made[value] = self._maker(node, given)
        return values

    def _maker(self, node: Node, given: list[int]) -> int:
        """The equation itself; of the rounding that `jax.checkpoint` adds, what it rounds."""
        made = self.made.get(given[0]) if given else None
        if node.eqn.primitive.name == "reduce_precision" and made is not None:
            frames = _jax_private.frames
            if frames(node.eqn) == frames(self._nodes[made].eqn):
                return made
        return node.index
