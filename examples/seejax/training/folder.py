"""The folder of a run: one run at a time, its settings, and nothing of anybody else's."""

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etils import epath

CHECKPOINTS = "checkpoints"
SHA256 = "data_sha256"
CHANGEABLE = ("epochs", "learning_rate", "early_stopping", "data")
"""What may be another value when a run is resumed; the history has what each epoch was run with.
`data` is where the data was found: what is in it has to be the same."""

NEEDED = ("epochs", "batch_size", "seed")
"""Without these, settings are damaged."""

Settings = Mapping[str, Any]
"""What JSON can say of a run and what decides its bits; in config.json and in each checkpoint."""


class RunError(RuntimeError):
    """The run cannot start or go on; the message says why, and what to do."""


class Refused(RunError):
    """What was given does not fit, and nothing was changed."""


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


def saved_settings(workdir: epath.Path, needed: Iterable[str] = NEEDED) -> dict[str, Any]:
    """The settings of the run in a folder: of config.json, or else of its last checkpoint.

    Args:
      needed: the names without which they are damaged.
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
            return {**saved, **{name: saved[name] for name in needed}}
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            wrong = wrong or f"{file} cannot be read ({type(error).__name__}: {error})"
    raise RunError(wrong or f"nothing to resume in {workdir}: leave --resume out to start")


def check(workdir: epath.Path, settings: Settings, resume: bool) -> None:
    """Raise RunError unless this run may write into this folder; change nothing."""
    names = {entry.name for entry in workdir.iterdir()} if workdir.is_dir() else set()
    if resume:
        saved = saved_settings(workdir)
        differing = [
            f"{name} is {saved[name]} there, {value} here"
            for name, value in settings.items()
            if name in saved and name not in (*CHANGEABLE, SHA256) and value != saved[name]
        ]
        if differing:
            raise Refused(f"{workdir} holds another run: {'; '.join(differing)}")
        if settings.get(SHA256, saved.get(SHA256)) != saved.get(SHA256, settings.get(SHA256)):
            raise Refused(
                f"{workdir} was trained on other data than this (examples, labels or their order): "
                "resume it with the data it had, or choose another folder"
            )
    elif steps(workdir):
        raise RunError(f"{workdir} holds a run: --resume it, or choose another --workdir")
    elif names - {"lock", CHECKPOINTS} and "config.json" not in names:  # or killed before it
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


def write_config(workdir: epath.Path, settings: Settings) -> None:
    """Write config.json; it is the old or the new one at any moment."""
    new = workdir / f"config.{secrets.token_hex(4)}.new"
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(dict(settings), indent=2) + "\n", "utf8")
        new.replace(workdir / "config.json")
    except OSError as error:
        new.unlink(missing_ok=True)
        raise RunError(f"{workdir} cannot be written ({error.strerror or error})") from error
