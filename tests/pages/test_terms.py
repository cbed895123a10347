"""The terms of the book: named and explained in both languages, and linked where they appear."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from book.author import pairs
from typesetting import misset

ROOT = Path(__file__).parents[2]
TERMS: dict[str, dict] = tomllib.loads((ROOT / "docs" / "data" / "terms.toml").read_text("utf8"))
CHINESE = sorted((ROOT / "docs" / "zh").rglob("*.md"))
MARKDOWN = pairs.markdown()

# -- the list itself ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TERMS)
def test_a_term_is_named_and_explained_in_both_languages(name: str) -> None:
    term = TERMS[name]
    known = {"zh", "en", "explain", "group", "see", "avoid", "everyday"}
    assert set(term) <= known and set(term["explain"]) == {"zh", "en"}
    for language in ("zh", "en"):
        text = term["explain"][language]
        assert text[-1] in ".。", text
    assert not misset(term["explain"]["zh"]), misset(term["explain"]["zh"])
    for page in [term["see"]] if "see" in term else []:
        assert (ROOT / "docs" / "zh" / f"{page}.md").exists(), f"{name}: no page {page}"


@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_page_of_terms_shows_every_group(language: str) -> None:
    page = (ROOT / "docs" / language / "terms.md").read_text("utf8")
    shown = re.findall(r"```\{terms\} (\w+)", page)
    assert sorted(shown) == sorted({term["group"] for term in TERMS.values()})


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: page.stem)
def test_one_idea_has_one_chinese_name(page: Path) -> None:
    avoided = {word: term["zh"] for term in TERMS.values() for word in term.get("avoid", [])}
    wrong = [
        f"\n{page.relative_to(ROOT)}:{number}: {word}\n    write: {better}"
        for number, line in enumerate(page.read_text("utf8").split("\n"), 1)
        for word, better in avoided.items()
        if word in line
    ]
    assert not wrong, "".join(wrong)


# -- a term is linked where it first appears ------------------------------------------------------


def running_text(source: str) -> list[tuple[str, bool]]:
    """The text of a page's sentences, piece by piece, and whether it is linked or set off.

    Headings, code and pictures are no sentences; what stands in a container is.
    """
    found: list[tuple[str, bool]] = []
    tokens = MARKDOWN.parse(source)
    for before, token in pairwise([None, *tokens]):
        if token.type == "inline" and not (before and before.type == "heading_open"):
            depth = 0
            for part in token.children or []:
                depth += part.nesting if part.type.startswith(("link", "strong", "em")) else 0
                if part.type in ("text", "softbreak"):
                    found.append((part.content or " ", depth > 0))
                else:
                    found.append(("\0", False))  # code, a formula: no word goes across it
            found.append(("\n", False))
        elif token.type == "colon_fence":
            found += running_text(token.content)
    return found


def unlinked(source: str, language: str, known: dict[str, dict]) -> list[str]:
    """The names of terms whose first appearance on a page is neither a link nor set off."""
    name_of = {term[language].lower(): name for name, term in known.items()}
    longest_first = sorted(name_of, key=len, reverse=True)
    words = "|".join(map(re.escape, longest_first))
    if language == "en":
        words = rf"(?<![\w-])(?:{words})(?=(?:s|es)?(?![\w-]))"
    pattern = rf"(?:{words})(?! ?(?:pane|栏))"  # the jaxpr pane is a name, not a use of the term
    seen: dict[str, bool] = {}
    pieces = running_text(source)
    marks = [marked for text, marked in pieces for _ in text]
    for match in re.finditer(pattern, "".join(text for text, _ in pieces), re.IGNORECASE):
        seen.setdefault(match[0].lower(), marks[match.start()])
    return [
        word
        for word, marked in seen.items()
        if not marked and not known[name_of[word]].get("everyday")
    ]


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("page", [page.stem for page in CHINESE if page.stem != "terms"])
def test_a_term_is_linked_or_explained_where_it_first_appears(page: str, language: str) -> None:
    source = (ROOT / "docs" / language / f"{page}.md").read_text("utf8")
    assert not (late := unlinked(source, language, TERMS)), f"not linked at first: {late}"


def test_first_appearances_are_told_apart() -> None:
    known = {"tracing": {"zh": "追踪", "en": "tracing"}, "tracer": {"zh": "追踪器", "en": "tracer"}}
    zh, en = (lambda text, lang=lang: unlinked(text, lang, known) for lang in ("zh", "en"))
    assert zh("追踪器 [追踪](#term-tracing)") == ["追踪器"]
    assert zh("**追踪**，再追踪。`追踪器` 和 [追踪器](#x) 追踪器") == []
    assert zh("# 追踪\n\n```\n追踪\n```\n") == []
    assert zh(":::{note}\n追踪\n:::\n") == ["追踪"]
    assert en("Tracers and [tracing](#x)") == ["tracer"]
    assert en("retracing, tracing-free, [tracing](#x); tracing") == []
    assert en("The tracer\npane. **Tracer**, tracer") == []
