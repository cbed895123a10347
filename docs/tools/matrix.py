"""Build and test the book with old packages and with new ones: make test-matrix.

Each row is a copy of the tree with locks of its own, in build/matrix: so its pages are executed
anew, and what it finds there is all that it is told. uv finds each Python, or fetches it.
"""

import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tools.book import BUILD, ROOT, say
from tools.install import LOCKS, settings_of_pip

UV = Path(sys.executable).with_name("uv")
STEP_S = 3 * 3600  # the fence of each command
ASKED = ("jax", "flax", "optax", "numpy")
FOREIGN = {"PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}  # of this tree's make


class Row(NamedTuple):
    """A Python, and which versions uv takes of what pyproject.toml allows."""

    python: str
    options: tuple[str, ...]


ROWS = {
    "oldest": Row("3.11", ("--resolution=lowest-direct",)),
    "newest": Row("3.12", ()),
    "newest-313": Row("3.13", ()),
    "pre": Row("3.12", ("--prerelease=allow",)),
}


class Result(NamedTuple):
    """What came of a row: its versions, and how each step ended."""

    name: str
    versions: str
    steps: dict[str, str]

    def good(self) -> bool:
        return all(said.startswith("ok") for said in self.steps.values())


def resolve(row: Row, tree: Path) -> list[list[str]]:
    """The commands that write the locks of a row, as make lock writes those of the book."""
    command = [str(UV), "pip", "compile", "--quiet", f"--python-version={row.python}"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
    command += [*row.options, "--upgrade"]
    docs, test = (str(tree / lock.name) for lock in (LOCKS["docs"], LOCKS["test"]))
    project = str(tree / "pyproject.toml")
    extras = ["--extra", "training", "--extra", "today"]
    asked = [project, *extras, "--group", f"{project}:docs", "-o", docs]
    return [[*command, *asked], [*command, "--group", f"{project}:test", "-c", docs, "-o", test]]


def copy_tree(tree: Path) -> None:
    """What git would take, as it stands here, in a repository of its own."""
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        stdout=subprocess.PIPE,
        encoding="utf8",
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    who = ["-c", "user.name=matrix", "-c", "user.email=matrix@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "as it stands"]):
        subprocess.run(["git", "-C", tree, *command], check=True)


def versions(tree: Path) -> str:
    """The versions of a row that a reader would ask for, from its lock.

    >>> versions(ROOT).split()[0]
    'jax'
    """
    text = (tree / LOCKS["docs"].name).read_text("utf8")
    found = [re.findall(rf"^{name}==([^\s;]+)", text, re.MULTILINE) for name in ASKED]
    return ", ".join(f"{name} {'/'.join(seen)}" for name, seen in zip(ASKED, found, strict=True))


mirror = functools.cache(settings_of_pip)  # asking pip takes a second


def run(commands: list[list[str]], tree: Path, log: Path) -> str:
    """Run commands in a tree, one after another; how that ended, in a few words."""
    begin = time.perf_counter()
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN} | mirror()
    with log.open("a", encoding="utf8") as out:
        for command in commands:
            try:
                done = subprocess.run(
                    command,
                    cwd=tree,
                    env=kept,
                    stdout=out,
                    stderr=out,
                    timeout=STEP_S,
                    check=False,
                )
            except (subprocess.TimeoutExpired, OSError) as error:
                return f"{type(error).__name__}: {Path(command[0]).name}"
            if done.returncode:
                break
    seconds = time.perf_counter() - begin
    return f"{'failed' if done.returncode else 'ok'}, {seconds:.0f} s"


def counted(log: Path) -> str:
    """The last line that pytest has said of its tests.

    >>> log = getfixture("tmp_path") / "log"
    >>> _ = log.write_text("x\\n3 failed, 40 passed in 9s\\nmake: *** Error 1\\n")
    >>> counted(log)
    '3 failed, 40 passed'
    """
    said = re.findall(r"^((?:\d+ \w+(?:, )?)+) in [\d.]+s", log.read_text("utf8"), re.MULTILINE)
    return said[-1] if said else "no test was run"


def try_row(name: str, row: Row) -> Result:
    """Resolve, set up, build, test; what fails does not keep the next row from running."""
    tree, log = BUILD / "matrix" / name, BUILD / "matrix" / f"{name}.log"
    copy_tree(tree)
    log.unlink(missing_ok=True)
    python = [str(UV), "python", "find", "--no-project", row.python]
    env = os.environ | {"PYENV_VERSION": row.python}  # without it pyenv's `python3.13` just fails
    if subprocess.run(python, env=env, capture_output=True).returncode:
        run([[str(UV), "python", "install", row.python]], tree, log)
    found = subprocess.run(python, env=env, stdout=subprocess.PIPE, encoding="utf8").stdout.strip()
    interpreter = f"PYTHON={found or 'python' + row.python}"
    tests = [".venv/bin/pytest", "-q", "-n", "logical", "--maxprocesses", "4", "--dist", "loadfile"]
    steps = {
        "locks": resolve(row, tree),
        "pages": [["make", interpreter, "html"]],
        "tests": [["make", interpreter, ".venv/ready-test"], tests],
    }
    said: dict[str, str] = {}
    for step, commands in steps.items():
        if said.get("locks", "ok").startswith("ok"):
            said[step] = run(commands, tree, log)
            say("matrix", f"{name}: {step} {said[step]}")
    if "tests" in said:
        said["tests"] += f", {counted(log)}"
    return Result(f"{name}, Python {row.python}", versions(tree), said)


def table(results: list[Result]) -> str:
    """What came of every row, as Markdown.

    >>> print(table([Result("newest", "jax 1", {"locks": "ok, 3 s", "pages": "failed, 9 s"})]))
    | row | versions | locks | pages | tests |
    |---|---|---|---|---|
    | newest | jax 1 | ok, 3 s | failed, 9 s | — |
    """
    heads = ("locks", "pages", "tests")
    lines = ["| row | versions | locks | pages | tests |", "|---|---|---|---|---|"]
    for result in results:
        cells = [result.name, result.versions, *(result.steps.get(h, "—") for h in heads)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all of them")
    args = parser.parse_args()
    if unknown := set(args.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    results = [try_row(name, ROWS[name]) for name in args.rows or ROWS]
    print(f"\n{table(results)}\n\nWhat each row has said: build/matrix/ROW.log")
    (BUILD / "matrix" / "table.md").write_text(table(results) + "\n", "utf8")
    return not all(result.good() for result in results)


if __name__ == "__main__":
    sys.exit(main())
