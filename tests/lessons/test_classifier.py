"""The networks against a NumPy float64 forward pass, scipy's correlation and finite differences."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from scipy.signal import correlate2d

from seejax.training.classifier import (
    MODELS,
    NNXMLP,
    BatchNormCNN,
    NNXBatchNormCNN,
    classifier,
    from_linen,
    from_nnx,
    max_pool,
    unit_interval,
)

pytestmark = pytest.mark.usefixtures("compiled_once")

MLPS = ("linen", "setup", "nnx")
KINDS = ("linen", "nnx", "cnn", "batchnorm", "batchnorm-nnx")  # setup is linen, bit for bit
NORMS = ("batchnorm", "batchnorm-nnx")
SHAPES = {"8x8": (8, 8, 1), "28x28": (28, 28, 1)}


def pixels(shape=(8, 8, 1), batch=5, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (batch, *shape), dtype=np.uint8)


def float64(variables):
    """With biases that are not zero, and so on: what is as it started hides that it is left out."""
    rng = np.random.default_rng(1)

    def moved(path, leaf):
        leaf = np.asarray(leaf, np.float64)
        return leaf if path[-1].key == "kernel" else leaf + rng.uniform(-0.3, 0.3, leaf.shape)

    return jax.tree.map_with_path(moved, variables)


def float32(variables):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), variables)


def dense64(x, layer):
    return x @ layer["kernel"] + layer["bias"]


def conv64(x, layer):
    kernel = layer["kernel"]
    out = np.empty((*x.shape[:3], kernel.shape[3]))
    for n in range(len(x)):
        for o in range(kernel.shape[3]):
            planes = [
                correlate2d(x[n, :, :, c], kernel[:, :, c, o], mode="same")
                for c in range(x.shape[3])
            ]
            out[n, :, :, o] = sum(planes) + layer.get("bias", np.zeros(out.shape[3]))[o]
    return out


def pool64(x):
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]  # what does not fill a window is left out
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))


def norm64(x, layer, stats, train):
    """BatchNorm, and its statistics after: by the batch while it learns, else by the running."""
    mean, var = (x.mean((0, 1, 2)), x.var((0, 1, 2))) if train else (stats["mean"], stats["var"])
    after = {"mean": 0.9 * stats["mean"] + 0.1 * mean, "var": 0.9 * stats["var"] + 0.1 * var}
    return (x - mean) / np.sqrt(var + 1e-5) * layer["scale"] + layer["bias"], after


def forward64(variables, images, train=False):
    """The logits of each of the networks, and the statistics after; no Dropout."""
    params, stats, after = variables["params"], variables.get("batch_stats", {}), {}
    x = images / 255.0
    for i in (1, 2):
        if f"Conv{i}" in params:
            x, norm = conv64(x, params[f"Conv{i}"]), f"BatchNorm{i}"
            if norm in params:
                x, after[norm] = norm64(x, params[norm], stats[norm], train)
            x = pool64(np.maximum(x, 0.0))
    x = x.reshape(len(x), -1)
    for name in ("Dense1", "Dense2"):
        x = np.maximum(dense64(x, params[name]), 0.0) if name in params else x
    return dense64(x, params["Output"]), after


@pytest.mark.parametrize(
    ("model", "shape"), [*((model, (8, 8, 1)) for model in KINDS), ("nnx", (28, 28, 1))], ids=str
)
def test_logits_are_those_of_numpy_in_float64(model, shape):
    network, images = classifier(model, shape), pixels(shape, batch=3)
    variables = float64(network.init(jax.random.key(0), images))
    logits = network.apply(float32(variables), images)
    assert logits.dtype == jnp.float32
    expected, _ = forward64(variables, images)
    np.testing.assert_allclose(logits, expected, atol=2e-5)  # float32, sums of up to 784 terms


@pytest.mark.parametrize(
    ("model", "shape"),
    [("cnn", (7, 9, 1)), ("batchnorm", (4, 5, 3)), ("batchnorm-nnx", (4, 5, 3))],
    ids=str,
)
def test_cnn_of_an_odd_image_and_of_colours(shape, model):
    network, images = classifier(model, shape, classes=3), pixels(shape, batch=2)
    variables = float64(network.init(jax.random.key(0), images))
    logits = network.apply(float32(variables), images)
    np.testing.assert_allclose(logits, forward64(variables, images)[0], atol=2e-5)


# --- BatchNorm and Dropout: as it learns


def without_dropout(model):
    if model == "batchnorm":
        return from_linen(BatchNormCNN(rate=0.0), train=True)
    return from_nnx(lambda rngs: NNXBatchNormCNN(rate=0.0, rngs=rngs))


@pytest.mark.parametrize("model", NORMS)
def test_training_normalizes_by_the_batch_and_moves_the_statistics(model):
    network, images = without_dropout(model), pixels(batch=6)
    variables = float64(network.init(jax.random.key(0), images))
    logits, changed = network.apply_train(float32(variables), images, jax.random.key(1))
    expected, stats = forward64(variables, images, train=True)
    np.testing.assert_allclose(logits, expected, atol=2e-5)
    assert changed.keys() == {"batch_stats"}
    jax.tree.map(
        lambda ours, true: np.testing.assert_allclose(ours, true, atol=1e-6),
        changed["batch_stats"],
        stats,
    )


@pytest.mark.parametrize("owner", NORMS)
def test_linen_and_nnx_are_equal_in_numbers_statistics_and_gradients(owner):
    images = pixels(batch=6)
    networks = [without_dropout(model) for model in NORMS]
    variables = classifier(owner).init(jax.random.key(3), images)

    def learned(network):
        def loss(params):
            logits, changed = network.apply_train(
                {**variables, "params": params}, images, jax.random.key(0)
            )
            return (logits**2).sum(), changed

        return jax.jit(jax.grad(loss, has_aux=True))(variables["params"])

    for one, other in (
        [network.apply(variables, images) for network in networks],
        [learned(network) for network in networks],
    ):
        jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("model", NORMS)
def test_dropout_is_by_its_key_and_only_while_the_network_learns(model):
    network, images = classifier(model), np.repeat(pixels(batch=1), 2000, 0)
    variables = network.init(jax.random.key(0), images)
    keys = jax.random.split(jax.random.key(1), 2)
    first, again, other = (
        network.apply_train(variables, images, key)[0] for key in (keys[0], keys[0], keys[1])
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(np.unique(first, axis=0)) > 1990  # each example has a mask of its own
    used = network.apply(variables, images)
    np.testing.assert_allclose(used, np.broadcast_to(used[:1], used.shape), rtol=1e-5, atol=1e-6)

    # What is kept is doubled, so the mean over masks is the network without a mask. BatchNorm of
    # 2000 equal images gives its bias; nothing but Dropout and the last layer come after Dense1.
    plain, _ = without_dropout(model).apply_train(variables, images, keys[0])
    spread = np.asarray(first).std(0) / np.sqrt(2000)
    assert np.all(np.abs(np.asarray(first).mean(0) - plain[0]) < 5 * spread + 1e-6)


def test_two_dropouts_have_masks_of_their_own():
    class Twice(nnx.Module):
        def __init__(self, rngs):
            self.weight = nnx.Param(jnp.ones(1000))
            self.first, self.second = (nnx.Dropout(0.5, rngs=rngs) for _ in range(2))

        def __call__(self, images):
            ones = jnp.broadcast_to(self.weight[...], (1, 1000))
            return jnp.stack([self.first(ones), self.second(ones)])

    network = from_nnx(Twice)
    variables = network.init(jax.random.key(0), None)
    (first, second), changed = network.apply_train(variables, None, jax.random.key(1))
    assert changed == {} and not np.array_equal(first, second)
    assert (network.apply(variables, None) == 1).all()


@pytest.mark.parametrize("model", ["linen", "batchnorm-nnx"])
def test_bfloat16_computes_and_float32_keeps(model, plain_numpy):
    network, images = classifier(model, dtype=jnp.bfloat16), pixels(batch=8)
    exact = classifier(model)
    variables = network.init(jax.random.key(0), images)
    jax.tree.map(np.testing.assert_array_equal, variables, exact.init(jax.random.key(0), images))

    def loss(params):
        logits, changed = network.apply_train(
            {**variables, "params": params}, images, jax.random.key(0)
        )
        return logits.sum(), (logits, changed)

    grads, (logits, changed) = jax.jit(jax.grad(loss, has_aux=True))(variables["params"])
    for leaf in jax.tree.leaves((variables, grads, logits, changed)):
        assert leaf.dtype == jnp.float32
    lowered = jax.jit(network.apply).lower(variables, images).as_text()
    products = re.findall(r"(?:dot_general|convolution)\b.*->\s*tensor<[\dx]*x(\w+)>", lowered)
    assert len(products) >= 3 and set(products) == {"bf16"}
    difference = np.abs(network.apply(variables, images) - exact.apply(variables, images)).max()
    assert 0 < difference < 0.05  # 8 bits of a number of size 1, a few times over


# --- one network, several ways


@pytest.mark.parametrize("owner", MLPS)
def test_the_parameters_of_one_mlp_fit_the_others_bit_for_bit(owner):
    images = pixels()
    variables = classifier(owner).init(jax.random.key(3), images)
    logits = [np.asarray(classifier(model).apply(variables, images)) for model in MLPS]
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_array_equal(logits[0], logits[2])


def test_linen_starts_alike_however_it_is_written():
    compact, setup = (classifier(m).init(jax.random.key(3), pixels()) for m in MLPS[:2])
    jax.tree.map(np.testing.assert_array_equal, compact, setup)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("model", MODELS)
def test_starts_lecun_normal_and_neutral(model, shape):
    variables = classifier(model, shape).init(jax.random.key(7), pixels(shape))
    start = {"bias": 0, "scale": 1, "mean": 0, "var": 1}
    for path, leaf in jax.tree.leaves_with_path(variables):
        leaf = np.asarray(leaf, np.float64)
        if path[-1].key in start:
            assert (leaf == start[path[-1].key]).all()
            continue
        z = leaf * np.sqrt(np.prod(leaf.shape[:-1]))  # times the root of the fan-in
        # Standard errors of n normal draws, five of them: 1/√n the mean, 1/√(2n) the deviation.
        assert abs(z.mean()) < 5 / np.sqrt(z.size)
        assert abs(z.std() - 1) < 5 / np.sqrt(2 * z.size)
        assert np.abs(z).max() < 2.3  # a normal cut off at two of its deviations, widened to std 1


def test_sizes_are_those_counted_by_hand():
    def size(model, shape):
        variables = classifier(model, shape).init(jax.random.key(0), pixels(shape))
        return sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))

    for model in MLPS:
        assert size(model, (28, 28, 1)) == 118_282  # (784 + 1)·128 + (128 + 1)·128 + (128 + 1)·10
    assert size("cnn", (8, 8, 1)) == 10 * 16 + 145 * 32 + (2 * 2 * 32 + 1) * 128 + 129 * 10
    for model in NORMS:  # no bias in a convolution, a scale and a bias a channel after it
        assert size(model, (8, 8, 1)) == 9 * 16 + 144 * 32 + 2 * 48 + 129 * 128 + 129 * 10


@pytest.mark.parametrize("model", KINDS)
def test_gradient_against_finite_differences_in_float64(model):
    train = model in NORMS
    network = without_dropout(model) if train else classifier(model)
    images, labels = pixels(batch=4), np.array([3, 1, 4, 1])
    variables = float64(network.init(jax.random.key(0), images))

    def loss(params):
        given = {**float32(variables), "params": params}
        logits, _ = network.apply_train(given, images, jax.random.key(0))
        return -jax.nn.log_softmax(logits)[jnp.arange(4), labels].mean()

    def loss64(params):
        logits, _ = forward64({**variables, "params": params}, images, train)
        return (np.logaddexp.reduce(logits, axis=1) - logits[np.arange(4), labels]).mean()

    params = variables["params"]
    grads = jax.jit(jax.grad(loss))(float32(params))
    rng = np.random.default_rng(2)
    for layer, leaves in params.items():  # along one random direction for each leaf
        for name, leaf in leaves.items():
            direction = rng.normal(size=leaf.shape)
            h = 1e-6 * leaf.std() / direction.std()  # short enough to cross no edge of relu

            def moved(t, layer=layer, name=name, leaf=leaf, direction=direction):
                return params | {layer: params[layer] | {name: leaf + t * direction}}

            slope = (loss64(moved(h)) - loss64(moved(-h))) / (2 * h)
            ours = np.vdot(np.asarray(grads[layer][name], np.float64), direction)
            scale = np.linalg.norm(grads[layer][name]) * np.linalg.norm(direction)
            np.testing.assert_allclose(ours, slope, atol=1e-5 * scale + 1e-7)


@pytest.mark.parametrize("model", KINDS)
def test_gradient_for_a_float_image_against_finite_differences(model):
    network, images = classifier(model), pixels(batch=2) / 255.0
    variables = float64(network.init(jax.random.key(0), images))
    rng = np.random.default_rng(3)
    weights, direction = rng.normal(size=(2, 10)), rng.normal(size=images.shape)

    def loss(images):
        return (network.apply(float32(variables), images) * weights.astype(np.float32)).sum()

    def loss64(t):
        return (forward64(variables, 255.0 * (images + t * direction))[0] * weights).sum()

    grad = jax.jit(jax.grad(loss))(jnp.asarray(images, jnp.float32))
    slope = (loss64(1e-7) - loss64(-1e-7)) / 2e-7
    scale = np.linalg.norm(grad) * np.linalg.norm(direction)
    np.testing.assert_allclose(np.vdot(np.asarray(grad), direction), slope, atol=1e-5 * scale)


@pytest.mark.parametrize("model", ["nnx", "batchnorm"])
def test_under_jit_and_vmap(model):
    network, images = classifier(model), pixels(batch=6)
    keys = jax.random.split(jax.random.key(0), 3)

    many = jax.jit(jax.vmap(network.init, in_axes=(0, None)))(keys, images)
    one = network.init(keys[1], images)
    jax.tree.map(
        lambda stacked, leaf: np.testing.assert_allclose(stacked[1], leaf, atol=1e-6), many, one
    )
    assert type(many) is dict and all(type(layer) is dict for layer in many.values())

    logits = network.apply(one, images)
    np.testing.assert_allclose(jax.jit(network.apply)(one, images), logits, atol=1e-5)
    singly = jax.jit(jax.vmap(network.apply, in_axes=(None, 0)))(one, images[:, None])[:, 0]
    np.testing.assert_allclose(singly, logits, atol=1e-5)
    ensemble = jax.jit(jax.vmap(network.apply, in_axes=(0, None)))(many, images)
    np.testing.assert_allclose(ensemble[1], logits, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_init_and_apply_are_pure(model):
    network, images = classifier(model), pixels()
    first = network.init(jax.random.key(0), images)
    logits = network.apply(first, images)
    network.init(jax.random.key(1), images)
    network.apply(jax.tree.map(jnp.zeros_like, first), images)
    again = network.init(jax.random.key(0), pixels(batch=2, seed=9))  # other images, same shapes
    jax.tree.map(np.testing.assert_array_equal, first, again)
    np.testing.assert_array_equal(network.apply(first, images), logits)


@pytest.mark.parametrize("model", MODELS)
def test_bytes_and_floats_of_the_same_image_give_the_same_logits(model):
    network, images = classifier(model), pixels()
    variables = network.init(jax.random.key(0), images)
    logits = network.apply(variables, images)
    scaled = images.astype(np.float32) / np.float32(255)
    np.testing.assert_allclose(network.apply(variables, scaled), logits, atol=1e-6)
    assert network.apply(variables, jnp.asarray(scaled, jnp.bfloat16)).dtype == jnp.float32


@pytest.mark.parametrize("bad", [np.int32, np.int8, bool, np.complex64])
def test_a_dtype_without_a_known_scale_is_refused(bad):
    network = classifier()
    variables = network.init(jax.random.key(0), pixels())
    with pytest.raises(TypeError, match=r"uint8 \(0\.\.255\) or float"):
        network.apply(variables, pixels().astype(bad))
    with pytest.raises(TypeError, match="uint8"):
        unit_interval(pixels().astype(bad))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [(8, 8, 1), (5, 8, 8), (5, 28, 28, 1), (5, 64)], ids=str)
def test_images_of_another_shape_are_refused(model, shape):
    network, key = classifier(model), jax.random.key(0)
    variables = network.init(key, pixels())
    for call in (
        lambda images: network.init(key, images),
        lambda images: network.apply(variables, images),
        lambda images: network.apply_train(variables, images, key),
    ):
        with pytest.raises(ValueError, match=r"expected \(batch, 8, 8, 1\)"):
            call(np.zeros(shape, np.uint8))


def test_names_the_choices():
    with pytest.raises(ValueError, match="'vit' is not one of linen, setup, nnx, cnn, batchnorm"):
        classifier("vit")


@pytest.mark.parametrize("shape", [(8, 8), (64,), (8, 0, 1), (8, 8, 1.0), (5, 8, 8, 1)], ids=str)
def test_a_shape_that_cannot_be_is_refused(shape):
    with pytest.raises(ValueError, match=r"\(height, width, channels\)"):
        classifier(image_shape=shape)


def test_the_same_description_is_the_same_object():
    assert classifier("cnn", [8, 8, 1], dtype="bfloat16") is classifier("cnn", dtype=jnp.bfloat16)


def test_numbers_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="classes"):
        classifier(classes=0)
    with pytest.raises(ValueError, match="3x3 is too small"):
        classifier("cnn", (3, 3, 1))


def test_the_nnx_network_is_only_shaped_until_it_is_initialised(monkeypatch):
    built = []
    original = NNXMLP.__init__

    def spy(self, *args, **kwargs):
        original(self, *args, **kwargs)
        built.append(isinstance(self.Dense1.kernel[...], jax.core.Tracer))

    monkeypatch.setattr(NNXMLP, "__init__", spy)
    classifier("nnx", classes=7)  # one that no other test has asked for
    assert built == [True]


@pytest.mark.parametrize("shape", [(3, 8, 8, 4), (2, 7, 5, 1), (1, 2, 2, 1)])
def test_max_pool_is_that_of_flax_and_so_is_its_gradient_after_relu(shape):
    key, weight_key = jax.random.split(jax.random.key(0))
    x = jax.random.normal(key, shape)
    theirs = functools.partial(nn.max_pool, window_shape=(2, 2), strides=(2, 2))
    assert (max_pool(x) == theirs(x)).all()
    weights = jax.random.normal(weight_key, theirs(x).shape)
    ours, flax = (
        jax.jit(jax.grad(lambda x, f=f: (f(nn.relu(x)) * weights).sum()))(x)  # zeros tie after relu
        for f in (max_pool, theirs)
    )
    assert (ours == flax).all()
