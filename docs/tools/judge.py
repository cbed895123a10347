"""Run a page's cells, and after each cell that checks something, mutants of it and its subject.

A mutant runs in a copy of the page's names, from where the true cell began, with every `assert`
noted instead of raised, so that one run tries them all. `tools.mutate` begins a process for each
page, which imports no more than this: what else is imported, a page could see.
"""

import ast
import builtins
import contextlib
import copy
import itertools
import json
import linecache
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tools.book import BuildError
from tools.mutants import Change, changed, changes, checks, is_check

MOST, OWN = 12, 4  # mutants of a cell, and of each check in it; of more, these are chosen evenly
SPENT_S = 120  # of processors that the mutants of a page may take together
LEAST_S = 5  # for a mutant; of a cell that takes longer, ten times as long
SLOW_S = 10  # a cell that takes longer is not run again
STUCK = 2  # mutants of a cell; of one with so many that never end, no others are tried
CELL_S = 600  # the fence of a cell as it stands
PAGE_S = 3600
AGAIN = 75  # a process ends with it whose page another one has to go on with


def copied(names: dict[str, Any]) -> dict[str, Any]:
    """A copy in which lists, dicts and sets are others, so that a cell can add to them again."""
    plain = {list, dict, set}
    return {name: copy.copy(v) if type(v) in plain else v for name, v in names.items()}


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError here when the time is over; a mutant may never end."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Noted(ast.NodeTransformer):
    """Every check notes whether it held: __note__(cell, number, held)."""

    def __init__(self, cell: int) -> None:
        self.cell, self.count = cell, 0

    def visit(self, node: ast.AST) -> Any:
        if not is_check(node):
            return self.generic_visit(node)
        calls = [f"__note__({self.cell}, {self.count}, {held})" for held in (True, False)]
        held, failed = (ast.parse(call).body for call in calls)
        caught = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, failed)
        self.count += 1
        return ast.copy_location(ast.Try([node], [caught], held, []), node)


Check = tuple[int, int]  # the cell, and the check's number in it


class Program:
    """A page's cells as a program that can go back to where a cell began, and spoil it."""

    def __init__(self, sources: list[str], expected: frozenset[int] = frozenset()) -> None:
        """Args: the source of every cell, and the numbers (from 0) of those that have to raise."""
        self.sources, self.expected = sources, expected
        self.module = types.ModuleType("__main__")
        self.module.__dict__["Out"] = {}
        self.ran = 0  # cells
        self.before: dict[str, Any] = {}  # the names as they were before the last of them
        self.noted: dict[Check, bool] = {}  # whether each check that was come to has held
        self.spoiling = False
        vars(builtins)["__note__"] = self.note  # functions of other cells have checks too

    def note(self, cell: int, number: int, held: bool) -> None:
        self.noted[cell, number] = held and self.noted.get((cell, number), True)
        if not held and not self.spoiling:
            raise  # pyrefly: ignore - what the check has raised; it was caught by our caller

    def execute(self, cell: int, tree: ast.Module, module: types.ModuleType) -> None:
        """Run a cell, or a mutant of it, as a notebook does: its source can be looked up."""
        source = self.sources[cell]
        file = f"{tempfile.gettempdir()}/ipykernel_{os.getpid()}/{zlib.crc32(source.encode())}.py"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        noted = ast.fix_missing_locations(Noted(cell).visit(copy.deepcopy(tree)))
        main, sys.modules["__main__"] = sys.modules["__main__"], module  # as pickle asks for it
        shown = noted.body.pop() if noted.body and isinstance(noted.body[-1], ast.Expr) else None
        try:
            exec(compile(noted, file, "exec"), module.__dict__)
            if isinstance(shown, ast.Expr):
                value = eval(compile(ast.Expression(shown.value), file, "eval"), module.__dict__)
                if value is not None:  # as IPython keeps what it shows
                    module.__dict__["Out"][cell + 1] = value
        finally:
            sys.modules["__main__"] = main
            if pyplot := sys.modules.get("matplotlib.pyplot"):
                pyplot.close("all")

    def go_on(self, keep: bool = True) -> float:
        """Run the next cell as it stands; return the seconds that it took.

        Args:
          keep: the names of before, for `outcome`; what they hold stays in memory.
        """
        cell, self.ran = self.ran, self.ran + 1
        self.before = copied(self.module.__dict__) if keep else {}
        begin = time.perf_counter()
        try:
            self.execute(cell, ast.parse(self.sources[cell]), self.module)
        except Exception:
            if cell not in self.expected:
                raise
        return time.perf_counter() - begin

    def outcome(self, trees: dict[int, ast.Module], limit_s: float) -> set[Check]:
        """The checks that hold when these cells run, from where the last cell began.

        Raises:
          Exception: what a cell raised that is no check.
        """
        module = types.ModuleType("__main__")
        module.__dict__.update(copied(self.before))
        before, self.noted, self.spoiling = self.noted, {}, True
        try:
            with limited(limit_s):
                for cell, tree in trees.items():
                    self.execute(cell, tree, module)
            return {check for check, held in self.noted.items() if held}
        finally:
            self.noted, self.spoiling = before, False

    def maker(self, cell: int) -> int | None:
        """The last cell before this one that made one of the names that it reads."""
        walked = list(ast.walk(ast.parse(self.sources[cell])))
        read = {n.id for n in walked if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        for earlier in reversed(range(cell)):
            made = {
                n.id
                for n in ast.walk(ast.parse(self.sources[earlier]))
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            made |= {
                n.name
                for n in ast.walk(ast.parse(self.sources[earlier]))
                if isinstance(n, ast.FunctionDef | ast.ClassDef)
            }
            if read & made:
                return earlier
        return None


class Report(NamedTuple):
    """What became of the checks of a page; a check is its cell (from 0) and its number in it."""

    checks: list[Check]
    reached: set[Check]  # by the page as it stands
    tried: set[Check]  # held a second time, and met a mutant
    failed: set[Check]  # by a mutant
    mutants: list[tuple[int, Change]]
    survived: list[tuple[int, Change]]


def spent() -> float:
    """Seconds of processors that this process and its children have had."""
    return sum(os.times()[:4])


Trial = tuple[int, int, int]  # the cell whose checks are tried, the one mutated, which mutant


class Watch:
    """Says in a file how far a page has come, and by when its process will say more.

    A mutant may end its process; or never end, and a loop that XLA has compiled ends only with its
    process, so the parent ends that. The next one begins with the same cell and leaves out what
    was tried last.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file, self.mutants = file, False  # whether any has run here
        self.judged: tuple[int, float, Report] | None = None  # of so many cells, with what is left
        self.stuck: set[Trial] = set()
        if file and file.exists():
            _, trial, self.stuck, self.judged = pickle.loads(file.read_bytes())
            self.stuck |= {trial} - {None}

    def says(self, within_s: float, trial: Trial | None = None) -> None:
        """Within so many seconds there will be another word of it."""
        if self.file:
            part = self.file.with_suffix(".part")
            part.write_bytes(pickle.dumps((time.time() + within_s, trial, self.stuck, self.judged)))
            part.replace(self.file)

    def begins_again(self, judged: tuple[int, float, Report]) -> None:
        """A cell fails: by what a mutant has left behind, or because we keep what it had before."""
        if self.file and self.keeps(judged[0]):
            if not self.mutants:
                self.stuck.add((judged[0], -1, -1))
            self.judged = judged
            self.says(CELL_S)
            os._exit(AGAIN)

    def keeps(self, cell: int) -> bool:
        """Whether the names of before a cell are kept, so that mutants can begin with them."""
        return (cell, -1, -1) not in self.stuck


def last_word(file: Path, begun: float) -> tuple[float, Trial | None]:
    """By when a process that has begun then says more in its Watch, and what it tries by then."""
    if not file.exists() or file.stat().st_mtime < begun:  # it has not come to say anything
        return begun + CELL_S, None
    return pickle.loads(file.read_bytes())[:2]


def judge(
    sources: list[str], expected: frozenset[int] = frozenset(), watch: Watch | None = None
) -> Report:
    """Run a page, and after each cell that checks something, the mutants of it and of its subject.

    Each cell may spend its share of SPENT_S, and of what those before it have left over.

    >>> report = judge(["x = 2 + 1", "assert x == 3", "assert x or True"])
    >>> report.checks, sorted(report.tried - report.failed), len(report.mutants)
    ([(1, 0), (2, 0)], [(2, 0)], 9)
    """
    program, watch = Program(sources, expected), watch or Watch()
    first, left, report = watch.judged or (0, SPENT_S, Report([], set(), set(), set(), [], []))
    to_come = sum(bool(checks(source)) for source in sources[first:])
    for cell, source in enumerate(sources):
        watch.says(CELL_S)
        begin = spent()
        try:
            seconds = program.go_on(keep=first <= cell and watch.keeps(cell))
        except Exception:
            watch.begins_again((cell, left, report))
            raise
        slow = spent() - begin > SLOW_S
        if cell < first:  # judged by a process that got stuck later
            continue
        watch.judged = copy.deepcopy((cell, left, report))
        own = [(cell, number) for number in range(len(checks(source)))]
        report.checks.extend(own)
        if own:
            begin = spent()
            subjects = [one for one in (cell, program.maker(cell)) if one is not None]
            if cell not in expected and watch.keeps(cell) and not slow:
                for nth, subject in enumerate(subjects, 1):
                    end = begin + left / to_come * nth / len(subjects)
                    if subject not in expected:
                        spoil(program, report, cell, subject, LEAST_S + 10 * seconds, end, watch)
            left, to_come = left - (spent() - begin), to_come - 1
    report.reached.update(program.noted)
    return report


def spoil(
    program: Program,
    report: Report,
    cell: int,
    subject: int,
    limit_s: float,
    end: float,
    watch: Watch,
) -> None:
    """Try the checks of a cell by the mutants of a cell: itself, or one that made its names."""
    watch.says(CELL_S)
    source = program.sources[subject]
    trees = {subject: ast.parse(source), cell: ast.parse(program.sources[cell])}
    try:
        steady = program.outcome(trees, limit_s)  # a cell may not run twice alike
    except Exception:
        return
    possible = changes(source)
    batches = [*rounds(possible), *([one] for one in chosen(possible))]
    if subject != cell:
        batches = [batch for batch in batches if batch[0].check is None]
    for nth, batch in enumerate(batches):
        stuck = [one for one in watch.stuck if one[:2] == (cell, subject)]
        if nth and (spent() > end or (len(stuck) >= STUCK and nth > max(stuck)[2])):
            return
        mutant = trees | {subject: changed(source, *batch)}
        report.mutants.extend((subject, change) for change in batch)
        report.tried.update(check for check in steady if check[0] == cell)
        if (cell, subject, nth) in watch.stuck:  # the build would not have ended
            continue
        watch.mutants = True
        watch.says(limit_s + LEAST_S, (cell, subject, nth))  # after limit_s Python has ended it
        try:
            fell = steady - program.outcome(mutant, limit_s)
        except (Exception, SystemExit):  # not a check, but the build would have ended
            continue
        report.failed.update(fell)
        for change in batch:
            if (subject, change.check) not in fell if change.check is not None else not fell:
                report.survived.append((subject, change))


def rounds(possible: list[Change]) -> list[list[Change]]:
    """The changes inside of checks, one of each check at a time: each check tells of its own."""
    own: dict[int, list[Change]] = {}
    for change in possible:
        if change.check is not None:
            own.setdefault(change.check, []).append(change)
    made = itertools.zip_longest(*(chosen(found, OWN) for found in own.values()))
    return [[change for change in batch if change] for batch in made]


def chosen(possible: list[Change], most: int | None = None) -> list[Change]:
    """At most so many, evenly; without a bound, MOST of those that stand in no check."""
    if most is None:
        possible, most = [change for change in possible if change.check is None], MOST
    step = max(1, len(possible) / most)
    return [possible[int(n * step)] for n in range(min(most, len(possible)))]


def of_process(sources: list[str], expected: list[int], env: dict[str, str]) -> Report:
    """What `judge` finds in a process of its own, begun again as often as a mutant ends it.

    Raises:
      BuildError: the page itself ended it, or took over CELL_S in a cell; or all over PAGE_S.
    """
    with tempfile.TemporaryDirectory() as name:  # what a page writes is gone with it
        folder, begin = Path(name), time.time()
        out, log = folder / "report", folder / "log"
        (folder / "cells").write_text(json.dumps([sources, expected]), "utf8")
        command = [sys.executable, "-c", "from tools import judge; judge.main()"]
        while not out.exists():
            begun, own = time.time(), tempfile.mkdtemp(dir=folder)  # no file of another's is there
            with log.open("w") as said:
                process = subprocess.Popen(command, cwd=own, env=env, stdout=said, stderr=said)
            while (code := process.poll()) is None:
                time.sleep(0.5)
                if time.time() > min(last_word(folder / "watch", begun)[0], begin + PAGE_S):
                    process.kill()
            if time.time() > begin + PAGE_S:
                raise BuildError(f"its mutants ran over {PAGE_S} s")
            _, trial = last_word(folder / "watch", begun)
            if code != AGAIN and not trial and not out.exists():
                raise BuildError(log.read_text("utf8").strip()[-2000:] or f"it ended with {code}")
        return pickle.loads(out.read_bytes())


def main() -> None:
    """In that process: above where it stands are the cells, and there it leaves the report."""
    warnings.simplefilter("ignore")
    folder = Path.cwd().parent  # a page may go elsewhere
    sources, expected = json.loads((folder / "cells").read_text("utf8"))
    report = judge(sources, frozenset(expected), Watch(folder / "watch"))
    out = folder / "report"
    out.with_suffix(".part").write_bytes(pickle.dumps(report))
    out.with_suffix(".part").replace(out)
    os._exit(0)  # whatever a mutant has left behind
