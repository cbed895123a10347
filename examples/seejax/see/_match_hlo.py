"""Which instructions of the optimised HLO an equation became."""

import dataclasses
import re
from typing import Any

from seejax.see import _hlo, _jax_private, _jaxpr
from seejax.see._stablehlo import TAG

# Equations that move a value, as `_jaxpr.CALLS` do that call others: what they return comes from
# what they were given.
_SHAPE = {"reshape", "transpose", "broadcast_in_dim", "squeeze", "convert_element_type", "copy"}
_SHAPE |= {"rev", "stop_gradient", "reduce_precision", "optimization_barrier", "copy_p"}

_PRODUCTS = {"dot_general", "conv_general_dilated"}
_RESHAPING = {"transpose", "reshape", "reverse", "pad", "slice", "convert", "fusion"}

# XLA rewrites these without saying from what; what it made of which.
_REWRITTEN = {
    "dot": {"dot_general"},
    "convolution": {"conv_general_dilated"},
    "custom-call": {"dot_general", "conv_general_dilated"},
    "multiply": {"div", "mul", "integer_pow", "square"},
}


@dataclasses.dataclass
class Ties:
    """How sure the ties are.

    Attributes:
      exact: a twin with a scope for each equation compiled to the very same program.
      unknown: names of instructions that an equation became, nobody knows which.
      doubtful: numbers of the equations that it may have been.
    """

    exact: bool
    unknown: list[str] = dataclasses.field(default_factory=list)
    doubtful: set[int] = dataclasses.field(default_factory=set)


def tie(traced: Any, hlo: str, computations: dict[str, _hlo.Computation], count: int) -> Ties:
    """Gives each instruction the equations that it computes: its `own`.

    A twin of the program, in which each equation has a scope of its own, is compiled with all that
    the jitted function carries. Only if the two optimised programs are the same, but for names
    and metadata, the scopes of one are those of the other.
    """
    try:
        program, tagged = _jax_private.tagged(traced.jaxpr, TAG)
        with _jax_private.compiled_anew():
            twin = _jax_private.with_jaxpr(traced, program).lower().compile().as_text()
    except Exception:  # an exotic primitive that cannot be rebuilt: `exact` says so
        return Ties(False)
    instructions = [i for c in computations.values() for i in c.instructions]
    names = _hlo.op_names(twin)
    same = len(names) == len(instructions) and _hlo.bare(twin) == _hlo.bare(hlo)
    lost = TAG not in twin and any(i.op_name for i in instructions if i.opcode != "parameter")
    if tagged != count or not same or lost:
        return Ties(False)
    merged: set[int] = set()
    for instruction, name in zip(instructions, names, strict=True):
        # Where XLA made one instruction of two, the scope of the one that computes stands first.
        tags = [re.findall(TAG + r"(\d+)", part)[-1:] for part in name.split(";")]
        instruction.own = frozenset(map(int, tags[0]))
        merged |= {int(tag) for part in tags[1:] for tag in part}
    ties = Ties(True, doubtful=merged)
    _adopt(computations, traced.jaxpr, ties)
    return ties


# --- instructions without a scope


@dataclasses.dataclass
class _Made:
    """An equation: what it returns and from what.

    An origin is the number of an equation that computes something, or the size of an input.
    `inside` are the numbers of the equations of its own programs.
    """

    primitive: str
    size: int
    operands: list[frozenset]
    leaf: bool
    inside: range = range(0)


def _made(jaxpr: Any, present: frozenset) -> tuple[list[_Made], dict[int, frozenset]]:
    """The equations by number, and the origins of those that only move, call, or are gone."""
    found: list[_Made] = []
    passed: dict[int, frozenset] = {}

    def size(var: Any) -> int:
        return getattr(var.aval, "size", -1)

    def walk(jaxpr: Any, given: list[frozenset] | None) -> list[frozenset]:
        inner = _jax_private.opened(jaxpr)
        inputs = [frozenset({("input", size(v))}) for v in inner.invars]
        origins = {id(v): frozenset({("input", size(v))}) for v in inner.constvars}
        origins |= {id(v): o for v, o in zip(inner.invars, given or inputs, strict=True)}

        def of(var: Any) -> frozenset:
            return origins.get(id(var), frozenset())  # a literal comes from nowhere

        for eqn in inner.eqns:
            index, name = len(found), eqn.primitive.name
            operands = [of(v) for v in eqn.invars]
            inside = [sub for _, sub in _jax_private.subjaxprs(eqn)]
            out = size(eqn.outvars[0]) if eqn.outvars else -1
            found.append(_Made(name, out, operands, not inside))
            results = [frozenset({index})] * len(eqn.outvars)
            called = name in _jaxpr.CALLS and len(inside) == 1
            for sub in inside:
                fits = called and len(_jax_private.opened(sub).invars) == len(operands)
                returned = walk(sub, operands if fits else None)
                if fits and len(returned) == len(results):
                    results = returned
            found[index].inside = range(index + 1, len(found))
            if name in _SHAPE and operands:
                results = [operands[0]] * len(results)
            elif not inside and index not in present and name not in _PRODUCTS:
                results = [frozenset().union(*operands)] * len(results)  # XLA folded it away
            if results and results[0] != frozenset({index}):
                passed[index] = frozenset().union(*results)
            origins |= {id(v): o for v, o in zip(eqn.outvars, results, strict=True)}
        return [of(v) for v in inner.outvars]

    walk(jaxpr, None)
    return found, passed


def _adopt(computations: dict[str, _hlo.Computation], jaxpr: Any, ties: Ties) -> None:
    """Gives an instruction without a scope to the one equation that has its size and operands.

    If several have, or none of those that XLA may have rewritten into it, it stays unknown.
    """
    instructions = [i for c in computations.values() for i in c.instructions]
    made, passed = _made(jaxpr, frozenset().union(*(i.own for i in instructions)))
    strays: dict[str, set] = {}
    for i in instructions:
        if i.opcode in ("dot", "convolution"):
            for owner in (made[n] for n in i.own):
                if moved := _of_another(owner):
                    strays[i.name], i.own = moved, frozenset()
    _suspect(computations, made, ties)
    orphans = [i for i in instructions if i.opcode in _REWRITTEN and not i.own]
    if not orphans:
        return
    idle = _hlo.PLUMBING | _RESHAPING | {"divide"}  # of a division, XLA may keep 1 / y
    busy = frozenset().union(*(i.own for i in instructions if i.opcode not in idle))
    missing = {n for n, e in enumerate(made) if e.leaf and n not in busy}
    look = _Origins(computations, passed)
    for orphan in orphans:
        fitting = [
            n
            for n in sorted(missing)
            if made[n].primitive in _REWRITTEN[orphan.opcode]
            and made[n].size == _elements(orphan.type)
            and n in strays.get(orphan.name, missing)
        ]
        same, half = [], []
        if orphan.name in strays and len(fitting) == 1:
            same = fitting
        for n in fitting if not same else ():
            read = [look(o, n) for o in look.given(orphan)]
            if _alike(made[n].operands, read):
                same.append(n)
            elif set(made[n].operands) & {each for each in read if each}:
                half.append(n)
        if len(same) != 1:  # XLA simplified an operand, or two are alike: who reads the result?
            readers = look.readers(orphan)
            reading = {n: {m for m, e in enumerate(made) if _reads(e, n)} for n in same or half}
            # Its own moves of the result have its scope.
            same = [n for n in same or half if readers & (reading[n] | {n})] or same
        if len(same) == 1:
            orphan.own = frozenset(same)
            look.known.clear()
            missing.discard(same[0])
        else:
            ties.doubtful |= set(same or fitting)
            if same or orphan.opcode in ("dot", "convolution"):
                ties.unknown.append(orphan.name)


def _suspect(computations: dict[str, _hlo.Computation], made: list[_Made], ties: Ties) -> None:
    """Notes the equations that an instruction without a scope may compute: not surely gone.

    XLA writes a cumulative sum anew, as sums over windows of other sizes, and moves a transpose
    behind what reads it, whose scope it then has.
    """
    every = [i for c in computations.values() for i in c.instructions]
    reducers = {n for i in every if i.opcode not in _hlo.NESTING for n in i.called}
    shown = [i for c in computations.values() if c.name not in reducers for i in c.instructions]
    shown = [i for i in shown if i.opcode not in ("parameter", "constant")]
    gone = set(range(len(made))).difference(*(i.own for i in shown))
    for i in shown:
        moved = i.opcode == "transpose" and all(made[n].primitive != "transpose" for n in i.own)
        filled = i.opcode == "broadcast" and _elements(i.type) > 1  # of a constant, folded before
        idle = i.opcode in _hlo.PLUMBING and not filled
        if idle or i.opcode == "fusion" or (i.own and not moved):
            continue
        suspects = {n for n in gone if made[n].size == _elements(i.type)}
        if i.opcode in ("transpose", "broadcast"):
            name = {"transpose": "transpose", "broadcast": "broadcast_in_dim"}[i.opcode]
            suspects = {n for n in suspects if made[n].primitive == name}
        if i.opcode == "reduce-window":
            sums = {n for n in gone if made[n].primitive.startswith("cum")}
            suspects |= sums
            ties.unknown += [i.name] if sums else []
        ties.doubtful |= suspects


def _of_another(equation: _Made) -> set:
    """A product in the scope of an equation that is none: which equations may have made it.

    XLA merges a transpose into the product before it, and rewrites products in a loop.
    """
    if equation.primitive in _SHAPE and equation.operands:
        return set(equation.operands[0])
    return set(equation.inside)


def _reads(equation: _Made, index: int) -> bool:
    return any(index in operand for operand in equation.operands)


def _alike(left: list[frozenset], right: list[frozenset]) -> bool:
    """The same operands in any order; XLA swaps them, and drops those that are constants."""

    def known(operands: list[frozenset]) -> list[list[str]]:
        return sorted(sorted(map(str, each)) for each in operands if each)

    return known(left) == known(right)


class _Origins:
    """Where the value of an instruction comes from, in equations and inputs."""

    def __init__(self, computations: dict[str, _hlo.Computation], passed: dict[int, frozenset]):
        self.passed = passed
        self.known: dict[tuple[str, int], frozenset] = {}
        self.byname = {i.name: i for c in computations.values() for i in c.instructions}
        self.home = {i.name: c for c in computations.values() for i in c.instructions}
        self.computations = computations
        self.callers = {
            name: i
            for i in self.byname.values()
            if i.opcode in ("fusion", "call")
            for name in i.called
        }

    def given(self, instruction: _hlo.Instruction) -> list[_hlo.Instruction]:
        return [self.byname[name] for name in instruction.operands if name in self.byname]

    def readers(self, orphan: _hlo.Instruction) -> set[int]:
        """The equations whose instructions read the result of one without a scope."""
        mine = ("orphan", orphan.name)
        return {
            index
            for i in self.byname.values()
            for index in i.own
            if any(mine in self(operand, index) for operand in self.given(i))
        }

    def __call__(self, i: _hlo.Instruction, through: int) -> frozenset:
        """`through`: the equation whose own moves of its operands are looked through."""
        if (i.name, through) not in self.known:
            self.known[i.name, through] = frozenset()  # in a circle there is no origin
            self.known[i.name, through] = self._find(i, through)
        return self.known[i.name, through]

    def _find(self, i: _hlo.Instruction, through: int) -> frozenset:
        if i.opcode == "divide" and len(self.given(i)) == 2 and self._is_one(self.given(i)[0]):
            return self(self.given(i)[1], through)
        if i.own and i.own != frozenset({through}):
            (index,) = i.own
            return self.passed.get(index, i.own)
        if i.opcode == "constant":
            size = _elements(i.type)
            return frozenset({("input", size)}) if size > 1 else frozenset()
        if i.opcode == "parameter":
            caller = self.callers.get(self.home[i.name].name)
            given = self.given(caller) if caller else []
            number = int(i.operands[0])
            if number < len(given):
                return self(given[number], through)
            return frozenset({("input", _elements(i.type))})
        carried = any(whole.opcode == "parameter" for whole in self.given(i))
        if i.opcode == "get-tuple-element" and carried:  # round a loop
            return frozenset({("input", _elements(i.type))})
        if i.opcode in ("fusion", "call"):
            root = next(r for r in self.computations[i.called[0]].instructions if r.root)
            return self(root, through)
        if i.opcode in _REWRITTEN and not i.own:
            return frozenset({("orphan", i.name)})
        return frozenset().union(*(self(o, through) for o in self.given(i)))

    def _is_one(self, i: _hlo.Instruction) -> bool:
        while i.opcode == "broadcast" and self.given(i):
            (i,) = self.given(i)
        return i.opcode == "constant" and i.operands == ["1"]


def _elements(type_: str) -> int:
    dims = re.search(r"\[([\d,]*)\]", type_)
    if not dims:
        return -1
    size = 1
    for each in dims[1].split(","):
        size *= int(each) if each else 1
    return size


def by_line(
    hlo: str,
    computations: dict[str, _hlo.Computation],
    places: list[tuple[str, tuple[str, int] | None]],
) -> None:
    """Without a twin: same primitive and same source line; `places` has both for each equation."""
    at: dict[tuple[str, tuple[str, int]], list[int]] = {}
    for index, (primitive, place) in enumerate(places):
        if place is not None:
            at.setdefault((primitive, place), []).append(index)
    lines = _hlo.places(hlo)
    for i in (i for c in computations.values() for i in c.instructions):
        primitive = i.op_name.rpartition("/")[2]
        found = (at.get((primitive, place), ()) for place in lines.get(i.frame, ()))
        i.own = frozenset(index for each in found for index in each)
