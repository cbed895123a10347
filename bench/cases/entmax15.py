"""α = 1.5, forward and backward, beside deep-spin's exact algorithm, which sorts, and softmax."""

from pathlib import Path

from cases import scores
from race import Case, best, contender, race, times

KNOWN = {1.0: ((3.4, 5.4), (1.55,)), 8.0: ((), (1.34,))}  # when the bounds were set, by scale
TURN = dict(warmups=2, warm_s=0.2, repeats=5)


def measure(folder: Path, starts: int, scale: float) -> Case:
    files, judge, title = scores.draw(folder, 1.5, scale)
    torch = dict(what="entmax", by="entmax15", alpha=1.5, **files)
    default = contender("torch", "entmax15", **torch)
    # k is how many of the largest scores it sorts at first; where those are too few it sorts more.
    by_k = {f"entmax15 k={k}": k for k in (8, 16, 24, 32)}
    forms = [contender("torch", name, **torch, k=k) for name, k in by_k.items()]
    trial, _ = race(f"the best k, {title}", forms, judge, 1, 3, **TURN)
    chosen = best(trial, by_k)
    contenders = [
        contender("jax", "seejax", what="vjp", by="entmax", alpha=1.5, **files),
        contender("jax", "softmax", what="vjp", by="softmax", alpha=1, **files),
        contender("jax", "copy", what="copy", **files),
        default,
        contender("torch", chosen, **torch, k=by_k[chosen]),
        contender("torch", f"{chosen} compiled", **torch, k=by_k[chosen], compiled=True),
    ]
    case, _ = race(title, contenders, judge, starts, 3, **TURN)
    fastest = best(case, ["entmax15", chosen, f"{chosen} compiled"])
    key, (of15, of1) = scores.key(scale), KNOWN[scale]
    case["rows"] = [
        times(case, f"entmax15{key}", "headline", fastest, "seejax", (">=", 5), "copy", known=of15),
        times(
            case, f"softmax{key}", "headline", "seejax", "softmax", ("<=", 1.4), "copy", known=of1
        ),
        times(case, f"entmax15-default{key}", "as it comes", "entmax15", "seejax"),
        times(case, f"rule-k{key}", "rule", "entmax15", chosen),
        times(case, f"rule-compile-entmax15{key}", "rule", chosen, f"{chosen} compiled"),
    ]
    return case
