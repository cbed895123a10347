"""The places of a new page, in a copy of the book."""

import re
import shutil
from pathlib import Path

import pytest

from book import paths
from book.author import new_page, pairs


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    for language in paths.LANGUAGES:
        shutil.copytree(paths.DOCS / language, tmp_path / language)
    for name in ("index.md", "jit.md", "about.md"):  # as an author has it who has just committed
        pairs.stamp(name.removesuffix(".md"), tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("after", "following"), [("jit", "autograd"), ("ecosystem", "numpy"), ("about", None)]
)
def test_a_new_page_has_its_places_in_both_languages(
    docs: Path, after: str, following: str | None
) -> None:
    before = pairs.check(docs)
    assert new_page.lay("shapes", after, docs) == []
    assert pairs.check(docs) == before, "the languages are as much in step as they were"
    for language in paths.LANGUAGES:
        index = (docs / language / "index.md").read_text("utf8")
        names = list(new_page.entries(index))
        assert names[names.index(after) : names.index("shapes") + 1] == [after, "shapes"]
        cards = re.findall(r"^- \[[^\]]+\]\(([\w-]+)\.md\)$", index, re.MULTILINE)
        assert cards == names, "the map has the same pages in the same order"
        ending = (docs / language / f"{after}.md").read_text("utf8").rpartition("\n## ")[2]
        assert "(shapes.md)" in ending
        own = (docs / language / "shapes.md").read_text("utf8")
        assert (f"({following}.md)" in own) == (following is not None)
        anchors = re.findall(r"^\((.+)\)=\n#+ ", own, re.MULTILINE)
        assert len(anchors) == len(re.findall(r"^#+ ", own, re.MULTILINE))


@pytest.mark.parametrize(
    ("name", "after", "says"),
    [("jit", "vmap", "there is such a page"), ("Ä", "vmap", "small letters"), ("x", "", "tour")],
)
def test_a_page_that_cannot_be_laid_changes_nothing(
    docs: Path, name: str, after: str, says: str
) -> None:
    content = {path: path.read_bytes() for path in docs.rglob("*.md")}
    (message,) = new_page.lay(name, after, docs)
    assert says in message
    assert content == {path: path.read_bytes() for path in docs.rglob("*.md")}
