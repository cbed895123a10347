"""α-entmax: a softmax that can say zero.

p = entmax(z) is the point of the simplex that maximises <p, z> + H_α(p), where
H_α(p) = Σ (p - p^α) / (α(α - 1)) is Tsallis' entropy. α = 1 is softmax, α = 2 is sparsemax; the
larger α, the more scores get a probability of exactly zero. With ε = α - 1 the solution is

    p_i = exp_ε(z_i - c),    exp_ε(y) = max(1 + εy, 0)^(1/ε),    exp_0 = exp,

for the one threshold c at which p sums to 1. Everything here follows from that line: the forward
pass looks for c, the derivatives come from the implicit function theorem.

Source: Peters, Niculae, Martins 2019, arXiv:1905.05702, section 3; the derivative by α: Correia,
Niculae, Martins 2019, arXiv:1909.00015, section 3.
"""

import functools
import math
import numbers

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

__all__ = ["entmax", "entmax_loss", "sparsemax"]


def entmax(z: ArrayLike, alpha: ArrayLike = 1.5, axis: int = -1) -> jax.Array:
    """Sparse softmax: the p on the simplex that maximises <p, z> + H_α(p).

    Differentiable in z and in alpha, forward and reverse, to any order. float16 and bfloat16 are
    computed in float32.

    Args:
      z: scores, real (..., n, ...); n lies along `axis`. -inf masks an entry.
      alpha: at least 1; a scalar, or an array that broadcasts to z without `axis`. 1 is softmax,
        2 is sparsemax. A Python number is compiled into the program, which is faster.
      axis: the axis along which p sums to 1.

    Returns:
      p, shape and dtype of z (integers give floats). A row that holds a NaN, or is masked
      throughout, is NaN; so is a row whose alpha is below 1 and known only under jit.

    Raises:
      ValueError: alpha below 1 or NaN, a shape of alpha that does not fit, an empty axis or one
        that is not there.
      TypeError: complex z or alpha.

    >>> entmax(jnp.array([2.0, 1.5, 0.2]))
    Array([0.67399..., 0.32600..., 0.        ], dtype=float32)
    >>> heads = jnp.tile(jnp.array([2.0, 1.5, 0.2]), (3, 1))
    >>> (entmax(heads, alpha=jnp.array([1.0, 1.5, 4.0])) > 0).sum(axis=-1)
    Array([3, 2, 1], dtype=int32)
    """
    z = _real(z, "z")
    if not -z.ndim <= axis < z.ndim:
        raise ValueError(f"axis {axis} is not there: z has {z.ndim} axes")
    if z.shape[axis] == 0:
        raise ValueError(f"axis {axis} of z is empty: no p on it can sum to 1")
    rows = jnp.moveaxis(z, axis, -1)
    known, epsilon = _epsilon(alpha, rows.shape[:-1], axis)
    wide = _wide(z.dtype)
    p = _entmax(rows.astype(wide), epsilon.astype(wide), known)
    return jnp.moveaxis(p.astype(z.dtype), -1, axis)


def sparsemax(z: ArrayLike, axis: int = -1) -> jax.Array:
    """entmax with α = 2: the Euclidean projection of z onto the simplex.

    Args, returns and errors: as `entmax`. Source: Martins, Astudillo 2016, arXiv:1602.02068.

    >>> sparsemax(jnp.array([0.0, 1.0, 1.5]))
    Array([0.  , 0.25, 0.75], dtype=float32)
    """
    return entmax(z, 2, axis)


def entmax_loss(logits: ArrayLike, labels: ArrayLike, alpha: ArrayLike = 1.5) -> jax.Array:
    """The Fenchel-Young loss that belongs to entmax: <p - y, z> + H_α(p), with p = entmax(z).

    Its gradient in the logits is p - y. It is 0 once the label's score is ahead of all others by
    1 / (α - 1); α = 1 is the cross-entropy of softmax.

    Args:
      logits: scores z, real (..., n).
      labels: the index of the true class, integers (...), each in [0, n). Any other gives NaN.
      alpha: as for `entmax`.

    Returns:
      One loss per label, at least 0, in nats; shape of labels, dtype of logits.

    Raises:
      ValueError: shapes that do not fit, or as `entmax`.  TypeError: labels that are not integers.

    Source: Blondel, Martins, Niculae 2020, arXiv:1901.02324; Peters et al. 2019, section 3.

    >>> entmax_loss(jnp.array([[3.0, 0.0, 0.5], [0.0, 0.0, 0.0]]), jnp.array([0, 2]))
    Array([0.       , 0.563..., dtype=float32)
    """
    z, labels = _real(logits, "logits"), jnp.asarray(labels)
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise TypeError(f"labels are indices of classes, not {labels.dtype}")
    if labels.shape != z.shape[:-1] or not z.ndim:
        raise ValueError(f"labels {labels.shape} do not fit logits {z.shape}: one for each row")
    if z.shape[-1] == 0:
        raise ValueError("there is no class: the last axis of logits is empty")
    known, epsilon = _epsilon(alpha, z.shape[:-1], -1)
    wide = _wide(z.dtype)
    y = jax.nn.one_hot(labels, z.shape[-1], dtype=wide)
    y /= jnp.sum(y, axis=-1, keepdims=True)  # a label that is no class has no 1: 0 / 0
    loss = _loss(z.astype(wide), epsilon.astype(wide), y, known)
    return loss.astype(z.dtype)


def _real(z: ArrayLike, name: str) -> jax.Array:
    z = jnp.asarray(z)
    if jnp.issubdtype(z.dtype, jnp.complexfloating):
        raise TypeError(f"{name} is {z.dtype}: entmax orders its scores, complex numbers have none")
    return z if jnp.issubdtype(z.dtype, jnp.floating) else z.astype(jnp.result_type(float))


def _wide(dtype: jnp.dtype) -> jnp.dtype:
    """float32 at least: half precision cannot hold a threshold among thousands of scores."""
    return jnp.dtype("float32") if jnp.finfo(dtype).bits < 32 else dtype


def _epsilon(alpha: ArrayLike, shape: tuple, axis: int) -> tuple[float | None, jax.Array]:
    """ε = α - 1: as a Python number where it is one, and as an array of the given shape."""
    number = None
    if isinstance(alpha, numbers.Real | np.number) and not isinstance(alpha, jax.core.Tracer):
        number = float(alpha)  # the difference is taken in double: 1.001 - 1 keeps its digits
    values = jnp.asarray(alpha) if number is None else np.asarray(number)
    if np.issubdtype(values.dtype, np.complexfloating):
        raise TypeError(f"alpha is {values.dtype}, but must be real")
    if not isinstance(values, jax.core.Tracer) and not np.all(np.asarray(values) >= 1):
        raise ValueError(f"alpha is {np.asarray(values)}, but entmax begins at alpha = 1 (softmax)")
    if number is not None and math.isinf(number):
        raise ValueError("alpha is infinite")
    try:
        fits = np.broadcast_shapes(values.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"alpha of shape {values.shape} does not broadcast to {shape}, "
            f"the shape of z without axis {axis}"
        )
    if not jnp.issubdtype(values.dtype, jnp.floating):
        values = values.astype(jnp.result_type(float))
    below = jnp.where(values >= 1, values - 1, jnp.nan)  # what is traced cannot raise
    return (None if number is None else number - 1), jnp.broadcast_to(below, shape)


# -- the map and its derivatives -------------------------------------------------------------------
# z is (..., n), epsilon (...); `known` is epsilon as a Python number, or None: what it says about
# powers is used when the program is traced.


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _entmax(z: jax.Array, epsilon: jax.Array, known: float | None) -> jax.Array:
    if known == 0:
        return jax.nn.softmax(z, axis=-1)
    return _solve(z, epsilon, known)


@functools.partial(_entmax.defjvp, symbolic_zeros=True)
def _entmax_jvp(known, primals, tangents):
    """dp = s (dz - <s, dz> / Σs) + (a - s Σa / Σs) dε, where s = ∂p/∂z and a = ∂p/∂ε at a fixed c.

    Sum p_i(z, ε, c) = 1 over i, differentiate, solve for dc: that is all.
    """
    (z, epsilon), (dz, depsilon) = primals, tangents
    p = _entmax(z, epsilon, known)
    s = _power(p, 1 - epsilon[..., None], None if known is None else 1 - known)
    total = jnp.sum(s, axis=-1, keepdims=True)
    dp = jnp.zeros_like(p)
    if not isinstance(dz, SymbolicZero):
        dp = s * (dz - jnp.sum(s * dz, axis=-1, keepdims=True) / total)
    if not isinstance(depsilon, SymbolicZero):
        a = _by_epsilon(p, epsilon[..., None])
        dp += (a - s * jnp.sum(a, axis=-1, keepdims=True) / total) * depsilon[..., None]
    return p, dp


@functools.partial(jax.custom_jvp, nondiff_argnums=(3,))
def _loss(z: jax.Array, epsilon: jax.Array, y: jax.Array, known: float | None) -> jax.Array:
    p = _entmax(z, epsilon, known)
    shifted = z - jnp.max(z, axis=-1, keepdims=True)  # <p - y, 1> = 0
    gain = jnp.where(p == y, 0, (p - y) * shifted)  # a masked score is -inf, its p is 0
    return jnp.sum(gain, axis=-1) + _entropy(p, epsilon)


@_loss.defjvp
def _loss_jvp(known, primals, tangents):
    """dL = <p - y, dz> + ∂H/∂ε dε: p maximises <p, z> + H(p), so its own change counts nothing."""
    (z, epsilon, y), (dz, depsilon, _) = primals, tangents
    p = _entmax(z, epsilon, known)
    _, dentropy = jax.jvp(functools.partial(_entropy, p), (epsilon,), (depsilon,))
    return _loss(z, epsilon, y, known), jnp.sum((p - y) * dz, axis=-1) + dentropy


# -- powers that are right at p = 0 and at ε = 0 ---------------------------------------------------


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _power(p: jax.Array, a: jax.Array, known: float | None = None) -> jax.Array:
    """p**a on the support; 0 outside of it, also for a <= 0, and so are its derivatives."""
    if known == 0.5:
        return jnp.sqrt(p)
    if known == 1:
        return p
    if known == 0:
        return jnp.where(p > 0, jnp.ones_like(p), p)  # p itself: NaN stays NaN
    if known is not None and known > 0:
        return jnp.exp(known * jnp.log(p))  # exp(-inf) is 0
    inside = jnp.where(p > 0, p, 1)
    return jnp.where(p > 0, jnp.exp(a * jnp.log(inside)), p)


@_power.defjvp
def _power_jvp(known, primals, tangents):
    (p, a), (dp, da) = primals, tangents
    out = _power(p, a, known)
    slope = a * _power(p, a - 1, None if known is None else known - 1)
    return out, slope * dp + out * jnp.log(jnp.where(p > 0, p, 1)) * da


def _by_epsilon(p: jax.Array, epsilon: jax.Array) -> jax.Array:
    """∂/∂ε of exp_ε(y) at the y where exp_ε(y) = p: -p log²p φ(-ε log p)."""
    log = jnp.log(jnp.where(p > 0, p, 1))
    return -p * log**2 * _phi(-epsilon * log)


def _phi(v: jax.Array) -> jax.Array:
    """(exp(v) - 1 - v) / v². Its digits cancel near v = 0: there its series, 1/2 + v/6 + v²/24…"""
    near = jnp.abs(v) < 1
    small, far = jnp.where(near, v, 0), jnp.where(near, 1, v)
    series = jnp.zeros_like(v)
    for k in range(16, -1, -1):
        series = 1 / math.factorial(k + 2) + small * series
    return jnp.where(near, series, (jnp.expm1(far) - far) / far**2)


def _entropy(p: jax.Array, epsilon: jax.Array) -> jax.Array:
    """Tsallis' H_α(p) along the last axis: -Σ p (p^ε - 1) / ε / (1 + ε); Shannon's at ε = 0."""
    log = jnp.log(jnp.where(p > 0, p, 1))
    v = epsilon[..., None] * log
    return -jnp.sum(p * log * (1 + v * _phi(v)), axis=-1) / (1 + epsilon)


# -- the threshold ---------------------------------------------------------------------------------


def _exp(y: jax.Array, epsilon: jax.Array, known: float | None) -> tuple[jax.Array, jax.Array]:
    """p = exp_ε(y) and its slope p^(1-ε), both 0 where 1 + εy <= 0."""
    if known is not None and known > 0.25:  # far from ε = 0, log is as good as log1p, and quicker
        u = jnp.maximum(1 + known * y, 0)
        slope = _power(u, 1 / known - 1, 1 / known - 1)
        return (u if known == 1 else slope * u), slope
    w = jnp.maximum(epsilon * y, -1)
    log = jnp.where(epsilon == 0, y, jnp.log1p(w) / jnp.where(epsilon == 0, 1, epsilon))
    p = jnp.exp(log)
    return p, jnp.where(w > -1, p / jnp.where(w > -1, 1 + w, 1), p)


def _log(total: jax.Array, epsilon: jax.Array) -> jax.Array:
    """The inverse of exp_ε: (total^ε - 1) / ε, and log(total) at ε = 0."""
    log = jnp.log(total)
    zero = epsilon == 0
    return jnp.where(zero, log, jnp.expm1(epsilon * log) / jnp.where(zero, 1, epsilon))


def _climb(x: jax.Array, c: jax.Array, epsilon, known: float | None) -> tuple[jax.Array, ...]:
    """S = Σ exp_ε(x - c), -dS/dc, and where Newton's step on log_ε S leads from c."""
    p, slope = _exp(x - c, epsilon, known)
    total, slopes = jnp.sum(p), jnp.sum(slope)
    if known == 0.5:  # short rows spend their time here: no power where a root will do
        rise = 2 * (total - jnp.sqrt(total))
    elif known == 1:
        rise = total - 1
    else:
        rise = total * _log(total, -epsilon)  # = log_ε S / (d log_ε S / dS)
    return total, slopes, c + rise / slopes


def _start(few: jax.Array, epsilon, known: float | None) -> jax.Array:
    """A c to the left of the root and near it: the root for a few of the scores."""
    c = jnp.max(few)
    for _ in range(5):
        c = _climb(few, c, epsilon, known)[2]
    return jnp.fmax(c, 0)  # NaN if all of them are masked; the largest of all scores is 0


def _threshold(x, c, epsilon, known):
    """The c at which S(c) = Σ exp_ε(x - c) is 1, for one row x whose maximum is 0.

    log_ε S is convex in c for 0 <= ε <= 1, so Newton climbs to its root from the left, never past
    it, and doubles its digits with each step; on S - 1 itself it would crawl at first. Above ε = 1
    it is not convex: there, and where a step loses itself in rounding, the bracket is halved.
    """
    n, resolution = x.shape[0], jnp.finfo(x.dtype).eps

    def busy(state):
        return state[-1]

    def step(state):
        c, low, high, count, _ = state
        total, slopes, ahead = _climb(x, c, epsilon, known)
        error = total - 1
        low, high = jnp.where(error >= 0, c, low), jnp.where(error < 0, c, high)
        inside = (ahead > low) & (ahead < high)
        halve = ~inside | ((count >= 8) & (count % 2 == 0))
        # The step after the last look leaves n error² / 2 slopes² at most while exp_ε bends less
        # than a parabola. Above that ε it has a corner at 0, and S itself has to be 1.
        enough = jnp.where(
            epsilon <= 0.5, slopes * jnp.sqrt(slopes * 8 * resolution / n), 4 * resolution
        )
        near = jnp.abs(error) <= enough
        target = jnp.where(halve, jnp.where(near, c, low + (high - low) / 2), ahead)
        return target, low, high, count + 1, (jnp.abs(error) > enough) & (target != c)

    # p <= 1 at the maximum: c >= 0. Equal scores have the largest c of all.
    high = _log(jnp.asarray(n, x.dtype), -epsilon) * (1 + resolution)
    state = (c, jnp.zeros_like(c), high, 0, jnp.asarray(True))
    return jax.lax.while_loop(busy, step, state)[0]


@functools.partial(jax.jit, static_argnums=2)
def _solve(z: jax.Array, epsilon: jax.Array, known: float | None) -> jax.Array:
    """entmax along the last axis, without derivatives."""
    solve = functools.partial(_search, known=known)
    sharding = jax.typeof(z).sharding
    if jax.sharding.AxisType.Explicit in sharding.mesh.axis_types:
        # Rows are cut into blocks regardless of the device they are on: the compiler sees to it.
        solve = jax.sharding.auto_axes(out_sharding=sharding)(solve)
    return solve(z, epsilon)


def _search(z: jax.Array, epsilon: jax.Array, known: float | None) -> jax.Array:
    n, m = z.shape[-1], math.prod(z.shape[:-1])
    rows, epsilons = z.reshape(m, n), epsilon.reshape(m)

    def start(few, epsilon):
        return _start(few, epsilon if known is None else known, known)

    def threshold(z, top, c, epsilon):
        return _threshold(z - top, c, epsilon if known is None else known, known)

    def in_blocks(*rows):
        # A block of rows stays in a core's cache while Newton goes over it again and again, and one
        # slow row keeps its block waiting, not all. Above α = 2 rows are slow most often. Below,
        # a power is dear, and XLA divides it among the cores if the block is long.
        dear = known is None or (known < 1 and known != 0.5)
        size, most = (2**18, 2**13) if dear else (2**15, 2**9)
        block = max(1, min(size // n, most))
        return jax.lax.map(lambda row: threshold(*row), rows, batch_size=block)

    top = jnp.max(rows, axis=-1, keepdims=True)
    c = jnp.zeros_like(top[:, 0])
    if n >= 256:  # the largest of every 16 scores: most of the support, at a 16th of the cost
        few = jnp.max(rows[:, : n // 16 * 16].reshape(m, 16, n // 16), axis=1)
        c = jax.vmap(start)(few - top, epsilons)
    if m:
        c = jax.lax.platform_dependent(
            rows, top[:, 0], c, epsilons, cpu=in_blocks, default=jax.vmap(threshold)
        )
    p, _ = _exp((rows - top) - c[:, None], epsilons[:, None], known)
    # c is a float: n roundings of it add up
    return (p / jnp.sum(p, axis=-1, keepdims=True)).reshape(z.shape)
