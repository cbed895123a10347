"""A run from its `Config`: data, network and optimizer by the names that a command line has."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from seejax.training import data, digits, folder, network
from seejax.training.classifier import Classifier, classifier, unit_interval
from seejax.training.config import Config
from seejax.training.folder import Refused, RunError
from seejax.training.records import Epoch
from seejax.training.run import check_arguments, fit
from seejax.training.steps import TrainState

LATER = ("data",)
"""Hyperparameters that runs of earlier versions do not have."""


def default(config: Config) -> str:
    """The folder of a run that was given none: its name has all that is not as it would be.

    >>> default(Config())
    'runs/digits-linen'
    >>> default(Config(model="cnn", learning_rate=0.01, seed=3))
    'runs/digits-cnn-learning_rate=0.01-seed=3'
    >>> default(Config(data="my/photos", model="net.py:Net"))
    'runs/photos-Net'
    """
    usual = vars(Config(config.dataset, config.model, data=config.data))
    other = [f"-{name}={x}" for name, x in vars(config).items() if x != usual[name]]
    trained_on = config.dataset if config.data is None else Path(config.data).stem
    return f"runs/{trained_on}-{config.model.rpartition(':')[2]}{''.join(other)}"


def saved_config(workdir: epath.Path) -> Config:
    """The hyperparameters of the run in a folder.

    Raises:
      RunError: there is none that a command could resume.
    """
    fields = [field.name for field in dataclasses.fields(Config)]
    try:
        saved = folder.saved_settings(workdir, [name for name in fields if name not in LATER])
    except RunError:
        if "dataset" not in folder.saved_settings(workdir):
            raise RunError(
                f"{workdir} is a run of training.fit: resume it in Python, with resume=True"
            ) from None
        raise
    return Config(**{name: saved[name] for name in fields if name in saved})


def load(config: Config, data_dir: str | os.PathLike | None = None) -> data.Splits:
    """What a run is trained on. Networks of the book take digits as uint8, all others as floats."""
    if config.data is not None:
        return data.read(config.data, config.seed)

    def pair(split: str) -> tuple[np.ndarray, np.ndarray]:
        images, labels = digits.load(config.dataset, split, data_dir)
        if config.own_model:
            images = np.asarray(unit_interval(jnp.asarray(images)))
        return images, labels

    train, validation, test = map(pair, digits.SPLITS)
    return data.Splits(train, validation, test)


def make_network(config: Config, shape: Sequence[int], classes: int) -> Classifier:
    """The network of a run, for examples of this shape.

    Raises:
      Refused: there is none of this name, or it does not fit.
    """
    if config.own_model:
        return network.wrapped(network.named(config.model))
    dtype = jnp.bfloat16 if config.bf16 else jnp.float32
    try:
        return classifier(config.model, tuple(shape), classes, dtype=dtype)
    except ValueError as error:
        raise Refused(f"{error}; or a network of your own: --model FILE.py:NAME") from error


def train(
    config: Config,
    workdir: str | os.PathLike,
    *,
    resume: bool = False,
    save_every: int = 0,
    best: bool = False,
    profile: bool = False,
    use_wandb: bool = False,
    data_dir: str | os.PathLike | None = None,
    say: Callable[[str], object] = print,
    asked_to_stop: Callable[[], bool] = lambda: False,
    mesh: jax.sharding.Mesh | None = None,
) -> tuple[TrainState, list[Epoch]]:
    """Run all epochs, or those that are left, of what a command line describes.

    Args:
      config: the hyperparameters; when resuming, those of the run in `workdir`, except for what
        may be changed.
      data_dir: where TFDS keeps its data; None for its default.
      workdir, resume, save_every, best, profile, use_wandb, say, asked_to_stop, mesh: as in `fit`.
    Returns:
      The final training state, and the history with an entry for each epoch from the first.
    Raises:
      seejax.training.digits.DataError: the data cannot be had. Else as `fit`.
    """
    settings = vars(config)
    workdir = folder.path(workdir)
    check_arguments(workdir, settings, resume, save_every, use_wandb, mesh)  # before data is read
    splits = load(config, data_dir)
    examples, labels = splits.train
    steps = config.epochs * max(1, len(labels) // config.batch_size)
    return fit(
        make_network(config, examples.shape[1:], len(data.class_names(splits))),
        splits,
        config.make_optimizer(steps),
        workdir,
        epochs=config.epochs,
        batch_size=config.batch_size,
        seed=config.seed,
        early_stopping=config.early_stopping,
        settings=settings,
        resume=resume,
        save_every=save_every,
        best=best,
        profile=profile,
        use_wandb=use_wandb,
        say=say,
        asked_to_stop=asked_to_stop,
        mesh=mesh,
    )
