"""Which instructions of the optimised HLO an equation became."""

import dataclasses
import functools
import re
from typing import Any

from seejax.see import _hlo, _jax_private, _jaxpr, _stablehlo
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
      exact: each instruction carries the equation that it computes, or is told by what it reads.
      unknown: names of instructions that an equation became, nobody knows which.
      doubtful: numbers of the equations that it may have been.
    """

    exact: bool
    unknown: list[str] = dataclasses.field(default_factory=list)
    doubtful: set[int] = dataclasses.field(default_factory=set)


def compiled(
    traced: Any, lowered: Any, count: int
) -> tuple[str, dict[str, _hlo.Computation], Ties]:
    """The optimised HLO, its computations, and how sure the equations of its instructions are.

    What is compiled is a twin of the program, in which each equation has a scope of its own, with
    all that the jitted function carries. XLA keeps the scopes and decides nothing by them. That
    the twin is the same program is seen before: apart from scopes, JAX hands the same text to
    the compiler. Without such a twin, the program itself is compiled, and no instruction is tied.
    """
    twin = _twin(traced, lowered, count)
    text = None if twin is None else _compiled(twin)
    if text is not None:
        computations = _hlo.parse(text)
        scoped = (
            i.op_name
            for c in computations.values()
            for i in c.instructions
            if i.opcode != "parameter"
        )
        if TAG in text or not any(scoped):  # else something on the way has lost the scopes
            return untagged(text), computations, _tied(computations, traced.jaxpr)
    text = lowered.compile().as_text()
    return text, _hlo.parse(text), Ties(False)


def _twin(traced: Any, lowered: Any, count: int) -> Any:
    """The program with a scope for each equation, lowered; None if it is not the same program."""
    try:
        program, tagged = _jax_private.tagged(traced.jaxpr, TAG)
        twin = _jax_private.with_jaxpr(traced, program).lower()
        same = _stablehlo.same(lowered.as_text(), twin.as_text())
    except Exception:  # an exotic primitive that cannot be rebuilt: `exact` says so
        return None
    return twin if same and tagged == count else None


def _compiled(twin: Any) -> str | None:
    """Its text; None if the compiler refuses it, and then has to say so of the program itself."""
    try:
        with _jax_private.compiled_anew():
            return twin.compile().as_text()
    except Exception:
        return None


def untagged(text: str) -> str:
    """The text without the scopes of a twin.

    >>> untagged("jit(f)/jvp(SEEJAX3)/while, jit(f)/layer/SEEJAX4/sin, jit(f)/SEEJAX5")
    'jit(f)/jvp()/while, jit(f)/layer/sin, jit(f)'
    """
    return re.sub(rf"{TAG}\d+/|/?{TAG}\d+", "", text)


def _tied(computations: dict[str, _hlo.Computation], jaxpr: Any) -> Ties:
    """Gives each instruction the equations that it computes: its `own`."""
    merged: set[int] = set()
    for instruction in (i for c in computations.values() for i in c.instructions):
        # Where XLA made one instruction of two, the scope of the one that computes stands first.
        parts = instruction.op_name.split(";")
        tags = [re.findall(TAG + r"(\d+)", part)[-1:] for part in parts]
        instruction.own = frozenset(map(int, tags[0]))
        instruction.op_name = untagged(instruction.op_name)
        merged |= {int(tag) for part in tags[1:] for tag in part}
    ties = Ties(True, doubtful=merged)
    _adopt(computations, jaxpr, ties)
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
    missing: dict[tuple[str, int], list[int]] = {}  # by primitive and size
    reading: dict[int, set[int]] = {}  # the equations that read what each of them returns
    for n, e in enumerate(made):
        if e.leaf and n not in busy:
            missing.setdefault((e.primitive, e.size), []).append(n)
        for each in frozenset().union(*e.operands):
            if isinstance(each, int):
                reading.setdefault(each, set()).add(n)
    look = _Origins(computations, passed)
    for orphan in orphans:
        size = _elements(orphan.type)
        fitting = sorted(
            n
            for primitive in _REWRITTEN[orphan.opcode]
            for n in missing.get((primitive, size), ())
            if orphan.name not in strays or n in strays[orphan.name]
        )
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
            # Its own moves of the result have its scope.
            same = [n for n in same or half if readers & (reading.get(n, set()) | {n})] or same
        if len(same) == 1:
            orphan.own = frozenset(same)
            look.known.clear()
            missing[made[same[0]].primitive, size].remove(same[0])
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
    alike: dict[tuple[str, int], set[int]] = {}  # by primitive, or any, and size
    for n in gone:
        for primitive in ("", made[n].primitive):
            alike.setdefault((primitive, made[n].size), set()).add(n)
    sums = {n for n in gone if made[n].primitive.startswith("cum")}
    suspected: set[tuple[str, int]] = set()
    for i in shown:
        moved = i.opcode == "transpose" and all(made[n].primitive != "transpose" for n in i.own)
        filled = i.opcode == "broadcast" and _elements(i.type) > 1  # of a constant, folded before
        idle = i.opcode in _hlo.PLUMBING and not filled
        if idle or i.opcode == "fusion" or (i.own and not moved):
            continue
        name = {"transpose": "transpose", "broadcast": "broadcast_in_dim"}.get(i.opcode, "")
        suspected.add((name, _elements(i.type)))
        if i.opcode == "reduce-window" and sums:
            ties.doubtful |= sums
            ties.unknown.append(i.name)
    ties.doubtful.update(*(alike.get(each, ()) for each in suspected))


def _of_another(equation: _Made) -> set:
    """A product in the scope of an equation that is none: which equations may have made it.

    XLA merges a transpose into the product before it, and rewrites products in a loop.
    """
    if equation.primitive in _SHAPE and equation.operands:
        return set(equation.operands[0])
    return set(equation.inside)


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
        self.users: dict[str, list[_hlo.Instruction]] = {}  # by the name of an operand
        self.passing: dict[str, list[_hlo.Instruction]] = {}  # by the name of one in `before`
        for i in self.byname.values():
            for each in self.given(i):
                self.users.setdefault(each.name, []).append(i)
            for each in self.before(i) or ():
                self.passing.setdefault(each.name, []).append(i)

    def given(self, instruction: _hlo.Instruction) -> list[_hlo.Instruction]:
        return [self.byname[name] for name in instruction.operands if name in self.byname]

    def readers(self, orphan: _hlo.Instruction) -> set[int]:
        """The equations whose instructions read the result of one without a scope.

        It follows the result, as `_find` follows a value back: past instructions of no equation,
        and past the moves of the one equation that reads it.
        """
        found: set[int] = set()
        todo: list[tuple[str, int | None]] = [(orphan.name, None)]
        seen = set(todo)
        while todo:
            name, through = todo.pop()
            for i in self.users.get(name, ()):
                found |= i.own if through is None else i.own & {through}
            for i in self.passing.get(name, ()):
                beyond = through
                if not self._reciprocal(i):
                    if i.own:
                        (beyond,) = i.own
                        if through not in (None, beyond):
                            continue
                    elif i.opcode in _REWRITTEN:
                        continue
                if (i.name, beyond) not in seen:
                    seen.add((i.name, beyond))
                    todo.append((i.name, beyond))
        return found

    def __call__(self, i: _hlo.Instruction, through: int) -> frozenset:
        """`through`: the equation whose own moves of its operands are looked through."""
        if (i.name, through) not in self.known:
            self.known[i.name, through] = frozenset()  # in a circle there is no origin
            self.known[i.name, through] = self._find(i, through)
        return self.known[i.name, through]

    def _find(self, i: _hlo.Instruction, through: int) -> frozenset:
        if self._reciprocal(i):
            return self(self.given(i)[1], through)
        if i.own and i.own != frozenset({through}):
            (index,) = i.own
            return self.passed.get(index, i.own)
        if i.opcode == "constant":
            size = _elements(i.type)
            return frozenset({("input", size)}) if size > 1 else frozenset()
        if i.opcode in _REWRITTEN and not i.own:
            return frozenset({("orphan", i.name)})
        before = self.before(i)
        if before is None:
            return frozenset({("input", _elements(i.type))})
        return frozenset().union(*(self(each, through) for each in before))

    def before(self, i: _hlo.Instruction) -> list[_hlo.Instruction] | None:
        """Those whose value it hands on or is made of; None if it comes from outside."""
        if self._reciprocal(i):
            return self.given(i)[1:]
        if i.opcode == "parameter":
            caller = self.callers.get(self.home[i.name].name)
            given = self.given(caller) if caller else []
            number = int(i.operands[0])
            return [given[number]] if number < len(given) else None
        carried = any(whole.opcode == "parameter" for whole in self.given(i))
        if i.opcode == "get-tuple-element" and carried:  # round a loop
            return None
        if i.opcode in ("fusion", "call"):
            return [next(r for r in self.computations[i.called[0]].instructions if r.root)]
        return self.given(i)

    def _reciprocal(self, i: _hlo.Instruction) -> bool:
        return i.opcode == "divide" and len(self.given(i)) == 2 and self._is_one(self.given(i)[0])

    def _is_one(self, i: _hlo.Instruction) -> bool:
        while i.opcode == "broadcast" and self.given(i):
            (i,) = self.given(i)
        return i.opcode == "constant" and i.operands == ["1"]


@functools.lru_cache(maxsize=4096)
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
