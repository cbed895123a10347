"""α-entmax: a softmax that can say zero.

p = entmax(z) is the point of the simplex that maximises <p, z> + H_α(p), where
H_α(p) = Σ (p - p^α) / (α(α - 1)) is Tsallis' entropy. α = 1 is softmax, α = 2 is sparsemax; the
larger α, the more scores get a probability of exactly zero. With ε = α - 1 and the threshold τ,

    p_i = max(ε z_i - τ, 0)^(1/ε).

Instead of τ this file looks for the probability q of one score r, the pivot:

    p_i = max(q^ε + ε (z_i - r), 0)^(1/ε) = q exp_ε((z_i - r) / q^ε),
    exp_ε(y) = max(1 + εy, 0)^(1/ε),   exp_0 = exp.

That holds at ε = 0 too, and Σ p_i = 1 is increasing and convex in q: Newton comes down from the
right and never passes the root. The pivot is chosen so that nothing cancels where powers are steep:
the largest score up to α = 2, the smallest of the support above.

Source: Peters, Niculae, Martins 2019, arXiv:1905.05702, section 3; the derivative by α: Correia,
Niculae, Martins 2019, arXiv:1909.00015, section 3.
"""

import functools
import math
import numbers
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

__all__ = ["entmax", "entmax_loss", "sparsemax"]


def entmax(
    z: ArrayLike, alpha: ArrayLike = 1.5, axis: int = -1, where: ArrayLike | None = None
) -> jax.Array:
    """Sparse softmax: the p on the simplex that maximises <p, z> + H_α(p).

    Differentiable in z and in alpha, forward and reverse, again and again; the edge of the support
    is a kink, where the derivative is that of the inside. Reverse mode keeps p and nothing else.
    float16 and bfloat16 are computed in float32.

    Args:
      z: scores, real (..., n, ...); n lies along `axis`. -inf masks an entry.
      alpha: at least 1; a scalar, or an array that broadcasts to z without `axis`. 1 is softmax,
        2 is sparsemax. A Python number is compiled into the program, which is faster.
      axis: the axis along which p sums to 1.
      where: boolean, broadcasts to z: the entries that take part. p is 0 elsewhere, and so is
        every derivative. A row of which no entry takes part is 0 throughout.

    Returns:
      p, shape and dtype of z (integers give floats). A row is NaN if an entry that takes part is
      NaN or +inf, if all of them are -inf, or if its alpha, known only under jit, is below 1 or
      infinite.

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
    count = 1 if reduction == "sum" else loss.size if some is None else jnp.sum(some)
    return (jnp.sum(loss) / jnp.maximum(count, 1)).astype(narrow)


# -- what is given ---------------------------------------------------------------------------------


@jax.tree_util.register_static
class _Number(float):
    """A number that Python knows: a pytree without leaves, hence a part of the program."""

    def __sub__(self, other: float) -> "_Number":
        return _Number(float(self) - other)

    def __rsub__(self, other: float) -> "_Number":
        return _Number(other - float(self))


_Epsilon = _Number | jax.Array


def _rows(z, alpha, axis, where, name) -> tuple[jax.Array, _Epsilon, jax.Array | None]:
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


def _epsilon(alpha: ArrayLike, shape: tuple, axis: int, dtype: jnp.dtype) -> _Epsilon:
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
            return _Number(values - 1)  # taken in double: 1.001 - 1 keeps its digits
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


def _sum(x: jax.Array) -> jax.Array:
    return jnp.sum(x, axis=-1, keepdims=True)


def _entmax(z: jax.Array, epsilon: _Epsilon) -> jax.Array:
    if isinstance(epsilon, float) and epsilon == 0:
        return jax.nn.softmax(z.astype(_wide(z.dtype)), axis=-1).astype(z.dtype)
    return _sparse(z, epsilon)


@jax.custom_jvp
def _sparse(z: jax.Array, epsilon: _Epsilon) -> jax.Array:
    return _solve(z.astype(_wide(z.dtype)), epsilon).astype(z.dtype)


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
    s, dp = _power(p, 1 - epsilon), jnp.zeros_like(p)
    if dz is not None:
        dz = dz.astype(p.dtype)
        # Above α = 2 one s may be 1e6 times all others: the first mean has too few digits for it.
        for _ in range(1 if isinstance(epsilon, float) and epsilon <= 1 else 2):
            dz -= _sum(s * dz) / _sum(s)
        dp += s * dz
    if depsilon is not None:
        a = _by_epsilon(p, epsilon)
        dp += (a - s * _sum(a) / _sum(s)) * depsilon
    return dp.astype(narrow)


@jax.custom_jvp
def _gap(p: jax.Array, z: jax.Array, y: jax.Array, epsilon: _Epsilon) -> jax.Array:
    """max_p <p, z> + H_α(p), at that p, less <y, z>. y is (..., n), or the classes (..., 1)."""
    return _sum(_less(jnp.where(p > 0, p * (z + _information(p, epsilon)), p), z, y))


@functools.partial(_gap.defjvp, symbolic_zeros=True)
def _gap_jvp(primals, tangents):
    """<p - y, dz> + ∂H/∂ε dε: p is where the sum is largest, so its own change counts nothing."""
    (p, z, y, epsilon), (_, dz, dy, depsilon) = primals, tangents
    gap = _gap(*primals)
    change = jnp.zeros_like(gap)
    if not isinstance(dz, SymbolicZero):
        change += _sum(_less(p * dz, dz, y))
    if not isinstance(dy, SymbolicZero) and dy.dtype == z.dtype:
        change -= _sum(jnp.where(jnp.isfinite(z), z, 0) * dy)
    if not isinstance(depsilon, float | SymbolicZero):
        entropy = functools.partial(_entropy, p)
        change += jax.jvp(entropy, (epsilon,), (jnp.ones_like(epsilon),))[1] * depsilon
    return gap, change


def _less(x: jax.Array, z: jax.Array, y: jax.Array) -> jax.Array:
    """x - y z, where a class y stands for the row that is 1 there and 0 elsewhere."""
    if jnp.issubdtype(y.dtype, jnp.integer):
        return jnp.where(jax.lax.broadcasted_iota(y.dtype, z.shape, z.ndim - 1) == y, x - z, x)
    return x - jnp.where(y == 0, 0, y * z)


# -- functions that are right at p = 0 and at ε = 0 ------------------------------------------------


@jax.custom_jvp
def _power(p: jax.Array, a: _Epsilon) -> jax.Array:
    """p**a on the support; 0 outside of it, also for a <= 0, and so are its derivatives."""
    if isinstance(a, float):
        if a == 0.5:
            return jnp.sqrt(p)
        if a == 1:
            return p
        if a == 0:
            return jnp.where(p > 0, jnp.ones_like(p), p)  # p itself: NaN stays NaN
        if a > 0:
            return jnp.exp(float(a) * jnp.log(p))  # exp(-inf) is 0
    log = jnp.log(jnp.where(p > 0, p, 1))
    ceiling = 0.8 * math.log(jnp.finfo(p.dtype).max)  # what would overflow can still be multiplied
    a = float(a) if isinstance(a, float) else a
    return jnp.where(p > 0, jnp.exp(jnp.minimum(a * log, ceiling)), p)


@_power.defjvp
def _power_jvp(primals, tangents):
    (p, a), (dp, da) = primals, tangents
    out, slope = _power(p, a), _power(p, a - 1)
    if isinstance(a, float):
        return out, float(a) * slope * dp
    return out, a * slope * dp + out * jnp.log(jnp.where(p > 0, p, 1)) * da


def _phi(v: jax.Array) -> jax.Array:
    """(exp(v) - 1 - v) / v². Its digits cancel near v = 0: there its series, 1/2 + v/6 + v²/24…"""
    near = jnp.abs(v) < 1
    small, far = jnp.where(near, v, 0), jnp.where(near, 1, v)
    series = jnp.zeros_like(v)
    for k in range(16, -1, -1):
        series = 1 / math.factorial(k + 2) + small * series
    return jnp.where(near, series, (jnp.expm1(far) - far) / far**2)


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
        -p * log**2 * _phi(-gentle * log),
    )


def _log(p: jax.Array, epsilon: _Epsilon) -> jax.Array:
    """The inverse of exp_ε: (p^ε - 1) / ε, and log p at ε = 0; 0 at p = 0."""
    if isinstance(epsilon, float) and epsilon > 0.25:
        return (_power(p, epsilon) - 1) / float(epsilon)
    log = jnp.log(jnp.where(p > 0, p, 1))
    v = epsilon * log
    if isinstance(epsilon, float):
        return jnp.expm1(v) / float(epsilon) if epsilon else log
    return log * (1 + v * _phi(v))  # can be differentiated at ε = 0


def _information(p: jax.Array, epsilon: _Epsilon) -> jax.Array:
    """-log_ε p / (1 + ε): its mean under p is Tsallis' H_α(p), Shannon's at ε = 0."""
    return -_log(p, epsilon) / (1 + epsilon)


def _entropy(p: jax.Array, epsilon: _Epsilon) -> jax.Array:
    return _sum(p * _information(p, epsilon))


# -- the probability of the pivot ------------------------------------------------------------------
# z is (rows, n), all else (rows, 1).


def _newton(sums: Callable, q: jax.Array, busy: jax.Array) -> tuple[jax.Array, ...]:
    """The q at which p sums to 1: q, q^ε, Σp and dΣp/dq there.

    sums: q -> q^ε, Σp, dΣp/dq, how far Σp may be from 1, Newton's step from q.
    """

    def newton_step(state):
        q, above, _, _, _, count, _ = state
        power, total, slopes, tol, ahead = sums(q)
        busy = (jnp.abs(total - 1) > tol) & (count < 64)  # 26 at most, but for rounding
        above = jnp.where(total < 1, above, q)
        ahead = jnp.where(total < 1, (above + q) / 2, ahead)  # a step too far is rounding's
        return jnp.where(busy, ahead, q), above, power, total, slopes, count + 1, busy

    state = (q, q, q, q, q, q * 0, busy)
    q, _, *rest, _, _ = jax.lax.while_loop(lambda state: jnp.any(state[-1]), newton_step, state)
    return q, *rest


def _below(x, q, power, epsilon):
    """p and dp/dq where the pivot is the largest score: α <= 2."""
    if isinstance(epsilon, float) and epsilon > 0.25:  # far from ε = 0, no log1p is needed
        u = jnp.maximum(power + float(epsilon) * x, 0)
        s = _power(u, _Number(1 / epsilon - 1))
        return (u if epsilon == 1 else s * u), s * (power / q)
    epsilon = float(epsilon) if isinstance(epsilon, float) else epsilon
    y = x * (1 / power)
    v = jnp.maximum(epsilon * y, -1)
    log = jnp.where(epsilon == 0, y, jnp.log1p(v) / jnp.where(epsilon == 0, 1, epsilon))
    p = jnp.exp(log)  # exp_ε(y)
    return q * p, jnp.where(v > -1, p / jnp.where(v > -1, 1 + v, 1), 0 * p)


def _above(x, q, power, epsilon):
    """p and dp/dq where the pivot is the smallest score of the support: α > 2."""
    start = jnp.log(q)
    log = jnp.where(x > 0, jnp.log(power + jnp.maximum(epsilon * x, 0)) / epsilon, start)
    return tuple(jnp.where(x >= 0, jnp.exp(y), 0) for y in (log, (epsilon - 1) * (start - log)))


def _largest(z, top, epsilon, busy):
    """The largest score, and its q.

    Newton's step is taken on (Σp)^ε as a function of q^ε. The 1/ε-norm of max(q^ε + ε x, 0), it is
    convex and close to a straight line; on Σp the first steps are shorter.
    """
    x, n, eps = z - top, z.shape[-1], jnp.finfo(z.dtype).eps
    # What is left is corrected in a straight line, so its square counts; where powers are steep at
    # the edge, above ε = 1/2, a lower power of it.
    tol = jnp.maximum(4 * eps, (8 * eps / n) ** jnp.maximum(epsilon, 0.5))

    def sums(x, q):
        power = _power(q, epsilon)
        p, slope = _below(x, q, power, epsilon)
        total, slopes = _sum(p), _sum(slope)
        rise = _power(total, 1 - epsilon) * _log(total, epsilon)
        shift = slopes * q / power  # how much Σp changes with the threshold
        ahead, _ = _below(-rise / shift, q, power, epsilon)
        return power, total, slopes, tol * shift, ahead

    q = 1 + jnp.max(x, axis=-1, keepdims=True)  # 1; NaN if all scores are masked
    if isinstance(n, int) and n >= 256:  # a program exported for any n does not know
        # The largest of every 16 is most of the support at a 16th of the cost. It is less than all
        # of the sum, so its q is larger.
        few = jnp.pad(x, ((0, 0), (0, -n % 16)), constant_values=-jnp.inf)
        few = jnp.max(few.reshape(len(x), 16, -1), axis=1)
        q = _newton(functools.partial(sums, few), q, busy)[0]
    return top, *_newton(functools.partial(sums, x), q, busy)


def _smallest(z, top, epsilon, busy):
    """The smallest score of the support, and its q.

    A score is in the support if those above it would not fill it alone: were its p 0, theirs would
    sum to less than 1. The border is found by halving the floats between max z and max z - 1/ε.
    """
    eps, integer = jnp.finfo(z.dtype).eps, jnp.dtype(f"int{jnp.finfo(z.dtype).bits}")
    cast = jax.lax.bitcast_convert_type

    def mirror(bits):  # the bits of floats, as integers in the same order; and back
        return jnp.where(bits < 0, bits ^ jnp.iinfo(integer).max, bits)

    def halve(bracket):
        out, support = bracket
        middle = out + (support - out) // 2
        x = z - cast(mirror(middle), z.dtype)
        full = _sum(jnp.exp(jnp.log(epsilon * jnp.maximum(x, 0)) / epsilon)) >= 1
        return jnp.where(full, middle, out), jnp.where(full, support, middle)

    support = mirror(cast(top, integer))
    out = jnp.where(busy, mirror(cast(top - 1 / epsilon, integer)) - 1, support)
    bracket = jax.lax.while_loop(lambda b: jnp.any(b[0] + 1 < b[1]), halve, (out, support))
    inside = z >= cast(mirror(bracket[1]), z.dtype)
    pivot = jnp.min(jnp.where(inside, z, top), axis=-1, keepdims=True)

    def sums(q):
        power = jnp.exp(epsilon * jnp.log(q))
        p, slope = _above(z - pivot, q, power, epsilon)
        total, slopes = _sum(p), _sum(slope)
        ahead = jnp.maximum(q - (total - 1) / slopes, jnp.finfo(q.dtype).tiny)
        return power, total, slopes, 4 * eps * slopes, ahead

    return pivot, *_newton(sums, 1 / _sum(inside.astype(z.dtype)), busy)


def _pivot(z, top, epsilon):
    """The pivot, its q and q^ε, and the change of q that is left to do."""
    busy = top == top
    if isinstance(epsilon, float):
        found = (_smallest if epsilon > 1 else _largest)(z, top, epsilon, busy)
    else:
        above = _smallest(z, top, jnp.maximum(epsilon, 1), busy & (epsilon > 1))
        below = _largest(z, top, jnp.minimum(epsilon, 1), busy & (epsilon <= 1))
        found = (jnp.where(epsilon > 1, *both) for both in zip(above, below, strict=True))
    pivot, q, power, total, slopes = found
    return pivot, q, power, (1 - total) / slopes


@jax.jit
def _solve(z: jax.Array, epsilon: _Epsilon) -> jax.Array:
    """entmax along the last axis, without derivatives."""
    sharding = jax.typeof(z).sharding
    if jax.sharding.AxisType.Explicit in sharding.mesh.axis_types:
        # Rows are cut into blocks regardless of the device they are on: the compiler sees to it.
        return jax.sharding.auto_axes(out_sharding=sharding)(_search)(z, epsilon)
    return _search(z, epsilon)


def _search(z: jax.Array, epsilon: _Epsilon) -> jax.Array:
    m, n = math.prod(z.shape[:-1]), z.shape[-1]
    rows, known = z.reshape(m, n), isinstance(epsilon, float)
    top = jnp.max(rows, axis=-1, keepdims=True)
    epsilon = epsilon if known else epsilon.reshape(m, 1)

    def in_blocks(*given):
        block = _block(m, n, known and (epsilon == 0.5 or epsilon >= 1))
        pad = (0, -m % block), (0, 0)
        given = jax.tree.map(lambda x: jnp.pad(x, pad).reshape(-1, block, x.shape[-1]), given)
        found = jax.lax.map(lambda given: _pivot(*given), given)
        return jax.tree.map(lambda x: x.reshape(-1, 1)[:m], found)

    cpu = in_blocks if isinstance(m * n, int) and m else _pivot
    pivot, q, power, change = jax.lax.platform_dependent(
        rows, top, epsilon, cpu=cpu, default=_pivot
    )
    if known:
        p, slope = (_above if epsilon > 1 else _below)(rows - pivot, q, power, epsilon)
    else:
        both = (f(rows - pivot, q, power, epsilon) for f in (_above, _below))
        p, slope = (jnp.where(epsilon > 1, *one) for one in zip(*both, strict=True))
    return jnp.maximum(p + slope * change, 0).reshape(z.shape)


def _block(m: int, n: int, cheap: bool) -> int:
    """How many rows a CPU solves together, so that they stay in a core's cache.

    Newton goes over them again and again, and one slow row keeps its block waiting, not all. Where
    powers are dear, XLA divides them among the cores if the block is long.
    """
    size, most = (2**15, 2**9) if cheap else (2**18, 2**13)
    block = max(1, min(size // n, most, m))
    return next((b for b in range(block, block // 2, -1) if m % b == 0), block)
