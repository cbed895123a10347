"""entmax beside a bisection in extended precision, closed forms and its peers.

Its derivatives and JAX's other transformations: test_entmax_derivatives.py.

The peers' cases are those that deep-spin publish for their packages: entmax_jax/test_activations.py
and entmax/test_{root_finding,mask,losses,topk}.py, by value where they give one, else by property.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from entmax_reference import ALPHAS as FUZZED
from entmax_reference import errors, exact

from limits import HALF
from seejax.entmax import entmax, entmax_loss, sparsemax

pytestmark = pytest.mark.usefixtures("compiled_once")

ALPHAS = (1.0, 1.0000001, 1.001, 1.1, 1.25, 1.333, 1.5, 1.75, 1.9, 2.0)
STEEP = (2.25, 3.0, 5.0, 10.0)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def scores(seed: int, shape: tuple, scale: float, dtype) -> jax.Array:
    """Scores of one scale; rounded to dtype before anyone looks at them."""
    return jnp.asarray(scale * np.random.default_rng(seed).normal(size=shape), dtype)


def reference(z, alpha) -> np.ndarray:
    """entmax by 80 halvings of the threshold, in the paper's own form and in extended precision."""
    z, alpha = np.asarray(z, np.longdouble), np.longdouble(alpha)
    z = z - z.max(axis=-1, keepdims=True)
    if alpha == 1:
        p = np.exp(z)
        return p / p.sum(axis=-1, keepdims=True)
    low = -np.ones_like(z[..., :1])  # tau + max; S(-1) >= 1
    high = np.zeros_like(low)

    def powers(tau):
        u = (alpha - 1) * z - tau
        return np.where(u > 0, np.exp(np.log(np.where(u > 0, u, 1)) / (alpha - 1)), 0)

    for _ in range(80):
        tau = (low + high) / 2
        enough = powers(tau).sum(axis=-1, keepdims=True) >= 1
        low, high = np.where(enough, tau, low), np.where(enough, high, tau)
    p = powers(low)
    return p / p.sum(axis=-1, keepdims=True)


def tolerance(alpha: float, dtype) -> float:
    """What the issue of a float's width allows: above α = 2 the slope at the edge is infinite."""
    if alpha > 2:
        return float((64 * jnp.finfo(dtype).eps) ** (1 / (alpha - 1)))
    return 1e-6 if dtype == jnp.float32 else 1e-12


# -- values ----------------------------------------------------------------------------------------


@functools.cache
def case(n: int, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of n scores at five scales, and what entmax makes of them."""
    scales = (1e-3, 1.0, 5.0, 100.0, 1e4)
    z = np.concatenate([scores(0, (8, n), scale, jnp.float64) for scale in scales])
    return z, reference(z, alpha)


# An array of any α runs one program; a number compiles one of its own, in one of these ways.
NUMBERS = (1.0, 1.25, 1.375, 1.5, 2.0, 3.0)


@pytest.mark.parametrize(
    ("alpha", "traced"),
    [*((alpha, True) for alpha in ALPHAS + STEEP), *((alpha, False) for alpha in NUMBERS)],
)
def test_float64_against_extended_precision(alpha: float, traced: bool, x64) -> None:
    given = jnp.asarray(alpha) if traced else alpha
    for n in (33, 500):
        z, expected = case(n, alpha)
        p = np.asarray(entmax(z, given), np.longdouble)
        assert np.abs(p - expected).max() <= tolerance(alpha, jnp.float64), n
        assert np.abs(p.sum(axis=-1) - 1).max() <= 2e-6  # as each p may be off
        assert (p >= 0).all()


def test_one_score_takes_all() -> None:
    for alpha in (1, 1.333, 1.5, 2, 10, jnp.float32(1.7)):
        assert entmax(jnp.array([-3.0]), alpha) == 1


def test_alpha_one_is_softmax_and_the_curve_is_smooth_there(x64) -> None:
    z = scores(0, (5, 9), 3.0, jnp.float64)
    assert (entmax(z, 1) == jax.nn.softmax(z)).all()
    near = np.stack([entmax(z, jnp.asarray(alpha)) for alpha in (1, 1.0001, 1.0002, 1.0003)])
    first = np.diff(near, axis=0)  # a jump at 1 would make one of the differences stand out
    assert np.abs(np.diff(first, axis=0)).max() < 1e-6


def test_a_lead_of_one_over_alpha_minus_one_takes_all() -> None:
    alpha = np.array(ALPHAS[1:], np.float32)
    z = np.stack([1.01 / (alpha - 1), 0 * alpha, 0 * alpha - 1], axis=-1)
    assert np.allclose(entmax(z, alpha), np.eye(3)[:1], atol=1e-6)


def test_sparsemax_against_the_sorting_algorithm(x64) -> None:
    z = np.random.default_rng(0).normal(size=(50, 30)) * 2
    ordered = -np.sort(-z, axis=-1)
    cumulated, k = ordered.cumsum(axis=-1), np.arange(1, 31)
    size = (1 + k * ordered > cumulated).sum(axis=-1, keepdims=True)
    tau = (np.take_along_axis(cumulated, size - 1, axis=-1) - 1) / size
    assert np.allclose(sparsemax(jnp.asarray(z)), np.maximum(z - tau, 0), atol=1e-14)


def test_it_maximises_its_objective(x64) -> None:
    """No other point of the simplex that we try scores higher, and those near it score lower."""
    rng = np.random.default_rng(1)
    for alpha in (1.2, 1.5, 2.0, 3.0):
        z = rng.normal(size=6)

        def score(p, z=z, alpha=alpha):
            return p @ z + ((p - p**alpha) / (alpha * (alpha - 1))).sum(axis=-1)

        p = np.asarray(entmax(jnp.asarray(z), alpha))
        others = rng.dirichlet(np.ones(6), size=2000)
        near = 0.99 * p + 0.01 * others
        assert (score(others) < score(p)).all() and (score(near) < score(p)).all()


def test_ties_shifts_permutations_and_scale() -> None:
    tied = entmax(jnp.array([1.0, 1.0, 0.9, -5.0, 0.9]), 1.7)
    assert tied[0] == tied[1] and tied[2] == tied[4]
    assert np.allclose(entmax(jnp.zeros(7), 1.5), 1 / 7, atol=1e-7)
    z = scores(3, (40,), 2.0, jnp.float32)
    order = np.random.default_rng(0).permutation(40)
    assert np.allclose(entmax(z[order]), entmax(z)[order], atol=1e-7)
    whole = jnp.round(z * 1024) / 1024  # so that adding 1024 loses nothing
    assert np.allclose(entmax(whole + 1024), entmax(whole), atol=1e-7)


def test_newton_is_not_slowed_by_scores_that_leave_one_by_one(x64) -> None:
    """The known worst case of climbing at α = 2: each step drops one score from the support."""
    z = -(2.0 ** -np.arange(200.0))[::-1]
    assert np.allclose(entmax(jnp.asarray(z), 2), reference(z, 2), atol=1e-12)


@pytest.mark.parametrize(
    ("alpha", "traced"),
    [*((alpha, True) for alpha in FUZZED), *((alpha, False) for alpha in NUMBERS)],
)
def test_float32_has_no_digit_to_lose(alpha: float, traced: bool) -> None:
    """160 rows of each: see `fuzz` and `errors`."""
    of_p, of_dz, of_sum = errors(alpha, traced)
    assert of_p <= (2e-6 if alpha <= 2 else 1e-5)
    assert of_dz <= (2e-6 if alpha <= 2 else 1e-5)
    assert of_sum <= 4e-6


@pytest.mark.parametrize(
    ("z", "alpha"),
    [
        (np.zeros(65), 5.0),
        (np.zeros(5000), 3.0),
        (np.array([1.0, 1.0, 0.0]), 30.0),
        (np.eye(1, 32_000)[0] * (1 - 1e-6), 2.0),
        (np.eye(1, 32_000)[0] * (1 - 1e-6), 1.9),
        (np.array([3e38, -3e38, 3e38]), 1.5),
    ],
    ids=["65 equal", "5000 equal", "α = 30", "plateau", "plateau 1.9", "huge"],
)
def test_rows_that_were_hard(z: np.ndarray, alpha: float) -> None:
    z, alpha = z.astype(np.float32), float(np.float32(alpha))
    expected = exact(z, alpha)
    for given in (alpha, jnp.float32(alpha)):
        assert np.abs(np.asarray(entmax(z, given), np.longdouble) - expected).max() <= 1e-6


# -- masks, NaN, widths, axes ----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1, 1.333, 1.5, 2, 3])
def test_a_mask_is_as_if_the_score_were_not_there(alpha: float) -> None:
    z = scores(0, (3, 40), 1.0, jnp.float32)

    @jax.jit
    def both(z):
        p, pull = jax.vjp(lambda z: entmax(z, alpha), z)
        return p, *pull(jnp.eye(40)[:1] + 0 * p)

    p, gradient = both(z.at[:, 25:].set(-jnp.inf))
    assert (p[:, 25:] == 0).all()
    assert np.allclose(p[:, :25], exact(z[:, :25], alpha), atol=2e-6)
    assert np.isfinite(gradient).all() and (gradient[:, 25:] == 0).all()
    assert (both(z.at[:, 1:].set(-jnp.inf))[0] == jnp.eye(40)[:1]).all()


@pytest.mark.parametrize("alpha", [1, 1.333, 1.5, 2, 3])
def test_nan_spoils_its_own_row_only(alpha: float) -> None:
    z = scores(0, (5, 40), 1.0, jnp.float32)
    spoiled = z.at[1, 3].set(jnp.nan).at[3].set(-jnp.inf)
    good, bad = np.array([0, 2, 4]), np.array([1, 3])

    @jax.jit
    def both(z):
        p, pull = jax.vjp(lambda z: entmax(z, alpha), z)
        return p, pull(jnp.cos(z))[0]

    for got, clean in zip(both(spoiled), both(z), strict=True):
        assert np.isnan(got[bad]).all()
        assert np.array_equal(got[good], clean[good])


@pytest.mark.parametrize("narrow", HALF)
def test_half_precision_is_computed_in_float32(narrow: str) -> None:
    z = scores(0, (4, 300), 2.0, narrow)
    p = entmax(z, 1.5)
    assert p.dtype == narrow
    assert (p == entmax(z.astype(jnp.float32), 1.5).astype(narrow)).all()
    gradient = jax.grad(lambda z: entmax(z, 1.5)[0, 0])(z)
    assert gradient.dtype == narrow and np.isfinite(gradient.astype(jnp.float32)).all()


def test_integers_become_floats() -> None:
    assert (entmax(jnp.arange(3), 2) == sparsemax(jnp.arange(3.0))).all()


@pytest.mark.parametrize("axis", [0, 2, -1, -3])
def test_any_axis_and_an_alpha_for_each_row(axis: int) -> None:
    shape = (3, 4, 2, 5)
    z = scores(0, shape, 1.0, jnp.float32)
    rest = np.delete(shape, axis)
    alpha = jnp.asarray(1 + 1.5 * np.random.default_rng(1).random(rest), jnp.float32)
    p = np.moveaxis(np.asarray(entmax(z, alpha, axis)), axis, -1)
    rows = np.moveaxis(np.asarray(z), axis, -1)
    for index in np.ndindex(*rest):
        assert np.allclose(p[index], reference(rows[index], alpha[index]), atol=2e-6)


def test_alpha_broadcasts_as_an_array_does() -> None:
    z = scores(0, (2, 3, 8), 1.0, jnp.float32)
    heads = jnp.array([[1.2], [1.8]])
    assert (entmax(z, heads) == entmax(z, jnp.broadcast_to(heads, (2, 3)))).all()
    assert (
        entmax(z, jnp.array([1.2, 1.5, 2.0]))
        == entmax(z, jnp.full((2, 3), 1.2).at[:, 1].set(1.5).at[:, 2].set(2.0))
    ).all()


def test_vmap_jit_and_loop_are_one() -> None:
    z = scores(0, (6, 37), 1.0, jnp.float32)
    alpha = jnp.linspace(1.0, 2.5, 6)
    batched = jax.jit(jax.vmap(entmax))(z, alpha)
    looped = np.stack([entmax(row, a) for row, a in zip(z, alpha, strict=True)])
    assert np.allclose(batched, looped, atol=1e-6)
    cube = z.reshape(2, 3, 37)
    across = jax.jit(jax.vmap(entmax, in_axes=1, out_axes=1))
    assert np.allclose(across(cube), entmax(cube), atol=1e-7)
    assert entmax(z[:0]).shape == (0, 37)
    first = jax.jit(jax.grad(lambda z, a: entmax(z, a)[0]))
    looped = [first(row, a) for row, a in zip(z, alpha, strict=True)]
    assert np.allclose(jax.jit(jax.vmap(first))(z, alpha), looped, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "spec"), [("Explicit", jax.P("rows")), ("Auto", jax.P(None, None, "rows"))], ids=str
)
def test_eight_devices_equal_one(kind: str, spec: jax.P) -> None:
    z = scores(0, (16, 4, 40), 1.0, jnp.float32)
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(jax.sharding.AxisType[kind],))
    spread = jax.device_put(z, jax.NamedSharding(mesh, spec))

    @jax.jit
    def both(z):
        p, pull = jax.vjp(lambda z: entmax(z, 1.5), z)
        return p, *pull(jnp.cos(z)), entmax_loss(z, jnp.zeros((16, 4), int), 1.5)

    there = both(spread)
    for got, expected in zip(there, both(z), strict=True):
        assert np.allclose(got, expected, atol=1e-6)
    assert there[0].sharding.is_equivalent_to(spread.sharding, 3)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
def test_where_is_a_mask_that_may_take_all(alpha: float) -> None:
    z = scores(0, (3, 40), 1.0, jnp.float32).at[0, 30].set(jnp.nan)
    where = jnp.arange(40)[None] < jnp.array([25, 25, 0])[:, None]
    expected = entmax(jnp.where(where, z, -jnp.inf)[:2], alpha)

    @jax.jit
    def both(z):
        p, pull = jax.vjp(lambda z: entmax(z.T, alpha, axis=0, where=where.T).T, z)
        return p, *pull(jnp.cos(jnp.arange(40.0))[None] + 0 * p)

    p, gradient = both(z)
    assert np.allclose(p[:2], expected, atol=1e-7) and (p[2] == 0).all()
    assert (gradient[~where] == 0).all() and np.isfinite(gradient).all() and gradient.any()


# -- memory ----------------------------------------------------------------------------------------


def test_forward_and_backward_hold_four_arrays() -> None:
    """Scores, cotangent, p and gradient; what lies between them is small."""

    @jax.jit
    def both(z, g):
        p, pull = jax.vjp(lambda z: entmax(z, 1.5), z)
        return p, *pull(g)

    z = scores(0, (4096, 512), 1.0, jnp.float32)
    memory = both.lower(z, z).compile().memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    assert held <= 4.1 * z.nbytes


# -- the loss --------------------------------------------------------------------------------------


def test_the_loss_at_alpha_one_is_cross_entropy() -> None:
    z, labels = scores(0, (20, 9), 3.0, jnp.float32), jnp.arange(20) % 9
    expected = optax.softmax_cross_entropy_with_integer_labels(z, labels)
    assert np.allclose(entmax_loss(z, labels, 1), expected, rtol=1e-5)


def test_a_sure_and_right_prediction_costs_nothing_and_a_masked_label_everything() -> None:
    z = jnp.array([[4.0, 0.0, -jnp.inf], [0.0, 4.0, -jnp.inf], [0.0, 4.0, -jnp.inf]])
    loss = entmax_loss(z, jnp.array([0, 0, 2]))
    assert loss[0] == 0 and loss[1] > 1 and loss[2] == jnp.inf
    assert (jax.grad(lambda z: entmax_loss(z, jnp.array(0)))(z[0]) == 0).all()
    assert np.isnan(entmax_loss(z[:2], jnp.array([-1, 3]))).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
def test_a_label_counts_as_far_as_the_classes_go(dtype: str) -> None:
    """int8 cannot count to 300: as a class 44 and 300 would be one, and a length of 256 be 0."""
    z, labels = scores(5, (3, 300), 1.0, "float32"), [0, 44, 100]
    expected = entmax_loss(z, jnp.array(labels))
    assert (entmax_loss(z, jnp.array(labels, dtype)) == expected).all()
    assert jnp.isfinite(entmax_loss(z[:, :256], jnp.array(labels, dtype))).all()


def test_masked_scores_meet_no_nan_on_the_way() -> None:
    z, soft = jnp.array([[1.0, 2.0, -jnp.inf]]), jnp.array([[0.5, 0.5, 0.0]])
    with jax.debug_nans(True):
        for labels in (jnp.array([0]), soft):
            assert jnp.isfinite(jax.grad(lambda z, y=labels: entmax_loss(z, y).sum())(z)).all()


def test_the_loss_reduces_over_the_rows_that_take_part() -> None:
    z, labels = scores(0, (4, 6, 9), 1.0, jnp.float32), jnp.zeros((4, 6), int)
    where = (jnp.arange(4) < 3)[:, None, None]
    each = entmax_loss(z, labels, where=where)
    assert (each[3] == 0).all() and (each[:3] == entmax_loss(z[:3], labels[:3])).all()
    mean = entmax_loss(z, labels, where=where, reduction="mean")
    assert np.allclose(mean, each[:3].mean()) and np.isclose(
        entmax_loss(z, labels, reduction="sum"), entmax_loss(z, labels).sum()
    )
    gradient = jax.grad(lambda z: entmax_loss(z, labels, where=where, reduction="mean"))(z)
    assert (gradient[3] == 0).all() and np.allclose(
        gradient[:3] * 18, entmax(z[:3]) - jax.nn.one_hot(labels[:3], 9), atol=1e-6
    )
    assert entmax_loss(z, labels, where=where & False, reduction="mean") == 0
    other = entmax_loss(jnp.moveaxis(z, -1, 0), labels, axis=0)
    assert np.allclose(other, entmax_loss(z, labels), atol=1e-6)


def test_the_loss_is_never_below_zero() -> None:
    loss = jax.jit(lambda z, alpha: entmax_loss(z, jnp.zeros(4096, int), alpha))
    for alpha in (1.0, 1.1, 1.5, 1.75, 2.0, 3.0):
        z = np.array(scores(0, (4096, 8), 1.0, jnp.float32))
        z[:, 0] += 1 / max(alpha - 1, 0.1)  # near the edge of certainty
        assert (loss(z, jnp.float32(alpha)) >= 0).all()


def test_value_and_gradient_hold_one_array_more() -> None:
    z, labels = scores(0, (256, 512), 1.0, jnp.float32), jnp.zeros(256, int)
    both = jax.jit(jax.value_and_grad(lambda z: entmax_loss(z, labels, reduction="mean")))
    assert both.lower(z).compile().memory_analysis().temp_size_in_bytes <= 1.1 * z.nbytes


# -- deep-spin's published cases -------------------------------------------------------------------


def test_published_values() -> None:
    assert np.allclose(entmax(jnp.array([0, 1, 1.5]), 2), [0, 0.25, 0.75])
    assert np.allclose(
        entmax(jnp.array([[0.5, 1], [1.5, 2.0]]), jnp.array([2, 1.5])),
        [[0.25, 0.75], [0.32600737, 0.67399263]],
    )
    assert np.allclose(
        jax.jacobian(sparsemax)(jnp.array([0, 1, 1.5])),
        [[0, 0, 0], [0, 0.5, -0.5], [0, -0.5, 0.5]],
    )
    z = jnp.array([[0.5, 1], [1.5, 2.0]])
    assert np.allclose(entmax(z, 1.5, axis=0), entmax(z.T, 1.5).T)


@pytest.mark.parametrize("z", [[0, 1, 1.5], [0, 0.5, 1], [0, 1.5, 2]])
def test_published_pairs_of_algorithms(z) -> None:
    for number in (1.5, 2.0):  # the quick program for a known α against the general one
        assert np.allclose(entmax(jnp.array(z), number), entmax(jnp.array(z), jnp.float32(number)))


@pytest.mark.parametrize(("axis", "scale"), [(0, 0.00001), (1, 0.5), (2, 10000)])
def test_published_scales(axis: int, scale: float) -> None:
    z = scores(0, (3, 4, 5), scale, jnp.float32)
    for alpha in (1.5, 2.0):
        expected = reference(np.moveaxis(np.asarray(z), axis, -1), alpha)
        assert np.allclose(
            np.moveaxis(np.asarray(entmax(z, alpha, axis)), axis, -1), expected, atol=1e-6
        )


def test_the_curve_at_alpha_ten_is_smooth() -> None:
    """deep-spin/entmax#36: theirs is ragged where the second score leaves the support."""
    gap = np.linspace(0, 0.125, 401, dtype=np.float32)
    z = np.stack([gap, np.zeros_like(gap)], axis=-1)
    p = np.asarray(entmax(z, 10.0), float)
    assert np.abs(p - exact(z, 10.0).astype(float)).max() <= 1e-6
    assert (np.diff(p[:, 1]) <= 1e-6).all()


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda z: entmax(z, 0.99), ValueError, "begins at alpha = 1"),
        (lambda z: entmax(z, jnp.array([1.5, 0.5, 2.0])), ValueError, "begins at alpha = 1"),
        (lambda z: entmax(z, float("nan")), ValueError, "begins at alpha = 1"),
        (lambda z: entmax(z, float("inf")), ValueError, "infinite"),
        (lambda z: entmax(z, 1.5 + 0j), TypeError, "must be real"),
        (
            lambda z: entmax(z, jnp.ones(4) * 1.5),
            ValueError,
            r"\(4,\) does not broadcast to \(3,\)",
        ),
        (lambda z: entmax(z, jnp.ones((2, 3)) * 1.5), ValueError, "does not broadcast"),
        (lambda z: entmax(z, axis=2), ValueError, "axis 2 is not there"),
        (lambda z: entmax(z, axis=-3), ValueError, "axis -3 is not there"),
        (lambda z: entmax(z[0, 0]), ValueError, "axis -1 is not there"),
        (lambda z: entmax(z[:, :0]), ValueError, "empty"),
        (lambda z: entmax(jax.lax.complex(z, z)), TypeError, "complex"),
        (lambda z: sparsemax(jax.lax.complex(z, z)), TypeError, "complex"),
        (lambda z: entmax_loss(z, jnp.ones(3)), ValueError, "do not fit"),
        (lambda z: entmax_loss(z, jnp.ones(3, bool)), TypeError, "indices"),
        (lambda z: entmax_loss(z, jnp.ones(3, int), reduction="avg"), ValueError, "reduction"),
        (lambda z: entmax(z, np.complex64(1.5 + 1j)), TypeError, "must be real"),
        (lambda z: entmax(z, jnp.array([1.5, jnp.inf, 2.0])), ValueError, "infinite"),
        (lambda z: entmax(z, where=jnp.ones((3, 4))), TypeError, "boolean"),
        (lambda z: entmax(z, where=jnp.ones((2, 4), bool)), ValueError, "roadcast"),
        (lambda z: entmax_loss(z, jnp.ones(4, int)), ValueError, "one for each row"),
        (lambda z: entmax_loss(z[:, :0], jnp.ones(3, int)), ValueError, "empty"),
        (lambda z: entmax_loss(z, jnp.ones(3, int), 0.5), ValueError, "begins at alpha = 1"),
    ],
)
def test_bad_input_is_refused(call, error, words: str) -> None:
    with pytest.raises(error, match=words):
        call(jnp.ones((3, 4)))


def test_what_is_nan_and_what_is_not() -> None:
    z = jnp.array([[1.0, jnp.inf, 0.0], [1.0, 0.0, -jnp.inf], [0.0, jnp.nan, 1.0]])
    for alpha in (1.0, 1.5, 2.0, 3.0, jnp.float32(1.5)):
        assert np.isnan(entmax(z, alpha)).all(axis=1).tolist() == [True, False, True]
    infinite = jax.jit(entmax)(jnp.ones((2, 4)), jnp.array([jnp.inf, 2.0]))
    assert np.isnan(infinite[0]).all() and np.isfinite(infinite[1]).all()


def test_a_traced_alpha_below_one_is_nan_not_a_wrong_answer() -> None:
    p = jax.jit(entmax)(jnp.ones((3, 4)), jnp.array([1.5, 0.9, 2.0]))
    assert np.isnan(p[1]).all() and np.isfinite(p[np.array([0, 2])]).all()
