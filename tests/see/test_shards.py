"""`see.shards` against the shards that JAX itself holds, another drawing, and models of others."""

import itertools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bs4 import BeautifulSoup
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding

from seejax import see
from seejax.training import parallel

MESHES = {
    "row": ((8,), ("d",)),
    "grid": ((4, 2), ("x", "y")),
    "cube": ((2, 2, 2), ("a", "b", "c")),
    "one": ((1,), ("o",)),
}


def mesh(name: str, kind: AxisType = AxisType.Explicit) -> Mesh:
    shape, names = MESHES[name]
    devices = jax.devices()[: int(np.prod(shape))]
    return jax.make_mesh(shape, names, (kind,) * len(names), devices=devices)


def place(shape: tuple[int, ...], name: str, *spec, kind=AxisType.Explicit) -> jax.Array:
    array = jnp.arange(np.prod(shape), dtype="float32").reshape(shape)
    return jax.device_put(array, NamedSharding(mesh(name, kind), jax.P(*spec)))


def held(x: jax.Array) -> dict[int, tuple[np.ndarray, int]]:
    """What each device holds by JAX's own word: values and bytes."""
    return {s.device.id: (np.asarray(s.data), s.data.nbytes) for s in x.addressable_shards}


def agrees(layout: see.Layout, x: jax.Array) -> bool:
    told = {}
    for block in layout.blocks:
        part = np.asarray(x)[tuple(slice(*cut) for cut in block.index)]
        for device in block.devices:
            assert device not in told  # no device holds two blocks
            told[device] = (part, block.bytes)
    real = held(x)
    assert told.keys() == real.keys()
    return all(np.array_equal(told[d][0], real[d][0]) and told[d][1] == real[d][1] for d in told)


CASES = [
    ((8,), "row", "d"),
    ((16, 8), "row", None, "d"),
    ((8, 4), "grid", "x", "y"),
    ((8, 4), "grid", "y", "x"),
    ((8, 4), "grid", "y"),
    ((8, 4), "grid", ("x", "y")),
    ((8, 4), "grid", ("y", "x")),
    ((8, 4), "grid"),
    ((2, 4, 6), "cube", "a", "b", "c"),
    ((2, 4, 6), "cube", None, None, "b"),
    ((2, 4, 6, 8), "cube", "c", None, "a"),
    ((), "grid"),
    ((0, 4), "grid", "x"),
    ((1, 1), "one", "o"),
    ((400, 2), "row", "d"),
]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("case", CASES)
def test_each_block_is_what_the_device_holds(case, kind):
    shape, name, *spec = case
    x = place(shape, name, *spec, kind=kind)
    picture = see.shards(x)
    (layout,) = picture.arrays
    assert agrees(layout, x) and layout.shape == shape
    assert picture.bytes == {device: nbytes for device, (_, nbytes) in held(x).items()}
    assert layout.devices == tuple(sorted(d.id for d in x.devices()))
    assert layout.mesh == tuple(zip(MESHES[name][1], MESHES[name][0], strict=True))
    assert eval(layout.spec, {"P": jax.P}) == x.sharding.spec
    assert f"{layout.type} {layout.spec}" in str(picture) and layout.spec in soup(picture).text


def soup(picture) -> BeautifulSoup:
    return BeautifulSoup(picture.html(), "html.parser")


def drawn(text: str) -> list[list[str]]:
    """The grid of a printed matrix, read back: the numbers in each cell."""
    rows = text.split("who holds what\n")[1].splitlines()[2:]
    return [re.split(r"\s{2,}", row.strip())[1:] for row in rows]


def test_a_matrix_is_drawn_as_its_mesh_lies():
    """The mesh's own array of devices is the picture, turned where the axes are."""
    ids = np.vectorize(lambda d: str(d.id))(mesh("grid").devices)
    assert drawn(str(see.shards(place((8, 4), "grid", "x", "y")))) == ids.tolist()
    assert drawn(str(see.shards(place((8, 4), "grid", "y", "x")))) == ids.T.tolist()
    rows = [[" ".join(column)] for column in ids.T]
    assert drawn(str(see.shards(place((8, 4), "grid", "y")))) == rows


def test_a_cell_lights_its_devices_and_shows_them():
    cells = soup(see.shards(place((8, 4), "grid", "y"), place((8, 4), "grid", "x"))).select(
        ".see-block"
    )
    told = [cell["data-e"].split() for cell in cells]
    assert [sorted(each) for each in told] == [re.findall(r"\d", cell.text) for cell in cells]
    assert sorted(itertools.chain(*told)) == sorted("01234567" * 2)
    lines = soup(see.shards(place((8,), "row", "d"))).select("[data-g]")
    assert [line["tabindex"] for line in lines] == ["0", *["-1"] * 7]


def test_what_a_phone_has_no_room_for_is_a_list():
    assert "0–7" in str(see.shards(place((8, 4), "grid")))
    small = see.shards(place((2, 8), "row", None, "d"))
    assert str(small).splitlines()[4].split() == [f"{i}:" for i in range(8)]
    large = str(see.shards(place((2, 8192), "row", None, "d")))
    assert (
        "[:, 3072:4096]  3" in large
        and "[:, 0:1024]     0" in large
        and len(large.splitlines()) == 3 + 1 + 8
    )
    deep = str(see.shards(place((2, 4, 6), "cube", "a", None, "b")))
    assert "[0:1, :, 0:3]" in deep and "[1:2, :, 3:6]" in deep
    for text in large, deep, str(small):
        assert max(map(len, text.splitlines()[1:])) <= 44


def test_other_shardings_and_places():
    one = see.shards(jax.device_put(jnp.ones((2, 3)), jax.devices()[5]))
    assert one.arrays[0].spec == "SingleDeviceSharding" and one.bytes == {5: 24}
    mapped = jax.pmap(lambda x: x + 1)(jnp.ones((8, 2)))
    assert agrees(see.shards(mapped).arrays[0], mapped)
    host = see.shards({"a": np.ones(3), "b": 2.0, "c": np.float32(1), "d": True})
    assert {array.place for array in host.arrays} == {"host"} and not host.bytes
    assert "4 on the host" in str(host) and "on the host" in str(see.shards(np.ones(3)))
    apart = see.shards(jax.device_put(jnp.ones(8), jax.memory.Space.Host))
    assert apart.arrays[0].spec.endswith("pinned_host")
    keys = jax.device_put(
        jax.random.split(jax.random.key(0), 8), NamedSharding(mesh("row"), jax.P("d"))
    )
    assert see.shards(keys).arrays[0].blocks[3].devices == (3,)


def test_a_plan_is_drawn_like_the_array():
    x = place((8, 4), "grid", "x", "y")
    plan = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
    assert see.shards(plan).arrays == see.shards(x).arrays
    nowhere = see.shards(jax.ShapeDtypeStruct((8, 4), "float32"))
    assert nowhere.arrays[0].place == "unknown" and "unknown" in str(nowhere)
    abstract = jax.NamedSharding(mesh("grid").abstract_mesh, jax.P("x"))
    planned = see.shards(jax.ShapeDtypeStruct((8, 4), "float32", sharding=abstract))
    assert planned.arrays[0].place == "unknown" and not planned.bytes


def test_a_tracer_is_unknown_and_nothing_is_computed():
    x, seen = place((8, 4), "grid", "x", "y"), []
    jax.jit(lambda a: seen.append(see.shards({"a": a, "x": x})) or a)(x)
    assert [array.place for array in seen[0].arrays] == ["unknown", "devices"]
    assert "1 unknown" in str(seen[0])
    doubled = jax.grad(lambda a: seen.append(see.shards(a)) or (a * a).sum())
    with jax.set_mesh(x.sharding.mesh):
        doubled(x)
    assert seen[1].arrays[0].place == "unknown"
    with jax.transfer_guard("disallow"), jax.no_tracing():
        picture = see.shards(x)
    before = str(picture)
    x.delete()
    assert str(picture) == before  # it keeps no array


def test_devices_of_other_processes_are_said(monkeypatch):
    x = place((8, 4), "grid", "x")
    assert not see.shards(x).doubt
    monkeypatch.setattr(jax, "process_index", lambda: 1)  # and all devices are those of process 0
    picture = see.shards(x)
    assert picture.arrays[0].blocks[0].elsewhere == (0, 1)
    assert "8 devices of other processes, in brackets" in str(picture)
    assert "(0) (1)" in str(picture) and "8 个设备属于其他进程" in picture.html()


def test_trees_of_flax_and_optax():
    variables = nn.Dense(16).init(jax.random.key(0), jnp.ones((1, 8)))
    state = optax.adam(0.1).init(variables)
    placed = parallel.replicate({"v": variables, "s": state}, parallel.mesh())
    picture = see.shards(placed)
    leaves = jax.tree_util.tree_leaves_with_path(placed)
    assert [a.path for a in picture.arrays] == [jax.tree_util.keystr(p) for p, _ in leaves]
    assert all(agrees(a, x) for a, (_, x) in zip(picture.arrays, leaves, strict=True))
    total = sum(x.nbytes for _, x in leaves)
    assert picture.bytes == dict.fromkeys(range(8), total)
    module = nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    assert [array.type for array in see.shards(module).arrays] == ["f32[3]", "f32[2,3]"]
    rows = soup(see.shards(variables, placed)).select("tbody tr")
    assert len(rows) == 2 + len(leaves)
    assert "more in arrays" not in str(see.shards([1.0] * 60))
    assert "… 5 more in arrays" in str(see.shards([1.0] * 65))
    assert str(see.shards([])).startswith("list: 0 arrays")


def test_before_and_after():
    whole, cut = jnp.ones((8, 2)), place((8, 2), "row", "d")
    picture = see.shards(whole, cut)
    assert picture.other.arrays[0].spec == "P('d')" and len(picture.arrays[0].blocks) == 1
    panes = [title.select_one("[lang=en]").text for title in soup(picture).select(".see-title")]
    assert panes == ["before", "after"]
    assert picture.name == "f32[8,2] SingleDeviceSharding → P('d')"
    assert see.shards(cut, jnp.ones(3)).name == "f32[8,2] P('d') → f32[3] SingleDeviceSharding"
    mixed = see.shards({"a": whole}, cut)
    assert [c.select_one("[lang=en]").text for c in soup(mixed).select("caption")] == panes
    back = see.shards(cut, np.asarray(cut))
    assert back.other.arrays[0].place == "host" and "on the host" in str(back)


def test_everything_is_escaped():
    odd = jax.make_mesh((8,), ("<b>",))
    x = jax.device_put(jnp.ones(8), NamedSharding(odd, jax.P("<b>")))
    page = soup(see.shards({"<i>": x}, x)).decode() + soup(see.shards(x)).decode()
    assert "<b>" not in page and "<i>" not in page and "&lt;b&gt;" in page


@pytest.mark.parametrize("bad", ["text", b"bytes", len, object(), {"a": "text"}])
def test_what_is_no_array_is_refused_in_one_sentence(bad):
    with pytest.raises(TypeError, match=r"^see\.shards: .*not an array$") as error:
        see.shards(bad)
    assert "\n" not in str(error.value)


def test_three_are_too_many():
    with pytest.raises(TypeError, match="one tree or two, got 3"):
        see.shards(1.0, 2.0, 3.0)
    with pytest.raises(TypeError):
        see.shards()


def test_what_was_donated_lies_nowhere():
    given = jax.device_put(jnp.ones(8), jax.NamedSharding(jax.make_mesh((8,), ("d",)), jax.P("d")))
    taken = jax.jit(lambda x: x + 1, donate_argnums=0)(given)
    picture = see.shards([given, taken])
    assert given.is_deleted() and [array.place for array in picture.arrays] == [
        "deleted",
        "devices",
    ]
    assert picture.bytes == dict.fromkeys(range(8), 4) and "1 deleted" in str(picture)
    assert "已删除" in see.shards(given)._repr_html_()


@pytest.mark.skipif(not hasattr(jax.P(), "unreduced"), reason="no unreduced axes yet")
def test_partial_sums_are_no_copies():
    mesh = jax.make_mesh((8,), ("d",))
    put = lambda x, *spec: jax.device_put(x, jax.NamedSharding(mesh, jax.P(*spec)))  # noqa: E731
    x, w = put(jnp.ones((4, 16)), None, "d"), put(jnp.ones((16, 2)), "d")
    with jax.set_mesh(mesh):
        out = jax.P(None, None, unreduced={"d"})
        sums = jax.jit(lambda x, w: jnp.matmul(x, w, out_sharding=out))(x, w)
    layout = see.shards(sums).arrays[0]
    assert layout.place == "unknown" and "unreduced={'d'}" in layout.spec and not layout.blocks
