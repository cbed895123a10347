"""`python -m seejax.report`: its counts are counted another way, and the script stays as it is."""

import html
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from processes import Process
from seejax.lesson.processes import address
from seejax.report import Summary, opening, summary
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


def run(
    folder: Path, command: Sequence[str], env: dict[str, str] | None = None
) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu", **(env or {})},
        capture_output=True,
        text=True,
        timeout=300,
    )


def report(
    folder: Path,
    code: str,
    *arguments: str,
    env: dict[str, str] | None = None,
    before: Sequence[str] = (),
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess:
    (folder / "train.py").write_text(code)
    ours = [sys.executable, *options, "-m", "seejax.report", "--lang", "en", "train.py"]
    return run(folder, [*before, *ours, *arguments], env)


def plain(
    folder: Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    options: Sequence[str] = (),
) -> subprocess.CompletedProcess:
    """The script of the report, run by Python alone."""
    return run(folder, [sys.executable, *options, "train.py", *arguments], env)


def found(folder: Path) -> Summary:
    return summary(read(folder / "report-train" / "events.jsonl"))


@pytest.mark.parametrize(
    ("code", "kind", "subject", "count"),
    [
        (SHAPES, "shapes", "step", 4),
        (NEW_FUNCTION, "new-function", "loss", 3),
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
        assert count == traced - 1
    assert "train.py" in " ".join([advice.where, *advice.evidence])
    page = (tmp_path / "report-train" / "report.html").read_text("utf8")
    assert subject in page and subject in done.stderr
    assert json.loads((tmp_path / "report-train" / "report.json").read_text())["advice"]


KINDS = (
    START
    + """
from functools import partial
from flax import nnx

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

@jax.jit
def weak(x):
    return slow(jnp.ones((3, 3)) * x)

@jax.jit
def placement(x):
    return slow(x)

@jax.jit
def sharding(x):
    return slow(x)

class Net(nnx.Module):
    def __init__(self):
        self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(0))

@nnx.jit
def metadata(net, x):
    return slow(net.drop(x))

net = Net()
for mode in net.train, net.eval, net.train:
    mode()
    metadata(net, jnp.ones((3, 3)))
weak(2.0), weak(jnp.float32(2.0))
mesh = jax.make_mesh((3,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
sharding(jnp.ones((3, 3)))
sharding(jax.device_put(jnp.ones((3, 3)), jax.NamedSharding(mesh, jax.P("a"))))
a = jnp.ones((3, 3))
for device in jax.devices():
    placement(jax.device_put(a, device))
for n in range(1, 4):
    shapes(a[:n])
    tree({str(m): a for m in range(n)})
    with jax.default_matmul_precision(["default", "high", "highest"][n - 1]):
        context(a)
    static(a, n)
"""
)


def test_report_tells_kinds_of_retraces_apart(tmp_path: Path) -> None:
    done = report(tmp_path, KINDS, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=3"})
    assert done.returncode == 0, done.stderr
    advice = {each.subject: (each.kind, each.count) for each in found(tmp_path).advice}
    kinds = ("shapes", "tree", "context", "placement")
    assert {name: advice[name] for name in kinds} == {name: (name, 2) for name in kinds}
    kinds = ("weak", "metadata", "sharding")
    assert {name: advice[name] for name in kinds} == {name: (name, 1) for name in kinds}
    assert advice["static"][0] in ("static", "unnamed") and advice["static"][1] == 2
    evidence = next(a.evidence for a in found(tmp_path).advice if a.subject == "metadata")
    assert "deterministic" in evidence[0] and "True" in evidence[0] and len(evidence[0]) < 300


IN_TRACE = (
    START
    + """
table, ran = jnp.arange(9.0), []

def sizes(x):
    return jnp.cos(x) * 3                           # RAN

@jax.jit
def step(x):
    x = jnp.sin(table) + x                          # it becomes a part of the program
    with jax.ensure_compile_time_eval():
        y = sizes(table)
    ran.append(not isinstance(y, jax.core.Tracer))
    return x + y

jnp.tan(table)
step(1.0)
jnp.exp(table)
assert ran == [True]
"""
)


def test_what_runs_while_a_function_is_traced_is_told_from_what_becomes_part_of_it(
    tmp_path: Path,
) -> None:
    done = report(tmp_path, IN_TRACE)
    assert done.returncode == 0, done.stderr
    made = found(tmp_path)
    assert {p.name: p.within for p in made.programs if p.within} == {
        "cos": "step",
        "multiply": "step",
    }
    assert {"tan", "exp", "step"} <= {p.name for p in made.programs if not p.within}
    (advice,) = (each for each in made.advice if each.kind == "in-trace")
    line = next(n for n, text in enumerate(IN_TRACE.splitlines(), 1) if "# RAN" in text)
    assert advice.subject == "step" and advice.evidence[0].endswith(f"train.py:{line} (2)")
    assert "while `step` was traced, 2 programs ran" in done.stderr
    assert "placement" not in {each.kind for each in made.advice}  # though they were not traced


OPENED = (
    START
    + """
from functools import partial

@partial(jax.jit, static_argnames="n")
def step(params, x, *, n):
    for _ in range(n):
        x = jnp.tanh(x @ params["w"])
    return x

class Net:
    @jax.jit
    def hidden(x):
        return jnp.sin(x) * 2 + 1 - jnp.cos(x)

def main():
    @jax.jit
    def inner(x):
        for _ in range(9):
            x = x + 1
        return x

    inner(jnp.ones(3))                              # INNER
    print(jax.jit(lambda x: x * 2 + x)(jnp.ones(3)))
    step({"w": jnp.ones((3, 3))},
         jnp.ones((5, 3)), n=8)
    [Net][0].hidden(jnp.ones(3))

if __name__ == "__main__":
    @jax.jit
    def late(x):
        return x + 2

    late(1.0)
    main()
"""
)


def test_largest_program_opens_with_what_the_report_says(tmp_path: Path) -> None:
    done = report(tmp_path, OPENED)
    assert done.returncode == 0, done.stderr
    made = {program.name: program for program in found(tmp_path).programs}
    typed = re.search(r"arguments\): `python (-m seejax.see .*)`", done.stderr)
    assert typed, done.stderr
    shown = run(tmp_path, [sys.executable, *shlex.split(typed[1]), "--text"])
    assert f"step: {made['step'].equations} equations" in shown.stdout, shown
    line = next(n for n, text in enumerate(OPENED.splitlines()) if "# INNER" in text)
    written = re.search(r"no command can name it; .* before (\S+): `(.*)`", done.stderr)
    assert written and written[1] == f"train.py:{line + 1}"
    lines = OPENED.splitlines()
    lines.insert(line, "    " + re.sub(r"(see\.trace.*)\.show\(\)", r"print(\1)", written[2]))
    (tmp_path / "train.py").write_text("\n".join(lines))
    assert f"inner: {made['inner'].equations} equations" in plain(tmp_path).stdout
    assert made["<lambda>"].call == "jax.jit(lambda x: x * 2 + x), jnp.ones(3)"
    assert made["hidden"].call == "" and "calls no jitted function by its name" in done.stderr
    assert "--limit=400" in opening.command(made["step"], 100.0)
    assert made["late"].function == "late"  # only as __main__ it has this name
    assert opening.command(made["late"], 1.0) == ""
    page = (tmp_path / "report-train" / "report.html").read_text("utf8")
    assert html.escape(typed[1]) in page


INNOCENT = (
    START
    + """
def loss(w):
    for _ in range(30):
        w = jnp.sin(w) @ w
    return w.sum()

value, slope = jax.jit(loss), jax.jit(jax.grad(loss))
w = jnp.ones((3, 3))
for _ in range(3):
    w = w - slope(w)
value(w), value(w)
"""
)
NAMELESS = (
    START
    + """
class Net:
    def __call__(self, x):
        for _ in range(30):
            x = jnp.sin(x) @ x.T @ x
        return x

net = jax.jit(Net())
for n in range(1, 4):
    net(jnp.ones((n, 3)))
"""
)


def test_two_uses_of_one_function_are_no_mistake(tmp_path: Path) -> None:
    report(tmp_path, INNOCENT)
    assert "loss" in {program.name for program in found(tmp_path).programs}
    assert "new-function" not in {advice.kind for advice in found(tmp_path).advice}


def test_function_of_which_jax_explains_nothing_is_counted(tmp_path: Path) -> None:
    report(tmp_path, NAMELESS)
    advice = {each.kind: each for each in found(tmp_path).advice}
    assert advice["retraced"].count == 2 and advice["retraced"].where.endswith("train.py:15")


MANY = (
    START
    + """
f = jax.jit(lambda x: x.sum())
for n in range(1, 151):
    f.lower(jax.ShapeDtypeStruct((n,), "float32"))
"""
)


def test_jax_is_not_asked_for_causes_without_end(tmp_path: Path) -> None:
    """It compares with every cause before, which takes longer than the script itself."""
    report(tmp_path, MANY)
    causes = [program for program in found(tmp_path).programs if program.cause]
    assert len(causes) == 100 and "eager" not in {each.kind for each in found(tmp_path).advice}


CLOSES = (
    START
    + """
import os
jax.jit(lambda x: x * 2)(1.0)
os.closerange(3, 64)                    # as a daemon does
log = open("out.txt", "w", buffering=1)
log.write("mine\\n")
jax.jit(lambda x: x * 3)(1.0)
os.close(log.fileno())
jax.jit(lambda x: x * 4)(1.0)
os._exit(0)
"""
)


def test_script_may_close_every_file(tmp_path: Path) -> None:
    done = report(tmp_path, CLOSES)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.txt").read_text() == "mine\n"
    assert [program.name for program in found(tmp_path).programs].count("<lambda>") == 3


ANSWERS = """
import signal, sys, time
def answer(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(5)
for number in signal.SIGINT, signal.SIGUSR1, signal.SIGQUIT:
    signal.signal(number, answer)
print("ready", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1, signal.SIGQUIT])
def test_signal_to_the_command_reaches_the_script(number: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ANSWERS)
    command = [sys.executable, "-m", "seejax.report", "--lang", "en", "train.py"]
    process = Process(*command, cwd=tmp_path)  # in no terminal's foreground
    process.wait_for("ready")
    process.popen.send_signal(number)
    status, text, _ = process.end()
    assert status == 5 and f"got {signal.Signals(number).name}" in text
    assert "It ended with status 5." in (tmp_path / "report-train" / "report.txt").read_text()


def test_runs_at_one_time_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys, time\nprint('ready', flush=True)\ninput()")
    command = [sys.executable, "-m", "seejax.report", "--lang", "en", "train.py"]
    both = [
        subprocess.Popen([*command, name], cwd=tmp_path, text=True, stdin=-1, stdout=-1, stderr=-1)
        for name in ("one", "two")
    ]
    for process in both:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for name, process in zip(("one", "two"), both, strict=True):
        assert f"train.py {name} did not import JAX" in process.communicate("\n")[1]


SILENT = (
    """
import importlib.util, logging
assert importlib.util.find_spec("jax")
"""
    + START
    + """
jax.config.update("jax_explain_cache_misses", False)
logging.getLogger("jax").setLevel(logging.CRITICAL)
logging.disable()
"""
    + SHAPES.removeprefix(START)
)


def test_causes_are_noted_though_the_script_silences_its_loggers(tmp_path: Path) -> None:
    done = report(tmp_path, SILENT)
    assert done.stdout == "traced 5\n"
    advice = [(each.kind, each.subject, each.count) for each in found(tmp_path).advice]
    assert ("shapes", "step", 4) in advice


SMALL = START + "for x in 1, 2, 2.0:\n    jax.jit(lambda x: x + 1)(x)\n"
ASKS = SMALL.replace("traced", "jax.config.update('jax_explain_cache_misses', True)\ntraced")
LISTENS = "import logging\nlogging.basicConfig(level=logging.DEBUG, format='%(levelname)s')\n"


@pytest.mark.parametrize(
    ("code", "lines"),
    [(SMALL, "none"), (ASKS, "some"), (LISTENS + SMALL, "some")],
    ids=["quiet", "asks why", "listens to all"],
)
def test_what_jax_logs_is_as_in_a_plain_run(code: str, lines: str, tmp_path: Path) -> None:
    cache = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    done = report(tmp_path, code, env={**cache, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "a")})
    alone = plain(tmp_path, env={**cache, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "b")})

    def logged(stderr: str) -> list[str]:
        """Without what differs from run to run: keys, places in memory, seconds."""
        text = re.sub(r"id=\d+|[0-9a-f]{64}|\d+\.\d+", "…", stderr.partition("\ntrain.py: ")[0])
        return [line for line in text.replace("/a", "/b").splitlines() if line]

    assert logged(done.stderr) == logged(alone.stderr)
    assert bool(logged(alone.stderr)) == (lines == "some")


OWN_WARNING = (
    START
    + """
jax.config.update("jax_captured_constants_report_frames", 1)
jax.config.update("jax_captured_constants_warn_bytes", 1000)
table = jnp.ones(1000)
jax.jit(lambda i: table[i])(3)
"""
)


def test_warning_that_the_script_asked_for_is_as_in_a_plain_run(tmp_path: Path) -> None:
    done = report(tmp_path, OWN_WARNING)
    alone = plain(tmp_path)
    assert "captured at:" in alone.stderr
    assert done.stderr.partition("\ntrain.py: ")[0].strip() == alone.stderr.strip()


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    raise KeyboardInterrupt\nf()",
        "x = (1,\ny = 2",
        "import sys\nsys.excepthook = lambda *it: print(it[0], it[2].tb_lineno)\n1 / 0",
        "import warnings\ndef f():\n    warnings.warn('old', stacklevel=2)\nf()",
    ],
    ids=["interrupt", "syntax", "own hook", "warning"],
)
def test_errors_are_shown_as_python_shows_them(code: str, tmp_path: Path) -> None:
    done = report(tmp_path, code)
    alone = plain(tmp_path)
    assert done.stderr.partition("\ntrain.py")[0] == alone.stderr
    assert done.stdout == alone.stdout and done.returncode in (alone.returncode, 130)


def test_options_of_python_reach_the_script(tmp_path: Path) -> None:
    code = "import sys\nprint(sys.flags.optimize, sys.warnoptions, __debug__)"
    done = report(tmp_path, code, options=["-O", "-W", "ignore"])
    assert done.stdout == plain(tmp_path, options=["-O", "-W", "ignore"]).stdout
    assert done.stdout.startswith("1 ['ignore'")


def test_script_behind_a_link_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "rate.py").write_text("RATE = 7\n")
    (tmp_path / "lib" / "real.py").write_text("import rate\nprint(rate.RATE)\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "lib" / "real.py")
    done = run(tmp_path, [sys.executable, "-m", "seejax.report", "link.py"])
    assert done.stdout == "7\n"


@pytest.mark.parametrize(
    ("code", "status", "ending"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, "It ended with status 3.\n"),
        ("sys.exit('no data')", 1, "It ended with status 1.\n"),
        ("os._exit(5)", 5, "It ended with status 5.\n"),
        ("if os.fork():\n    os.wait()\nelse:\n    sys.exit(4)", 0, ""),
    ],
)
def test_report_says_how_the_script_ended(
    code: str, status: int, ending: str, tmp_path: Path
) -> None:
    done = report(tmp_path, "import os, sys\n" + code)
    assert done.returncode == status
    text = (tmp_path / "report-train" / "report.txt").read_text()
    assert text == f"train.py did not import JAX.\n{ending}"


def test_report_counts_programs_as_jax_logs_them(tmp_path: Path) -> None:
    """JAX's own log of compilations is another way of knowing."""
    done = report(tmp_path, SHAPES, env={"JAX_LOG_COMPILES": "1"})
    logged = re.findall(r"Finished XLA compilation of jit\((\w+)\)", done.stderr)
    programs = [program.name for program in found(tmp_path).programs if program.compiled]
    assert logged and sorted(programs) == sorted(logged)


SIZES = (
    START
    + """
from jax import lax

@jax.jit
def inner(x):
    return lax.tanh(x)                              # INNER

def body(x, _):
    return lax.cos(x), None                         # BODY

def elsewhere(x):
    return jnp.where(x > 0, x, 0)                   # ELSEWHERE

def step(x):
    for _ in range(30):
        x = lax.mul(lax.sin(x), x)                  # LOOP
    x = inner(inner(x))                             # CALLS
    x = jnp.where(x > 0, x, 0)                      # WHERE
    return lax.scan(body, x, None, length=7)[0]     # SCAN

x = jnp.ones((8, 8))
jax.jit(elsewhere)(x)
step = jax.jit(step, donate_argnums=0)
memory = step.lower(jnp.ones((8, 8))).compile().memory_analysis()
step(x)
print(memory.argument_size_in_bytes, memory.output_size_in_bytes)
print(memory.alias_size_in_bytes, memory.temp_size_in_bytes)
"""
)


def test_equations_are_counted_by_their_lines_and_memory_is_xlas(tmp_path: Path) -> None:
    done = report(tmp_path, SIZES)
    step = [program for program in found(tmp_path).programs if program.name == "step"][-1]
    names = {n: line.partition("# ")[2] for n, line in enumerate(SIZES.splitlines(), 1)}
    count = {names[line]: n for (_, line, _), n in step.lines}
    assert count["LOOP"] == 60 and count["CALLS"] == count["INNER"] == 2
    assert count["WHERE"] >= 2 and "ELSEWHERE" not in count  # though JAX keeps its jaxpr of there
    assert step.equations == 60 + 4 + count["WHERE"] + 2  # the last: a scan and its body
    memory = step.memory
    ours = [memory[part] for part in ("arguments", "results", "taken", "temporary")]
    assert ours == [int(number) for number in done.stdout.split()] and ours[2] == 256
    assert step.bytes == 256 + memory["temporary"]
    assert f"step: {step.equations} equations, " in done.stderr
    line = next(n for n, name in names.items() if name == "LOOP")
    assert f"{step.equations} equations, most from train.py:{line} (60)" in done.stderr
    assert "results 256 B" in done.stderr and "256 B in donated arguments" in done.stderr


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
    done = report(tmp_path, LOOK, "--rate", "0.1", "--", "-v", "--lang", "-m")
    alone = plain(tmp_path, "--rate", "0.1", "--", "-v", "--lang", "-m")
    assert done.returncode == alone.returncode == 3
    assert done.stdout == alone.stdout
    assert done.stderr.startswith("to stderr\n\n") and "CACHE MISS" not in done.stderr


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
        (signal.SIGKILL, 128 + signal.SIGKILL, "It was killed by SIGKILL."),
        (signal.SIGTERM, 128 + signal.SIGTERM, "It was killed by SIGTERM."),
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
    (events,) = (tmp_path / "report-train").glob("events-*.jsonl")
    os.kill(json.loads(events.read_text().splitlines()[0])["pid"], number)
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


TWO = (
    START
    + """
import os, time
address, index, last = sys.argv[1:]
jax.distributed.initialize(address, 2, int(index))

@jax.jit
def step(x):
    return jnp.sin(x) @ x.T @ x

for n in range(2, 4 + int(index)):
    step(jnp.ones((n, 3)))
open(f"traced-{index}", "w").close()
while not all(os.path.exists(f"traced-{i}") for i in range(2)):
    time.sleep(0.05)
if last == "killed":
    os.kill(os.getpid(), 9)                         # so that the other one has traced, too
jax.distributed.shutdown()
"""
)


@pytest.mark.parametrize("last", ["well", "killed"])
def test_processes_of_one_run_have_one_report(last: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TWO)
    old = tmp_path / "report-train" / "process-2"  # of a run with three
    old.mkdir(parents=True)
    ours = [sys.executable, "-m", "seejax.report", "--lang", "en", "train.py", address()]
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    both = [Process(*ours, index, last, cwd=tmp_path, env=env) for index in (0, 1)]
    for process in both:
        assert process.end()[0] == (0 if last == "well" else 128 + signal.SIGKILL)
    folder = tmp_path / "report-train"
    document = json.loads((folder / "process-1" / "report.json").read_text())
    (old / "report.json").write_text(
        json.dumps({**document, "process": 2, "processes": 3, "started": 1.0})
    )
    text = (folder / "report.txt").read_text()
    for others in [], ["process-0", "process-1"]:
        where = [folder / name for name in others] or [folder]
        done = run(tmp_path, [*ours[:5], "--merge", *map(str, where)])
        assert done.returncode == 0 and done.stdout.startswith(text), done
    assert "2 processes\n" in text and "has left no report" not in text
    assert re.search(r"^  `step` \(\d equations\): process 0: 2, process 1: 3$", text, re.M)
    assert "  `convert_element_type`" not in text  # once by each
    assert text.count("SIGKILL") == (2 if last == "killed" else 0)
    compared = json.loads((tmp_path / "report-merged" / "report.json").read_text())["processes"]
    assert [(each["process"], each["processes"]) for each in compared] == [(0, 2), (1, 2)]
    page = (tmp_path / "report-merged" / "report.html").read_text("utf8")
    links = re.findall(r'href="(.*?)"', page)
    own = [(tmp_path / "report-merged" / link).read_text("utf8") for link in links]
    assert ["This is process 0 of 2." in own[0], "This is process 1 of 2." in own[1]] == [True] * 2


def test_processes_that_know_of_no_others_are_numbered_by_their_launcher(tmp_path: Path) -> None:
    for index, said in (
        ("1", "Process 0 has left no report"),
        ("0", "All of them compiled the same"),
    ):
        report(tmp_path, "", env={"RANK": index, "WORLD_SIZE": "2"})
        assert said in (tmp_path / "report-train" / "report.txt").read_text()


@pytest.mark.parametrize("folders", [["empty"], ["none", "empty"]])
def test_nothing_to_merge_is_one_sentence(folders: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run(tmp_path, [sys.executable, "-m", "seejax.report", "--merge", *folders])
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


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


def cause(name: str, at: float) -> dict:
    text = f"TRACING CACHE MISS at a.py:1:\n  for {name} defined at a.py:{at:.0f}\n"
    return {"kind": "cause", "at": at, "thread": 1, "text": text}


def test_seconds_of_what_lies_within_are_not_counted_twice() -> None:
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
    assert summary(events).wall_s == 6.0


def test_a_trace_has_the_cause_that_came_in_it_without_its_seconds() -> None:
    """The first cause is of a trace that failed and left no event."""
    events = [
        cause("outer", 1.0),
        cause("outer", 3.0),
        cause("inner", 4.5),
        event("trace", "inner", 5.0, 1.0),
        event("trace", "outer", 9.0, 7.0),
        event("trace", "outer", 12.0, 1.0),
    ]
    found = summary(events)
    inner, outer, again = found.programs
    assert "a.py:4" in inner.cause and "a.py:3" in outer.cause and not again.cause
    assert inner.seconds == {"trace": 0.5}  # JAX spoke half a second after it had begun
    assert outer.seconds == {"trace": 5.0}  # 7, less 1 of the inner one and 1 for the words
    assert found.explaining_s == 1.5


def made(name: str, at: float, seconds: float) -> list[dict]:
    return [
        event("trace", name, at, seconds),
        event("lower", f"jit({name})", at + seconds, seconds),
        event("compile", f"jit({name})", at + 2 * seconds, seconds),
    ]


def test_one_long_program_is_not_named_beside_what_makes_it_again() -> None:
    """Else the first sentence of a report would depend on how busy the machine was."""
    once = summary(made("step", 3.0, 3.0)).advice
    again = [*made("step", 3.0, 3.0), cause("step", 19.5), *made("step", 20.0, 1.0)]
    assert [(a.kind, a.subject) for a in once] == [("one-program", "step")]
    assert "one-program" not in {a.kind for a in summary(again).advice}
    assert "step" in {a.subject for a in summary(again).advice}


def test_a_program_without_a_trace_is_made_again_only_if_it_was_made_before() -> None:
    once = made("add", 3.0, 1.0)[1:]
    again = [*once, *made("add", 9.0, 1.0)[1:]]
    placed = [
        [a.subject for a in summary(e).advice if a.kind == "placement"] for e in (once, again)
    ]
    assert placed == [[], ["add"]]
