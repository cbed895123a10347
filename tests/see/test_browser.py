"""The pictures in a real browser: what lights up by mouse, keyboard and touch; no script at all."""

import gzip
import linecache

import jax.numpy as jnp
import pytest
from playwright.sync_api import expect

from seejax import see


def loss(w, x, y):
    h = jnp.tanh(x @ w)
    return jnp.mean((h - y) ** 2)


def steps(x):
    for _ in range(50):
        x = jnp.sin(x)
    x = jnp.cos(x)
    return x


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    picture = see.trace(loss, jnp.ones(4), jnp.ones((3, 4)), jnp.ones(3))
    scrolled = see.trace(steps, jnp.ones(3))

    @see.calls(static_argnames="n")
    def power(x, n):
        return x**n

    for n in (2, 2, 3):
        power(jnp.arange(3.0), n=n)
    file = tmp_path_factory.mktemp("see") / "page.html"
    file.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>see</title>'
        '<meta name="viewport" content="width=device-width"><body>'
        f"<main>{picture._repr_html_()}{power._repr_html_()}</main>"
        f'<div id="long">{scrolled.html()}</div>',
        encoding="utf-8",
    )
    return file.as_uri()


@pytest.fixture
def open_page(browser, page_file):
    pages = []

    def opened(**options):
        page = browser.new_page(**options)
        page.on("pageerror", lambda error: pytest.fail(str(error)))
        page.on("console", lambda m: m.type == "error" and pytest.fail(m.text))
        page.on("request", lambda r: r.url.startswith(("file:", "data:")) or pytest.fail(r.url))
        page.goto(page_file)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()


def pane(page, title):
    return page.locator("main").get_by_role("figure", name=title, exact=True)


def lit(page, title):
    """The text of the lit lines of a pane, shortened to what identifies them."""
    lines = pane(page, title).locator(".see-l.see-on > code").all_text_contents()
    return [line.strip() for line in lines]


def operations(page):
    """The primitives of the lit equations."""
    return pane(page, "jaxpr").locator(".see-l.see-on .see-o").all_text_contents()


def test_pointing_at_an_equation_lights_its_line_and_its_fusion(open_page):
    page = open_page(viewport={"width": 1280, "height": 800})
    pane(page, "jaxpr").get_by_text("sub", exact=True).hover()
    assert lit(page, "Python source") == ["return jnp.mean((h - y) ** 2)"]
    assert operations(page) == ["sub"]
    hlo = lit(page, "optimized HLO")
    assert len(hlo) == 2
    assert "fusion(" in hlo[0] and "subtract(" in hlo[1]
    assert page.locator("span.see-on").all_text_contents() == ["h - y"]


def test_pointing_at_a_fusion_lights_every_equation_in_it(open_page):
    page = open_page(viewport={"width": 1280, "height": 800})
    pane(page, "optimized HLO").get_by_text("fusion(").first.hover()
    assert operations(page) == ["tanh", "sub", "integer_pow", "reduce_sum", "div"]
    assert lit(page, "Python source") == ["h = jnp.tanh(x @ w)", "return jnp.mean((h - y) ** 2)"]
    # Of line 2 the fusion computes the tanh, not the product inside it.
    pieces = pane(page, "Python source").locator("span.see-on").all_text_contents()
    assert "".join(pieces).startswith("jnp.tanh(")
    assert not any("contract" in line for line in lit(page, "optimized HLO"))


def test_pointing_at_a_line_or_at_an_expression_in_it(open_page):
    page = open_page(viewport={"width": 1280, "height": 800})
    line = pane(page, "Python source").locator(".see-l", has_text="jnp.tanh")
    line.locator(".see-g").hover()
    assert operations(page) == ["dot_general", "tanh"]
    line.get_by_text("x @ w").hover()
    assert operations(page) == ["dot_general"]
    products = lit(page, "optimized HLO")
    assert "contract 1·0" in products[0]
    assert not any("fusion(" in text for text in products)  # it reads the product, no more
    page.mouse.move(5, 790)
    expect(page.locator(".see-on")).to_have_count(0)


def test_by_keyboard(open_page):
    page = open_page(viewport={"width": 1280, "height": 800})
    stops = []
    for _ in range(3):  # one tab stop for each pane
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate(
                "document.activeElement.closest('.see-pane')?.querySelector('.see-title').innerText"
            )
        )
    assert stops == ["Python source", "jaxpr", "optimized HLO"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowDown")
    focused = page.locator(":focus")
    expect(focused).to_contain_text("tanh")
    assert lit(page, "Python source") == ["h = jnp.tanh(x @ w)"]
    assert len(lit(page, "optimized HLO")) == 2
    page.keyboard.press("ArrowRight")
    expect(page.locator(":focus")).to_contain_text("fusion(")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(":focus")).to_contain_text("h = jnp.tanh")
    page.keyboard.press("Escape")
    expect(page.locator(".see-on")).to_have_count(0)
    # A screen reader hears the counterparts.
    expect(pane(page, "jaxpr").locator(".see-l", has_text="tanh")).to_contain_text("line 2")
    expect(pane(page, "jaxpr").locator(".see-l", has_text="tanh")).to_contain_text("fusion 1")


def test_by_touch_on_a_phone(open_page):
    page = open_page(viewport={"width": 375, "height": 700}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    pane(page, "jaxpr").get_by_text("sub", exact=True).tap()
    assert lit(page, "Python source") == ["return jnp.mean((h - y) ** 2)"]
    assert len(lit(page, "optimized HLO")) == 2
    pane(page, "jaxpr").get_by_text("tanh", exact=True).tap()
    assert lit(page, "Python source") == ["h = jnp.tanh(x @ w)"]
    # What is too wide goes on in the next line, further in than it began; nothing is cut off.
    code = pane(page, "optimized HLO").locator(".see-code")
    assert code.evaluate("el => el.scrollWidth - el.clientWidth") == 0
    starts = code.evaluate("""el => [...el.querySelectorAll(".see-l code")].map(code => {
        const range = document.createRange();
        range.selectNodeContents(code);
        return [...range.getClientRects()].filter(r => r.width > 1).map(r => [r.top, r.left]);
    })""")
    wrapped = [rects for rects in starts if rects[-1][0] - rects[0][0] > 10]
    assert wrapped, "on a phone some instruction is longer than the screen"
    for rects in wrapped:
        assert min(left for top, left in rects if top > rects[0][0] + 10) > rects[0][1]
    page.get_by_text("power", exact=True).tap()
    expect(page.locator(".see-on")).to_have_count(0)
    boxes = [
        pane(page, title).bounding_box() for title in ("Python source", "jaxpr", "optimized HLO")
    ]
    assert boxes[0]["y"] < boxes[1]["y"] < boxes[2]["y"]  # below each other


def test_panes_stand_side_by_side_on_a_wide_screen(open_page):
    page = open_page(viewport={"width": 1280, "height": 800})
    page.add_style_tag(content="main { max-width: 76rem; margin: auto; padding: 0 2rem }")
    boxes = [
        pane(page, title).bounding_box() for title in ("Python source", "jaxpr", "optimized HLO")
    ]
    assert boxes[0]["y"] == boxes[1]["y"] == boxes[2]["y"]
    assert page.evaluate("document.documentElement.scrollWidth") == 1280


def test_the_hlo_stands_beside_both_others_where_three_columns_do_not_fit(open_page):
    page = open_page(viewport={"width": 900, "height": 800})
    python, jaxpr, hlo = [
        pane(page, title).bounding_box() for title in ("Python source", "jaxpr", "optimized HLO")
    ]
    assert python["x"] == jaxpr["x"] < hlo["x"]
    assert python["y"] == hlo["y"] < jaxpr["y"]


def test_a_counterpart_out_of_sight_is_scrolled_to(open_page):
    page = open_page(viewport={"width": 1280, "height": 800})
    page.locator("#long").scroll_into_view_if_needed()
    top = page.evaluate("scrollY")
    jaxpr = page.locator("#long .see-pane").nth(1)
    cosine = jaxpr.locator(".see-l", has_text="cos")
    expect(cosine).not_to_be_in_viewport()
    page.locator("#long .see-pane").first.locator(".see-l", has_text="cos").hover()
    expect(cosine).to_be_in_viewport()
    assert page.evaluate("scrollY") == top  # the pane scrolled, the page did not


def contrast(a, b):
    """WCAG 2 contrast of two `rgb(r, g, b)` colours."""

    def luminance(colour):
        channels = [float(c) / 255 for c in colour[4:-1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_can_be_read_on_every_ground(open_page, scheme):
    page = open_page(color_scheme=scheme)
    colours = page.evaluate(
        """() => {
          const see = document.querySelector(".see"), probe = document.createElement("i");
          see.append(probe);
          const names = ["fg", "dim", "mark", "bad", 0, 1, 2, 3, 4, 5, "bg", "on", "in", "badbg"];
          return Object.fromEntries(names.map((name) => {
            probe.style.color = `var(--see-${name})`;
            return [name, getComputedStyle(probe).color];
          }));
        }"""
    )
    inks = [colours[str(i)] for i in range(6)] + [colours["fg"], colours["dim"]]
    for ground in ("bg", "on", "in"):
        for ink in inks:
            assert contrast(ink, colours[ground]) >= 4.5, (scheme, ink, ground)
    assert contrast(colours["bad"], colours["badbg"]) >= 4.5
    assert contrast(colours["fg"], colours["badbg"]) >= 4.5


def test_follows_the_system_and_the_theme_of_the_page(open_page):
    def ground(page):
        style = "el => getComputedStyle(el).backgroundColor"
        return page.eval_on_selector(".see-panes", style)

    light, dark = open_page(color_scheme="light"), open_page(color_scheme="dark")
    assert ground(light) != ground(dark)
    light.evaluate("document.documentElement.dataset.theme = 'dark'")
    dark.evaluate("document.documentElement.dataset.theme = 'light'")
    assert ground(light) != ground(dark)
    light.evaluate("document.documentElement.dataset.theme = ''")
    dark.evaluate("document.documentElement.dataset.theme = 'light'")
    assert ground(light) == ground(dark)


def test_reads_without_script(open_page):
    page = open_page(java_script_enabled=False, viewport={"width": 375, "height": 700})
    for title in ("Python source", "jaxpr", "optimized HLO"):
        expect(pane(page, title)).to_be_visible()
    sub = pane(page, "jaxpr").locator(".see-l", has_text="sub")
    expect(sub.locator(".see-g")).to_have_text("3")  # the source line stands beside it
    expect(page.get_by_role("table")).to_be_visible()
    expect(page.get_by_role("row", name="cached")).to_be_visible()


def test_two_pictures_keep_to_themselves(open_page):
    page = open_page(viewport={"width": 1280, "height": 900})
    page.evaluate(
        "document.querySelector('main').append(document.querySelector('.see-trace').cloneNode(true))"
    )
    page.locator(".see-trace").nth(1).locator(".see-l", has_text="tanh").first.hover()
    assert page.locator(".see-trace").nth(0).locator(".see-on").count() == 0
    assert page.locator(".see-trace").nth(1).locator(".see-on").count() > 0


def test_a_function_of_thirty_lines_is_seen_whole(browser):
    source = "def f(x):\n" + "".join(f"    x = jnp.sin(x) * {n}\n" for n in range(28))
    file = "/tmp/ipykernel_1/30.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"jnp": jnp}
    exec(compile(source + "    return x", file, "exec"), names)
    picture = see.trace(names["f"], jnp.ones(3))
    for width in (900, 1200):
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.set_content(picture._repr_html_())
        code = page.locator(".see-code").first
        assert code.evaluate("el => el.scrollHeight - el.clientHeight") == 0, width
        page.close()


def test_style_and_script_stay_small():
    assert len(gzip.compress(see.ASSETS.encode())) <= 7 * 1024  # as a server sends it
    assert see.ASSETS.startswith("<style data-seejax>")
    assert "</style><script data-seejax>" in see.ASSETS
    assert see.ASSETS.endswith("</script>")


@pytest.mark.parametrize(("width", "columns"), [(375, 1), (760, 2), (1200, 2)])
def test_four_panes_stand_in_rows_of_two_or_below_each_other(browser, width, columns):
    picture = see.trace(loss, jnp.ones(4), jnp.ones((3, 4)), jnp.ones(3), stablehlo=True)
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_content(f"<!doctype html><main>{picture._repr_html_()}</main>")
    titles = ("Python source", "jaxpr", "StableHLO", "optimized HLO")
    boxes = [pane(page, title).bounding_box() for title in titles]
    assert len({round(box["x"]) for box in boxes}) == columns
    assert len({round(box["y"]) for box in boxes}) == 4 // columns
    pane(page, "StableHLO").get_by_text("tanh").first.hover()
    assert operations(page) == ["tanh"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
