"""Run the pages: each once for both languages, the longest first, a cell that measures alone."""

import asyncio
import contextlib
import functools
import re
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbclient.exceptions import CellTimeoutError
from yaml import MarkedYAMLError

from book import cache, keys, private
from book.forkserver import ForkServer
from book.kernel import CELL_TIMEOUT_S, Kernel, shorten_errors
from book.keys import code_cells
from book.machine import Machine
from book.paths import ROOT, BuildError, pages, say


class Run(NamedTuple):
    """A page that has to be executed."""

    page: Path
    key: str
    notebook: nbformat.NotebookNode

    @property
    def expected_s(self) -> float:
        known = cache.seconds(self.page.stem)
        return len(code_cells(self.notebook)) if known is None else known


def source_line(page: Path, notebook: nbformat.NotebookNode, cell, line_in_cell: int = 1) -> int:
    """The line of the page on which a line of a cell stands (both from 1)."""
    lines = page.read_text("utf8").splitlines()
    fence = private.first_line(notebook, notebook.cells.index(cell))
    first = cell.source.split("\n", 1)[0]
    for number in range(fence, len(lines)):  # options stand between the fence and the source
        if lines[number] == first:
            return number + line_in_cell
    return fence


def failure(page: Path, notebook, cell, what: str, line_in_cell: int = 1) -> BuildError:
    """An error in a cell, by page, line and cell, as an editor can open it."""
    number = code_cells(notebook).index(cell) + 1
    line = source_line(page, notebook, cell, line_in_cell)
    return BuildError(f"{page.relative_to(ROOT)}:{line}: cell {number}: {what}\n\n{cell.source}\n")


def read_page(page: Path) -> nbformat.NotebookNode:
    """A page as a notebook, or in one line what is wrong with its front matter or its cells."""
    try:
        return private.read_notebook(page)
    except Exception as error:  # of YAML, of MyST-NB, of nbformat, of UTF-8
        what, line = str(error).split("\n")[0], 1
        if isinstance(error.__context__, MarkedYAMLError) and error.__context__.problem_mark:
            what = f"front matter: {error.__context__.problem}"
            line = error.__context__.problem_mark.line + 2  # it counts from 0, and below the ---
        elif found := re.search(r"at line (\d+) .*msg='([^']*)'", what):
            what, line = f"options of a cell: {found[2]}", int(found[1])
        raise BuildError(f"{page.relative_to(ROOT)}:{line}: {what}") from None


def check_outcome(page: Path, notebook, error: Exception | None, cell=None) -> None:
    """Raise unless every cell did what it said: raise where it is tagged so, and only there.

    Args:
      error: what ended the page, in `cell`, before its end.
    """
    for each in code_cells(notebook):
        raised = next((o for o in each.outputs if o.output_type == "error"), None)
        expected = "raises-exception" in each.metadata.get("tags", [])
        if raised and not expected:
            plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(raised.traceback))  # no colours
            seen = re.findall(r"Cell In\[\d+\], line (\d+)", plain)
            what = f"{raised.ename}: {raised.evalue}"
            raise failure(page, notebook, each, what, int(seen[0]) if seen else 1)
        ended = not error or (each.execution_count and each is not cell)
        if expected and not raised and ended:
            raise failure(page, notebook, each, "is tagged raises-exception but did not raise")
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, CellTimeoutError):
        what = f"ran over {CELL_TIMEOUT_S} s"
    if error and cell:
        raise failure(page, notebook, cell, what)
    if error:
        raise BuildError(f"{page.relative_to(ROOT)}: {what}")


async def execute_page(run: Run, machine: Machine, server: ForkServer) -> None:
    page, notebook = run.page, run.notebook
    error = None
    async with machine.page():
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:  # what a page writes is gone with it
            kernel = Kernel(notebook, machine, folder, server)
            try:
                await kernel.async_execute()
            except Exception as caught:  # a failing cell, a dead kernel, one that never started
                error = caught
        check_outcome(page, notebook, error, kernel.cell)
        shorten_errors(notebook)
        seconds = time.perf_counter() - begin
    if keys.key(notebook) != run.key:
        return  # a file that it reads was edited meanwhile: nobody knows which state this shows
    cache.save(page.stem, run.key, notebook, seconds)
    say("execute", f"{page.stem}: {len(code_cells(notebook))} cells in {seconds:.1f} s")


async def execute_all(runs: list[Run]) -> list:
    """Every outcome, the longest page first."""
    machine = Machine.here()
    runs = sorted(runs, key=lambda run: run.expected_s, reverse=True)
    server = ForkServer()
    try:
        pages = [execute_page(run, machine, server) for run in runs]
        return await asyncio.gather(*pages, return_exceptions=True)
    finally:
        server.close()


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM cancels this task, as asyncio.run lets SIGINT do where that is not ignored."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def end(*_: object) -> None:
        if task:
            loop.call_soon_threadsafe(task.cancel)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


async def execute_or_stop(runs: list[Run]) -> list:
    def leave_signals(*_) -> None:
        raise RuntimeError("nbclient would end one page on Ctrl-C; asyncio.run ends them all")

    asyncio.get_running_loop().add_signal_handler = leave_signals  # pyrefly: ignore
    with ended_by_sigterm():
        return await execute_all(runs)


def execute(languages: Iterable[str]) -> dict[Path, cache.Kept]:
    """What every page that has cells shows, executed or kept, of one state of the tree.

    What was edited while the pages ran is executed again, a few times.
    """
    languages = list(languages)
    for _ in range(5):
        state = keys.state()
        executed = execute_once(languages)
        if keys.state() == state:
            return executed
        say("execute", "edited meanwhile: once more")
    raise BuildError("the pages or what they read change whenever they are executed")


def execute_once(languages: Iterable[str]) -> dict[Path, cache.Kept]:
    """Execute what is new; return what is kept of every page that has cells.

    Pages whose cells are equal in both languages have one key, and so run once.
    """
    known = keys.Known()
    found = [page for language in languages for page in pages(language)]
    parse = functools.cache(read_page)
    key = {page: known.key(page, functools.partial(parse, page)) for page in found}
    key = {page: one for page, one in key.items() if one}
    new = {one: page for page, one in reversed(key.items()) if not cache.find(one)}
    runs = [Run(page, one, parse(page)) for one, page in new.items()]
    try:
        errors = [each for each in asyncio.run(execute_or_stop(runs)) if each] if runs else []
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    for error in errors:
        if not isinstance(error, BuildError):
            raise error
    if errors:
        raise BuildError("\n".join(map(str, errors)))
    known.save()
    cells = sum(len(code_cells(run.notebook)) for run in runs)
    say("execute", f"{cells} cells executed, {len({*key.values()}) - len(runs)} pages unchanged")
    kept = {page: cache.find(one) for page, one in key.items()}
    return {page: one for page, one in kept.items() if one}
