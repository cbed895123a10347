"""Sphinx, once a language and both at once, upon what the last build has left; then publish."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat

from book import cache, policy
from book.export import markdown, notebooks
from book.paths import BUILD, DOCS, ROOT, BuildError, page_name, pages, say

WORK = BUILD / "sphinx"
EXECUTED = WORK / "executed"  # the notebooks of this build, as MyST-NB reads them

State = dict[str, Any]


def digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(paths))).hexdigest()


def state(language: str, executed: dict[Path, nbformat.NotebookNode]) -> State:
    """What a rendering is made of, beyond what Sphinx looks at by itself.

    It sees a changed template or setting; not the code of extensions, the words of the site, the
    style sheets that a page's links are stamped with, or what a page's cells show. A changed page
    it sees by the clock, which may have been set back, or have stood when the page was edited.
    """
    data = (path for path in (DOCS / "data").rglob("*") if path.is_file())
    package = ROOT / "examples" / "seejax"
    return {
        "machinery": digest([*(DOCS / "book").rglob("*.py"), *data]),
        "assets": digest(
            [*(DOCS / "_static").glob("*.*"), *package.rglob("*.css"), *package.rglob("*.js")]
        ),
        "pages": {
            page_name(page, language): digest([page])
            + (cache.content(executed[page]) if page in executed else "")
            for page in pages(language)
        },
    }


def forget(work: Path, now: State) -> None:
    """Remove what the last build has left and cannot be trusted: all, if it did not finish."""
    work.mkdir(parents=True, exist_ok=True)
    try:
        last = json.loads((work / "finished").read_text("utf8"))
        (work / "finished").unlink()
        shown, machinery, assets = (last[part] for part in ("pages", "machinery", "assets"))
    except (OSError, ValueError, LookupError, TypeError):
        shown, machinery, assets = {}, None, None
    if machinery != now["machinery"]:
        shutil.rmtree(work)
        work.mkdir()
        return
    for name, digest in now["pages"].items():
        if shown.get(name) != digest:  # Sphinx reads a page again that it has no tree of
            (work / "doctrees" / f"{name}.doctree").unlink(missing_ok=True)
    if assets != now["assets"]:
        for page in (work / "html").rglob("*.html"):  # and writes one that is not there
            page.unlink()


def sphinx(language: str, now: State, lock: int) -> subprocess.Popen:
    """Start Sphinx for one language; should we be killed, it holds our lock until it ends."""
    work = WORK / language
    forget(work, now)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
    command += ["-c", DOCS, "-t", language, "-D", f"nb_execution_cache_path={EXECUTED}"]
    return subprocess.Popen(
        [*command, "-d", work / "doctrees", DOCS / language, work / "html"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf8",
        pass_fds=[lock],
    )


def beside(out: Path, what: str) -> Path:
    """The site to come, or the one before, beside the one that is read."""
    return out.with_name(f"{out.name}.{what}")


def put_back(out: Path) -> None:
    """Bring back the last good site of a build that was killed while it put a new one in place."""
    old = beside(out, "old")
    if old.exists() and not out.exists():
        old.rename(out)


def stage(language: str, now: State, out: Path, draft: bool) -> None:
    """Put a finished site beside the place where it is read; there the last good one stays."""
    (WORK / language / "finished").write_text(json.dumps(now), "utf8")
    new = beside(out, "new")
    for leftover in (new, beside(out, "old")):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        shutil.copytree(WORK / language / "html", new)
        if not draft:
            policy.guard(new)
    except OSError as error:  # shutil.Error has a list of them
        why = error.strerror or error.args[0][0][2]
        raise BuildError(f"{new.relative_to(out.parents[1])}: {why}; the last site stays") from None


def publish(out: Path) -> None:
    """Put a staged site in its place, by two renames."""
    if out.exists():
        out.rename(beside(out, "old"))
    beside(out, "new").rename(out)
    shutil.rmtree(beside(out, "old"), ignore_errors=True)


def render(
    targets: dict[str, Path],
    executed: dict[Path, nbformat.NotebookNode],
    lock: int,
    draft: bool = False,
) -> None:
    """Both languages at once; every warning is an error. A draft's pages have no policy.

    Args:
      lock: the descriptor that says that this build is at work.
    """
    begin = time.perf_counter()
    cache.hand_over(executed.values(), EXECUTED)
    states = {language: state(language, executed) for language in targets}
    running: dict[str, subprocess.Popen] = {}
    failed = []
    try:
        for language in targets:
            running[language] = sphinx(language, states[language], lock)
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
            with process:  # which waits for it, and closes what it wrote to
                process.kill()
    if failed:
        raise BuildError(f"Sphinx failed: {', '.join(failed)} (a warning is an error here)")
    for language, out in targets.items():
        notebooks.write(language, executed, WORK / language / "html")
        markdown.write(language, executed, WORK / language / "html")
        stage(language, states[language], out, draft)
    for out in targets.values():  # all is well
        publish(out)
