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
CAUSES = {  # what JAX says of a cause; of a static argument JAX 0.12 says nothing
    "Static(val=": "static",
    "explanation unavailable": "static",
    "different input types": "shapes",
    "different input pytree": "tree",
    "Tracing context doesn't match": "context",
}
SHORT_S = 0.05  # programs that took less are no advice
LATE_S = 1.0  # how late a busy machine may note the end of a trace; an older cause is not its own
WEAK = r"\{weak_type=\w+\}"
SEEN_NOT = "never seen function"


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
    """What the events of one process mean.

    Attributes:
      argv: the script and its arguments.
      version: of JAX; "" if it was not imported.
      wall_s: from the start of the process to its end, or to its last event.
      explaining_s: what JAX took to say why it traces; in no other seconds.
      ended: "", the name of an exception, "status 3", or "SIGKILL".
      whole: whether all events could be written.
      programs: in the order in which their making ended.
      advice: the largest first.
      hits, misses: of the cache on the disk.
    """

    argv: list[str]
    version: str
    wall_s: float
    explaining_s: float
    ended: str
    whole: bool
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
        begin, stack = began(event), open_[event["thread"]]
        while stack and events[stack[-1]]["at"] > begin:
            own[i] -= events[stack.pop()]["seconds"]
        stack.append(i)
    return {i: max(0.0, seconds) for i, seconds in own.items()}


def began(event: Event) -> float:
    return event["at"] - event["seconds"]


def causes(events: list[Event]) -> dict[int, Event]:
    """By the place of each trace: why it was made. JAX says it after the trace has begun."""
    found: dict[int, Event] = {}
    open_: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for i, event in enumerate(events):
        if event["kind"] == "cause":
            open_[event["thread"], name_of(event["text"])].append(event)
        elif event["kind"] == "trace":
            waiting = open_[event["thread"], bare(event["name"])]
            if waiting and waiting[-1]["at"] >= began(event) - LATE_S:
                found[i] = waiting.pop()
    return found


def programs(events: list[Event]) -> list[Program]:
    """Every program in the order in which its making ended.

    A trace is followed, in its thread, by the lowering and the compilation of the same name, unless
    it was made for another program.
    """
    own, why, made = own_seconds(events), causes(events), []
    waiting: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    hit: dict[int, bool] = {}
    for i, event in enumerate(events):
        kind, thread = event["kind"], event.get("thread", 0)
        if kind in ("hit", "miss"):
            hit[thread] = kind == "hit"
        if kind not in PHASES:
            continue
        name = bare(event["name"])
        known = waiting[thread, name]
        if kind == "trace" or not known:  # or traced before, and only compiled anew
            stack = [tuple(line) for line in event["stack"]]
            known.append({"name": name, "seconds": {}, "stack": stack, "cause": ""})
            made.append(known[-1])
        program = known[-1]
        if i in why:
            program["cause"] = why[i]["text"]
            own[i] = max(0.0, own[i] - explaining(event, why[i]))
        program["seconds"][kind] = program["seconds"].get(kind, 0.0) + own[i]
        if kind == "compile":
            program["cached"] = hit.pop(thread, False)
            known.clear()
    return [
        Program(cached=p.pop("cached", False), compiled="compile" in p["seconds"], **p)
        for p in made
    ]


def explaining(trace: Event, cause: Event) -> float:
    """Seconds of a trace that went into saying why it is made."""
    return max(0.0, cause["at"] - began(trace))


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
    return SEEN_NOT if SEEN_NOT in cause else ""


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


def constants_of(text: str) -> tuple[str, list[str]]:
    r"""The bytes of all constants that a program captured, and the largest with their lines.

    >>> constants_of("(4.0MB total).\n  Constant <X>, f32[9,9], 4.0MB captured at:\n    a.py:3 (f)")
    ('4.0MB', ['f32[9,9] 4.0MB: a.py:3 (f)'])
    """
    total = re.search(r"\(([\d.]+\w+) total\)", text)
    each = re.findall(
        r"Constant .*?, (\w+\[.*?\]), (\S+) captured at:\s*\n?\s*(\S+ \(.*?\))?", text
    )
    return total[1] if total else "?", [
        f"{t} {size}: {line}".rstrip(": ") for t, size, line in each
    ]


def advise(made: list[Program], constants: list[Event], hits: int, misses: int) -> list[Advice]:
    """What costs most, with the evidence; the largest first."""
    found = [*retraced(made), *placed(made)]
    for event in constants:
        total, each = constants_of(event["text"])
        where = place([tuple(line) for line in event["stack"]])
        found.append(Advice("constants", 0.0, total, where, len(each), each[:3]))
    eager = [p for p in made if p.compiled and "trace" in p.seconds and not p.cause and p.stack]
    seconds = sum(program.total_s for program in eager)
    if len(eager) >= 10 and seconds >= SHORT_S:
        found.append(Advice("eager", seconds, "", "", len(eager), sites(eager)))
    if made:
        most = max(made, key=lambda program: program.total_s)
        total = sum(program.total_s for program in made)
        if most.total_s > max(1.0, total / 2):
            parts = [f"{phase} {s:.2f} s" for phase, s in most.seconds.items()]
            found.append(
                Advice("one-program", most.total_s, most.name, place(most.stack), 1, parts)
            )
    again = [p for p in made if p.compiled and not p.cached]
    compiling = sum(p.seconds["compile"] for p in again)
    if compiling > 5 and (hits or not misses):  # all misses: the cache was empty
        found.append(Advice("no-cache", compiling, "", "", len(again), []))
    return sorted(found, key=lambda advice: (advice.kind == "no-cache", -advice.seconds))


def retraced(made: list[Program]) -> list[Advice]:
    """Functions that were traced more than once, or that JAX met as new ones more than once."""
    found = []
    by_definition: dict[tuple[str, str], list[Program]] = defaultdict(list)
    for program in made:
        if program.cause:
            by_definition[program.name, defined_at(program.cause)].append(program)
    for (name, where), each in by_definition.items():
        new = [program for program in each if SEEN_NOT in program.cause]
        other = [program for program in each if SEEN_NOT not in program.cause]
        for kind, again in ("new-function", new[1:]), (kind_of(other), other):
            seconds = sum(program.total_s for program in again)
            if again and seconds >= SHORT_S:
                causes = Counter(difference(p.cause) for p in again if again is other)
                evidence = [text for text, _ in causes.most_common(3) if text]
                count = len(new) if kind == "new-function" else len(again)
                found.append(Advice(kind, seconds, name, where, count, evidence + sites(again)))
    return found


def placed(made: list[Program]) -> list[Advice]:
    """Functions that were compiled again without a trace: for another device, or another split."""
    found = []
    by_name: dict[str, list[Program]] = defaultdict(list)
    for program in made:
        if program.compiled and program.stack and "trace" not in program.seconds:
            by_name[program.name].append(program)
    for name, each in by_name.items():
        seconds = sum(program.total_s for program in each)
        if seconds >= SHORT_S:
            where = place(each[0].stack)
            found.append(Advice("placement", seconds, name, where, len(each), sites(each)))
    return found


def sites(each: list[Program]) -> list[str]:
    """The lines that made most of them, with how many."""
    count = Counter(place(program.stack) for program in each)
    return [f"{line} ({n})" if n > 1 else line for line, n in count.most_common(3)]


def kind_of(again: list[Program]) -> str:
    """What most of these were traced again for."""
    found = Counter(
        "weak" if only_weak(program.cause) else kind_by_words(program.cause) for program in again
    )
    return found.most_common(1)[0][0] if found else "retraced"


def kind_by_words(cause: str) -> str:
    return next((kind for words, kind in CAUSES.items() if words in cause), "retraced")


def only_weak(cause: str) -> bool:
    """Whether a number of Python stood where an array stood, or the other way round.

    >>> only_weak("* at x, now f32[]{weak_type=False} and before f32[]{weak_type=True}")
    True
    >>> only_weak("* at x, now f32[4] and before f32[]{weak_type=True}")
    False
    """
    pairs = re.findall(r"at \S+, now (\S+?) and before (\S+)", difference(cause))
    return bool(pairs) and all(
        now != before and re.sub(WEAK, "", now) == re.sub(WEAK, "", before).rstrip(";")
        for now, before in pairs
    )


def summary(events: list[Event]) -> Summary:
    """All that the report says, of the events of one process."""
    begin = next((event for event in events if event["kind"] == "begin"), {})
    version = next((event["version"] for event in events if event["kind"] == "jax"), "")
    end = next((event for event in events if event["kind"] == "end"), None)
    made = programs(events)
    constants = [event for event in events if event["kind"] == "constants"]
    why = causes(events)
    count = Counter(event["kind"] for event in events)
    return Summary(
        argv=begin.get("argv", []),
        version=version,
        wall_s=max((event["at"] for event in events), default=0.0),
        explaining_s=sum(explaining(events[i], cause) for i, cause in why.items()),
        ended=end["error"] if end else "",
        whole=True,
        programs=made,
        advice=advise(made, constants, count["hit"], count["miss"]),
        hits=count["hit"],
        misses=count["miss"],
    )
