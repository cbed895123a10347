"""The page `api` is made of docstrings, written to be read in Python: here they become rST."""

import re
from html import escape

from docutils import nodes
from sphinx import addnodes
from sphinx.locale import _

STAR = re.compile(r"`[^`]*`|\*")
RETURNS = re.compile(r"^Returns:\n +", re.MULTILINE)
NO_TYPE = ": "  # else Napoleon takes what stands before a colon for a type


def as_rst(text: str) -> str:
    r"""A docstring whose listings are marked, in which * is a star, and what is returned no type.

    >>> as_rst("Use f(*x):\n\n    f(*x)\n\nReturns:\n  y: one.").split("\n\n")
    ['Use f(\\*x):', '::', '    f(*x)', '\nReturns:\n  : y: one.']
    """
    blocks: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith("  "):
            if not (blocks and blocks[-1].startswith("  ")):
                blocks.append("::")
        elif not block.startswith(">>>"):
            block = STAR.sub(lambda found: r"\*" if found[0] == "*" else found[0], block)
            block = RETURNS.sub(rf"\n\g<0>{NO_TYPE}", block)
        blocks.append(block)
    return "\n\n".join(blocks)


def prepare(app, what, name, obj, options, lines: list[str]) -> None:
    text = as_rst("\n".join(lines))
    if what in ("attribute", "data", "property"):
        text = NO_TYPE + text
    lines[:] = text.split("\n")


def signature(translator, node) -> None:
    """A signature as one piece of code: a span for each of its parts doubles the page."""
    start = translator.starttag(node, "dt", "", CLASS="sig")
    translator.body.append(f"{start}<code>{escape(node.astext())}</code>")
    if node["ids"]:
        translator.add_permalink_ref(node, _("Link to this definition"))
    translator.body.append("</dt>\n")
    raise nodes.SkipNode


def setup(app) -> dict:
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", prepare, priority=100)  # before Napoleon
    app.add_node(addnodes.desc_signature, override=True, html=(signature, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
