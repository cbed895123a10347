"""The data sets: what is in them, and what happens when preparing them goes wrong."""

import gzip
import hashlib
import shutil
import signal
import sys

import jax
import numpy as np
import pytest
import tensorflow_datasets as tfds
from sklearn.datasets import load_digits

from processes import Process
from seejax.training import digits


def digest(*splits: digits.Split) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for s in splits for array in s)).hexdigest()


LOAD = """
import hashlib, sys
from seejax.training import digits
arrays = [array for split in digits.SPLITS for array in digits.load("digits", split, sys.argv[1])]
assert "tensorflow" not in sys.modules
print(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
"""


def start(code: str, *args: object) -> Process:
    return Process(sys.executable, "-W", "error", "-c", code, *args)


def test_digits_are_those_of_scikit_learn_each_once(data_dir):
    splits = [digits.load("digits", split, data_dir) for split in digits.SPLITS]
    assert [len(split.labels) for split in splits] == [1293, 144, 360]
    levels, labels = load_digits(return_X_y=True)
    assert set(np.unique(levels)) == set(range(17))
    ours = [(int(y), tuple(x.ravel())) for s in splits for x, y in zip(*s, strict=True)]
    theirs = [
        (int(y), tuple((x * 255 / 16).round().astype(int)))
        for x, y in zip(levels, labels, strict=True)
    ]
    assert sorted(ours) == sorted(theirs)


@pytest.mark.parametrize(("split", "share"), [("test", 1 / 5), ("validation", 4 / 50)])
def test_every_class_and_every_part_of_the_file_is_in_each_split(split, share, data_dir):
    chosen = digits.load("digits", split, data_dir)
    levels, labels = load_digits(return_X_y=True)
    shares = np.bincount(chosen.labels) / np.bincount(labels)
    assert np.all(np.abs(shares - share) < 1 / 170)
    known = {tuple((x * 255 / 16).round().astype(int)): i for i, x in enumerate(levels)}
    places = np.array([known[tuple(x.ravel())] for x in chosen.images])
    eighths, _ = np.histogram(places, bins=8, range=(0, 1797))  # the file is ordered by writer
    expected = len(places) / 8
    assert np.all(np.abs(eighths - expected) <= 3 * np.sqrt(expected))


def test_the_test_split_is_the_file_and_the_other_two_share_theirs(data_dir):
    builder = tfds.builder_from_directory(data_dir / "digits" / "1.0.0")
    for stored, splits in (("test", ["test"]), ("train", ["train", "validation"])):
        records = list(builder.as_data_source(stored))
        images = [record["image"].tobytes() for record in records]
        taken = []
        for split in splits:
            ours = digits.load("digits", split, data_dir)
            places = [images.index(image.tobytes()) for image in ours.images]
            assert places == sorted(places)  # in the order of the file
            assert [records[i]["label"] for i in places] == ours.labels.tolist()
            taken += places
        assert sorted(taken) == list(range(len(records)))


@pytest.mark.parametrize("split", digits.SPLITS)
def test_what_is_read_one_by_one_is_what_is_loaded(split, data_dir):
    records, numbers = digits.source("digits", split, data_dir)
    loaded = digits.load("digits", split, data_dir)
    assert len(numbers) == len(loaded.labels)
    for i in (0, 7, -1):
        record = records[numbers[i]]
        assert np.array_equal(record["image"], loaded.images[i])
        assert record["label"] == loaded.labels[i]


def test_features_are_declared_as_tfds_declares_them(data_dir):
    digits.load("digits", "train", data_dir)
    builder = tfds.builder_from_directory(data_dir / "digits" / "1.0.0")  # no code of ours
    assert builder.info.features["image"].shape == (8, 8, 1)
    assert builder.info.splits["train"].num_examples == 1437
    first = builder.as_data_source("train")[0]
    assert (
        first["image"].shape == digits.IMAGE_SHAPES["digits"] and first["image"].dtype == np.uint8
    )
    assert first["label"] in range(10)


def test_four_processes_prepare_at_the_same_time(data_dir, tmp_path):
    running = [start(LOAD, tmp_path) for _ in range(4)]
    outcomes = [process.end() for process in running]
    expected = digest(*(digits.load("digits", split, data_dir) for split in digits.SPLITS))
    assert outcomes == [(0, expected + "\n", "")] * 4
    assert [path.name for path in (tmp_path / "digits").iterdir()] == ["1.0.0"]


def test_preparing_was_killed_midway(data_dir, tmp_path):
    killed = start(
        """
import os, signal, sys
from seejax.training import digits
png, count = digits._png, 0
def last(image):
    global count
    count += 1
    if count == 1700:                   # train is written, test is not
        os.kill(os.getpid(), signal.SIGKILL)
    return png(image)
digits._png = last
digits.load("digits", "train", sys.argv[1])
""",
        tmp_path,
    )
    assert killed.end()[0] == -signal.SIGKILL
    left = [path.name for path in (tmp_path / "digits").iterdir()]
    assert len(left) == 1 and left[0].startswith("incomplete.")
    outcome = start(LOAD, tmp_path).end()
    expected = digest(*(digits.load("digits", split, data_dir) for split in digits.SPLITS))
    assert outcome == (0, expected + "\n", "")


def test_damaged_files_are_told_with_their_folder(data_dir, tmp_path):
    digits.load("digits", "train", data_dir)
    shutil.copytree(data_dir / "digits", tmp_path / "digits")
    (file,) = tmp_path.rglob("*train*")
    file.write_bytes(file.read_bytes()[:-5000])
    with pytest.raises(digits.DataError, match=r"digits/1\.0\.0 cannot be read .* delete that"):
        digits.load("digits", "train", tmp_path)


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(digits.DataError, match=r"cannot write digits to .*TFDS_DATA_DIR"):
        digits.load("digits", "train", tmp_path / "file")


@pytest.mark.parametrize("arguments", [("cats",), ("digits", "all"), ("",)])
def test_unknown_names_list_the_known(arguments):
    with pytest.raises(ValueError, match="choose from"):
        digits.load(*arguments)


# --- MNIST: the code path of TFDS' own builder, served by this very process


@pytest.fixture
def mnist_server(tmp_path, monkeypatch, serve) -> dict[str, np.ndarray]:
    """Small files in MNIST's own format at a URL of this machine; gives what is in them."""
    rng = np.random.default_rng(0)
    content, folder = {}, tmp_path / "served"
    folder.mkdir()
    for prefix, n in (("train", 40), ("t10k", 15)):
        for kind, array in (
            ("images-idx3-ubyte", rng.integers(0, 256, (n, 28, 28), np.uint8)),
            ("labels-idx1-ubyte", rng.integers(0, 10, n, np.uint8)),
        ):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
            (folder / f"{prefix}-{kind}.gz").write_bytes(gzip.compress(header + array.tobytes()))
            content[f"{prefix}-{kind}"] = array
    monkeypatch.setattr(digits.MNIST, "URL", f"{serve(folder)}/")
    return content


def by_bytes(images: np.ndarray, labels: np.ndarray) -> list:
    return sorted((x.tobytes(), int(y)) for x, y in zip(images, labels, strict=True))


def test_mnist_is_downloaded_prepared_and_read(mnist_server, tmp_path, capfd):
    for split, prefix in (("train", "train"), ("test", "t10k")):
        parts = ("train", "validation") if split == "train" else ("test",)
        found = []
        for part in parts:
            images, labels = digits.load("mnist", part, tmp_path / "data")
            assert images.shape[1:] == digits.IMAGE_SHAPES["mnist"] and images.dtype == np.uint8
            found += by_bytes(images, labels)
        assert sorted(found) == by_bytes(
            mnist_server[f"{prefix}-images-idx3-ubyte"], mnist_server[f"{prefix}-labels-idx1-ubyte"]
        )
    assert "tensorflow" not in sys.modules
    assert capfd.readouterr() == ("", "")


def test_mnist_needs_the_network_once(mnist_server, tmp_path, monkeypatch):
    before = digits.load("mnist", "test", tmp_path / "data")
    monkeypatch.setattr(digits.MNIST, "URL", "http://127.0.0.1:9/")
    assert digest(digits.load("mnist", "test", tmp_path / "data")) == digest(before)


def test_mnist_of_other_bytes_is_refused(mnist_server, tmp_path, monkeypatch):
    urls = [digits.MNIST.URL + f"{name}.gz" for name in mnist_server]
    info = tfds.download.checksums.UrlInfo(size=1, checksum="0" * 64, filename="x")
    monkeypatch.setattr(digits.MNIST, "url_infos", dict.fromkeys(urls, info))
    with pytest.raises(digits.DataError, match="checksum"):
        digits.load("mnist", "train", tmp_path / "data")
    assert not list((tmp_path / "data").rglob("*.array_record*"))


def test_checksums_are_those_of_the_real_mnist():
    assert len(digits.MNIST.url_infos) == 4
    assert all(url.startswith(digits.MNIST.URL) for url in digits.MNIST.url_infos)


def test_mnist_without_a_network_says_what_to_do(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(digits.MNIST, "URL", "http://127.0.0.1:9/")  # nobody listens there
    with pytest.raises(digits.DataError) as caught:
        digits.load("mnist", "train", tmp_path)
    for advice in (
        "from seejax.training.digits import load; load('mnist')",
        "~/tensorflow_datasets/mnist",
        str(tmp_path),
        "'digits'",
    ):
        assert advice in str(caught.value)
    assert capfd.readouterr() == ("", "")


# --- the order of an epoch


@pytest.mark.parametrize(("n", "batch_size"), [(10, 3), (12, 4), (5, 5), (1, 1), (1437, 32)])
def test_an_epoch_takes_each_example_at_most_once(n, batch_size):
    order = digits.epoch_order(jax.random.key(1), n, batch_size)
    assert order.shape == (n // batch_size, batch_size) and order.dtype == np.int32
    taken = np.sort(np.asarray(order).ravel())
    assert len(np.unique(taken)) == taken.size and taken.min() >= 0 and taken.max() < n


def test_the_order_is_its_keys():
    keys = jax.random.split(jax.random.key(0), 400)
    first, again, other = (digits.epoch_order(key, 50, 10) for key in (keys[0], keys[0], keys[1]))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    orders = np.stack([digits.epoch_order(key, 7, 3).ravel() for key in keys])
    left_out = np.bincount(
        np.setdiff1d(np.arange(7 * 400), orders + 7 * np.arange(400)[:, None]) % 7
    )
    # each of 7 is left out 400/7 = 57 times, give or take 7; five of these are room enough
    assert np.all(np.abs(left_out - 400 / 7) < 35)


@pytest.mark.parametrize("batch_size", [0, -1, 11])
def test_a_batch_that_does_not_fit(batch_size):
    with pytest.raises(ValueError, match="does not fit 10 examples"):
        digits.epoch_order(jax.random.key(0), 10, batch_size)
