"""The two layers of a page: what everyone reads, and what one reads on the day when it matters.

{fine} is the fine print of the paragraph before it, folded; the mark ° in a sentence leads to it.
{careful} warns of a wrong result that nothing announces. The section NAME-deeper holds the rest of
a page. Under the title of a lesson stands how long both take. {minutes}`tour numpy` and {hours} say
how long the main paths of these pages take together, and {hours}`all` the whole book.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from docutils import nodes
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from book import private
from book.paths import language_of
from book.tables import words

logger = logging.getLogger(__name__)

MARK = re.compile(r"(?<!\d)°")  # after a digit it is a degree
LESSON, EXERCISES, DEEPER = "takeaways", "exercises", "deeper"  # ends of anchors: jit-deeper

# How fast learners read, who also look at code and pictures; what is folded is not counted.
WORDS_A_MINUTE, CHARACTERS_A_MINUTE = 180, 320
SECONDS_A_LINE, SECONDS_A_PICTURE = 5, 20
FOLDED = {f"tag_{tag}" for tag in ("hide-cell", "hide-input", "remove-input", "solution")}


# -- fine print, and warnings ----------------------------------------------------------------------


class Fine(nodes.General, nodes.Element):
    """Fine print, under the paragraph that it limits."""


class FineDirective(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        fine = Fine("", *self.parse_content_to_nodes())
        self.set_source_info(fine)
        return [fine]


class Careful(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        box = nodes.container("", *self.parse_content_to_nodes(), classes=["careful"])
        if not box.children or not isinstance(box[0], nodes.paragraph):
            raise self.error("{careful} begins with a paragraph")
        lead = words(language_of(self.config))["careful"]
        box[0].insert(0, [nodes.strong("", lead), nodes.Text(" ")])
        return [box]


def link_marks(app, doctree) -> None:
    """Let each ° lead to the fine print that follows it in its section, and that lead back."""
    number, marks = 0, []
    for node in list(doctree.findall()):
        if isinstance(node, nodes.section):
            unanswered(marks)
        elif isinstance(node, nodes.Text) and is_prose(node) and MARK.search(node):
            marks.append(node)
        elif isinstance(node, Fine):
            number += 1
            node["ids"] = [f"fine-{number}"]
            if not marks:
                logger.warning("no ° in a sentence before leads to this fine print", location=node)
            for n, text in enumerate(marks):
                mark(text, f"fine-{number}", first=n == 0)
            marks.clear()
    unanswered(marks)


def is_prose(text: nodes.Text) -> bool:
    outer: nodes.Node | None = text.parent
    while outer:
        if isinstance(outer, nodes.literal | nodes.FixedTextElement | nodes.title | Fine):
            return False
        outer = outer.parent
    return True


def unanswered(marks: list[nodes.Text]) -> None:
    for text in marks:
        logger.warning("a sentence has ° and no {fine} follows it", location=text.parent)
    marks.clear()


def mark(text: nodes.Text, fine: str, first: bool) -> None:
    before, *rest = MARK.split(text)
    new: list[nodes.Node] = [nodes.Text(before)]
    for n, after in enumerate(rest):
        ids = [f"{fine}-from"] if first and n == 0 else []
        link = nodes.reference("", "°", refid=fine, internal=True, classes=["fine-mark"], ids=ids)
        new += [link, nodes.Text(after)]
    text.parent.replace(text, new)


def open_fine(translator, node: Fine) -> None:
    said, (anchor,) = translator.config.words, node["ids"]
    translator.body.append(
        f'<details class="folded fine" id="{anchor}"><summary>{said["fine"]}</summary>\n<div>\n'
    )


def close_fine(translator, node: Fine) -> None:
    back = translator.config.words["fine_back"]
    link = f'<a class="fine-back" href="#{node["ids"][0]}-from" aria-label="{back}">↩</a>'
    translator.body.append(f"{link}\n</div></details>\n")


# -- how long a page takes -------------------------------------------------------------------------


class Minutes(NamedTuple):
    main: float
    deeper: float


def seconds(node: nodes.Node) -> Iterator[float]:
    """How long what stands below takes to read, part by part."""
    if isinstance(node, Fine | nodes.Invisible) or not isinstance(node, nodes.Element):
        return
    if private.is_code_cell(node):
        shown = [part for part in node.children if "cell_input" in part["classes"]]
        lines = sum(part.astext().count("\n") + 1 for part in shown)
        yield 0 if FOLDED & {*node["classes"]} else SECONDS_A_LINE * lines
        yield SECONDS_A_PICTURE if any(node.findall(is_picture)) else 0
    elif isinstance(node, nodes.literal_block):
        yield SECONDS_A_LINE * (node.astext().count("\n") + 1)
    elif isinstance(node, nodes.TextElement):
        text = node.astext()
        characters = len(re.findall(r"[\u3400-\u9fff]", text))
        latin = len(re.findall(r"[A-Za-z0-9_.]+", text))
        yield 60 * (latin / WORDS_A_MINUTE + characters / CHARACTERS_A_MINUTE)
    else:
        for child in node.children:
            yield from seconds(child)


def is_picture(node: nodes.Node) -> bool:
    return isinstance(node, nodes.image | nodes.raw)


def section(doctree: nodes.document, page: str, name: str) -> nodes.section | None:
    found = (s for s in doctree.findall(nodes.section) if f"{page}-{name}" in s["ids"])
    return next(found, None)


def minutes(doctree: nodes.document, page: str) -> Minutes:
    """Of reading a page, without its exercises."""
    whole, exercises, deeper = (
        sum(seconds(part)) / 60 if part else 0
        for part in (doctree, section(doctree, page, EXERCISES), section(doctree, page, DEEPER))
    )
    return Minutes(whole - exercises - deeper, deeper)


def about(time: float) -> int:
    """As a reader plans it: minutes to the next five, and below ten as they are.

    >>> about(7.2), about(13), about(21)
    (8, 15, 25)
    """
    return -int(-time // 1) if time <= 8 else -int(-time // 5) * 5


def all_minutes(env: BuildEnvironment) -> dict[str, Minutes]:
    """Of every lesson that has been read, by its page."""
    if not hasattr(env, "minutes"):
        env.minutes = {}  # pyrefly: ignore
    return env.minutes  # pyrefly: ignore


def say_minutes(app, doctree) -> None:
    """Under the title of a lesson: how long it takes, and how long what lies deeper takes."""
    page = app.env.docname
    all_minutes(app.env).pop(page, None)
    if not section(doctree, page, LESSON):
        return
    all_minutes(app.env)[page] = time = minutes(doctree, page)
    said, deep = words(language_of(app.config)), section(doctree, page, DEEPER)
    line = nodes.paragraph("", "", classes=["times", "no-search"])
    line += nodes.Text(said["time"].format(main=about(time.main)))
    if deep:
        more = said["time_deeper"].format(deeper=about(time.deeper))
        line += [nodes.Text(said["time_and"])]
        line += nodes.reference("", more, refid=deep["ids"][0], internal=True)
    title = next(doctree.findall(nodes.title))
    title.parent.insert(title.parent.index(title) + 1, line)


class Reading(nodes.Inline, nodes.TextElement):
    """The place of the minutes of some pages, until a page is written."""


class MinutesRole(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        return [Reading("", pages=self.text.split(), unit=self.name)], []


def put_in(app, doctree, docname) -> None:
    known = all_minutes(app.env)
    for place in list(doctree.findall(Reading)):
        pages, layers = place["pages"], slice(1)
        if pages == ["all"]:
            pages, layers = [*known], slice(2)
        if missing := {*pages} - {*known}:
            logger.warning("{minutes} knows no lesson %s", ", ".join(missing), location=place)
        time = sum(sum(known[page][layers]) for page in pages if page in known)
        said = in_hours(time) if place["unit"] == "hours" else str(about(time))
        place.replace_self(nodes.Text(said))


def in_hours(time: float) -> str:
    """Minutes as hours, to the next half.

    >>> in_hours(61), in_hours(119)
    ('1½', '2')
    """
    halves = -int(-time // 30)
    return (str(halves // 2) if halves > 1 else "") + ("½" if halves % 2 else "")


def merge(app, env, docnames, other) -> None:
    all_minutes(env).update({page: all_minutes(other)[page] for page in docnames})


def write_again(app, env) -> list[str]:
    """The front page says how long others take: when that has changed, it is written."""
    now = {page: [*map(about, times)] for page, times in all_minutes(env).items()}
    before, env.minutes_written = getattr(env, "minutes_written", None), now
    return [] if before == now else [env.config.root_doc]


def forget(app, env, page: str) -> None:
    all_minutes(env).pop(page, None)


def setup(app) -> dict:
    app.setup_extension("book.extensions.languages")  # gives sections their anchors
    app.add_node(Fine, html=(open_fine, close_fine))
    app.add_node(Reading)
    app.add_directive("fine", FineDirective)
    app.add_directive("careful", Careful)
    app.add_role("minutes", MinutesRole())
    app.add_role("hours", MinutesRole())
    app.connect("doctree-read", link_marks)
    app.connect("doctree-read", say_minutes, priority=900)  # when cells are what a reader sees
    app.connect("doctree-resolved", put_in)
    app.connect("env-updated", write_again)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
