"""α = 1.333, forward and backward, beside deep-spin's bisection, which takes any α."""

from pathlib import Path

from cases import scores
from race import Case, best, contender, race, times

ALPHA = 1.333
KNOWN = {1.0: 15.4, 8.0: 15.9}  # by scale: with its default steps, when the bound was set
TURN = dict(warmups=2, warm_s=0.2, repeats=3)


def measure(folder: Path, starts: int, scale: float) -> Case:
    files, judge, title = scores.draw(folder, ALPHA, scale)
    torch = dict(what="entmax", by="entmax_bisect", alpha=ALPHA, **files)
    default = contender("torch", "entmax_bisect", **torch)
    by_steps = {f"entmax_bisect n_iter={n}": n for n in (*range(20, 27), 50)}
    forms = [contender("torch", name, **torch, n_iter=n) for name, n in by_steps.items()]
    trial, _ = race(f"the fewest n_iter, {title}", [default, *forms], judge, 1, 1)
    chosen = next(name for name in by_steps if as_exact(trial, name, default.name))
    contenders = [
        contender("jax", "seejax", what="vjp", by="entmax", alpha=ALPHA, **files),
        contender("jax", "copy", what="copy", **files),
        default,
        contender("torch", chosen, **torch, n_iter=by_steps[chosen]),
        contender("torch", f"{chosen} compiled", **torch, n_iter=by_steps[chosen], compiled=True),
    ]
    case, _ = race(title, contenders, judge, starts, 3, **TURN)
    fastest = best(case, [default.name, chosen, f"{chosen} compiled"])
    key = scores.key(scale)
    known = dict(known=(KNOWN[scale],), note="known with its default n_iter")
    case["rows"] = [
        times(case, f"bisect{key}", "headline", fastest, "seejax", (">=", 8), "copy", **known),
        times(case, f"bisect-default{key}", "as it comes", default.name, "seejax"),
        times(case, f"rule-iterations{key}", "rule", default.name, chosen),
        times(case, f"rule-compile-bisect{key}", "rule", chosen, f"{chosen} compiled"),
    ]
    return case


def as_exact(case: Case, name: str, default: str) -> bool:
    """Whether its errors are those of the default, which takes more steps than float32 resolves."""
    fewer, more = (case["contenders"][who]["difference"] for who in (name, default))
    return all(fewer[key] <= 1.1 * more[key] for key in more)
