"""Keras 3 on the backend that $KERAS_BACKEND names: networks trained by model.fit."""

import itertools
import os

import keras
import numpy as np

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
BACKEND = keras.backend.backend()
if BACKEND == "tensorflow":
    import tensorflow as backend

    backend.config.threading.set_intra_op_parallelism_threads(CORES)
elif BACKEND == "torch":
    import torch as backend

    backend.set_num_threads(CORES)
else:
    import jax as backend


def versions() -> dict[str, str]:
    return {"keras": keras.__version__, BACKEND: backend.__version__}


def network(data) -> tuple[keras.Model, list[np.ndarray]]:
    """The layers that the first weights are of, and those weights with their biases."""
    names = itertools.takewhile(data.__contains__, (f"w{i}" for i in itertools.count()))
    weights = [data[name] for name in names]
    layers = keras.layers
    model = keras.Sequential([keras.Input(data["x"].shape[1:])])
    for i, weight in enumerate(weights):
        width, activation = weight.shape[-1], "relu" if i < len(weights) - 1 else None
        if weight.ndim == 4:
            model.add(layers.Conv2D(width, weight.shape[:2], padding="same", activation=activation))
            model.add(layers.MaxPooling2D(2))
        else:
            if i and weights[i - 1].ndim == 4:
                model.add(layers.Flatten())
            model.add(layers.Dense(width, activation))
    start = [part for weight in weights for part in (weight, np.zeros(weight.shape[-1]))]
    return model, start


def prepare(case: dict):
    data = dict(np.load(case["data"]))
    x, y, batch = data["x"], data["y"], case["batch"]
    model, start = network(data)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3, epsilon=1e-8),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=case["steps_per_execution"],
        jit_compile=case["jit_compile"],
    )
    if case["tf_data"]:
        rows = backend.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x))
        fed = dict(x=rows.batch(batch).prefetch(2))
    else:
        fed = dict(x=x, y=y, batch_size=batch, shuffle=True)

    def begin() -> None:
        model.set_weights(start)
        for variable in model.optimizer.variables:
            if variable.name != "learning_rate":  # moments and the step count
                variable.assign(np.zeros(variable.shape, variable.dtype))

    def run(_) -> float:
        return model.fit(**fed, verbose=0).history["loss"][0]

    def check(loss: float):
        begin()
        few = case["checked"]
        history = model.fit(x[:few], y[:few], batch_size=batch, shuffle=False, verbose=0)
        early = history.history["loss"][0]
        logits = keras.ops.convert_to_numpy(model(x[:batch]))
        return {"early_loss": np.array(early), "logits": logits, "loss": np.array(loss)}

    return begin, run, check
