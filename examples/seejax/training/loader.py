"""Batches read from the files while a job trains, for data that do not fit into memory.

    batches = iter(loader.batches("mnist", batch_size=128, seed=0))
    for _ in range(steps):
        state, sums = train_step(state, *next(batches))
    position = batches.get_state()      # small, JSON takes it: save it with the training state
    ...
    batches = iter(loader.batches("mnist", batch_size=128, seed=0))
    batches.set_state(position)         # and the next batch is the one that would have come

What fits into memory is faster as arrays on the device: `digits.load`, `digits.epoch_order`.
"""

import dataclasses
from os import PathLike
from typing import Any

import grain
import numpy as np

from seejax.training import digits


@dataclasses.dataclass(frozen=True)
class Shift(grain.transforms.RandomMap):
    """Move an image by up to so many pixels along each axis; background comes in at the edge."""

    pixels: int

    # Grain's own method has no body, so the checker takes it to return None.
    # pyrefly: ignore[bad-override]
    def random_map(self, element: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        image = element["image"]
        height, width, _ = image.shape
        down, right = rng.integers(0, 2 * self.pixels + 1, 2)
        padded = np.pad(image, [(self.pixels, self.pixels)] * 2 + [(0, 0)])
        return element | {"image": padded[down : down + height, right : right + width]}


def batches(
    name: str = "digits",
    split: str = "train",
    *,
    batch_size: int,
    seed: int,
    shift: int = 0,
    epochs: int | None = None,
    part: tuple[int, int] = (0, 1),
    data_dir: str | PathLike | None = None,
) -> grain.IterDataset:
    """Shuffled batches of a split, read and decoded by threads ahead of their use.

    Each epoch has an order and shifts of its own; what does not fill a batch is left out. Which
    examples are in a batch follows from the arguments and the number of the batch alone.

    Args:
      name, split, data_dir: as in `digits.load`.
      batch_size: examples in a batch, at most as many as there are.
      seed: of the order and the shifts, 0 to 2**32 - 1.
      shift: images are moved by up to so many pixels, at random; 1 for 8×8, 2 for 28×28.
      epochs: how many; None goes on for ever.
      part: which of how many equal parts: `(jax.process_index(), jax.process_count())`.
    Returns:
      A data set of Grain. Its iterators give `digits.Split`: images uint8 (batch_size, height,
      width, 1), labels int32 (batch_size,); they have `get_state()` and `set_state(state)`.
    Raises:
      ValueError: numbers that cannot be. Else as `digits.load`.

    >>> data = batches("digits", batch_size=32, seed=0, shift=1, epochs=1)
    >>> images, labels = next(iter(data))
    >>> images.shape, labels.shape, sum(1 for _ in data)
    ((32, 8, 8, 1), (32,), 40)
    """
    records, numbers = digits.source(name, split, data_dir)
    index, count = part
    if not 0 <= index < count:
        raise ValueError(f"part {part}: which one, from 0, and of how many")
    if not 1 <= batch_size <= len(numbers) // count:
        raise ValueError(f"batch_size {batch_size} does not fit {len(numbers) // count} examples")
    for argument, number, least in (("seed", seed, 0), ("shift", shift, 0), ("epochs", epochs, 1)):
        if number is not None and number < least:
            raise ValueError(f"{argument} {number}: at least {least} is needed")

    def split_of(batch: dict[str, np.ndarray]) -> digits.Split:
        return digits.Split(batch["image"], batch["label"].astype(np.int32))

    shuffled = grain.MapDataset.source(numbers.tolist()).seed(seed).shuffle()
    mine = shuffled[: len(numbers) - len(numbers) % count][index::count]
    moved = mine.map(records.__getitem__).random_map(Shift(shift))
    one_epoch = moved.batch(batch_size, drop_remainder=True).map(split_of)
    return one_epoch.repeat(epochs).to_iter_dataset()
