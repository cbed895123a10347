"""An epoch of an MLP: 784-128-128-10, Adam, batch 32, 60,000 images, in a new order."""

from itertools import pairwise
from pathlib import Path

from cases import training
from race import Case, best, contender, times


def measure(folder: Path, starts: int) -> Case:
    data = training.draw(folder, 60_000, (784,), list(pairwise((784, 128, 128, 10))))
    flax = data | {"network": "linen", "by": "epoch", "order": "new"}
    products = data | {"what": "products"}
    peers = {
        "torch": [
            contender("torch", "torch", **data),
            contender("torch", "torch loader", **data, loader=True),
            contender("torch", "torch fused", **data, fused=True),
            contender("torch", "torch fused compiled", **data, fused=True, compiled=True),
        ]
    }
    for backend, forms in training.keras(data, steps_a_call=125).items():
        peers[f"keras-{backend}"] = forms
    contenders = [
        contender("jax", "flax", **flax),
        contender("jax", "flax step", **flax | {"by": "step"}),
        contender("jax", "flax one order", **flax | {"order": "once"}),
        contender("jax", "products jax", **products),
        contender("torch", "products torch", **products),
        *(one for forms in peers.values() for one in forms),
    ]
    title = "an epoch of the MLP 784-128-128-10: Adam, batch 32, 60,000 rows float32, shuffled"
    case = training.train(title, contenders, starts)
    floor = best(case, ["products jax", "products torch"])
    known = {
        "torch": dict(known=(2.2, 2.6), note="a bound of 4 was given up at 3.5"),
        "keras-tensorflow": dict(known=(2.25,), note="a bound of 5 was given up at 1.76"),
        "keras-jax": dict(known=(1.4,)),
    }
    case["rows"] = [
        *training.peers(case, "mlp", peers, known, floor),
        times(case, "mlp-products", "headline", "flax", floor, ("<=", 1.5), floor),
        times(case, "mlp-step", "as it comes", "flax step", "flax"),
        times(case, "rule-fused", "rule", "torch", "torch fused"),
        times(case, "rule-compile-mlp", "rule", "torch fused", "torch fused compiled"),
        times(case, "rule-loader", "rule", "torch loader", "torch"),
        times(case, "rule-steps-a-call", "rule", "keras tensorflow", "keras tensorflow tuned"),
        times(case, "rule-backend", "rule", "keras tensorflow", "keras jax"),
        times(case, "rule-order", "rule", "flax", "flax one order"),
    ]
    return case
