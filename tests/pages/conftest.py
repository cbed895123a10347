"""The built site, its server and its readers."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built_site import ONLY, ROOT, SITE, WIDTHS, Reader
from playwright.sync_api import Browser

from book import paths
from processes import Process


def looks_at(page: str, item: pytest.Item) -> bool:
    """Whether a test is about this page, or goes through all of them."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("whole_book"):
        return False
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    stems = {Path(str(value)).stem for value in params}
    if stems & {each.stem for each in paths.pages("zh")}:
        return page in stems
    fixtures = [each[-1].func for each in item._fixtureinfo.name2fixturedefs.values()]
    names = {name for f in (item.function, *fixtures) for name in f.__code__.co_names}
    return bool({"PAGES", "SAMPLE", "SOURCES"} & names)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of one page alone, what looks at it: make check PAGE=jit."""
    here = Path(__file__).parent
    items[:] = [i for i in items if not ONLY or i.path.parent != here or looks_at(ONLY, i)]


def newest(*places: Path) -> float:
    files = [f for p in places for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file()]
    return max(f.stat().st_mtime for f in files if "__pycache__" not in f.parts)


@pytest.fixture(scope="session")
def site() -> Path:
    """The site as it is built from what the tree holds now."""
    index = SITE / "index.html"
    made_of = newest(ROOT / "docs", ROOT / "examples", ROOT / "requirements.lock")
    if not index.exists() or index.stat().st_mtime < made_of:
        command = [sys.executable, "-m", "book.build"]
        status, out, _ = Process(*command, cwd=ROOT / "docs", merge=True).end(limit_s=1500)
        assert status == 0, out
    return SITE


@pytest.fixture(scope="session")
def server(site: Path, serve: Callable[[Path], str]) -> str:
    return serve(site)


@pytest.fixture
def reader(browser: Browser, server: str) -> Iterator:
    readers: list[Reader] = []

    def come(home: str = server, width: str = "desk", **options: object) -> Reader:
        viewport = {"width": WIDTHS[width], "height": 800}
        readers.append(Reader(browser, home, viewport=viewport, **options))
        return readers[-1]

    yield come
    for each in readers:
        each.context.close()
    wrong = [what for each in readers for what in each.wrong]
    assert not wrong, "\n".join(wrong)
