"""The commands of the package: their list, a missing extra, the language that they speak."""

import os
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from book import paths
from seejax.__main__ import COMMANDS
from seejax.commands import language, needing

MODULES = {  # what the distributions of the extras are imported as, where it is another name
    "array-record": "array_record",
    "orbax-checkpoint": "orbax",
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "tensorflow-datasets": "tensorflow_datasets",
}
RUN = """
import runpy, sys
name, *blocked = sys.argv[1:]
sys.modules.update(dict.fromkeys(blocked))
sys.argv = [name, "--help"]
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""


def without(name: str, modules: list[str]) -> subprocess.CompletedProcess:
    """A command's --help where some modules cannot be imported."""
    ran = [sys.executable, "-W", "error", "-c", RUN, name, *modules]
    return subprocess.run(ran, capture_output=True, encoding="utf8", timeout=120)


def modules(extra: str) -> list[str]:
    names = [Requirement(one).name for one in paths.project()["optional-dependencies"][extra]]
    return [MODULES.get(name, name) for name in names]


def test_commands_list_names_each_with_its_extra() -> None:
    ran = [sys.executable, "-m", "seejax"]
    listed = subprocess.run(ran, capture_output=True, encoding="utf8", timeout=60).stdout
    lines = listed.splitlines()
    assert len(lines) == len(COMMANDS) + 1
    for line, (name, command) in zip(lines, COMMANDS.items(), strict=False):
        assert line.startswith(f"python -m {name} ") and command.does in line
        assert re.findall(r"\[(\w+)\]", line) == [command.extra] * bool(command.extra)


def test_commands_list_is_every_module_that_runs() -> None:
    folder = paths.ROOT / "examples" / "seejax"
    runs = {f"seejax.{path.parent.name}" for path in folder.glob("*/__main__.py")}
    assert {*COMMANDS} == runs | {"seejax.predict"}
    extras = {command.extra for command in COMMANDS.values()} - {""}
    assert extras == {*paths.project()["optional-dependencies"]}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_without_its_extra_is_one_sentence(name: str) -> None:
    extra = COMMANDS[name].extra
    if not extra:  # then it needs none of them
        every = [each for one in ("training", "today") for each in modules(one)]
        done = without(name, every)
        assert done.returncode == 0 and "usage" in done.stdout.lower(), done.stderr
        return
    done = without(name, modules(extra))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"python -m {name} needs the package ")
    assert f'pip install "seejax[{extra}]"' in line and f'pip install -e ".[{extra}]"' in line


def test_command_that_misses_a_module_of_seejax_raises() -> None:
    with pytest.raises(ModuleNotFoundError), needing("today", "seejax.today"):
        import seejax.nowhere  # noqa: F401


@pytest.mark.parametrize(
    ("env", "lang"),
    [
        ({"LANG": "zh_CN.GBK"}, "zh"),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "de_DE"}, "zh"),
        ({"LANG": "C"}, "en"),
    ],
)
def test_language_follows_the_system(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], lang: str
) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert language() == lang


@pytest.mark.parametrize("name", ["seejax.see", "seejax.errors"])
def test_language_is_the_same_for_both_commands(name: str) -> None:
    env = {**os.environ, "LC_ALL": "", "LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}
    code = f"import sys, {name}.__main__ as it; print(it.language())"
    ran = [sys.executable, "-c", code]
    done = subprocess.run(ran, env=env, capture_output=True, encoding="utf8", timeout=60)
    assert done.stdout == "zh\n", done.stderr
