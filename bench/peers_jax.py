"""JAX's contenders: seejax's entmax, jax.nn.softmax, and training as the book does it."""

import ctypes
import itertools
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from seejax.entmax import entmax


def versions() -> dict[str, str]:
    return {name: version(name) for name in ("jax", "jaxlib", "flax", "optax")}


def prepare(case: dict):
    kinds = {"vjp": vjp, "memory": memory, "copy": copy, "convolution": convolution}
    kinds |= {"training": training, "products": products, "product": product}
    return kinds[case["what"]](case)


def forward_backward(case: dict):
    """z, g -> p and the vector-Jacobian product g·∂p/∂z, as one compiled function."""
    if case["by"] == "softmax":
        forward = partial(jax.nn.softmax, axis=-1)
    else:
        forward = partial(entmax, alpha=case["alpha"], axis=-1)

    @jax.jit
    def both(z, g):
        p, pull = jax.vjp(forward, z)
        return p, pull(g)[0]

    return both


def vjp(case: dict):
    z, g = jax.device_put((np.load(case["z"]), np.load(case["g"])))
    both = forward_backward(case)
    return (
        lambda: None,
        lambda _: jax.block_until_ready(both(z, g)),
        lambda result: dict(zip(("p", "dz"), map(np.asarray, result), strict=True)),
    )


def copy(case: dict):
    """What no forward + backward can avoid: read z and g, write p and dz, once."""
    z, g = jax.device_put((np.load(case["z"]), np.load(case["g"])))
    scaled = jax.jit(lambda z, g: (z * 2, g * 2))
    return lambda: None, lambda _: jax.block_until_ready(scaled(z, g)), lambda result: {}


def convolution(case: dict):
    """One part of a convolution, as `flax.linen.Conv` does it: forward, or one gradient."""
    x, w, g = (jnp.array(each) for each in np.load(case["data"]).values())

    def forward(x, w):
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)

    part = {
        "forward": lambda x, w, g: forward(x, w),
        "by kernel": lambda x, w, g: jax.vjp(partial(forward, x), w)[1](g)[0],
        "by input": lambda x, w, g: jax.vjp(lambda x: forward(x, w), x)[1](g)[0],
    }[case["part"]]
    call = jax.jit(part)
    return (
        lambda: None,
        lambda _: jax.block_until_ready(call(x, w, g)),
        lambda y: {"y": np.asarray(y)},
    )


def memory(case: dict):
    """Memory of one call in arrays of the input's size: as the compiler plans, as Linux saw it."""
    shape = case["shape"]
    rng = np.random.default_rng(0)
    z, g = jax.device_put([rng.standard_normal(shape, np.float32) for _ in range(2)])
    compiled = forward_backward(case).lower(z, g).compile()
    plan = compiled.memory_analysis()
    jax.block_until_ready(compiled(z, g))  # its results are let go of again

    def run(_):
        give_back()
        clear_peak()
        before = status("VmRSS")
        jax.block_until_ready(compiled(z, g))
        return status("VmHWM") - before

    def check(grown: int):
        names = {"argument": plan.argument_size_in_bytes, "output": plan.output_size_in_bytes}
        names |= {"temp": plan.temp_size_in_bytes, "grown": grown}
        return {name: np.array(size / z.nbytes) for name, size in names.items()}

    return lambda: None, run, check


def give_back() -> None:
    """Return to Linux what the C library keeps of freed memory."""
    time.sleep(0.2)  # until the threads of the call before have let go of it
    ctypes.CDLL(None).malloc_trim(0)


def clear_peak() -> None:
    """Let Linux forget the highest resident size so far."""
    Path("/proc/self/clear_refs").write_text("5")


def status(field: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def weights(data: dict) -> list[np.ndarray]:
    return [
        data[f"w{i}"] for i in itertools.takewhile(lambda i: f"w{i}" in data, itertools.count())
    ]


def training(case: dict):
    """An epoch by `train_epoch`, or by a jitted step a batch; in a new order each time, or not."""
    from seejax.training import create_state, train_epoch, train_step
    from seejax.training.classifier import classifier  # what the other cases do not need

    data, batch = dict(np.load(case["data"])), case["batch"]
    x, y = data["x"].reshape(-1, 28, 28, 1), data["y"]
    network = classifier(case["network"], image_shape=x.shape[1:])
    images, labels = jax.device_put((x, y))

    def begin():
        state = create_state(jax.random.key(0), network, x[:1])
        params = {
            name: {"kernel": jnp.array(weight), "bias": jnp.zeros(weight.shape[-1])}
            for name, weight in zip(sorted(state.params), weights(data), strict=True)
        }  # sorted is the order of the layers: Conv1, Conv2, Dense1, Dense2, Output
        return jax.block_until_ready(state.replace(params=params))

    def by_step(state, order):
        sums = []
        for rows in np.asarray(order):
            state, more = train_step(state, x[rows], y[rows])
            sums.append(more)
        return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *sums)

    def by_epoch(state, order):
        return train_epoch(state, images, labels, order)

    train = by_step if case["by"] == "step" else by_epoch
    shuffled = jax.jit(lambda key: jax.random.permutation(key, len(x)).reshape(-1, batch))
    keys = map(partial(jax.random.fold_in, jax.random.key(1)), itertools.count())
    once = shuffled(jax.random.key(1)) if case["order"] == "once" else None

    def run(state):
        order = shuffled(next(keys)) if once is None else once
        state, sums = jax.block_until_ready(train(state, order))
        return sums.means()["loss"]

    def check(loss: float):
        state, early = train(begin(), jnp.arange(case["checked"]).reshape(-1, batch))
        logits = state.apply_fn(state.variables, x[:batch])
        return {
            "early_loss": np.array(early.means()["loss"]),
            "logits": np.asarray(logits),
            "loss": np.array(loss),
        }

    return begin, run, check


def products(case: dict):
    """The matrix products of an epoch of the MLP and nothing else, as one scan."""
    data = dict(np.load(case["data"]))
    batches = jax.device_put(data["x"].reshape(-1, case["batch"], 784))
    params = [jnp.array(weight) for weight in weights(data)]

    @jax.jit
    def epoch(batches, params):
        def step(_, x):
            inputs = list(itertools.accumulate(params, jnp.matmul, initial=x))
            back = inputs.pop()
            gradients = [inputs[-1].T @ back]
            for weight, h in zip(params[:0:-1], inputs[-2::-1], strict=True):
                back = back @ weight.T
                gradients.append(h.T @ back)
            return gradients[::-1], None

        return jax.lax.scan(step, params, batches)[0]

    return lambda: None, lambda _: jax.block_until_ready(epoch(batches, params)), lambda _: {}


def product(case: dict):
    """One square product a step, with as many multiplications as the step has."""
    a = jnp.ones((case["size"], case["size"]))

    @jax.jit
    def steps(a):
        return jax.lax.fori_loop(0, case["steps"], lambda _, b: (a @ b) / case["size"], a)

    return lambda: None, lambda _: jax.block_until_ready(steps(a)), lambda _: {}
