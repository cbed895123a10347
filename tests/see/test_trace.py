"""`see.trace` against other ways to know: JAX's own MLIR locations, the HLO of the plain jit, and
what each line spells."""

import functools
import importlib
import linecache
import os
import re
import subprocess
import sys
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import jax.scipy
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from seejax import see
from seejax.see import _hlo, _html, _jax_private, _match_hlo, _stablehlo

X = jnp.linspace(0.1, 0.9, 4)
Y = jnp.array([0.2, 0.3, 0.4, 0.1])
W = jnp.arange(12.0).reshape(4, 3) / 12


# --- functions like those of the pages


def loss(w, x, y):
    h = jnp.tanh(x @ w)
    return jnp.mean((h - y) ** 2)


def helper(x):
    return jnp.exp(x)


def calls_a_helper_twice(x):
    a = helper(x)
    b = helper(2 * x)
    return a + b


@jax.jit
def jitted_helper(x):
    y = jnp.sin(x)
    return jnp.cos(y)


def calls_a_jitted_helper_twice(x):
    a = jitted_helper(x)
    b = jitted_helper(a)
    return a * b


def loops(x):
    def step(carry, t):
        carry = carry + jnp.sin(t)
        return carry, carry * 2

    total, ys = jax.lax.scan(step, 0.0, x)
    small = jax.lax.while_loop(lambda c: c > 1, lambda c: c / 3, total)
    return jnp.where(ys > 1, small, ys)


def branches(x):
    return jax.lax.cond(
        x.sum() > 0,
        lambda x: jnp.sin(x),
        lambda x: jnp.cos(x),
        x,
    )


@jax.custom_jvp
def log1pexp(x):
    return jnp.log(1.0 + jnp.exp(x))


@log1pexp.defjvp
def log1pexp_jvp(primals, tangents):
    (x,), (x_dot,) = primals, tangents
    scale = 1 - 1 / (1 + jnp.exp(x))
    return log1pexp(x), scale * x_dot


@jax.custom_vjp
def clipped(x):
    return jnp.tanh(x)


def clipped_fwd(x):
    return clipped(x), x


def clipped_bwd(x, g):
    limit = jnp.minimum(g, 1.0)
    return (limit * x,)


clipped.defvjp(clipped_fwd, clipped_bwd)


@functools.partial(jax.checkpoint, prevent_cse=False)
def block(x):
    y = jnp.sin(x)
    return jnp.sin(y)


def 多行(x):
    # 中文在前，列仍然要对
    y = "正弦" and jnp.sin(x) * 2
    return (
        y
        + jnp.cos(x)
    )  # fmt: skip


PAGES = {
    "loss": (loss, (W, X @ jnp.eye(4), jnp.ones(3))),
    "grad": (jax.grad(loss), (W, X @ jnp.eye(4), jnp.ones(3))),
    "vmap": (jax.vmap(loss, (None, 0, None)), (W, jnp.eye(4), jnp.ones(3))),
    "helper": (calls_a_helper_twice, (X,)),
    "jitted helper": (calls_a_jitted_helper_twice, (X,)),
    "loops": (loops, (X,)),
    "branches": (branches, (X,)),
    "custom_jvp": (jax.grad(log1pexp), (1.0,)),
    "custom_vjp": (jax.grad(lambda x: clipped(x).sum()), (X,)),
    "remat": (jax.grad(lambda x: block(x).sum()), (X,)),
    "columns": (多行, (X,)),
}

# --- functions nobody here wrote

Q = jnp.linspace(0, 1, 48).reshape(2, 3, 2, 4)
NORM = nn.LayerNorm()
ADAM = optax.scale_by_adam()
FOREIGN = {
    "jax.scipy.special.logsumexp": (jax.scipy.special.logsumexp, (X,)),
    "jax.scipy.special.betaln": (jax.scipy.special.betaln, (X, Y)),
    "jax.scipy.special.entr": (jax.scipy.special.entr, (X,)),
    "jax.scipy.special.xlogy": (jax.scipy.special.xlogy, (X, Y)),
    "jax.scipy.stats.norm.logpdf": (jax.scipy.stats.norm.logpdf, (X, 0.5, 2.0)),
    "jax.scipy.linalg.expm": (jax.scipy.linalg.expm, (jnp.eye(3),)),
    "flax.linen.dot_product_attention": (nn.dot_product_attention, (Q, Q, Q)),
    "flax.linen.LayerNorm": (
        lambda params, x: NORM.apply(params, x),
        (NORM.init(jax.random.key(0), Q), Q),
    ),
    "optax.softmax_cross_entropy_with_integer_labels": (
        optax.softmax_cross_entropy_with_integer_labels,
        (W, jnp.array([0, 1, 1, 2])),
    ),
    "optax.huber_loss": (optax.huber_loss, (X, Y)),
    "optax.cosine_similarity": (optax.cosine_similarity, (X, Y)),
    "optax.sigmoid_focal_loss": (optax.sigmoid_focal_loss, (X, Y)),
    "optax.scale_by_adam": (ADAM.update, ({"w": X}, ADAM.init({"w": X}))),
    "optax.tree.norm": (optax.tree.norm, ({"a": X, "b": Y},)),
    "grad of optax.huber_loss": (jax.grad(lambda x: optax.huber_loss(x, 0.3)), (0.5,)),
}

EVERY = PAGES | FOREIGN


@pytest.fixture(autouse=True)
def promotion_as_others_wrote_for():
    """Flax and Optax are not written for the strict promotion that our own code is tested under."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@functools.cache
def traced(name):
    f, args = EVERY[name]
    return see.trace(f, *args)


def at(picture, primitive):
    """The lines that equations of this primitive point to, in order."""
    return [e.line for e in picture.equations if e.primitive == primitive]


# --- equations → source


def test_each_equation_points_to_the_line_that_wrote_it():
    picture = traced("loss")
    assert [(e.primitive, e.lineno) for e in picture.equations] == [
        ("dot_general", 2),
        ("tanh", 2),
        ("sub", 3),
        ("integer_pow", 3),
        ("reduce_sum", 3),
        ("div", 3),
    ]
    assert picture.equations[1].line == "h = jnp.tanh(x @ w)"
    assert {e.source for e in picture.equations} == {"loss"}
    assert not any(e.backward for e in picture.equations)


def test_backward_equations_point_to_the_forward_line():
    picture = traced("grad")
    backward = [(e.primitive, e.lineno) for e in picture.equations if e.backward]
    assert ("dot_general", 2) in backward  # the gradient of x @ w is a product of the same line
    assert {line for _, line in backward} == {2, 3}
    assert [e.lineno for e in picture.equations if not e.backward] == [2, 2, 2, 3, 3, 3, 3, 3]


def test_a_helper_is_shown_with_its_own_lines():
    picture = traced("helper")
    assert at(picture, "exp") == ["return jnp.exp(x)"] * 2
    assert at(picture, "add") == ["return a + b"]
    assert "def helper(x):" in str(picture)


def test_a_cached_inner_function_of_ours_keeps_its_own_lines():
    jitted_helper(X)  # traced here first, far from the picture
    picture = traced("jitted helper")
    assert at(picture, "sin") == ["y = jnp.sin(x)"] * 2
    assert at(picture, "cos") == ["return jnp.cos(y)"] * 2
    assert at(picture, "jit") == ["a = jitted_helper(x)", "b = jitted_helper(a)"]


def test_a_cached_inner_function_of_jax_points_to_the_line_that_calls_it():
    def earlier(x):
        return jnp.where(x > 0, x, -x)

    def later(x):
        y = x + 1
        return jnp.where(y > 0, y, -y)

    jax.jit(earlier)(X)  # the jaxpr of `where` for this shape now carries the line above
    assert at(see.trace(later, X), "select_n") == ["return jnp.where(y > 0, y, -y)"]


def test_loops_and_branches_point_inside_their_functions():
    picture = traced("loops")
    assert at(picture, "sin") == ["carry = carry + jnp.sin(t)"]
    assert at(picture, "mul") == ["return carry, carry * 2"]
    assert "while_loop" in at(picture, "div")[0]
    picture = traced("branches")
    assert at(picture, "sin") == ["lambda x: jnp.sin(x),"]
    assert at(picture, "cos") == ["lambda x: jnp.cos(x),"]


def test_equations_inside_others_are_backward_with_them():
    picture = see.trace(jax.grad(lambda x: calls_a_jitted_helper_twice(x).sum()), X)
    inside = [e for e in picture.equations if e.depth > 0 and e.backward]
    assert inside
    assert {e.line for e in inside} <= {"y = jnp.sin(x)", "return jnp.cos(y)"}


def test_programs_inside_any_parameter_are_found():
    assert "solve" in at(traced("jax.scipy.linalg.expm"), "triangular_solve")[0]


def test_the_line_of_a_call_covers_what_it_calls():
    picture = traced("loops")
    inside = {str(e.index) for e in picture.equations if e.primitive in ("sin", "mul")}
    line = re.search(
        r'<div class="see-l"[^>]*data-g="([^"]*)"[^>]*>(?:(?!</div>).)*scan', picture.html()
    )
    assert inside <= set(line[1].split())


def test_custom_rules_point_to_the_rule():
    picture = traced("custom_jvp")
    assert "scale = 1 - 1 / (1 + jnp.exp(x))" in at(picture, "exp")
    # JAX keeps no place for a custom backward rule but the forward call that it belongs to.
    picture = traced("custom_vjp")
    assert "clipped(x).sum()" in at(picture, "min")[0]
    assert all(e.backward for e in picture.equations if e.primitive == "min")


def test_the_body_of_a_custom_rule_is_shown_in_a_loop_too():
    def in_a_loop(x):
        return jax.lax.scan(lambda c, _: (clipped(c), None), x, None, length=3)[0]

    def jitted(x):
        return jax.jit(clipped)(x) * 2

    for f in (in_a_loop, jitted):
        for g in (f, jax.grad(f)):
            picture = see.trace(g, 1.0)
            assert set(at(picture, "tanh")) == {"return jnp.tanh(x)"}, g
            assert "def clipped(x):" in str(picture)
        # The rule for going backward has, here as everywhere, the place of the call.
        assert all("clipped" in line for line in at(picture, "min"))


def test_remat_points_to_the_line_it_computes_again():
    picture = traced("remat")
    assert {"y = jnp.sin(x)", "return jnp.sin(y)"} == set(at(picture, "cos"))


def test_columns_count_characters_and_lines_of_one_expression_are_told_apart():
    picture = traced("columns")
    assert at(picture, "cos") == ["+ jnp.cos(x)"]
    page = picture.html()
    spans = re.findall(r'<span data-e="(\d+)"[^>]*>([^<]*)</span>', page)
    assert ("0", "jnp.sin(x)") in spans


def test_what_a_wrapper_does_points_to_the_definition():
    picture = traced("jax.scipy.special.xlogy")
    assert picture.equations[0].primitive == "custom_jvp_call"
    assert picture.equations[0].lineno == 1


def test_steps_into_a_function_that_does_all_the_work():
    picture = traced("flax.linen.LayerNorm")
    assert at(picture, "rsqrt") == ["mul = lax.rsqrt(var + epsilon)"]
    assert "def huber_loss(" in str(traced("grad of optax.huber_loss"))
    # but not into JAX: what `jnp.where` does inside is not what was asked
    assert len({e.line for e in see.trace(lambda x: jnp.linalg.norm(x), X).equations}) == 1


def test_cells_of_one_notebook_are_one_world():
    cells = {
        "/tmp/ipykernel_1/10.py": "import jax.numpy as jnp\ndef inner(x):\n    return jnp.sin(x)\n",
        "/tmp/ipykernel_1/20.py": "def outer(x):\n    y = inner(x)\n    return y * 2\n",
    }
    names = {}
    for file, text in cells.items():
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        exec(compile(text, file, "exec"), names)
    picture = see.trace(names["outer"], X)
    assert [(e.lineno, e.line) for e in picture.equations] == [
        (5, "return jnp.sin(x)"),
        (3, "return y * 2"),
    ]


def mlir_places(f, args):
    """(primitive, scope, file, line) of every operation, from the locations in the lowered MLIR."""
    text = jax.jit(f).lower(*args).as_text(debug_info=True)
    table = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, re.M))

    @functools.cache
    def frames(ref):
        """Innermost first: [(file, line)]."""
        body = table[ref]
        if place := re.match(r'"([^"]+)":(\d+):\d+', body):
            return [(place[1], int(place[2]))]
        return [frame for child in re.findall(r"#loc\d+", body) for frame in frames(child)]

    places = set()
    for ref in re.findall(r"loc\((#loc\d+)\)$", text, re.M):
        name = re.match(r'"([^"]+)"', table[ref])
        if name and "/" in name[1] and frames(ref):
            *path, primitive = name[1].split("/")
            places.add((primitive, re.findall(r"\w+", path[-1])[-1], *frames(ref)[0]))
    return places


@pytest.mark.parametrize("name", [*PAGES, "optax.huber_loss", "optax.cosine_similarity"])
def test_lines_agree_with_the_locations_in_mlir(name):
    f, args = EVERY[name]
    picture = traced(name)
    file = picture._places.world.code.co_filename
    primitives = {e.primitive for e in picture.equations}
    # What a primitive is lowered through has its place but another name.
    inner = {"body", "cond", "while", "scan", *primitives}
    theirs = {
        (p, line)
        for p, scope, where, line in mlir_places(f, args)
        if where == file and p in primitives and scope not in inner
    }
    ours = {(e.primitive, e.file_lineno) for e in picture.equations}
    through = {"scan": ("while", "broadcast_in_dim"), "one_minus_square": ("sub", "add", "mul")}
    hidden = {(p, line) for whole, line in ours for p in through.get(whole, ())}
    theirs -= hidden
    known = {p for p, _ in theirs}
    assert theirs, "nothing to compare"
    assert theirs <= ours
    leaves = [e for e in picture.equations if e.depth == 0 and e.primitive in known and e.hlo]
    # JAX lowers a few equations to nothing, so it has no location for them.
    nothing = {"convert_element_type", "broadcast_in_dim", "stop_gradient", "copy"}
    leaves = {(e.primitive, e.file_lineno) for e in leaves if e.primitive not in nothing}
    assert leaves - hidden <= theirs


# How a person would find a primitive in a line; a line that only calls a library by the name of the
# whole (softmax, logsumexp …) spells everything that is in it.
SPELLED = {
    "add": r"\+|add|sum|where|mean|safe_increment",
    "sub": r"-|sub",
    "mul": r"\*|mul|square|\bprod",
    "div": r"/|div|mean",
    "neg": r"-|neg",
    "exp": r"exp",
    "log": r"log",
    "log1p": r"log",
    "abs": r"abs|norm",
    "sqrt": r"sqrt|norm",
    "rsqrt": r"sqrt",
    "square": r"square|abs_sq|\*\*|norm",
    "integer_pow": r"\*\*|pow|moment",
    "pow": r"\*\*|pow|bias_correction",
    "reduce_sum": r"sum|mean|norm",
    "reduce_max": r"max|norm",
    "max": r"max|clip",
    "min": r"min",
    "dot_general": r"@|dot|einsum|matmul",
    "is_finite": r"finite",
    "sign": r"sign",
    "gt": r">|cond|where",
    "lt": r"<|lt|cond|where",
    "le": r"<|where",
    "eq": r"==|eye|where",
    "ne": r"!=|isnan",
    "select_n": r"where|select|cond|increment|safe_norm",
    "lgamma": r"gamma",
    "floor": r"floor",
    "log2": r"log2",
    "cholesky": r"cholesky",
    "lu": r"solve",
    "gather": r"take|\[|diagonal",
    "stop_gradient": r"stop_gradient",
}
WHOLE = (
    r"softmax|logsumexp|log_sigmoid|update_moment|bias_correction|linalg|_einsum|digitize|"
    r"_algdiv|_betaln|take_along_axis|solve|increment|tree"
)


def agreement(pairs):
    judged = [(p, line) for p, line in pairs if p in SPELLED]
    agreed = [bool(re.search(f"{SPELLED[p]}|{WHOLE}", line)) for p, line in judged]
    return sum(agreed), len(agreed)


def test_lines_of_functions_nobody_here_wrote_spell_their_primitive():
    pairs, shifted = [], []
    for name in FOREIGN:
        picture = traced(name)
        assert picture.error is None
        assert all(e.line for e in picture.equations), name
        pairs += [(e.primitive, e.line) for e in picture.equations]
        lines = [line.text for line in picture._places.world.lines()]
        shifted += [(e.primitive, lines[e.lineno % len(lines)]) for e in picture.equations]
    agreed, judged = agreement(pairs)
    assert judged > 200
    assert agreed / judged >= 0.95
    wrong, _ = agreement(shifted)  # the same lines, one further down: the check can fail
    assert wrong / judged < 0.6


# --- equations → HLO

METADATA = re.compile(r', metadata=\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}')


def bare(text: str) -> str:
    """What a module computes: no metadata, and every name replaced by its number.

    Equal texts, equal programs: donation (in the first line), sharding and layout are in it.
    """
    start = re.search(r"^(?:ENTRY )?%?[^\s(]+ \(.*\{$", text, re.MULTILINE)
    # Of the header: what is donated and laid out how, not the name or a fingerprint of it all.
    keep = re.findall(
        r"(?:input_output_alias|entry_computation_layout|num_partitions)=(?:\{.*?\}(?=,|$)|\d+)",
        text.partition("\n")[0],
    )
    numbers: dict[str, str] = {}
    body = METADATA.sub("", text[start.start() :] if start else text)
    body = re.sub(r"^(ENTRY )?(%?[^\s(]+) \(.*\{$", r"\1\2 {", body, flags=re.MULTILINE)
    body = re.sub(r"%[\w.\-]+", lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), body)
    return "\n".join([*keep, body])


@pytest.mark.parametrize("name", EVERY)
def test_tags_change_nothing_but_names(name):
    f, args = EVERY[name]
    picture = traced(name)
    assert picture.exact
    jitted = f if hasattr(f, "lower") else jax.jit(f)
    plain = jitted.lower(*args).compile().as_text()

    assert bare(picture.hlo) == bare(plain)


def test_the_tagged_program_compiles_to_the_same_instructions():
    f, args = EVERY["grad"]
    program, count = _jax_private.tagged(jax.jit(f).trace(*args).jaxpr, "TAG")
    tagged = jax.jit(jax.extend.core.jaxpr_as_fun(program)).lower(*args).compile().as_text()
    plain = jax.jit(f).lower(*args).compile().as_text()
    assert "TAG" in tagged and "TAG" not in plain
    assert count == len(traced("grad").equations)
    assert bare(tagged) == bare(plain)
    other = jax.jit(lambda x: x + 1).lower(1.0).compile().as_text()
    assert bare(other) != bare(plain)


@pytest.mark.parametrize("name", EVERY)
def test_a_tag_stands_before_the_primitive_it_was_given_to(name):
    """JAX writes the primitive behind the scope; an off-by-one in the numbering would show here."""
    program, _ = _jax_private.tagged(traced(name).jaxpr, "TAG")
    inputs = [v.aval for v in program.jaxpr.invars]
    inputs = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in inputs]
    function = jax.jit(jax.extend.core.jaxpr_as_fun(program))
    primitives = [e.primitive for e in traced(name).equations]
    text = function.lower(*inputs).compile().as_text()
    said = {(primitives[int(n)], p) for n, p in re.findall(r'TAG(\d+)\)*/(\w+)"', text)}
    said = {(ours, p) for ours, p in said if p in primitives}
    assert said or name == "custom_vjp"  # of which XLA leaves nothing
    # A primitive may be lowered through others.
    through = {("gather", "select_n"), ("lu", "iota"), ("scan", "while")}
    through |= {("one_minus_square", "sub"), ("one_minus_square", "mul")}
    assert {pair for pair in said if pair[0] != pair[1]} <= through


def test_a_picture_compiles_its_program_once(monkeypatch):
    compile_, compiled = jax.stages.Lowered.compile, []

    def counted(lowered, *args, **kwargs):
        compiled.append(lowered)
        return compile_(lowered, *args, **kwargs)

    monkeypatch.setattr(jax.stages.Lowered, "compile", counted)
    f, args = EVERY["jitted helper"]  # of which the twin has two functions where JAX writes one
    picture = see.trace(f, *args)
    assert picture.exact and len(compiled) == 1
    # What is not the same program is not tied by its scopes.
    monkeypatch.setattr(_stablehlo, "same", lambda *_: False)
    picture = see.trace(f, *args)
    assert not picture.exact and len(compiled) == 2


def test_the_twin_is_compared_with_the_program_that_jax_hands_over():
    def lowered(f):
        return jax.jit(f).lower(X).as_text().replace(f.__name__, "f")

    twice = lowered(calls_a_jitted_helper_twice)
    assert _stablehlo.same(twice, twice.replace("@jitted_helper", "@other"))
    assert not _stablehlo.same(twice, twice.replace("sine", "tanh"))  # inside the helper
    assert not _stablehlo.same(twice, twice.replace("multiply", "add"))  # in the main function
    assert not _stablehlo.same(twice, twice.replace("num_partitions = 1", "num_partitions = 2"))
    assert not _stablehlo.same(lowered(helper), lowered(waves_of_one))


def waves_of_one(x):
    return jnp.cos(x)


def tanh_chain(depth):
    """A train step of a deep network: products that XLA rewrites, and moves between them."""

    def loss(ws, x):
        for w in ws:
            x = x + jnp.tanh(jnp.einsum("bth,hk->btk", x, w))
        return (x**2).mean()

    return jax.grad(loss), ([jnp.eye(8)] * depth, jnp.ones((2, 4, 8)))


def test_tying_takes_as_many_steps_as_the_program_has_parts(monkeypatch):
    """Twice the layers, about twice the steps: no instruction is compared with every equation."""
    steps = []
    for name in ("given", "before", "_find"):
        plain = getattr(_match_hlo._Origins, name)

        def counted(*args, plain=plain):
            steps[-1] += 1
            return plain(*args)

        monkeypatch.setattr(_match_hlo._Origins, name, counted)
    for depth in (6, 12, 24):
        f, args = tanh_chain(depth)
        steps.append(0)
        assert see.trace(f, *args).equations
    first, second, third = steps
    assert third - second < 2.5 * (second - first)


def test_fused_equations_share_a_kernel():
    picture = traced("loss")
    kernels = {e.primitive: e.kernels for e in picture.equations}
    assert kernels["tanh"] == kernels["sub"] == kernels["reduce_sum"] != kernels["dot_general"]
    assert all(len(e.hlo) >= 1 and len(e.kernels) == 1 for e in picture.equations)
    assert "6 equations → 2 kernels (1 fusion)" in str(picture)


def test_what_runs_in_a_loop_is_told_from_the_loop():
    picture = traced("loops")
    inside = [e for e in picture.equations if e.depth == 1 and e.primitive in ("sin", "mul")]
    assert len(inside) == 2 and all(e.hlo for e in inside)


# What a jitted function carries besides its program changes what XLA makes of it.

ADAMW = optax.adamw(1e-3)
MESH = jax.make_mesh((8,), ("d",))
AUTO = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))


def train_step(params, state, x, y):
    def error(params):
        h = jnp.tanh(x @ params["w"] + params["b"])
        return jnp.mean((h @ params["v"] - y) ** 2)

    value, grads = jax.value_and_grad(error)(params)
    updates, state = ADAMW.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


def waves(x, y):
    return jnp.sin(x) + jnp.cos(jnp.sin(y))


def summed_over_devices(x, y):
    def on_each(x, y):
        return jax.lax.psum(jnp.sin(x) * jnp.cos(y), "d")

    return jax.shard_map(on_each, mesh=MESH, in_specs=(P("d"), P("d")), out_specs=P())(x, y)


def step_arguments():
    params = {"w": jnp.ones((4, 8)), "b": jnp.zeros(8), "v": jnp.ones((8, 1))}
    return params, ADAMW.init(params), jnp.ones((16, 4)), jnp.ones((16, 1))


def on(mesh):
    return jax.device_put(jnp.linspace(0, 1, 16), NamedSharding(mesh, P("d")))


CARRYING = {
    "donated": (jax.jit(train_step, donate_argnums=(0, 1)), step_arguments),
    "sharded arrays": (jax.jit(waves), lambda: (on(AUTO), on(AUTO))),
    "sharded arrays of an explicit mesh": (jax.jit(waves), lambda: (on(MESH), on(MESH))),
    "in_shardings and out_shardings": (
        jax.jit(
            waves,
            in_shardings=NamedSharding(AUTO, P("d")),
            out_shardings=NamedSharding(AUTO, P()),
        ),
        lambda: (jnp.ones(16), jnp.ones(16)),
    ),
    "shard_map": (jax.jit(summed_over_devices), lambda: (on(MESH), on(MESH))),
    "keep_unused": (jax.jit(lambda x, y: jnp.sin(x), keep_unused=True), lambda: (X, Y)),
    "compiler options": (
        jax.jit(waves, compiler_options={"xla_cpu_enable_fast_math": True}),
        lambda: (X, Y),
    ),
    "constants": (jax.jit(lambda x: jnp.sin(x) + jnp.arange(90_000.0)), lambda: (1.0,)),
}

# An equation with another primitive: only the instructions that it became can change.
OTHERWISE = {"sin": "cos", "cos": "sin", "tanh": "sin", "exp": "sin", "log": "sin", "log1p": "sin"}
OTHERWISE |= {"add": "max", "sub": "max", "mul": "add", "max": "min", "min": "max"}
OTHERWISE |= {"neg": "abs", "abs": "neg", "square": "neg"}  # not div and sqrt: XLA joins those
PRIMITIVES = {name: getattr(jax.lax, f"{name}_p") for name in {*OTHERWISE, *OTHERWISE.values()}}


def changed_instructions(traced, index):
    """Names of the instructions that become another operation when the equation does."""
    jaxpr = traced.jaxpr
    inner = _jax_private.opened(jaxpr)
    eqns = list(inner.eqns)
    other = PRIMITIVES[OTHERWISE[eqns[index].primitive.name]]
    params = {"accuracy": None} if other.name in ("sin", "cos", "exp") else {}
    eqns[index] = eqns[index].replace(primitive=other, params=params)
    program = inner.replace(eqns=eqns)
    program = program if inner is jaxpr else jaxpr.replace(jaxpr=program)
    texts = [
        stage.lower().compile().as_text()
        for stage in (traced, _jax_private.with_jaxpr(traced, program))
    ]
    was, now = [[i for c in _hlo.parse(t).values() for i in c.instructions] for t in texts]
    if len(was) != len(now):
        return None  # XLA simplified another program in another way: no opinion
    return {a.name for a, b in zip(was, now, strict=True) if a.opcode != b.opcode}


def second_opinion(f, args, most=8):
    """How many equations were judged; each must have become what changes with it."""
    picture, traced = see.trace(f, *args), f.trace(*args)
    top = [e for e in picture.equations if e.depth == 0]
    judged = 0
    for place, equation in enumerate(top):
        if judged == most or equation.primitive not in OTHERWISE or not equation.hlo:
            continue
        changed = changed_instructions(traced, place)
        if changed and len(changed) <= len(equation.hlo):
            assert changed <= set(equation.hlo), (equation, changed)
            judged += 1
    return judged


@pytest.mark.parametrize("name", CARRYING)
def test_what_a_jitted_function_carries_is_in_the_twin_too(name):
    f, arguments = CARRYING[name]
    args = arguments()
    picture = see.trace(f, *args)
    assert picture.exact and not picture.doubt
    top = {e.primitive for e in picture.equations if e.depth == 0}
    assert second_opinion(f, args) >= bool(top & set(OTHERWISE))


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (optax.sigmoid_focal_loss, (X, Y)),
        (optax.cosine_similarity, (X, Y)),
        (jax.scipy.stats.norm.logpdf, (X, 0.5, 2.0)),
        (jax.scipy.special.logsumexp, (X,)),
        (jax.scipy.special.entr, (X,)),
        (nn.gelu, (X,)),
    ],
)
def test_a_second_opinion_on_functions_nobody_here_wrote(f, args):
    assert second_opinion(jax.jit(lambda *args: f(*args)), args, most=4) >= 1


def test_each_sine_of_a_sharded_program_has_its_own_instruction():
    f, arguments = CARRYING["sharded arrays"]
    first, second = [e for e in see.trace(f, *arguments()).equations if e.primitive == "sin"]
    assert first.hlo and second.hlo and not set(first.hlo) & set(second.hlo)


def test_a_cache_on_disk_does_not_lose_the_scopes(tmp_path):
    code = (
        "import jax, jax.numpy as jnp; from seejax import see\n"
        "p = see.trace(lambda x: jnp.sin(x) * 2, jnp.ones(3))\n"
        "print(p.exact, [len(e.hlo) for e in p.equations])\n"
    )
    environment = {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    for _ in range(2):  # the second finds everything there
        command = [sys.executable, "-c", code]
        said = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=True
        )
        assert said.stdout == "True [1, 2]\n", said.stderr
    assert any(tmp_path.iterdir())


def test_without_tags_lines_and_primitives_still_tie_and_the_picture_says_so(monkeypatch):
    def broken(*_):
        raise NotImplementedError

    exact = traced("grad")
    monkeypatch.setattr(_jax_private, "tagged", broken)
    picture = see.trace(*[EVERY["grad"][0], *EVERY["grad"][1]])
    assert exact.exact and not picture.exact
    tied = [e.primitive for e in picture.equations if e.hlo]
    assert {"tanh", "sub"} <= set(tied)
    assert [e.lineno for e in picture.equations] == [e.lineno for e in exact.equations]
    said = "approximate: lines matched by primitive"
    assert said not in str(exact) and said not in exact.html()
    assert said in str(picture) and said in picture.html()
    # What was not found was perhaps not eliminated.
    assert "∅" in str(exact) and "∅" not in str(picture)


def conv(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@pytest.mark.parametrize("sizes", [(3, 4), (4, 4)])
def test_a_product_that_xla_rewrote_goes_to_its_own_equation_or_to_none(sizes):
    """XLA gives the convolutions of a gradient no scope: two have equal sizes, one is dead."""
    few, many = sizes

    def f(ws, x):
        h = jax.nn.relu(conv(x, ws[0]))
        return (conv(h, ws[1]) ** 2).sum()

    ws = jnp.ones((3, 3, few, many)), jnp.ones((3, 3, many, many))
    g = jax.jit(jax.grad(f))
    x = jnp.ones((2, 8, 8, few))
    picture = see.trace(g, ws, x)
    convolutions = [e for e in picture.equations if e.primitive == "conv_general_dilated"]
    owners = {name: e.index for e in convolutions for name in e.hlo}
    by_name = {i.name: i for c in _hlo.parse(picture.hlo).values() for i in c.instructions}
    # By hand: a convolution with a batch of 8 by 8 images is forward or to the input; one with a
    # kernel's shape is to the weights. What each reads was computed by an equation before it.
    eqns = _jax_private.opened(picture.jaxpr).eqns
    top = [e for e in picture.equations if e.depth == 0]
    for name, index in owners.items():
        if by_name[name].opcode != "convolution":
            continue
        place = next(i for i, e in enumerate(top) if e.index == index)
        shape = eqns[place].outvars[0].aval.shape
        size = re.search(r"\[([\d,]+)\]", by_name[name].type)[1]
        assert sorted(map(int, size.split(","))) == sorted(shape), (name, top[place])
    told = {n for n in owners if by_name[n].opcode == "convolution"}
    all_of_them = {n for n, i in by_name.items() if i.opcode == "convolution"}
    assert told == all_of_them or picture.doubt
    assert picture.exact == (told == all_of_them)


def test_a_quote_inside_an_attribute_ends_nothing():
    line = (
        r'  ROOT %y = f32[3]{0} custom-call(%x), custom_call_target="f", '
        r'metadata={op_name="jit(f)/a \"b\", c}/d" stack_frame_id=3}, '
        r'backend_config="{\"k\": {\"v\": \"a, b}\"}}"'
    )
    text = "ENTRY %m (x: f32[3]) -> f32[3] {\n" + line + "\n}\n"
    (instruction,) = _hlo.parse(text)["m"].instructions
    assert instruction.op_name == r"jit(f)/a \"b\", c}/d" and instruction.frame == 3
    assert instruction.operands == ["x"]
    assert instruction.attributes == {"custom_call_target": '"f"'}
    assert "metadata" not in bare(text) and "backend_config" in bare(text)


def test_reading_a_long_program_takes_no_longer_than_it_must():
    """4,500 instructions; by the character this took a minute."""
    lines = [
        f"  %add.{n} = f32[16]{{0}} add(%add.{n - 1}, %add.{n - 1}), "
        f'metadata={{op_name="jit(f)/SEEJAX{n}/add" stack_frame_id={n}}}'
        for n in range(1, 4501)
    ]
    text = "\n".join(["HloModule f", "", "ENTRY %m (x: f32[16]) -> f32[16] {", *lines, "}"])
    start = time.process_time()
    computations = _hlo.parse(text)
    _hlo.rows(computations)
    assert time.process_time() - start < 4
    assert len(computations["m"].instructions) == 4500


def test_a_picture_of_a_long_program_costs_little_beside_compiling_it():
    def long(x):
        for _ in range(1500):
            x = jnp.sin(x)
            x = x * 1.01
            x = x + 0.5
        return x

    def cpu_s(thunk):
        jax.clear_caches()
        start = time.process_time()
        made.append(thunk())
        return time.process_time() - start

    made, x = [], jnp.ones(3)
    compiling_s = cpu_s(lambda: jax.jit(long).lower(x).compile())
    picture_s = cpu_s(lambda: see.trace(long, x)) + cpu_s(lambda: made[1]._repr_html_())
    assert len(made[1].equations) == 4500 and made[1].exact
    assert picture_s < 4 * compiling_s  # one of it is JAX's own


# --- arguments by their paths


def first_argument(params, x, *, scale):
    return (x @ params["layers"][0]["w"] + params["b"]) * scale["by"]


NESTED = {"layers": [{"w": jnp.ones((4, 3))}], "b": jnp.zeros(3)}


@pytest.mark.parametrize(
    "f",
    [first_argument, jax.jit(first_argument), jax.value_and_grad(lambda *a, **k: 1.0 * a[1].sum())],
)
def test_inputs_are_called_by_the_paths_of_the_arguments(f):
    picture = see.trace(f, NESTED, X, scale={"by": 2.0})
    roots = ["params", "x"] if f.__name__ == "first_argument" else ["a[0]", "a[1]"]
    arguments = dict(zip(roots, (NESTED, X), strict=True))
    arguments["scale" if len(roots[0]) > 4 else "k['scale']"] = {"by": 2.0}
    paths = [
        root + jax.tree_util.keystr(path)
        for root, value in arguments.items()
        for path, _ in jax.tree_util.tree_flatten_with_path(value)[0]
    ]
    assert list(picture.arguments) == paths


def test_an_equation_shows_the_path_of_the_parameter_that_it_reads():
    picture = see.trace(first_argument, NESTED, X, scale={"by": 2.0})
    (product,) = [line for line in str(picture).splitlines() if "= dot_general" in line]
    # An argument that is no pytree has its letter, the one that JAX gives it.
    assert product.endswith("] c params['layers'][0]['w']")
    assert "λ params['b']:f32[3] params['layers'][0]['w']:f32[4,3] c:f32[4]" in str(picture)
    plain = jax.make_jaxpr(lambda *leaves: first_argument(NESTED, *leaves, scale={"by": 2.0}))(X)
    assert "dot_general" in str(plain) and picture.html().count("[&#x27;b&#x27;]") == 2


def test_of_many_arguments_the_first_are_listed_and_the_others_named_where_they_are_read():
    many = [jnp.full(2, float(n)) for n in range(40)]
    picture = see.trace(lambda leaves: sum(leaves), many)
    head = next(line for line in str(picture).splitlines() if "λ" in line)
    assert "leaves[11]:f32[2] … 28 more" in head and "leaves[12]" not in head
    assert sum("leaves[39]" in line for line in str(picture).splitlines()) >= 1


class Layers(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])

    def __call__(self, x):
        for layer in self.inner:
            x = layer(x)
        return x


def test_parameters_of_a_module_are_called_as_its_attributes():
    picture = see.trace(nnx.jit(lambda model, x: model(x)), Layers(nnx.Rngs(0)), X[None])
    layers = [f"model.inner[{n}].{leaf}" for n in range(2) for leaf in ("bias", "kernel")]
    assert picture.arguments == (*layers, "x")
    products = [line for line in str(picture).splitlines() if "= dot_general" in line]
    assert [re.search(r"model\S+", line)[0] for line in products] == layers[1::2]


# --- what it accepts, and what it does when that fails


class Model:
    def __init__(self, w):
        self.w = w

    def __call__(self, x):
        return jnp.sin(x) * self.w

    def predict(self, x):
        return self(x) + 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.sin(x),
        jax.jit(lambda x: jnp.sin(x)),
        functools.partial(lambda w, x: jnp.sin(x) * w, 2.0),
        Model(2.0),
        Model(2.0).predict,
        see.calls(lambda x: jnp.sin(x)),
        jax.vmap(jax.grad(lambda x: jnp.sin(x) ** 2)),
        jnp.sin,
    ],
)
def test_accepts_every_kind_of_function(f):
    picture = see.trace(f, X)
    assert picture.error is None
    assert "sin" in at(picture, "sin")[0]
    assert picture.hlo


def test_a_module_given_as_it_is():
    picture = see.trace(Layers(nnx.Rngs(0)), X[None])
    assert picture.error is None and picture.name == "Layers"
    assert picture.arguments[1] == "self.inner[0].kernel.value" and "dot_general" in str(picture)
    assert "x = layer(x)" in str(picture)

    @jax.tree_util.register_pytree_node_class
    class Affine:
        """As a module of Equinox is: arrays and functions, and a pytree of them."""

        def __init__(self, w, activation):
            self.w, self.activation = w, activation

        def __call__(self, x):
            return self.activation(x * self.w)

        def tree_flatten(self):
            return (self.w, self.activation), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(*leaves)

    picture = see.trace(Affine(X, jnp.sin), X)
    assert picture.error is None and [e.primitive for e in picture.equations] == ["mul", "sin"]
    assert at(picture, "mul") == ["return self.activation(x * self.w)"]
    dense = nn.Dense(3)
    params = dense.init(jax.random.key(0), X)
    assert see.trace(dense.apply, params, X).error is None
    for module in dense, dense.bind(params):
        with pytest.raises(TypeError, match=r"write see\.trace\(Dense\(…\)\.apply, params, x\)"):
            see.trace(module, X)


def test_static_arguments():
    def power(x, n):
        return x**n

    assert at(see.trace(power, X, 3, static_argnums=1), "integer_pow") == ["return x**n"]
    assert see.trace(power, X, n=3, static_argnames="n").error is None


def test_shows_the_error_of_jax_at_its_line():
    def bad(x):
        y = jnp.sin(x)
        if y > 0:
            return y
        return -y

    picture = see.trace(bad, 1.0)
    assert isinstance(picture.error, jax.errors.TracerBoolConversionError)
    assert picture.jaxpr is None and picture.equations == () and picture.hlo == ""
    lines = str(picture).splitlines()
    failing = next(i for i, line in enumerate(lines) if "if y > 0:" in line)
    assert "TracerBoolConversionError" in lines[failing + 1]
    page = picture.html()
    assert page.index(" y &gt; 0:") < page.index("TracerBoolConversionError")
    assert page.index("TracerBoolConversionError") < page.index("return</span> y")
    assert re.search('class="[^"]*see-wavy[^"]*">if</span>', page)
    assert not re.search(r"(?<![\w:/.])/[\w/]+\.py", page)  # no path of this machine


def test_a_wrong_call_is_shown_at_the_definition():
    picture = see.trace(loss, X)
    assert isinstance(picture.error, TypeError)
    lines = str(picture).splitlines()
    start = next(i for i, line in enumerate(lines) if "def loss(w, x, y):" in line)
    assert "missing 2 required positional arguments" in lines[start + 1]


def test_not_a_function():
    with pytest.raises(TypeError, match=r"see\.trace needs a function"):
        see.trace(3)


def test_executes_nothing_and_leaves_f_alone():
    def f(x):
        jax.debug.callback(lambda: ran.append(1))
        return x

    ran = []
    picture = see.trace(f, X)
    jax.effects_barrier()
    assert picture.error is None and ran == []


def test_a_function_without_equations_is_still_shown():
    def same(x):
        return x

    assert "def same(x):" in str(see.trace(same, X))


def test_everything_is_escaped():
    def f(x):
        return {"<script>alert(1)</script>": x * 2}

    f.__name__ = "<img src=x onerror=alert(2)>"
    picture = see.trace(f, {"</code><script>": X}["</code><script>"])
    page = picture.html()
    assert "<script" not in page and "<img" not in page
    assert "&lt;script&gt;" in page

    def g(x):
        raise ValueError("<script>alert(3)</script>")

    assert "<script" not in see.trace(g, X).html()


def test_source_that_is_gone_is_said_to_be():
    names = {"jnp": jnp}
    exec("def f(x):\n    return jnp.sin(x)", names)
    picture = see.trace(names["f"], X)
    assert picture.error is None and picture.hlo
    assert "source not available" in picture.html()
    assert "\nPython source\nsource not available\n" in str(picture)


def test_a_file_that_was_edited_after_its_import_is_not_shown(tmp_path, monkeypatch):
    file = tmp_path / "edited_later.py"
    text = "import jax.numpy as jnp\n\n\ndef f(x):\n    y = jnp.sin(x)\n    return y * 2\n"
    file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    f = importlib.import_module("edited_later").f
    before = see.trace(f, X)
    assert at(before, "sin") == ["y = jnp.sin(x)"] and not before.doubt
    for edited in (
        text.replace("sin", "cos"),  # the same lines with other words
        text.replace("* 2", "* 3"),
        "\n" + text,  # the same words on other lines
    ):
        file.write_text(edited)
        os.utime(file, (time.time() + 10, time.time() + 10))
        after = see.trace(f, X)
        said = "edited_later.py has changed since it was imported"
        assert said in str(after) and said in after.html()
        assert "cos" not in str(after) and at(after, "sin") == [""]
        assert after.exact  # of the jaxpr and the HLO it is as sure as ever
    file.write_text(text)
    os.utime(file, (time.time() + 20, time.time() + 20))
    assert not see.trace(f, X).doubt


def test_backward_is_what_grad_made_and_not_a_transpose_of_the_program():
    a, b = jnp.eye(3) + 1, jnp.ones(3)
    assert not any(e.backward for e in see.trace(jnp.linalg.solve, a, b).equations)
    twice = see.trace(lambda x: jax.linear_transpose(lambda x: 2 * x, x)(x), X)
    assert not any(e.backward for e in twice.equations)
    back = see.trace(jax.grad(lambda a, b: jnp.linalg.solve(a, b).sum()), a, b)
    assert any(e.backward for e in back.equations)
    many = see.trace(jax.vmap(jax.grad(lambda x: jnp.sin(x) * x)), X)
    assert any(e.backward for e in many.equations)
    second = see.trace(jax.hessian(lambda x: (jnp.sin(x) * x).sum()), X)
    assert any(e.backward for e in second.equations)


class Perceptron(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(3, 4, rngs=rngs)
        self.outer = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        h = jnp.tanh(self.inner(x))
        return self.outer(h)


@nnx.jit
def nnx_step(model, optimizer, x, y):
    def error(model):
        return ((model(x) - y) ** 2).mean()

    value, grads = nnx.value_and_grad(error)(model)
    optimizer.update(model, grads)
    return value


def test_a_step_jitted_by_flax_nnx():
    model = Perceptron(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    picture = see.trace(nnx_step, model, optimizer, jnp.ones((2, 3)), jnp.ones((2, 1)))
    assert picture.error is None and picture.exact
    assert at(picture, "tanh") == ["h = jnp.tanh(self.inner(x))"]
    assert "optimizer.update(model, grads)" in at(picture, "sqrt")
    assert any(e.backward for e in picture.equations)
    assert "def nnx_step(model, optimizer, x, y):" in str(picture)


def test_modules_of_flax_show_what_their_author_wrote():
    picture = see.trace(Perceptron(nnx.Rngs(0)), jnp.ones((2, 3)))
    assert at(picture, "dot_general") == ["h = jnp.tanh(self.inner(x))", "return self.outer(h)"]

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            h = jnp.tanh(nn.Dense(4)(x))
            return nn.Dense(1)(h)

    net, x = Net(), jnp.ones((2, 3))
    params = net.init(jax.random.key(0), x)
    for f in (net.apply, jax.jit(net.apply), lambda *args: net.apply(*args)):
        picture = see.trace(f, params, x)
        assert at(picture, "tanh") == ["h = jnp.tanh(nn.Dense(4)(x))"], f
        assert "_call_wrapped_method" not in str(picture)
    dense = nn.Dense(2)
    picture = see.trace(dense.apply, dense.init(jax.random.key(0), x), x)
    assert "dot_general(" in at(picture, "dot_general")[0]
    assert "def apply(" not in str(picture)


def test_what_vjp_and_linearize_return_shows_the_function():
    def f(x):
        y = jnp.sin(x)
        return y * x

    for derivative in (jax.vjp(f, X)[1], jax.linearize(f, X)[1]):
        picture = see.trace(derivative, X)
        assert "def f(x):" in str(picture)
        assert {e.line for e in picture.equations} == {"y = jnp.sin(x)", "return y * x"}
    assert all(e.backward for e in see.trace(jax.vjp(f, X)[1], X).equations)


def test_each_pane_names_the_attribute_that_has_the_rest(monkeypatch):
    monkeypatch.setattr(_html, "_MOST_SEARCHED", 400)

    def long(x):
        for _ in range(500):
            x = jnp.sin(x)
        return x

    page = see.trace(long, X).html()
    jaxpr, hlo = page.split('<figure class="see-pane">')[2:]
    assert "more in .jaxpr" in jaxpr and "more in .hlo" not in jaxpr
    assert "more in .hlo" in hlo


def test_a_huge_program_stays_a_page():
    def deep(x):
        for _ in range(300):
            x = jnp.sin(x)
        return x

    page = see.trace(deep, X).html()
    assert "<details>" in page
    assert len(page) < 400_000
    assert len(traced("jax.scipy.special.betaln").html()) < 400_000


# --- StableHLO, on request


def main_operations(f, args):
    """The operations of `main` as MLIR's own objects know them: (name, scope)."""
    module = (f if hasattr(f, "lower") else jax.jit(f)).lower(*args).compiler_ir()
    (main,) = (f for f in module.body.operations if f.attributes["sym_name"].value == "main")
    for operation in main.regions[0].blocks[0].operations:
        name = operation.operation.name.rpartition(".")[2]
        if name != "return":
            yield name, re.findall(r'"([^"]*)"', str(operation.location))[:1]


@pytest.mark.parametrize("name", EVERY)
def test_each_operation_of_stablehlo_is_tied_to_the_equation_that_its_location_names(name):
    f, args = EVERY[name]
    picture = see.trace(f, *args, stablehlo=True)
    assert "StableHLO" not in str(picture.doubt)
    lines, known = picture._lowered
    assert known
    end = next(i for i, line in enumerate(lines) if line.text == "}" and line.depth == 0)
    shown = [line for line in lines[:end] if line.depth == 1 and line.operation]
    theirs = list(main_operations(f, args))
    assert [line.operation for line in shown] == [operation for operation, _ in theirs]
    for line, (_, scope) in zip(shown, theirs, strict=True):
        for index in line.own:
            primitive = picture.equations[index].primitive
            called = scope[0].rpartition("/")[2].partition("(")[0]
            inside = {"while", "scan", "cond", "empty2", "broadcast_in_dim", "pjit", "jit"}
            several = primitive == "one_minus_square"  # lowered through other primitives
            assert called == primitive or called in inside or several, (line.text, scope)
        alone = line.operation in ("constant", "call", "convert")
        assert line.own or alone or not scope, line.text


def test_what_jax_leaves_out_and_what_xla_leaves_out_are_told_apart():
    def f(x):
        jnp.exp(x)  # nobody uses it: JAX does not lower it
        return x + jnp.sin(x) * 0, jnp.reshape(jnp.reshape(x, (2, 2)), 4)

    picture = see.trace(f, X, stablehlo=True)
    steps = {e.primitive: (e.stablehlo, bool(e.hlo)) for e in picture.equations}
    assert steps["exp"] == ((), False)
    assert steps["reshape"][0] == ("reshape",) and not steps["reshape"][1]


def test_a_function_of_stablehlo_belongs_to_all_who_call_it():
    def f(x, y):
        a = jnp.argmax(x) + jitted_helper(x)
        return a, jnp.argmax(y) + jitted_helper(y)

    picture = see.trace(f, X, Y, stablehlo=True)
    assert picture.stablehlo.count("stablehlo.sine") == 1 == picture.stablehlo.count("iota")
    for primitive, operation in ("sin", "sine"), ("argmax", "iota"):
        found = [e.stablehlo for e in picture.equations if e.primitive == primitive]
        assert len(found) == 2
        assert all(operation in steps for steps in found)


def test_loops_of_stablehlo_are_the_scan_and_its_body():
    steps = {e.primitive: e.stablehlo for e in see.trace(loops, X, stablehlo=True).equations}
    assert "while" in steps["scan"]
    assert steps["sin"] == ("sine",)
    assert steps["mul"][-1] == "multiply"


def test_a_callback_is_a_call_of_its_equation():
    def f(x):
        jax.debug.print("{}", x)
        return jax.pure_callback(jnp.sin, x, x) + 1

    steps = {e.primitive: e.stablehlo for e in see.trace(f, X, stablehlo=True).equations}
    assert steps["debug_print"] == steps["pure_callback"] == ("custom_call",)


def test_stablehlo_is_shown_on_request_only():
    assert traced("loss").stablehlo == ""
    assert all(e.stablehlo == () for e in traced("loss").equations)
    assert "StableHLO" not in str(traced("loss"))
    picture = see.trace(loss, *PAGES["loss"][1], stablehlo=True)
    assert picture.stablehlo == jax.jit(loss).lower(*PAGES["loss"][1]).as_text()
    page = picture.html()
    assert page.index(">jaxpr<") < page.index(">StableHLO<") < page.index(">optimized HLO<")
    assert bare(picture.hlo) == bare(traced("loss").hlo)
    picture = see.trace(lambda x: x.reshape(7), X, stablehlo=True)
    assert picture.error and picture.stablehlo == ""


def test_stablehlo_without_a_twin_is_shown_and_said_to_be_untied(monkeypatch):
    monkeypatch.setattr(_jax_private, "tagged", lambda *_: 1 / 0)
    picture = see.trace(loss, *PAGES["loss"][1], stablehlo=True)
    assert "lines of StableHLO not tied" in str(picture)
    assert "stablehlo.tanh" in str(picture)
    assert all(e.stablehlo == () for e in picture.equations)


def test_a_large_constant_stays_small_on_the_page_and_whole_in_the_text():
    table = jnp.linspace(0, 1, 20_000)
    picture = see.trace(lambda x: x + table, 1.0, stablehlo=True)
    assert len(picture.stablehlo) > 100_000
    assert len(picture.html()) < 20_000


# --- the private interface


def test_what_jax_does_not_document_is_as_we_use_it():
    eqn = jax.jit(lambda x: jnp.sin(x)).trace(X).jaxpr.eqns[0]
    code, offset = _jax_private.frames(eqn)[-1]
    assert isinstance(offset, int) and code.co_filename
    here = [c.co_name for c, _ in _jax_private.frames(eqn) if c.co_filename == __file__]
    assert here[-1] == "<lambda>"
    back = jax.jit(jax.grad(jnp.sin)).trace(1.0).jaxpr
    assert any("transpose(" in _jax_private.scope(e) for e in back.eqns)
    scan = jax.jit(loops).trace(X).jaxpr
    assert [name for e in scan.eqns for name, _ in _jax_private.subjaxprs(e)][:1] == ["jaxpr"]
    # A trace begins with the function traced: no frame of whoever called it.
    inner = next(j for e in scan.eqns for _, j in _jax_private.subjaxprs(e))
    frames = _jax_private.frames(_jax_private.opened(inner).eqns[0])
    assert "loops" not in [code.co_name for code, _ in frames]


def test_no_other_file_touches_private_jax():
    for path in see.STATIC.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "_jax_private.py":
            assert "jax._src" not in text, path.name
            assert "source_info." not in text.replace("`JaxprEqn.source_info`", ""), path.name


def test_a_jitted_method_is_traced_with_its_object() -> None:
    class Model:
        scale = 3.0

        @functools.partial(jax.jit, static_argnums=0)
        def __call__(self, x):
            return self.scale * x

    picture = see.trace(Model().__call__, 2.0)
    assert picture.error is None and [e.primitive for e in picture.equations] == ["mul"]


def test_a_product_belongs_to_a_product_when_xla_writes_it_anew() -> None:
    """XLA merges a transpose into the product before it, and scopes one in a loop as the loop."""
    w, x, v = jnp.ones((3, 4)), jnp.ones((5, 3)), jnp.ones(3)
    square = jnp.ones((3, 3))
    mlp = lambda p, x: (jnp.tanh(x @ p[0]) @ p[1]) ** 2  # noqa: E731
    programs = [
        (lambda a, b: (a @ b).T, x, w),
        (jax.grad(lambda w: ((x @ w) ** 2).sum()), w),
        (jax.grad(lambda p: mlp(p, x).mean()), [w, jnp.ones((4, 2))]),
        (lambda v: jax.lax.fori_loop(0, 5, lambda i, v: square @ v, v), v),
        (lambda v: jax.lax.scan(lambda v, _: (jnp.tanh(square @ v), None), v, length=9)[0], v),
    ]
    for f, *args in programs:
        picture = see.trace(f, *args)
        products = [e for e in picture.equations if e.primitive == "dot_general"]
        others = [e for e in picture.equations if e.primitive != "dot_general"]
        dots = re.findall(r"(?m)^\s*(?:ROOT )?%(\S+) = \S+ dot\(", picture.hlo)
        assert picture.exact and not picture.doubt and len(dots) == len(products)
        assert all(len(set(e.hlo) & set(dots)) == 1 for e in products), f
        assert not any(set(e.hlo) & set(dots) for e in others)


@pytest.mark.parametrize(
    "f, shape",
    [
        (jnp.cumsum, (3,)),
        (lambda a: jnp.cumprod(a) * 2, (1000,)),
        (jax.grad(lambda a: jnp.sum(jnp.cumsum(a) ** 3)), (64,)),
        (jax.lax.cummax, (8,)),
        (lambda a: a.T + 1, (4, 3)),
    ],
)
def test_what_xla_writes_anew_without_saying_from_what_is_not_called_gone(f, shape):
    """XLA computes a cumulative sum over windows, and a transpose behind what reads it."""
    traced = see.trace(f, jnp.ones(shape))
    assert re.search(r" (reduce-window|transpose)\(", traced.hlo)
    said = [line for line in str(traced).splitlines() if "∅" in line]
    assert not [line for line in said if re.search(r"= (cum|transpose)", line)]
    assert "reduce-window" not in traced.hlo or not traced.exact


@pytest.mark.parametrize(
    "f, args, running",
    [
        (jax.checkpoint(lambda c: 0.5 * jnp.sin(c)), (1.0,), "mul 0.5"),
        (lambda x: (x + 1, jnp.zeros(8)), (jnp.ones(3),), "broadcast_in_dim"),
        (
            lambda xs: jax.lax.scan(lambda c, x: (c + x, c), jnp.zeros(3), xs),
            (jnp.ones((4, 3)),),
            "0.0",
        ),
    ],
)
def test_what_runs_under_another_scope_is_not_called_gone(f, args, running):
    """One instruction with two scopes; a short constant that XLA folds and then spreads anew."""
    lines = [line for line in str(see.trace(f, *args)).splitlines() if running in line]
    assert lines and not [line for line in lines if "∅" in line]
