"""`see.tree` against JAX: its own flattening, its own comparison, and trees of Flax and Optax."""

import collections
import dataclasses
import functools
import gc
import time
import weakref
from typing import Any
from unittest.mock import MagicMock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bs4 import BeautifulSoup
from flax import nnx

from seejax import see

Point = collections.namedtuple("Point", "x y")


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["w", "below"], meta_fields=["name"]
)
@dataclasses.dataclass
class Block:
    w: Any
    below: Any = None
    name: Any = "relu"


@jax.tree_util.register_pytree_node_class
class Keyless:
    def __init__(self, *children):
        self.children = children

    def tree_flatten(self):
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@jax.tree_util.register_pytree_with_keys_class
class Twins(Keyless):
    """Its children all have the same key."""

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.DictKey("k"), child) for child in self.children], None


class Unspeakable:
    """Whatever is asked of it, it raises."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __str__, __hash__ = __repr__, object.__hash__


def linen():
    return nn.Sequential([nn.Dense(3), nn.relu, nn.Dense(2)]).init(
        jax.random.key(0), jnp.ones((1, 4))
    )


def optimizer(params):
    labels = {key: "slow" if key == "a" else "fast" for key in params}
    parts: dict[Any, Any] = {"slow": optax.sgd(0.1), "fast": optax.adam(0.1)}
    clip, many = optax.clip_by_global_norm(1.0), optax.multi_transform(parts, labels)
    return optax.chain(clip, many).init(params)


TREES = {
    "number": lambda: 1.0,
    "none": lambda: None,
    "empty": lambda: [{}, (), [], None, collections.OrderedDict()],
    "nested": lambda: {"b": [1, (2.0, None)], "a": Point(jnp.ones(3), {3: True})},
    "ordered": lambda: collections.OrderedDict(b=1, a=collections.defaultdict(int, k=2)),
    "numpy": lambda: [np.ones((2, 3)), np.float16(1), np.array(["text"])],
    "small": lambda: [jnp.ones(3, "int4"), jnp.ones(3, "bfloat16"), jnp.ones((0, 5)), jnp.ones(())],
    "keys": lambda: [jax.random.key(0), jax.random.split(jax.random.key(0), 5)],
    "shapes": lambda: jax.eval_shape(linen),
    "class": lambda: [
        Block(1.0, Block(jnp.ones(2), name="tanh")),
        Keyless(1, [2]),
        Twins(1, [2], 3),
    ],
    "leaves": lambda: [
        MagicMock(),
        "relu",
        object(),
        {1, 2},
        jnp.sin,
        2**70,
        range(3),
        Unspeakable(),
    ],
    "linen": linen,
    "nnx": lambda: nnx.MLP([4, 3, 2], rngs=nnx.Rngs(0)) if hasattr(nnx, "MLP") else None,
    "state": lambda: nnx.split(nnx.Linear(4, 3, rngs=nnx.Rngs(0)))[1],
    "adam": lambda: optax.adam(0.1).init(linen()["params"]),
    "chain": lambda: optimizer({"a": jnp.ones(2), "b": jnp.ones((3, 4))}),
}


@pytest.mark.parametrize("name", TREES)
def test_its_leaves_are_those_of_jax(name):
    tree = TREES[name]()
    picture, expected = see.tree(tree), jax.tree.leaves_with_path(tree)
    assert [leaf.path for leaf in picture.leaves] == [
        jax.tree_util.keystr(path) for path, _ in expected
    ]
    for leaf, (_, value) in zip(picture.leaves, expected, strict=True):
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            assert (leaf.shape, leaf.dtype) == (value.shape, str(value.dtype))
            assert leaf.bytes == value.nbytes
        elif type(value) in (bool, int, float) and abs(value) < 2**31:
            array = jnp.asarray(value)
            assert (leaf.shape, leaf.dtype, leaf.weak) == ((), str(array.dtype), array.weak_type)
            assert leaf.bytes == array.nbytes
        elif isinstance(value, jax.ShapeDtypeStruct):
            assert leaf.bytes == value.size * value.dtype.itemsize
        else:
            assert (leaf.shape, leaf.dtype, leaf.bytes) == (None, None, None)
    assert picture.bytes == sum(leaf.bytes or 0 for leaf in picture.leaves)
    for text in (str(picture), BeautifulSoup(picture.html(), "html.parser").get_text()):
        assert all(str(leaf) in text for leaf in picture.leaves)
    assert see.tree(tree, tree).differences == ()


@pytest.mark.parametrize("first", TREES)
@pytest.mark.parametrize("second", TREES)
def test_structures_differ_where_jax_says_so(first, second):
    a, b = TREES[first](), TREES[second]()
    found = see.tree(a, b).differences
    kinds = {difference.kind for difference in found}
    same = jax.tree.structure(a) == jax.tree.structure(b)
    assert same == (not kinds & {"missing", "container", "static"})
    back = see.tree(b, a).differences
    assert {(d.path, d.kind, d.first, d.second) for d in found} == {
        (d.path, d.kind, d.second, d.first) for d in back
    }
    str(see.tree(a, b)), see.tree(a, b).html()


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1, "b": [2, 3]}, ["['b']: missing → list"]),
        ({"a": [1, 2]}, {"a": (1, 2)}, ["['a']: container list → tuple"]),
        ({"a": [1]}, [1], ["root: container dict → list"]),
        ({"a": None}, {"a": jnp.ones(3)}, ["['a']: container None → f32[3]"]),
        ([1, 2, 3], [1], ["[1]: i32~[] → missing", "[2]: i32~[] → missing"]),
        ([jnp.ones(3)], [jnp.ones((3, 1))], ["[0]: shape (3,) → (3, 1)"]),
        ([jnp.ones(3)], [np.ones(3)], ["[0]: dtype f32 → f64"]),
        ([1.0], [jnp.float32(1)], ["[0]: dtype f32~ → f32"]),
        (["a"], ["b"], []),
        (["a"], [1], ["[0]: type str → i32~[]"]),
        (Block(1.0), Block(1.0, name="t"), ["root: static ('relu',) → ('t',)"]),
        (
            Block(1.0, name=np.ones(2)),
            Block(1.0, name=np.ones(2)),
            ["root: static (array([1., 1.]),) → (array([1., 1.]),)"],
        ),
        ([Point(1, 2)], [Point(1, 2.0)], ["[0].y: dtype i32~ → f32~"]),
    ],
)  # fmt: skip
def test_says_each_difference_once(first, second, said):
    assert [str(difference) for difference in see.tree(first, second).differences] == said


def test_what_only_one_tree_has_leaves_a_place_in_the_other():
    picture = see.tree({"a": 1, "c": 3}, {"a": 1, "b": {"x": 2}, "c": 3})
    first, second = str(picture).split("second tree")[:2]
    assert first.index("['a']") < first.index("['b']  missing") < first.index("['c']")
    assert "['x']" in second and "['x']" not in first
    assert picture.other and (len(picture.leaves), len(picture.other.leaves)) == (2, 3)
    panes = BeautifulSoup(picture.html(), "html.parser").select(".see-pane")
    lit = [{line["data-e"] for line in pane.select("[data-e]")} for pane in panes]
    assert len(lit) == 2 and lit[0] < lit[1]


def test_values_are_neither_shown_nor_kept():
    class Thing:
        pass

    thing, array = Thing(), jnp.full(3, 123.0)
    picture = see.tree([thing, array, "secret"], [thing, array, "other"])
    assert "123" not in str(picture) and "secret" not in picture.html()
    held = weakref.ref(thing)
    del thing
    gc.collect()
    assert held() is None


def test_tracers_are_drawn_inside_a_transformation():
    seen = []

    def f(tree):
        seen.append(see.tree(tree))
        return jnp.sum(tree["w"] ** 2)

    tree = {"w": jnp.ones((2, 3)), "n": None}
    with jax.checking_leaks():
        jax.jit(jax.grad(f))(tree)
    jax.vmap(f)(tree)
    assert [picture.leaves[0].shape for picture in seen] == [(2, 3), (3,)]
    assert all("Tracer" in str(picture) for picture in seen)


def test_a_shape_that_is_not_known_has_no_size():
    (n,) = jax.export.symbolic_shape("n")
    (leaf,) = see.tree(jax.ShapeDtypeStruct((n, 3), jnp.float32)).leaves
    assert str(leaf) == "f32[n,3]" and leaf.bytes is None
    assert "1 of unknown size" in str(see.tree("text"))


def test_sharding_does_not_count_twice():
    mesh = jax.make_mesh((jax.device_count(),), ("d",))
    everywhere = jax.device_put(jnp.ones(8), jax.NamedSharding(mesh, jax.P()))
    assert see.tree(everywhere).bytes == 32
    gone = jnp.ones(8)
    jax.jit(lambda x: x + 1, donate_argnums=0)(gone)
    assert gone.is_deleted() and see.tree(gone).bytes == 32


def test_static_fields_are_named_though_they_are_no_leaves():
    text = str(see.tree([Block(1.0, name="gelu"), Block(1.0, name=Unspeakable())]))
    assert "static ('gelu',)" in text and len(see.tree(Block(1.0)).leaves) == 1
    assert "static" not in str(see.tree([Keyless(1), Point(1, 2), {"a": 1}]))


def test_many_leaves_are_quick_and_folded():
    layers = {f"layer{i}": {"w": 1.0, "b": 2.0} for i in range(1000)}
    others = {key: {"w": 1.0, "b": 2} for key in layers}
    begin = time.perf_counter()
    picture = see.tree(layers)
    page, both = picture.html(), see.tree(layers, others)
    compared = both.html()
    assert time.perf_counter() - begin < 20
    assert len(picture.leaves) == 2000 and len(both.differences) == 1000
    assert "<details>" in page and "more in leaves" in page
    assert "940 more in differences" in compared and len(compared) < 1_000_000
    deep: Any = 1.0
    for _ in range(400):
        deep = [deep]
    assert len(see.tree(deep, [deep]).differences) == 1


@pytest.mark.parametrize("bad", [{1: 0, "a": 0}, {"ok": [{None: 0, "a": 0}]}])
def test_a_tree_that_jax_cannot_flatten_is_refused_with_its_place(bad):
    with pytest.raises(ValueError, match=r"see\.tree: JAX cannot flatten the dict at .*'<' not"):
        see.tree([bad])


def test_three_trees_are_refused():
    with pytest.raises(TypeError, match=r"one tree or two, got 3"):
        see.tree(1, 2, 3)
