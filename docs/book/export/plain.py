"""A page's MyST as Markdown that everyone reads: notebooks elsewhere, forges, machines.

What only Sphinx knows is put in: where links lead, the values of {glue:text}, included code, terms,
errors. Formulas, tables and code stay as they are. What is not known here is an error, never left
over.
"""

import functools
import posixpath
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import nbformat
from myst_nb.core.variables import format_plain_text
from myst_parser.parsers.directives import parse_directive_text
from sphinx.config import Config
from sphinx.directives.code import LiteralIncludeReader
from sphinx.util.nodes import explicit_title_re

from book.author.pairs import AnyDirective, markdown
from book.counts import told
from book.export.stubs import stubs
from book.extensions import today
from book.extensions.build_facts import facts, repository
from book.extensions.chinese import joins
from book.extensions.errors import MESSAGES, headword, of_topic, read_messages
from book.extensions.terms import PAGE, PREFIX, full_name, terms
from book.paths import DOCS, BuildError, page_name, pages
from book.tables import words
from seejax import errors

# Formulas and code come first, so that nothing inside them is taken for a link.
INLINE = re.compile(
    r"""\\.
    | \{(?P<role>[\w:]+)\}(?P<ticks>`+)(?P<text>.+?)(?P=ticks)
    | (?P<code>`+)(?!`).+?(?<!`)(?P=code)(?!`)
    | \$\$.+?\$\$ | \$(?!\s)[^$]+?(?<![\s\\])\$
    | (?P<wordless>\[)?\]\((?P<to>[\w/.-]+\.md|(?=\#))(?P<anchor>\#[\w-]+)?\)""",
    re.DOTALL | re.VERBOSE,
)
# A line that goes on: what stands at its ends, but for marks, and no item, row or heading after it.
LINE_BREAK = re.compile(r"(\S)([*_`]*|\]\(\S+\))\n[ \t]*(?![-+*|#>] |\||\d+[.)] )(?=[*_`\[]*(\S))")


parser = functools.cache(markdown)


class Section(NamedTuple):
    """Where an anchor leads."""

    page: str
    title: str


@functools.cache
def sections(language: str) -> dict[str, Section]:
    """Every anchor of a language's pages, every term, every entry of old code and every error.

    >>> sections("en")["numpy"].page, sections("zh")["term-tracer"]
    ('numpy', Section(page='terms', title='追踪器（tracer）'))
    """
    found = {PREFIX + n: Section(PAGE, full_name(t, language)) for n, t in terms().items()}
    for name, entry in today.entries().items():
        found[today.PREFIX + name] = Section(today.PAGE, entry["said"][language])
    for name, entry in errors.entries().items():
        found[errors.PREFIX + name] = Section(errors.PAGE, f"`{headword(entry)}`")
    for path in pages(language):
        page = page_name(path, language)
        above = re.findall(r"^\(([\w-]+)\)=\n+(?:#+ (.+))?", path.read_text("utf8"), re.MULTILINE)
        found |= {anchor: Section(page, title) for anchor, title in above}
    return found


@functools.cache
def parts(language: str) -> dict[str, dict[str, str]]:
    """The parts of the book, and of each its pages with their short names, as the sidebar has them.

    >>> parts("en")["Transformations"]["jit"], parts("zh")["变换"]["jit"]
    ('Just-in-time compilation', '即时编译')
    """
    index = (DOCS / language / "index.md").read_text("utf8")
    found = {}
    for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.MULTILINE | re.DOTALL):
        caption = re.search(r"^:caption: (.+)$", tree, re.MULTILINE)
        entries = re.findall(r"^(.+) <([\w/-]+)>$", tree, re.MULTILINE)
        pages = {"index" if page == "self" else page: name for name, page in entries}
        found[caption[1] if caption else ""] = pages
    return found


def names(language: str) -> dict[str, str]:
    """The short name of every page, in the order of the book."""
    return {page: name for pages in parts(language).values() for page, name in pages.items()}


def glued(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """The values that an executed notebook keeps for its prose, as `glue` left them."""
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", ())]
    kept = [o for o in outputs if "scrapbook" in o.get("metadata", {})]
    return {
        o.metadata["scrapbook"]["name"]: o.data[
            o.metadata["scrapbook"]["mime_prefix"] + "text/plain"
        ]
        for o in kept
    }


class Plain(NamedTuple):
    """One page in one language, and what its roles and links are made of."""

    page: str
    language: str
    values: Mapping[str, str]
    link: str
    folds: bool

    def text(self, source: str) -> str:
        blocks = (block.strip("\n") for block in self.blocks(source))
        return "\n\n".join(block for block in blocks if block)

    def blocks(self, source: str) -> Iterator[str]:
        """A text piece by piece: what is verbatim, and the prose between."""
        lines, done = source.split("\n"), 0
        for token in parser().parse(source):
            known = token.type in ("fence", "colon_fence", "code_block", "math_block")
            if not token.map or token.map[0] < done:
                continue
            if known or token.type in ("math_block_label", "myst_target", "front_matter"):
                begin, end = token.map
                yield self.prose("\n".join(lines[done:begin]))
                done = end
                if known and token.info.startswith("{"):
                    indent = lines[begin][: -len(lines[begin].lstrip())]
                    yield textwrap.indent(self.directive(token.info, token.content), indent)
                elif known:
                    yield "\n".join(lines[begin:end])
                elif token.type == "math_block_label":
                    yield f"$$\n{token.content.strip()}\n$$"
        yield self.prose("\n".join(lines[done:]))

    def prose(self, text: str) -> str:
        """Paragraphs, headings, lists and tables: their roles and links."""
        paragraphs = [INLINE.sub(self.inline, part) for part in re.split(r"\n\s*\n", text)]
        if self.language == "zh":  # between Chinese characters a line break is no space
            paragraphs = [LINE_BREAK.sub(self.line_break, part) for part in paragraphs]
        return "\n\n".join(paragraphs)

    def line_break(self, found: re.Match) -> str:
        before, marks, after = found.groups()
        return f"{before}{marks}" if joins(before, after) else f"{before}{marks}\n"

    def inline(self, found: re.Match) -> str:
        if found["role"]:
            return self.role(found["role"], found["text"])
        if found["to"] is None:
            return found[0]
        title, address = self.target(found["to"], found["anchor"] or "")
        return f"[{title}]({address})" if found["wordless"] else f"]({address})"

    def target(self, to: str, anchor: str) -> tuple[str, str]:
        """The words of a link that has none, and its address."""
        page = posixpath.normpath(posixpath.join(posixpath.dirname(self.page), to))[: -len(".md")]
        title = ""
        if anchor:
            try:
                page, title = sections(self.language)[anchor[1:]]
            except KeyError:
                raise BuildError(f"{self.page}: no page has the anchor {anchor}") from None
        title = title or names(self.language).get(page, page)
        return title, self.link.format(page=page, anchor=anchor)

    def role(self, name: str, text: str) -> str:
        explicit = explicit_title_re.match(text)
        if name == "glue:text":
            key, _, form = text.partition(":")
            if key not in self.values:
                raise BuildError(f"{self.page}: nothing was glued as {key}")
            return format_plain_text(self.values[key], form or "s")
        if name == "built":
            return facts()[text]
        if name == "repository" and explicit:
            return f"[{explicit[1]}]({repository()})" if repository() else explicit[1]
        if name == "ref":
            title, address = self.target("", f"#{explicit[2] if explicit else text}")
            return f"[{explicit[1] if explicit else title}]({address})"
        if name == "math":
            return f"${text}$"
        if name.startswith("py:"):  # a name of Python, linked on the site
            return f"`{explicit[1] if explicit else text.lstrip('~')}`"
        raise BuildError(f"{self.page}: book.export.plain does not know the role {{{name}}}")

    def directive(self, info: str, content: str) -> str:
        name, _, argument = info[1:].partition("}")
        argument = argument.strip()
        read = parse_directive_text(AnyDirective, argument, content, validate_options=False)
        if name == "container":
            body = self.text("\n".join(read.body))
            if argument != "why" or not self.folds:
                return body
            summary = words(self.language)["why"]  # on the site it is folded with its solution
            return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"
        if name == "literalinclude":
            path = (DOCS / self.language / self.page).parent / argument
            code, _ = LiteralIncludeReader(str(path), read.options, Config()).read()
            return f"```{read.options.get('language', 'python')}\n{code.rstrip()}\n```"
        if name == "eval-rst":  # the page api, whose docstrings the site sets
            modules = re.findall(r"^\.\. automodule:: (\S+)", content, re.MULTILINE)
            return "\n\n".join(f"```python\n{stubs(module)}\n```" for module in modules)
        if name == "terms":
            return "\n\n".join(self.terms(argument))
        if name == "about":
            return self.prose(told(argument, self.language, names(self.language)))
        if name == "today":
            return self.text("\n\n".join(self.old_code(argument)))
        if name == "errors":
            return "\n\n".join(self.errors(argument))
        if name == "toctree":  # the map of the front page says the same in words
            return ""
        raise BuildError(f"{self.page}: book.export.plain does not know the directive {{{name}}}")

    def terms(self, group: str) -> Iterator[str]:
        """The terms of a group, explained; without one, their index: anchors alone, so nothing."""
        for term in terms().values():
            if term["group"] == group:
                explained = self.prose(term["explain"][self.language])
                yield f"- **{full_name(term, self.language)}**\n\n  {explained}"

    def old_code(self, topic: str) -> Iterator[str]:
        """The entries of a topic; without one, the field that finds them: nothing."""
        for entry in today.entries().values():
            if entry["topic"] == topic:
                shown = textwrap.indent(today.explained(entry, self.language), "  ")
                yield f"- **{entry['said'][self.language]}**\n\n{shown}"

    def errors(self, topic: str) -> Iterator[str]:
        """The errors of a topic: message, cause, cure, and the code before and after."""
        messages = read_messages(self.values[MESSAGES])
        for name, entry in of_topic(topic).items():
            texts = (self.prose(text[self.language]) for text in (entry.cause, entry.cure))
            codes = (f"```python\n{code.strip()}\n```" for code in (entry.code, entry.cured))
            parts = (f"```text\n{messages[name]}\n```", *texts, *codes)
            item = textwrap.indent("\n\n".join(parts), "  ")
            yield f"- `{headword(entry)}`\n\n{item}"


def plain(
    text: str,
    page: str,
    language: str,
    values: Mapping[str, str] | None = None,
    link: str = "{page}.html{anchor}",
    folds: bool = True,
) -> str:
    r"""A text of a page as plain Markdown.

    Args:
      text: MyST, a cell of Markdown or a whole page without code cells.
      page: its name, without suffix; relative links and files are seen from there.
      values: what {glue:text} names, from `glued` of the page's executed notebook.
      link: the address of a page, with {page} in it, and of a section with {anchor}, "" or "#…".
      folds: whether what the site folds with a solution is folded here.

    >>> plain("(a)=\n## B\n[](jit.md), [it](#numpy), `[c](#d)`, $[x](y.md)$", "tour", "en")
    '## B\n[Just-in-time compilation](jit.html), [it](numpy.html#numpy), `[c](#d)`, $[x](y.md)$'
    >>> plain("{glue:text}`a:.1f`, {ref}`numpy`", "tour", "en", {"a": "2.345"})
    '2.3, [Tell JAX from NumPy before you run it](numpy.html#numpy)'
    >>> plain("一行\n两行\nx", "tour", "zh")
    '一行两行\nx'
    """
    return Plain(page, language, values or {}, link, folds).text(text)
