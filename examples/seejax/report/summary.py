"""What the events of a run mean: programs, why each was made, what to change first."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

PHASES = ("trace", "lower", "compile")
Event = dict[str, Any]
Line = tuple[str, int, str]  # file, line, function
KINDS = {  # what JAX says of a cause; of a static argument JAX 0.12 says nothing
    "Static(val=": "static",
    "explanation unavailable": "static",
    "different input types": "shapes",
    "different input pytree": "tree",
    "Tracing context doesn't match": "context",
}
SHORT_S = 0.05  # a program that took less is no advice


class Program(NamedTuple):
    """One program that JAX made.

    Attributes:
      name: of the function, as JAX has it.
      seconds: of tracing, lowering and compiling; what it took for others within is not in it.
      stack: the lines of the script that led to it, outermost first.
      cause: why it was traced, as JAX says it; "" if JAX says nothing.
      cached: whether the compiled program came from the persistent cache.
      compiled: whether there was anything to compile; what another program calls has only a trace.
    """

    name: str
    seconds: dict[str, float]
    stack: list[Line]
    cause: str
    cached: bool
    compiled: bool

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


class Advice(NamedTuple):
    """What to change: how many seconds it is about, what was seen, and where it is told."""

    kind: str
    seconds: float
    subject: str
    where: str
    count: int
    evidence: list[str]


class Summary(NamedTuple):
    argv: list[str]
    version: str
    wall_s: float
    ended: str  # "", the name of an exception, "killed", or "unwritten": the notes end early
    programs: list[Program]
    advice: list[Advice]
    hits: int
    misses: int

    def seconds(self, phase: str) -> float:
        return sum(program.seconds.get(phase, 0.0) for program in self.programs)


def read(path: Path) -> list[Event]:
    """The events of one process; a line that was cut off by a kill is left out."""
    events = []
    for line in path.read_text("utf8", errors="replace").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            continue
    return events


def bare(name: str) -> str:
    """A name without what JAX puts around it.

    >>> bare("jit(step)"), bare("step")
    ('step', 'step')
    """
    return name[4:-1] if name.startswith("jit(") and name.endswith(")") else name


def own_seconds(events: list[Event]) -> dict[int, float]:
    """By the place of each event: its seconds without those of the events inside it."""
    own = {i: event["seconds"] for i, event in enumerate(events) if "seconds" in event}
    open_: dict[int, list[int]] = defaultdict(list)  # by thread: events that may lie in a later one
    for i, event in enumerate(events):
        if i not in own:
            continue
        begin, stack = event["at"] - event["seconds"], open_[event["thread"]]
        while stack and events[stack[-1]]["at"] > begin:
            own[i] -= events[stack.pop()]["seconds"]
        stack.append(i)
    return {i: max(0.0, seconds) for i, seconds in own.items()}


def programs(events: list[Event]) -> list[Program]:
    """Every program in the order in which its making ended.

    A trace is followed, in its thread, by the lowering and the compilation of the same name, unless
    it was made for another program.
    """
    own, made = own_seconds(events), []
    waiting: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    causes: dict[int, list[str]] = defaultdict(list)
    hit: dict[int, bool] = {}
    for i, event in enumerate(events):
        kind, thread = event["kind"], event.get("thread", 0)
        if kind == "cause":
            causes[thread].append(event["said"])
        elif kind in ("hit", "miss"):
            hit[thread] = kind == "hit"
        if kind not in PHASES:
            continue
        name = bare(event["name"])
        known = waiting[thread, name]
        stack = [tuple(line) for line in event["stack"]]
        if kind == "trace":
            said = next((c for c in causes[thread] if name_of(c) == name), "")
            if said:
                causes[thread].remove(said)
            program: dict[str, Any] = {"name": name, "seconds": {}, "stack": stack, "cause": said}
            known.append(program)
            made.append(program)
        elif known:
            program = known[-1]
        else:  # traced before, and lowered anew
            program = {"name": name, "seconds": {}, "stack": stack, "cause": ""}
            known.append(program)
            made.append(program)
        program["seconds"][kind] = program["seconds"].get(kind, 0.0) + own[i]
        if kind == "compile":
            program["cached"] = hit.pop(thread, False)
            known.clear()
    return [
        Program(cached=p.pop("cached", False), compiled="compile" in p["seconds"], **p)
        for p in made
    ]


def name_of(cause: str) -> str:
    r"""The function that a cause is about.

    >>> name_of("TRACING CACHE MISS at a.py:1:\\n  for step defined at a.py:3\\n  all previously")
    'step'
    """
    found = re.search(r"(?:for|function:\n\s+)\s*(\S+) (?:id=\d+ )?defined at", cause)
    return found[1].rpartition(".")[2] if found else ""


def defined_at(cause: str) -> str:
    found = re.search(r"defined at (.+):(\d+)", cause)
    return f"{near(found[1])}:{found[2]}" if found else ""


def difference(cause: str) -> str:
    r"""What JAX found different, in one line.

    >>> difference("…\\n  different input types:\\n    * at x, now f32[4] and before f32[3]")
    'at x, now f32[4] and before f32[3]'
    """
    stars = re.findall(r"\* (.+)", cause)
    if stars:
        return re.sub(r"https?://\S+", "", "; ".join(stars))
    return "never seen function" if "never seen" in cause else ""


def near(file: str) -> str:
    """A file as seen from here, if it lies below.

    >>> near("/somewhere/else/train.py"), near(os.path.abspath("train.py"))
    ('/somewhere/else/train.py', 'train.py')
    """
    seen = os.path.relpath(file)
    return file if seen.startswith("..") else seen


def place(stack: Iterable[Line]) -> str:
    *_, last = [("", 0, ""), *stack]
    return f"{near(last[0])}:{last[1]}" if last[0] else "?"


def constants_of(said: str) -> tuple[str, list[str]]:
    r"""The bytes of all constants that a program captured, and the largest with their lines.

    >>> constants_of("(4.0MB total).\n  Constant <X>, f32[9,9], 4.0MB captured at:\n    a.py:3 (f)")
    ('4.0MB', ['f32[9,9] 4.0MB: a.py:3 (f)'])
    """
    total = re.search(r"\(([\d.]+\w+) total\)", said)
    each = re.findall(
        r"Constant .*?, (\w+\[.*?\]), (\S+) captured at:\s*\n?\s*(\S+ \(.*?\))?", said
    )
    return total[1] if total else "?", [
        f"{t} {size}: {line}".rstrip(": ") for t, size, line in each
    ]


def advise(made: list[Program], constants: list[Event], cache: bool) -> list[Advice]:
    """What costs most, with the evidence; the largest first."""
    found: list[Advice] = []
    by_definition: dict[tuple[str, str], list[Program]] = defaultdict(list)
    for program in made:
        if program.cause:
            by_definition[program.name, defined_at(program.cause)].append(program)
    for (name, where), each in by_definition.items():
        new = [program for program in each if "never seen" in program.cause]
        other = [program for program in each if "never seen" not in program.cause]
        for kind, again in ("new-function", new[1:]), (kind_of(other), other):
            seconds = sum(program.total_s for program in again)
            if again and seconds >= SHORT_S:
                said = Counter(difference(p.cause) for p in again if again is other)
                evidence = [text for text, _ in said.most_common(3) if text]
                evidence += [place(again[-1].stack)]
                count = len(new) if kind == "new-function" else len(again)
                found.append(Advice(kind, seconds, name, where, count, evidence))
    for event in constants:
        total, each = constants_of(event["said"])
        where = place([tuple(line) for line in event["stack"]])
        found.append(Advice("constants", 0.0, total, where, len(each), each[:3]))
    eager = [p for p in made if p.compiled and not p.cause and p.stack]
    seconds = sum(program.total_s for program in eager)
    places = Counter(place(program.stack) for program in eager)
    if len(eager) >= 10 and seconds >= SHORT_S:
        evidence = [f"{where} ({count})" for where, count in places.most_common(3)]
        found.append(Advice("eager", seconds, "", "", len(eager), evidence))
    if made:
        most = max(made, key=lambda program: program.total_s)
        total = sum(program.total_s for program in made)
        if most.total_s > max(1.0, total / 2):
            parts = [f"{phase} {s:.2f} s" for phase, s in most.seconds.items()]
            found.append(
                Advice("one-program", most.total_s, most.name, place(most.stack), 1, parts)
            )
    compiling = sum(p.seconds.get("compile", 0.0) for p in made if not p.cached)
    if not cache and compiling > 5:
        found.append(Advice("no-cache", compiling, "", "", len(made), []))
    return sorted(found, key=lambda advice: -advice.seconds)


def kind_of(again: list[Program]) -> str:
    """What most of these were traced again for."""
    found = Counter(
        next((kind for words, kind in KINDS.items() if words in program.cause), "retraced")
        for program in again
    )
    return found.most_common(1)[0][0] if found else "retraced"


def summary(events: list[Event]) -> Summary:
    """All that the report says, of the events of one process."""
    begin = next((event for event in events if event["kind"] == "begin"), {})
    version = next((event["version"] for event in events if event["kind"] == "jax"), "")
    end = next((event for event in events if event["kind"] == "end"), None)
    made = programs(events)
    constants = [event for event in events if event["kind"] == "constants"]
    count = Counter(event["kind"] for event in events)
    return Summary(
        argv=begin.get("argv", []),
        version=version,
        wall_s=max((event["at"] for event in events), default=0.0),
        ended="killed" if end is None else end["error"],
        programs=made,
        advice=advise(made, constants, cache=bool(count["hit"] or count["miss"])),
        hits=count["hit"],
        misses=count["miss"],
    )
