"""`see.timeline` against threads that say who they are, listeners of JAX, and clocks' order."""

import gc
import itertools
import threading
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
import optax
import pytest

from seejax import see
from seejax.see import _jax_private, _profile
from seejax.see._profile import Event, _outermost
from seejax.see._timeline import _merged


@jax.jit
def work(a):
    return a @ a @ a @ a


@pytest.fixture(scope="module")
def a():
    a = jnp.full((600, 600), 1 / 600)
    work(a).block_until_ready()
    return a


def kinds(t):
    return [event.kind for event in t.host]


def test_dispatch_runs_ahead_and_a_read_waits(a):
    float(work(a)[0, 0])
    with see.timeline() as t:
        y = a
        for _ in range(8):
            y = work(y)
        float(y[0, 0])
    calls = [event for event in t.calls if event.name == "work"]
    runs = [event for event in t.runs if event.name == "work"]
    assert len(calls) == len(runs) == 8 and not t.unfinished
    assert calls[-1].end_us < runs[-1].start_us
    for call, run in zip(calls, runs, strict=True):
        assert call.start_us < run.start_us < run.end_us < t.waits[-1].end_us
    for one, next_ in itertools.pairwise(runs):  # each needs the one before
        assert one.end_us <= next_.start_us and not one.overlaps(next_)
    assert {run.lane for run in runs} == {"device 0"} and t.device == t.runs
    assert not any(run.inline for run in runs)
    assert t.events == tuple(sorted(t.events, key=lambda e: (e.start_us, -e.end_us)))


def test_inline_is_what_the_thread_itself_says(a):
    seen = []
    tell = jax.jit(
        lambda v: jax.debug.callback(lambda _: seen.append(threading.get_ident()), v[0, 0])
    )
    tell(a), jax.effects_barrier()
    for argument in (lambda: a), (lambda: work(work(work(a)))):
        seen.clear()
        with see.timeline() as t:
            tell(argument()), jax.effects_barrier()
        (run,) = (run for run in t.runs if "lambda" in run.name)
        assert run.inline == (seen == [threading.get_ident()])


def test_phases_of_a_first_call_last_as_long_as_jax_says():
    said = []

    def listen(event, duration, **_):
        said.append((event.split("/")[-1], duration))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        with see.timeline() as t:
            jax.jit(lambda x: jnp.cos(x) + jnp.tanh(x))(jnp.ones(3)).block_until_ready()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    compiled = [1e6 * duration for name, duration in said if name == "backend_compile_duration"]
    shown = [event.duration_us for event in t.host if event.kind == "compile"]
    assert np.allclose(shown, compiled, atol=0.01)
    call = next(event for event in t.calls if "lambda" in event.name)
    phases = [e for e in t.host if e.overlaps(call) and e.kind in ("trace", "lower", "compile")]
    assert [event.kind for event in phases] == ["trace", "lower", "compile"]
    assert call.start_us <= phases[0].start_us and phases[-1].end_us <= call.end_us
    run = next(run for run in t.runs if "lambda" in run.name)
    assert phases[-1].end_us < run.start_us


def test_a_second_call_has_no_phases(a):
    with see.timeline() as t:
        work(a).block_until_ready()
    assert [kind for kind in kinds(t) if kind != "wait"] == ["call"]


def test_a_program_compiled_ahead_of_time_keeps_its_name(a):
    compiled = work.lower(a).compile()
    compiled(a).block_until_ready()
    with see.timeline() as t:
        compiled(a).block_until_ready()
    assert [event.name for event in (*t.calls, *t.runs)] == ["work", "work"]


def test_marks_and_threads_have_their_lanes(a):
    def load(t, name):
        with t.mark(name):
            time.sleep(0.02)

    with see.timeline() as t:
        with t.mark("outer"), t.mark("in#ner"):
            work(a).block_until_ready()
        threads = [threading.Thread(target=load, args=(t, f"load {i}")) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    marks = {event.name: event for event in t.events if event.kind == "mark"}
    assert set(marks) == {"outer", "in♯ner", "load 0", "load 1"}
    assert marks["outer"].lane == "Python" and marks["outer"] in t.host
    assert {marks["load 0"].lane, marks["load 1"].lane} == {"thread 2", "thread 3"}
    for i in range(2):
        assert marks[f"load {i}"].duration_us > 19_000
        assert marks[f"load {i}"].start_us > marks["outer"].end_us
    assert marks["outer"].overlaps(t.runs[0])
    assert "thread 2" in str(t) and "线程 2" in t.html()


def test_steps_and_named_annotations_are_marks(a):
    def load(n):
        with jax.profiler.TraceAnnotation("load", batch=n):
            time.sleep(0.01)

    def steps():
        for n in range(3):
            with jax.profiler.StepTraceAnnotation("train", step_num=n):
                load(n)
                work(a).block_until_ready()
        with jax.profiler.StepTraceAnnotation("last"), jax.profiler.TraceAnnotation("other"):
            pass

    with see.timeline("load") as t:
        steps()
        thread = threading.Thread(target=load, args=(3,))
        thread.start(), thread.join()
    marks = [event for event in t.events if event.kind == "mark"]
    loads = [event for event in marks if event.name == "load"]
    trains = [event for event in marks if event.name.startswith("train")]
    assert [event.name for event in trains] == ["train 0", "train 1", "train 2"]
    assert len(loads) == 4 and len(marks) == 8 and marks[-2].name == "last"
    assert [event.lane for event in loads] == ["Python"] * 3 + ["thread 2"]
    for load_, train in zip(loads, trains, strict=False):
        assert train.start_us <= load_.start_us and load_.end_us <= train.end_us
    assert len([call for call in t.calls if call.name == "work"]) == 3  # not hidden by a step
    assert "train 1" in str(t)
    with see.timeline() as t:
        steps()
    assert len([event for event in t.events if event.kind == "mark"]) == 4
    with pytest.raises(TypeError, match="must be a string, not 3"):
        see.timeline(3)


def test_each_device_has_its_lane(a):
    assert len(jax.devices()) == 8
    on_three = jax.device_put(a, jax.devices()[3])
    mesh = jax.make_mesh((8,), ("d",), (jax.sharding.AxisType.Auto,))
    spread = jax.device_put(a, jax.NamedSharding(mesh, jax.P("d")))
    for v, lanes in ((on_three, ["device 3"]), (spread, [f"device {i}" for i in range(8)])):
        work(v).block_until_ready()
        with see.timeline() as t:
            work(v).block_until_ready()
        assert sorted({run.lane for run in t.runs}) == lanes and len(t.calls) == 1


@jax.numpy_dtype_promotion("standard")  # Optax counts in int32
def test_modules_and_optimizers_that_nobody_here_wrote():
    model, optimizer = nn.Dense(3), optax.adam(1e-3)
    x = jnp.ones((4, 5))
    params = model.init(jax.random.key(0), x)
    state = optimizer.init(params)

    @jax.jit
    def train(params, state):
        grads = jax.grad(lambda p: jnp.square(model.apply(p, x)).sum())(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state

    def all_of_it():
        model.apply(params, x)
        return train(params, state), jax.scipy.special.logsumexp(x), jnp.linalg.eigh(x.T @ x)

    plain = jax.block_until_ready(all_of_it())
    with see.timeline() as t:
        shown = jax.block_until_ready(all_of_it())
    assert jax.tree.all(jax.tree.map(lambda u, v: bool((u == v).all()), plain, shown))
    assert not t.unfinished and "train" in {run.name for run in t.runs}
    assert {call.name for call in t.calls} >= {"train"}
    assert "compile" not in kinds(t)  # all was compiled before; Flax traces again


def test_many_small_events_are_all_there_and_few_are_drawn():
    add = jax.jit(lambda v: v + 1)
    v = add(jnp.ones(3))
    with see.timeline() as t:
        for _ in range(200):
            v = add(v)
        time.sleep(0.05)
        float(v[0])
    assert len([call for call in t.calls if "lambda" in call.name]) == 200
    assert all(run.inline for run in t.runs if "lambda" in run.name)
    assert len(str(t).splitlines()) < 40 and t.html().count("data-e=") < 80


def test_an_exception_passes_and_what_happened_is_kept(a):
    with pytest.raises(ZeroDivisionError), see.timeline() as t:
        work(a).block_until_ready()
        raise ZeroDivisionError
    assert [event.kind for event in t.runs] == ["run"]
    with see.timeline() as after:  # nothing is left behind
        work(a).block_until_ready()
    assert len(after.runs) == 1
    assert not _jax_private.listening(_profile.listen)


def test_profiles_do_not_nest(a, tmp_path):
    with see.timeline() as t:
        with pytest.raises(RuntimeError, match="another profile is running"), see.timeline():
            pass
        work(a).block_until_ready()
    assert len(t.runs) == 1
    jax.profiler.start_trace(tmp_path)
    with pytest.raises(RuntimeError, match="another profile is running"), see.timeline():
        pass
    jax.profiler.stop_trace()
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_what_a_timeline_refuses():
    t = see.timeline()
    assert str(t) == "timeline: not recorded yet" and "还没有记录完" in t.html()
    with pytest.raises(RuntimeError, match="when its with block has ended"):
        _ = t.events
    with pytest.raises(TypeError, match="must be a string, not 3"):
        t.mark(3)
    with t:
        pass
    with pytest.raises(RuntimeError, match="records one block"), t:
        pass


def test_an_empty_profile_says_so():
    with see.timeline() as t:
        pass
    assert t.events == () and t.unfinished == 0
    assert str(t) == "timeline: nothing was recorded" and "什么也没有记录到" in t.html()


def test_a_program_that_has_not_ended_is_counted(a):
    with see.timeline() as t:
        y = work(work(work(work(work(a)))))
    y.block_until_ready()
    assert len(t.runs) + t.unfinished == 5 and t.unfinished > 0
    assert "not ended with the block" in str(t)


def test_its_folder_is_gone(a, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with see.timeline():
        work(a).block_until_ready()
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_what_is_inside_a_trace_is_left_out():
    def event(kind, start, end):
        return Event(kind, kind, "Python", start, end)

    whole = [event("mark", 0, 9), event("call", 1, 8), event("trace", 2, 5)]
    inner = [event("call", 3, 4), event("trace", 3, 4), event("compile", 3, 4)]
    after = [event("compile", 5, 7), event("call", 5.5, 6), event("read", 8, 9)]
    found = sorted([*whole, *inner, *after], key=lambda e: (e.start_us, -e.end_us))
    assert _outermost(found) == [*whole, after[0], after[2]]


def test_wide_neighbours_are_not_merged():
    wide = [Event("run", "f", "device 0", 10.0 * i, 10.0 * i + 9.9) for i in range(5)]
    assert [len(group) for group in _merged(wide, 50.0)] == [1] * 5
    thin = [Event("run", "f", "device 0", 0.01 * i, 0.01 * i + 0.005) for i in range(5)]
    assert [len(group) for group in _merged([*thin, *wide[1:]], 50.0)] == [5, 1, 1, 1, 1]


def test_a_program_that_has_not_ended_is_counted_and_not_shown_as_if_it_had() -> None:
    long = jax.jit(lambda v: jnp.sin(v @ v @ v @ v) @ v @ v @ v)
    x = jnp.full((1500, 1500), 0.0005)
    long(x).block_until_ready()
    with see.timeline() as t:
        result = long(x)
        time.sleep(0.05)  # some of its operations have ended
    running = not result.is_ready()
    assert len(t.runs) + t.unfinished == 1 and (t.unfinished or not running)
    before = [long(x) for _ in range(2)]
    with see.timeline() as t:
        before[-1].block_until_ready()
        after = [long(x) for _ in range(3)]
    running = not after[0].is_ready()
    assert t.unfinished == 3 or not running
    jax.block_until_ready(after)


def test_runs_have_the_name_of_their_own_function() -> None:
    def f(v):
        return v @ v

    def _f(v):
        return v @ v @ v

    def f_(v):
        return v @ v - 1

    x, jitted = jnp.ones((99, 99)), [jax.jit(g) for g in (f, _f, f_, lambda v: v @ v + 1)]
    for g in jitted:
        g(x).block_until_ready()
    with see.timeline() as t:
        for g in reversed(jitted):
            g(x).block_until_ready()
    assert [call.name for call in t.calls] == ["<lambda>", "f_", "_f", "f"]
    assert [run.name for run in t.runs] == ["<lambda>", "f", "_f", "f"]  # JAX's own name of f_
