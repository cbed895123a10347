"""A reader's own data as arrays: a table, a file of NumPy, a folder of images.

    table.csv     a line with the names of the columns, one of them `label`; all others are numbers
    arrays.npz    `x` and `y`; or `x_train`, `y_train`, `x_test`, `y_test`, and perhaps
                  `x_validation`, `y_validation`; y holds the integers 0, 1, 2 ...
    photos/       a folder for each class: photos/cat/1.png; all images of one size

Of each class a tenth becomes `validation` and a tenth `test`, chosen by the seed, unless the file
says itself which examples are for what. All of it is held in memory.
"""

import csv
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from seejax.training.folder import Refused

LABEL = "label"
PARTS = ("train", "validation", "test")


class Splits(NamedTuple):
    """What is trained on, what chooses, and what is kept for the end.

    Each is a pair: examples (n, ...), of the same shape and dtype in all three, and the labels,
    integers (n,), 0 for the first class.
    """

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    classes: Sequence[str] = ()
    """The names of the classes; the labels as they are if there are none."""
    columns: Sequence[str] = ()
    """The names of the features, if it is a table."""


def split(
    examples: np.ndarray,
    labels: np.ndarray,
    seed: int = 0,
    *,
    classes: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Splits:
    """Set a tenth of each class aside for validation, and a tenth for the test.

    Args:
      examples: (n, ...); labels: integers (n,).
      seed: it chooses which, together with the order of the examples; 0 to 2**32 - 1.
      classes, columns: names, as in `Splits`.
    Returns:
      `Splits`; of a class with fewer than twenty examples one goes to each of the two.
    Raises:
      Refused: a class has fewer than three examples, or the arrays do not fit each other.

    >>> parts = split(np.zeros((60, 4), np.float32), np.arange(60) % 3)
    >>> [len(labels) for _, labels in (parts.train, parts.validation, parts.test)]
    [48, 6, 6]
    """
    examples, labels = np.asarray(examples), np.asarray(labels)
    _check(examples, labels, "the data")
    parts = _chosen(labels, seed, PARTS, classes)
    train, validation, test = ((examples[each], labels[each]) for each in parts)
    return Splits(train, validation, test, classes, columns)


def _chosen(
    labels: np.ndarray, seed: int, parts: Sequence[str], classes: Sequence[str] = ()
) -> list[np.ndarray]:
    """The numbers of the examples in each part: a tenth of each class in all but the first."""
    order = np.random.RandomState(seed)  # NumPy has promised never to change what it draws
    chosen = []
    for label in np.unique(labels):
        few = order.permutation(np.flatnonzero(labels == label))
        if len(few) < len(parts):
            raise Refused(
                f"class {classes[label] if classes else label} has {len(few)} of the examples, "
                f"{len(parts)} are the least: one each for {', '.join(parts)}"
            )
        tenth = max(1, len(few) // 10)
        ends = [len(few) - tenth * left for left in range(len(parts) - 1, 0, -1)]
        chosen.append(np.split(few, ends))
    return [np.sort(np.concatenate(part)) for part in zip(*chosen, strict=True)]


def read(path: str | os.PathLike, seed: int = 0) -> Splits:
    """Read a table, a file of arrays or a folder of images; the module says how they look.

    Args:
      path: a .csv, a .npz, or a folder.
      seed: which examples are set aside; see `split`.
    Returns:
      `Splits`. Features of a table and pixels are float32, pixels between 0 and 1, (height, width,
      1) if all images are grey, else (height, width, 3); arrays are as they are in their file.
    Raises:
      Refused: it is not as the module says. The sentence says where, and what to do.
    """
    path = Path(path)
    if path.is_dir():
        return _images(path, seed)
    if not path.exists():
        raise Refused(f"there is no {path}: give a .csv, a .npz, or a folder of images by class")
    readers = {".csv": _table, ".npz": _arrays}
    if path.suffix.lower() not in readers:
        raise Refused(f"{path} is no .csv, no .npz and no folder of images by class")
    return readers[path.suffix.lower()](path, seed)


def check(splits: Splits) -> None:
    """Raise Refused unless all three parts fit each other."""
    first = np.asarray(splits[0][0])
    for part, (examples, labels) in zip(PARTS, splits, strict=False):
        examples, labels = np.asarray(examples), np.asarray(labels)
        _check(examples, labels, part)
        if examples.shape[1:] != first.shape[1:] or examples.dtype != first.dtype:
            raise Refused(
                f"{part} has examples {examples.dtype}{list(examples.shape[1:])}, train has "
                f"{first.dtype}{list(first.shape[1:])}: make them alike"
            )


def _check(examples: np.ndarray, labels: np.ndarray, name: str) -> None:
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise Refused(
            f"the labels of {name} are {labels.dtype}{list(labels.shape)}: one integer for each "
            "example is needed, 0 for the first class"
        )
    if not len(labels) or examples.shape[:1] != labels.shape:
        raise Refused(
            f"{name} has examples of shape {list(examples.shape)} and {len(labels)} labels: "
            "as many of one as of the other are needed, and one at least"
        )
    if labels.min() < 0:
        raise Refused(f"{name} has the label {labels.min()}: 0 is the first class")
    if not (np.issubdtype(examples.dtype, np.number) or examples.dtype == bool):
        raise Refused(f"the examples of {name} are {examples.dtype}: numbers are needed")
    if not np.isfinite(examples).all():
        raise Refused(f"{name} has an infinity or a NaN among its examples: remove it")


def class_names(splits: Splits) -> list[str]:
    """The names of the classes; without any, "0", "1", ...

    >>> pair = np.zeros((2, 3)), np.array([0, 1])
    >>> class_names(Splits(pair, pair, pair))
    ['0', '1']
    """
    count = 1 + max(int(np.max(labels)) for _, labels in splits[:3])
    names = [str(name) for name in getattr(splits, "classes", ())]
    return names + [str(label) for label in range(len(names), count)]


def fingerprint(splits: Splits) -> str:
    """SHA-256 of every example and label, in their order.

    >>> pair = np.zeros((2, 3)), np.array([0, 1])
    >>> fingerprint(Splits(pair, pair, pair))[:8]
    '0bc39230'
    """
    sha = hashlib.sha256()
    for array in (np.asarray(array) for pair in splits[:3] for array in pair):
        sha.update(f"{array.dtype} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array))
    return sha.hexdigest()


# --- a table


def rows(path: Path) -> tuple[list[str], dict[int, list[str]]]:
    """The names in the first line of a CSV, and the cells of each line below it, by its number.

    Raises:
      Refused: it is no such file.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            names = [name.strip() for name in next(reader, [])]
            lines = {number: line for line in reader if line and (number := reader.line_num)}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Refused(f"{path} cannot be read as a CSV in UTF-8 ({error})") from error
    if len({*names}) < len(names):
        raise Refused(f"{path} names a column twice: {', '.join(names)}")
    for number, line in lines.items():
        if len(line) != len(names):
            raise Refused(
                f"{path}, line {number}: {len(line)} cells, but {len(names)} columns have names"
            )
    return names, lines


def numbers(path: Path, names: Sequence[str], lines: dict[int, list[str]]) -> np.ndarray:
    """The cells of a CSV, by the numbers of their lines, as float32 (lines, columns).

    Raises:
      Refused: one is no finite number.
    """
    found = np.empty((len(lines), len(names)), np.float32)
    for row, (number, line) in enumerate(lines.items()):
        for column, cell in enumerate(line):
            try:
                found[row, column] = float(cell)
            except ValueError:
                found[row, column] = np.nan
            if not np.isfinite(found[row, column]):
                raise Refused(
                    f"{path}, line {number}: {cell!r} in column {names[column]} is no number: "
                    "write one, or leave that line or column out"
                )
    return found


def _table(path: Path, seed: int) -> Splits:
    names, lines = rows(path)
    if LABEL not in names:
        raise Refused(
            f"{path} has no column {LABEL}: its first line names the columns, and the one with the "
            f"classes is called {LABEL}"
        )
    if not lines or len(names) < 2:
        raise Refused(f"{path} needs a column besides {LABEL}, and rows below the first line")
    at = names.index(LABEL)
    each = {number: line.pop(at).strip() for number, line in lines.items()}
    for number, name in each.items():
        if not name:
            raise Refused(f"{path}, line {number}: the label is missing")
    try:
        classes = sorted({*each.values()}, key=float)  # 9 before 10
    except ValueError:
        classes = sorted({*each.values()})
    label = {name: number for number, name in enumerate(classes)}
    labels = np.array([label[name] for name in each.values()], np.int32)
    columns = names[:at] + names[at + 1 :]
    return split(numbers(path, columns, lines), labels, seed, classes=classes, columns=columns)


# --- arrays


def _arrays(path: Path, seed: int) -> Splits:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except Exception as error:  # NumPy raises whatever the broken file led to
        raise Refused(f"{path} cannot be read as a .npz of arrays ({error})") from error

    def pair(end: str) -> tuple[np.ndarray, np.ndarray]:
        return found["x" + end], found["y" + end]

    for ends in ((), ("_train", "_test"), ("_train", "_validation", "_test")):
        if {*found} == {x + end for x in "xy" for end in ends or ("",)}:
            break
    else:
        raise Refused(
            f"{path} holds {', '.join(found) or 'nothing'}: x and y are needed, or x_train, "
            "y_train, x_test and y_test, and perhaps x_validation and y_validation"
        )
    if not ends:
        return split(*pair(""), seed)
    if len(ends) == 3:
        train, validation, test = map(pair, ends)
        splits = Splits(train, validation, test)
    else:
        examples, labels = pair("_train")
        _check(examples, labels, "train")
        train, validation = (
            (examples[each], labels[each]) for each in _chosen(labels, seed, PARTS[:2])
        )
        splits = Splits(train, validation, pair("_test"))
    check(splits)
    return splits


# --- images


def pixels(path: Path) -> np.ndarray:
    """An image as float32 between 0 and 1: (height, width, 1) if it is grey, else (..., 3).

    Raises:
      Refused: it is no image of 8 bits a channel.
    """
    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Refused(f"{path} cannot be read as an image ({error})") from error
    if image.mode.startswith(("I", "F")):
        raise Refused(f"{path} is {image.mode}: 8 bits a channel are needed")
    grey = image.mode in ("1", "L", "LA")
    found = np.asarray(image.convert("L" if grey else "RGB"))
    return found.reshape(*found.shape[:2], -1).astype(np.float32) / 255


def _images(path: Path, seed: int) -> Splits:
    inside = [entry for entry in sorted(path.iterdir()) if not entry.name.startswith(".")]
    classes = [entry.name for entry in inside if entry.is_dir()]
    if len(classes) < 2:
        raise Refused(
            f"{path} holds {len(classes)} folders: put the images of each class into a folder of "
            f"its own, such as {path / 'cat' / '1.png'}"
        )
    if "train" in classes and {*classes} <= {*PARTS, "val", "valid"}:
        raise Refused(
            f"{path} is split already ({', '.join(classes)}), which only a .npz can say: give the "
            "folder that holds the classes"
        )
    files, labels = [], []
    for label, name in enumerate(classes):
        own = sorted(file for file in (path / name).iterdir() if not file.name.startswith("."))
        if not own:
            raise Refused(f"{path / name} is empty: put images of that class into it")
        files += own
        labels += [label] * len(own)
    images = [pixels(file) for file in files]
    if any(image.shape[2] == 3 for image in images):
        images = [np.broadcast_to(image, (*image.shape[:2], 3)) for image in images]
    for file, image in zip(files, images, strict=True):
        if image.shape != images[0].shape:
            (height, width, _), (h, w, _) = image.shape, images[0].shape
            raise Refused(
                f"{file} is {width}×{height} pixels, {files[0]} is {w}×{h}: scale all to one size"
            )
    return split(np.stack(images), np.array(labels, np.int32), seed, classes=classes)
