"""Executed notebooks, kept by their key: a file each; all that is shown of one is checked."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn

from book.keys import code_cells
from book.paths import BUILD, ROOT, BuildError, say

FOLDER = BUILD / "cache"
STATES = 8  # of each page: going back to one of the last few executes nothing


def read(text: str) -> nbformat.NotebookNode:
    return cast(nbformat.NotebookNode, nbformat.reads(text, nbformat.NO_CONVERT))


def content(notebook: nbformat.NotebookNode) -> str:
    """A digest of a notebook's cells that survives writing it to disk and reading it back."""
    cells = code_cells(read(nbformat.writes(notebook)))
    code = [(c.source, c.metadata, c.outputs) for c in cells]
    return hashlib.sha256(json.dumps(code, sort_keys=True).encode()).hexdigest()


def seal(notebook: nbformat.NotebookNode, seconds: float) -> str:
    """A digest of all that is shown of it: its cells, and on `about` how long they took."""
    return hashlib.sha256(f"{content(notebook)} {seconds}".encode()).hexdigest()


def newest(pattern: str) -> list[Path]:
    return sorted(FOLDER.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)


def load(key: str) -> nbformat.NotebookNode | None:
    """The outputs kept under a key; what is not what was written is thrown away, never shown."""
    for path in newest(f"*.{key}.ipynb"):
        try:
            notebook = read(path.read_text("utf8"))
            kept = notebook.metadata.seejax
            if kept.seal != seal(notebook, kept.seconds):
                raise ValueError("it is not what was written")
        except Exception as error:  # whatever is broken in there, the answer is the same
            say("execute", f"{path.name} dropped ({type(error).__name__}: {error})")
            path.unlink()
            continue
        path.touch()
        return notebook
    return None


def save(page: str, key: str, notebook: nbformat.NotebookNode, seconds: float) -> None:
    """Keep what was executed, and the newest few states of the page beside it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    took = round(seconds, 1)
    notebook.metadata["seejax"] = {"seal": seal(notebook, took), "seconds": took}
    path = FOLDER / f"{page}.{key}.ipynb"
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        new.write_text(nbformat.writes(notebook), "utf8")
        new.replace(path)
    except OSError as error:  # which page is lost, a full disk does not say
        raise BuildError(f"{path.relative_to(ROOT)}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
    for old in newest(f"{page}.*.ipynb")[STATES:]:
        old.unlink()


def seconds(page: str) -> float | None:
    """How long a page took when it was executed last, if that is known."""
    for path in newest(f"{page}.*.ipynb"):
        try:
            return json.loads(path.read_text("utf8"))["metadata"]["seejax"]["seconds"]
        except (ValueError, KeyError, TypeError):  # load will drop it, and say so
            continue
    return None


def hand_over(notebooks: Iterable[nbformat.NotebookNode], folder: Path) -> None:
    """Put the notebooks of one build where MyST-NB looks for them."""
    shutil.rmtree(folder, ignore_errors=True)
    cache = get_cache(folder)
    for notebook in notebooks:
        bundle = CacheBundleIn(notebook, "")
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
