"""The hyperparameters of a run, each written once: its name, its default, and what it is."""

import dataclasses
import math
from typing import Annotated

from tyro.conf import arg

from seejax import digits
from seejax.classifier import MODELS


class RunError(RuntimeError):
    """The run cannot start or go on; the message says why, and what to do."""


def _one_of(choices: tuple[str, ...]) -> object:
    return arg(metavar="|".join(choices))


@dataclasses.dataclass(frozen=True)
class Config:
    """Hyperparameters: what has to be equal for two runs to end in the same bits."""

    dataset: Annotated[str, _one_of(digits.DATASETS)] = "digits"
    """What to train on."""
    model: Annotated[str, _one_of(MODELS)] = "linen"
    """The network."""
    epochs: int = 20
    """Passes over the training split; may be raised with --resume."""
    batch_size: int = 32
    """Examples in a step, over all devices."""
    learning_rate: float = 1e-3
    """The optimizer's; may be changed with --resume."""
    early_stopping: Annotated[int, arg(metavar="N")] = 0
    """End after N epochs without a better loss of validation; 0: never. May be changed, too."""
    seed: int = 0
    """Of the parameters and of the order of examples."""

    def __post_init__(self) -> None:
        for name, known in (("dataset", digits.DATASETS), ("model", MODELS)):
            if getattr(self, name) not in known:
                raise RunError(f"{name} {getattr(self, name)!r}: choose from {', '.join(known)}")
        for name, least in (("epochs", 1), ("batch_size", 1), ("early_stopping", 0)):
            if getattr(self, name) < least:
                raise RunError(f"{name} {getattr(self, name)}: at least {least} is needed")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise RunError(f"learning_rate {self.learning_rate}: a positive number is needed")
        if not 0 <= self.seed < 2**32:
            raise RunError(f"seed {self.seed}: 0 to 2**32 - 1 is needed")


CHANGEABLE = ("epochs", "learning_rate", "early_stopping")
"""What may be another value when a run is resumed; the history has what each epoch was run with."""
