"""A hundred steps of a CNN, where the time goes into convolutions: Adam, batch 32."""

from pathlib import Path

from cases import training
from race import Case, contender, times

WEIGHTS = ((3, 3, 1, 16), (3, 3, 16, 32), (7 * 7 * 32, 128), (128, 10))


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
    contenders = [
        contender("jax", "flax", **flax),
        contender("jax", "flax step", **flax | {"by": "step"}),
        *(one for forms in peers.values() for one in forms),
    ]
    title = "100 steps of the CNN 3×3×16, 3×3×32, 128, 10 on 28×28: Adam, batch 32, float32"
    case = training.train(title, contenders, starts)
    known = {"torch": dict(known=(0.92,), note="known of a jitted step: 9.7 ms beside 10.6")}
    case["rows"] = [
        *training.peers(case, "cnn", peers, known),
        times(case, "cnn-step", "as it comes", "flax step", "flax"),
        times(case, "rule-layout", "rule", "torch fused", "torch channels last"),
        times(case, "rule-compile-cnn", "rule", "torch fused", "torch fused compiled"),
    ]
    return case
