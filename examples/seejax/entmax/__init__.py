"""α-entmax: a softmax that can say zero.

p = entmax(z) is the point of the simplex that maximises <p, z> + H_α(p), where
H_α(p) = Σ (p - p^α) / (α(α - 1)) is Tsallis' entropy. α = 1 is softmax, α = 2 is sparsemax; the
larger α, the more scores get a probability of exactly zero. With ε = α - 1 and the threshold τ,

    p_i = max(ε z_i - τ, 0)^(1/ε).

`pivot` finds the one unknown; everything here follows from p and from Σ p_i = 1.

Source: Peters, Niculae, Martins 2019, arXiv:1905.05702, section 3; the derivative by α: Correia,
Niculae, Martins 2019, arXiv:1909.00015, section 3.
"""

import functools
import numbers
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from seejax.entmax.pivot import Epsilon, Number, log_of, phi, power_of, row_sum, solve

__all__ = ["entmax", "entmax_loss", "sparsemax"]


def entmax(
    z: ArrayLike, alpha: ArrayLike = 1.5, axis: int = -1, where: ArrayLike | None = None
) -> jax.Array:
    """Sparse softmax: the p on the simplex that maximises <p, z> + H_α(p).

    Differentiable in z and in alpha, forward and reverse, again and again. From α = 2 on the edge
    of the support is a kink, and a score at the edge counts as outside. Reverse mode keeps p, and
    alpha and the mask where they are arrays. float16 and bfloat16 are computed in float32.

    Args:
      z: scores, real (..., n, ...); n lies along `axis`. -inf masks an entry.
      alpha: at least 1; a scalar, or an array that broadcasts to z without `axis`. 1 is softmax,
        2 is sparsemax. A Python number is compiled into the program, which is faster.
      axis: the axis along which p sums to 1.
      where: boolean, broadcasts to z: the entries that take part. p is 0 elsewhere, and so is
        every derivative. A row of which no entry takes part is 0 throughout.

    Returns:
      p, shape and dtype of z (integers give floats). A row is NaN if an entry that takes part is
      NaN or +inf, if all of them are -inf, or if its alpha, unknown while it was traced, is below 1
      or infinite.

    Raises:
      ValueError: alpha below 1, infinite or NaN, a shape of alpha or where that does not fit, an
        empty axis or one that is not there.
      TypeError: complex z or alpha, a `where` that is not boolean.

    >>> entmax(jnp.array([2.0, 1.5, 0.2]))
    Array([0.67399..., 0.32600..., 0.        ], dtype=float32)
    >>> heads = jnp.tile(jnp.array([2.0, 1.5, 0.2]), (3, 1))
    >>> (entmax(heads, alpha=jnp.array([1.0, 1.5, 4.0])) > 0).sum(axis=-1)
    Array([3, 2, 1], dtype=int32)
    >>> entmax(jnp.array([9.0, 1.5, 0.2]), where=jnp.array([False, True, True]))
    Array([0.        , 0.908..., 0.091...], dtype=float32)
    """
    rows, epsilon, some = _rows(z, alpha, axis, where, "z")
    p = _entmax(rows, epsilon)
    return jnp.moveaxis(p if some is None else jnp.where(some, p, 0), -1, axis)


def sparsemax(z: ArrayLike, axis: int = -1, where: ArrayLike | None = None) -> jax.Array:
    """entmax with α = 2: the Euclidean projection of z onto the simplex.

    Args, returns and errors: as `entmax`. Source: Martins, Astudillo 2016, arXiv:1602.02068.

    >>> sparsemax(jnp.array([0.0, 1.0, 1.5]))
    Array([0.  , 0.25, 0.75], dtype=float32)
    """
    return entmax(z, 2, axis, where)


def entmax_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    alpha: ArrayLike = 1.5,
    axis: int = -1,
    *,
    where: ArrayLike | None = None,
    reduction: Literal["none", "sum", "mean"] = "none",
) -> jax.Array:
    """The Fenchel-Young loss that belongs to entmax: max_p <p, z> + H_α(p), less <y, z> + H_α(y).

    Its gradient in the logits is p - y. It is 0 once the label's score is ahead of all others by
    1 / (α - 1). α = 1 is the cross-entropy of softmax; with probabilities as labels it is less by
    their entropy, which is the Kullback-Leibler divergence.

    Args:
      logits: scores z, real (..., n, ...); n lies along `axis`.
      labels: the index of the true class, integers of the shape of z without `axis`, each in
        [0, n), any other gives NaN; or the probabilities y, floats of the shape of z.
      alpha, axis: as for `entmax`.
      where: as for `entmax`. A row of which no entry takes part has loss and gradient 0; a label
        that takes no part has an infinite loss.
      reduction: "mean" is over the rows of which some entry takes part.

    Returns:
      One loss per row, at least 0, or what they reduce to; dtype of logits.

    Raises:
      ValueError: shapes that do not fit, an unknown reduction, or as `entmax`.
      TypeError: labels that are neither integers nor floats, or as `entmax`.

    Source: Blondel, Martins, Niculae 2020, arXiv:1901.02324; Peters et al. 2019, section 3.

    >>> z = jnp.array([[3.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
    >>> entmax_loss(z, jnp.array([0, 2]))
    Array([0.       , 0.563..., dtype=float32)
    >>> entmax_loss(z, entmax(z)).max() < 1e-6
    Array(True, dtype=bool)
    """
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"reduction is {reduction!r}, but must be 'none', 'sum' or 'mean'")
    z, epsilon, some = _rows(logits, alpha, axis, where, "logits")
    y, shape, narrow = jnp.asarray(labels), z.shape[:-1], z.dtype
    z = z.astype(_wide(narrow))
    p = _entmax(z, epsilon)
    z -= jax.lax.stop_gradient(jnp.max(z, axis=-1, keepdims=True))  # the loss does not change
    if jnp.issubdtype(y.dtype, jnp.integer):
        if y.shape != shape:
            raise ValueError(f"labels {y.shape} do not fit logits {z.shape}: one for each row")
        y = y.astype(jnp.int32) if y.dtype.itemsize < 4 else y  # uint8 cannot count to 256
        classes = (y[..., None] >= 0) & (y[..., None] < z.shape[-1])
        loss = _gap(p, z, y[..., None], epsilon) * jnp.where(classes, 1, jnp.nan).astype(z.dtype)
    elif jnp.issubdtype(y.dtype, jnp.floating):
        if y.shape != jnp.shape(logits):
            raise ValueError(f"labels {y.shape} do not fit logits {jnp.shape(logits)}")
        y = jnp.moveaxis(y, axis, -1).astype(z.dtype)
        loss = _gap(p, z, y, epsilon) - _entropy(y, epsilon)
    else:
        raise TypeError(f"labels are indices of classes or probabilities, not {y.dtype}")
    loss += jax.lax.stop_gradient(jnp.maximum(-loss, 0))  # rounding can leave an ulp below 0
    if some is not None:
        loss = jnp.where(some, loss, 0)
    if reduction == "none":
        return jnp.squeeze(loss, -1).astype(narrow)
    count = jnp.sum(jnp.ones_like(loss) if some is None else some.astype(loss.dtype))
    return (jnp.sum(loss) / (jnp.maximum(count, 1) if reduction == "mean" else 1)).astype(narrow)


# -- what is given ---------------------------------------------------------------------------------


def _rows(z, alpha, axis, where, name) -> tuple[jax.Array, Epsilon, jax.Array | None]:
    """Scores with n in the last axis, ε = α - 1, and which rows have an entry that takes part."""
    z = jnp.asarray(z)
    if jnp.issubdtype(z.dtype, jnp.complexfloating):
        raise TypeError(f"{name} is {z.dtype}: entmax orders its scores, complex numbers have none")
    if not jnp.issubdtype(z.dtype, jnp.floating):
        z = z.astype(jnp.result_type(float))
    if not -z.ndim <= axis < z.ndim:
        raise ValueError(f"axis {axis} is not there: {name} has {z.ndim} axes")
    if z.shape[axis] == 0:
        raise ValueError(f"axis {axis} of {name} is empty: no p on it can sum to 1")
    rows, some = jnp.moveaxis(z, axis, -1), None
    if where is not None:
        where = jnp.asarray(where)
        if where.dtype != bool:
            raise TypeError(f"where is {where.dtype}, but must be boolean")
        where = jnp.moveaxis(jnp.broadcast_to(where, z.shape), axis, -1)
        some = jnp.any(where, axis=-1, keepdims=True)
        # A row without entries gets scores that do no harm, and its p is thrown away.
        rows = jnp.where(where, rows, jnp.where(some, -jnp.inf, jnp.zeros_like(rows)))
    return rows, _epsilon(alpha, rows.shape[:-1], axis, _wide(z.dtype)), some


def _wide(dtype: jnp.dtype) -> jnp.dtype:
    """float32 at least: half precision cannot hold a threshold among thousands of scores."""
    return jnp.dtype("float32") if jnp.finfo(dtype).bits < 32 else dtype


def _epsilon(alpha: ArrayLike, shape: tuple, axis: int, dtype: jnp.dtype) -> Epsilon:
    """ε = α - 1: a number where Python knows it, else an array (..., 1), one for each row."""
    if jnp.issubdtype(jnp.result_type(alpha), jnp.complexfloating):
        raise TypeError(f"alpha is {jnp.result_type(alpha)}, but must be real")
    if not isinstance(alpha, jax.core.Tracer):
        values = np.asarray(alpha, float)
        if not np.all(values >= 1):
            raise ValueError(f"alpha is {values}, but entmax begins at alpha = 1 (softmax)")
        if np.any(np.isinf(values)):
            raise ValueError("alpha is infinite")
        if isinstance(alpha, numbers.Real | np.number):
            return Number(values - 1)  # taken in double: 1.001 - 1 keeps its digits
    alpha = jnp.asarray(alpha)
    try:
        fits = jax.lax.broadcast_shapes(alpha.shape, shape) == shape
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(
            f"alpha of shape {alpha.shape} does not broadcast to {shape}, "
            f"the shape of z without axis {axis}"
        )
    if not jnp.issubdtype(alpha.dtype, jnp.floating):
        alpha = alpha.astype(dtype)
    valid = (alpha >= 1) & (alpha < jnp.inf)  # what is traced cannot raise
    epsilon = jnp.where(valid, alpha - 1, jnp.nan).astype(dtype)
    return jnp.broadcast_to(epsilon, shape)[..., None]


# -- the map, the loss and their derivatives -------------------------------------------------------
# z is (..., n); epsilon is a number, or an array (..., 1).


def _entmax(z: jax.Array, epsilon: Epsilon) -> jax.Array:
    if isinstance(epsilon, float) and epsilon == 0:
        return jax.nn.softmax(z.astype(_wide(z.dtype)), axis=-1).astype(z.dtype)
    return _sparse(z, epsilon)


@jax.custom_jvp
def _sparse(z: jax.Array, epsilon: Epsilon) -> jax.Array:
    return solve(z.astype(_wide(z.dtype)), epsilon).astype(z.dtype)


@functools.partial(_sparse.defjvp, symbolic_zeros=True)
def _sparse_jvp(primals, tangents):
    p = _sparse(*primals)
    given = (None if isinstance(t, float | SymbolicZero) else t for t in tangents)
    return p, _tangent(p, primals[1], *given)


@functools.partial(jax.checkpoint, prevent_cse=False)  # p is all that is kept for the way back
def _tangent(p, epsilon, dz, depsilon):
    """dp = s (dz - <s, dz> / Σs) + (a - s Σa / Σs) dε, where s = ∂p/∂z and a = ∂p/∂ε at a fixed τ.

    Sum p_i(z, ε, τ) = 1 over i, differentiate, solve for dτ: that is all.
    """
    narrow, p = p.dtype, p.astype(_wide(p.dtype))
    # Above α = 2 an s may be more than a float holds. Its share in Σs is not: in units of the
    # largest s, that of the least p, it is found without s.
    least = jax.lax.stop_gradient(jnp.min(jnp.where(p > 0, p, 1), axis=-1, keepdims=True))
    unit = jnp.where(epsilon > 1, least, 1)
    share = power_of(p / unit, 1 - epsilon)
    s, dp = share * power_of(unit, 1 - epsilon), jnp.zeros_like(p)
    share /= row_sum(share)
    if dz is not None:
        dz = dz.astype(p.dtype)
        if isinstance(epsilon, float) and epsilon <= 1:
            dp += s * (dz - row_sum(s * dz) / row_sum(s))
        else:
            # One s may be 1e20 times all others: seen from it, their mean keeps its digits, and
            # its own dp is what the others leave. The transpose takes the same steps.
            most = jnp.max(share, axis=-1, keepdims=True)
            first = (share == most).astype(s.dtype)
            first = most * first / row_sum(first) + (1 - most) * share
            dz -= row_sum(first * dz)
            change = s * (dz - row_sum(share * dz))
            change -= share * row_sum(change)
            dp += change - first * row_sum(change)
    if depsilon is not None:
        a = _by_epsilon(p, epsilon)
        dp += (a - share * row_sum(a)) * depsilon
    return dp.astype(narrow)


@jax.custom_jvp
def _gap(p: jax.Array, z: jax.Array, y: jax.Array, epsilon: Epsilon) -> jax.Array:
    """max_p <p, z> + H_α(p), at that p, less <y, z>. y is (..., n), or the classes (..., 1)."""
    gain = jnp.where(p > 0, z, 0) + _information(p, epsilon)  # 0 times -inf would be NaN
    return row_sum(_less(jnp.where(p > 0, p * gain, p), z, y))


@functools.partial(_gap.defjvp, symbolic_zeros=True)
def _gap_jvp(primals, tangents):
    """<p - y, dz> + ∂H/∂ε dε: p is where the sum is largest, so its own change counts nothing."""
    (p, z, y, epsilon), (_, dz, dy, depsilon) = primals, tangents
    gap = _gap(*primals)
    change = jnp.zeros_like(gap)
    if not isinstance(dz, SymbolicZero):
        change += row_sum(_less(p * dz, dz, y))
    if not isinstance(dy, SymbolicZero) and dy.dtype == z.dtype:
        change -= row_sum(jnp.where(jnp.isfinite(z), z, 0) * dy)
    if not isinstance(depsilon, float | SymbolicZero):
        entropy = functools.partial(_entropy, p)
        change += jax.jvp(entropy, (epsilon,), (jnp.ones_like(epsilon),))[1] * depsilon
    return gap, change


def _less(x: jax.Array, z: jax.Array, y: jax.Array) -> jax.Array:
    """x - y z, where a class y stands for the row that is 1 there and 0 elsewhere."""
    if jnp.issubdtype(y.dtype, jnp.integer):
        place = jax.typeof(z).sharding
        classes = jax.lax.broadcasted_iota(y.dtype, z.shape, z.ndim - 1, out_sharding=place)
        return jnp.where(classes == y, x - z, x)
    return x - y * jnp.where(y == 0, 0, z)


# -- functions that are right at p = 0 and at ε = 0 ------------------------------------------------


def _by_epsilon(p: jax.Array, epsilon: jax.Array) -> jax.Array:
    """∂p/∂ε at a fixed τ, up to a multiple of s, which the sum over p takes away again.

    Up to ε = 1 that at the y where exp_ε(y) = p, -p log²p φ(-ε log p); above, p^-ε might overflow.
    """
    log = jnp.log(jnp.where(p > 0, p, 1))
    steep = epsilon > 1
    gentle = jnp.where(steep, 0, epsilon)
    return jnp.where(
        steep,
        p * (1 - epsilon * log) / jnp.where(steep, epsilon, 1) ** 2,
        -p * log**2 * phi(-gentle * log),
    )


def _information(p: jax.Array, epsilon: Epsilon) -> jax.Array:
    """-log_ε p / (1 + ε): its mean under p is Tsallis' H_α(p), Shannon's at ε = 0."""
    return -log_of(p, epsilon) / (1 + epsilon)


def _entropy(p: jax.Array, epsilon: Epsilon) -> jax.Array:
    return row_sum(p * _information(p, epsilon))
