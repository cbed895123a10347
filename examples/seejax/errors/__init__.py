"""A dictionary of the errors that learners of JAX meet: what a traceback means, and the cure.

    python -m seejax.errors < traceback.txt            # or the name of a file
    python -m seejax.errors --lang zh traceback.txt
    python -m seejax.errors --json < traceback.txt     # for a program

It needs the standard library alone: where JAX is broken or missing, it still names an error.
"""

import contextlib
import functools
import importlib.metadata
import io
import linecache
import re
import tomllib
import warnings
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).with_name("errors.toml")
SLUGS = {"zh": "zh-cn", "en": "en"}  # how Read the Docs spells the languages in addresses
PAGE, PREFIX = "errors", "error-"  # where the book has the entries, and how their anchors begin
GAP = 400  # characters, at most, that "…" stands for
START = re.compile(  # a line with which an exception begins, and what may stand before its name
    r"^(?:\w+\.)*(?=\w*(?:Error|Exception|NotFound)(?::|$))"
)
HEAD = r"Traceback \(most recent call last\)"
CAUSED = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception"
LINK = re.compile(  # where the next exception of a chain begins; the group says that it was caused
    rf"({CAUSED})(?:[^(]{{0,200}}?{HEAD})?|{DURING}|{HEAD}"
)
REST = rf"(?:(?!{CAUSED}|{DURING}|{HEAD})[^\n])*"
ASIDE = re.compile(  # a traceback of a failure that ended nothing, or one that a message quotes
    r"(?:Exception ignored (?:in|while)[^\n]{0,300}?"
    r"|An error occurred while trying to hash[^\n]{0,4000}?The error was: )"
    rf"{HEAD}{REST}(?:\n{REST})?"
)


class Entry(NamedTuple):
    """One error.

    Attributes:
      topic: the part of JAX, or the library, that it belongs to.
      says: exceptions and how their message begins, "…" for what varies; today's comes first.
      code: a program that raises it.
      cause: why, by language ("zh", "en"); a text with code in backticks.
      cure: what to do, by language.
      cured: the program as it should be; it checks its result.
      see: anchors of the sections of the book that say more.
    """

    topic: str
    says: list[str]
    code: str
    cause: dict[str, str]
    cure: dict[str, str]
    cured: str
    see: list[str]


@functools.cache
def entries() -> dict[str, Entry]:
    """Every entry by its id, in the order of the page.

    >>> entries()["immutable"].topic
    'arrays'
    """
    table = tomllib.loads(DATA.read_text("utf8"))
    return {name: Entry(**fields) for name, fields in table.items()}


def headword(entry: Entry) -> str:
    """What an entry is listed by: the exception, and how its message begins.

    >>> headword(entries()["mesh-axis"])
    'ValueError: Resource axis: … is not found in mesh'
    """
    return " … ".join(part.strip() for part in entry.says[0].split("…")).strip()


@functools.cache
def patterns() -> list[tuple[str, re.Pattern]]:
    """What `name` looks for: who says more comes first."""
    every = [(name, words) for name, entry in entries().items() for words in entry.says]
    gap = f".{{0,{GAP}}}?"  # within one message, and a Chinese letter may stand before it
    return [
        (name, re.compile(r"(?a)(?<!\w)" + gap.join(map(re.escape, words.split("…")))))
        for name, words in sorted(every, key=lambda each: -len(each[1]))
    ]


def readable(text: str) -> str:
    """A traceback without colours and frames, in which a line break stands before each exception.

    >>> readable("E     \x1b[31mjax.errors.TypeError\x1b[0m: JAX arrays\\n| are   immutable")
    'TypeError: JAX arrays are immutable'
    >>> readable("KeyError: 1\\nValueError: 2")
    'KeyError: 1 \\nValueError: 2'
    """
    plain = re.sub(r"(?:\x1b|\\u001b)\[[0-9;]*[A-Za-z]", "", text)  # a notebook's file spells it
    plain = re.sub(r"(?m)^(?:[ \t]*[E|│┃>](?=[ \t]))+|[│┃]\s*$", " ", plain)
    lines = (" ".join(line.split()) for line in plain.splitlines())
    return " ".join(START.sub("\n", line) for line in lines if line).strip()


def entry_of(part: str) -> str | None:
    """The id of the last message that is known, or of one that another message quotes.

    What stands in the source lines that IPython and pytest show was not raised.

    >>> entry_of("# no KeyReuseError: In f \\nTypeError: cannot reshape array of shape (3,)")
    'reshape'
    """
    *_, last = messages = part.split("\n")
    for said in reversed(messages):
        for name, pattern in patterns():
            if pattern.match(said):
                return name
    found = [(m.start(), name) for name, pattern in patterns() if (m := pattern.search(last))]
    return min(found, key=lambda each: each[0])[1] if found else None


def name(text: str) -> str | None:
    """The id of the error that a text is about: a traceback, or the last lines of one.

    Of several tracebacks the last one counts, for it ended the program. If that one is not known,
    what it was raised from counts; an error that was caught before does not, nor does one that
    Python ignored.

    >>> name("TypeError: JAX arrays are immutable and do not support in-place item assignment.")
    'immutable'
    >>> name("ZeroDivisionError: division by zero")
    """
    *before, part = LINK.split(ASIDE.sub("", readable(text)))
    while not (found := entry_of(part)) and before and before.pop():
        part = before.pop()
    return found


def message(code: str) -> str:
    """What a program raises, as a reader sees it: without paths, addresses and links.

    Args:
      code: Python, run from its top; what it prints is not shown.
    Raises:
      ValueError: it ran to its end.

    >>> message("1 / 0")
    'ZeroDivisionError: division by zero'
    """
    # When Orbax fails it leaves coroutines; Python finds them whenever it comes to it.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    linecache.cache["example.py"] = (len(code), None, code.splitlines(keepends=True), "example.py")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "example.py", "exec"), {"__name__": "example"})
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    else:
        raise ValueError(f"this raises nothing:\n{code}")
    said = re.sub(r"(?m)^See https://\S+$|\s*\(https://\S+\)|(?: at)? 0x[0-9a-f]+", "", said)
    said = re.sub(r"(<\w+) \d{9,}>", r"\1>", said)
    return re.sub(r"\n\s*\n", "\n", said).strip()


def address(name: str, lang: str) -> str:
    """Where the book has an entry: the whole address where the package knows the book's."""
    try:
        urls = importlib.metadata.metadata("seejax").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        urls = []
    home = {label: url for label, _, url in (each.partition(", ") for each in urls)}
    base = home.get("Documentation", "").rstrip("/")
    return (base and f"{base}/{SLUGS[lang]}/latest/") + f"{PAGE}.html#{PREFIX}{name}"
