"""The harness of make bench on contenders of known speed, by a clock that they drive themselves."""

import doctest
import json
import platform
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))  # scripts, not a package

import environments  # noqa: E402
import measure  # noqa: E402
import run  # noqa: E402
from processes import Process  # noqa: E402

# A contender whose every run moves its own clock on by so many seconds.
FAKE = """
import numpy as np

now = runs = 0

def clock():
    return now

def versions():
    print("said while loading")      # what a library prints is no answer
    return {{"fake": "1"}}

def prepare(case):
    def run(state):
        global now, runs
        runs += 1
        {body}
        now += case["seconds"] + 5 * (runs == 1)    # the first one compiles
        return state

    return (lambda: case["p"]), run, lambda result: {{"p": np.array(result)}}
"""


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., measure.Contender]:
    def make(name: str, seconds: float = 1.0, p: float = 0.5, body: str = "pass"):
        script = tmp_path / f"{name}.py"
        script.write_text(FAKE.format(body=body))
        return measure.Contender(name, sys.executable, script, {"seconds": seconds, "p": [p]})

    return make


def judge(one: measure.Contender, answers: dict) -> tuple[dict, dict]:
    return {"p": np.array([0.5])}, {"p": 1e-3}


def measured(*contenders: measure.Contender, starts: int = 1, rounds: int = 3) -> dict:
    return run.measured("fakes", contenders, judge, starts, rounds, pause_s=0)[0]


def test_a_ratio_is_that_of_the_clock(fake: Callable) -> None:
    group = measured(fake("ours", 0.25), fake("peer", 2.0))
    row = run.times(group, "x", "peer", "ours", ">=", 8)
    assert (row["of"], row["value"], row["reached"]) == ("peer / ours", [8, 8, 8], True)
    assert run.times(group, "x", "peer", "ours", ">=", 8.1)["reached"] is False
    assert run.times(group, "x", "peer", "ours", "<=", 8)["reached"] is True
    assert run.times(group, "x", "peer", "ours", "<=", 7.9)["reached"] is False
    assert run.times(group, "x", "peer", "ours", ">=", None)["reached"] is None


def test_compiling_is_reported_apart(fake: Callable) -> None:
    entry = measured(fake("ours", 0.25))["contenders"]["ours"]
    assert entry["first_s"] == 5.25 and entry["seconds"] == [0.25] * 3


def test_every_start_is_a_new_process(fake: Callable) -> None:
    """Its first run is slow again, and what a start had on its clock is gone."""
    slower = "now += runs"  # a process gets slower and slower
    entry = measured(fake("ours", 0.25, body=slower), starts=2)["contenders"]["ours"]
    once = measured(fake("ours", 0.25, body=slower))["contenders"]["ours"]
    assert entry["first_s"] == once["first_s"] == 6.25
    assert entry["seconds"] == 2 * once["seconds"] == 2 * [3.25, 5.25, 7.25]


def test_the_largest_difference_of_all_starts_is_kept(fake: Callable, tmp_path: Path) -> None:
    """The first process is the one that is off, and leaves a file by which the next knows."""
    body = f"""
        import pathlib
        seen = pathlib.Path({str(tmp_path / "seen")!r})
        case["p"][0] = 0.5 if seen.exists() else 0.5005
        seen.touch()"""
    entry = measured(fake("ours", body=body), starts=2, rounds=1)["contenders"]["ours"]
    assert entry["difference"] == {"p": 0.0005}


def test_contenders_take_turns() -> None:
    order = []

    class Recorder:
        def __init__(self, name: str) -> None:
            self.name = name

        def ask(self, **request: float) -> dict:
            assert request == {"warmups": 1, "warm_s": 0.2, "repeats": 3}
            order.append(self.name)
            return {"seconds": [1.0, 9.0, 2.0]}

    running = {name: Recorder(name) for name in "abc"}
    seconds = measure.take_turns(running, 4, warmups=1, warm_s=0.2, repeats=3, pause_s=0)
    assert "".join(order) == "abc" + "bca" + "cab" + "abc"
    assert seconds == {name: [2.0] * 4 for name in "abc"}  # the median of a turn
    measure.take_turns(running, 2, 4, warmups=1, warm_s=0.2, repeats=3, pause_s=0)
    assert "".join(order)[12:] == "bca" + "cab"  # after four rounds, the fifth


def test_a_busy_round_meets_both_and_cancels() -> None:
    busy = np.array([1, 1, 7, 1, 3])
    assert measure.ratios(4 * busy, busy) == [4, 4, 4]


@pytest.mark.parametrize("wrong", [0.6, float("nan")])
def test_a_wrong_answer_is_not_timed(fake: Callable, wrong: float) -> None:
    with pytest.raises(
        measure.ContenderError, match=r"peer: p differs by (0.1|nan).*\(1 of 1 entries\)"
    ):
        measured(fake("ours"), fake("peer", p=wrong))


def test_an_answer_of_another_shape_is_refused() -> None:
    with pytest.raises(measure.ContenderError, match=r"x: p has shape \(1,\), not \(\)"):
        measure.differences("x", {"p": np.zeros(1)}, {"p": np.zeros(())}, {"p": 1.0})


def test_a_crash_names_the_contender_and_what_it_said(fake: Callable) -> None:
    broken = fake("peer", body="raise RuntimeError('no such kernel')")
    with pytest.raises(measure.ContenderError, match=r"(?s)peer ended .*no such kernel"):
        measured(fake("ours"), broken)
    killed = fake("killed", body="import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(measure.ContenderError, match="killed ended with status -9"):
        measured(killed)


def test_a_contender_that_says_nothing_is_given_up(fake: Callable, tmp_path: Path) -> None:
    worker = measure.Worker(fake("mute", body="import time; time.sleep(60)"), tmp_path, 3)
    try:
        with pytest.raises(measure.ContenderError, match="mute said nothing for 3 s"):
            worker.prepare()
    finally:
        worker.close()
    assert worker.process.returncode == -signal.SIGKILL


def test_no_process_is_left_when_the_run_is_stopped(fake: Callable) -> None:
    with pytest.raises(KeyboardInterrupt), measure.workers([fake("a"), fake("b")]) as running:
        raise KeyboardInterrupt
    assert all(worker.process.returncode is not None for worker in running.values())


def test_workers_do_not_inherit_what_tunes_one_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("MALLOC_PERTURB_", "1")
    monkeypatch.setenv("KEPT", "1")
    assert not {"XLA_FLAGS", "OMP_NUM_THREADS", "MALLOC_PERTURB_"} & set(measure.environ())
    assert (
        measure.environ(JAX_PLATFORMS="cpu").items()
        >= {"KEPT": "1", "JAX_PLATFORMS": "cpu"}.items()
    )


FAULTS = """
import resource
import numpy as np

def call():                                     # three arrays of 8 MiB, written and let go
    arrays = [np.ones(2**21, np.float32) for _ in range(3)]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(3):
    call()
before = faults()
for _ in range(10):
    call()
print((faults() - before) / 10)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the variables are glibc's")
def test_workers_keep_the_memory_they_have_freed() -> None:
    """As Linux counts: 24 MiB met anew would be 6144 faults, or 12 with huge pages."""
    command = [sys.executable, "-c", FAULTS]
    status, out, err = Process(*command, env=measure.environ()).end()
    assert status == 0, err
    assert float(out) < 10


@pytest.mark.parametrize(("alpha", "closed"), [(1, 0.75), (2, 1.0), (1.5, 0.9)])
def test_the_judge_knows_closed_forms(alpha: float, closed: float) -> None:
    """Two scores apart by d: a logistic, a ramp, and ((d + √(8 - d²)) / 4)² for α = 1.5."""
    d = {1: np.log(3), 2: 1.0, 1.5: 1.2649110640673518}[alpha]
    z, g = np.array([[d, 0.0]]), np.array([[1.0, 0.0]])
    p = run.entmax_reference(z, g, alpha)["p"][0, 0]
    assert abs(p - closed) < 1e-12
    if alpha != 2:  # d = 1 is the kink of sparsemax
        h = 1e-4
        up, down = (run.entmax_reference(z + s * g, g, alpha)["p"] for s in (h, -h))
        slope = (up - down)[0] / (2 * h)
        assert np.allclose(run.entmax_reference(z, g, alpha)["dz"][0], slope, atol=1e-6)


def test_the_table_says_what_was_not_reached_or_not_measured() -> None:
    rows = [
        run.row("good", "b / a", [2, 3, 4], ">=", 3),
        run.row("bad", "a / b", [2, 3, 4], "<=", 2),
        run.row("gpu", "a / c", None, "<=", 2, "not measured: no GPU at hand"),
    ]
    assert [" ".join(line.split()) for line in run.table(rows).splitlines()] == [
        "good b / a 3 >= 3 reached",
        "bad a / b 3 <= 2 NOT REACHED",
        "gpu a / c – <= 2 not measured: no GPU at hand",
    ]


RESULTS = json.loads(run.RESULTS.read_text("utf8")) if run.RESULTS.exists() else {}


def test_results_are_as_the_schema_says(tmp_path: Path) -> None:
    run.write(RESULTS, tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text("utf8")) == RESULTS
    assert list(tmp_path.iterdir()) == [tmp_path / "results.json"]
    broken = RESULTS | {"rows": [RESULTS["rows"][0] | {"value": [1.0]}]}
    with pytest.raises(jsonschema.ValidationError):
        run.write(broken, tmp_path / "broken.json")
    assert not (tmp_path / "broken.json").exists()


def test_results_name_no_machine() -> None:
    text = run.RESULTS.read_text("utf8")
    assert not re.search(r"(?:/home|/root|/tmp|/work|/Users|\\\\)", text)
    assert socket.gethostname() not in text


def test_results_follow_from_the_recorded_seconds() -> None:
    rows = {one["name"]: one for one in RESULTS["rows"]}
    contenders = RESULTS["groups"]["entmax"]["contenders"]
    each = [
        peer / ours
        for peer, ours in zip(
            contenders["entmax15"]["seconds"], contenders["seejax 1.5"]["seconds"], strict=True
        )
    ]
    assert abs(sorted(each)[len(each) // 2] / rows["entmax-sort"]["value"][1] - 1) < 1e-3
    for group in RESULTS["groups"].values():
        for entry in group.get("contenders", {}).values():
            for key, limit in entry["tolerance"].items():
                assert entry["difference"][key] <= limit


def test_lock_files_name_no_index_and_hash_everything() -> None:
    for name in ("torch", "tensorflow"):
        text = (ROOT / "bench" / f"{name}.lock").read_text()
        assert "://" not in text and not re.search(r"^(?:-|torch==|nvidia)", text, re.MULTILINE)
        pins = re.findall(r"^[a-z].*$", text, re.MULTILINE)
        assert pins and all(re.match(r"[\w.-]+==[\w.]+ .*\\$", pin) for pin in pins)


def test_without_python_3_11_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments.shutil, "which", lambda *_, **__: None)
    with pytest.raises(measure.ContenderError, match="make bench PEER_PYTHON="):
        environments.peer_python()


def test_stopped_it_writes_nothing_and_leaves_nothing() -> None:
    before = run.RESULTS.read_bytes()
    process = Process(
        sys.executable,
        *(ROOT / "bench" / "run.py", "--only", "memory"),
        env=measure.environ(PYTHONPATH=str(ROOT / "examples")),
    )
    process.wait_for("memory", "err")  # its workers start now
    time.sleep(0.5)
    process.send(signal.SIGINT)
    status, _, err = process.end()
    assert (status, run.RESULTS.read_bytes()) == (130, before) and "stopped" in err


def test_doctests_of_the_harness() -> None:
    assert doctest.testmod(measure).failed == 0
