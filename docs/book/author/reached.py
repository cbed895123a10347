"""Which tests a change can reach: `make test CHANGED=1`, or CHANGED=main for a whole branch.

A test reads the modules that it names, directly or not, the fixtures that it asks for, and the data
files that these name (`book.keys` finds them, for pages and tests alike). What a folder of tests
reads beside that, such as the pages, is in READS.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from book import keys
from book.paths import ROOT

# What the tests of a folder read that no import tells: patterns of paths.
READS = {
    "tests/build": (
        "docs/*.*",
        "docs/zh/*",
        "docs/en/*",
        "docs/theme/**/*",
        "docs/data/*",
        "docs/book/**/*",
    ),
    "tests/pages": ("docs/**/*", "examples/seejax/**/*", "bench/*.json", "*.md", ".github/**/*"),
    "tests/tools": ("docs/en/*", "bench/**/*"),
    "tests/lessons": ("examples/cluster/*", "tests/slurm/*", "bench/*.json"),
}
ALL = ("requirements*.lock", "pyproject.toml", "conftest.py", "Makefile")


def changed(base: str) -> list[Path]:
    """The files that differ from a commit, committed or not, and those that git does not know."""
    differing = ["git", "diff", "--name-only", "-z", base]
    unknown = ["git", "ls-files", "--others", "--exclude-standard", "-z"]
    names = [
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True, encoding="utf8").stdout
        for command in (differing, unknown)
    ]
    return [Path(name) for name in "".join(names).split("\0") if name]


def beside(test: Path) -> Iterator[Path]:
    """A test and what lies beside it that it imports, directly or not."""
    found, todo = set(), [test]
    while todo:
        file = todo.pop()
        if file in found:
            continue
        found.add(file)
        yield file
        tree = ast.parse(file.read_text("utf8") if file.suffix == ".py" else "")
        for name in keys.imported(tree, ""):
            places = [folder / f"{name}.py" for folder in (file.parent, ROOT / "tests")]
            todo += [place for place in places if place.is_file()]


def fixtures(test: Path) -> dict[str, str]:
    """The source of every fixture that a test can ask for by its name."""
    found = {}
    for folder in reversed([f for f in test.parents if f.is_relative_to(ROOT)]):
        file = folder / "conftest.py"
        for node in ast.parse(file.read_text("utf8")).body if file.is_file() else ():
            if isinstance(node, ast.FunctionDef):
                found[node.name] = ast.unparse(node)
    return found


def sources(test: Path) -> list[str]:
    """The source of a test, of what it imports beside it, and of the fixtures that it asks for."""
    found = [file.read_text("utf8") for file in beside(test)]
    left = fixtures(test)
    for text in found:  # which grows: a fixture asks for others
        for name in [name for name in left if re.search(rf"\b{name}\b", text)]:
            found.append(left.pop(name))
    return found


@functools.cache
def reads(test: Path) -> frozenset[Path]:
    """The files whose change reaches a test."""
    folder = test.parent.relative_to(ROOT).as_posix()
    found = {path for pattern in READS.get(folder, ()) for path in ROOT.glob(pattern)}
    found |= {*beside(test), *(place / "conftest.py" for place in test.parents)}
    found |= {*keys.files_named([keys.named(text) for text in sources(test)])}
    return frozenset(path.relative_to(ROOT) for path in found if path.is_relative_to(ROOT))


def tests() -> list[Path]:
    """Every file of tests, and every module of ours that has examples in its docstrings."""
    modules = [path for root in keys.MODULES for path in root.rglob("*.py")]
    return [
        *sorted((ROOT / "tests").glob("*/test_*.py")),
        *sorted(path for path in modules if ">>> " in path.read_text("utf8")),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    ]


def reached(files: list[Path]) -> list[Path]:
    """The tests that a change of these files can reach."""
    everything = any(file.match(pattern) for file in files for pattern in ALL)
    return [test for test in tests() if everything or reads(test).intersection(files)]


def main() -> int:
    base = sys.argv[1] if len(sys.argv) > 1 else "1"
    files = changed("HEAD" if base == "1" else base)
    print(*(test.relative_to(ROOT) for test in reached(files)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
