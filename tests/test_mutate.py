"""Which checks of a page can fail: on pages of a few lines, where we know."""

import ast
import os
import sys
import types
from pathlib import Path

import pytest

from tools import book, census, judge, mutants


def stuck(*cells: str, expected: frozenset[int] = frozenset()) -> list[tuple[int, int]]:
    """The checks, by cell and number, that met a mutant and never failed."""
    report = judge.judge(list(cells), expected)
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
    report = judge.judge(
        ["def f(x):\n    assert x\nfor x in []:\n    assert x == 1", "assert 2 > 1"]
    )
    assert set(report.checks) - report.reached == {(0, 0), (0, 1)}


def test_a_check_in_a_function_is_told_by_its_own_cell() -> None:
    report = judge.judge(["def same(x, y):\n    assert x == y", "same(2, 2)\nassert True"])
    assert (0, 0) in report.reached


def test_the_page_goes_on_as_if_nothing_had_been_changed() -> None:
    """Lists are whole again, names keep their values, and JAX-like state is not judged twice."""
    cells = ["log = []\nx = 1", "log.append(x)\nx = x + 1\nassert log == [1]", "assert x == 2"]
    report = judge.judge([*cells, "assert log == [1]"])
    assert report.checks == [(1, 0), (2, 0), (3, 0)]
    assert report.reached == set(report.checks) == report.failed


def test_a_cell_that_does_not_run_twice_alike_is_not_judged() -> None:
    once = "import sys\nassert not hasattr(sys, 'once')\nsys.once = None"
    try:
        report = judge.judge([once, "x = 1\nassert x == 1"])
    finally:
        vars(sys).pop("once", None)
    assert report.tried == {(1, 0)} == report.failed


def test_a_page_that_fails_is_no_report() -> None:
    with pytest.raises(AssertionError):
        judge.judge(["assert 1 == 2"])
    with pytest.raises(ZeroDivisionError):
        judge.judge(["1 / 0"])
    assert stuck("1 / 0", "assert 2 == 2", expected=frozenset({0})) == []


def test_a_mutant_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    program = judge.Program(["n = 2\nwhile n != 0:\n    n = n - 1\nassert n == 0"])
    program.go_on()
    endless = ast.parse(program.sources[0].replace("n - 1", "n + 0"))
    with pytest.raises(TimeoutError):
        program.outcome({0: endless}, limit_s=0.2)
    assert isinstance(sys.modules["__main__"], types.ModuleType)
    assert sys.modules["__main__"] is not program.module


def test_a_mutant_that_only_its_process_can_end(tmp_path: Path) -> None:
    """XLA runs a loop to its end, whoever asks it to stop: 0 // 4 never is 1."""
    loop = "lax.while_loop(lambda n: n != 0, lambda n: n // 4, 3)"
    first = "from jax import lax\nx = 5\nassert x == 5"
    cells = [first, f"end = {loop}", "assert end == 0", "assert x == 5"]
    env = {**os.environ, "PYTHONPATH": str(book.DOCS)}
    report = judge.of_process(cells, [], env)
    assert len(report.checks) == len(report.failed) == 3
    assert (1, "0 → 1") in [(cell, change.what) for cell, change in report.mutants]


def test_what_a_mutant_leaves_behind_ends_with_its_process(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = ["import os\nos.mkdir('new')\nos.environ['n'] = str(2 + 1)"]
    cells += ["os.environ['n'] = str(2 + 1)\nassert os.environ['n'] == '3'"]
    cells += ["assert os.environ['n'] == '3'"]
    report = judge.of_process(cells, [], {**os.environ, "PYTHONPATH": str(book.DOCS)})
    assert report.failed == report.reached == {(1, 0), (2, 0)}
    with pytest.raises(AssertionError):  # of the last cell, in one process
        judge.judge(cells)


def test_a_mutant_that_ends_its_process_ends_no_page() -> None:
    cells = ["import os\nn = 2\nif n == 3:\n    os._exit(9)", "assert n == 2"]
    env = {**os.environ, "PYTHONPATH": str(book.DOCS)}
    assert judge.of_process(cells, [], env).tried == {(1, 0)}
    with pytest.raises(book.BuildError, match="AssertionError"):
        judge.of_process(["assert 2 == 3"], [], env)


def test_a_cell_that_asks_what_is_left_in_memory_is_not_judged() -> None:
    cells = [
        "import weakref\nclass Own: pass\nx = Own()\nleft = weakref.ref(x)\nassert left() is x"
    ]
    cells += ["del x\nassert left() is None", "n = 2\nassert left() is None and n == 2"]
    report = judge.of_process(cells, [], {**os.environ, "PYTHONPATH": str(book.DOCS)})
    assert report.reached == {(0, 0), (1, 0), (2, 0)}
    assert report.tried == report.failed == {(2, 0)}


def test_what_a_cell_shows_is_kept_as_ipython_keeps_it() -> None:
    assert stuck("x = [2 + 1]\nx", "None", "assert [*Out] == [1] and Out[1] is x == [3]") == []


def test_a_mutant_that_exits_ends_no_page() -> None:
    assert stuck("import sys\nn = 1\nif n == 2:\n    sys.exit(1)", "assert n == 1") == []


def test_a_page_sees_no_module_that_only_the_book_needs() -> None:
    source = "import sys\nassert not {'IPython', 'myst_nb', 'importlib_metadata'} & {*sys.modules}"
    report = judge.of_process([source], [], {**os.environ, "PYTHONPATH": str(book.DOCS)})
    assert report.reached == {(0, 0)}


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
