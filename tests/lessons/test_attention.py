"""entmax_attention beside jax.nn.dot_product_attention, and beside the sum it stands for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from entmax_reference import exact
from flax import linen as nn
from flax import nnx

from seejax.entmax.attention import EntmaxAttention, LinenEntmaxAttention, entmax_attention

pytestmark = pytest.mark.usefixtures("compiled_once", "hardly_optimized")

B, T, S, N, H = 2, 5, 7, 4, 8


def inputs(heads: int = N, dtype="float32"):
    q, k, v = jax.random.split(jax.random.key(0), 3)
    return (
        jax.random.normal(q, (B, T, N, H), dtype),
        jax.random.normal(k, (B, S, heads, H), dtype),
        jax.random.normal(v, (B, S, heads, H), dtype),
    )


@pytest.mark.parametrize(
    ("heads", "dtype", "options"),
    [
        (1, "float32", {"is_causal": True}),
        (2, "bfloat16", {}),
        (4, "float32", {"scale": 0.3}),
    ],
    ids=str,
)
def test_alpha_one_is_jax_own(heads: int, dtype: str, options: dict) -> None:
    qkv = inputs(heads, dtype)
    bias = jax.random.normal(jax.random.key(1), (1, N, T, S), dtype)
    mask = jax.random.bernoulli(jax.random.key(2), 0.7, (B, 1, T, S)).at[..., 0].set(True)

    @functools.partial(jax.jit, static_argnums=0)
    def both(f, *qkv):
        out, pull = jax.vjp(lambda *qkv: f(*qkv, bias, mask, **options), *qkv)
        return out, *pull(jnp.cos(out))

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        expected = both(jax.nn.dot_product_attention, *qkv)
    tolerance = 2e-6 if dtype == "float32" else 4e-2
    ours = both(functools.partial(entmax_attention, alpha=1), *qkv)
    for got, want in zip(ours, expected, strict=True):
        assert got.dtype == dtype
        assert np.allclose(got.astype(float), want.astype(float), atol=tolerance, rtol=tolerance)


def test_each_head_by_hand() -> None:
    """A loop over batch, head and query; heads share keys two by two."""
    q, k, v = map(np.asarray, inputs(heads=2))
    alpha = np.array([1.0, 1.5, 2.0, 3.0], np.float32)
    attend = jax.jit(functools.partial(entmax_attention, is_causal=True))
    out = np.asarray(attend(q, k, v, alpha=alpha))
    for b, t, n in np.ndindex(B, T, N):
        scores = k[b, : t + 1, n // 2] @ q[b, t, n] / np.sqrt(H)
        assert np.allclose(out[b, t, n], exact(scores, alpha[n]) @ v[b, : t + 1, n // 2], atol=2e-6)
    assert np.allclose(attend(q[0], k[0], v[0], alpha=alpha), out[0], atol=1e-6)


def test_a_query_that_may_look_at_nothing_gets_nothing() -> None:
    q, k, v = inputs()
    mask = jnp.ones((1, 1, T, S), bool).at[:, :, 2].set(False)

    @jax.jit
    def both(q):
        out, pull = jax.vjp(lambda q: entmax_attention(q, k, v, mask=mask), q)
        return out, *pull(2 * out)

    out, gradient = both(q)
    assert (out[:, 2] == 0).all() and (gradient[:, 2] == 0).all()
    assert jnp.isfinite(out).all() and jnp.isfinite(gradient).all() and (gradient[:, 0] != 0).any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda q, k, v: (q[:, :, :3], k[:, :, :2], v[:, :, :2]), "divides"),
        (lambda q, k, v: (q, k[..., :3], v), "do not fit"),
        (lambda q, k, v: (q, k, v[:, 1:]), "do not fit"),
        (lambda q, k, v: (q[0, 0], k[0, 0], v[0, 0]), "query, key and value are"),
        (lambda q, k, v: (q, k[0], v), "query, key and value are"),
    ],
)
def test_shapes_that_do_not_fit(change, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        entmax_attention(*change(*inputs()))


def test_a_mask_that_is_no_mask() -> None:
    with pytest.raises(TypeError, match="boolean"):
        entmax_attention(*inputs(), mask=jnp.zeros((1, 1, T, S)))


# Heads that shall look at one place each, and heads that shall look at all of them alike.
def wanted(scores: jax.Array) -> jax.Array:
    sharp, flat = jax.nn.one_hot(scores.argmax(-1), S), jnp.full(scores.shape, 1 / S)
    return jnp.where(jnp.arange(2)[None, :, None, None] == 0, sharp, flat)


def problem():
    q = jax.random.normal(jax.random.key(3), (8, 16, 2, H))
    k = jax.random.normal(jax.random.key(4), (8, S, 2, H))
    v = jnp.broadcast_to(jnp.eye(S)[:, None], (8, S, 2, S))  # the output is the weights
    scores = jnp.einsum("btnh,bsnh->bnts", q, k)
    return q, k, v, jnp.moveaxis(wanted(scores), 1, 2)


def check_learned(before: jax.Array, after: jax.Array) -> None:
    assert np.allclose(before, 1.5)
    assert after[0] > 1.55 and after[1] < 1.45
    assert ((after >= 1) & (after <= 2)).all()


@pytest.mark.usefixtures("plain_numpy")  # for Adam
def test_heads_of_nnx_learn_their_alpha() -> None:
    q, k, v, target = problem()
    attention = EntmaxAttention(num_heads=2)
    before = attention.alpha
    optimizer = nnx.Optimizer(attention, optax.adam(0.05), wrt=nnx.Param)

    @nnx.jit
    def step(attention, optimizer):
        loss = lambda attention: ((attention(q, k, v) - target) ** 2).sum(-1).mean()  # noqa: E731
        optimizer.update(attention, nnx.grad(loss)(attention))

    for _ in range(10):
        step(attention, optimizer)
    check_learned(before, attention.alpha)


def test_heads_of_linen_learn_their_alpha() -> None:
    q, k, v, target = problem()
    attention = LinenEntmaxAttention(num_heads=2)
    params = jax.jit(attention.init)(jax.random.key(0), q, k, v)
    before = 1 + jax.nn.sigmoid(params["params"]["raw"])

    @jax.jit
    def step(params):
        loss = lambda p: ((attention.apply(p, q, k, v) - target) ** 2).sum(-1).mean()  # noqa: E731
        return jax.tree.map(lambda p, g: p - 0.05 * jnp.sign(g), params, jax.grad(loss)(params))

    for _ in range(10):
        params = step(params)
    check_learned(before, 1 + jax.nn.sigmoid(params["params"]["raw"]))


def test_linen_own_attention_takes_masks_and_asks_for_alpha_in_the_gradient() -> None:
    """Of a mask as Flax makes it, of float32."""
    x = jax.random.normal(jax.random.key(5), (2, T, 16))
    causal = nn.make_causal_mask(jnp.ones((2, T)))
    layer = nn.MultiHeadDotProductAttention(N, attention_fn=LinenEntmaxAttention(N))
    variables = jax.jit(layer.init)(jax.random.key(0), x)

    @jax.jit
    def both(x, mask):
        def square(variables):
            out = layer.apply(variables, x, mask=mask)
            return (out**2).sum(), out

        return jax.grad(square, has_aux=True)(variables)

    gradient, masked = both(x, causal)
    assert (gradient["params"]["attention_fn"]["raw"] != 0).all()
    assert np.allclose(masked[:, :2], both(x.at[:, 2:].set(0), causal)[1][:, :2], atol=1e-6)
    assert not np.allclose(masked, both(x, jnp.ones_like(causal))[1])


def test_nnx_own_attention_takes_masks_and_asks_for_alpha_in_the_gradient() -> None:
    """And `decode`, which makes a mask itself, gives one query after another the same."""
    x = jax.random.normal(jax.random.key(5), (2, T, 16))
    layer = nnx.MultiHeadAttention(
        N, 16, attention_fn=EntmaxAttention(N), decode=False, rngs=nnx.Rngs(0)
    )

    @nnx.jit
    def both(layer, mask):
        def square(layer):
            out = layer(x, mask=mask)
            return (out**2).sum(), out

        return nnx.grad(square, has_aux=True)(layer)

    gradient, at_once = both(layer, nn.make_causal_mask(jnp.ones((2, T))))
    assert (gradient["attention_fn"]["raw"][...] != 0).all()
    causal = nnx.jit(lambda layer: layer(x, is_causal=True))(layer)
    assert np.allclose(causal, at_once, atol=1e-6)
    layer.init_cache(x.shape)
    following = nnx.jit(lambda layer, x: layer(x, decode=True))
    one_by_one = [following(layer, x[:, t : t + 1]) for t in range(T)]
    assert np.allclose(at_once, np.concatenate(one_by_one, axis=1), atol=1e-6)


def test_layers_refuse_what_they_cannot_do() -> None:
    with pytest.raises(ValueError, match="between 1 and 2"):
        EntmaxAttention(2, alpha=2.5)
    with pytest.raises(ValueError, match="between 1 and 2"):
        LinenEntmaxAttention(N, alpha=1.0).init(jax.random.key(0), *inputs())
    with pytest.raises(ValueError, match="no dropout"):
        EntmaxAttention(N)(*inputs(), dropout_rate=0.1, deterministic=False)


def test_layers_say_that_they_sow_nothing() -> None:
    x, why = jnp.ones((2, 5, 16)), "sows no weights"
    linen = nn.MultiHeadDotProductAttention(4, attention_fn=LinenEntmaxAttention(4))
    with pytest.raises(ValueError, match=why):
        linen.init(jax.random.key(0), x, sow_weights=True)
    attention = EntmaxAttention(4)
    layer = nnx.MultiHeadAttention(4, 16, attention_fn=attention, decode=False, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match=why):
        layer(x, sow_weights=True)


@pytest.mark.parametrize("shape", [(0, 5, 4, 8), (2, 0, 4, 8)])
def test_no_example_and_no_query(shape: tuple) -> None:
    query, other = jnp.ones(shape), jnp.ones((shape[0], 3, 4, 8))
    assert entmax_attention(query, other, other).shape == shape


def test_a_bad_alpha_for_each_head_is_refused_under_jit_too() -> None:
    q, alpha = jnp.ones((1, 5, 4, 8)), np.full(4, 0.5)
    with pytest.raises(ValueError, match="begins at alpha = 1"):
        jax.jit(lambda q: entmax_attention(q, q, q, alpha=alpha))(q)
