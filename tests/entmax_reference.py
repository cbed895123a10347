"""What entmax is, judged by a solution that cancels nothing: extended precision, sorted scores.

The unknown is q, the smallest p of the support, at the score z_k: u_i = q^ε + ε (z_i - z_k) has
terms of one sign, and p = u^(1/ε). Which k that is, is found by asking whether the scores above z_k
would fill the support alone. Both answers come from halving; the module takes Newton's steps.

    python tests/entmax_reference.py    # the largest error by α over the rows of `fuzz`
"""

import functools
from collections.abc import Iterator

import numpy as np

LD = np.longdouble
ALPHAS = (1.0, 1.001, 1.1, 1.25, 1.333, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 7.0, 10.0)
BITS = 80  # of log q: 64 for its digits, 14 for its exponent


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
