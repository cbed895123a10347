"""A jitted function that remembers every call: what JAX did, how long it took, and why."""

import bisect
import contextlib
import dataclasses
import functools
import inspect
import itertools
import re
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from seejax.see import _jax_private
from seejax.see._i18n import count
from seejax.see._parts import Bar, Column, Span, Spans, Table, joined
from seejax.see._picture import Picture
from seejax.see._signature import (
    Argument,
    Signature,
    Value,
    cut,
    described,
    differences,
    one_line,
    typed_leaf,
)

_TRACE = "/jax/core/compile/jaxpr_trace_duration"
_COMPILE = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: what JAX had to do for it, and why.

    Attributes:
      outcome: `compiled` traced and compiled; `traced` traced only, for an outer transformation;
        `recompiled` compiled from a trace it already had; `cached` neither; `eager` not jitted,
        because `jax.disable_jit` is on; `failed` raised.
      cause: why it was not cached, by argument: `x: shape (3,) → (4,)`; `""` when cached;
        `unknown` when nothing that JAX compares is seen to differ.
      trace_ms, compile_ms, run_ms: wall time in milliseconds, adding up to the whole call.
        `compile_ms` is lowering plus XLA; `run_ms` is the rest, until the result is ready.
      signature: the arguments as JAX saw them: `x f32[3], n=2 static`; `~` is a weak type.
      error: the exception of a failed call, else None.
      times: how many calls it stands for. Of cached calls with one signature, the first eight have
        a `Call` each; the later ones are counted in the last of these, whose times are means.
    """

    outcome: str
    cause: str
    trace_ms: float
    compile_ms: float
    run_ms: float
    signature: str
    error: BaseException | None = None
    times: int = 1


_EACH = 8  # cached calls of one signature that have a row each
_MARKS = 64  # kinds of arguments that are known at a glance


# --- how long: JAX reports durations to listeners; each call under way collects its own


@dataclasses.dataclass(eq=False)
class _UnderWay:
    owner: "Calls"
    signature: Signature
    earlier: list[Signature]  # what had been seen when it began, or rather when its trace did
    events: list[tuple[str, str, float]] = dataclasses.field(default_factory=list)
    traced: bool = False
    trace_ms: float = 0.0


@dataclasses.dataclass
class _Hits:
    """The cached calls whose signature reads the same."""

    text: str
    number: int = 0
    row: "_Row | None" = None  # where the later ones are counted
    counted: int = 0  # in that row; its own call is one of them
    total_ms: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Known:
    """A kind of arguments that was met, and JAX's settings then: under others it may be traced."""

    hits: _Hits
    signature: Signature
    context: tuple


@dataclasses.dataclass
class _Row:
    begun: float
    number: int  # of the call, counted as they begin
    call: Call
    hits: _Hits | None = None

    def now(self) -> Call:
        hits = self.hits
        if hits is None or hits.row is not self or hits.counted == 1:
            return self.call
        run_ms = hits.total_ms / hits.counted
        return dataclasses.replace(self.call, run_ms=run_ms, times=hits.counted)


class _Stack(threading.local):
    def __init__(self) -> None:
        self.calls: list[_UnderWay] = []


_stack = _Stack()


def _listen(event: str, duration_secs: float, **details: Any) -> None:
    for call in _stack.calls:
        call.events.append((event, str(details.get("fun_name", "")), duration_secs * 1e3))


class Calls(Picture):
    """What `see.calls` returns: call it like the function; show it to see its calls.

    Attributes:
      calls: list of `Call`, in the order in which they began; cached ones may share one.
      traces: how many times JAX ran the Python function to trace it.
    """

    kind = "calls"
    lead = "calls of"

    def __init__(self, f: Callable[..., Any], jit_options: dict[str, Any]) -> None:
        functools.update_wrapper(self, f)
        self.__name__ = _name(f)
        self.traces = 0
        self._rows: list[_Row] = []
        self._numbers = itertools.count(1)
        self._hits: dict[str, _Hits] = {}
        self._marks: dict[tuple, _Known] = {}
        self._lock = threading.RLock()
        self._seen: list[Signature] = []  # all different ones that JAX took
        self._epoch = 0  # how often JAX's caches have been cleared
        self._state = (-1, -1)
        self._kept = 0
        inside = f._jit if isinstance(f, Calls) else getattr(f, "jitted_fn", f)  # of nnx.jit
        self._jit: Any  # the jitted function itself: JAX names no public type for it
        self._jitted = not jit_options and _jax_private.is_jitted(inside)
        if self._jitted:
            self._call, self._jit = f, inside
        else:
            self._call = self._jit = jax.jit(self._counting(f), **jit_options)
        self._static = _jax_private.statics(self._jit)
        self._by_value = any(self._static)
        self._names: list[str] = []
        self._variadic = "args"
        self._defaults: set[str] = set()
        with contextlib.suppress(TypeError, ValueError):  # a few builtins have no signature
            for p in inspect.signature(f).parameters.values():
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                    self._names.append(p.name)
                elif p.kind is p.VAR_POSITIONAL:
                    self._variadic = p.name
                if p.default is not p.empty:
                    self._defaults.add(p.name)
        # The same methods as a jitted function has.
        self.lower, self.trace = self._ahead("lower"), self._ahead("trace")
        self.eval_shape = self._ahead("eval_shape")

    @property
    def calls(self) -> list[Call]:
        with self._lock:
            return [row.now() for row in self._rows]

    def clear_cache(self) -> None:
        """Forgets what was traced and compiled, as the method of a jitted function does."""
        self._jit.clear_cache()

    def _counting(self, f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def counted(*args, **kwargs):
            if jax.config.jax_disable_jit or not _jax_private.tracing():
                return f(*args, **kwargs)  # op by op: disable_jit, or debug_nans in search of one
            call = next((c for c in reversed(_stack.calls) if c.owner is self), None)
            with self._lock:
                self.traces += 1
                if call is not None:
                    self._trace_begins(call)
            heard = len(call.events) if call else 0
            start = time.perf_counter()
            try:
                return f(*args, **kwargs)
            finally:
                if call is not None:
                    call.trace_ms = (time.perf_counter() - start) * 1e3
                    del call.events[heard:]  # what f itself makes JAX trace and compile

        counted.__name__ = self.__name__
        return counted

    def _trace_begins(self, call: _UnderWay) -> None:
        if not call.traced:
            call.traced, call.earlier = True, list(self._seen)
            self._see(call.signature)

    def _see(self, signature: Signature) -> None:
        if not any(old is signature for old in self._seen):
            self._seen.append(signature)

    def _ahead(self, method: str) -> Callable[..., Any]:
        """`lower`, for example: traces as a call does, but is no call."""

        @functools.wraps(getattr(self._call, method))
        def ahead(*args, **kwargs):
            call = self._begin(args, kwargs)
            _stack.calls.append(call)
            before = self._traces_kept()
            try:
                result = getattr(self._call, method)(*args, **kwargs)
            except BaseException:
                self._forget(call)
                raise
            finally:
                _stack.calls.pop()
            with self._lock:
                if self._was_traced(call, before):
                    self.traces += self._jitted
                    self._trace_begins(call)
                    call.signature.compiled, call.signature.epoch = False, self._epoch
            return result

        return ahead

    def _traces_kept(self, fresh: bool = False) -> int:
        """How many traces of it JAX keeps. Fewer than last time: its caches were cleared.

        JAX counts a trace before it keeps it, so after one of ours the count may be known already.
        """
        with self._lock:
            state = _jax_private.trace_count()
            if fresh or state != self._state:
                self._state, kept = state, _jax_private.cached_traces(self._jit)
                self._epoch += kept < self._kept
                self._kept = kept
            return self._kept

    def _was_traced(self, call: _UnderWay, before: int) -> bool:
        # No way into the function, but JAX now keeps one more trace of it. Another thread may have
        # made it, so JAX must have reported it in this one, which it does at the top level only.
        reported = any(event == _TRACE and name == self.__name__ for event, name, _ in call.events)
        kept = self._traces_kept(fresh=reported)
        if not self._jitted:
            return call.traced
        return kept > before and (reported or not _jax_private.at_top_level())

    def _begin(self, args: tuple, kwargs: dict[str, Any]) -> _UnderWay:
        if not _jax_private.listening(_listen):
            jax.monitoring.register_event_duration_secs_listener(_listen)
        signature = self._signature(args, kwargs)
        with self._lock:
            seen = list(self._seen)
        same = next((old for old in reversed(seen) if old == signature), None)
        if same is None:
            self._add_paths(signature, args, kwargs)
        return _UnderWay(self, same or signature, seen)

    def _given(self, args: tuple, kwargs: dict[str, Any]) -> Iterator[tuple[str, Any, str, bool]]:
        numbers, names = self._static
        for i, value in enumerate(args):
            many = len(self._names)
            name = self._names[i] if i < many else f"{self._variadic}[{i - many}]"
            yield name, value, "positional", i in numbers or i - len(args) in numbers
        for name, value in kwargs.items():
            # In f(x, /, **others) the name x can stand for two.
            twice = name in self._names[: len(args)]
            yield f"{name} by name" if twice else name, value, "keyword", name in names

    def _signature(self, args: tuple, kwargs: dict[str, Any]) -> Signature:
        flat: dict[str, tuple[list[Any], Any]] = {}
        for name, value, _, static in self._given(args, kwargs):
            try:
                flat[name] = ([], value) if static else jax.tree.flatten(value)
            except Exception:  # a pytree that JAX will refuse, too
                flat[name] = ([], None)
        values = [value for values, _ in flat.values() for value in values]
        nest, roles, inner = _jax_private.transformations(values)
        leaves = iter(map(typed_leaf, values, roles, inner))
        arguments = {}
        for name, _, passed, static in self._given(args, kwargs):
            values, value = flat[name]
            own = tuple(next(leaves) for _ in values)
            arguments[name] = Argument(passed, static, Value(value), own)
        context = Value(_jax_private.trace_context())
        return Signature(arguments, context, Value(_jax_private.device_mesh()), nest)

    def _add_paths(self, signature: Signature, args: tuple, kwargs: dict[str, Any]) -> None:
        for name, value, _, static in self._given(args, kwargs):
            argument = signature.arguments[name]
            if name in self._defaults:
                argument.left_out = "default"
            if argument.leaves and not static:
                paths, _ = jax.tree_util.tree_flatten_with_path(value)
                argument.paths = tuple(jax.tree_util.keystr(path) for path, _ in paths)

    def _forget(self, call: _UnderWay) -> None:
        """A trace that failed is in no cache."""
        with self._lock:
            if not any(old is call.signature for old in call.earlier):
                self._seen = [old for old in self._seen if old is not call.signature]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mark, known = self._known(args, kwargs)
        if known is None:
            return self._watched(args, kwargs, mark)
        call, error = _UnderWay(self, known.signature, self._seen), None
        number, before = next(self._numbers), self._traces_kept()
        _stack.calls.append(call)
        start = time.perf_counter()
        try:
            result = self._call(*args, **kwargs)
            jax.block_until_ready(result)
            return result
        except BaseException as exception:
            error = exception
            raise
        finally:
            wall_ms = (time.perf_counter() - start) * 1e3
            _stack.calls.pop()
            if call.events or call.traced or error is not None:
                if not call.traced:  # compiled for what the mark does not tell, such as a placement
                    events, call = call.events, self._begin(args, kwargs)
                    call.events = events
                self._keep(call, number, start, False, before, wall_ms, error)
            else:
                self._hit(known.hits, number, start, wall_ms)
            del error  # it refers to this frame

    def _watched(self, args: tuple, kwargs: dict[str, Any], mark: Any) -> Any:
        """A call that may not be cached: all that JAX compares is noted before it."""
        call, error = self._begin(args, kwargs), None
        eager, before = jax.config.jax_disable_jit, self._traces_kept()
        number = next(self._numbers)
        context = _jax_private.trace_context_key()
        _stack.calls.append(call)
        start = time.perf_counter()
        try:
            result = self._call(*args, **kwargs)
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result)):
                jax.block_until_ready(result)
            return result
        except BaseException as exception:
            error = exception
            raise
        finally:
            wall_ms = (time.perf_counter() - start) * 1e3
            _stack.calls.pop()
            hits = self._keep(call, number, start, eager, before, wall_ms, error)
            if hits is not None and mark is not None and not call.events:
                if len(self._marks) >= _MARKS:
                    self._marks.clear()
                self._marks[mark] = _Known(hits, call.signature, context)
            del error  # it refers to this frame

    def _known(self, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, _Known | None]:
        """A mark of the arguments, and the cached calls that had it, under the settings of now.

        The mark is all that a row shows of them, taken quickly: a training loop has no time for
        what `_begin` notes. None where it does not tell enough: under a transformation, and for
        the objects of Flax, which a call changes.
        """
        if self._call is not self._jit or jax.config.jax_disable_jit:
            return None, None
        if not _jax_private.at_top_level() or not _jax_private.listening(_listen):
            return None, None
        try:
            leaves, structure = jax.tree.flatten((args, kwargs))
            mark: list[Any] = [structure]
            for leaf in leaves:
                kind = type(leaf)
                if isinstance(leaf, jax.Array):
                    mark.append((leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)))
                elif kind is np.ndarray:
                    mark.append((leaf.shape, leaf.dtype))
                elif self._by_value:
                    mark.append((kind, leaf))
                elif kind in (bool, int, float, complex):
                    mark.append(kind)
                else:
                    return None, None
            key = tuple(mark)
            known = self._marks.get(key)
        except Exception:  # what JAX will refuse, or a static value that has no hash
            return None, None
        if known is not None and known.context != _jax_private.trace_context_key():
            known = None
        return key, known

    def _hit(self, hits: _Hits, number: int, start: float, wall_ms: float) -> None:
        with self._lock:
            hits.number += 1
            if hits.number > _EACH:
                hits.counted += 1
                hits.total_ms += wall_ms
                return
            record = Call("cached", "", 0.0, 0.0, wall_ms, hits.text)
            hits.counted, hits.total_ms = 1, wall_ms
            hits.row = self._add(_Row(start, number, record, hits))

    def _add(self, row: _Row) -> _Row:
        bisect.insort(self._rows, row, key=lambda row: row.begun)
        return row

    def _keep(
        self,
        call: _UnderWay,
        number: int,
        start: float,
        eager: bool,
        before: int,
        wall_ms: float,
        error: BaseException | None,
    ) -> _Hits | None:
        """Remember the call; if it was cached, the calls of its kind."""
        with self._lock:
            record = self._record(call, eager, self._was_traced(call, before), wall_ms, error)
            if record.outcome != "cached":
                self._add(_Row(start, number, record))
                return None
            text = call.signature.text
            hits = self._hits.setdefault(text, _Hits(text))
            self._hit(hits, number, start, wall_ms)
            return hits

    def _record(
        self,
        call: _UnderWay,
        eager: bool,
        traced: bool,
        wall_ms: float,
        error: BaseException | None,
    ) -> Call:
        # Only events of this very function: lowering it may compile others.
        own = {self.__name__, f"jit({self.__name__})", f"jit_{self.__name__}"}
        heard = [(event, ms) for event, name, ms in call.events if name in own]
        compile_ms = sum(ms for event, ms in heard if event in _COMPILE and not eager)
        trace_ms = 0.0
        if traced:
            # Inside another jit JAX reports no trace. Then our own watch has to do, or the whole.
            reported = max((ms for event, ms in heard if event == _TRACE), default=0.0)
            within = wall_ms if self._jitted else call.trace_ms
            trace_ms = min(wall_ms - compile_ms, reported or within)
        compiled = compile_ms > 0
        signature, cause = call.signature, ""
        if error is not None:
            outcome, cause = "failed", _failure(error, signature)
            self._forget(call)
        elif eager:
            outcome, cause = "eager", "not jitted: disable_jit"
        else:
            outcome = {
                (True, True): "compiled",
                (True, False): "traced",
                (False, True): "recompiled",
                (False, False): "cached",
            }[traced, compiled]
            if traced or compiled:
                cause = self._cause(call, traced)
            if traced and self._jitted:
                self.traces += 1
            self._see(signature)
            signature.epoch, signature.compiled = self._epoch, True
        run_ms = max(0.0, wall_ms - trace_ms - compile_ms)
        return Call(outcome, cause, trace_ms, compile_ms, run_ms, signature.text, error)

    def _cause(self, call: _UnderWay, traced: bool) -> str:
        """The difference from the nearest signature seen before, the one with the fewest."""
        if not call.earlier:
            outcomes = [row.call.outcome for row in self._rows]
            if outcomes[-1:] == ["failed"]:
                return "after a failed call"
            return "first call that is jitted" if "eager" in outcomes else "first call"
        found = [(differences(old, call.signature), old) for old in reversed(call.earlier)]
        if traced:
            (why, _), old = min(found, key=lambda pair: len(pair[0][0]))
            if not why:
                cleared = all(old.epoch < self._epoch for (types, _), old in found if not types)
                return "caches cleared" if cleared else "unknown"
        else:
            nest = call.signature.nest
            found.sort(key=lambda pair: (len(pair[0][0]), pair[1].nest != nest, len(pair[0][1])))
            (types, places), old = found[0]
            why = types + places
            if not why:
                return "unknown" if old.compiled else "traced before, not compiled"
        return described(why)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def name(self) -> str:
        return self.__name__

    def summary(self) -> Spans:
        number = sum(call.times for call in self.calls)
        calls, traces = count(number, "call"), count(self.traces, "trace")
        return Span(calls, word=True), Span(", ", word=True), Span(traces, word=True)

    def parts(self) -> Iterable[Table]:
        with self._lock:
            rows = [(row.number, row.now()) for row in self._rows]
        most = max((sum(_times(c)) for _, c in rows), default=0.0) or 1.0
        yield Table(
            caption="wall time of each call",
            columns=(
                Column("#"),
                Column("outcome"),
                *(Column(f"{name} ms", f"ms {name}-ms", number=True) for name in _TIMES),
                Column("", "bar"),
                Column("signature", "sig"),
                Column("cause", "why"),
            ),
            rows=tuple(
                (
                    (Span(str(i)),),
                    _outcome(c),
                    *((Span(f"{ms:.2f}"),) for ms in _times(c)),
                    Bar(tuple((f"{n}-ms", ms / most) for n, ms in _named(c))),
                    (Span(c.signature, "mono"),),
                    _phrases(c.cause),
                )
                for i, c in rows
            ),
        )


_TIMES = ("trace", "compile", "run")


def _outcome(call: Call) -> Spans:
    badge = Span(call.outcome, f"badge {call.outcome}", word=True)
    return (badge, Span(f" × {call.times}")) if call.times > 1 else (badge,)


def _named(call: Call) -> Iterable[tuple[str, float]]:
    return zip(_TIMES, _times(call), strict=True)


def _phrases(cause: str) -> Spans:
    """The cause cut where several stand side by side: each may be one of our own words."""
    return joined([(Span(each, word=True),) for each in cause.split("; ") if each], "; ")


def _times(call: Call) -> tuple[float, float, float]:
    return call.trace_ms, call.compile_ms, call.run_ms


def _failure(error: BaseException, signature: Signature) -> str:
    kind = type(error).__name__
    if re.search("as an abstract array|not a valid JAX type", str(error)):
        for name, argument in signature.arguments.items():
            for path, leaf in zip(argument.paths, argument.leaves, strict=True):
                if leaf.aval is None:
                    return f"{kind}: {name}{path} is neither an array nor static: {leaf.other}"
    lines = re.sub(r" at 0x[0-9a-f]+", "", str(error)).strip().splitlines()
    return f"{kind}: {lines[0][:80]}" if lines else kind


def _name(f: Any) -> str:
    """What JAX's events will call f; `_source.name` looks for the function that a person wrote."""
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", type(f).__name__)


def calls(f: Callable[..., Any] | None = None, /, **jit_options: Any) -> Any:
    """`jax.jit` that remembers every call: traced, compiled or cached, how long, and why.

    The result is the same, and so are the exceptions. Each call waits until its result is ready,
    otherwise `run_ms` would be the time of dispatching it; so do not time overlapping work this
    way. Under another transformation there is nothing to wait for.

    Args:
      f: the function, not yet jitted. Left out, `@see.calls(static_argnames="n")` decorates.
        An already jitted f, by `nnx.jit` too, keeps its own options and what it has compiled.
      jit_options: those of `jax.jit`.
    Returns:
      `Calls`, a function that shows its history: `.calls`, `.traces`.
    Raises:
      TypeError: f is not callable.
    Source: durations from `jax.monitoring`; traces counted in Python, or in JAX's cache if f is
      jitted; causes by comparing all that JAX compares with the nearest earlier call, the one
      with the fewest differences.

    >>> import jax.numpy as jnp
    >>> from seejax import see
    >>> @see.calls(static_argnames="n")
    ... def power(x, n):
    ...     return x**n
    >>> _ = power(jnp.arange(3.0), n=2), power(jnp.arange(4.0), n=2), power(jnp.arange(4.0), n=2)
    >>> power.traces
    2
    >>> [call.cause for call in power.calls]
    ['first call', 'x: shape (3,) → (4,)', '']
    """
    if f is None:
        return functools.partial(calls, **jit_options)
    if not callable(f):
        raise TypeError(f"see.calls needs a function, got {type(f).__name__}: {cut(one_line(f))}")
    return Calls(f, jit_options)
