"""What a page weighs, asks for and does while it loads; whether everyone can use what it offers."""

import gzip
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import matplotlib.pyplot as plt
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from built_site import LANGUAGES, PAGES, SAMPLE, SITE, WIDTHS, soup
from PIL import Image, ImageChops
from playwright.sync_api import Browser, Page, expect

from book.extensions import assets, figures

KIB = 1024
PAGE_KIB, FIGURE_KIB, REQUESTS = 64, 40, 10


@pytest.fixture(scope="module")
def server(site: Path, serve: Callable[[Path], str]) -> str:
    return serve(site)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 375, "height": 800})
    page.set_default_timeout(60_000)
    yield page
    page.close()


# -- every page, opened once on a phone ----------------------------------------------------------

SHIFTS = """
  window.shift = 0;
  new PerformanceObserver(list => {
    for (const e of list.getEntries()) if (!e.hadRecentInput) window.shift += e.value;
  }).observe({type: "layout-shift", buffered: true});
"""

# Rules of the book's style sheet that match nothing, in whatever state the page may come to be.
IDLE = r"""() => {
  const state = new RegExp(String.raw`:not\(:(hover|focus-visible|empty)\)` +
    String.raw`|:(hover|focus(-visible|-within)?|target|popover-open)\b` +
    String.raw`|\[(data-theme|aria-current|aria-selected|open)[^\]]*\]`, "g");
  const rules = list => [...list].flatMap(rule => rule.selectorText ? [rule.selectorText]
    : /not selector/.test(rule.conditionText) ? [] : rules(rule.cssRules ?? []));
  const sheet = [...document.styleSheets].find(each => each.href?.includes("/site.css"));
  return rules(sheet.cssRules).filter(selector => {
    const always = selector.replace(state, ":not(x-none)").replace(/::[\w-]+/g, ":not(x-none)");
    return !document.querySelector(always);
  });
}"""

TWO_FRAMES = "() => new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))"


class Visit(NamedTuple):
    asked: list[str]  # what the page has loaded
    kib: float  # on the wire, without its figures
    shift: float  # how far things moved, as layout-shift counts
    idle: list[str]  # selectors that matched nothing


def weight(url: str) -> int:
    """Bytes on the wire: a host sends text compressed, as Read the Docs does."""
    return len(gzip.compress((SITE / urlsplit(url).path.lstrip("/")).read_bytes(), 6))


@pytest.fixture(scope="module")
def visits(browser: Browser, server: str) -> dict[str, Visit]:
    page = browser.new_page(viewport={"width": 375, "height": 800})
    page.add_init_script(SHIFTS)
    answers: list = []
    page.on("response", lambda response: answers.append(response))
    seen = {}
    for path in [*PAGES, *(f"{language}/404.html" for language in LANGUAGES)]:
        answers.clear()
        page.goto(f"{server}/{path}")
        page.wait_for_load_state("load")
        page.mouse.wheel(0, 1500)
        page.evaluate(TWO_FRAMES)
        own = [r for r in answers if "/_images/" not in r.url]
        kib = sum(weight(r.url) for r in own) / KIB
        asked = [r.url for r in own]
        seen[path] = Visit(asked, kib, page.evaluate("window.shift"), page.evaluate(IDLE))
    page.keyboard.press("/")  # a last visit, with what only a search needs
    page.locator(".search-input").fill("jit")
    page.locator(".search-result mark").first.wait_for()
    seen[path] = seen[path]._replace(idle=page.evaluate(IDLE))
    page.close()
    return seen


# -- bytes and requests --------------------------------------------------------------------------


def test_every_page_is_light_and_asks_for_little(visits: dict[str, Visit], server: str) -> None:
    heavy = [
        f"{path}: {visit.kib:.0f} KiB, {visit.asked}"
        for path, visit in visits.items()
        if visit.kib > PAGE_KIB or len(visit.asked) > REQUESTS
    ]
    strange = {url for visit in visits.values() for url in visit.asked if server not in url}
    assert not heavy and not strange, "\n".join([*heavy, *strange])


def test_figures_are_light_and_have_their_place(site: Path) -> None:
    heavy, missing = [], []
    for path in PAGES:
        for image in soup(path).select("article img"):
            missing += [] if image["src"].endswith(".svg") else [f"{path}: no SVG, {image}"]
            size = (SITE / path).parent.joinpath(image["src"]).stat().st_size
            heavy += [f"{path}: {image['src']} {size / KIB:.0f} KiB"] * (size > FIGURE_KIB * KIB)
            kept = image.get("loading") == "lazy" and image.get("width") and image.get("height")
            missing += [] if kept else [f"{path}: {image}"]
    assert not heavy + missing, "\n".join(heavy + missing)


def test_a_cleaned_figure_is_the_same_picture(page: Page) -> None:
    """Drawn beside the one that Matplotlib wrote, no more than edges differ."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(5, 2.5), layout="constrained")
    left.plot(np.sin(np.linspace(0, 9, 300)), "o-", markersize=2, label="sin")
    left.fill_between(range(300), -1, np.cos(np.linspace(0, 9, 300)), alpha=0.3)
    left.legend()
    right.imshow(np.arange(12).reshape(3, 4))
    right.set_title(r"$\alpha = 1.5$")
    out = io.StringIO()
    fig.savefig(out, format="svg", transparent=True)
    plt.close(fig)
    shots = []
    for svg in out.getvalue(), figures.cleaned(out.getvalue()):
        page.set_content(svg[svg.index("<svg") :])
        shots.append(Image.open(io.BytesIO(page.screenshot())).convert("L"))
    counts = ImageChops.difference(*shots).histogram()
    assert len(figures.cleaned(out.getvalue())) < 0.75 * len(out.getvalue())
    assert min(shots[0].getextrema()) < 100, "nothing was drawn"
    assert sum(counts[96:]) < 0.001 * sum(counts), counts


@pytest.mark.whole_book
def test_a_page_carries_spans_for_colours_alone(site: Path) -> None:
    css = (assets.PAGE / "book.css").read_text("utf8")
    known = set(re.findall(r"\.highlight \.(\w+) \{", css))
    assert known == set(assets.COLOURED.values())
    used = {
        name
        for path in PAGES
        for span in soup(path).select(".cell_input .highlight span[class]")
        for name in span["class"]
    }
    assert used <= known and {"k", "s"} <= used


@pytest.mark.whole_book
def test_the_style_sheet_has_no_rule_that_no_page_needs(visits: dict[str, Visit]) -> None:
    idle = set.intersection(*(set(visit.idle) for visit in visits.values()))
    idle = {rule for rule in idle if not rule.startswith(".run ")}  # wants a known repository
    assert not idle, "\n".join(sorted(idle))


# -- while it loads ------------------------------------------------------------------------------


def test_nothing_moves_while_a_page_loads(visits: dict[str, Visit]) -> None:
    moved = [f"{path}: {visit.shift:.3f}" for path, visit in visits.items() if visit.shift > 0.02]
    assert not moved, "\n".join(moved)


def test_the_reader_s_colours_are_there_before_the_first_paint(page: Page, server: str) -> None:
    """The body's ground, noted as soon as there is a body, is what it stays."""
    page.emulate_media(color_scheme="light")
    page.goto(f"{server}/zh/jit.html")
    switch = page.locator(".theme-switch")
    seen = []
    for _ in range(3):
        switch.click()
        seen.append(page.evaluate("document.documentElement.dataset.theme"))
    assert seen == ["light", "dark", "auto"]
    switch.click()
    switch.click()
    expect(switch).to_have_accessible_name("配色：深色")
    page.add_init_script(
        """new MutationObserver((_, seen) => {
          if (!document.body) return;
          window.first = document.documentElement.dataset.theme;
          seen.disconnect();
        }).observe(document, {childList: true, subtree: true});"""
    )
    page.goto(f"{server}/en/jit.html")
    assert page.evaluate("window.first") == "dark"
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


# -- for everyone --------------------------------------------------------------------------------


# The contrast of every word is measured in test_site.py, in a tenth of the time.
WITHOUT_CONTRAST = {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": False}}}


# After a frame the script knows what scrolls, and has made it reachable by keyboard.
LAID_OUT = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def violations(page: Page, **options: object) -> list[str]:
    page.evaluate(LAID_OUT)
    found = Axe().run(page, options=options).response["violations"]
    return [f"{page.url}: {v['help']} {[node['target'] for node in v['nodes']][:3]}" for v in found]


@pytest.mark.parametrize(("language", "width"), [("zh", "phone"), ("en", "desk")])
def test_axe_finds_nothing_on_a_page_of_each_kind(
    page: Page, server: str, language: str, width: str
) -> None:
    page.set_viewport_size({"width": WIDTHS[width], "height": 800})
    wrong = []
    for path in [path for path in [*SAMPLE, f"{language}/404.html"] if path.startswith(language)]:
        page.goto(f"{server}/{path}")
        wrong += violations(page, **WITHOUT_CONTRAST)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_every_word_of_the_frame_readable(page: Page, server: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{server}/zh/404.html")
    assert not violations(page)


def test_the_lists_open_by_keyboard_and_close(page: Page, server: str) -> None:
    page.goto(f"{server}/en/jit.html")
    for name in "sidebar", "contents":
        panel, opener = page.locator(f"#{name}"), page.locator(f"[popovertarget={name}]")
        expect(panel).to_be_hidden()
        opener.focus()
        page.keyboard.press("Enter")
        expect(panel).to_be_visible()
        page.keyboard.press("Tab")
        assert page.evaluate(f"document.activeElement.closest('#{name}') !== null")
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(opener).to_be_focused()
    page.locator("[popovertarget=contents]").click()
    link = page.locator("#contents a").nth(3)
    anchor = link.get_attribute("href")
    link.click()
    expect(page.locator("#contents")).to_be_hidden()
    expect(page.locator(anchor)).to_be_in_viewport()
    page.keyboard.press("Home")
    page.reload()
    page.keyboard.press("Tab")
    expect(page.locator(".skip-link")).to_be_in_viewport()


def test_the_lists_open_without_a_script(browser: Browser, server: str) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 375, "height": 800})
    page = context.new_page()
    page.goto(f"{server}/zh/jit.html")
    page.locator("[popovertarget=sidebar]").click()
    page.locator("#sidebar a[href='vmap.html']").click()
    page.wait_for_url("**/zh/vmap.html")
    context.close()


def test_the_section_being_read_is_marked(page: Page, server: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 800})
    page.goto(f"{server}/en/jit.html")
    later = page.locator(".page-toc a").nth(4).get_attribute("href")
    page.locator(later).evaluate("e => e.scrollIntoView({behavior: 'instant'})")
    marked = page.locator(".page-toc a[aria-current]")
    expect(marked).to_have_count(1)
    expect(marked).to_have_attribute("href", later)


def test_wide_code_scrolls_by_keyboard_and_the_page_stays(page: Page, server: str) -> None:
    page.goto(f"{server}/zh/jit.html")
    wide = page.locator("article pre[tabindex='0']").first
    wide.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("e => e.scrollLeft > 0", arg=wide.element_handle())
    assert page.evaluate("scrollX") == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_lost_reader_finds_back_from_any_depth(page: Page, server: str, language: str) -> None:
    text = (SITE / language / "404.html").read_text("utf8")
    page.route("**/deep/*", lambda route: route.fulfill(body=text, content_type="text/html"))
    page.goto(f"{server}/{language}/deep/er")
    assert page.evaluate("document.styleSheets[0].cssRules.length") > 50
    page.locator("article a").first.click()
    page.wait_for_url(f"**/{language}/index.html")


def test_paper_has_the_text_alone(page: Page, server: str) -> None:
    page.goto(f"{server}/en/jit.html")
    page.emulate_media(media="print")
    for part in ".bd-header", "#sidebar", "#contents", ".prev-next":
        expect(page.locator(part)).to_be_hidden()
    expect(page.locator("article h1")).to_be_visible()
