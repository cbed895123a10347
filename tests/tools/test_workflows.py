"""What a workflow does by commands of its own, done here: the branch `notebooks`."""

import os
import subprocess
from pathlib import Path

import yaml

from book.paths import ROOT


def test_the_branch_of_notebooks_has_what_colab_and_binder_open(tmp_path: Path) -> None:
    workflow = (ROOT / ".github" / "workflows" / "notebooks.yml").read_text("utf8")
    *_, publish = yaml.safe_load(workflow)["jobs"]["publish"]["steps"]
    there, here = tmp_path / "there", tmp_path / "here"

    def git(*command: object) -> str:
        who = ["-c", "user.name=me", "-c", "user.email=me@localhost"]
        command = ("git", *who, *map(str, command))
        done = subprocess.run(command, cwd=here, check=True, capture_output=True, encoding="utf8")
        return done.stdout

    here.mkdir()
    git("init", "-q", "--bare", there)
    git("init", "-q")
    (here / ".gitignore").write_text("/build/\n")
    (here / ".python-version").write_text("3.12\n")
    git("add", ".")
    git("commit", "-q", "-m", "the book")
    git("remote", "add", "origin", there)
    for language in ("zh", "en"):
        notebooks = here / "build" / "html" / language / "notebooks"
        notebooks.mkdir(parents=True)
        (notebooks / "jit.ipynb").write_text("{}")
        (notebooks / "requirements.txt").write_text("jax\n")
    env = {**os.environ, "GITHUB_SHA": "0"}
    command = ["bash", "-e", "-c", publish["run"]]  # as GitHub runs it
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, encoding="utf8")
    assert done.returncode == 0, done.stderr
    listed = git(f"--git-dir={there}", "ls-tree", "-r", "--name-only", "notebooks").split()
    assert listed == ["en/jit.ipynb", "requirements.txt", "runtime.txt", "zh/jit.ipynb"]
