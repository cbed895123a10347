"""The page of old code has every entry of docs/data/today.toml, in both languages."""

import re
import tomllib

import pytest

from book import paths
from book.extensions import today
from typesetting import misset

ENTRIES: dict[str, dict] = tomllib.loads(today.DATA.read_text("utf8"))


# -- the list --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_told_in_both_languages(name: str) -> None:
    entry = ENTRIES[name]
    known = {"topic", "said", "old", "fails", "misleads", "today", "border", "source", "why", "see"}
    assert set(entry) <= known and re.fullmatch(r"[a-z0-9-]+", name)
    assert set(entry["said"]) == set(entry["why"]) == {"zh", "en"}
    assert "today" in entry or "source" in entry, "nothing shows it"
    assert "today" in entry or "border" not in entry, "not run"
    for language in ("zh", "en"):
        assert entry["why"][language][-1] in ".。", entry["why"][language]
    assert not (wrong := misset(entry["said"]["zh"]) + misset(entry["why"]["zh"])), wrong
    code = "\n".join(entry.get(part, "") for part in ("old", "misleads", "today", "border"))
    assert all(len(line) <= 88 for line in code.split("\n"))
    assert re.search(r"(?m)^(import|from) ", entry.get("old", "import ")), "not complete"


@pytest.mark.parametrize("language", paths.LANGUAGES)
def test_the_page_shows_every_topic(language: str) -> None:
    page = (paths.DOCS / language / "today.md").read_text("utf8")
    shown = re.findall(r"```\{today\} (\w+)", page)
    assert shown == list(dict.fromkeys(entry["topic"] for entry in ENTRIES.values()))
