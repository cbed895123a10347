"""Figures as a page carries them: light, asked for when they are near, in a place of their size."""

import posixpath
import re
from html import escape
from pathlib import Path
from urllib.parse import quote

import imagesize
from docutils import nodes

NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
SIZE = re.compile(r'<svg\b[^>]*?\bwidth="([\d.]+)pt" height="([\d.]+)pt"')
PX_OF_PT = 4 / 3
POINTS = {"M": 1, "L": 1, "Q": 2, "C": 3, "Z": 0}  # of each command that Matplotlib writes
# Lines and words of a figure are a grey that both grounds allow; where the ground is known,
# it is darker on white and lighter on black.
GREY, ON_LIGHT, ON_DARK = "#808080", "#56626a", "#a6b1b9"
ADAPT = "".join(
    f"@media(prefers-color-scheme:{scheme}){{"
    + "".join(f'[style*="{what}:{GREY}"]{{{what}:{ink}!important}}' for what in ("fill", "stroke"))
    + "}"
    for scheme, ink in (("light", ON_LIGHT), ("dark", ON_DARK))
)


def rounded(number: str) -> str:
    """A number as exact as an eye is: a tenth of a point, or three digits.

    >>> rounded("375.066916"), rounded("0.015625"), rounded("12.0"), rounded("-0.004")
    ('375.1', '0.0156', '12', '-0.004')
    """
    value = float(number)
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 10 else f"{value:.3g}"


def relative(path: str) -> str:
    """A path told by its steps, which are shorter than its points; rounding does not add up.

    >>> relative("M 10.02 20 \\nL 11.06 20 \\nL 12.14 19.9 \\nz"), relative("M 0 0 L 0 3.5")
    ('m10 20l1.1 0 1-.1z', 'm0 0l0 3.5')
    """
    tokens = re.findall(r"[A-Za-z]|-?[\d.]+(?:e-?\d+)?", path)
    numbers = [abs(float(token)) for token in tokens if not token.isalpha()]
    digits = 1 if max(numbers, default=0) >= 10 else 3
    told, last, here, start, i = "", "", [0, 0], [0, 0], 0
    while i < len(tokens):
        command, i = tokens[i].upper(), i + 1
        points = [round(float(token) * 10**digits) for token in tokens[i : i + 2 * POINTS[command]]]
        i += len(points)
        steps = [point - here[k % 2] for k, point in enumerate(points)]
        words = [f"{step / 10**digits:.{digits}f}".rstrip("0").rstrip(".") for step in steps]
        words = [re.sub(r"^(-?)0\.", r"\1.", word) for word in words]
        line = re.sub(r" -", "-", " ".join(words))
        if command != last:
            told += command.lower() + line
        elif words:
            told += line if line.startswith("-") else " " + line
        last, here = command, points[-2:] or start
        start = here if command == "M" else start
    return told


def cleaned(svg: str) -> str:
    """The same picture without what only Matplotlib reads, and without digits nobody can see.

    >>> cleaned('<?xml version="1.0"?><svg><!-- a --><g id="b"><path d="M 9 2\\nL 3 4"/></g></svg>')
    '<svg><path d="m9 2l-6 2"/></svg>'
    """
    away = r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>"
    svg = re.sub(away, "", svg, flags=re.DOTALL)
    names = dict.fromkeys(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    names = {name: f"i{n}" for n, name in enumerate(names)}
    svg = re.sub(r' id="([^"]*)"', lambda m: f' id="{names[m[1]]}"' if m[1] in names else "", svg)
    svg = re.sub(r'((?:href="|url\()#)([^")]+)', lambda m: m[1] + names[m[2]], svg)
    # a path without a way draws nothing: the glyph of a space, and its uses
    blank = re.findall(r'<path(?![^>]* d=) id="([^"]*)"', svg)
    uses = f'<use [^>]*href="#({"|".join(blank)})"[^>]*/>'
    svg = re.sub(rf"<path(?![^>]* d=)[^>]*/>|{uses}", "", svg)
    svg = re.sub(r'(?<= d=")[^"]*', lambda m: relative(m[0]), svg)
    svg = re.sub(
        r' (?!d=)[\w-]+="[^"#]*"', lambda m: NUMBER.sub(lambda n: rounded(n[0]), m[0]), svg
    )
    svg = re.sub(r'(?<= style=")[^"]*', lambda m: re.sub(r"([:;]) ", r"\1", m[0]), svg)
    svg = re.sub(r">\s+<", "><", re.sub(r"\s+", " ", svg))
    svg = re.sub(r"<g/>|<g></g>", "", svg)
    while (flat := re.sub(r"<g>((?:(?!</?g\b).)*)</g>", r"\1", svg)) != svg:
        svg = flat
    # marks in a row say their common style once
    alike = r'(?:<use [^>]*? style="([^"]*)"/>)(?:<use [^>]*? style="\1"/>)+'
    plain = re.compile(r' style="[^"]*"')
    svg = re.sub(alike, lambda m: f'<g style="{m[1]}">{plain.sub("", m[0])}</g>', svg)
    return svg.replace("</style>", f"{ADAPT}</style>").strip()


def prepare(app, doctree) -> None:
    for image in doctree.findall(nodes.image):
        path = Path(app.srcdir, image["uri"])
        if path.suffix == ".svg" and path.is_file():
            svg = path.read_text("utf8")
            ours = path.resolve().is_relative_to(Path(app.srcdir).resolve())
            if "<metadata>" in svg and not ours:  # as Matplotlib wrote it, into the build
                svg = cleaned(svg)
                path.write_text(svg, "utf8")
            if size := SIZE.search(svg):
                image["size"] = [round(float(side) * PX_OF_PT) for side in size.groups()]
        elif path.is_file():
            image["size"] = imagesize.get(path)


def visit(translator, node) -> None:
    builder, uri = translator.builder, node["uri"]
    if uri in builder.images:
        uri = posixpath.join(builder.imgpath, quote(builder.images[uri]))
    said = {"src": uri, "alt": node.get("alt", "")}
    if size := node.get("size"):
        said["width"], said["height"] = size
        said["style"] = f"--width:{size[0]}px"
    if builder.name == "html":
        said["loading"] = "lazy"
    attributes = "".join(f' {name}="{escape(str(value))}"' for name, value in said.items())
    translator.body.append(f"<img{attributes}/>")


def setup(app) -> dict:
    app.add_node(nodes.image, override=True, html=(visit, lambda translator, node: None))
    app.connect("doctree-read", prepare, priority=900)  # when Sphinx has found the files
    return {"parallel_read_safe": True, "parallel_write_safe": True}
