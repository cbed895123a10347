"""Executed notebooks, a file each: its name holds the page, its key, and a digest of its bytes.

A file whose bytes are not those that were written is thrown away, never shown.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from book.paths import BUILD, ROOT, BuildError, say

if TYPE_CHECKING:
    import nbformat

FOLDER = BUILD / "cache"
STATES = 8  # of each page: going back to one of the last few executes nothing


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


class Kept(NamedTuple):
    """An executed page in the cache."""

    path: Path

    @property
    def digest(self) -> str:
        """Two of the same digest show the same."""
        return self.path.name.split(".")[-2]

    def notebook(self) -> "nbformat.NotebookNode":
        return read(self.path.read_text("utf8"))


def read(text: str) -> "nbformat.NotebookNode":
    import nbformat  # a build that changes nothing needs none

    return cast(nbformat.NotebookNode, nbformat.reads(text, nbformat.NO_CONVERT))


def newest(pattern: str) -> list[Path]:
    return sorted(FOLDER.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)


def find(key: str) -> Kept | None:
    """What is kept under a key, if it is what was written."""
    for path in newest(f"*.{key}.*.ipynb"):
        try:
            found = digest(path.read_bytes())
        except OSError as error:
            found = error.strerror or "unreadable"
        if found == Kept(path).digest:
            path.touch()
            return Kept(path)
        say("execute", f"{path.name} dropped: it is not what was written")
        path.unlink()
    return None


def load(key: str) -> "nbformat.NotebookNode | None":
    """The executed notebook of a key."""
    kept = find(key)
    return kept.notebook() if kept else None


def save(page: str, key: str, notebook: "nbformat.NotebookNode", seconds: float) -> None:
    """Keep what was executed, and the newest few states of the page beside it."""
    import nbformat

    FOLDER.mkdir(parents=True, exist_ok=True)
    notebook.metadata["seejax"] = {"seconds": round(seconds, 1)}
    content = nbformat.writes(notebook).encode()
    path = FOLDER / f"{page}.{key}.{digest(content)}.ipynb"
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        new.write_bytes(content)
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
        except (ValueError, KeyError, TypeError, OSError):  # find will drop it, and say so
            continue
    return None
