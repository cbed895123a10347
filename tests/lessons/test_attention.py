"""entmax_attention beside jax.nn.dot_product_attention, and beside the sum it stands for."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx

from seejax.entmax import entmax
from seejax.entmax.attention import EntmaxAttention, LinenEntmaxAttention, entmax_attention

B, T, S, N, H = 2, 5, 7, 4, 8


def inputs(heads: int = N, dtype="float32"):
    q, k, v = jax.random.split(jax.random.key(0), 3)
    return (
        jax.random.normal(q, (B, T, N, H), dtype),
        jax.random.normal(k, (B, S, heads, H), dtype),
        jax.random.normal(v, (B, S, heads, H), dtype),
    )


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_alpha_one_is_jax_own(heads: int, dtype: str, options: dict) -> None:
    qkv = inputs(heads, dtype)
    bias = jax.random.normal(jax.random.key(1), (1, N, T, S), dtype)
    mask = jax.random.bernoulli(jax.random.key(2), 0.7, (B, 1, T, S)).at[..., 0].set(True)

    def both(f, **more):
        out, pull = jax.vjp(lambda *qkv: f(*qkv, bias, mask, **options, **more), *qkv)
        return out, *pull(jnp.cos(out))

    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        expected = both(jax.nn.dot_product_attention)
    tolerance = 2e-6 if dtype == "float32" else 4e-2
    for got, want in zip(both(entmax_attention, alpha=1), expected, strict=True):
        assert got.dtype == dtype
        assert np.allclose(got.astype(float), want.astype(float), atol=tolerance, rtol=tolerance)


def test_each_head_by_hand() -> None:
    """A loop over batch, head and query; heads share keys two by two."""
    q, k, v = inputs(heads=2)
    alpha = jnp.array([1.0, 1.5, 2.0, 3.0])
    out = entmax_attention(q, k, v, alpha=alpha, is_causal=True)
    for b, t, n in np.ndindex(B, T, N):
        scores = k[b, : t + 1, n // 2] @ q[b, t, n] / np.sqrt(H)
        assert np.allclose(
            out[b, t, n], entmax(scores, alpha[n]) @ v[b, : t + 1, n // 2], atol=2e-6
        )
    assert np.allclose(entmax_attention(q[0], k[0], v[0], alpha=alpha, is_causal=True), out[0])


def test_a_query_that_may_look_at_nothing_gets_nothing() -> None:
    q, k, v = inputs()
    mask = jnp.ones((1, 1, T, S), bool).at[:, :, 2].set(False)

    def square(q):
        return (entmax_attention(q, k, v, mask=mask) ** 2).sum()

    out, gradient = entmax_attention(q, k, v, mask=mask), jax.grad(square)(q)
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
    params = attention.init(jax.random.key(0), q, k, v)
    before = 1 + jax.nn.sigmoid(params["params"]["raw"])

    @jax.jit
    def slope(params):
        return jax.grad(lambda p: ((attention.apply(p, q, k, v) - target) ** 2).sum(-1).mean())(
            params
        )

    for _ in range(10):
        params = jax.tree.map(lambda p, g: p - 0.05 * jnp.sign(g), params, slope(params))
    check_learned(before, 1 + jax.nn.sigmoid(params["params"]["raw"]))


def test_both_layers_inside_flax_own_attention() -> None:
    """The same α by either, and it is asked for in the gradient."""
    x = jax.random.normal(jax.random.key(5), (2, T, 16))
    linen = nn.MultiHeadDotProductAttention(N, attention_fn=LinenEntmaxAttention(N))
    variables = linen.init(jax.random.key(0), x)
    gradient = jax.grad(lambda p: (linen.apply(p, x) ** 2).sum())(variables)["params"]
    assert (gradient["attention_fn"]["raw"] != 0).all()

    model = nnx.MultiHeadAttention(
        N, 16, attention_fn=EntmaxAttention(N), decode=False, rngs=nnx.Rngs(0)
    )
    gradient = nnx.grad(lambda model: (model(x) ** 2).sum())(model)
    assert (gradient["attention_fn"]["raw"][...] != 0).all()
    causal = model(x, is_causal=True)
    assert np.allclose(causal[:, :2], model(x[:, :2], is_causal=True), atol=1e-6)


def test_layers_take_masks_as_flax_makes_them() -> None:
    """Of float32; and `decode`, which makes one itself, gives one query after another the same."""
    x = jax.random.normal(jax.random.key(5), (2, T, 16))
    causal = nn.make_causal_mask(jnp.ones((2, T)))
    linen = nn.MultiHeadDotProductAttention(N, attention_fn=LinenEntmaxAttention(N))
    variables = linen.init(jax.random.key(0), x)
    masked = linen.apply(variables, x, mask=causal)
    assert np.allclose(masked[:, :2], linen.apply(variables, x[:, :2], mask=causal[..., :2, :2]))
    assert not np.allclose(masked, linen.apply(variables, x))

    model = nnx.MultiHeadAttention(
        N, 16, attention_fn=EntmaxAttention(N), decode=False, rngs=nnx.Rngs(0)
    )
    at_once = model(x, mask=causal)
    model.init_cache(x.shape)
    one_by_one = [model(x[:, t : t + 1], decode=True) for t in range(T)]
    assert np.allclose(at_once, jnp.concatenate(one_by_one, axis=1), atol=1e-6)


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
