"""Each page as Markdown with the outputs of its code, for machines that read: NAME.md by NAME.html.

llms.txt says what a language's pages are about; llms-full.txt has all of them, one after another.
"""

from typing import Any, NamedTuple

from docutils import nodes

from book.export.markdown import Writer, joined
from book.export.notebooks import site
from book.extensions.languages import address
from book.extensions.toc import Part
from book.paths import LANGUAGES
from book.tables import words

LONGEST = 50_000  # characters that a program may be asked to read at one go


class Page(NamedTuple):
    """What llms.txt and llms-full.txt know of a page."""

    title: str
    description: str
    text: str


def markdown(builder: Any, page: str, language: str, doctree: nodes.document) -> str:
    """A whole page: what it says, its code, and what the code showed."""
    home = site(language) or "../" * page.count("/")
    writer = Writer(builder, page, home, ".md")
    list_of_all = f"{home or './'}llms.txt"  # "/llms.txt" is what programs look for
    title, *rest = map(writer.shown, writer.parts(doctree))
    about = words(language)["markdown"].format(page=f"{home}{page}.html", llms=list_of_all)
    return joined([title, about, *rest]) + "\n"


def pieces(
    text: str, builder: Any, page: str, language: str, doctree: nodes.document
) -> dict[str, str]:
    """The files of a page: one, or of a long one a list of its sections, and a file for each."""
    if len(text) <= LONGEST:
        return {f"{page}.md": text}
    home = site(language) or "../" * page.count("/")
    writer = Writer(builder, page, site(language) or f"../{home}", ".md")
    files, links = {}, []
    whole = next(doctree.findall(nodes.section))
    for section in whole.children:
        if isinstance(section, nodes.section):
            place = f"{page}.sections/{section['ids'][0]}.md"
            title, *rest = map(writer.shown, writer.parts(section))
            files[place] = joined([title, *rest]) + "\n"
            links.append(f"- [{title.removeprefix('# ')}]({home}{place})")
    top, _, _ = text.partition("\n## ")
    return {f"{page}.md": joined([top.rstrip(), "\n".join(links)]) + "\n", **files}


def listed(language: str, parts: list[Part], pages: dict[str, Page]) -> str:
    """llms.txt: the book, and part by part where its pages are and what they say of themselves."""
    said, home = words(language), site(language)
    other = next(each for each in LANGUAGES if each != language)
    places = {"full": f"{home}llms-full.txt", "other": address("llms.txt", language, other)}
    about = f"> {pages['index'].description}"
    blocks = [f"# {said['title']}", about, said["llms"].format(**places)]
    named = {page for part in parts for page in part.pages}
    left = {name: page.title for name, page in pages.items() if name not in named}
    for part in [*parts, Part(said["pages"], "", left)]:
        lines = [
            f"- [{name}]({home}{page}.md): {pages[page].description}"
            for page, name in part.pages.items()
        ]
        blocks += [f"## {part.caption}", "\n".join(lines)] if lines else []
    return joined(blocks) + "\n"
