"""A page as Sphinx has resolved it, as Markdown that everyone reads: machines, notebooks, forges.

Formulas are TeX; a picture of seejax.see is its text. What is there only for those who look at the
page, such as a list of links to what stands below, is left out. A node that is not known here is a
warning, and so ends the build.
"""

import posixpath
import re
import textwrap
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.util import logging

from book import private
from book.extensions.guesses import Choice, Guess
from book.extensions.layers import Fine

logger = logging.getLogger(__name__)

LANGUAGES = {"ipython3": "python", "python3": "python", "default": "python", "myst-ansi": "text"}
SIDES = {"text-left": ":--", "text-center": ":-:", "text-right": "--:"}
Part = str | nodes.container  # a block of prose as Markdown, or a code cell

UNSEEN = {"no-search", "terms-index", "toctree-wrapper"}  # classes of links to other places
# What Markdown would take for a mark: anywhere, at the ends of a word, and where a block begins.
MARKS = re.compile(r"[\\`*$]|(?<!\w)_|_(?!\w)|<(?=[\w/!?])|&(?=#?\w+;)|(?<=\])\(")
BEGINNING = re.compile(r"^(?:(?=[-+#>](?:\s|$))|(\d+)(?=[.)](?:\s|$)))")


def fenced(text: str, language: str) -> str:
    """Code or its output, between fences that it does not contain.

    >>> print(fenced("```", "text"))
    ````text
    ```
    ````
    """
    fence = "`" * max(3, 1 + longest(text))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def longest(text: str) -> int:
    """How many backticks stand in a row."""
    return max(map(len, re.findall("`+", text)), default=0)


def code(text: str) -> str:
    """A piece of code in a line.

    >>> code("x"), code("`x`")
    ('`x`', '`` `x` ``')
    """
    ticks = "`" * (longest(text) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def escaped(text: str) -> str:
    r"""Text in which nothing is a mark.

    >>> print(escaped("a_b * _c_ < 2 <d>"))
    a_b \* \_c\_ < 2 \<d>
    """
    return MARKS.sub(lambda mark: f"\\{mark[0]}", text)


def unmarked(text: str) -> str:
    r"""A line of Markdown that begins no list, no heading and no quotation.

    >>> unmarked("- 1"), unmarked("2026. A year"), unmarked("-1")
    ('\\- 1', '2026\\. A year', '-1')
    """
    return BEGINNING.sub(lambda found: f"{found[1] or ''}\\", text)


def folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def joined(blocks: Iterable[str]) -> str:
    return "\n\n".join(filter(None, blocks))


class Writer:
    """Writes what stands on a page: a method for each kind of node, which gives its Markdown.

    Args:
      builder: of the site, which knows its pages and its images.
      page: whose nodes are written; their links are seen from it.
      home: where the site is, seen from the file that is written, with a slash at the end.
      suffix: of the pages that links lead to, ".md" or ".html"; only the latter has anchors.
    """

    def __init__(self, builder: Any, page: str, home: str, suffix: str) -> None:
        self.builder, self.page, self.home, self.suffix = builder, page, home, suffix

    def parts(self, node: nodes.Element, level: int = 1) -> Iterator[Part]:
        """The blocks of a document or section, in their order; a code cell is left as its node.

        Args:
          level: of the heading with which it begins.
        """
        for child in node.children:
            if isinstance(child, nodes.title):
                yield f"{'#' * level} {self.inline(child)}"
            elif isinstance(child, nodes.section):
                yield from self.parts(child, level + isinstance(node, nodes.section))
            elif private.is_code_cell(child):
                yield child
            else:
                yield from filter(None, [self.write(child)])

    def write(self, node: nodes.Node) -> str:
        """By the method that is called as the node's class, or as one that it inherits from."""
        if isinstance(node, nodes.Element) and UNSEEN & {*node["classes"]}:
            return ""
        for kind in type(node).__mro__:
            if write := getattr(type(self), kind.__name__, None):
                return write(self, node)
        return self.unknown(node)

    def unknown(self, node: nodes.Node) -> str:
        logger.warning("no Markdown is known for %s", type(node).__name__, location=node)
        return ""

    def blocks(self, node: nodes.Node) -> str:
        return joined(map(self.write, node.children))

    def inline(self, node: nodes.Node) -> str:
        return "".join(map(self.write, node.children))

    def nothing(self, node: nodes.Node) -> str:
        return ""

    Invisible = Filter = Again = nothing

    def shown(self, part: Part) -> str:
        """A part of the page; of a code cell its code and what it showed."""
        if isinstance(part, str):
            return part
        solution = [f"**{self.builder.config.words['solution']}**"]
        return joined(
            [*(solution if "solution" in private.cell_tags(part) else []), self.blocks(part)]
        )

    def why(self, cell: nodes.container) -> list[str]:
        """What is said of a solution, and is folded with its cell: extensions/folds.py."""
        return [self.blocks(c) for c in cell.findall(nodes.container) if "why" in c["classes"]]

    def guess(self, cell: nodes.container) -> list[str]:
        """The choices of a puzzle, of which one is opened: extensions/guesses.py."""
        ask = self.builder.config.words["guess"]
        guesses = cell.findall(Guess)
        return [joined([ask, *map(self.choice, guess.findall(Choice))]) for guess in guesses]

    def choice(self, node: Choice) -> str:
        shown = "<br>".join(f"<code>{escape(line)}</code>" for line in node["text"].split("\n"))
        return folded(shown, joined([self.verdict(node), self.blocks(node)]))

    def verdict(self, node: Choice) -> str:
        right = "guess_right" if node["right"] else "guess_wrong"
        return f"**{self.builder.config.words[right]}**"

    # -- blocks ------------------------------------------------------------------------------------

    def Guess(self, node: Guess) -> str:
        return joined(map(self.write, node.children))

    def Choice(self, node: Choice) -> str:
        shown = fenced(node["text"], "text")
        return self.item("-", joined([shown, self.verdict(node), self.blocks(node)]))

    def Fine(self, node: Fine) -> str:
        return joined([f"*{self.builder.config.words['fine']}*", self.blocks(node)])

    container = HideCodeCellNode = list_item = definition_list = definition = blocks
    desc_content = field_list = field_body = blocks

    def paragraph(self, node: nodes.paragraph) -> str:
        return unmarked(self.inline(node))

    def literal_block(self, node: nodes.literal_block) -> str:
        language = node.get("language", "")
        return fenced(node.astext(), LANGUAGES.get(language, language))

    def doctest_block(self, node: nodes.doctest_block) -> str:
        return fenced(node.astext(), "python")

    def math_block(self, node: nodes.math_block) -> str:
        return f"$$\n{node.astext().strip()}\n$$"

    def block_quote(self, node: nodes.block_quote) -> str:
        return textwrap.indent(self.blocks(node), "> ", lambda line: True)

    def raw(self, node: nodes.raw) -> str:
        """A picture, by the text that book.export.pages has kept for it."""
        return fenced(node["plain"], "text") if "plain" in node else self.unknown(node)

    def image(self, node: nodes.image) -> str:
        name = posixpath.join(self.builder.imagedir, self.builder.images[node["uri"]])
        return f"![{escaped(node.get('alt', ''))}]({self.home}{name})"

    # -- lists -------------------------------------------------------------------------------------

    def bullet_list(self, node: nodes.bullet_list) -> str:
        return self.listed(node, ["-"] * len(node))

    def enumerated_list(self, node: nodes.enumerated_list) -> str:
        first = node.get("start", 1)
        return self.listed(node, [f"{first + n}." for n in range(len(node))])

    def listed(self, node: nodes.Element, marks: list[str]) -> str:
        tight = all(len(item.children) <= 1 for item in node.children)
        items = (self.item(mark, self.write(each)) for mark, each in zip(marks, node, strict=True))
        return ("\n" if tight else "\n\n").join(items)

    def item(self, mark: str, text: str) -> str:
        return f"{mark} {textwrap.indent(text, ' ' * (len(mark) + 1)).lstrip(' ')}"

    def definition_list_item(self, node: nodes.definition_list_item) -> str:
        term, body = node.children
        code_alone = all(isinstance(child, nodes.literal) for child in term.children)
        head = self.inline(term)
        return self.item("-", joined([head if code_alone else f"**{head}**", self.write(body)]))

    def desc(self, node: addnodes.desc) -> str:
        """Something that is documented: its signature, and what its docstring says."""
        *signatures, body = node.children
        return self.item("-", joined([*(code(s.astext()) for s in signatures), self.write(body)]))

    def field(self, node: nodes.field) -> str:
        name, body = node.children
        return joined([f"**{self.inline(name)}**", self.write(body)])

    # -- tables ------------------------------------------------------------------------------------

    def table(self, node: nodes.table) -> str:
        rows = [[self.cell(entry) for entry in row] for row in node.findall(nodes.row)]
        first = next(node.findall(nodes.row)).findall(nodes.entry)
        sides = [SIDES.get(" ".join(entry["classes"]), "---") for entry in first]
        head, *rest = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([head, f"|{'|'.join(sides)}|", *rest])

    def cell(self, entry: nodes.Node) -> str:
        return " ".join(map(self.inline, entry.children)).replace("|", r"\|")

    # -- in a line ---------------------------------------------------------------------------------

    def Text(self, node: nodes.Text) -> str:
        return escaped(re.sub(r"\s+", " ", node))

    def literal(self, node: nodes.literal) -> str:
        return code(node.astext())

    literal_strong = literal_emphasis = literal

    def math(self, node: nodes.math) -> str:
        return f"${node.astext()}$"

    def emphasis(self, node: nodes.emphasis) -> str:
        return f"*{self.inline(node)}*"

    def strong(self, node: nodes.strong) -> str:
        return f"**{self.inline(node)}**"

    def reference(self, node: nodes.reference) -> str:
        if "fine-mark" in node["classes"]:
            return node.astext()
        return f"[{self.inline(node)}]({self.address(node)})"

    def address(self, node: nodes.reference) -> str:
        """Where a link leads, seen from the file that is written."""
        to, _, anchor = node.get("refuri", "").partition("#")
        if "://" in to or to.startswith("mailto:"):
            return node["refuri"]
        anchor = node.get("refid") or anchor
        place = posixpath.normpath(posixpath.join(posixpath.dirname(self.page), to)) if to else ""
        page = place.removesuffix(".html") or self.page
        if page not in self.builder.env.found_docs:
            return self.home + place
        within = f"#{anchor}" if anchor and self.suffix == ".html" else ""
        return f"{self.home}{page}{self.suffix}{within}"
