"""A small book built as the real one is: what fails is named, what is interrupted does no harm."""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[1]

INDEX = """\
(index)=
# {book}

```{{toctree}}
page
```

{{ref}}`page-next`
"""

PAGE = """\
---
file_format: mystnb
kernelspec:
  name: python3
---
(page)=
# {title}

{prose}

```{{code-cell}}
from seejax import tiny

tiny.value
```

(page-next)=
## {title} 2

```{{code-cell}}
:tags: [raises-exception]

1 / 0
```
"""

# A page that says when it runs and does not end the first time: for stopping it in the middle.
SLOW = """
```{code-cell}
import os, pathlib, time

mark = pathlib.Path(os.environ["SLOW_MARK"])
begun = mark.exists()
mark.write_text(str(os.getpid()))
time.sleep(0 if begun else 600)
```
"""

# What a build may reach when the network is off: its own machine.
GUARD = """\
import socket

connect = socket.socket.connect

def connect_here(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise RuntimeError(f"the network was asked for {address}")
    return connect(self, address)

socket.socket.connect = socket.socket.connect_ex = connect_here
"""

LOOPBACK_UP = """\
import fcntl, socket, struct, sys, os
request = struct.pack("16sh", b"lo", 1)  # IFF_UP
fcntl.ioctl(socket.socket(), 0x8914, request)  # SIOCSIFFLAGS
os.execv(sys.argv[1], sys.argv[1:])
"""


class Book:
    """A book of two pages with the real book's machinery, and the ways to build it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.html = root / "build" / "html"
        self.mark = root / "mark"

    def write(self) -> None:
        machinery = shutil.ignore_patterns("zh", "en", "__pycache__")
        shutil.copytree(ROOT / "docs", self.root / "docs", ignore=machinery)
        shutil.copytree(ROOT / "examples", self.root / "examples", ignore=machinery)
        shutil.copy(ROOT / "requirements.lock", self.root)
        (self.root / "examples" / "seejax" / "tiny.py").write_text("value = 41 + 1\n")
        for language, book, title, prose in (
            ("zh", "小书", "追踪", "第一版。"),
            ("en", "Small book", "Tracing", "First edition."),
        ):
            (self.root / "docs" / language).mkdir()
            self.page(language, "index").write_text(INDEX.format(book=book), "utf8")
            self.page(language).write_text(PAGE.format(title=title, prose=prose), "utf8")

    def copy(self, root: Path) -> "Book":
        shutil.copytree(self.root, root, symlinks=True)
        return Book(root)

    def page(self, language: str, name: str = "page") -> Path:
        return self.root / "docs" / language / f"{name}.md"

    def edit(self, old: str, new: str, *languages: str, name: str = "page") -> None:
        for language in languages or ("zh", "en"):
            text = self.page(language, name).read_text("utf8")
            assert old in text
            self.page(language, name).write_text(text.replace(old, new), "utf8")

    def start(self, *before: str, serve: int = 0, **variables: str) -> subprocess.Popen:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("READTHEDOCS")}
        places = ("guard", "docs", "examples")
        path = os.pathsep.join(str(self.root / place) for place in places)
        return subprocess.Popen(
            [*before, sys.executable, "-m", "tools.build"]
            + (["--serve", "--port", str(serve)] if serve else []),
            env={**clean, "PYTHONPATH": path, "SLOW_MARK": str(self.mark), **variables},
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf8",
            start_new_session=True,
        )

    def build(self, *before: str, fails: bool = False, **variables: str) -> str:
        process = self.start(*before, **variables)
        try:
            output, _ = process.communicate(timeout=90)
        finally:
            stop(process)
        assert bool(process.returncode) == fails, output
        assert "Traceback (most recent call last)" not in output
        return output

    def shown(self, language: str, name: str = "page") -> str:
        return (self.html / language / f"{name}.html").read_text("utf8")

    def outputs(self, language: str) -> list[str]:
        return outputs(self.html / language / "page.html")

    def site(self) -> str:
        """A digest of everything that is published."""
        digest = hashlib.sha256()
        for path in sorted(p for p in self.html.rglob("*") if p.is_file()):
            digest.update(str(path.relative_to(self.html)).encode() + path.read_bytes())
        return digest.hexdigest()


def stop(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True).stdout
    return bool(state) and not state.startswith(b"Z")


def outputs(path: Path) -> list[str]:
    """What the cells of a built page show."""
    page = BeautifulSoup(path.read_text("utf8"), "html.parser")
    return [cell.get_text(" ", strip=True) for cell in page.select(".cell_output")]


def executed(output: str) -> int:
    return int(re.search(r"(\d+) cells executed", output)[1])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The book, built once; its tests take copies."""
    book = Book(tmp_path_factory.mktemp("book"))
    book.write()
    output = book.build()
    assert executed(output) == 2, "the two languages run their two cells once"
    return book


@pytest.fixture
def book(built: Book, tmp_path: Path) -> Iterator[Book]:
    yield built.copy(tmp_path / "book")


def test_both_languages_show_what_was_executed(built: Book) -> None:
    for language, lang in (("zh", "zh-CN"), ("en", "en")):
        assert f'<html lang="{lang}"' in built.shown(language)
        assert built.outputs(language)[0] == "42"
        assert "ZeroDivisionError" in built.outputs(language)[1]
    assert (built.html / "index.html").exists()


def test_only_what_changed_is_executed(book: Book) -> None:
    assert executed(book.build()) == 0
    book.edit("第一版。", "第二版。", "zh")
    assert executed(book.build()) == 0
    assert "第二版。" in book.shown("zh") and "First edition." in book.shown("en")
    (book.root / "examples" / "seejax" / "tiny.py").write_text("value = 40 + 3\n")
    assert executed(book.build()) == 2
    assert all("43" in book.outputs(language)[0] for language in ("zh", "en"))


def test_changed_machinery_is_seen_on_every_page_and_executes_nothing(book: Book) -> None:
    assert executed(book.build()) == 0  # a copy is at another place, and so rendered anew once
    extension = book.root / "docs" / "_ext" / "languages.py"
    extension.write_text(extension.read_text("utf8").replace('"English"', '"Anglais"'), "utf8")
    assert executed(book.build()) == 0
    assert "Anglais" in book.shown("zh") and "Anglais" in book.shown("zh", "index")
    for name, new in (("see.css", "/* new */"), ("figures.mplstyle", "# new")):
        style = book.root / "examples" / "seejax" / "see" / name
        style.write_text(style.read_text("utf8") + new)
        assert executed(book.build()) == 2, "pictures carry their style: it is part of the package"


def test_failing_cells_are_named_by_page_line_and_error(book: Book) -> None:
    before = book.site()
    (book.root / "examples" / "seejax" / "tiny.py").unlink()
    failing = "\n```{code-cell}\n:tags: [hide-cell]\n\nx = 1\nassert x == 2, 'no'\n```\n"
    silent = "\n```{code-cell}\n:tags: [raises-exception]\n\ny = 1\n```\n"
    head = PAGE.split("(page)=")[0].format() + "(more)=\n# More\n"
    for name, cell in (("failing", failing), ("silent", silent)):
        for language in ("zh", "en"):
            book.page(language, name).write_text(head + cell)
    output = book.build(fails=True)
    assert "docs/zh/page.md:12: cell 1: " in output and "tiny" in output
    assert "ImportError" in output or "ModuleNotFoundError" in output
    assert "docs/zh/failing.md:13: cell 1: AssertionError: no" in output
    assert "docs/zh/silent.md:12: cell 1: is tagged raises-exception but did not raise" in output
    assert "docs/en" not in output, "the cells are the same, one report is enough"
    assert book.site() == before, "the last good site stays"


def test_every_warning_of_sphinx_ends_the_build(book: Book) -> None:
    before = book.site()
    book.edit("{ref}`page-next`", "{ref}`page-nowhere` [x](#nowhere)", "en", name="index")
    book.edit("(page-next)=\n", "", "zh")
    book.edit("第一版。", "$\\notacommand x$", "zh")
    output = book.build(fails=True)
    assert re.search(r"docs/en/index\.md:8: .*page-nowhere", output)
    assert re.search(r"docs/en/index\.md:8: .*nowhere", output.replace("page-nowhere", ""))
    assert re.search(r"docs/zh/page\.md:\d+: .*'追踪 2' has no \(anchor\)=", output)
    assert re.search(r"docs/zh/page\.md:\d+: .*notacommand", output)
    assert "docs/zh/index.md:8: " in output, "the anchor that is gone was linked there"
    assert str(book.root) not in output, "paths are short enough to read"
    assert book.site() == before, "the last good site stays"
    assert "Sphinx failed: " in book.build(fails=True), "and it fails again until it is mended"


def flip_a_byte(cache: Path) -> None:
    (notebook,) = cache.rglob("*.ipynb")
    data = notebook.read_bytes()
    assert data.count(b'"42"') == 1  # the output; the name of a cell may hold these digits, too
    notebook.write_bytes(data.replace(b'"42"', b'"47"'))


def truncate_the_records(cache: Path) -> None:
    (records,) = cache.rglob("*.db")
    records.write_bytes(records.read_bytes()[:5000])


def lose_the_notebook(cache: Path) -> None:
    (notebook,) = cache.rglob("*.ipynb")
    shutil.rmtree(notebook.parent)


@pytest.mark.parametrize("corrupt", [flip_a_byte, truncate_the_records, lose_the_notebook])
def test_a_corrupted_cache_is_rebuilt_and_never_shown(
    book: Book, corrupt: Callable[[Path], None]
) -> None:
    corrupt(book.root / "build" / "cache")
    out = {"READTHEDOCS_LANGUAGE": "en", "READTHEDOCS_OUTPUT": str(book.root / "out")}
    output = book.build(**out)  # one language: it is about the cache, and quicker
    assert executed(output) == 2 and "cache dropped" in output
    shown = outputs(book.root / "out" / "html" / "page.html")
    assert shown[0] == "42" and "ZeroDivisionError" in shown[1]
    assert executed(book.build(**out)) == 0


def during_execution(book: Book) -> bool:
    return book.mark.exists() and book.mark.read_text() != ""


def begun(book: Book, pattern: str) -> bool:
    written = (book.root / "build" / "sphinx").rglob(pattern)
    return any(path.stat().st_mtime > book.mark.stat().st_mtime for path in written)


def during_reading(book: Book) -> bool:
    return begun(book, "*.doctree")


def during_writing(book: Book) -> bool:
    return begun(book, "index.html")


@pytest.mark.parametrize(
    ("when", "how"),
    [
        (during_execution, signal.SIGKILL),
        (during_execution, signal.SIGINT),
        (during_execution, signal.SIGTERM),
        (during_reading, signal.SIGKILL),
        (during_writing, signal.SIGKILL),
        (during_writing, signal.SIGINT),
    ],
)
def test_a_stopped_build_harms_nothing(
    book: Book, when: Callable[[Book], bool], how: signal.Signals
) -> None:
    book.edit("第一版。", "第二版。", "zh")
    if when is during_execution:
        for language in ("zh", "en"):
            page = book.page(language)
            page.write_text(page.read_text("utf8") + SLOW, "utf8")
    else:
        book.mark.touch()
    before = book.site()
    process = book.start()
    try:
        wait_until(lambda: when(book) or process.poll() is not None)
        assert process.poll() is None, process.stdout.read()
        os.killpg(process.pid, how)
        output, _ = process.communicate(timeout=20)
    finally:
        stop(process)
    assert process.returncode, "a stopped build is not a good one"
    assert "Traceback (most recent call last)" not in output
    if how != signal.SIGKILL:
        assert "stopped; the next build goes on from here" in output
    if when is during_execution:
        kernel = int(book.mark.read_text())
        wait_until(lambda: not alive(kernel), seconds=10)
    assert book.site() == before, "the last good site stays"
    output = book.build()
    assert executed(output) == (3 if when is during_execution else 0)
    assert "第二版。" in book.shown("zh") and "First edition." in book.shown("en")


def test_two_builds_at_once_do_not_meet(book: Book) -> None:
    book.edit("tiny.value", "tiny.value + 1")
    running = [book.start(), book.start()]
    try:
        outputs = [process.communicate(timeout=90)[0] for process in running]
    finally:
        for process in running:
            stop(process)
    assert [process.returncode for process in running] == [0, 0], outputs
    assert sorted(map(executed, outputs)) == [0, 2]
    assert sum("another build is at work here" in output for output in outputs) == 1
    assert book.outputs("zh")[0] == book.outputs("en")[0] == "43"


@pytest.mark.parametrize(
    ("code", "language", "lang", "slug", "other"),
    [("zh-cn", "zh", "zh-CN", "zh-cn", "en"), ("en", "en", "en", "en", "zh-cn")],
)
def test_read_the_docs_gets_one_language_that_links_to_the_other(
    book: Book, code: str, language: str, lang: str, slug: str, other: str
) -> None:
    out = book.root / "read the docs"
    shutil.rmtree(book.html)
    book.build(
        READTHEDOCS="True",
        READTHEDOCS_LANGUAGE=code,
        READTHEDOCS_CANONICAL_URL=f"https://see-jax.example/{slug}/latest/",
        READTHEDOCS_OUTPUT=str(out),
    )
    assert not book.html.exists()
    page = BeautifulSoup((out / "html" / "page.html").read_text("utf8"), "html.parser")
    assert page.html["lang"] == lang
    canonical = page.select_one("link[rel=canonical]")["href"]
    assert canonical == f"https://see-jax.example/{slug}/latest/page.html"
    alternates = {link["hreflang"]: link["href"] for link in page.select("link[hreflang]")}
    assert alternates == {
        "zh-CN": "https://see-jax.example/zh-cn/latest/page.html",
        "en": "https://see-jax.example/en/latest/page.html",
        "x-default": "https://see-jax.example/en/latest/page.html",
    }
    switch = page.select_one("a.language-switch")["href"]
    assert switch == f"https://see-jax.example/{other}/latest/page.html"
    assert {p.name for p in out.iterdir()} == {"html"}


@pytest.mark.parametrize("code", ["fr", ""])
def test_a_language_that_the_book_does_not_have_is_refused(
    built: Book, tmp_path: Path, code: str
) -> None:
    output = built.build(fails=True, READTHEDOCS_OUTPUT=str(tmp_path), READTHEDOCS_LANGUAGE=code)
    assert f"READTHEDOCS_LANGUAGE is {code!r}; this book has zh, en" in output
    assert not any(tmp_path.iterdir())


def test_a_build_needs_no_network(book: Book) -> None:
    """Without a network where the system lets us take it away, and with a guard everywhere."""
    (book.root / "guard").mkdir()
    (book.root / "guard" / "sitecustomize.py").write_text(GUARD)
    shutil.rmtree(book.root / "build")
    reach = "import socket; socket.create_connection(('192.0.2.1', 9), 1)"
    guarded = {**os.environ, "PYTHONPATH": str(book.root / "guard")}
    probe = subprocess.run([sys.executable, "-c", reach], env=guarded, capture_output=True)
    assert b"the network was asked for" in probe.stderr, "the guard guards"
    without = ["unshare", "--net", "--map-root-user", sys.executable, "-c", LOOPBACK_UP]
    permitted = (
        shutil.which("unshare")
        and not subprocess.run([*without, sys.executable, "-c", ""], capture_output=True).returncode
    )
    assert executed(book.build(*(without if permitted else []))) == 2


def test_the_served_site_follows_an_edit_and_outlives_a_fault(book: Book) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def read() -> str:
        with contextlib.suppress(OSError):
            address = f"http://127.0.0.1:{port}/zh/page.html"
            with urllib.request.urlopen(address, timeout=5) as page:
                return page.read().decode("utf8")
        return ""

    process = book.start(serve=port)
    try:
        wait_until(lambda: "第一版。" in read())
        book.edit("(page-next)=\n", "", "zh")  # a fault: it is told, and the last good site stays
        finished = book.root / "build" / "sphinx" / "zh" / "finished"
        wait_until(lambda: book.page("zh").touch() or not finished.exists())  # until it is seen
        wait_until(lambda: "第一版。" in read())  # it answers between builds
        assert process.poll() is None
        book.edit("## 追踪 2", "(page-next)=\n## 追踪 2", "zh")
        book.edit("第一版。", "第二版。", "zh")
        wait_until(lambda: "第二版。" in read())
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    finally:
        stop(process)
    assert "Sphinx failed: zh" in output
    assert "Traceback (most recent call last)" not in output
