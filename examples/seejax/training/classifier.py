"""The networks of the training pages, and how any network of Linen or NNX becomes pure functions.

One MLP is written three ways, a CNN with BatchNorm and Dropout two ways; a plain CNN stands beside.
Where the layers have the same names, the variables of one fit the others:

>>> images = jnp.zeros((1, 8, 8, 1), jnp.uint8)
>>> linen, setup, nnx_ = (classifier(name) for name in ("linen", "setup", "nnx"))
>>> variables = linen.init(jax.random.key(0), images)
>>> sorted(variables["params"]), variables["params"]["Dense1"]["kernel"].shape
(['Dense1', 'Dense2', 'Output'], (64, 128))
>>> logits = linen.apply(variables, images)
>>> for other in (setup, nnx_):
...     assert jnp.array_equal(other.apply(variables, images), logits)
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx
from jax.typing import DTypeLike

from seejax.training.folder import Refused

Variables = Mapping[str, Any]
"""A dict of collections: `params`, and besides, say, `batch_stats`; each a dict of layers."""

MODELS = ("linen", "setup", "nnx", "cnn", "batchnorm", "batchnorm-nnx")


class Classifier(NamedTuple):
    """A network as pure functions, whichever library wrote it."""

    init: Callable[[jax.Array, jax.Array], Variables]
    """(key, images) -> variables."""
    apply: Callable[[Variables, jax.Array], jax.Array]
    """(variables, images) -> logits, float32 (batch, classes): as it is used."""
    apply_train: Callable[[Variables, jax.Array, jax.Array], tuple[jax.Array, Variables]]
    """(variables, images, key) -> logits, and all collections but `params` as they are after:
    as it learns. The key is for all that the network draws, such as the masks of Dropout."""


def unit_interval(images: jax.Array) -> jax.Array:
    """Pixels between 0 and 1: uint8 is divided by 255, floats are taken as scaled.

    Args:
      images: uint8 0..255, or any float dtype; any shape.
    Returns:
      float32 for uint8, else the same dtype; same shape.
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
        return images
    raise TypeError(f"images are uint8 (0..255) or float (already 0..1), not {images.dtype}")


class CompactMLP(nn.Module):
    """Linen, compact: a layer is declared on the line that uses it."""

    hidden: tuple[int, int] = (128, 128)
    classes: int = 10

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = unit_interval(images).reshape(images.shape[0], -1)
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
        x = unit_interval(images).reshape(images.shape[0], -1)
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
        x = unit_interval(images).reshape(images.shape[0], -1)
        x = nnx.relu(self.Dense1(x))
        x = nnx.relu(self.Dense2(x))
        return self.Output(x)


def max_pool(x: jax.Array) -> jax.Array:
    """2×2 max pooling of (batch, height, width, channels); an odd last row or column is left out.

    The same as `flax.linen.max_pool(x, (2, 2), (2, 2))`, whose gradient XLA scatters into windows
    one by one on a CPU: that takes half of a CNN's step.

    >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1))[0, ..., 0]
    Array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    """
    n, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max((2, 4))


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
            x = max_pool(x)
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(self.hidden, name="Dense1")(x))
        return nn.Dense(self.classes, name="Output")(x)


class BatchNormCNN(nn.Module):
    """The CNN with BatchNorm and Dropout, in Linen: the caller says whether it learns."""

    features: tuple[int, int] = (16, 32)
    hidden: int = 128
    rate: float = 0.5
    classes: int = 10

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> jax.Array:
        x = unit_interval(images)
        for i, features in enumerate(self.features, 1):
            x = nn.Conv(features, (3, 3), use_bias=False, name=f"Conv{i}")(x)
            x = nn.BatchNorm(not train, momentum=0.9, name=f"BatchNorm{i}")(x)
            x = max_pool(nn.relu(x))
        x = nn.relu(nn.Dense(self.hidden, name="Dense1")(x.reshape(x.shape[0], -1)))
        x = nn.Dropout(self.rate, deterministic=not train)(x)
        return nn.Dense(self.classes, name="Output")(x)


class NNXBatchNormCNN(nnx.Module):
    """The same in NNX: `train()` and `eval()` switch the object, which also holds the key."""

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (8, 8, 1),
        features: tuple[int, int] = (16, 32),
        hidden: int = 128,
        rate: float = 0.5,
        classes: int = 10,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        height, width, channels = image_shape
        pooled = (height // 4) * (width // 4) * features[1]
        self.Conv1 = nnx.Conv(channels, features[0], (3, 3), use_bias=False, rngs=rngs)
        self.BatchNorm1 = nnx.BatchNorm(features[0], momentum=0.9, rngs=rngs)
        self.Conv2 = nnx.Conv(*features, (3, 3), use_bias=False, rngs=rngs)
        self.BatchNorm2 = nnx.BatchNorm(features[1], momentum=0.9, rngs=rngs)
        self.Dense1 = nnx.Linear(pooled, hidden, rngs=rngs)
        self.Dropout = nnx.Dropout(rate, rngs=rngs)
        self.Output = nnx.Linear(hidden, classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = unit_interval(images)
        for conv, norm in ((self.Conv1, self.BatchNorm1), (self.Conv2, self.BatchNorm2)):
            y = norm(conv(x)).astype(x.dtype)  # float32 statistics make it float32, unlike Linen's
            x = max_pool(nnx.relu(y))
        x = nnx.relu(self.Dense1(x.reshape(x.shape[0], -1)))
        return self.Output(self.Dropout(x))


def from_linen(module: nn.Module, **training: Any) -> Classifier:
    """Any Linen module as a Classifier.

    Args:
      module: called with images, it returns logits.
      training: what else it is called with while it learns, such as `train=True`.

    >>> network = from_linen(BatchNormCNN(rate=0.2), train=True)
    >>> images = jnp.zeros((2, 8, 8, 1))
    >>> variables = network.init(jax.random.key(0), images)
    >>> logits, changed = network.apply_train(variables, images, jax.random.key(1))
    >>> sorted(variables), sorted(changed)
    (['batch_stats', 'params'], ['batch_stats'])
    """

    def init(key: jax.Array, images: jax.Array) -> Variables:
        return module.init(key, images)

    def apply(variables: Variables, images: jax.Array) -> jax.Array:
        # Flax also declares the pair that apply returns if some variables are mutable: none are.
        return module.apply(variables, images)  # pyrefly: ignore[bad-return]

    def apply_train(
        variables: Variables, images: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, Variables]:
        changing = [name for name in variables if name != "params"]
        return module.apply(variables, images, rngs=key, mutable=changing, **training)

    return Classifier(init, apply, apply_train)


def from_nnx(build: Callable[[nnx.Rngs], nnx.Module]) -> Classifier:
    """Any NNX module as a Classifier.

    Args:
      build: makes the module; called with images, that returns logits. Its state is of `nnx.Param`
        and `nnx.BatchStat`, and the random streams that it keeps are those it was given.

    >>> network = from_nnx(lambda rngs: NNXBatchNormCNN(rate=0.2, rngs=rngs))
    >>> sorted(network.init(jax.random.key(0), jnp.zeros((2, 8, 8, 1))))
    ['batch_stats', 'params']
    """

    def split(module: nnx.Module) -> tuple[nnx.GraphDef, Variables, Any]:
        graph, *states = nnx.split(module, nnx.Param, nnx.BatchStat, nnx.RngState, ...)
        params, stats, streams, others = map(nnx.to_pure_dict, states)
        if others:
            names = ", ".join(sorted(others))
            raise Refused(
                f"{type(module).__name__} keeps {names}, neither nnx.Param nor nnx.BatchStat: make "
                "it where it is used, or a BatchStat"
            )
        variables = {"params": params, "batch_stats": stats}
        return graph, {name: state for name, state in variables.items() if state}, streams

    def merge(graph: nnx.GraphDef, variables: Variables) -> nnx.Module:
        return nnx.merge(graph, variables["params"], variables.get("batch_stats", {}), streams)

    # A graph is what remains of an object without its arrays: the same for every key. Whether the
    # module learns is part of it, so there are two. The streams stay without numbers until reseed.
    module = nnx.eval_shape(lambda: build(nnx.Rngs(jax.random.key(0))))
    module.train()
    learning, _, streams = split(module)
    module.eval()
    used, _, _ = split(module)

    def init(key: jax.Array, images: jax.Array) -> Variables:
        return split(build(nnx.Rngs(key)))[1]

    def apply(variables: Variables, images: jax.Array) -> jax.Array:
        return merge(used, variables)(images)

    def apply_train(
        variables: Variables, images: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, Variables]:
        module = merge(learning, variables)
        nnx.reseed(module, default=key)
        logits = module(images)
        _, changed, _ = split(module)
        return logits, {name: changed[name] for name in variables if name != "params"}

    return Classifier(init, apply, apply_train)


def computed_in(network: Classifier, dtype: DTypeLike) -> Classifier:
    """The same network, computed in this dtype; its variables and its logits are float32.

    A layer of Flax computes in the dtype of its inputs and parameters. The cast is differentiable,
    so gradients and optimizer see float32 alone. BatchNorm keeps its statistics in float32; that of
    NNX then returns float32, and a network has to cast it.

    >>> network = computed_in(classifier("linen"), jnp.bfloat16)
    >>> images = jnp.zeros((1, 8, 8, 1), jnp.uint8)
    >>> variables = network.init(jax.random.key(0), images)
    >>> network.apply(variables, images).dtype, variables["params"]["Output"]["bias"].dtype
    (dtype('float32'), dtype('float32'))
    """

    def cast(variables: Variables, images: jax.Array) -> tuple[Variables, jax.Array]:
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), variables["params"])
        return {**variables, "params": params}, unit_interval(images).astype(dtype)

    def apply(variables: Variables, images: jax.Array) -> jax.Array:
        return network.apply(*cast(variables, images)).astype(jnp.float32)

    def apply_train(
        variables: Variables, images: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, Variables]:
        logits, changed = network.apply_train(*cast(variables, images), key)
        return logits.astype(jnp.float32), changed

    return Classifier(network.init, apply, apply_train)


def _checked(network: Classifier, shape: tuple[int, ...]) -> Classifier:
    """The same network, refusing images of another shape or dtype before any layer sees them."""

    def check(images: Any) -> None:
        if jnp.ndim(images) != 4 or jnp.shape(images)[1:] != shape:
            wanted = ", ".join(map(str, shape))
            raise ValueError(f"images have shape {jnp.shape(images)}, expected (batch, {wanted})")
        jax.eval_shape(unit_interval, images)

    def init(key: jax.Array, images: jax.Array) -> Variables:
        check(images)
        return network.init(key, images)

    def apply(variables: Variables, images: jax.Array) -> jax.Array:
        check(images)
        return network.apply(variables, images)

    def apply_train(
        variables: Variables, images: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, Variables]:
        check(images)
        return network.apply_train(variables, images, key)

    return Classifier(init, apply, apply_train)


def classifier(
    model: str = "linen",
    image_shape: Sequence[int] = (8, 8, 1),
    classes: int = 10,
    dtype: DTypeLike = jnp.float32,
) -> Classifier:
    """A network by name, as pure functions of plain dicts: ready for jit, grad and vmap.

    Args:
      model: one of MODELS. "linen", "setup" and "nnx" are the same MLP with two hidden layers of
        128 written three ways. "cnn" is a small CNN; "batchnorm" and "batchnorm-nnx" are the same
        CNN with BatchNorm and Dropout in both libraries. The same network has the same variables.
      image_shape: (height, width, channels) of one image.
      classes: number of logits.
      dtype: what the layers compute in, such as `jnp.bfloat16`; see `computed_in`.
    Returns:
      Classifier, the same object each time. Images are uint8 (0..255) or float (already 0..1), of
      shape (batch, *image_shape). Kernels start lecun-normal, biases zero. Nothing but the shape
      of the images given to init matters. Linen and NNX draw different numbers from the same key.
    Raises:
      ValueError: a model, image shape or number of classes that cannot be; when called, images of
        another shape. TypeError: when called, images of another dtype.

    >>> network = classifier("cnn", image_shape=(28, 28, 1))
    >>> images = jnp.zeros((2, 28, 28, 1), jnp.uint8)
    >>> variables = network.init(jax.random.key(0), images)
    >>> variables["params"]["Conv1"]["kernel"].shape, network.apply(variables, images).shape
    ((3, 3, 1, 16), (2, 10))
    >>> classifier("resnet")
    Traceback (most recent call last):
    ValueError: model 'resnet' is not one of linen, setup, nnx, cnn, batchnorm, batchnorm-nnx
    """
    if model not in MODELS:
        raise ValueError(f"model {model!r} is not one of {', '.join(MODELS)}")
    shape = tuple(image_shape)
    if len(shape) != 3 or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"image_shape is (height, width, channels), got {image_shape}")
    if not isinstance(classes, int) or classes < 1:
        raise ValueError(f"classes is a positive number, got {classes}")
    is_mlp = model in ("linen", "setup", "nnx")
    if not is_mlp and min(shape[:2]) < 4:
        raise ValueError(f"{model} halves the image twice, {shape[0]}x{shape[1]} is too small")
    return _classifier(model, shape, classes, jnp.dtype(dtype))


@functools.cache  # functions made anew would make jit trace everything again
def _classifier(
    model: str, shape: tuple[int, int, int], classes: int, dtype: jnp.dtype
) -> Classifier:
    networks = {
        "linen": lambda: from_linen(CompactMLP(classes=classes)),
        "setup": lambda: from_linen(SetupMLP(classes=classes)),
        "nnx": lambda: from_nnx(lambda rngs: NNXMLP(math.prod(shape), classes=classes, rngs=rngs)),
        "cnn": lambda: from_linen(CNN(classes=classes)),
        "batchnorm": lambda: from_linen(BatchNormCNN(classes=classes), train=True),
        "batchnorm-nnx": lambda: from_nnx(
            lambda rngs: NNXBatchNormCNN(shape, classes=classes, rngs=rngs)
        ),
    }
    network = networks[model]()
    return _checked(computed_in(network, dtype), shape)
