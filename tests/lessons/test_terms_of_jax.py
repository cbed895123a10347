"""What docs/data/terms.toml says of JAX, tried out."""

import functools
import logging
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from book.author import pairs
from seejax import see
from seejax.entmax import entmax

ROOT = Path(__file__).parents[2]
TERMS: dict[str, dict] = tomllib.loads((ROOT / "docs" / "data" / "terms.toml").read_text("utf8"))
CHINESE = sorted((ROOT / "docs" / "zh").rglob("*.md"))
MARKDOWN = pairs.markdown()

# -- each sentence in a world where it would be false ---------------------------------------------

CHECKS: dict[str, Callable[[], None]] = {}

# Words that say how the book speaks, or what mathematics and training mean by them.
DEFINED = {"argument", "batch", "epoch", "closed-form", "checkpoint", "training-state"}
DEFINED |= {"code-cell", "notebook", "simplex"}


def check(*names: str) -> Callable:
    def add(function: Callable[[], None]) -> Callable[[], None]:
        CHECKS.update(dict.fromkeys(names, function))
        return function

    return add


@contextmanager
def captured(name: str) -> Iterator[list[str]]:
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def flops(function: Callable, *args: jax.Array) -> float:
    return jax.jit(function).lower(*args).compile().cost_analysis()["flops"]


def tracer_of(transform: Callable) -> str:
    seen = []
    transform(lambda x: seen.append(str(x)) or x * x)(3.0)
    return seen[0]


@check("transformation")
def transformations_stack() -> None:
    assert jax.jit(jax.vmap(jax.grad(jnp.sin)))(jnp.zeros(2)).tolist() == [1.0, 1.0]


@check("tracing", "side-effect", "pure-function")
def python_acts_while_tracing() -> None:
    seen, scale = [], [1.0]
    f = jax.jit(lambda x: seen.append(1) or x * scale[0])
    assert (f(1.0), f(2.0), len(seen)) == (1.0, 2.0, 1)
    scale[0] = 5.0  # not pure, nobody objects, and the result is out of date
    assert f(1.0) == 1.0 and jax.grad(lambda x: x * scale[0])(1.0) == 5.0
    ones = np.ones(3, "float32")
    for sin, recorded in ((np.sin, False), (jnp.sin, True)):  # of a constant
        assert ("sin" in str(jax.make_jaxpr(lambda x, sin=sin: x + sin(ones))(ones))) == recorded
    each_time = []
    g = jax.jit(lambda x: jax.debug.callback(lambda: each_time.append(1)) or x)
    for _ in range(3):
        g(1.0)
    jax.effects_barrier()
    assert len(each_time) == 3


@check("tracer")
def what_a_tracer_knows() -> None:
    assert "3.0" in tracer_of(jax.grad) and "3.0" not in tracer_of(jax.jit)
    shapes = []
    jax.jit(lambda x: shapes.append((x.shape, x.dtype)) or x)(jnp.ones((2, 3)))
    assert shapes == [((2, 3), jnp.float32)]
    assert jax.grad(lambda x: x * x if x > 0 else -x)(3.0) == 6.0
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda x: x * x if x > 0 else -x)(3.0)
    kinds = []
    jax.grad(lambda x: kinds.append(isinstance(x * 2, jax.core.Tracer)) or x)(3.0)
    assert kinds == [True]


@check("jit", "cache", "signature", "device")
def two_caches() -> None:
    f = see.calls(lambda x, by=1.0: x + by)
    here, there = (jax.device_put(np.ones(3, "float32"), device) for device in jax.devices()[:2])
    f(here), f(here + 1), f(there), f(there)
    assert [call.outcome for call in f.calls] == ["compiled", "cached", "recompiled", "cached"]
    assert f.traces == 1 and jax.device_count() == 8
    f(here, by=1.0), f(here, 1.0)  # by name is another signature
    assert f.traces == 3
    bare, strong = jax.device_put(2.0), jnp.float32(2.0)
    pairs_that_differ = [(here, here[:2]), (here, here.astype("bfloat16")), (strong, bare)]
    pairs_that_differ += [(here, [here]), ([here], (here,))]
    for one, other in pairs_that_differ:
        g = see.calls(lambda t: jax.tree.map(jnp.sin, t))
        g(one), g(other), g(one), g(other)
        assert g.traces == 2
    assert bare.weak_type and bare.dtype == jnp.float32
    assert jax.devices() == jax.devices(jax.default_backend())


@check("jaxpr", "equation", "primitive", "unrolling")
def lines_of_a_jaxpr() -> None:
    assert "b:f32[3] = sin a" in str(jax.make_jaxpr(jnp.sin)(jnp.ones(3)))
    assert "dot_general" in str(jax.make_jaxpr(jnp.dot)(jnp.ones(3), jnp.ones(3)))

    def sines(x: jax.Array, times: int) -> jax.Array:
        for _ in range(times):
            x = jnp.sin(x)
        return x

    def scanned(x: jax.Array, times: int) -> jax.Array:
        return lax.scan(lambda x, _: (jnp.sin(x), None), x, length=times)[0]

    for times in (3, 7):
        counts = [str(jax.make_jaxpr(f, static_argnums=1)(1.0, times)) for f in (sines, scanned)]
        assert [text.count(" sin ") for text in counts] == [times, 1]
    assert len(jax.make_jaxpr(lambda x: x)(1.0).jaxpr.eqns) == 0  # two brackets are no equations
    (one,) = (scan := jax.make_jaxpr(lambda x: scanned(x, 3))(1.0)).jaxpr.eqns
    assert one.primitive.name == "scan" and str(scan).count("\n") > 3
    (two,) = jax.make_jaxpr(lambda x: lax.top_k(x, 2))(jnp.ones(3)).jaxpr.eqns
    assert len(two.outvars) == 2

    def doubled(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda c: c < 3, lambda c: c * 2, x)

    assert jax.jvp(doubled, (1.0,), (1.0,)) == (4.0, 4.0)  # forward mode has a rule for it
    with pytest.raises(ValueError, match="while_loop"):
        jax.grad(doubled)(1.0)


@check("static-argument")
def static_values() -> None:
    seen = []
    f = jax.jit(lambda n, x: seen.append(n) or x * n, static_argnums=0)
    f(2, 1.0), f(3, 1.0), f(2, 5.0)
    assert seen == [2, 3]
    with pytest.raises(ValueError, match="hashable"):
        f([2], 1.0)


@check("weak-type", "dtype")
def types_of_numbers() -> None:
    with jax.numpy_dtype_promotion("standard"):
        assert (jnp.ones(2, "bfloat16") * 2.0).dtype == jnp.bfloat16
        assert (jnp.arange(2) * 2.0).dtype == jnp.float32
        for one, weak in ((jnp.asarray(2.0), True), (jnp.asarray([2.0]), False)):
            assert one.weak_type == weak
            assert (jnp.ones(1, "bfloat16") * one).dtype == ("bfloat16" if weak else "float32")
    assert not jnp.float32(2.0).weak_type
    with pytest.warns(UserWarning, match="float64"):
        assert jnp.zeros(2, "float64").dtype == jnp.float32
    with pytest.warns(UserWarning, match="float64"):
        assert jnp.ones(2).astype("float64").dtype == jnp.float32
    with warnings.catch_warnings(action="error"):
        for array in (jnp.asarray(np.ones(2)), jax.device_put(np.ones(2))):
            assert array.dtype == jnp.float32


@check("lowering", "stablehlo", "xla", "hlo", "fusion")
def from_jaxpr_to_program() -> None:
    def f(x: jax.Array) -> jax.Array:
        unused = jnp.cos(x)  # noqa: F841 - that nobody uses it is the point
        return jnp.stack([jnp.sin(x) * 2 + jnp.sin(x), jnp.tanh(x)])[0] / 8

    lowered = jax.jit(f).lower(jnp.ones(8))
    before, after = lowered.as_text(), lowered.compile().as_text()
    assert " cos " in str(jax.make_jaxpr(f)(jnp.ones(8))) and "cosine" not in before  # JAX's doing
    for operation in ("tanh", "divide"):  # not used after all; a product with 1/8 will do
        assert operation in before and operation not in re.sub(r"metadata={.*?}", "", after)
    assert (before.count("stablehlo.sine"), after.count(" sine(")) == (2, 1)
    assert "fusion" in after and "fusion" not in before
    assert "fusion" in see.trace(f, jnp.ones(8)).hlo
    alone = jax.jit(jnp.sin).lower(jnp.ones(8)).compile().as_text()
    inside = re.search(r"_computation .*?{\n(.*?)\n}", alone, re.DOTALL)[1].split("\n")
    assert " fusion(" in alone and ["parameter" in line for line in inside] == [True, False]


@check("shape", "control-flow")
def what_python_may_ask() -> None:
    def f(x: jax.Array) -> jax.Array:
        assert type(x.shape[0]) is int
        return sum(x[i] for i in range(x.shape[0]))

    assert jax.jit(f)(jnp.ones(3)) == 3
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda x: x if x > 0 else -x)(1.0)
    absolute = jax.jit(lambda x: lax.cond(x > 0, lambda: x, lambda: -x))
    assert absolute(-1.0) == absolute(1.0) == 1.0
    with pytest.raises(TypeError):
        jax.jit(lambda n: [1 for _ in range(n)])(3)

    def tripled(x: float) -> float:
        while x < 10:
            x *= 3
        return x

    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(tripled)(1.0)
    loop = jax.jit(lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 3, x))
    assert loop(1.0) == tripled(1.0) == 27.0
    kinds = []
    symbolic = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), "float32")
    jax.export.export(jax.jit(lambda x: kinds.append(type(x.shape[0])) or x))(symbolic)
    assert kinds[0] is not int


@check("pytree", "leaf")
def trees() -> None:
    tree = {"b": [2, None, (3,)], "a": 1}
    assert jax.tree.leaves(tree) == [1, 2, 3] and jax.tree.leaves(None) == []
    assert jax.tree.leaves([[], (), {}]) == [] and jax.tree.leaves(4) == [4]
    assert jax.jit(lambda t: t)(tree) == tree

    @jax.tree_util.register_dataclass
    @dataclass
    class Line:
        slope: float
        at_zero: float

    slopes = jax.grad(lambda line: line.slope * line.at_zero)(Line(2.0, 3.0))
    assert slopes == Line(3.0, 2.0)


@check("in-place-update")
def arrays_do_not_change() -> None:
    x = jnp.zeros(3)
    with pytest.raises(TypeError, match="immutable"):
        x[0] = 1
    assert x.at[0].set(1).tolist() == [1, 0, 0] and x.tolist() == [0, 0, 0]

    def five_updates(x: jax.Array) -> jax.Array:
        for i in range(5):
            x = (x * 2).at[i].set(1)
        return x

    memory = jax.jit(five_updates).lower(jnp.zeros(100_000)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 400_000  # not even one copy besides the result


@check("prng-key", "split")
def keys() -> None:
    key = jax.random.key(0)
    first, second = jax.random.split(key)
    normal = [jax.random.normal(k, (10_000,)) for k in (key, key, first, second)]
    assert (normal[0] == normal[1]).all()
    half = jax.random.normal(key, (10_000,), "bfloat16")
    assert not np.allclose(half.astype("float32"), normal[0], atol=0.1)
    assert jax.random.split(key, 5).shape == (5,)
    assert abs(np.corrcoef(np.stack(normal[1:])) - np.eye(3)).max() < 0.05  # 5 / sqrt(10,000)


@check("carry")
def a_carry_keeps_its_type() -> None:
    for start, step in ((jnp.int32(0), lambda c: c + jnp.float32(1)), (0.0, lambda c: (c, c))):
        with pytest.raises(TypeError, match="carry"), jax.numpy_dtype_promotion("standard"):
            lax.scan(lambda c, _, step=step: (step(c), None), start, length=3)
    with jax.numpy_dtype_promotion("standard"):
        adapted, _ = lax.scan(lambda c, _: (c + jnp.float32(1), None), 0, length=3)
    assert adapted == 3 and adapted.dtype == jnp.float32


@check("vmap", "batch-axis")
def one_call_with_an_extra_axis() -> None:
    calls = []
    batched = jax.vmap(lambda x, w: calls.append(x.shape) or x @ w, in_axes=(1, None))
    assert batched(jnp.ones((3, 5)), jnp.ones(3)).shape == (5,) and calls == [(3,)]
    jaxpr = jax.make_jaxpr(jax.vmap(lambda x, w: x * jnp.sin(w), in_axes=(0, None)))
    shapes = {e.primitive.name: e.outvars[0].aval.shape for e in jaxpr(jnp.ones(5), 1.0).eqns}
    assert shapes["sin"] == () and shapes["mul"] == (5,)  # the sine is shared


@check("gradient")
def by_the_first_argument() -> None:
    x, y = jnp.arange(3.0), jnp.ones(2)
    assert jax.grad(lambda x, y: (x**2).sum() * y.sum())(x, y).tolist() == [0, 4, 8]
    assert jax.grad(lambda x, y: (x**2).sum() * y.sum(), argnums=1)(x, y).tolist() == [5, 5]
    with pytest.raises(TypeError, match="scalar"):
        jax.grad(lambda x: x**2)(x)


@check("autodiff", "forward-mode", "reverse-mode", "jvp", "vjp", "cotangent", "jacobian", "hessian")
def derivatives() -> None:
    def f(x: jax.Array) -> jax.Array:
        return jnp.stack([x[0] * x[1], jnp.sin(x[2])])

    x, v, u = jnp.array([2.0, 3.0, 0.0]), jnp.array([1.0, 0.0, 2.0]), jnp.array([5.0, 7.0])
    jacobian = np.array([[3.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    value, forward = jax.jvp(f, (x,), (v,))
    (backward,) = jax.vjp(f, x)[1](u)
    assert np.allclose(value, f(x)) and np.allclose(forward, jacobian @ v)
    assert np.allclose(backward, u @ jacobian) and u.shape == f(x).shape
    for whole in (jax.jacfwd, jax.jacrev):
        assert np.allclose(whole(f)(x), jacobian)
        assert whole(lambda m: m[0] * 2)(jnp.ones((3, 2))).shape == (2, 3, 2)
    cube = jax.hessian(lambda x: (x**3).sum())
    assert np.allclose(cube(x), np.diag(6 * x))
    assert np.allclose(cube(x), jax.jacfwd(jax.grad(lambda x: (x**3).sum()))(x))
    exact = np.exp(1.0)
    differences = [(jnp.exp(1 + h) - jnp.exp(1 - h)) / (2 * h) for h in 0.1 ** np.arange(1, 6)]
    assert abs(jax.grad(jnp.exp)(1.0) - exact) < 1e-6 < min(abs(np.array(differences) - exact))
    weights = jnp.ones((100, 100)) / 100

    def deep(x: jax.Array) -> jax.Array:
        for _ in range(8):
            x = jnp.tanh(weights @ x)
        return x

    x = jnp.ones(100)
    once = flops(deep, x)  # a product with the Jacobian is no product with 100 columns
    assert flops(lambda x: jax.jvp(deep, (x,), (x,)), x) < 4 * once
    assert flops(lambda x: jax.vjp(deep, x)[1](x), x) < 4 * once
    assert flops(jax.jacfwd(deep), x) > 50 * once


@check("residuals", "checkpointing")
def memory_and_time() -> None:
    weights = jnp.ones((16, 64, 64)) / 64

    def block(x: jax.Array, w: jax.Array) -> jax.Array:
        for _ in range(8):
            x = jnp.tanh(x @ w)
        return x

    def loss(x: jax.Array, block: Callable) -> jax.Array:
        for w in weights:
            x = block(x, w)
        return x.sum()

    kept, spent = {}, {}
    for layers in (8, 16):
        part = weights[:layers]

        def value(x: jax.Array, part: jax.Array = part) -> jax.Array:
            for w in part:
                x = jnp.tanh(x @ w)
            return x.sum()

        backward = jax.vjp(value, jnp.ones((512, 64)))[1]
        kept[layers] = sum(leaf.nbytes for leaf in jax.tree.leaves(backward))
        for name, program in (("value", value), ("both", jax.grad(value))):
            compiled = jax.jit(program).lower(jnp.ones((512, 64))).compile()
            spent[name, layers] = compiled.memory_analysis().temp_size_in_bytes
    assert 1.8 < kept[16] / kept[8] < 2.2
    assert spent["both", 16] - spent["value", 16] > 0.9 * kept[16] / 2, (kept, spent)
    cost = []  # as JAX writes the program: what XLA makes of it differs by version
    for each in (block, jax.checkpoint(block)):
        value = functools.partial(loss, block=each)
        leaves = jax.tree.leaves(jax.vjp(value, jnp.ones((512, 64)))[1])
        written = jax.jit(jax.grad(value)).lower(jnp.ones((512, 64)))
        cost.append((sum(leaf.nbytes for leaf in leaves), written.cost_analysis()["flops"]))
    assert cost[1][0] < 0.5 * cost[0][0] and cost[1][1] > 1.2 * cost[0][1], cost


@check("custom-rule")
def a_rule_is_believed() -> None:
    square = jax.custom_vjp(lambda x: x * x)
    square.defvjp(lambda x: (x * x, x), lambda x, u: (100 * u,))
    assert jax.grad(square)(1.0) == 100.0
    square.defvjp(lambda x: (x * x, x), lambda x, u: (jnp.ones(7),))
    with pytest.raises(ValueError, match="shape"):
        jax.grad(square)(1.0)
    runs = []
    cube = jax.custom_jvp(lambda x: runs.append(1) or x**3)
    cube.defjvp(lambda x, v: (x[0] ** 3, 100 * v[0]))
    assert jax.grad(cube)(1.0) == 100.0 and not runs


@check("eager", "dispatch", "asynchronous-dispatch")
def who_runs_what() -> None:
    kinds: list[type] = []
    lax.scan(lambda c, _: kinds.append(type(c)) or (c * 2, None), 1.0, length=3)
    assert len(kinds) == 1 and issubclass(kinds[0], jax.core.Tracer)  # one for the whole loop

    def f(x: np.ndarray) -> jax.Array:
        y = jnp.sin(x)
        kinds.append(type(y))
        return y + jnp.cos(x)

    jax.clear_caches()  # what this check compiled for another name
    compiled: dict[str, list[str]] = {}
    for name, function in (("eager", f), ("jit", jax.jit(f))):
        with jax.log_compiles(), captured("jax") as messages:
            function(np.ones(171, "float32"))
        compiled[name] = [m for m in messages if m.startswith("Compiling")]
    assert [issubclass(kind, jax.Array) for kind in kinds[1:]] == [True, False]
    assert (len(compiled["eager"]), len(compiled["jit"])) == (3, 1), compiled
    x = jnp.ones((1500, 1500))
    program = jax.jit(lambda a: a @ a @ a @ a)
    program(x).block_until_ready()
    early = 0
    for _ in range(5):
        early += not program(x).is_ready()
    assert early, "no call returned before its result"


@check("donation")
def memory_given_away() -> None:
    x = jnp.ones(5)
    pointer = x.unsafe_buffer_pointer()
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted() and y.unsafe_buffer_pointer() == pointer
    x = jnp.ones(5)  # nothing of this size is returned: it cannot be taken
    with pytest.warns(UserWarning, match="not usable"):
        jax.jit(lambda x: x.sum(), donate_argnums=0)(x)
    assert not x.is_deleted()


@check("ref")
def memory_with_a_name() -> None:
    ref = jax.new_ref(x := jnp.zeros(3))
    place = ref.unsafe_buffer_pointer()
    assert place != x.unsafe_buffer_pointer()
    jax.jit(lambda ref: ref.__setitem__(0, 1.0))(ref)
    assert ref[...].tolist() == [1.0, 0.0, 0.0] and ref.unsafe_buffer_pointer() == place
    assert not x.any()


@check("sharding", "mesh", "collective")
def eight_devices() -> None:
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    for spec, part in ((("x", "y"), (2, 1)), (("x",), (2, 2))):  # cut along y, or the same there
        place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        array = jax.device_put(jnp.arange(16.0).reshape(8, 2), place)
        assert {shard.data.shape for shard in array.addressable_shards} == {part}
    for together in (jnp.sum, jnp.max):
        assert "all-reduce" in jax.jit(together).lower(array).compile().as_text()


@check("process", "coordinator", "addressable")
def one_process() -> None:  # several: test_processes.py
    assert (jax.process_index(), jax.process_count()) == (0, 1)
    assert jax.devices() == jax.local_devices()
    mesh = jax.make_mesh((8,), ("x",))
    array = jax.device_put(jnp.arange(8), jax.sharding.NamedSharding(mesh, jax.P("x")))
    assert array.is_fully_addressable and len(array.addressable_shards) == 8


@check("optimizer")
def adam_remembers_two() -> None:
    optax = pytest.importorskip("optax")
    state = optax.adam(0.1).init(jnp.zeros(7))
    assert [leaf.shape for leaf in jax.tree.leaves(state)].count((7,)) == 2
    assert not jax.tree.leaves(optax.sgd(0.1).init(jnp.zeros(7)))


@check("kernel")
def kernels_of_flax() -> None:
    nnx = pytest.importorskip("flax.nnx")
    assert nnx.Linear(2, 3, rngs=nnx.Rngs(0)).kernel.shape == (2, 3)
    assert not hasattr(nnx.Embed(2, 3, rngs=nnx.Rngs(0)), "kernel")


@check("threshold", "support")
def zeros_of_entmax() -> None:
    p = entmax(jnp.array([2.0, 1.5, 0.2]), 1.5)
    assert (p > 0).tolist() == [True, True, False] and np.isclose(p.sum(), 1)
    assert (entmax(jnp.array([2.0, 1.5, 0.2]), 1.0) > 0).all()  # softmax has no threshold


@pytest.mark.parametrize("name", TERMS)
def test_what_a_term_says_of_jax_is_so(name: str) -> None:
    assert (name in CHECKS) != (name in DEFINED), f"{name} is neither checked nor a definition"
    CHECKS.get(name, lambda: None)()
