"""Where the history of a run is shown: TensorBoard, and W&B. Both are told it from its beginning.

A checkpoint and an event are written one after the other, so what is killed between the two would
leave a gap, or tell an epoch twice. The history in the checkpoint is the truth; these follow it.
"""

import contextlib
import importlib.util
import os
import secrets
from collections.abc import Callable, Iterator

from etils import epath
from tensorboardX import SummaryWriter

from seejax.training.folder import RunError, Settings

Epoch = dict[str, float]
"""One entry of the history: epoch, time (Unix, s), and the numbers of each split."""

Record = Callable[[Epoch], None]

SPLITS = {"train": "", "validation": "validation_", "test": "test_"}
"""How the names of each split's numbers begin in an entry."""


@contextlib.contextmanager
def tensorboard(workdir: epath.Path, settings: Settings) -> Iterator[Record]:
    """Event files, begun anew. They are complete when this ends: closing waits for the threads that
    write them, and a run that is killed before tells it all again when it is resumed."""
    folder = workdir / "tensorboard"
    if folder.exists():
        folder.rmtree()
    with contextlib.ExitStack() as stack:
        writers: dict[str, SummaryWriter] = {}

        def writer(split: str) -> SummaryWriter:
            if split not in writers:  # 0: no limit, so nobody waits if a full disk ends the thread
                writers[split] = SummaryWriter(str(folder / split), max_queue=0)
                stack.callback(_close, writers[split])
            return writers[split]

        rows = [f"| {name} | {value} |" for name, value in settings.items()]
        writer("train").add_text("hyperparameters", "\n".join(["| | |", "|-|-|", *rows]))

        def record(epoch: Epoch) -> None:
            for split, prefix in SPLITS.items():
                for name in ("loss", "accuracy"):
                    if prefix + name in epoch:
                        writer(split).add_scalar(
                            name, epoch[prefix + name], int(epoch["epoch"]), epoch["time"]
                        )

        yield record


def _close(writer: SummaryWriter) -> None:
    with contextlib.suppress(OSError):  # it can be told again; that a disk is full, others say
        writer.close()


@contextlib.contextmanager
def wandb(workdir: epath.Path, settings: Settings) -> Iterator[Record]:
    """A W&B run. A resumed one has the same id, and is told the history from its beginning."""
    import wandb  # optional, and slow

    try:
        id_file = workdir / "wandb" / "id"
        if not id_file.exists():
            id_file.parent.mkdir(exist_ok=True)
            id_file.write_text(secrets.token_hex(4), "utf8")
        run = wandb.init(
            project="seejax",
            id=id_file.read_text("utf8"),
            name=workdir.name,
            dir=os.fspath(workdir),
            config=dict(settings),
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )
    except Exception as error:  # not logged in, no network: its own errors have no common class
        raise RunError(
            f"W&B cannot start ({error}): run `wandb login` first, or set WANDB_MODE=offline"
        ) from error
    try:
        yield lambda epoch: run.log(epoch, step=int(epoch["epoch"]))
    finally:
        run.finish()
        wandb.teardown()  # finish alone may return while its service still writes the file


def check_wandb() -> None:
    """Raise RunError where W&B is not installed."""
    if not importlib.util.find_spec("wandb"):
        raise RunError("--wandb needs the package wandb: pip install wandb")
