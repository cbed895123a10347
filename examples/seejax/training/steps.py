"""The steps of training, pure: a training state goes in, the next one comes out."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

from seejax.classifier import Classifier, Params

_adam = functools.cache(optax.adam)  # another object would make jit trace everything again


class Sums(NamedTuple):
    """Sums over examples; two of them add up, as two means do not."""

    loss: jax.Array  # float32
    correct: jax.Array  # int32
    count: jax.Array  # int32

    def means(self) -> dict[str, float]:
        """Loss and accuracy for each example, over all that was summed, whatever the batches were.

        >>> Sums(jnp.array([3.0, 1.0]), jnp.array([1, 1]), jnp.array([3, 1])).means()
        {'loss': 1.0, 'accuracy': 0.5}
        """
        loss, correct, count = (np.asarray(x).sum(dtype=np.float64) for x in self)
        return {"loss": float(loss / count), "accuracy": float(correct / count)}


def create_state(
    key: jax.Array, network: Classifier, images: jax.Array, learning_rate: float = 1e-3
) -> TrainState:
    """A training state before the first step: parameters, and Adam's moments at zero.

    Args:
      key: PRNG key of the initial parameters.
      network: what `seejax.classifier.classifier` returns.
      images: as the network takes them; only the shape matters.
      learning_rate: Adam's.
    Returns:
      `TrainState` with `params`, `opt_state`, `step` (int32 0), `apply_fn` and `tx`.

    >>> from seejax.classifier import classifier
    >>> images = jnp.zeros((1, 8, 8, 1), jnp.uint8)
    >>> state = create_state(jax.random.key(0), classifier("linen"), images)
    >>> int(state.step), sum(x.size for x in jax.tree.leaves(state.params))
    (0, 26122)
    """
    state = TrainState.create(
        apply_fn=network.apply, params=network.init(key, images), tx=_adam(learning_rate)
    )
    return state.replace(step=jnp.int32(0))  # a Python 0 would be traced once more as an array


def losses_and_logits(
    params: Params, apply: Callable, images: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Cross entropy of each example, float32 (batch,), and the logits, float32 (batch, classes)."""
    logits = apply(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels), logits


def _sums(losses: jax.Array, logits: jax.Array, labels: jax.Array, present: jax.Array) -> Sums:
    correct = (logits.argmax(-1) == labels) & present
    loss = jnp.where(present, losses, 0.0).sum()
    return Sums(loss, correct.sum(dtype=jnp.int32), present.sum(dtype=jnp.int32))


@jax.jit
def train_step(state: TrainState, images: jax.Array, labels: jax.Array) -> tuple[TrainState, Sums]:
    """One step of the optimizer on the mean loss of a batch.

    Args:
      state: before the step.
      images: uint8 (batch, height, width, 1).
      labels: int32 (batch,).
    Returns:
      The state after the step; sums over the batch, by the parameters before it.
    """

    def mean_loss(params: Params) -> tuple[jax.Array, Sums]:
        losses, logits = losses_and_logits(params, state.apply_fn, images, labels)
        return losses.mean(), _sums(losses, logits, labels, jnp.ones(labels.shape, bool))

    grads, sums = jax.grad(mean_loss, has_aux=True)(state.params)
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to the power of an int32
        return state.apply_gradients(grads=grads), sums


@functools.partial(jax.jit, donate_argnames="state")
def train_epoch(
    state: TrainState, images: jax.Array, labels: jax.Array, order: jax.Array
) -> tuple[TrainState, Sums]:
    """One epoch as one program: a scan of `train_step` over the batches.

    `state` is donated: the new one takes its memory, and the old one is gone.

    Args:
      state: before the epoch.
      images: uint8 (n, height, width, 1); labels: int32 (n,). All of them, on the device.
      order: int32 (batches, batch), from `seejax.digits.epoch_order`.
    Returns:
      The state after the epoch; sums with one entry for each batch.
    """

    def step(state: TrainState, batch: jax.Array) -> tuple[TrainState, Sums]:
        return train_step(state, images[batch], labels[batch])

    return jax.lax.scan(step, state, order)


@functools.partial(jax.jit, static_argnames="batch_size")
def evaluate(
    state: TrainState, images: jax.Array, labels: jax.Array, batch_size: int = 256
) -> Sums:
    """Sums over all examples, in batches; the last is filled up, and what fills it is not counted.

    Args:
      state: only its parameters are used.
      images: uint8 (n, height, width, 1); labels: int32 (n,).
      batch_size: how many at a time; it decides the memory used, not the result.
    Returns:
      Sums with one entry for each batch.
    """
    n = len(labels)
    batches = -(-n // batch_size)

    def split(array: jax.Array) -> jax.Array:
        missing = [(0, batches * batch_size - n)] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, missing).reshape(batches, batch_size, *array.shape[1:])

    def batch_sums(batch: tuple[jax.Array, jax.Array, jax.Array]) -> Sums:
        images, labels, present = batch
        losses, logits = losses_and_logits(state.params, state.apply_fn, images, labels)
        return _sums(losses, logits, labels, present)

    return jax.lax.map(batch_sums, (split(images), split(labels), split(jnp.ones(n, bool))))
