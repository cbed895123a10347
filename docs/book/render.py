"""Sphinx for each language that has changed, upon what the last build has left; then publish."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from book import policy
from book.cache import Kept
from book.paths import BUILD, DOCS, LANGUAGES, ROOT, THEME, BuildError, page_name, pages, say

WORK = BUILD / "sphinx"
EXECUTED = WORK / "executed"  # the notebooks of this build, as MyST-NB reads them

State = dict[str, Any]
Manifest = dict[str, list]  # of the files of a site: what was made of which


def digest(paths: Iterable[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(paths))).hexdigest()


def state(language: str, executed: dict[Path, Kept]) -> State:
    """What a rendering is made of, beyond what Sphinx looks at by itself.

    It sees a changed template or setting; not the code of extensions, the words of the site, the
    style sheets that a page's links are stamped with, or what a page's cells show. A changed page
    it sees by the clock, which may have been set back, or have stood when the page was edited.
    """
    files = [path for path in (DOCS / "data").rglob("*") if path.is_file()]
    files += [*(DOCS / "book").rglob("*.py"), DOCS / "conf.py"]
    files += [ROOT / "pyproject.toml", ROOT / "requirements.lock"]
    package = ROOT / "examples" / "seejax"
    dress = [*THEME.rglob("*.*"), *package.rglob("*.css"), *package.rglob("*.js")]
    source = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    shown = {
        page_name(page, language): executed[page].digest
        for page in pages(language)
        if page in executed
    }
    texts = {page_name(page, language): digest([page]) for page in pages(language)}
    return {
        "machinery": digest(files),
        "assets": digest(dress),
        "package": digest(source),  # what pages include, and what `api` documents
        "environment": {name: os.environ.get(name) for name in SEEN},
        "shown": shown,
        "pages": {name: text + shown.get(name, "") for name, text in texts.items()},
    }


SEEN = ("READTHEDOCS_CANONICAL_URL", "READTHEDOCS_GIT_CLONE_URL", "READTHEDOCS_VERSION")


def last_state(work: Path) -> State:
    """What the last finished rendering was made of; nothing if there is none."""
    try:
        found = json.loads((work / "finished").read_text("utf8"))
        return found if found.keys() >= {"machinery", "assets", "pages", "shown"} else {}
    except (OSError, ValueError, AttributeError):
        return {}


def changed_pages(work: Path, now: State) -> set[str]:
    """The pages that are not what they were; all of them where anything else has changed."""
    last = last_state(work)
    if any(last.get(part) != now[part] for part in now.keys() - {"pages", "shown", "draft"}):
        return {*now["pages"]}
    changed = {name for name, page in now["pages"].items() if last["pages"].get(name) != page}
    # the page about counts what the others hold
    return changed | ({"about"} if last["shown"] != now["shown"] else set())


def forget(work: Path, now: State) -> None:
    """Remove what the last build has left and cannot be trusted: all, if it did not finish."""
    work.mkdir(parents=True, exist_ok=True)
    last, changed = last_state(work), changed_pages(work, now)
    (work / "finished").unlink(missing_ok=True)
    if last.get("machinery") != now["machinery"] or last.get("environment") != now["environment"]:
        shutil.rmtree(work)
        work.mkdir()
        return
    if last.get("package") != now["package"]:  # its imports say what notebooks have to install
        shutil.rmtree(work / "html" / "notebooks", ignore_errors=True)
    for name in changed:  # Sphinx reads a page again that it has no tree of
        (work / "doctrees" / f"{name}.doctree").unlink(missing_ok=True)
    if last["assets"] != now["assets"]:
        for page in (work / "html").rglob("*.html"):  # and writes one that is not there
            page.unlink()


def hand_over(executed: Iterable[Kept]) -> None:
    """Put what was executed where MyST-NB looks for it; what lies there already, stays."""
    wanted = {kept.path.name.split(".")[0]: kept for kept in executed}
    note = EXECUTED / "handed over"
    try:
        there = json.loads(note.read_text("utf8"))
    except (OSError, ValueError):
        shutil.rmtree(EXECUTED, ignore_errors=True)
        there = {}
    new = {page: kept for page, kept in wanted.items() if there.get(page) != kept.digest}
    if not new:
        return
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    note.unlink(missing_ok=True)  # should this be killed, all is handed over again
    cache = get_cache(EXECUTED)
    for kept in new.values():
        bundle = CacheBundleIn(kept.notebook(), "")
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    digests = {page: kept.digest for page, kept in wanted.items()}
    note.write_text(json.dumps(there | digests), "utf8")


# Sphinx takes a second to import: so it is started early, and waits for what to do. What it imports
# by then is not ours: that may be edited meanwhile.
WAITING = """
import json, sys
import myst_nb, sphinx_book_theme
from jupyter_cache.cache import db
from sphinx.cmd.build import main
order = sys.stdin.readline()
sys.exit(main(json.loads(order)) if order else 0)
"""


def start(lock: int) -> subprocess.Popen:
    """Start a Sphinx that waits; once it is at work it holds our lock until it ends."""
    return subprocess.Popen(
        [sys.executable, "-c", WAITING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf8",
        pass_fds=[lock],
    )


@contextlib.contextmanager
def started(targets: dict[str, Path], lock: int) -> Iterator[dict[str, subprocess.Popen]]:
    """A Sphinx for each language of which something seems to have changed since it was rendered."""
    places = [DOCS, ROOT / "examples" / "seejax"]
    begun = {language: start(lock) for language in targets if is_older(WORK / language, places)}
    try:
        yield begun
    finally:
        for process in begun.values():
            with process:  # which waits for it, and closes its pipes
                process.kill()


def is_older(work: Path, places: Iterable[Path]) -> bool:
    """Whether a finished rendering is older than a file in these; a guess, by the clock."""
    try:
        then = (work / "finished").stat().st_mtime
    except OSError:
        return False  # the pages may have to be executed first, for minutes
    other = {*LANGUAGES} - {work.name}
    for place in places:
        for folder, folders, files in os.walk(place):
            folders[:] = {*folders} - {"__pycache__"} - other
            if any(os.stat(os.path.join(folder, file)).st_mtime > then for file in files):
                return True
    return False


def send(process: subprocess.Popen, language: str, now: State) -> None:
    """Tell a waiting Sphinx to render a language."""
    work = WORK / language
    forget(work, now)
    order = ["-b", "html", "-q", "-W", "--keep-going", "-c", DOCS, "-t", language]
    order += ["-D", f"nb_execution_cache_path={EXECUTED}", "-d", work / "doctrees"]
    order += [DOCS / language, work / "html"]
    assert process.stdin
    process.stdin.write(json.dumps([*map(str, order)]) + "\n")
    process.stdin.flush()


def beside(out: Path, what: str) -> Path:
    """The site to come, or the one before, beside the one that is read."""
    return out.with_name(f"{out.name}.{what}")


def put_back(out: Path) -> None:
    """Bring back the last good site of a build that was killed while it put a new one in place."""
    old = beside(out, "old")
    if old.exists() and not out.exists():
        old.rename(out)


def stamp(file: Path) -> list[int]:
    """What tells of a file that it was written since: its time and its size."""
    found = file.stat()
    return [found.st_mtime_ns, found.st_size]


def manifest(language: str) -> Path:
    return WORK / language / "published"


def is_published(language: str, out: Path) -> bool:
    """Whether the site that is read is the one that was put there last, every file of it."""
    try:
        known = json.loads(manifest(language).read_text("utf8"))["files"]
        return bool(known) and all(stamp(out / name) == made for name, (_, made) in known.items())
    except (OSError, ValueError, LookupError, TypeError):
        return False


def link(source: Path, target: Path) -> None:
    """The same file at another place; a copy, with its time, where a disk knows no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def stage(language: str, now: State, out: Path, draft: bool) -> None:
    """Put a finished site beside the place where it is read; there the last good one stays.

    A file that is as it was is linked from there, not written again.
    """
    made, new = WORK / language / "html", beside(out, "new")
    for leftover in (new, beside(out, "old")):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        last = json.loads(manifest(language).read_text("utf8"))
        before = last["files"] if last["draft"] == draft else {}
    except (OSError, ValueError, LookupError, TypeError):
        before = {}
    files: Manifest = {}
    try:
        for file in filter(Path.is_file, made.rglob("*")):
            name = file.relative_to(made).as_posix()
            source, published, target = stamp(file), out / name, new / name
            target.parent.mkdir(parents=True, exist_ok=True)
            known = before.get(name)
            if known and known[0] == source and published.exists() and stamp(published) == known[1]:
                link(published, target)
            elif file.suffix == ".html" and not draft:
                target.write_text(policy.guarded(file.read_text("utf8")), "utf8")
            else:
                shutil.copyfile(file, target)
            files[name] = [source, stamp(target)]
        manifest(language).write_text(json.dumps({"draft": draft, "files": files}), "utf8")
        (WORK / language / "finished").write_text(json.dumps(now), "utf8")
    except OSError as error:
        place = new.relative_to(out.parents[1])
        raise BuildError(f"{place}: {error.strerror}; the last site stays") from None


def publish(out: Path) -> None:
    """Put a staged site in its place, by two renames."""
    if out.exists():
        out.rename(beside(out, "old"))
    beside(out, "new").rename(out)
    shutil.rmtree(beside(out, "old"), ignore_errors=True)


def render(
    targets: dict[str, Path],
    executed: dict[Path, Kept],
    lock: int,
    begun: dict[str, subprocess.Popen],
    draft: bool = False,
) -> None:
    """Each language that has changed, all at once; every warning is an error.

    Args:
      lock: the descriptor that says that this build is at work.
      begun: the Sphinx of each language that waits already; who gave it ends it.
      draft: the pages have no policy, so that a server may add its script.
    """
    begin = time.perf_counter()
    states = {language: state(language, executed) | {"draft": draft} for language in targets}
    stale = {
        language: out
        for language, out in targets.items()
        if last_state(WORK / language) != states[language] or not is_published(language, out)
    }
    for language in targets.keys() - stale.keys():
        say(language, "nothing has changed")
    if not stale:
        return
    hand_over(executed.values())
    for language in stale:
        begun[language] = begun.get(language) or start(lock)
        send(begun[language], language, states[language])
    failed = []
    for language in stale:
        output = begun[language].communicate()[0].replace(f"{ROOT}{os.sep}", "")
        for line in output.splitlines():
            say(language, line)
        if begun[language].returncode:
            failed.append(language)
        else:
            count = len(pages(language))
            say(language, f"{count} pages in {time.perf_counter() - begin:.1f} s")
    if failed:
        raise BuildError(f"Sphinx failed: {', '.join(failed)} (a warning is an error here)")
    for language, out in stale.items():
        stage(language, states[language], out, draft)
    for out in stale.values():  # all is well
        publish(out)
