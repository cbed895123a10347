"""A dictionary of the errors that learners of JAX meet: what a traceback means, and the cure.

    python -m seejax.errors < traceback.txt            # or the name of a file
    python -m seejax.errors --lang zh traceback.txt
    python -m seejax.errors --json < traceback.txt     # for a program
    python -m seejax.errors --example tracer-bool      # an entry, or the class of an error
    python -m seejax.errors --list

It needs the standard library alone: where JAX is broken or missing, it still names an error. It
also knows what JAX prints though it goes on: warnings, and lines of XLA's log.
"""

import contextlib
import functools
import importlib.metadata
import io
import linecache
import re
import tomllib
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

from seejax.errors import gone, lines

DATA = Path(__file__).with_name("errors.toml")
NOTICES = Path(__file__).with_name("notices.toml")
GONE = "gone-name"  # the entry of names that are no longer there
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
      framed: where a message says too little: what the last frame before it says, and the message.
    """

    topic: str
    says: list[str]
    code: str
    cause: dict[str, str]
    cure: dict[str, str]
    cured: str
    see: list[str]
    framed: tuple[list[str], ...] = ()


class Notice(NamedTuple):
    """What JAX, XLA or Orbax prints though the program goes on.

    Attributes:
      topic: what it is about.
      says: how it begins, or what it is known by, "…" for what varies; today's comes first.
      text: the whole of it, without paths, times and numbers of processes.
      code: a program that has it printed; "" where it takes a machine that the tests do not have.
      cause: why, by language.
      cure: what to do, by language.
      cured: a program with which it is not printed; "" where there is none.
      see: anchors of the sections of the book that say more.
      seen: whether a test runs `code` and compares what it prints.
      source: where the text stands, if it was not seen.
    """

    topic: str
    says: list[str]
    text: str
    cause: dict[str, str]
    cure: dict[str, str]
    see: list[str]
    code: str = ""
    cured: str = ""
    seen: bool = True
    source: str = ""


@functools.cache
def entries() -> dict[str, Entry]:
    """Every entry by its id, in the order of the page.

    >>> entries()["immutable"].topic
    'arrays'
    """
    table = tomllib.loads(DATA.read_text("utf8"))
    return {name: Entry(**fields) for name, fields in table.items()}


@functools.cache
def notices() -> dict[str, Notice]:
    """What is printed though a program goes on, by its id, in the order of the page.

    >>> "float64" in notices()["x64-cut"].text
    True
    """
    table = tomllib.loads(NOTICES.read_text("utf8"))
    return {name: Notice(**fields) for name, fields in table.items()}


def headword(entry: Entry | Notice) -> str:
    """What an entry is listed by: the exception, and how its message begins.

    >>> headword(entries()["mesh-axis"])
    'ValueError: Resource axis: … is not found in mesh'
    """
    said = " … ".join(part.strip() for part in entry.says[0].split("…")).strip()
    framed = {message: frame for frame, message in getattr(entry, "framed", ())}
    return f"{said} ({framed[entry.says[0]]})" if entry.says[0] in framed else said


def pattern(words: str) -> re.Pattern:
    """What finds the words of a `says`."""
    gap = f".{{0,{GAP}}}?"  # within one message, and a Chinese letter may stand before it
    return re.compile(r"(?a)(?<!\w)" + gap.join(map(re.escape, words.split("…"))))


@functools.cache
def patterns() -> list[tuple[str, re.Pattern]]:
    """What `name` looks for: who says more comes first."""
    every = [
        (name, words)
        for name, entry in entries().items()
        for words in entry.says
        if words not in {message for _, message in entry.framed}
    ]
    longest = sorted(every, key=lambda each: -len(each[1]))
    return [(name, pattern(words)) for name, words in longest]


@functools.cache
def framed() -> list[tuple[str, str, re.Pattern]]:
    """Of each message that says too little: the entry, the frame, and what finds the message."""
    return [
        (name, frame, re.compile(pattern(message).pattern + r"(?=\s|$)"))
        for name, entry in entries().items()
        for frame, message in entry.framed
    ]


def readable(text: str) -> str:
    """A traceback without colours and frames, in which a line break stands before each exception.

    >>> readable("E     \x1b[31mjax.errors.TypeError\x1b[0m: JAX arrays\\n| are   immutable")
    'TypeError: JAX arrays are immutable'
    >>> readable("KeyError: 1\\nValueError: 2")
    'KeyError: 1 \\nValueError: 2'
    """
    plain = re.sub(r"(?m)^(?:[ \t]*[E|│┃>](?=[ \t]))+|[│┃]\s*$", " ", uncoloured(text))
    rows = (" ".join(row.split()) for row in plain.splitlines())
    return " ".join(START.sub("\n", row) for row in rows if row).strip()


def uncoloured(text: str) -> str:
    return re.sub(r"(?:\x1b|\\u001b)\[[0-9;]*[A-Za-z]", "", text)  # a notebook's file spells it


class Found(NamedTuple):
    """An entry, and the message that it was found by."""

    name: str
    message: str


def entry_of(part: str) -> Found | None:
    """The last message that is known, or one that another message quotes.

    What stands in the source lines that IPython and pytest show was not raised.

    >>> entry_of("# no KeyReuseError: In f \\nTypeError: cannot reshape array of shape (3,)").name
    'reshape'
    """
    *_, last = messages = part.split("\n")
    for n, said in reversed([*enumerate(messages)]):
        frame = messages[n - 1].rpartition("File ")[2] if n else ""
        for name, words, found in framed():
            if words in frame and found.match(said):
                return Found(name, said)
        for name, found in patterns():
            if found.match(said):
                return Found(name, said)
        if START.match(said) and gone.change(said):
            return Found(GONE, said)
    every = [(m.start(), name) for name, found in patterns() if (m := found.search(last))]
    return Found(min(every)[1], last) if every else None


def name(text: str) -> str | None:
    """The id of the error that a text is about: a traceback, or the last lines of one.

    Of several tracebacks the last one counts, for it ended the program. If that one is not known,
    what it was raised from counts; an error that was caught before does not, nor does one that
    Python ignored.

    >>> name("TypeError: JAX arrays are immutable and do not support in-place item assignment.")
    'immutable'
    >>> name("ZeroDivisionError: division by zero")
    """
    found = find(text)
    return found.name if found else None


def find(text: str) -> Found | None:
    """The entry that a text is about, and its message."""
    *before, part = LINK.split(ASIDE.sub("", readable(text)))
    while not (found := entry_of(part)) and before and before.pop():
        part = before.pop()
    return found


def raises(text: str) -> bool:
    """Whether an exception ended what a text shows.

    >>> raises("ValueError: 3"), raises("a.py:3: UserWarning: odd")
    (True, False)
    """
    return any(map(START.match, LINK.split(readable(text))[-1].split("\n")))


def noticed(text: str) -> list[str]:
    """The ids of what JAX printed though it went on, in the order in which it stands there.

    >>> noticed("a.py:1: UserWarning: Some donated buffers were not usable: float32[8].")
    ['donation-unused']
    """
    said = readable(text).replace("\n", " ")
    places: dict[str, int] = {}
    for name, entry in notices().items():
        starts = [m.start() for words in entry.says if (m := pattern(words).search(said))]
        if starts:
            places[name] = min(starts)
    return sorted(places, key=places.__getitem__)


def own_line(text: str, found: Found | None) -> lines.Line | None:
    """The reader's own line, in the traceback that the entry was found in."""
    return lines.own(_traceback(text, found))


def guilty(text: str, found: Found | None) -> str:
    """The package in whose file the traceback ends, "" if that file is the reader's."""
    return lines.guilty(_traceback(text, found))


def _traceback(text: str, found: Found | None) -> str:
    clean = uncoloured(text)
    parts = [part for part in LINK.split(clean) if part and part != CAUSED]
    for part in reversed(parts):
        named = entry_of(readable(part))
        if found and named and named.name == found.name:
            return part
    return clean


def look_up(words: str) -> list[str]:
    """The ids that words name: an id, or the class of an exception.

    >>> look_up("tracer-bool"), look_up("jax.errors.tracerboolconversionerror")
    (['tracer-bool'], ['tracer-bool'])
    >>> look_up("ZeroDivisionError")
    []
    """
    words = words.strip()
    if words in entries() or words in notices():
        return [words]
    kind = words.rpartition(".")[2].lower()
    return [
        name
        for name, entry in entries().items()
        if kind in {said.partition(":")[0].lower() for said in entry.says}
    ]


def raised(code: str) -> Exception:
    """What a program raises.

    Args:
      code: Python, run from its top; what it prints is not shown.
    Raises:
      ValueError: it ran to its end.
    """
    # When Orbax fails it leaves coroutines; Python finds them whenever it comes to it.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    linecache.cache["example.py"] = (len(code), None, code.splitlines(keepends=True), "example.py")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "example.py", "exec"), {"__name__": "example"})
    except Exception as error:
        return error
    raise ValueError(f"this raises nothing:\n{code}")


def printed(error: Exception) -> str:
    """A traceback as Python prints it."""
    return "".join(traceback.format_exception(error))


def message(error: Exception) -> str:
    """What an exception says, as a reader sees it: without paths, addresses and links.

    >>> message(raised("1 / 0"))
    'ZeroDivisionError: division by zero'
    """
    said = f"{type(error).__name__}: {error}"
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
