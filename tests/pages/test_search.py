"""Search, as readers use it: what they type, by keyboard, from the disk, whatever they paste."""

import gzip
import json
import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

import pytest
from built_site import CONTRAST, LANGUAGES, OVERFLOW, SITE, WIDTHS
from playwright.sync_api import Page, Response, expect

from book.extensions import search
from seejax import errors

QUERIES = tomllib.loads((Path(__file__).parent / "search_queries.toml").read_text("utf8"))
ANSWERED = (
    0.75  # of the queries: a bound for the whole, so that no sentence has to please one query
)
FOUND = 0.95  # of the titles
NAMED = 0.9  # of what was pasted
STRANGERS = tomllib.loads(
    Path(__file__).parents[1].joinpath("tools/strangers.toml").read_text("utf8")
)["pasted"]
ERROR = "TypeError: JAX arrays are immutable and do not support in-place item assignment"

# Type each query as an event says it; return the sections that are shown, when they are.
ASK = """async queries => {
  const input = document.querySelector(".search-input"), box = input.closest(".search-box");
  const answers = [];
  for (const query of queries) {
    const shown = new Promise((resolve, reject) => {
      box.addEventListener("searched", resolve, {once: true});
      setTimeout(() => reject(Error(`no answer to ${query}`)), 30000);
    });
    input.value = query;
    input.dispatchEvent(new Event("input"));
    await shown;
    answers.push([...box.querySelectorAll(".search-result")].map(a => a.href));
  }
  return answers;
}"""


def ask(page: Page, queries: list[str]) -> list[list[str]]:
    """For each query the addresses of its results, in their order."""
    if not page.locator(".search-input").count():
        page.keyboard.press("/")
        page.locator(".search-input").wait_for()  # it comes with its script
    return page.evaluate(ASK, queries)


def sections(addresses: list[str]) -> list[str]:
    return [urlsplit(address).fragment for address in addresses]


@pytest.fixture
def page(reader) -> Page:
    return reader().open("en/index.html")


# -- it finds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_learners_type_is_answered_in_the_first_three(reader, language: str) -> None:
    queries = QUERIES[language]
    answers = ask(reader().open(f"{language}/jit.html"), list(queries))
    missed = [
        f"{query}: {sections(found)[:3]}"
        for (query, wanted), found in zip(queries.items(), answers, strict=True)
        if not set(sections(found)[:3]) & set(wanted.split())
    ]
    assert len(missed) <= (1 - ANSWERED) * len(queries), "\n".join(missed)


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_pasted_finds_its_error_first(reader, language: str) -> None:
    """What strangers pasted into issues, and each warning as it is printed."""
    pasted = [(row["text"], row["entry"]) for row in STRANGERS]
    pasted += [(notice.text, name) for name, notice in errors.notices().items()]
    answers = ask(reader().open(f"{language}/jit.html"), [text for text, _ in pasted])
    missed = [
        f"{text}: {sections(found)[:3]}"
        for (text, entry), found in zip(pasted, answers, strict=True)
        if sections(found)[:1] != [errors.PREFIX + entry]
    ]
    assert len(missed) <= (1 - NAMED) * len(pasted), "\n".join(missed)


def test_of_several_pasted_errors_the_last_one_counts(page: Page) -> None:
    raised = f"File a.py, line 3, in f jax.errors.KeyReuseError: In f, argument 0 {ERROR}"
    warned = "UserWarning: Some donated buffers were not usable: float32[8]."
    first = [sections(found)[0] for found in ask(page, [f"{warned} {raised}", warned])]
    assert first == ["error-immutable", "error-donation-unused"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_title_finds_its_section_and_results_lead_to_sections(reader, language: str) -> None:
    """Every section of a lesson can be found; so search.py and search.js read text alike."""
    titles: dict[str, set[str]] = {}
    for piece in (SITE / language / "search").rglob("page-*.js"):
        url, _, there = json.loads(re.search(r",(\[.*\])\)$", piece.read_text("utf8"))[1])
        html = (SITE / language / url).read_text("utf8")
        assert all(f'id="{anchor}"' in html for anchor, *_ in there)
        for anchor, title, _ in there if url not in search.REFERENCE else []:
            titles.setdefault(title, set()).add(anchor)
    single = {title: one for title, one in titles.items() if len(one) == 1}
    here = reader()
    answers = ask(here.open(f"{language}/index.html"), list(single))
    lost = [
        title
        for (title, one), found in zip(single.items(), answers, strict=True)
        if not one & set(sections(found)[:3])
    ]
    assert len(lost) <= (1 - FOUND) * len(single), lost
    shown = {address for found in answers for address in found}
    assert all(address.startswith(f"{here.home}/{language}/") for address in shown)


def test_the_queries_name_sections_that_are_there(site: Path) -> None:
    for language, queries in QUERIES.items():
        pages = [p.read_text("utf8") for p in (SITE / language).glob("*.html")]
        there = {anchor for page in pages for anchor in re.findall(r'\bid="([^"]+)"', page)}
        gone = {name for wanted in queries.values() for name in wanted.split()} - there
        assert not gone


@pytest.mark.parametrize(
    ("language", "query", "marked"),
    [
        ("zh", "自动微分怎么求雅可比", "雅可比"),
        ("zh", "ｊｉｔ　静态参数", "静态参数"),  # as some input methods write it
        ("en", "static_argn", "static_argnames"),  # not typed to its end
        ("en", "gradeint", "gradient"),
        ("en", "RECOMPILED", "compil"),
        ("en", ".at[].set", ".at"),
        ("zh", "给C++用", "c++"),
        ("zh", "torch.save 在哪里", "检查"),  # a name of another library
    ],
)
def test_results_mark_what_was_meant(reader, language: str, query: str, marked: str) -> None:
    page = reader().open(f"{language}/index.html")
    assert ask(page, [query])[0]
    marks = [text.lower() for text in page.locator(".search-result mark").all_inner_texts()]
    assert any(marked in text for text in marks), marks
    number = page.locator(".search-status").inner_text()
    assert any(character.isdigit() for character in number)


def test_what_is_nowhere_is_said(page: Page) -> None:
    assert ask(page, ["qqqqqqqqzx", "、、"]) == [[], []]
    assert page.locator(".search-status").inner_text().startswith("Nothing")
    assert page.locator(".search-input").get_attribute("aria-expanded") == "false"
    ask(page, [""])
    assert page.locator(".search-status").inner_text() == ""


# -- by keyboard ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["/", "Control+k"])
def test_the_keyboard_is_enough(reader, key: str) -> None:
    page = reader().open("zh/jit.html")
    page.locator("button.search-open").first.focus()
    page.keyboard.press(key)
    field, options = page.locator(".search-input"), page.locator(".search-result")
    expect(field).to_be_focused()
    page.keyboard.type("vmap in_axes / 轴")  # a slash is text here
    expect(field).to_have_value("vmap in_axes / 轴")
    expect(options).to_have_count(10)
    for press, chosen in (("ArrowDown", 0), ("ArrowDown", 1), ("ArrowUp", 0), ("ArrowUp", 9)):
        page.keyboard.press(press)
        option = options.nth(chosen)
        expect(option).to_have_attribute("aria-selected", "true")
        assert field.get_attribute("aria-activedescendant") == option.get_attribute("id")
    assert page.locator(".search-result[aria-selected=true]").count() == 1
    page.keyboard.press("Escape")
    expect(page.locator("dialog.search-dialog")).to_be_hidden()
    expect(page.locator("button.search-open").first).to_be_focused()
    page.keyboard.press(key)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    target = options.nth(1).get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(target)


def test_enter_opens_the_first_result_and_waits_for_it(page: Page) -> None:
    page.keyboard.press("/")
    page.locator(".search-input").fill("block_until_ready")
    page.keyboard.press("Enter")
    page.wait_for_url("**/async.html#*")


def test_a_result_on_the_same_page_closes_the_dialog(reader) -> None:
    page = reader().open("en/async.html")
    ask(page, ["block_until_ready"])
    page.keyboard.press("Enter")
    expect(page.locator("dialog.search-dialog")).to_be_hidden()
    page.wait_for_url("**/async.html#*")


def test_letters_of_an_unfinished_chinese_word_are_not_searched(reader) -> None:
    page = reader().open("zh/index.html")
    ask(page, ["雅可比"])
    before = page.locator(".search-result").all_inner_texts()
    compose = "type => document.querySelector('.search-input').dispatchEvent("
    page.locator(".search-input").evaluate("input => input.value = '雅可比ju'")
    page.evaluate(compose + "new InputEvent('input', {isComposing: true}))")
    page.evaluate(compose + "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true}))")
    assert page.locator(".search-result").all_inner_texts() == before
    assert page.url.endswith("/zh/index.html")
    page.locator(".search-input").evaluate("input => input.value = '混淆矩阵'")
    page.evaluate(compose + "new CompositionEvent('compositionend'))")
    expect(page.locator(".search-result").first).to_have_attribute(
        "href", f"{page.url.rpartition('/')[0]}/evaluation.html#evaluation-confusion"
    )


def test_the_query_stands_in_the_address_of_the_search_page(reader) -> None:
    page = reader().open(f"zh/search.html?q={quote('混淆矩阵')}")
    first = page.locator(".search-result").first
    first.wait_for()
    assert first.get_attribute("href").endswith("evaluation.html#evaluation-confusion")
    page.locator(".search-input").fill("jit 静态参数")
    page.wait_for_url(f"**/search.html?q={quote('jit 静态参数')}")
    page.reload()
    expect(page.locator(".search-input")).to_have_value("jit 静态参数")
    page.keyboard.press("Control+k")
    expect(page.locator(".search-input")).to_be_focused()
    assert not page.locator("dialog[open]").count()


# -- whatever is typed is text -------------------------------------------------------------------

NASTY = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "&lt;b&gt;",
    "constructor __proto__ toString hasOwnProperty",
    "(((((((((", "[a-z", "\\", "$&", "{n}", "%", "..", ".", "a" * 5000, "雅" * 3000, "\ud83d\ude00",
]  # fmt: skip


def fuzz(count: int) -> Iterator[str]:
    chance = random.Random(0)
    alphabet = "ajxt_.[](){}<>&\"'/\\ 0123\t形状梯度，。αβ\u200b\ud7ff\uffff"
    names = [ERROR, "jax.lax.scan", "自动微分", *NASTY[:5]]
    for _ in range(count):
        text = "".join(chance.choices(alphabet, k=chance.randrange(1, 30)))
        yield text + chance.choice(["", *names])[: chance.randrange(1, 80)]


def test_whatever_is_pasted_is_text(page: Page) -> None:
    ask(page, [*NASTY, *fuzz(100)])
    ask(page, [f"{NASTY[0]} array"])
    inside = page.locator(".search-box *").evaluate_all("all => all.map(e => e.localName)")
    assert set(inside) == {"input", "p", "div", "a", "span", "mark"}
    attributes = page.locator(".search-result *").evaluate_all(
        "all => all.flatMap(e => e.getAttributeNames())"
    )
    assert set(attributes) == {"class"}


# -- what it costs -------------------------------------------------------------------------------


def on_the_wire(*files: Path) -> int:
    """Bytes, as servers send them: compressed."""
    return sum(len(gzip.compress(file.read_bytes())) for file in files)


def test_pieces_are_loaded_when_they_are_needed(reader, site: Path) -> None:
    here = reader()
    loaded: list[Path] = []

    def note(response: Response) -> None:
        if "/search/" in response.url:
            loaded.append(site / urlsplit(response.url).path.lstrip("/"))

    here.page.on("response", note)
    page = here.open("zh/jit.html")
    page.wait_for_load_state("networkidle")
    assert not loaded
    with page.expect_response("**/search/index.js"):  # where everything lies
        page.keyboard.press("/")
    ask(page, ["静态参数"])
    assert on_the_wire(*loaded) <= 250_000, loaded
    before = len(loaded)
    ask(page, ["静态参数"])
    assert len(loaded) == before
    ask(page, [ERROR])
    assert on_the_wire(*loaded) <= 500_000, loaded


@pytest.mark.parametrize("language", LANGUAGES)
def test_opening_the_search_loads_little(site: Path, language: str) -> None:
    there = SITE / language
    assert on_the_wire(search.SCRIPT, there / "search" / "index.js") <= 20_000
    assert not list(there.rglob("searchindex.js"))  # of Sphinx's own search
    assert not list(there.rglob("searchtools.js"))


def test_the_result_comes_soon(page: Page) -> None:
    """A bound that a busy machine keeps, too; ten queries whose pieces are there take 30 ms."""
    queries = ["vmap axes", ERROR] * 5
    ask(page, queries)
    begin = page.evaluate("performance.now()")
    ask(page, queries)
    assert page.evaluate("performance.now()") - begin < 3000


# -- where it works ------------------------------------------------------------------------------


def test_it_works_from_the_disk(reader, site: Path) -> None:
    page = reader(home=site.as_uri()).open("zh/jit.html")
    (found,) = ask(page, ["雅可比"])
    assert found and found[0].startswith(site.as_uri())
    page.keyboard.press("Enter")
    page.wait_for_url(found[0])


def test_without_script_there_is_no_button_and_a_word_instead(reader) -> None:
    page = reader(java_script_enabled=False).open("zh/search.html")
    expect(page.locator("button.search-open").first).to_be_hidden()
    assert "JavaScript" in page.locator("article").inner_text()


def test_an_index_that_does_not_come_is_said_and_asked_for_again(reader) -> None:
    here = reader()
    page = here.open("en/jit.html")
    here.context.route("**/search/**", lambda route: route.abort())
    assert ask(page, ["jit"]) == [[]]
    assert "reload" in page.locator(".search-status").inner_text()
    here.context.unroute("**/search/**")
    assert ask(page, ["jit"])[0]
    here.wrong.clear()  # the browser said it, too


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_dialog_fits_its_window_and_can_be_read(reader, width: str, scheme: str) -> None:
    page = reader(width=width, color_scheme=scheme).open("en/jit.html")
    ask(page, [ERROR])
    page.keyboard.press("ArrowDown")
    box, size = page.locator("dialog.search-dialog").bounding_box(), page.viewport_size
    assert box["x"] >= 0 and box["x"] + box["width"] <= size["width"]
    assert box["y"] >= 0 and box["y"] + box["height"] <= size["height"]
    assert not page.evaluate(OVERFLOW) and not page.evaluate(CONTRAST)
    page.locator("button.search-close").click()
    expect(page.locator("dialog.search-dialog")).to_be_hidden()


# -- the index, ten times as large ---------------------------------------------------------------


def test_a_larger_book_has_more_pieces_not_larger_ones() -> None:
    words = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in ("ms", "rt", "nk", "lp")]
    chance = random.Random(0)

    def book(pages: int) -> list[dict]:
        return [
            {
                "url": f"p{n}.html",
                "name": f"p{n}",
                "title": f"page {n}",
                "sections": [
                    search.count(f"p{n}.html", {
                        "anchor": f"p{n}-{s}", "title": chance.choice(words), "text": [
                            ("prose", " ".join(chance.choices(words, k=30)) + f" only{n}x{s}")
                        ],
                    })
                    for s in range(12)
                ],
            }
            for n in range(pages)
        ]  # fmt: skip

    small, large = (search.pieces(book(pages), "en") for pages in (20, 200))
    sizes = [len(json.dumps(p)) for name, p in large.items() if name.startswith("terms-")]
    assert len(sizes) > sum(name.startswith("terms-") for name in small)
    assert max(sizes) <= 2 * search.PIECE
    assert len(json.dumps(large["index"])) <= 3 * len(json.dumps(small["index"]))


def test_a_reference_ranks_below_a_lesson_that_says_the_same() -> None:
    section = {"anchor": "one", "title": "gradient", "text": [("prose", "gradient")]}
    pages = [
        {"url": url, "name": "page", "title": "page", "sections": [search.count(url, section)]}
        for url in ("api.html", "lesson.html")
    ]
    reference, lesson = re.findall("[A-Z]", search.postings(pages)[search.stem("gradient")])
    assert lesson > reference


def test_an_index_is_written_again_when_a_page_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "names", lambda env: {"a": "A"})
    app = SimpleNamespace(
        builder=SimpleNamespace(name="html"),
        env=SimpleNamespace(found_docs={"a"}),
        config=SimpleNamespace(language="en"),
        doctreedir=tmp_path / "doctrees",
        outdir=tmp_path / "html",
    )
    note, index = search.noted(app, "a"), tmp_path / "html/search/index.js"
    note.parent.mkdir(parents=True)

    def built(prose: str) -> dict[Path, tuple[int, str]]:
        section = {"anchor": "a", "title": "Title", "text": [("prose", prose)]}
        page = {"url": "a.html", "title": "A", "sections": [search.count("a.html", section)]}
        note.write_text(json.dumps(page), "utf8")
        search.write(app, None)
        files = index.parent.rglob("*.js")
        return {file: (file.stat().st_mtime_ns, file.read_text("utf8")) for file in files}

    first = built("gradient")
    assert built("gradient") == first
    changed = built("jacobian")
    assert set(first) & set(changed) == {index} and first[index] != changed[index]
