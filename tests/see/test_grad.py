"""see.grad beside other ways of knowing: `jax.grad`, what JAX itself prints, what XLA allocates."""

import contextlib
import functools
import io
import re
from collections import Counter

import jax
import jax.extend.core as jex_core
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import optax
import pytest
from bs4 import BeautifulSoup
from flax import linen, nnx
from jax import lax
from jax.ad_checkpoint import checkpoint_name, print_saved_residuals

from seejax import see
from seejax.see._jaxpr import short_dtype

POLICIES = jax.checkpoint_policies
pytestmark = pytest.mark.usefixtures("plain_numpy")


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


X, W = normal(3, 4), normal(4, 4, seed=1) / 2
CONSTANT = jnp.arange(12.0).reshape(3, 4)
SPD = W @ W.T + jnp.eye(4)


def layers(x, w, n=4, wrap=lambda f: f):
    """Blocks of four layers."""

    def block(x, w):
        for _ in range(4):
            h = checkpoint_name(x @ w, "product")
            x = jnp.sin(h)
        return x

    for _ in range(n // 4):
        x = wrap(block)(x, w)
    return jnp.sum(x)


def scanned(x, w, wrap=lambda f: f):
    return lax.scan(wrap(lambda x, _: (jnp.sin(x @ w), x.sum())), x, length=5)


@jax.custom_vjp
def clipped(x):
    return x + 0.0


clipped.defvjp(lambda x: (x + 0.0, x), lambda x, g: (jnp.clip(g, -1, 1) * jnp.sign(x),))


@jax.custom_jvp
def log1pexp(x):
    return jnp.log(1.0 + jnp.exp(x))


@log1pexp.defjvp
def _log1pexp_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return log1pexp(x), (1 - 1 / (1 + jnp.exp(x))) * dx


def scaled(x, scale):
    """A rule that closes over an argument: it reaches the way back without being a residual."""

    @jax.custom_vjp
    def identity(x):
        return x

    identity.defvjp(lambda x: (x, None), lambda _, g: (g * scale,))
    return identity(jnp.sin(x))


DENSE = linen.Dense(3)
VARIABLES = DENSE.init(jax.random.key(0), X)
NORM = linen.LayerNorm()
NORM_VARIABLES = NORM.init(jax.random.key(0), X)
LSTM = linen.RNN(linen.OptimizedLSTMCell(3))
LSTM_VARIABLES = LSTM.init(jax.random.key(0), X[None])
REMAT = linen.remat(linen.Dense)(3)
REMAT_VARIABLES = REMAT.init(jax.random.key(0), X)
MODEL, STATE = nnx.split(nnx.Sequential(nnx.Linear(4, 5, rngs=nnx.Rngs(0)), nnx.relu))
LABELS = jnp.array([0, 3, 1])

OURS = {
    "layers": (layers, (0, 1), (X, W)),
    "checkpoint, whole": (jax.checkpoint(layers), (0, 1), (X, W)),
    "checkpoint, blocks": (
        lambda x, w: layers(x, w, 16, jax.checkpoint),
        (0, 1),
        (X, W),
    ),
    **{
        f"policy {name}": (jax.checkpoint(layers, policy=policy), (0, 1), (X, W))
        for name, policy in {
            "dots": POLICIES.dots_saveable,
            "everything": POLICIES.everything_saveable,
            "nothing": POLICIES.nothing_saveable,
            "names": POLICIES.save_only_these_names("product"),
        }.items()
    },
    "scan": (scanned, 0, (X, W)),
    "scan of a checkpoint": (
        lambda x, w: scanned(x, w, jax.checkpoint),
        1,
        (X, W),
    ),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), 0, (X,)),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda _, x: jnp.sin(x) * x, x), 0, (X,)),
    "jitted": (jax.jit(lambda x, w: jnp.tanh(x @ w)), (0, 1), (X, W)),
    "jitted twice": (
        lambda x, w: jax.jit(jnp.sin)(jax.jit(jnp.sin)(x @ w)),
        (0, 1),
        (X, W),
    ),
    "custom_vjp": (lambda x: clipped(jnp.sin(x)), 0, (X,)),
    "custom_jvp": (log1pexp, 0, (X,)),
    "closed over by a rule": (scaled, 0, (X, X[0])),
    "vmap": (jax.vmap(lambda x, w: jnp.tanh(w @ x), (0, None)), (0, 1), (X, W)),
    "gradient": (jax.grad(lambda w, x: jnp.tanh(x @ w).sum()), (0, 1), (W, X)),
    "a constant": (lambda x: jnp.exp(x) * CONSTANT * 2.0, 0, (X,)),
    "complex": (lambda z: jnp.exp(z) * z, 0, (lax.complex(X, -X),)),
    "integers on the side": (lambda x: {"x": x**2, "n": jnp.argmax(x)}, 0, (X,)),
    "a Python number": (lambda x, n: x**n, 0, (X, 3)),
    "a Python float": (lambda x, y: x * y, (0, 1), (2.0, 3.0)),
    "unused": (lambda x, y: x * 1.0, (0, 1), (X, X)),
}
FOREIGN = {
    "linen.Dense": (DENSE.apply, (0, 1), (VARIABLES, X)),
    "linen.LayerNorm": (NORM.apply, 0, (NORM_VARIABLES, X)),
    "linen.RNN": (LSTM.apply, 0, (LSTM_VARIABLES, X[None])),
    "linen.remat": (REMAT.apply, 0, (REMAT_VARIABLES, X)),
    "nnx.Sequential": (lambda state, x: nnx.merge(MODEL, state)(x), 0, (STATE, X)),
    "optax cross entropy": (
        optax.softmax_cross_entropy_with_integer_labels,
        0,
        (X, LABELS),
    ),
    "optax.huber_loss": (optax.huber_loss, (0, 1), (X, X[::-1])),
    "optax.ctc_loss": (
        optax.ctc_loss,
        0,
        (normal(2, 5, 4), jnp.zeros((2, 5)), jnp.ones((2, 2), int), jnp.zeros((2, 2))),
    ),
    "logsumexp": (jsp.special.logsumexp, 0, (X,)),
    "betainc": (lambda x: jsp.special.betaln(x, 2.0), 0, (jnp.abs(X),)),
    "expm": (jsp.linalg.expm, 0, (W,)),
    "cho_solve": (
        lambda m, y: jsp.linalg.cho_solve(jsp.linalg.cho_factor(m), y),
        (0, 1),
        (SPD, X[0]),
    ),
    "solve": (jnp.linalg.solve, (0, 1), (SPD, X[0])),
    "svd": (lambda m: jnp.linalg.svd(m, compute_uv=False), 0, (W,)),
    "eigh": (lambda m: jnp.linalg.eigh(m)[0], 0, (SPD,)),
    "gelu": (jax.nn.gelu, 0, (X,)),
    "relu": (jax.nn.relu, 0, (X,)),
    "softmax": (jax.nn.softmax, 0, (X,)),
    "attention": (jax.nn.dot_product_attention, (0, 1, 2), (normal(2, 6, 2, 4),) * 3),
    "fft": (jnp.fft.rfft, 0, (X,)),
    "convolve": (jsp.signal.convolve, (0, 1), (normal(8), normal(3))),
    "norm.logpdf": (jsp.stats.norm.logpdf, 0, (X,)),
    "sort": (jnp.sort, 0, (X,)),
    "cumsum": (jnp.cumsum, 0, (X,)),
}
CASES = OURS | FOREIGN


@functools.cache
def pictured(name):
    f, argnums, args = CASES[name]
    return see.grad(f, *args, argnums=argnums)


def wanted(name):
    """f of its differentiated arguments alone, and these."""
    f, argnums, args = CASES[name]
    numbers = (argnums,) if isinstance(argnums, int) else argnums

    def of_wanted(*some):
        return f(*(dict(enumerate(args)) | dict(zip(numbers, some, strict=True))).values())

    return of_wanted, [args[n] for n in numbers]


# --- numbers


@pytest.mark.parametrize("name", CASES)
def test_both_programs_in_turn_compute_the_gradient(name):
    _, argnums, args = CASES[name]
    picture = pictured(name)
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    given = []
    for n, arg in enumerate(args):
        leaves = jax.tree.leaves(arg)
        given += [x for x in leaves if n in numbers or hasattr(x, "shape")]
    ahead = jex_core.jaxpr_as_fun(picture.forward_jaxpr)
    back = jex_core.jaxpr_as_fun(picture.backward_jaxpr)
    results = len(picture.forward_jaxpr.out_avals) - len(picture.crossing)
    values = ahead(*given)
    out, crossing = values[:results], values[results:]

    of_wanted, chosen = wanted(name)
    expected, pullback = jax.vjp(of_wanted, *chosen)
    smooth = lambda x: jnp.issubdtype(x.dtype, jnp.inexact)  # noqa: E731
    cotangents = jax.tree.map(
        lambda x: (
            normal(*x.shape, seed=5).astype(x.dtype)
            if smooth(x)
            else np.zeros(x.shape, jax.dtypes.float0)
        ),
        expected,
    )
    found = back(*crossing, *filter(smooth, jax.tree.leaves(cotangents)))
    for a, b in zip(out, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(found, jax.tree.leaves(pullback(cotangents)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


# --- what crosses


def printed(name):
    """What `print_saved_residuals` says: (type, source) of each residual."""
    of_wanted, chosen = wanted(name)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_saved_residuals(of_wanted, *chosen)
    return [tuple(line.split(" ", 1)) for line in out.getvalue().splitlines()]


def types(picture):
    """How often a type crosses, by whether the forward program computes it."""
    return Counter(
        (f"{short_dtype(c.dtype)}[{','.join(map(str, c.shape))}]", c.kind == "value")
        for c in picture.crossing
    )


def said(name):
    """The same from JAX' own text, without literals: they stand in the backward program itself.

    For JAX an argument that f is not differentiated by is a constant.
    """
    return Counter(
        (typed, not source.startswith(("from the argument", "from a constant")))
        for typed, source in printed(name)
        if source != "from a literal"
    )


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_jax_prints(name):
    if name != "closed over by a rule":
        assert types(pictured(name)) == said(name)


def test_what_a_rule_closes_over_crosses_too():
    """Only the picture has it: it is no residual, but the backward program reads it."""
    assert types(pictured("closed over by a rule")) - said("closed over by a rule") == {
        ("f32[4]", False): 1
    }
    assert "from a literal" in dict(map(reversed, printed("a constant")))


def test_each_value_has_its_maker_its_readers_and_its_line():
    def loss(w, x, y):
        h = jnp.sin(x @ w)
        return jnp.mean((h - y) ** 2)

    picture = see.grad(loss, W[0], X, X[:, 0])
    found = [(c.kind, c.path, c.bytes, c.made_by and c.made_by.primitive) for c in picture.crossing]
    assert found == [
        ("argument", "x", 48, None),
        ("value", "", 12, "cos"),
        ("value", "", 12, "mul"),
    ]
    assert [c.line for c in picture.crossing] == [
        None,
        "h = jnp.sin(x @ w)",
        "return jnp.mean((h - y) ** 2)",
    ]
    assert [[r.primitive for r in c.read_by] for c in picture.crossing] == [
        ["dot_general"],
        ["mul"],
        ["mul"],
    ]
    assert (picture.bytes, picture.kept_bytes) == (72, 24)
    # The gradient of a product stands where the product stands.
    (product,) = (s for s in picture.backward if s.primitive == "dot_general")
    assert product.line == "h = jnp.sin(x @ w)" and product.backward
    assert not any(step.backward for step in picture.forward)
    steps = [*picture.forward, *picture.backward]
    assert [step.index for step in steps] == list(range(len(steps)))


@pytest.mark.parametrize("name", CASES)
def test_makers_are_forward_and_readers_are_backward(name):
    picture = pictured(name)
    names = [c.name for c in picture.crossing]
    assert len(set(names)) == len(names)
    for c in picture.crossing:
        assert (c.made_by in picture.forward) == (c.kind == "value")
        assert set(c.read_by) <= set(picture.backward)
        assert bool(c.path) == (c.kind == "argument")
        assert c.bytes == np.zeros(c.shape, c.dtype).nbytes
    assert picture.bytes == sum(c.bytes for c in picture.crossing)


def test_a_value_is_made_inside_the_jitted_function_that_makes_it():
    picture = pictured("jitted twice")
    values = [c for c in picture.crossing if c.kind == "value"]
    assert {c.made_by.primitive for c in values} == {"cos"}
    assert {c.made_by.depth for c in values} == {1}
    assert {r.depth for c in values for r in c.read_by} == {1}


def test_who_reads_a_value_twice_is_named_once():
    picture = see.grad(lambda x: clipped(x * x), X)
    for c in picture.crossing:
        assert len(set(c.read_by)) == len(c.read_by) > 0


def test_what_nobody_reads_is_said():
    """JAX' rule for relu keeps an array of zeros; its way back makes another one."""
    (zeros,) = (c for c in pictured("relu").crossing if not c.read_by)
    assert zeros.made_by.primitive == "broadcast_in_dim" and zeros.bytes == X.nbytes
    assert str(pictured("relu")).endswith("· not read")


def test_arguments_have_their_paths():
    picture = pictured("linen.Dense")
    assert {c.path for c in picture.crossing} == {"variables['params']['kernel']", "args[1]"}
    picture = see.grad(lambda p, *rest, scale: p["w"] * rest[0] * scale, {"w": X}, X, scale=X)
    assert [c.path for c in picture.crossing if c.kind == "argument"] == ["args[1]", "scale"]


# --- jax.checkpoint


def kept(name):
    """The primitives whose results are kept, and those that run again."""
    picture = pictured(name)
    made = Counter(c.made_by.primitive for c in picture.crossing if c.made_by)
    return made, Counter(s.primitive for s in picture.backward if s.recomputed)


def test_checkpoint_keeps_less_and_runs_the_rest_again():
    assert kept("layers") == ({"sin": 3, "cos": 4}, {})
    nothing = ({}, {"dot_general": 4, "sin": 3, "cos": 4, "name": 4})
    assert kept("checkpoint, whole") == kept("policy nothing") == nothing
    # The last result of a block is kept as the input of the next; that of the last is not needed.
    blocks = {n: 4 * count for n, count in nothing[1].items()}
    assert kept("checkpoint, blocks") == ({"sin": 3}, blocks)
    assert pictured("checkpoint, blocks").kept_bytes == 3 * X.nbytes


def test_policies_choose_what_is_kept():
    made, again = kept("policy dots")
    assert made == {"dot_general": 4} and "dot_general" not in again and again["cos"] == 4
    made, again = kept("policy names")
    assert made == {"name": 4} and "dot_general" not in again and again["cos"] == 4
    made, again = kept("policy everything")
    assert made == {"sin": 3, "cos": 4} and not again


def test_inside_a_loop_too():
    made, again = kept("scan of a checkpoint")
    assert made == {"scan": 1} and again == {"dot_general": 1, "cos": 1}


@pytest.mark.parametrize("loop", [False, True])
def test_what_is_made_of_the_cotangent_is_new(loop):
    """In a second derivative JAX gives both the same scope: what runs again and what is new."""
    curve = jax.checkpoint(lambda z: jnp.exp(jnp.sin(z)))
    step = (lambda z: lax.scan(lambda c, _: (curve(c), None), z, length=3)[0]) if loop else curve
    slope = jax.grad(lambda y: jnp.sum(step(y)))
    picture = see.grad(lambda x: jnp.sum(slope(x) ** 2), jnp.linspace(0.1, 1.0, 4))
    again = Counter(s.primitive for s in picture.backward if s.recomputed)
    assert again["sin"] and again["cos"] and again["exp"]
    assert not again["add_any"] and not picture.backward[-1].recomputed


def test_the_rounding_that_checkpoint_adds_is_not_the_maker():
    picture = pictured("policy dots")
    assert "reduce_precision" in {step.primitive for step in picture.forward}
    rounded = see.grad(lambda x: jnp.sin(lax.reduce_precision(x * 2, 5, 10)), X)
    assert [c.made_by.primitive for c in rounded.crossing] == ["cos"]
    own = jax.checkpoint(
        lambda x: jnp.sin(checkpoint_name(lax.reduce_precision(x * 2, 5, 10), "h")),
        policy=POLICIES.save_only_these_names("h"),
    )
    assert [c.made_by.primitive for c in see.grad(own, X).crossing] == ["name"]


# --- what the compiler makes of it


def chain(act):
    def f(weights, x):
        for w in weights:
            x = act(x @ w)
        return jnp.sum(x)

    return f


WEIGHTS = [jax.ShapeDtypeStruct((32, 32), "float32")] * 16
WIDE = jax.ShapeDtypeStruct((2048, 32), "float32")


def allocated(f):
    program = jax.jit(jax.value_and_grad(f)).lower(WEIGHTS, WIDE).compile()
    return program.memory_analysis().temp_size_in_bytes


def test_where_xla_cannot_compute_again_it_stores_what_crosses():
    f, buffer = chain(lambda h: h), 4 * 2048 * 32
    picture = see.grad(f, WEIGHTS, WIDE)
    assert picture.kept_bytes == 15 * buffer
    assert picture.kept_bytes <= allocated(f) <= picture.kept_bytes + 4 * buffer


def test_where_it_can_it_stores_less_and_the_picture_does_not_say_so():
    f = chain(jnp.tanh)
    picture = see.grad(f, WEIGHTS, WIDE)
    assert allocated(f) < 0.7 * picture.kept_bytes
    assert "the program before the compiler" in str(picture).splitlines()[0]


def test_what_is_kept_is_not_the_peak():
    """One checkpoint around everything keeps nothing, and computes everything at once."""
    plain = chain(lambda h: h)
    whole = jax.checkpoint(plain)
    assert see.grad(whole, WEIGHTS, WIDE).kept_bytes == 0
    assert allocated(whole) > 0.9 * allocated(plain)


# --- f is left alone


def test_f_is_called_once_and_nothing_is_computed():
    calls = []

    def f(x):
        calls.append(x)
        return jnp.linalg.inv(x)

    picture = see.grad(f, jax.ShapeDtypeStruct((20_000, 20_000), "float32"))
    assert len(calls) == 1 and picture.bytes > 10**9


def test_what_is_no_array_reaches_f_as_it_is():
    seen = []

    def f(x, n, *, act, train):
        seen.append((n, act, train))
        return act(x) * n if train else x

    see.grad(f, X, 3, act=jnp.sin, train=True)
    assert seen == [(3, jnp.sin, True)]


def test_inside_a_transformation():
    def f(x):
        picture = see.grad(lambda y: y * jnp.sin(x), x)
        assert [c.kind for c in picture.crossing] == ["value"]
        return x * picture.bytes

    assert jax.jit(f)(2.0) == jax.grad(f)(1.0) * 2 == 8.0


def test_sharded():
    mesh = jax.make_mesh((8,), ("d",))
    x = jax.device_put(jnp.ones((8, 4)), jax.NamedSharding(mesh, jax.P("d")))
    assert see.grad(jnp.sin, x).bytes == x.nbytes


def test_a_jax_function_shows_its_own_lines():
    for f in (jnp.fft.rfft, jax.nn.silu):
        picture = see.grad(f, X)
        assert f"def {f.__name__}(" in str(picture)
        assert "process_primitive" not in str(picture) and "of_wanted" not in str(picture)


def test_an_error_of_f_is_its_own():
    def broken(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        see.grad(broken, X)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        see.grad(lambda x: lax.while_loop(lambda x: x < 3, lambda x: 2 * x, x), 1.0)
    with pytest.raises(jax.errors.TracerBoolConversionError):
        see.grad(lambda x: x if x > 0 else -x, 1.0)
    with pytest.raises(TypeError, match="'abc' of type <class 'str'> is not a valid JAX type"):
        see.grad(lambda x: (x, "abc"), 1.0)


BAD = {
    "no function": (TypeError, "see.grad needs a function, got int", (3,), 0),
    "no argument": (ValueError, "argnums has 0, f got 0 arguments", (lambda: 1.0,), 0),
    "range": (ValueError, "argnums has -3, f got 2 arguments", (jnp.dot, X, W), (0, -3)),
    "float": (TypeError, "argnums must be .* got 1.0", (jnp.sin, X), 1.0),
    "bool": (TypeError, "argnums must be .* got True", (jnp.sin, X), True),
    "nothing": (ValueError, "nothing to differentiate by", (jnp.sin, X), ()),
    "no leaf": (ValueError, "nothing to differentiate by", (lambda x: 1.0, {}), 0),
    "int": (TypeError, "x is differentiated, but .*: int32", (lambda x: x, LABELS), 0),
    "Python int": (TypeError, "x is differentiated, but .*: int32", (lambda x: x, 3), 0),
    "key": (TypeError, "but .*: key<fry>", (jax.random.normal, jax.random.key(0)), 0),
    "leaf": (TypeError, r"p\['n'\] is .*: int32", (lambda p: p["x"], {"x": X, "n": 1}), 0),
    "no array": (TypeError, "s is differentiated, but is no array: str", (lambda s: s, "a"), 0),
    "int result": (TypeError, "no result of f is float or complex", (jnp.argmax, X), 0),
    "no result": (TypeError, "no result of f is float or complex", (lambda x: None, X), 0),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_one_sentence(name):
    kind, message, args, argnums = BAD[name]
    with pytest.raises(kind, match=message) as error:
        see.grad(*args, argnums=argnums)
    assert "\n" not in str(error.value) and len(str(error.value)) < 150


# --- what is shown


def test_the_text():
    def f(x):
        return jnp.sum(jnp.sin(x))

    assert str(see.grad(f, X)).splitlines() == [
        "grad of f: forward 3 equations, backward 2 equations · 48 B cross, 48 B of it computed"
        " · ᵀ backward · the program before the compiler",
        "",
        "Python source",
        "1  def f(x):",
        "2      return jnp.sum(jnp.sin(x))",
        "",
        "forward program",
        "   λ a:f32[3,4]",
        "2    b:f32[3,4] = sin a",
        "2    c:f32[3,4] = cos a",
        "2    d:f32[] = reduce_sum[axes=(0, 1)] b",
        "     → d c",
        "",
        "backward program",
        "    λ c:f32[3,4] e:f32[]",
        "2ᵀ    f:f32[3,4] = broadcast_in_dim[shape=(3, 4)] e",
        "2ᵀ    g:f32[3,4] = mul f c",
        "      → g",
        "",
        "what crosses from forward to backward",
        "value      type  bytes  made by",
        "c      f32[3,4]   48 B  cos · line 2",
    ]


def test_values_alike_share_a_row():
    picture = see.grad(functools.partial(layers, n=16), X, W, argnums=1)
    table = str(picture).partition("what crosses")[2].splitlines()[1:]
    assert len(picture.crossing) == 2 + 15 + 16 and len(table) == 1 + 4
    assert re.search(r"… 16 alike +16 × f32\[3,4\] +768 B +cos · line \d", table[-1])


def test_nothing_crosses():
    picture = see.grad(lambda x: x * 2.0, X)
    assert picture.crossing == () and "what crosses" not in str(picture)
    assert "0 B cross" in str(picture)


def test_a_value_its_maker_and_its_readers_light_up_together():
    picture = pictured("jitted twice")
    soup = BeautifulSoup(picture.html(), "html.parser")
    panes = soup.select(".see-pane")
    assert [p.select_one("figcaption [lang=en]").text for p in panes] == [
        "Python source",
        "forward program",
        "backward program",
    ]
    numbers = [int(span["data-e"]) for span in soup.select("tbody th [data-e]")]
    assert len(numbers) == len(picture.crossing) == 4
    for number, crossing in zip(numbers, picture.crossing, strict=True):
        lit = [
            [int(line["data-e"].split()[0]) for line in pane.select(".see-l[data-e]")
             if str(number) in line["data-e"].split()[1:]]
            for pane in panes[1:]
        ]  # fmt: skip
        assert lit[0] == ([crossing.made_by.index] if crossing.made_by else [])
        assert lit[1] == [step.index for step in crossing.read_by]


def test_recomputed_lines_are_signed():
    text = str(pictured("checkpoint, whole"))
    assert "↻ recomputed" in text.splitlines()[0]
    lines = [line.split() for line in text.partition("backward program")[2].splitlines()]
    assert [line[3] for line in lines if line and line[0].endswith("↻")].count("cos") == 4
    assert "↻" not in str(pictured("layers"))


def test_in_a_browser(browser):
    def f(x, w):
        h = jnp.sin(x @ w)
        return jnp.mean(h**2)

    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.set_content(see.grad(f, X, W)._repr_html_())
    lit = page.locator(".see-l.see-on .see-o")
    page.locator("tbody th [data-e]").last.hover()  # what the square keeps: 2 h
    assert lit.all_text_contents() == ["mul", "mul"]
    page.locator("tbody td", has_text="cos").locator("[data-e]").hover()
    assert lit.all_text_contents() == ["cos"]
    # By keyboard from the equation that makes a value to the one that reads it, and back.
    page.locator(".see-pane").nth(1).locator(".see-l", has_text="cos").click()
    page.locator(".see-pane").nth(1).locator(".see-l", has_text="cos").focus()
    page.keyboard.press("ArrowRight")
    assert "mul" in page.locator(":focus").inner_text()
    page.keyboard.press("ArrowLeft")
    assert "cos" in page.locator(":focus").inner_text()
    page.close()
