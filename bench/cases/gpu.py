"""α = 1.5 forward + backward against copying, and against AdaSplash; only with a GPU."""

import subprocess
import sys
from pathlib import Path

from cases import scores
from environments import has_gpu
from race import Case, contender, race, row, times

ROWS = (
    ("gpu-copy", "headline", "seejax", "copy", ("<=", 2)),
    ("gpu-adasplash", "headline", "adasplash", "seejax", (">=", 1)),
    ("gpu-entmax15", "as it comes", "entmax15", "seejax", None),
)


def missing() -> str:
    """Why there is nothing to measure, or nothing."""
    if not has_gpu():
        return "no GPU at hand"
    asked = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    seen = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return "" if seen in ("gpu", "cuda") else "JAX sees no GPU: pip install 'jax[cuda13]'"


def measure(folder: Path, starts: int) -> Case:
    if why := missing():
        note = f"not measured: {why}"
        rows = [
            row(name, kind, f"{above} / {below}", None, goal, note=note)
            for name, kind, above, below, goal in ROWS
        ]
        return {"title": "entmax on a GPU", "environments": {}, "rows": rows}
    files, judge, title = scores.draw(folder, 1.5, 1.0, (16384, 4096))
    case = dict(alpha=1.5, **files)
    contenders = [
        contender("jax", "seejax", "cuda", **case, what="vjp", by="entmax"),
        contender("jax", "copy", "cuda", **case, what="copy"),
        contender("torch", "adasplash", "cuda", **case, what="entmax", by="adasplash"),
        contender("torch", "entmax15", "cuda", **case, what="entmax", by="entmax15"),
    ]

    made, _ = race(f"on a GPU: {title}", contenders, judge, starts, 3, warmups=2, repeats=10)
    return made | {"rows": [times(made, *one, floor="copy") for one in ROWS]}
