"""Keep the two languages of a page in step.

    python -m book.author.pairs check  # what differs between the two, and what to do
    python -m book.author.pairs stamp jit  # both were read again: make pair PAGE=jit

Prose is free in each language. The skeleton is not: files, code cells, heading levels, anchors,
formulas, images and link targets are equal. For the prose, the front matter of both files carries
one stamp with a digest of each body: an edit on one side is seen until the other was read again.
"""

import argparse
import difflib
import hashlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from docutils.parsers.rst import Directive
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.directives import parse_directive_text
from myst_parser.parsers.mdit import create_md_parser
from sphinx.util.nodes import explicit_title_re

from book.paths import DOCS, LANGUAGES, MYST_EXTENSIONS

VERBATIM = {"code", "code-block", "eval-rst", "image", "literalinclude", "math", "raw", "toctree"}
TARGET_ARGUMENT = VERBATIM | {"figure", "include"}  # the argument of others is prose, as a title is
PROSE_OPTIONS = {"alt", "caption", "title"}
PROSE_ROLES = {"abbr", "term"}  # what stands in them is a word of the language
UNORDERED = {"formula in the text", "link", "footnote"}  # a sentence puts them where it needs them


@dataclass(frozen=True)
class Part:
    """One thing that both languages must have: its kind and what must be equal."""

    kind: str
    value: str
    line: int = field(compare=False)


class AnyDirective(Directive):
    """What the parser needs to know in order to tell argument, options and body apart."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = {"any": str}  # noqa: RUF012 - as docutils declares it


def markdown() -> MarkdownIt:
    """The parser of the pages, with the extensions that they use."""
    config = MdParserConfig(enable_extensions=set(MYST_EXTENSIONS))
    return create_md_parser(config, RendererHTML)


def target(text: str) -> str:
    """Where `words <target>` leads; the words are prose."""
    match = explicit_title_re.match(text)
    return match[2] if match else text


class Page:
    """One language of a page: its stamp, the digest of its body, and its skeleton."""

    def __init__(self, name: str, docs: Path, language: str, md: MarkdownIt) -> None:
        self.name, self.language, self.md = name, language, md
        self.path = docs / language / name
        self.lines = self.path.read_text("utf8").split("\n")
        self.env: dict = {}  # the page's link definitions, for the text inside directives too
        tokens = md.parse("\n".join(self.lines), self.env)
        head = tokens[0] if tokens and tokens[0].type == "front_matter" else None
        self.body = head.map[1] if head and head.map else 0
        self.meta = (yaml.safe_load(head.content) if head else None) or {}
        prose = "\n".join(self.lines[self.body :]).strip()
        self.digest = f"{language}-{hashlib.sha256(prose.encode()).hexdigest()[:8]}"
        kernel = {key: self.meta.get(key) for key in ("file_format", "kernelspec")}
        self.parts = [Part("front matter", str(kernel), 1), *self.walk(tokens, 1)]

    def __str__(self) -> str:
        return f"docs/{self.language}/{self.name}"

    def walk(self, tokens: Iterable[Token], first: int) -> Iterator[Part]:
        """The parts of these tokens, in their order; `first` is the line their text begins at."""
        for token in tokens:
            line = first + (token.map or [0])[0]
            match token.type:
                case "heading_open":
                    yield Part("heading", token.tag, line)
                case "myst_target":
                    yield Part("anchor", token.content, line)
                case "math_block" | "math_block_label" | "amsmath":
                    yield Part("formula", f"{token.content.strip()} {token.info}", line)
                case "fence" | "colon_fence" if token.info.startswith("{"):
                    yield from self.directive(token, line)
                case "fence" | "colon_fence" | "code_block":
                    yield Part("code", f"{token.info}\n{token.content}", line)
                case "html_block" | "html_inline" if not token.content.startswith("<!--"):
                    yield Part("html", token.content.strip(), line)
                case "inline":
                    yield from self.walk(token.children or [], line)
                case "softbreak" | "hardbreak":
                    first += 1
                case "math_inline" | "math_inline_double":
                    yield Part("formula in the text", token.content.strip(), line)
                case "link_open":
                    yield Part("link", str(token.attrs["href"]), line)
                case "image":
                    yield Part("image", str(token.attrs["src"]), line)
                case "footnote_ref":
                    yield Part("footnote", token.meta["label"], line)
                case "myst_role" if token.meta["name"] == "math":
                    yield Part("formula in the text", token.content.strip(), line)
                case "myst_role":
                    role, leads = token.meta["name"], target(token.content)
                    prose = role in PROSE_ROLES and leads == token.content
                    yield Part("link", f"{{{role}}}{'' if prose else leads}", line)

    def directive(self, token: Token, line: int) -> Iterator[Part]:
        name, _, argument = token.info[1:].partition("}")
        if name in ("code-cell", "raw-cell"):
            yield Part("cell", f"{token.info}\n{token.content}", line)
            return
        read = parse_directive_text(
            AnyDirective, argument.strip(), token.content, validate_options=False
        )
        options = {k: v for k, v in sorted(read.options.items()) if k not in PROSE_OPTIONS}
        value: list[object] = [options]
        if name in TARGET_ARGUMENT:
            value += read.arguments
        if name in VERBATIM:
            value += map(target, read.body) if name == "toctree" else read.body
        yield Part(f"{{{name}}}", str(value), line)
        if name not in TARGET_ARGUMENT:
            yield from self.walk(self.md.parse(argument.strip(), self.env), line)
        if name not in VERBATIM:
            body = self.md.parse("\n".join(read.body), self.env)
            yield from self.walk(body, line + 1 + read.body_offset)

    def stamp(self, stamp: str) -> None:
        """Write the stamp into the front matter and leave everything else as it is."""
        line = f"pair: {stamp}"
        if not self.body:
            self.lines[:0] = ["---", line, "---"]
        else:
            head = [text for text in self.lines[: self.body - 1] if not text.startswith("pair:")]
            self.lines[: self.body - 1] = [*head, line]
        self.path.write_text("\n".join(self.lines), "utf8")


def skeleton_drift(zh: Page, en: Page) -> Iterator[str]:
    """Every difference between two skeletons, as a message."""
    ordered = [[part for part in page.parts if part.kind not in UNORDERED] for page in (zh, en)]
    matcher = difflib.SequenceMatcher(None, *ordered, autojunk=False)
    for operation, i, i_end, j, j_end in matcher.get_opcodes():
        if operation == "equal":
            continue
        for a, b in itertools.zip_longest(ordered[0][i:i_end], ordered[1][j:j_end]):
            if a and b and a.kind == b.kind:
                yield changed(zh, a, en, b)
            else:
                yield from (missing(zh, part, en) for part in [a] if part)
                yield from (missing(en, part, zh) for part in [b] if part)
    left, right = sections(zh), sections(en)
    for a, b in zip(left, right, strict=False) if len(left) == len(right) else ():
        yield from (missing(zh, part, en) for part in a if part not in b)
        yield from (missing(en, part, zh) for part in b if part not in a)


def sections(page: Page) -> list[dict[Part, None]]:
    """For each section, what its sentences hold, each once and in no order."""
    found: list[dict[Part, None]] = [{}]
    for part in page.parts:
        if part.kind == "heading":
            found.append({})
        elif part.kind in UNORDERED:
            found[-1].setdefault(part)
    return found


def place(page: Page, part: Part) -> str:
    """How a person finds the part: a cell by its number, and the heading it stands under."""
    before = [p for p in page.parts if p.line <= part.line]
    number = f" {sum(p.kind == 'cell' for p in before)}" if part.kind == "cell" else ""
    heading = next((p.line for p in reversed(before) if p.kind == "heading"), None)
    under = f" under “{page.lines[heading - 1].lstrip('# ')}”" if heading else ""
    return f"{part.kind}{number}{under}"


def changed(zh: Page, a: Part, en: Page, b: Part) -> str:
    row = 0
    if a.kind in ("cell", "code"):
        rows = itertools.zip_longest(a.value.split("\n"), b.value.split("\n"))
        row = next(n for n, (x, y) in enumerate(rows) if x != y)
    return (
        f"{zh}:{a.line + row} and {en}:{b.line + row}: {place(zh, a)} differs\n"
        f"    zh │ {zh.lines[a.line + row - 1]}\n"
        f"    en │ {en.lines[b.line + row - 1]}\n"
        "    make it the same in both"
    )


def missing(page: Page, part: Part, other: Page) -> str:
    return (
        f"{page}:{part.line}: {place(page, part)} has no equal in {other}: {part.value[:60]!r}\n"
        f"    {page.language} │ {page.lines[part.line - 1]}\n"
        f"    add it to {other} or take it out of {page}"
    )


def stamp_drift(zh: Page, en: Page) -> Iterator[str]:
    """The sides that changed since both were last read together, if any."""
    renew = f"then run: make pair PAGE={zh.name.removesuffix('.md')}"
    if zh.meta.get("pair") != en.meta.get("pair"):
        yield f"{zh} and {en} carry different stamps\n    read both, {renew}"
        return
    stamps = str(zh.meta.get("pair")).split()
    edited = [(a, b) for a, b in ((zh, en), (en, zh)) if a.digest not in stamps]
    if len(edited) == 2:
        yield f"{zh} and {en} have no stamp or changed since it was set\n    read both, {renew}"
    elif edited:
        (page, other), *_ = edited
        yield f"{page} changed since the pair was last read\n    bring {other} in step, {renew}"


def siblings(docs: Path) -> dict[str, list[str]]:
    """Every file by its path inside a language, with the languages that have it."""
    found: dict[str, list[str]] = {}
    for language in LANGUAGES:
        for path in sorted(p for p in (docs / language).rglob("*") if p.is_file()):
            found.setdefault(path.relative_to(docs / language).as_posix(), []).append(language)
    return found


def drift(name: str, docs: Path, stamps: bool = True) -> list[str]:
    """What differs between the two languages of a file, if both have it."""
    here = siblings(docs)[name]
    if len(here) == 1:
        there = next(language for language in LANGUAGES if language not in here)
        return [f"docs/{here[0]}/{name} has no sibling\n    it needs docs/{there}/{name}"]
    if not name.endswith(".md"):
        return []
    pages = pair(name, docs)
    return [*skeleton_drift(*pages), *(stamp_drift(*pages) if stamps else ())]


def pair(name: str, docs: Path) -> list[Page]:
    md = markdown()
    return [Page(name, docs, language, md) for language in LANGUAGES]


def check(docs: Path = DOCS) -> list[str]:
    """What differs between the languages, one message each; empty when they are in step."""
    return [message for name in siblings(docs) for message in drift(name, docs)]


def stamp(page: str, docs: Path = DOCS) -> list[str]:
    """Renew the stamp of a page; return what stands against it."""
    pages = [name.removesuffix(".md") for name in siblings(docs) if name.endswith(".md")]
    if page not in pages:
        given = f"no page {page!r}" if page else "which page? make pair PAGE=…"
        return [f"{given}; the pages are: {', '.join(pages)}"]
    name = f"{page}.md"
    messages = drift(name, docs, stamps=False)
    if not messages:
        zh, en = pair(name, docs)
        for each in (zh, en):
            each.stamp(f"{zh.digest} {en.digest}")
    return messages


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("do", choices=["check", "stamp"])
    parser.add_argument("page", nargs="?", default="", help="as in make pair PAGE=jit")
    args = parser.parse_args()
    messages = check() if args.do == "check" else stamp(args.page)
    print("\n".join(messages), end="\n" if messages else "", file=sys.stderr)
    if args.do == "stamp" and not messages:
        print(f"docs/{{zh,en}}/{args.page}.md are stamped")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
