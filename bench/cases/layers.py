"""Where a step of the CNN spends its time: its two convolutions, forward and both gradients."""

from pathlib import Path

import numpy as np

from race import Case, contender, race, times

SHAPES = {"conv1": ((32, 28, 28, 1), 16), "conv2": ((32, 14, 14, 16), 32)}
PARTS = ("forward", "by kernel", "by input")
TURN = dict(warmups=2, warm_s=0.2, repeats=9)


def measure(folder: Path, starts: int) -> Case:
    rng = np.random.default_rng(0)
    contenders = []
    for layer, (shape, outputs) in SHAPES.items():
        kernel = (3, 3, shape[-1], outputs)
        arrays = {"x": shape, "w": kernel, "g": (*shape[:-1], outputs)}
        file = str(folder / f"{layer}.npz")
        np.savez(file, **{k: rng.random(size, dtype=np.float32) for k, size in arrays.items()})
        for part in PARTS:
            if (layer, part) != ("conv1", "by input"):  # nobody asks how an image should change
                for library, name in (("jax", "jax"), ("torch", "torch")):
                    case = dict(what="convolution", data=file, part=part)
                    contenders.append(contender(library, f"{name} {layer} {part}", **case))

    def judge(one, answers) -> tuple[dict, dict]:
        other = one.name.replace("torch", "jax")
        size = np.abs(answers[other]["y"]).max()
        return answers[other], {"y": float(1e-4 * size)}

    title = "The convolutions of the CNN, batch 32, float32: forward, and the gradients"
    case, _ = race(title, contenders, judge, starts, 3, **TURN)
    names = [one.name.removeprefix("jax ") for one in contenders if one.environment == "jax"]
    case["rows"] = [
        times(
            case, f"layers-{name.replace(' ', '-')}", "as it comes", f"jax {name}", f"torch {name}"
        )
        for name in names
    ]
    return case
