"""What every case is made of: contenders measured together, and the rows that follow from them."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from environments import environment
from measure import (
    BENCH,
    Contender,
    differences,
    environ,
    quartiles,
    ratios,
    say,
    take_turns,
    workers,
)

Case = dict[str, Any]
Row = dict[str, Any]

SCRIPTS = {"jax": "peers_jax.py", "torch": "peers_torch.py"}  # all others are Keras


def contender(
    library: str, name: str, device: str = "cpu", keep_memory: bool = True, **case: Any
) -> Contender:
    """A contender by its library: where it runs, and which file prepares it.

    library: jax, torch, or Keras on one of its backends: keras-jax, keras-torch, keras-tensorflow.
    """
    keras, _, backend = library.partition("-")
    place = {"keras-torch": "torch", "keras-tensorflow": "tensorflow"}.get(library, library)
    more = {"BENCH_DEVICE": device, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if device == "cpu":
        more |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}
    if backend:
        more["KERAS_BACKEND"] = backend
    if place == "torch":  # what torch.compile made: kept from start to start, and from run to run
        more["TORCHINDUCTOR_CACHE_DIR"] = str(BENCH.parent / "build" / "bench" / "inductor")
    if library == "jax":
        more["PYTHONPATH"] = str(BENCH.parent / "examples")
    return Contender(
        name,
        sys.executable if library == "jax" else environment(place),
        BENCH / SCRIPTS.get(library, f"peers_{keras}.py"),
        case,
        environ(keep_memory, **more),
        place,
    )


def race(
    title: str,
    contenders: Sequence[Contender],
    judge: Callable[[Contender, dict], tuple[dict, dict]],
    starts: int,
    rounds: int,
    **turn: Any,
) -> tuple[Case, dict[str, dict]]:
    """Let contenders compile, compare their answers, take turns; return the case and the answers.

    All of it so many times, in new processes: some luck lasts as long as a process.

    judge: a contender, all answers -> the arrays to find, and how far off each may be.
    """
    say("bench", f"{title}: {', '.join(c.name for c in contenders)}")
    entries = {
        one.name: {"environment": one.environment, "first_s": [], "difference": {}, "seconds": []}
        for one in contenders
    }
    environments = {}
    for start in range(starts):
        answers = {}
        with workers(contenders) as running:
            for name, worker in running.items():
                answer, answers[name] = worker.prepare()
                entries[name]["first_s"].append(answer["first_s"])
                versions = environments.setdefault(worker.contender.environment, {})
                versions |= answer["versions"]
            for one in contenders:
                reference, tolerance = judge(one, answers)
                entries[one.name]["tolerance"] = tolerance
                worst = entries[one.name]["difference"]
                off = differences(one.name, answers[one.name], reference, tolerance)
                worst |= {key: max(value, worst.get(key, 0.0)) for key, value in off.items()}
            for name, seconds in take_turns(running, rounds, start * rounds, **turn).items():
                entries[name]["seconds"] += [float(f"{s:.4g}") for s in seconds]
    for entry in entries.values():
        # All starts but the first may find in a cache on disk what the first one compiled.
        entry["first_s"] = float(f"{entry['first_s'][0]:.4g}")
        entry |= {"quartiles": quartiles(entry["seconds"]), "min": min(entry["seconds"])}
    case = {"title": title, "environments": environments, "starts": starts, "rounds": rounds}
    return case | {"contenders": entries}, answers


def best(case: Case, forms: Iterable[str]) -> str:
    """The form of a peer with the smallest median."""
    return min(forms, key=lambda name: case["contenders"][name]["quartiles"][1])


def row(
    name: str,
    kind: str,
    of: str,
    value: list[float] | None,
    goal: tuple[str, float] | None = None,
    known: Sequence[float] = (),
    note: str = "",
    limit: float | None = None,
) -> Row:
    """A line of the table.

    Args:
      kind: "headline" is a peer at its best, or a limit; "as it comes" is a peer as most people
        would write it; "rule" is what one rule of fairness changes.
      of: what the value is; value: its quartiles, or None if it was not measured.
      goal: (">=" or "<=", bound); known: what had been measured when the bound was set.
      limit: the value if our side took no longer than what nobody can avoid.
    """
    reached = None
    if value and goal:
        reached = value[1] >= goal[1] if goal[0] == ">=" else value[1] <= goal[1]
    return dict(
        name=name,
        kind=kind,
        of=of,
        value=value,
        goal=list(goal) if goal else None,
        known=list(known),
        reached=reached,
        note=note,
        limit=limit,
    )


def times(
    case: Case,
    name: str,
    kind: str,
    above: str,
    below: str,
    goal: tuple[str, float] | None = None,
    floor: str | None = None,
    **why: Any,
) -> Row:
    """How many times as long one contender takes as another; goal, known and note as in `row`.

    floor: a contender that does only what nobody can avoid. In our place it gives the row's limit.
    """

    def value(above: str, below: str) -> list[float]:
        return ratios(*(case["contenders"][who]["seconds"] for who in (above, below)))

    if goal and floor:
        ours_above = goal[0] == "<="
        why["limit"] = value(floor, below)[1] if ours_above else value(above, floor)[1]
    return row(name, kind, f"{above} / {below}", value(above, below), goal, **why)


def once(value: float) -> list[float]:
    """A value that has no spread, as quartiles."""
    return [float(f"{value:.4g}")] * 3
