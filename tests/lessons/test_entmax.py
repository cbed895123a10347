"""entmax beside a bisection in extended precision, finite differences, closed forms and its peers.

The peers' cases are those that deep-spin publish for their packages: entmax_jax/test_activations.py
and entmax/test_{root_finding,mask,losses,topk}.py, by value where they give one, else by property.
"""

import functools
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from entmax_reference import ALPHAS as FUZZED
from entmax_reference import errors, exact
from jax import export
from jax.experimental import checkify
from jax.test_util import check_grads

from limits import HALF
from seejax.entmax import entmax, entmax_loss, sparsemax

pytestmark = pytest.mark.usefixtures("compiled_once")

ALPHAS = (1.0, 1.0000001, 1.001, 1.1, 1.25, 1.333, 1.5, 1.75, 1.9, 2.0)
STEEP = (2.25, 3.0, 5.0, 10.0)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


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
def case(n: int, alpha: float, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of n scores at five scales, and what entmax makes of them."""
    scales = (1e-3, 1.0, 5.0, 100.0, 1e4)
    z = np.concatenate([scores(0, (8, n), scale, jnp.float32) for scale in scales]).astype(name)
    return z, reference(z, alpha)


# An array of any α runs one program; a number compiles one of its own, in one of these ways.
NUMBERS = (1.0, 1.333, 1.5, 2.0, 3.0)


@pytest.mark.parametrize(
    ("alpha", "traced"),
    [*((alpha, True) for alpha in ALPHAS + STEEP), *((alpha, False) for alpha in NUMBERS)],
)
def test_values_against_extended_precision(alpha: float, traced: bool, dtype) -> None:
    alpha = float(dtype.type(alpha))  # float32 cannot hold 1.001: all sides take what it does hold
    given = jnp.asarray(alpha, dtype) if traced else alpha
    for n in (2, 33, 500):
        z, expected = case(n, alpha, dtype.name)
        p = np.asarray(entmax(z, given), np.longdouble)
        assert np.abs(p - expected).max() <= tolerance(alpha, dtype), n
        assert np.abs(p.sum(axis=-1) - 1).max() <= 2e-6  # as each p may be off
        assert (p >= 0).all()


def test_one_score_takes_all() -> None:
    for alpha in (1, 1.333, 1.5, 2, 10, jnp.float32(1.7)):
        assert entmax(jnp.array([-3.0]), alpha) == 1


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 1.333])
def test_rows_sum_to_one_for_wide_rows_too(alpha: float) -> None:
    for scale in (1e-3, 1.0):
        z = scores(0, (4, 32_000), scale, jnp.float32)
        p = np.asarray(entmax(z, alpha), float)
        assert np.abs(p.sum(axis=-1) - 1).max() <= 2e-6  # as each p may be off
        assert np.abs(p - reference(z, alpha)).max() <= 1e-6


def test_alpha_one_is_softmax_and_the_curve_is_smooth_there(dtype) -> None:
    z = scores(0, (5, 9), 3.0, dtype)
    assert (entmax(z, 1) == jax.nn.softmax(z)).all()
    near = np.asarray(jax.vmap(entmax, (None, 0))(z, 1 + jnp.asarray([0, 1e-4, 2e-4, 3e-4], dtype)))
    first = np.diff(near, axis=0)  # a jump at 1 would make one of the differences stand out
    assert np.abs(np.diff(first, axis=0)).max() < 1e-6


@pytest.mark.parametrize("alpha", ALPHAS[1:])
def test_a_lead_of_one_over_alpha_minus_one_takes_all(alpha: float) -> None:
    lead = jnp.float32(1.01 / (alpha - 1))
    p = entmax(jnp.stack([lead, jnp.float32(0), jnp.float32(-1)]), alpha)
    assert np.allclose(p, [1, 0, 0], atol=1e-6)


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
        (np.zeros(9), 9.0),
        (np.zeros(65), 5.0),
        (np.zeros(5000), 3.0),
        (np.array([1.0, 1.0, 0.0]), 30.0),
        (np.eye(1, 32_000)[0] * (1 - 1e-6), 2.0),
        (np.eye(1, 32_000)[0] * (1 - 1e-6), 1.9),
        (np.array([3e38, -3e38, 3e38]), 1.5),
    ],
    ids=["9 equal", "65 equal", "5000 equal", "α = 30", "plateau", "plateau 1.9", "huge"],
)
def test_rows_that_were_hard(z: np.ndarray, alpha: float) -> None:
    z = z.astype(np.float32)
    for given in (alpha, jnp.float32(alpha)):
        p = np.asarray(entmax(z, given), np.longdouble)
        assert np.abs(p - exact(z, float(given))).max() <= 1e-6


# -- masks, NaN, widths, axes ----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1, 1.333, 1.5, 2, 3])
def test_a_mask_is_as_if_the_score_were_not_there(alpha: float) -> None:
    z = scores(0, (3, 40), 1.0, jnp.float32)
    masked = z.at[:, 25:].set(-jnp.inf)
    p = entmax(masked, alpha)
    assert (p[:, 25:] == 0).all()
    assert np.allclose(p[:, :25], entmax(z[:, :25], alpha), atol=tolerance(alpha, jnp.float32))
    gradient = jax.grad(lambda z: entmax(z, alpha)[:, 0].sum())(masked)
    assert np.isfinite(gradient).all() and (gradient[:, 25:] == 0).all()
    only = z.at[:, 1:].set(-jnp.inf)
    assert (entmax(only, alpha) == jnp.eye(40)[:1]).all()


@pytest.mark.parametrize("alpha", [1, 1.333, 1.5, 2, 3])
def test_nan_spoils_its_own_row_only(alpha: float) -> None:
    z = scores(0, (5, 40), 1.0, jnp.float32)
    spoiled = z.at[1, 3].set(jnp.nan).at[3].set(-jnp.inf)
    good, bad = np.array([0, 2, 4]), np.array([1, 3])

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


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1, -3])
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
    looped = jnp.stack([entmax(row, a) for row, a in zip(z, alpha, strict=True)])
    assert np.allclose(batched, looped, atol=1e-6)
    cube = z.reshape(2, 3, 37)
    assert np.allclose(jax.vmap(entmax, in_axes=1, out_axes=1)(cube), entmax(cube), atol=1e-7)
    assert entmax(z[:0]).shape == (0, 37)
    first = jax.grad(lambda z, a: entmax(z, a)[0])
    assert np.allclose(
        jax.vmap(first)(z, alpha), [first(r, a) for r, a in zip(z, alpha, strict=True)], atol=1e-5
    )


@pytest.mark.parametrize("kind", ["Explicit", "Auto"])
@pytest.mark.parametrize("spec", [jax.P("rows"), jax.P(None, None, "rows")], ids=["rows", "scores"])
def test_eight_devices_equal_one(kind: str, spec: jax.P) -> None:
    z = scores(0, (16, 4, 40), 1.0, jnp.float32)
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(jax.sharding.AxisType[kind],))
    spread = jax.device_put(z, jax.NamedSharding(mesh, spec))

    @jax.jit
    def both(z):
        p, pull = jax.vjp(lambda z: entmax(z, 1.5), z)
        return p, *pull(jnp.cos(z)), entmax_loss(z, jnp.zeros((16, 4), int), 1.5)

    for got, expected in zip(both(spread), both(z), strict=True):
        assert np.allclose(got, expected, atol=1e-6)
    assert both(spread)[0].sharding.is_equivalent_to(spread.sharding, 3)


# -- inside JAX's other transformations ------------------------------------------------------------


def everything(z: jax.Array, labels: jax.Array, alpha) -> tuple[jax.Array, ...]:
    """p, its pullback, the loss and its gradient, row by row."""
    p, back = jax.vjp(lambda z: entmax(z, alpha), z)
    loss, pull = jax.vjp(lambda z: entmax_loss(z, labels, alpha), z)
    return p, *back(jnp.cos(p)), loss, *pull(jnp.ones_like(loss))


def given(alpha):
    return jnp.float32(1.7) if alpha == "array" else alpha


SOME = pytest.mark.parametrize("alpha", [1.0, 1.5, 1.75, 2.0, 3.0, "array"])


@SOME
@pytest.mark.parametrize("kind", ["Explicit", "Auto"])
def test_shard_map_with_its_checks(alpha, kind: str) -> None:
    z, labels = scores(0, (16, 300), 1.0, jnp.float32), jnp.arange(16)
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(jax.sharding.AxisType[kind],))
    place = jax.NamedSharding(mesh, jax.P("rows"))
    specs = (jax.P("rows"), jax.P("rows"), jax.P())
    spread = jax.shard_map(everything, mesh=mesh, in_specs=specs, out_specs=jax.P("rows"))
    if alpha != "array":
        spread = jax.shard_map(
            functools.partial(everything, alpha=alpha),
            mesh=mesh, in_specs=specs[:2], out_specs=jax.P("rows"),
        )  # fmt: skip
    rest = (given(alpha),) if alpha == "array" else ()
    got = jax.jit(spread)(*jax.device_put((z, labels), place), *rest)
    for one, expected in zip(got, everything(z, labels, given(alpha)), strict=True):
        assert np.allclose(one, expected, atol=1e-6)


@SOME
def test_export_for_any_batch_and_length(alpha) -> None:
    b, n = export.symbolic_shape("b, n")
    program = jax.jit(lambda z, labels: everything(z, labels, given(alpha)))
    shapes = jax.ShapeDtypeStruct((b, n), jnp.float32), jax.ShapeDtypeStruct((b,), jnp.int32)
    loaded = export.deserialize(export.export(program)(*shapes).serialize())
    for shape in ((3, 5), (2, 700)):
        z, labels = scores(0, shape, 1.0, jnp.float32), jnp.zeros(shape[0], jnp.int32)
        for got, expected in zip(loaded.call(z, labels), program(z, labels), strict=True):
            assert np.allclose(got, expected, atol=1e-6)


@SOME
def test_checkify_finds_nothing(alpha) -> None:
    z, labels = scores(0, (4, 20), 1.0, jnp.float32), jnp.arange(4)
    checked = checkify.checkify(jax.jit(everything), errors=checkify.all_checks)
    checkify.check_error(checked(z, labels, given(alpha))[0])


@SOME
def test_scan_cond_and_donation(alpha) -> None:
    z, labels = scores(0, (3, 4, 20), 1.0, jnp.float32), jnp.arange(4)
    _, looped = jax.lax.scan(lambda c, z: (c, everything(z, labels, given(alpha))), 0, z)
    chosen = jax.lax.cond(z[0, 0, 0] < 9, lambda z: entmax(z, given(alpha)), jnp.cos, z)
    donated = jax.jit(lambda z: entmax(z, given(alpha)), donate_argnums=0)(z + 0)
    assert np.allclose(looped[0], entmax(z, given(alpha)), atol=1e-6)
    assert np.allclose(looped[2][1], entmax_loss(z[1], labels, given(alpha)), atol=1e-6)
    assert np.allclose(chosen, looped[0], atol=1e-6) and np.allclose(donated, chosen, atol=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
def test_where_is_a_mask_that_may_take_all(alpha: float) -> None:
    z = scores(0, (3, 40), 1.0, jnp.float32).at[0, 30].set(jnp.nan)
    where = jnp.arange(40)[None] < jnp.array([25, 25, 0])[:, None]
    expected = entmax(jnp.where(where, z, -jnp.inf)[:2], alpha)

    def weighed(z):
        p = entmax(z, alpha, where=where)
        return (p @ jnp.cos(jnp.arange(40.0))).sum(), p

    gradient, p = jax.grad(weighed, has_aux=True)(z)
    assert (p[:2] == expected).all() and (p[2] == 0).all()
    assert (gradient[~where] == 0).all() and np.isfinite(gradient).all() and gradient.any()
    across = entmax(z.T, alpha, axis=0, where=where.T)
    assert np.allclose(across.T, p, atol=1e-7)


def test_backward_keeps_p_and_nothing_else() -> None:
    z, labels = scores(0, (32, 64), 1.0, jnp.float32), jnp.arange(32)

    def kept(f, dtype="float32"):
        _, pull = jax.vjp(f, z.astype(dtype), jnp.float32(1.6))
        return sum(leaf.nbytes for leaf in jax.tree.leaves(pull)) / z.nbytes

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


@pytest.mark.parametrize("mode", [jax.jacrev, jax.jacfwd], ids=["reverse", "forward"])
@pytest.mark.parametrize("traced", [False, True], ids=["number", "array"])
@pytest.mark.parametrize("alpha", [1.0, 1.001, 1.1, 1.333, 1.5, 1.75, 2.0, 2.25, 3.0])
def test_gradient_in_z(alpha: float, traced: bool, mode, dtype) -> None:
    z = np.random.default_rng(4).normal(size=11)
    z = np.asarray(z, dtype).astype(float)
    given = jnp.asarray(alpha, dtype) if traced else alpha
    expected = differences(lambda z: reference(z, float(given)), z, 1e-6)
    # above α = 2 a float32 next to the edge of the support has few digits left of p^(2-α)
    relative = 1e-4 if alpha <= 2 or dtype == jnp.float64 else 1e-2
    assert close(mode(lambda z: entmax(z, given))(jnp.asarray(z, dtype)), expected, relative)


@pytest.mark.parametrize("mode", [jax.jacrev, jax.jacfwd], ids=["reverse", "forward"])
@pytest.mark.parametrize("alpha", [1.0001, 1.001, 1.1, 1.333, 1.5, 1.75, 2.0, 2.25, 3.0])
def test_gradient_in_alpha(alpha: float, mode, x64) -> None:
    z = np.random.default_rng(4).normal(size=11)
    expected = differences(lambda a: reference(z, a), np.asarray(alpha), 1e-5)
    assert close(mode(lambda a: entmax(jnp.asarray(z), a))(alpha), expected)


def test_gradient_in_alpha_at_softmax() -> None:
    """At α = 1 there is no left side; the limit is known in closed form, and float32 keeps it."""
    z = scores(0, (9,), 1.0, jnp.float32)
    p = np.asarray(jax.nn.softmax(z), float)
    log = np.log(p)
    expected = -p * (log**2 - (p * log**2).sum()) / 2
    assert close(jax.jacfwd(lambda a: entmax(z, a))(1.0), expected, 1e-5)
    assert close(jax.jacrev(lambda a: entmax(z, a))(1.0 + 1e-6), expected, 1e-4)


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.333, 1.5, 2.0])
def test_second_derivatives(alpha: float, x64) -> None:
    z = np.random.default_rng(5).normal(size=7)
    weights = np.cos(np.arange(7))

    def gradient(z, a):
        return jax.grad(lambda z: entmax(z, a) @ weights)(jnp.asarray(z))

    expected = differences(lambda z: gradient(z, alpha), z, 1e-6)
    for outer, inner in product((jax.jacfwd, jax.jacrev), repeat=2):
        got = outer(inner(lambda z: entmax(z, alpha) @ weights))(jnp.asarray(z))
        assert close(got, expected) or (alpha == 2 and (expected == 0).all() and (got == 0).all())
    if alpha > 1:
        mixed = differences(lambda a: gradient(z, float(a)), np.asarray(alpha), 1e-6)
        got = jax.jacfwd(lambda a: gradient(z, a))(alpha)
        assert np.allclose(got, mixed, atol=1e-4 * np.abs(mixed).max() + 1e-9)


def test_derivatives_outside_the_support_are_zero() -> None:
    z = jnp.array([2.0, 1.9, -3.0, -4.0])
    for alpha in (1.333, 1.5, 2.0, 3.0):
        jacobian = jax.jacrev(lambda z, a=alpha: entmax(z, a))(z)
        assert (jacobian[2:] == 0).all() and (jacobian[:, 2:] == 0).all()
        hessian = jax.hessian(lambda z, a=alpha: entmax(z, a)[0])(z)
        assert np.isfinite(hessian).all()


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


def test_the_loss_at_alpha_one_is_cross_entropy(dtype) -> None:
    z = scores(0, (20, 9), 3.0, dtype)
    labels = jnp.arange(20) % 9
    expected = optax.softmax_cross_entropy_with_integer_labels(z, labels)
    assert np.allclose(entmax_loss(z, labels, 1), expected, rtol=1e-5)


@pytest.mark.parametrize("alpha", [1.0, 1.001, 1.333, 1.5, 2.0, 3.0])
def test_the_loss_and_its_gradients(alpha: float, x64) -> None:
    z = np.random.default_rng(0).normal(size=(6, 8)) * 2
    labels = jnp.arange(6)
    loss = entmax_loss(jnp.asarray(z), labels, alpha)
    assert (loss >= 0).all()
    p, y = reference(z, alpha).astype(float), np.eye(8)[:6]
    if alpha > 1:  # <p - y, z> + H(p) - H(y), straight from the definition
        expected = ((p - y) * z).sum(-1) + ((p - p**alpha) / (alpha * (alpha - 1))).sum(-1)
        assert np.allclose(loss, expected, atol=1e-9)
    in_z = jax.grad(lambda z: entmax_loss(z, labels, alpha).sum())(jnp.asarray(z))
    assert close(in_z, p - y, 1e-9)
    assert close(
        in_z, differences(lambda z: entmax_loss(jnp.asarray(z), labels, alpha).sum(), z, 1e-6)
    )
    if alpha > 1:
        in_alpha = jax.grad(lambda a: entmax_loss(jnp.asarray(z), labels, a).sum())(alpha)
        assert close(
            in_alpha,
            differences(
                lambda a: entmax_loss(jnp.asarray(z), labels, float(a)).sum(),
                np.asarray(alpha),
                1e-6,
            ),
        )
    hessian = jax.hessian(lambda z: entmax_loss(z, labels[0], alpha))(jnp.asarray(z[0]))
    assert close(hessian, jax.jacfwd(lambda z: entmax(z, alpha))(jnp.asarray(z[0])), 1e-9)


def test_a_sure_and_right_prediction_costs_nothing_and_a_masked_label_everything() -> None:
    z = jnp.array([[4.0, 0.0, -jnp.inf], [0.0, 4.0, -jnp.inf], [0.0, 4.0, -jnp.inf]])
    loss = entmax_loss(z, jnp.array([0, 0, 2]))
    assert loss[0] == 0 and loss[1] > 1 and loss[2] == jnp.inf
    assert (jax.grad(lambda z: entmax_loss(z, jnp.array(0)))(z[0]) == 0).all()
    assert np.isnan(entmax_loss(z[:2], jnp.array([-1, 3]))).all()


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, 3.0])
def test_labels_as_probabilities(alpha: float, x64) -> None:
    z = np.random.default_rng(0).normal(size=(5, 8)) * 2
    labels = jnp.arange(5)
    one_hot = entmax_loss(z, jax.nn.one_hot(labels, 8, dtype=z.dtype), alpha)
    assert np.allclose(one_hot, entmax_loss(z, labels, alpha), atol=1e-12)
    y = np.random.default_rng(1).dirichlet(np.ones(8), size=5)
    loss, p = entmax_loss(z, y, alpha), reference(z, alpha).astype(float)

    def objective(p):
        if alpha == 1:
            return (p * z).sum(-1) - (p * np.log(p)).sum(-1)
        return (p * z).sum(-1) + ((p - p**alpha) / (alpha * (alpha - 1))).sum(-1)

    assert np.allclose(loss, objective(p) - objective(y), atol=1e-9)
    check_grads(lambda z, y: entmax_loss(z, y, alpha).sum(), (z, y), 1, eps=1e-5)
    assert np.allclose(entmax_loss(z, p, alpha), 0, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
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
    for alpha in (1.0, 1.1, 1.5, 1.75, 2.0, 3.0):
        z = scores(0, (4096, 8), 1.0, jnp.float32)
        z = z.at[jnp.arange(4096), 0].add(1 / max(alpha - 1, 0.1))  # near the edge of certainty
        assert (entmax_loss(z, jnp.zeros(4096, int), alpha) >= 0).all()


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


@pytest.mark.parametrize("alpha", [1.25, 1.5, 1.75, 2.25])
def test_published_masks(alpha: float) -> None:
    z = scores(42, (2, 6), 1.0, jnp.float32).at[:, 3:].set(-jnp.inf)
    assert np.allclose(entmax(z, alpha)[:, :3], entmax(z[:, :3], alpha), atol=1e-6)
    assert (entmax(z, alpha)[:, 3:] == 0).all()


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.75, 2.25])
def test_published_gradchecks(alpha: float, x64) -> None:
    """Theirs go below α = 1 too (0.2, 0.5, 0.75); that is another problem, and an error here."""
    z = scores(1, (4, 6), 1.0, jnp.float64)
    check_grads(entmax, (z, jnp.asarray(alpha)), 1, eps=1e-5, atol=1e-4, rtol=1e-3)
    alphas = jnp.asarray(1.05 + 1.5 * np.random.default_rng(0).random(4))
    check_grads(entmax, (z, alphas), 1, eps=1e-6, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("scale", [0.00001, 0.5, 10000])
def test_published_scales(axis: int, scale: float) -> None:
    z = scores(0, (3, 4, 5), scale, jnp.float32)
    for alpha in (1.5, 2.0):
        expected = reference(np.moveaxis(np.asarray(z), axis, -1), alpha)
        assert np.allclose(
            np.moveaxis(np.asarray(entmax(z, alpha, axis)), axis, -1), expected, atol=1e-6
        )


@pytest.mark.parametrize("alpha", [1.5, 2.0, 1.333])
def test_published_losses(alpha: float, x64) -> None:
    z = scores(0, (5, 4, 10), 1.0, jnp.float64)
    labels = jnp.argmax(scores(1, (5, 4, 10), 1.0, jnp.float64), axis=-1)
    assert (entmax_loss(z, labels, alpha) >= 0).all()
    check_grads(
        lambda z: entmax_loss(z, labels, alpha).sum(), (z,), 1, eps=1e-5, atol=1e-4, rtol=1e-3
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
