"""`see.calls` against what Python saw: a counter beside the code, a clock around the call."""

import contextlib
import functools
import re
import threading
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seejax import see
from seejax.see import _jax_private


def outcomes(f):
    return [call.outcome for call in f.calls]


def causes(f):
    return [call.cause for call in f.calls]


def test_counts_the_traces_that_python_counts():
    ran = 0

    @see.calls
    def f(x):
        nonlocal ran
        ran += 1
        return x + x

    for shape in [(3,), (3,), (4,), (3,), (4,), (2, 2)]:
        f(jnp.ones(shape))
        assert f.traces == ran
    assert ran == 3
    assert outcomes(f) == ["compiled", "cached", "compiled", "cached", "cached", "compiled"]
    assert [call.cause for call in f.calls if call.outcome == "cached"] == [""] * 3


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        (dict(x=np.ones(3, "f4")), dict(x=np.ones(4, "f4")), "x: shape (3,) → (4,)"),
        (dict(x=np.ones(3, "f4")), dict(x=np.ones(3, "i4")), "x: dtype f32 → i32"),
        (dict(x=np.float32(1)), dict(x=1.0), "x: weak type f32 → f32~"),
        (dict(x=1), dict(x=1.0), "x: dtype i32~ → f32~"),
        (
            dict(x={"w": np.ones(2, "f4"), "b": np.ones(1, "f4")}),
            dict(x={"w": np.ones(2, "f2"), "b": np.ones(1, "f4")}),
            "x['w']: dtype f32 → f16",
        ),
        (dict(x=(1.0, 2.0)), dict(x=[1.0, 2.0]), "x: structure (*, *) → [*, *]"),
        (dict(x={"a": 1.0}), dict(x={"b": 1.0}), "x: structure {'a': *} → {'b': *}"),
        (
            dict(x=np.ones(3, "f4")),
            dict(x=np.ones((2, 3), "i4")),
            "x: shape (3,) → (2, 3); x: dtype f32 → i32",
        ),
    ],
)
def test_names_the_cause(first, second, cause):
    f = see.calls(lambda x: jax.tree.map(lambda leaf: -leaf, x))
    f(**first)
    f(**second)
    f(**second)
    assert outcomes(f) == ["compiled", "compiled", "cached"]
    assert causes(f) == ["first call", cause, ""]


def test_the_cause_is_the_difference_from_the_nearest_earlier_call():
    f = see.calls(lambda x: -x)
    for x in (np.ones(3, "f4"), np.ones((3, 1), "f4"), np.ones(3, "i4")):
        f(x)
    assert f.calls[2].cause == "x: dtype f32 → i32"  # from the first; the second is further off


def test_names_static_values_by_argument():
    @see.calls(static_argnames=("n", "mode"))
    def f(x, n, mode="a"):
        return x**n if mode == "a" else x

    x = jnp.ones(3)
    f(x, n=2)
    f(x, n=3)
    f(x, n=3)
    f(x, 3, "b")
    assert f.calls[1].cause == "n: static 2 → 3"
    assert f.calls[2].outcome == "cached"
    assert f.calls[3].cause == "n: keyword → positional; mode: default → given"
    assert f.calls[0].signature == "x f32[3], n=2 static"
    assert f.calls[3].signature == "x f32[3], n=3 static, mode='b' static"


def test_a_new_object_that_looks_the_same_is_named_as_such():
    @see.calls(static_argnums=0)
    def f(g, x):
        return g(x)

    for _ in range(2):
        f(lambda x: x, 1.0)
    assert "another object" in f.calls[1].cause
    assert "0x" not in str(f)


def test_positional_or_keyword_is_a_cause():
    f = see.calls(lambda x, y: x + y)
    f(1.0, 2.0)
    f(1.0, y=2.0)
    assert f.traces == 2
    assert f.calls[1].cause == "y: positional → keyword"


def test_configuration_is_a_cause():
    f = see.calls(lambda x: x @ x)
    x = jnp.ones((2, 2))
    f(x)
    with jax.default_matmul_precision("float32"):
        f(x)
    assert f.traces == 2
    assert f.calls[1].cause == "config default_matmul_precision: None → float32"


def test_cleared_caches_are_a_cause():
    f = see.calls(lambda x: x + 1)
    f(1.0)
    f.clear_cache()
    f(1.0)
    assert f.traces == 2
    assert causes(f) == ["first call", "caches cleared"]


def test_compares_with_the_nearest_earlier_call():
    f = see.calls(lambda x, y: (x, y))
    f(np.ones(3, "f4"), np.ones(3, "f4"))
    f(np.ones(5, "i4"), np.ones(5, "i4"))
    f(np.ones(3, "f4"), np.ones(4, "f4"))  # one step from the first, two from the second
    assert f.calls[2].cause == "y: shape (3,) → (4,)"


def test_another_device_compiles_without_tracing():
    f = see.calls(lambda x: x * 2)
    for device in jax.devices()[:2]:
        f(jax.device_put(jnp.ones(3), device))
    assert f.traces == 1
    assert outcomes(f) == ["compiled", "recompiled"]
    assert f.calls[1].cause == "x: placement cpu:0 → cpu:1"
    assert f.calls[1].trace_ms == 0 < f.calls[1].compile_ms


def test_a_sharding_is_named():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    f = see.calls(lambda x: x * 2)
    for spec in (jax.P(), jax.P("data")):
        f(jax.device_put(jnp.ones(4), jax.sharding.NamedSharding(mesh, spec)))
    assert f.calls[1].outcome == "recompiled"
    assert f.calls[1].cause == "x: placement P() on (data=2) → P('data') on (data=2)"


def test_returns_what_jit_returns_and_waits_for_it():
    def f(x, n):
        return {"y": jnp.cumsum(x) ** n, "n": n}

    x = jnp.linspace(0, 1, 7)
    ours = see.calls(f, static_argnames="n")(x, n=2)
    theirs = jax.jit(f, static_argnames="n")(x, n=2)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_waits_for_the_result():
    @see.calls
    def slow(x):
        return jax.lax.fori_loop(0, 40, lambda _, y: jnp.tanh(y @ x), x)

    x = jnp.full((400, 400), 1e-3)
    slow(x)
    assert slow(x).is_ready()
    assert slow.calls[1].run_ms > 5  # dispatching takes a tenth of that


def test_raises_what_jit_raises_and_records_it():
    @see.calls
    def f(x):
        if x > 0:
            return x
        return -x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        f(1.0)
    assert outcomes(f) == ["failed"]
    assert f.calls[0].cause.startswith("TracerBoolConversionError: ")
    assert isinstance(f.calls[0].error, jax.errors.TracerBoolConversionError)

    g = see.calls(lambda x, n: x, static_argnames="n")
    with pytest.raises(ValueError, match="Non-hashable"):
        g(1.0, n=[1])
    g(1.0, n=1)
    assert causes(g)[1] == "after a failed call"


def test_times_add_up_to_the_call():
    @see.calls
    def f(x):
        time.sleep(0.05)  # while tracing
        return jnp.sin(x)

    x = jnp.ones(3)
    start = time.perf_counter()
    f(x)
    wall_ms = (time.perf_counter() - start) * 1e3
    call = f.calls[0]
    total = call.trace_ms + call.compile_ms + call.run_ms
    assert 50 <= call.trace_ms < call.trace_ms + call.compile_ms < total <= wall_ms
    f(x)
    assert f.calls[1].trace_ms == f.calls[1].compile_ms == 0 < f.calls[1].run_ms


def test_what_the_trace_compiles_for_itself_is_not_counted_as_this_compile():
    @jax.jit
    def inner(x):
        return jnp.sort(jnp.sin(x) @ jnp.cos(x).T, axis=-1)

    @see.calls
    def f(x):
        with jax.ensure_compile_time_eval():
            inner(jnp.ones((8, 8)))  # compiled while f is traced
        return x

    f(1.0)
    call = f.calls[0]
    assert call.trace_ms > call.compile_ms
    assert call.compile_ms > 0


def test_inside_other_transformations():
    ran = 0

    def f(x):
        nonlocal ran
        ran += 1
        return jnp.sin(x).sum()

    counted = see.calls(f)
    x = jnp.arange(3.0)
    np.testing.assert_allclose(jax.grad(counted)(x), jnp.cos(x), rtol=1e-6)
    assert counted.traces == ran == 1

    batched = jnp.stack([x, x])
    np.testing.assert_allclose(jax.vmap(counted)(batched), jnp.sin(batched).sum(-1), rtol=1e-6)
    assert counted.traces == ran == 1  # vmap sees the same shape and reuses the trace

    inside = see.calls(f)
    jax.jit(lambda x: inside(x) + 1)(x)
    assert outcomes(inside) == ["traced"]
    assert inside.calls[0].trace_ms > 0 == inside.calls[0].compile_ms
    assert inside.traces == 1


def test_nested_calls_keep_their_own_records():
    inner = see.calls(lambda x: x + 1)
    outer = see.calls(lambda x: inner(x) * 2)
    outer(1.0)
    outer(1.0)
    assert outcomes(outer) == ["compiled", "cached"]
    assert outcomes(inner) == ["traced"]


def test_behaves_like_the_function():
    def area(width, height=2.0):
        """Width times height."""
        return width * height

    f = see.calls(area)
    assert f.__name__ == "area"
    assert f.__doc__ == "Width times height."
    assert f.__wrapped__ is area
    assert "mul" in str(f.trace(1.0).jaxpr)

    class Box:
        @see.calls(static_argnums=0)
        def double(self, x):
            return 2 * x

    assert float(Box().double(2.0)) == 4


def test_an_already_jitted_function():
    ran = 0

    @jax.jit
    def f(x):
        nonlocal ran
        ran += 1
        return x * 2

    g = see.calls(f)
    for shape in [(3,), (3,), (4,)]:
        g(jnp.ones(shape))
        assert g.traces == ran
    assert outcomes(g) == ["compiled", "cached", "compiled"]
    assert g.calls[2].cause == "x: shape (3,) → (4,)"


@pytest.mark.parametrize("bad", [3, "f", [abs]])
def test_not_a_function(bad):
    with pytest.raises(TypeError, match=r"see\.calls needs a function"):
        see.calls(bad)


def test_text_and_html_say_the_same():
    @see.calls(static_argnames="label")
    def f(x, label):
        return x

    f(1.0, label="<script>alert(1)</script>")
    with contextlib.suppress(ValueError):
        f(1.0, label=["<b>"])
    text, html = str(f), f._repr_html_()
    assert "calls of f: 2 calls, 1 trace" in text
    assert html.startswith(see.ASSETS)
    page = html.removeprefix(see.ASSETS)
    assert "<script" not in page and "<b>" not in page
    assert "&lt;script&gt;" in page
    assert re.findall(r'<th [^>]*scope="row">(\d)</th>', page) == ["1", "2"]
    for call in f.calls:
        assert call.outcome in text
        assert call.outcome in page
    assert "<caption>" in page and 'scope="col"' in page


def test_what_a_broken_argument_does_not_break():
    class Odd:
        def __repr__(self):
            raise RuntimeError

        def __eq__(self, other):
            raise RuntimeError

        def __hash__(self):
            return 1

    f = see.calls(lambda x, o: x, static_argnames="o")
    f(1.0, o=Odd())
    assert f.calls[0].signature == "x f32~[], o=<Odd> static"


# --- the cause of each kind of miss; JAX's own log is the second opinion on whether it was one


@contextlib.contextmanager
def what_jax_did(caplog, name):
    """Collects from JAX's log, for each step, whether it traced and compiled the function."""
    did = []
    missed = re.compile(rf"TRACING CACHE MISS.*\n  (for|never seen function:\n   ) {name} ")

    def since():
        said = [record.getMessage() for record in caplog.records]
        caplog.clear()
        traced = any(missed.match(message) for message in said)
        compiled = any(f"Finished XLA compilation of jit({name}) " in message for message in said)
        did.append((traced, compiled))

    jax.config.update("jax_explain_cache_misses", True)
    try:
        with jax.log_compiles(), caplog.at_level("WARNING"):
            yield since, did
    finally:
        jax.config.update("jax_explain_cache_misses", False)


OUTCOME = {
    (True, True): "compiled",
    (True, False): "traced",
    (False, True): "recompiled",
    (False, False): "cached",
}


def placed(x, mesh, *spec):
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.P(*spec)))


def test_a_move_to_a_mesh_is_named(caplog):
    x = jnp.ones(4)
    mesh = jax.make_mesh((2,), ("d",))  # explicit axes: a sharding is part of the type
    other = jax.make_mesh((2,), ("d",), devices=jax.devices()[2:4])
    larger = jax.make_mesh((4,), ("d",))
    auto = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    moves = [
        (placed(x, mesh, "d"), "compiled", "x: placement default → P('d') on (d=2)"),
        (placed(x, mesh), "compiled", "x: placement P('d') on (d=2) → P() on (d=2)"),
        (placed(x, larger, "d"), "compiled", "x: placement P() on (d=2) → P('d') on (d=4)"),
        (
            placed(x, other, "d"),
            "recompiled",
            "x: placement P('d') on (d=2 Explicit) of devices 0, 1 → "
            "P('d') on (d=2 Explicit) of devices 2, 3",
        ),
        (
            placed(x, auto, "d"),
            "compiled",
            "x: placement P('d') on (d=2 Explicit) of devices 2, 3 → "
            "P('d') on (d=2 Auto) of devices 0, 1",
        ),
        (placed(x, auto), "recompiled", "x: placement P('d') on (d=2) → P() on (d=2)"),
    ]

    @see.calls
    def moved(x):
        return x + 1

    with what_jax_did(caplog, "moved") as (since, did):
        moved(x)
        since()
        for array, _, _ in moves:
            moved(array)
            since()
    assert outcomes(moved)[1:] == [outcome for _, outcome, _ in moves]
    assert causes(moved)[1:] == [cause for _, _, cause in moves]
    assert outcomes(moved) == [OUTCOME[done] for done in did]

    to_auto = see.calls(lambda x: x)
    to_auto(x)
    to_auto(placed(x, auto))
    assert causes(to_auto)[1] == "x: placement default → P() on (d=2)"


def test_committing_to_a_device_is_named():
    x = jnp.ones(4)
    f = see.calls(lambda x: x + 1)
    for place in (None, jax.devices()[0], jax.devices()[1]):
        f(x if place is None else jax.device_put(x, place))
    host = jax.sharding.SingleDeviceSharding(jax.devices()[1], memory_kind="pinned_host")
    f(jax.device_put(x, host))
    assert outcomes(f) == ["compiled", "recompiled", "recompiled", "compiled"]
    assert causes(f)[1] == "x: placement default → cpu:0"
    assert causes(f)[2] == "x: placement cpu:0 → cpu:1"
    assert causes(f)[3] == "x: memory Device → Host"


def test_a_placement_is_no_cause_of_a_trace_for_another_shape():
    f = see.calls(lambda x: x + 1)
    for size, device in ((3, 0), (4, 1)):
        f(jax.device_put(jnp.ones(size), jax.devices()[device]))
    assert causes(f)[1] == "x: shape (3,) → (4,)"


@pytest.mark.parametrize("options", [dict(static_argnames="n"), dict(static_argnums=1)])
def test_statics_of_a_function_that_is_already_jitted(options):
    def power(x, n):
        return x**n

    f = see.calls(jax.jit(power, **options))
    x = jnp.ones(3)
    for n in (2, 3, 3):
        f(x, n)
    f(x, n=3)
    assert causes(f) == ["first call", "n: static 2 → 3", "", "n: positional → keyword"]
    assert f.calls[1].signature == "x f32[3], n=3 static"
    ours = see.calls(power, **options)
    for n in (2, 3):
        ours(x, n)
    assert causes(ours)[1] == "n: static 2 → 3"


def test_what_jax_takes_for_the_same_static_value(caplog):
    @see.calls(static_argnames="n")
    def same(x, n):
        return x

    nan = float("nan")
    with what_jax_did(caplog, "same") as (since, did):
        for n in (1, True, 1.0, 0.0, -0.0, (1,), (True,), nan, nan, float("nan"), "a"):
            same(1.0, n=n)
            since()
    assert outcomes(same) == [OUTCOME[done] for done in did]
    assert causes(same)[1] == "n: static 1 → True"
    assert outcomes(same)[4] == outcomes(same)[6] == outcomes(same)[8] == "cached"
    assert causes(same)[9] == "n: static nan → nan (another object)"
    assert "unknown" not in causes(same)


def test_both_option_lists_are_taken_literally_as_jit_does():
    f = see.calls(lambda x, n, mode="a": x, static_argnames="n", static_argnums=2)
    f(1.0, n=3)
    f(1.0, 3, "b")  # by position n is not static: JAX infers names from numbers for one list only
    assert f.calls[1].signature == "x f32~[], n i32~[], mode='b' static"
    assert "n: static → array" in f.calls[1].cause


def test_a_transformation_of_a_jitted_function_is_no_jitted_function():
    f = see.calls(jax.vmap(jnp.sin))  # jnp.sin is jitted, and vmap copies its attributes
    f(jnp.ones(3)), f(jnp.ones(3))
    assert [call.outcome for call in f.calls] == ["compiled", "cached"]
    assert see.trace(jax.vmap(jnp.sin), jnp.ones(3)).exact


def test_transformations_are_named(caplog):
    ran = 0

    @see.calls
    def wave(x):
        nonlocal ran
        ran += 1
        return jnp.sin(x).sum()

    x = jnp.ones(2)
    steps = [
        (lambda: jax.vmap(wave)(jnp.ones((3, 2))), "first call"),
        (lambda: jax.vmap(wave)(jnp.ones((4, 2))), "under vmap: x: batch size 3 → 4"),
        (lambda: jax.vmap(wave, 1)(jnp.ones((2, 4))), "under vmap: x: batch axis 0 → 1"),
        (lambda: jax.vmap(wave, 1)(jnp.ones((2, 4))), ""),
        (lambda: jax.grad(wave)(x), "under grad"),
        (lambda: jax.hessian(wave)(x), "under vmap of jvp of grad"),
        (lambda: jax.grad(lambda x: jax.grad(wave)(x).sum())(x), "under grad of grad"),
        (lambda: jax.jit(lambda x: wave(x) * 2)(x), ""),
        (lambda: wave(x), "not under a transformation"),
        (lambda: jax.vmap(wave, axis_name="i")(jnp.ones((3, 2))), "config named axes: () → (i=3)"),
    ]
    with what_jax_did(caplog, "wave") as (since, did):
        for step, _ in steps:
            step()
            since()
    assert causes(wave) == [cause for _, cause in steps]
    # A transformation traces what it made of wave under the same name, but does not run wave.
    assert [outcome != "cached" for outcome in outcomes(wave)] == [any(done) for done in did]
    assert wave.traces == ran == 2


def test_which_argument_is_transformed_is_named():
    f = see.calls(lambda x, y: (x * y).sum())
    x = jnp.ones(3)
    jax.grad(f)(x, x)
    jax.grad(f, argnums=(0, 1))(x, x)
    assert causes(f)[1] == "under grad: y: differentiated no → yes"
    g = see.calls(lambda x: x * 2)
    g(1.0)
    jax.vmap(lambda y: g(1.0) * y)(x)  # a vmap compiles anew what it does not batch
    assert causes(g)[1] == "under vmap"


def test_kinds_of_derivatives_are_told_apart():
    f = see.calls(lambda x: jnp.sin(x))
    f(1.0)
    jax.jvp(f, (1.0,), (1.0,))
    jax.linearize(f, 1.0)
    jax.vjp(f, 1.0)
    assert causes(f) == ["first call", "under jvp", "under linearize", "under grad"]


def test_within_shard_map():
    mesh = jax.make_mesh((2,), ("d",))
    f = see.calls(lambda x: x * 2)
    jax.shard_map(f, mesh=mesh, in_specs=jax.P("d"), out_specs=jax.P("d"))(
        placed(jnp.ones(4), mesh, "d")
    )
    f(jnp.ones(2))
    assert f.calls[0].signature == "x f32[2]{V:d}"
    assert "config named axes: (d=2) → ()" in causes(f)[1]


def test_aux_data_of_another_object_that_looks_the_same():
    class Note:
        def __repr__(self):
            return "Note"

    @jax.tree_util.register_pytree_node_class
    class Noted:
        def __init__(self, x, note):
            self.x, self.note = x, note

        def tree_flatten(self):
            return (self.x,), self.note

        @classmethod
        def tree_unflatten(cls, note, children):
            return cls(*children, note)

    f = see.calls(lambda noted: noted.x)
    f(Noted(1.0, Note()))
    f(Noted(1.0, Note()))
    one = "CustomNode(Noted[Note], [*])"
    assert causes(f)[1] == f"noted: structure {one} → {one} (another object)"


def test_all_that_jax_keys_its_traces_by_is_compared(caplog):
    from jax._src import config as private  # no public context manager for two of them
    from jax.experimental.xla_metadata import set_xla_metadata

    @see.calls
    def same(x):
        return x + 1

    x = jnp.ones(4)
    mesh = jax.make_mesh((2,), ("d",))
    other = jax.make_mesh((2,), ("d",), devices=jax.devices()[2:4])
    steps = [
        (lambda: set_xla_metadata(a=1), "xla_metadata: None → {'a': 1}"),
        (lambda: set_xla_metadata(a=2), "xla_metadata: {'a': 1} → {'a': 2}"),
        (lambda: jax.ensure_compile_time_eval(), "eager_constant_folding: False → True"),
        (lambda: jax.debug_key_reuse(True), "debug_key_reuse: False → True"),
        (lambda: private.random_seed_offset(3), "random_seed_offset: 0 → 3"),
        (lambda: private.use_direct_linearize(False), "use_direct_linearize: True → False"),
        (lambda: jax.default_device(jax.devices()[1]), "default_device: None → CpuDevice(id=1)"),
        (lambda: jax.set_mesh(mesh), "abstract_mesh: "),
        (
            lambda: jax.set_mesh(other),
            "mesh: (d=2 Explicit) of devices 0, 1 → (d=2 Explicit) of devices 2",
        ),
        (lambda: jax.numpy_dtype_promotion("standard"), "numpy_dtype_promotion: strict → standard"),
    ]
    with what_jax_did(caplog, "same") as (since, did):
        same(x)
        since()
        for setting, _ in steps:
            with setting():
                same(x)
            since()
        same(x)
        since()
    for cause, (_, expected) in zip(causes(same)[1:-1], steps, strict=True):
        assert cause.startswith("config " + expected)
    assert [OUTCOME[done] for done in did] == outcomes(same)
    assert outcomes(same)[0::8] == ["compiled", "compiled"] and outcomes(same)[-1] == "cached"


def test_the_settings_come_from_jax_itself():
    before = _jax_private.trace_context()
    assert before["jax_enable_x64"] is False and len(before) > 40
    with jax.enable_x64(True):
        after = _jax_private.trace_context()
    assert [name for name in before if before[name] != after[name]] == ["jax_enable_x64"]


def test_caches_cleared_only_if_they_were():
    f = see.calls(lambda x: x + 1)
    f(1.0)
    f(jnp.ones(2))
    jax.clear_caches()
    f(jnp.ones(3))  # would have been traced in any case
    f(1.0)
    assert causes(f)[2:] == ["x: shape (2,) → (3,)", "caches cleared"]

    g = jax.jit(lambda x: x * 3)
    watched = see.calls(g)
    watched(1.0)
    g.clear_cache()  # not through see.calls
    watched(1.0)
    assert causes(watched)[1] == "caches cleared"


def test_what_is_not_known_is_unknown(monkeypatch):
    monkeypatch.setattr(_jax_private, "trace_context", dict)  # a JAX that keeps it to itself
    f = see.calls(lambda x: x + 1)
    f(1.0)
    with jax.default_matmul_precision("float32"):
        f(1.0)
    assert outcomes(f) == ["compiled", "compiled"]
    assert causes(f)[1] == "unknown"


def test_a_function_that_was_compiled_before():
    g = jax.jit(lambda x: x * 3)
    g(jnp.ones(4))
    f = see.calls(g)
    f(jnp.ones(4))
    g(jnp.ones(5))  # beside see.calls
    f(jnp.ones(5))
    f(jnp.ones(6))
    assert outcomes(f) == ["cached", "cached", "compiled"]
    assert causes(f)[2] == "x: shape (5,) → (6,)" and f.traces == 1

    h = see.calls(jax.jit(lambda x: x.sum()))
    jax.grad(h)(jnp.ones(3))  # not at the top level, where JAX would report the trace
    jax.jit(h)(jnp.ones(4))
    assert h.traces == 2 and outcomes(h)[1] == "traced"


def test_traced_ahead_of_the_call():
    f = see.calls(lambda x: x + 2)
    f.lower(jnp.ones(4))
    f(jnp.ones(4))
    f.lower(jax.ShapeDtypeStruct((5,), "float32")).compile()
    f(jnp.ones(5))
    f.eval_shape(jnp.ones(6))
    f(jnp.ones(6))
    assert outcomes(f) == ["recompiled", "cached", "recompiled"]
    assert causes(f) == ["traced before, not compiled", "", "traced before, not compiled"]
    assert f.traces == 3


def test_disable_jit_is_its_own_outcome():
    f = see.calls(lambda x: x + 1)
    with jax.disable_jit():
        f(1.0)
    assert (f.calls[0].outcome, f.calls[0].cause) == ("eager", "not jitted: disable_jit")
    assert f.traces == 0 and f.calls[0].trace_ms == f.calls[0].compile_ms == 0
    f(1.0)
    assert causes(f)[1] == "first call that is jitted"


def test_the_search_for_a_nan_is_no_trace():
    f = see.calls(lambda x: jnp.log(x))
    with jax.debug_nans(True):
        f(1.0)
        with pytest.raises(FloatingPointError):
            f(-1.0)  # JAX runs it again, op by op
    assert f.traces == 1 and outcomes(f) == ["compiled", "failed"]


@pytest.mark.parametrize("jitted", [False, True])
def test_six_threads(jitted):
    def double(x):
        return x * 2

    f = see.calls(jax.jit(double) if jitted else double)
    ready = threading.Barrier(6)

    def work():
        ready.wait()
        for i in range(40):
            f(jnp.ones(i % 5 + 1))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(call.times for call in f.calls) == 240 and f.traces == 5
    assert sum(call.times for call in f.calls if call.outcome == "cached") == 235
    assert len(f.calls) == 5 + 5 * 8
    assert "unknown" not in causes(f)


def test_what_is_neither_an_array_nor_static():
    f = see.calls(lambda x, mode: x)
    for mode, told in (("a", "mode is neither an array nor static: 'a'"), ([object()], "mode[0]")):
        with pytest.raises(TypeError):
            f(1.0, mode)
        assert f.calls[-1].cause.startswith(f"TypeError: {told}")
        assert "static" not in f.calls[-1].signature
    assert f.calls[0].signature == "x f32~[], mode 'a' (no array)"
    assert "0x" not in str(f)
    with pytest.raises(OverflowError):
        f(1.0, 2**40)


def test_a_hit_costs_little():
    def total(leaves):
        return sum(leaves.values())

    leaves = {f"k{i}": jnp.ones(3) for i in range(300)}
    jitted, seen = jax.jit(total), see.calls(total)

    def best(f):
        times = []
        for _ in range(40):
            start = time.perf_counter()
            jax.block_until_ready(f(leaves))
            times.append((time.perf_counter() - start) * 1e3)
        return min(times[1:])

    jit_ms, seen_ms = best(jitted), best(seen)
    # Paths and text for every leaf took forty times as long as jit; types alone, about three.
    assert seen_ms < 15 * jit_ms
    # The record is made outside of the run.
    assert min(call.run_ms for call in seen.calls[1:]) < 4 * jit_ms


def test_cached_calls_of_a_long_loop_share_a_row():
    f = see.calls(lambda x, n: x * n, static_argnames="n")
    long, short = jnp.ones(4), jnp.ones(3)
    for i in range(100):
        f(long, n=2)
        if i % 10 == 9:
            f(short, n=2)
    f(short, n=3)
    f(long, n=2)
    assert sum(call.times for call in f.calls) == 112
    assert len(f.calls) == 3 + 2 * 8
    assert [c.times for c in f.calls if c.signature.startswith("x f32[4]")] == [1] * 8 + [93]
    assert [c.times for c in f.calls if c.signature.startswith("x f32[3], n=2")] == [1] * 8 + [2]
    assert f.calls[-1].cause == "n: static 2 → 3" and f.traces == 3
    lines = str(f).splitlines()
    assert lines[0].endswith("112 calls, 3 traces") and any("cached × 93" in x for x in lines)
    assert lines[-1].split()[0] == "111"  # its number among the calls
    assert "cached" in f.html() and " × 93" in f.html()


@pytest.mark.parametrize("jitted", [False, True])
def test_what_happens_after_many_cached_calls_is_still_told(jitted, caplog):
    def plus(x, y):
        return x + y

    f = see.calls(jax.jit(plus) if jitted else plus)
    x, devices = jnp.ones(4), jax.devices()
    for _ in range(20):
        f(x, 1.0)
    f(jax.device_put(x, devices[1]), 1.0)
    assert f.calls[-1].outcome == "recompiled" and f.calls[-1].cause.startswith("x: placement")
    f(jax.device_put(x, devices[1]), 1.0)  # cached now; a row tells no more than shapes
    assert sum(call.times for call in f.calls) == 22
    with jax.numpy_rank_promotion("warn"):
        f(x, 1.0)
    assert f.calls[-1].outcome == "compiled" and "config numpy_rank_promotion" in f.calls[-1].cause
    f.clear_cache()
    f(x, 1.0)
    assert (f.calls[-1].outcome, f.calls[-1].cause) == ("compiled", "caches cleared")
    with pytest.raises(TypeError):
        f(x, "no array")
    assert f.calls[-1].outcome == "failed"
    f(x, 2)
    assert f.calls[-1].cause == "y: dtype f32~ → i32~"
    with jax.disable_jit():
        f(x, 1.0)
    assert f.calls[-1].outcome == "eager"
    f(x, 1.0)
    assert sum(call.outcome == "cached" for call in f.calls) >= 8


def test_it_keeps_no_array_alive():
    f = see.calls(lambda x: x + 1, donate_argnums=0)
    x = jnp.ones(4)
    gone = weakref.ref(x)
    y = f(x)
    del x
    assert gone() is None
    f(y)
    assert outcomes(f) == ["compiled", "cached"]


def test_hears_jax_after_all_listeners_were_cleared():
    kept = _jax_private.monitoring.get_event_duration_listeners()
    jax.monitoring.clear_event_listeners()
    try:
        f = see.calls(lambda x: x + 5)
        f(1.0)
        f(2.0)
    finally:
        for listener in kept:
            if not _jax_private.listening(listener):
                jax.monitoring.register_event_duration_secs_listener(listener)
    assert outcomes(f) == ["compiled", "cached"] and f.calls[0].compile_ms > 0


def test_recursion_is_told_in_the_order_in_which_calls_began():
    @see.calls(static_argnames="n")
    def factorial(x, n):
        return x if n == 0 else n * factorial(x, n=n - 1)

    assert factorial(1.0, n=3) == 6
    assert outcomes(factorial) == ["compiled", "traced", "traced", "traced"]
    assert causes(factorial) == [
        "first call",
        "n: static 3 → 2",
        "n: static 2 → 1",
        "n: static 1 → 0",
    ]


def test_a_watched_function_watched_again():
    inner = see.calls(lambda x: x + 1)
    outer = see.calls(inner)
    outer(jnp.ones(3))
    outer(jnp.ones(3))
    assert outcomes(outer) == outcomes(inner) == ["compiled", "cached"]


def test_variadic_and_doubled_names():
    f = see.calls(lambda *rest, **named: rest)
    f(1.0)
    f(1.0, 2.0)
    f(1.0, b=1.0, a=2.0)
    f(1.0, a=2.0, b=1.0)
    assert causes(f)[1:3] == ["rest[1]: absent → given", "b: absent → given; a: absent → given"]
    assert outcomes(f)[3] == "cached"

    def g(x, /, **named):
        return x + named["x"]

    doubled = see.calls(g)
    with contextlib.suppress(AssertionError):  # of JAX 0.12 itself
        doubled(1.0, x=2.0)
    assert doubled.calls[0].signature == "x f32~[], x by name f32~[]"


def test_an_instance_as_static_self():
    class Scale:
        def __init__(self, by):
            self.by = by

        @functools.partial(see.calls, static_argnums=0)
        def times(self, x):
            return self.by * x

        def __repr__(self):
            return f"Scale({self.by})"

    one, two = Scale(1.0), Scale(2.0)
    one.times(3.0), two.times(3.0), one.times(4.0)
    assert causes(Scale.times) == ["first call", "self: static Scale(1.0) → Scale(2.0)", ""]


def test_what_many_leaves_share_is_told_once():
    f = see.calls(lambda tree: tree)
    f({f"k{i}": jnp.ones(3) for i in range(20)})
    f({f"k{i}": jnp.ones(4) for i in range(20)})
    assert causes(f)[1] == "tree['k0'] and 19 more: shape (3,) → (4,)"


def test_long_values_are_cut_where_they_differ():
    f = see.calls(lambda x, names: x, static_argnames="names")
    names = tuple(f"name{i}" for i in range(50))
    f(1.0, names=names)
    f(1.0, names=(*names[:40], "other", *names[41:]))
    assert "'other'" in causes(f)[1] and len(causes(f)[1]) < 120


def test_keys_and_refs_have_types_too():
    f = see.calls(lambda x: x)
    f(jax.random.key(0))
    f(jax.random.key(0, impl="rbg"))
    assert causes(f)[1] == "x: dtype key<fry> → key<rbg>"
    g = see.calls(lambda ref: ref[...])
    g(jax.new_ref(jnp.ones(3)))
    assert g.calls[0].signature == "ref Ref{f32[3]}"


def test_over_nnx_jit():
    nnx = pytest.importorskip("flax.nnx")
    module = nnx.Linear(2, 3, rngs=nnx.Rngs(0))

    @see.calls
    @nnx.jit(static_argnames="k")
    def apply(module, x, k):
        return k * module(x)

    for rows, k in ((4, 1), (4, 1), (5, 1), (5, 2)):
        apply(module, jnp.ones((rows, 2)), k)
    assert outcomes(apply) == ["compiled", "cached", "compiled", "compiled"]
    assert causes(apply)[2:] == ["x: shape (4, 2) → (5, 2)", "k: static 1 → 2"]
    assert apply.traces == 3


def test_fails_and_then_succeeds():
    ready = False

    @see.calls
    def late(x):
        if not ready:
            raise RuntimeError("not yet")
        return x

    with pytest.raises(RuntimeError):
        late(1.0)
    ready = True
    late(1.0)
    late(1.0)
    ready = False
    with pytest.raises(RuntimeError):
        late(jnp.ones(2))
    ready = True
    late(jnp.ones(2))
    assert outcomes(late) == ["failed", "compiled", "cached", "failed", "compiled"]
    assert causes(late)[1] == "after a failed call"
    assert causes(late)[4].startswith("x: shape () → (2,)")
