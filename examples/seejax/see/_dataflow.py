"""Who makes each value of a program and who reads it."""

from collections.abc import Iterable
from typing import Any

import jax.extend.core as jex_core

from seejax.see import _jax_private, _jaxpr
from seejax.see._locate import Node


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

    def downstream(self, variables: Iterable[Any]) -> set[int]:
        """Numbers of the equations that compute with these variables or with what comes of them."""
        found: set[int] = set()

        def program(parent: int | None, reached: set[Any]) -> set[Any]:
            for node in self._inside.get(parent, []):
                eqn = node.eqn
                given = [var in reached for var in map(_variable, eqn.invars)]
                if any(given):
                    found.add(node.index)
                    reached |= results(node, given)
            return reached

        def results(node: Node, given: list[bool]) -> set[Any]:
            eqn = node.eqn
            inner = [_jax_private.opened(sub) for _, sub in _jax_private.subjaxprs(eqn)]
            if not inner:
                return set(eqn.outvars)
            inputs: set[Any] = set()
            for sub in inner:  # a cond takes its index first; a while shares its operands out
                own = given[-len(sub.invars) :] if eqn.primitive.name != "while" else []
                flags = own if len(own) == len(sub.invars) else [True] * len(sub.invars)
                inputs |= {var for var, flag in zip(sub.invars, flags, strict=True) if flag}
            inside = program(node.index, set(inputs))
            while eqn.primitive.name == "scan":  # what a turn makes of the carry, the next one gets
                fresh = {v for v, new in _carry(eqn, inner[0]) if _variable(new) in inside} - inputs
                if not fresh:
                    break
                inputs |= fresh
                inside = program(node.index, set(inputs))
            if any(len(sub.outvars) != len(eqn.outvars) for sub in inner):
                return set(eqn.outvars)
            columns = zip(eqn.outvars, *(sub.outvars for sub in inner), strict=True)
            return {var for var, *outs in columns if any(_variable(o) in inside for o in outs)}

        program(None, set(variables))
        return found

    def _maker(self, node: Node, given: list[int]) -> int:
        """The equation itself; of the rounding that `jax.checkpoint` adds, what it rounds."""
        made = self.made.get(given[0]) if given else None
        if node.eqn.primitive.name == "reduce_precision" and made is not None:
            frames = _jax_private.frames
            if frames(node.eqn) == frames(self._nodes[made].eqn):
                return made
        return node.index


def _variable(atom: Any) -> Any:
    """The variable, which can be looked up; None for a literal, which cannot."""
    return None if isinstance(atom, jex_core.Literal) else atom


def _carry(eqn: Any, body: Any) -> list[tuple[Any, Any]]:
    """Of a scan: what a turn gets, and what it hands on to the next.

    It stands between the constants and the rows, which have an axis more outside of the body.
    """
    ends = []
    for outside, inside in (eqn.outvars, body.outvars), (eqn.invars, body.invars):
        whole = [a.aval.ndim == b.aval.ndim for a, b in zip(outside, inside, strict=True)]
        ends.append(sum(whole))
    count, end = ends
    return list(zip(body.invars[end - count : end], body.outvars[:count], strict=True))
