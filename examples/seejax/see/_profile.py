"""What the profiler of JAX wrote, as events: what each thread and each device did, and when."""

import collections
import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import jax

_PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something that took a while.

    Attributes:
      kind: on a lane of Python `call` (a jitted function, or an operation outside of one), `trace`,
        `lower` and `compile` (inside a call), `read` (values are fetched for Python), `wait`
        (for one array), `mark` (`Timeline.mark`, a step, an annotation that was asked for); on a
        lane of a device `run`, one program.
      name: of the function, of the program or of the mark.
      lane: `Python`, the thread that recorded; `thread 2`, …; `device 0`, ….
      start_us, end_us: microseconds since the recording began.
      inline: a run inside the call that dispatched it: Python did nothing else meanwhile.
    """

    kind: str
    name: str
    lane: str
    start_us: float
    end_us: float
    inline: bool = False

    @property
    def duration_us(self) -> float:
        return self.end_us - self.start_us

    def overlaps(self, other: "Event") -> bool:
        """Whether there was a moment at which both went on."""
        return self.start_us < other.end_us and other.start_us < self.end_us


def listen(event: str, duration_secs: float, **_: Any) -> None:
    """Puts a phase of compiling into the profile, of which JAX tells its listeners alone."""
    if phase := _PHASES.get(event):
        with jax.profiler.TraceAnnotation(phase, seejax="phase", ns=int(duration_secs * 1e9)):
            pass


def events_of(planes: Iterable[Any], names: Collection[str] = ()) -> tuple[tuple[Event, ...], int]:
    """The events of the planes by start, and how many programs had not ended.

    Events called one of `names` are marks. A thread of Python has calls or marks. A run is all that
    carries one number of a run on one device, once its executor says that it is complete; on the
    CPU that is done by whichever thread was free, or by the one that called.
    """
    host: list[tuple[bool, list[Event]]] = []
    pieces: dict[tuple[Any, Any], list[tuple[Any, int, dict]]] = {}
    dispatches: list[tuple[int, float, float]] = []
    begin = None
    lines = [line for plane in planes for line in plane.lines]
    for thread, line in enumerate(lines):
        read = [(event, dict(event.stats)) for event in line.events]
        mine = [e for e, stats in read if stats.get("seejax") == "timeline"]
        begin = mine[0].start_ns if mine else begin
        host.append(
            (bool(mine), sorted(_python(read, names), key=lambda e: (e.start_us, -e.end_us)))
        )
        for e, stats in read:
            if "ExecuteHelperOnSingleDevice" in e.name:
                dispatches.append((thread, e.start_ns, e.start_ns + e.duration_ns))
            elif "run_id" in stats and ("hlo_op" in stats or _completes(e)):
                key = stats["run_id"], stats.get("device_ordinal", 0)
                pieces.setdefault(key, []).append((e, thread, stats))
    if begin is None:
        return (), 0
    events, number = [], 1
    for mine, found in host:
        if found:
            number += not mine
            lane = "Python" if mine else f"thread {number}"
            events += [dataclasses.replace(e, lane=lane) for e in _outermost(found)]
    name_of = _names(event.name for event in events if event.kind == "call")
    first = min((start for _, start, _ in dispatches), default=0)
    ended = 0
    for (_, device), parts in pieces.items():
        if not any(_completes(e) for e, _, _ in parts):
            continue
        start = min(e.start_ns for e, _, _ in parts)
        end = max(e.start_ns + e.duration_ns for e, _, _ in parts)
        ended += start >= first  # else it was dispatched before the block
        module = next((s["hlo_module"] for _, _, s in parts if "hlo_module" in s), None)
        if module is None:
            continue  # nothing but its last moment lies in the block
        threads = {thread for _, thread, _ in parts}
        inline = any({t} == threads and a <= start and end <= b for t, a, b in dispatches)
        name = name_of(re.sub(r"^jit_", "", str(module)))
        events.append(Event("run", name, f"device {device}", start / 1e3, end / 1e3, inline))
    moved = [
        dataclasses.replace(e, start_us=e.start_us - begin / 1e3, end_us=e.end_us - begin / 1e3)
        for e in events
    ]
    unfinished = max(0, len(dispatches) - ended)
    return tuple(sorted(moved, key=lambda e: (e.start_us, -e.end_us))), unfinished


def _completes(event: Any) -> bool:
    return event.name.startswith("ThunkExecutor")


def _names(calls: Iterable[str]) -> Callable[[str], str]:
    """Of a program's name, the name of the function that was called, if there is only one.

    JAX writes `_lambda` for `<lambda>`, and `f` for `f_`.
    """
    alike = collections.defaultdict(set)
    for name in calls:
        alike[re.sub(r"\W", "_", name).rstrip("_")].add(name)

    def found(module: str) -> str:
        names = alike[module.rstrip("_")]
        return min(names) if len(names) == 1 else module

    return found


def _python(read: list[tuple[Any, dict]], names: Collection[str]) -> Iterator[Event]:
    """What is known on the line of one thread, in its own time."""
    waiting: dict[Any, float] = {}
    for e, stats in sorted(read, key=lambda pair: pair[0].start_ns):
        start, end = e.start_ns / 1e3, (e.start_ns + e.duration_ns) / 1e3
        if stats.get("_r") == 1:  # a StepTraceAnnotation
            name = f"{e.name} {stats['step_num']}" if "step_num" in stats else e.name
            yield Event("mark", name, "", start, end)
        elif stats.get("seejax") == "mark" or e.name in names:
            yield Event("mark", e.name, "", start, end)
        elif stats.get("seejax") == "phase":
            yield Event(e.name, e.name, "", start - stats["ns"] / 1e3, start)
        elif match := re.fullmatch(r"PjitFunction\((jit\()?(.*?)(?(1)\))\)", e.name):
            yield Event("call", match[2], "", start, end)
        elif e.name == "np.asarray(jax.Array)":
            yield Event("read", "read", "", start, end)
        elif e.name.endswith("Buffer::Await"):
            if "_p" in stats:
                waiting[stats["_p"]] = start
            elif stats.get("_c") in waiting:
                yield Event("wait", "wait", "", waiting.pop(stats["_c"]), end)


def _outermost(found: list[Event]) -> list[Event]:
    """Without a call inside a call, a trace inside a trace, and what is inside those."""
    kept: list[Event] = []
    open_: list[Event] = []
    for event in found:
        while open_ and open_[-1].end_us <= event.start_us:
            open_.pop()
        inside = {holder.kind for holder in open_}
        nested = event.kind != "mark" and event.kind in inside
        if not nested and not inside & {"trace", "lower", "compile"}:
            kept.append(event)
            open_.append(event)
    return kept
