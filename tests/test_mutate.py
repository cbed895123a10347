"""Which checks of a page can fail: on pages of a few lines, where we know."""

import ast
import os
import pickle
import sys
import types
from pathlib import Path

import pytest

from tools import book, census, mutants, mutate


def stuck(*cells: str, expected: frozenset[int] = frozenset()) -> list[tuple[int, int]]:
    """The checks, by cell and number, that met a mutant and never failed."""
    report = mutate.judge(list(cells), expected)
    return sorted(report.tried - report.failed)


@pytest.mark.parametrize(
    "cells",
    [
        ("x = 2 + 1\nassert x > 2",),
        ("def f(x):\n    return x - 1", "assert f(3) < 2.5"),
        ("def f(x, by=2):\n    return x * by", "y = f(3, by=4)\nassert y > 6"),
        ("import functools\n@functools.cache\ndef f(x):\n    return [x]", "assert f(1) is f(1)"),
        ("kept = [n for n in range(3)]", "import sys", "assert sum(kept) < 4"),
        ("assert 'tracer' in 'a tracer of JAX'",),
    ],
)
def test_a_check_of_its_subject_fails_with_it(cells: tuple[str, ...]) -> None:
    assert stuck(*cells) == []


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        (("x = 3\nassert x == x",), (0, 0)),
        (("x = 3", "assert x < 1000"), (1, 0)),
        (("x = -2 ** 3\nassert abs(x) >= 0",), (0, 0)),
        (("x, y = 1, 2\nassert x == 1\nassert isinstance(y, int)",), (0, 1)),
        (
            ("def f(x):\n    return x + 1", "for n in range(2):\n    assert f(n) is not None"),
            (1, 0),
        ),
    ],
)
def test_a_check_that_cannot_fail_is_found(cells: tuple[str, ...], where: tuple[int, int]) -> None:
    assert stuck(*cells) == [where]


def test_a_check_that_no_run_comes_to_is_told() -> None:
    report = mutate.judge(
        ["def f(x):\n    assert x\nfor x in []:\n    assert x == 1", "assert 2 > 1"]
    )
    assert set(report.checks) - report.reached == {(0, 0), (0, 1)}


def test_a_check_in_a_function_is_told_by_its_own_cell() -> None:
    report = mutate.judge(["def same(x, y):\n    assert x == y", "same(2, 2)\nassert True"])
    assert (0, 0) in report.reached


def test_the_page_goes_on_as_if_nothing_had_been_changed() -> None:
    """Lists are whole again, names keep their values, and JAX-like state is not judged twice."""
    cells = ["log = []\nx = 1", "log.append(x)\nx = x + 1\nassert log == [1]", "assert x == 2"]
    report = mutate.judge([*cells, "assert log == [1]"])
    assert report.checks == [(1, 0), (2, 0), (3, 0)]
    assert report.reached == set(report.checks) == report.failed


def test_a_cell_that_does_not_run_twice_alike_is_not_judged() -> None:
    once = "import sys\nassert not hasattr(sys, 'once')\nsys.once = None"
    try:
        report = mutate.judge([once, "x = 1\nassert x == 1"])
    finally:
        vars(sys).pop("once", None)
    assert report.tried == {(1, 0)} == report.failed


def test_a_page_that_fails_is_no_report() -> None:
    with pytest.raises(AssertionError):
        mutate.judge(["assert 1 == 2"])
    with pytest.raises(ZeroDivisionError):
        mutate.judge(["1 / 0"])
    assert stuck("1 / 0", "assert 2 == 2", expected=frozenset({0})) == []


def test_a_mutant_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    program = mutate.Program(["n = 2\nwhile n != 0:\n    n = n - 1\nassert n == 0"])
    program.go_on()
    endless = ast.parse(program.sources[0].replace("n - 1", "n + 0"))
    with pytest.raises(TimeoutError):
        program.outcome(0, {0: endless}, limit_s=0.2)
    assert isinstance(sys.modules["__main__"], types.ModuleType)
    assert sys.modules["__main__"] is not program.module


def test_a_mutant_that_only_its_process_can_end(tmp_path: Path) -> None:
    """XLA runs a loop to its end, whoever asks it to stop: 0 // 4 never is 1."""
    loop = "lax.while_loop(lambda n: n != 0, lambda n: n // 4, 3)"
    first = "from jax import lax\nx = 5\nassert x == 5"
    cells = [first, f"end = {loop}", "assert end == 0", "assert x == 5"]
    code = f"""
from pathlib import Path
from tools import mutate
mutate.LEAST_S = 1
report = mutate.judge({cells}, watch=mutate.Watch(Path("watch")))
Path("report.json").write_text(str([len(report.mutants), *map(len, report[:4])]))
"""
    env = {**os.environ, "PYTHONPATH": str(book.DOCS)}
    assert mutate.ended([sys.executable, "-c", code], tmp_path, env)[1:] == [3, 3, 3, 3]
    *_, stuck, judged = pickle.loads((tmp_path / "watch").read_bytes())
    assert [(cell, subject) for cell, subject, _ in stuck] == [(2, 1)] and judged[0] == 3


def test_the_table_says_what_the_report_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = ["assert True"]
    known = {"cells": mutants.digest(sources), "tried": 7, "never_failed": [{}, {}]}
    monkeypatch.setattr(census, "sources", lambda path: sources)
    monkeypatch.setattr(census, "reports", lambda: {"jit": known})
    monkeypatch.setattr(census.cache, "seconds", lambda page: 21.2)
    for digest, shown in ((known["cells"], "| 7 | 2 |"), ("of other cells", "| — | — |")):
        known["cells"] = digest
        census.counted.cache_clear()
        line = f"| [Just in time](jit.md) | 1 | 21 | 1 {shown}"
        assert line in census.told("pages", "en", {"jit": "Just in time"})
    census.counted.cache_clear()
