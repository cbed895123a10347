"""What the cells of a page showed, as text that is equal in two executions, and how it is compared.

A picture of `see` is its text, a figure the words and the extent of what is drawn in it. Addresses
and names that differ by chance are masked always; measured numbers where the cell is tagged
`measured`. A cell tagged `unwatched` shows something else each time, and none of it is kept.
"""

import difflib
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import nbformat

from book import private

CHANCE = {  # what differs by chance, in any output
    r"\S*/ipykernel_\d+/\d+\.py": "<cell>",
    r"\b0x[0-9a-f]{6,}": "<address>",
    r"\b[0-9a-f]{32}\b": "<random>",
}
SHAPE = r"(\w~?\[[\d, ]*\]|\([\d, ]*\)|=\d+)"  # f32[8,2], (8, 2), n=8: nobody measures them
MEASURED = re.compile(SHAPE + r"|(?<![\w.])-?\d+\.?\d*(?:e[+-]?\d+)?")
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?![a-df-zA-Z_])")
RELATIVE, ABSOLUTE = 1e-3, 1e-6  # of two numbers with a point; whole numbers are equal
POINT = 1.0  # of a figure, which is some 400 wide: nobody sees less
DRAWN = "drawn "  # how a line begins that tells an extent in a figure
CELL = re.compile(r"── cell \d+: ")  # begins a block; the number is for those who look for it


def masked(text: str, measured: bool = False) -> str:
    """Text without what another execution has otherwise.

    >>> masked("<f at 0x7f3a90c0>")
    '<f at <address>>'
    >>> masked("2  compiled  4.93  f32[3,2], n=3  12 ms", measured=True)
    '# compiled # f32[3,2], n=3 # ms'
    """
    for pattern, name in CHANCE.items():
        text = re.sub(pattern, name, text)
    if measured:
        text = MEASURED.sub(lambda match: match[1] or "#", text)
        text = re.sub(r"[ \t]+", " ", text)  # columns are as wide as their numbers
    return text


def alike(now: str, then: str) -> bool:
    """Two lines with the same words and, as far as they are exact, the same numbers.

    >>> alike("loss  0.41321  n 8", "loss 0.41318 n 8"), alike("n 8", "n 9"), alike("1.0", "2.0")
    (True, False, False)
    >>> alike("drawn line: x 91.2", "drawn line: x 91.9"), alike("1e-7", "-3e-8")
    (True, True)
    """
    if re.sub(r"\s+", "", NUMBER.sub("#", now)) != re.sub(r"\s+", "", NUMBER.sub("#", then)):
        return False
    within = POINT if now.startswith(DRAWN) else ABSOLUTE
    numbers = NUMBER.findall(now), NUMBER.findall(then)
    if len(numbers[0]) != len(numbers[1]):  # those of one are masked
        return False
    for a, b in zip(*numbers, strict=True):
        exact = not re.search(r"[.e]", a + b)
        x, y = float(a), float(b)
        if x != y and (exact or abs(x - y) > max(within, RELATIVE * max(abs(x), abs(y)))):
            return False
    return True


def extent(kind: str, points: list[tuple[float, float]]) -> str:
    """Where something is drawn, in a few numbers; one point among many may move unseen."""
    xs, ys = zip(*points, strict=True)
    x, y = (f"{min(v):.1f} to {max(v):.1f}, mean {sum(v) / len(v):.1f}" for v in (xs, ys))
    return f"{DRAWN}{kind}: {len(points)} points, x {x}; y {y}"


def word(comment: str | None) -> str:
    """A text in a figure, as Matplotlib notes it beside its glyphs.

    >>> word(r" $\\mathdefault{2\\times10^{3}}$ ")
    '{2×10^{3}}'
    """
    return (comment or "").replace(r"\mathdefault", "").replace(r"\times", "×").strip(" $")


def drawn(group: ElementTree.Element, kind: str = "", axis: bool = False) -> Iterator[str]:
    """The words and the extents in a figure; marks on an axis say less than its words."""
    points = []
    for part in group:
        tag = str(part.tag).rpartition("}")[2]
        if tag == "g":
            name = re.sub(r"_\d+$", "", part.get("id", "")) or kind
            if name == "text":
                yield from (word(c.text) for c in part if c.tag is ElementTree.Comment)
            else:
                yield from drawn(part, name, axis or name.startswith("matplotlib.axis"))
        elif tag == "path" and not axis:
            numbers = [float(n) for n in re.findall(r"-?[\d.]+(?:e-?\d+)?", part.get("d", ""))]
            points += zip(numbers[::2], numbers[1::2], strict=True)
        elif tag == "use" and not axis:
            points.append((float(part.get("x", 0)), float(part.get("y", 0))))
    if points:
        yield extent(kind, points)


def figure(svg: str) -> str:
    """A figure of Matplotlib as lines of text."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    return "\n".join(["figure", *drawn(ElementTree.fromstring(svg, parser))])


def texts(cell: nbformat.NotebookNode) -> Iterator[str]:
    """What a cell showed, a text an output; what was printed is one, however it was sent."""
    yield "".join(o.text for o in cell.outputs if o.get("name") == "stdout")
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "error":
            yield "\n".join(output.traceback)
        elif kept := private.glued(output):
            yield " = ".join(kept)
        elif "image/svg+xml" in data:
            yield figure(data["image/svg+xml"])
        elif data:
            yield data["text/plain"]


def shown(cell: nbformat.NotebookNode) -> str:
    """What is watched of a cell's outputs."""
    tags = cell.metadata.get("tags", [])
    if "unwatched" in tags:
        return ""
    measured = "measured" in tags
    text = "\n".join(masked(text, measured) for text in texts(cell))
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if measured:  # how many ticks and bars there are is measured too
        lines = dict.fromkeys(line for line in lines if re.search(r"[^\W\d_]", line))
    return "\n".join(lines)


def page(cells: list[nbformat.NotebookNode]) -> str:
    """What a page's code cells showed, each under its number and its first line."""
    blocks = [
        f"── cell {number}: {cell.source.partition(chr(10))[0]}\n{text}\n"
        for number, cell in enumerate(cells, 1)
        if (text := shown(cell))
    ]
    return "\n".join(blocks)


def blocks(page: str) -> dict[tuple[str, int], str]:
    """What the cells of a page showed, by their first line: a cell before them changes nothing."""
    found: dict[tuple[str, int], str] = {}
    for block in filter(None, re.split(r"(?m)^(?=── cell )", page)):
        code = CELL.sub("", block.partition("\n")[0])
        found[code, sum(code == other for other, _ in found)] = block.strip()
    return found


def differences(now: str, then: str) -> Iterator[str]:
    """The cells that do not show what they showed; of these, the lines that are not alike.

    >>> then = "── cell 1: f(x)\\n1.0\\nabout 0.333\\n\\n── cell 2: g(x)\\n2\\n"
    >>> now = "── cell 2: f(x)\\n1.5\\nabout 0.3331\\n\\n── cell 3: g(x)\\n2\\n"
    >>> print(*differences(now, then), sep="\\n")
    ── cell 2: f(x)
    - 1.0
    + 1.5
    """
    here, there = blocks(now), blocks(then)
    for name in [*here, *(name for name in there if name not in here)]:
        new, old = here.get(name, "").splitlines(), there.get(name, "").splitlines()
        heading, new, old = (new or old)[0], new[1:], old[1:]
        if len(new) == len(old):
            known = [o if alike(n, o) else n for n, o in zip(new, old, strict=True)]
        else:
            known = [n if n in old else next((o for o in old if alike(n, o)), n) for n in new]
        changed = [line for line in difflib.ndiff(old, known) if line[0] in "-+"]
        yield from [heading, *changed] if changed else ()
