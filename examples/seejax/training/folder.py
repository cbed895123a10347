"""The folder of a run: one run at a time, its hyperparameters, and nothing of anybody else's."""

import contextlib
import dataclasses
import json
import os
import secrets
from collections.abc import Iterator
from typing import Any

from etils import epath

from seejax.training.config import CHANGEABLE, Config, RunError

CHECKPOINTS = "checkpoints"


def default(config: Config) -> str:
    """The folder of a run that was given none: its name has all that is not as it would be.

    >>> default(Config())
    'runs/digits-linen'
    >>> default(Config(model="cnn", learning_rate=0.01, seed=3))
    'runs/digits-cnn-learning_rate=0.01-seed=3'
    """
    usual = vars(Config(config.dataset, config.model))
    other = [f"-{name}={x}" for name, x in vars(config).items() if x != usual[name]]
    return f"runs/{config.dataset}-{config.model}{''.join(other)}"


def path(workdir: str | os.PathLike) -> epath.Path:
    """A folder here, or in an object store (gs://, s3://).

    Raises:
      RunError: the package for that store is not installed.
    """
    folder = epath.Path(workdir)
    try:
        folder.exists()
    except ImportError as error:
        raise RunError(f"{folder} cannot be reached: {error}") from None
    except OSError as error:
        raise RunError(f"{folder} cannot be read ({error.strerror or error})") from error
    return folder


def is_local(workdir: epath.Path) -> bool:
    return "://" not in os.fspath(workdir)


def absolute(workdir: epath.Path) -> epath.Path:
    """The same place, whatever the current folder is.

    >>> absolute(epath.Path("gs://bucket/run")).as_posix()
    'gs://bucket/run'
    """
    return workdir.resolve() if is_local(workdir) else workdir


def steps(workdir: epath.Path) -> list[int]:
    """The checkpoints that are complete: at how many steps each was saved, in order."""
    folder = workdir / CHECKPOINTS
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdigit())


def saved_run(workdir: epath.Path, step: int) -> dict[str, Any]:
    """What a checkpoint says of its run besides the training state: `config`, `history`, `totals`.

    Raises:
      OSError, ValueError, KeyError: it is damaged.
    """
    file = workdir / CHECKPOINTS / str(step) / "run" / "metadata"  # where Orbax writes JSON
    return json.loads(file.read_text("utf8"))["run"]


def saved_config(workdir: epath.Path) -> dict[str, Any]:
    """The hyperparameters of the run in a folder: of config.json, or else of its last checkpoint.

    Raises:
      RunError: neither is there.
    """
    file = workdir / "config.json"
    sources = [lambda: json.loads(file.read_text("utf8"))]
    sources += [lambda s=step: saved_run(workdir, s)["config"] for step in reversed(steps(workdir))]
    wrong = ""
    for source in sources:
        try:
            saved = source()
            return {field.name: saved[field.name] for field in dataclasses.fields(Config)}
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            wrong = wrong or f"{file} cannot be read ({type(error).__name__}: {error})"
    raise RunError(wrong or f"nothing to resume in {workdir}: leave --resume out to start")


def check(workdir: epath.Path, config: Config, resume: bool) -> None:
    """Raise RunError unless this run may write into this folder; change nothing."""
    names = {entry.name for entry in workdir.iterdir()} if workdir.is_dir() else set()
    if resume:
        differing = [
            f"{name} is {value} there, {getattr(config, name)} here"
            for name, value in saved_config(workdir).items()
            if name not in CHANGEABLE and value != getattr(config, name)
        ]
        if differing:
            raise RunError(f"{workdir} holds another run: {'; '.join(differing)}")
    elif steps(workdir):
        raise RunError(f"{workdir} holds a run: --resume it, or choose another --workdir")
    elif names - {"lock"} and "config.json" not in names:
        raise RunError(f"{workdir} is not empty: choose another --workdir")
    if is_local(workdir):
        places = (workdir, *absolute(workdir).parents)
        existing = next(place for place in places if place.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise RunError(f"{workdir} cannot be written: choose another --workdir")


@contextlib.contextmanager
def locked(workdir: epath.Path) -> Iterator[None]:
    """No other run writes into this folder meanwhile. The lock is the system's: it ends with the
    process, however that ends, and the file that stays says nothing. An object store has none.

    Raises:
      RunError: another run is at work there, or the folder cannot be made.
    """
    if not is_local(workdir):
        yield
        return
    import fcntl  # not on Windows

    with contextlib.ExitStack() as stack:
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(open(workdir / "lock", "a", encoding="utf8"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"another run is writing into {workdir}: wait for its end, "
                "or choose another --workdir"
            ) from None
        except OSError as error:
            raise RunError(f"{workdir} cannot be written ({error.strerror})") from error
        yield


def write_config(workdir: epath.Path, config: Config) -> None:
    """Write config.json; it is the old or the new one at any moment."""
    new = workdir / f"config.{secrets.token_hex(4)}.new"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(dataclasses.asdict(config), indent=2) + "\n", "utf8")
        new.replace(workdir / "config.json")
    except OSError as error:
        new.unlink(missing_ok=True)
        raise RunError(f"{workdir} cannot be written ({error.strerror or error})") from error
