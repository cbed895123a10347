"""One EPUB of a language: a chapter a page, formulas as MathML, pictures as they stand."""

import uuid
import zipfile
from pathlib import Path
from typing import NamedTuple

from bs4 import Tag

from book.export.chapters import OURS, Book, Chapter
from book.extensions.assets import squeezed

TYPES = {".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg"}


class Item(NamedTuple):
    """A file of the book, as its package lists it."""

    path: str
    type: str
    content: bytes
    properties: str = ""

    @property
    def id(self) -> str:
        return self.path.replace("/", "-")


def place(page: str, anchor: str) -> str:
    return f"{page}.xhtml" + (f"#{anchor}" if anchor else "")


def text_of(book: Book, chapter: Chapter) -> Item:
    """The chapter as XHTML, which has style sheets in its head alone and no CSS variables."""
    article = chapter.article
    styles = [squeezed(style.extract().get_text()) for style in article.select("style")]
    for tag in article.select("[style]"):
        if str(tag["style"]).startswith("--"):
            del tag["style"]
    text = book.fill("chapter.xhtml", chapter=chapter, styles=styles, text=xhtml(article))
    properties = "mathml" if article.find("math") else ""
    return Item(place(chapter.page, ""), "application/xhtml+xml", text.encode(), properties)


def xhtml(article: Tag) -> str:
    return article.decode_contents(formatter="minimal")


def figures_of(book: Book) -> dict[str, Item]:
    sources = {str(image["src"]) for c in book.chapters for image in c.article.select("img")}
    return {
        source: Item(source, TYPES[Path(source).suffix], (book.html / source).read_bytes())
        for source in sorted(sources)
    }


def write(book: Book, cover: bytes, out: Path) -> None:
    """Put the book together; the same pages make the same file, byte for byte.

    Args:
      book: its links are those of `place`.
      cover: a PNG.
      out: the file to write.
    """
    html = "application/xhtml+xml"
    chapters = [text_of(book, chapter) for chapter in book.chapters]
    spine = [
        Item("cover.xhtml", html, book.fill("cover.xhtml").encode()),
        Item("nav.xhtml", html, book.fill("nav.xhtml", place=place).encode(), "nav"),
        *chapters,
    ]
    css = Item("epub.css", "text/css", squeezed((OURS / "epub.css").read_text("utf8")).encode())
    others = [Item("cover.png", "image/png", cover, "cover-image"), css]
    items = [*spine, *others, *figures_of(book).values()]
    known = uuid.uuid5(uuid.NAMESPACE_DNS, f"{book.language}.seejax")
    package = book.fill("package.opf", items=items, spine=spine, uuid=known)
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_suffix(".new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
        # how a reader knows an EPUB: the first file, as it is
        put(archive, "mimetype", b"application/epub+zip", zipfile.ZIP_STORED)
        put(archive, "META-INF/container.xml", book.fill("container.xml").encode())
        put(archive, "book/package.opf", package.encode())
        for item in items:
            put(archive, f"book/{item.path}", item.content)
    new.replace(out)


def put(archive, name: str, content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> None:
    archive.writestr(zipfile.ZipInfo(name), content, compression)  # which has no time of its own
