"""One PDF of a language, printed by Chromium: contents with page numbers, links, bookmarks."""

import io
import tempfile
from pathlib import Path

from playwright.sync_api import Browser
from pypdf import PdfReader

from tools.chapters import OURS, Book

LIMIT_MS = 600_000  # of one print


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
        for heading in chapter.article.find_all(["h1", "h2", "h3", "h4", "h5"]):
            heading.name = f"h{int(heading.name[1]) + 1}"
        for image in chapter.article.select("img"):
            image["src"] = (book.html / str(image["src"])).resolve().as_uri()


def document(book: Book, numbers: dict[str, int]) -> str:
    """The whole book as one page of HTML; on which page each place is stands in its contents."""
    ours = [book.html / "_static" / "site.css", book.html / "_static" / "see.css", OURS / "pdf.css"]
    styles = [sheet.read_text("utf8") for sheet in ours]
    return book.fill("book.html", styles=styles, numbers=numbers, place=place)


def pages_of(pdf: bytes) -> dict[str, int]:
    """On which page each place of the document is that a link leads to."""
    reader = PdfReader(io.BytesIO(pdf))
    numbers = {page.indirect_reference.idnum: n for n, page in enumerate(reader.pages, 1)}
    return {
        f"#{name.removeprefix('/')}": numbers[place.page.idnum]
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
    out.write_bytes(pdf)
