"""Each way in which two languages can drift apart is found, and named so that it can be mended."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from book.author import pairs

ROOT = Path(__file__).parents[2]

PAGE = """\
---
file_format: mystnb
kernelspec:
  name: python3
---
(drift)=
# {title}

{prose} $x_0$ {{ref}}`{word} <drift-more>`

```{{code-cell}}
x = 1
```

```{{code-cell}}
:tags: [hide-cell]

assert x == 1
```

(drift-more)=
## {title}

```{{figure}} picture.svg
:alt: {title}

{word},
[{word}](https://docs.jax.dev/)
```

$$
f(x) = x^2
$$

- {word} [{word}](#drift), $x_1$
"""


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A book of one page, in which everything that is compared occurs."""
    docs = tmp_path / "docs"
    for language in pairs.LANGUAGES:
        (docs / language).mkdir(parents=True)
    shutil.copytree(ROOT / "docs" / "book", docs / "book")
    words = {
        "zh": {"title": "漂移", "prose": "先说结论。", "word": "这里"},
        "en": {"title": "Drift", "prose": "Two sentences.\nAs English has it.", "word": "here"},
    }
    for language, fields in words.items():
        (docs / language / "drift.md").write_text(PAGE.format(**fields), "utf8")
    assert pairs.stamp("drift", docs) == []
    assert pairs.check(docs) == []
    return docs


def edit(book: Path, old: str, new: str, language: str = "en") -> int:
    """Change one side; return the line of the change."""
    page = book / language / "drift.md"
    text = page.read_text("utf8")
    assert text.count(old) == 1, f"{old!r} is not once in the page"
    page.write_text(text.replace(old, new), "utf8")
    return text[: text.index(old)].count("\n") + 1


def test_the_languages_of_this_book_are_in_step() -> None:
    messages = pairs.check()
    assert not messages, "\n" + "\n".join(messages)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("x = 1\n", "x = 2\n", "cell 1 under “漂移” differs"),
        ("assert x == 1", "assert x  == 1", "cell 2 under “漂移” differs"),
        ("[hide-cell]", "[hide-input]", "cell 2 under “漂移” differs"),
        ("```{code-cell}\nx = 1\n```\n", "", "cell 1 under “漂移” has no equal"),
        ("## Drift", "### Drift", "heading under “漂移” differs"),
        ("(drift-more)=", "(drift-less)=", "anchor under “漂移” differs"),
        ("$x_0$", "$x_2$", "'x_2'"),
        ("$$\nf(x) = x^2", "$$\nf(x) = x^3", "formula under “漂移” differs"),
        ("picture.svg", "other.svg", "{figure} under “漂移” differs"),
        ("<drift-more>", "<drift>", "'{ref}drift'"),
        ("(#drift)", "(#drift-more)", "'#drift-more'"),
        ("https://docs.jax.dev/", "https://jax.dev/", "'https://jax.dev/'"),
        ("name: python3", "name: python", "front matter differs"),
    ],
)
def test_a_changed_skeleton_is_named_with_both_files(
    book: Path, old: str, new: str, named: str
) -> None:
    line = edit(book, old, new)
    messages = pairs.check(book)
    (first, *_) = [message for message in messages if named in message]
    assert "docs/zh/drift.md" in first and "docs/en/drift.md" in first
    assert f"docs/en/drift.md:{line}" in first or "front matter" in named or not new
    assert pairs.stamp("drift", book), "a stamp must not be set over a different skeleton"
    assert all("drift.md" in message for message in messages)


def test_swapped_cells_are_found(book: Path) -> None:
    page = book / "zh" / "drift.md"
    cells = "```{code-cell}\nx = 1\n```", "```{code-cell}\n:tags: [hide-cell]\n\nassert x == 1\n```"
    text = page.read_text("utf8")
    assert all(cell in text for cell in cells)
    text = text.replace(cells[0], "…").replace(cells[1], cells[0]).replace("…", cells[1])
    page.write_text(text, "utf8")
    assert any("docs/zh/drift.md" in m and "cell" in m for m in pairs.check(book))


@pytest.mark.parametrize("language", pairs.LANGUAGES)
def test_a_page_or_picture_in_one_language_only_is_found(book: Path, language: str) -> None:
    (book / language / "drift.md").unlink()
    (book / language / "alone.svg").write_text("<svg/>")
    other = next(each for each in pairs.LANGUAGES if each != language)
    missing, alone = sorted(pairs.check(book), key=lambda message: "alone.svg" in message)
    assert f"docs/{other}/drift.md has no sibling" in missing
    assert f"docs/{language}/drift.md" in missing
    assert f"docs/{language}/alone.svg has no sibling" in alone


@pytest.mark.parametrize(("language", "old"), [("zh", "先说结论"), ("en", "Two sentences")])
def test_edited_prose_names_its_side_until_the_stamp_is_renewed(
    book: Path, language: str, old: str
) -> None:
    edit(book, old, "…", language)
    (message,) = pairs.check(book)
    other = next(each for each in pairs.LANGUAGES if each != language)
    assert message.startswith(f"docs/{language}/drift.md changed")
    assert f"bring docs/{other}/drift.md in step" in message
    assert "make pair PAGE=drift" in message
    assert pairs.stamp("drift", book) == []
    assert pairs.check(book) == []


def test_stamps_of_two_merged_branches_do_not_pass(book: Path) -> None:
    zh = (book / "zh" / "drift.md").read_text("utf8")
    edit(book, "Two sentences", "Three sentences")
    pairs.stamp("drift", book)
    (book / "zh" / "drift.md").write_text(zh, "utf8")
    (message,) = pairs.check(book)
    assert "carry different stamps" in message


def test_a_stamp_changes_nothing_but_itself(book: Path) -> None:
    page = book / "zh" / "drift.md"
    edit(book, "Two", "2")
    edit(book, "先", "再", "zh")
    before = page.read_text("utf8").splitlines()
    pairs.stamp("drift", book)
    after = page.read_text("utf8").splitlines()
    assert [line for line in after if not line.startswith("pair:")] == [
        line for line in before if not line.startswith("pair:")
    ]
    assert sum(line.startswith("pair: zh-") for line in after) == 1
    assert after != before


@pytest.mark.parametrize(
    ("page", "says"), [([], "which page? make pair PAGE=…"), (["jet"], "no page 'jet'")]
)
def test_the_command_asks_for_a_page_that_exists(book: Path, page: list[str], says: str) -> None:
    command = [sys.executable, "-m", "book.author.pairs", "stamp", *page]
    result = subprocess.run(command, cwd=book, capture_output=True, encoding="utf8", timeout=120)
    assert result.returncode == 1
    assert says in result.stderr and "drift" in result.stderr
    assert "Traceback" not in result.stderr
