"""The networks against a NumPy float64 forward pass, scipy's correlation and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate2d

from seejax.classifier import MODELS, NNXMLP, classifier, unit_interval

pytestmark = pytest.mark.usefixtures("compiled_once")

MLPS = ("linen", "setup", "nnx")
SHAPES = {"8x8": (8, 8, 1), "28x28": (28, 28, 1)}


def pixels(shape=(8, 8, 1), batch=5, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (batch, *shape), dtype=np.uint8)


def float64(params):
    """The parameters, with biases that are not zero: a zero would hide that one is left out."""
    rng = np.random.default_rng(1)
    return {
        layer: {
            name: np.asarray(leaf, np.float64) + (name == "bias") * rng.normal(0, 0.3, leaf.shape)
            for name, leaf in leaves.items()
        }
        for layer, leaves in params.items()
    }


def float32(params):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)


def dense64(x, layer):
    return x @ layer["kernel"] + layer["bias"]


def mlp64(params, images):
    x = images.reshape(len(images), -1) / 255.0
    for name in ("Dense1", "Dense2"):
        x = np.maximum(dense64(x, params[name]), 0.0)
    return dense64(x, params["Output"])


def conv64(x, layer):
    kernel = layer["kernel"]
    out = np.empty((*x.shape[:3], kernel.shape[3]))
    for n in range(len(x)):
        for o in range(kernel.shape[3]):
            planes = [
                correlate2d(x[n, :, :, c], kernel[:, :, c, o], mode="same")
                for c in range(x.shape[3])
            ]
            out[n, :, :, o] = sum(planes) + layer["bias"][o]
    return out


def pool64(x):
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]  # what does not fill a window is left out
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4))


def cnn64(params, images):
    x = images / 255.0
    for name in ("Conv1", "Conv2"):
        x = pool64(np.maximum(conv64(x, params[name]), 0.0))
    x = np.maximum(dense64(x.reshape(len(x), -1), params["Dense1"]), 0.0)
    return dense64(x, params["Output"])


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("model", MODELS)
def test_logits_are_those_of_numpy_in_float64(model, shape):
    network, images = classifier(model, shape), pixels(shape, batch=3)
    params = float64(network.init(jax.random.key(0), images))
    expected = (cnn64 if model == "cnn" else mlp64)(params, images)
    logits = network.apply(float32(params), images)
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, expected, atol=2e-5)  # float32, sums of up to 784 terms


@pytest.mark.parametrize("shape", [(7, 9, 1), (4, 5, 3)], ids=str)
def test_cnn_of_an_odd_image_and_of_colours(shape):
    network, images = classifier("cnn", shape, classes=3), pixels(shape, batch=2)
    params = float64(network.init(jax.random.key(0), images))
    logits = network.apply(float32(params), images)
    np.testing.assert_allclose(logits, cnn64(params, images), atol=2e-5)


@pytest.mark.parametrize("owner", MLPS)
def test_the_parameters_of_one_mlp_fit_the_others_bit_for_bit(owner):
    images = pixels()
    params = classifier(owner).init(jax.random.key(3), images)
    logits = [np.asarray(classifier(model).apply(params, images)) for model in MLPS]
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_array_equal(logits[0], logits[2])


def test_linen_starts_alike_however_it_is_written():
    compact, setup = (classifier(m).init(jax.random.key(3), pixels()) for m in MLPS[:2])
    jax.tree.map(np.testing.assert_array_equal, compact, setup)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("model", MODELS)
def test_starts_lecun_normal_with_zero_biases(model, shape):
    params = classifier(model, shape).init(jax.random.key(7), pixels(shape))
    for layer in params.values():
        assert set(layer) == {"kernel", "bias"}
        kernel, bias = np.asarray(layer["kernel"], np.float64), np.asarray(layer["bias"])
        assert not bias.any()
        fan_in = np.prod(kernel.shape[:-1])
        z = kernel * np.sqrt(fan_in)
        # Standard errors of n normal draws, five of them: 1/√n the mean, 1/√(2n) the deviation.
        assert abs(z.mean()) < 5 / np.sqrt(z.size)
        assert abs(z.std() - 1) < 5 / np.sqrt(2 * z.size)
        assert np.abs(z).max() < 2.3  # a normal cut off at two of its deviations, widened to std 1


def test_sizes_are_those_counted_by_hand():
    def size(model, shape):
        params = classifier(model, shape).init(jax.random.key(0), pixels(shape))
        return sum(leaf.size for leaf in jax.tree.leaves(params))

    for model in MLPS:
        assert size(model, (28, 28, 1)) == 118_282  # (784 + 1)·128 + (128 + 1)·128 + (128 + 1)·10
    assert size("cnn", (8, 8, 1)) == 10 * 16 + 145 * 32 + (2 * 2 * 32 + 1) * 128 + 129 * 10


@pytest.mark.parametrize("model", MODELS)
def test_gradient_against_finite_differences_in_float64(model):
    network, images = classifier(model), pixels(batch=4)
    labels = np.array([3, 1, 4, 1])
    params = float64(network.init(jax.random.key(0), images))
    forward = cnn64 if model == "cnn" else mlp64

    def loss(params):
        log_p = jax.nn.log_softmax(network.apply(params, images))
        return -log_p[jnp.arange(4), labels].mean()

    def loss64(params):
        logits = forward(params, images)
        return (np.logaddexp.reduce(logits, axis=1) - logits[np.arange(4), labels]).mean()

    grads = jax.grad(loss)(float32(params))
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


@pytest.mark.parametrize("model", MODELS)
def test_gradient_for_a_float_image_against_finite_differences(model):
    network, images = classifier(model), pixels(batch=2) / 255.0
    params = float64(network.init(jax.random.key(0), images))
    forward = cnn64 if model == "cnn" else mlp64
    rng = np.random.default_rng(3)
    weights, direction = rng.normal(size=(2, 10)), rng.normal(size=images.shape)

    def loss(images):
        return (network.apply(float32(params), images) * weights.astype(np.float32)).sum()

    def loss64(t):
        return (forward(params, 255.0 * (images + t * direction)) * weights).sum()

    grad = jax.grad(loss)(jnp.asarray(images, jnp.float32))
    slope = (loss64(1e-7) - loss64(-1e-7)) / 2e-7
    scale = np.linalg.norm(grad) * np.linalg.norm(direction)
    np.testing.assert_allclose(np.vdot(np.asarray(grad), direction), slope, atol=1e-5 * scale)


@pytest.mark.parametrize("model", MODELS)
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
    singly = jax.vmap(network.apply, in_axes=(None, 0))(one, images[:, None])[:, 0]
    np.testing.assert_allclose(singly, logits, atol=1e-5)
    ensemble = jax.vmap(network.apply, in_axes=(0, None))(many, images)
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
    params = network.init(jax.random.key(0), images)
    logits = network.apply(params, images)
    scaled = images.astype(np.float32) / np.float32(255)
    np.testing.assert_allclose(network.apply(params, scaled), logits, atol=1e-6)
    assert network.apply(params, jnp.asarray(scaled, jnp.bfloat16)).dtype == jnp.float32


@pytest.mark.parametrize("bad", [np.int32, np.int8, bool, np.complex64])
def test_a_dtype_without_a_known_scale_is_refused(bad):
    network = classifier()
    params = network.init(jax.random.key(0), pixels())
    with pytest.raises(TypeError, match=r"uint8 \(0\.\.255\) or float"):
        network.apply(params, pixels().astype(bad))
    with pytest.raises(TypeError, match="uint8"):
        unit_interval(pixels().astype(bad))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [(8, 8, 1), (5, 8, 8), (5, 28, 28, 1), (5, 64)], ids=str)
def test_images_of_another_shape_are_refused(model, shape):
    network = classifier(model)
    params = network.init(jax.random.key(0), pixels())
    for call in (lambda x: network.init(jax.random.key(0), x), lambda x: network.apply(params, x)):
        with pytest.raises(ValueError, match=r"expected \(batch, 8, 8, 1\)"):
            call(np.zeros(shape, np.uint8))


def test_names_the_choices():
    with pytest.raises(ValueError, match="'vit' is not one of linen, setup, nnx, cnn"):
        classifier("vit")


@pytest.mark.parametrize("shape", [(8, 8), (64,), (8, 0, 1), (8, 8, 1.0), (5, 8, 8, 1)], ids=str)
def test_a_shape_that_cannot_be_is_refused(shape):
    with pytest.raises(ValueError, match=r"\(height, width, channels\)"):
        classifier(image_shape=shape)


def test_numbers_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="classes"):
        classifier(classes=0)
    with pytest.raises(ValueError, match="3x3 pixels are too few"):
        classifier("cnn", (3, 3, 1))


def test_the_nnx_network_is_only_shaped_until_it_is_initialised(monkeypatch):
    built = []
    original = NNXMLP.__init__

    def spy(self, *args, **kwargs):
        original(self, *args, **kwargs)
        built.append(isinstance(self.Dense1.kernel[...], jax.core.Tracer))

    monkeypatch.setattr(NNXMLP, "__init__", spy)
    classifier("nnx")
    assert built == [True]
