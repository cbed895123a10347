"""The tables of docs/data, read and checked; the words of the site."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from book.paths import DOCS, ROOT, BuildError

# The texts that a file of docs/data has to say, by their place; * is each row or entry.
TEXTS = {
    "words.toml": ("*.zh", "*.en"),
    "terms.toml": ("*.zh", "*.en", "*.group", "*.explain.zh", "*.explain.en"),
    "search.toml": ("empty.*", "faint.*", "same.*"),
    "today.toml": ("*.topic", "*.said.zh", "*.said.en", "*.why.zh", "*.why.en"),
}


def table(name: str) -> dict[str, Any]:
    """A file of docs/data, read.

    Raises:
      BuildError: it is no TOML, or a text is missing; in one line, by file and line.
    """
    file = DOCS / "data" / name
    text = file.read_text("utf8")
    lines, place = text.splitlines(), file.relative_to(ROOT)
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).rpartition(" (at ")
        number = re.match(r"line (\d+)", where)
        raise BuildError(f"{place}:{number[1] if number else len(lines)}: {what}") from None
    for pattern in TEXTS.get(name, ()):
        for path in missing(found, pattern.split(".")):
            where = line_of(lines, path)
            raise BuildError(f"{place}:{where}: {'.'.join(path)} has to be a text")
    return found


def line_of(lines: list[str], path: tuple[str, ...]) -> int:
    """The line (from 1) of what lies at a path in TOML, or of the part that it is missing from.

    >>> line_of(["[a]", "zh = '甲'", "[b]", "en = 'b'"], ("b", "zh"))
    3
    """
    found = 0
    for depth, name in enumerate(path):
        named = re.compile(rf"""(?:^|[\[{{,])\s*["']?{re.escape(name)}["']?\s*[\].=]""")
        for number, line in enumerate(lines[found:], found):
            if depth and number > found and line.startswith("["):
                break  # the next part
            if named.search(line):
                found = number
                break
    return found + 1


def missing(found: Any, pattern: list[str], path: tuple[str, ...] = ()) -> Iterator[tuple]:
    """Where a table has no text though it should.

    >>> list(missing({"a": {"zh": "甲"}, "b": {"zh": 1}}, ["*", "zh"]))
    [('b', 'zh')]
    """
    if not pattern:
        if not isinstance(found, str) or not found.strip():
            yield path
        return
    if isinstance(found, list):
        found = {str(place): each for place, each in enumerate(found)}
    inner = found if isinstance(found, dict) else {}
    names = [*inner] if pattern[0] == "*" else [pattern[0]]
    for name in names:
        yield from missing(inner.get(name), pattern[1:], (*path, name))
    if pattern[0] == "*" and not inner:
        yield path


def words(language: str) -> dict[str, str]:
    """What the site itself says, from docs/data/words.toml.

    >>> words("zh")["search"], words("en")["search"]
    ('搜索', 'Search')
    """
    return {name: both[language] for name, both in table("words.toml").items()}
