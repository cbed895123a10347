"""Linear regression, y ≈ w·x + b: solved at once, and by gradient descent run in three ways.

The three ways share one `loss` and one `step`. They differ in how often Python hands work to the
device: once an operation, once a step, or once for all steps.

>>> x, y = sample(jax.random.key(0), 1000)
>>> exact = least_squares(x, y)
>>> params, losses = fit_scan(init(x), x, y, lr=0.5, steps=300)
>>> bool(jnp.allclose(params["w"], exact["w"], atol=1e-4)), losses.shape
(True, (300,))
"""

import operator
from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp

Params: TypeAlias = dict[str, jax.Array]


def sample(
    key: jax.Array, n: int, w: float = 4.0, b: float = 1.0, noise: float = 1.0
) -> tuple[jax.Array, jax.Array]:
    """Draws n points of the line w·x + b, x uniform in [0, 1), with normal noise on y.

    Args:
      key: PRNG key; split here, since x and the noise must not know of each other.
      n: number of points, at least 2.
      w, b: slope and intercept.
      noise: standard deviation of the noise, in the unit of y.
    Returns:
      x, y: float (n,).
    Raises:
      ValueError: n < 2, which leaves a line undetermined.

    >>> x, y = sample(jax.random.key(0), 5, noise=0.0)
    >>> bool(jnp.allclose(y, 4 * x + 1))
    True
    """
    if n < 2:
        raise ValueError(f"a line needs at least 2 points, got n = {n}")
    x_key, noise_key = jax.random.split(key)
    x = jax.random.uniform(x_key, (n,))
    return x, w * x + b + noise * jax.random.normal(noise_key, (n,))


def init(x: jax.Array) -> Params:
    """Zeros to start from: w () for x of shape (n,), or w (d,) for d features, (n, d); b ().

    Raises:
      ValueError, TypeError: x is no such array, as in `loss`.

    >>> jax.tree.map(jnp.shape, init(jnp.ones((8, 3))))
    {'b': (), 'w': (3,)}
    """
    _check_x(x)
    dtype = jnp.result_type(x)
    return {"w": jnp.zeros(x.shape[1:], dtype), "b": jnp.zeros((), dtype)}


def predict(params: Params, x: jax.Array) -> jax.Array:
    """w·x + b, float (n,), for x of shape (n,) or (n, d).

    Raises:
      ValueError: w is not () or (d,), or b is not ().
      ValueError, TypeError: x is no such array, as in `loss`.

    >>> predict({"w": jnp.array([1.0, 2.0]), "b": 3.0}, jnp.ones((4, 2)))
    Array([6., 6., 6., 6.], dtype=float32)
    """
    _check_x(x)
    w, b = params["w"], params["b"]
    if jnp.shape(w) != x.shape[1:] or jnp.shape(b) != ():
        raise ValueError(
            f"x of shape {x.shape} needs w {x.shape[1:]} and b (); "
            f"got {jnp.shape(w)} and {jnp.shape(b)}"
        )
    return (x * w if x.ndim == 1 else x @ w) + b


def loss(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean squared error, scalar, in the unit of y squared.

    Raises:
      ValueError: shapes that do not fit. Without the checks y of shape (n, 1), or predictions of
        that shape made by w of shape (d, 1), would broadcast to (n, n), and train to a wrong line
        in silence.
      TypeError: x or y is not an array of a floating dtype.

    >>> float(loss({"w": 4.0, "b": 1.0}, jnp.array([0.0, 1.0]), jnp.array([1.0, 7.0])))
    2.0
    """
    _check_y(x, y)
    return jnp.mean((predict(params, x) - y) ** 2)


def step(
    params: Params, x: jax.Array, y: jax.Array, lr: float | jax.Array
) -> tuple[Params, jax.Array]:
    """One step of gradient descent, as new parameters: those given are left as they are.

    Args:
      params: `{"w": () or (d,), "b": ()}`, floating; a Python number counts as float32.
      x: float (n,) or (n, d).
      y: float (n,).
      lr: learning rate; the descent converges below 2 / (largest eigenvalue of the Hessian).
    Returns:
      the new parameters, of the dtypes of the old; and the loss of the old.
    Raises:
      ValueError, TypeError: as in `loss`.

    >>> x = jnp.array([-1.0, 1.0])
    >>> step(init(x), x, 4 * x + 1, lr=0.5)[0]["w"]
    Array(4., dtype=float32)
    """
    value, grads = jax.value_and_grad(loss)(params, x, y)
    # A rate of a wider dtype must not widen the parameters: scan wants its carry as it was.
    return jax.tree.map(lambda p, g: (p - lr * g).astype(g.dtype), params, grads), value


step_jit = jax.jit(step)  # once, here: a jit written in the loop looks its cache up every time


def fit_eager(
    params: Params, x: jax.Array, y: jax.Array, lr: float, steps: int
) -> tuple[Params, list[jax.Array]]:
    """Gradient descent where Python dispatches every operation of every step by itself.

    Args:
      params, x, y, lr: as in `step`.
      steps: how many, at least 0.
    Returns:
      the last parameters, and the loss before each step; not waited for.
    Raises:
      ValueError: steps < 0.  TypeError: steps is no integer.
      ValueError, TypeError: as in `loss`.
    """
    return _loop(step, params, x, y, lr, steps)


def fit_jit(
    params: Params, x: jax.Array, y: jax.Array, lr: float, steps: int
) -> tuple[Params, list[jax.Array]]:
    """Gradient descent where Python dispatches one compiled program a step; else as `fit_eager`."""
    return _loop(step_jit, params, x, y, lr, steps)


@jax.jit(static_argnames="steps")
def fit_scan(
    params: Params, x: jax.Array, y: jax.Array, lr: float | jax.Array, steps: int
) -> tuple[Params, jax.Array]:
    """Gradient descent where Python dispatches one compiled program for all steps.

    Arguments and errors as in `fit_eager`; a new value of `steps` compiles anew.

    Returns:
      the last parameters, and the loss before each step, (steps,).
    """
    _check_steps(steps)
    return jax.lax.scan(lambda params, _: step(params, x, y, lr), params, length=steps)


def least_squares(x: jax.Array, y: jax.Array) -> Params:
    """The parameters of least loss, in closed form.

    Both are centred first: it takes b out of the system, and a large mean of x costs no digits.
    Where x does not determine w, the shortest w is returned: 0 for a constant x. Half precision
    is computed in float32.

    Args:
      x: float (n,) or (n, d), with n > d (d = 1 for the former).
      y: float (n,).
    Returns:
      `{"w": () or (d,), "b": ()}`, of the dtype of x and y.
    Raises:
      ValueError: shapes that do not fit, or too few points.
      TypeError: x or y is not an array of a floating dtype.
    Source: Hastie, Tibshirani, Friedman, The Elements of Statistical Learning, 2009, section 3.2.

    >>> line = least_squares(jnp.array([0.0, 1.0, 2.0]), jnp.array([1.0, 5.0, 9.0]))
    >>> round(float(line["w"]), 4), round(float(line["b"]), 4)
    (4.0, 1.0)
    """
    _check_y(x, y)
    n, *features = x.shape
    d = features[0] if features else 1
    if n <= d:
        raise ValueError(f"{d} slopes and an intercept need at least {d + 1} points, got {n}")
    dtype = jnp.result_type(x, y)
    wide = jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype  # the SVD knows no half precision
    x, y = jnp.asarray(x, wide), jnp.asarray(y, wide)
    from_first = x - x[:1]  # of a constant x exactly 0, which x minus its mean need not be
    centre, y_mean = jnp.mean(from_first, axis=0), jnp.mean(y)
    centred = (from_first - jnp.expand_dims(centre, 0)).reshape(n, d)
    w = jnp.linalg.lstsq(centred, y - y_mean)[0].reshape(features)
    b = y_mean - jnp.sum(w * (x[0] + centre))
    return {"w": w.astype(dtype), "b": b.astype(dtype)}


def _loop(
    step: Callable, params: Params, x: jax.Array, y: jax.Array, lr: float, steps: int
) -> tuple[Params, list[jax.Array]]:
    _check_steps(steps)
    losses = []
    for _ in range(steps):
        params, value = step(params, x, y, lr)
        losses.append(value)
    return params, losses


# Shapes and dtypes are known while tracing: under jit these checks cost nothing at run time.
def _check_x(x: jax.Array) -> None:
    _check_floating("x", x)
    if x.ndim not in (1, 2):
        raise ValueError(f"x must be (n,) or (n, d), got {x.shape}")


def _check_y(x: jax.Array, y: jax.Array) -> None:
    _check_x(x)
    _check_floating("y", y)
    if y.shape != x.shape[:1]:
        raise ValueError(f"x of shape {x.shape} needs y {x.shape[:1]}; got {y.shape}")


def _check_floating(name: str, array: jax.Array) -> None:
    if not hasattr(array, "dtype"):
        raise TypeError(f"{name} must be an array, got {type(array).__name__}")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be of a floating dtype, got {array.dtype}")


def _check_steps(steps: int) -> None:
    if operator.index(steps) < 0:
        raise ValueError(f"steps must be at least 0, got {steps}")
