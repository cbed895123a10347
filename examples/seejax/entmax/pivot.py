"""The one unknown of α-entmax: the probability q of one score r, the pivot. With ε = α - 1

    p_i = max(q^ε + ε (z_i - r), 0)^(1/ε) = q exp_ε((z_i - r) / q^ε),
    exp_ε(y) = max(1 + εy, 0)^(1/ε),   exp_0 = exp.

That holds at ε = 0 too, and Σ p_i = 1 is increasing and convex in q: Newton comes down from the
right and never passes the root. The pivot is chosen so that nothing cancels where powers are steep:
the largest score up to α = 2, the smallest of the support above.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

__all__ = ["Epsilon", "Number", "log_of", "phi", "power_of", "row_sum", "solve"]


@jax.tree_util.register_static
class Number(float):
    """A number that Python knows: a pytree without leaves, hence a part of the program."""

    def __sub__(self, other: float) -> "Number":
        return Number(float(self) - other)

    def __rsub__(self, other: float) -> "Number":
        return Number(other - float(self))


Epsilon = Number | jax.Array


# -- functions that are right at p = 0 and at ε = 0 ------------------------------------------------


def row_sum(x: jax.Array) -> jax.Array:
    return jnp.sum(x, axis=-1, keepdims=True)


@jax.custom_jvp
def power_of(p: jax.Array, a: Epsilon) -> jax.Array:
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
    return jnp.where(p > 0, jnp.exp(jnp.minimum(log * a, ceiling)), p)


@power_of.defjvp
def _power_jvp(primals, tangents):
    (p, a), (dp, da) = primals, tangents
    out, slope = power_of(p, a), power_of(p, a - 1)
    if isinstance(a, float):
        return out, float(a) * slope * dp
    return out, a * slope * dp + out * jnp.log(jnp.where(p > 0, p, 1)) * da


def phi(v: jax.Array) -> jax.Array:
    """(exp(v) - 1 - v) / v². Its digits cancel near v = 0: there its series, 1/2 + v/6 + v²/24…"""
    near = jnp.abs(v) < 1
    small, far = jnp.where(near, v, 0), jnp.where(near, 1, v)
    series = jnp.zeros_like(v)
    for k in range(16, -1, -1):
        series = 1 / math.factorial(k + 2) + small * series
    return jnp.where(near, series, (jnp.expm1(far) - far) / far**2)


def log_of(p: jax.Array, epsilon: Epsilon) -> jax.Array:
    """The inverse of exp_ε: (p^ε - 1) / ε, and log p at ε = 0; 0 at p = 0."""
    if isinstance(epsilon, float) and epsilon > 0.25:
        return (power_of(p, epsilon) - 1) / float(epsilon)
    log = jnp.log(jnp.where(p > 0, p, 1))
    v = epsilon * log
    if isinstance(epsilon, float):
        return jnp.expm1(v) / float(epsilon) if epsilon else log
    return log * (1 + v * phi(v))  # can be differentiated at ε = 0


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
    """p and (q / q^ε) dp/dq where the pivot is the largest score: α <= 2."""
    if isinstance(epsilon, float) and epsilon > 0.25:  # far from ε = 0, no log1p is needed
        u = jnp.maximum(power + float(epsilon) * x, 0)
        s = power_of(u, Number(1 / epsilon - 1))
        return (u if epsilon == 1 else s * u), s
    epsilon = float(epsilon) if isinstance(epsilon, float) else epsilon
    y = x * (1 / power)
    v = jnp.maximum(epsilon * y, -1)
    log = jnp.where(epsilon == 0, y, jnp.log1p(v) / jnp.where(epsilon == 0, 1, epsilon))
    p = jnp.exp(log)  # exp_ε(y)
    return q * p, q / power * jnp.where(v > -1, p / jnp.where(v > -1, 1 + v, 1), 0 * p)


def _above(x, q, power, epsilon):
    """p and dp/dq where the pivot is the smallest score of the support: α > 2."""
    start = jnp.log(q)
    log = jnp.where(x > 0, jnp.log(power + jnp.maximum(epsilon * x, 0)) / epsilon, start)
    slope = jnp.exp((epsilon - 1) * (start - log))
    return jnp.where(x >= 0, jnp.exp(log), 0), jnp.where(x >= 0, slope, 0)


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
        power = power_of(q, epsilon)
        p, slope = _below(x, q, power, epsilon)
        total, slopes = row_sum(p), row_sum(slope)
        rise = power_of(total, 1 - epsilon) * log_of(total, epsilon)
        ahead, _ = _below(-rise / slopes, q, power, epsilon)
        return power, total, slopes * (power / q), tol * slopes, ahead

    q = 1 + (top - top)  # 1; NaN if all scores are masked
    if isinstance(n, int) and n >= 256:  # a program exported for any n does not know
        # The largest of every 16 is most of the support at a 16th of the cost. It is less than all
        # of the sum, so its q is larger.
        few = jnp.pad(z, ((0, 0), (0, -n % 16)), constant_values=-jnp.inf)
        few = jnp.max(few.reshape(len(x), 16, -1), axis=1) - top
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
        full = row_sum(jnp.exp(jnp.log(epsilon * jnp.maximum(x, 0)) / epsilon)) >= 1
        return jnp.where(full, middle, out), jnp.where(full, support, middle)

    support = mirror(cast(top, integer))
    out = jnp.where(busy, mirror(cast(top - 1 / epsilon, integer)) - 1, support)
    bracket = jax.lax.while_loop(lambda b: jnp.any(b[0] + 1 < b[1]), halve, (out, support))
    inside = z >= cast(mirror(bracket[1]), z.dtype)
    pivot = jnp.min(jnp.where(inside, z, top), axis=-1, keepdims=True)

    def sums(q):
        power = jnp.exp(epsilon * jnp.log(q))
        p, slope = _above(z - pivot, q, power, epsilon)
        total, slopes = row_sum(p), row_sum(slope)
        ahead = jnp.maximum(q - (total - 1) / slopes, jnp.finfo(q.dtype).tiny)
        return power, total, slopes, 4 * eps * slopes, ahead

    return pivot, *_newton(sums, 1 / row_sum(inside.astype(z.dtype)), busy)


def _pivot(z, epsilon):
    """The pivot, its q and q^ε, and what is left to do along the slopes of p."""
    top = jnp.max(z, axis=-1, keepdims=True)
    busy = top == top
    if isinstance(epsilon, float):
        found = (_smallest if epsilon > 1 else _largest)(z, top, epsilon, busy)
    else:
        above = _smallest(z, top, jnp.maximum(epsilon, 1), busy & (epsilon > 1))
        below = _largest(z, top, jnp.minimum(epsilon, 1), busy & (epsilon <= 1))
        found = (jnp.where(epsilon > 1, *both) for both in zip(above, below, strict=True))
    pivot, q, power, total, slopes = found
    change = (1 - total) / slopes
    # Where powers are flat at the edge q itself is changed; what of it q cannot hold, and all of it
    # where they are steep, is left for a straight line.
    step = q + jnp.where(epsilon <= 0.5, change, 0)
    power = jnp.where(epsilon <= 0.5, power_of(step, epsilon), power)
    left = (change - (step - q)) * jnp.where(epsilon > 1, 1, power / step)  # see _below
    return pivot, step, power, left


@jax.jit
def solve(z: jax.Array, epsilon: Epsilon) -> jax.Array:
    """entmax along the last axis, without derivatives."""
    sharding = jax.typeof(z).sharding
    if jax.sharding.AxisType.Explicit in sharding.mesh.axis_types:
        # Rows are cut into blocks regardless of the device they are on: the compiler sees to it.
        return jax.sharding.auto_axes(out_sharding=sharding)(_search)(z, epsilon)
    return _search(z, epsilon)


def _search(z: jax.Array, epsilon: Epsilon) -> jax.Array:
    m, n = math.prod(z.shape[:-1]), z.shape[-1]
    rows = z.reshape(m, n)
    epsilon = epsilon if isinstance(epsilon, float) else epsilon.reshape(m, 1)
    cheap = isinstance(epsilon, float) and (epsilon == 0.5 or epsilon >= 1)

    def in_blocks(*given):
        block = _block(m, n, cheap)
        pad = (0, -m % block), (0, 0)
        given = jax.tree.map(lambda x: jnp.pad(x, pad).reshape(-1, block, x.shape[-1]), given)
        found = jax.lax.map(lambda given: _pivot(*given), given)
        return jax.tree.map(lambda x: x.reshape(-1, 1)[:m], found)

    cpu = in_blocks if isinstance(m * n, int) and m else _pivot
    pivot, q, power, change = jax.lax.platform_dependent(rows, epsilon, cpu=cpu, default=_pivot)
    x = rows - pivot
    if isinstance(epsilon, float):
        p, slope = (_above if epsilon > 1 else _below)(x, q, power, epsilon)
        return jnp.maximum(p + slope * change, 0).reshape(z.shape)
    above = _above(x, q, power, jnp.maximum(epsilon, 1))
    below = _below(x, q, power, jnp.minimum(epsilon, 1))
    p, slope = (jnp.where(epsilon > 1, above[i], below[i]) for i in (0, 1))
    return jnp.maximum(p + slope * change, 0).reshape(z.shape)


def _block(m: int, n: int, cheap: bool) -> int:
    """How many rows a CPU solves together, so that they stay in a core's cache.

    Newton goes over them again and again, and one slow row keeps its block waiting, not all. Where
    powers are dear, or rows so short that calling its programs is, XLA divides long blocks.
    """
    size, most = (2**15, 2**9) if cheap and n > 64 else (2**18, 2**13)
    block = max(1, min(size // n, most, m))
    return next((b for b in range(block, block // 2, -1) if m % b == 0), block)
