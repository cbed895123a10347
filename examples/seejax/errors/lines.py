"""The reader's own line in a traceback: the innermost one that no library has written."""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

LIBRARY = re.compile(  # a file that the reader did not write
    r"[\\/](?:site|dist)-packages[\\/]|[\\/][Ll]ib[\\/]python\d|[\\/]jax[\\/]_src[\\/]"
    r"|[\\/]seejax[\\/]errors[\\/]|^<(?:string|frozen|__array_function__)"
)
PACKAGE = re.compile(r"[\\/](?:site|dist)-packages[\\/](\w+)")
PYTHON = re.compile(r'^(?P<before>.*?)\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
IPYTHON = re.compile(  # a cell, or a file with the number of its line
    r"^\s*(?:File )?(?:(?P<cell>Cell In ?\[\d+\]|<ipython-input-[^>]+>)"
    r"|(?P<file>\S[^:]*|[A-Za-z]:[^:]*):(?P<line>\d+))(?:,? line \d+)?,?(?: in .*)?$"
)
NUMBERED = re.compile(r"^\s*(?:-+>\s*)?\d+\b")  # a line of IPython's excerpt
ARROW = re.compile(r"^\s*-+>\s*(?P<line>\d+)\s?(?P<source>.*)$")
PYTEST = re.compile(r"^(?P<file>[^\s:]+\.py):(?P<line>\d+): \w*(?:Error|Exception|Warning)?")
POINTED = re.compile(r"^>\s+(?P<source>\S.*)$")


class Line(NamedTuple):
    """A line of a program.

    Attributes:
      file: as the traceback writes it.
      number: from 1.
      source: the line itself; "" where the traceback does not show it.
    """

    file: str
    number: int
    source: str

    @property
    def package(self) -> str:
        """The installed package that the file belongs to, "" for one's own."""
        found = PACKAGE.search(self.file)
        return found[1] if found else ""


def frames(text: str) -> Iterator[Line]:
    """The frames of a traceback of Python, IPython or pytest, outermost first.

    >>> list(frames('  File "a.py", line 3, in f\\n    return 1 / 0\\n           ~~^~~'))
    [Line(file='a.py', number=3, source='return 1 / 0')]
    >>> list(frames("Cell In[2], line 7\\n      6 x = 1\\n----> 7 f(x)\\n"))
    [Line(file='Cell In[2]', number=7, source='f(x)')]
    """
    file, pointed = "", ""
    rows = [*text.splitlines(), ""]
    for row, below in itertools.pairwise(rows):
        if found := PYTHON.match(row):
            below = below.removeprefix(found["before"])
            source = "" if PYTHON.match(below) or not below.startswith(" ") else below.strip()
            yield Line(found["file"], int(found["line"]), source)
        elif found := PYTEST.match(row):
            yield Line(found["file"], int(found["line"]), pointed)
            pointed = ""
        elif found := IPYTHON.match(row):
            file = found["cell"] or found["file"]
            if found["line"] and not NUMBERED.match(below):
                source = below.strip() if below.startswith(" ") else ""
                yield Line(file, int(found["line"]), source)
                file = ""
        elif file and (found := ARROW.match(row)):
            yield Line(file, int(found["line"]), found["source"].strip())
            file = ""
        elif found := POINTED.match(row):
            pointed = found["source"]


def own(text: str) -> Line | None:
    """The innermost line that the reader wrote.

    >>> shown = '  File "train.py", line 9, in <module>\\n    f(x)\\n'
    >>> own(shown + '  File "/v/site-packages/jax/numpy.py", line 4, in f\\n    g()\\n')
    Line(file='train.py', number=9, source='f(x)')
    """
    mine = [line for line in frames(text) if not LIBRARY.search(line.file)]
    return mine[-1] if mine else None


def guilty(text: str) -> str:
    """The package in whose file a traceback ends, "" if that file is one's own."""
    every = list(frames(text))
    return every[-1].package if every else ""
