"""Build the book: execute each page once, then both languages side by side.

    python -m tools.build            # -> build/html/{zh,en} and build/html/index.html
    python -m tools.build --serve    # the same, served, and rebuilt on every change

On Read the Docs (READTHEDOCS_OUTPUT is set) it builds READTHEDOCS_LANGUAGE alone, into the place
asked for.
"""

import argparse
import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import myst_nb_reader_plugin
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError

from tools.book import BUILD, DOCS, LANGUAGES, ROOT, pages

CELL_TIMEOUT_S = 300

# What the pages see as the machine: the same in both languages and for every builder of the site.
PAGE_ENV = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "JAX_PPRINT_USE_COLOR": "0",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "PYTHONHASHSEED": "0",
}


class BuildError(Exception):
    """What the reader of the terminal has to know, in one message; no traceback of ours."""


def cache_folder() -> Path:
    """The execution cache of this code and these versions.

    The cache keys on the source of the cells alone; what they import is in the folder's name.
    """
    digest = hashlib.sha256(f"{sys.version_info[:2]} {sorted(PAGE_ENV.items())}".encode())
    kinds = (".py", ".css", ".js", ".mplstyle")
    package = [path for path in (ROOT / "examples").rglob("*") if path.suffix in kinds]
    read = [ROOT / "requirements.lock", ROOT / "bench" / "results.json"]
    for path in [*sorted(package), *filter(Path.exists, read)]:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return BUILD / "cache" / digest.hexdigest()[:16]


def content_digest(notebook: nbformat.NotebookNode) -> str:
    """A digest of a notebook's cells that survives writing it to disk and reading it back."""
    cells = nbformat.reads(nbformat.writes(notebook), nbformat.NO_CONVERT).cells
    code = [(c.source, c.metadata, c.outputs) for c in cells if c.cell_type == "code"]
    return hashlib.sha256(json.dumps(code, sort_keys=True).encode()).hexdigest()


def open_cache(folder: Path):
    """The cache, checked: one that cannot be trusted in every byte is thrown away, never shown."""
    for old in folder.parent.glob("*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    try:
        cache = get_cache(folder)
        for record in cache.list_cache_records():
            if content_digest(cache.get_cache_bundle(record.pk).nb) != record.data["content"]:
                raise ValueError(f"{record.uri} is not what was written")
    except Exception as error:  # whatever is broken in there, the answer is the same
        say("execute", f"cache dropped ({type(error).__name__}: {error}); executing again")
        shutil.rmtree(folder)
        cache = get_cache(folder)
    return cache


def say(who: str, what: str) -> None:
    print(f"{who:>8} │ {what}", flush=True)


def code_cells(notebook: nbformat.NotebookNode) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def source_line(page: Path, notebook: nbformat.NotebookNode, cell, line_in_cell: int = 1) -> int:
    """The line of the page on which a line of a cell stands (both from 1)."""
    lines = page.read_text("utf8").splitlines()
    fence = notebook.metadata.source_map[notebook.cells.index(cell)]
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


def check_outcome(page: Path, notebook, error: Exception | None) -> None:
    """Raise unless every cell did what it said: raise where it is tagged so, and only there."""
    for cell in code_cells(notebook):
        raised = next((o for o in cell.outputs if o.output_type == "error"), None)
        expected = "raises-exception" in cell.metadata.get("tags", [])
        if raised and not expected:
            plain = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(raised.traceback))  # no colours
            seen = re.findall(r"Cell In\[\d+\], line (\d+)", plain)
            what = f"{raised.ename}: {raised.evalue}"
            raise failure(page, notebook, cell, what, int(seen[0]) if seen else 1)
        if expected and not raised and (not error or cell.execution_count):
            raise failure(page, notebook, cell, "is tagged raises-exception but did not raise")
    if isinstance(error, CellTimeoutError):
        raise BuildError(f"{page.relative_to(ROOT)}: a cell ran over {CELL_TIMEOUT_S} s\n{error}")
    if error:
        raise BuildError(f"{page.relative_to(ROOT)}: {type(error).__name__}: {error}")


def shorten_errors(notebook) -> None:
    """Show an expected error as its name and message: no path or address, no frames inside JAX."""
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error":
                message = re.sub(r"\S*/ipykernel_\d+/\d+\.py", "<cell>", output.evalue)
                message = re.sub(r" at 0x[0-9a-f]+", "", message)
                output.traceback = [f"{output.ename}: {message}"]


async def execute_page(page: Path, notebook, cache, slots: asyncio.Semaphore) -> None:
    error = None
    async with slots:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:  # what a page writes is gone with it
            client = NotebookClient(
                notebook,
                timeout=CELL_TIMEOUT_S,
                shutdown_kernel="immediate",
                record_timing=False,  # it would change the metadata that the cache keys on
                resources={"metadata": {"path": folder}},
                extra_arguments=["--log-level=40"],  # it warns that it talks over localhost
            )
            try:
                await client.async_execute()
            except Exception as caught:  # a failing cell, a dead kernel, one that never started
                error = caught
        check_outcome(page, notebook, error)
        shorten_errors(notebook)
    bundle = CacheBundleIn(
        notebook, page.relative_to(DOCS).as_posix(), data={"content": content_digest(notebook)}
    )
    cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    seconds = time.perf_counter() - begin
    say("execute", f"{page.stem}: {len(code_cells(notebook))} cells in {seconds:.1f} s")


def execute(languages) -> Path:
    """Run what has not been run yet: pages whose cells are equal in both languages run once."""
    folder = cache_folder()
    cache = open_cache(folder)
    known = {record.hashkey for record in cache.list_cache_records()}
    found = {}
    for page in [p for language in languages for p in pages(language)]:
        notebook = myst_nb_reader_plugin(str(page))
        if code_cells(notebook):
            found.setdefault(cache.create_hashed_notebook(notebook)[1], (page, notebook))
    todo = [found[key] for key in found if key not in known]

    def leave_signals(*_) -> None:
        raise RuntimeError("nbclient would end one page on Ctrl-C; asyncio.run ends them all")

    async def run_all() -> list:
        asyncio.get_running_loop().add_signal_handler = leave_signals
        slots = asyncio.Semaphore(os.cpu_count() or 1)
        tasks = [execute_page(page, notebook, cache, slots) for page, notebook in todo]
        return await asyncio.gather(*tasks, return_exceptions=True)

    total = sum(len(code_cells(notebook)) for _, notebook in found.values())
    new = sum(len(code_cells(notebook)) for _, notebook in todo)
    errors = [outcome for outcome in asyncio.run(run_all()) if outcome]
    for error in errors:
        if not isinstance(error, BuildError):
            raise error
    if errors:
        raise BuildError("\n".join(map(str, errors)))
    say("execute", f"{new} cells executed, {total - new} taken from the cache")
    return folder


def extensions_digest() -> str:
    sources = [path.read_bytes() for path in sorted((DOCS / "_ext").glob("*.py"))]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()


def sphinx(language: str, cache: Path) -> subprocess.Popen:
    """Start Sphinx for one language, upon what the last build has left if that can be trusted.

    It cannot if that build did not finish, or was made by other extensions: Sphinx does not
    look at their code.
    """
    work = BUILD / "sphinx" / language
    finished = work / "finished"
    if not finished.exists() or finished.read_text() != extensions_digest():
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    finished.unlink(missing_ok=True)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
    command += ["-c", DOCS, "-t", language, "-D", f"nb_execution_cache_path={cache}"]
    return subprocess.Popen(
        [*command, "-d", work / "doctrees", DOCS / language, work / "html"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf8",
    )


def publish(language: str, out: Path) -> None:
    """Put a finished site in its place at once; until then the last good one stays."""
    (BUILD / "sphinx" / language / "finished").write_text(extensions_digest())
    new, old = out.with_name(out.name + ".new"), out.with_name(out.name + ".old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(BUILD / "sphinx" / language / "html", new)
    if out.exists():
        out.rename(old)
    new.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def render(targets: dict[str, Path], cache: Path) -> None:
    """Both languages at once; every warning is an error."""
    begin = time.perf_counter()
    running = {language: sphinx(language, cache) for language in targets}
    failed = []
    try:
        for language, process in running.items():
            output = process.communicate()[0].replace(f"{ROOT}{os.sep}", "")
            for line in output.splitlines():
                say(language, line)
            if process.returncode:
                failed.append(language)
            else:
                count = len(pages(language))
                say(language, f"{count} pages in {time.perf_counter() - begin:.1f} s")
    finally:
        for process in running.values():
            if process.poll() is None:
                process.terminate()
                process.wait()
    if failed:
        raise BuildError(f"Sphinx failed: {', '.join(failed)} (a warning is an error here)")
    for language, out in targets.items():
        publish(language, out)


def read_the_docs_target() -> dict[str, Path]:
    code = os.environ.get("READTHEDOCS_LANGUAGE", "")
    language = next((lang for lang in LANGUAGES if code.lower().startswith(lang)), None)
    if not language:
        raise BuildError(f"READTHEDOCS_LANGUAGE is {code!r}; this book has {', '.join(LANGUAGES)}")
    return {language: Path(os.environ["READTHEDOCS_OUTPUT"]) / "html"}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One build at a time in a tree; the system lets go of the lock of one that was killed."""
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("build", "another build is at work here; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@alone()
def build() -> Path:
    """Build what is asked for; return the page to open."""
    on_read_the_docs = "READTHEDOCS_OUTPUT" in os.environ
    targets = (
        read_the_docs_target()
        if on_read_the_docs
        else {language: BUILD / "html" / language for language in LANGUAGES}
    )
    render(targets, execute(targets))
    if on_read_the_docs:
        return next(iter(targets.values())) / "index.html"
    return Path(shutil.copy(DOCS / "_static" / "choose.html", BUILD / "html" / "index.html"))


def serve(port: int) -> None:
    """Serve the site and build again on every change; the open page reloads itself."""
    from livereload import Server

    def rebuild() -> None:  # a process of its own: the server has an event loop, and so has a build
        subprocess.run([sys.executable, "-m", "tools.build"])  # when it fails, the next save may mend it

    server = Server()
    for pattern in ("docs/**/*.*", "examples/**/*.*"):
        server.watch(str(ROOT / pattern), rebuild)
    server.serve(root=str(BUILD / "html"), port=port, host="127.0.0.1")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--serve", action="store_true", help="serve, and rebuild on every change")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    os.environ.update(PAGE_ENV)
    os.environ["TFDS_DATA_DIR"] = str(BUILD / "tensorflow_datasets")  # where changes no output
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # one way to end
    begin = time.perf_counter()
    try:
        page = build()
    except BuildError as error:
        print(f"\n{error}", file=sys.stderr)
        if not args.serve:
            return 1
    except KeyboardInterrupt:
        print("\nstopped; the next build goes on from here", file=sys.stderr)
        return 130
    else:
        print(f"Built in {time.perf_counter() - begin:.1f} s. Open {os.path.relpath(page)}")
    if args.serve:
        serve(args.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
