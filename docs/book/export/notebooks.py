"""Each page as a notebook that runs without this site: in JupyterLab, on Colab, on Binder.

A notebook is its page: the same code cells in the same order, the prose as plain Markdown, no
outputs. Before them stand what the page needs installed and the settings that JAX had.
"""

import ast
import functools
import json
import os
import posixpath
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from book import cache, private
from book.export.markdown import Part, Writer, folded, joined
from book.keys import code_cells, imported, sources
from book.paths import JAX_ENV, LANGUAGES, project
from book.tables import words

FOLDER = "notebooks"  # of a language's site
INSTALL = "%pip install -q"
PINNED = ("jax", "flax", "optax")  # what decides the outputs; the others, as seejax asks for them
KERNEL = {"ipython", "matplotlib-inline"}  # a notebook is run by them; another may break its kernel

SETTINGS_CELL = "\n".join(
    [
        "import os",
        "",
        "# As on the page: pretended devices on the CPU, also where a GPU is. Before JAX starts.",
        "os.environ |= {",
        *(f'    "{name}": "{value}",' for name, value in JAX_ENV.items()),
        "}",
    ]
)

# By a cell's tag: what the page folds or leaves out.
FOLDED_CODE = {"hide-cell", "hide-input", "remove-cell", "remove-input", "mistake"}
FOLDED_OUTPUT = {"hide-cell", "remove-cell", "mistake"}


packages = functools.cache(packages_distributions)


def distributions(source: ast.AST) -> set[str]:
    """What has to be installed for the imports of some code."""
    modules = {name.split(".")[0] for name in imported(source, "")}
    return {canonicalize_name(name) for module in modules for name in packages().get(module, [])}


@functools.cache
def of_module(path: Path) -> set[str]:
    """What a module of ours cannot be imported without."""
    body = ast.parse(path.read_text("utf8")).body
    imports: list[ast.stmt] = [n for n in body if isinstance(n, (ast.Import, ast.ImportFrom))]
    return distributions(ast.Module(imports, []))


def requirements(notebook: nbformat.NotebookNode) -> list[str]:
    """What pip is asked for so that a page's cells run, as when the book was built.

    The package with all that its code needs, and what the cells import beyond that.

    >>> cell = nbformat.v4.new_code_cell("import numpy, treescope, IPython")
    >>> [re.sub("==.*", "", one) for one in requirements(nbformat.v4.new_notebook(cells=[cell]))]
    ['seejax[training]', 'jax', 'flax', 'optax', 'treescope']
    """
    transform = TransformerManager().transform_cell  # %magic and !command are no Python
    cells = (distributions(ast.parse(transform(cell.source))) for cell in code_cells(notebook))
    ours = (of_module(path) for path in sources(notebook) if path.suffix == ".py")
    extra = project()["optional-dependencies"]["training"]
    own = {Requirement(one).name for one in [*project()["dependencies"], *extra]}
    covered = {canonicalize_name(name) for name in own | {project()["name"]}} | KERNEL
    others = set().union(*cells, *ours) - covered
    pinned = [f"{name}=={version(name)}" for name in PINNED]
    return [f"{project()['name']}[training]=={project()['version']}", *pinned, *sorted(others)]


def site(language: str) -> str:
    """Where a language's pages are read, with a slash at the end; nothing where it is not known."""
    if url := os.environ.get("READTHEDOCS_CANONICAL_URL"):
        return url
    url = project().get("urls", {}).get("Documentation", "")
    return url and f"{url.rstrip('/')}/{LANGUAGES[language]['slug']}/latest/"


def folds(tags: list[str]) -> dict:
    """How JupyterLab and Colab are asked to fold a cell with these tags.

    >>> folds(["hide-input"])
    {'jupyter': {'source_hidden': True}, 'cellView': 'form'}
    """
    if not FOLDED_CODE & set(tags):
        return {}
    output = {"outputs_hidden": True} if FOLDED_OUTPUT & set(tags) else {}
    return {"jupyter": {"source_hidden": True, **output}, "cellView": "form"}


def cells_of(writer: Writer, parts: list[Part], code: dict[int, NotebookNode]) -> Iterator:
    """The cells of a page after its title, in their order: its code, and the prose between.

    Args:
      code: its code cells by their index. One that the page leaves out stands before the next one
        that it shows.
    """
    said = writer.builder.config.words
    seen = {private.cell_index(part) for part in parts if not isinstance(part, str)}
    prose: list[str] = []
    for part in [*parts, None]:
        if isinstance(part, str):
            prose.append(part)
            continue
        if prose:
            yield nbformat.v4.new_markdown_cell(joined(prose))
        if part and "solution" in private.cell_tags(part):
            yield nbformat.v4.new_markdown_cell(f"*{said['notebook_solution']}*")
        here = private.cell_index(part) if part else 1 + max(code, default=0)
        for index in [index for index in code if index < here and index not in seen]:
            yield code.pop(index)
        if part:
            yield code.pop(here)
            prose = [folded(said["why"], text) for text in writer.why(part)]
            prose += writer.guess(part)


def without_outputs(cell: NotebookNode) -> NotebookNode:
    tags = list(cell.metadata.get("tags", []))
    if "tests" in tags:  # they fail until the reader has done the exercise
        tags.append("raises-exception")
    metadata = {**({"tags": tags} if tags else {}), **folds(tags)}
    return nbformat.v4.new_code_cell(cell.source, metadata=metadata)


def quoted(requirement: str) -> str:
    """A requirement as a shell takes it."""
    return f'"{requirement}"' if re.search(r"[\[=<>]", requirement) else requirement


def notebook(
    builder: Any, page: str, language: str, doctree: nodes.document, executed: NotebookNode
) -> NotebookNode:
    """The notebook of a page; its second cell is still to be told what to install.

    Args:
      executed: the page's cells as they were run: the doctree lacks those that the page leaves out.
    """
    home = site(language) or "../" * (page.count("/") + 1)
    writer = Writer(builder, page, home, ".html")
    title, *parts = writer.parts(doctree)
    note = words(language)["notebook"].format(page=f"{home}{page}.html")
    code = {
        index: without_outputs(cell)
        for index, cell in enumerate(executed.cells)
        if cell.cell_type == "code"
    }
    cells = [
        nbformat.v4.new_markdown_cell(joined([str(title), note])),
        nbformat.v4.new_code_cell(""),
        nbformat.v4.new_code_cell(SETTINGS_CELL),
        *cells_of(writer, parts, code),
    ]
    for number, cell in enumerate(cells):
        cell["id"] = f"{posixpath.basename(page)}-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def install(made: NotebookNode, last: Path) -> None:
    """Say in a notebook what it needs; where its code is that of the last one, the same.

    Finding it out takes a second, and prose is edited more often than code. What the package
    imports counts as well: when it changes, book.render removes all notebooks.
    """
    before = cache.read(last.read_text("utf8")) if last.exists() else nbformat.v4.new_notebook()
    (cell, *code), old = code_cells(made), code_cells(before)
    if [each.source for each in code] == [each.source for each in old[1:]]:
        cell.source = old[0].source
    else:
        cell.source = f"{INSTALL} {' '.join(map(quoted, requirements(made)))}"


def write(made: NotebookNode, out: Path) -> None:
    install(made, out)
    nbformat.validate(made)
    out.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, out)


def needed(folder: Path) -> str:
    """For Binder: what all notebooks together need."""
    texts = (path.read_text("utf8") for path in sorted(folder.rglob("*.ipynb")))
    lines = ("".join(json.loads(text)["cells"][1]["source"]) for text in texts)
    asked = [each for line in lines for each in shlex.split(line.removeprefix(INSTALL))]
    return "\n".join([*dict.fromkeys(asked), ""])
