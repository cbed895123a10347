"""What the cases of training share: the data, Keras' forms, and the judge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from measure import Contender
from race import Case, Row, best, contender, race, times

Shape = tuple[int, ...]


def draw(folder: Path, rows: int, image: Shape, weights: Sequence[Shape]) -> dict[str, Any]:
    """Images, labels that can be learned, and first weights (Glorot): a file that all read."""
    rng = np.random.default_rng(0)
    pixels = int(np.prod(image))
    x = rng.random((rows, pixels), dtype=np.float32)
    y = (x @ rng.standard_normal((pixels, 10), dtype=np.float32)).argmax(1).astype(np.int32)
    arrays = {"x": x.reshape(rows, *image), "y": y}
    for i, shape in enumerate(weights):
        *window, inputs, outputs = shape
        limit = (6 / (np.prod(window) * (inputs + outputs))) ** 0.5
        arrays[f"w{i}"] = rng.uniform(-limit, limit, shape).astype(np.float32)
    np.savez(folder / "training.npz", **arrays)
    return dict(what="training", data=str(folder / "training.npz"), batch=32, checked=64)


def keras(case: dict[str, Any], steps_a_call: int) -> dict[str, list[Contender]]:
    """Keras on each backend: as `fit` comes; and compiled, with many steps a call (not PyTorch)."""
    plain = dict(steps_per_execution=1, jit_compile="auto", tf_data=False)
    tuned = dict(steps_per_execution=steps_a_call, jit_compile=True)
    forms = {
        "tensorflow": {"": plain, " tuned": tuned | {"tf_data": True}},
        "jax": {"": plain, " tuned": tuned | {"tf_data": False}},
        "torch": {"": plain},
    }
    return {
        backend: [
            contender(f"keras-{backend}", f"keras {backend}{form}", **case, **how)
            for form, how in both.items()
        ]
        for backend, both in forms.items()
    }


def judge(one: Contender, answers: dict) -> tuple[dict, dict]:
    """Two steps in one order agree closely; an epoch in each one's own order ends somewhere near.

    Two, not more: Keras adds Adam's epsilon before the bias correction, the others after it.
    """
    if one.case["what"] in ("products", "product"):
        return {}, {}
    return answers["flax"], {"early_loss": 1e-3, "logits": 1e-3, "loss": 0.06}


def train(title: str, contenders: Sequence[Contender], starts: int) -> Case:
    """The race, with the loss that each one's epoch ended with."""
    turn = dict(warmups=0, repeats=1, pause_s=0.3)
    few = min(starts, 2)  # an epoch is long, and evens out by itself what a short call does not
    case, answers = race(title, contenders, judge, few, 3, **turn)
    for name, answer in answers.items():
        if "loss" in answer:
            case["contenders"][name]["loss"] = float(f"{answer['loss']:.4g}")
    return case


def peers(
    case: Case,
    key: str,
    forms: dict[str, list[Contender]],
    known: dict[str, dict[str, Any]],
    floor: str | None = None,
) -> list[Row]:
    """Each peer at its best, which is to take as long as this book at least, and as it comes."""
    rows = []
    for peer, (plain, *more) in forms.items():
        names = [plain.name, *(one.name for one in more)]
        name, fastest, goal = f"{key}-{peer}", best(case, names), (">=", 1)
        more_of_it = known.get(peer, {})
        rows.append(times(case, name, "headline", fastest, "flax", goal, floor, **more_of_it))
        rows.append(times(case, f"{name}-default", "as it comes", plain.name, "flax"))
    return rows
