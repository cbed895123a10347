"""Three ways of one descent, against NumPy in float64, finite differences and known lines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from limits import HALF
from seejax import see
from seejax.lesson import linear_regression as lr

FITS = {"eager": lr.fit_eager, "jit": lr.fit_jit, "scan": lr.fit_scan}


def data(n=50, d=None, seed=0):
    """Points in float64, made by NumPy: what the code under test has no part in."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n,) if d is None else (n, d))
    line = 4 * x if d is None else x @ np.arange(1.0, d + 1)
    return x, line + 1 + rng.normal(size=n)


def numpy_line(x, y):
    """(w, b) by NumPy's SVD of the whole design matrix, in float64."""
    x = np.asarray(x, np.float64)
    design = np.column_stack([x, np.ones(len(x))])
    *w, b = np.linalg.lstsq(design, np.asarray(y, np.float64), rcond=None)[0]
    return np.reshape(w, x.shape[1:]), b


def f32(*arrays):
    return tuple(jnp.asarray(a, jnp.float32) for a in arrays)


def assert_is_line(params, w, b, **tolerance):
    np.testing.assert_allclose(params["w"], w, **tolerance)
    np.testing.assert_allclose(params["b"], b, **tolerance)


# --- the data


def test_sample_is_the_line_it_says_with_noise_that_does_not_know_x():
    x, y = map(np.asarray, lr.sample(jax.random.key(1), 100_000, w=-2.0, b=3.0, noise=0.5))
    noise = y - (-2 * x + 3)
    # Bounds are five standard errors of each estimate.
    assert abs(x.mean() - 0.5) < 5 * 12**-0.5 * 1e5**-0.5 and 0 <= x.min() <= x.max() < 1
    assert abs(noise.mean()) < 5 * 0.5 * 1e5**-0.5
    assert abs(noise.std() - 0.5) < 5 * 0.5 * 2e5**-0.5
    assert abs(np.corrcoef(x, noise)[0, 1]) < 5 * 1e5**-0.5


def test_sample_consumes_each_key_once_and_the_seed_does_not():
    def both_by_one_key(key):
        return jax.random.uniform(key, (9,)), jax.random.normal(key, (9,))

    with jax.debug_key_reuse(True):
        lr.sample(jax.random.key(1), 9)
        with pytest.raises(jax.errors.KeyReuseError):
            both_by_one_key(jax.random.key(1))


# --- the closed form


@pytest.mark.parametrize("d", [None, 1, 4])
def test_least_squares_is_numpys(d):
    x, y = data(200, d)
    assert_is_line(lr.least_squares(*f32(x, y)), *numpy_line(x, y), rtol=1e-4)
    with jax.enable_x64(True):
        line = lr.least_squares(jnp.asarray(x), jnp.asarray(y))
        assert line["w"].dtype == np.float64
        assert_is_line(line, *numpy_line(x, y), rtol=1e-11)


def test_least_squares_keeps_its_digits_far_from_the_origin():
    x, y = data(200)
    x_far = np.float32(x + 1e3)  # what float32 keeps of x is given to both
    w, _ = numpy_line(x_far.astype(np.float64) - 1e3, y)
    np.testing.assert_allclose(lr.least_squares(*f32(x_far, y))["w"], w, rtol=1e-3)


def test_least_squares_leaves_residuals_that_neither_x_nor_1_explains():
    x, y = f32(*data(500, 3))
    residual = np.asarray(y - lr.predict(lr.least_squares(x, y), x), np.float64)
    assert abs(residual.sum()) < 1e-3
    assert np.abs(np.asarray(x, np.float64).T @ residual).max() < 1e-3


@pytest.mark.parametrize("value", [2.0, 0.1, -1e4 / 3, 1e-30])
@pytest.mark.parametrize("n", [2, 10, 999])
def test_least_squares_of_a_constant_x_is_the_mean(n, value):
    y = np.random.default_rng(n).normal(size=n)
    assert_is_line(lr.least_squares(jnp.full(n, value), f32(y)[0]), 0.0, y.mean(), atol=1e-6)


def test_a_constant_feature_gets_no_slope_and_spoils_no_other():
    x, y = data(200)
    line = lr.least_squares(*f32(np.column_stack([x, np.full(200, 0.1)]), y))
    w, b = numpy_line(x, y)
    assert_is_line(line, [w, 0.0], b, rtol=1e-4)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("d", [None, 3])
def test_least_squares_of_half_precision_is_that_of_its_numbers(dtype, d):
    x, y = (jnp.asarray(a, dtype) for a in data(300, d))
    line = lr.least_squares(x, y)
    assert {leaf.dtype for leaf in line.values()} == {jnp.dtype(dtype)}
    # Computed wider, rounded once: half an ulp of the results, and float32's own error.
    line = {name: np.asarray(leaf, np.float64) for name, leaf in line.items()}
    assert_is_line(line, *numpy_line(x, y), rtol=0.51 * float(jnp.finfo(dtype).eps) + 1e-5)


def test_shifts_and_scales_do_what_they_do_to_a_line():
    x, y = f32(*data(300))
    line = lr.least_squares(x, y)
    w, b = line["w"], line["b"]
    assert_is_line(lr.least_squares(x, y + 5), w, b + 5, rtol=1e-4)
    assert_is_line(lr.least_squares(x + 5, y), w, b - 5 * w, rtol=1e-3)
    assert_is_line(lr.least_squares(2 * x, y), w / 2, b, rtol=1e-4)
    assert_is_line(lr.least_squares(x, -3 * y), -3 * w, -3 * b, rtol=1e-4)
    assert_is_line(lr.least_squares(x[::-1], y[::-1]), w, b, rtol=1e-4)


# --- the step


@pytest.mark.parametrize("d", [None, 4])
def test_gradient_is_the_slope_of_the_loss(d):
    """Central differences of NumPy's loss, in float64; one step at rate 1 is minus the gradient."""
    x, y = data(40, d)
    w, b = np.full(x.shape[1:], 0.3), 0.7

    def numpy_loss(flat):
        return np.mean((x.reshape(40, -1) @ flat[:-1] + flat[-1] - y) ** 2)

    flat, h = np.append(w, b), 1e-5
    slope = [(numpy_loss(flat + h * e) - numpy_loss(flat - h * e)) / (2 * h)
             for e in np.eye(len(flat))]  # fmt: skip
    with jax.enable_x64(True):
        params = {"w": jnp.asarray(w), "b": jnp.asarray(b)}
        new, value = lr.step(params, jnp.asarray(x), jnp.asarray(y), 1.0)
        np.testing.assert_allclose(value, numpy_loss(flat), rtol=1e-12)
        assert_is_line(new, w - np.reshape(slope[:-1], w.shape), b - slope[-1], rtol=1e-8)


@pytest.mark.parametrize("step", [lr.step, lr.step_jit])
def test_step_leaves_the_callers_parameters_alone(step):
    x, y = f32(*data())
    params = lr.init(x)
    held = dict(params)
    new, _ = step(params, x, y, 0.1)
    assert new is not params and params == held
    assert all(params[name] is held[name] for name in held)


# --- the three ways


@pytest.mark.parametrize("d", [None, 3])
@pytest.mark.parametrize("way", FITS)
def test_each_way_ends_at_the_closed_form(way, d):
    x, y = data(60, d)
    params, losses = FITS[way](lr.init(f32(x)[0]), *f32(x, y), 0.4, 400)
    assert_is_line(params, *numpy_line(x, y), atol=2e-3)
    losses = np.asarray(losses)
    assert losses.shape == (400,)
    assert (np.diff(losses) < 1e-6).all()  # below 2 / λ it never climbs, but for rounding
    np.testing.assert_allclose(losses[0], np.mean(y**2), rtol=1e-5)


def test_the_three_ways_are_one():
    x, y = f32(*data())
    results = [fit(lr.init(x), x, y, 0.1, 50) for fit in FITS.values()]
    for params, losses in results[1:]:
        # They may fuse, so round, differently: float32's epsilon, some steps deep.
        assert_is_line(params, results[0][0]["w"], results[0][0]["b"], rtol=1e-5)
        np.testing.assert_allclose(losses, results[0][1], rtol=1e-5)


@pytest.mark.parametrize("way", FITS)
def test_zero_steps_change_nothing(way):
    x, y = f32(*data())
    params = {"w": jnp.float32(2), "b": jnp.float32(3)}
    same, losses = FITS[way](params, x, y, 0.1, 0)
    assert (same["w"], same["b"], len(losses)) == (2, 3, 0)


def test_gradient_descent_follows_its_eigenvalues():
    """Numbers of the theory: each eigenvector of the Hessian shrinks by 1 - lr·λ a step."""
    x, y = data()
    design = np.column_stack([x, np.ones(len(x))])
    eigenvalues, vectors = np.linalg.eigh(2 * design.T @ design / len(x))
    best = np.hstack(numpy_line(x, y))
    expected = best + vectors @ ((1 - 0.5 * eigenvalues) ** 30 * (vectors.T @ -best))
    with jax.enable_x64(True):
        x, y = jnp.asarray(x), jnp.asarray(y)
        params, _ = lr.fit_scan(lr.init(x), x, y, 0.5, 30)
        assert_is_line(params, *expected, rtol=1e-10)


@pytest.mark.parametrize("way", FITS)
def test_too_large_a_rate_diverges(way):
    x, y = f32(*data())
    _, losses = FITS[way](lr.init(x), x, y, 0.9, 30)
    assert losses[-1] > 10 * losses[0]


def test_each_way_runs_the_python_as_often_as_it_says(monkeypatch):
    def counted(params, x, y):
        nonlocal runs
        runs += 1
        return jnp.mean((lr.predict(params, x) - y) ** 2)

    monkeypatch.setattr(lr, "loss", counted)
    for fit, expected in ((lr.fit_eager, 7), (lr.fit_jit, 1), (lr.fit_scan, 1)):
        for n in (23, 24):  # a shape that no other test uses, twice: once for each shape
            x, y = f32(*data(n))
            runs = 0
            fit(lr.init(x), x, y, 0.1, 7)
            assert runs == expected
            fit(lr.init(x), x, y + 1, 0.2, 7)  # new values are no new signature
            assert runs == expected * (2 if fit is lr.fit_eager else 1)
    lr.step_jit.clear_cache()
    lr.fit_scan.clear_cache()


def test_scan_is_one_program_whatever_the_number_of_steps():
    x, y = f32(*data())
    fit = see.calls(lr.fit_scan)
    lengths = {len(str(fit.trace(lr.init(x), x, y, 0.1, steps=s).jaxpr)) for s in (100, 999)}
    assert len(lengths) == 1  # not unrolled
    fit(lr.init(x), x, y, 0.1, steps=5)
    fit(lr.init(x), x, y, 0.2, steps=5)
    fit(lr.init(x), x, y, 0.2, steps=6)
    assert [call.outcome for call in fit.calls] == ["compiled", "cached", "compiled"]


def test_scan_over_many_rates_and_many_data_sets_by_vmap():
    x, y = f32(*data())
    rates = jnp.array([0.05, 0.1, 0.3])
    fit = jax.vmap(lambda rate: lr.fit_scan(lr.init(x), x, y, rate, 20))
    params, losses = fit(rates)
    for i, rate in enumerate(rates):
        one, curve = lr.fit_jit(lr.init(x), x, y, rate, 20)
        assert_is_line(one, params["w"][i], params["b"][i], rtol=1e-5)
        np.testing.assert_allclose(losses[i], curve, rtol=1e-5)


@pytest.mark.parametrize("way", FITS)
@pytest.mark.parametrize("dtype", HALF)
def test_other_dtypes_are_kept(way, dtype):
    x, y = (jnp.asarray(a, dtype) for a in data())
    params, _ = FITS[way](lr.init(x), x, y, 0.1, 3)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}


@pytest.mark.parametrize("way", FITS)
@pytest.mark.parametrize("dtype", HALF)
def test_a_wider_rate_leaves_the_parameters_their_dtype(way, dtype):
    x, y = (jnp.asarray(a, dtype) for a in data())
    with jax.numpy_dtype_promotion("standard"):
        for scalar, steps in ((jnp.float32, 300), (np.float32, 3), (np.float64, 3)):
            params, _ = FITS[way](lr.init(x), x, y, scalar(0.4), steps)
            assert {leaf.dtype for leaf in params.values()} == {jnp.dtype(dtype)}
            if steps == 300:  # it stops where a step is below half an ulp of w, before the line
                wide = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
                assert_is_line(wide, *numpy_line(x, y), atol=0.5)
    # Strict promotion asks the caller to choose, whichever way the loop runs.
    with pytest.raises(jax.errors.TypePromotionError if hasattr(jax.errors, "TypePromotionError")
                       else ValueError, match="strict"):  # fmt: skip
        FITS[way](lr.init(x), x, y, jnp.float32(0.4), 2)


@pytest.mark.parametrize("way", FITS)
def test_numpy_arrays_and_python_numbers_are_taken(way):
    x, y = (a.astype(np.float32) for a in data())
    params, _ = FITS[way]({"w": 0.0, "b": 0.0}, x, y, 0.4, 300)
    assert_is_line(params, *numpy_line(x, y), atol=1e-2)


# --- bad input


@pytest.mark.parametrize("n", [1, 0, -3])
def test_a_line_needs_two_points(n):
    with pytest.raises(ValueError, match=f"at least 2 points, got n = {n}"):
        lr.sample(jax.random.key(0), n)


@pytest.mark.parametrize("call", [lr.least_squares, lambda x, y: lr.loss(lr.init(x), x, y),
                                  lambda x, y: lr.fit_scan(lr.init(x), x, y, 0.1, 2)],
                         ids=["least_squares", "loss", "fit_scan"])  # fmt: skip
@pytest.mark.parametrize("shapes", [((9,), (9, 1)), ((9,), (8,)), ((9, 2), (2,)), ((9, 2, 2), (9,)),
                                    ((), ())], ids=str)  # fmt: skip
def test_shapes_that_do_not_fit(call, shapes):
    x, y = (jnp.ones(shape) for shape in shapes)
    with pytest.raises(ValueError, match=r"x must be \(n,\) or \(n, d\), got|needs y \(9,\); got"):
        call(x, y)


@pytest.mark.parametrize("way", FITS)
@pytest.mark.parametrize(("x", "w", "b"), [((9, 3), (3, 1), ()), ((9, 3), (), ()), ((9,), (9,), ()),
                                           ((9,), (1,), ()), ((9,), (), (9,))],
                         ids=str)  # fmt: skip
def test_parameters_that_do_not_fit(way, x, w, b):
    params = {"w": jnp.zeros(w), "b": jnp.zeros(b)}
    with pytest.raises(ValueError, match=r"needs w .* and b \(\); got ") as refused:
        FITS[way](params, jnp.ones(x), jnp.ones(9), 0.1, 2)
    assert f"w {x[1:]} and b (); got {w} and {b}" in str(refused.value)


@pytest.mark.parametrize("call", [lr.init, lambda x: lr.predict({"w": 0.0, "b": 0.0}, x),
                                  lambda x: lr.least_squares(x, jnp.ones(2)),
                                  lambda x: lr.fit_scan({"w": 0.0, "b": 0.0}, x, x, 0.1, 2)],
                         ids=["init", "predict", "least_squares", "fit_scan"])  # fmt: skip
def test_a_list_is_refused_as_one(call):
    with pytest.raises(TypeError, match="x must be an array, got list"):
        call([1.0, 2.0])


@pytest.mark.parametrize("call", [lr.init, lambda x: lr.predict({"w": 0.0, "b": 0.0}, x)],
                         ids=["init", "predict"])  # fmt: skip
@pytest.mark.parametrize("shape", [(), (9, 2, 2)])
def test_points_of_a_shape_that_no_line_has(call, shape):
    with pytest.raises(ValueError, match=r"x must be \(n,\) or \(n, d\), got"):
        call(jnp.ones(shape))


def test_too_few_points_for_the_slopes():
    with pytest.raises(ValueError, match="3 slopes and an intercept need at least 4 points, got 3"):
        lr.least_squares(jnp.ones((3, 3)), jnp.ones(3))


@pytest.mark.parametrize("name", ["x", "y"])
def test_integers_are_refused(name):
    arrays = {"x": jnp.ones(4), "y": jnp.ones(4), name: jnp.arange(4)}
    with pytest.raises(TypeError, match=f"{name} must be of a floating dtype, got int32"):
        lr.loss({"w": 0.0, "b": 0.0}, **arrays)


@pytest.mark.parametrize("way", FITS)
def test_negative_steps_are_refused(way):
    x, y = f32(*data())
    with pytest.raises(ValueError, match="steps must be at least 0, got -1"):
        FITS[way](lr.init(x), x, y, 0.1, -1)


@pytest.mark.parametrize("way", FITS)
def test_half_a_step_is_refused(way):
    x, y = f32(*data())
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        FITS[way](lr.init(x), x, y, 0.1, 2.5)
