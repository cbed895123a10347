"""What entmax is, judged by a solution that cancels nothing: extended precision, sorted scores.

The unknown is q, the smallest p of the support, at the score z_k: u_i = q^ε + ε (z_i - z_k) has
terms of one sign, and p = u^(1/ε). Which k that is, is found by asking whether the scores above z_k
would fill the support alone. Both answers come from halving; the module takes Newton's steps.

    python tests/lessons/entmax_reference.py    # the largest error by α over the rows of `fuzz`
"""

import functools
from collections.abc import Iterator

import numpy as np

LD = np.longdouble
ALPHAS = (1.0, 1.001, 1.25, 1.375, 1.5, 1.75, 2.0, 3.0, 10.0)
BITS = 56  # of log q: 14 for its exponent, 42 for its digits; float32 has 24


def exact(z: np.ndarray, alpha: float) -> np.ndarray:
    """p in extended precision, row by row. z (..., n), alpha a number; -inf masks an entry."""
    z, epsilon = np.asarray(z, LD), LD(alpha) - 1
    rows = z.reshape(-1, z.shape[-1])
    return np.stack([_row(row, epsilon) for row in rows]).reshape(z.shape)


def _row(z: np.ndarray, epsilon: np.longdouble) -> np.ndarray:
    if epsilon == 0:
        p = np.exp(z - z.max())
        return p / p.sum()
    order = np.argsort(-z, kind="stable")
    order = order[epsilon * (z.max() - z[order]) < 1]  # a lead of 1 / ε takes all
    ordered = z[order]

    def powers(d, q):  # (q^ε + ε d)^(1/ε), in logarithms: q^ε may be too small for any float
        with np.errstate(divide="ignore"):
            return np.exp(np.logaddexp(epsilon * q, np.log(epsilon * d)) / epsilon)

    inside, outside = 0, len(ordered)
    while outside - inside > 1:
        k = (inside + outside) // 2
        d = ordered[:k] - ordered[k]
        full = powers(d[d > 0], -np.inf).sum() >= 1
        inside, outside = (inside, k) if full else (k, outside)
    d = ordered[: inside + 1] - ordered[inside]
    low, high = LD(-11_300), -np.log(LD(len(d)))  # log q: the least of them is at most the mean
    for _ in range(BITS):
        middle = (low + high) / 2
        low, high = (low, middle) if powers(d, middle).sum() > 1 else (middle, high)
    p = np.zeros_like(z)
    p[order[: inside + 1]] = powers(d, (low + high) / 2)
    return p


def pull(p: np.ndarray, alpha: float, g: np.ndarray) -> np.ndarray:
    """g·∂p/∂z from p: s (g - <s, g> / Σs), where s = p^(2-α) on the support."""
    p, g = np.asarray(p, LD), np.asarray(g, LD)
    inside = p > 0
    s = np.where(inside, np.where(inside, p, 1) ** (2 - LD(alpha)), 0)
    s /= s.max(axis=-1, keepdims=True)
    size = 1 / np.where(s == 1, np.where(inside, p, 1), 0).max(axis=-1, keepdims=True)
    heaviest = np.take_along_axis(g, s.argmax(axis=-1)[..., None], axis=-1)
    g = g - heaviest  # what is added to all of g counts nothing
    g = g - (s * g).sum(axis=-1, keepdims=True) / s.sum(axis=-1, keepdims=True)
    return s * g * size ** (LD(alpha) - 2)


def fuzz(seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """float32 scores and cotangents: 160 rows of every length, scale and kind, in three blocks.

    Kinds: normal; all equal; a winner and a plateau; few distinct values; geometric; masked.
    Lengths: 1 to 65 in one block, where -inf fills the rows up; 500; 32,000.
    """
    rng = np.random.default_rng(seed)
    for n, rows in ((65, 144), (500, 14), (32_000, 2)):
        scale = 10.0 ** rng.uniform(-4, 4, size=(rows, 1))
        z = rng.normal(size=(rows, n)) * scale
        kind = (np.arange(rows)[:, None] + seed) % 6
        z = np.where(kind == 1, z[:, :1], z)
        lead = np.where(np.arange(n) == 0, scale * rng.uniform(0, 1, size=(rows, 1)), 0)
        z = np.where(kind == 2, lead, z)
        z = np.where(kind == 3, np.round(z / scale) * scale, z)
        z = np.where(kind == 4, -scale * 2.0 ** -np.minimum(np.arange(n), 60), z)
        z = np.where((kind == 5) & (np.arange(n) % 3 == 1), -np.inf, z)
        if n == 65:
            length = rng.choice([1, 2, 3, 9, 33, 65], size=(rows, 1))
            z = np.where(np.arange(n) < length, z, -np.inf)
        yield z.astype(np.float32), rng.normal(size=z.shape).astype(np.float32)


@functools.cache
def program(alpha: float | None):
    """z, g, α -> p, g·∂p/∂z, compiled. alpha: a number that Python knows, or None: the third."""
    import jax

    from seejax.entmax import entmax

    @jax.jit
    def run(z, g, given):
        p, back = jax.vjp(lambda z: entmax(z, given if alpha is None else alpha), z)
        return p, back(g)[0]

    return run


@functools.cache
def cases(alpha: float) -> list[tuple[np.ndarray, ...]]:
    return [(z, g, exact(z, alpha)) for z, g in fuzz(round(alpha * 1000))]


def errors(alpha: float, traced: bool = False) -> tuple[float, float, float]:
    """The largest error over `fuzz`: of p, of g·∂p/∂z, and of Σp.

    At the edge of the support s = p^(2-α) has a slope without bound for α > 1.5, and from α = 2 on
    s is not even continuous: there what an error of p makes of s is not held against the gradient,
    which is compared with that at the p that came out. It is relative to what is largest in a row.
    """
    alpha = float(np.float32(alpha)) if traced else alpha
    worst = np.zeros(3)
    for z, g, expected in cases(alpha):
        run = program(None if traced else alpha)
        p, dz = (np.asarray(x, LD) for x in run(z, g, np.float32(alpha)))
        slopes = pull(p if alpha > 1.5 else expected, alpha, g)
        size = np.maximum(1, np.abs(slopes).max(axis=-1, keepdims=True))
        kept = size < 1e24  # its factors lie above: near the end of float32
        off = np.abs(p - expected), np.where(kept, np.abs(dz - slopes) / size, 0)
        worst = np.maximum(worst, [*(x.max() for x in off), np.abs(p.sum(axis=-1) - 1).max()])
    of_p, of_dz, of_sum = worst.tolist()
    return of_p, of_dz, of_sum


if __name__ == "__main__":
    print("alpha   p        dz       sum     | traced: p  dz       sum")
    for alpha in ALPHAS:
        numbers = errors(alpha) + errors(alpha, traced=True)
        print(f"{alpha:<6}", *(f"{x:8.1e}" for x in numbers), flush=True)
