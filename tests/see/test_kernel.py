"""`see.kernel` beside kernels that write down themselves who had which element, and when."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bs4 import BeautifulSoup
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

from seejax import see
from seejax.see import _kernel


@pytest.fixture(autouse=True)
def plain_numpy():
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def struct(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


# grid, shape of the array, shape of a block, index map
MAPS = {
    "in order": ((4,), (8,), (2,), lambda i: (i,)),
    "reversed": ((4,), (8,), (2,), lambda i: (3 - i,)),
    "a constant": ((4,), (8,), (8,), lambda i: (0,)),
    "the edge": ((3,), (7,), (3,), lambda i: (i,)),
    "edges of both axes": ((2, 3), (3, 7), (2, 3), lambda i, j: (i, j)),
    "transposed": ((2, 3), (6, 4), (2, 2), lambda i, j: (j, i)),
    "the last axis first": ((3, 2), (4, 9), (2, 3), lambda i, j: (j, i)),
    "three axes, two used": ((2, 3, 2), (4, 4), (2, 2), lambda i, j, k: (i, k)),
    "squeezed": ((3, 2), (3, 4), (None, 2), lambda i, j: (i, j)),
    "squeezed, in front and behind": ((2, 2), (2, 6, 2), (None, 3, None), lambda i, j: (i, j, 1)),
    "every other block": ((2,), (8,), (2,), lambda i: (2 * i,)),
    "a remainder": ((5,), (6,), (2,), lambda i: ((i + 1) % 3,)),
    "halves": ((6,), (6,), (2,), lambda i: (i // 2,)),
    "a choice": ((4,), (8,), (2,), lambda i: (jnp.where(i < 2, i + 2, i - 2),)),
    "three dimensions": ((2, 2), (4, 2, 3), (2, 1, 3), lambda i, j: (i, j, 0)),
    "no grid": ((), (3, 2), (3, 2), lambda: (0, 0)),
}


def stepped(grid):
    """A number for each program, in order, as the kernel itself counts."""
    number = 0
    for axis, size in enumerate(grid):
        number = number * size + pl.program_id(axis)
    return number


@pytest.mark.parametrize("name", MAPS)
def test_a_kernel_that_signs_its_block_wrote_where_the_picture_says(name):
    """Each program signs its block with its number; the last one to sign stays."""
    grid, shape, block, index_map = MAPS[name]

    def sign(o_ref):
        o_ref[...] = jnp.full(o_ref.shape, stepped(grid), "int32")

    spec = pl.BlockSpec(block, index_map)
    out = struct(*shape, dtype="int32")
    f = pl.pallas_call(sign, out, grid=grid, out_specs=spec, interpret=True)
    (operand,) = see.kernel(f).launches[0].operands
    expected = np.full(shape, np.iinfo("int32").min)  # what nobody signs
    for number, index in enumerate(operand.blocks):
        expected[tuple(slice(start, stop) for start, stop in index)] = number
    assert (np.asarray(f()) == expected).all()
    assert operand.role == "result" and operand.ref == "o_ref" and operand.shape == shape
    unsigned = (expected == np.iinfo("int32").min).any()
    assert (_kernel._NOBODY in operand.problems) == unsigned


@pytest.mark.parametrize("name", MAPS)
def test_a_kernel_read_what_the_picture_says(name):
    """Each program sums the numbers of the elements that it was given."""
    grid, shape, block, index_map = MAPS[name]
    n = math.prod(grid)
    x = jnp.arange(1.0, 1.0 + math.prod(shape)).reshape(shape) ** 2

    def total(x_ref, o_ref):
        x = x_ref[...]
        o_ref[...] = jnp.where(jnp.isnan(x), 0.0, x).sum().reshape(1)  # NaN: past the end

    def at(*ids):
        return (sum(p * math.prod(grid[axis + 1 :]) for axis, p in enumerate(ids)),)

    f = pl.pallas_call(
        total,
        struct(n),
        grid=grid,
        in_specs=[pl.BlockSpec(block, index_map)],
        out_specs=pl.BlockSpec((1,), at),
        interpret=True,
    )
    given, written = see.kernel(f, x).launches[0].operands
    expected = [x[tuple(slice(*cut) for cut in index)].sum() for index in given.blocks]
    assert np.allclose(f(x), expected)
    assert given.role == "argument" and written.blocks == tuple(((i, i + 1),) for i in range(n))


@pytest.mark.parametrize("grid", [(), (3,), (2, 3), (2, 1, 3)])
def test_the_order_is_that_of_the_program_ids(grid):
    """A kernel appends its ids to a list in memory that all programs share."""
    n = math.prod(grid)

    def record(o_ref):
        ids = [pl.program_id(axis) for axis in range(len(grid))]
        row = jnp.stack([*ids, jnp.int32(7)])
        o_ref[pl.ds(stepped(grid), 1), :] = row[None].astype("int32")

    f = pl.pallas_call(record, struct(n, len(grid) + 1, dtype="int32"), grid=grid, interpret=True)
    assert [tuple(row[:-1]) for row in np.asarray(f()).tolist()] == list(
        see.kernel(f).launches[0].programs
    )


def test_the_interpreter_for_tpus_visits_the_grid_in_this_order():
    seen = []

    def noted(token, point, core):
        seen.append(tuple(map(int, point)))
        return token

    def copy(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    spec = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    params = pltpu.InterpretParams(grid_point_recorder=noted)
    x = jnp.ones((4, 8))
    f = pl.pallas_call(copy, x, grid=(2, 2), in_specs=[spec], out_specs=spec, interpret=params)
    jax.block_until_ready(f(x))
    assert tuple(dict.fromkeys(seen)) == see.kernel(f, x).launches[0].programs


def test_an_element_map_with_padding_starts_outside():
    def total(x_ref, o_ref):
        x = x_ref[...]
        o_ref[...] = jnp.where(jnp.isnan(x), 0.0, x).sum().reshape(1)

    window = pl.BlockSpec((pl.Element(3, padding=(1, 1)),), lambda i: (i,))
    f = pl.pallas_call(
        total,
        struct(6),
        grid=6,
        in_specs=[window],
        out_specs=pl.BlockSpec((1,), lambda i: (i,)),
        interpret=True,
    )
    x = jnp.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    picture = see.kernel(f, x)
    blocks = picture.launches[0].operands[0].blocks
    assert blocks == tuple(((i - 1, i + 2),) for i in range(6))
    assert np.allclose(f(x), [x[max(0, a) : b].sum() for ((a, b),) in blocks])
    assert "-1:2 reaches outside of 0:6" in str(picture)


def add(x_ref, y_ref, o_ref):
    o_ref[...] = x_ref[...] + y_ref[...]


def vectors(n=8, block=2, **options):
    spec = pl.BlockSpec((block,), lambda i: (i,))
    options = {"grid": -(-n // block), "interpret": True} | options
    return pl.pallas_call(add, struct(n), in_specs=[spec, spec], out_specs=spec, **options)


X = jnp.arange(8.0)


def with_rule(x):
    f = jax.custom_vjp(lambda x: vectors()(x, x))
    f.defvjp(lambda x: (vectors()(x, x), None), lambda _, g: (vectors()(g, g),))
    return f(x)


NESTED = {
    "plain": (lambda x: vectors()(x, x), 1),
    "jit": (jax.jit(lambda x: vectors()(x, x)), 1),
    "jit in jit": (jax.jit(jax.jit(lambda x: vectors()(x, x) + 1)), 1),
    "partial": (functools.partial(vectors(), X), 1),
    "custom_vjp": (with_rule, 1),
    "its gradient": (jax.grad(lambda x: with_rule(x).sum()), 2),
    "cond": (lambda x: jax.lax.cond(x[0] > 0, lambda x: vectors()(x, x), jnp.sin, x), 1),
    "scan": (lambda x: jax.lax.scan(lambda c, _: (vectors()(c, c), None), x, length=3)[0], 1),
    "checkpoint": (jax.checkpoint(lambda x: vectors()(x, x)), 1),
    "twice": (lambda x: vectors()(vectors(block=4)(x, x), x), 2),
    "shapes": (lambda x: jax.eval_shape(lambda: None) or vectors()(x, x), 1),
}


@pytest.mark.parametrize("name", NESTED)
def test_it_is_found_wherever_it_is_nested(name):
    f, n = NESTED[name]
    for x in X, struct(8):
        picture = see.kernel(f, x)
        assert len(picture.launches) == n and {each.name for each in picture.launches} == {"add"}
        assert [o.ref for o in picture.launches[-1].operands] == ["x_ref", "y_ref", "o_ref"]
    assert (f"{n} kernels" in str(picture).splitlines()[0]) == (n > 1)


def test_kernels_that_jax_ships_are_drawn():
    """Attention and a product of matrices for TPUs, by their own rules; nothing runs."""
    q = struct(2, 3, 256, 128)
    (launch,) = see.kernel(flash_attention, q, q, q).launches
    queries, keys, values, result = launch.operands
    assert launch.grid == (2, 3, 2, 2) and not see.kernel(flash_attention, q, q, q).doubt
    for (batch, head, i, k), a, b in zip(launch.programs, queries.blocks, keys.blocks, strict=True):
        at = ((batch, batch + 1), (head, head + 1))
        assert a == (*at, (128 * i, 128 * (i + 1)), (0, 128))
        assert b == (*at, (128 * k, 128 * (k + 1)), (0, 128))
    assert (queries.blocks, keys.blocks) == (result.blocks, values.blocks)
    loss = jax.grad(lambda q: flash_attention(q, q, q).sum())
    assert len(see.kernel(loss, q).launches) == 3


def test_vmap_adds_an_axis_in_front():
    picture = see.kernel(jax.vmap(vectors(), (0, None)), jnp.ones((5, 8)), X)
    (launch,) = picture.launches
    assert launch.grid == (5, 4) and launch.parallel == (False, False)
    batched, shared, result = launch.operands
    assert batched.block == result.block == (None, 2) and shared.block == (2,)
    assert batched.blocks[6] == ((1, 2), (4, 6)) and shared.blocks[6] == ((4, 6),)


def summed(semantics, pieces=1, apart=False, interpret=True):
    """Sums four rows; each program adds a piece of a row to a piece of the result."""

    def body(x_ref, o_ref):
        @pl.when(pl.program_id(0 if apart else 1) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    grid = (4, pieces) if apart else (pieces, 4)
    return pl.pallas_call(
        body,
        struct(1, 4 * pieces),
        grid=grid,
        in_specs=[pl.BlockSpec((1, 4), lambda *ids: ids if apart else ids[::-1])],
        out_specs=pl.BlockSpec((1, 4), lambda *ids: (0, ids[1 if apart else 0])),
        compiler_params=pltpu.CompilerParams(dimension_semantics=semantics) if semantics else None,
        interpret=interpret,
    )


def refused(f, x):
    try:
        return str(jax.block_until_ready(f(x)))[:0]
    except Exception as error:
        return str(error)
    finally:
        pltpu.reset_tpu_interpret_mode_state()


def test_what_goes_wrong_is_what_the_interpreter_for_tpus_refuses(capfd):
    """Two simulated cores, with the race detector, against the sentences of the picture."""
    x = jnp.arange(16.0).reshape(4, 4)
    params = pltpu.InterpretParams(detect_races=True, num_cores_or_threads=2)
    cases = {
        None: (),
        ("arbitrary", "arbitrary"): (),
        ("parallel", "arbitrary"): (),
        ("parallel", "parallel"): (_kernel._AT_ONCE,),
    }
    for semantics, problems in cases.items():
        f = summed(semantics, interpret=params)
        assert see.kernel(f, x).launches[0].operands[1].problems == problems
        capfd.readouterr()
        said = refused(f, x) + "".join(capfd.readouterr())  # JAX 0.10 prints, and goes on
        assert ("RACE DETECTED" in said) == bool(problems), (semantics, said)
        if not problems:
            assert np.allclose(summed(semantics)(x), x.sum(0))
    x = jnp.arange(32.0).reshape(4, 8)
    apart = summed(None, 2, apart=True, interpret=pltpu.InterpretParams())
    assert see.kernel(apart, x).launches[0].operands[1].problems == (_kernel._AGAIN,)
    assert "Revisited block" in refused(apart, x)
    assert str(see.kernel(apart, x)).splitlines()[1] == f"! {_kernel._AGAIN}"


def test_a_block_outside_is_said_and_the_interpreter_for_tpus_raises():
    def copy(x_ref, o_ref):
        o_ref[...] = x_ref[...]

    spec, offset = pl.BlockSpec((2,), lambda i: (i,)), pl.BlockSpec((2,), lambda i: (2 * i,))

    def made(interpret):
        return pl.pallas_call(
            copy, X, grid=4, in_specs=[offset], out_specs=spec, interpret=interpret
        )

    picture = see.kernel(made(True), X)
    assert picture.launches[0].operands[0].problems == (_kernel._OUTSIDE,)
    assert picture.launches[0].operands[1].problems == ()
    assert "Out-of-bounds" in refused(made(pltpu.InterpretParams()), X)
    assert not see.kernel(vectors(n=7, block=3), struct(7), struct(7)).doubt  # an edge is none


def test_memory_that_a_kernel_gets_whole():
    def body(x_hbm, o_ref, scratch):
        o_ref[...] = o_ref[...]

    f = pl.pallas_call(
        body,
        struct(8),
        grid=4,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((2,), lambda i: (i,)),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)],
        interpret=True,
    )
    (launch,) = see.kernel(f, X).launches
    whole, result = launch.operands
    assert (whole.space, result.space) == ("any", "") and launch.scratch == ("f32[8,128]",)
    assert whole.blocks == (((0, 8),),) * 4 and "scratch f32[8,128]" in str(see.kernel(f, X))


def test_refs_of_a_dict_have_its_keys():
    def body(p, o):
        o[...] = p["a"][...] + p["b"][...]

    f = pl.pallas_call(body, struct(8), interpret=True)
    assert [o.ref for o in see.kernel(f, {"a": X, "b": X}).launches[0].operands][:2] == [
        "p['a']",
        "p['b']",
    ]


def test_a_matrix_is_drawn_as_it_lies_and_its_blocks_light_up_with_their_programs():
    spec = pl.BlockSpec((2, 4), lambda i, j: (j, i))
    f = pl.pallas_call(add, struct(4, 8), grid=(2, 2), in_specs=[spec] * 2, out_specs=spec)
    picture = see.kernel(f, struct(4, 8), struct(4, 8))
    drawn = re.findall(r"x_ref  argument.*\n(.*)\n(.*)\n(.*)", str(picture))[0]
    assert [line.split() for line in drawn] == [
        ["0:4", "4:8"],
        ["0:2", "0", "2"],
        ["2:4", "1", "3"],
    ]
    blocks, programs = BeautifulSoup(picture.html(), "html.parser").select(".see-pane")
    for number, line in enumerate(programs.select("[data-e]")):
        lit = [tag.text.strip() for tag in blocks.select(f'span[data-e="{line["data-e"]}"]')]
        assert lit == [str(number)] * 3
    lines = [tag["data-e"] for tag in blocks.select(".see-l[data-e]")]
    assert len(set(lines)) == len(lines) == 6 and all(n.startswith("-") for n in lines)


def test_a_wide_array_or_one_of_three_axes_is_a_list():
    wide = see.kernel(vectors(2048, 32), struct(2048), struct(2048))
    assert len(re.findall(r"^ *\d+:\d+ ", str(wide), re.M)) == 3 * 64
    spec = pl.BlockSpec((1, 512), lambda i, j: (i, j))
    f = pl.pallas_call(add, struct(2, 8192), grid=(2, 16), in_specs=[spec] * 2, out_specs=spec)
    assert "[1:2,7680:8192]  31" in str(see.kernel(f, *[struct(2, 8192)] * 2))


def test_a_large_grid_makes_no_large_page():
    f = vectors(20_000, 2)
    picture = see.kernel(f, struct(20_000), struct(20_000))
    assert len(picture.launches[0].programs) == 10_000 and len(picture.html()) < 400_000
    assert "more in .programs" in picture.html()


def scalars(index_map):
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=2,
        in_specs=[pl.BlockSpec((2,), index_map)],
        out_specs=pl.BlockSpec((2,), lambda i, s: (i,)),
    )

    def body(s_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...]

    return pl.pallas_call(body, struct(4), grid_spec=spec, interpret=True)


def test_prefetched_scalars_are_refused_only_where_an_index_map_reads_them():
    s, x = jnp.array([1, 0]), jnp.arange(4.0)
    with pytest.raises(ValueError, match="the index map of x_ref reads prefetched scalars"):
        see.kernel(scalars(lambda i, s: (s[i],)), s, x)
    first, _ = see.kernel(scalars(lambda i, s: (1 - i,)), s, x).launches[0].operands
    assert first.ref == "x_ref" and first.blocks == (((2, 4),), ((0, 2),))


@jax.jit
def grid_by_value(n, x):
    spec = pl.BlockSpec((2,), lambda i: (i,))
    call = pl.pallas_call(add, x, grid=(n,), in_specs=[spec, spec], out_specs=spec, interpret=True)
    return call(x, x)


BAD = {
    "no function": (TypeError, "see.kernel needs a function, got int", (3,)),
    "no kernel": (ValueError, "sin contains no pallas_call", (jnp.sin, X)),
    "grid": (ValueError, "the grid of add is known only when it runs", (grid_by_value, 2, X)),
    "large": (ValueError, "has 20,000 programs; draw", (vectors(20_000, 1), *[struct(20_000)] * 2)),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_one_sentence(name):
    kind, said, args = BAD[name]
    with pytest.raises(kind, match=said) as error:
        see.kernel(*args)
    assert "\n" not in str(error.value) and len(str(error.value)) < 150


def test_an_error_of_f_is_its_own():
    def broken(x):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        see.kernel(broken, X)
    with jax.numpy_rank_promotion("raise"):
        see.kernel(vectors(), X, X)


def test_inside_a_trace_it_draws_too():
    seen = []

    def f(x):
        seen.append(see.kernel(vectors(), x, x).launches[0].grid)
        return x

    jax.jit(f)(X), jax.vmap(f)(jnp.ones((2, 8))), jax.grad(lambda x: f(x).sum())(X)
    assert seen == [(4,)] * 3
