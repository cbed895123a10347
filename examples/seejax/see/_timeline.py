"""When Python called, and when the devices ran: a profile with few events, on one axis of time."""

import collections
import contextlib
import dataclasses
import pathlib
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import jax

from seejax.see._parts import Block, Chart, Line, Pane, Part, Row, Span, Spans
from seejax.see._picture import Picture
from seejax.see._words import count

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
        (for one array), `mark` (`Timeline.mark`); on a lane of a device `run`, one program.
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


class Timeline(Picture):
    """What a `with` block did, over time. Its events stand there when the block has ended.

    Attributes:
      events: all of them, by start.
      calls, runs, waits: the events of that kind; `waits` are the reads and the waits.
      host: the events of the thread that recorded.
      device: the runs, on whatever device.
      unfinished: programs that were dispatched and had not ended with the block; at least so many,
        if others from before the block were still in the queue.
    """

    kind = "timeline"
    name = "timeline"

    def __init__(self) -> None:
        self._events: tuple[Event, ...] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._mark: Any = None
        self.unfinished = 0

    def mark(self, name: str) -> Any:
        """A context manager: what is done inside it gets a bar of that name.

        It is a `jax.profiler.TraceAnnotation` that the picture knows again.

        Raises:
          TypeError: `name` is no string.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a mark must be a string, not {name!r}")
        return jax.profiler.TraceAnnotation(name.replace("#", "♯"), seejax="mark")

    def __enter__(self) -> Self:
        if self._folder is not None:
            raise RuntimeError("a timeline records one block; make another with see.timeline()")
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # its events are many, and slow down what is measured
        try:
            jax.profiler.start_trace(folder.name, profiler_options=options)
        except RuntimeError as error:
            folder.cleanup()
            raise RuntimeError(
                "another profile is running, and JAX records one at a time: end it first"
            ) from error
        self._folder = folder
        jax.monitoring.register_event_duration_secs_listener(_listen)
        self._mark = jax.profiler.TraceAnnotation("timeline", seejax="timeline")
        self._mark.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._folder is not None
        self._mark.__exit__(kind, error, trace)
        try:
            with contextlib.suppress(AssertionError, ValueError):  # a reader cleared them all
                jax.monitoring.unregister_event_duration_listener(_listen)
            jax.profiler.stop_trace()
            files = list(pathlib.Path(self._folder.name).rglob("*.xplane.pb"))
            profiles = [jax.profiler.ProfileData.from_file(str(file)) for file in files]
            planes = [plane for profile in profiles for plane in profile.planes]
            with warnings.catch_warnings():  # of jaxlib's; as an error it would end the process
                warnings.simplefilter("ignore", DeprecationWarning)
                self._events, self.unfinished = _events(planes)
        except Exception:
            if error is None:
                raise
            self._events = ()
        finally:
            self._folder.cleanup()

    @property
    def events(self) -> tuple[Event, ...]:
        if self._events is None:
            raise RuntimeError("a timeline has its events when its with block has ended")
        return self._events

    @property
    def calls(self) -> tuple[Event, ...]:
        return self._of("call")

    @property
    def runs(self) -> tuple[Event, ...]:
        return self._of("run")

    @property
    def waits(self) -> tuple[Event, ...]:
        return self._of("read", "wait")

    @property
    def host(self) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.lane == "Python")

    @property
    def device(self) -> tuple[Event, ...]:
        return self.runs

    def _of(self, *kinds: str) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.kind in kinds)

    # --- what is shown

    def summary(self) -> Spans:
        if self._events is None:
            return (Span("not recorded yet", word=True),)
        if not self._events:
            return (Span("nothing was recorded", word=True),)
        parts = [count(len(self.calls), "call"), count(len(self.runs), "run")]
        parts.append(f"{max(event.end_us for event in self._events) / 1e3:.1f} ms")
        spans = [Span(part, word=True) for part in parts]
        return (spans[0], Span(", ", word=True), spans[1], Span(", ", word=True), spans[2])

    @property
    def doubt(self) -> Spans:
        if not self.unfinished:
            return ()
        return (Span(f"{count(self.unfinished, 'run')} not ended with the block", word=True),)

    def parts(self) -> Iterator[Part]:
        if not self._events:
            return
        whole = max(event.end_us for event in self._events)
        widths = len(f"{whole / 1e3:.2f}"), max(len(event.lane) for event in self._events)
        rows, lines = [], []
        for lane, deep, events in _rows(self._events):
            blocks = []
            for group in _merged(events, whole):
                number, first = len(lines), group[0]
                end = max(event.end_us for event in group)
                what = first.name if len(group) == 1 else _common(group)
                blocks.append(
                    Block(first.start_us / whole, end / whole, first.kind, what, (number,))
                )
                lines.append(_line(lane, group, what, end, number, widths))
            rows.append(Row((Span(lane, word=True),) if deep == 0 else (), tuple(blocks)))
        yield Chart(tuple(rows), f"{whole / 1e3:.1f} ms")
        lines.sort(key=lambda pair: pair[0])
        yield Pane("events", tuple(line for _, line in lines), rest="events")


def timeline() -> Timeline:
    """Records what a `with` block does: when Python calls, and when the devices run.

    Returns:
      A `Timeline`. An exception in the block passes through, with what had happened by then kept.
    Raises:
      RuntimeError: another profile is running; or the timeline was used before.

    A program that has not ended with the block is not shown, only counted: wait for its result
    inside. Of one on several devices, the parts that have not ended may not be counted either. One
    that was dispatched before and runs on is shown, from its next operation. Copies from device to
    device are not shown. A program of very many small operations runs longer while it is recorded.
    Time without a bar is time of which the profile says nothing: your own Python, or a wait for
    several arrays, for several devices, for effects, for the length of `y[y > 0]`; `Timeline.mark`
    gives it a name. Looked at on CPUs only.

    Source: `jax.profiler`, read with `jax.profiler.ProfileData`; tracing, lowering and compiling
      from `jax.monitoring`.

    >>> import jax, jax.numpy as jnp
    >>> from seejax import see
    >>> square, x = jax.jit(lambda x: x @ x), jnp.ones((9, 9))
    >>> with see.timeline() as t:
    ...     y = square(x).block_until_ready()
    >>> [event.kind for event in t.events if event.kind not in ("wait", "run")]
    ['call', 'trace', 'lower', 'compile']
    >>> t.runs[0].start_us > t.calls[0].start_us
    True
    """
    return Timeline()


def _listen(event: str, duration_secs: float, **_: Any) -> None:
    if phase := _PHASES.get(event):
        with jax.profiler.TraceAnnotation(phase, seejax="phase", ns=int(duration_secs * 1e9)):
            pass


# --- from the profile to events


def _events(planes: Iterable[Any]) -> tuple[tuple[Event, ...], int]:
    """The events of the planes by start, and how many programs had not ended.

    A thread of Python has calls or marks. A run is all that carries one number of a run on one
    device, once its executor says that it is complete; on the CPU that is done by whichever thread
    was free, or by the one that called.
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
        host.append((bool(mine), sorted(_python(read), key=lambda e: (e.start_us, -e.end_us))))
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


def _python(read: list[tuple[Any, dict]]) -> Iterator[Event]:
    """What is known on the line of one thread, in its own time."""
    waiting: dict[Any, float] = {}
    for e, stats in sorted(read, key=lambda pair: pair[0].start_ns):
        start, end = e.start_ns / 1e3, (e.start_ns + e.duration_ns) / 1e3
        if stats.get("seejax") == "mark":
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


# --- from events to bars


def _rows(events: tuple[Event, ...]) -> Iterator[tuple[str, int, list[Event]]]:
    """Each lane, the thread that recorded first and devices last, a row for each depth."""
    order = {"P": 0, "t": 1, "d": 2}
    lanes = sorted(
        {event.lane for event in events}, key=lambda lane: (order[lane[0]], len(lane), lane)
    )
    for lane in lanes:
        rows: list[list[Event]] = []
        ends: list[float] = []
        for event in (event for event in events if event.lane == lane):
            deep = next((i for i, end in enumerate(ends) if end <= event.start_us), len(ends))
            if deep == len(ends):
                rows.append([])
                ends.append(0.0)
            rows[deep].append(event)
            ends[deep] = event.end_us
        for deep, row in enumerate(rows):
            yield lane, deep, row


def _merged(events: list[Event], whole: float) -> Iterator[list[Event]]:
    """Neighbours of one kind that would be too narrow to tell apart, as one group."""
    group: list[Event] = []
    for event in events:
        if group and (
            event.kind != group[-1].kind
            or max(event.duration_us, group[-1].duration_us) > 0.01 * whole
            or event.start_us - group[-1].end_us > 0.005 * whole
        ):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


def _common(group: list[Event]) -> str:
    times = collections.Counter(event.name for event in group).most_common()
    some = [name if n == 1 else f"{n} × {name}" for name, n in times[:3]]
    return ", ".join(some + ["…"] * (len(times) > 3))


def _line(
    lane: str, group: list[Event], what: str, end: float, number: int, widths: tuple[int, int]
) -> tuple[float, Line]:
    first, (wide, names) = group[0], widths
    spans = [Span(f"{first.start_us / 1e3:{wide}.2f} – {end / 1e3:{wide}.2f} ms  ", "t")]
    spans += [Span(lane, word=True), Span(" " * (names - len(lane) + 2))]
    spans += [Span(first.kind, f"badge k-{first.kind}", True)]
    if what != first.kind:
        spans += [Span("  "), Span(what, "o")]
    if any(event.inline for event in group):
        spans += [Span("  "), Span("in the thread that called", "t", word=True)]
    return first.start_us, Line(tuple(spans), own=(number,))
