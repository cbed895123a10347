"""Every error of the dictionary is raised and named; every cure works; the command reads it all."""

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import jax_utils, nnx
from IPython.core.ultratb import AutoFormattedTB
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from book import paths
from seejax import errors
from seejax.errors import __main__
from typesetting import misset

ENTRIES = errors.entries()
GENERAL = {"dynamic-size": {"tracer-float"}}  # what an entry's message says, and more
FRAMED = {"jit-module": "unhashable-array"}  # without its frame a message is another's
pytestmark = pytest.mark.usefixtures("plain_numpy")


def run(code: str) -> None:
    exec(compile(code, "example.py", "exec"), {"__name__": "example"})


def raised(name: str) -> BaseException:
    with pytest.raises(Exception) as caught:
        run(ENTRIES[name].code)
    return caught.value


# -- the entries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENTRIES)
def test_an_error_is_raised_and_is_its_own_entry(name: str) -> None:
    error = errors.raised(ENTRIES[name].code)
    said = errors.readable(errors.message(error))
    claimed = {other for other, pattern in errors.patterns() if pattern.search(said)}
    assert claimed - GENERAL.get(name, set()) == {FRAMED.get(name, name)}, said
    assert errors.name(said) == FRAMED.get(name, name)
    assert errors.name(errors.printed(error)) == name
    assert not re.search(r"0x[0-9a-f]{6}|\d{9}>|^See http|/tmp|site-packages", said)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_cure_works(name: str) -> None:
    assert "assert" in ENTRIES[name].cured
    run(ENTRIES[name].cured)


@pytest.mark.parametrize("name", [*ENTRIES, *errors.notices()])
def test_an_entry_is_whole_in_both_languages(name: str) -> None:
    assert (name in ENTRIES) != (name in errors.notices())
    entry = {**ENTRIES, **errors.notices()}[name]
    for code in entry.code, entry.cured:
        assert max(map(len, code.split("\n"))) <= 88, "it fits a desk"
    for text in entry.cause, entry.cure:
        assert set(text) == set(paths.LANGUAGES)
        assert not misset(text["zh"]), misset(text["zh"])
    for language in paths.LANGUAGES:
        texts = [page.read_text("utf8") for page in paths.pages(language)]
        anchors = {name for text in texts for name in re.findall(r"^\(([\w-]+)\)=$", text, re.M)}
        assert set(entry.see) <= anchors


def test_the_page_has_every_topic() -> None:
    for language in paths.LANGUAGES:
        page = (paths.DOCS / language / "errors.md").read_text("utf8")
        shown = re.findall(r"^```\{errors\} ([\w-]+)$", page, re.MULTILINE)
        assert shown == list(dict.fromkeys(entry.topic for entry in ENTRIES.values()))


@pytest.mark.parametrize(
    ("name", "words"),
    [(FRAMED.get(name, name), words) for name, entry in ENTRIES.items() for words in entry.says],
)
def test_the_words_of_other_versions_lead_to_the_same_entry(name: str, words: str) -> None:
    assert errors.name(words.replace("…", " f of <stdin>:1 ")) == name
    assert errors.START.match(words.partition("…")[0])


# -- what the entries say, and their own programs do not show --------------------------------------


def named(call: Callable, *args, **kwargs) -> str | None:
    """The entry of the error that a call raises."""
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)
    return errors.name(short(caught.value))


def test_what_is_said_of_tracers() -> None:
    x, counts = jnp.array([3.0, 1.0, 2.0]), jnp.array([1, 2, 0])
    assert named(jax.jit(lax.top_k), x, 1) == "tracer-bool"
    assert jax.jit(lax.top_k, static_argnums=1)(x, 1)[0] == 3.0
    assert named(jax.jit(max), x) == named(jax.jit(max), 1.0, 2.0) == "tracer-bool"
    assert jax.jit(jnp.maximum)(1.0, 2.0) == 2.0 and jax.jit(jnp.max)(x) == 3.0
    assert named(jax.jit(np.random.normal), 0.0) == "tracer-array"
    sin = partial(jax.pure_callback, np.sin, jax.ShapeDtypeStruct((), "float32"))
    assert jnp.allclose(jax.vmap(partial(sin, vmap_method="sequential"))(x), jnp.sin(x))
    with pytest.raises(NotImplementedError, match="vmap_method"):
        jax.vmap(sin)(x)
    functions = [jnp.sin, jnp.cos]
    assert named(jax.jit(lambda i: functions[i](0.0)), 1) == "tracer-integer"
    assert jax.jit(lambda i: lax.switch(i, functions, 0.0))(1) == 1.0
    assert jax.jit(lambda i: jnp.array([1, 2, 3])[i])(9) == 3
    assert named(jax.jit(jnp.repeat), x, counts) == "tracer-float"
    repeated = jax.jit(jnp.repeat, static_argnames="total_repeat_length")
    assert repeated(x, counts, total_repeat_length=3).tolist() == [3.0, 1.0, 1.0]
    assert named(jax.jit(jnp.bincount), counts) == "tracer-float"
    assert jax.jit(partial(jnp.bincount, length=3))(counts).tolist() == [1, 1, 1]
    for length in 4 / 2, np.sqrt(4), 1e3:
        assert named(jnp.zeros, length) == "tracer-shape"
    assert named(jax.vmap(lambda n: jnp.ones(n).sum()), counts) == "tracer-shape"
    masked = jax.vmap(lambda n: (jnp.arange(3) < n).sum())
    assert masked(counts).tolist() == counts.tolist()
    assert (int(64 ** (1 / 3)), round(64 ** (1 / 3)), round(np.float64(2.0))) == (3, 4, 2)
    assert jnp.bincount(counts, length=2).tolist() == [1, 1]  # the 2 is dropped
    for size, wanted in (2, [3.0, 1.0]), (4, [3.0, 1.0, 1.0, 2.0]):
        assert repeated(x, counts, total_repeat_length=size).tolist() == wanted
    assert jax.grad(lambda x: {2.0: 3.0}[x.item()] * x)(2.0) == 3.0
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.vmap(lambda x: x.item())(x)
    assert named(jax.jit(jnp.unique), x) == "dynamic-size"
    distinct = jax.jit(partial(jnp.unique, size=3, fill_value=-1))
    assert distinct(jnp.array([2, 1, 1])).tolist() == [1, 2, -1]
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.vmap(jnp.unique)(x[None])
    assert jax.vmap(partial(jnp.unique, size=2))(x[None]).tolist() == [[1.0, 2.0]]  # too small
    assert jnp.bincount(counts, length=5).tolist() == [1, 1, 1, 0, 0]


def test_a_mask_of_rows_has_an_axis_for_each_that_follows() -> None:
    x, rows = jnp.arange(8.0).reshape(2, 2, 2), jnp.array([True, False])
    for right, mask in (True, rows[:, None, None]), (False, rows[:, None]):
        assert (jnp.where(mask, x, 0).sum() == x[rows].sum()) == right
        assert (jnp.mean(x, where=mask) == x[rows].mean()) == right
    assert named(jax.jit(lambda x: x[jnp.arange(2) > 0]), x) == "boolean-index"
    assert jax.jit(lambda x: x[np.arange(2) > 0])(x).shape == (1, 2, 2)


def test_what_is_said_of_arguments_and_results() -> None:
    assert named(jnp.sum, range(3)) == named(jnp.sin, range(3)) == "method-self"
    assert jnp.sum(jnp.array(list(range(3)))) == 3
    assert named(lax.scan, lambda c, x: (c, x), "a", jnp.ones(3)) == "method-self"
    assert named(jax.grad(lambda x: "a"), 1.0) == named(jax.device_put, "a") == "method-self"
    assert named(jax.jit(lambda x: x, static_argnums=0), np.array(["a"])) == "static-unhashable"
    assert named(jax.vmap(lambda x: "a"), jnp.ones(3)) == "returned-object"

    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def scale(factor, x):
        return factor * x

    scale.defvjp(lambda factor, x: (factor * x, None), lambda factor, _, g: (factor * g,))
    assert named(jax.jit(jax.grad(scale, argnums=1)), 2.0, 3.0) == "escaped-tracer"


def test_what_is_said_of_arrays() -> None:
    column = jnp.zeros((4, 1))
    assert (column + jnp.ones(3)).shape == (4, 3)
    assert named(lambda: column.at[:].set(jnp.ones(3))) == "broadcast"
    assert named(jnp.broadcast_to, jnp.ones((4, 3)), (4, 1)) == "broadcast"
    assert named(jnp.inner, jnp.ones((4, 3)), jnp.ones((3, 2))) == "contracting"
    assert jnp.inner(jnp.ones((4, 3)), jnp.ones((2, 3))).shape == (4, 2)
    axes = {"axes": ((0,), (0,))}
    assert named(jnp.tensordot, jnp.ones((4, 3)), jnp.ones((3, 2)), **axes) == "contracting"
    assert named(jnp.concatenate([jnp.ones(2), jnp.ones(3)]).reshape, 4, -1) == "reshape"
    assert named(jax.jit(lambda x: x[[True, False, False, False]]), column) == "list-index"
    assert jax.jit(lambda x: x[np.array([True, False, False, False])])(column).shape == (1, 1)
    assert named(lambda: column[[]]) == "list-index" and column[np.array([], int)].size == 0
    assert named(jax.jit(lambda x, i: x[[i, i]]), column, 1) == "list-index"
    assert named(jax.jit(lambda x, i: x[np.array([i, i])]), column, 1) == "tracer-array"
    assert jax.jit(lambda x, i: x[jnp.array([i, i])])(column, 1).shape == (2, 1)
    for value in ["text"], [[1, 2], [3]], np.array([1.0], object), np.array(["2026"], "datetime64"):
        assert named(jnp.array, value) == "object-dtype"
    assert jnp.array(np.array([1.0], object).astype(float)) == 1.0
    assert tuple(jnp.ones((2, 2)).ravel().tolist()) == (1.0, 1.0, 1.0, 1.0)
    for transform in jax.jit, jax.grad:
        assert named(transform(lambda x: {x: 1}), 1.0) == "unhashable-array"


def test_what_is_said_of_integers() -> None:
    key = jax.random.key(0)
    with jax.enable_x64(True):
        assert named(jnp.array, [200], "int8") == named(np.uint8, 300) == "int-overflow"
        assert named(jax.random.fold_in, key, 2**40) == "int-overflow"
    assert named(jnp.array, [-1], "uint8") == named(jnp.array, [-1], "uint16") == "int-overflow"
    assert jnp.array([-1], "int8") == -1
    for number in 2**40, 2**32 - 1, -1:
        assert jax.random.fold_in(key, number % 2**32).shape == ()
    assert named(jax.random.key, 2**64) == "int-overflow"
    assert jax.random.key(2**64 % 2**32) == jax.random.key(0)
    seed = 3_000_000_000
    assert named(jax.jit(jax.random.key), seed) == "int-overflow"
    assert jax.jit(jax.random.key)(np.uint32(seed)) == jax.random.key(seed)
    small, one = jnp.int8([-7, 7]), jnp.int32(2)
    for function, other in (lax.div, jnp.divide), (lax.shift_right_logical, jnp.right_shift):
        assert named(function, small[0], one) == "lax-dtypes"
        assert (function(small.astype("int32"), one.repeat(2)) != other(small, one)).any()
    assert lax.div(7, 2) == 3 and jnp.divide(7, 2) == 3.5
    assert lax.shift_right_logical(-8, 1) > 0 > jnp.right_shift(-8, 1)


def test_what_is_said_of_keys() -> None:
    rngs, rbg = nnx.Rngs(0), jax.random.PRNGKey(7, impl="rbg")
    assert named(jax.random.normal, rngs) == named(jax.random.normal, rbg) == "seed-for-key"
    assert jax.random.normal(rngs(), (3,)).shape == (3,)
    assert named(jax.random.normal, rngs.params) == "seed-for-key"
    assert jax.random.normal(nnx.Rngs(params=0).params(), (3,)).shape == (3,)
    with pytest.raises(AttributeError, match="default"):
        nnx.Rngs(params=0)()
    same = jax.random.wrap_key_data(rbg, impl="rbg")
    assert jax.random.normal(same) == jax.random.normal(jax.random.key(7, impl="rbg"))


def test_what_is_said_of_loops_and_branches() -> None:
    def grow(seen, x):
        return jnp.concatenate([seen, x[None]]), None

    xs = jnp.arange(3.0)
    for length in 1, 2:
        assert named(lax.scan, grow, jnp.zeros(length), xs) == "scan-carry"
    longer = partial(lax.fori_loop, 0, body_fun=lambda i, c: grow(c, xs[i])[0], init_val=xs)
    assert named(longer, 3) == "scan-carry"
    assert named(jax.jit(lambda n: longer(n)), 3) == "while-carry"
    kept = lax.fori_loop(0, 3, lambda i, c: c.at[i].set(xs[i]), jnp.zeros(3))
    assert kept.tolist() == xs.tolist()
    assert (lax.scan(lambda none, x: (none, x), None, xs)[1] == xs).all()
    assert named(lax.switch, 0, [lambda: 1.0, lambda: (2.0,)]) == "cond-branches"
    assert lax.while_loop(lambda n: n < 100, lambda n: n * 1.5, 1) > 100  # converted
    assert lax.scan(lambda c, x: (c + x, None), 0, xs)[0] == 3.0

    mesh = jax.make_mesh((8,), ("data",))
    put = jax.device_put(jnp.ones(8), NamedSharding(mesh, P("data")))
    varying = partial(lax.pcast, axis_name=("data",), to="varying")

    def branches(x, fix):
        return lax.cond(True, lambda: x, lambda: fix(jnp.zeros(1)))

    def loop(x, fix):
        return lax.while_loop(lambda c: c[0] < 3, lambda c: c + x, fix(jnp.zeros(1)))

    for entry, f in ("cond-branches", branches), ("while-carry", loop):
        mapped = partial(jax.shard_map, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
        assert named(mapped(partial(f, fix=lambda x: x)), put) == entry
        assert mapped(partial(f, fix=varying))(put).shape == (8,)


def test_what_is_said_of_derivatives() -> None:
    def wave(x):
        return jnp.exp(1j * x)

    for jacobian in jax.jacfwd, jax.hessian:
        assert named(jacobian(lambda z: z**2), 1 + 2j) == "grad-integer"
    assert jax.jacfwd(lambda z: z**2, holomorphic=True)(1 + 2j) == 2 + 4j
    assert named(jax.grad(wave), 1.0) == "grad-integer-output"
    assert jnp.allclose(jax.grad(wave, holomorphic=True)(1 + 0j), jax.jacfwd(wave)(1.0))
    with pytest.raises(TypeError, match="complex dtype"):
        jax.grad(wave, holomorphic=True)(1.0)

    def sin(inner):
        f = jax.custom_vjp(lambda x: jnp.sin(x))
        f.defvjp(lambda x: (inner(x), x), lambda x, g: (jnp.cos(x) * g,))
        return f

    assert named(jax.hessian(sin(sin(jnp.sin))), 3.0) == "custom-vjp-forward"
    assert jax.hessian(sin(lambda x: sin(jnp.sin)(1.0) + x))(3.0)  # not of the input
    assert jax.hessian(sin(jnp.sin))(3.0) == jax.jacrev(jax.jacrev(sin(sin(jnp.sin))))(3.0)


def test_what_is_said_of_batches_and_sharded_arrays() -> None:
    def scale(x, w):
        return x * w.sum()

    x, w = jnp.ones(4), jnp.ones(3)
    assert named(jax.vmap(scale), x, w=w) == "vmap-sizes"
    assert jax.vmap(scale, in_axes=(0, None))(x, w).shape == (4,)
    assert named(jax.vmap(scale, in_axes=(0, None)), x, w=w) == "vmap-in-axes"

    mesh = jax.make_mesh((8,), ("data",))
    x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, P("data")))
    assert named(jax.jit(lambda x: x - lax.pmean(x, "data")), x) == "axis-name"
    assert jax.jit(lambda x: x - jnp.mean(x))(x).tolist() == (np.arange(8) - 3.5).tolist()


def test_what_is_said_of_devices() -> None:
    x = jnp.ones(8)
    assert named(jax.jit(lambda a, b: a + b, donate_argnums=0), x, x) == "deleted"
    assert named(jax.jit(lambda a, b: a + b, donate_argnums=1), x, x) == "deleted"
    state = {"params": jnp.ones(3)}
    add = jax.jit(lambda s: jax.tree.map(lambda a: a + 1, s), donate_argnums=0)
    assert named(add, state | {"target": state["params"]}) == "deleted"
    new = add(state | {"target": jnp.copy(state["params"])})
    assert (new["target"] == 2.0).all()

    mesh, turned = (Mesh(np.array(jax.devices())[::i], ("data",)) for i in (1, -1))
    here, there = (jax.device_put(x, NamedSharding(m, P("data"))) for m in (mesh, turned))
    assert named(jnp.add, here, there) == "incompatible-devices"
    one, two = (jax.device_put(x, jax.devices()[i]) for i in (0, 1))
    assert named(jax.jit(jnp.add), one, two) == "incompatible-devices"
    assert jax.jit(lambda a: a + two)(one).devices() == one.devices()  # a constant is copied
    with pytest.raises(ValueError, match="not equal to the size of the mesh"):
        explicit = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Explicit,))
        parted = jax.device_put(x, NamedSharding(explicit, P("data")))
        jax.jit(lambda a: a + parted)(one)
    assert (here + jax.device_put(there, here.sharding) == 2.0).all()

    place = partial(jax.make_array_from_callback, data_callback=lambda i: np.ones(9)[i])
    assert named(place, (9,), NamedSharding(mesh, P("data"))) == "uneven-sharding"

    two = jax.make_mesh((4, 2), ("a", "b"))
    over = partial(jax.shard_map, lambda x: x, mesh=two, in_specs=P("a"), out_specs=P("a"))
    assert named(over(axis_names={"a"}, in_specs=P("b")), x) == "mesh-axis"
    assert named(over(axis_names={"a"}, out_specs=P("b")), x) == "mesh-axis"

    auto = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)

    def within(axis, **names):
        inner = jax.shard_map(jnp.sin, in_specs=P(axis), out_specs=P(axis), **names)
        outer = {"mesh": auto, "axis_names": {"a"}, "in_specs": P("a"), "out_specs": P("a")}
        return jax.jit(jax.shard_map(inner, **outer))

    x = jnp.ones(32)
    assert jnp.allclose(within("b", axis_names={"b"})(x), jnp.sin(x))
    for names in {}, {"axis_names": {"a", "b"}}:
        assert named(within("a", **names), x) in ("mesh-axis", None)  # older: "already bound"


@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_what_is_said_of_kinds_of_axes(axis_type: AxisType) -> None:
    mesh = jax.make_mesh((8,), ("data",), axis_types=(axis_type,))
    auto, data = axis_type is AxisType.Auto, NamedSharding(mesh, P("data"))
    x = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P(None, "data")))
    spread = jax.shard_map(jnp.sin, mesh=mesh, in_specs=P("data"), out_specs=P("data"))
    assert spread(x).shape == (8, 8) if auto else named(spread, x) == "specs-mismatch"
    assert named(jax.jit(jnp.sin, in_shardings=data), x) == "specs-mismatch"
    inside = jax.jit(lambda x: spread(jax.reshard(x, data)))
    if auto:
        with pytest.raises(ValueError, match="of type Auto"):
            inside(x)
    else:
        assert inside(x).sharding.is_equivalent_to(data, 2)
        assert named(jnp.matmul, x, x.T) == "explicit-sharding"
        assert named(jnp.matmul, x, x.T, out_sharding=P()) == "no-mesh"
        with pytest.deprecated_call(), mesh:  # the old way
            assert named(jax.reshard, x, P()) == "no-mesh"
        whole, parted = (
            jax.device_put(jnp.zeros(8), NamedSharding(mesh, s)) for s in (P(), P("data"))
        )
        assert named(lax.cond, True, lambda: whole, lambda: parted) == "cond-branches"
        alike = jax.reshard(whole, parted.sharding)
        assert lax.cond(True, lambda: alike, lambda: parted).sharding.spec == P("data")
        loop = partial(lax.while_loop, lambda c: c.sum() < 9, lambda c: c + 1 + parted)
        step = partial(lax.scan, lambda c, _: (c + parted, None), xs=None, length=2)
        assert named(loop, whole) == "while-carry" and named(step, whole) == "scan-carry"
        assert loop(alike).max() == 2.0 and step(alike)[0].max() == 0.0
        assert jnp.matmul(x, x.T, out_sharding=NamedSharding(mesh, P())).shape == (8, 8)
        assert x.at[0].get(out_sharding=NamedSharding(mesh, P())).shape == (8,)

    def place(x):
        move = lax.with_sharding_constraint if auto else jax.reshard
        return move(x, P("data"))

    if auto:
        assert named(jax.jit(place), x) == "no-mesh"

    def within(x):
        with jax.set_mesh(mesh):
            return place(x)

    with pytest.raises(ValueError, match="outside of"):
        jax.jit(within)(x)
    with jax.set_mesh(mesh):
        assert jax.jit(place)(x).sharding.is_equivalent_to(data, 2)


def test_what_is_said_of_sizes_and_methods() -> None:
    x = jnp.array([[0, 5, 0], [0, 0, 5]])
    found = jax.jit(lambda x: jnp.flatnonzero(x == 5, size=3, fill_value=x.size))(x)
    assert x.ravel().at[found].set(9).tolist() == [0, 9, 0, 0, 0, 9]

    @dataclasses.dataclass
    class Scale:
        factor: float

        def __call__(self, x):
            return self.factor * x

    with pytest.raises(TypeError, match="unhashable"):
        jax.jit(Scale(2.0))(3.0)
    assert jax.jit(Scale(2.0).__call__)(3.0) == 6.0
    with jax.debug_nans(True):
        assert named(jax.grad(lambda x: jnp.sqrt(jnp.maximum(x, 0.0))), -1.0) == "nan"
        assert named(jax.grad(jnp.linalg.norm), jnp.zeros(3)) == "nan"
        assert jax.grad(lambda x: jnp.sqrt(jnp.maximum(x, 1e-12)))(-1.0) == 0.0


def test_what_is_said_of_modules_that_change() -> None:
    norm, xs = nnx.BatchNorm(3, rngs=nnx.Rngs(0)), jnp.arange(12.0).reshape(4, 1, 3)
    nnx.scan(lambda m, x: m(x), in_axes=(None, 0), out_axes=0)(norm, xs)
    assert not norm.mean[...].any()  # lost
    carry = nnx.scan(lambda m, x: (m, m(x)), in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))
    carry(norm, xs)
    assert (before := norm.mean[...]).all()
    nnx.cond(True, lambda m: m(xs[0] + 9), lambda m: xs[0], norm)
    assert (norm.mean[...] > before).all()
    with pytest.raises(KeyError, match="dropout"):
        nnx.Dropout(0.5, rngs=nnx.Rngs(params=0))(jnp.ones(3))
    assert nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=0))(jnp.ones(3)).shape == (3,)

    class Halves(nn.Module):
        def setup(self):
            self.first, self.second = nn.Dense(2), nn.Dense(3)

        def __call__(self, x):
            return self.first(x)

        def both(self, x):
            return self.second(self.first(x))

    x, key = jnp.ones((2, 3)), jax.random.key(0)
    part, whole = (Halves().init(key, x, method=name) for name in ("__call__", "both"))
    assert named(Halves().apply, part, x, method="both") == "linen-no-param"
    assert Halves().apply(whole, x, method="both").shape == (2, 3)
    bound = Halves().bind(whole)
    assert named(setattr, bound, "more", 1) == "linen-frozen"
    drop = nn.Dropout(0.5, deterministic=False)
    assert named(drop.apply, {}, x, rngs={"other": key}) == "linen-rng"
    assert drop.apply({}, x, rngs={"params": key}).shape == x.shape


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_what_is_said_of_checkpoints(tmp_path: Path) -> None:
    saved = {"w": jnp.ones(3), "layers": [jnp.ones(3), jnp.ones(2)]}
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / "1", saved)
        saver.wait_until_finished()
        longer = saver.restore(tmp_path / "1", saved | {"w": jnp.zeros(4)}, strict=False)
        assert longer["w"].tolist() == [1.0, 1.0, 1.0, 0.0]

    def part(item):
        with ocp.PyTreeCheckpointer() as saver:
            return saver.restore(
                tmp_path / "1", args=ocp.args.PyTreeRestore(item=item, partial_restore=True)
            )

    found = part({"w": jnp.zeros(4), "new": jnp.zeros(1)})
    assert found["w"].shape == (3,) and found["new"].tolist() == [0.0]
    with pytest.raises(ValueError, match="Length mismatch"):
        part({"layers": [jnp.zeros(3)]})


def test_what_is_said_of_stacked_parameters() -> None:
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return nn.Dense(3)(x), None

    many = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=4)()
    x, key = jnp.ones((2, 3)), jax.random.key(0)
    stacked = many.init(key, x, None)
    assert named(Layer().apply, stacked, x, None) == "linen-param-shape"
    assert many.apply(stacked, x, None)[0].shape == (2, 3)

    class Again(nn.Module):
        def setup(self):
            self.dense = nn.Dense(4, name="only")

        def __call__(self, x):
            return self.dense(self.dense(x))

    assert named(Again().init, key, x) == "linen-param-shape"
    assert nn.Sequential([nn.Dense(4), nn.Dense(4)]).init(key, x)["params"].keys() == {
        "layers_0",
        "layers_1",
    }
    assert jax.vmap(lambda v: Layer().apply(v, x, None)[0])(stacked).shape == (4, 2, 3)
    copied = jax_utils.replicate(Layer().init(key, x, None))
    assert named(Layer().apply, copied, x, None) == "linen-param-shape"
    assert Layer().apply(jax_utils.unreplicate(copied), x, None)[0].shape == (2, 3)

    class Coder(nn.Module):
        names: tuple = (None, None)

        @nn.compact
        def encode(self, x):
            return nn.Dense(3, name=self.names[0])(x)

        @nn.compact
        def decode(self, x):
            return nn.Dense(5, name=self.names[1])(x)

        def __call__(self, x):
            return self.decode(self.encode(x))

    assert named(Coder().init, key, x) == "linen-param-shape"
    assert set(Coder(("first", "last")).init(key, x)["params"]) == {"first", "last"}


def test_what_is_said_of_lists_of_layers() -> None:
    class Net(nnx.Module):
        def __init__(self, layers, total=None):
            self.layers, self.total = layers, total

    layer = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    assert named(lambda: nnx.List([[layer]])) == named(Net, [layer]) == "nnx-list"
    for total in None, 0.0, False, "", len:
        assert named(setattr, Net(None, total), "total", jnp.ones(2)) == "nnx-list"
    for layers in nnx.List([nnx.List([layer])]), nnx.data([[layer]]):
        assert Net(layers).layers[0][0] is layer


# -- the command, on tracebacks as they are met ----------------------------------------------------


def test_what_a_program_leaves_behind_is_not_heard_later() -> None:
    """As Orbax leaves a coroutine; Python finds it in some later cell of the page."""

    async def left() -> None:
        pass

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        errors.raised("1 / 0")
        left()
        warnings.warn("another", RuntimeWarning, stacklevel=1)
    assert [str(each.message) for each in heard] == ["another"]


NOISE = "INFO:root:epoch 3\n训练中：第 3 轮\r 57%|█████▋    | 4/7 [00:01<00:00]\n"
AFTER = '\nTraceback (most recent call last):\n  File "x.py", line 1\nOSError: [Errno 9] 坏了\n'
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n"


def python(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def ipython(error: BaseException, mode: str, colors: str) -> str:
    shown = AutoFormattedTB(mode=mode, theme_name=colors)
    return shown.stb2text(shown.structured_traceback(type(error), error, error.__traceback__))


def short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


TRACEBACKS = {
    "tracer-bool": python,
    "out-of-memory": lambda error: python(error).replace("jax.errors.", "jaxlib._jax."),
    "nnx-trace-level": lambda error: AFTER + python(error),
    "tracer-array": lambda error: NOISE + python(error),
    "immutable": lambda error: python(error).replace("\n", "\r\n"),
    "scan-carry": lambda error: ipython(error, "Context", "linux"),
    "cond-branches": lambda error: ipython(error, "Verbose", "neutral"),
    "vmap-sizes": lambda error: ipython(error, "Plain", "nocolor"),
    "vmap-prefix": lambda error: ipython(error, "Minimal", "lightbg"),
    "escaped-tracer": lambda error: NOISE + ipython(error, "Context", "lightbg"),
    "tree-keys": lambda error: python(ValueError("unrelated")) + CHAIN + python(error),
    "grad-integer": lambda error: python(error) + CAUSED + AFTER,
    "nan": lambda error: f"[rank0]: {short(error)}".replace("\n", "\n[rank0]: "),
    "deleted": short,
    "key-reuse": lambda error: f"> {short(error)}".replace("\n", "\n> "),
    "rank-promotion": lambda error: "\n".join(
        f"E       {line}" for line in short(error).split("\n")
    ),
    "linen-rng": lambda error: f"2026-11-23 10:00:00,000 ERROR {python(error)}",
    "nnx-rngs": lambda error: f"  + Exception Group\n  | {short(error)}\n  +-----",
    "orbax-tree": lambda error: NOISE * 200 + python(error),
    "static-unhashable": lambda error: "\t" + python(error).replace("\n", "\n\t"),
}


def command(monkeypatch, capsys, raw: bytes, *options: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["errors", *options])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    code = __main__.main()
    return code, *capsys.readouterr()


@pytest.mark.parametrize("name", TRACEBACKS)
def test_a_real_traceback_is_named(name: str, monkeypatch, capsys) -> None:
    raw = TRACEBACKS[name](raised(name)).encode()
    capsys.readouterr()
    for lang, coding in (("zh", "gb18030"), ("en", "utf-8"), ("en", "utf-16")):
        there = raw.decode().encode(coding)
        code, out, err = command(monkeypatch, capsys, there, "--lang", lang)
        found, *_, place = out.strip().split("\n")
        assert (code, found, err) == (0, name, "")
        assert ENTRIES[name].cause[lang] in out and ENTRIES[name].cure[lang].strip() in out
        assert place.endswith(errors.headword(ENTRIES[name]))


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_json_has_the_entry_as_the_table_has_it(lang: str, monkeypatch, capsys) -> None:
    raw = b"TypeError: grad requires real- or complex-valued inputs (input dtype that is int32)"
    code, out, err = command(monkeypatch, capsys, raw, "--json", "--lang", lang)
    row = tomllib.loads(errors.DATA.read_text("utf8"))["grad-integer"]
    given = json.loads(out)
    (entry,) = given["entries"]
    assert (code, err, given["language"]) == (0, "", lang) and out.isascii()
    assert entry.pop("address").endswith("errors.html#error-grad-integer")
    assert entry.pop("title").replace(" … ", "…") in row["says"][0]
    same = {name: row[name] for name in ("code", "cured")}
    assert entry == same | {
        "name": "grad-integer",
        "kind": "error",
        "line": None,
        "today": None,
        "cause": row["cause"][lang],
        "cure": row["cure"][lang],
    }


def test_json_of_an_unknown_error_is_an_empty_list_and_of_no_text_nothing(
    monkeypatch, capsys
) -> None:
    code, out, err = command(monkeypatch, capsys, b"ZeroDivisionError: 1", "--json", "--lang", "en")
    assert (code, json.loads(out), err) == (1, {"language": "en", "entries": []}, "")
    code, out, err = command(monkeypatch, capsys, b"", "--json", "--lang", "en")
    assert (code, out) == (2, "") and err.count("\n") == 1


@pytest.mark.parametrize("between", ["", CHAIN, CAUSED + AFTER + CHAIN])
def test_an_error_that_was_caught_is_not_what_ended_the_program(between: str) -> None:
    caught = python(raised("deleted"))
    assert errors.name(caught) == "deleted" and errors.name(caught + between + AFTER) is None


SHOWN = "ValueError: Incompatible shapes for broadcasting"
LAST = "TypeError: Gradient only defined for scalar-output functions. Output had shape: (3,)."
COLOURED = LAST.replace("TypeError", r"\u001b[31mTypeError\u001b[39m")


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (f"      2 # no {SHOWN}\n----> 3 jax.grad(f)(x)\n\n{LAST}", "grad-vector"),
        (f'    """Not\n    {SHOWN}\n    """\n>   jax.grad(f)(x)\nE   {LAST}', "grad-vector"),
        (f"    raise Mine('see {SHOWN}')\nhere.MyError: see there", None),
        (f"{SHOWN}: (3,)\nand later\n{LAST}", "grad-vector"),
        (f"RuntimeError: step 3: {LAST}", "grad-vector"),
        (f"{LAST}\nException ignored in: <function A.__del__ at 0x7f90>{AFTER}", "grad-vector"),
        (f"{LAST}\nException ignored in atexit callback <f>:{AFTER}", "grad-vector"),
        (f"Exception ignored while calling f:{AFTER}{LAST}", "grad-vector"),
        (f"我在训练时出现了{LAST}怎么办？", "grad-vector"),
        (f'  "traceback": [\n  "{COLOURED}"\n ]', "grad-vector"),
    ],
)
def test_what_was_raised_counts_and_not_what_stands_beside_it(text: str, entry: str) -> None:
    assert errors.name(text) == entry


HASHED = """
import dataclasses, functools, jax, jax.numpy as jnp

@dataclasses.dataclass(frozen=True)
class Scale:
    factor: jax.Array

    @functools.partial(jax.jit, static_argnums=0)
    def __call__(self, x):
        return self.factor * x

Scale(jnp.ones(3))(2.0)
"""


def test_a_traceback_that_a_message_quotes_is_not_a_second_error() -> None:
    said = errors.message(errors.raised(HASHED))
    assert "Traceback" in said and "unhashable type" in said
    for text in said, said + CAUSED + AFTER:
        assert errors.name(text) == "static-unhashable"


PYTEST = """
import jax, jax.numpy as jnp

def test_boxes(x=3):
    try:
        jax.vmap(jnp.dot)(jnp.ones((4, 3)), jnp.ones(3))
    except ValueError:
        jax.grad(lambda x: x**2)(x)
"""


def test_what_pytest_and_an_unfiltered_run_print_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PYTEST)
    ran = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=yes", "test_it.py"]
    env = {**paths.PAGE_ENV, "JAX_TRACEBACK_FILTERING": "off", "PATH": ""}
    shown = subprocess.run(ran, cwd=tmp_path, env=env, capture_output=True, timeout=120)
    assert b"\x1b[" in shown.stdout and errors.name(shown.stdout.decode()) == "grad-integer"


def test_it_starts_without_jax_and_speaks_as_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "last.txt").write_text("TypeError: grad requires real- or complex-valued inputs")
    ran = [sys.executable, "-X", "importtime", "-m", "seejax.errors", tmp_path / "last.txt"]
    env = {"PYTHONPATH": str(paths.ROOT / "examples"), "LANG": "zh_CN.UTF-8", "PYTHONUTF8": "1"}
    told = subprocess.run(ran, env=env, capture_output=True, encoding="utf8", timeout=120)
    assert told.returncode == 0 and ENTRIES["grad-integer"].cause["zh"] in told.stdout
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in told.stderr.split("\n")}
    assert "seejax" in loaded and not loaded & {"jax", "jaxlib", "numpy", "flax"}


def test_ascii_is_read_in_any_coding_and_where_a_character_is_cut() -> None:
    said = python(raised("deleted")) + "\nAndré, é. 训练"
    cut = [said.encode(coding)[:-1] for coding in ("utf-8", "utf-16", "gb18030")]
    for raw in said.encode("cp1252", "ignore"), *cut:
        assert errors.name(__main__.text_of(raw)) == "deleted"


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "last.txt").write_text("TypeError: grad requires real- or complex-valued inputs")
    ran = [sys.executable, "-m", "seejax.errors", tmp_path / "last.txt"]
    env = {"PYTHONPATH": str(paths.ROOT / "examples")}
    gone, pipe = os.pipe()
    os.close(gone)
    told = subprocess.run(ran, env=env, stdout=pipe, stderr=subprocess.PIPE, timeout=120)
    os.close(pipe)
    assert told.returncode == 0 and not told.stderr


@pytest.mark.parametrize(
    ("raw", "code", "told"),
    [
        (b"", 2, "Nothing to read"),
        (b" \n\t", 2, "Nothing to read"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 2, "not text"),
        (bytes(range(256)), 2, "not text"),
        (b"ZeroDivisionError: division by zero", 1, "no such error"),
        (b"x[0] = 1  # what raises TypeError here?", 1, "no such error"),
    ],
)
def test_what_it_cannot_name_is_said_in_one_line(monkeypatch, capsys, raw, code, told) -> None:
    got, out, err = command(monkeypatch, capsys, raw, "--lang", "en")
    assert got == code and told in out + err and (out + err).count("\n") == 1
    assert bool(err) == (code == 2)


def test_a_file_that_cannot_be_read_is_said_in_one_line(monkeypatch, capsys, tmp_path) -> None:
    for path in tmp_path / "gone.txt", tmp_path:
        code, out, err = command(monkeypatch, capsys, b"", "--lang", "en", str(path))
        assert code == 2 and not out and err.count("\n") == 1 and str(path) in err


def test_the_address_is_whole_where_the_book_has_one(monkeypatch) -> None:
    urls = SimpleNamespace(get_all=lambda _: ["Documentation, https://book.test/"])
    monkeypatch.setattr(errors.importlib.metadata, "metadata", lambda _: urls)
    whole = "https://book.test/zh-cn/latest/errors.html#error-nan"
    assert errors.address("nan", "zh") == whole


def test_what_a_program_prints_is_not_shown_and_one_that_ends_well_is_told(capsys) -> None:
    errors.raised("print('loud')\n1 / 0")
    assert not capsys.readouterr().out
    with pytest.raises(ValueError, match="raises nothing"):
        errors.raised("x = 1")
