"""Chinese is set as Chinese is set, English is spelled, and no file names a machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from typesetting import misset, prose

ROOT = Path(__file__).parents[2]
CHINESE = sorted((ROOT / "docs" / "zh").rglob("*.md"))
WRITTEN = [
    *CHINESE,
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.zh.md")),
]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_chinese_is_spaced_and_punctuated(page: Path) -> None:
    name = page.relative_to(ROOT)
    wrong = misset(prose(page.read_text("utf8")))
    assert not wrong, "".join(
        f"\n{name}:{line}: {old}\n    write: {new}" for line, old, new in wrong
    )


def test_the_setting_is_checked_in_directives_and_not_in_cells() -> None:
    page = """\
# 标题a

用`x`做
事，`y`好 `z` 再

:::{note} 提示a
内容b,

```{tip}
里面c {ref}`到d <x>`
```
:::

```{code-cell}
# 注释e,
```

雅可比-向量积 $J$是 `代码f`
"""
    lines = [line for line, _, _ in misset(prose(page))]
    assert sorted(set(lines)) == [1, 3, 4, 6, 7, 10, 18]
    corrected = {new for _, _, new in misset(prose(page))}
    assert {"标题 a", "用 `x` 做", "事，`y` 好 ", "内容 b,", "到 d", "里面 c"} <= corrected


def test_english_is_spelled_and_chinese_is_not_taken_for_it(tmp_path: Path) -> None:
    """The settings that make test uses find an error in docs/en, and read nothing in docs/zh."""
    misspelled = "func" + "toin"  # not as one word: this file is checked too
    for language in ("en", "zh"):
        page = tmp_path / "docs" / language / "page.md"
        page.parent.mkdir(parents=True)
        page.write_text(f"The {misspelled} of jnp.arange. 看见。\n", "utf8")
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    typos = Path(sys.executable).with_name("typos")
    command = [typos, "--format", "brief"]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, encoding="utf8", timeout=300
    )
    assert result.returncode == 2
    (error,) = result.stdout.splitlines()
    assert "docs/en/page.md:1:5" in error and misspelled in error


def test_no_file_names_a_machine_or_a_registry() -> None:
    """What is published works for everyone: no path of ours, no address of an index."""
    private = re.compile(
        r"/(?:root|work|Users|home/\w+)/"
        r"|https?://[^\s\"'<>]*(?:pypi|pythonhosted|/simple\b|registry|nexus|artifactory|mirror)"
    )
    command = ["git", "ls-files", "-z"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=300)
    found = []
    for name in tracked.stdout.decode().rstrip("\0").split("\0"):
        try:
            text = (ROOT / name).read_text("utf8")
        except (UnicodeDecodeError, FileNotFoundError):  # a picture; a file deleted but not yet so
            continue
        found += [f"{name}: {match[0]}" for match in private.finditer(text)]
    assert not found, "\n".join(found)
