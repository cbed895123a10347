"""`python -m seejax.report`: its counts are counted another way, and the script stays as it is."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from processes import Process
from seejax.report import Summary, summary
from seejax.report.summary import read

START = """
import sys
import jax
import jax.numpy as jnp
traced = []
"""
SHAPES = (
    START
    + """
@jax.jit
def step(x):
    traced.append(x.shape)
    for _ in range(30):
        x = jnp.sin(x) @ x.T @ x
    return x

for n in range(2, 7):
    step(jnp.ones((n, 3)))
    step(jnp.ones((n, 3)))
print("traced", len(traced))
"""
)
NEW_FUNCTION = (
    START
    + """
def train():
    for n in range(4):
        def loss(x):
            traced.append(n)
            for _ in range(30):
                x = jnp.sin(x) @ x
            return x
        jax.jit(loss)(jnp.ones((3, 3)))

train()
print("traced", len(traced))
"""
)
CONSTANT = (
    START
    + """
table = jnp.ones((800, 800))

@jax.jit
def score(x):
    traced.append(x)
    return table @ x

score(jnp.ones(800))
print("traced", len(traced))
"""
)


def report(
    folder: Path, code: str, *arguments: str, env: dict | None = None, before: Sequence[str] = ()
) -> subprocess.CompletedProcess:
    (folder / "train.py").write_text(code)
    command = [sys.executable, "-m", "seejax.report", "--lang", "en", "train.py", *arguments]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", **(env or {})}
    return subprocess.run(
        [*before, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def found(folder: Path) -> Summary:
    return summary(read(folder / "report-train" / "events.jsonl"))


@pytest.mark.parametrize(
    ("code", "kind", "subject", "count"),
    [
        (SHAPES, "shapes", "step", 4),
        (NEW_FUNCTION, "new-function", "loss", 4),
        (CONSTANT, "constants", "2.56MB", 1),
    ],
    ids=["shapes", "new-function", "constants"],
)
def test_report_names_the_cause_that_was_planted(
    code: str, kind: str, subject: str, count: int, tmp_path: Path
) -> None:
    done = report(tmp_path, code)
    assert done.returncode == 0, done.stderr
    advice = {each.kind: each for each in found(tmp_path).advice}[kind]
    assert (advice.subject, advice.count) == (subject, count)
    if kind != "constants":  # the script's own count
        traced = int(done.stdout.split()[-1])
        assert count == (traced - 1 if kind == "shapes" else traced)
    assert "train.py" in " ".join([advice.where, *advice.evidence])
    page = (tmp_path / "report-train" / "report.html").read_text("utf8")
    assert subject in page and subject in done.stderr
    assert json.loads((tmp_path / "report-train" / "report.json").read_text())["advice"]


KINDS = (
    START
    + """
from functools import partial

def slow(x):
    for _ in range(30):
        x = jnp.sin(x) @ x.T @ x
    return x

@jax.jit
def shapes(x):
    return slow(x)

@jax.jit
def tree(d):
    return slow(sum(d.values()))

@jax.jit
def context(x):
    return slow(x)

@partial(jax.jit, static_argnames="static")
def static(x, static):
    return slow(x * static)

a = jnp.ones((3, 3))
for n in range(1, 4):
    shapes(a[:n])
    tree({str(m): a for m in range(n)})
    with jax.default_matmul_precision(["default", "high", "highest"][n - 1]):
        context(a)
    static(a, n)
"""
)


def test_report_tells_kinds_of_retraces_apart(tmp_path: Path) -> None:
    done = report(tmp_path, KINDS)
    assert done.returncode == 0, done.stderr
    advice = {each.subject: (each.kind, each.count) for each in found(tmp_path).advice}
    assert {name: advice[name] for name in ("shapes", "tree", "context", "static")} == {
        name: (name, 2) for name in ("shapes", "tree", "context", "static")
    }


def test_report_counts_programs_as_jax_logs_them(tmp_path: Path) -> None:
    """JAX's own log of compilations is another way of knowing."""
    done = report(tmp_path, SHAPES, env={"JAX_LOG_COMPILES": "1"})
    logged = re.findall(r"Finished XLA compilation of jit\((\w+)\)", done.stderr)
    programs = [program.name for program in found(tmp_path).programs if program.compiled]
    assert logged and sorted(programs) == sorted(logged)


def test_report_attributes_seconds_once(tmp_path: Path) -> None:
    report(tmp_path, SHAPES)
    made = found(tmp_path)
    total = sum(made.seconds(phase) for phase in ("trace", "lower", "compile"))
    assert 0 < total < made.wall_s
    step = [program for program in made.programs if program.name == "step"]
    assert len(step) == 5 and all(program.seconds["compile"] > 0 for program in step)
    assert {program.stack[-1][2] for program in step} == {"<module>"}


LOOK = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
assert "jax" not in sys.modules
import jax
print(__name__, sys.argv, __file__, sys.path[0], jax.device_count())
print("to stderr", file=sys.stderr)
f = jax.jit(lambda x: x)
f(1), f(1.0)
sys.exit(3)
"""


def test_script_is_run_unchanged(tmp_path: Path) -> None:
    done = report(tmp_path, LOOK, "--rate", "0.1", "-v")
    plain = subprocess.run(
        [sys.executable, "train.py", "--rate", "0.1", "-v"],
        cwd=tmp_path,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == plain.returncode == 3
    assert done.stdout == plain.stdout
    assert done.stderr.startswith("to stderr\n\n") and "CACHE MISS" not in done.stderr
    assert "SystemExit" in done.stderr


def test_module_is_run_as_python_runs_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").touch()
    (tmp_path / "lib" / "rate.py").write_text("RATE = 7\n")
    (tmp_path / "lib" / "train.py").write_text("from .rate import RATE\nprint(RATE, __name__)\n")
    command = [sys.executable, "-m", "seejax.report", "--lang", "zh", "-m", "lib.train"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.stdout == "7 __main__\n" and "没有导入 JAX" in done.stderr
    assert (tmp_path / "report-lib.train" / "report.html").exists()


def test_exception_ends_the_script_as_ever_and_leaves_the_report(tmp_path: Path) -> None:
    done = report(tmp_path, SHAPES + "\ndef fails():\n    raise ValueError('planned')\nfails()\n")
    assert done.returncode == 1 and "It ended with ValueError." in done.stderr
    trace, _, _ = done.stderr.partition("\n\n")
    assert trace.startswith("Traceback") and trace.endswith("ValueError: planned")
    assert "_recorder" not in trace and "runpy" not in trace
    assert found(tmp_path).advice


WAIT = (
    SHAPES
    + """
import time
print("ready", flush=True)
time.sleep(100)
"""
)


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGKILL, 128 + signal.SIGKILL, "It was killed."),
        (signal.SIGTERM, 128 + signal.SIGTERM, "It was killed."),
        (signal.SIGINT, 128 + signal.SIGINT, "It ended with KeyboardInterrupt."),
    ],
)
def test_stopped_script_leaves_its_report(
    number: int, status: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(WAIT)
    command = [sys.executable, "-m", "seejax.report", "--lang", "en", "train.py"]
    process = Process(*command, cwd=tmp_path, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    process.wait_for("ready")
    events = (tmp_path / "report-train" / "events.jsonl").read_text().splitlines()
    os.kill(json.loads(events[0])["pid"], number)
    assert process.end()[0] == status
    text = (tmp_path / "report-train" / "report.txt").read_text()
    assert said in text and "step" in text


def test_events_that_cannot_be_written_stop_the_notes_and_not_the_script(tmp_path: Path) -> None:
    small = ["sh", "-c", 'ulimit -f 4; exec "$@"', "sh"]  # files of 2 or 4 KiB
    done = report(tmp_path, SHAPES, before=small)
    assert "traced 5" in done.stdout
    assert done.returncode == 0 and "notes end early" in done.stderr
    assert found(tmp_path).argv == ["train.py"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.py"], "there is no file none.py"),
        (["--folder", "train.py/x", "train.py"], "cannot be written: Not a directory"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    command = [sys.executable, "-m", "seejax.report", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_page_shows_names_as_they_are_and_its_tree_opens(browser: Browser, tmp_path: Path) -> None:
    report(tmp_path, SHAPES, "<b>&")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "report-train" / "report.html").as_uri())
    assert page.title() == "train.py <b>&" and page.locator("h1 b").count() == 0
    assert page.locator("ol > li").count() >= 1
    page.locator("summary").first.click()
    assert not page.locator("details").first.evaluate("it => it.open")
    for width in 375, 1440:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not errors
    page.close()


def test_seconds_of_what_lies_within_are_not_counted_twice() -> None:
    def event(kind: str, name: str, at: float, seconds: float) -> dict:
        stack = [["a.py", 1, "f"]]
        return {
            "kind": kind,
            "name": name,
            "at": at,
            "seconds": seconds,
            "thread": 1,
            "stack": stack,
        }

    events = [
        event("trace", "inner", 1.0, 0.4),
        event("trace", "outer", 1.5, 1.5),
        event("lower", "jit(outer)", 2.0, 0.4),
        event("compile", "jit(outer)", 5.0, 3.0),
        {"kind": "end", "at": 6.0, "thread": 1, "error": ""},
    ]
    inner, outer = summary(events).programs
    assert inner.seconds == {"trace": 0.4} and not inner.compiled
    assert outer.seconds == pytest.approx({"trace": 1.1, "lower": 0.4, "compile": 3.0})
    assert summary(events).wall_s == 6.0 and summary(events[:4]).ended == "killed"
