"""The modules of a large program, against XLA's own count, formulas, and scopes put by hand."""

import importlib
import re
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from seejax import see
from seejax.see import _modules

LAYERS, WIDTH = 4, 8
X = jnp.ones((2, 6, WIDTH))


@pytest.fixture(autouse=True)
def promotion_as_others_wrote_for():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def attention(p, x):
    q, k, v = (x @ p[name] for name in "qkv")
    weights = jax.nn.softmax(q @ k.swapaxes(1, 2))
    return weights @ v


def network(params, x):
    for n, p in enumerate(params["layers"]):
        with jax.named_scope(f"layer_{n}"):
            with jax.named_scope("attention"):
                x = x + attention(p, x)
            with jax.named_scope("mlp"):
                x = x + jnp.tanh(x @ p["up"]) @ p["down"]
    return x


def loss(params, x):
    return jnp.mean((network(params, x) @ params["out"]) ** 2)


def step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))


def parameters(layers=LAYERS):
    square, wide = jnp.ones((WIDTH, WIDTH)), jnp.ones((WIDTH, 4 * WIDTH))
    layer = {"q": square, "k": square, "v": square, "up": wide, "down": wide.T}
    return {"layers": [layer] * layers, "out": jnp.ones((WIDTH, 3))}


@pytest.fixture(scope="module")
def picture():
    with jax.numpy_rank_promotion("allow"):
        return see.trace(step, parameters(), X)


def by_path(picture):
    return {module.path: module for module in picture.modules.walk()}


# --- the tree


def test_modules_are_the_scopes_and_their_counts_sum_to_the_whole(picture):
    found = by_path(picture)
    layers = {f"layer_{n}" for n in range(LAYERS)}
    parts = {f"{layer}/{part}" for layer in layers for part in ("attention", "mlp")}
    assert {path for path in found if "()" not in path} == {""} | layers | parts
    root = picture.modules
    leaves = int(re.match(r"step: (\d+) equations", str(picture))[1])
    assert root.equations == leaves and root.numbers == list(range(len(picture.equations)))
    for module in root.walk():
        inner = [number for each in module.modules for number in each.numbers]
        assert len(inner) == len(set(inner)) and set(inner) <= set(module.numbers)
        for count in ("equations", "flops", "bytes"):
            own = getattr(module, count) - sum(getattr(each, count) for each in module.modules)
            assert own >= 0
            if set(inner) == set(module.numbers):
                assert own == 0
    alike = [found[f"layer_{n}"] for n in range(1, LAYERS - 1)]
    assert len({(m.equations, m.flops, m.bytes) for m in alike}) == 1


@pytest.mark.parametrize("layer", [0, 2])
def test_a_module_has_the_equations_whose_scope_was_put_by_hand(picture, layer):
    """The same program with one scope only: what it marks, forward and backward, is the module."""

    def marked(params, x):
        for n, p in enumerate(params["layers"]):
            if n == layer:
                with jax.named_scope("here"):
                    x = x + attention(p, x)
            else:
                x = x + attention(p, x)
            x = x + jnp.tanh(x @ p["up"]) @ p["down"]
        return jnp.mean((x @ params["out"]) ** 2)

    def outer(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(marked)(params, x))

    eqns = jax.make_jaxpr(outer)(parameters(), X).eqns
    top = [e.index for e in picture.equations if e.depth == 0]
    assert len(top) == len(eqns)
    here = {top[n] for n, e in enumerate(eqns) if "here" in str(e.source_info.name_stack)}
    module = by_path(picture)[f"layer_{layer}/attention"]
    assert here == set(module.numbers) & set(top)
    assert any(picture.equations[n].backward for n in here)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x + nn.Dense(WIDTH)(nn.relu(nn.Dense(16, name="up")(x)))


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = Block()(x)
        return x


def test_modules_of_linen_have_their_names():
    net = Net()
    params = net.init(jax.random.key(0), X)
    picture = see.trace(jax.grad(lambda params: net.apply(params, X).sum()), params)
    paths = set(by_path(picture))
    assert {f"Net/Block_{n}/{dense}" for n in (0, 1) for dense in ("up", "Dense_0")} <= paths
    assert set(picture.modules.modules[0].modules[0].numbers).isdisjoint(
        picture.modules.modules[0].modules[1].numbers
    )


def test_what_has_no_scope_is_sorted_by_the_functions_that_made_it():
    def outer(params, x):
        return attention(params["layers"][0], x) + 1

    picture = see.trace(outer, parameters(), X)
    assert [module.name for module in picture.modules.modules] == ["attention()"]
    assert by_path(picture)["attention()"].equations == picture.modules.equations - 1


# --- what it costs


def flops(f, *args):
    return see.trace(f, *args).modules.flops


def xla(f, *args):
    """XLA's count of the program that JAX hands over."""
    return jax.jit(f).lower(*args).cost_analysis().get("flops", 0)


A, B = jnp.ones((5, 7)), jnp.ones((7, 11))


def convolved(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (2, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2
    )


@pytest.mark.parametrize(
    ("f", "args", "formula"),
    [
        (lambda a, b: a @ b, (A, B), 2 * 5 * 7 * 11),
        (
            lambda a, b: jnp.einsum("bij,bkj->bik", a, b),
            (jnp.ones((3, 4, 5)), jnp.ones((3, 6, 5))),
            2 * 3 * 4 * 6 * 5,
        ),
        (
            convolved,
            (jnp.ones((2, 9, 8, 4)), jnp.ones((3, 3, 2, 6))),
            2 * (2 * 4 * 6 * 6) * 3 * 3 * 2,
        ),
        (lambda x: x * x + 1, (A,), 2 * 35),
        (lambda x: x.sum(), (A,), 34),
        (lambda x: x.T.reshape(-1)[::2], (A,), 0),
    ],
)
def test_operations_are_those_of_the_formula_and_of_xla(f, args, formula):
    assert flops(f, *args) == formula == xla(f, *args)


def test_operations_of_a_training_step_are_those_that_xla_counts(picture):
    assert picture.modules.flops == pytest.approx(xla(step, parameters(), X), rel=0.02)
    products = 3 * 2 * WIDTH * WIDTH + 2 * 2 * WIDTH * 6  # q, k, v; scores and their sum
    forward = 2 * 6 * products
    attended = by_path(picture)["layer_1/attention"].flops
    assert 3 * forward < attended < 3.5 * forward  # backward has two products for each


def test_a_loop_counts_its_rounds_and_a_condition_its_costliest_branch():
    once = flops(lambda a: a @ a.T, A)

    def rounds(a):
        return jax.lax.scan(lambda c, _: (c + (a @ a.T).sum(), None), 0.0, length=10)[0]

    assert flops(rounds, A) == 10 * (once + 25)  # the sum of 25 numbers, and one more

    def either(a):
        return jax.lax.cond(a[0, 0] > 0, lambda: (a @ a.T).sum(), lambda: a.sum())

    assert flops(either, A) == once + 24 + 1  # and the comparison
    picture = see.trace(
        lambda a: jax.lax.while_loop(lambda c: c < 9, lambda c: c + a.sum(), 0.0), A
    )
    assert not picture.modules.bounded and see.trace(rounds, A).modules.bounded


def test_bytes_are_of_all_results():
    picture = see.trace(lambda a, b: jnp.sin(a @ b).astype(jnp.bfloat16), A, B)
    assert picture.modules.bytes == 5 * 11 * (4 + 4 + 2)


def test_a_function_of_many_shapes_costs_no_error():
    """Each primitive of these programs has a count, that of none is negative."""
    programs = [
        (lambda x: jnp.sort(x), (A,)),
        (lambda x: jnp.cumsum(x, 0), (A,)),
        (lambda x: x.at[0].add(1.0), (A,)),
        (lambda x: jnp.linalg.cholesky(x @ x.T), (jnp.eye(4),)),
        (lambda key: jax.random.normal(key, (3,)), (jax.random.key(0),)),
        (lambda x: nn.max_pool(x, (2, 2)), (jnp.ones((1, 4, 4, 3)),)),
        (jax.grad(lambda x: nn.max_pool(x, (2, 2)).sum()), (jnp.ones((1, 4, 4, 3)),)),
        (lambda x: jnp.argmax(x), (A,)),
    ]
    for f, args in programs:
        root = see.trace(f, *args).modules
        assert root.flops >= 0 and root.bytes > 0
        assert all(module.flops >= 0 for module in root.walk())


# --- what is shown


def test_a_small_program_has_no_outline():
    small = see.trace(network, parameters(1), X)
    assert small.modules.modules and small.modules.equations < 100
    assert "modules" not in str(small) and "see-find" not in small.html()


def test_print_begins_with_the_modules_and_cuts_what_is_long(picture):
    lines = str(picture).splitlines()
    assert lines[2] == "modules" and lines[4].split()[:2] == [
        "step",
        str(picture.modules.equations),
    ]
    whole = picture.text().splitlines()
    assert len(lines) < 300 < 400 < len(whole)
    assert lines[-1] == f"All {len(whole)} lines: print(picture.text())"
    left = next(int(m[1]) for line in lines if (m := re.match(r"… (\d+) more in \.jaxpr", line)))
    shown = lines[lines.index("jaxpr") + 1 : lines.index("optimized HLO") - 2]
    pane = whole[whole.index("jaxpr") + 1 : whole.index("optimized HLO") - 1]
    assert len(shown) + left == len(pane)
    # Of many modules, the outer ones are shown.
    deep = see.trace(step, parameters(24), X)
    rows = str(deep).split("Python source")[0].splitlines()
    assert len(rows) < 70 and any("layer_23" in row for row in rows)
    assert not any("attention" in row for row in rows) and "more in .modules" in rows[-2]
    assert "attention" in deep.text().split("Python source")[0]


def test_the_outline_opens_and_closes_and_covers_its_equations(picture):
    soup = BeautifulSoup(picture.html(), "html.parser")
    for module in picture.modules.walk():
        tag = soup.find(attrs={"data-p": module.path})
        spans = [list(map(int, each.split("-"))) for each in tag["data-m"].split()]
        covered = [n for span in spans for n in range(span[0], span[-1] + 1)]
        assert covered == module.numbers
        assert tag.name == ("details" if module.modules else "div")
        row = tag.select_one(".see-node").get_text(" ")
        assert str(module.equations) in row.split()
    assert all(tag.has_attr("open") for tag in soup.select(".see-outline > details"))
    assert not any(t.has_attr("open") for t in soup.select(".see-outline details details"))
    # Every equation is in the page, so that it can be found.
    numbers = [int(n) for row in soup.select(".see-l[data-e]") for n in row["data-e"].split()]
    assert set(numbers) == set(range(len(picture.equations)))


def test_a_long_program_is_drawn_in_few_bytes():
    deep = see.trace(step, parameters(24), X)
    page = deep.html()
    assert len(deep.equations) > 1500
    assert len(page) < 500 * len(deep.equations)
    assert " parameter(" not in page and "inside fusions: .hlo" in page


@pytest.fixture
def page(browser, picture):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.set_content(f'<!doctype html><html lang="en"><body>{picture._repr_html_()}</body></html>')
    yield page
    page.close()


def shown_numbers(page, pane):
    return set(
        page.evaluate(
            """(pane) => [...document.querySelectorAll(".see-pane")[pane]
                 .querySelectorAll(".see-l[data-e]:not([hidden])")]
                 .flatMap((el) => el.dataset.e.split(" ").map(Number))""",
            pane,
        )
    )


def test_one_layer_can_be_found(page, picture):
    field = page.get_by_label("search").first
    page.keyboard.press("Tab")
    expect(field).to_be_focused()
    page.keyboard.type("layer_2/attention")
    expect(page.locator(".see-found")).to_be_visible()
    module = by_path(picture)["layer_2/attention"]
    assert shown_numbers(page, 1) == set(module.numbers)
    assert shown_numbers(page, 2) & set(module.numbers)
    expect(page.locator('[data-p="layer_2/attention"]')).to_be_visible()
    expect(page.locator('[data-p="layer_1"]')).to_be_hidden()
    lit = page.locator(".see-pane").first.locator(".see-l.see-on").all_text_contents()
    assert any("x @ p[name]" in line for line in lit)
    assert not any("tanh" in line for line in lit)
    page.keyboard.press("Escape")
    expect(page.locator(".see-found")).to_be_hidden()
    assert shown_numbers(page, 1) == set(range(len(picture.equations)))
    expect(page.locator('[data-p="layer_1"]')).to_be_visible()


def test_a_word_of_a_line_shows_the_modules_that_have_it(page, picture):
    page.get_by_label("search").first.fill("TANH")
    expect(page.locator(".see-found")).to_be_visible()
    tanhs = {e.index for e in picture.equations if e.primitive == "tanh"}
    assert tanhs == shown_numbers(page, 1)
    expect(page.locator('[data-p="layer_3/mlp"]')).to_be_attached()
    assert page.locator('[data-p="layer_3/attention"]').evaluate("el => el.hidden")
    assert not page.locator('[data-p="layer_3/mlp"]').evaluate("el => el.hidden")


def test_a_module_has_a_button_for_it_alone(page, picture):
    page.locator('[data-p="layer_1"] > summary > button').click()
    expect(page.locator(".see-find input")).to_have_value("layer_1")
    expect(page.locator(".see-found")).to_be_visible()
    assert shown_numbers(page, 1) == set(by_path(picture)["layer_1"].numbers)


def test_without_a_script_branches_open_and_no_dead_field_stands_there(browser, picture):
    page = browser.new_page(java_script_enabled=False)
    page.set_content(f"<!doctype html><body>{picture._repr_html_()}</body>")
    expect(page.locator(".see-find")).to_be_hidden()
    expect(page.locator('[data-p="layer_1/mlp"]')).to_be_hidden()
    page.locator('[data-p="layer_1"] > summary').click()
    expect(page.locator('[data-p="layer_1/mlp"]')).to_be_visible()
    page.close()


# --- a model beside its training


def test_the_source_of_every_file_of_the_reader_is_shown(tmp_path, monkeypatch):
    (tmp_path / "its_layers.py").write_text(
        "import jax.numpy as jnp\n\ndef layer(w, x):\n    return jnp.tanh(x @ w)\n"
    )
    (tmp_path / "its_training.py").write_text(
        "import jax, its_layers\n\ndef loss(w, x):\n    return its_layers.layer(w, x).sum()\n\n"
        "def train(w, x):\n    return w - 0.1 * jax.grad(loss)(w, x)\n"
    )
    (tmp_path / "its_main.py").write_text(
        "import its_training\nfrom seejax import see\n\n"
        "def main(w, x):\n    return see.trace(its_training.train, w, x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    main = importlib.import_module("its_main")
    picture = main.main(jnp.ones((3, 3)), jnp.ones((2, 3)))
    text = str(picture)
    assert "its_training.py" in text and "its_layers.py" in text
    assert "return jnp.tanh(x @ w)" in text and "its_main" not in text
    lines = {e.primitive: e.line for e in picture.equations}
    assert lines["tanh"] == "return jnp.tanh(x @ w)"
    assert lines["sub"].startswith("return w - 0.1")
    forward = [e for e in picture.equations if e.primitive == "dot_general" and not e.backward]
    assert [e.source for e in forward] == ["layer"]
    # JAX's own files and those of packages stay out.
    assert set(picture._places.world.families) == {
        str(tmp_path / "its_layers.py"),
        str(tmp_path / "its_training.py"),
    }
    for name in ("its_main", "its_training", "its_layers"):
        sys.modules.pop(name)


def test_one_file_has_no_heading(picture):
    assert "test_modules.py" not in str(picture)


def test_costs_are_counted_once_for_equations_with_programs_inside():
    (equation,) = jax.make_jaxpr(lambda a: jax.jit(jnp.sin)(a))(A).eqns
    assert _modules._cost(equation.params["jaxpr"]) == 35 == flops(jax.jit(jnp.sin), A)
