"""The steps of training against NumPy in float64, formulas by hand, and each other."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import linen as nn
from test_classifier import forward64, without_dropout

from seejax.training import digits, steps
from seejax.training.classifier import MODELS, classifier, from_linen
from seejax.training.optimizers import OPTIMIZERS, optimizer, schedule
from seejax.training.steps import create_state, evaluate, scan_epoch, train_epoch, train_step

pytestmark = pytest.mark.usefixtures("compiled_once")

MLPS = ("linen", "setup", "nnx")
KINDS = ("linen", "batchnorm-nnx")  # each library, each way of an epoch; with a collection, without
STILL = optimizer("sgd", learning_rate=1e-30)  # steps that leave the parameters as they are


@pytest.fixture(scope="module")
def batches(data_dir) -> tuple[jax.Array, jax.Array, jax.Array]:
    images, labels = digits.load("digits", "train", data_dir)
    order = digits.epoch_order(jax.random.key(5), len(labels), 32)[:8]
    return jnp.asarray(images), jnp.asarray(labels), order


def initial(model="linen", tx=None) -> steps.TrainState:
    network = classifier(model) if isinstance(model, str) else model
    return create_state(jax.random.key(0), network, jnp.zeros((1, 8, 8, 1), jnp.uint8), tx)


def assert_same_bits(one, other) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def assert_close(one, other, atol: float) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), one, other)


def numpy_adam(params, images, labels, learning_rate=1e-3):
    """The MLP, its gradient by hand, and Adam as its paper writes it; float64, one step a batch."""
    layers = ("Dense1", "Dense2", "Output")
    params = {
        (layer, name): np.asarray(params[layer][name], np.float64)
        for layer in layers
        for name in ("kernel", "bias")
    }
    first, second = ({k: np.zeros_like(v) for k, v in params.items()} for _ in range(2))
    losses = []
    for t, (image, label) in enumerate(zip(images, labels, strict=True), 1):
        inputs, x = [], image.reshape(len(image), -1) / 255.0
        for layer in layers:
            inputs.append(x)
            x = x @ params[layer, "kernel"] + params[layer, "bias"]
            if layer != "Output":
                x = np.maximum(x, 0)
        p = np.exp(x - x.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        rows = np.arange(len(label))
        losses.append(-np.log(p[rows, label]))
        back = p
        back[rows, label] -= 1
        back /= len(label)
        for layer, value in zip(reversed(layers), reversed(inputs), strict=True):
            grads = {(layer, "kernel"): value.T @ back, (layer, "bias"): back.sum(0)}
            back = (back @ params[layer, "kernel"].T) * (value > 0)
            for k, grad in grads.items():
                first[k] = 0.9 * first[k] + 0.1 * grad
                second[k] = 0.999 * second[k] + 0.001 * grad**2
                step = first[k] / (1 - 0.9**t) / (np.sqrt(second[k] / (1 - 0.999**t)) + 1e-8)
                params[k] = params[k] - learning_rate * step
    return params, np.array(losses)


def test_eight_steps_are_those_of_adam_in_float64(batches):
    images, labels, order = batches
    state = initial()
    expected, losses = numpy_adam(
        state.params, *(np.asarray(x)[np.asarray(order)] for x in (images, labels))
    )
    state, sums = train_epoch(state, images, labels, order)
    # Adam divides by a gradient's own size: where that is 1e-7, float32 has few digits of it left.
    for (layer, name), value in expected.items():
        assert np.allclose(state.params[layer][name], value, atol=2e-5), (layer, name)
    assert np.allclose(sums.loss, losses.sum(1), rtol=1e-5)
    assert np.isclose(sums.means()["loss"], losses.mean(), rtol=1e-5)
    assert state.step == 8 and state.opt_state[0].count == 8


# --- an epoch, as one program and as one a batch


@pytest.mark.parametrize("model", KINDS)
def test_an_epoch_is_its_steps_and_its_parts(batches, model):
    images, labels, order = batches
    state, sums = initial(model), []
    for batch in order:
        state, part = train_step(state, images[batch], labels[batch])
        sums.append(part)
    whole, of_all = train_epoch(initial(model), images, labels, order)
    assert of_all.loss.shape == (8,) and of_all.count.tolist() == [32] * 8
    assert of_all.correct.tolist() == [int(part.correct) for part in sums]
    assert_close(whole, state, atol=2e-5)

    begun, _ = train_epoch(initial(model), images, labels, order[:4])
    assert_same_bits(train_epoch(begun, images, labels, order[4:])[0], whole)


@pytest.mark.parametrize("model", KINDS)
def test_a_scan_and_a_loop_give_the_same(batches, model, monkeypatch):
    scanned = scan_epoch(initial(model), *batches)
    monkeypatch.setattr(steps, "_slow_in_scan", lambda params: True)
    looped = train_epoch(initial(model), *batches)
    if model in MLPS:
        assert_same_bits(scanned, looped)
    else:  # inside a scan XLA sums the terms of a convolution in another order
        assert_close(scanned, looped, atol=2e-5)


@pytest.mark.parametrize("model", MODELS)
def test_only_on_a_cpu_and_only_convolutions_are_kept_out_of_a_scan(batches, model, monkeypatch):
    called = []
    for name in ("scan_epoch", "_numbered_step"):

        def spy(state, *_, name=name):
            called.append(name)
            return state, None

        monkeypatch.setattr(steps, name, spy)
    train_epoch(initial(model), *batches)
    assert called == (["scan_epoch"] if model in MLPS else 8 * ["_numbered_step"])
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    called.clear()
    train_epoch(initial(model), *batches)
    assert called == ["scan_epoch"]


@pytest.mark.parametrize("model", KINDS)
def test_the_second_epoch_is_not_traced_and_the_first_state_is_gone(batches, model):
    network = classifier(model)
    for _ in range(2):  # another state of another optimizer object, described alike
        first = initial(network, optimizer())
        leaves = jax.tree.leaves(first)
        second, _ = train_epoch(first, *batches)
        evaluate(second, *batches[:2])
    with jax.no_tracing():
        train_epoch(second, *batches)
    assert all(leaf.is_deleted() for leaf in leaves)


@pytest.mark.parametrize(
    ("model", "batch_size"), [("linen", 7), ("linen", 50), ("linen", 256), ("batchnorm", 7)]
)
def test_evaluation_counts_each_example_once(batches, batch_size, model):
    images, labels = batches[0][:50], batches[1][:50]
    state = initial(model)
    logits, _ = forward64(jax.tree.map(np.float64, state.variables), np.asarray(images))
    losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(50), labels]
    sums = evaluate(state, images, labels, batch_size)
    assert sums.count.sum() == 50 and len(sums.count) == math.ceil(50 / batch_size)
    assert np.isclose(sums.means()["loss"], losses.mean(), rtol=1e-6)
    assert sums.means()["accuracy"] == (logits.argmax(1) == np.asarray(labels)).mean()


# --- what a network keeps, and what it draws


def test_statistics_move_as_in_float64_and_evaluation_uses_them(batches):
    images, labels, order = batches
    state = initial(without_dropout("batchnorm"), STILL)
    variables = jax.tree.map(np.float64, state.variables)
    order = order[:4]
    for batch in np.asarray(order):
        _, stats = forward64(variables, np.asarray(images)[batch], train=True)
        variables = {**variables, "batch_stats": stats}
    state, _ = train_epoch(state, images, labels, order)
    assert_close(state.collections["batch_stats"], variables["batch_stats"], atol=1e-6)
    logits, _ = forward64(variables, np.asarray(images[:50]))
    losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(50), labels[:50]]
    measured = evaluate(state, images[:50], labels[:50]).means()["loss"]
    assert np.isclose(measured, losses.mean(), rtol=1e-5)


def test_linen_and_nnx_train_alike(batches):
    linen, nnx = (initial(without_dropout(model)) for model in ("batchnorm", "batchnorm-nnx"))
    # One key gives Linen and NNX different numbers: begin with the same ones.
    nnx = nnx.replace(params=jax.tree.map(jnp.copy, linen.params))
    linen, nnx = (train_epoch(state, *batches)[0] for state in (linen, nnx))
    assert_same_bits(linen.variables, nnx.variables)


def test_each_step_has_dropout_of_its_own_and_the_same_again(batches):
    images, labels, _ = batches
    state, losses = initial("batchnorm-nnx", STILL), []
    for _ in range(4):
        state, sums = train_step(state, images[:32], labels[:32])
        losses.append(float(sums.loss))
    assert len(set(losses)) == 4  # the same batch, the same parameters
    again, sums = train_step(initial("batchnorm-nnx", STILL), images[:32], labels[:32])
    assert float(sums.loss) == losses[0]
    other = again.replace(step=jnp.int32(2))
    assert float(train_step(other, images[:32], labels[:32])[1].loss) == losses[2]


def test_saved_and_restored_it_goes_on_with_the_same_bits(batches, tmp_path):
    (images, labels, order), model = batches, "batchnorm-nnx"
    tx = optimizer("lion", schedule="cosine", steps=8, clip=1.0, accumulate=3)
    whole, _ = train_epoch(initial(model, tx), images, labels, order)
    state, _ = train_epoch(initial(model, tx), images, labels, order[:5])  # an update half made
    assert all(np.asarray(leaf).dtype != object for leaf in jax.tree.leaves(state))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "state", initial(model, tx))
    assert_same_bits(train_epoch(restored, images, labels, order[5:])[0], whole)


class Counting(nn.Module):
    """A collection and a random stream that this book does not use, and another flag."""

    @nn.compact
    def __call__(self, images, deterministic=True):
        seen = self.variable("counts", "seen", lambda: jnp.int32(0))
        x = images.reshape(images.shape[0], -1)
        if not deterministic:
            seen.value += 1
            x += 0.1 * jax.random.normal(self.make_rng("noise"), x.shape)
        self.sow("intermediates", "x", x)
        return nn.Dense(10)(x)


def test_the_step_trains_what_others_write(batches):
    images, labels, order = batches
    network = from_linen(Counting(), deterministic=False)
    state = create_state(jax.random.key(0), network, jnp.zeros((1, 64)))
    images = images.astype(jnp.float32) / 255
    state, sums = train_epoch(state, images, labels, order)
    assert state.collections == {"counts": {"seen": 8}}
    state, later = train_epoch(state, images, labels, order)
    assert later.means()["loss"] < sums.means()["loss"]


# --- the optimizer


def updates(tx: optax.GradientTransformation, grads: list, params) -> list:
    """The update that follows each of these gradients."""
    state, found = tx.init(params), []
    for grad in grads:
        update, state = tx.update(grad, state, params)
        found.append(update)
    return found


def by_hand(t: int, warmup: int, total: int, kind: str) -> float:
    if t < warmup:
        return t / warmup
    if kind == "constant":
        return 1.0
    return (1 + math.cos(math.pi * min(1.0, (t - warmup) / (total - warmup)))) / 2


@pytest.mark.parametrize(
    ("kind", "warmup", "accumulate"),
    [("constant", 0, 1), ("constant", 4, 3), ("cosine", 0, 3), ("cosine", 1, 1), ("cosine", 4, 1)],
)
def test_the_rate_of_each_update_is_that_of_the_formula(kind, warmup, accumulate, plain_numpy):
    expected = [0.1 * by_hand(t, warmup, 10, kind) for t in range(13)]
    curve = schedule(kind, 0.1, warmup=warmup, updates=10)
    np.testing.assert_allclose([curve(t) for t in range(13)], expected, atol=1e-8)
    tx = optimizer(
        "sgd",
        learning_rate=0.1,
        schedule=kind,
        warmup=accumulate * warmup,
        steps=accumulate * 10,
        accumulate=accumulate,
    )
    ones = {"w": jnp.ones((2, 2))}
    moved = [-u["w"][0, 0] for u in updates(tx, 13 * accumulate * [ones], ones)]
    velocity = [sum(0.9**i for i in range(t + 1)) for t in range(13)]
    made = moved[accumulate - 1 :: accumulate]
    np.testing.assert_allclose(made, np.multiply(expected, velocity), rtol=1e-5, atol=1e-8)
    assert np.count_nonzero(moved) == np.count_nonzero(expected)  # none before its gradients


GRADS = {"kernel": jnp.array([[3.0, -0.5], [1e-3, -2.0]]), "bias": jnp.array([1.0, -4.0])}
PARAMS = {"kernel": jnp.array([[1.0, 2.0], [-3.0, 4.0]]), "bias": jnp.array([5.0, 6.0])}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("decay", [None, 0.0, 0.1])
def test_two_updates_of_each_rule_by_hand(name, decay, plain_numpy):
    usual = {"adam": 0.0, "adamw": 1e-4, "lion": 1e-3, "sgd": 0.0}[name]
    shrunk = usual if decay is None else decay
    grads = [GRADS, jax.tree.map(lambda g: -0.3 * g, GRADS)]
    tx = optimizer(name, learning_rate=0.01, weight_decay=decay)
    found = updates(tx, grads, PARAMS)
    for leaf, value in PARAMS.items():
        first = second = 0.0
        for t, (grad, update) in enumerate(zip(grads, found, strict=True), 1):
            g = np.asarray(grad[leaf], np.float64)
            if name == "sgd":
                first = 0.9 * first + g
                direction = first
            elif name == "lion":
                direction = np.sign(0.9 * first + 0.1 * g)
                first = 0.99 * first + 0.01 * g
            else:
                first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
                direction = first / (1 - 0.9**t) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
            direction = direction + (shrunk * np.asarray(value) if leaf == "kernel" else 0)
            np.testing.assert_allclose(update[leaf], -0.01 * direction, rtol=2e-5, atol=1e-7)


def test_a_gradient_that_is_too_long_is_scaled_to_the_norm_and_no_other(plain_numpy):
    norm = math.sqrt(sum(float((g**2).sum()) for g in GRADS.values()))
    (plain,) = updates(optimizer("sgd"), [GRADS], PARAMS)
    (long,) = updates(optimizer("sgd", clip=norm / 4), [GRADS], PARAMS)
    (short,) = updates(optimizer("sgd", clip=norm * 1.01), [GRADS], PARAMS)
    assert_same_bits(short, plain)
    assert_close(long, jax.tree.map(lambda u: u / 4, plain), atol=1e-7)


def test_accumulated_batches_are_one_large_batch(batches):
    images, labels, order = batches
    large = order[:1]
    one, _ = train_epoch(initial(), images, labels, large)
    small = large.reshape(4, 8)
    tx = optimizer(accumulate=4)
    early, _ = train_epoch(initial(tx=tx), images, labels, small[:3])
    assert_same_bits(early.params, initial().params)
    four, _ = train_epoch(early, images, labels, small[3:])
    assert four.step == 4 and four.opt_state.gradient_step == 1
    # Adam's first update is lr·g/|g|: a mean in another order turns signs where g is nothing.
    difference = jax.tree.map(lambda a, b: np.abs(a - b), one.params, four.params)
    assert all((d > 1e-5).mean() < 1e-3 for d in jax.tree.leaves(difference))


def test_a_trained_state_goes_on_with_another_rate(batches):
    images, labels, order = batches
    state, _ = train_epoch(initial(tx=optimizer(schedule="cosine", steps=8)), *batches)
    slower = state.replace(tx=optimizer(learning_rate=1e-5, schedule="constant"))
    assert jax.tree.structure(slower.opt_state) == jax.tree.structure(
        initial(tx=slower.tx).opt_state
    )
    before = jax.tree.map(jnp.copy, slower.params)
    after, _ = train_step(slower, images[order[0]], labels[order[0]])
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), before, after.params)
    assert 0 < max(jax.tree.leaves(moved)) < 3e-5  # Adam moves by about the rate


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"name": "rmsprop"}, "optimizer 'rmsprop': choose from adam, adamw, lion, sgd"),
        ({"schedule": "linear"}, "schedule 'linear': choose from constant, cosine"),
        ({"learning_rate": 0.0}, "learning_rate 0.0: a positive"),
        ({"learning_rate": math.nan}, "learning_rate nan: a positive"),
        ({"weight_decay": -0.1}, "weight_decay -0.1: at least 0"),
        ({"weight_decay": math.inf}, "weight_decay inf: at least 0"),
        ({"clip": 0.0}, "clip 0.0: a positive"),
        ({"clip": math.nan}, "clip nan: a positive"),
        ({"accumulate": 0}, "accumulate 0: at least 1"),
        ({"warmup": -1}, "warmup -1: at least 0"),
        ({"schedule": "cosine"}, "none of 0 to fall"),
        ({"schedule": "cosine", "warmup": 5, "steps": 5}, "none of 5 to fall"),
    ],
)
def test_numbers_that_cannot_be(description, message):
    with pytest.raises(ValueError, match=message):
        optimizer(**description)


# --- together


@pytest.mark.parametrize("seed", range(2))
def test_20_epochs_reach_97_percent(seed, data_dir):
    train, validation, test = (digits.load("digits", s, data_dir) for s in digits.SPLITS)
    init_key, order_key = jax.random.split(jax.random.key(seed))
    state = create_state(init_key, NETWORK, train.images[:1])
    for epoch in range(1, 21):
        key = jax.random.fold_in(order_key, epoch)
        order = digits.epoch_order(key, len(train.labels), 32)
        state, _ = train_epoch(state, *map(jnp.asarray, train), order)
    assert evaluate(state, *test).means()["accuracy"] >= 0.97
    assert evaluate(state, *validation).means()["accuracy"] >= 0.95


NETWORK = classifier("linen")


def test_a_network_in_bfloat16_learns(batches, data_dir, plain_numpy):
    network = classifier("nnx", dtype=jnp.bfloat16)
    tx = optimizer("adamw", learning_rate=3e-3, schedule="cosine", warmup=8, steps=32, clip=1.0)
    state = initial(network, tx)
    for _ in range(4):
        state, _ = train_epoch(state, *batches)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.variables)} == {jnp.dtype("float32")}
    assert evaluate(state, *digits.load("digits", "test", data_dir)).means()["accuracy"] > 0.8
