"""A picture as text, for a terminal: the same words as in HTML, in English."""

from typing import Any

from seejax.see._parts import Bar, Chart, Line, Note, Pane, Part, Spans, Table, text

_WIDTH = 64  # of a chart, in characters


def render(picture: Any) -> str:
    """Header, doubt if there is one, and the parts one below the other."""
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
        else:
            lines += _pane(part)
        last = part
    return "\n".join(lines)


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
