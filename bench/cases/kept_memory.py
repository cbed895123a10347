"""What the settings of memory change, in the case of entmax15: kept (as in all cases), default."""

from pathlib import Path

from cases import scores
from race import Case, contender, race, times


def measure(folder: Path, starts: int) -> Case:
    files, judge, title = scores.draw(folder, 1.5, 1.0)
    jax = dict(what="vjp", **files)
    torch = dict(what="entmax", by="entmax15", alpha=1.5, **files)
    contenders = [
        contender(library, f"{name}{'' if keep else ' default'}", keep_memory=keep, **case)
        for keep in (True, False)
        for library, name, case in (
            ("jax", "seejax", dict(**jax, by="entmax", alpha=1.5)),
            ("jax", "softmax", dict(**jax, by="softmax", alpha=1)),
            ("torch", "entmax15 k=32", dict(**torch, k=32)),
        )
    ]
    turn = dict(warmups=2, warm_s=0.2, repeats=5)
    case, _ = race(f"glibc's default memory: {title}", contenders, judge, starts, 3, **turn)
    names = ("seejax", "softmax", "entmax15 k=32")
    case["rows"] = [
        times(case, f"rule-memory-{name.split()[0]}", "rule", f"{name} default", name)
        for name in names
    ]
    return case
