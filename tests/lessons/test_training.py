"""Runs that are stopped, killed, damaged, doubled and starved at every bad moment.

What a run has left is read without any code of ours, where that can be: by Orbax, by TensorBoard.
SEEJAX_MOMENTS is how many times the longest of these tests interrupts its run.
"""

import hashlib
import json
import os
import random
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter
from wandb.proto import wandb_internal_pb2

from processes import Process, wait_until
from seejax import training
from seejax.training import Config, Diverged, RunError, Stopped, digits, folder, main, train
from seejax.training.classifier import classifier

pytestmark = pytest.mark.usefixtures("compiled_once")

MOMENTS = int(os.environ.get("SEEJAX_MOMENTS", "2"))
CONFIG = Config(epochs=4, batch_size=16)
EPOCH_STEPS = 1293 // 16  # 80: a piece of 50 and one of 30
QUIET = {"say": lambda line: None}


def checkpoints(workdir: Path) -> list[int]:
    return sorted(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit())


def parameter_bits(workdir: Path) -> str:
    """The state of the last checkpoint as Orbax reads it without any code of ours."""
    step = checkpoints(workdir)[-1]
    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(workdir.absolute() / "checkpoints" / str(step) / "state")
    leaves = jax.tree_util.tree_leaves_with_path((step, state))
    assert len(leaves) > 18  # parameters, and two moments of each
    content = [(jax.tree_util.keystr(path), np.asarray(leaf).tobytes()) for path, leaf in leaves]
    return hashlib.sha256(repr(sorted(content)).encode()).hexdigest()


def saved_run(workdir: Path) -> dict:
    file = workdir / "checkpoints" / str(checkpoints(workdir)[-1]) / "run" / "metadata"
    return json.loads(file.read_text())["run"]


def saved_history(workdir: Path) -> list[training.Epoch]:
    return saved_run(workdir)["history"]


def without_time(history: list[training.Epoch]) -> list[training.Epoch]:
    return [{name: x for name, x in epoch.items() if name != "time"} for epoch in history]


def events(workdir: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from the event files."""
    found = {}
    for split in digits.SPLITS:
        accumulator = EventAccumulator(str(workdir / "tensorboard" / split))
        accumulator.Reload()
        for tag in accumulator.Tags()["scalars"]:
            found[f"{split} {tag}"] = [(e.step, e.value) for e in accumulator.Scalars(tag)]
    return found


def as_events(history: list[training.Epoch]) -> dict[str, list[tuple[int, float]]]:
    prefixes = {"train": "", "validation": "validation_", "test": "test_"}
    return {
        f"{split} {tag}": [(e["epoch"], float(np.float32(e[prefix + tag]))) for e in history]
        for split, prefix in prefixes.items()
        for tag in ("loss", "accuracy")
    }


def content(place: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def undisturbed(data_dir, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(CONFIG, workdir, data_dir=data_dir, **QUIET)
    return workdir


@pytest.fixture
def copied(undisturbed, tmp_path) -> Path:
    return shutil.copytree(undisturbed, tmp_path / "run")


def assert_as_undisturbed(workdir: Path, undisturbed: Path) -> None:
    assert parameter_bits(workdir) == parameter_bits(undisturbed)
    assert without_time(saved_history(workdir)) == without_time(saved_history(undisturbed))
    assert events(workdir) == as_events(saved_history(undisturbed))
    assert not list(workdir.glob("*.new"))
    assert not list((workdir / "checkpoints").glob("*tmp*"))


def start(*arguments: object, code: str = "", **options) -> Process:
    """The command as a user runs it; with `code`, the same after that code."""
    how = ["-m", "seejax.training"]
    if code:
        how = ["-c", f"{code}\nimport sys\nfrom seejax import training\nsys.exit(training.main())"]
    return Process(sys.executable, "-W", "error", *how, *arguments, **options)


def pasted(said: str, after: str = "go on with: ") -> list[str]:
    """The arguments of the line that a stopped run says to go on with, as a shell reads them."""
    (line,) = [line for line in said.splitlines() if after in line]
    words = shlex.split(line.split(after)[1])
    assert words[:3] == ["python", "-m", "seejax.training"]
    return words[3:]


# --- an undisturbed run


def test_events_are_the_history_and_the_last_three_checkpoints_stay(undisturbed):
    history = saved_history(undisturbed)
    assert [epoch["epoch"] for epoch in history] == [1, 2, 3, 4]
    assert checkpoints(undisturbed) == [2 * EPOCH_STEPS, 3 * EPOCH_STEPS, 4 * EPOCH_STEPS]
    assert_as_undisturbed(undisturbed, undisturbed)
    accumulator = EventAccumulator(str(undisturbed / "tensorboard" / "train"))
    accumulator.Reload()
    (text,) = accumulator.Tensors("hyperparameters/text_summary")
    assert b"| learning_rate | 0.001 |" in text.tensor_proto.string_val[0]


def test_it_is_what_its_docstring_says(undisturbed, data_dir):
    """From the pure functions alone, an epoch in one go: pieces change no bit."""
    splits = [digits.load("digits", split, data_dir) for split in digits.SPLITS]
    init_key, order_key = jax.random.split(jax.random.key(CONFIG.seed))
    state = training.create_state(init_key, classifier("linen"), splits[0].images[:1])
    for epoch in range(1, CONFIG.epochs + 1):
        order = digits.epoch_order(jax.random.fold_in(order_key, epoch), 1293, 16)
        state, sums = training.train_epoch(state, *map(jax.numpy.asarray, splits[0]), order)
    with ocp.StandardCheckpointer() as checkpointer:
        saved = checkpointer.restore(undisturbed / "checkpoints" / "320" / "state")
    assert jax.tree.all(jax.tree.map(np.array_equal, saved["params"], state.params))
    last = saved_history(undisturbed)[-1]
    assert np.isclose(sums.means()["loss"], last["loss"], rtol=1e-12)
    for split, prefix in zip(splits[1:], ("validation_", "test_"), strict=True):
        means = training.evaluate(state, *split).means()
        assert means == {name: last[prefix + name] for name in means}


def test_the_command_says_each_epoch_and_where_everything_is(
    undisturbed, data_dir, tmp_path, capsys
):
    arguments = ["--epochs", "4", "--batch-size", "16", "--data-dir", str(data_dir)]
    assert main([*arguments, "--workdir", str(tmp_path / "run")]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    history = saved_history(undisturbed)
    for line, epoch in zip(lines[:-1], history, strict=True):
        assert line.startswith(f"epoch {epoch['epoch']}/4 ") and line.endswith("saved")
        assert f"{epoch['loss']:.4f}" in line and f"{epoch['validation_loss']:.4f}" in line
    assert lines[-1].startswith(f"4 epochs, loss {history[-1]['loss']:.4f}, test accuracy 0.9")
    assert lines[-1].endswith(f"tensorboard --logdir {tmp_path / 'run'}")
    assert_as_undisturbed(tmp_path / "run", undisturbed)


# --- stopped or killed, and resumed


def test_stopped_at_four_moments(undisturbed, data_dir, tmp_path):
    """Asked to stop before four of the eight pieces: within an epoch and between two."""
    pieces = iter(range(10**9))  # asked once more after each stop
    moments = {piece + stops for stops, piece in enumerate((1, 4, 5, 6))}
    stoppable = {"data_dir": data_dir, "asked_to_stop": lambda: next(pieces) in moments, **QUIET}
    for stops in range(4):
        with pytest.raises(Stopped):
            train(CONFIG, tmp_path / "run", resume=stops > 0, **stoppable)
    train(CONFIG, tmp_path / "run", resume=True, **stoppable)
    assert_as_undisturbed(tmp_path / "run", undisturbed)


def test_stopped_and_killed_by_the_clock(data_dir, tmp_path, capsys):
    """SIGTERM, then SIGKILL twice, and so on, at moments that a seed chooses."""
    rng = random.Random(0)
    workdir = tmp_path / "a run"  # a line to paste has to quote it
    epochs = 8 * (MOMENTS + 1)
    config = Config(epochs=epochs, batch_size=16)
    arguments = ["--epochs", epochs, "--batch-size", 16, "--data-dir", data_dir]
    arguments += ["--workdir", workdir]
    go_on = [*arguments, "--resume"]
    for moment in range(MOMENTS):
        process = start(*arguments)
        process.wait_for("saved")
        time.sleep(rng.uniform(0, 0.4))
        how = signal.SIGKILL if moment % 3 else signal.SIGTERM
        process.send(how)
        status, out, err = process.end()
        if how == signal.SIGTERM:
            assert status == 143 and err.startswith("stopped at step "), (status, err)
            go_on = pasted(err)
            assert f"stopped at step {checkpoints(workdir)[-1]}, " in err
        else:
            assert (status, err) == (-how, "")
        told = [line for line in out.splitlines() if line.endswith("saved")]
        assert len(saved_history(workdir)) >= int(told[-1].split("/")[0].split()[1])
        arguments = go_on
    assert main([str(argument) for argument in arguments]) == 0
    assert capsys.readouterr().out.startswith("resumed after epoch ")
    train(config, tmp_path / "calm", data_dir=data_dir, **QUIET)
    assert_as_undisturbed(workdir, tmp_path / "calm")


# What a killed process leaves is its folder as it is at that moment, and a lock that nobody holds.
BAD = {
    "before the first checkpoint": (folder, "write_config", lambda *_: True, "after"),
    "before its config is in place": (os, "replace", lambda path, to: "config" in str(path)),
    "while a checkpoint is written": (
        os, "rename", lambda a, b, **_: "240" in str(b) and str(b).endswith("/state")
    ),
    "before a checkpoint gets its name": (
        os, "rename", lambda a, b, **_: str(b).endswith("checkpoints/240")
    ),
    "after a checkpoint, before the events": (
        SummaryWriter, "add_scalar", lambda self, name, value, step, *_: step == 3
    ),
    "while resuming": (
        SummaryWriter, "add_scalar", lambda self, name, value, step, *_: step == 2, "after"
    ),
}  # fmt: skip


def left_behind(workdir: Path, copy: Path, owner, name: str, when, after: str = "") -> Callable:
    """The function of that name, which copies the folder before or after it does its work, once."""
    true = getattr(owner, name)

    def function(*args, **kwargs):
        now = when(*args, **kwargs) and not copy.exists()
        if now and not after:
            shutil.copytree(workdir, copy)
        result = true(*args, **kwargs)
        if now and after:
            shutil.copytree(workdir, copy)
        return result

    return function


@pytest.fixture(scope="module")
def bad_moments(data_dir, tmp_path_factory) -> dict[str, Path]:
    """For each bad moment what a process has left that was killed then."""
    place = tmp_path_factory.mktemp("bad")
    copies = {moment: place / moment for moment in BAD}
    with pytest.MonkeyPatch.context() as patch:
        for moment in [m for m in BAD if "resuming" not in m]:
            bad = BAD[moment]
            patch.setattr(*bad[:2], left_behind(place / "run", copies[moment], *bad))
        train(Config(epochs=3, batch_size=16), place / "run", data_dir=data_dir, **QUIET)
    with pytest.MonkeyPatch.context() as patch:
        bad = BAD["while resuming"]
        patch.setattr(*bad[:2], left_behind(place / "run", copies["while resuming"], *bad))
        train(CONFIG, place / "run", resume=True, data_dir=data_dir, **QUIET)
    return copies


@pytest.mark.parametrize("moment", BAD)
def test_killed_at_a_bad_moment(moment, bad_moments, undisturbed, data_dir):
    workdir = bad_moments[moment]
    left = sorted(path.name for path in (workdir / "checkpoints").glob("*"))
    if "config" in moment:  # nothing is there yet that says what to resume
        assert left == []
        with pytest.raises(RunError, match="nothing to resume"):
            train(CONFIG, workdir, resume=True, data_dir=data_dir, **QUIET)
        return
    if "first" in moment:
        assert left == []
    elif "while a" in moment or "name" in moment:
        assert left == ["160", "240.orbax-checkpoint-tmp", "80"]
    else:
        assert left == ["160", "240", "80"]
    train(CONFIG, workdir, resume=True, data_dir=data_dir, **QUIET)
    assert_as_undisturbed(workdir, undisturbed)


def test_what_is_told_is_on_the_disk(data_dir, tmp_path):
    """Written meanwhile, and told of when it is there: at each line its checkpoint is complete."""
    seen = []

    def say(line: str) -> None:
        assert line.endswith("saved") == (int(line.split("/")[0].split()[1]) in (2, 4, 5))
        seen.append(checkpoints(tmp_path / "run"))

    config = Config(epochs=5, batch_size=16)
    options = {"data_dir": data_dir, "save_every": 2 * EPOCH_STEPS}
    train(config, tmp_path / "run", say=say, **options)
    assert [max(steps, default=0) for steps in seen][1::2] == [160, 320]
    assert checkpoints(tmp_path / "run") == [160, 320, 400]
    train(config, tmp_path / "often", data_dir=data_dir, save_every=50, **QUIET)
    assert checkpoints(tmp_path / "often") == [290, 370, 400]  # where a piece has ended
    assert parameter_bits(tmp_path / "often") == parameter_bits(tmp_path / "run")


def test_a_finished_run_can_get_more_epochs(undisturbed, data_dir, tmp_path, capsys):
    workdir = tmp_path / "run"
    common = ["--workdir", str(workdir), "--data-dir", str(data_dir)]
    assert main([*common, "--epochs", "2", "--batch-size", "16"]) == 0
    assert main([*common, "--epochs", "4", "--resume"]) == 0
    assert_as_undisturbed(workdir, undisturbed)
    capsys.readouterr()
    assert main([*common, "--resume"]) == 0  # there is nothing left to do
    out = capsys.readouterr().out
    assert out.startswith("resumed after epoch 4\n4 epochs, loss ")


# --- damaged


def turn_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def largest(place: Path) -> Path:
    return max((p for p in place.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


DAMAGE = {
    "a bit of the arrays": lambda place: turn_a_bit(largest(place / "state")),
    "a bit of the history": lambda place: turn_a_bit(place / "run" / "metadata"),
    "cut off": lambda place: os.truncate(largest(place / "state"), 100),
    "a file is missing": lambda place: (place / "state" / "_METADATA").unlink(),
    "empty": lambda place: os.truncate(place / "run" / "metadata", 0),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_told_of_and_the_one_before_it_does(
    damage, undisturbed, copied, data_dir
):
    DAMAGE[damage](copied / "checkpoints" / "320")
    was = content(copied / "checkpoints" / "320")
    said = []
    train(CONFIG, copied, resume=True, data_dir=data_dir, say=said.append)
    assert said[0].startswith("checkpoint 320 is damaged: ") and said[0].endswith("/run/damaged")
    assert len(said[0].splitlines()) == 1 and said[1] == "resumed after epoch 3"
    assert content(copied / "damaged" / "320") == was  # nothing is thrown away
    assert_as_undisturbed(copied, undisturbed)


def test_when_all_are_damaged_nothing_is_changed(copied, data_dir, capsys):
    for place in (copied / "checkpoints").iterdir():
        turn_a_bit(largest(place / "state"))
    was = content(copied)
    common = ["--workdir", str(copied), "--data-dir", str(data_dir)]
    assert main([*common, "--resume"]) == 1
    err = capsys.readouterr().err
    assert "no checkpoint in" in err and len(err.splitlines()) == 1 and "delete" not in err
    assert content(copied) == was


def test_another_network_is_told_as_such(copied, data_dir, monkeypatch, capsys):
    monkeypatch.setattr(
        training.configured,
        "classifier",
        lambda model, shape, classes, **options: classifier(model, shape, 11, **options),
    )
    was = content(copied)
    assert main(["--workdir", str(copied), "--data-dir", str(data_dir), "--resume"]) == 1
    err = capsys.readouterr().err
    assert "checkpoint 320 is of another network: .params['Output']['bias'] is " in err
    assert "float32[10] there, float32[11] here" in err and len(err.splitlines()) == 1
    assert content(copied) == was


@pytest.mark.parametrize("text", [None, "{", "[]", '{"seed": 0}'])
def test_a_lost_config_is_found_in_the_checkpoint(text, copied, undisturbed, data_dir, capsys):
    (copied / "config.json").unlink()
    if text:
        (copied / "config.json").write_text(text)
    assert main(["--workdir", str(copied), "--data-dir", str(data_dir), "--resume"]) == 0
    assert (copied / "config.json").read_bytes() == (undisturbed / "config.json").read_bytes()
    shutil.rmtree(copied / "checkpoints")
    (copied / "config.json").write_text(text or "")
    assert main(["--workdir", str(copied), "--data-dir", str(data_dir), "--resume"]) == 2
    assert "config.json cannot be read" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small file system takes root")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_is_one_sentence(undisturbed, data_dir, tmp_path, capsys):
    (tmp_path / "disk").mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path / "disk"]
    if subprocess.run(mounted, timeout=60, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    workdir = tmp_path / "disk" / "run"
    try:
        arguments = ["--epochs", "4", "--batch-size", "16", "--data-dir", str(data_dir)]
        assert main([*arguments, "--workdir", str(workdir)]) == 1
        out, err = capsys.readouterr()
        assert len(err.splitlines()) == 1, err
        assert "the next checkpoint needs 1.3 MiB, and " in err, err
        told = [line for line in out.splitlines() if line.endswith("saved")]
        assert told and f"that of step {EPOCH_STEPS * len(told)} is safe" in err
        space = ["mount", "-o", "remount,size=20m", tmp_path / "disk"]
        assert subprocess.run(space, timeout=60).returncode == 0
        train(CONFIG, workdir, resume=True, data_dir=data_dir, **QUIET)
        assert_as_undisturbed(workdir, undisturbed)
    finally:
        subprocess.run(["umount", tmp_path / "disk"], timeout=60, check=True)


# --- one run at a time


def test_two_runs_in_one_folder_and_a_second_ctrl_c_ends_one_at_once(data_dir, tmp_path, capsys):
    workdir = tmp_path / "run"
    common = ["--workdir", str(workdir), "--data-dir", str(data_dir)]
    code = """
import time
from seejax.training.checkpoints import Checkpoints
Checkpoints.wait = lambda self: time.sleep(600)
"""
    process = start(*common, code=code)
    wait_until(lambda: (workdir / "tensorboard").exists())
    process.send(signal.SIGSTOP)
    os.waitid(os.P_PID, process.popen.pid, os.WSTOPPED | os.WNOWAIT)  # until it does stand still
    was = content(workdir)
    assert main([*common, "--resume"]) == 1
    assert f"another run is writing into {workdir}: wait" in capsys.readouterr().err
    assert content(workdir) == was
    process.send(signal.SIGCONT)
    process.send(signal.SIGINT)
    process.wait_for("stopping; Ctrl-C again to end at once", "err")
    process.send(signal.SIGINT)
    assert process.end()[0] == -signal.SIGINT  # and with it the lock is gone
    assert main([*common, "--epochs", "2", "--resume"]) == 0


def test_without_resume_no_other_runs_weights(data_dir, tmp_path, monkeypatch, capsys):
    """The other one begins and ends while this one reads its data."""
    common = ["--workdir", str(tmp_path / "run"), "--data-dir", str(data_dir)]
    true = digits.load

    def load(*args: object) -> digits.Split:
        monkeypatch.setattr(digits, "load", true)
        assert main([*common, "--epochs", "1", "--seed", "1"]) == 0
        return true(*args)

    monkeypatch.setattr(digits, "load", load)
    assert main(common) == 1
    assert "holds a run: --resume it, or choose another --workdir" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["seed"] == 1


def test_a_sweep_has_a_folder_for_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []

    def train(config: Config, workdir: Path, **_: object) -> None:
        told.append(str(workdir))
        raise RunError("enough")

    monkeypatch.setattr(training.command, "train", train)
    for options in ("", "--learning-rate 0.01", "--clip 1", "--seed 1", "--bf16"):
        assert main(f"--epochs 1 {options}".split()) == 1
    assert told == [
        "runs/digits-linen-epochs=1",
        "runs/digits-linen-epochs=1-learning_rate=0.01",
        "runs/digits-linen-epochs=1-clip=1.0",
        "runs/digits-linen-epochs=1-seed=1",
        "runs/digits-linen-bf16=True-epochs=1",
    ]


# --- what becomes of the numbers


def test_a_run_that_diverges_names_what_and_goes_on_at_a_lower_rate(data_dir, tmp_path, capsys):
    workdir = tmp_path / "run"
    common = ["--data-dir", str(data_dir), "--workdir", str(workdir)]
    assert main([*common, "--epochs", "1"]) == 0
    assert main([*common, "--epochs", "3", "--resume", "--learning-rate", "1e30"]) == 1
    err = capsys.readouterr().err
    assert "error: the loss of step 4" in err and len(err.splitlines()) == 1
    assert checkpoints(workdir) == [40]
    line = pasted(err, ", with a lower rate: ")
    assert line[-2:] == ["--learning-rate", "0.001"]  # a tenth of 1e30 would diverge as well
    assert main([*line[:-1], "1e-4"]) == 0
    assert json.loads((workdir / "config.json").read_text())["learning_rate"] == 1e-4
    history = saved_history(workdir)
    assert [epoch["learning_rate"] for epoch in history] == [1e-3, 1e-4, 1e-4]
    assert history[-1]["loss"] < history[0]["loss"]


def test_parameters_that_are_not_finite_are_not_saved(data_dir, tmp_path, monkeypatch):
    """A finite loss proves nothing of the parameters after its step."""
    true = training.run.train_epoch

    def ruin(state, *args):
        state, sums = true(state, *args)
        return state.replace(params=jax.tree.map(lambda x: x / 0.0, state.params)), sums

    monkeypatch.setattr(training.run, "train_epoch", ruin)
    monkeypatch.setattr(training.run, "evaluate", lambda *_: training.Sums(1.0, 1, 2))
    monkeypatch.setattr(training.run, "PIECE", 80)
    with pytest.raises(Diverged, match=r"\.params\['Dense1'\]\['bias'\] is not finite after step"):
        train(CONFIG, tmp_path / "run", data_dir=data_dir, **QUIET)
    assert checkpoints(tmp_path / "run") == []


def test_a_loss_that_exploded_is_warned_of(data_dir, tmp_path):
    said = []
    config = Config(epochs=1, learning_rate=10.0)
    train(config, tmp_path / "run", data_dir=data_dir, say=said.append)
    assert said[-1].startswith("warning: a loss of ") and "guessing, 2.303: lower" in said[-1]
    config = Config(epochs=1, learning_rate=1e-6, model="batchnorm")
    train(config, tmp_path / "slow", data_dir=data_dir, say=said.append)
    assert "guessing, 2.303: train for more epochs, or lower" in said[-1]
    train(Config(epochs=1), tmp_path / "calm", data_dir=data_dir, say=said.append)
    assert "warning" not in said[-1]


def test_the_best_checkpoint_stays_and_patience_ends(data_dir, tmp_path, monkeypatch):
    losses = dict(enumerate([5.0, 2.0, 3.0, 4.0, 3.0, 3.5, 1.0], 1))
    monkeypatch.setattr(
        training.run,
        "evaluate",
        lambda state, images, labels: training.Sums(
            losses[int(state.step) // 40] if len(images) == 144 else 1.0, 1, 1
        ),
    )
    workdir, kept = tmp_path / "run", {"best": True, "data_dir": data_dir, **QUIET}
    config = Config(epochs=9, early_stopping=3)
    _, history = train(config, workdir, **kept)
    assert [epoch["validation_loss"] for epoch in history] == [5.0, 2.0, 3.0, 4.0, 3.0]
    assert checkpoints(workdir) == [80, 120, 160, 200]  # the best, and the last three
    _, again = train(config, workdir, resume=True, **kept)  # it is over, and stays so
    assert again == history
    train(Config(epochs=6), workdir, resume=True, **kept)
    assert checkpoints(workdir) == [80, 160, 200, 240]
    train(Config(epochs=7), workdir, resume=True, **kept)
    assert checkpoints(workdir) == [200, 240, 280]  # the best is the last now


def test_a_profile_of_some_steps(data_dir, tmp_path):
    train(CONFIG, tmp_path / "run", profile=True, data_dir=data_dir, **QUIET)
    assert list((tmp_path / "run" / "profile").rglob("*.xplane.pb"))


def test_other_options_resume_to_the_same_bits_too(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(training.run, "PIECE", 8)  # of an epoch of 20 steps
    options = {"optimizer": "adamw", "schedule": "cosine", "warmup": 9, "clip": 1.0}
    config = Config(model="batchnorm", epochs=1, batch_size=64, accumulate=3, **options)
    train(config, tmp_path / "calm", data_dir=data_dir, **QUIET)
    pieces = iter(range(9))
    stopped = {"asked_to_stop": lambda: next(pieces) == 2, "data_dir": data_dir, **QUIET}
    with pytest.raises(Stopped):
        train(config, tmp_path / "run", **stopped)
    assert checkpoints(tmp_path / "run") == [16]  # of three batches to one update it has one
    train(config, tmp_path / "run", resume=True, data_dir=data_dir, **QUIET)
    assert_as_undisturbed(tmp_path / "run", tmp_path / "calm")


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--dataset cats", "dataset 'cats': choose from"),
        ("--model resnet", "model 'resnet': choose from"),
        ("--epochs 0", "epochs 0: at least 1"),
        ("--epochs 1.5", "invalid literal for int()"),
        ("--batch-size -3", "batch_size -3: at least 1"),
        ("--learning-rate 0", "learning_rate 0.0: a positive number"),
        ("--learning-rate nan", "learning_rate nan: a positive number"),
        ("--learning-rate inf", "learning_rate inf: a positive number"),
        ("--optimizer rmsprop", "optimizer 'rmsprop': choose from"),
        ("--schedule linear", "schedule 'linear': choose from"),
        ("--warmup -1", "warmup -1: at least 0"),
        ("--clip 0", "clip 0.0: a positive norm"),
        ("--accumulate 0", "accumulate 0: at least 1"),
        ("--early-stopping -1", "early_stopping -1: at least 0"),
        ("--seed -1", "seed -1: 0 to"),
        ("--num-processes 2", "needs --distributed"),
        ("--workdir {run}", "holds a run: --resume it, or choose another --workdir"),
        ("--workdir {full}", "is not empty: choose another --workdir"),
        ("--workdir {full}/file", "cannot be written: choose another --workdir"),
        ("--workdir {full}/file/run", "cannot be written: choose another --workdir"),
        ("--workdir {none} --resume", "nothing to resume in"),
        ("--workdir {full} --resume", "nothing to resume in"),
        ("--workdir {bad} --resume", "config.json cannot be read"),
        ("--workdir {run} --resume --seed 1", "holds another run: seed is 0 there, 1 here"),
        ("--workdir {run} --resume --model cnn", "model is linen there, cnn here"),
        ("--workdir {run} --resume --epochs 3", "has 4 epochs already, 3 asked"),
        ("--workdir gs://bucket/run", "gs://bucket/run cannot be reached: Please install gcsfs"),
        ("--workdir s3://bucket/run", "s3://bucket/run cannot be reached: Install s3fs"),
    ],
)
def test_a_refused_command_changes_nothing(
    arguments, message, undisturbed, tmp_path, data_dir, monkeypatch, capsys
):
    for name in ("full", "bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "bad" / "config.json").write_text("{")
    folders = {name: tmp_path / name for name in ("full", "bad", "none")} | {"run": undisturbed}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "500")
    early = "epochs already" not in message
    if early:
        monkeypatch.setattr(digits, "load", lambda *_: pytest.fail("the data was read"))
    before = content(undisturbed), content(tmp_path)
    try:
        status = main([*arguments.format_map(folders).split(), "--data-dir", str(data_dir)])
    except SystemExit as exit_:  # tyro's own errors
        status = exit_.code
    said = capsys.readouterr().err
    assert status == (2 if early else 1)
    assert message in said and "Traceback" not in said
    assert (content(undisturbed), content(tmp_path)) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "full"]


def test_what_only_the_data_can_tell(data_dir, tmp_path, monkeypatch, capsys):
    common = ["--data-dir", str(data_dir), "--workdir", str(tmp_path / "run")]
    assert main([*common, "--batch-size", "1294"]) == 2
    assert "batch_size 1294: there are 1293 examples to train on" in capsys.readouterr().err
    assert main([*common, "--schedule", "cosine", "--warmup", "800"]) == 1
    assert "800 updates of warm-up leave none of 800" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*common, "--learning-rate", "1e30"]) == 1
    assert main([*common, "--epochs", "1"]) == 0  # nothing was saved there, so it is free
    capsys.readouterr()
    assert main(["--data-dir", str(data_dir), "--workdir", "/proc/run"]) in (1, 2)
    assert "/proc/run cannot be written" in capsys.readouterr().err
    monkeypatch.setattr(digits.MNIST, "URL", "http://127.0.0.1:9/")
    assert main(["--dataset", "mnist", "--data-dir", str(data_dir), "--workdir", "x"]) == 1
    assert "or use the data set 'digits'" in capsys.readouterr().err


def test_help_names_every_default(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    for name, value in vars(Config()).items():
        assert f"--{name.replace('_', '-')}" in out and f"(default: {value})" in out
    for heading in ("training", "run", "processes"):
        assert f"{heading} options" in out
    for line in ("What is trained, on what, and how", "Where it is kept", "Several processes"):
        assert line in out


# --- Weights & Biases, offline


def wandb_records(folder: Path) -> list[wandb_internal_pb2.Record]:
    """What is in a .wandb file: LevelDB's log format, in blocks of 32 KiB, after 7 bytes."""
    (file,) = folder.glob("*.wandb")
    content, offset, records, parts = file.read_bytes(), 7, [], b""
    assert content.startswith(b":W&B")
    while offset < len(content):
        if -offset % 32768 < 7:  # no header fits into what is left of this block
            offset += -offset % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, offset)
        parts += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # whole, or its last part
            records.append(wandb_internal_pb2.Record.FromString(parts))
            parts = b""
    return records


def test_ctrl_c_finishes_wandb_and_the_line_to_paste_tells_it_everything_again(data_dir, tmp_path):
    workdir = tmp_path / "a run"
    environment = os.environ | {"WANDB_MODE": "offline", "HOME": str(tmp_path)}
    arguments = ("--epochs", 400, "--data-dir", data_dir, "--workdir", workdir, "--wandb")
    process = start(*arguments, env=environment, terminal=True)
    process.wait_for("epoch   2/400")
    process.send(signal.SIGINT, group=True)  # as a terminal does
    status, _, shown = process.end()
    assert status == 130 and "Traceback" not in shown, shown
    assert "/400 [" in shown  # a progress bar, on a terminal
    line = pasted(shown.replace("\r", "\n"))
    assert line == [
        *("--workdir", str(workdir), "--resume", "--data-dir", str(data_dir), "--wandb")
    ]
    (place,) = workdir.glob("wandb/offline-run-*")
    kinds = [record.WhichOneof("record_type") for record in wandb_records(place)]
    done = len(saved_history(workdir))
    assert kinds.count("history") == done >= 2
    assert "exit" in kinds  # it was finished

    status, out, err = start(*line, "--epochs", done + 2, env=environment).end()
    assert (status, err) == (0, "") and "wandb:" not in out
    (again,) = set(workdir.glob("wandb/offline-run-*")) - {place}
    records = wandb_records(again)
    (run,) = (record.run for record in records if record.WhichOneof("record_type") == "run")
    assert place.name.endswith(run.run_id)  # the same run for W&B
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config.items() >= vars(Config(epochs=done + 2)).items()
    told = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}
            told.append({name: x for name, x in row.items() if not name.startswith("_")})
    assert told == saved_history(workdir)


def test_wandb_that_is_missing_or_has_no_account(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(training.records.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunError, match="pip install wandb"):
        train(CONFIG, tmp_path / "run", use_wandb=True, data_dir=data_dir, **QUIET)
    assert not (tmp_path / "run").exists()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    arguments = ("--data-dir", data_dir, "--workdir", tmp_path / "run", "--wandb")
    status, _, err = start(*arguments, env=environment | {"HOME": str(tmp_path)}).end()
    assert status == 1 and "WANDB_MODE=offline" in err and "Traceback" not in err
