"""What tests and doctests meet: eight CPU devices, and a JAX that promotes nothing silently.

>>> jax.device_count()
8
>>> for mixed in ("int8", (2,)), ("float32", (3, 2)):
...     try:
...         jnp.ones(2) + jnp.ones(mixed[1], mixed[0])
...     except ValueError:
...         print(*mixed, "refused")
int8 (2,) refused
float32 (3, 2) refused
"""

import contextlib
import doctest
import fcntl
import functools
import http.server
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from book import paths

# JAX and TFDS read these when they start, so they come before their import.
os.environ.update(paths.PAGE_ENV | paths.PLACES_ENV)

import jax
import jax.numpy as jnp
import pytest

import processes

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Behind `&` in a script and under nohup SIGINT is ignored, and what is started inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


# The fixtures that need the built site, a browser, or the build of a small book.
NEEDS = {"site": "site", "browser": "browser"}
NEEDS |= dict.fromkeys(("built", "small", "public"), "build")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test by what its fixtures need: `make check` leaves the marked ones out."""
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in NEEDS:
                item.add_marker(NEEDS[fixture])


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace: dict) -> None:
    """The names that a doctest may use without importing them, in modules and pages alike."""
    doctest_namespace.update(jax=jax, jnp=jnp)


@pytest.fixture
def plain_numpy() -> Iterator[None]:
    """JAX promotes as it does for everybody: what is looked at was not written for this book."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


class MarkdownParser(doctest.DocTestParser):
    r"""Finds examples in pages, where a closing fence ends the output as an empty line does.

    >>> [(e.lineno, e.want) for e in MarkdownParser().get_examples("```\n>>> 1 + 1\n2\n```\nSo.")]
    [(1, '2\n')]
    """

    def parse(self, string: str, name: str = "<string>") -> list:
        fence = re.compile(r"^ *(`{3,}|~{3,}|:{3,}).*$", re.MULTILINE)
        return super().parse(fence.sub("", string), name)


doctest.DocTestParser = MarkdownParser  # pytest takes it for text files; modules keep their own


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """What a test has started ends with it, however it ends."""
    yield
    processes.stop_all()


@pytest.fixture(scope="module")  # while it lives, asyncio.run is refused in its thread
def browser() -> Iterator["Browser"]:
    """A real Chromium, never left out; a busy machine has a minute for what it does."""
    from playwright.sync_api import expect

    from book import chromium

    expect.set_options(timeout=60_000)
    with chromium.launched() as browser:
        yield browser


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *request) -> None:
        """Say nothing of a browser that went on before it had the file."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*request)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a folder once for all workers: the first that asks makes it, the others wait for it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, complete = shared / name, shared / f"{name}.complete"
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                complete.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """Serve a folder on this machine; return its address."""
    with contextlib.ExitStack() as stack:

        def served(folder: Path) -> str:
            handler = functools.partial(Quiet, directory=folder)
            server = Server(("127.0.0.1", 0), handler)
            stack.callback(server.server_close)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield served


@pytest.fixture(scope="session")
def data_dir(made_once: Callable[..., Path]) -> Path:
    """A folder in which the handwritten digits are prepared."""
    from seejax.training import digits

    return made_once("tfds", lambda folder: digits.load("digits", "train", folder))


@pytest.fixture(scope="module")
def compiled_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """A program that was compiled before is read from build/: here, and in started processes.

    Not for what looks at a program: JAX finds it by what it computes, and the names and lines in
    it may be those of another source. JAX does not write a file of this cache at once, so what
    an interrupted run has left is thrown away, and so is what processes wrote that were killed.
    """
    from jax.experimental.compilation_cache import compilation_cache

    folder = paths.BUILD / "xla" / request.module.__name__
    complete = folder / "complete"
    if not complete.exists() or hasattr(request.module, "Process"):
        shutil.rmtree(folder, ignore_errors=True)
    complete.unlink(missing_ok=True)
    cached = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.05,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in cached}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cached.items():
            jax.config.update(name, value)
            patch.setenv(name.upper(), str(value))
        compilation_cache.reset_cache()
        yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    folder.mkdir(parents=True, exist_ok=True)
    complete.touch()


@pytest.fixture(scope="module")
def hardly_optimized() -> Iterator[None]:
    """XLA compiles in half the time, and what it makes is slower: for mathematics, not for bits."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
