"""Training: the numbers against NumPy in float64, and runs that are killed at every bad moment."""

import hashlib
import json
import os
import random
import shutil
import signal
import struct
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from processes import Process
from seejax import digits, training
from seejax.classifier import classifier
from seejax.training import Config, RunError, main, train

pytestmark = pytest.mark.usefixtures("compiled_once")

CONFIG = Config(epochs=6)
QUIET = {"say": lambda line: None}


def parameter_bits(workdir: Path) -> str:
    """The parameters of the last checkpoint as Orbax reads them without any code of ours."""
    step = max(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit())
    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(workdir.absolute() / "checkpoints" / str(step) / "state")
    leaves = jax.tree_util.tree_leaves_with_path((step, state))
    assert len(leaves) > 18  # parameters, and two moments of each
    content = [(jax.tree_util.keystr(path), np.asarray(leaf).tobytes()) for path, leaf in leaves]
    return hashlib.sha256(repr(sorted(content)).encode()).hexdigest()


def saved_history(workdir: Path) -> list[training.Epoch]:
    step = max(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit())
    text = (workdir / "checkpoints" / str(step) / "history" / "metadata").read_text()
    return json.loads(text)


def without_time(history: list[training.Epoch]) -> list[training.Epoch]:
    return [{name: x for name, x in epoch.items() if name != "time"} for epoch in history]


def events(workdir: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from the event files."""
    found = {}
    for split in ("train", "test"):
        accumulator = EventAccumulator(str(workdir / "tensorboard" / split))
        accumulator.Reload()
        for tag in accumulator.Tags()["scalars"]:
            found[f"{split} {tag}"] = [(e.step, e.value) for e in accumulator.Scalars(tag)]
    return found


def as_events(history: list[training.Epoch]) -> dict[str, list[tuple[int, float]]]:
    return {
        f"{split} {tag}": [(e["epoch"], float(np.float32(e[prefix + tag]))) for e in history]
        for split, prefix in (("train", ""), ("test", "test_"))
        for tag in ("loss", "accuracy")
    }


@pytest.fixture(scope="module")
def undisturbed(data_dir, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("runs") / "undisturbed"
    train(CONFIG, workdir, data_dir=data_dir, **QUIET)
    return workdir


def assert_as_undisturbed(workdir: Path, undisturbed: Path) -> None:
    assert parameter_bits(workdir) == parameter_bits(undisturbed)
    assert without_time(saved_history(workdir)) == without_time(saved_history(undisturbed))
    assert events(workdir) == as_events(saved_history(undisturbed))
    left = sorted(p.name for p in (workdir / "checkpoints").iterdir())
    assert left in (["4", "5", "6"], ["3", "4", "5", "6"])  # killed before it deleted the oldest
    assert not list(workdir.glob("*.new"))


def start(*arguments: object, code: str = "", **options) -> Process:
    """The command as a user runs it; with `code`, the same after that code."""
    how = ["-m", "seejax.training"]
    if code:
        how = ["-c", f"{code}\nimport sys\nfrom seejax import training\nsys.exit(training.main())"]
    return Process(sys.executable, "-W", "error", *how, *arguments, **options)


# --- the numbers


def numpy_adam(params, images, labels, learning_rate=1e-3):
    """The MLP, its gradient by hand, and Adam as its paper writes it; float64, one step a batch."""
    layers = ("Dense1", "Dense2", "Output")
    params = {
        (layer, name): np.asarray(params[layer][name], np.float64)
        for layer in layers
        for name in ("kernel", "bias")
    }
    first, second = ({k: np.zeros_like(v) for k, v in params.items()} for _ in range(2))
    losses = []
    for t, (image, label) in enumerate(zip(images, labels, strict=True), 1):
        inputs, x = [], image.reshape(len(image), -1) / 255.0
        for layer in layers:
            inputs.append(x)
            x = x @ params[layer, "kernel"] + params[layer, "bias"]
            if layer != "Output":
                x = np.maximum(x, 0)
        p = np.exp(x - x.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        rows = np.arange(len(label))
        losses.append(-np.log(p[rows, label]))
        back = p
        back[rows, label] -= 1
        back /= len(label)
        for layer, value in zip(reversed(layers), reversed(inputs), strict=True):
            grads = {(layer, "kernel"): value.T @ back, (layer, "bias"): back.sum(0)}
            back = (back @ params[layer, "kernel"].T) * (value > 0)
            for k, grad in grads.items():
                first[k] = 0.9 * first[k] + 0.1 * grad
                second[k] = 0.999 * second[k] + 0.001 * grad**2
                step = first[k] / (1 - 0.9**t) / (np.sqrt(second[k] / (1 - 0.999**t)) + 1e-8)
                params[k] = params[k] - learning_rate * step
    return params, np.array(losses)


@pytest.fixture(scope="module")
def batches(data_dir) -> tuple[jax.Array, jax.Array, jax.Array]:
    images, labels = digits.load("digits", "train", data_dir)
    order = digits.epoch_order(jax.random.key(5), len(labels), 32)[:8]
    return jnp.asarray(images), jnp.asarray(labels), order


def initial(images: jax.Array, model: str = "linen") -> training.TrainState:
    return training.create_state(jax.random.key(0), classifier(model), images[:1])


def test_eight_steps_are_those_of_adam_in_float64(batches):
    images, labels, order = batches
    state = initial(images)
    expected, losses = numpy_adam(
        state.params, *(np.asarray(x)[np.asarray(order)] for x in (images, labels))
    )
    state, sums = training.train_epoch(state, images, labels, order)
    # Adam divides by a gradient's own size: where that is 1e-7, float32 has few digits of it left.
    for (layer, name), value in expected.items():
        assert np.allclose(state.params[layer][name], value, atol=2e-5), (layer, name)
    assert np.allclose(sums.loss, losses.sum(1), rtol=1e-5)
    assert np.isclose(sums.means()["loss"], losses.mean(), rtol=1e-5)
    assert state.step == 8 and state.opt_state[0].count == 8


@pytest.mark.parametrize("model", ["linen", "setup", "nnx", "cnn"])
def test_an_epoch_is_its_steps(batches, model):
    images, labels, order = batches
    state, parts = initial(images, model), []
    for batch in order:
        state, sums = training.train_step(state, images[batch], labels[batch])
        parts.append(sums)
    whole, sums = training.train_epoch(initial(images, model), images, labels, order)
    assert sums.loss.shape == (8,) and sums.count.tolist() == [32] * 8
    assert sums.correct.tolist() == [int(part.correct) for part in parts]
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(state.params), strict=True):
        assert np.allclose(a, b, atol=2e-5)


@pytest.mark.parametrize("batch_size", [1, 7, 50, 256])
def test_evaluation_counts_each_example_once(batches, batch_size):
    images, labels = batches[0][:50], batches[1][:50]
    state = initial(images)
    _, losses = numpy_adam(state.params, [np.asarray(images)], [np.asarray(labels)])
    means = training.evaluate(state, images, labels, batch_size).means()
    assert np.isclose(means["loss"], losses.mean(), rtol=1e-6)
    answers = np.asarray(state.apply_fn(state.params, images)).argmax(1)
    assert means["accuracy"] == (answers == np.asarray(labels)).mean()


def test_the_second_epoch_is_not_traced_and_the_first_state_is_gone(batches):
    first = initial(batches[0])
    second, _ = training.train_epoch(first, *batches)
    with jax.no_tracing():
        training.train_epoch(second, *batches)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first.params))


def by_hand(seed: int, epochs: int, data_dir: Path) -> tuple[training.TrainState, float]:
    """A run as the docstrings describe it, from the pure functions alone."""
    train_split, test_split = (digits.load("digits", split, data_dir) for split in digits.SPLITS)
    init_key, order_key = jax.random.split(jax.random.key(seed))
    state = training.create_state(init_key, NETWORK, train_split.images[:1])
    for epoch in range(1, epochs + 1):
        order = digits.epoch_order(jax.random.fold_in(order_key, epoch), 1437, 32)
        state, _ = training.train_epoch(state, *map(jnp.asarray, train_split), order)
    return state, training.evaluate(state, *test_split).means()["accuracy"]


NETWORK = classifier("linen")


@pytest.mark.parametrize("seed", range(5))
def test_20_epochs_reach_97_percent(seed, data_dir):
    assert by_hand(seed, Config().epochs, data_dir)[1] >= 0.97


# --- an undisturbed run


def test_events_are_the_history_and_the_last_three_checkpoints_stay(undisturbed):
    history = saved_history(undisturbed)
    assert [epoch["epoch"] for epoch in history] == [1, 2, 3, 4, 5, 6]
    assert_as_undisturbed(undisturbed, undisturbed)
    accumulator = EventAccumulator(str(undisturbed / "tensorboard" / "train"))
    accumulator.Reload()
    (text,) = accumulator.Tensors("hyperparameters/text_summary")
    assert b"| learning_rate | 0.001 |" in text.tensor_proto.string_val[0]


def test_each_epoch_has_an_order_of_its_own(undisturbed, data_dir):
    state, accuracy = by_hand(CONFIG.seed, CONFIG.epochs, data_dir)
    assert accuracy == saved_history(undisturbed)[-1]["test_accuracy"]
    with ocp.StandardCheckpointer() as checkpointer:
        saved = checkpointer.restore(undisturbed / "checkpoints" / "6" / "state")
    assert jax.tree.all(jax.tree.map(np.array_equal, saved["params"], state.params))


def test_the_command_says_each_epoch_and_where_everything_is(undisturbed, data_dir, tmp_path):
    arguments = ("--epochs", 6, "--data-dir", data_dir, "--workdir", tmp_path / "run")
    status, out, err = start(*arguments).end()
    assert (status, err) == (0, "")
    lines = out.splitlines()
    history = saved_history(undisturbed)
    for line, epoch in zip(lines[:-1], history, strict=True):
        assert line.startswith(f"epoch {epoch['epoch']}/6 ") and f"{epoch['loss']:.4f}" in line
    assert lines[-1].startswith(f"6 epochs, loss {history[-1]['loss']:.4f}, test accuracy 0.9")
    assert lines[-1].endswith(f"tensorboard --logdir {tmp_path / 'run'}")
    assert_as_undisturbed(tmp_path / "run", undisturbed)


# --- killed, and resumed


def test_killed_again_and_again_by_the_clock(undisturbed, data_dir, tmp_path):
    rng = random.Random(0)
    workdir = tmp_path / "run"
    arguments = ["--epochs", 6, "--data-dir", data_dir, "--workdir", workdir]
    for epoch in sorted(rng.sample(range(1, 6), 2)):
        process = start(*arguments)
        process.wait_for(f"epoch {epoch}/")
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        arguments = ["--workdir", workdir, "--data-dir", data_dir, "--resume"]
    status, out, err = start(*arguments).end()
    assert (status, err) == (0, "") and out.startswith("resumed after epoch ")
    assert_as_undisturbed(workdir, undisturbed)


# Each replaces a function by one that kills its own process before or after the true one.
DIE = """
import os, signal
def killing(owner, name, when, after=False):
    true = getattr(owner, name)
    def function(*args, **kwargs):
        dies = when(*args, **kwargs)
        result = true(*args, **kwargs) if after or not dies else None
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, function)
"""
MOMENTS = {
    "before the first checkpoint": """
from seejax import training
killing(training, "_write_config", lambda *_: True, after=True)
""",
    "before its config is in place": """
import pathlib
killing(pathlib.Path, "replace", lambda path, to: "config" in path.name)
""",
    "while a checkpoint is written": """
killing(os, "rename", lambda a, b, **_: str(b).endswith("checkpoints/4/state")
        or str(b).endswith("4.orbax-checkpoint-tmp/state"))
""",
    "before a checkpoint gets its name": """
killing(os, "rename", lambda a, b, **_: str(b).endswith("checkpoints/4"))
""",
    "after a checkpoint, before the events": """
from tensorboardX.event_file_writer import EventsWriter
killing(EventsWriter, "write_event", lambda self, event: event.step == 4)
""",
    "between two events": """
from tensorboardX.event_file_writer import EventsWriter
steps = []
killing(EventsWriter, "write_event", lambda self, event: steps.append(event.step) or
        steps[-3:] == [4, 4, 4])        # both of train, none of test
""",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_a_bad_moment(moment, undisturbed, data_dir, tmp_path):
    workdir = tmp_path / "run"
    arguments = ("--epochs", 6, "--data-dir", data_dir, "--workdir", workdir)
    status, _, err = start(*arguments, code=DIE + MOMENTS[moment]).end()
    assert (status, err) == (-signal.SIGKILL, "")
    left = sorted(path.name for path in (workdir / "checkpoints").glob("*"))
    resumable = True
    if "first" in moment:
        assert left == []
    elif "config" in moment:
        resumable = False  # nothing is there yet that says what to resume
    elif "while" in moment or "name" in moment:
        assert left == ["1", "2", "3", "4.orbax-checkpoint-tmp"]
    else:
        assert left == ["2", "3", "4"]
        said = {tag: steps[-1][0] for tag, steps in events(workdir).items()}
        assert said["test loss"] == 3 and said["train loss"] == (4 if "between" in moment else 3)
    if resumable:
        train(CONFIG, workdir, resume=True, data_dir=data_dir, **QUIET)
        assert_as_undisturbed(workdir, undisturbed)
    else:
        with pytest.raises(RunError, match="nothing to resume"):
            train(CONFIG, workdir, resume=True, data_dir=data_dir, **QUIET)


def test_killed_while_resuming(undisturbed, data_dir, tmp_path):
    workdir = tmp_path / "run"
    train(Config(epochs=4), workdir, data_dir=data_dir, **QUIET)
    moment = """
from tensorboardX.event_file_writer import EventsWriter
killing(EventsWriter, "write_event", lambda self, event: event.step == 2, after=True)
"""
    status, _, _ = start("--workdir", workdir, "--resume", code=DIE + moment).end()
    assert status == -signal.SIGKILL
    train(CONFIG, workdir, resume=True, data_dir=data_dir, **QUIET)
    assert_as_undisturbed(workdir, undisturbed)


def test_interrupted_from_the_keyboard(undisturbed, data_dir, tmp_path):
    workdir = tmp_path / "run"
    arguments = ("--epochs", 400, "--data-dir", data_dir, "--workdir", workdir)
    process = start(*arguments, terminal=True)
    process.wait_for("epoch   2/400")
    process.send(signal.SIGINT)
    status, _, shown = process.end()
    assert status == 130
    assert "/400 [" in shown and "Traceback" not in shown  # a progress bar, on a terminal
    assert f"go on with: python -m seejax.training --workdir {workdir} --resume" in shown
    saved = without_time(saved_history(workdir))
    assert saved[:6] == without_time(saved_history(undisturbed))[: len(saved)]


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_does(undisturbed, data_dir, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(undisturbed, workdir)
    for file in (workdir / "checkpoints" / "6" / "state").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:100])
    status, _, err = start("--workdir", workdir, "--data-dir", data_dir, "--resume").end()
    assert status == 1
    assert f"checkpoint 6 of {workdir}/checkpoints cannot be read" in err
    shutil.rmtree(workdir / "checkpoints" / "6")
    train(CONFIG, workdir, resume=True, data_dir=data_dir, **QUIET)
    assert_as_undisturbed(workdir, undisturbed)


def test_a_finished_run_can_get_more_epochs(undisturbed, data_dir, tmp_path, capsys):
    workdir = tmp_path / "run"
    common = ["--workdir", str(workdir), "--data-dir", str(data_dir)]
    assert main([*common, "--epochs", "3"]) == 0
    assert main([*common, "--epochs", "6", "--resume"]) == 0
    assert_as_undisturbed(workdir, undisturbed)
    capsys.readouterr()
    assert main([*common, "--resume"]) == 0  # there is nothing left to do
    out = capsys.readouterr().out
    assert out.startswith("resumed after epoch 6\n6 epochs, loss ")
    assert main([*common, "--epochs", "5", "--resume"]) == 1
    assert "has 6 epochs already, 5 asked" in capsys.readouterr().err


# --- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--dataset cats", "invalid choice: 'cats'"),
        ("--model resnet", "invalid choice: 'resnet'"),
        ("--epochs 0", "epochs 0: at least 1"),
        ("--epochs 1.5", "invalid int value"),
        ("--batch-size -3", "batch_size -3: at least 1"),
        ("--learning-rate 0", "learning_rate 0.0: a positive number"),
        ("--learning-rate nan", "learning_rate nan: a positive number"),
        ("--learning-rate inf", "learning_rate inf: a positive number"),
        ("--seed -1", "seed -1: 0 to"),
        ("--workdir {run}", "holds a run: --resume it, or choose another --workdir"),
        ("--workdir {full}", "is not empty: choose another --workdir"),
        ("--workdir {full}/file", "cannot be written: choose another --workdir"),
        ("--workdir {full}/file/run", "cannot be written: choose another --workdir"),
        ("--workdir {none} --resume", "nothing to resume in"),
        ("--workdir {full} --resume", "nothing to resume in"),
        ("--workdir {bad} --resume", "config.json cannot be read"),
        ("--workdir {run} --resume --seed 1", "holds another run: seed is 0 there, 1 here"),
        ("--workdir {run} --resume --model cnn", "model is linen there, cnn here"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_read(
    arguments, message, undisturbed, tmp_path, monkeypatch, capsys
):
    for name in ("full", "bad"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "bad" / "config.json").write_text("{")
    folders = {name: tmp_path / name for name in ("full", "bad", "none")} | {"run": undisturbed}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(digits, "load", lambda *_: pytest.fail("the data was read"))
    before = parameter_bits(undisturbed)
    with pytest.raises(SystemExit) as caught:
        main(arguments.format_map(folders).split())
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert parameter_bits(undisturbed) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "full"]


def test_what_only_the_data_can_tell(data_dir, tmp_path, monkeypatch, capsys):
    common = ["--data-dir", str(data_dir), "--workdir", str(tmp_path / "run")]
    assert main([*common, "--batch-size", "1438"]) == 1
    assert "batch_size 1438: digits has 1437 examples" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main([*common, "--learning-rate", "1e30"]) == 1
    assert "lower --learning-rate" in capsys.readouterr().err
    assert main([*common, "--epochs", "1"]) == 0  # nothing was saved there, so it is free
    capsys.readouterr()
    assert main(["--data-dir", str(data_dir), "--workdir", "/proc/run"]) == 1
    assert "/proc/run cannot be written" in capsys.readouterr().err
    monkeypatch.setattr(digits.MNIST, "URL", "http://127.0.0.1:9/")
    assert main(["--dataset", "mnist", "--data-dir", str(data_dir), "--workdir", "x"]) == 1
    assert "or use the data set 'digits'" in capsys.readouterr().err


def test_help_names_every_default(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    for name, value in vars(Config()).items():
        assert f"--{name.replace('_', '-')}" in out and f"default: {value}" in out


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


def test_wandb_offline_is_told_everything_again_by_a_resumed_run(data_dir, tmp_path):
    workdir = tmp_path / "run"
    environment = os.environ | {"WANDB_MODE": "offline", "HOME": str(tmp_path)}
    for arguments in (("--epochs", 2), ("--epochs", 3, "--resume")):
        where = ("--data-dir", data_dir, "--workdir", workdir, "--wandb")
        status, out, err = start(*arguments, *where, env=environment).end()
        assert (status, err) == (0, "") and "wandb:" not in out
    folders = sorted(workdir.glob("wandb/offline-run-*"))
    assert len(folders) == 2
    records = wandb_records(folders[-1])
    (run,) = (record.run for record in records if record.WhichOneof("record_type") == "run")
    assert folders[0].name.endswith(run.run_id)  # the same run for W&B
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config.items() >= vars(Config(epochs=3)).items()
    told = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in items}
            told.append({name: x for name, x in row.items() if not name.startswith("_")})
    assert told == saved_history(workdir)


def test_wandb_that_is_missing_or_has_no_account(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(training.run.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunError, match="pip install wandb"):
        train(CONFIG, tmp_path / "run", use_wandb=True, data_dir=data_dir, **QUIET)
    assert not (tmp_path / "run").exists()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB")}
    arguments = ("--data-dir", data_dir, "--workdir", tmp_path / "run", "--wandb")
    status, _, err = start(*arguments, env=environment | {"HOME": str(tmp_path)}).end()
    assert status == 1 and "WANDB_MODE=offline" in err and "Traceback" not in err
