"""The exercises of the pages, and the file of each that is laid into a reader's folder.

In a clone of the book's repository the pages are read where they are written; a package has copies.
"""

import functools
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PLACES = (HERE / "pages", HERE.parents[2] / "docs")
LANGUAGES = ("zh", "en")
WIDTH = 76  # of a comment, in columns; a Chinese character has two

BLOCK = re.compile(
    r"^(?P<fence>`{3,}|:{3,})(?P<head>.*)\n(?P<body>(?:.*\n)*?)(?P=fence)[ \t]*$", re.MULTILINE
)
TITLE = re.compile(r"^\*\*(?P<number>\d+)\. (?P<title>.+?)\*\*\s*(?P<task>.*)", re.M | re.S)
HEADING = re.compile(r"^#+ ", re.MULTILINE)
TAGS = re.compile(r"^:tags: \[(.*)\]$", re.MULTILINE)
OPTIONS = re.compile(r"\A(?::.*\n)*\n*")
ENTRY = re.compile(r"^(?:.+ <([\w-]+)>|([\w-]+))$", re.MULTILINE)  # of a toctree
LINE = {  # what stands above it is the reader's, what stands below it are the tests
    "zh": "# ==== 测试：一存盘就运行。你的代码写在这条线上面 ====",
    "en": "# ==== tests: they run at each save; your code stands above this line ====",
}
BELOW = re.compile(r"^# ==== (?:测试|tests)\b.*$", re.MULTILINE)
TOKEN = re.compile(  # what a line is broken between: words, and single Chinese characters
    r"[（《「“]*[\u2e80-\uffef][，。；：！？、）》」”]*|(?:(?![\u2e80-\uffef])\S)+[，。；：！？、）》」”]*|\s+"
)


class Missing(Exception):
    """There is no such page or exercise, or no page at all; the argument says which."""


@dataclass(frozen=True)
class Exercise:
    """Prose is plain text in one language; code is the same in both."""

    page: str
    number: int
    lang: str
    heading: str
    title: str
    task: str
    start: str
    solution: str
    tests: str
    why: str

    @property
    def name(self) -> str:
        return f"{self.page}-{self.number}"

    @property
    def file(self) -> str:
        """What a reader gets: the task as a comment, where to start, and the tests."""
        title = f"{self.heading} · {self.number}. {self.title}"
        task = "\n\n".join(wrapped(part) for part in self.task.split("\n\n"))
        comment = "\n".join(f"# {line}".rstrip() for line in f"{title}\n\n{task}".split("\n"))
        return f"{comment}\n\n{self.start}\n\n{LINE[self.lang]}\n\n{self.tests}\n"

    def parts(self, text: str) -> tuple[str, str]:
        """A reader's file in two: what the reader wrote, and all of it with the tests of the page.

        So a test that was changed by accident, or deleted, still is the test of the page.

        >>> one = Exercise("a", 1, "en", "A", "T", "Do.", "x = 1", "x = 2", "assert x == 2", "")
        >>> one.parts(one.file)[1] == one.file == one.parts(one.file + "assert True")[1]
        True
        >>> one.parts("x = 2")[1]
        'x = 2\\nassert x == 2\\n'
        """
        if line := BELOW.search(text):
            return text[: line.start()], f"{text[: line.end()]}\n\n{self.tests}\n"
        return text, f"{text}\n{self.tests}\n"


# -- a page ----------------------------------------------------------------------------------------


def parsed(page: str, lang: str, text: str) -> list[Exercise]:
    """The exercises of a page that have a start, a solution and tests, in this order."""
    found: list[Exercise] = []
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    parts: dict[str, str] = {}
    at = 0
    for block in BLOCK.finditer(text):
        prose, at = text[at : block.start()], block.end()
        if HEADING.search(prose):
            parts = {}
        if title := list(TITLE.finditer(prose)):
            parts = title[-1].groupdict()
        elif "task" in parts and "start" not in parts:
            parts["task"] += prose
        body = block["body"]
        tags = (TAGS.search(body) or [""])[0]
        code = OPTIONS.sub("", body).rstrip("\n")
        if block["head"].startswith("{code-cell}"):
            if "exercise" in tags:
                parts["start"] = code
            elif "solution" in tags:
                parts["solution"] = code
            elif "tests" in tags and parts.keys() >= {"title", "start", "solution"}:
                exercise = Exercise(
                    page,
                    int(parts["number"]),
                    lang,
                    plain(heading[1]) if heading else page,
                    plain(parts["title"]).rstrip(".。"),
                    plain(parts["task"]),
                    parts["start"],
                    parts["solution"],
                    code,
                    after(text, at),
                )
                found.append(exercise)
                parts = {}
        elif "task" in parts and "start" not in parts:
            parts["task"] += f"\n\n{body}"
    return found


def after(text: str, at: int) -> str:
    """The reasons that stand right after a cell, if they do."""
    block = BLOCK.search(text, at)
    follows = block and not text[at : block.start()].strip()
    return plain(block["body"]) if block and follows and "why" in block["head"].split() else ""


def plain(markdown: str) -> str:
    """Prose without links, roles, bold type and the mark of fine print.

    >>> plain("**A [tracer](#term-tracer)** has no value.° See {doc}`jit <jit>`, at 4°.")
    'A tracer has no value. See jit, at 4°.'
    """
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", markdown)
    text = re.sub(r"\{[\w:-]+\}`([^`<]+?)(?: *<[^`]*>)?`", r"\1", text)
    text = text.replace("**", "")
    return re.sub(r"(?<!\d)° ?(?=(.?))", lambda m: " " if m[1].isascii() else "", text).strip()


def wrapped(text: str, width: int = WIDTH) -> str:
    """Broken into lines, at spaces or between Chinese characters; a list keeps its lines.

    >>> print(wrapped("one two three", 8))
    one two
    three
    >>> print(wrapped("一二三四，五六", 8))
    一二三
    四，五六
    """
    lines = [""]
    for paragraph in re.split(r"\n(?=[-*] |\d+\. )", text):
        for token in TOKEN.findall(paragraph.strip()):
            token = re.sub(r"\s+", " ", token)
            if columns(lines[-1] + token.rstrip()) > width and lines[-1]:
                lines.append("")
            lines[-1] += token if lines[-1] else token.lstrip()
        lines.append("")
    return "\n".join(line.rstrip() for line in lines).strip()


def columns(text: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


# -- the book --------------------------------------------------------------------------------------


def folder(lang: str) -> Path:
    for place in PLACES:
        if (place / lang / "index.md").is_file():
            return place / lang
    raise Missing("")


@functools.cache
def book(lang: str) -> dict[str, Exercise]:
    """Every exercise by its name, in the order of the book.

    Raises:
      Missing: this installation has no pages.

    >>> list(book("en"))[:2], book("en")["tour-1"].title
    (['tour-1', 'tour-2'], 'Make it robust')
    """
    here = folder(lang)
    trees = [
        block["body"]
        for block in BLOCK.finditer((here / "index.md").read_text("utf-8"))
        if block["head"] == "{toctree}"
    ]
    order = ["".join(entry) for tree in trees for entry in ENTRY.findall(tree)]
    pages = {file.stem: file for file in sorted(here.glob("*.md"))}
    found: dict[str, Exercise] = {}
    for page in [*filter(pages.get, order), *sorted(pages.keys() - {*order})]:
        text = pages[page].read_text("utf-8")
        if "exercise" in text:
            found |= {exercise.name: exercise for exercise in parsed(page, lang, text)}
    return found


def chosen(names: list[str], lang: str) -> list[Exercise]:
    """The exercises of some pages, or by their own names; without a name, all.

    Raises:
      Missing: one of the names.
    """
    every = book(lang).values()
    for name in names:
        if not any(name in (exercise.page, exercise.name) for exercise in every):
            raise Missing(name)
    return [one for one in every if not names or one.page in names or one.name in names]
