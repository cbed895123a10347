"""A reader's own data and network: by the command, in Python, killed and resumed, refused."""

import json
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx
from PIL import Image
from test_training import QUIET, checkpoints, content, parameter_bits, saved_history, without_time

from processes import Process
from seejax import training
from seejax.training import Refused, RunError, Splits, Stopped, data, fit, main, predict, split
from seejax.training.digits import epoch_order
from seejax.training.network import named, wrapped

pytestmark = [pytest.mark.usefixtures("compiled_once"), pytest.mark.usefixtures("plain_numpy")]

NETS = """
from flax import linen as nn
from flax import nnx


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Dense(8)(x.reshape(x.shape[0], -1)))
        x = nn.relu(nn.Dense(8)(x))
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(3)(x)


class Flat(nnx.Module):
    def __init__(self, *, rngs):
        self.hidden = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.output = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        return self.output(nnx.relu(self.norm(self.hidden(x))))


def made():
    return nn.Dense(3)


class Negative(nn.Module):
    @nn.compact
    def __call__(self, x):
        return -nn.Dense(3)(x)


class NoAxis(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(x)[:, 0]


class Two(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(x)


class Broken(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x.nothing)


class Backwards(nn.Module):
    @nn.compact
    def __call__(self, x, train=True):
        return nn.Dense(3)(x)
"""


def flowers(n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    """Three classes that a line tells apart: float32 (n, 4), int (n,)."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    return (rng.normal(size=(n, 4)) + 2 * np.eye(3, 4)[labels]).astype(np.float32), labels


def write_table(file: Path, n: int = 90) -> Path:
    """With the label in the middle, as text."""
    lines = ["a,b,label,c,d"]
    for (a, b, c, d), label in zip(*flowers(n), strict=True):
        lines.append(f"{a},{b},{['iris', 'rose', 'lily'][label]},{c},{d}")
    file.write_text("\n".join(lines) + "\n")
    return file


def write_images(folder: Path, size: tuple[int, int] = (6, 5), mode: str = "L") -> Path:
    """Three classes of grey, a folder each."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(("black", "grey", "white")):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 60, size[::-1], np.uint8) + np.uint8(90 * number)
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{i}.png")
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with networks and one of each kind of data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETS)
    write_table(tmp_path / "flowers.csv")
    x, y = flowers()
    np.savez(tmp_path / "flowers.npz", x=x, y=y)
    write_images(tmp_path / "photos")
    return tmp_path


def command(arguments: str) -> int:
    return main(arguments.split())


def interrupted(moment: int) -> Callable[[], bool]:
    """Asks to stop at that time of asking."""
    pieces = iter(range(10**9))
    return lambda: next(pieces) == moment


# --- what is read


def test_read_table_keeps_columns_and_sorts_classes(tmp_path: Path) -> None:
    splits = data.read(write_table(tmp_path / "t.csv"))
    assert splits.classes == ["iris", "lily", "rose"] and splits.columns == ["a", "b", "c", "d"]
    x, labels = flowers()
    again = {tuple(row): name for row, name in zip(x, labels, strict=True)}
    for examples, found in splits[:3]:
        assert examples.dtype == np.float32
        for row, label in zip(examples, found, strict=True):
            assert splits.classes[label] == ["iris", "rose", "lily"][again[tuple(row)]]
    assert [len(y) for _, y in splits[:3]] == [72, 9, 9]


def test_read_table_sorts_numbers_as_numbers(tmp_path: Path) -> None:
    rows = "\n".join(f"{i},{(10, 9, -1)[i % 3]}" for i in range(9))
    (tmp_path / "t.csv").write_text(f"x,label\n{rows}\n")
    splits = data.read(tmp_path / "t.csv")
    assert splits.classes == ["-1", "9", "10"]
    for x, label in zip(*splits.train, strict=True):
        assert splits.classes[label] == str((10, 9, -1)[int(x[0]) % 3])


def test_read_arrays_as_they_are_split_in_their_file(tmp_path: Path) -> None:
    x, y = flowers()
    file = tmp_path / "a.npz"
    np.savez(file, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    splits = data.read(file)
    assert [len(part[1]) for part in splits[:3]] == [54, 6, 30]
    np.testing.assert_array_equal(splits.test[0], x[60:])
    rows = {tuple(row) for part in splits[:2] for row in part[0]}
    assert rows == {tuple(row) for row in x[:60]}
    parts = {"train": x[:30], "validation": x[30:60], "test": x[60:]}
    named_parts = {f"x_{name}": part for name, part in parts.items()}
    np.savez(file, **named_parts, **{f"y_{name}": y[:30] for name in parts})
    for name, (examples, _) in zip(parts, data.read(file)[:3], strict=True):
        np.testing.assert_array_equal(examples, parts[name])


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("P", 3), ("RGBA", 3)])
def test_read_images_are_scaled(mode: str, channels: int, tmp_path: Path) -> None:
    splits = data.read(write_images(tmp_path / "p", mode=mode))
    examples, labels = splits.train
    assert examples.shape == (48, 5, 6, channels) and examples.dtype == np.float32
    assert splits.classes == ["black", "grey", "white"]
    means = [examples[labels == label].mean() * 255 for label in range(3)]
    np.testing.assert_allclose(means, [30, 120, 210], atol=5)
    assert examples.min() >= 0 and examples.max() <= 1


def test_split_is_by_seed_and_of_each_class() -> None:
    x, y = np.arange(103.0)[:, None], np.array([0] * 60 + [1] * 40 + [2] * 3)
    splits = split(x, y, 1)
    assert [np.bincount(part[1]).tolist() for part in splits[:3]] == [
        [48, 32, 1],
        [6, 4, 1],
        [6, 4, 1],
    ]
    together = np.sort(np.concatenate([part[0][:, 0] for part in splits[:3]]))
    np.testing.assert_array_equal(together, x[:, 0])
    assert data.fingerprint(splits) == data.fingerprint(split(x, y, 1))
    assert data.fingerprint(splits) != data.fingerprint(split(x, y, 2))
    with pytest.raises(Refused, match="class lily has 2 of the examples, 3 are the least"):
        split(x[:-1], y[:-1], classes=["iris", "rose", "lily"])


# --- training


def test_fit_is_the_loop_written_out_with_optax(tmp_path: Path) -> None:
    x, y = flowers()
    splits, tx, net = split(x, y), optax.adamw(1e-2), nn.Dense(3)
    state, history = fit(net, splits, tx, tmp_path / "run", epochs=3, batch_size=16, **QUIET)
    init_key, order_key = jax.random.split(jax.random.key(0))
    params = net.init(jax.random.split(init_key)[0], x[:1])
    opt_state, (x, y) = tx.init(params), map(jnp.asarray, splits.train)

    def loss(params, x, y):
        return -jax.nn.log_softmax(net.apply(params, x))[jnp.arange(len(y)), y].mean()

    for epoch in (1, 2, 3):
        for batch in epoch_order(jax.random.fold_in(order_key, epoch), len(y), 16):
            grads = jax.grad(loss)(params, x[batch], y[batch])
            updates, opt_state = tx.update(grads, opt_state, params)
            params = optax.apply_updates(params, updates)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), state.params, params["params"]
    )
    assert np.isclose(history[-1]["test_loss"], loss(params, *splits.test), atol=1e-5)
    assert "learning_rate" not in history[-1] and len(history) == 3


@pytest.mark.parametrize("name", ["Linen", "Flat", "made"])
def test_fit_stopped_and_resumed_has_the_same_bits(name: str, place: Path) -> None:
    splits, net = data.read("flowers.csv"), named(f"net.py:{name}")
    arguments = {"epochs": 4, "batch_size": 16, "seed": 3, **QUIET}
    fit(net, splits, optax.adam(1e-2), "calm", **arguments)
    with pytest.raises(Stopped):
        stop = interrupted(2)
        fit(net, splits, optax.adam(1e-2), "run", asked_to_stop=stop, **arguments)
    assert checkpoints(place / "run") == [4, 8]
    fit(net, splits, optax.adam(1e-2), "run", resume=True, **arguments)
    saved = [without_time(saved_history(place / folder)) for folder in ("run", "calm")]
    assert saved[0] == saved[1]
    trained = [predict.load(folder, network=net).variables for folder in ("run", "calm")]
    jax.tree.map(np.testing.assert_array_equal, *trained)


def test_fit_starts_in_a_folder_whose_first_start_was_killed(place: Path) -> None:
    Path("run/checkpoints").mkdir(parents=True)  # before config.json was written
    Path("run/lock").touch()
    splits, net = data.read("flowers.csv"), named("net.py:Flat")
    _, history = fit(net, splits, optax.adam(1e-2), "run", epochs=1, **QUIET)
    assert len(history) == 1 and checkpoints(place / "run")


def test_fit_refuses_to_go_on_with_another_optimizer(place: Path) -> None:
    splits, net = data.read("flowers.csv"), named("net.py:Flat")
    fit(net, splits, optax.adam(1e-2), "run", epochs=1, **QUIET)
    before = content(place / "run")
    with pytest.raises(RunError, match=r"is of another optimizer: \.opt_state"):
        fit(net, splits, optax.sgd(1e-2, 0.9), "run", epochs=2, resume=True, **QUIET)
    assert content(place / "run") == before


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--data photos --model net.py:Linen", "photos-Linen"),
        ("--data flowers.csv --model net:Flat", "flowers-Flat"),
        ("--data flowers.npz --model net.py:made", "flowers-made"),
        ("--data photos --model cnn", "photos-cnn"),
    ],
)
def test_command_trains_and_predict_reads_it(
    options: str, name: str, place: Path, capsys: pytest.CaptureFixture
) -> None:
    assert command(f"{options} --epochs 12 --batch-size 8 --learning-rate 1e-2") == 0
    (workdir,) = (place / "runs").iterdir()  # a folder that is named relative to this one
    assert workdir.name.startswith(name)
    capsys.readouterr()
    trained = predict.load(f"runs/{workdir.name}")
    splits = data.read(options.split()[1])
    p = np.asarray(trained.probabilities(splits.test[0]))
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    accuracy = (p.argmax(1) == splits.test[1]).mean()
    assert np.isclose(accuracy, saved_history(workdir)[-1]["test_accuracy"]) and accuracy > 0.5

    np.save("one.npy", splits.test[0][0])
    np.save("all.npy", splits.test[0])
    assert predict.main([f"runs/{workdir.name}", "one.npy", "all.npy"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.split()[1:] == lines[0].split()[1:] and len(lines) == len(p)
    for number, (line, row) in enumerate(zip(lines, p, strict=True)):
        asked, said, rest = line.split(maxsplit=2)
        assert (asked, said) == (f"all.npy:{number}", trained.classes[row.argmax()])
        shown = [float(x.split()[0]) for x in rest.strip("()").split(": ")[1:]]
        np.testing.assert_allclose(shown, row, atol=6e-4)

    assert predict.main([f"runs/{workdir.name}", "--export", "program"]) == 0
    program = jax.export.deserialize(bytearray(Path("program").read_bytes()))
    np.testing.assert_allclose(program.call(splits.test[0]), p, atol=1e-5)


def test_predict_takes_rows_by_the_names_of_columns_and_images_as_they_were_read(
    place: Path, capsys: pytest.CaptureFixture
) -> None:
    common = "--model net.py:Linen --epochs 9 --batch-size 8 --learning-rate 1e-2"
    assert command(f"--data flowers.csv {common} --workdir t") == 0
    assert command(f"--data photos {common} --workdir p") == 0
    Path("new.csv").write_text("d,c,b,a\n0,0,2,0\n0,0,0,2\n")
    capsys.readouterr()
    assert predict.main(["t", "new.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["new.csv:2", "rose"], ["new.csv:3", "iris"]]
    assert predict.main(["p", "photos/white/3.png", "photos/black/5.png"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["white", "black"]

    def refused(*arguments: str) -> str:
        assert predict.main([*arguments]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line

    Path("few.csv").write_text("a,b,c\n1,2,3\n")
    assert "has other columns than the data: a, b, c, d are needed" in refused("t", "few.csv")
    assert "learned from no images; give a .csv" in refused("t", "photos/white/3.png")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save("large.png")
    assert "is 9×9 pixels with 1 channels, 6×5 with 1 are needed" in refused("p", "large.png")
    np.save("odd.npy", np.zeros((2, 5)))
    assert "has shape [2, 5]: [4] is needed" in refused("t", "odd.npy")
    Path("net.py").rename("moved.py")
    assert "there is no file net.py seen from" in refused("t", "new.csv")


def test_predict_asks_where_the_network_of_fit_is(
    place: Path, capsys: pytest.CaptureFixture
) -> None:
    net = named("net.py:Flat")
    fit(net, data.read("flowers.csv"), optax.adam(1e-2), "run", epochs=1, **QUIET)
    assert predict.main(["run", "flowers.csv"]) == 1
    assert "say where its network is, --model FILE.py:NAME" in capsys.readouterr().err
    assert predict.main(["run", "flowers.csv", "--model", "net.py:Flat"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 90
    assert command("--workdir run --resume") == 2
    assert "is a run of training.fit: resume it in Python" in capsys.readouterr().err


def test_predict_of_integers_wants_arrays_of_their_dtype(place: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 6, 6, 1)).astype(np.uint8)
    parts = split(images, np.arange(60) % 3)
    fit(named("net.py:Linen"), parts, optax.adam(1e-2), "run", epochs=1, **QUIET)
    trained = predict.load("run", network=named("net.py:Linen"))
    Image.fromarray(images[0, :, :, 0]).save("picture.png")
    np.save("floats.npy", images[:3] / 255)
    np.save("same.npy", images[:3])
    with pytest.raises(predict.PredictError, match=r"learned from uint8; give a \.npy of it"):
        predict.read_examples(Path("picture.png"), trained)
    with pytest.raises(predict.PredictError, match=r"has float64: uint8 is needed"):
        predict.read_examples(Path("floats.npy"), trained)
    _, examples = predict.read_examples(Path("same.npy"), trained)
    np.testing.assert_array_equal(examples, images[:3])


def test_export_says_what_a_network_must_not_ask(
    place: Path, capsys: pytest.CaptureFixture
) -> None:
    (place / "net.py").write_text(NETS.replace("x.shape[0]", "len(x)"))
    assert command("--data flowers.csv --model net.py:Linen --epochs 1 --workdir run") == 0
    capsys.readouterr()
    assert predict.main(["run", "--export", "program"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "where it says len(x), write x.shape[0]" in line and not Path("program").exists()


def test_command_killed_and_resumed_has_the_same_bits(
    place: Path, capsys: pytest.CaptureFixture
) -> None:
    arguments = "--data photos --model net.py:Linen --batch-size 4"
    ran = [sys.executable, "-W", "error", "-m", "seejax.training", *arguments.split()]
    process = Process(*ran, "--epochs", 3000, "--workdir", "run", cwd=place)
    process.wait_for("epoch    3/3000")
    process.send(signal.SIGKILL)
    assert process.end()[0] == -signal.SIGKILL
    epochs = checkpoints(place / "run")[-1] // 12 + 3
    assert command(f"--workdir run --resume --epochs {epochs}") == 0
    assert capsys.readouterr().out.startswith("resumed after epoch ")
    assert command(f"{arguments} --epochs {epochs} --workdir calm") == 0
    assert parameter_bits(place / "run") == parameter_bits(place / "calm")
    saved = [without_time(saved_history(place / folder)) for folder in ("run", "calm")]
    assert saved[0] == saved[1]


def test_ctrl_c_stops_a_script_that_calls_fit(place: Path) -> None:
    script = """
        import sys
        import numpy as np, optax
        from net import Linen
        from seejax import training

        splits = training.read("flowers.npz")
        resume = "--resume" in sys.argv
        epochs = 3000 if not resume else int(sys.argv[2])
        training.fit(Linen, splits, optax.adam(1e-3), "run", epochs=epochs, resume=resume)
    """
    (place / "train.py").write_text(textwrap.dedent(script))
    process = Process(sys.executable, "train.py", cwd=place)
    process.wait_for("epoch    2/3000")
    process.send(signal.SIGINT)
    status, _, err = process.end()
    assert status == 1 and "Stopped: stopped at step" in err and "resume=True" in err
    done = len(saved_history(place / "run"))
    process = Process(sys.executable, "train.py", "--resume", done + 1, cwd=place)
    status, out, err = process.end()
    assert (status, err) == (0, "") and out.startswith("resumed after epoch ")


def test_eight_devices_train_as_one(place: Path) -> None:
    splits, mesh = data.read("flowers.csv"), training.parallel.mesh()
    arguments = {"epochs": 2, "batch_size": 16, **QUIET}
    one, _ = fit(named("net.py:made"), splits, optax.sgd(0.1), "one", **arguments)
    eight, _ = fit(named("net.py:made"), splits, optax.sgd(0.1), "eight", mesh=mesh, **arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), one.params, eight.params)


# --- what is refused


BAD_DATA = {
    "flowers.txt": ("is no .csv, no .npz and no folder", lambda p: p.touch()),
    "none.csv": ("there is no none.csv: give a .csv", lambda p: None),
    "text.csv": (
        "text.csv, line 4: 'x' in column a is no number",
        lambda p: p.write_text("a,label\n1,0\n\nx,1\n"),
    ),
    "hole.csv": ("line 2: '' in column a is no number", lambda p: p.write_text("a,label\n,0\n")),
    "nan.csv": ("line 2: 'nan' in column a", lambda p: p.write_text("a,label\nnan,0\n")),
    "labels.csv": ("has no column label", lambda p: p.write_text("a,b\n1,0\n")),
    "unnamed.csv": ("has no column label", lambda p: p.write_text("1,2\n1,0\n")),
    "blank.csv": ("line 3: the label is missing", lambda p: p.write_text("a,label\n1,0\n1,\n")),
    "ragged.csv": ("line 3: 3 cells, but 2", lambda p: p.write_text("a,label\n1,0\n1,2,3\n")),
    "empty.csv": ("has no column label", lambda p: p.touch()),
    "twice.csv": ("names a column twice", lambda p: p.write_text("a,a,label\n1,1,0\n")),
    "binary.csv": ("cannot be read as a CSV", lambda p: p.write_bytes(b"\xff\xfe\x00")),
    "short.csv": ("class 0 has 1 of the examples", lambda p: p.write_text("a,label\n1,0\n")),
    "text.npz": ("cannot be read as a .npz", lambda p: p.write_text("text")),
    "keys.npz": ("holds images: x and y are needed", lambda p: np.savez(p, images=[1])),
    "float.npz": (
        "labels of the data are float64[3]",
        lambda p: np.savez(p, x=[1] * 3, y=[0.5] * 3),
    ),
    "length.npz": ("and 2 labels", lambda p: np.savez(p, x=[[1]] * 3, y=[0, 1])),
    "minus.npz": ("the label -1: 0 is the first", lambda p: np.savez(p, x=[[1]] * 2, y=[-1, 1])),
    "words.npz": ("are <U1: numbers", lambda p: np.savez(p, x=[["a"]] * 2, y=[0, 1])),
    "inf.npz": ("an infinity or a NaN", lambda p: np.savez(p, x=[[np.inf]] * 2, y=[0, 1])),
    "nothing": ("holds 0 folders: put the images", lambda p: p.mkdir()),
    "one": ("holds 1 folders: put the images", lambda p: (p / "cat").mkdir(parents=True)),
    "hollow": (
        "is empty: put images of that class",
        lambda p: [(p / name).mkdir(parents=True) for name in ("cat", "dog")],
    ),
    "parts": (
        "is split already (test, train)",
        lambda p: [(p / name / "cat").mkdir(parents=True) for name in ("train", "test")],
    ),
    "sizes": (
        "black/00.png is 9×5 pixels, sizes/black/0.png is 6×5: scale",
        lambda p: Image.new("L", (9, 5)).save(write_images(p) / "black" / "00.png"),
    ),
    "notes": (
        "notes.txt cannot be read as an image",
        lambda p: (write_images(p) / "black" / "notes.txt").touch(),
    ),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    message, write = BAD_DATA[name]
    write(tmp_path / name)
    before = content(tmp_path)
    assert command(f"--data {name} --workdir run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and content(tmp_path) == before and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--model net.py:Nothing", "net.py has no Nothing; it has Linen, Flat, Negative"),
        ("--model none.py:Net", "there is no file none.py seen from"),
        ("--model none:Net", "none cannot be run (ModuleNotFoundError: No module named 'none')"),
        ("--model wrong.py:Net", "wrong.py cannot be run (ZeroDivisionError: division by zero, "),
        ("--model net.py:", "write the file and the name in it, as in net.py:Net"),
        ("--model net.py:nn", "flax.linen cannot be made (TypeError: "),
        (
            "--model net.py:NoAxis",
            "NoAxis makes [2] of examples float32[2, 4]: it has to be",
        ),
        ("--model net.py:Two", "makes [2, 2] of examples float32[2, 4]: it has to be [2, 3]"),
        ("--model net.py:Broken", "net.py:Broken fails on examples float32[2, 4] (AttributeError"),
        ("--model net.py:Backwards", "Backwards.__call__ takes train: its default has to be False"),
        ("--model net.py:Linen --bf16", "bf16 is for the book's own networks"),
        ("--model linen", "image_shape is (height, width, channels), got (4,)"),
        ("--model net.py:Linen --dataset mnist", "dataset and data are both given"),
        ("--model net.py:Linen --batch-size 73", "there are 72 examples to train on"),
    ],
)
def test_bad_network_is_one_sentence(
    arguments: str, message: str, place: Path, capsys: pytest.CaptureFixture
) -> None:
    (place / "wrong.py").write_text("1 / 0\n")
    assert command(f"--data flowers.csv --workdir run {arguments}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and not (place / "run").exists()


def test_resume_refuses_other_data_and_another_network(
    place: Path, capsys: pytest.CaptureFixture
) -> None:
    common = "--workdir run --epochs 2 --batch-size 16"
    assert command(f"--data flowers.csv --model net.py:Negative {common}") == 0
    capsys.readouterr()
    before = content(place / "run")

    def refused(arguments: str) -> str:
        assert command(f"{common} --resume {arguments}") == 2
        assert content(place / "run") == before
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "is net.py:Negative there, net.py:made here" in refused("--model net.py:made")
    assert "example is [4] there, [5, 6, 1] here" in refused("--data photos")
    table = place / "flowers.csv"
    text = table.read_text()
    table.write_text(text.replace("0", "1", 1))
    assert "run was trained on other data than this" in refused("")
    table.write_text("\n".join(text.splitlines()[:1] + text.splitlines()[:0:-1]) + "\n")
    assert "other data than this (examples, labels or their order)" in refused("")
    table.unlink()
    assert "there is no flowers.csv" in refused("")
    (place / "moved").mkdir()
    (place / "moved" / "flowers.csv").write_text(text)
    net = (place / "net.py").read_text()
    (place / "net.py").write_text(net.replace("-nn.Dense", "nn.Dense"))
    assert "net.py:Negative does not compute what it did: with the parameters in" in refused(
        "--data moved/flowers.csv"
    )
    (place / "net.py").write_text(net)
    assert command(f"{common} --resume --data moved/flowers.csv --epochs 3") == 0
    assert len(saved_history(place / "run")) == 3
    assert json.loads((place / "run" / "config.json").read_text())["data"] == "moved/flowers.csv"


def test_fit_refuses_what_does_not_fit(tmp_path: Path) -> None:
    x, y = flowers()
    parts = split(x, y)
    tx = optax.sgd(0.1)

    def refused(network: object, splits: object, message: str, **options: object) -> None:
        with pytest.raises(RunError, match=message):
            fit(network, splits, tx, tmp_path / "run", **{"epochs": 1, **QUIET, **options})
        assert not (tmp_path / "run").exists()

    refused(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), parts, "is made already: give the class")
    refused(nn.Dense(3), parts, "epochs 0: at least 1", epochs=0)
    refused(nn.Dense(3), parts, "seed -1", seed=-1)
    refused(nn.Dense(3), parts, "settings: .*not JSON serializable", settings={"tx": tx})
    refused(nn.Dense(3), (parts[0], parts[1], (x[:, :2], y)), "test has examples .*make them alike")
    refused(nn.Dense(3), (parts[0], parts[1], (x, y[1:])), "test has examples of shape")
    refused(nn.Dense(3), (parts[0], parts[1], (x, y * 1.0)), "one integer for each example")
    refused(3, parts, "int cannot be made")

    for ones in jnp.ones, np.ones:

        class Scaled(nnx.Module):
            def __init__(self, *, rngs, ones=ones):
                self.output, self.scale = nnx.Linear(4, 3, rngs=rngs), ones(4)

            def __call__(self, x):
                return self.output(x * self.scale)

        refused(Scaled, parts, "Scaled keeps scale, neither nnx.Param nor nnx.BatchStat")


def test_a_script_may_write_settings_that_resume_compares(tmp_path: Path) -> None:
    x, y = flowers()
    arguments = {"epochs": 1, **QUIET}
    fit(nn.Dense(3), split(x, y), optax.sgd(0.1), tmp_path, settings={"width": 3}, **arguments)
    with pytest.raises(Refused, match="width is 3 there, 4 here"):
        again = {"settings": {"width": 4}, "resume": True, **arguments}
        fit(nn.Dense(3), split(x, y), optax.sgd(0.1), tmp_path, **again)


def test_wrapped_network_learns_as_it_should() -> None:
    """BatchNorm's statistics and Dropout's masks, of both libraries."""
    linen = {}
    exec(NETS, linen)
    x = jnp.asarray(flowers()[0][:, :4])
    for name in ("Linen", "Flat"):
        network = wrapped(linen[name])
        variables = network.init(jax.random.key(0), x)
        once, changed = network.apply_train(variables, x, jax.random.key(1))
        again, _ = network.apply_train(variables, x, jax.random.key(2))
        assert (name == "Linen") == bool(jnp.any(once != again))
        assert (name == "Flat") == ("batch_stats" in changed)
        np.testing.assert_array_equal(network.apply(variables, x), network.apply(variables, x))


def test_splits_may_be_three_pairs(tmp_path: Path) -> None:
    x, y = flowers()
    parts = [(x[i::3], y[i::3] * 0 + np.arange(30) % 2) for i in range(3)]
    _, history = fit(nn.Dense(2), parts, optax.sgd(0.1), tmp_path, epochs=1, batch_size=9, **QUIET)
    assert len(history) == 1 and isinstance(Splits(*parts), Splits)
