"""Formulas as MathML, made when the site is built: every browser draws it without a script."""

import itertools
import re
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

logger = logging.getLogger(__name__)

MATHML = "{http://www.w3.org/1998/Math/MathML}"
ElementTree.register_namespace("", MATHML[1:-1])
SCRIPTS = {MATHML + tag for tag in ("msub", "msup", "msubsup", "munder", "mover", "munderover")}
ROWS = {MATHML + tag for tag in ("math", "mrow", "mtd")}
NAME = re.compile("[a-z]{2,}")
# a prime is raised by its own glyph; without a mathematical font a superscript raises it twice
PRIME = re.compile(r"<msup>(<mi>\w</mi>)<mi>([′-‴])</mi></msup>")


def formula(node, display: str) -> str:
    """The MathML of a node; what cannot be converted is a warning, and so ends the build."""
    latex = node.astext().strip()
    try:
        mathml = convert(latex, display=display)
    except Exception as error:  # the converter raises errors of many kinds
        logger.warning("cannot convert %r: %s", latex, error, location=node)
        return ""
    if "\\" in mathml:  # an unknown command is passed through as text
        logger.warning("a command in %r is unknown", latex, location=node)
    mathml = spaced(mathml)
    return PRIME.sub(r'<mrow>\1<mo lspace="0" rspace="0">\2</mo></mrow>', mathml)


def spaced(mathml: str) -> str:
    """A thin space between a function's name, its scripts too, and what it is applied to.

    >>> sine = '<math xmlns="http://www.w3.org/1998/Math/MathML"><msup><mi>sin</mi><mn>2</mn></msup>'
    >>> spaced(sine + "<mi>x</mi></math>").partition("</msup>")[2]
    '<mspace width="0.167em" /><mi>x</mi></math>'
    >>> "mspace" in spaced(sine + "<mo>(</mo><mi>x</mi><mo>)</mo></math>")
    False
    """
    math = ElementTree.fromstring(mathml)
    for row in [each for each in math.iter() if each.tag in ROWS]:
        for place, (name, after) in reversed([*enumerate(itertools.pairwise(row), 1)]):
            while name.tag in SCRIPTS:
                name = name[0]
            if NAME.fullmatch(name.text or "") and not "".join(after.itertext()).startswith("("):
                row.insert(place, ElementTree.Element(f"{MATHML}mspace", width="0.167em"))
    return ElementTree.tostring(math, encoding="unicode")


def inline(translator, node) -> None:
    translator.body.append(formula(node, "inline"))
    raise nodes.SkipNode


def block(translator, node) -> None:
    ids = "".join(f' id="{name}"' for name in node["ids"][:1])
    translator.body.append(f'<div class="math"{ids} tabindex="0">{formula(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app) -> dict:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
