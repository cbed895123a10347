"""`see.keys` against JAX's own checker, replayed keys, and functions nobody here has wrapped."""

import inspect
import re
import sys
import threading
from functools import partial
from types import FunctionType

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.random import normal as imported

from seejax import see

random = jax.random


def refused(program):
    """Whether JAX's own checker calls it reuse."""
    try:
        with jax.debug_key_reuse(True):
            program(random.key(0))
    except jax.errors.KeyReuseError:
        return True
    return False


def watched(program):
    with see.keys() as k:
        program(random.key(0))
    return k


def each_once(key):
    for one in random.split(key, 3):
        random.normal(one)


def twice(key):
    random.normal(key), random.uniform(key)


def split_and_drawn(key):
    random.split(key), random.normal(key)


def drawn_and_split(key):
    random.normal(key), random.split(key)


def split_twice(key):
    random.split(key), random.split(key, 3)


def folded_steps(key):
    for step in range(3):
        random.normal(random.fold_in(key, step))


def folded_and_drawn(key):
    random.normal(random.fold_in(key, 1)), random.normal(key)


def same_of_a_batch(key):
    keys = random.split(key, 100)
    random.normal(keys[70]), random.normal(keys[70])


def others_of_a_batch(key):
    keys = random.split(key, 100)
    random.normal(keys[70]), random.normal(keys[71])


def chain(key):
    for _ in range(3):
        key, one = random.split(key)
        random.normal(one)


def in_a_loop(key):
    for _ in range(2):
        random.permutation(key, 5)


def closed_over_by_grad(key):
    slope = jax.grad(lambda x: x * random.normal(key))
    slope(1.0), slope(1.0)


def initializers(key):
    first, second = random.split(key)
    jax.nn.initializers.orthogonal()(first, (3, 3))
    jax.nn.initializers.he_uniform()(second, (3, 3))


def initializers_of_one(key):
    jax.nn.initializers.orthogonal()(key, (3, 3))
    jax.nn.initializers.he_uniform()(key, (3, 3))


@pytest.mark.parametrize(
    ("program", "reuse"),
    [
        (each_once, False),
        (twice, True),
        (split_and_drawn, True),
        (drawn_and_split, True),
        (split_twice, True),
        (folded_steps, False),
        (folded_and_drawn, False),
        (same_of_a_batch, True),
        (others_of_a_batch, False),
        (chain, False),
        (in_a_loop, True),
        (closed_over_by_grad, True),
        (initializers, False),
        (initializers_of_one, True),
    ],
)
def test_agrees_with_the_checker_of_jax(program, reuse):
    assert refused(program) == bool(watched(program).reused) == reuse


def seed_twice(key):
    random.normal(key), random.normal(random.key(0))


def fold_twice(key):
    random.normal(random.fold_in(key, 1)), random.normal(random.fold_in(key, 1))


def split_and_folded(key):
    random.normal(random.split(key)[0]), random.normal(random.fold_in(key, 0))


def restored(key):
    random.normal(key), random.normal(random.wrap_key_data(random.key_data(key)))


def raw(key):
    old = random.key_data(key)
    random.normal(old), random.normal(old)


def cloned(key):
    random.normal(key), random.normal(random.clone(key))


@pytest.mark.parametrize(
    "program", [seed_twice, fold_twice, split_and_folded, restored, raw, cloned]
)
def test_equal_data_is_one_key_where_the_checker_looks_at_objects(program):
    assert not refused(program) and len(watched(program).reused) == 1


def in_jit(key):
    jax.jit(lambda key: random.normal(key) + random.uniform(key))(key)


def scanned(key):
    jax.lax.scan(lambda total, _: (total + random.normal(key), None), 0.0, length=3)


def test_what_is_traced_is_unknown():
    for program, functions in ((in_jit, ["normal", "uniform"]), (scanned, ["normal"])):
        k = watched(program)
        assert refused(program) and not k.reused
        assert sorted({use.function for use in k.traced}) == functions
        assert [node.uses for node in k.nodes] == [()]
        assert "no use seen" in str(k) and "unknown" in "".join(s.text for s in k.doubt)
    keys = random.split(random.key(0), 3)
    with see.keys() as k:
        jax.vmap(random.normal)(keys)
        jax.jit(lambda: random.fold_in(random.key(1), 2))()
    assert [str(use) for use in k.traced] == ["normal f32[]", "fold_in"]
    assert not k.nodes


ARGUMENTS = {
    **dict.fromkeys(["a", "b", "df", "dfnum", "dfden", "lam", "loc", "scale", "mean"], 2.0),
    **dict.fromkeys(["left", "mode", "concentration", "rate", "p"], 0.5),
    **{"n": 3, "d": 3, "minval": 0, "maxval": 9, "lower": -1.0, "upper": 1.0, "data": 1, "num": 2},
    **{"x": 4, "right": 0.9, "logits": np.zeros(3, "f4"), "alpha": np.ones(3, "f4")},
    **{"shape": (2,), "cov": np.eye(2, dtype="f4")},
}


def public():
    """The functions of jax.random that take a key, by their documented signature."""
    for name in dir(random):
        f = getattr(random, name)
        if name[0] != "_" and inspect.isfunction(f) and name != "clone":
            parameters = inspect.signature(f).parameters.values()
            if next(iter(parameters)).name == "key":
                yield name, [p for p in parameters if p.default is p.empty][1:]


@pytest.mark.parametrize(("name", "needed"), list(public()))
def test_sees_every_public_function_and_changes_no_result(name, needed):
    arguments = {p.name: ARGUMENTS[p.name] for p in needed}
    if name == "multivariate_normal":
        arguments["mean"] = np.zeros(2, "f4")
    if name == "multinomial":
        arguments["n"], arguments["p"] = 3.0, np.ones(3, "f4") / 3
    key = random.key(7)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        alone = getattr(random, name)(key, **arguments)
        with see.keys() as k:
            by_position = getattr(random, name)(key, **arguments)
            by_name = getattr(random, name)(key=key, **arguments)
    for seen in by_position, by_name:
        assert seen.dtype == alone.dtype and bool((seen == alone).all())
    if name == "fold_in":
        assert [node.how for node in k.nodes] == ["given", "fold_in(1)"] and not k.reused
    else:
        assert [use.function for use in k.nodes[0].uses] == [name] * 2 and k.reused
        if name != "split":
            assert k.nodes[0].uses[0].result.endswith(str([*alone.shape]).replace(" ", ""))


def replayed(k, node):
    """The key itself, made anew from what the picture says of it."""
    if node.parent is None:
        return eval(f"random.{node.how}", {"random": random})
    parent = replayed(k, k.nodes[node.parent])
    what, place = re.fullmatch(r"(\w+)[\[(](.+)[\])]", node.how).groups()
    if what == "fold_in":
        return random.fold_in(parent, np.uint32(place))
    total = next(int(u.result) for u in k.nodes[node.parent].uses if u.function == "split")
    return random.split(parent, total)[int(place)]


def test_the_key_of_a_flax_parameter_is_found():
    model = nn.Sequential([nn.Dense(3), nn.relu, nn.Dense(2)])
    with see.keys() as k:
        variables = model.init(random.key(4), jnp.ones((1, 5)))
    drawn = [node for node in k.nodes if node.uses]
    kernels = [layer["kernel"] for layer in variables["params"].values()]
    assert len(drawn) == 2 and not k.reused
    draw = jax.nn.initializers.lecun_normal()
    for node, kernel in zip(drawn, kernels, strict=True):
        assert (draw(replayed(k, node), kernel.shape) == kernel).all()


def test_what_is_asked_for_shapes_only_uses_no_key():
    """Flax asks so in `apply`, for each parameter, with a key of its own."""
    import flax.linen as nn

    model, x = nn.Dense(3), jnp.ones((2, 4))
    params = model.init(jax.random.key(0), x)
    with see.keys() as k:
        model.apply(params, x)
        jax.eval_shape(lambda key: jax.random.normal(key, (3,)), jax.random.key(1))
        jitted = jax.jit(lambda key: jax.random.split(key))
        jitted.eval_shape(jax.random.key(2))
    assert k.traced == () and not k.doubt
    assert all(not node.uses for node in k.nodes)
    with see.keys() as k:  # what is traced to be run is still unknown
        jax.jit(lambda key: jax.random.uniform(key, (5,)))(jax.random.key(1))
    assert [str(use) for use in k.traced] == ["uniform f32[5]"]


def test_the_streams_of_nnx_are_seen():
    with see.keys() as k:
        rngs = nnx.Rngs(params=0, dropout=1)
        nnx.Linear(3, 4, rngs=rngs)
        drop = nnx.Dropout(0.5, rngs=rngs)
        drop(jnp.ones(3)), drop(jnp.ones(3))
    assert {node.how for node in k.nodes if node.parent is None} == {"key(0)", "key(1)"}
    uses = [use.function for node in k.nodes for use in node.uses]
    assert uses == ["truncated_normal", "bernoulli", "bernoulli"] and not k.reused
    with see.keys() as k:  # one fixed mask: the key never moves on
        fixed = nn.Dropout(0.5, deterministic=False)
        for _ in range(2):
            fixed.apply({}, jnp.ones(3), rngs={"dropout": random.key(0)})
    assert len(k.reused) == 1


@pytest.mark.parametrize("num", [1, 2, 8, 9, 1000, (2, 3), (40, 50)])
def test_a_key_of_a_split_is_found_by_its_place(num):
    with see.keys() as k:
        keys = random.split(random.key(2), num)
        last = keys[tuple(n - 1 for n in keys.shape)]
        random.normal(last)
    (node,) = [node for node in k.nodes if node.how.startswith("split") and node.uses]
    assert node.how == f"split[{', '.join(str(n - 1) for n in keys.shape)}]"
    assert node.parent == 0 and k.nodes[0].how == "key(2)"
    assert f"{keys.size + 1} keys" in str(k)
    shown = str(k).count("no use seen") if keys.size <= 8 else 1
    assert shown == (keys.size - 1 if keys.size <= 8 else 1)


def test_an_empty_split_and_no_key_at_all():
    with see.keys() as k:
        random.split(random.key(0), 0)
    assert str(k).splitlines()[0].endswith("1 key, 1 use, 0 reused")
    with see.keys() as k:
        jnp.ones(3)
    assert "no key was seen" in str(k)


def test_a_long_chain_is_drawn():
    with see.keys() as k:
        key = random.key(0)
        for _ in range(1500):
            key, _one = random.split(key)
    lines = k.text().splitlines()
    assert len(str(k).splitlines()) < 100 and len(lines) == 3 + 3001 and max(map(len, lines)) < 60
    assert "3001 keys, 1500 uses, 0 reused" in lines[0] and "more in nodes" in k.html()


def test_implementations_are_told_apart():
    with see.keys() as k:
        for impl in ("rbg", "unsafe_rbg", "threefry2x32", "rbg"):
            random.normal(random.key(1, impl=impl))
    assert len(k.nodes) == 3 and len(k.reused) == 1


def test_everything_is_put_back():
    plain, before = random.normal, dict(vars(random))
    with pytest.raises(ZeroDivisionError), see.keys() as outer:
        assert random.normal is not plain
        with see.keys() as inner:
            imported(random.key(0))
        with pytest.raises(RuntimeError, match="another"), outer:
            pass
        random.uniform(random.key(1))
        raise ZeroDivisionError
    assert vars(random) == before and imported is random.normal is plain
    assert [len(k.nodes) for k in (inner, outer)] == [1, 2]
    assert not [
        name
        for name, module in list(sys.modules.items())
        for value in list(vars(module).values())
        if type(value) is FunctionType and value.__code__ is see._keys._watched(plain).__code__
    ]


def test_what_was_put_elsewhere_is_not_seen():
    held, half = [random.normal], partial(random.normal, shape=(2,))
    with see.keys() as k:
        held[0](random.key(0)), half(random.key(1))
    assert [node.uses for node in k.nodes] == [(), ()] and str(k).count("no use seen") == 2
    with see.keys() as k:
        kept = random.normal
    kept(random.key(0))  # still a function of jax.random, and nobody watches
    assert not k.nodes


def test_another_thread_is_not_seen():
    with see.keys() as k:
        thread = threading.Thread(target=lambda: random.normal(random.key(0)))
        thread.start()
        thread.join()
    assert not k.nodes


def test_errors_of_a_call_are_its_own():
    with see.keys() as k:
        with pytest.raises(ValueError, match="key array"):
            random.normal(random.split(random.key(0)))
        with pytest.raises(TypeError):
            random.normal()
        with pytest.raises(TypeError):
            random.normal("key")
        random.normal(random.key(1))
    assert [len(node.uses) for node in k.nodes] == [1, 0, 0, 1]
    with pytest.raises(TypeError):
        see.keys(lambda: None)


def test_it_works_under_the_guards_of_jax():
    key = random.key(3)
    random.normal(key), random.uniform(key)
    with jax.no_tracing(), jax.transfer_guard("disallow"), see.keys() as k:
        random.normal(key)
    assert len(k.nodes) == 1
    with jax.threefry_partitionable(False), see.keys() as k:
        split_and_folded(random.key(0))  # not the same keys in the old mode
    assert not k.reused


def test_a_key_that_lies_on_many_devices_is_known():
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    keys = jax.device_put(random.split(random.key(0), 8), jax.NamedSharding(mesh, jax.P("d")))
    everywhere = jax.device_put(random.key(1), jax.NamedSharding(mesh, jax.P()))
    with see.keys() as k:
        random.normal(keys[3]), random.normal(random.split(random.key(0), 8)[3])
        random.normal(everywhere), random.normal(random.key(1))
    assert len(k.reused) == 2
