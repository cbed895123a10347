"""Time per element of α = 1.5 as the rows get longer, and fewer."""

from pathlib import Path

import numpy as np

from cases import scores
from measure import Contender, quartiles
from race import Case, contender, once, race, row

ELEMENTS = 2**21
LENGTHS = (32, 128, 512, 2048, 8192, 32000)


def measure(folder: Path, starts: int) -> Case:
    contenders, judges = [], {}
    for n in LENGTHS:
        name = f"n = {n}"
        files, judges[name], _ = scores.draw(folder, 1.5, 1.0, (ELEMENTS // n, n))
        contenders.append(contender("jax", name, what="vjp", by="entmax", alpha=1.5, **files))

    def judge(one: Contender, answers: dict) -> tuple[dict, dict]:
        return judges[one.name](one, answers)

    title = "entmax α = 1.5, 2²¹ float32 elements in rows of n, forward + backward"
    case, _ = race(title, contenders, judge, starts, 3, warmups=2, warm_s=0.2, repeats=5)
    seconds = [case["contenders"][f"n = {n}"]["seconds"] for n in LENGTHS]
    each = {n: 1e9 * np.divide(s, ELEMENTS // n * n) for n, s in zip(LENGTHS, seconds, strict=True)}
    case["ns_per_element"] = {str(n): quartiles(ns) for n, ns in each.items()}
    medians = [np.median(ns) for ns in each.values()]
    spread = once(max(medians) / min(medians))
    goal = ("<=", 2)
    case["rows"] = [
        row("lengths", "headline", "slowest n / fastest n", spread, goal, (4.27,), limit=1)
    ]
    return case
