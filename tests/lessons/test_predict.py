"""Asking a trained network: by the command, by a program that needs nothing of this book."""

import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from processes import Process
from seejax.training import Config, digits, evaluate, folder, predict, train
from seejax.training.classifier import classifier
from seejax.training.predict import PredictError, main

pytestmark = pytest.mark.usefixtures("compiled_once")

CONFIG = Config(model="batchnorm", epochs=3, bf16=True, learning_rate=3e-3)


@pytest.fixture(scope="module")
def run(data_dir, tmp_path_factory) -> tuple[Path, object]:
    """A run, and the training state that it ended with."""
    workdir = tmp_path_factory.mktemp("runs") / "run"
    with jax.numpy_dtype_promotion("standard"):  # Flax mixes bfloat16 with float32 statistics
        state, _ = train(CONFIG, workdir, data_dir=data_dir, say=lambda line: None)
    return workdir, state


@pytest.fixture(scope="module")
def test_split(data_dir) -> digits.Split:
    return digits.load("digits", "test", data_dir)


def png(folder: Path, name: str, pixels: np.ndarray) -> Path:
    file = folder / f"{name}.png"
    Image.fromarray(pixels).save(file)
    return file


def probabilities(state, images) -> np.ndarray:
    """From the state that training returned, by NumPy."""
    logits = np.float64(state.apply_fn(state.variables, images))
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def test_the_last_checkpoint_is_the_state_that_training_returned(run, test_split, plain_numpy):
    workdir, state = run
    trained = predict.load(workdir)
    jax.tree.map(np.testing.assert_array_equal, trained.variables, dict(state.variables))
    p = trained.probabilities(test_split.images)
    np.testing.assert_allclose(p, probabilities(state, test_split.images), atol=1e-6)
    accuracy = (p.argmax(1) == test_split.labels).mean()
    assert np.isclose(accuracy, evaluate(state, *test_split).means()["accuracy"])


def test_load_takes_a_folder_relative_to_the_current_one(
    run, monkeypatch, tmp_path, capsys, plain_numpy
):
    workdir, state = run
    monkeypatch.chdir(workdir.parent)
    trained = predict.load(workdir.name)
    jax.tree.map(np.testing.assert_array_equal, trained.variables, dict(state.variables))
    image = png(tmp_path, "black", np.zeros((8, 8), np.uint8))
    assert main([workdir.name, str(image), "--export", str(tmp_path / "program")]) == 0
    assert capsys.readouterr().out.startswith(f"{image}  ")
    assert main([f"../{workdir.parent.name}/{workdir.name}/", str(image)]) == 0


def test_the_command_prints_class_and_probabilities(run, test_split, tmp_path, capsys, plain_numpy):
    workdir, state = run
    files = [png(tmp_path, f"{i}", test_split.images[i, ..., 0]) for i in range(3)]
    assert main([str(workdir), *map(str, files)]) == 0
    expected = probabilities(state, test_split.images[:3])
    lines = capsys.readouterr().out.splitlines()
    for line, file, p in zip(lines, files, expected, strict=True):
        name, label, rest = line.split(maxsplit=2)
        assert (name, label) == (str(file), str(p.argmax()))
        shown = [float(x.split()[0]) for x in rest.strip("()").split(": ")[1:]]
        np.testing.assert_allclose(shown, p, atol=6e-4)


def test_best_is_of_the_lowest_validation_loss_at_the_end_of_an_epoch(run, tmp_path, monkeypatch):
    workdir, _ = run
    steps = folder.steps(folder.path(workdir))
    losses = dict(zip(steps, (0.3, 0.1, 0.2), strict=True))
    totals = dict.fromkeys(steps, (0, 0, 0))

    def saved_run(path, step):
        return {"history": [{"validation_loss": losses[step]}], "totals": totals[step]}

    monkeypatch.setattr(folder, "saved_run", saved_run)
    asked = []
    monkeypatch.setattr(predict, "_variables", lambda path, step, *_: asked.append(step))
    for checkpoint in ("best", "last", steps[0], str(steps[0])):
        predict.load(workdir, checkpoint)
    totals[steps[1]] = (1.0, 20, 32)  # saved within an epoch, after the one of this loss
    predict.load(workdir, "best")
    assert asked == [steps[1], steps[2], steps[0], steps[0], steps[2]]
    totals |= dict.fromkeys(steps, (1.0, 20, 32))
    with pytest.raises(PredictError, match="from the end of an epoch"):
        predict.load(workdir, "best")


def test_the_best_of_a_real_run_is_found(run):
    workdir, state = run
    history = folder.saved_run(folder.path(workdir), int(state.step))["history"]
    losses = [epoch["validation_loss"] for epoch in history]
    steps = folder.steps(folder.path(workdir))
    expected = predict.load(workdir, steps[int(np.argmin(losses))])
    found = predict.load(workdir, "best")
    jax.tree.map(np.testing.assert_array_equal, found.variables, expected.variables)


def test_an_exported_program_runs_elsewhere_for_any_number_of_images(
    run, test_split, tmp_path, plain_numpy
):
    workdir, state = run
    file = tmp_path / "digits.program"
    assert main([str(workdir), "--export", str(file)]) == 0
    np.save(tmp_path / "images.npy", test_split.images[:5])
    code = """
import sys, pathlib, jax, numpy as np
import jax.export
folder = pathlib.Path(sys.argv[1])
program = jax.export.deserialize(bytearray((folder / "digits.program").read_bytes()))
images = np.load(folder / "images.npy")
np.savez(folder / "answers.npz", *[program.call(images[:n]) for n in (1, 2, 5)])
assert {"cpu", "cuda", "tpu"} <= set(program.platforms)
assert not {"seejax", "flax", "orbax"} & set(sys.modules)
"""
    process = Process(sys.executable, "-W", "error", "-c", code, tmp_path, cwd=tmp_path)
    assert process.end() == (0, "", "")
    answers = np.load(tmp_path / "answers.npz")
    expected = probabilities(state, test_split.images[:5])
    for name, n in zip(answers.files, (1, 2, 5), strict=True):
        np.testing.assert_allclose(answers[name], expected[:n], atol=1e-2)  # bfloat16


@pytest.mark.parametrize("model", ["linen", "nnx", "cnn", "batchnorm-nnx"])
def test_every_network_can_be_exported(model, tmp_path):
    network = classifier(model)
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1), np.uint8)
    trained = predict.Trained(network, network.init(jax.random.key(0), images), (8, 8, 1))
    predict.export(trained, tmp_path / "program")
    program = jax.export.deserialize(bytearray((tmp_path / "program").read_bytes()))
    np.testing.assert_allclose(program.call(images), trained.probabilities(images), atol=1e-5)


# --- what cannot be answered


GREY = np.zeros((8, 8), np.uint8)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros((8, 9), np.uint8), "is 9×8 pixels, 8×8 are needed"),
        (np.zeros((8, 8, 3), np.uint8), "is RGB, not greyscale"),
        (np.zeros((8, 8), np.uint16), "is I;16, not greyscale with 8 bits"),
        (GREY + np.uint8(255), "is dark on light"),
    ],
    ids=["size", "colours", "depth", "inverted"],
)
def test_an_image_that_is_not_as_the_data(pixels, message, tmp_path):
    with pytest.raises(PredictError, match=message):
        predict.read_image(png(tmp_path, "image", pixels), (8, 8, 1))


@pytest.mark.parametrize("content", [b"", b"no image", None], ids=["empty", "text", "cut off"])
def test_a_file_that_is_no_image(content, tmp_path):
    file = png(tmp_path, "image", GREY)
    file.write_bytes(file.read_bytes()[:45] if content is None else content)
    for path in (file, tmp_path / "missing.png", tmp_path):
        with pytest.raises(PredictError, match="cannot be read as an image"):
            predict.read_image(path, (8, 8, 1))


def test_every_digit_of_the_data_is_light_on_dark_and_none_the_other_way(data_dir, tmp_path):
    images = np.concatenate([digits.load("digits", s, data_dir).images for s in digits.SPLITS])
    for image in images[::9]:
        file = png(tmp_path, "image", image[..., 0])
        assert np.array_equal(predict.read_image(file, (8, 8, 1)), image)
        with pytest.raises(PredictError, match="dark on light"):
            predict.read_image(png(tmp_path, "inverted", 255 - image[..., 0]), (8, 8, 1))


def test_a_run_that_is_none_or_not_whole(run, tmp_path, capsys, plain_numpy):
    workdir, _ = run
    image = str(png(tmp_path, "image", GREY))

    def refused(*arguments: object) -> str:
        assert main([*map(str, arguments), image]) == 1
        captured = capsys.readouterr()
        assert captured.out == "" and len(captured.err.splitlines()) == 1
        return captured.err

    assert "holds no checkpoint of a run" in refused(tmp_path / "none")
    assert "has no checkpoint 7: choose from 40, 80, 120" in refused(workdir, "--checkpoint", 7)
    assert "program cannot be written" in refused(workdir, "--export", tmp_path / "no" / "program")

    other = tmp_path / "other"
    shutil.copytree(workdir, other)
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace('"batchnorm"', '"cnn"'))
    assert "is of another network: see ['params']['Conv1']['bias']" in refused(other)
    (other / "config.json").write_text("{")
    (other / "config.json").unlink()  # a checkpoint has it, too
    assert main([str(other), image]) == 0
    capsys.readouterr()
    # Not the arrays: those that Orbax still reads then fail when its event loop is closed already.
    (other / "checkpoints" / "120" / "state" / "_METADATA").write_text("{")
    assert "checkpoint 120 in" in refused(other)
    (other / "checkpoints" / "80" / "run" / "metadata").write_text("{")
    assert "checkpoint 80 in" in refused(other, "--checkpoint", "best")
    (other / "checkpoints" / "80").rename(other / "checkpoints" / "80.orbax-checkpoint-tmp")
    assert "choose from 40, 120" in refused(other, "--checkpoint", 80)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run", "give images or other files, or --export"),
        ("run x.png --checkpoint worst", "last, best or a"),
    ],
)
def test_arguments_that_cannot_be(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2 and message in capsys.readouterr().err


def test_the_documented_call_of_a_program_is_by_uint8(run):
    trained = predict.load(run[0])
    with pytest.raises(TypeError, match="uint8"):
        trained.probabilities(jnp.zeros((1, 8, 8, 1), jnp.int32))
