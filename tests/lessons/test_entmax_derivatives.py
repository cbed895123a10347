"""entmax's derivatives beside finite differences, and entmax inside JAX's other transformations."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from entmax_reference import exact
from jax import export
from jax.experimental import checkify
from jax.test_util import check_grads
from test_entmax import reference, scores

from seejax.entmax import entmax, entmax_loss

pytestmark = pytest.mark.usefixtures("compiled_once", "hardly_optimized")


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


# -- inside JAX's other transformations ------------------------------------------------------------


def everything(z: jax.Array, labels: jax.Array, alpha) -> tuple[jax.Array, ...]:
    """p, its pullback, the loss and its gradient, row by row."""
    p, back = jax.vjp(lambda z: entmax(z, alpha), z)
    loss, pull = jax.vjp(lambda z: entmax_loss(z, labels, alpha), z)
    return p, *back(jnp.cos(p)), loss, *pull(jnp.ones_like(loss))


def of(alpha, f=everything):
    """f at that α, which is a part of the program: a number, or an array."""
    alpha = jnp.float32(1.7) if alpha == "array" else alpha
    return lambda z, labels: f(z, labels, alpha)


SOME = pytest.mark.parametrize("alpha", [1.5, 3.0, "array"])


@pytest.mark.parametrize(
    ("kind", "alpha"), [("Auto", 1.0), ("Auto", 1.5), ("Explicit", 3.0), ("Explicit", "array")]
)
def test_shard_map_with_its_checks(alpha, kind: str) -> None:
    z, labels = scores(0, (16, 300), 1.0, jnp.float32), jnp.arange(16)
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(jax.sharding.AxisType[kind],))
    rows, whole = jax.P("rows"), jax.P()
    alphas = (jnp.float32(1.7),) if alpha == "array" else ()  # an array is passed in
    spread = jax.shard_map(
        everything if alphas else of(alpha),
        mesh=mesh, in_specs=(rows, rows, whole)[: 2 + len(alphas)], out_specs=rows,
    )  # fmt: skip
    place = jax.NamedSharding(mesh, rows)
    got = jax.jit(spread)(*jax.device_put((z, labels), place), *alphas)
    for one, expected in zip(got, jax.jit(of(alpha))(z, labels), strict=True):
        assert np.allclose(one, expected, atol=1e-6)


@SOME
def test_export_for_any_batch_and_length(alpha) -> None:
    b, n = export.symbolic_shape("b, n")
    program = jax.jit(of(alpha))
    shapes = jax.ShapeDtypeStruct((b, n), jnp.float32), jax.ShapeDtypeStruct((b,), jnp.int32)
    loaded = export.deserialize(export.export(program)(*shapes).serialize())
    for shape in ((3, 5), (2, 700)):
        z, labels = scores(0, shape, 1.0, jnp.float32), jnp.zeros(shape[0], jnp.int32)
        for got, expected in zip(loaded.call(z, labels), program(z, labels), strict=True):
            assert np.allclose(got, expected, atol=1e-6)


@SOME
def test_checkify_finds_nothing(alpha) -> None:
    z, labels = scores(0, (4, 20), 1.0, jnp.float32), jnp.arange(4)
    checked = checkify.checkify(jax.jit(of(alpha)), errors=checkify.all_checks)
    checkify.check_error(jax.jit(checked)(z, labels)[0])


@SOME
def test_scan_cond_and_donation(alpha) -> None:
    z, labels = scores(0, (3, 4, 20), 1.0, jnp.float32), jnp.arange(4)
    program = of(alpha)
    only_p = of(alpha, lambda z, _, alpha: entmax(z, alpha))

    @jax.jit
    def looped_and_chosen(z):
        looped = jax.lax.map(lambda z: program(z, labels), z)
        return looped, jax.lax.cond(z[0, 0, 0] < 9, lambda z: only_p(z, labels), jnp.cos, z)

    looped, chosen = looped_and_chosen(z)
    donated = jax.jit(program, donate_argnums=0)
    for row in range(3):
        for got, expected in zip(looped, donated(z[row], labels), strict=True):
            assert np.allclose(got[row], expected, atol=1e-6)
    assert np.allclose(chosen, looped[0], atol=1e-6)


def test_backward_keeps_p_and_nothing_else() -> None:
    labels = jnp.arange(32)

    def kept(f, dtype="float32"):
        z = jax.ShapeDtypeStruct((32, 64), dtype)
        pull = jax.eval_shape(lambda z, a: jax.vjp(f, z, a)[1], z, jnp.float32(1.6))
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(pull)) / (
            32 * 64 * 4
        )

    assert kept(lambda z, a: entmax(z, 1.5)) == 1
    assert kept(lambda z, a: entmax(z, 1.5), "bfloat16") == 0.5
    assert kept(entmax) < 1.1  # the rows' own α come to it
    assert kept(lambda z, a: entmax_loss(z, labels, a)) < 2.6


# -- derivatives -----------------------------------------------------------------------------------


def differences(f, x: np.ndarray, step: float) -> np.ndarray:
    """The Jacobian of f by central differences, one column for each entry of x."""
    columns = []
    for index in np.ndindex(*x.shape):
        h = np.zeros_like(x)
        h[index] = step
        columns.append((np.asarray(f(x + h), float) - np.asarray(f(x - h), float)) / (2 * step))
    return np.stack(columns, axis=-1).reshape((*np.shape(columns[0]), *x.shape))


def close(got, expected, relative: float = 1e-4) -> bool:
    """Within a relative error, of the whole array's size: an entry may be zero."""
    expected = np.asarray(expected, float)
    return np.abs(np.asarray(got, float) - expected).max() <= relative * np.abs(expected).max()


# Of an array α is an argument of the program: one is compiled for all.
JACOBIANS = {mode: jax.jit(mode(entmax, argnums=(0, 1))) for mode in (jax.jacrev, jax.jacfwd)}


@pytest.mark.parametrize("alpha", [1.0, 1.0001, 1.001, 1.1, 1.333, 1.5, 1.75, 2.0, 2.25, 3.0])
def test_gradients_in_z_and_in_an_array_alpha(alpha: float, x64) -> None:
    z = np.random.default_rng(4).normal(size=11) / 5  # several take part at every α
    in_z = differences(lambda z: reference(z, alpha), z, 1e-6)
    for jacobian in JACOBIANS.values():
        got_in_z, got_in_alpha = jacobian(z, np.asarray(alpha))
        assert close(got_in_z, in_z)
        if alpha > 1:  # at 1 there is no left side: see below
            in_alpha = differences(lambda a: reference(z, a), np.asarray(alpha), 1e-5)
            assert close(got_in_alpha, in_alpha)


@pytest.mark.parametrize("alpha", [1.0, 1.1, 1.333, 1.5, 2.0, 3.0])
def test_gradient_in_z_at_a_number(alpha: float, x64) -> None:
    z = np.random.default_rng(4).normal(size=11) / 5  # several take part at every α
    expected = differences(lambda z: reference(z, alpha), z, 1e-6)
    at = lambda z: entmax(z, alpha)  # noqa: E731
    for got in jax.jit(lambda z: (jax.jacrev(at)(z), jax.jacfwd(at)(z)))(z):
        assert close(got, expected)


def test_gradient_in_alpha_at_softmax() -> None:
    """At α = 1 there is no left side; the limit is known in closed form, and float32 keeps it."""
    z = scores(0, (9,), 1.0, jnp.float32)
    p = np.asarray(jax.nn.softmax(z), float)
    log = np.log(p)
    expected = -p * (log**2 - (p * log**2).sum()) / 2
    forward, reverse = (jax.jit(mode(entmax, argnums=1)) for mode in (jax.jacfwd, jax.jacrev))
    assert close(forward(z, 1.0), expected, 1e-5)
    assert close(reverse(z, 1.0 + 1e-6), expected, 1e-4)


def test_gradient_in_alpha_where_slopes_overflow() -> None:
    """p^(2-α) is 4e29 and 1e34 at the two small p: by it they share what the large one leaves."""
    z = np.array([0.11086, 5e-35, 0.0], np.float32)
    in_alpha = differences(lambda a: exact(z, float(a)), np.asarray(10.0), 1e-3)
    for jacobian in JACOBIANS.values():
        assert close(jacobian(z, np.float32(10))[1], in_alpha, 1e-4)


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.5, 2.0, "array"])
def test_second_derivatives(alpha: float, x64) -> None:
    z = np.random.default_rng(5).normal(size=7)
    traced, alpha = alpha == "array", 1.333 if alpha == "array" else alpha
    weights = np.cos(np.arange(7))
    weighed = lambda z, a: entmax(z, a if traced else alpha) @ weights  # noqa: E731
    gradient = jax.jit(jax.grad(weighed))
    expected = differences(lambda z: gradient(z, alpha), z, 1e-6)
    for outer, inner in product((jax.jacfwd, jax.jacrev), repeat=2):
        got = jax.jit(outer(inner(weighed)))(z, alpha)
        assert close(got, expected) or (alpha == 2 and (expected == 0).all() and (got == 0).all())
    if traced:
        mixed = differences(lambda a: gradient(z, float(a)), np.asarray(alpha), 1e-6)
        assert close(jax.jit(jax.jacfwd(gradient, argnums=1))(z, alpha), mixed)


@pytest.mark.parametrize("alpha", [1.333, 1.5, 2.0, 3.0])
def test_derivatives_outside_the_support_are_zero(alpha: float) -> None:
    z = jnp.array([2.0, 1.9, -3.0, -4.0])
    at = lambda z: entmax(z, alpha)  # noqa: E731
    both = jax.jit(lambda z: (jax.jacrev(at)(z), jax.hessian(lambda z: at(z)[0])(z)))
    jacobian, hessian = both(z)
    assert (jacobian[2:] == 0).all() and (jacobian[:, 2:] == 0).all()
    assert np.isfinite(hessian).all()


# -- of the loss -----------------------------------------------------------------------------------


def entropy(p: np.ndarray, alpha: float) -> np.ndarray:
    """H_α, straight from the definition; at α = 1 Shannon's."""
    if alpha == 1:
        return -(p * np.log(p)).sum(-1)
    return ((p - p**alpha) / (alpha * (alpha - 1))).sum(-1)


@pytest.mark.parametrize("alpha", [1.0, 1.001, 1.5, 2.0, 3.0, "array"])
def test_the_loss_and_its_gradients(alpha: float, x64) -> None:
    traced, alpha = alpha == "array", 1.333 if alpha == "array" else alpha
    z, labels = np.random.default_rng(0).normal(size=(6, 8)) * 2, np.arange(6)
    loss = jax.jit(lambda z, a: entmax_loss(z, labels, a if traced else alpha))
    p, y = reference(z, alpha).astype(float), np.eye(8)[:6]
    expected = ((p - y) * z).sum(-1) + entropy(p, alpha)  # H of one class is 0
    assert np.allclose(loss(z, alpha), expected, atol=1e-9) and (loss(z, alpha) >= 0).all()
    in_z, in_alpha = jax.jit(jax.grad(lambda z, a: loss(z, a).sum(), argnums=(0, 1)))(z, alpha)
    assert close(in_z, p - y, 1e-9)
    assert close(in_z, differences(lambda z: loss(z, alpha).sum(), z, 1e-6))
    if traced:
        by_alpha = differences(lambda a: loss(z, float(a)).sum(), np.asarray(alpha), 1e-6)
        assert close(in_alpha, by_alpha)
    hessian = jax.jit(jax.hessian(lambda z: entmax_loss(z, labels[0], alpha)))(z[0])
    assert close(hessian, jax.jit(jax.jacfwd(lambda z: entmax(z, alpha)))(z[0]), 1e-9)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
def test_labels_as_probabilities(alpha: float, x64) -> None:
    z = np.random.default_rng(0).normal(size=(5, 8)) * 2
    soft = jax.jit(lambda z, y: entmax_loss(z, y, alpha))
    one_hot = entmax_loss(z, np.arange(5), alpha)
    assert np.allclose(soft(z, np.eye(8)[:5]), one_hot, atol=1e-12)
    y, p = np.random.default_rng(1).dirichlet(np.ones(8), size=5), reference(z, alpha).astype(float)
    expected = ((p - y) * z).sum(-1) + entropy(p, alpha) - entropy(y, alpha)
    assert np.allclose(soft(z, y), expected, atol=1e-9)
    check_grads(lambda z, y: soft(z, y).sum(), (z, y), 1, eps=1e-5)
    assert np.allclose(soft(z, p), 0, atol=1e-12)


# -- deep-spin's published cases -------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.75, 2.25])
def test_published_gradchecks(alpha: float, x64) -> None:
    """Theirs go below α = 1 too (0.2, 0.5, 0.75); that is another problem, and an error here."""
    z = scores(1, (4, 6), 1.0, jnp.float64)
    check_grads(PROGRAM, (z, jnp.asarray(alpha)), 1, eps=1e-5, atol=1e-4, rtol=1e-3)


def test_published_gradcheck_of_an_alpha_for_each_row(x64) -> None:
    z = scores(1, (4, 6), 1.0, jnp.float64)
    alphas = jnp.asarray(1.05 + 1.5 * np.random.default_rng(0).random(4))
    check_grads(PROGRAM, (z, alphas), 1, eps=1e-6, atol=1e-4, rtol=1e-3)


PROGRAM = jax.jit(entmax)
