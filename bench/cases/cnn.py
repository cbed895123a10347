"""A hundred steps of a CNN, where the time goes into convolutions: Adam, batch 32."""

import math
from pathlib import Path

from cases import training
from race import Case, best, contender, times

WEIGHTS = ((3, 3, 1, 16), (3, 3, 16, 32), (7 * 7 * 32, 128), (128, 10))
USES = (28 * 28, 14 * 14, 1, 1)  # how often an example meets each weight


def measure(folder: Path, starts: int) -> Case:
    data = training.draw(folder, 3200, (28, 28, 1), WEIGHTS)
    flax = data | {"network": "cnn", "by": "epoch", "order": "new"}
    fused = data | {"fused": True}
    peers = {
        "torch": [
            contender("torch", "torch", **data),
            contender("torch", "torch fused", **fused),
            contender("torch", "torch channels last", **fused, channels_last=True),
            contender("torch", "torch fused compiled", **fused, compiled=True),
        ]
    }
    for backend, forms in training.keras(data, steps_a_call=25).items():
        peers[f"keras-{backend}"] = forms
    square = round(multiplications(batch=32) ** (1 / 3))
    products = dict(what="product", steps=100, size=square)
    contenders = [
        contender("jax", "flax", **flax),
        contender("jax", "flax step", **flax | {"by": "step"}),
        contender("jax", "product jax", **products),
        contender("torch", "product torch", **products),
        *(one for forms in peers.values() for one in forms),
    ]
    title = "100 steps of the CNN 3×3×16, 3×3×32, 128, 10 on 28×28: Adam, batch 32, float32"
    case = training.train(title, contenders, starts)
    known = {"torch": dict(known=(0.92,), note="known of a jitted step: 9.7 ms beside 10.6")}
    floor = best(case, ["product jax", "product torch"])
    case["rows"] = [
        *training.peers(case, "cnn", peers, known, floor),
        times(case, "cnn-step", "as it comes", "flax step", "flax"),
        times(case, "rule-layout", "rule", "torch fused", "torch channels last"),
        times(case, "rule-compile-cnn", "rule", "torch fused", "torch fused compiled"),
    ]
    return case


def multiplications(batch: int) -> int:
    """Of a step: forward, and both gradients of each layer, but that of the images.

    >>> multiplications(1) == 3 * (28 * 28 * 144 + 14 * 14 * 4608 + 200704 + 1280) - 28 * 28 * 144
    True
    """
    each = [uses * math.prod(shape) for uses, shape in zip(USES, WEIGHTS, strict=True)]
    return batch * (3 * sum(each) - each[0])
