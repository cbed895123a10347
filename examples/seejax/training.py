"""Train a classifier of handwritten digits, from a command line that can be killed at any moment.

    python -m seejax.training --dataset digits --model linen --epochs 20 --workdir runs/first
    python -m seejax.training --workdir runs/first --resume

On several machines it is the same command in each. In a cluster that JAX knows (SLURM, Kubernetes,
cloud TPU) add `--distributed`; elsewhere tell each process who it is:

    python -m seejax.training --distributed --coordinator host:1234 --num-processes 2 --process-id 0

The functions above `Config` are pure, and of use without the rest: a training state goes in, the
next one comes out. What is below runs them, epoch by epoch, and after each epoch writes into
`workdir`:

    config.json      the hyperparameters
    checkpoints/     Orbax: the whole training state and the history so far, for the last 3 epochs
    tensorboard/     event files of two runs, train and test, each with `loss` and `accuracy`
    wandb/           with --wandb; WANDB_MODE=offline needs no account and no network

An epoch's order of examples depends on the seed and the number of the epoch alone, so there is
nothing else to save: a run that was killed and resumed ends in the same bits as one that was not.
"""

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
import logging
import math
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training.train_state import TrainState
from jax.experimental import multihost_utils
from tensorboardX import summary
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tqdm import tqdm

from seejax import digits, parallel
from seejax.classifier import MODELS, Classifier, Params, classifier

KEPT_CHECKPOINTS = 3


_adam = functools.cache(optax.adam)  # another object would make jit trace everything again


class Sums(NamedTuple):
    """Sums over examples; two of them add up, as two means do not."""

    loss: jax.Array  # float32
    correct: jax.Array  # int32
    count: jax.Array  # int32

    def means(self) -> dict[str, float]:
        """Loss and accuracy for each example, over all that was summed, whatever the batches were.

        >>> Sums(jnp.array([3.0, 1.0]), jnp.array([1, 1]), jnp.array([3, 1])).means()
        {'loss': 1.0, 'accuracy': 0.5}
        """
        loss, correct, count = (np.asarray(x).sum(dtype=np.float64) for x in self)
        return {"loss": float(loss / count), "accuracy": float(correct / count)}


def create_state(
    key: jax.Array, network: Classifier, images: jax.Array, learning_rate: float = 1e-3
) -> TrainState:
    """A training state before the first step: parameters, and Adam's moments at zero.

    Args:
      key: PRNG key of the initial parameters.
      network: what `seejax.classifier.classifier` returns.
      images: as the network takes them; only the shape matters.
      learning_rate: Adam's.
    Returns:
      `TrainState` with `params`, `opt_state`, `step` (int32 0), `apply_fn` and `tx`.

    >>> images = jnp.zeros((1, 8, 8, 1), jnp.uint8)
    >>> state = create_state(jax.random.key(0), classifier("linen"), images)
    >>> int(state.step), sum(x.size for x in jax.tree.leaves(state.params))
    (0, 26122)
    """
    state = TrainState.create(
        apply_fn=network.apply, params=network.init(key, images), tx=_adam(learning_rate)
    )
    return state.replace(step=jnp.int32(0))  # a Python 0 would be traced once more as an array


def losses_and_logits(
    params: Params, apply: Callable, images: jax.Array, labels: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Cross entropy of each example, float32 (batch,), and the logits, float32 (batch, classes)."""
    logits = apply(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels), logits


def _sums(losses: jax.Array, logits: jax.Array, labels: jax.Array, present: jax.Array) -> Sums:
    correct = (logits.argmax(-1) == labels) & present
    loss = jnp.where(present, losses, 0.0).sum()
    return Sums(loss, correct.sum(dtype=jnp.int32), present.sum(dtype=jnp.int32))


@jax.jit
def train_step(state: TrainState, images: jax.Array, labels: jax.Array) -> tuple[TrainState, Sums]:
    """One step of the optimizer on the mean loss of a batch.

    Args:
      state: before the step.
      images: uint8 (batch, height, width, 1).
      labels: int32 (batch,).
    Returns:
      The state after the step; sums over the batch, by the parameters before it.
    """

    def mean_loss(params: Params) -> tuple[jax.Array, Sums]:
        losses, logits = losses_and_logits(params, state.apply_fn, images, labels)
        return losses.mean(), _sums(losses, logits, labels, jnp.ones(labels.shape, bool))

    grads, sums = jax.grad(mean_loss, has_aux=True)(state.params)
    with jax.numpy_dtype_promotion("standard"):  # Optax raises a float to the power of an int32
        return state.apply_gradients(grads=grads), sums


@functools.partial(jax.jit, donate_argnames="state")
def train_epoch(
    state: TrainState, images: jax.Array, labels: jax.Array, order: jax.Array
) -> tuple[TrainState, Sums]:
    """One epoch as one program: a scan of `train_step` over the batches.

    `state` is donated: the new one takes its memory, and the old one is gone.

    Args:
      state: before the epoch.
      images: uint8 (n, height, width, 1); labels: int32 (n,). All of them, on the device.
      order: int32 (batches, batch), from `seejax.digits.epoch_order`.
    Returns:
      The state after the epoch; sums with one entry for each batch.
    """

    def step(state: TrainState, batch: jax.Array) -> tuple[TrainState, Sums]:
        return train_step(state, images[batch], labels[batch])

    return jax.lax.scan(step, state, order)


@functools.partial(jax.jit, static_argnames="batch_size")
def evaluate(
    state: TrainState, images: jax.Array, labels: jax.Array, batch_size: int = 256
) -> Sums:
    """Sums over all examples, in batches; the last is filled up, and what fills it is not counted.

    Args:
      state: only its parameters are used.
      images: uint8 (n, height, width, 1); labels: int32 (n,).
      batch_size: how many at a time; it decides the memory used, not the result.
    Returns:
      Sums with one entry for each batch.
    """
    n = len(labels)
    batches = -(-n // batch_size)

    def split(array: jax.Array) -> jax.Array:
        missing = [(0, batches * batch_size - n)] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, missing).reshape(batches, batch_size, *array.shape[1:])

    def batch_sums(batch: tuple[jax.Array, jax.Array, jax.Array]) -> Sums:
        images, labels, present = batch
        losses, logits = losses_and_logits(state.params, state.apply_fn, images, labels)
        return _sums(losses, logits, labels, present)

    return jax.lax.map(batch_sums, (split(images), split(labels), split(jnp.ones(n, bool))))


# --- a run: hyperparameters, a folder, and one epoch after another


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


# --- the command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m seejax.training",
        description="Train a classifier of handwritten digits. It can be killed and resumed.",
        epilog="With --resume, what is not given is taken from the run in --workdir.",
    )
    # Nothing is filled in for what was not given: --resume must know the difference.
    add = functools.partial(parser.add_argument, default=argparse.SUPPRESS)
    default = Config()
    add("--dataset", choices=digits.DATASETS, help=f"default: {default.dataset}")
    add("--model", choices=MODELS, help=f"default: {default.model}")
    add("--epochs", type=int, metavar="N", help=f"default: {default.epochs}")
    add("--batch-size", type=int, metavar="N", help=f"default: {default.batch_size}")
    add(
        "--learning-rate", type=float, metavar="X", help=f"Adam's; default: {default.learning_rate}"
    )
    add("--seed", type=int, metavar="N", help=f"of parameters and order; default: {default.seed}")
    parser.add_argument(
        "--workdir",
        type=Path,
        metavar="DIR",
        help="the folder of this run; default: runs/DATASET-MODEL-SEED",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="where TFDS keeps data; default: TFDS_DATA_DIR or ~/tensorflow_datasets",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in --workdir")
    parser.add_argument(
        "--wandb",
        action="store_true",
        help="log to Weights & Biases, too; WANDB_MODE=offline works",
    )
    several = parser.add_argument_group("several processes, each with the same arguments")
    several.add_argument(
        "--distributed",
        action="store_true",
        help="be one of them; in SLURM, Kubernetes or on a cloud TPU the rest is detected",
    )
    add = functools.partial(several.add_argument, default=argparse.SUPPRESS)
    add("--coordinator", metavar="HOST:PORT", help="process 0, and a port that is free there")
    add("--num-processes", type=int, metavar="N", help="how many, this one included")
    add("--process-id", type=int, metavar="I", help="which one this is: 0 to N - 1, not the same")
    add("--timeout-s", type=int, metavar="S", help="how long to wait for the others; default: 60")
    return parser


@contextlib.contextmanager
def _ctrl_c_ends(go_on: str, workdir: Path) -> Iterator[None]:
    """Ctrl-C ends the process at once, which a run endures at any moment, and says how to go on.

    Not by KeyboardInterrupt: a library in which it comes up may make another error of it.
    """

    def stop(*_: object) -> None:
        saved = (workdir / "config.json").exists()
        hint = f"go on with: {go_on}" if saved else "nothing was saved"
        os.write(2, f"\nstopped; {hint}\n".encode())
        os._exit(130)

    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup
    if ours:
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit status.

    >>> main(["--epochs", "0"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    parser = _parser()
    args = parser.parse_args(argv)
    names = [field.name for field in dataclasses.fields(Config)]
    given = {name: value for name, value in vars(args).items() if name in names}
    workdir = args.workdir
    logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax and TFDS report each file they touch
    try:
        config = Config(**given)
        workdir = workdir or Path("runs", f"{config.dataset}-{config.model}-{config.seed}")
        if args.resume:
            config = Config(**(_workdir_config(workdir) | given))
        _check_workdir(workdir, config, args.resume)
        addresses = ("coordinator", "num_processes", "process_id", "timeout_s")
        addresses = {name: value for name, value in vars(args).items() if name in addresses}
        if addresses and not args.distributed:
            raise RunError(f"--{next(iter(addresses)).replace('_', '-')} needs --distributed")
        if args.distributed:
            # Gloo, which sums over CPUs, reports its connections to the file descriptor of stdout.
            sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, closefd=False)
            os.dup2(2, 1)
            parallel.initialize(**addresses)
    except (RunError, ValueError) as error:
        parser.error(str(error))
    except parallel.DistributedError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr, flush=True)
        os._exit(1)  # JAX still waits in a thread, and has much to say about it at a normal exit
    try:
        with _ctrl_c_ends(f"{parser.prog} --workdir {workdir} --resume", workdir):
            _, history = train(
                config,
                workdir,
                resume=args.resume,
                use_wandb=args.wandb,
                data_dir=args.data_dir,
                say=lambda line: (tqdm.write(line, sys.stdout), sys.stdout.flush()),
                mesh=parallel.mesh() if args.distributed else None,
            )
    except (RunError, digits.DataError, parallel.DistributedError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr, flush=True)
        if jax.process_count() > 1:
            os._exit(1)  # at a normal exit JAX would wait for processes that wait for this one
        return 1
    if jax.process_index() > 0:
        return 0
    final = history[-1]
    print(
        f"{final['epoch']} epochs, loss {final['loss']:.4f}, test accuracy "
        f"{final['test_accuracy']:.4f}. See it: tensorboard --logdir {workdir}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
