"""What a page's outputs depend on, which page begins first, and which outputs are kept."""

import asyncio
import importlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from book import cache, execute, kernel, keys
from book.machine import Machine


def notebook(*cells: str) -> nbformat.NotebookNode:
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return nbformat.v4.new_notebook(cells=code)


LAZY = """
if TYPE_CHECKING:
    from pack.lazily._one import One, one
    from pack.lazily._two import two
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a small package and its data; nothing of the true one is seen."""
    for name, text in {
        "requirements.lock": "",
        "bench/results.json": "{}",
        "docs/book/kernel.py": "",
        "docs/book/forkserver.py": "",
        "docs/book/keys.py": "",
        "docs/data/terms.toml": "",
        "examples/pack/__init__.py": "",
        "examples/pack/alone.py": "",
        "examples/pack/direct.py": "import jax\nfrom pack.part import leaf\n",
        "examples/pack/lazy.py": "def f():\n    from .part import leaf\n",
        "examples/pack/told.py": '"""Beside pack.alone; >>> from pack import alone"""\n',
        "examples/pack/dressed.py": "style = 'pack.part.look'\ncss = 'look.css'\n",
        "examples/pack/known.py": "DATA = 'known.toml'\n",
        "examples/pack/known.toml": "",
        "examples/pack/part/look.mplstyle": "",
        "examples/pack/look.css": "",
        "examples/figures.mplstyle": "",
        "examples/pack/part/__init__.py": "from . import twig\n",
        "examples/pack/part/twig.py": "from .. import alone\n",
        "examples/pack/part/leaf.py": "",
        "examples/pack/lazily/__init__.py": LAZY,
        "examples/pack/lazily/_one.py": "from pack.lazily import _base\n",
        "examples/pack/lazily/_two.py": "",
        "examples/pack/lazily/_base.py": "",
        "examples/pack/draws.py": "from pack import lazily\ndef f(): return lazily.two()\n",
        "examples/pack/typed.py": "if TYPE_CHECKING:\n    from pack import alone\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(keys, "ROOT", tmp_path)
    monkeypatch.setattr(keys, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(keys, "STYLE", tmp_path / "examples/figures.mplstyle")
    monkeypatch.setattr(keys, "MODULES", (tmp_path / "examples",))
    for cached in (keys.packages, keys.lazy_packages, keys.named_in_file, keys.data_files):
        uncached = lambda *given, f=cached.__wrapped__: f(*given)  # noqa: E731 - files change
        uncached.cache_clear = lambda: None
        monkeypatch.setattr(keys, cached.__name__, uncached)
    return tmp_path


LAZILY = {"pack/lazily/__init__.py"}
ONE = LAZILY | {"pack/lazily/_one.py", "pack/lazily/_base.py"}
TWO = LAZILY | {"pack/lazily/_two.py"}
PART = {"pack/part/__init__.py", "pack/part/twig.py", "pack/alone.py"}


@pytest.mark.parametrize(
    ("cell", "read"),
    [
        ("import jax, numpy.linalg", set()),
        ("import pack", {"pack/__init__.py"}),
        ("from pack import alone", {"pack/alone.py"}),
        ("from pack import known", {"pack/known.py", "pack/known.toml"}),  # one name, two files
        ("import pack.alone as a", {"pack/alone.py"}),
        ("from pack.part import leaf", PART | {"pack/part/leaf.py"}),
        ("def f():\n    from pack import direct", PART | {"pack/part/leaf.py", "pack/direct.py"}),
        ("from pack.lazy import f", PART | {"pack/part/leaf.py", "pack/lazy.py"}),
        ("from pack import told", {"pack/told.py"}),  # docstrings import nothing
        ("from pack import dressed", {"pack/dressed.py", "pack/part/look.mplstyle"}),
        ("%time from pack import alone", {"pack/alone.py"}),
        ("!python -m pack.alone", {"pack/alone.py"}),
        ("run('-m pack.alone')", {"pack/alone.py"}),
        ("run('-c', 'from pack import alone')", {"pack/alone.py"}),
        ("%%bash\npython -c 'from pack import alone'", {"pack/alone.py"}),
        ("from pack import alone  # a cell that\nraises at once (", {"pack/alone.py"}),
        ("open(folder / 'results.json')", {"bench/results.json"}),
        ("# results.json\nterms = 'terms.toml'", {"docs/data/terms.toml"}),
        ("x = 1  # from pack import alone", set()),
    ],
)
def test_a_cell_reads_the_modules_it_can_import_and_the_files_it_names(
    tree: Path, cell: str, read: set[str]
) -> None:
    found = {path.relative_to(tree).as_posix() for path in keys.sources(notebook("1", cell))}
    found = {name.removeprefix("examples/") for name in found}
    package = {"pack/__init__.py"} if any(name.startswith("pack") for name in read) else set()
    assert found == read | package


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (["from pack import lazily"], LAZILY),
        (["from pack import lazily", "lazily.one(1).two"], ONE),
        (["from pack import lazily as l", "def f():\n    return l.two"], TWO),
        (["import pack.lazily", "pack.lazily.two()"], TWO),
        (["import pack.lazily as l", "l.One"], ONE),
        (["from pack.lazily import two as w"], TWO),
        (["from pack.lazily import _two"], TWO),
        (["from pack.lazily import _base", "_base.x"], ONE - {"pack/lazily/_one.py"}),
        (["from pack import draws", "draws.f()"], TWO | {"pack/draws.py"}),
        (["from pack import typed"], {"pack/typed.py"}),
        # used in another way than by a name of it: all of it
        (["from pack.lazily import *"], ONE | TWO),
        (["from pack import *", "lazily.one"], ONE | TWO),
        (["from pack import lazily", "getattr(lazily, name)"], ONE | TWO),
        (["from pack import lazily", "l = lazily", "l.one"], ONE | TWO),
        (["from pack import lazily", "draw(lazily)"], ONE | TWO),
        (["from pack import lazily", "lazily.__dict__"], ONE | TWO),
        (["from pack import lazily", "lazily.other"], ONE | TWO),
        (["from pack import lazily", "eval('lazily.one')"], ONE | TWO),
        (["from pack import lazily", "globals()['lazily']"], ONE | TWO),
        (["from pack import lazily", "%time lazily.one"], ONE | TWO),
        (["from pack import lazily", "f'{lazily.one} {lazily}'"], ONE | TWO),
        (["import pack.lazily", "getattr(pack, 'lazily')"], ONE | TWO),
        (["import pack", "sub = pack"], ONE | TWO),
        (["!python -m pack.lazily"], ONE | TWO),
        (["run('from pack import lazily')"], ONE | TWO),
        (["run('from pack.lazily import two')"], ONE | TWO),
        (["from pack import draws", "draws.lazily.one"], ONE | TWO | {"pack/draws.py"}),
        (["from pack.draws import lazily", "lazily.one"], ONE | TWO | {"pack/draws.py"}),
        (["from pack.draws import *", "lazily.one"], ONE | TWO | {"pack/draws.py"}),
    ],
)
def test_sources_of_a_lazy_package_are_those_of_the_names_used(
    tree: Path, cells: list[str], read: set[str]
) -> None:
    found = {
        path.relative_to(tree / "examples").as_posix() for path in keys.sources(notebook(*cells))
    }
    assert found == read | {"pack/__init__.py"}


LOADED = """
import json, sys
loaded = {}
for picture in sys.argv[1:]:
    for name in [name for name in sys.modules if name.startswith("seejax")]:
        del sys.modules[name]
    exec(f"from seejax import see\\nsee.{picture}")
    loaded[picture] = [name for name in sys.modules if name.startswith("seejax")]
print(json.dumps(loaded))
"""


def test_sources_of_a_picture_are_what_drawing_it_imports() -> None:
    """All that an interpreter loads for a picture, and not the other pictures."""
    pictures = ["axes", "calls", "grad", "keys", "memory", "timeline", "tree"]
    ran = [sys.executable, "-c", LOADED, *pictures]
    done = subprocess.run(ran, capture_output=True, encoding="utf8", timeout=120, check=True)
    for picture, loaded in json.loads(done.stdout).items():
        cell = f"from seejax import see\nsee.{picture}"
        found = {path for path in keys.sources(notebook(cell)) if path.suffix == ".py"}
        assert {keys.file_of(name) for name in loaded} <= found
        others = {"trace", "keys", "memory", "timeline"} - {picture}
        assert not {f"_{name}.py" for name in others} & {path.name for path in found}


def test_lazy_packages_have_the_names_that_they_list() -> None:
    found = keys.lazy_packages()
    assert {"seejax.see", "seejax.training"} <= {*found}
    for name, origins in found.items():
        package = importlib.import_module(name)
        assert sorted(package.__all__) == sorted(origins)
        assert {*package.__all__} <= {*dir(package)}
        for each, module in origins.items():
            assert getattr(package, each) is getattr(importlib.import_module(module), each)
        with pytest.raises(AttributeError, match=f"{name!r} has no attribute 'nothing'"):
            package.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("examples/pack/part/leaf.py", True),
        ("examples/pack/part/twig.py", True),
        ("requirements.lock", True),
        ("examples/figures.mplstyle", True),
        ("examples/pack/lazy.py", False),
        ("examples/pack/look.css", False),
        ("examples/pack/part/look.mplstyle", False),
        ("bench/results.json", False),
        ("docs/data/terms.toml", False),
        ("docs/book/kernel.py", True),
    ],
)
def test_a_key_changes_with_what_is_read_and_with_nothing_else(
    tree: Path, name: str, changes: bool
) -> None:
    page = notebook("from pack import direct")
    before = keys.key(page)
    (tree / name).write_text("new")
    assert (keys.key(page) != before) is changes


def test_a_picture_s_comments_and_docstrings_are_in_no_key(tree: Path) -> None:
    for place in "examples/seejax/see/shown.py", "examples/seejax/other.py":
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        (tree / place).parent.joinpath("__init__.py").touch()
    page = notebook("from seejax import other\nfrom seejax.see import shown")
    texts = ("x = 1", "'said'\nx = 1  # why", "x = 2")

    def keys_of(place: str) -> list[str]:
        found = []
        for text in texts:
            (tree / place).write_text(text)
            found.append(keys.key(page))
        return found

    (tree / "examples/seejax/other.py").write_text("")
    bare, said, other = keys_of("examples/seejax/see/shown.py")
    assert bare == said != other
    assert len({*keys_of("examples/seejax/other.py")}) == 3, "whose source a picture may show"


def test_known_keys_are_those_that_parsing_finds(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys.Known, "FILE", tree / "build" / "keys.json")
    (tree / "build").mkdir()
    page = tree / "docs" / "page.md"
    page.write_text("one")
    parsed = []

    def parse() -> nbformat.NotebookNode:
        parsed.append(page.read_text())
        return notebook("from pack import direct")

    for change in (None, None, page, tree / "examples/pack/part/leaf.py"):
        if change:
            change.write_text("two")
        known = keys.Known()
        assert known.key(page, parse) == keys.key(notebook("from pack import direct"))
        known.save()
    assert parsed == ["one", "two", "two"], "what has not changed is not read again"


def test_a_key_changes_with_the_cells_and_the_environment(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = notebook("1")
    same = notebook("1")
    same.cells.append(nbformat.v4.new_markdown_cell("prose"))
    tagged = notebook("1")
    tagged.cells[0].metadata["tags"] = ["puzzle"]
    one, *others = (keys.key(each) for each in (page, same, notebook("2"), tagged))
    assert one == others[0] and len({one, *others}) == 3
    monkeypatch.setitem(keys.PAGE_ENV, "XLA_FLAGS", "")
    assert keys.key(page) != one


def test_the_longest_page_begins_first(monkeypatch: pytest.MonkeyPatch) -> None:
    began = []

    async def execute_page(run: execute.Run, machine: Machine, *_: object) -> None:
        async with machine.page():
            began.append(run.page.stem)

    monkeypatch.setattr(execute, "execute_page", execute_page)
    monkeypatch.setattr(execute, "ForkServer", lambda: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(execute.cache, "seconds", {"long": 90.0, "short": 1.0}.get)
    pages = {"short": 50, "new": 20, "long": 2, "newer": 3}
    runs = [execute.Run(Path(f"{n}.md"), n, notebook(*["1"] * k)) for n, k in pages.items()]
    asyncio.run(execute.execute_all(runs))
    assert began == ["long", "new", "newer", "short"]


@pytest.mark.parametrize(
    ("cells", "measuring"),
    [
        (["%timeit f()", "x = 1"], [0]),
        (["%%time\nf()", "!date"], [0]),
        (["from time import perf_counter as now", "now()", "import os"], [0, 1]),
        (["import time", "def f():\n    return time.monotonic()", "g = f", "h(f)"], [0, 1, 2, 3]),
        (["from timeit import repeat\ndef f(g): return repeat(g)", "f(1)", "g(1)"], [0, 1]),
        (["with see.timeline() as t: pass", "t"], [0]),
        (["times = [1]", "runtime(1)"], []),
    ],
)
def test_cells_that_measure_are_known(cells: list[str], measuring: list[int]) -> None:
    page = notebook(*cells)
    found = list(map(id, kernel.timing_cells(page.cells)))
    assert [number for number, cell in enumerate(page.cells) if id(cell) in found] == measuring


def test_the_newest_few_states_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FOLDER", tmp_path / "cache")
    for number in range(cache.STATES):
        cache.save("page", f"{number:016}", notebook("1"), seconds=number)
        (kept,) = (tmp_path / "cache").glob(f"page.{number:016}.*.ipynb")
        os.utime(kept, (number, number))
    assert cache.load(f"{0:016}"), "what is used becomes new again"
    cache.save("page", "f" * 16, notebook("1"), seconds=99)
    cache.save("other", "e" * 16, notebook("1"), seconds=1)
    left = {path.name.split(".")[1].lstrip("0") for path in (tmp_path / "cache").iterdir()}
    assert left == {"", *"234567", "f" * 16, "e" * 16}
    assert cache.seconds("page") == 99 and cache.seconds("never") is None


def test_a_cell_that_measures_runs_when_no_other_does() -> None:
    """Pages of a thousand random cells: nothing runs beside a measuring one, and all get there."""
    chance, running, seen = random.Random(0), [], set()

    async def page(machine: Machine) -> None:
        async with machine.page():
            for _ in range(chance.randrange(40)):
                alone = chance.random() < 0.2
                await asyncio.sleep(0)
                async with machine.alone() if alone else machine.shared():
                    assert not running or not (alone or True in running)
                    running.append(alone)
                    seen.add((alone, len(running)))
                    for _ in range(chance.randrange(4)):
                        await asyncio.sleep(0)
                    running.remove(alone)
                    if chance.random() < 0.01:
                        return  # as a page ends whose cell fails

    async def pages() -> None:
        machine = Machine(cells=3, pages=8)
        await asyncio.wait_for(asyncio.gather(*(page(machine) for _ in range(50))), 60)
        assert not (machine.begun or machine.running or machine.waiting or machine.parked)

    asyncio.run(pages())
    assert seen == {(True, 1), (False, 1), (False, 2), (False, 3)}


def test_a_cell_that_measures_need_not_wait_for_a_long_page() -> None:
    """Two cores and two pages: while one has a hundred cells, the other would leave a core idle."""
    order = []

    async def page(machine: Machine, name: str, alone: int, cells: int) -> None:
        async with machine.page():
            for number in range(cells):
                async with machine.alone() if number == alone else machine.shared():
                    order.append(name)
                    await asyncio.sleep(0)

    async def pages() -> None:
        machine = Machine(cells=3, pages=2)
        both = page(machine, "long", -1, 100), page(machine, "short", 1, 9)
        await asyncio.wait_for(asyncio.gather(*both), 60)

    asyncio.run(pages())
    assert "long" in order[order.index("short") :] and order[-1] == "long"
