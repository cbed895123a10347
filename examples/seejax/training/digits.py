"""Handwritten digits as arrays, through TensorFlow Datasets without TensorFlow.

    train, validation, test = (load("digits", split) for split in SPLITS)
    order = epoch_order(jax.random.fold_in(key, epoch), len(train.labels), batch_size=32)
    images, labels = train.images[order[0]], train.labels[order[0]]

`digits` is prepared from a file inside scikit-learn, so nothing is downloaded. `mnist` is what TFDS
calls MNIST, downloaded once. Both are kept as ArrayRecord files where TFDS keeps its data:
`data_dir`, else the environment's `TFDS_DATA_DIR`, else `~/tensorflow_datasets`.

What is chosen while looking at a score, such as the best epoch, is chosen by `validation`: a tenth
of each class of what the files call train. `test` is for the end.
"""

import contextlib
import functools
import gzip
import io
import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow_datasets as tfds
from PIL import Image
from tensorflow_datasets.image_classification import mnist

SPLITS = ("train", "validation", "test")
PATIENCE_S = 10


class DataError(RuntimeError):
    """The data cannot be had; the message says what to do."""


class Split(NamedTuple):
    """Examples on the host: images uint8 (n, height, width, 1), labels int32 (n,)."""

    images: np.ndarray
    labels: np.ndarray


def _png(image: np.ndarray) -> io.BytesIO:
    """TFDS would ask TensorFlow to encode an array; the bytes of a PNG it takes as they are."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    file.seek(0)
    return file


class Digits(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """1,797 handwritten digits, 8×8, from the file that comes with scikit-learn.

    That file is ordered by writer, 13 in all. Its last fifth would be a test on writers never seen,
    a harder task than this one. Here the images are sorted by class, those of a class stay in the
    file's order, and every fifth is for the test: all writers are in both splits, the classes in
    equal shares, and no random generator decides. 1,437 images to train, 360 to test.

    Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """

    name = "digits"
    url_infos = None  # nothing is downloaded
    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="8x8 handwritten digits of scikit-learn, 16 grey levels spread to 0..255.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        from sklearn.datasets import load_digits  # two seconds, and needed only this once

        levels, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
        images = np.rint(levels.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
        by_class = np.argsort(labels, kind="stable")
        chosen = {"train": np.delete(by_class, np.s_[::5]), "test": by_class[::5]}
        return {
            split: self._generate_examples(images, labels, numbers)
            for split, numbers in chosen.items()
        }

    def _generate_examples(self, images: np.ndarray, labels: np.ndarray, numbers: np.ndarray):
        for number in numbers.tolist():
            yield number, {"image": _png(images[number]), "label": int(labels[number])}


class MNIST(mnist.MNIST, skip_registration=True):
    """TFDS' own MNIST, and the two steps for which it needs TensorFlow, gunzip and PNG, without."""

    # What TFDS computes for this attribute imports importlib_resources, which it does not require.
    url_infos = tfds.download.checksums.load_url_infos(
        tfds.core.tfds_path("url_checksums/mnist.txt")
    )

    # The list that TFDS' own MNIST returns is the old form; the class of all builders wants a dict.
    # pyrefly: ignore[bad-override]
    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict:
        files = {"train": "train", "test": "t10k"}
        kinds = ("images-idx3-ubyte.gz", "labels-idx1-ubyte.gz")
        urls = {
            split: [urllib.parse.urljoin(self.URL, f"{prefix}-{kind}") for kind in kinds]
            for split, prefix in files.items()
        }
        with contextlib.closing(_open(urls["train"][0])):  # TFDS itself gives up after minutes
            pass
        # The checker takes the overload for a single URL: TFDS imports Resource late.
        paths: dict[str, list[PathLike]] = dl_manager.download(urls)  # pyrefly: ignore[bad-assignment]
        return {split: self._numbered(*paths[split]) for split in files}

    def _numbered(self, image_file: PathLike, label_file: PathLike):
        images, labels = _idx(image_file), _idx(label_file)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield number, {"image": _png(image), "label": int(label)}


BUILDERS = {"digits": Digits, "mnist": MNIST}
IMAGE_SHAPES = {"digits": (8, 8, 1), "mnist": (28, 28, 1)}
DATASETS = tuple(BUILDERS)


def _open(url: str):
    request = urllib.request.Request(url, method="HEAD")
    return urllib.request.urlopen(request, timeout=PATIENCE_S)


def _idx(file: PathLike) -> np.ndarray:
    """Read MNIST's format: two zeros, the dtype (8 is uint8), the rank, the shape, the data."""
    content = gzip.decompress(Path(file).read_bytes())
    rank = content[3]
    shape = np.frombuffer(content, ">u4", rank, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape.tolist())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """TFDS tells stdout, stderr and two loggers what it does; what matters comes as an error."""
    loggers = [logging.getLogger(name) for name in ("absl", "urllib3")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        tfds.enable_progress_bar()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _prepared(name: str, data_dir: str | PathLike | None) -> tfds.core.DatasetBuilder:
    """A builder whose files are on the disk, complete.

    TFDS writes into a folder of a random name and renames it when all is written: a process that
    was killed leaves nothing that could be taken for data, and of two at the same time one wins.
    """
    builder = BUILDERS[name](data_dir=data_dir)
    if builder.is_prepared():
        return builder
    try:
        builder.download_and_prepare(file_format="array_record")
    except Exception as error:
        home = builder.data_path.parent.parent
        winner = BUILDERS[name](data_dir=data_dir)
        if winner.is_prepared():
            return winner
        network = isinstance(error, urllib.error.URLError | ConnectionError | TimeoutError)
        if isinstance(error, OSError) and error.errno and not network:
            raise DataError(
                f"cannot write {name} to {builder.data_dir} ({error.strerror}): "
                "choose another place with TFDS_DATA_DIR or data_dir"
            ) from error
        if name == "digits":
            raise
        raise DataError(
            f"{name} is not in {builder.data_dir} and cannot be downloaded ({error}). "
            "On a machine with a network run\n"
            f"    python -c \"from {__name__} import load; load('{name}')\"\n"
            f"and copy ~/tensorflow_datasets/{name} from there into {home} here; "
            "or use the data set 'digits', which needs no network."
        ) from error
    return BUILDERS[name](data_dir=data_dir)  # it knows the splits, whoever wrote them


@contextlib.contextmanager
def _stored(name: str, split: str, data_dir: str | PathLike | None) -> Iterator[Callable[..., Any]]:
    """What reads the records of the files in which a split lies: those of train or of test."""
    if name not in DATASETS:
        raise ValueError(f"dataset {name!r}: choose from {', '.join(DATASETS)}")
    if split not in SPLITS:
        raise ValueError(f"split {split!r}: choose from {', '.join(SPLITS)}")
    with _quiet():
        builder = _prepared(name, data_dir)
        try:
            yield functools.partial(builder.as_data_source, "test" if split == "test" else "train")
        except Exception as error:
            raise DataError(
                f"the files in {builder.data_dir} cannot be read as ArrayRecord "
                f"({type(error).__name__}): delete that folder, and they are prepared again"
            ) from error


def _chosen(split: str, labels: np.ndarray) -> np.ndarray:
    """The numbers of a split's examples in its files; validation is every tenth of each class."""
    by_class = np.argsort(labels, kind="stable")
    chosen = {
        "train": np.delete(by_class, np.s_[::10]),
        "validation": by_class[::10],
        "test": by_class,
    }
    return np.sort(chosen[split])


def load(
    name: str = "digits", split: str = "train", data_dir: str | PathLike | None = None
) -> Split:
    """Load a split as NumPy arrays, after preparing the data set if need be.

    Args:
      name: `digits` (1,293 + 144 + 360 images, 8×8) or `mnist` (54,000 + 6,000 + 10,000, 28×28).
      split: `train`, `validation` or `test`.
      data_dir: where TFDS keeps data sets; see the module.
    Returns:
      `Split`: images uint8 (n, height, width, 1), 0 is background; labels int32 (n,).
      The order is fixed, and shuffled by TFDS when it wrote the files.
    Raises:
      ValueError: another name or split.
      DataError: no network for a first `mnist`, no place to write, or files that are damaged.

    >>> images, labels = load("digits", "test")
    >>> images.shape, images.dtype, labels.shape, labels.dtype
    ((360, 8, 8, 1), dtype('uint8'), (360,), dtype('int32'))
    """
    with _stored(name, split, data_dir) as read:
        source = read()
        records = source.__getitems__(range(len(source)))
        images = np.stack([record["image"] for record in records])
        labels = np.array([record["label"] for record in records], np.int32)
    numbers = _chosen(split, labels)
    return Split(images[numbers], labels[numbers])


def source(
    name: str = "digits", split: str = "train", data_dir: str | PathLike | None = None
) -> tuple[Sequence[dict[str, Any]], np.ndarray]:
    """The same for data that do not fit into memory: an image is read when it is asked for.

    Returns:
      A sequence of records, dicts of `image` and `label`, in which there may be those of another
      split; the numbers of the records of this one, int (n,), as `load` orders them.

    >>> records, numbers = source("digits", "validation")
    >>> len(numbers), records[numbers[-1]]["image"].shape
    (144, (8, 8, 1))
    """
    with _stored(name, split, data_dir) as read:
        undecoded = read(decoders={"image": tfds.decode.SkipDecoding()})
        records = undecoded.__getitems__(range(len(undecoded)))
        return read(), _chosen(split, np.array([record["label"] for record in records]))


def epoch_order(key: jax.Array, n: int, batch_size: int) -> jax.Array:
    """The examples of one epoch by number, in batches: each at most once, the order from the key.

    What does not fill a batch is left out; with another key it is another few.

    Args:
      key: a PRNG key, one for each epoch: `jax.random.fold_in(key, epoch)` has no state to save.
      n: number of examples.
      batch_size: examples in a batch, at most n.
    Returns:
      int32 (n // batch_size, batch_size).
    Raises:
      ValueError: batch_size is not in 1..n.

    >>> epoch_order(jax.random.key(0), n=7, batch_size=3).shape
    (2, 3)
    """
    if not 1 <= batch_size <= n:
        raise ValueError(f"batch_size {batch_size} does not fit {n} examples")
    order = jax.random.permutation(key, jnp.arange(n, dtype=jnp.int32))
    return order[: n - n % batch_size].reshape(-1, batch_size)
