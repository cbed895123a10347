"""A picture as text, for a terminal: the same words as in HTML, in English."""

from typing import Any

from seejax.see._parts import (
    Bar,
    Branch,
    Chart,
    Line,
    Note,
    Outline,
    Pane,
    Part,
    Spans,
    Table,
    text,
)

_WIDTH = 64  # of a chart, in characters
_LONG = 400  # lines that are shown at once
_SHORT = 60  # lines of each part of a picture that is longer than that
_WIDE = 160  # characters of a line of such a picture


def render(picture: Any, everything: bool = True) -> str:
    """Header, doubt if there is one, and the parts one below the other.

    A picture that is long is cut, part by part, unless everything is asked for.
    """
    whole = _lines(picture, None)
    if everything or len(whole) <= _LONG:
        return "\n".join(whole)
    lines = [_cut(line) for line in _lines(picture, _SHORT)]
    return "\n".join([*lines, "", f"All {len(whole)} lines: print(picture.text())"])


def _cut(line: str) -> str:
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…"


def _lines(picture: Any, most: int | None) -> list[str]:
    title = " ".join(filter(None, (picture.lead, picture.name)))
    lines = [f"{title}: {text(picture.summary())}"]
    if picture.doubt:
        lines.append(f"! {text(picture.doubt)}")
    last: Part | None = None
    for part in picture.parts():
        if isinstance(part, Table):
            lines += [""] * isinstance(last, Pane) + _table(part)
        elif isinstance(part, Chart):
            lines += _chart(part)
        elif isinstance(part, Outline):
            lines += _outline(part, most)
        else:
            lines += _shortened(_pane(part), part.rest, most)
        last = part
    return lines


def _shortened(lines: list[str], rest: str, most: int | None) -> list[str]:
    if most is None or len(lines) <= most + 2:
        return lines
    left = len(lines) - most - 2
    return [*lines[: most + 2], f"… {left} more in {rest}"]


def _outline(outline: Outline, most: int | None) -> list[str]:
    rows: list[tuple[int, Branch]] = []

    def walk(branch: Branch, depth: int) -> None:
        rows.append((depth, branch))
        for each in branch.branches:
            walk(each, depth + 1)

    walk(outline.root, 0)
    shown, left = rows, 0
    while most is not None and len(shown) > most:
        deepest = max(depth for depth, _ in shown)
        if deepest < 2:
            shown, left = shown[:most], len(rows) - most
            break
        shown = [row for row in shown if row[0] < deepest]
        left = len(rows) - len(shown)
    table = [[column.title for column in outline.columns]]
    table += [["  " * depth + branch.name, *branch.cells] for depth, branch in shown]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["", outline.title]
    for name, *cells in table:
        numbers = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *numbers]).rstrip())
    return [*lines, f"… {left} more in {outline.rest}"] if left else lines


def _pane(pane: Pane) -> list[str]:
    shown = [line for line in pane.lines if isinstance(line, Line)]
    width = max((len(text(line.mark)) for line in shown), default=1)
    lines = ["", pane.title]
    if not shown:
        lines.append(pane.empty)
    for line in pane.lines:
        if isinstance(line, Note):
            lines += [f"{'!':>{width}}  {said}" for said in line.lines]
        else:
            code = "  " * line.depth + text(line.spans)
            lines.append(f"{text(line.mark):>{width}}  {code}".rstrip())
    return lines


def _table(table: Table) -> list[str]:
    shown = [i for i, row in enumerate(zip(*table.rows, strict=True)) if not _is_bar(row)]
    shown = shown or list(range(len(table.columns)))
    rows = [[table.columns[i].title for i in shown]]
    rows += [[_cell(row[i]) for i in shown] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [table.caption] if table.caption else []
    for row in rows:
        cells = [
            cell.rjust(width) if table.columns[i].number else cell.ljust(width)
            for i, cell, width in zip(shown, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _cell(cell: Spans | Bar) -> str:
    return "" if isinstance(cell, Bar) else text(cell)


def _is_bar(cells: tuple) -> bool:
    return any(isinstance(cell, Bar) for cell in cells)


def _chart(chart: Chart) -> list[str]:
    labels = [text(row.label) for row in chart.rows]
    wide = max(map(len, labels), default=0)
    lines = [""]
    for label, row in zip(labels, chart.rows, strict=True):
        track = [" "] * _WIDTH
        for block in row.blocks:
            first = min(int(block.start * _WIDTH), _WIDTH - 1)
            cells = max(1, min(round(block.end * _WIDTH), _WIDTH) - first)
            drawn = "|" if cells == 1 else f"[{block.name[: cells - 2]:=<{cells - 2}}]"
            track[first : first + cells] = drawn
        lines.append(f"{label:<{wide}}  {''.join(track)}".rstrip())
    return [*lines, f"{'':<{wide}}  0{chart.end:>{_WIDTH - 1}}"]
