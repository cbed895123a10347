"""A small book built as the real one is: what fails is named, what is interrupted does no harm."""

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from processes import Process, alive, wait_until
from small_book import HEAD, Book, executed, outputs

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


def test_both_languages_show_what_was_executed(built: Book) -> None:
    for language, lang in (("zh", "zh-CN"), ("en", "en")):
        assert f'<html lang="{lang}"' in built.shown(language)
        assert built.outputs(language)[0] == "42"
        assert "ZeroDivisionError" in built.outputs(language)[1]
        assert "Content-Security-Policy" in built.shown(language)
    assert "Content-Security-Policy" in (built.html / "index.html").read_text("utf8")


def test_only_what_changed_is_executed(book: Book) -> None:
    assert executed(book.build()) == 0
    book.edit("第一版。", "第二版。", "zh")
    assert executed(book.build()) == 0
    assert "第二版。" in book.shown("zh") and "First edition." in book.shown("en")
    book.module("tiny", "value = 40 + 3\n")
    assert executed(book.build()) == 2
    assert all("43" in book.outputs(language)[0] for language in ("zh", "en"))


def test_a_page_is_executed_again_only_for_what_it_imports_or_reads(book: Book) -> None:
    """Each page has its own number of cells, so that the count says which were executed."""
    results = book.root / "bench" / "results.json"
    results.parent.mkdir()
    results.write_text("1")
    book.module("inner", "value = 1\n")
    outer = "from seejax import inner\n\n\ndef value():\n    return inner.value\n"
    book.module("outer", outer)
    book.add("reader", f"open('{results.parent}' + '/results.json').read()", *"123")  # 4 cells
    book.add("importer", "from seejax import outer\nouter.value()", *"1234567")  # 8 cells
    assert book.execute() == 4 + 8, "what had been executed before is not executed again"

    book.module("inner", "value = 2\n")  # an indirect import
    assert book.execute() == 8
    book.module("outer", outer.replace("from seejax import", "from . import"))
    book.module("inner", "value = 3\n")
    results.write_text("2")
    assert book.execute() == 4 + 8
    book.module("tiny", "value = 41 + 1  # one page shows this\n")
    output = book.build_en()
    assert executed(output) == 2
    assert outputs(book.out / "reader.html")[0] == "'2'"
    assert outputs(book.out / "importer.html")[0] == "3"

    results.write_text("1")  # back, as after git switch
    book.module("tiny", "value = 41 + 1\n")
    book.module("inner", "value = 1\n")
    book.module("outer", outer)
    assert executed(book.build_en()) == 0
    assert outputs(book.out / "reader.html")[0] == "'1'", "what is shown is of that state, too"
    assert outputs(book.out / "importer.html")[0] == "1"


def test_changed_style_and_script_execute_nothing_and_are_on_every_page(book: Book) -> None:
    book.add("importer", "from seejax import see\nsee.calls(lambda x: x)")
    assert executed(book.build_en()) == 1
    shown = (book.out / "importer.html").read_text("utf8")
    assert 'class="see' in shown and "data-seejax" not in shown
    link = re.search(r"see\.css\?v=\w+", shown)[0]
    for name in ("see.css", "see.js"):
        (file,) = (book.root / "examples").rglob(name)
        file.write_text(file.read_text("utf8") + "\n/* new */\n", "utf8")
    assert executed(book.build_en()) == 0
    shown = (book.out / "importer.html").read_text("utf8")
    assert "data-seejax" not in shown, "the copy that the cell has shown is not on the page"
    assert link not in shown and "see.css?v=" in shown, "no reader keeps the old one"
    assert "/* new */" in (book.out / "_static" / "see.css").read_text("utf8")


def test_a_changed_theme_is_seen_on_every_page_and_executes_nothing(book: Book) -> None:
    pages = [book.out / f"{name}.html" for name in ("page", "index")]
    book.build_en()
    theme = book.root / "docs" / "theme"
    for name, old, new, shown in (
        ("parts/copyright.html", "©", "Copyright", "Copyright "),
        ("page/book.css", "--bar: 3.25rem", "--bar: 3.5rem", "site.css?v="),
        ("page/copy.js", '"copy"', '"copies"', "site.js?v="),
    ):
        before = [page.read_text("utf8") for page in pages]
        file = theme / name
        text = file.read_text("utf8")
        assert old in text
        file.write_text(text.replace(old, new), "utf8")
        assert executed(book.build_en()) == 0
        for page, last in zip(pages, before, strict=True):
            line = next(line for line in page.read_text("utf8").splitlines() if shown in line)
            assert line not in last, f"{name} has changed, {page.name} has not"


def test_changed_machinery_is_seen_on_every_page_and_executes_nothing(book: Book) -> None:
    assert executed(book.build()) == 0  # a copy is at another place, and so rendered anew once
    extension = book.root / "docs" / "book" / "extensions" / "languages.py"
    extension.write_text(extension.read_text("utf8") + "\nprint('so it is read')\n", "utf8")
    words = book.root / "docs" / "data" / "words.toml"
    words.write_text(words.read_text("utf8").replace("跳到正文", "直接看正文"), "utf8")
    output = book.build()
    assert executed(output) == 0 and "zh │ so it is read" in output
    assert all("直接看正文" in book.shown("zh", name) for name in ("page", "index"))


def test_a_cell_that_measures_runs_when_no_other_does(book: Book) -> None:
    log = book.root / "log"
    start = f"import threading\ndef log(what): print(what, file=open('{log}', 'a'))"
    clock = "from time import perf_counter"
    cells = {"long": ("1", 40), "clock": (clock, 9), "magic": ("%time 1", 8), "short": ("1", 3)}
    for name, (first, count) in cells.items():  # which begin in this order, two at once
        body = f"log('begin {name}')\nthreading.Event().wait(0.1)\nlog('end {name}')"
        book.add(name, start, *[f"{first}\n{body}"] * count)
    assert book.execute() == 60 + 4
    lines = log.read_text().splitlines()
    assert len(lines) == 2 * 60
    for begin, then in itertools.pairwise(lines):
        if begin in ("begin clock", "begin magic"):
            assert then == begin.replace("begin", "end"), "nothing began or ended meanwhile"
    measuring = [line for line in lines if line in ("begin clock", "begin magic")]
    assert len(measuring) == 9 + 8
    assert "begin long" in lines[: lines.index("begin clock")], "the others go on meanwhile"


def test_failing_cells_are_named_by_page_line_and_error(book: Book) -> None:
    before = book.site()
    (book.root / "examples" / "seejax" / "tiny.py").unlink()
    failing = "\n```{code-cell}\n:tags: [hide-cell]\n\nx = 1\nassert x == 2, 'no'\n```\n"
    silent = "\n```{code-cell}\n:tags: [raises-exception]\n\ny = 1\n```\n"
    head = HEAD + "(more)=\n# More\n"
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


def test_a_corrupted_cache_is_rebuilt_and_never_shown(book: Book) -> None:
    """One byte of what is shown; test_build_faults.py has every other kind, without a build."""
    (notebook,) = (book.root / "build" / "cache").glob("*.ipynb")
    data = notebook.read_bytes()
    assert data.count(b'"42"') == 1  # the output; the name of a cell may hold these digits, too
    notebook.write_bytes(data.replace(b'"42"', b'"47"'))
    output = book.build_en()
    assert executed(output) == 2 and f"{notebook.name} dropped" in output
    shown = outputs(book.out / "page.html")
    assert shown[0] == "42" and "ZeroDivisionError" in shown[1]


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
        (during_writing, signal.SIGTERM),
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
    # As under nohup and behind `&` in a script: there SIGTERM alone ends a build.
    ignoring = ["sh", "-c", 'trap "" INT; exec "$0" "$@"'] if how == signal.SIGTERM else []
    process = book.start(before=ignoring)
    wait_until(lambda: when(book) or process.popen.poll() is not None)
    assert process.popen.poll() is None, process.out.text
    process.send(how, group=how != signal.SIGTERM)  # a terminal's signal is for all of them
    status, output, _ = process.end()
    assert status, "a stopped build is not a good one"
    assert "Traceback (most recent call last)" not in output and "retrieved" not in output
    if how != signal.SIGKILL:
        assert "stopped; the next build goes on from here" in output
    if when is during_execution:
        kernel = int(book.mark.read_text())
        wait_until(lambda: not alive(kernel))
    assert book.site() == before, "the last good site stays"
    output = book.build()
    assert executed(output) == (3 if when is during_execution else 0)
    assert "第二版。" in book.shown("zh") and "First edition." in book.shown("en")


def test_a_build_killed_without_its_sphinx_is_waited_for(book: Book) -> None:
    """As a machine without memory kills: the one process, and not what it has started."""
    book.edit("第一版。", "第二版。", "zh")
    book.mark.touch()
    process = book.start()
    wait_until(lambda: during_reading(book) or process.popen.poll() is not None)
    process.send(signal.SIGKILL)
    assert process.popen.wait() == -signal.SIGKILL
    with open(book.root / "build" / "lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Sphinx still writes here
    assert executed(book.build()) == 0
    assert "第二版。" in book.shown("zh") and "First edition." in book.shown("en")


def test_two_builds_at_once_do_not_meet(book: Book) -> None:
    book.edit("tiny.value", "tiny.value + 1")
    running = [book.start(), book.start()]
    statuses, outputs, _ = zip(*[process.end() for process in running], strict=True)
    assert statuses == (0, 0), outputs
    assert sorted(map(executed, outputs)) == [0, 2]
    assert sum("another build is at work here" in output for output in outputs) == 1
    assert book.outputs("zh")[0] == book.outputs("en")[0] == "43"


def test_read_the_docs_gets_one_language_that_links_to_the_other(book: Book) -> None:
    """Chinese; tests/pages/test_markdown.py builds both so."""
    out = book.root / "read the docs"
    shutil.rmtree(book.html)
    book.build(
        READTHEDOCS="True",
        READTHEDOCS_LANGUAGE="zh-cn",
        READTHEDOCS_CANONICAL_URL="https://see-jax.example/zh-cn/latest/",
        READTHEDOCS_OUTPUT=str(out),
    )
    assert not book.html.exists()
    page = BeautifulSoup((out / "html" / "page.html").read_text("utf8"), "html.parser")
    assert page.html["lang"] == "zh-CN"
    canonical = page.select_one("link[rel=canonical]")["href"]
    assert canonical == "https://see-jax.example/zh-cn/latest/page.html"
    alternates = {link["hreflang"]: link["href"] for link in page.select("link[hreflang]")}
    assert alternates == {
        "zh-CN": "https://see-jax.example/zh-cn/latest/page.html",
        "en": "https://see-jax.example/en/latest/page.html",
        "x-default": "https://see-jax.example/en/latest/page.html",
    }
    switch = page.select_one("a.language-switch")["href"]
    assert switch == "https://see-jax.example/en/latest/page.html"
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
    _, _, err = Process(sys.executable, "-c", reach, env=guarded).end()
    assert "the network was asked for" in err, "the guard guards"
    without = ["unshare", "--net", "--map-root-user", sys.executable, "-c", LOOPBACK_UP]
    permitted = (
        shutil.which("unshare") and Process(*without, sys.executable, "-c", "").end()[0] == 0
    )
    assert executed(book.build(before=without if permitted else [])) == 2


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

    process = book.start("-m", "book.build", "--serve", "--port", port)
    wait_until(lambda: "第一版。" in read())
    assert "livereload.js" in read() and "Content-Security-Policy" not in read(), "it may run"
    book.edit("(page-next)=\n", "", "zh")  # a fault: it is told, and the last good site stays
    finished = book.root / "build" / "sphinx" / "zh" / "finished"
    wait_until(lambda: book.page("zh").touch() or not finished.exists())  # until it is seen
    wait_until(lambda: "第一版。" in read())  # it answers between builds
    assert process.popen.poll() is None
    book.edit("## 追踪 2", "(page-next)=\n## 追踪 2", "zh")
    book.edit("第一版。", "第二版。", "zh")
    wait_until(lambda: "第二版。" in read())
    process.send(signal.SIGINT, group=True)
    _, output, _ = process.end()
    assert "Sphinx failed: zh" in output
    assert "Traceback (most recent call last)" not in output
