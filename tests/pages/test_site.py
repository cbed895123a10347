"""The built site as its readers have it: in a real Chromium, both languages, wide and narrow."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup, Tag
from built_site import (
    CONTRAST,
    KINDS,
    LANGUAGES,
    ONLY,
    OVERFLOW,
    PAGES,
    ROOT,
    SAMPLE,
    SITE,
    SOURCES,
    WIDTHS,
    ids,
    soup,
)
from playwright.sync_api import expect

# -- every page, without a browser ---------------------------------------------------------------


def built() -> list[str]:
    """Every page that Sphinx has written, its search and index too."""
    pages = [p for language in LANGUAGES for p in (SITE / language).rglob("*.html")]
    assert not (SITE / "zh" / "_static" / "choose.html").exists(), "a page is published once"
    return [
        "index.html",
        *(p.relative_to(SITE).as_posix() for p in pages if "_static" not in p.parts),
    ]


def addresses(page: str) -> Iterator[tuple[Tag, str]]:
    for tag in soup(page).find_all(lambda tag: tag.name != "base"):
        for name in ("href", "src", "action", "poster", "data"):
            if tag.get(name):
                yield tag, tag[name]
        for candidate in tag.get("srcset", "").split(","):
            if candidate.strip():
                yield tag, candidate.split()[0]


def test_every_source_is_a_page_in_both_languages(site: Path) -> None:
    assert SOURCES["zh"] == SOURCES["en"]
    assert set(PAGES) <= set(built())
    assert {*KINDS} <= {*SOURCES["zh"]} or ONLY


def test_every_link_and_fragment_leads_somewhere(site: Path) -> None:
    lost = []
    for page in built():
        for tag, address in addresses(page):
            parts = urlsplit(address)
            if parts.scheme in ("data", "mailto"):
                continue
            if parts.scheme or parts.netloc:
                if tag.name != "a" or parts.scheme != "https":
                    lost.append(f"{page}: <{tag.name}> loads {address} from another machine")
                continue
            target = unquote(urlsplit(urljoin(f"/{page}", address)).path).lstrip("/")
            if not (SITE / target).is_file():
                lost.append(f"{page}: {address} is no file")
                continue
            sections = ids(target) if target.endswith(".html") else set()
            if parts.fragment and unquote(parts.fragment) not in sections:
                lost.append(f"{page}: {address} is no section")
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_its_language_and_its_alternates(site: Path, page: str) -> None:
    language, _, name = page.partition("/")
    assert soup(page).html["lang"] == LANGUAGES[language]
    if not os.environ.get("READTHEDOCS_CANONICAL_URL"):  # test_build.py sees to these
        assert not soup(page).select("head link[hreflang]"), "search engines take whole addresses"
    (switch,) = {a["href"] for a in soup(page).select("a.language-switch")}
    other = next(each for each in LANGUAGES if each != language)
    assert urljoin(f"/{page}", switch) == f"/{other}/{name}"


@pytest.mark.parametrize("page", PAGES)
def test_headings_pictures_and_formulas_can_be_read_aloud(site: Path, page: str) -> None:
    article = soup(page).select_one("article")
    levels = [int(h.name[1]) for h in article.find_all(re.compile("^h[1-6]$"))]
    assert levels[0] == 1 and levels.count(1) == 1, levels
    steps = itertools.pairwise(levels)
    assert all(deeper <= level + 1 for level, deeper in steps), levels
    assert not [img for img in soup(page).find_all("img") if not img.get("alt", "").strip()]
    said = [output.get_text() for output in soup(page).select(".cell_output pre")]
    plots = [text for text in said if re.search(r"\bText\(|<matplotlib|<Figure", text)]
    assert not plots, f"what a plotting call returned, for want of a semicolon: {plots}"
    assert not soup(page).select("merror")
    prose = BeautifulSoup(str(article), "html.parser")
    for code in prose.select("pre, code, script, style, .cell_output, annotation"):
        code.decompose()
    raw = re.findall(r"\S*(?:\$|\\[a-zA-Z(\[{,]|\{[a-z:]+\}`)\S*", prose.get_text())
    assert not raw, f"markup that was not read: {raw}"


# -- every page, in the browser ------------------------------------------------------------------

# A figure's words are 11 pt, and shrink with it on a phone; the theme would dim it in the dark.
FIGURES = """async () => {
  const figures = [...document.querySelectorAll(".cell_output img")];
  figures.forEach(e => { e.loading = "eager"; });
  await Promise.all(figures.map(e => e.decode()));
  return figures
    .filter(e => e.width && e.width < 0.6 * e.naturalWidth || getComputedStyle(e).filter != "none")
    .map(e => `${e.alt}: ${e.width} of ${e.naturalWidth} px, ${getComputedStyle(e).filter}`);
}"""


# What is cut by its own place, and would have to be scrolled: formulas, tables, pictures of `see`.
CUT = """() => [...document.querySelectorAll(
    "article :is(.math, .see-scroll, .cell_output, table)")]
  .filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => `${e.className}: ${e.textContent.trim().slice(0, 60)}`)"""

# Cells of a table that show a word one character a line.
SQUEEZED = """() => [...document.querySelectorAll("article table.table :is(th, td)")]
  .filter(e => {
    const size = parseFloat(getComputedStyle(e).fontSize);
    return e.innerText.trim().length > 2 && e.clientWidth < 3 * size && e.clientHeight > 4 * size;
  })
  .map(e => e.innerText.trim().slice(0, 20))"""


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_loads_fits_and_can_be_read(reader, width: str) -> None:
    here = reader(width=width)
    wrong = []
    for path in built():
        here.page.emulate_media(color_scheme="light")
        page = here.open(path)
        page.wait_for_load_state("load")
        if overflow := page.evaluate(OVERFLOW):
            wrong.append(f"{path} is wider than its window: {overflow}")
        wrong += [f"{path}: figure {poor}" for poor in page.evaluate(FIGURES)]
        wrong += [f"{path}: squeezed {cell}" for cell in page.evaluate(SQUEEZED)]
        if width == "desk":  # colours are the same on a phone; there, what is wide may be scrolled
            wrong += [f"{path}: cut {what}" for what in page.evaluate(CUT)]
            for scheme in ("light", "dark") if path in SAMPLE else ():
                page.emulate_media(color_scheme=scheme)
                wrong += [f"{path}, {scheme}: contrast {poor}" for poor in page.evaluate(CONTRAST)]
        if path in PAGES and not page.locator("a.language-switch").first.is_visible():
            wrong.append(f"{path}: no language switch to be seen")
    page.wait_for_load_state("networkidle")  # what the pages asked for late
    assert not wrong, "\n".join(wrong)


def test_a_page_of_each_kind_opens_from_the_disk(reader, site: Path) -> None:
    here = reader(home=site.as_uri())
    for path in [page for page in SAMPLE if page.startswith("en/")]:
        page = here.open(path)
        expect(page.locator("article h1")).to_be_visible()
    here.switch()
    page.wait_for_url(f"**/{SAMPLE[-1].replace('en/', 'zh/')}*")


def test_light_and_dark_differ(reader) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        page = reader(color_scheme=scheme).open("zh/jit.html")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        grounds[scheme] = sum(map(int, re.findall(r"\d+", ground)[:3]))
    assert grounds["light"] > 600 and grounds["dark"] < 150, grounds


# -- what a reader does --------------------------------------------------------------------------


def sections(path: str) -> list[str]:
    return [s["id"] for s in soup(path).select("article section section[id]")]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_switch_keeps_page_and_section(reader, width: str) -> None:
    here = reader(width=width)
    third = sections("zh/jit.html")[2]
    page = here.open(f"zh/jit.html#{third}")
    here.switch()
    page.wait_for_url(f"**/en/jit.html#{third}")
    expect(page.locator(f"#{third}")).to_be_in_viewport()
    here.switch()
    page.wait_for_url(f"**/zh/jit.html#{third}")


def test_the_switch_goes_where_the_reader_has_scrolled_to(reader) -> None:
    here = reader()
    later = sections("zh/jit.html")[4]
    page = here.open("zh/jit.html")
    page.locator(f"#{later}").evaluate("e => e.scrollIntoView({behavior: 'instant'})")
    assert "#" not in here.at
    here.switch()
    page.wait_for_url(f"**/en/jit.html#{later}")
    expect(page.locator(f"#{later} > h2")).to_be_in_viewport()
    # A section that was asked for and left behind is no longer where the reader is.
    first = sections("zh/jit.html")[0]
    here.open(f"zh/jit.html#{first}")
    page.locator(f"#{later}").evaluate("e => e.scrollIntoView({behavior: 'instant'})")
    here.switch()
    page.wait_for_url(f"**/en/jit.html#{later}")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_switch_by_keyboard_does_not_move_the_page(reader, width: str) -> None:
    here = reader(width=width)
    third = sections("en/jit.html")[2]
    page = here.open(f"en/jit.html#{third}")
    expect(page.locator(f"#{third}")).to_be_in_viewport()
    before = page.evaluate("scrollY")
    page.locator("a.language-switch").first.focus()
    assert page.evaluate("scrollY") == before > 0
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/zh/jit.html#{third}")


def test_the_switch_at_the_top_of_a_page_stays_at_the_top(reader) -> None:
    here = reader()
    page = here.open("en/jit.html")
    here.switch()
    page.wait_for_url("**/zh/jit.html")
    assert page.evaluate("scrollY") == 0


UNSEEN = """() => [...document.querySelectorAll("article :is(h2, p)")]
  .filter(e => !e.closest("details") && !(e.checkVisibility() && e.getBoundingClientRect().height))
  .map(e => e.textContent.trim().slice(0, 60))"""


def test_a_page_of_each_kind_can_be_read_without_a_script(reader) -> None:
    here = reader(java_script_enabled=False)
    for path in [page for page in SAMPLE if page.startswith("zh/")]:
        page = here.open(path)
        expect(page.locator("article h1")).to_be_visible()
        assert not page.evaluate(UNSEEN), path
    page = here.open("zh/jit.html")
    page.locator("article details > summary").first.click()
    assert page.locator("article details").first.get_attribute("open") is not None
    here.switch()
    page.wait_for_url("**/en/jit.html")


@pytest.mark.parametrize(
    ("locale", "language"),
    [("zh-CN", "zh"), ("zh-TW", "zh"), ("en-GB", "en"), ("fr-FR", "en")],
)
def test_the_root_chooses_by_the_browser_s_language(reader, locale: str, language: str) -> None:
    here = reader(locale=locale)
    page = here.open("index.html")
    page.wait_for_url(f"**/{language}/index.html")
    assert page.locator("html").get_attribute("lang") == LANGUAGES[language]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_root_without_script_is_two_links(reader, language: str) -> None:
    here = reader(java_script_enabled=False)
    page = here.open("index.html")
    assert here.at == "index.html"
    page.locator(f"a[href='{language}/index.html']").click()
    assert here.at == f"{language}/index.html"


def test_folded_cells_open_by_keyboard_and_say_what_they_hold(reader) -> None:
    for path, check in (("zh/jit.html", "展开"), ("en/jit.html", "Show")):
        page = reader().open(path)
        folded = page.locator("article .tag_hide-cell details").first
        summary = folded.locator("summary")
        assert check in summary.inner_text()
        inside = folded.locator("pre").first
        expect(inside).to_be_hidden()
        summary.focus()
        page.keyboard.press("Enter")
        expect(inside).to_be_visible()
        page.keyboard.press("Enter")
        expect(inside).to_be_hidden()


# -- what every page promises its reader ---------------------------------------------------------

CELL = re.compile(r"^```\{code-cell\}.*\n((?:.*\n)*?)```$", re.MULTILINE)


def source(page: str) -> str:
    return (ROOT / "docs" / page).with_suffix(".md").read_text("utf8")


@pytest.mark.parametrize("page", PAGES)
def test_a_puzzle_shows_its_code_and_folds_its_output(site: Path, page: str) -> None:
    puzzles = soup(page).select(".cell.tag_puzzle")
    assert len(puzzles) == len(re.findall(r"(?m)^:tags: \[.*\bpuzzle\b", source(page)))
    for cell in puzzles:
        assert cell.select_one(".cell_input").find_parent("details") is None
        if cell.select_one(".guess"):  # which shows the output among others
            continue
        (output,) = cell.select(".cell_output")
        fold = output.find_parent("details")
        assert fold and not fold.has_attr("open")
        assert ("output" if page[:2] == "en" else "输出") in fold.summary.get_text()


@pytest.mark.parametrize("name", SOURCES["zh"])
def test_a_cell_fits_a_desk(name: str) -> None:
    cells = [match[1] for match in CELL.finditer(source(f"zh/{name}"))]
    lines = [line for cell in cells for line in cell.split("\n") if not line.startswith(":")]
    wide = [line for line in lines if len(line) > 88]
    assert not wide, "\n".join(wide)


@pytest.mark.parametrize("name", SOURCES["zh"])
def test_code_that_only_draws_is_folded(site: Path, name: str) -> None:
    drawn = [cell for cell in soup(f"zh/{name}.html").select(".cell") if cell.select("img")]
    bare = [
        code.get_text().strip().split("\n")[0]
        for cell in drawn
        if (code := cell.select_one(".cell_input")) and not code.find_parent("details")
        if re.search(r"\bplt\.|matplotlib", code.get_text())
    ]
    assert not bare, f"tag these cells hide-input: {bare}"


def sidebar(language: str) -> dict[str, str]:
    """The name of every page as the sidebar gives it, in its order."""
    links = soup(f"{language}/index.html").select(".bd-sidebar-primary nav a")
    return {urlsplit(a["href"]).path.removesuffix(".html"): a.get_text().strip() for a in links}


DEEPER = re.compile("-deeper$")


def ending_of(path: str) -> Tag:
    """The last section of a page's main path, after which only what lies deeper stands."""
    sections = soup(path).select("article section")
    main = [s for s in sections if not s.find_parent(id=DEEPER) and not DEEPER.search(s["id"])]
    return main[-1]


@pytest.mark.whole_book
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_has_one_name_in_sidebar_map_and_text(site: Path, language: str) -> None:
    names = {page or "index": name for page, name in sidebar(language).items()}
    names["index"] = names.pop("#", names.get("index"))
    assert set(names) == set(SOURCES[language])
    cards = soup(f"{language}/index.html").select(".cards li > p:first-child a")
    order = [page for page in names if page != "index"]
    assert [a["href"].removesuffix(".html") for a in cards] == order
    wrong = []
    for page in order:  # "read next" names the pages it leads to; a sentence may say it otherwise
        ending = ending_of(f"{language}/{page}.html")
        for a in ending.select("a"):
            path, hash_, _ = a["href"].partition("#")
            name = names.get(path.removesuffix(".html"))
            if name and not hash_ and name.lower() not in a.get_text().lower():
                wrong.append(f"{page}: {a.get_text()!r} leads to {name!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("language", LANGUAGES)
def test_next_goes_forward_in_the_order_of_the_book(reader, site: Path, language: str) -> None:
    names = sidebar(language)
    order = [page for page in names if page not in ("", "#", "index")]
    for last, name in itertools.pairwise(["index", *order]):
        link = soup(f"{language}/{last}.html").select_one("a.right-next")
        assert link["href"] == f"{name}.html"
        assert link.select_one(".prev-next-title").get_text() == names[name]
    assert not soup(f"{language}/{order[-1]}.html").select("a.right-next")
    page = reader().open(f"{language}/index.html")
    page.locator("a.right-next").click()
    page.wait_for_url(f"**/{language}/{order[0]}.html")
    for last, name in itertools.pairwise(order):  # "read next" on the page leads there as well
        ahead = ending_of(f"{language}/{last}.html").select(f"a[href='{name}.html']")
        assert ahead, f"{last} does not lead to {name}"


@pytest.mark.parametrize("page", PAGES)
def test_a_shared_link_says_what_the_page_is_about(site: Path, page: str) -> None:
    head = soup(page).head
    said = {m.get("name") or m.get("property"): m["content"] for m in head.select("meta[content]")}
    assert 10 <= len(said["description"]) <= 400
    assert said["og:description"] == said["description"] and said["og:title"]
    first = soup(page).select_one("article p:not(.times)").get_text().split("\n")[0]
    assert said["description"][:10] == first[:10]
    titles = re.split(r" — | · ", head.title.get_text())
    assert len(titles) == len(set(titles)) == 2


def test_the_front_page_says_where_to_start_and_when_it_was_built(site: Path) -> None:
    import jax

    for language in LANGUAGES:
        article = soup(f"{language}/index.html").article
        text = article.get_text()
        assert len(article.select(".entrances > ul > li")) == 4
        assert f"JAX {jax.__version__}" in text and re.search(r"20\d\d-\d\d-\d\d", text)
        before = [p.get_text() for p in article.select("p")][:1]
        assert before and "NumPy" in before[0]


def test_a_term_is_explained_where_the_reader_points(reader) -> None:
    page = reader().open("en/index.html")
    link, tip = page.locator("a.term").first, page.locator("#tip-term-tracing")
    expect(tip).to_be_hidden()
    link.hover()
    expect(tip).to_be_visible()
    assert link.get_attribute("aria-describedby") == "tip-term-tracing"
    tip.hover()  # the mouse may go onto it
    page.wait_for_timeout(400)
    expect(tip).to_be_visible()
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.mouse.move(0, 0)
    page.keyboard.press("Tab")
    link.focus()
    expect(tip).to_be_visible()
    assert "Python function" in tip.inner_text()
    page.keyboard.press("Tab")
    expect(tip).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_an_explanation_fits_its_window_and_can_be_read(reader, width: str, scheme: str) -> None:
    page = reader(width=width, color_scheme=scheme).open("zh/index.html")
    links = page.locator("a.term")
    for i in range(links.count()):
        links.nth(i).hover()
        tip = page.locator(".term-tip:popover-open")
        box, size = tip.bounding_box(), page.viewport_size
        assert box["x"] >= 0 and box["x"] + box["width"] <= size["width"]
        assert box["y"] >= 0 and box["y"] + box["height"] <= size["height"]
        if i == 0:
            assert not page.evaluate(OVERFLOW) and not page.evaluate(CONTRAST)


def test_a_finger_on_a_term_goes_to_its_explanation(reader) -> None:
    page = reader(width="phone", has_touch=True).open("zh/index.html")
    page.locator("a.term").first.tap()
    page.wait_for_url("**/zh/terms.html#term-tracing")
    expect(page.locator("#term-tracing")).to_be_in_viewport()


def test_what_is_folded_is_printed(reader) -> None:
    page = reader().open("zh/jit.html")
    inside = page.locator("article details.folded pre").first
    closed = inside.evaluate("e => e.checkVisibility()")
    page.emulate_media(media="print")
    assert not closed and inside.evaluate("e => e.checkVisibility()")
