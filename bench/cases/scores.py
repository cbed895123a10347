"""What the cases of entmax share: the scores, and the judge of all answers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from measure import Contender


def reference(z: np.ndarray, g: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    """p and g·∂p/∂z in float64, by sixty bisections."""
    z, g = z.astype(np.float64), g.astype(np.float64)
    if alpha == 1:
        p = np.exp(z - z.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        slope = p
    else:
        x = (alpha - 1) * (z - z.max(-1, keepdims=True))
        low, high = np.full_like(x[:, :1], -1.0), np.zeros_like(x[:, :1])
        for _ in range(60):
            middle = (low + high) / 2
            p = np.maximum(x - middle, 0) ** (1 / (alpha - 1))
            above = p.sum(-1, keepdims=True) >= 1
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        slope = np.where(p > 0, p, 1) ** (2 - alpha) * (p > 0)
    mean = (slope * g).sum(-1, keepdims=True) / slope.sum(-1, keepdims=True)
    return {"p": p, "dz": slope * (g - mean)}


def draw(
    folder: Path, alpha: float, scale: float, shape: tuple[int, int] = (4096, 512)
) -> tuple[dict[str, str], Callable, str]:
    """Scores and cotangents, drawn once: the files that all read, the judge, and a title."""
    rng = np.random.default_rng(0)
    z, g = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
    z *= np.float32(scale)
    files = {name: str(folder / f"{name}-{shape[1]}.npy") for name in "zg"}
    np.save(files["z"], z)
    np.save(files["g"], g)
    known = {}

    def judge(one: Contender, _: dict) -> tuple[dict, dict]:
        if one.case["what"] == "copy":  # has no answer
            return {}, {}
        own = one.case["alpha"]
        if own not in known:
            known[own] = reference(z, g, own)
        # At the edge of the support the slope is p^(2-α): its error is a root of that of p.
        return known[own], {"p": 1e-5, "dz": 1e-2}

    title = f"entmax α = {alpha:g}, {shape[0]} × {shape[1]} float32, N(0, 1) × {scale:g}"
    return files, judge, f"{title}, forward + backward"


def key(scale: float) -> str:
    """What the names of the rows end with."""
    return "" if scale == 1 else "-peaked"
