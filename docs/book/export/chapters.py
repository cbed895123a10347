"""The built pages as chapters of a book: in order, with nothing that needs a script or a click.

What is folded on the site stands open under its name; a link to another page leads into the book.
"""

import posixpath
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup, Tag
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from book.export.notebooks import site
from book.extensions.build_facts import facts
from book.extensions.folds import KINDS
from book.paths import LANGUAGES, THEME, BuildError
from book.tables import words

PRINT = THEME / "print"  # template and style sheet of the PDF

CODE = {"pre", "code"}  # whose spaces are kept

Place = Callable[[str, str], str]  # the address of a page and an anchor, in the book


class Chapter(NamedTuple):
    page: str
    name: str  # as the sidebar has it
    article: Tag

    @property
    def sections(self) -> list[tuple[str, str]]:
        """The anchor and the title of every section, but not of those inside them."""
        found = self.article.select("article > section > section[id]")
        return [(str(section["id"]), titled(section)) for section in found]


class Book(NamedTuple):
    language: str
    html: Path  # the site that it is made of
    parts: dict[str, list[Chapter]]

    @property
    def chapters(self) -> list[Chapter]:
        return [chapter for part in self.parts.values() for chapter in part]

    def fill(self, template: str, **values: object) -> str:
        """A file of docs/theme/print with what the book says of itself."""
        said = {"book": self, "words": words(self.language), "built": facts()}
        said |= {"hreflang": LANGUAGES[self.language]["hreflang"]}
        return templates().get_template(template).render(said | values)


@cache
def templates() -> Environment:
    return Environment(
        loader=FileSystemLoader([PRINT, THEME / "parts"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def contents(html: Path, language: str) -> dict[str, dict[str, str]]:
    """The parts of the book, and of each its pages with their names, as llms.txt lists them."""
    try:
        text = (html / "llms.txt").read_text("utf8")
    except FileNotFoundError:
        raise BuildError(f"{html} has no llms.txt: make html") from None
    found = {}
    for part in text.split("\n## ")[1:]:
        caption, _, listed = part.partition("\n")
        pages = re.findall(r"^- \[(.+?)\]\((\S+)\.md\)", listed, re.MULTILINE)
        found[caption] = {page.removeprefix(site(language)): name for name, page in pages}
    return found


def titled(section: Tag) -> str:
    return section.find(["h2", "h3"]).get_text().strip()  # pyrefly: ignore


def book(html: Path, language: str, place: Place, only: Iterable[str] | None = None) -> Book:
    """The pages of a built site, each link of them as `place` says; `only` some, to try things."""
    wanted = {
        part: {page: name for page, name in pages.items() if only is None or page in only}
        for part, pages in contents(html, language).items()
    }
    known = {page for pages in wanted.values() for page in pages}

    def chapter(page: str, name: str) -> Chapter:
        try:
            text = (html / f"{page}.html").read_text("utf8")
        except FileNotFoundError:
            raise BuildError(f"{html} has no {page}.html: make html") from None
        soup = BeautifulSoup(text, "html.parser", preserve_whitespace_tags=CODE)
        article = soup.select_one("article.bd-article")
        if not article:
            raise BuildError(f"{html}/{page}.html has no article")
        keep_still(article)
        unfold(article, words(language))
        for link in article.select("a[href]"):
            lead(link, page, known, site(language), place)
        return Chapter(page, name, article)

    return Book(
        language,
        html,
        {p: [chapter(*page) for page in pages.items()] for p, pages in wanted.items() if pages},
    )


def keep_still(article: Tag) -> None:
    """Take out what a script or the mouse needs."""
    for tag in article.select(".headerlink, .toctree-wrapper, template, script, button"):
        tag.decompose()
    for tag in article.find_all(True):
        for name in [*tag.attrs]:
            if name.startswith("data-") or name in ("tabindex", "loading"):
                del tag[name]


def unfold(article: Tag, said: dict[str, str]) -> None:
    """Open every fold: its summary becomes a line that says what follows.

    >>> fold = '<details class="folded"><summary>?</summary>3</details>'
    >>> soup = BeautifulSoup(f'<div class="cell tag_puzzle">{fold}</div>', "html.parser")
    >>> unfold(soup, {"output": "Output"})
    >>> print(soup.div.div)
    <div class="unfolded"><p class="fold">Output</p>3</div>
    """
    for cell in article.select("[class*=tag_]"):
        for summary in cell.select("details.folded > summary"):
            kind = next(kind for tag, kind in KINDS.items() if tag in cell["class"])
            summary.string = said[kind]
    for summary in article.select("details > summary"):
        summary.name, summary["class"] = "p", "fold"
    for fold in article.select("details"):
        fold.name, fold["class"] = "div", "unfolded"


def lead(link: Tag, page: str, known: set[str], online: str, place: Place) -> None:
    """Let a link lead into the book, else to the site where it is known; or be no link."""
    address = urlsplit(str(link["href"]))
    if address.scheme:
        return
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), address.path))
    to = page if not address.path else path.removesuffix(".html")
    if to in known:
        link["href"] = place(to, address.fragment)
    elif online:
        link["href"] = urljoin(f"{online}{page}.html", str(link["href"]))
    else:
        link.unwrap()
