"""What the site gives to machines: Markdown with outputs, the sitemap."""

import functools
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree as xml

import pytest
from bs4 import BeautifulSoup, Tag
from built_site import LANGUAGES, PAGES, SITE, SOURCES, soup
from docutils import nodes
from markdown_it import MarkdownIt
from test_notebooks import COMMON, FORMULA, letters

from book import paths, tables
from book.export import markdown
from small_book import Book

NAMES = [page.removesuffix(".html") for page in PAGES]


@functools.cache
def text(name: str) -> str:
    """A page's Markdown."""
    return (SITE / f"{name}.md").read_text("utf8")


@functools.cache
def whole(name: str) -> str:
    """A page's Markdown, and in the place of its links to them the sections of a long one."""

    def section(link: re.Match) -> str:
        found = (SITE / name).parent / link[1]
        return "#" + found.read_text("utf8").replace("](../", "](")

    return re.sub(r"^- \[.*?\]\(([\w-]+\.sections/[\w-]+\.md)\)$", section, text(name), flags=re.M)


def notes(name: str) -> list[str]:
    """What the Markdown says beyond its page, as a reader sees it."""
    words = tables.words(name[:2])
    said = [words["markdown"], f"**{words['solution']}**"]
    return [letters(rendered(each).get_text()) for each in said]


# Code and formulas are compared elsewhere; the rest is what a page has for those who look at it.
NOT_IN_MARKDOWN = (
    "pre, .cell_output, math, template, .headerlink, .term-see, .terms-index, .times, "
    "details:not(.fine) > summary, .guess-ask, .guess-again"
)


def rendered(source: str) -> BeautifulSoup:
    source = FORMULA.sub(lambda found: found[1] or "", source)
    return BeautifulSoup(COMMON.render(source), "html.parser")


# -- each page as Markdown -------------------------------------------------------------------------


class Block(NamedTuple):
    """Code, an output or a figure."""

    kind: str
    said: str


def blocks_of_markdown(source: str) -> Iterator[Block]:
    for token in MarkdownIt("commonmark").parse(source):
        if token.type == "fence":
            yield Block(token.info, token.content.rstrip())
        for child in token.children or ():
            if child.type == "image":
                alt = "".join(each.content for each in child.children)
                yield Block("figure", f"{alt} {child.attrs['src']}")


def blocks_of_page(article: Tag) -> Iterator[Block]:
    for each in article.select("pre, img, .output.text_html, .choice > summary > code"):
        if each.find_parent(class_="text_html") or each.find_parent("template"):
            continue
        if each.name == "img":
            yield Block("figure", f"{each['alt']} {each['src']}")
        elif each.name == "pre":
            yield Block("text" if each.find_parent(class_="cell_output") else "", each.get_text())
        elif each.name == "code":
            yield Block("text", each.get_text())
        else:
            yield Block("picture", each.get_text())


@pytest.mark.parametrize("name", NAMES)
def test_the_markdown_has_the_code_and_the_outputs_of_its_page(site: Path, name: str) -> None:
    here = list(blocks_of_markdown(whole(name)))
    there = list(blocks_of_page(soup(f"{name}.html").article))
    english = list(blocks_of_page(soup(f"en/{name.partition('/')[2]}.html").article))
    for ours, theirs, in_english in zip(here, there, english, strict=True):
        if theirs.kind == "picture":  # as text it is in English
            head = ours.said.partition("\n")[0]
            assert ours.kind == "text" and letters(head)[:60] in letters(in_english.said)
        else:
            assert ours.said.rstrip() == theirs.said.rstrip()
            assert ours.kind == theirs.kind or not theirs.kind, "an output is fenced as text"
    cells = soup(f"{name}.html").select("article .cell_input pre")
    python = [block.said for block in here if block.kind == "python"]
    assert [cell.get_text().rstrip() for cell in cells] == [
        code for code in python if any(code == cell.get_text().rstrip() for cell in cells)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_markdown_says_what_its_page_says(site: Path, name: str) -> None:
    article = BeautifulSoup(str(soup(f"{name}.html").article), "html.parser")
    for added in article.select(NOT_IN_MARKDOWN):
        added.decompose()
    said = rendered(whole(name))
    for code in said.select("pre"):
        code.decompose()
    here, there = letters(said.get_text()), letters(article.get_text())
    about, solution = notes(name)
    assert here.count(about) == 1
    here = here.replace(about, "")
    folded = [p for p in said.select("strong") if letters(p.get_text()) == solution]
    assert len(folded) == len(soup(f"{name}.html").select("article .tag_solution"))
    for each in folded:
        each.decompose()
    here = letters(said.get_text()).replace(about, "")
    at = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
    assert here == there, f"{here[at - 30 : at]} … {here[at : at + 30]} | {there[at : at + 30]}"


@pytest.mark.parametrize("name", NAMES)
def test_the_markdown_is_markdown_that_everyone_reads(site: Path, name: str) -> None:
    assert text(name).startswith("# ")
    left = [token.info for token in COMMON.parse(text(name)) if token.info.startswith("{")]
    assert not left, f"a directive was left: {left}"
    said = rendered(text(name))
    assert not re.findall("<details|<summary|<div|<span", FORMULA.sub("", str(said)))
    for code in said.select("code, pre"):
        code.decompose()
    left = re.findall(r"\{[\w:]+\}|:::|^\([\w-]+\)=|\$|\*\*", said.get_text(), re.MULTILINE)
    assert not left, f"markup was left: {left}"


def test_the_markdown_is_short_enough_to_be_read_at_one_go(site: Path) -> None:
    files = [*SITE.rglob("*.md")]
    assert any(file.parent.suffix == ".sections" for file in files)
    assert not [file for file in files if len(file.read_text("utf8")) > 50_000]
    for file in files:
        for address in links(file.read_text("utf8")):
            if not urlsplit(address).scheme:
                assert (file.parent / urlsplit(address).path).exists(), f"{file}: {address}"


def links(source: str) -> list[str]:
    return [tag.get("href") or tag["src"] for tag in rendered(source).select("a, img")]


@pytest.mark.parametrize("name", [*NAMES, *(f"{language}/llms" for language in LANGUAGES)])
def test_every_link_of_the_markdown_leads_to_markdown(site: Path, name: str) -> None:
    listed = SITE / f"{name}.txt"
    source = listed.read_text("utf8") if listed.exists() else text(name)
    within = [link for link in links(source) if not urlsplit(link).scheme]
    lost = [link for link in within if not (SITE / name).parent.joinpath(link).is_file()]
    assert within and not lost, lost
    to_html = [link for link in within if link.endswith(".html")]
    assert to_html == ([] if listed.exists() else [f"{Path(name).name}.html"])


@pytest.mark.parametrize("name", NAMES)
def test_a_page_leads_to_its_markdown(site: Path, name: str) -> None:
    (link,) = soup(f"{name}.html").select("head link[type='text/markdown']")
    assert link["rel"] == ["alternate"]
    assert (SITE / name).parent.joinpath(link["href"]) == SITE / f"{name}.md"


@pytest.mark.whole_book
@pytest.mark.parametrize("language", LANGUAGES)
def test_llms_txt_lists_every_page_by_part(site: Path, language: str) -> None:
    tokens = COMMON.parse((SITE / language / "llms.txt").read_text("utf8"))
    kinds = [
        token.type for token in tokens if token.level == 0 and not token.type.endswith("_close")
    ]
    parts = soup(f"{language}/index.html").select(".bd-sidebar-primary .caption")
    assert kinds == [
        *("heading_open", "blockquote_open", "paragraph_open"),
        *("heading_open", "bullet_list_open") * len(parts),
    ]
    said = rendered((SITE / language / "llms.txt").read_text("utf8"))
    assert [h.get_text() for h in said.select("h2")] == [p.get_text().strip() for p in parts]
    sidebar = soup(f"{language}/index.html").select(".bd-sidebar-primary nav a")
    listed = said.select("li a")
    assert [a.get_text() for a in listed] == [a.get_text().strip() for a in sidebar]
    assert sorted(a["href"] for a in listed) == sorted(f"{name}.md" for name in SOURCES[language])
    for item in said.select("li"):
        first = rendered(text(f"{language}/{item.a['href'].removesuffix('.md')}")).select("p")[1]
        about = item.get_text().partition(": ")[2]
        assert len(about) >= 10 and letters(first.get_text()).startswith(letters(about)[:20])


@pytest.mark.parametrize("language", LANGUAGES)
def test_llms_full_txt_is_the_book_in_its_order(site: Path, language: str) -> None:
    book = letters((SITE / language / "llms-full.txt").read_text("utf8"))
    listed = rendered((SITE / language / "llms.txt").read_text("utf8")).select("li a")
    names = [f"{language}/{a['href'].removesuffix('.md')}" for a in listed]
    places = [book.find(letters(whole(name))) for name in names]
    assert places[0] == 0 and places == sorted(places) and len(set(places)) == len(places)


MARKS = ["a*b*", "_x_ f_x_y", "<b> & &lt;", "`", "$5 and $6", "[a](b)", "1. x", "# x", "- x", "\\*"]


@pytest.mark.parametrize("said", MARKS)
def test_a_text_with_marks_is_read_as_it_was_written(said: str) -> None:
    body = (
        nodes.paragraph("", said),
        nodes.bullet_list("", nodes.list_item("", nodes.paragraph("", said))),
    )
    writer = markdown.Writer(None, "page", "", ".md")
    written = "\n\n".join(map(writer.write, body))
    read = BeautifulSoup(COMMON.render(written), "html.parser")
    assert [p.get_text() for p in read.find_all(["p", "li"])] == [said, said]
    assert not read.select("em, strong, code, a, h1, ol, li li")


def test_a_node_that_is_not_known_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    writer = markdown.Writer(None, "page", "", ".md")
    assert writer.write(nodes.sidebar()) == "" and "sidebar" in caplog.text


def test_a_fence_is_longer_than_any_in_it() -> None:
    for inside in ("", "`", "```", "a ```` b", "~~~"):
        (token,) = MarkdownIt("commonmark").parse(markdown.fenced(inside, "text"))
        assert token.content.rstrip("\n") == inside


# -- with an address: what search engines are told -------------------------------------------------

ADDRESS = {
    language: f"https://see-jax.example/{names['slug']}/latest/"
    for language, names in paths.LANGUAGES.items()
}
ALTERNATES = {names["hreflang"]: language for language, names in paths.LANGUAGES.items()}
DAY = "2001-02-03"
SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"
XHTML = "{http://www.w3.org/1999/xhtml}"


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small book in git, each language built as Read the Docs builds it."""
    small = Book(tmp_path_factory.mktemp("public"))
    small.write()
    for command in (
        ("init", "--quiet"),
        ("add", "docs"),
        ("-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "--message=A book"),
    ):
        dated = {**os.environ, "GIT_COMMITTER_DATE": f"{DAY}T04:05:06+0000"}
        subprocess.run(["git", *command], cwd=small.root, env=dated, check=True)
    made = {}
    for language, address in ADDRESS.items():
        out = small.root / "out" / language
        small.build(
            READTHEDOCS="True",
            READTHEDOCS_LANGUAGE=paths.LANGUAGES[language]["slug"],
            READTHEDOCS_CANONICAL_URL=address,
            READTHEDOCS_OUTPUT=str(out),
        )
        made[language] = out / "html"
    return made


def read(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text("utf8"), "html.parser")


def urls(sitemap: Path) -> dict[str, dict[str, str]]:
    """The alternates of every address in a sitemap that keeps the rules."""
    assert sitemap.read_bytes().startswith(b"<?xml version='1.0' encoding='UTF-8'?>")
    root = xml.parse(sitemap).getroot()
    assert root.tag == f"{SITEMAP}urlset"
    found = {}
    for url in root:
        assert url.tag == f"{SITEMAP}url"
        loc, lastmod, *links = url
        assert (loc.tag, lastmod.tag) == (f"{SITEMAP}loc", f"{SITEMAP}lastmod")
        assert lastmod.text == DAY and loc.text not in found
        assert {link.tag for link in links} == {f"{XHTML}link"}
        assert {link.get("rel") for link in links} == {"alternate"}
        found[loc.text] = {link.get("hreflang"): link.get("href") for link in links}
        assert len(found[loc.text]) == len(links)
    return found


def test_the_sitemap_has_every_page_and_both_languages_agree(public: dict[str, Path]) -> None:
    maps = {language: urls(html / "sitemap.xml") for language, html in public.items()}
    for language, html in public.items():
        canonical = {
            page.select_one("link[rel=canonical]")["href"]: page
            for page in map(read, (html / "index.html", html / "page.html"))
        }
        assert set(maps[language]) == set(canonical), "each page by its one address, and no other"
        for address, links in maps[language].items():
            assert address.startswith(ADDRESS[language])
            assert set(links) == {*ALTERNATES, "x-default"} and links["x-default"] == links["en"]
            assert links[paths.LANGUAGES[language]["hreflang"]] == address
            for hreflang, there in ALTERNATES.items():
                assert maps[there][links[hreflang]] == links, "what is linked links back"
            head = canonical[address].select("link[hreflang]")
            assert {link["hreflang"]: link["href"] for link in head} == links


def test_robots_are_let_in_and_told_of_both_sitemaps(public: dict[str, Path]) -> None:
    for html in public.values():
        lines = (html / "robots.txt").read_text("utf8").splitlines()
        assert lines[:2] == ["User-agent: *", "Allow: /"]
        told = [line.removeprefix("Sitemap: ") for line in lines if line.startswith("Sitemap: ")]
        assert told == [f"{address}sitemap.xml" for address in ADDRESS.values()]
        assert not any(line.startswith("Disallow") for line in lines)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_address_makes_every_address_whole(public: dict[str, Path], language: str) -> None:
    html, home = public[language], ADDRESS[language]
    page = read(html / "page.html")
    said = {m["property"]: m["content"] for m in page.select("meta[property]")}
    assert said["og:url"] == f"{home}page.html"
    assert said["og:image"] == f"{home}_static/card.{language}.png"
    assert (said["og:image:width"], said["og:image:height"]) == ("1200", "630")
    assert (html / "_static" / f"card.{language}.png").is_file()
    assert page.select_one("meta[name='twitter:card']")["content"] == "summary_large_image"
    for name in ("page.md", "index.md", "llms.txt"):
        whole = links((html / name).read_text("utf8"))
        assert whole and all(link.startswith("https://see-jax.example/") for link in whole)
    other = next(each for each in ADDRESS if each != language)
    assert f"{ADDRESS[other]}llms.txt" in links((html / "llms.txt").read_text("utf8"))


def test_without_an_address_nothing_claims_one(site: Path) -> None:
    if os.environ.get("READTHEDOCS_CANONICAL_URL"):
        return
    for language in LANGUAGES:
        assert not (SITE / language / "sitemap.xml").exists()
        assert not (SITE / language / "robots.txt").exists()
    for name in NAMES:
        head = soup(f"{name}.html").head
        claims = "link[rel=canonical], meta[property='og:url'], meta[property='og:image']"
        assert not head.select(claims)
