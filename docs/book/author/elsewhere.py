"""Build and test as other machines would: make test-elsewhere, or ROW="sse4 one-core" just those.

Each row is a fresh clone of what is committed, in build/elsewhere: its pages are executed anew. A
machine with nothing installed is a job of the workflow elsewhere.yml, in a container.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from book.paths import BUILD, ROOT, say

FOLDER = BUILD / "elsewhere"
OF_MAKE = {"PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}  # of the make that asks


class Row(NamedTuple):
    """How another machine differs from this one."""

    env: dict[str, str] = {}  # noqa: RUF012 - never changed
    before: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


# NumPy and its LAPACK as on a processor of 2008: XLA's flag does not reach them.
PLAIN_NUMPY = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Nehalem",
    "OPENBLAS_NUM_THREADS": "1",
}

ROWS = {
    "default": Row(),
    "sse4": Row({"SEEJAX_XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}),
    "plain-numpy": Row(PLAIN_NUMPY),
    "avx2": Row({"SEEJAX_XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}),
    "one-core": Row(before=("taskset", "-c", "0")),
    "four-workers": Row(options=("WORKERS=4",)),
    "one-thread": Row({"OMP_NUM_THREADS": "1"}),
    "empty-home": Row({"HOME": str(FOLDER / "home"), "XDG_CACHE_HOME": str(FOLDER / "home")}),
}


def last_words(log: Path) -> str:
    """The last line that pytest has said of its tests.

    >>> log = getfixture("tmp_path") / "log"
    >>> _ = log.write_text("x\\n3 failed, 40 passed in 9s (0:09)\\nmake: *** Error 1\\n")
    >>> last_words(log)
    '3 failed, 40 passed in 9s (0:09)'
    """
    said = re.findall(r"^\d+ (?:passed|failed|error).* in .*s.*$", log.read_text("utf8"), re.M)
    return said[-1] if said else "no test was run"


def run(name: str, row: Row) -> bool:
    """Build and test one row; whether all was well."""
    clone, log = FOLDER / name, FOLDER / f"{name}.log"
    for old in (clone, FOLDER / "home"):
        shutil.rmtree(old, ignore_errors=True)
    (FOLDER / "home").mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    env = {key: value for key, value in os.environ.items() if key not in OF_MAKE} | row.env
    begin = time.perf_counter()
    with log.open("w", encoding="utf8") as out:
        command = [*row.before, "make", "html", "test", *row.options]
        code = subprocess.run(command, cwd=clone, env=env, stdout=out, stderr=out).returncode
    seconds = time.perf_counter() - begin
    say(name, f"{'failed' if code else 'ok'}, {seconds:.0f} s: {last_words(log)}")
    return not code


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all of them")
    names = parser.parse_args().rows or [*ROWS]
    if unknown := {*names} - {*ROWS}:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    good = [run(name, ROWS[name]) for name in names]
    print("What each row has said: build/elsewhere/ROW.log")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
