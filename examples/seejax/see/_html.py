"""A picture as HTML, for a notebook and a page. All escaping is here, and nowhere else."""

import dataclasses
import html
import itertools
import pathlib
import re
from collections.abc import Iterable
from typing import Any

from seejax.see._i18n import chinese
from seejax.see._parts import (
    Bar,
    Branch,
    Chart,
    Line,
    Note,
    Outline,
    Pane,
    Span,
    Spans,
    Table,
    text,
)

STATIC = pathlib.Path(__file__).parent
"""The folder that holds `see.css` and `see.js`, for a site that serves them once a page."""

_FOLD = 60  # lines of a pane that are shown without asking
_MOST = 400  # lines of a pane that are in the page at all
_MOST_SEARCHED = 12_000  # of a picture that can be searched
_BRIEF = 1500  # lines of such a picture from which on they are written in fewer bytes


def _small(css: str) -> str:
    """The style sheet without what only its reader needs.

    >>> _small("/* why */\\n.a,\\n.b {\\n  color: red;\\n}\\n")
    '.a,.b{color:red}'
    """
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    css = re.sub(r"\s+", " ", css)
    return re.sub(r" ?([{};,]) ?|(?<=[a-z])(:) ", r"\1\2", css).replace(";}", "}").strip()


ASSETS = (
    f"<style data-seejax>{_small((STATIC / 'see.css').read_text(encoding='utf-8'))}</style>"
    f"<script data-seejax>{(STATIC / 'see.js').read_text(encoding='utf-8')}</script>"
)
"""Prepended to each HTML output, so that a notebook needs nothing else to show it."""


_SHELL = """\
<!doctype html><html lang="{lang}" class="see-page"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
{assets}<style>{css}</style></head>
<body data-version="{version}"><main>{body}</main>{ended}</body></html>
"""
_PAGE_CSS = """\
body{margin:0;padding:1em;background:light-dark(#fff,#111316);color:var(--see-fg);
font:14px/1.5 system-ui,sans-serif}
.see{margin:0}
.old>.see{filter:grayscale(1);outline:2px dashed var(--see-bad);outline-offset:4px}
#said,#ended{position:sticky;bottom:0;max-height:45vh;overflow:auto;margin:1em 0 0;padding:.6em 1em;
border:1px solid;border-radius:8px;background:var(--see-badbg);
color:var(--see-bad)}
#said pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4em 0 0}
#ended{position:fixed;inset:0 0 auto;margin:0}
#note{color:var(--see-dim)}
"""


def page(
    title: str, lang: str, body: str, assets: str = ASSETS, version: str = "", ended: str = ""
) -> str:
    """A whole page; of one picture it needs nothing else."""
    return _SHELL.format(
        lang=lang,
        title=escape(title),
        assets=assets,
        css=_PAGE_CSS,
        version=version,
        body=body,
        ended=ended,
    )


def escape(value: object) -> str:
    """HTML text that shows `value` literally, inside an element or a quoted attribute.

    >>> escape('<b class="x">')
    '&lt;b class=&quot;x&quot;&gt;'
    """
    return html.escape(str(value), quote=True)


def render(picture: Any) -> str:
    """The header, the doubt in it, and the parts; panes that follow each other side by side."""
    title = (Span(picture.lead, word=True), Span(" ")) if picture.lead else ()
    name = f'<span class="see-name">{escape(picture.name)}</span>'
    head = f"{_spans(title)}{name} {_spans(picture.summary())}"
    if picture.doubt:
        head += f' <strong class="see-doubt">{_spans(picture.doubt)}</strong>'
    body = [f'<p class="see-head">{head}</p>']
    shown = list(picture.parts())
    searched = any(isinstance(part, Outline) for part in shown)
    brief = searched and sum(len(p.lines) for p in shown if isinstance(p, Pane)) > _BRIEF
    if searched:
        body.append(_search())
    for kind, parts in itertools.groupby(shown, key=type):
        if kind is Pane:
            panes = "".join(_pane(pane, searched, brief) for pane in parts)
            kind_ = "see-panes see-searched" if searched else "see-panes"
            body.append(f'<div class="{kind_}">{panes}</div>')
        elif kind is Chart:
            body += map(_chart, parts)
        elif kind is Outline:
            body += map(_outline, parts)
        else:
            body += map(_table, parts)
    # A blank line would end the HTML block where a notebook passes through Markdown.
    lines = [line for line in "".join(body).split("\n") if line.strip()]
    return f'<div class="see see-{picture.kind}">{chr(10).join(lines)}</div>'


def _said(phrase: str) -> str:
    """One of our own words: in both languages, of which the style sheet shows the page's."""
    other = chinese(phrase)
    if other is None or other == phrase:
        return escape(phrase)
    return (
        f'<span class="see-w"><span lang="en">{escape(phrase)}</span>'
        f'<span lang="zh">{escape(other)}</span></span>'
    )


def _span(span: Span) -> str:
    inside = _said(span.text) if span.word else escape(span.text)
    attributes = ""
    if span.kind:
        attributes += f' class="{" ".join(f"see-{kind}" for kind in span.kind.split())}"'
    if span.links:
        attributes += f' data-e="{_numbers(span.links)}"'
    if span.part_of:
        attributes += f' data-o="{_numbers(span.part_of)}"'
    return f"<span{attributes}>{inside}</span>" if attributes and span.text else inside


def _spans(spans: Spans) -> str:
    return "".join(map(_span, spans))


def _numbers(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


# --- panes


def _pane(pane: Pane, searched: bool, brief: bool) -> str:
    most = _MOST_SEARCHED if searched else _MOST
    # One tab stop: the first line that has counterparts.
    stop = next((line for line in pane.lines if isinstance(line, Line) and _linked(line)), None)
    rows = [
        _note(line) if isinstance(line, Note) else _line(line, line is stop, brief)
        for line in pane.lines[:most]
    ]
    if not any(isinstance(line, Line) for line in pane.lines):
        rows.insert(0, f'<div class="see-l see-dim">{_said(pane.empty)}</div>')
    body = "".join(rows[:_FOLD])
    if len(rows) > _FOLD:
        left = len(pane.lines) - most
        if left > 0:
            more = _said(f"… {left} more in {pane.rest}")
            rows.append(f'<div class="see-l see-dim">{more}</div>')
        summary = _said(f"+ {len(pane.lines) - _FOLD} lines")
        body += f"<details><summary>{summary}</summary>{''.join(rows[_FOLD:])}</details>"
    return (
        f'<figure class="see-pane"><figcaption class="see-title">{_said(pane.title)}</figcaption>'
        f'<div class="see-code"{"" if brief else _LIST}>{body}</div></figure>'
    )


def _linked(line: Line) -> bool:
    return bool(line.own or line.covers)


def _line(line: Line, stop: bool, brief: bool) -> str:
    """A line; a brief one has neither colours nor what only a screen reader says.

    A picture that is searched has ten thousand lines, and without these half the bytes.
    """
    if brief:
        kept = (dataclasses.replace(s, kind=s.kind if s.kind == "o" else "") for s in line.spans)
        line = dataclasses.replace(line, spans=tuple(kept), label=())
    if not line.spans and not line.mark:
        return '<div class="see-gap"></div>'
    attributes = f' data-e="{_numbers(line.own)}"' if line.own else ""
    attributes += f' data-g="{_numbers(line.covers)}"' if line.covers else ""
    if _linked(line):
        attributes += f' tabindex="{0 if stop else -1}"'
    attributes += " data-box" if line.boxed else ""
    code = "  " * line.depth + text(line.spans)
    if indent := len(code) - len(code.lstrip(" ")):  # a long line wraps below its own beginning
        attributes += f' style="--i:{indent}"'
    mark = "".join(
        f'<i class="see-{span.kind}">{escape(span.text)}</i>' if span.kind else escape(span.text)
        for span in line.mark
    )
    heard = f'<span class="see-sr"> · {_spans(line.label)}</span>' if line.label else ""
    return (
        f'<div class="see-l{" see-dim" * line.dim}"{"" if brief else _ITEM}{attributes}>'
        f'<span class="see-g"><span>{mark}</span></span>'
        f"<code>{'  ' * line.depth}{_spans(line.spans)}</code>{heard}</div>"
    )


def _search() -> str:
    """A field that the script shows; without it, the branches still open and close."""
    words = _said("words of a line, or a module")
    return (
        f'<div class="see-find" hidden><label>{_said("search")} '
        '<input type="search" autocomplete="off" spellcheck="false"></label>'
        f'<span class="see-hint">{words}</span>'
        f'<span class="see-found" role="status" hidden><span></span> {_said("lines")}</span></div>'
    )


def _outline(outline: Outline) -> str:
    """Nested `<details>`; `data-m` are the numbers that a branch covers, as ranges."""

    def row(cells: tuple[str, ...], first: str, tag: str) -> str:
        numbers = "".join(f'<span class="see-ms">{cell}</span>' for cell in cells)
        return f'<{tag} class="see-node"><span class="see-mono">{first}</span>{numbers}</{tag}>'

    def branch(each: Branch, depth: int) -> str:
        attributes = f' data-m="{_ranges(each.covers)}" data-p="{escape(each.path)}"'
        cells = tuple(map(escape, each.cells))
        if not each.branches:
            inside = row(cells, escape(each.name), "div")
            return f'<div class="see-leaf"{attributes}>{inside}</div>'
        inside = row(cells, escape(each.name), "summary")
        inside += "".join(branch(below, depth + 1) for below in each.branches)
        opened = " open" if depth < _OPEN else ""
        return f"<details{opened}{attributes}>{inside}</details>"

    first, *others = (_said(column.title) for column in outline.columns)
    return (
        f'<figure class="see-outline"><figcaption class="see-title">{_said(outline.title)}'
        f"</figcaption>{row(tuple(others), first, 'div')}{branch(outline.root, 0)}</figure>"
    )


_OPEN = 1  # levels of an outline that are open at first


def _ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers, with those that follow each other as a range.

    >>> _ranges([1, 2, 3, 7, 9, 10])
    '1-3 7 9-10'
    """
    ranges: list[list[int]] = []
    for n in numbers:
        if ranges and ranges[-1][1] == n - 1:
            ranges[-1][1] = n
        else:
            ranges.append([n, n])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


_LIST = ' role="list"'
_ITEM = ' role="listitem"'


def _note(note: Note) -> str:
    return f'<pre class="see-error" role="listitem">{escape(chr(10).join(note.lines))}</pre>'


# --- tables; explicit roles, because a phone gets each row as a block


def _table(table: Table) -> str:
    columns = table.columns
    unheard = ' aria-hidden="true"'
    head = "".join(
        f'<th role="columnheader" scope="col"{_kind(column.kind)}{"" if column.title else unheard}>'
        f"{_said(column.title)}</th>"
        for column in columns
    )
    rows = []
    for row in table.rows:
        cells = [f'<th role="rowheader" scope="row">{_cell(row[0])}</th>']
        for column, cell in zip(columns[1:], row[1:], strict=True):
            hidden = unheard if isinstance(cell, Bar) else ""
            inside = _cell(cell)
            if column.number:  # on a phone the head is out of sight
                key = f'<span class="see-key" aria-hidden="true">{_said(column.title)} </span>'
                inside = key + inside
            cells.append(f'<td role="cell"{_kind(column.kind)}{hidden}>{inside}</td>')
        rows.append(f'<tr role="row">{"".join(cells)}</tr>')
    return (
        f'<div class="see-scroll"><table role="table"><caption>{_said(table.caption)}</caption>'
        f'<thead><tr role="row">{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _kind(kind: str) -> str:
    return f' class="{" ".join(f"see-{each}" for each in kind.split())}"' if kind else ""


def _cell(cell: Spans | Bar) -> str:
    if isinstance(cell, Bar):
        return "".join(
            f'<i class="see-{kind}" style="width:{100 * share:.2f}%"></i>'
            for kind, share in cell.shares
            if share > 0
        )
    return _spans(cell)


# --- charts; a screen reader gets the pane that says the same


def _chart(chart: Chart) -> str:
    rows = []
    for row in chart.rows:
        blocks = "".join(
            f'<i class="see-k-{block.kind}" data-e="{_numbers(block.links)}"'
            f' title="{escape(block.name)}"'
            f' style="left:{100 * block.start:.3f}%;width:{100 * (block.end - block.start):.3f}%">'
            f"{escape(block.name)}</i>"
            for block in row.blocks
        )
        rows.append(
            f'<div class="see-row"><span class="see-lane">{_spans(row.label)}</span>'
            f'<span class="see-track">{blocks}</span></div>'
        )
    axis = f'<div class="see-axis"><span>0</span><span>{escape(chart.end)}</span></div>'
    return f'<div class="see-chart" aria-hidden="true">{"".join(rows)}{axis}</div>'
