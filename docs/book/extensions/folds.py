"""Folded cells say in the page's language what is inside: a check, a solution, a figure's code.

A cell tagged `puzzle` shows its code and folds its output, until the reader has guessed. What is
written on a fold cannot stand in the cell's options: these are the same in both languages. Words
that belong to a solution follow its cell in a container of the class `why`, and are folded with it.

An exercise is three cells: where one starts (tagged `exercise`), its solution, and its `tests`. So
they are run, and the solution is tested; a reader sees the tests before the solution.
"""

from html import escape

from docutils import nodes
from sphinx.util import logging

from book import private

logger = logging.getLogger(__name__)

# By a cell's tag: the kind of fold, of which docs/data/words.toml says what is written on it.
KINDS = {
    "tag_puzzle": "output",
    "tag_solution": "solution",
    "tag_hide-input": "code",
    "tag_hide-cell": "check",
    "tag_hide-output": "output",
    "tag_cured": "cured",  # of an error: errors.py
}


def show_tests(app, doctree) -> None:
    for tests in [cell for cell in doctree.findall(nodes.container) if is_tagged(cell, "tests")]:
        solution = tests.parent[tests.parent.index(tests) - 1]
        if not is_tagged(solution, "solution"):
            logger.warning("tests stand after the solution that they test", location=tests)
            continue
        tests.parent.remove(tests)
        solution.parent.insert(solution.parent.index(solution), tests)


def is_tagged(node: nodes.Node, tag: str) -> bool:
    return private.is_code_cell(node) and tag in private.cell_tags(node)


def name_contents(app, doctree) -> None:
    for cell in list(doctree.findall(nodes.container)):
        kind = next((kind for tag, kind in KINDS.items() if tag in cell["classes"]), None)
        if kind == "solution" and (why := following(cell, "why")):
            why.parent.remove(why)
            cell += why
        if kind == "output":
            private.fold_output(cell)
        if kind and private.is_folded(cell):
            private.set_kind(cell, kind)  # in words when it is written


def following(cell: nodes.Node, name: str) -> nodes.container | None:
    """The container of this class that comes right after the cell, if there is one."""
    after = cell.next_node(descend=False, siblings=True)
    return after if isinstance(after, nodes.container) and name in after["classes"] else None


def visit(translator, node) -> None:
    words = translator.config.words
    show, hide = (escape(words[f"{private.kind(node)}_{what}"]) for what in ("show", "hide"))
    both = f'<span class="collapsed">{show}</span><span class="expanded">{hide}</span>'
    summary = show if show == hide else both
    translator.body.append(f'<details class="folded"><summary>{summary}</summary>\n')


def depart(translator, node) -> None:
    translator.body.append("</details>\n")


def setup(app) -> dict:
    app.add_config_value("words", {}, "html")  # the site's own words; a new one is written anew
    app.add_node(private.fold_type(), html=(visit, depart), override=True)
    app.connect("doctree-read", show_tests)
    app.connect("doctree-read", name_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
