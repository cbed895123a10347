"""Attention that can look away: its weights are α-entmax instead of softmax, so some are zero.

Source: Correia, Niculae, Martins 2019, arXiv:1909.00015, where each head learns its own α.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import nnx
from jax.typing import ArrayLike

from seejax.entmax import entmax

__all__ = ["EntmaxAttention", "LinenEntmaxAttention", "entmax_attention"]


def entmax_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    alpha: ArrayLike = 1.5,
    scale: float | None = None,
    is_causal: bool = False,
    precision: jax.lax.PrecisionLike = None,
) -> jax.Array:
    """`jax.nn.dot_product_attention` with entmax, without its lengths, windows and kernels.

    At α = 1 the two agree up to rounding, but for a query that may look at nothing: it gets 0 here,
    not the mean of all values.

    Args:
      query: (B, T, N, H), or all three arguments without B.
      key: (B, S, K, H). K divides N: heads n K / N share a key (grouped queries).
      value: (B, S, K, V).
      bias: is added to the scores; broadcasts to (B, N, T, S).
      mask: boolean, broadcasts to (B, N, T, S): True where a query may look.
      alpha: at least 1: a scalar, or (N,), one for each head. See `entmax`.
      scale: of the scores; 1 / √H if not given.
      is_causal: query t may look at keys up to t.
      precision: of both products, as in `jax.lax.dot_general`.

    Returns:
      (B, T, N, V), dtype of value. Scores and weights are float32 at least.

    Raises:
      ValueError: shapes that do not fit, or as `entmax`.  TypeError: a mask that is not boolean.

    >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 5, 4, 8))
    >>> softmax = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    >>> jnp.allclose(entmax_attention(q, k, v, alpha=1, is_causal=True), softmax, atol=1e-6)
    Array(True, dtype=bool)
    """
    query, key, value = jnp.asarray(query), jnp.asarray(key), jnp.asarray(value)
    if query.ndim == 3:
        query, key, value = (x[None] for x in (query, key, value))
        out = entmax_attention(
            query, key, value, bias, mask,
            alpha=alpha, scale=scale, is_causal=is_causal, precision=precision,
        )  # fmt: skip
        return out[0]
    if not query.ndim == key.ndim == value.ndim == 4:
        shapes = query.shape, key.shape, value.shape
        raise ValueError(f"query, key and value are (B, T, N, H) or (T, N, H), not {shapes}")
    (b, t, n, h), (_, s, k, _) = query.shape, key.shape
    if key.shape != (b, s, k, h) or value.shape[:3] != (b, s, k) or not k or n % k:
        raise ValueError(
            f"key {key.shape} and value {value.shape} do not fit query {query.shape}: "
            "the number of their heads divides that of the query"
        )
    wide = query.dtype if jnp.finfo(query.dtype).bits >= 32 else jnp.float32
    grouped = query.reshape(b, t, k, n // k, h).astype(wide)
    scores = jnp.einsum("btkgh,bskh->bkgts", grouped, key.astype(wide), precision=precision)
    scores = scores.reshape(b, n, t, s) * jnp.asarray(h**-0.5 if scale is None else scale, wide)
    if bias is not None:
        scores += jnp.broadcast_to(jnp.asarray(bias, wide), scores.shape)
    if mask is not None:
        mask = jnp.broadcast_to(jnp.asarray(mask), scores.shape)
    if is_causal:
        past = jnp.broadcast_to(jnp.tri(t, s, dtype=bool), scores.shape)
        mask = past if mask is None else mask & past
    if jnp.ndim(alpha):  # one for each head: entmax wants it for (B, N, T)
        lib = jnp if isinstance(alpha, jax.core.Tracer) else np  # what is known is checked
        alpha = lib.broadcast_to(lib.asarray(alpha)[:, None], (n, t))[None]
    weights = entmax(scores, alpha, where=mask).astype(value.dtype)
    weights = weights.reshape(b, k, n // k, t, s)
    out = jnp.einsum("bkgts,bskv->btkgv", weights, value, precision=precision)
    return out.reshape(b, t, n, value.shape[-1])


def _start(alpha: float, num_heads: int) -> jax.Array:
    """The parameters at which 1 + sigmoid is alpha."""
    if not 1 < alpha < 2:
        raise ValueError(f"alpha is {alpha}, but must lie between 1 and 2: it is 1 + sigmoid")
    return jnp.full(num_heads, jax.scipy.special.logit(alpha - 1), jnp.result_type(float))


def _boolean(mask: ArrayLike | None) -> jax.Array | None:
    """A mask as Flax makes it, of numbers."""
    return None if mask is None else jnp.asarray(mask) != 0


def _refuse(dropout_rate: float, deterministic: bool | None, module: Any) -> None:
    """What attention can be asked for and entmax_attention does not do."""
    if dropout_rate and not deterministic:
        raise ValueError("entmax attention has no dropout: set dropout_rate to 0")
    if module is not None:
        raise ValueError("entmax attention sows no weights: leave out sow_weights=True")


class EntmaxAttention(nnx.Module):
    """entmax_attention in which each head learns its α = 1 + sigmoid(raw), between 1 and 2.

    For Flax NNX; it can be the attention_fn of `nnx.MultiHeadAttention`.

    Args:
      num_heads: N of the query.
      alpha: where α starts, between 1 and 2.

    >>> attention = EntmaxAttention(num_heads=4)
    >>> layer = nnx.MultiHeadAttention(
    ...     4, 16, attention_fn=attention, decode=False, rngs=nnx.Rngs(0)
    ... )
    >>> layer(jnp.ones((2, 5, 16))).shape
    (2, 5, 16)
    >>> attention.alpha
    Array([1.5, 1.5, 1.5, 1.5], dtype=float32)
    """

    def __init__(self, num_heads: int, alpha: float = 1.5) -> None:
        self.raw = nnx.Param(_start(alpha, num_heads))

    @property
    def alpha(self) -> jax.Array:
        return 1 + jax.nn.sigmoid(self.raw[...])

    def __call__(
        self, query, key, value, bias=None, mask=None, *,
        is_causal=False, precision=None, dropout_rate=0.0, deterministic=True, module=None,
        **_: Any,
    ) -> jax.Array:  # fmt: skip
        """Shapes as `entmax_attention`. What else MultiHeadAttention passes does not concern it."""
        _refuse(dropout_rate, deterministic, module)
        return entmax_attention(
            query, key, value, bias, _boolean(mask),
            alpha=self.alpha, is_causal=is_causal, precision=precision,
        )  # fmt: skip


class LinenEntmaxAttention(nn.Module):
    """EntmaxAttention for Flax Linen and `nn.MultiHeadDotProductAttention`.

    >>> attention = LinenEntmaxAttention(num_heads=4)
    >>> layer = nn.MultiHeadDotProductAttention(4, attention_fn=attention)
    >>> variables = layer.init(jax.random.key(0), jnp.ones((2, 5, 16)))
    >>> variables["params"]["attention_fn"]["raw"].shape
    (4,)
    """

    num_heads: int
    alpha: float = 1.5

    @nn.compact
    def __call__(
        self, query, key, value, bias=None, mask=None, *,
        is_causal=False, precision=None, dropout_rate=0.0, deterministic=True, module=None,
    ) -> jax.Array:  # fmt: skip
        """Shapes as `entmax_attention`."""
        _refuse(dropout_rate, deterministic, module)
        raw = self.param("raw", lambda _: _start(self.alpha, self.num_heads))
        return entmax_attention(
            query, key, value, bias, _boolean(mask),
            alpha=1 + jax.nn.sigmoid(raw), is_causal=is_causal, precision=precision,
        )  # fmt: skip
