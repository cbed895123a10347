"""The networks of the training pages: one MLP written three ways, and a small CNN.

The three MLPs have the same layers under the same names: one dict of parameters fits them all.

>>> images = jnp.zeros((1, 8, 8, 1), jnp.uint8)
>>> linen, setup, nnx_ = (classifier(name) for name in ("linen", "setup", "nnx"))
>>> params = linen.init(jax.random.key(0), images)
>>> sorted(params), params["Dense1"]["kernel"].shape
(['Dense1', 'Dense2', 'Output'], (64, 128))
>>> logits = linen.apply(params, images)
>>> for other in (setup, nnx_):
...     assert jnp.array_equal(other.apply(params, images), logits)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

Params = Mapping[str, Mapping[str, jax.Array]]

MODELS = ("linen", "setup", "nnx", "cnn")


class Classifier(NamedTuple):
    """A network as two pure functions, whichever library wrote it."""

    init: Callable[[jax.Array, jax.Array], Params]
    """(key, images) -> params: a dict of layers, each a dict of arrays."""
    apply: Callable[[Params, jax.Array], jax.Array]
    """(params, images) -> logits, float32 (batch, classes)."""


def unit_interval(images: jax.Array) -> jax.Array:
    """Pixels as float32 between 0 and 1: uint8 is divided by 255, floats are taken as scaled.

    Args:
      images: uint8 0..255, or any float dtype; any shape.
    Returns:
      float32, same shape.
    Raises:
      TypeError: another dtype, for which no scale can be guessed.

    >>> [round(x, 6) for x in unit_interval(jnp.array([0, 51, 255], jnp.uint8)).tolist()]
    [0.0, 0.2, 1.0]
    >>> unit_interval(jnp.array([51]))
    Traceback (most recent call last):
    TypeError: images are uint8 (0..255) or float (already 0..1), not int32
    """
    images = jnp.asarray(images)
    if images.dtype == jnp.uint8:
        return images.astype(jnp.float32) / 255
    if jnp.issubdtype(images.dtype, jnp.floating):
        return images.astype(jnp.float32)
    raise TypeError(f"images are uint8 (0..255) or float (already 0..1), not {images.dtype}")


class CompactMLP(nn.Module):
    """Linen, compact: a layer is declared on the line that uses it."""

    hidden: tuple[int, int] = (128, 128)
    classes: int = 10

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = unit_interval(images).reshape(len(images), -1)
        x = nn.relu(nn.Dense(self.hidden[0], name="Dense1")(x))
        x = nn.relu(nn.Dense(self.hidden[1], name="Dense2")(x))
        return nn.Dense(self.classes, name="Output")(x)


class SetupMLP(nn.Module):
    """Linen, setup: layers are attributes, and the attribute is the layer's name."""

    hidden: tuple[int, int] = (128, 128)
    classes: int = 10

    def setup(self) -> None:
        self.Dense1 = nn.Dense(self.hidden[0])
        self.Dense2 = nn.Dense(self.hidden[1])
        self.Output = nn.Dense(self.classes)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = unit_interval(images).reshape(len(images), -1)
        x = nn.relu(self.Dense1(x))
        x = nn.relu(self.Dense2(x))
        return self.Output(x)


class NNXMLP(nnx.Module):
    """NNX: the object holds its parameters, so it must know the number of pixels at once."""

    def __init__(
        self,
        pixels: int = 64,
        hidden: tuple[int, int] = (128, 128),
        classes: int = 10,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        self.Dense1 = nnx.Linear(pixels, hidden[0], rngs=rngs)
        self.Dense2 = nnx.Linear(hidden[0], hidden[1], rngs=rngs)
        self.Output = nnx.Linear(hidden[1], classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = unit_interval(images).reshape(len(images), -1)
        x = nnx.relu(self.Dense1(x))
        x = nnx.relu(self.Dense2(x))
        return self.Output(x)


class CNN(nn.Module):
    """Two convolutions, each then 2×2 max pooling: 28×28 pixels become 7×7, 8×8 become 2×2."""

    features: tuple[int, int] = (16, 32)
    hidden: int = 128
    classes: int = 10

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = unit_interval(images)
        for i, features in enumerate(self.features, 1):
            x = nn.relu(nn.Conv(features, (3, 3), name=f"Conv{i}")(x))
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = x.reshape(len(x), -1)
        x = nn.relu(nn.Dense(self.hidden, name="Dense1")(x))
        return nn.Dense(self.classes, name="Output")(x)


def _linen(module: nn.Module) -> Classifier:
    def init(key: jax.Array, images: jax.Array) -> Params:
        return module.init(key, images)["params"]  # init returns all variables, not just these

    def apply(params: Params, images: jax.Array) -> jax.Array:
        # Flax also declares the pair that apply returns if some variables are mutable: none are.
        return module.apply({"params": params}, images)  # pyrefly: ignore[bad-return]

    return Classifier(init, apply)


def _nnx(pixels: int, classes: int) -> Classifier:
    def build(key: jax.Array) -> NNXMLP:
        return NNXMLP(pixels, classes=classes, rngs=nnx.Rngs(params=key))

    # The graph is what remains of the object without its arrays: the same for every key.
    graph, _ = nnx.split(nnx.eval_shape(lambda: build(jax.random.key(0))))

    def init(key: jax.Array, images: jax.Array) -> Params:
        return nnx.to_pure_dict(nnx.state(build(key), nnx.Param))

    def apply(params: Params, images: jax.Array) -> jax.Array:
        return nnx.merge(graph, params)(images)

    return Classifier(init, apply)


def _checked(network: Classifier, shape: tuple[int, ...]) -> Classifier:
    """The same network, refusing images of another shape or dtype before any layer sees them."""

    def check(images: Any) -> None:
        if jnp.ndim(images) != 4 or jnp.shape(images)[1:] != shape:
            wanted = ", ".join(map(str, shape))
            raise ValueError(f"images have shape {jnp.shape(images)}, expected (batch, {wanted})")
        jax.eval_shape(unit_interval, images)

    def init(key: jax.Array, images: jax.Array) -> Params:
        check(images)
        return network.init(key, images)

    def apply(params: Params, images: jax.Array) -> jax.Array:
        check(images)
        return network.apply(params, images)

    return Classifier(init, apply)


def classifier(
    model: str = "linen", image_shape: Sequence[int] = (8, 8, 1), classes: int = 10
) -> Classifier:
    """A network by name, as two pure functions of plain dicts: ready for jit, grad and vmap.

    Args:
      model: one of MODELS. "linen", "setup" and "nnx" are the same MLP with two hidden layers of
        128 written three ways; their parameters are interchangeable. "cnn" is a small CNN.
      image_shape: (height, width, channels) of one image.
      classes: number of logits.
    Returns:
      Classifier(init, apply); images are uint8 (0..255) or float (already 0..1), of shape
      (batch, *image_shape). Kernels start lecun-normal, biases zero. Nothing but the shape of the
      images given to init matters. Linen and NNX draw different numbers from the same key.
    Raises:
      ValueError: a model, image shape or number of classes that cannot be; when called, images of
        another shape. TypeError: when called, images of another dtype.

    >>> network = classifier("cnn", image_shape=(28, 28, 1))
    >>> images = jnp.zeros((2, 28, 28, 1), jnp.uint8)
    >>> params = network.init(jax.random.key(0), images)
    >>> params["Conv1"]["kernel"].shape, network.apply(params, images).shape
    ((3, 3, 1, 16), (2, 10))
    >>> classifier("resnet")
    Traceback (most recent call last):
    ValueError: model 'resnet' is not one of linen, setup, nnx, cnn
    """
    if model not in MODELS:
        raise ValueError(f"model {model!r} is not one of {', '.join(MODELS)}")
    shape = tuple(image_shape)
    if len(shape) != 3 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"image_shape is (height, width, channels), got {image_shape}")
    if not isinstance(classes, int) or classes < 1:
        raise ValueError(f"classes is a positive number, got {classes}")
    if model == "cnn" and min(shape[:2]) < 4:
        raise ValueError(f"cnn halves the image twice, {shape[0]}x{shape[1]} pixels are too few")
    if model == "linen":
        network = _linen(CompactMLP(classes=classes))
    elif model == "setup":
        network = _linen(SetupMLP(classes=classes))
    elif model == "cnn":
        network = _linen(CNN(classes=classes))
    else:
        network = _nnx(math.prod(shape), classes)
    return _checked(network, shape)
