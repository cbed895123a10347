"""Each page as a notebook that runs without this site: in JupyterLab, on Colab, on Binder.

A notebook is its page: the same code cells in the same order, the prose as plain Markdown, no
outputs. Before them stand what the page needs installed and the settings that JAX had.
"""

import ast
import functools
import json
import os
import re
from collections.abc import Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from myst_nb.core.read import myst_nb_reader_plugin
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from book.cache import Kept
from book.export.plain import glued, plain
from book.keys import code_cells, imported, sources
from book.paths import DOCS, JAX_ENV, LANGUAGES, page_name, project
from book.tables import words

FOLDER = "notebooks"  # of a language's site
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
FOLDED_CODE = {"hide-cell", "hide-input", "remove-cell", "remove-input"}
FOLDED_OUTPUT = {"hide-cell", "remove-cell"}


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


def cells_of(page: str, language: str, source, values, needs) -> Iterator[nbformat.NotebookNode]:
    """The cells of a page's notebook: its title, what has to be run first, and all the others."""
    code, markdown = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    home = site(language) or "../" * (page.count("/") + 1)
    said = words(language)

    def text(cell: nbformat.NotebookNode) -> str:
        return plain(cell.source, page, language, values, home + "{page}.html{anchor}")

    first, *rest = source.cells
    title, _, lead = text(first).partition("\n")
    yield markdown(f"{title}\n\n{said['notebook'].format(page=f'{home}{page}.html')}")
    yield code(f"%pip install -q {' '.join(map(quoted, needs))}")
    yield code(SETTINGS_CELL)
    if lead.strip():
        yield markdown(lead.strip("\n"))
    for cell in rest:
        if cell.cell_type == "markdown":
            yield markdown(text(cell))
            continue
        tags = cell.metadata.get("tags", [])
        if "solution" in tags:
            yield markdown(f"*{said['notebook_solution']}*")
        yield code(cell.source, metadata={**({"tags": tags} if tags else {}), **folds(tags)})


def quoted(requirement: str) -> str:
    """A requirement as a shell takes it."""
    return f'"{requirement}"' if re.search(r"[\[=<>]", requirement) else requirement


def notebook(path: Path, language: str, executed, needs: list[str]) -> nbformat.NotebookNode:
    """The notebook of a page.

    Args:
      path: of the page's source.
      executed: the page's cells as they were run; its prose shows values from there.
      needs: what its install cell asks for.
    """
    page = page_name(path, language)
    source = myst_nb_reader_plugin(str(path))
    cells = list(cells_of(page, language, source, glued(executed), needs))
    for number, cell in enumerate(cells):
        cell["id"] = f"{path.stem}-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    made = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.validate(made)
    return made


def write(language: str, executed: dict[Path, Kept], html: Path, changed: set[str]) -> None:
    """Write a language's notebooks that have changed, and for Binder what they all need."""
    note, folder = html.parent / "needs.json", html / FOLDER
    known = json.loads(note.read_text("utf8")) if note.exists() else {}
    needs: dict[str, tuple[str, list[str]]] = {}  # of what was executed, which packages it needs
    for path, kept in executed.items():
        if not path.is_relative_to(DOCS / language):
            continue
        name = page_name(path, language)
        out = folder / f"{name}.ipynb"
        digest, asked = known.get(name, ("", []))
        if name in changed or digest != kept.digest or not out.exists():
            outputs = kept.notebook()
            asked = asked if digest == kept.digest else requirements(outputs)
            out.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook(path, language, outputs, asked), out)
        needs[name] = (kept.digest, asked)
    for old in set(folder.rglob("*.ipynb")) - {folder / f"{name}.ipynb" for name in needs}:
        old.unlink()
    note.write_text(json.dumps(needs), "utf8")
    all_of_them = dict.fromkeys(each for _, asked in needs.values() for each in asked)
    (folder / "requirements.txt").write_text("\n".join([*all_of_them, ""]), "utf8")
