"""The harness of make bench on contenders of known speed, by a clock that they drive themselves."""

import doctest
import json
import platform
import re
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))  # scripts, not a package

import environments  # noqa: E402
import measure  # noqa: E402
import race  # noqa: E402
import record  # noqa: E402
import run  # noqa: E402
from cases import bisect, cnn, entmax15, scores, training  # noqa: E402
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
    return race.race("fakes", contenders, judge, starts, rounds, pause_s=0)[0]


def test_a_ratio_is_that_of_the_clock(fake: Callable) -> None:
    group = measured(fake("ours", 0.25), fake("peer", 2.0))
    row = race.times(group, "x", "headline", "peer", "ours")
    assert (row["of"], row["value"], row["reached"]) == ("peer / ours", [8, 8, 8], None)
    goals = {(">=", 8): True, (">=", 8.1): False, ("<=", 8): True, ("<=", 7.9): False}
    for goal, reached in goals.items():
        assert race.times(group, "x", "headline", "peer", "ours", goal)["reached"] is reached


def test_the_limit_puts_the_floor_in_our_place(fake: Callable) -> None:
    group = measured(fake("ours", 0.5), fake("peer", 2.0), fake("least", 0.25))
    faster = race.times(group, "x", "headline", "peer", "ours", (">=", 5), "least")
    slower = race.times(group, "x", "headline", "ours", "peer", ("<=", 0.2), "least")
    assert (faster["value"][1], faster["limit"]) == (4, 8)
    assert (slower["value"][1], slower["limit"]) == (0.25, 0.125)
    assert race.times(group, "x", "rule", "peer", "ours")["limit"] is None


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
    p = scores.reference(z, g, alpha)["p"][0, 0]
    assert abs(p - closed) < 1e-12
    if alpha != 2:  # d = 1 is the kink of sparsemax
        h = 1e-4
        up, down = (scores.reference(z + s * g, g, alpha)["p"] for s in (h, -h))
        slope = (up - down)[0] / (2 * h)
        assert np.allclose(scores.reference(z, g, alpha)["dz"][0], slope, atol=1e-6)


def test_the_headline_is_the_fastest_form_of_a_peer(fake: Callable) -> None:
    forms = {"peer": [fake("plain", 4.0), fake("tuned", 2.0)], "other": [fake("lone", 0.5)]}
    case = measured(fake("flax"), *(one for both in forms.values() for one in both))
    rows = training.peers(case, "mlp", forms, {"peer": dict(known=(1.4,))})
    assert [(row["name"], row["kind"], row["of"], row["value"][1]) for row in rows] == [
        ("mlp-peer", "headline", "tuned / flax", 2),
        ("mlp-peer-default", "as it comes", "plain / flax", 4),
        ("mlp-other", "headline", "lone / flax", 0.5),
        ("mlp-other-default", "as it comes", "lone / flax", 0.5),
    ]
    assert [row["reached"] for row in rows] == [True, None, False, None]
    assert [row["known"] for row in rows] == [[1.4], [], [], []]


def test_fewer_steps_count_only_at_equal_error() -> None:
    def case(p: float, dz: float) -> dict:
        entries = {"default": {"p": 2e-7, "dz": 3e-7}, "fewer": {"p": p, "dz": dz}}
        return {"contenders": {name: {"difference": found} for name, found in entries.items()}}

    assert bisect.as_exact(case(2e-7, 1e-7), "fewer", "default")
    assert not bisect.as_exact(case(4e-7, 3e-7), "fewer", "default")
    assert not bisect.as_exact(case(2e-7, 6e-7), "fewer", "default")


def test_the_best_k_is_found_and_raced_compiled_too(
    monkeypatch: pytest.MonkeyPatch, fake: Callable, tmp_path: Path
) -> None:
    """By the case itself, with contenders whose speed is known: k = 24 takes 2 s, compiled 1."""
    seconds = {"seejax": 0.25, "softmax": 0.2, "copy": 0.05, "entmax15": 9.0}
    seconds["entmax15 k=24 compiled"] = 1.0

    def known(library: str, name: str, **case: object) -> measure.Contender:
        assert "compiled" not in name or case == case | {"k": 24, "compiled": True}
        return fake(name, seconds.get(name, 2.0 if case.get("k") == 24 else 3.0))

    monkeypatch.setattr(entmax15, "contender", known)
    monkeypatch.setattr(entmax15, "TURN", dict(warmups=0, repeats=1, pause_s=0))
    monkeypatch.setattr(scores, "draw", lambda *_: ({}, judge, "known"))
    rows = {row["name"]: row for row in entmax15.measure(tmp_path, 1, 1.0)["rows"]}
    assert {name: (row["of"], row["value"][1]) for name, row in rows.items()} == {
        "entmax15": ("entmax15 k=24 compiled / seejax", 4),
        "softmax": ("seejax / softmax", 1.25),
        "entmax15-default": ("entmax15 / seejax", 36),
        "rule-k": ("entmax15 / entmax15 k=24", 4.5),
        "rule-compile-entmax15": ("entmax15 k=24 / entmax15 k=24 compiled", 2),
    }
    assert (rows["entmax15"]["limit"], rows["softmax"]["limit"]) == (20, 0.25)


def test_the_table_says_what_was_not_reached_not_measured_or_known_before() -> None:
    rows = [
        race.row("good", "headline", "b / a", [2, 3, 4], (">=", 3), (2.5, 3.5)),
        race.row("bad", "headline", "a / b", [2, 3, 4], ("<=", 2), limit=1.25),
        race.row("k", "rule", "a / c", [2, 3, 4]),
        race.row("gpu", "headline", "a / d", None, ("<=", 2), note="not measured: no GPU at hand"),
    ]
    assert [" ".join(line.split()) for line in record.table(rows).splitlines()] == [
        "good headline b / a 3 >= 3 reached (known: 2.5, 3.5)",
        "bad headline a / b 3 <= 2 NOT REACHED (at the limit: 1.25)",
        "k rule a / c 3",
        "gpu headline a / d – <= 2 not measured: no GPU at hand",
    ]


CASE = {
    "title": "fakes",
    "date": "2026-01-01",
    "machine": record.machine(2),
    "environments": {"jax": {"python": "3.12"}},
    "rows": [race.row("x", "headline", "b / a", [2.0, 3.0, 4.0], (">=", 3))],
}


def test_a_case_measured_anew_replaces_itself_alone(tmp_path: Path) -> None:
    path, order = tmp_path / "results.json", ("a", "b", "c")
    for name in ("c", "a", "b"):
        record.replace(path, name, CASE | {"title": name}, order)
    record.replace(path, "b", CASE | {"title": "anew"}, order)
    cases = json.loads(path.read_text("utf8"))["cases"]
    assert [(name, case["title"]) for name, case in cases.items()] == [
        ("a", "a"),
        ("b", "anew"),
        ("c", "c"),
    ]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "broken",
    [
        {"rows": [CASE["rows"][0] | {"value": [1.0]}]},
        {"rows": [CASE["rows"][0] | {"goal": [">", 3]}]},
        {"environments": {"jax": {"jax": "0.12"}}},  # which Python?
        {"date": "yesterday"},
        {"machine": CASE["machine"] | {"caches": "large"}},
    ],
)
def test_a_record_that_is_not_as_the_schema_says_is_not_written(
    tmp_path: Path, broken: dict
) -> None:
    record.replace(tmp_path / "results.json", "a", CASE, "a")
    before = (tmp_path / "results.json").read_bytes()
    with pytest.raises(jsonschema.ValidationError):
        record.replace(tmp_path / "results.json", "a", CASE | broken, "a")
    assert (tmp_path / "results.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


RESULTS = json.loads(record.RESULTS.read_text("utf8"))


def test_results_are_as_the_schema_says(tmp_path: Path) -> None:
    record.write(RESULTS, tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text("utf8")) == RESULTS
    assert list(RESULTS["cases"]) == list(run.CASES)
    names = [row["name"] for case in RESULTS["cases"].values() for row in case["rows"]]
    assert len(set(names)) == len(names)


def test_results_name_no_machine() -> None:
    text = record.RESULTS.read_text("utf8")
    assert not re.search(r"(?:/home|/root|/tmp|/work|/Users|\\\\)", text)
    assert socket.gethostname() not in text


def test_results_follow_from_the_recorded_seconds() -> None:
    for case in RESULTS["cases"].values():
        contenders = case.get("contenders", {})
        for row in case["rows"]:
            above, below = row["of"].split(" / ") if " / " in row["of"] else ("", "")
            if above in contenders and below in contenders:
                pairs = zip(*(contenders[who]["seconds"] for who in (above, below)), strict=True)
                middle = statistics.median(a / b for a, b in pairs)
                assert abs(middle / row["value"][1] - 1) < 1e-3
        for entry in contenders.values():
            assert entry["environment"] in case["environments"]
            assert len(entry["seconds"]) == case["starts"] * case["rounds"]
            for key, limit in entry["tolerance"].items():
                assert entry["difference"][key] <= limit


def test_lock_files_name_no_index_and_hash_everything() -> None:
    for name in ("torch", "tensorflow", "keras-jax"):
        text = (ROOT / "bench" / f"{name}.lock").read_text()
        assert "://" not in text and not re.search(r"^(?:-|torch==|nvidia)", text, re.MULTILINE)
        pins = re.findall(r"^[a-z].*$", text, re.MULTILINE)
        assert pins and all(re.match(r"[\w.-]+==[\w.]+ .*\\$", pin) for pin in pins)


@pytest.mark.parametrize("asked", [None, "/nowhere/python"])
def test_without_a_python_for_a_peer_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str | None
) -> None:
    """Each Python at hand is tried, this one first; one that is asked for is tried alone."""
    monkeypatch.setattr(environments, "BENCH", tmp_path / "bench")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "torch.lock").write_text("")
    tried = []

    def run(*command: object) -> None:
        tried.append(str(command[0]))
        raise measure.ContenderError("no build for this one")

    monkeypatch.setattr(environments, "run", run)
    monkeypatch.delenv("PEER_PYTHON", raising=False)
    monkeypatch.setattr(environments.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(environments, "has_gpu", lambda: False)
    expected = [sys.executable]
    if sys.version_info[:2] != (3, 11):
        expected.append("/bin/python3.11")
    if asked:
        monkeypatch.setenv("PEER_PYTHON", asked)
        expected = [asked]
    with pytest.raises(measure.ContenderError, match="make bench PEER_PYTHON="):
        environments.environment.__wrapped__("torch")
    assert tried == expected


def test_stopped_it_keeps_the_record_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    record.replace(path, "memory", CASE, ("memory",))
    before = path.read_bytes()
    process = Process(
        sys.executable,
        *(ROOT / "bench" / "run.py", "--only", "memory", "--record", path),
        env=measure.environ(PYTHONPATH=str(ROOT / "examples")),
    )
    process.wait_for("memory", "err")  # its workers start now
    time.sleep(0.5)
    process.send(signal.SIGINT)
    status, _, err = process.end()
    assert (status, path.read_bytes()) == (130, before)
    assert "stopped" in err and "nothing into results.json" in err


def test_one_case_is_measured_and_written_alone(tmp_path: Path) -> None:
    """The real command; without a GPU the case `gpu` says so, and is recorded all the same."""
    path = tmp_path / "results.json"
    record.replace(path, "memory", CASE, ("memory", "gpu"))
    process = Process(
        sys.executable,
        *(ROOT / "bench" / "run.py", "--only", "gpu", "--record", path),
        env=measure.environ(PATH=str(tmp_path)),  # no nvidia-smi
    )
    status, out, err = process.end()
    assert status == 0, err
    assert "not measured: no GPU at hand" in out
    assert "gpu into results.json; the other cases are as they were" in err
    cases = json.loads(path.read_text("utf8"))["cases"]
    assert list(cases) == ["memory", "gpu"] and cases["memory"] == CASE
    assert {row["value"] for row in cases["gpu"]["rows"]} == {None}


def test_no_start_at_all_is_refused_before_anything_runs() -> None:
    status, _, err = Process(sys.executable, ROOT / "bench" / "run.py", "--starts", "0").end()
    assert status == 2 and "--starts is 1 at least, not 0" in err and "written" not in err


def test_doctests_of_the_harness() -> None:
    assert doctest.testmod(measure).failed == doctest.testmod(cnn).failed == 0
