"""see.axes beside other ways of knowing: what f itself sees, what `vmap` returns, a permutation."""

import jax
import jax.extend.core as jex_core
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from jax import lax

from seejax import see

pytestmark = pytest.mark.usefixtures("plain_numpy")


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def spd(*shape):
    m = normal(*shape, seed=1)
    return m @ m.mT + jnp.broadcast_to(3 * jnp.eye(shape[-1]), shape)


def collatz(x):
    def body(state):
        x, n = state
        return lax.cond(x > 4, lambda x: x / 2, lambda x: x - 1, x), n + 1

    return lax.while_loop(lambda s: s[0] > 1, body, (x, 0))


DENSE = linen.Dense(3)
VARIABLES = DENSE.init(jax.random.key(0), jnp.ones(4))
LINEAR = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
TREE = {"w": normal(3, 4), "b": normal(3)}

CASES = {
    "a tree, the last axis": (
        lambda p, x: {"h": jnp.tanh(p["w"] @ x + p["b"]), "s": p["b"].sum()},
        (None, -1),
        {"h": -1, "s": None},
        (TREE, normal(4, 5)),
    ),
    "a prefix": (lambda p, x: p["w"] @ x, (0, None), 1, ({"w": normal(6, 3, 4)}, normal(4))),
    "one number for all": (jnp.dot, 0, 0, (normal(5, 4), normal(5, 4))),
    "one example": (jnp.dot, (0, None), 0, (normal(1, 4), normal(4))),
    "a batch as long as another axis": (jnp.dot, (None, 0), 0, (normal(3, 3), normal(3, 3))),
    "a Python number": (lambda x, n: jnp.tile(x, n), (0, None), 0, (normal(5, 2), 3)),
    "keys": (jax.random.normal, 0, 0, (jax.random.split(jax.random.key(0), 5),)),
    "nested": (jax.vmap(jnp.dot, (None, 0)), (0, None), -1, (normal(4, 2), normal(7, 2))),
    "jitted": (jax.jit(lambda x: jnp.sin(x).sum()), 1, 0, (normal(3, 5),)),
    "gradient": (jax.grad(lambda w, x: jnp.tanh(w @ x)), (None, 0), 0, (normal(4), normal(5, 4))),
    "cond and while": (collatz, 0, 0, (jnp.arange(1.0, 6.0),)),
    "scan": (lambda x: lax.scan(lambda c, _: (c * x, c), x, length=3), 0, 0, (normal(5, 2),)),
    "solve": (jnp.linalg.solve, (-1, None), -1, (jnp.moveaxis(spd(5, 3, 3), 0, -1), normal(3))),
    "cho_solve": (
        lambda m, y: jsp.linalg.cho_solve(jsp.linalg.cho_factor(m), y),
        (0, None),
        0,
        (spd(5, 3, 3), normal(3)),
    ),
    "logsumexp": (jsp.special.logsumexp, 1, 0, (normal(4, 5),)),
    "convolve": (jsp.signal.convolve, (0, None), 0, (normal(5, 8), normal(3))),
    "convolve, both mapped": (jsp.signal.convolve, 0, 0, (normal(5, 8), normal(5, 3))),
    "attention": (jax.nn.dot_product_attention, 0, 0, (normal(5, 6, 2, 4),) * 3),
    "linen": (DENSE.apply, (None, 0), 0, (VARIABLES, normal(5, 4))),
    "nnx": (LINEAR, 0, 0, (normal(5, 4),)),
    "optax": (
        optax.softmax_cross_entropy_with_integer_labels,
        (1, 0),
        0,
        (normal(7, 5), jnp.array([0, 3, 6, 2, 1])),
    ),
    "sort and gather": (lambda x: x[jnp.argsort(x)], -1, 0, (normal(3, 5),)),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_inside_is_what_the_function_sees(case):
    f, in_axes, out_axes, args = case
    seen = []

    def spy(*args):
        seen.append([jnp.shape(x) for x in jax.tree.leaves(args)])
        out = f(*args)
        seen.append([jnp.shape(x) for x in jax.tree.leaves(out)])
        return out

    outside = jax.vmap(spy, in_axes, out_axes)(*args)
    picture = see.axes(f, in_axes, out_axes, *args)
    assert [leaf.inside for leaf in picture.arguments] == seen[0]
    assert [leaf.inside for leaf in picture.results] == seen[1]
    assert [leaf.outside for leaf in picture.results] == [x.shape for x in jax.tree.leaves(outside)]
    assert [leaf.outside for leaf in picture.arguments] == [
        jnp.shape(x) for x in jax.tree.leaves(args)
    ]


def test_the_equations_are_those_of_vmap(case):
    f, in_axes, out_axes, args = case
    mapped = jax.vmap(f, in_axes, out_axes)
    arrays = [x for x in jax.tree.leaves(args) if hasattr(x, "shape")]
    fixed = [i for i, x in enumerate(jax.tree.leaves(args)) if not hasattr(x, "shape")]

    def call(*arrays):
        leaves, tree = jax.tree.flatten(args)
        given = iter(arrays)
        full = [x if i in fixed else next(given) for i, x in enumerate(leaves)]
        return mapped(*jax.tree.unflatten(tree, full))

    picture = see.axes(f, in_axes, out_axes, *args)
    top = [operation.primitive for operation in picture.operations if operation.depth == 0]
    assert top == [eqn.primitive.name for eqn in jax.make_jaxpr(call)(*arrays).eqns]


@pytest.mark.filterwarnings("ignore:core.Jaxpr is missing")
def test_a_permutation_of_the_examples_moves_along_the_marked_axis(case):
    f, in_axes, out_axes, args = case
    picture = see.axes(f, in_axes, out_axes, *args)
    leaves = [x for x in jax.tree.leaves(args) if hasattr(x, "shape")]
    axes = [leaf.axis for leaf, x in zip(picture.arguments, jax.tree.leaves(args), strict=True)
            if hasattr(x, "shape")]  # fmt: skip
    order = np.roll(np.arange(picture.size), 1)
    moved = [x if a is None else jnp.take(x, order, a) for x, a in zip(leaves, axes, strict=True)]
    jaxpr = picture.many.jaxpr
    top = [operation for operation in picture.operations if operation.depth == 0]
    variables = [(v, a) for e, o in zip(jaxpr.eqns, top, strict=True)
                 for v, a in zip(e.outvars, o.axes, strict=True)
                 if not isinstance(v, jex_core.DropVar)]  # fmt: skip
    values = picture.many.replace(
        jaxpr=jaxpr.replace(outvars=[v for v, _ in variables], debug_info=None)
    )
    run = jex_core.jaxpr_as_fun(values)
    for before, after, (_, axis) in zip(run(*leaves), run(*moved), variables, strict=True):
        assert axis != "unknown"
        expected = before if axis is None else jnp.take(before, order, axis)
        if jnp.issubdtype(expected.dtype, jax.dtypes.prng_key):
            expected, after = jax.random.key_data(expected), jax.random.key_data(after)
        assert np.allclose(after, expected, atol=1e-4)


def test_an_operation_knows_the_one_it_came_from():
    picture = see.axes(lambda w, x: jnp.tanh(w @ x) * 2, (None, 0), 0, normal(3, 4), normal(5, 4))
    found = [(o.primitive, o.axes, o.of) for o in picture.operations]
    assert found == [
        ("dot_general", (1,), 0),
        ("tanh", (1,), 1),
        ("mul", (1,), 2),
        ("transpose", (0,), None),
    ]


def test_what_is_merged_is_unknown():
    def filtered(x, kernel):
        return lax.conv_general_dilated(x[None], kernel, (1,), "SAME")

    picture = see.axes(filtered, 0, 0, normal(5, 2, 8), normal(5, 3, 2, 3))
    axes = {operation.primitive: operation.axes for operation in picture.operations}
    assert axes["conv_general_dilated"] == ("unknown",) and axes["transpose"] == (0,)
    assert "? unknown" in str(picture).splitlines()[0] and picture.results[0].axis == 0


def test_the_text_marks_the_axis_in_the_shape():
    text = str(see.axes(jnp.dot, (None, 1), 0, normal(3, 4), normal(4, 5)))
    assert "vmap of dot: 5 examples · ᴮ batch axis" in text
    assert "f32[4,5ᴮ]" in text and "f32[5ᴮ,3]" in text and "f32[3,4]" in text


def test_f_is_called_as_it_is_and_its_error_is_its_own():
    def broken(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        see.axes(broken, 0, 0, normal(5, 2))
    with pytest.raises(ValueError, match="output was batched"):
        see.axes(jnp.sin, 0, None, normal(5, 2))
    shapes = jax.ShapeDtypeStruct((5, 1000, 1000), "float32")
    assert see.axes(jnp.linalg.inv, 0, 0, shapes).size == 5  # nothing is executed


def test_names_of_arguments_by_position_and_by_name():
    def f(x, *rest, scale):
        return x + rest[0]["a"] + scale

    args = normal(5, 2), {"a": normal(5, 2)}
    picture = see.axes(f, 0, 0, *args, scale=normal(5))
    assert [leaf.path for leaf in picture.arguments] == ["x", "args[1]['a']", "scale"]
    assert picture.arguments[2].axis == 0 and picture.arguments[2].inside == ()


A = jnp.ones((5, 4))
TWO = {"w": A, "b": A}
BAD = {
    "no function": (TypeError, "see.axes needs a function, got int", (3, 0, 0, A)),
    "sizes": (ValueError, "x has 5, y has 3", (lambda x, y: x, 0, 0, A, jnp.ones(3))),
    "leaf": (ValueError, r"p\['w'\] has 5, x has 3", (lambda p, x: x, 0, 0, {"w": A}, A[:3])),
    "no axis": (ValueError, r"x has no axis 2: its shape is \(5, 4\)", (lambda x: x, 2, 0, A)),
    "negative": (ValueError, "x has no axis -3", (lambda x: x, -3, 0, A)),
    "scalar": (ValueError, r"r has no axis 0: its shape is \(\)", (lambda r: r, 0, 0, 2.0)),
    "tree": (ValueError, "in_axes of p is {'w': 0}", (lambda p: p, ({"w": 0},), 0, TWO)),
    "length": (ValueError, "in_axes has length 1, f got 2", (lambda x, y: x, (0,), 0, A, A)),
    "no int": (TypeError, "in_axes of x must be .* got 'a'", (lambda x: x, "a", 0, A)),
    "nothing": (ValueError, "no argument is mapped", (lambda x: x, None, 0, A)),
    "no array": (TypeError, "s is mapped, but is no array: str", (lambda s: s, 0, 0, "abc")),
    "empty": (ValueError, "no argument is mapped", (lambda: 1, 0, 0)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_one_sentence(name):
    kind, said, args = BAD[name]
    with pytest.raises(kind, match=said) as error:
        see.axes(*args)
    assert "\n" not in str(error.value) and len(str(error.value)) < 150
