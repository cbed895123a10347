"""Ask a trained network: which digits are these, or whatever it has learned to tell apart?

    python -m seejax.predict runs/first seven.png three.png
    python -m seejax.predict runs/first --checkpoint best --export digits.program
    python -m seejax.predict runs/own new.csv --model net.py:Net

The first prints, for each file, the class and the probability of each class. An image is as large
as those that the network has learned from; digits are light on a dark background. A .csv has the
columns of the table that was learned from, a .npy one example or several: a line is printed for
each. A run of `training.fit` does not know where its network is: say so with --model.

The second writes the network with its parameters as one program. Whoever runs it needs JAX and
nothing of this book, and gives it as many images as there are:

    program = jax.export.deserialize(pathlib.Path("digits.program").read_bytes())
    probabilities = program.call(images)        # uint8 (batch, height, width, 1); your own: float32
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from PIL import Image

from seejax.training import configured, data, digits, folder
from seejax.training.classifier import Classifier, Variables
from seejax.training.folder import RunError, Settings
from seejax.training.network import Network, named, wrapped
from seejax.training.network import check as check_network

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


class PredictError(RuntimeError):
    """There is no answer; the message says why, and what to do."""


class Trained(NamedTuple):
    """A network and what it has learned."""

    network: Classifier
    variables: Variables
    image_shape: tuple[int, ...]
    """Of one example, an image or not."""
    dtype: np.dtype = np.dtype(np.uint8)
    """Of an example, as it was learned from."""
    classes: Sequence[str] = ()
    """The names of the classes."""
    columns: Sequence[str] = ()
    """The names of the features, if it learned from a table."""
    digits: bool = True
    """Whether it learned from the book's digits: light on a dark background, grey."""

    def probabilities(self, images: jax.Array) -> jax.Array:
        """Of each class, float32 (batch, classes), for (batch, *image_shape) of this dtype."""
        return jax.nn.softmax(self.network.apply(self.variables, images))


def load(
    workdir: str | os.PathLike, checkpoint: str | int = "last", network: Network | None = None
) -> Trained:
    """The network of a run of `seejax.training`, from its folder; nothing there is changed.

    Args:
      workdir: the folder of the run; it may be at work.
      checkpoint: "last"; "best", which of those kept ends the epoch of the lowest validation loss
        (a run with --best keeps the best of all); or the number of steps after which it was saved.
      network: what was given to `training.fit`. A run of the command line knows it: the file of
        your own network is looked for from the current folder, as it was then.
    Returns:
      `Trained`, on one device, on however many it was trained.
    Raises:
      PredictError, RunError: there is no such checkpoint, or it cannot be read.
    """
    path = folder.absolute(folder.path(workdir))  # Orbax reads no other
    steps = folder.steps(path)
    if not steps:
        raise PredictError(f"{workdir} holds no checkpoint of a run")
    step = steps[-1]
    if checkpoint == "best":
        losses = _validation_losses(path, steps)
        if not losses:
            raise PredictError(f"no checkpoint in {workdir} is from the end of an epoch")
        step = min(losses, key=losses.__getitem__)
    elif checkpoint != "last":
        step = int(checkpoint)
    if step not in steps:
        known = ", ".join(map(str, steps))
        raise PredictError(f"{workdir} has no checkpoint {step}: choose from {known}")
    settings = folder.saved_settings(path)
    shape, dtype, classes = _examples(settings)
    if network is None and ":" not in settings["model"] and "dataset" not in settings:
        raise PredictError(
            f"{workdir} is a run of training.fit: say where its network is, --model FILE.py:NAME"
        )
    if network is None:
        config = configured.saved_config(path)
        functions = configured.make_network(config, shape, len(classes))
    else:
        functions = wrapped(network)
    example = jax.ShapeDtypeStruct(shape, dtype)
    if network is not None or ":" in settings["model"]:
        check_network(functions, settings["model"], example, len(classes))
    variables = _variables(path, step, functions, example)
    of_digits = "dataset" in settings and not settings.get("data")
    columns = settings.get("columns", ())
    return Trained(functions, variables, shape, dtype, classes, columns, of_digits)


def _examples(settings: Settings) -> tuple[tuple[int, ...], np.dtype, Sequence[str]]:
    """Shape and dtype of an example, and the names of the classes."""
    if "example" in settings:
        return tuple(settings["example"]), np.dtype(settings["dtype"]), settings["classes"]
    shape = digits.IMAGE_SHAPES[settings["dataset"]]  # a run of an earlier version
    return shape, np.dtype(np.uint8), [str(digit) for digit in range(10)]


def _validation_losses(path: epath.Path, steps: list[int]) -> dict[int, float]:
    """Of the checkpoints that end an epoch: one from within has sums of the epoch that is begun."""
    losses = {}
    for step in steps:
        try:
            run = folder.saved_run(path, step)
            if not any(run["totals"]):
                losses[step] = run["history"][-1]["validation_loss"]
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise _unreadable(path, step, error) from error
    return losses


def _unreadable(path: epath.Path, step: int, error: Exception) -> PredictError:
    first_line = next(iter(str(error).splitlines()), "")
    reason = f"{type(error).__name__}: {first_line}"
    return PredictError(f"checkpoint {step} in {path} cannot be read ({reason})")


def _variables(
    path: epath.Path, step: int, network: Classifier, example: jax.ShapeDtypeStruct
) -> Variables:
    """What the network takes of a training state: nothing that the optimizer keeps."""
    images = jnp.zeros((1, *example.shape), example.dtype)
    collections = dict(jax.eval_shape(network.init, jax.random.key(0), images))
    wanted = {"params": collections.pop("params")}
    if collections:  # Orbax takes none for a leaf
        wanted["collections"] = collections
    numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
    args = ocp.args.PyTreeRestore(wanted, restore_args=numpy, partial_restore=True)
    try:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            state = checkpointer.restore(path / folder.CHECKPOINTS / str(step) / "state", args=args)
    except Exception as error:  # Orbax raises whatever a broken file led to
        raise _unreadable(path, step, error) from error
    # What is missing there is still a shape, and what has another shape comes as it is.
    for (name, ours), theirs in zip(
        jax.tree.leaves_with_path(wanted), jax.tree.leaves(state), strict=True
    ):
        if not isinstance(theirs, np.ndarray) or theirs.shape != ours.shape:
            name = jax.tree_util.keystr(name)
            raise PredictError(f"checkpoint {step} in {path} is of another network: see {name}")
    return jax.tree.map(jnp.asarray, {"params": state["params"], **state.get("collections", {})})


def read_image(file: str | os.PathLike, shape: tuple[int, ...]) -> np.ndarray:
    """An image file as the data have it: uint8 (height, width, 1), 0 is background.

    Raises:
      PredictError: it is no image, not greyscale, of another size, or dark on light.
    """
    try:
        with Image.open(file) as image:
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise PredictError(f"{file} cannot be read as an image ({error})") from error
    height, width, _ = shape
    if image.mode not in ("L", "1"):
        raise PredictError(f"{file} is {image.mode}, not greyscale with 8 bits: convert it first")
    if image.size != (width, height):
        found = f"{image.width}×{image.height}"
        raise PredictError(f"{file} is {found} pixels, {width}×{height} are needed: scale it first")
    pixels = np.asarray(image.convert("L"))
    if np.median(pixels) > 127:  # nearly all pixels of a digit are background
        raise PredictError(f"{file} is dark on light; light on dark is needed: invert it first")
    return pixels[..., None]


def read_examples(file: Path, trained: Trained) -> tuple[list[str], np.ndarray]:
    """What a file asks: a name for each example in it, and the examples, as the data had them.

    Raises:
      PredictError, Refused: it is not as the data.
    """
    shape = trained.image_shape
    if file.suffix.lower() == ".csv":
        names, lines = data.rows(file)
        if not trained.columns or not {*trained.columns} <= {*names}:
            wanted = ", ".join(trained.columns) or "no table"
            raise PredictError(f"{file} has other columns than the data: {wanted} are needed")
        at = [names.index(name) for name in trained.columns]
        cells = {number: [line[column] for column in at] for number, line in lines.items()}
        examples = data.numbers(file, trained.columns, cells)
        return [f"{file}:{number}" for number in lines], examples
    if file.suffix.lower() == ".npy":
        try:
            examples = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise PredictError(f"{file} cannot be read as a .npy ({error})") from error
        if not np.can_cast(examples.dtype, trained.dtype, "same_kind"):
            raise PredictError(f"{file} has {examples.dtype}: {trained.dtype} is needed")
        if examples.shape == shape:
            return [f"{file}"], examples[None].astype(trained.dtype)
        if examples.shape[1:] != shape:
            raise PredictError(
                f"{file} has shape {list(examples.shape)}: {list(shape)} is needed, or several "
                "along another axis in front"
            )
        return [f"{file}:{n}" for n in range(len(examples))], examples.astype(trained.dtype)
    if trained.digits and trained.dtype == np.uint8:
        return [f"{file}"], read_image(file, shape)[None]
    if not np.issubdtype(trained.dtype, np.floating):
        raise PredictError(f"{file}: this network learned from {trained.dtype}; give a .npy of it")
    if len(shape) != 3:
        raise PredictError(f"{file}: this network learned from no images; give a .csv or a .npy")
    image = data.pixels(file)
    if shape[2] == 3 and image.shape[2] == 1:  # as a folder with both was read
        image = np.broadcast_to(image, (*image.shape[:2], 3))
    if image.shape != shape:
        (height, width, channels), (h, w, c) = image.shape, shape
        raise PredictError(
            f"{file} is {width}×{height} pixels with {channels} channels, {w}×{h} with {c} are "
            "needed: scale or convert it first"
        )
    return [f"{file}"], image[None]


def export(trained: Trained, file: str | os.PathLike) -> None:
    """Write `trained.probabilities` as a program for any number of images, on any platform.

    Raises:
      PredictError: the file cannot be written, or the network wants to know how many there are.
    """
    shape = jax.export.symbolic_shape(", ".join(map(str, ("batch", *trained.image_shape))))
    images = jax.ShapeDtypeStruct(shape, trained.dtype)
    exporter = jax.export.export(jax.jit(trained.probabilities), platforms=PLATFORMS)
    try:
        program = exporter(images)
    except Exception as error:  # what the network's code led to
        line = next(iter(str(error).splitlines()), "")
        raise PredictError(
            f"the network cannot be exported for any number of examples ({type(error).__name__}: "
            f"{line}); where it says len(x), write x.shape[0]"
        ) from error
    try:
        Path(file).write_bytes(program.serialize())
    except OSError as error:
        raise PredictError(f"{file} cannot be written ({error.strerror})") from error


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit status.

    >>> main(["runs/first"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    parser = argparse.ArgumentParser(
        prog="python -m seejax.predict",
        description="Ask a trained network of which class something is.",
    )
    parser.add_argument("run", type=Path, help="the folder of a run of seejax.training")
    parser.add_argument(
        "images",
        type=Path,
        nargs="*",
        metavar="file",
        help="an image as large as those of the data (digits: light on dark), a .csv or a .npy",
    )
    parser.add_argument(
        "--model", metavar="FILE.py:NAME", help="the network, for a run of training.fit"
    )
    parser.add_argument(
        "--checkpoint",
        default="last",
        metavar="last|best|STEP",
        help="best: of the lowest validation loss; default: last",
    )
    parser.add_argument(
        "--export", type=Path, metavar="FILE", help="write the network as a program of jax.export"
    )
    args = parser.parse_intermixed_args(argv)  # options may stand between run and images
    if not args.images and not args.export:
        parser.error("give images or other files, or --export FILE")
    if args.checkpoint not in ("last", "best") and not args.checkpoint.isdecimal():
        parser.error(f"--checkpoint {args.checkpoint}: last, best or a number")
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax reports each file it touches
    try:
        network = named(args.model) if args.model else None
        trained = load(args.run, args.checkpoint, network)
        asked = [read_examples(file, trained) for file in args.images]
        if args.export:
            export(trained, args.export)
    except (PredictError, RunError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    for names, examples in asked:
        for name, p in zip(
            names, np.asarray(trained.probabilities(jnp.asarray(examples))), strict=True
        ):
            known = enumerate(p.tolist())
            classes = dict(enumerate(trained.classes))
            each = "  ".join(f"{classes.get(label, label)}: {x:.3f}" for label, x in known)
            print(f"{name}  {classes.get(p.argmax(), p.argmax())}  ({each})")
    return 0
