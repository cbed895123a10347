"""SKILL.md, which programs read: its commands run, and its words are those that they print."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import seejax
from seejax.report import words

TEXT = (Path(seejax.__file__).parent / "SKILL.md").read_text("utf8")
OLD = "import jax\njax.tree_map(abs, [1])\n"
RETRACED = """
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    for _ in range(30):
        x = jnp.sin(x) @ x.T @ x
    return x

for n in 1, 2, 3:
    step(jnp.ones((n, 2)))
jax.jit(lambda x: 1 if x > 0 else 0)(1.0)
"""


def ask(command: str, folder: Path) -> subprocess.CompletedProcess:
    """Run a command of the text as it stands there."""
    assert f"`{command}`" in TEXT
    _, *words = shlex.split(command)
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300
    )


def test_skill_leads_from_a_script_to_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(OLD)
    done = ask("python -m seejax.today .", tmp_path)
    assert done.returncode == 1 and "write jax.tree.map" in done.stdout

    (tmp_path / "train.py").write_text(RETRACED)
    done = ask("python -m seejax.report --lang en train.py", tmp_path)
    report = json.loads((tmp_path / "report-train" / "report.json").read_text())
    first = report["advice"][0]
    assert done.returncode == 1 and report["ended"] == "TracerBoolConversionError"
    assert (first["kind"], first["subject"], first["count"]) == ("shapes", "step", 2)

    (tmp_path / "traceback.txt").write_text(done.stderr)
    done = ask("python -m seejax.errors --json traceback.txt", tmp_path)
    entry = json.loads(done.stdout)["entries"][0]
    assert done.returncode == 0 and entry["name"] == "tracer-bool"

    names = set(re.findall(r"`([a-z]\w*(?:-\w+)?)`", TEXT))
    assert names >= {"cause", "cure", "code", "cured", "line", "today"} and entry.keys() >= {
        "cause", "cure", "code", "cured", "line", "today"
    }  # fmt: skip
    assert names >= first.keys() and report.keys() >= {"advice", "programs"}
    assert names >= set(words.TITLES) and names >= {"trace", "lower", "compile"}


def test_skill_says_what_an_unknown_message_gives(tmp_path: Path) -> None:
    (tmp_path / "traceback.txt").write_text("ValueError: nothing that JAX says\n")
    done = ask("python -m seejax.errors --json traceback.txt", tmp_path)
    assert done.returncode == 1 and "Exit status 1 means that no entry fits" in TEXT
