"""When Python called, and when the devices ran: a profile with few events, on one axis of time."""

import collections
import contextlib
import pathlib
import tempfile
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import jax

from seejax.see._i18n import count
from seejax.see._parts import Block, Chart, Line, Pane, Part, Row, Span, Spans
from seejax.see._picture import Picture
from seejax.see._profile import Event, events_of, listen


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

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self._names = names
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
        jax.monitoring.register_event_duration_secs_listener(listen)
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
                jax.monitoring.unregister_event_duration_listener(listen)
            jax.profiler.stop_trace()
            files = list(pathlib.Path(self._folder.name).rglob("*.xplane.pb"))
            profiles = [jax.profiler.ProfileData.from_file(str(file)) for file in files]
            planes = [plane for profile in profiles for plane in profile.planes]
            with warnings.catch_warnings():  # of jaxlib's; as an error it would end the process
                warnings.simplefilter("ignore", DeprecationWarning)
                self._events, self.unfinished = events_of(planes, self._names)
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


def timeline(*names: str) -> Timeline:
    """Records what a `with` block does: when Python calls, and when the devices run.

    Args:
      names: of annotations (`jax.profiler.TraceAnnotation`) that get a bar too. A
        `StepTraceAnnotation` has one anyway, called by its name and its `step_num`.
    Returns:
      A `Timeline`. An exception in the block passes through, with what had happened by then kept.
    Raises:
      RuntimeError: another profile is running; or the timeline was used before.
      TypeError: a name is no string.

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
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of an annotation must be a string, not {name!r}")
    return Timeline(names)


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
