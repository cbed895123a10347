"""One small model in PyTorch, with fixed numbers: what the page `ecosystem` compares with JAX.

    python bench/same_model.py                 # writes bench/same_model.json: some seconds
    python bench/same_model.py --with python   # by this Python, which has torch already

The environment is that of `make bench`. Nothing here is random, and nothing is timed.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

NAMES = ("w1", "b1", "w2", "b2")
SHAPES = ((4, 8), (8,), (8, 3), (3,))
RECORD = Path(__file__).with_suffix(".json")


def numbers() -> dict[str, np.ndarray]:
    """Weights, a batch of six examples, and their classes: sines, so that anyone can make them."""
    sines = lambda start, shape: np.sin(start + np.arange(np.prod(shape), dtype=np.float32))  # noqa: E731
    shapes = enumerate(zip(NAMES, SHAPES, strict=True))
    made = {name: sines(i, shape).reshape(shape) for i, (name, shape) in shapes}
    return made | {"x": sines(9, (6, 4)).reshape(6, 4), "y": np.arange(6) % 3}


def torch_gradients(w1, b1, w2, b2, x, y):
    """The loss, and each parameter's gradient: PyTorch keeps them on the tensors."""
    parameters = [torch.tensor(p, requires_grad=True) for p in (w1, b1, w2, b2)]
    w1, b1, w2, b2 = parameters
    hidden = torch.tanh(torch.from_numpy(x) @ w1 + b1)
    loss = torch.nn.functional.cross_entropy(hidden @ w2 + b2, torch.from_numpy(y))
    loss.backward()  # writes .grad of all four
    return loss, [p.grad for p in parameters]


def functional_gradients(w1, b1, w2, b2, x, y):
    """Gradients of every single example, by the transformations in `torch.func`."""

    def loss(parameters, x, y):
        w1, b1, w2, b2 = parameters
        hidden = torch.tanh(x @ w1 + b1)
        return torch.nn.functional.cross_entropy(hidden @ w2 + b2, y)

    parameters = tuple(map(torch.from_numpy, (w1, b1, w2, b2)))
    per_example = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    return per_example(parameters, torch.from_numpy(x), torch.from_numpy(y))


def compiled() -> dict:
    """What `torch.compile` makes of an `if` on a value, and of inputs of several lengths."""
    graphs = []

    def backend(graph, example_inputs):
        graphs.append(graph)
        return graph.forward

    def flip(x):
        y = torch.sin(x)
        if y.sum() > 0:
            return y * 2
        return y * 3

    pieces = torch.compile(flip, backend=backend)
    values = [pieces(torch.full((3,), start)).tolist() for start in (1.0, -1.0)]
    branching = len(graphs)
    torch._dynamo.reset()  # or the call below would find what was compiled above
    whole = torch.compile(flip, backend=backend, fullgraph=True)
    try:
        whole(torch.ones(3))
        refused = None
    except Exception as error:
        refused = type(error).__name__
    graphs.clear()
    double = torch.compile(lambda x: x * 2, backend=backend)
    for n in (2, 3, 4, 5, 6, 7, 8):
        double(torch.ones(n))
    return {"values": values, "graphs": branching, "fullgraph": refused, "lengths": len(graphs)}


def record() -> dict:
    given = numbers()
    loss, gradients = torch_gradients(**given)
    each = functional_gradients(**given)
    made = dict(zip(NAMES, gradients, strict=True))
    mean = {name: abs(g.mean(0) - made[name]).max() for name, g in zip(NAMES, each, strict=True)}
    return {
        "torch": torch.__version__,
        "loss": float(loss.detach()),
        "gradients": {name: gradient.tolist() for name, gradient in made.items()},
        "norms": [float(norm) for norm in sum((g.flatten(1) ** 2).sum(1) for g in each) ** 0.5],
        "mean_off": float(max(mean.values())),
        "compile": compiled(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--with", dest="python", help="a Python that has torch")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        import torch

        print(json.dumps(record()))
    else:
        if not args.python:
            from environments import environment

            args.python = environment("torch")
        command = [args.python, __file__, "--here"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        RECORD.write_text(json.dumps(json.loads(done.stdout), indent=1) + "\n", "utf8")
        sys.stdout.write(f"{RECORD.name} written\n")
