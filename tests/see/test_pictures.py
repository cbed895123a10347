"""What every picture keeps to, whatever it shows: one test each, for all of them."""

import contextlib
import re

import jax
import jax.numpy as jnp
import pytest
from bs4 import BeautifulSoup
from jax.experimental import pallas as pl
from playwright.sync_api import expect
from test_browser import contrast

from seejax import see
from seejax.see import _i18n, _jax_private, _picture

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def loss(w, x, y):
    h = jnp.tanh(x @ w)
    return jnp.mean((h - y) ** 2)  # "<script>alert(3)</script>"


def refuses(x):
    raise ValueError(f"{HOSTILE} & more")


def made_of_parts(name):
    if name == "calls":

        @see.calls(static_argnames="label")
        def power(x, label):
            if label is None:
                raise ValueError(HOSTILE)
            return x * 2

        for x, label in ((1.0, HOSTILE), (1.0, HOSTILE), (jnp.ones(3), "b")):
            power(x, label=label)
        with contextlib.suppress(ValueError):
            power(1.0, label=None)
        power.__name__ = HOSTILE
        return power
    if name == "tree":
        return see.tree({HOSTILE: jnp.ones(3), "b": [None, HOSTILE, {"c": 1.0}], "n": ()})
    if name == "trees":
        first = {HOSTILE: jnp.ones(3), "b": [None, {"c": 1.0}], "n": (), "long": {"k": [1.0] * 3}}
        return see.tree(first, {HOSTILE: jnp.ones(4), "b": (1, {"d": 1}), "n": None})
    if name == "keys":
        with see.keys() as k:
            key = jax.random.key(0)
            jax.random.normal(key), jax.random.uniform(key, (3, 100, 1000))
            jax.random.split(jax.random.split(key)[1], 100)
            jax.vmap(jax.random.normal)(jax.random.split(key, 3))
            for _ in range(20):
                key, _one = jax.random.split(key)
        k.name = HOSTILE
        return k
    if name == "timeline":
        with see.timeline() as t:
            with t.mark(HOSTILE):
                float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((300, 300))))
            v = jnp.ones(4)
            for _ in range(20):
                v = v + 1
            jnp.ones((300, 300)) @ jnp.ones((300, 300))
        return t
    if name == "axes":
        odd = {HOSTILE: jnp.ones((3, 4)), "k": jax.random.split(jax.random.key(0), 3)}
        picture = see.axes(lambda p, w: jnp.tanh(p[HOSTILE] @ w), (0, None), 0, odd, jnp.ones(4))
        picture.name = HOSTILE
        return picture
    if name == "grad":
        odd = {HOSTILE: jnp.ones((4, 4)), "b": jnp.ones(4)}

        def layers(p, x, n):
            for _ in range(n):
                x = jnp.tanh(x @ p[HOSTILE] + p["b"])  # "<script>alert(3)</script>"
            return x

        once = jax.checkpoint(layers, static_argnums=2)
        picture = see.grad(lambda p, x: once(p, layers(p, x, 4), 1).sum(), odd, jnp.ones((3, 4)))
        picture.name = HOSTILE
        return picture
    if name == "memory":
        odd = {HOSTILE: jnp.ones(3000), "b": jnp.ones((4, 9))}
        table = jnp.arange(3000.0) ** 2  # a constant of the program
        program = lambda p, x: ({HOSTILE: p[HOSTILE] + table}, p["b"].sum(), jnp.sort(x))  # noqa: E731
        picture = see.memory(program, odd, jnp.ones(3000), donate_argnums=(0, 1))
        picture.name = HOSTILE
        return picture
    if name.startswith("kernel"):
        odd = {HOSTILE: jnp.ones((4, 8)), "b": jnp.ones(7)}

        def body(x, y, o):
            o[...] = x[HOSTILE][...] + y[...]

        def launch(x, y):
            spec = pl.BlockSpec((2, 4), lambda i, j: (i, j))
            specs = [{HOSTILE: spec, "b": pl.BlockSpec((4,), lambda i, j: (j + i,))}, spec]
            return pl.pallas_call(body, y, grid=(2, 2), in_specs=specs, out_specs=spec)(x, y)

        f = (
            launch
            if name == "kernel"
            else jax.vmap(lambda x, y: launch(x, launch(x, y)), (None, 0))
        )
        picture = see.kernel(f, odd, jnp.ones((4, 8) if name == "kernel" else (3, 4, 8)))
        picture.name = HOSTILE
        return picture
    if name.startswith("shards"):
        mesh = jax.make_mesh((4, 2), (HOSTILE, "y"))
        x, w = jnp.ones((8, 4096)), jnp.ones((2, 4, 6))
        rows = jax.device_put(x, jax.NamedSharding(mesh, jax.P(HOSTILE, "y")))
        columns = jax.device_put(w, jax.NamedSharding(mesh, jax.P(None, HOSTILE)))
        if name == "shards":
            return see.shards(rows, columns)
        return see.shards({HOSTILE: rows, "b": [columns, 2.0]}, rows)
    if name == "error":
        return see.trace(refuses, 1.0)
    f = jax.grad(loss)
    if name == "no source":
        names = {"jnp": jnp}
        exec("def f(w, x, y):\n    return jnp.tanh(x @ w)", names)
        f = names["f"]
    arguments = jnp.ones(4), jnp.ones((3, 4)), jnp.ones(3)
    if name == "approximate":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_jax_private, "tagged", lambda *_: 1 / 0)
            return see.trace(f, *arguments)
    picture = see.trace(f, *arguments, stablehlo=name == "stablehlo")
    picture.name = HOSTILE
    return picture


NAMES = [
    "trace",
    "stablehlo",
    "calls",
    "tree",
    "trees",
    "error",
    "approximate",
    "no source",
    "keys",
    "axes",
    "grad",
    "memory",
    "shards",
    "shards of a tree",
    "timeline",
    "kernel",
    "kernels",
]


@pytest.fixture(scope="module", params=NAMES)
def picture(request):
    with jax.numpy_rank_promotion("allow"):
        return made_of_parts(request.param)


@pytest.fixture
def shown(browser, picture):
    """The picture on a page of a language."""
    pages = []

    def show(lang="en", **options):
        page = browser.new_page(**options)
        page.on("pageerror", lambda error: pytest.fail(str(error)))
        page.on("console", lambda m: m.type == "error" and pytest.fail(m.text))
        page.set_content(
            f'<!doctype html><html lang="{lang}"><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"<body>{picture._repr_html_()}</body></html>"
        )
        pages.append(page)
        return page

    yield show
    for page in pages:
        page.close()


def test_style_and_script_come_once_and_first(picture):
    page = picture._repr_html_()
    assert page == see.ASSETS + picture.html()
    assert page.count("<style data-seejax>") == page.count("<script data-seejax>") == 1
    assert picture._repr_mimebundle_() == {"text/plain": str(picture), "text/html": page}
    assert "\n\n" not in picture.html()  # a blank line ends the HTML where Markdown reads it


def test_it_is_saved_as_a_page_or_as_text_and_as_nothing_else(picture, tmp_path):
    page = picture.save(tmp_path / "picture.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and picture.html() in page and see.ASSETS in page
    assert not re.search(r'(src|href)="', page)
    text = picture.save(str(tmp_path / "picture.txt")).read_text(encoding="utf-8")
    assert text == picture.text() + "\n"
    for name in ("picture.png", "picture.svg", "picture"):
        with pytest.raises(ValueError, match=r"can be saved as \.html or \.txt, not as"):
            picture.save(tmp_path / name)


def test_a_script_shows_it_in_the_browser(monkeypatch, picture):
    opened = []
    monkeypatch.setattr(_picture.webbrowser, "open", lambda url: not opened.append(url))
    monkeypatch.setattr(_picture, "has_screen", lambda: True)
    path = picture.show()
    assert opened == [path.as_uri()] and picture.html() in path.read_text(encoding="utf-8")
    monkeypatch.setattr(_picture, "has_screen", lambda: False)
    with pytest.raises(RuntimeError, match="no browser can be opened here; the picture is in"):
        picture.show()
    assert len(opened) == 1


def test_what_comes_from_a_program_is_escaped(picture):
    soup = BeautifulSoup(picture.html(), "html.parser")
    assert not soup.select("script, img")
    names = {"div", "p", "span", "strong", "figure", "figcaption", "code", "pre", "i", "details"}
    names |= {"summary", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert {tag.name for tag in soup.find_all(True)} <= names
    if HOSTILE in str(picture):
        assert HOSTILE in soup.get_text()


def test_text_says_what_html_says(picture):
    soup = BeautifulSoup(picture.html(), "html.parser")
    # What one of two languages says, what only a screen reader says, what repeats a head or folds.
    for tag in soup.select('[lang="zh"], .see-sr, .see-key, .see-pane summary'):
        tag.decompose()
    said = [set(re.findall(r"\w+", text)) for text in (soup.get_text(" "), str(picture))]
    joined = [re.sub(r"\s", "", text) for text in (soup.get_text(), str(picture))]
    # An expression may be cut inside a word, so each word of one has to be somewhere in the other.
    for words, whole in zip(said, reversed(joined), strict=True):
        assert not {word for word in words if word not in whole}


def test_the_doubt_is_in_the_header(picture):
    soup = BeautifulSoup(picture.html(), "html.parser")
    doubts = [tag.select_one('[lang="en"]').text for tag in soup.select(".see-head .see-doubt")]
    assert doubts == ["".join(span.text for span in picture.doubt)] * bool(picture.doubt)
    for doubt in doubts:
        assert str(picture).splitlines()[1] == f"! {doubt}"


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("lang", ["zh-CN", "zh", "en", "fr", ""])
def test_its_own_words_are_in_the_language_of_the_page(shown, picture, lang, script):
    page = shown(lang, java_script_enabled=script)
    chinese = lang.startswith("zh")
    words = page.locator(".see-w")
    assert words.count() > 1
    for i in range(min(words.count(), 12)):
        if words.nth(i).is_visible():
            english, other = words.nth(i).locator("> span").all()
            assert (english.is_visible(), other.is_visible()) == (not chinese, chinese)
    # Who copies it copies what he sees, and a search on the page finds no other.
    if script:
        copied = page.evaluate(
            "() => {getSelection().selectAllChildren(document.querySelector('.see'));"
            " return getSelection().toString()}"
        )
        assert bool(re.search("[\u4e00-\u9fff]", copied)) == chinese


def test_every_word_of_its_own_has_both_languages(picture):
    soup = BeautifulSoup(picture.html(), "html.parser")
    for title in soup.select("figcaption, caption, thead th, .see-badge, summary, .see-doubt"):
        if text := title.get_text():
            assert title.select_one(".see-w") or text in ("jaxpr", "StableHLO", "#"), text
    assert all("{}" in other or "{}" not in word for word, other in _i18n.CHINESE.items())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read(shown, scheme):
    page = shown(color_scheme=scheme)
    pairs = page.evaluate(
        """() => {
          const dark = matchMedia("(prefers-color-scheme: dark)").matches;
          const ground = (e) => {
            for (; e; e = e.parentElement) {
              const colour = getComputedStyle(e).backgroundColor;
              if (colour != "rgba(0, 0, 0, 0)") return colour;
            }
            return dark ? "rgb(18, 18, 18)" : "rgb(255, 255, 255)";
          };
          const found = new Map(), see = document.querySelector(".see");
          const words = document.createTreeWalker(see, NodeFilter.SHOW_TEXT);
          while (words.nextNode()) {
            const e = words.currentNode.parentElement;
            if (!words.currentNode.data.trim() || !e.checkVisibility()) continue;
            found.set(getComputedStyle(e).color + ground(e),
              [getComputedStyle(e).color, ground(e), words.currentNode.data]);
          }
          return [...found.values()];
        }"""
    )
    assert len(pairs) > 2
    for ink, ground, word in pairs:
        assert contrast(ink, ground) >= 4.5, (word, ink, ground)


def test_a_phone_shows_it_without_scrolling_sideways(shown):
    page = shown(viewport={"width": 375, "height": 700}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    for box in page.locator(".see-code, .see-scroll").all():
        assert box.evaluate("el => el.scrollWidth - el.clientWidth") <= 0


def test_the_keyboard_reaches_each_pane_once(shown, picture):
    page = shown()
    panes = page.locator(".see-pane:has([data-e][tabindex])").count()
    stops = page.locator('.see [tabindex="0"]')
    assert stops.count() == panes
    for i in range(panes):
        page.keyboard.press("Tab")
        expect(stops.nth(i)).to_be_focused()
        expect(stops.nth(i)).to_have_class(re.compile(r"\bsee-on\b"))
    if panes:
        page.keyboard.press("Escape")
        expect(page.locator(".see-on")).to_have_count(0)
