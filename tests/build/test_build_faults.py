"""What can go wrong around a build, each with its outcome; ARCHITECTURE.md has the whole table.

Nothing stale or broken is ever shown, one line says what is wrong, and the next build is good.
"""

import asyncio
import json
import os
import random
import re
from pathlib import Path

import nbformat
import pytest

from book import cache, execute, paths, private, render, tables
from book.machine import Machine
from small_book import Book

ROOT = Path(__file__).parents[2]
EXECUTE = "from book.execute import execute; execute(['zh', 'en'])"
BUILD = "import sys; from book.build import main; sys.argv = ['build']; sys.exit(main())"


# -- while pages run -------------------------------------------------------------------------------

SOON = """
from book import execute
execute.Kernel.timeout_func = staticmethod(lambda cell: 1 if ".wait()" in cell.source else 300)
"""


def test_a_killed_kernel_and_a_cell_that_hangs_are_named(small: Book) -> None:
    small.add("dies", "1", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    small.add("hangs", "1", "2", "import threading\nthreading.Event().wait()")
    output = small.build("-c", SOON + BUILD, fails=True)
    assert "docs/zh/dies.md:14: cell 2: DeadKernelError: Kernel died" in output
    assert "docs/zh/hangs.md:18: cell 3: ran over 300 s" in output
    assert "page: 2 cells in" in output, "the others are executed and kept"


def test_what_is_edited_while_pages_run_is_run_again_and_kept_under_no_old_name(
    small: Book,
) -> None:
    """A page that edits by its own hand the module that it shows after its key was made."""
    tiny = small.root / "examples" / "seejax" / "tiny.py"
    new = f"pathlib.Path({str(tiny)!r} + '.new')"
    edit = f"import pathlib\n{new}.write_text('value = 40 + 3')\n"
    edit += f"{new}.replace({str(tiny)!r})"  # at once: another page imports it
    small.add("edits", f"{edit}\nfrom seejax import tiny\ntiny.value")
    assert small.build("-c", EXECUTE).count("edited meanwhile: once more") == 1
    (kept,) = (small.root / "build" / "cache").glob("edits.*")
    assert '"43"' in kept.read_text("utf8")


def test_what_watches_a_kernel_ends_without_noise_when_its_page_was_stopped() -> None:
    """It looks once a second; with many kernels to end, a build lives longer than that."""

    async def watch() -> bool:
        kernel = execute.Kernel(nbformat.v4.new_notebook(), Machine(1, 1), "")
        kernel.task_poll_for_reply = asyncio.get_running_loop().create_future()
        await private.watch(kernel)
        return kernel.task_poll_for_reply.cancelled()

    assert asyncio.run(watch())


# -- the disk --------------------------------------------------------------------------------------

# In a mount namespace of our own, if the system lets us: nothing is left of it.
MOUNTED = """
mkdir -p build/cache
mount -t tmpfs -o {options} tmpfs build/cache || exit 77
exec "$0" -m book.build
"""


@pytest.mark.parametrize(
    ("options", "what"),
    [("size=4k", "No space left on device"), ("ro", "Read-only file system")],
)
def test_a_cache_without_room_is_one_line(small: Book, options: str, what: str) -> None:
    small.edit("tiny.value", "print('much ' * 2000)")
    alone = ["unshare", "--mount", "--map-root-user", "sh", "-c", MOUNTED.format(options=options)]
    status, output, _ = small.start(before=alone).end()
    if status == 77 or "unshare" in output:
        pytest.skip("no file system can be mounted here")
    assert status == 1 and output.splitlines()[-1].endswith(what), output
    assert "build/cache/page." in output and "Traceback" not in output


def test_a_site_that_cannot_be_put_in_place_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk while it is copied; killed between the two renames, which the next one mends."""
    (tmp_path / "sphinx" / "en" / "html").mkdir(parents=True)
    monkeypatch.setattr(render, "WORK", tmp_path / "sphinx")
    out = tmp_path / "html" / "en"
    out.mkdir(parents=True)
    (out / "index.html").write_text("old")
    page = tmp_path / "sphinx" / "en" / "html" / "index.html"
    page.write_text('<meta charset="utf-8">new')

    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(paths.BuildError, match="No space left"):
        patch.setattr(Path, "write_text", full)
        render.stage("en", {}, out, draft=False)
    assert (out / "index.html").read_text() == "old"

    class Killed(BaseException):
        pass

    def rename(self: Path, to: Path, real=Path.rename) -> None:
        if self.suffix == ".new":
            raise Killed
        real(self, to)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Path, "rename", rename)
        render.stage("en", {}, out, draft=False)
        render.publish(out)
    assert not out.exists()
    render.put_back(out)
    assert (out / "index.html").read_text() == "old"
    render.stage("en", {}, out, draft=False)
    assert (out / "index.html").read_text() == "old", "until the other language is ready, too"
    render.publish(out)
    render.put_back(out)
    assert (out / "index.html").read_text().endswith("new")
    assert [path.name for path in out.parent.iterdir()] == ["en"]


def test_a_cache_cut_off_anywhere_is_dropped_or_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred cuts, and as many bytes that became others, of a page as it was executed."""
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    cell = nbformat.v4.new_code_cell("1 + 1", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "2 三"})]
    notebook = nbformat.v4.new_notebook(cells=[cell])
    cache.save("page", "key", notebook, seconds=1)
    (kept,) = tmp_path.iterdir()
    whole, chance = kept.read_bytes(), random.Random(0)
    for _ in range(100):
        place = chance.randrange(len(whole))
        other = bytes([whole[place] ^ chance.randrange(1, 256)])
        for broken in whole[:place], whole[:place] + other + whole[place + 1 :]:
            kept.write_bytes(broken)
            cache.seconds("page")  # asked before it is loaded, and never in the way
            assert cache.load("key") is None and not kept.exists()
    kept.write_bytes(whole)
    assert cache.load("key").cells == notebook.cells and cache.seconds("page") == 1


# -- the clock, and edits --------------------------------------------------------------------------


def test_an_edit_is_seen_whatever_the_clock_says(
    small: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set back by a year, or standing still: what tells an edit is the text and not its time."""
    work = tmp_path / "work"
    for name in ("doctrees/page.doctree", "doctrees/index.doctree", "html/page.html"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).touch()
    monkeypatch.setattr(render, "DOCS", small.root / "docs")
    monkeypatch.setattr(render, "ROOT", small.root)
    monkeypatch.setattr(tables, "DOCS", small.root / "docs")
    monkeypatch.setattr(paths, "DOCS", small.root / "docs")
    (work / "finished").write_text(json.dumps(render.state("en", {})))
    small.edit("First edition.", "Second edition.", "en")
    os.utime(small.page("en"), (0, 0))
    render.forget(work, render.state("en", {}))
    assert [path.name for path in (work / "doctrees").iterdir()] == ["index.doctree"]


# -- what is written wrongly -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kernelspec:", "kernelspec: {", "docs/zh/page.md:4: front matter: "),
        ("  name: python3", "\tname: python3", "docs/zh/page.md:4: front matter: found character"),
        ("name: python3", "name: nowhere", "docs/zh/page.md: NoSuchKernel: "),
        ("---\nfile_format: mystnb\n", "---\n- a\n---\n", "docs/zh/page.md:1: "),
        (":tags: [raises-exception]", ":tags: [raises", "docs/zh/page.md:20: options of a cell: "),
        ("第一版。", "\udcff", "docs/zh/page.md:1: 'utf-8' codec can't decode byte"),
    ],
)
def test_a_page_that_cannot_be_read_is_one_line(
    small: Book, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    page = small.page("zh")
    text = page.read_text("utf8")
    assert old in text
    page.write_bytes(text.replace(old, new).encode("utf8", "surrogateescape"))
    monkeypatch.setattr(execute, "ROOT", small.root)
    monkeypatch.setattr(execute, "pages", lambda language: [page])
    with pytest.raises(paths.BuildError) as told:
        execute.execute_once(["zh"])
    assert str(told.value).startswith(said) and "\n" not in str(told.value)


def test_unknown_directives_and_the_other_language_s_anchors_are_named(small: Book) -> None:
    small.edit("第一版。", "```{nosuch}\n```\n[there](#page-next-2) {nosuch}`role`", "zh")
    english = small.page("en").read_text("utf8")
    small.page("en").write_text(english + "\n(page-next-2)=\n## Here\n", "utf8")
    output = small.build(fails=True)
    assert re.search(r"docs/zh/page\.md:10: .*Unknown directive type: 'nosuch'", output)
    assert re.search(r"docs/zh/page\.md:12: .*Unknown interpreted text role \"nosuch\"", output)
    assert re.search(r"docs/zh/page\.md:12: .*page-next-2", output)
    assert not small.html.exists(), "nothing is published"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("words.toml", 'search = { zh = "搜索", ', "search = { ", "5: search.zh has to be a text"),
        ("words.toml", 'title = { zh = "看见 JAX"', 'title = { zh = "看见 JAX', "2: "),
        ("terms.toml", '\nen = "tracer"', "", "29: tracer.en has to be a text"),
        ("terms.toml", "[tracing]", "[tracer]", ": Cannot declare ('tracer',) twice"),
        ("terms.toml", "\nexplain.en", "\nexplain.eng", ": transformation.explain.en has to be"),
        ("search.toml", '"in place .at .set"', "7", ": same.mutate has to be a text"),
        ("search.toml", "[same]", "[same", ": Expected "),
        ("today.toml", "\nwhy.en", "\nwhy.eng", ": index-update.why.en has to be a text"),
    ],
)
def test_a_wrong_row_of_a_table_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str, said: str
) -> None:
    text = (ROOT / "docs" / "data" / name).read_text("utf8")
    assert old in text
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_text(text.replace(old, new, 1), "utf8")
    monkeypatch.setattr(tables, "DOCS", tmp_path)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    with pytest.raises(paths.BuildError) as told:
        tables.table(name)
    place, _, what = str(told.value).partition(f"data/{name}:")
    assert not place and said.lstrip(": ") in what and "\n" not in what, what


def test_a_build_tells_of_a_wrong_table_and_puts_a_lost_site_back(small: Book) -> None:
    (small.html / "en.old").mkdir(parents=True)  # as a build may leave it that was killed
    terms = small.root / "docs" / "data" / "terms.toml"
    terms.write_text(terms.read_text("utf8").replace("[tracer]", "[tracer", 1), "utf8")
    output = small.build(fails=True)
    assert re.fullmatch(r"docs/data/terms\.toml:29: .*", output.strip()), output
    assert (small.html / "en").exists()
