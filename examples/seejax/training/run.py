"""A run: hyperparameters, a folder, and one epoch after another."""

import contextlib
import dataclasses
import hashlib
import importlib.util
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax.training.train_state import TrainState
from jax.experimental import multihost_utils
from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tqdm import tqdm

from seejax import digits, parallel
from seejax.classifier import MODELS, classifier
from seejax.training.steps import create_state, evaluate, train_epoch

KEPT_CHECKPOINTS = 3


class RunError(RuntimeError):
    """The run cannot start or go on; the message says why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Config:
    """The hyperparameters: what has to be equal for two runs to end in the same bits."""

    dataset: str = "digits"
    model: str = "linen"
    epochs: int = 20
    batch_size: int = 32
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name, known in (("dataset", digits.DATASETS), ("model", MODELS)):
            if getattr(self, name) not in known:
                raise RunError(f"{name} {getattr(self, name)!r}: choose from {', '.join(known)}")
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise RunError(f"{name} {getattr(self, name)}: at least 1 is needed")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise RunError(f"learning_rate {self.learning_rate}: a positive number is needed")
        if not 0 <= self.seed < 2**32:
            raise RunError(f"seed {self.seed}: 0 to 2**32 - 1 is needed")


Epoch = dict[str, float]
"""One entry of the history: epoch, loss, accuracy, test_loss, test_accuracy, time (Unix, s)."""


def _workdir_config(workdir: Path) -> dict[str, Any]:
    file = workdir / "config.json"
    try:
        saved = json.loads(file.read_text("utf8"))
        return {field.name: saved[field.name] for field in dataclasses.fields(Config)}
    except FileNotFoundError:
        raise RunError(f"nothing to resume in {workdir}: leave --resume out to start") from None
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{file} cannot be read ({type(error).__name__}: {error})") from error


def _check_workdir(workdir: Path, config: Config, resume: bool) -> None:
    """Raise unless this run may write into this folder; change nothing."""
    if resume:
        saved = _workdir_config(workdir)
        differing = [
            f"{name} is {value} there, {getattr(config, name)} here"
            for name, value in saved.items()
            if name != "epochs" and value != getattr(config, name)
        ]
        if differing:
            raise RunError(f"{workdir} holds another run: {'; '.join(differing)}")
    elif (workdir / "config.json").exists():
        if any(folder.name.isdigit() for folder in (workdir / "checkpoints").glob("*")):
            raise RunError(f"{workdir} holds a run: --resume it, or choose another --workdir")
    elif workdir.is_dir() and any(workdir.iterdir()):
        raise RunError(f"{workdir} is not empty: choose another --workdir")
    existing = next(path for path in (workdir, *workdir.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise RunError(f"{workdir} cannot be written: choose another --workdir")


def _write_config(workdir: Path, config: Config) -> None:
    workdir.mkdir(parents=True, exist_ok=True)
    new = workdir / f"config.{secrets.token_hex(4)}.new"
    new.write_text(json.dumps(dataclasses.asdict(config), indent=2) + "\n", "utf8")
    new.replace(workdir / "config.json")


@contextlib.contextmanager
def _tensorboard(workdir: Path, config: Config) -> Iterator[Callable[[Epoch], None]]:
    """Event files, begun anew each time: what they say comes from the history, which is saved.

    Appending after a crash would leave gaps or say an epoch twice. And not a SummaryWriter: it
    hands events to a thread, and its flush does not wait for that thread.
    """
    shutil.rmtree(workdir / "tensorboard", ignore_errors=True)
    with contextlib.ExitStack() as stack:

        def writer(split: str) -> EventsWriter:
            folder = workdir / "tensorboard" / split
            folder.mkdir(parents=True)
            return stack.enter_context(contextlib.closing(EventsWriter(str(folder / "events"))))

        train, test = writer("train"), writer("test")
        rows = [f"| {name} | {value} |" for name, value in vars(config).items()]
        table = summary.text("hyperparameters", "\n".join(["| | |", "|-|-|", *rows]))
        train.write_event(Event(wall_time=time.time(), summary=table))

        def record(epoch: Epoch) -> None:
            for file, prefix in ((train, ""), (test, "test_")):
                for name in ("loss", "accuracy"):
                    scalar = summary.scalar(name, epoch[prefix + name])
                    when = {"step": int(epoch["epoch"]), "wall_time": epoch["time"]}
                    file.write_event(Event(summary=scalar, **when))
                file.flush()

        yield record


@contextlib.contextmanager
def _wandb(workdir: Path, config: Config) -> Iterator[Callable[[Epoch], None]]:
    """A W&B run. A resumed one has the same id, and is told the history from its beginning."""
    import wandb  # optional, and slow

    id_file = workdir / "wandb" / "id"
    if not id_file.exists():
        id_file.parent.mkdir(exist_ok=True)
        id_file.write_text(secrets.token_hex(4), "utf8")
    try:
        run = wandb.init(
            project="seejax",
            id=id_file.read_text("utf8"),
            name=workdir.name,
            dir=workdir,
            config=vars(config),
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


def train(
    config: Config,
    workdir: str | os.PathLike,
    *,
    resume: bool = False,
    use_wandb: bool = False,
    data_dir: str | os.PathLike | None = None,
    say: Callable[[str], object] = print,
    mesh: jax.sharding.Mesh | None = None,
) -> tuple[TrainState, list[Epoch]]:
    """Run all epochs, or those that are left.

    Args:
      config: the hyperparameters; when resuming, those of the run in `workdir`, except that there
        may be more epochs.
      workdir: the folder of this run; without an epoch in it unless resuming.
      resume: go on after the last epoch whose checkpoint is complete; from the start if none is.
      use_wandb: log to W&B, too.
      data_dir: where TFDS keeps its data; None for its default.
      say: is given one line after each epoch, when its checkpoint is on the disk.
      mesh: from `seejax.parallel.mesh`, to split each batch over its devices. Several processes all
        call this, with one `workdir` that all of them see; the first alone logs and says anything.
    Returns:
      The final training state, and the history with an entry for each epoch from the first.
    Raises:
      RunError: the folder, the arguments or a checkpoint do not allow it, or the loss diverged.
      seejax.digits.DataError: the data cannot be had.
      seejax.parallel.DistributedError: the processes do not agree on arguments or data.
    """
    workdir = Path(workdir)
    _check_workdir(workdir, config, resume)
    if use_wandb and not importlib.util.find_spec("wandb"):
        raise RunError("--wandb needs the package wandb: pip install wandb")

    if mesh is not None and config.batch_size % mesh.size:
        raise RunError(
            f"batch_size {config.batch_size}: it is split evenly over {mesh.size} devices, "
            f"so a multiple of {mesh.size} is needed"
        )

    splits = [digits.load(config.dataset, split, data_dir) for split in digits.SPLITS]
    train_split, test_split = (jax.tree.map(jnp.asarray, split) for split in splits)
    n = len(train_split.labels)
    if config.batch_size > n:
        raise RunError(f"batch_size {config.batch_size}: {config.dataset} has {n} examples")
    init_key, order_key = jax.random.split(jax.random.key(config.seed))
    network = classifier(config.model, train_split.images.shape[1:])
    state = create_state(init_key, network, train_split.images[:1], config.learning_rate)
    if mesh is not None:  # all processes meet here, and none has written anything before
        state, train_split, test_split, _ = parallel.replicate(
            (state, train_split, test_split, _fingerprint(config, resume)), mesh
        )

    first = jax.process_index() == 0
    try:
        if first:
            _write_config(workdir, config)
    except OSError as error:
        raise RunError(f"{workdir} cannot be written ({error.strerror})") from error
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("config.json")
        seen = np.array((workdir / "config.json").exists())
        if not multihost_utils.process_allgather(seen).all():
            raise RunError(f"{workdir} is not one folder that all processes see")
    options = ocp.CheckpointManagerOptions(
        max_to_keep=KEPT_CHECKPOINTS,
        enable_async_checkpointing=False,  # an epoch is told of when it is safe
        cleanup_tmp_directories=True,  # left by a process that was killed while it wrote
    )
    history: list[Epoch] = []
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(
            ocp.CheckpointManager((workdir / "checkpoints").absolute(), options=options)
        )
        last = checkpoints.latest_step()
        if last is not None:
            state, history = _restore(checkpoints, last, state)
            if first:
                say(f"resumed after epoch {last}")
        if len(history) > config.epochs:
            raise RunError(f"{workdir} has {len(history)} epochs already, {config.epochs} asked")
        records = []
        if first:
            records.append(stack.enter_context(_tensorboard(workdir, config)))
        if first and use_wandb:
            records.append(stack.enter_context(_wandb(workdir, config)))
        for record in records:
            for epoch in history:
                record(epoch)
        bar = tqdm(
            range(len(history) + 1, config.epochs + 1),
            initial=len(history),
            total=config.epochs,
            unit="epoch",
            disable=None if first else True,  # None: unless stderr is a terminal
            leave=False,
        )
        for number in bar:
            order = digits.epoch_order(jax.random.fold_in(order_key, number), n, config.batch_size)
            if mesh is not None:
                order = parallel.shard(order, mesh, axis=1)
            state, sums = train_epoch(state, *train_split, order)
            test = evaluate(state, *test_split).means()
            epoch = {"epoch": number, **sums.means()}
            epoch |= {f"test_{name}": value for name, value in test.items()}
            epoch |= {"time": time.time()}
            if not all(map(math.isfinite, epoch.values())):
                raise RunError(
                    f"the loss of epoch {number} is {epoch['loss']}: lower --learning-rate"
                )
            history.append(epoch)
            checkpoints.save(
                number,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state),
                    # Declared for a dict, but whatever JSON can say is written.
                    history=ocp.args.JsonSave(history),  # pyrefly: ignore[bad-argument-type]
                ),
            )
            for record in records:
                record(epoch)
            if first:
                say(
                    f"epoch {number:{len(str(config.epochs))}}/{config.epochs}   "
                    "loss {loss:.4f}  accuracy {accuracy:.4f}   "
                    "test: loss {test_loss:.4f}  accuracy {test_accuracy:.4f}".format_map(epoch)
                )
    return state, history


def _fingerprint(*values: object) -> np.ndarray:
    """Four numbers that stand for any values: JAX compares processes by arrays."""
    digest = hashlib.blake2b(repr(values).encode(), digest_size=16).digest()
    return np.frombuffer(digest, np.uint32)


def _restore(
    checkpoints: ocp.CheckpointManager, step: int, template: TrainState
) -> tuple[TrainState, list[Epoch]]:
    args = ocp.args.Composite(
        state=ocp.args.StandardRestore(template), history=ocp.args.JsonRestore()
    )
    try:
        saved = checkpoints.restore(step, args=args)
    except Exception as error:  # Orbax and TensorStore raise whatever the broken file led to
        raise RunError(
            f"checkpoint {step} of {checkpoints.directory} cannot be read "
            f"({type(error).__name__}): delete its folder to resume from the one before"
        ) from error
    return saved["state"], saved["history"]
