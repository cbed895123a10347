"""The hyperparameters of a run, each written once: its name, its default, and what it is."""

import dataclasses
from typing import Annotated

import optax
from tyro.conf import arg

from seejax.training import digits
from seejax.training.classifier import MODELS
from seejax.training.folder import RunError
from seejax.training.optimizers import OPTIMIZERS, SCHEDULES, optimizer


def _one_of(choices: tuple[str, ...]) -> object:
    return arg(metavar="|".join(choices))


@dataclasses.dataclass(frozen=True)
class Config:
    """What is trained, on what, and how: with all of it equal, two runs end in the same bits."""

    dataset: Annotated[str, _one_of(digits.DATASETS)] = "digits"
    """What to train on."""
    model: Annotated[str, _one_of((*MODELS, "FILE.py:NAME"))] = "linen"
    """The network; one of your own is a class, or a function that makes it."""
    data: Annotated[str | None, arg(metavar="TABLE.csv|ARRAYS.npz|FOLDER")] = None
    """Your own data instead of a data set: a folder has a folder of images for each class. With
    --resume it may have moved."""
    bf16: bool = False
    """Compute in bfloat16; parameters stay float32."""
    epochs: Annotated[int, arg(metavar="N")] = 20
    """Passes over the training split; with --resume it may be another number."""
    batch_size: Annotated[int, arg(metavar="N")] = 32
    """Examples in a step, over all devices."""
    optimizer: Annotated[str, _one_of(OPTIMIZERS)] = "adam"
    """What makes an update of a gradient."""
    learning_rate: Annotated[float, arg(metavar="X")] = 1e-3
    """The highest rate; with --resume it may be another."""
    schedule: Annotated[str, _one_of(SCHEDULES)] = "constant"
    """How the rate goes on; cosine falls to 0 at the last epoch."""
    warmup: Annotated[int, arg(metavar="N")] = 0
    """Steps over which the rate rises from 0."""
    weight_decay: Annotated[float | None, arg(metavar="X")] = None
    """What an update takes off each kernel, times the rate; None: as usual for the optimizer."""
    clip: Annotated[float | None, arg(metavar="X")] = None
    """The largest norm of a gradient; larger ones are scaled down to it."""
    accumulate: Annotated[int, arg(metavar="N")] = 1
    """So many steps make one update, by the mean of their gradients."""
    early_stopping: Annotated[int, arg(metavar="N")] = 0
    """End after N epochs without a lower loss of validation, 0: never; may be another, too."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Of the parameters, of the order of examples, and of all that a step draws."""

    def __post_init__(self) -> None:
        known = {"dataset": digits.DATASETS, "model": MODELS}
        own = {"dataset": "--data for your own", "model": "FILE.py:NAME for your own"}
        for name, choices in known.items():
            if getattr(self, name) not in choices and not (name == "model" and self.own_model):
                raise RunError(
                    f"{name} {getattr(self, name)!r}: choose from {', '.join(choices)}; {own[name]}"
                )
        if self.data is not None and self.dataset != digits.DATASETS[0]:
            raise RunError("dataset and data are both given: choose one")
        if self.bf16 and self.own_model:
            raise RunError("bf16 is for the book's own networks: say the dtype in your layers")
        for name, least in (("epochs", 1), ("batch_size", 1), ("early_stopping", 0)):
            if getattr(self, name) < least:
                raise RunError(f"{name} {getattr(self, name)}: at least {least} is needed")
        if not 0 <= self.seed < 2**32:
            raise RunError(f"seed {self.seed}: 0 to 2**32 - 1 is needed")
        self.make_optimizer((max(0, self.warmup) + 1) * max(1, self.accumulate))

    @property
    def own_model(self) -> bool:
        return ":" in self.model

    def make_optimizer(self, steps: int) -> optax.GradientTransformation:
        """The optimizer of a run of so many steps.

        Raises:
          RunError: there is none of this description.
        """
        try:
            return optimizer(
                self.optimizer,
                learning_rate=self.learning_rate,
                schedule=self.schedule,
                warmup=self.warmup,
                steps=steps,
                weight_decay=self.weight_decay,
                clip=self.clip,
                accumulate=self.accumulate,
            )
        except ValueError as error:
            raise RunError(str(error)) from error
