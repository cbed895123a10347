"""One PDF of a language, printed by Chromium: contents with page numbers, links, bookmarks."""

import io
import logging
import re
import tempfile
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from playwright.sync_api import Browser
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject, TextStringObject

from book.export.chapters import PRINT, Book

logging.getLogger("pypdf").setLevel(logging.ERROR)  # Chromium counts its objects wrong; no matter

HEADING = re.compile("^h[1-6]$")
LIMIT_MS = 600_000  # of one print

# Radicals that fonts draw as a character; the character of the others is in their compatibility.
RADICAL = re.compile("[\u2e80-\u2fd5]")
TWINS = str.maketrans(
    "⺒⺓⺠⻅⻆⻉⻋⻓⻔⻘⻙⻚⻛⻜⻝⻢⻣⻤⻥⻦⻧⻨⻩⻬⻮⻰⼾",
    "巳幺民见角贝车长门青韦页风飞食马骨鬼鱼鸟卤麦黄齐齿龙户",
)


def place(page: str, anchor: str) -> str:
    """All pages are one document: an anchor carries the name of its page.

    >>> place("jit", "jit-guess"), place("jit", "")
    ('#jit.jit-guess', '#jit')
    """
    return f"#{page}.{anchor}" if anchor else f"#{page}"


def join(book: Book) -> None:
    """Make the chapters parts of one document: anchors, headings below their part's, figures."""
    for chapter in book.chapters:
        for tag in chapter.article.select("[id]"):
            tag["id"] = place(chapter.page, str(tag["id"]))[1:]
        for heading in chapter.article.find_all(HEADING):
            heading.name = f"h{int(heading.name[1]) + 1}"
        for image in chapter.article.select("img"):
            image["src"] = (book.html / str(image["src"])).resolve().as_uri()


def document(book: Book, numbers: dict[str, int]) -> str:
    """The whole book as one page of HTML; on which page each place is stands in its contents."""
    static = book.html / "_static"
    sheets = [static / "site.css", static / "see.css", PRINT / "pdf.css"]
    styles = [sheet.read_text("utf8") for sheet in sheets]
    return book.fill("book.html", styles=styles, numbers=numbers, place=place)


def pages_of(pdf: bytes) -> dict[str, int]:
    """On which page each place of the document is that a link leads to."""
    reader = PdfReader(io.BytesIO(pdf))
    return {
        f"#{name.removeprefix('/')}": (reader.get_destination_page_number(place) or 0) + 1
        for name, place in reader.named_destinations.items()
    }


def printed(browser: Browser, text: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder, "book.html")
        document.write_text(text, "utf8")
        page = browser.new_page(color_scheme="light")
        try:
            page.set_default_timeout(LIMIT_MS)
            page.goto(document.as_uri())
            return page.pdf(
                prefer_css_page_size=True, print_background=True, outline=True, tagged=True
            )
        finally:
            page.close()


def whole(text: str) -> str:
    """A text with characters in the place of their radicals.

    >>> [hex(ord(whole(radical))) for radical in "\u2f6c\u2eda"] == [hex(ord(c)) for c in "目页"]
    True
    """
    return RADICAL.sub(lambda m: unicodedata.normalize("NFKC", m[0].translate(TWINS)), text)


def named(codes: str) -> str:
    r"""What a PDF says of the letters of a font, with characters in the place of their radicals.

    >>> print(named("1 beginbfrange\n<01> <02> <2EDA>\nendbfrange"))
    2 beginbfchar
    <01> <9875>
    <02> <98CE>
    endbfchar
    >>> named("1 beginbfchar\n<45> <2F6C>\nendbfchar").split("\n")[1]
    '<45> <76EE>'
    """

    def rewritten(block: re.Match) -> str:
        letters = {}
        for first, last, text in re.findall(r"<(\w+)>(?: <(\w+)>)? <(\w+)>", block[2]):
            begin = bytes.fromhex(text).decode("utf-16-be")
            for step in range(int(last or first, 16) - int(first, 16) + 1):
                code = f"{int(first, 16) + step:0{len(first)}X}"
                letters[code] = begin[:-1] + chr(ord(begin[-1]) + step)
        if not any(map(RADICAL.search, letters.values())):
            return block[0]
        lines = [
            f"<{c}> <{whole(x).encode('utf-16-be').hex().upper()}>" for c, x in letters.items()
        ]
        return "\n".join([f"{len(lines)} beginbfchar", *lines, "endbfchar"])

    return re.sub(r"\d+ beginbf(char|range)\n(.*?)\nendbf\1", rewritten, codes, flags=re.DOTALL)


def fonts(pages: Iterable[PageObject]) -> Iterable[DictionaryObject]:
    """Every font of some pages, once."""
    resources = [cast(DictionaryObject, page["/Resources"]) for page in pages]
    known = [font for each in resources for font in each.get("/Font", {}).values()]
    return [font.get_object() for font in {font.idnum: font for font in known}.values()]


def bookmarks(under: DictionaryObject) -> Iterable[DictionaryObject]:
    """Every bookmark of an outline."""
    item = under.get("/First")
    while item:
        yield (item := cast(DictionaryObject, item.get_object()))
        yield from bookmarks(item)
        item = item.get("/Next")


def mended(pdf: bytes, headings: Iterable[str]) -> bytes:
    """The same pages with what Chromium gets wrong.

    It writes 目 as its radical ⽬, and no search finds it; and a bookmark loses the space at
    which its heading is broken into lines.
    """
    writer = PdfWriter(clone_from=io.BytesIO(pdf))
    titles = {"".join(heading.split()): " ".join(heading.split()) for heading in headings}
    for bookmark in bookmarks(cast(DictionaryObject, writer.root_object["/Outlines"])):
        title = str(bookmark["/Title"])
        title = titles.get("".join(title.split()), title)
        bookmark[NameObject("/Title")] = TextStringObject(title)
    for font in fonts(writer.pages):
        letters = cast(StreamObject, font["/ToUnicode"])
        letters.set_data(named(letters.get_data().decode("latin1")).encode("latin1"))
    made = io.BytesIO()
    writer.write(made)
    return made.getvalue()


def write(book: Book, browser: Browser, out: Path) -> None:
    """Print the book until the numbers in its contents are those of its pages: twice.

    Args:
      book: its links are those of `place`.
      browser: a Chromium.
      out: the file to write.
    """
    join(book)
    numbers: dict[str, int] = {}
    for _ in range(4):
        pdf = printed(browser, document(book, numbers))
        if (found := pages_of(pdf)) == numbers:
            break
        numbers = found
    else:
        raise AssertionError("the numbers in the contents move the pages that they count")
    out.parent.mkdir(parents=True, exist_ok=True)
    headings = [h.get_text() for c in book.chapters for h in c.article.find_all(HEADING)]
    out.write_bytes(mended(pdf, [*book.parts, *headings]))
