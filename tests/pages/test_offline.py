"""The book to take away: its PDF and its zip, each read by another program than made it."""

import functools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pypdf
import pytest
from bs4 import BeautifulSoup, Tag
from built_site import LANGUAGES, SITE
from playwright.sync_api import Browser

from book.export import offline, pdf
from book.export.chapters import Book, book, contents

START = ["index", "tour", "ecosystem"]  # a first chapter, a formula, pictures, a figure, tables
XHTML = "{http://www.w3.org/1999/xhtml}"
A4 = (595, 842)  # points


@functools.cache
def page(language: str, name: str) -> Tag:
    text = (SITE / language / f"{name}.html").read_text("utf8")
    article = BeautifulSoup(text, "html.parser").select_one("article.bd-article")
    assert article, name
    for away in article.select(".headerlink, template, .see-key"):  # which only phones show
        away.decompose()
    return article


def letters(text: str) -> str:
    """A text without the white space that each program sets in its own way."""
    return re.sub(r"\s+", "", text)


def start(language: str) -> Book:
    return book(SITE / language, language, pdf.place, START)


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    return request.param


# -- PDF -----------------------------------------------------------------------------------------


class Printed:
    """A printed book, as another library than the browser's reads it."""

    def __init__(self, file: Path) -> None:
        self.pdf = pypdf.PdfReader(file)
        self.texts = [letters(each.extract_text()) for each in self.pdf.pages]

    def outline(self) -> list[tuple[int, str, int]]:
        """Level, title and page of every bookmark."""

        def walk(entries: list, level: int) -> Iterator[tuple[int, str, int]]:
            for entry in entries:
                if isinstance(entry, list):
                    yield from walk(entry, level + 1)
                else:
                    number = self.pdf.get_destination_page_number(entry)
                    yield level, entry.title, number + 1

        return [*walk(self.pdf.outline, 0)]

    def links(self) -> Iterator[dict]:
        for each in self.pdf.pages:
            yield from (link.get_object() for link in each.get("/Annots", []))

    def tagged(self, kind: str) -> list[dict]:
        """The elements of a kind in the structure that readers are told of."""
        found, todo = [], [self.pdf.root_object["/StructTreeRoot"]]
        while todo:
            each = todo.pop().get_object()
            if isinstance(each, list):
                todo += each
            elif isinstance(each, dict):
                found += [each] if each.get("/S") == kind else []
                todo += [each["/K"]] if "/K" in each else []
        return found


@pytest.fixture(scope="module")
def printed(browser: Browser, site: Path, language: str, tmp_path_factory) -> Printed:
    file = tmp_path_factory.mktemp("pdf") / f"{language}.pdf"
    pdf.write(start(language), browser, file)
    return Printed(file)


def test_the_pdf_is_a_book_on_a4(printed: Printed, language: str) -> None:
    assert {tuple(map(round, each.mediabox[2:])) for each in printed.pdf.pages} == {A4}
    assert printed.pdf.root_object["/Lang"] == LANGUAGES[language]
    (part, named), *_ = contents(SITE / language, language).items()
    titles = {0: [part]}
    for level, tag in (1, "h1"), (2, "h2"):
        headings = [h for name in START for h in page(language, name).find_all(tag)]
        titles[level] = [heading.get_text() for heading in headings]
    for level in titles:
        found = [title for each, title, _ in printed.outline() if each == level]
        assert found == titles[level]
    begin = [number for level, _, number in printed.outline() if level == 1]
    ends = [*(number - 1 for number in begin[1:]), len(printed.texts)]
    for name, first, last in zip(START, begin, ends, strict=True):
        for number in range(first, last + 1):  # running heads, and the number of the page
            assert printed.texts[number - 1].startswith(letters(named[name]))
            assert str(number) in printed.texts[number - 1]


def test_its_contents_lead_where_they_say(printed: Printed, language: str) -> None:
    listed = "".join(printed.texts[1 : min(n for _, _, n in printed.outline()) - 1])
    short = next(iter(contents(SITE / language, language).values()))
    chapters = iter(START)
    for level, title, number in printed.outline():
        if level in (1, 2):
            name = letters(short[next(chapters)]) if level == 1 else letters(title)
            assert f"{name}{number}" in listed
    inside = [link for link in printed.links() if "/Dest" in link]
    outside = [link["/A"]["/URI"] for link in printed.links() if "/URI" in link.get("/A", {})]
    assert len(inside) > len([level for level, _, _ in printed.outline() if level in (1, 2)])
    assert {link["/Dest"] for link in inside} <= {*printed.pdf.named_destinations}
    assert outside and all(address.startswith("http") for address in outside)


def test_the_pdf_has_all_that_the_pages_have(printed: Printed, language: str) -> None:
    text = "".join(printed.texts)
    for name in START:
        source = page(language, name)
        for kind in "pre", "td":
            for each in source.find_all(kind):
                assert all(letters(line) in text for line in each.get_text().split("\n")), each
    images = [image["alt"] for name in START for image in page(language, name).find_all("img")]
    assert images and {*images} <= {f.get("/Alt") for f in printed.tagged("/Figure")}
    assert len(printed.tagged("/Table")) >= 3


def test_every_font_is_in_the_pdf(printed: Printed) -> None:
    fonts = {}
    for each in printed.pdf.pages:
        fonts |= each["/Resources"].get("/Font", {})
    for name, font in fonts.items():
        font = font.get_object()
        if font["/Subtype"] != "/Type3":  # whose letters are drawings, in the file
            (inner,) = font["/DescendantFonts"]
            assert {"/FontFile2", "/FontFile3"} & {*inner.get_object()["/FontDescriptor"]}, name


PAPER = {"width": 665, "height": 930}  # what the margins of an A4 page leave, in CSS pixels


def test_nothing_is_wider_than_the_paper(browser: Browser, site: Path, language: str) -> None:
    """Of the whole book: Chromium would print all of it smaller for the sake of one line."""
    tab = browser.new_page(viewport=PAPER)
    tab.emulate_media(media="print")
    made = book(site / language, language, pdf.place)
    pdf.join(made)
    tab.set_content(pdf.document(made, {}))
    wide = tab.evaluate(
        """width => [...document.querySelectorAll("article *")]
          .filter(e => e.getBoundingClientRect().right > width + 8)
          .map(e => e.closest("article").id + ": " + e.outerHTML.slice(0, 100))""",
        PAPER["width"],
    )
    tab.close()
    assert not wide, "\n".join(wide[:20])


# -- zip, and the links of both ------------------------------------------------------------------


def test_the_zip_holds_the_site(tmp_path: Path) -> None:
    (tmp_path / "html" / "en").mkdir(parents=True)
    for name in "index.html", "en/index.html":
        (tmp_path / "html" / name).write_text(name)
    with zipfile.ZipFile(offline.zipped(tmp_path / "html", tmp_path / "out" / "book")) as archive:
        files = [name for name in archive.namelist() if not name.endswith("/")]
        assert sorted(files) == ["en/index.html", "index.html"]
        assert archive.read("en/index.html") == b"en/index.html"


def test_what_is_not_in_the_book_is_read_on_the_site(monkeypatch, site: Path) -> None:
    def addresses() -> set[str]:
        found = book(site / "en", "en", pdf.place, ["tour"]).chapters[0].article
        return {str(link["href"]) for link in found.select("a[href]")}

    monkeypatch.delenv("READTHEDOCS_CANONICAL_URL", raising=False)
    inside = {a for a in addresses() if not a.startswith("https:")}
    assert all(a.startswith("#tour") for a in inside)
    monkeypatch.setenv("READTHEDOCS_CANONICAL_URL", "https://book.test/en/latest/")
    assert "https://book.test/en/latest/jit.html" in addresses()


def test_a_site_that_is_not_built_is_told(tmp_path: Path) -> None:
    with pytest.raises(offline.BuildError, match="make html"):
        book(tmp_path, "en", pdf.place)
    with pytest.raises(offline.BuildError, match="make html"):
        offline.zipped(tmp_path, tmp_path / "out")
