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
CAUSES = {  # what JAX says of a cause, and what kind of cause it is
    "Static(val=": "static",
    "explanation unavailable": "unnamed",  # so it is of a static argument in JAX 0.12
    "pytree metadata": "metadata",
    "different input pytree": "tree",
    "different input types": "shapes",
    "Tracing context doesn't match": "context",
}
NAMELESS = ("<unnamed function>", "_fun")  # of these JAX explains nothing
SHORT_S = 0.05  # programs that took less are no advice
LATE_S = 1.0  # how late a busy machine may note the end of a trace; an older cause is not its own
WEAK = r"\{weak_type=\w+\}"
SHARDING = r"\(\{.*?\}\)|@\w+"
SEEN_NOT = "never seen function"
UNKNOWN: dict[str, Any] = {"cached": False, "equations": 0, "lines": [], "memory": {}}
UNKNOWN |= {"within": "", "call": "", "function": "", "arguments": None}


class Program(NamedTuple):
    """One program that JAX made.

    Attributes:
      name: of the function, as JAX has it.
      seconds: of tracing, lowering and compiling; what it took for others within is not in it.
      stack: the lines of the script that led to it, outermost first.
      cause: why it was traced, as JAX says it; "" if JAX says nothing.
      cached: whether the compiled program came from the persistent cache.
      compiled: whether there was anything to compile; what another program calls has only a trace.
      equations: of its jaxpr, those within others included; 0 if it was not lowered anew.
      lines: the lines that most equations come from, each with their number.
      memory: bytes on each device, of its arguments and results, what of the results is taken from
        donated arguments, and what is temporary; {} if XLA does not say.
      within: the function that was being traced when this program was compiled, and so was run;
        "" if none was.
      call: the function and its arguments as the last line of the stack has them, "step, w, x";
        "" if that line calls no jitted function by itself.
      function: its name if that is a global one, else "".
      arguments: as `python -m seejax.see` takes them; None if one cannot be written so.
    """

    name: str
    seconds: dict[str, float]
    stack: list[Line]
    cause: str
    cached: bool
    compiled: bool
    equations: int
    lines: list[tuple[Line, int]]
    memory: dict[str, int]
    within: str
    call: str
    function: str
    arguments: list[str] | None

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())

    @property
    def bytes(self) -> int:
        """What it needs on each device, all at once."""
        return sum(self.memory.values()) - 2 * self.memory.get("taken", 0)


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
      process, processes: which of how many it was; 0 of 1 if JAX knows of no others.
      started: in seconds since 1970.
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
    process: int = 0
    processes: int = 1
    started: float = 0.0

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
    compiled: dict[int, list[tuple[float, dict[str, Any]]]] = defaultdict(list)  # by thread, when
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
        if kind == "trace":
            while compiled[thread] and compiled[thread][-1][0] > began(event):
                compiled[thread].pop()[1]["within"] = name
        if kind == "lower":
            program["equations"] = event.get("equations", 0)
            program["lines"] = [((f, n, g), count) for f, n, g, count in event.get("lines", ())]
            called = {"call", "function", "arguments"} & event.keys()
            program |= {field: event[field] for field in called}
        if kind == "compile":
            program["cached"] = hit.pop(thread, False)
            program["memory"] = event.get("memory", {})
            compiled[thread].append((event["at"], program))
            known.clear()
    return [Program(compiled="compile" in p["seconds"], **{**UNKNOWN, **p}) for p in made]


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

    >>> difference("…\n  different input types:\n    * at x, now f32[4] and before f32[3]")
    'at x, now f32[4] and before f32[3]'
    """
    if SEEN_NOT in cause:
        return SEEN_NOT
    if fields := re.search(
        r"with pytree metadata (.*) and before .*? metadata (.*), so", cause, re.S
    ):
        now, before = (Counter(re.split(r"\), \(|,?\n\s*", text)) for text in fields.groups())
        pairs = zip(now - before, before - now, strict=False)
        return "; ".join(f"{new}, before {old}" for new, old in pairs)[:300]
    stars = [re.sub(r"https?://\S+", "", star) for star in re.findall(r"\* (.+)", cause)]
    return re.sub(r"Static\(val=(.*?)\)", r"\1", "; ".join(stars))


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
    r"""The bytes of all constants that a program captured, and the largest with the lines using it.

    >>> constants_of("(4MB total).\n  Constant <X>, f32[9], 4MB captured at:\n    a.py:1:4 (f)\n"
    ...              "    a.py:3:8 (g)\n")
    ('4MB', ['f32[9] 4MB: a.py:3 (g)'])
    """
    total = re.search(r"\(([\d.]+\w+) total\)", text)
    found = re.findall(r"Constant .*?, (\w+\[.*?\]), (\S+) captured at:((?:\s+\S+ \(.*?\))*)", text)
    each = []
    for kind, size, frames in found:
        *_, last = ["", *frames.strip().splitlines()]
        line = re.match(r"\s*(.+?):(\d+)(?::\d+)? (\(.*\))", last)
        where = f": {near(line[1])}:{line[2]} {line[3]}" if line else ""
        each.append(f"{kind} {size}{where}")
    return total[1] if total else "?", each


def advise(events: list[Event], made: list[Program], hits: int, misses: int) -> list[Advice]:
    """What costs most, with the evidence; the largest first."""
    total = sum(program.total_s for program in made)
    found = [*retraced(made), *placed(made), *captured(events), *run_in_traces(made)]
    eager = [
        p
        for p in made
        if p.compiled and "trace" in p.seconds and not p.cause and p.stack
        if p.name not in {*NAMELESS, *(other.name for other in made if other.cause)}
    ]
    seconds = sum(program.total_s for program in eager)
    if len(eager) > 2 and seconds >= max(SHORT_S, total / 20):
        found.append(Advice("eager", seconds, "", "", len(eager), sites(eager)))
    named = {advice.subject for advice in found}
    for program in made:
        first = not program.cause or SEEN_NOT in program.cause
        if first and program.name not in named and program.total_s > max(1.0, total / 4):
            parts = [f"{phase} {s:.2f} s" for phase, s in program.seconds.items()]
            where = place(program.stack)
            found.append(Advice("one-program", program.total_s, program.name, where, 1, parts))
    again = [p for p in made if p.compiled and not p.cached]
    compiling = sum(p.seconds["compile"] for p in again)
    if compiling > 5 and (hits or not misses):  # all misses: the cache was empty
        found.append(Advice("no-cache", compiling, "", "", len(again), []))
    return sorted(found, key=lambda advice: (advice.kind == "no-cache", -advice.seconds))


def retraced(made: list[Program]) -> list[Advice]:
    """Functions that were traced again: for each of them, each kind of cause by itself."""
    found: dict[tuple[str, str, str], list[Program]] = defaultdict(list)
    seen: set[tuple[str, tuple[Line, ...]]] = set()
    for program in made:
        site = program.name, tuple(program.stack)
        if program.cause and SEEN_NOT not in program.cause:
            found[kind_of(program.cause), program.name, defined_at(program.cause)].append(program)
        elif site in seen and program.cause:  # elsewhere it may be another function of that name
            found["new-function", program.name, defined_at(program.cause)].append(program)
        elif site in seen and program.name in NAMELESS and program.compiled:
            found["retraced", program.name, place(program.stack)].append(program)
        seen.add(site)
    advice = []
    for (kind, name, where), again in found.items():
        seconds = sum(program.total_s for program in again)
        if seconds >= SHORT_S:
            causes = Counter(difference(p.cause) for p in again if SEEN_NOT not in p.cause)
            evidence = [text for text, _ in causes.most_common(3) if text]
            advice.append(Advice(kind, seconds, name, where, len(again), evidence + sites(again)))
    return advice


def placed(made: list[Program]) -> list[Advice]:
    """Functions that were compiled again without a trace: for another device, or another split."""
    found = []
    by_name: dict[str, list[Program]] = defaultdict(list)
    before: set[str] = set()  # what JAX traced for another function may have no trace of its own
    for program in made:
        again = program.compiled and "trace" not in program.seconds and program.name in before
        if again and program.stack and not program.within:
            by_name[program.name].append(program)
        if program.compiled:
            before.add(program.name)
    for name, each in by_name.items():
        seconds = sum(program.total_s for program in each)
        if seconds >= SHORT_S:
            where = place(each[0].stack)
            found.append(Advice("placement", seconds, name, where, len(each), sites(each)))
    return found


def run_in_traces(made: list[Program]) -> list[Advice]:
    """Functions during whose tracing programs were compiled, and run at once."""
    by_name: dict[str, list[Program]] = defaultdict(list)
    for program in made:
        if program.within:
            by_name[program.within].append(program)
    return [
        Advice("in-trace", sum(p.total_s for p in each), name, "", len(each), sites(each))
        for name, each in by_name.items()
    ]


def captured(events: list[Event]) -> list[Advice]:
    """Large arrays that became constants, with the programs that hold them."""
    programs: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for i, event in enumerate(events):
        if event["kind"] == "constants":
            total, each = constants_of(event["text"])
            thread = event["thread"]
            lowered = (e for e in events[i:] if e["kind"] == "lower" and e["thread"] == thread)
            programs[total, tuple(each)].append(bare(next(lowered, {"name": "?"})["name"]))
    return [
        Advice("constants", 0.0, total, ", ".join(dict.fromkeys(names)), len(names), [*each[:3]])
        for (total, each), names in programs.items()
    ]


def largest_programs(made: list[Program], most: int = 3) -> list[Program]:
    """Those with the most equations, but at least two; of each name one."""
    by_name: dict[str, Program] = {}
    for program in sorted(made, key=lambda p: (-p.equations, -p.bytes)):
        if program.equations > 1:
            by_name.setdefault(program.name, program)
    return list(by_name.values())[:most]


def sites(each: list[Program]) -> list[str]:
    """The lines that made most of them, with how many."""
    count = Counter(place(program.stack) for program in each)
    return [f"{line} ({n})" if n > 1 else line for line, n in count.most_common(3)]


def kind_of(cause: str) -> str:
    """What a function was traced again for.

    >>> kind_of("different input types:\\n* at x, now f32[]{weak_type=False} and before f32[]")
    'weak'
    >>> kind_of("different input types:\\n* at x, now f32[8]({Auto: ('a',)}) and before f32[8]({})")
    'sharding'
    >>> kind_of("different input types:\\n* at x, now f32[4] and before f32[]{weak_type=True}")
    'shapes'
    """
    kind = next((kind for words, kind in CAUSES.items() if words in cause), "retraced")
    pairs = re.findall(r"at \S+, now (.+?) and before (.+?)(?:; |$)", difference(cause))
    for less, pattern in ("weak", WEAK), ("sharding", f"{WEAK}|{SHARDING}"):
        same = (re.sub(pattern, "", now) == re.sub(pattern, "", before) for now, before in pairs)
        if kind == "shapes" and pairs and all(same):
            return less
    return kind


def summary(events: list[Event]) -> Summary:
    """All that the report says, of the events of one process."""
    begin: Event = next((event for event in events if event["kind"] == "begin"), {})
    version = next((event["version"] for event in events if event["kind"] == "jax"), "")
    of = next((event for event in events if event["kind"] == "process"), {})
    end = next((event for event in events if event["kind"] == "end"), None)
    made = programs(events)
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
        advice=advise(events, made, count["hit"], count["miss"]),
        hits=count["hit"],
        misses=count["miss"],
        process=of.get("index", 0),
        processes=of.get("count", 1),
        started=begin.get("time", 0.0),
    )
