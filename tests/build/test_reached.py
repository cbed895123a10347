"""Which tests a change reaches: those that can see it, and not the others."""

import subprocess
from pathlib import Path

import pytest

from book.author import reached
from book.paths import ROOT


@pytest.mark.parametrize(
    ("changed", "within", "without"),
    [
        ("docs/zh/jit.md", ["pages/test_site", "build/test_pairs"], ["see/", "lessons/"]),
        ("examples/seejax/see/_tree.py", ["see/test_tree", "see/test_command"], ["lessons/test_e"]),
        ("examples/seejax/errors/errors.toml", ["tools/test_errors"], ["see/test_t"]),
        ("docs/book/cache.py", ["build/test_build", "pages/test_outputs"], ["see/", "lessons/"]),
        ("tests/small_book.py", ["build/test_build"], ["see/", "lessons/", "tools/"]),
        ("tests/see/test_tree.py", ["see/test_tree"], ["see/test_trace", "pages/", "build/"]),
        ("LICENSE", [], ["see/", "lessons/", "pages/", "build/", "tools/"]),
    ],
)
def test_reached_has_the_tests_that_see_a_change(
    changed: str, within: list[str], without: list[str]
) -> None:
    found = [
        path.relative_to(ROOT / "tests").with_suffix("").as_posix()
        for path in reached.reached([Path(changed)])
        if path.is_relative_to(ROOT / "tests")
    ]
    assert {*within} <= {*found}
    assert not [name for name in found if name.startswith(tuple(without))]


def test_new_packages_reach_everything() -> None:
    assert reached.reached([Path("requirements.lock")]) == reached.tests()


def test_changed_names_what_is_committed_edited_and_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reached, "ROOT", tmp_path)

    def git(*command: str) -> None:
        who = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for name in ("committed", "edited", "same"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-qm", "one")
    (tmp_path / "committed").write_text("2")
    git("commit", "-qam", "two")
    (tmp_path / "edited").write_text("2")
    (tmp_path / "ñew").write_text("1")
    assert reached.changed("HEAD") == [Path("edited"), Path("ñew")]
    assert reached.changed("HEAD~1") == [Path("committed"), Path("edited"), Path("ñew")]
