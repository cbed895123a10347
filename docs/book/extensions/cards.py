"""The picture of a page that a shared link shows: its title, its question, its first lines of code.

It is drawn with fonts that are there. Matplotlib brings those for Latin letters and code; the one
for Chinese is the system's, and where it has none, a card shows the code and the book's mark alone.
"""

import functools
import io
import re
import subprocess
from pathlib import Path

import matplotlib
from docutils import nodes
from PIL import Image, ImageChops, ImageDraw, ImageFont
from pygments import highlight
from pygments.formatters import ImageFormatter
from pygments.lexers import PythonLexer
from pygments.style import Style
from pygments.token import Comment, Keyword, Name, Number, String

from book.paths import language_of

SIZE = WIDTH, HEIGHT = 1200, 630  # what those who show cards ask for
EDGE, GAP = 72, 32
GROUND, PAPER, PALE, SEEN = "#0b6e66", "#ffffff", "#d5ebe8", "#ffcf5c"
SHADES = 64  # letters on two grounds need no more, and weigh a third
LINES = 13  # of code, if nothing else were on a card
FOLDER = "cards"  # of a language's site
FONTS = Path(matplotlib.get_data_path(), "fonts", "ttf")
# A line ends between words and between Chinese characters, but never before a mark.
UNIT = re.compile(r"\s*(?:[\u3400-\u9fff][，。：；？！、）》”’]*|[^\s\u3400-\u9fff]+)")
CLAUSE = re.compile(r".+?(?:[，。：；？！][）》”’]*|[,.:;?!](?=\s)|$)")

Font = ImageFont.FreeTypeFont


class Code(Style):
    """The colours that book.css gives code."""

    background_color = PAPER
    styles = {  # noqa: RUF012 - as Pygments wants it
        Comment: "#5b666d",
        Keyword: "#8a2a72",
        String: "#1a6b38",
        Number: "#9a3f00",
        Name.Function: "#0a5ea8",
        Name.Class: "#0a5ea8",
        Name.Decorator: "#5b48b5",
    }


@functools.cache
def system_font(weight: str) -> tuple[str, int] | None:
    """A font of the system that has Chinese, and which of its file's faces it is."""
    pattern = f"Noto Sans CJK SC,sans-serif:lang=zh-cn:{weight}"
    command = ["fc-match", "-f", "%{file}\n%{index}\n%{lang}", pattern]
    try:
        told = subprocess.run(command, capture_output=True, encoding="utf8").stdout
    except FileNotFoundError:  # no Fontconfig: another system than Linux
        return None
    path, index, languages = told.split("\n")
    return (path, int(index)) if "zh-cn" in languages.split("|") else None


@functools.cache
def font(language: str, size: int, bold: bool = False) -> Font | None:
    if language == "en":
        return ImageFont.truetype(FONTS / f"DejaVuSans{'-Bold' * bold}.ttf", size)
    found = system_font("bold" if bold else "medium")
    return ImageFont.truetype(found[0], size, found[1]) if found else None


def wrapped(text: str, font: Font, width: int = WIDTH - 2 * EDGE) -> list[str]:
    """A text in as few lines as its width allows, and these about equally long.

    Where it costs no line more, they end with a clause.
    """

    def lines(units: list[str], width: int) -> list[str]:
        made = [""]
        for unit in units:
            if made[-1] and font.getlength(made[-1] + unit) > width:
                made.append("")
            made[-1] += unit if made[-1] else unit.lstrip()
        return made

    units, clauses = UNIT.findall(text), CLAUSE.findall(text)
    fewest = lines(units, width)
    by_clause = lines(clauses, width)
    if len(by_clause) == len(fewest) and max(map(font.getlength, by_clause)) <= width:
        units = clauses
    while len(lines(units, width - 20)) == len(fewest) and width > 40:
        width -= 20
    return lines(units, width)


def mark(height: int) -> Image.Image:
    """The eye of docs/_static/mark.svg, white: where two circles meet."""
    unit = height / 8  # of 32 in height; drawn larger and made smaller, so that edges are smooth
    circles = []
    for y in (16 - 5.5, 16 + 5.5):
        circles.append(Image.new("L", (4 * height, 4 * height)))
        box = [v * unit for v in (16 - 16, y - 16, 16 + 16, y + 16)]
        ImageDraw.Draw(circles[-1]).ellipse(box, fill=255)
    image = Image.new("RGB", circles[0].size, PAPER)
    for x, y, colour in (
        (11, 11, GROUND),
        (16.5, 11, GROUND),
        (11, 16.5, GROUND),
        (16.5, 16.5, SEEN),
    ):
        box = [v * unit for v in (x, y, x + 4.5, y + 4.5)]
        ImageDraw.Draw(image).rectangle(box, fill=colour)
    image.putalpha(ImageChops.darker(*circles))
    return image.resize((height, height), Image.Resampling.LANCZOS)


def picture(code: str) -> Image.Image:
    """Code as the book shows it."""
    drawn = io.BytesIO()
    mono = str(FONTS / "DejaVuSansMono.ttf")
    shape = {"font_size": 25, "line_pad": 10, "image_pad": 0, "line_numbers": False}
    highlight(code, PythonLexer(), ImageFormatter(font_name=mono, style=Code, **shape), drawn)
    return Image.open(drawn)


def draw(language: str, name: str, title: str, said: str, code: str) -> bytes:
    """A card as PNG.

    Args:
      name: of the book.
      title: of the page.
      said: what the page is about; a sentence or two.
      code: as many of its lines are shown as there is room for.
    """
    card = Image.new("RGB", SIZE, GROUND)
    pen = ImageDraw.Draw(card)
    eye = mark(60)
    card.paste(eye, (EDGE, 52), eye)
    y = 140  # of what has been drawn
    if small := font(language, 30):
        pen.text((EDGE + 78, 82), name, PAPER, font(language, 34, bold=True), anchor="lm")
        for size in (70, 60, 52):
            large = font(language, size, bold=True)
            if len(lines := wrapped(title, large)) < 3:
                break
        for line in lines[:3]:
            y += round(size * 1.3)
            pen.text((EDGE, y), line, PAPER, large, anchor="ls")
        y += GAP // 2
        for line in wrapped(said, small)[:3]:
            y += 46
            pen.text((EDGE, y), line, PALE, small, anchor="ls")
        y += GAP + 8
    if code and y + 2 * GAP < HEIGHT:
        pen.rounded_rectangle([EDGE, y, WIDTH - EDGE, HEIGHT + GAP], 16, PAPER)
        shown = picture(code)
        room = (WIDTH - 2 * (EDGE + GAP), HEIGHT - y - GAP)
        inner = (0, 0, *map(min, room, shown.size))
        card.paste(shown.crop(inner), (EDGE + GAP, y + GAP - 6))
    elif not code:  # the mark once more, large
        eye = mark(240)
        card.paste(eye, (WIDTH - EDGE - eye.width, HEIGHT - eye.height), eye)
    drawn = io.BytesIO()
    card.quantize(SHADES, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(drawn, "PNG")
    return drawn.getvalue()


def first_code(doctree: nodes.document) -> str:
    """The beginning of the page's first cell that shows its code, without its imports."""
    cells = doctree.findall(nodes.container)
    shown = (cell.astext() for cell in cells if "cell_input" in cell["classes"])
    code = re.sub(r"\A(\s*(import|from) .*\n?)*\s*", "", next(shown, ""))
    return "\n".join(code.splitlines()[:LINES])


def write(app, page: str, title: str, said: str, doctree: nodes.document) -> str:
    """Put a page's card into the site; return where."""
    path = Path(app.outdir, FOLDER, f"{page}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    code = first_code(doctree)
    card = draw(language_of(app.config), app.config.words["title"], title, said, code)
    path.write_bytes(card)
    return f"{FOLDER}/{page}.png"


def setup(app) -> dict:
    return {"parallel_read_safe": True, "parallel_write_safe": True}
