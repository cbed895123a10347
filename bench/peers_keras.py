"""Keras 3 on TensorFlow: the MLP trained by model.fit, as written first and as tuned."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
tf.config.threading.set_intra_op_parallelism_threads(CORES)


def versions() -> dict[str, str]:
    return {"keras": keras.__version__, "tensorflow": tf.__version__}


def prepare(case: dict):
    data = np.load(case["data"])
    x, y, batch = data["x"], data["y"], case["batch"]
    layers = keras.layers
    model = keras.Sequential([keras.Input(x.shape[1:])])
    for name, activation in (("w0", "relu"), ("w1", "relu"), ("w2", None)):
        model.add(layers.Dense(data[name].shape[1], activation))
    start = [part for i in range(3) for part in (data[f"w{i}"], np.zeros(data[f"w{i}"].shape[1]))]
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3, epsilon=1e-8),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=case["steps_per_execution"],
        jit_compile=case["jit_compile"],
    )
    rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(batch).prefetch(2)

    def begin() -> None:
        model.set_weights(start)
        for variable in model.optimizer.variables:
            if variable.name != "learning_rate":  # moments and the step count
                variable.assign(np.zeros(variable.shape))

    def run(_) -> float:
        if case["tf_data"]:
            history = model.fit(rows, verbose=0)
        else:
            history = model.fit(x, y, batch_size=batch, shuffle=True, verbose=0)
        return history.history["loss"][0]

    def check(loss: float):
        begin()
        few = case["checked"]
        history = model.fit(x[:few], y[:few], batch_size=batch, shuffle=False, verbose=0)
        early, logits = history.history["loss"][0], model(x[:batch]).numpy()
        return {"early_loss": np.array(early), "logits": logits, "loss": np.array(loss)}

    return begin, run, check
