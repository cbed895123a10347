"""The rows of make test-matrix: what they ask for, and that one which fails says so and ends."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from tools import matrix
from tools.book import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]


def test_the_rows_begin_at_the_oldest_python_and_hold_those_of_ci() -> None:
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert matrix.ROWS["oldest"] == (oldest, ("--resolution=lowest-direct",))
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf8"))
    pythons = ci["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert {row.python for row in matrix.ROWS.values()} == set(pythons)


def test_a_row_is_locked_as_the_book_is() -> None:
    """But for a Python of its own, and for what is newer."""
    command = ["make", "--no-print-directory", "-n", "lock", "BIN=bin", "DOCS="]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    made = subprocess.run(command, cwd=ROOT, env=plain, capture_output=True, encoding="utf8")
    other = {"--universal", "--python-version", "3.11", "--upgrade"}
    lines = [line.split()[1:] for line in made.stdout.splitlines()]
    for line, command in zip(lines, matrix.resolve(matrix.ROWS["newest"], Path("")), strict=True):
        plain = [word.removeprefix("pyproject.toml:") for word in command[1:]]
        assert set(line) - other == set(plain) - other - {"--python-version=3.12"}


@pytest.mark.parametrize(("upgrade", "asked"), [("", "--upgrade"), ("jax jaxlib", "jaxlib")])
def test_lock_upgrades_what_is_asked(upgrade: str, asked: str) -> None:
    made = subprocess.run(
        ["make", "-n", "lock", f"UPGRADE={upgrade}"], cwd=ROOT, capture_output=True, encoding="utf8"
    )
    for line in made.stdout.splitlines():
        if "pip compile" in line:
            assert bool(upgrade) == ("--upgrade-package jax --upgrade-package jaxlib" in line)
            assert (" --upgrade " in line) != bool(upgrade) and asked in line


def test_a_step_that_fails_is_told_and_ends_its_commands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    told = matrix.run([["sh", "-c", "echo so; exit 3"], ["touch", "never"]], tmp_path, log)
    assert re.fullmatch(r"failed, \d+ s", told) and log.read_text() == "so\n"
    assert not (tmp_path / "never").exists()
    assert matrix.run([["no-such-command"]], tmp_path, log) == "FileNotFoundError: no-such-command"
    assert matrix.run([["sh", "-c", 'test -z "$PYTHONPATH"']], tmp_path, log).startswith("ok")


def test_a_row_without_locks_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "BUILD", tmp_path)
    monkeypatch.setattr(matrix, "resolve", lambda row, tree: [["false"]])
    result = matrix.try_row("oldest", matrix.ROWS["oldest"])
    assert list(result.steps) == ["locks"] and not result.good()
    assert (tmp_path / "matrix" / "oldest" / "Makefile").exists()
    listed = subprocess.run(
        ["git", "-C", tmp_path / "matrix" / "oldest", "ls-files"], capture_output=True
    )
    assert b"docs/conf.py" in listed.stdout, "a repository of its own"
