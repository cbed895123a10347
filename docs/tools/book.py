"""The book as its tools know it: where things lie, its languages, the words of the site."""

import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
BUILD = ROOT / "build"

# For each tree: its language as HTML names it, as Read the Docs spells it, as its readers do.
LANGUAGES = {
    "zh": {"hreflang": "zh-CN", "slug": "zh-cn", "name": "中文"},
    "en": {"hreflang": "en", "slug": "en", "name": "English"},
}

MYST_EXTENSIONS = ["dollarmath", "colon_fence", "deflist"]


def words(language: str) -> dict[str, str]:
    """What the site itself says, from docs/data/words.toml.

    >>> words("zh")["search"], words("en")["search"]
    ('搜索', 'Search')
    """
    table = tomllib.loads((DOCS / "data" / "words.toml").read_text("utf8"))
    return {name: both[language] for name, both in table.items()}


def pages(language: str) -> list[Path]:
    """Every page of a language, in the order of their names."""
    return sorted((DOCS / language).rglob("*.md"))
