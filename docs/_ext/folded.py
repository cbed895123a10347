"""Folded cells say in the page's language what is inside: a check, a solution, a figure's code.

The prompt cannot stand in the cell's options: these are the same in both languages.
"""

from html import escape

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode

KINDS = {"tag_solution": "solution", "tag_hide-input": "code"}  # the others are checks


def name_contents(app, doctree) -> None:
    for cell in doctree.findall(nodes.container):
        for tag, kind in KINDS.items():
            if tag in cell["classes"]:
                cell["prompt_show"] = app.config[f"folded_{kind}_show"]
                cell["prompt_hide"] = app.config[f"folded_{kind}_hide"]


def visit(translator, node) -> None:
    prompts = ("collapsed", node["prompt_show"]), ("expanded", node["prompt_hide"])
    summary = "".join(f'<span class="{state}">{escape(text)}</span>' for state, text in prompts)
    translator.body.append(f'<details class="folded"><summary>{summary}</summary>\n')


def depart(translator, node) -> None:
    translator.body.append("</details>\n")


def setup(app) -> dict:
    for kind in KINDS.values():
        app.add_config_value(f"folded_{kind}_show", f"Show the {kind}", "env")
        app.add_config_value(f"folded_{kind}_hide", f"Hide the {kind}", "env")
    app.add_node(HideCodeCellNode, html=(visit, depart), override=True)
    app.connect("doctree-read", name_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
