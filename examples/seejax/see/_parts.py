"""What a picture is made of. `_text` and `_html` show it; escaping lives in `_html` alone."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A piece of text.

    Attributes:
      kind: how it looks, a class in `see.css` without its `see-`; several stand side by side.
      word: it is one of our own words (`_i18n`), not of the program that is shown.
      links: numbers of what it is; in the same picture, whatever shares one lights up together.
      part_of: numbers of what it is a piece of: lit with them, but does not light them.
    """

    text: str
    kind: str = ""
    word: bool = False
    links: tuple[int, ...] = ()
    part_of: tuple[int, ...] = ()


Spans = tuple[Span, ...]

HUES = 6
"""The kinds `c0` to `c5` are colours that tell numbers apart; of more numbers, some share one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line of a pane; one without mark and spans is a gap.

    Attributes:
      mark: what stands in the margin.
      depth: levels of indentation.
      own: numbers of what the line is.
      covers: numbers of what lies inside it, in other lines.
      label: what only a screen reader says: the counterparts.
      dim: it is there to be complete.
      boxed: it is inside the line above it that is not.
    """

    spans: Spans = ()
    mark: Spans = ()
    depth: int = 0
    own: tuple[int, ...] = ()
    covers: tuple[int, ...] = ()
    label: Spans = ()
    dim: bool = False
    boxed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Something to say between the lines of a pane: an error where it was raised."""

    lines: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Pane:
    """Lines under a title; panes that follow each other stand side by side.

    Attributes:
      empty: what is said instead if there are no lines.
      rest: name of the attribute that has the lines which a page leaves out.
    """

    title: str
    lines: tuple[Line | Note, ...]
    empty: str = ""
    rest: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Its kind is a class in `see.css`; `number`s stand to the right."""

    title: str
    kind: str = ""
    number: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """A cell that draws the numbers of its row: (kind, share of the width). Text leaves it out."""

    shares: tuple[tuple[str, float], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head; the first cell of a row names it."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Spans | Bar, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Something from start to end, as shares of the width.

    Attributes:
      kind: how it looks, a class in `see.css` without its `see-k-`.
      name: what is written in it where there is room.
      links: numbers of what it is.
    """

    start: float
    end: float
    kind: str
    name: str
    links: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Blocks that do not overlap, with the name of their lane; without one it belongs above."""

    label: Spans
    blocks: tuple[Block, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Chart:
    """Rows over one axis, which begins at 0. What it draws must also be said by another part."""

    rows: tuple[Row, ...]
    end: str


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    """A row of an outline, and those below it.

    Attributes:
      path: its name with those above it, by which it can be looked for.
      cells: what stands in its columns.
      covers: numbers of all that lies in it.
    """

    name: str
    path: str
    cells: tuple[str, ...]
    covers: tuple[int, ...]
    branches: tuple["Branch", ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Outline:
    """A tree whose branches open and close; text shows as many levels as fit.

    A picture that begins with one is long: a page can search in it.
    """

    title: str
    columns: tuple[Column, ...]
    root: Branch
    rest: str


Part = Pane | Table | Chart | Outline


def text(spans: Iterable[Span]) -> str:
    """What the spans say.

    >>> text([Span("sin", "o"), Span(" "), Span("a", "v")])
    'sin a'
    """
    return "".join(span.text for span in spans)


def joined(groups: Iterable[Spans], separator: str) -> Spans:
    """The groups one after the other, with a separator in between.

    >>> text(joined([(Span("1"),), (Span("2"),)], ","))
    '1,2'
    """
    spans: list[Span] = []
    for group in groups:
        spans += [Span(separator), *group] if spans else group
    return tuple(spans)
