"""The steps of training, pure: a training state goes in, the next one comes out."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from flax.training import train_state

from seejax.training.classifier import Classifier, Variables
from seejax.training.optimizers import optimizer


class TrainState(train_state.TrainState):
    """Flax's training state, and what a network with BatchNorm or Dropout needs besides.

    From Flax: `step` (int32), `params`, `opt_state`, and outside the pytree `apply_fn` and `tx`.
    """

    collections: Mapping[str, Any]
    """What the network keeps that no gradient changes, such as `batch_stats`; often empty."""
    key_data: jax.Array
    """Each step folds its number into this key. uint32: Orbax saves a typed key as well, but
    `device_put` does not spread one over several processes, and NumPy does not take it."""
    apply_train_fn: Callable = struct.field(pytree_node=False)

    @property
    def variables(self) -> Variables:
        """What `apply_fn` takes."""
        return {"params": self.params, **self.collections}


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
    key: jax.Array,
    network: Classifier,
    images: jax.Array,
    tx: optax.GradientTransformation | None = None,
) -> TrainState:
    """A training state before the first step.

    Args:
      key: a PRNG key, for the initial parameters and for all that the steps draw.
      network: what `seejax.training.classifier` makes.
      images: as the network takes them; only the shape matters.
      tx: an Optax optimizer; None is `optimizer()`, Adam.
    Returns:
      `TrainState` at step 0.

    >>> from seejax.training.classifier import classifier
    >>> images = jnp.zeros((1, 8, 8, 1), jnp.uint8)
    >>> state = create_state(jax.random.key(0), classifier("batchnorm"), images)
    >>> int(state.step), sum(x.size for x in jax.tree.leaves(state.params))
    (0, 22650)
    >>> jax.tree.map(jnp.shape, state.collections["batch_stats"]["BatchNorm1"])
    {'mean': (16,), 'var': (16,)}
    """
    init_key, step_key = jax.random.split(key)
    variables = dict(network.init(init_key, images))
    state = TrainState.create(
        apply_fn=network.apply,
        apply_train_fn=network.apply_train,
        params=variables.pop("params"),
        collections=variables,
        key_data=jax.random.key_data(step_key),
        tx=optimizer() if tx is None else tx,
    )
    return state.replace(step=jnp.int32(0))  # a Python 0 would be traced once more as an array


def _sums(logits: jax.Array, labels: jax.Array, present: jax.Array) -> tuple[jax.Array, Sums]:
    """Cross entropy of each example, (batch,), and the sums over those that are present."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    correct = (logits.argmax(-1) == labels) & present
    loss = jnp.where(present, losses, 0.0).sum()
    return losses, Sums(loss, correct.sum(dtype=jnp.int32), present.sum(dtype=jnp.int32))


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
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key_data), state.step)

    def mean_loss(params: Any) -> tuple[jax.Array, tuple[Mapping[str, Any], Sums]]:
        variables = {"params": params, **state.collections}
        logits, collections = state.apply_train_fn(variables, images, key)
        losses, sums = _sums(logits, labels, jnp.ones(labels.shape, bool))
        return losses.mean(), (collections, sums)

    grads, (collections, sums) = jax.grad(mean_loss, has_aux=True)(state.params)
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to the power of an int32
        return state.apply_gradients(grads=grads, collections=collections), sums


def train_epoch(
    state: TrainState, images: jax.Array, labels: jax.Array, order: jax.Array
) -> tuple[TrainState, Sums]:
    """One epoch, a `train_step` for each batch: one program, or one a batch where that is faster.

    `state` is donated: the new one takes its memory, and the old one is gone.

    Args:
      state: before the epoch.
      images: uint8 (n, height, width, 1); labels: int32 (n,). All of them, on the device.
      order: int32 (batches, batch), from `seejax.training.digits.epoch_order`.
    Returns:
      The state after the epoch; sums with one entry for each batch.
    """
    if not _slow_in_scan(state.params):
        return scan_epoch(state, images, labels, order)
    parts = []
    for number in range(len(order)):  # each call returns before its step is computed
        state, sums = _numbered_step(state, images, labels, order, number)
        parts.append(sums)
    return state, _stacked(parts)


def _slow_in_scan(params: Any) -> bool:
    """Whether a step of these layers is slow inside a loop of XLA's own, which a scan becomes.

    On a CPU it has a fast kernel for a convolution whose channels are the last axis. Those that
    its gradients are made of have another layout, and only outside a loop XLA turns them first:
    jax-ml/jax#12868. Evaluation needs no gradient, so it is a scan everywhere.
    """
    has_convolution = any(jnp.ndim(leaf) == 4 for leaf in jax.tree.leaves(params))
    return has_convolution and jax.default_backend() == "cpu"


@functools.partial(jax.jit, donate_argnames="state")
def scan_epoch(
    state: TrainState, images: jax.Array, labels: jax.Array, order: jax.Array
) -> tuple[TrainState, Sums]:
    """`train_epoch` as one program, whatever the network: a scan of `train_step`."""

    def step(state: TrainState, batch: jax.Array) -> tuple[TrainState, Sums]:
        return train_step(state, images[batch], labels[batch])

    return jax.lax.scan(step, state, order)


@functools.partial(jax.jit, donate_argnames="state")
def _numbered_step(
    state: TrainState, images: jax.Array, labels: jax.Array, order: jax.Array, number: int
) -> tuple[TrainState, Sums]:
    batch = order[number]
    return train_step(state, images[batch], labels[batch])


@jax.jit
def _stacked(parts: list[Sums]) -> Sums:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


@functools.partial(jax.jit, static_argnames="batch_size")
def evaluate(
    state: TrainState, images: jax.Array, labels: jax.Array, batch_size: int = 256
) -> Sums:
    """Sums over all examples, in batches; the last is filled up, and what fills it is not counted.

    Args:
      state: only its variables are used, as they are: no Dropout, and the statistics stay.
      images: uint8 (n, height, width, 1); labels: int32 (n,).
      batch_size: how many at a time; it decides the memory used, not the result.
    Returns:
      Sums with one entry for each batch.
    """
    n = len(labels)
    batches = -(-n // batch_size)

    def batch_sums(numbers: jax.Array) -> Sums:
        present = numbers < n
        numbers = jnp.where(present, numbers, 0)
        logits = state.apply_fn(state.variables, images[numbers])
        return _sums(logits, labels[numbers], present)[1]

    return jax.lax.map(batch_sums, jnp.arange(batches * batch_size).reshape(batches, batch_size))
