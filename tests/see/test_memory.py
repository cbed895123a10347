"""`see.memory` beside other ways of knowing: addresses, `memory_analysis`, sizes of arrays."""

import functools
import warnings
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import optax
import pytest
from bs4 import BeautifulSoup
from flax import nnx

from seejax import see
from seejax.see import _jax_private, _memory

N = 10_000
X = jax.ShapeDtypeStruct((N,), jnp.float32)


@pytest.fixture(autouse=True)
def plain_numpy():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def write(x):
    return x.at[0].set(1.0)


def linen():
    dense = nn.Dense(30)
    variables = dense.init(jax.random.key(0), jnp.ones((7, 20)))
    return dense.apply, (variables, jnp.ones((7, 20))), ()


def adam():
    tx, params = optax.adam(0.1), {"w": jnp.ones((50, 20)), "b": jnp.ones(20)}

    def step(params, state, slope):
        updates, state = tx.update(slope, state, params)
        return optax.apply_updates(params, updates), state

    return step, (params, tx.init(params), params), (0, 1)


def keys():
    return lambda key: jax.random.split(key), (jax.random.key(0),), (0,)


FUNCTIONS: dict[str, Any] = {
    "write": lambda: (write, (jnp.zeros(N),), (0,)),
    "not read": lambda: (lambda x, y: (y + 1).astype(int), (jnp.ones(3), jnp.ones(N)), (0, 1)),
    "nothing": lambda: (lambda: (), (), ()),
    "numbers": lambda: (lambda x, y: x + y, (1.0, 2), (0,)),
    "none fits": lambda: (lambda x: (x[:5], x.sum()), (jnp.ones(N),), (0,)),
    "tree": lambda: (lambda s: {"b": s["a"] + 1, "c": [s["n"]]}, ({"a": X, "n": 3},), (0,)),
    "scipy": lambda: (jsp.linalg.expm, (jnp.eye(20),), (0,)),
    "scan": lambda: (lambda x: jax.lax.scan(lambda c, _: (c * 2, c[0]), x, length=9), (X,), (0,)),
    "empty": lambda: (lambda x: x + 1, (jnp.ones((0, 3)),), (0,)),
    "linen": linen,
    "adam": adam,
    "keys": keys,
}


def compiled(f, args, donated=()):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jax.jit(f, donate_argnums=donated).lower(*args).compile()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_numbers_are_those_of_memory_analysis(name):
    f, args, donated = FUNCTIONS[name]()
    picture = see.memory(f, *args, donate_argnums=donated)
    for need, at in ((picture.need, donated), (picture.kept, ())):
        if need is None:
            assert not donated
            continue
        stats = compiled(f, args, at).memory_analysis()
        assert need.arguments == stats.argument_size_in_bytes
        assert need.results == stats.output_size_in_bytes
        assert need.temporary == stats.temp_size_in_bytes
        assert need.taken == stats.alias_size_in_bytes
        if hasattr(stats, "total_allocation_bytes"):
            assert need.total == stats.total_allocation_bytes or not stats.total_allocation_bytes
    for text in (str(picture), BeautifulSoup(picture.html(), "html.parser").get_text()):
        assert all(argument.path in text for argument in picture.arguments if donated)


@pytest.mark.parametrize("name", ["write", "not read", "none fits", "adam", "scipy", "keys"])
def test_what_is_taken_is_gone_after_the_call(name):
    f, args, donated = FUNCTIONS[name]()
    picture = see.memory(f, *args, donate_argnums=donated)
    args = jax.tree.map(jnp.copy, args)
    leaves = jax.tree.leaves(args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax.block_until_ready(jax.jit(f, donate_argnums=donated)(*args))
    assert len(leaves) == len(picture.arguments)
    for leaf, argument in zip(leaves, picture.arguments, strict=True):
        assert leaf.is_deleted() == bool(argument.taken_by), argument


def test_the_result_that_takes_over_has_the_address():
    def swap(a, b):
        return {"second": b + 1, "first": a * 2}, a.sum()

    a, b = jnp.ones(N), jnp.ones(N, int)
    places = {"a": a.unsafe_buffer_pointer(), "b": b.unsafe_buffer_pointer()}
    picture = see.memory(swap, a, b, donate_argnums=(0, 1))
    result = jax.jit(swap, donate_argnums=(0, 1))(a, b)
    where = {
        "result" + jax.tree_util.keystr(path): leaf.unsafe_buffer_pointer()
        for path, leaf in jax.tree.leaves_with_path(result)
    }
    for argument in picture.arguments:
        assert where[argument.taken_by or ""] == places[argument.path]


def test_arguments_are_named_as_f_names_them():
    @functools.partial(jax.jit, static_argnums=0, donate_argnames="state")
    def step(n, state, x, *rest, scale):
        return jax.tree.map(lambda leaf: leaf * n + x + rest[0] * scale, state)

    picture = see.memory(step, 2, {"w": X, "b": X}, X, X, scale=X)
    paths = ["state['b']", "state['w']", "x", "rest[0]", "scale"]
    assert [argument.path for argument in picture.arguments] == paths
    assert [argument.donated for argument in picture.arguments] == [True, True] + [False] * 3
    assert picture.name == "step" and picture.kept and picture.kept.taken == 0
    assert picture.kept.total - picture.need.total == 2 * 4 * N
    program = step.lower(2, {"w": X, "b": X}, X, X, scale=X).compile()
    same = see.memory(program)
    assert (same.need, same.name, same.kept) == (picture.need, "step", None)
    assert [(a.donated, a.taken_by) for a in same.arguments] == [
        (a.donated, a.taken_by) for a in picture.arguments
    ]


class Model:
    def __call__(self, x):
        return x + 1

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
    def double(self, x):
        return x * 2


@pytest.mark.parametrize(
    ("f", "name", "path"),
    [
        (Model(), "__call__", "x"),
        (Model().double, "double", "x"),
        (functools.partial(Model.double, Model()), "double", "x"),
        (functools.partial(jnp.add, 1.0), None, None),
        (jax.grad(lambda x: (x**2).sum()), "<lambda>", "x"),
        (jnp.sort, "sort", "a"),
    ],
)
def test_any_function_will_do(f, name, path):
    picture = see.memory(f, X)
    assert name in (None, picture.name) and picture.need.arguments == 4 * N
    assert path in (None, picture.arguments[0].path)
    assert see.memory(jax.jit(lambda x: f(x), donate_argnums=0), X).need.taken == 4 * N


def test_what_the_program_does_not_read_is_said():
    def second(x, y, z):
        return y + 1

    picture = see.memory(second, X, X, X, donate_argnums=(0, 1))
    assert [a.read for a in picture.arguments] == [False, True, False]
    assert [a.taken_by for a in picture.arguments] == ["", "result", ""]
    assert picture.need.arguments == 4 * N
    assert "donated, not read" in str(picture) and "kept for the caller" in str(picture)


def test_a_donation_inside_does_not_count():
    inside = jax.jit(write, donate_argnums=0)
    assert see.memory(inside, X).need.taken == 4 * N
    assert see.memory(lambda x: inside(x), X).need.taken == 0
    assert see.memory(inside, X, donate_argnums=()).need.taken == 0
    assert see.memory(jax.vmap(inside), jax.ShapeDtypeStruct((3, N), "float32")).kept is None


@pytest.mark.parametrize(
    "f, results",
    [
        (lambda table: lambda x: x + table, N),
        (lambda table: lambda x: jnp.sum(x * table), 1),  # the table lies in a fusion
        (lambda table: lambda x: jnp.mean((x - table) ** 2), 1),
        (lambda table: lambda x: jnp.max(jnp.maximum(x, table)), 1),
    ],
)
def test_a_closed_over_array_is_part_of_the_program(f, results):
    table = jnp.asarray(np.random.default_rng(0).random(N, np.float32))
    need = see.memory(f(table), X).need
    program = jax.jit(f(table)).lower(X).compile().runtime_executable().serialize()
    assert table.nbytes < len(program)  # it does lie there
    assert table.nbytes <= need.constants < table.nbytes + 100
    assert need.total == 4 * N + 4 * results + need.temporary + need.constants


def test_few_numbers_are_no_closed_over_array():
    small = see.memory(lambda x: x + 1, X)
    assert small.need.constants < 100 and "constants" not in str(small)
    for dtype, size in ("bool", 1), ("int4", 0.5), ("complex64", 8), ("float8_e4m3fn", 1):
        table = np.random.default_rng(0).integers(0, 7, 4000).astype(jnp.dtype(dtype))
        held = see.memory(lambda table=table: jnp.asarray(table)).need.constants
        assert 4000 * size <= held < 4000 * max(size, 1) + 100, dtype


def test_sharded_arrays_count_once_a_device():
    devices = jax.device_count()
    mesh = jax.make_mesh((devices,), ("d",))
    x = jax.device_put(jnp.zeros(devices * N), jax.NamedSharding(mesh, jax.P("d")))
    picture = see.memory(lambda x: x + 1, x, donate_argnums=0)
    assert picture.devices == devices and picture.need.arguments == 4 * N
    assert f"on each of {devices} devices" in str(picture) or devices == 1
    whole = jax.device_put(jnp.zeros(N), jax.NamedSharding(mesh, jax.P()))
    assert see.memory(lambda x: x + 1, whole).need.arguments == 4 * N


def test_a_ref_is_written_in_place():
    if not hasattr(jax, "new_ref"):
        pytest.skip("this JAX has no refs")
    ref = jax.new_ref(jnp.zeros(N))

    def add(ref):
        ref[0] += 1.0

    assert see.memory(add, ref).need.taken == 4 * N
    assert ref[0] == 0


def test_nothing_runs_and_nothing_is_said():
    ran = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = jnp.ones(N)
        see.memory(
            lambda x: (jax.debug.callback(ran.append, x[0]), x.sum())[1], x, donate_argnums=0
        )
    jax.effects_barrier()
    assert not ran and not x.is_deleted()
    huge = jax.ShapeDtypeStruct((10**6, 10**6), "float32")
    assert see.memory(write, huge, donate_argnums=0).need.total >= 4 * 10**12


def test_library_modules():
    model = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    apply = nnx.jit(lambda model, x: model(x))
    assert see.memory(apply, model, jnp.ones((2, 4))).need.results >= 4 * 6
    assert _jax_private.argument_paths(jax.make_jaxpr(write)(X)) == ("x",)


def test_what_is_unknown_is_called_so():
    def says(x):
        jax.debug.print("{}", x[0], ordered=True)  # XLA counts one argument more
        return x + 1

    picture = see.memory(says, X, donate_argnums=0)
    if picture.arguments[0].taken_by is None:
        assert "donated, unknown whether taken" in str(picture)


def test_an_error_of_f_is_not_hidden():
    def fails(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        see.memory(fails, X)


def test_bad_input_is_refused():
    with pytest.raises(TypeError, match=r"see\.memory needs a function, got int"):
        see.memory(3)  # type: ignore[arg-type]
    program = compiled(write, (X,))
    for more, options in (((X,), {}), ((), {"donate_argnums": 0})):
        with pytest.raises(TypeError, match="a Compiled has its arguments already"):
            see.memory(program, *more, **options)

    class Silent:
        def __init__(self, program):
            self.program = program

        def __getattr__(self, name):
            return getattr(self.program, name)

        def memory_analysis(self):
            return None

    with pytest.raises(ValueError, match="does not say what memory"):
        _memory._need(Silent(program))


def test_who_runs_the_program_afterwards_is_still_warned() -> None:
    def total(x):
        return x.sum()

    see.memory(total, jnp.ones(30), donate_argnums=0)
    with pytest.warns(UserWarning, match="donated buffers were not usable"):
        jax.jit(total, donate_argnums=0)(jnp.ones(30))
