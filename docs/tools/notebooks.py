"""Each page as a notebook that runs without this site: in JupyterLab, on Colab, on Binder.

    python -m tools.notebooks           # run the notebooks of the built site: make notebooks
    python -m tools.notebooks zh/jit    # or some of them

`make html` writes build/html/{zh,en}/notebooks. A notebook is its page: the same code cells in the
same order, the prose as plain Markdown, no outputs. Before them stand what the page needs installed
and the settings that JAX had. It is run with the package as it is published, not as it lies here.
"""

import argparse
import ast
import asyncio
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, version
from pathlib import Path

import nbformat
from aiorwlock import RWLock
from IPython.core.inputtransformer2 import TransformerManager
from myst_nb.core.read import myst_nb_reader_plugin
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import cache
from tools.book import BUILD, DATA_ENV, DOCS, LANGUAGES, PAGE_ENV, ROOT, project, say, words
from tools.execute import Kernel
from tools.keys import code_cells, imported, sources
from tools.plain import glued, plain

FOLDER = "notebooks"  # of a language's site
PINNED = ("jax", "flax", "optax")  # what decides the outputs; the others, as seejax asks for them
KERNEL = {"ipython", "matplotlib-inline"}  # a notebook is run by them; another may break its kernel

# What JAX is told before it is imported. The rest of PAGE_ENV is for processes that start anew.
SETTINGS = {name: value for name, value in PAGE_ENV.items() if name.startswith(("JAX_", "XLA_"))}
SETTINGS_CELL = "\n".join(
    [
        "import os",
        "",
        "# As on the page: pretended devices on the CPU, also where a GPU is. Before JAX starts.",
        "os.environ |= {",
        *(f'    "{name}": "{value}",' for name, value in SETTINGS.items()),
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


def cells_of(page: str, language: str, source, executed, needs) -> Iterator[nbformat.NotebookNode]:
    """The cells of a page's notebook, in their order."""
    code, markdown = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    home = site(language) or "../" * (page.count("/") + 1)
    said, values = words(language), glued(executed)
    above = ""  # the title, then an exercise whose solution has been announced
    for cell in source.cells:
        if cell.cell_type == "markdown":
            text = plain(cell.source, page, language, values, home + "{page}.html")
            if not above:
                above, _, text = text.partition("\n")
                note = said["notebook"].format(page=f"{home}{page}.html")
                yield markdown(f"{above}\n\n{note}")
                yield code(f"%pip install -q {' '.join(map(quoted, needs))}")
                yield code(SETTINGS_CELL)
            if text.strip():
                yield markdown(text.strip("\n"))
        else:
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
    page = path.relative_to(DOCS / language).with_suffix("").as_posix()
    source = myst_nb_reader_plugin(str(path))
    cells = list(cells_of(page, language, source, executed, needs))
    for number, cell in enumerate(cells):
        cell["id"] = f"{path.stem}-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    made = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.validate(made)
    return made


def write(language: str, executed: dict[Path, nbformat.NotebookNode], html: Path) -> None:
    """Write the notebooks of a language into its site, and for Binder what they all need."""
    asked: dict[str, None] = {}
    shutil.rmtree(html / FOLDER, ignore_errors=True)
    for path, outputs in executed.items():
        if path.is_relative_to(DOCS / language):
            out = (html / FOLDER / path.relative_to(DOCS / language)).with_suffix(".ipynb")
            out.parent.mkdir(parents=True, exist_ok=True)
            needs = requirements(outputs)
            nbformat.write(notebook(path, language, outputs, needs), out)
            asked |= dict.fromkeys(needs)
    (html / FOLDER / "requirements.txt").write_text("\n".join([*asked, ""]), "utf8")


# -- running them elsewhere ------------------------------------------------------------------------


def published(folder: Path) -> Path:
    """The package as a reader has it from a wheel: a folder to import it from."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "package")
    return folder / "package"


def elsewhere(package: Path) -> dict[str, str]:
    """The environment of a reader: nothing of this site, the package, all of it installed.

    pip has no index to ask: an install cell that wants what is not here fails.
    """
    ours = PAGE_ENV | DATA_ENV
    env = {
        n: v for n, v in os.environ.items() if n not in ours and not n.startswith(("JAX", "XLA"))
    }
    return env | DATA_ENV | {"PYTHONPATH": str(package), "PIP_NO_INDEX": "1"}


def complaints(cell: nbformat.NotebookNode) -> Iterator[str]:
    """What is wrong with a cell though nothing stopped at it."""
    said = "".join(output.get("text", "") for output in cell.outputs)
    if cell.source.startswith("%pip") and "ERROR" in said:  # %pip itself raises nothing
        yield said
    raised = any(output.output_type == "error" for output in cell.outputs)
    if "raises-exception" in cell.metadata.get("tags", []) and not raised:
        yield f"is tagged raises-exception but did not raise:\n{cell.source}"


async def run_notebook(path: Path, env: dict[str, str], slots: asyncio.Semaphore, machine) -> str:
    """Run a notebook top to bottom in a kernel of its own; return what went wrong."""
    made = cache.read(path.read_text("utf8"))
    async with slots:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                await Kernel(made, machine, folder).async_execute(env=env)
            except Exception as error:  # a failing cell, or a kernel that died
                return f"{path}: {type(error).__name__}: {error}"
        wrong = [f"{path}: {what}" for cell in code_cells(made) for what in complaints(cell)]
        seconds = time.perf_counter() - begin
    say("notebook", f"{path.parts[-3]}/{path.stem}: {len(code_cells(made))} cells, {seconds:.1f} s")
    return "\n".join(wrong)


def run(paths: Iterable[Path]) -> list[str]:
    """Run notebooks on every core, a cell that measures alone; return what went wrong."""

    async def run_all(package: Path) -> list[str]:
        slots, machine = asyncio.Semaphore(os.cpu_count() or 1), RWLock()
        env = elsewhere(package)
        return await asyncio.gather(*(run_notebook(path, env, slots, machine) for path in paths))

    with tempfile.TemporaryDirectory() as folder:
        return [wrong for wrong in asyncio.run(run_all(published(Path(folder)))) if wrong]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", help="as in zh/jit; by default all")
    args = parser.parse_args()
    built = BUILD / "html"
    if args.pages:
        asked = (page.split("/", 1) for page in args.pages)
        paths = [built / language / FOLDER / f"{page}.ipynb" for language, page in asked]
    else:
        paths = sorted(built.glob(f"*/{FOLDER}/**/*.ipynb"))
    wrong = run(paths)
    print("\n\n".join(wrong), end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
