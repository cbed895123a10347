"""`see.calls` against what Python saw: a counter beside the code, a clock around the call."""

import contextlib
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seejax import see


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
    assert 50 <= call.trace_ms < total <= wall_ms
    assert total > 0.8 * wall_ms  # the rest is the bookkeeping of the record itself
    f(x)
    assert f.calls[1].trace_ms == f.calls[1].compile_ms == 0 < f.calls[1].run_ms < 50


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
