"""Folded cells say in the page's language what is inside: a check, or an exercise's solution.

The prompt cannot stand in the cell's options: these are the same in both languages.
"""

from html import escape

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode


def name_solutions(app, doctree) -> None:
    for cell in doctree.findall(nodes.container):
        if "tag_solution" in cell["classes"]:
            cell["prompt_show"] = app.config.folded_solution_show
            cell["prompt_hide"] = app.config.folded_solution_hide


def visit(translator, node) -> None:
    prompts = ("collapsed", node["prompt_show"]), ("expanded", node["prompt_hide"])
    summary = "".join(f'<span class="{state}">{escape(text)}</span>' for state, text in prompts)
    translator.body.append(f'<details class="folded"><summary>{summary}</summary>\n')


def depart(translator, node) -> None:
    translator.body.append("</details>\n")


def setup(app) -> dict:
    app.add_config_value("folded_solution_show", "Show the solution", "env")
    app.add_config_value("folded_solution_hide", "Hide the solution", "env")
    app.add_node(HideCodeCellNode, html=(visit, depart), override=True)
    app.connect("doctree-read", name_solutions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
