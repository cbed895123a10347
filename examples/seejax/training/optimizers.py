"""An optimizer from its description: what a command line or a file can say.

An update is made in four parts, each Optax's own: clip the gradient, let the rule make a direction
of it, shrink the kernels a little, multiply by the learning rate of this update.
"""

import functools
import math

import jax
import optax

# Each rule, and how much it shrinks the weights when nothing is said: Optax's own defaults.
RULES = {
    "adam": (optax.scale_by_adam(), 0.0),
    "adamw": (optax.scale_by_adam(), 1e-4),
    "lion": (optax.scale_by_lion(), 1e-3),
    "sgd": (optax.trace(decay=0.9), 0.0),  # with momentum
}
OPTIMIZERS = tuple(RULES)
SCHEDULES = ("constant", "cosine")


def schedule(
    kind: str = "constant", learning_rate: float = 1e-3, warmup: int = 0, updates: int = 0
) -> optax.Schedule:
    """The learning rate of each update, counted from 0.

    Args:
      kind: "constant" stays at `learning_rate`, "cosine" falls to 0 along half a wave.
      learning_rate: the highest rate.
      warmup: over so many updates the rate rises first, along a line from 0.
      updates: how many the run has, warm-up included; "constant" does not ask.
    Returns:
      A function of the number of the update, which jit can trace.
    Raises:
      ValueError: another kind, or numbers that cannot be.

    >>> with jax.numpy_dtype_promotion("standard"):  # Optax mixes the dtypes of counts and rates
    ...     rate = schedule("cosine", 0.1, warmup=2, updates=6)
    ...     print([f"{rate(count):.3f}" for count in range(7)])
    ['0.000', '0.050', '0.100', '0.085', '0.050', '0.015', '0.000']
    """
    if kind not in SCHEDULES:
        raise ValueError(f"schedule {kind!r}: choose from {', '.join(SCHEDULES)}")
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise ValueError(f"learning_rate {learning_rate}: a positive number is needed")
    if warmup < 0:
        raise ValueError(f"warmup {warmup}: at least 0 is needed")
    if kind == "constant":
        after = optax.constant_schedule(learning_rate)
    elif warmup < updates:
        after = optax.cosine_decay_schedule(learning_rate, updates - warmup)
    else:
        raise ValueError(f"cosine: {warmup} updates of warm-up leave none of {updates} to fall in")
    return optax.join_schedules(
        [optax.linear_schedule(0.0, learning_rate, warmup), after], [warmup]
    )


def optimizer(
    name: str = "adam",
    *,
    learning_rate: float = 1e-3,
    schedule: str = "constant",
    warmup: int = 0,
    steps: int = 0,
    weight_decay: float | None = None,
    clip: float | None = None,
    accumulate: int = 1,
) -> optax.GradientTransformation:
    """The optimizer of this description; the same object each time, so jit does not trace again.

    The state does not hold the rate: put an optimizer with another rate into a training state,
    `state.replace(tx=optimizer(learning_rate=1e-4))`, and it goes on, after one more trace.

    Args:
      name: one of OPTIMIZERS; "sgd" has a momentum of 0.9.
      learning_rate: the highest rate.
      schedule: one of SCHEDULES.
      warmup: steps over which the rate rises from 0.
      steps: training steps of the whole run; "cosine" has to know.
      weight_decay: what an update takes off each kernel, times the rate and decoupled from the
        gradient: "adam" with it is "adamw". Biases and norms, of rank 1, stay. None: Optax's
        default of this rule.
      clip: gradients whose norm over all parameters is larger are scaled down to it.
      accumulate: so many steps make one update, by the mean of their gradients.
    Returns:
      An `optax.GradientTransformation`.
    Raises:
      ValueError: another name or schedule, or numbers that cannot be.

    >>> optimizer("adamw", clip=1.0) is optimizer(clip=1.0, name="adamw")
    True
    >>> optimizer("rmsprop")
    Traceback (most recent call last):
    ValueError: optimizer 'rmsprop': choose from adam, adamw, lion, sgd
    """
    return _optimizer(name, learning_rate, schedule, warmup, steps, weight_decay, clip, accumulate)


@functools.cache
def _optimizer(
    name: str,
    learning_rate: float,
    kind: str,
    warmup: int,
    steps: int,
    weight_decay: float | None,
    clip: float | None,
    accumulate: int,
) -> optax.GradientTransformation:
    if name not in RULES:
        raise ValueError(f"optimizer {name!r}: choose from {', '.join(OPTIMIZERS)}")
    if clip is not None and not clip > 0:
        raise ValueError(f"clip {clip}: a positive norm is needed")
    if accumulate < 1:
        raise ValueError(f"accumulate {accumulate}: at least 1 is needed")
    rule, usual_decay = RULES[name]
    decay = usual_decay if weight_decay is None else weight_decay
    if not 0 <= decay < math.inf:
        raise ValueError(f"weight_decay {decay}: at least 0 is needed")
    rate = schedule(kind, learning_rate, warmup // accumulate, steps // accumulate)
    parts = [rule, optax.scale_by_learning_rate(rate)]
    if decay:
        parts.insert(1, optax.add_decayed_weights(decay, _kernels))
    if clip is not None:
        parts.insert(0, optax.clip_by_global_norm(clip))
    tx = optax.chain(*parts)
    return optax.MultiSteps(tx, accumulate).gradient_transformation() if accumulate > 1 else tx


def _kernels(params: optax.Params) -> optax.Params:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)
