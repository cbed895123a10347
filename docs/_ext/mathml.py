"""Formulas as MathML, made when the site is built: every browser draws it without a script."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

logger = logging.getLogger(__name__)

# a function's name needs a thin space before its argument (sin x), unless a bracket follows
NAME = re.compile(r"(<m[io][^>]*>[a-z]{2,}</m[io]>)(?!<mrow><mo[^>]*>&#x00028;|<mo[^>]*>&#x00028;)")
# a prime is raised by its own glyph; without a mathematical font a superscript raises it twice
PRIME = re.compile(r"<msup>(<mi>\w</mi>)<mi>(&#x0203[2-4];)</mi></msup>")


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
    mathml = NAME.sub(r'\1<mspace width="0.167em"/>', mathml)
    return PRIME.sub(r'<mrow>\1<mo lspace="0" rspace="0">\2</mo></mrow>', mathml)


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
