"""Run notebooks of the built site as a reader does, with nothing of this repository at hand.

    python -m book.author.run_notebooks           # every notebook, top to bottom: make notebooks
    python -m book.author.run_notebooks zh/jit    # or some of them

They have the package as it is published, a kernel that JAX was told nothing in, and no index for
pip: an install cell has to find all that it asks for, at its version, in this environment.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import nbformat

from book import cache
from book.execute import Kernel
from book.export.notebooks import FOLDER
from book.keys import code_cells
from book.machine import Machine
from book.paths import BUILD, PAGE_ENV, PLACES_ENV, ROOT, BuildError, say


def published(folder: Path) -> Path:
    """The package as a reader has it from a wheel: a folder to import it from."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf8")
    if done.returncode:
        raise BuildError(done.stderr)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "package")
    return folder / "package"


def environment(package: Path) -> dict[str, str]:
    """The environment of a reader: nothing of this site, the package, all of it installed.

    pip has no index to ask: an install cell that wants what is not here fails.
    """
    ours = PAGE_ENV | PLACES_ENV
    env = {
        n: v for n, v in os.environ.items() if n not in ours and not n.startswith(("JAX", "XLA"))
    }
    return (
        env
        | {"TFDS_DATA_DIR": PLACES_ENV["TFDS_DATA_DIR"]}
        | {"PYTHONPATH": str(package), "PIP_NO_INDEX": "1"}
    )


def complaints(cell: nbformat.NotebookNode) -> Iterator[str]:
    """What is wrong with a cell though nothing stopped at it."""
    said = "".join(output.get("text", "") for output in cell.outputs)
    if cell.source.startswith("%pip") and "ERROR" in said:  # %pip itself raises nothing
        yield said
    raised = any(output.output_type == "error" for output in cell.outputs)
    if "raises-exception" in cell.metadata.get("tags", []) and not raised:
        yield f"is tagged raises-exception but did not raise:\n{cell.source}"


async def run_notebook(path: Path, env: dict[str, str], machine: Machine) -> str:
    """Run a notebook top to bottom in a kernel of its own; return what went wrong."""
    made = cache.read(path.read_text("utf8"))
    async with machine.page():
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
        machine = Machine.here()
        env = environment(package)
        return await asyncio.gather(*(run_notebook(path, env, machine) for path in paths))

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
