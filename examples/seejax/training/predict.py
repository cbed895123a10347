"""Ask a trained network: which digits are these?

    python -m seejax.predict runs/first seven.png three.png
    python -m seejax.predict runs/first --checkpoint best --export digits.program

The first prints, for each file, the class and the probability of each class. A file is greyscale,
as large as the images that the network has learned from, with light digits on a dark background.

The second writes the network with its parameters as one program. Whoever runs it needs JAX and
nothing of this book, and gives it as many images as there are:

    program = jax.export.deserialize(pathlib.Path("digits.program").read_bytes())
    probabilities = program.call(images)        # uint8 (batch, height, width, 1)
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

from seejax.training import Config, RunError, digits, folder
from seejax.training.classifier import Classifier, Variables, classifier

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


class PredictError(RuntimeError):
    """There is no answer; the message says why, and what to do."""


class Trained(NamedTuple):
    """A network and what it has learned."""

    network: Classifier
    variables: Variables
    image_shape: tuple[int, ...]

    def probabilities(self, images: jax.Array) -> jax.Array:
        """Of each class, float32 (batch, classes), for uint8 (batch, *image_shape)."""
        return jax.nn.softmax(self.network.apply(self.variables, images))


def load(workdir: str | os.PathLike, checkpoint: str | int = "last") -> Trained:
    """The network of a run of `seejax.training`, from its folder; nothing there is changed.

    Args:
      workdir: the folder of the run; it may be at work.
      checkpoint: "last"; "best", which of those kept ends the epoch of the lowest validation loss
        (a run with --best keeps the best of all); or the number of steps after which it was saved.
    Returns:
      `Trained`, on one device, on however many it was trained.
    Raises:
      PredictError, RunError: there is no such checkpoint, or it cannot be read.
    """
    path = folder.path(workdir)
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
    config = Config(**folder.saved_config(path))
    shape = digits.IMAGE_SHAPES[config.dataset]
    dtype = jnp.bfloat16 if config.bf16 else jnp.float32
    network = classifier(config.model, shape, dtype=dtype)
    return Trained(network, _variables(path, step, network, shape), shape)


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
    path: epath.Path, step: int, network: Classifier, shape: tuple[int, ...]
) -> Variables:
    """What the network takes of a training state: nothing that the optimizer keeps."""
    images = jnp.zeros((1, *shape), jnp.uint8)
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


def export(trained: Trained, file: str | os.PathLike) -> None:
    """Write `trained.probabilities` as a program for any number of images, on any platform.

    Raises:
      PredictError: the file cannot be written.
    """
    shape = jax.export.symbolic_shape("batch, " + ", ".join(map(str, trained.image_shape)))
    images = jax.ShapeDtypeStruct(shape, jnp.uint8)
    program = jax.export.export(jax.jit(trained.probabilities), platforms=PLATFORMS)(images)
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
        description="Ask a trained network: which digits are these?",
    )
    parser.add_argument("run", type=Path, help="the folder of a run of seejax.training")
    parser.add_argument(
        "images",
        type=Path,
        nargs="*",
        metavar="image",
        help="greyscale, as large as those of the data, light digits on a dark background",
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
        parser.error("give images, or --export FILE")
    if args.checkpoint not in ("last", "best") and not args.checkpoint.isdecimal():
        parser.error(f"--checkpoint {args.checkpoint}: last, best or a number")
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax reports each file it touches
    try:
        trained = load(args.run, args.checkpoint)
        images = [read_image(file, trained.image_shape) for file in args.images]
        if args.export:
            export(trained, args.export)
    except (PredictError, RunError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    if images:
        for file, p in zip(args.images, trained.probabilities(jnp.stack(images)), strict=True):
            each = "  ".join(f"{digit}: {x:.3f}" for digit, x in enumerate(p.tolist()))
            print(f"{file}  {p.argmax()}  ({each})")
    return 0
