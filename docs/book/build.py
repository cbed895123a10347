"""Build the book: execute each page once, then both languages side by side.

    python -m book.build            # -> build/html/{zh,en} and build/html/index.html
    python -m book.build --serve    # the same, served, and rebuilt on every change

On Read the Docs (READTHEDOCS_OUTPUT is set) it builds READTHEDOCS_LANGUAGE alone, into the place
asked for.
"""

import argparse
import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book import policy
from book.execute import execute
from book.paths import BUILD, DOCS, LANGUAGES, PAGE_ENV, PLACES_ENV, ROOT, THEME, BuildError, say
from book.render import put_back, render, started
from book.tables import table

NO_PLACE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def targets() -> dict[str, Path]:
    """Where the site of each language goes; Read the Docs asks for one of them."""
    if "READTHEDOCS_OUTPUT" not in os.environ:
        return {language: BUILD / "html" / language for language in LANGUAGES}
    code = os.environ.get("READTHEDOCS_LANGUAGE", "")
    language = next((lang for lang in LANGUAGES if code.lower().startswith(lang)), None)
    if not language:
        raise BuildError(f"READTHEDOCS_LANGUAGE is {code!r}; this book has {', '.join(LANGUAGES)}")
    return {language: Path(os.environ["READTHEDOCS_OUTPUT"]) / "html"}


@contextlib.contextmanager
def alone() -> Iterator[int]:
    """One build at a time in a tree: a lock, which ends with the last process that holds it."""
    BUILD.mkdir(exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("build", "another build is at work here; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def build(draft: bool = False) -> Path:
    """Build what is asked for; return the page to open."""
    sites = targets()
    with alone() as lock:
        for out in sites.values():
            put_back(out)
        with started(sites, lock) as begun:
            for file in (DOCS / "data").glob("*.toml"):
                table(file.name)
            render(sites, execute(sites), lock, begun, draft)
    if len(sites) < len(LANGUAGES):
        return next(iter(sites.values())) / "index.html"
    choice = BUILD / "html" / "index.html"
    choice.write_text(policy.guarded((THEME / "choose.html").read_text("utf8")), "utf8")
    return choice


def serve(port: int) -> None:
    """Serve the site and build again on every change; the open page reloads itself."""
    from livereload import Server
    from livereload.watcher import Watcher
    from tornado.ioloop import PeriodicCallback

    class Quick(Watcher):
        def start(self, callback) -> Any:  # its own, which answers False, looks every 0.8 s
            PeriodicCallback(callback, 200).start()
            return True

    def rebuild() -> None:  # a process of its own: the server has an event loop, and so has a build
        # When it fails, the next save may mend it.
        subprocess.run([sys.executable, "-m", "book.build", "--draft"])

    server = Server(watcher=Quick())
    for pattern in ("docs/**/*.*", "examples/**/*.*"):
        server.watch(str(ROOT / pattern), rebuild)
    server.serve(root=str(BUILD / "html"), port=port, host="127.0.0.1")


def stop(*_) -> None:
    """SIGTERM ends a build as Ctrl-C does, even where that is ignored: under nohup, behind `&`."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--serve", action="store_true", help="serve, and rebuild on every change")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--draft", action="store_true", help="pages let a server add a script")
    args = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_"))]:
        del os.environ[name]  # what one machine tells JAX is no business of the pages
    os.environ.update(PAGE_ENV | PLACES_ENV)
    signal.signal(signal.SIGTERM, stop)
    begin = time.perf_counter()
    try:
        page = build(args.draft or args.serve)  # whose script reloads the open page
    except BuildError as error:
        print(f"\n{error}", file=sys.stderr)
        if not args.serve:
            return 1
    except OSError as error:
        if error.errno not in NO_PLACE:
            raise
        print(f"\n{error.filename or 'build'}: {error.strerror}", file=sys.stderr)
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
