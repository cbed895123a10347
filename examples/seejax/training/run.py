"""A run: one piece of an epoch after another, in a folder, from wherever it had got to."""

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import optax
from etils import epath
from tqdm import tqdm

from seejax.training import data, digits, folder, parallel, records
from seejax.training.checkpoints import Checkpoints
from seejax.training.classifier import Classifier
from seejax.training.data import Splits
from seejax.training.folder import Refused, RunError, Settings
from seejax.training.network import Network, wrapped
from seejax.training.network import check as check_network
from seejax.training.records import Epoch
from seejax.training.signals import Signals
from seejax.training.steps import TrainState, create_state, evaluate, train_epoch

PIECE = 50
"""Steps in one program: between two of them a run can be asked to stop, and can be saved."""


NOTED = ("learning_rate",)
"""Of the settings, what each entry of the history has as well: it may change on the way."""


class Stopped(Exception):
    """The run was asked to stop. All that it had done is saved; the message says how far it is."""


def fit(
    network: Network,
    splits: Splits,
    tx: optax.GradientTransformation,
    workdir: str | os.PathLike,
    *,
    epochs: int,
    batch_size: int = 32,
    seed: int = 0,
    early_stopping: int = 0,
    settings: Settings | None = None,
    resume: bool = False,
    save_every: int = 0,
    best: bool = False,
    profile: bool = False,
    use_wandb: bool = False,
    say: Callable[[str], object] = print,
    asked_to_stop: Callable[[], bool] | None = None,
    mesh: jax.sharding.Mesh | None = None,
) -> tuple[TrainState, list[Epoch]]:
    """Train any network to tell the classes of any data apart, in a folder, so that it can resume.

    Args:
      network: makes logits, float (batch, classes), of a batch of examples. A Linen module; a class
        or function that makes one; a class or function of NNX that takes `rngs`; or a `Classifier`.
        What learns otherwise than it is used is called with `train=True` in Linen, and is switched
        by `train()` and `eval()` in NNX.
      splits: `data.Splits`, or three pairs of examples (n, ...) and labels, integers (n,). The
        network is given them as they are; float64 becomes float32.
      tx: an optimizer of Optax. When resuming, one with the same kind of state.
      workdir: the folder of this run; without a checkpoint in it unless resuming. gs:// and s3://
        need the packages gcsfs and s3fs.
      epochs: passes over the training part; when resuming it may be another number.
      batch_size: examples in a step, over all devices.
      seed: of the parameters, of the order of examples, and of all that a step draws.
      early_stopping: end after so many epochs without a lower loss of validation; 0: never.
      settings: what else config.json and TensorBoard shall say of this run, for JSON. When resuming
        what both calls name has to be equal, but for `learning_rate` and `data`.
      resume: go on from the last checkpoint that is as it was saved; from the start if there is
        none.
      save_every: at least so many steps lie between two checkpoints; 0: one after each epoch.
      best: also keep the checkpoint of the epoch with the lowest loss of validation.
      profile: trace the second piece of this run into workdir/profile.
      use_wandb: log to W&B, too.
      say: is given one line for each epoch. Where it ends in "saved", the checkpoint of that epoch
        is on the disk.
      asked_to_stop: is asked every PIECE steps; of several processes all stop when one is asked.
        None: Ctrl-C and SIGTERM ask.
      mesh: from `seejax.training.parallel.mesh`, to split each batch over its devices. Several
        processes all call this, with one `workdir` that all of them see; the first alone logs
        and says anything.
    Returns:
      The final training state, and the history with an entry for each epoch from the first.
    Raises:
      Refused: the arguments do not fit each other or the run in `workdir`; nothing was changed.
      RunError: the folder or a checkpoint does not allow it, or the loss diverged.
      Stopped: it was asked to, and has saved what it had.
      seejax.training.parallel.DistributedError: the processes do not agree on arguments or data.

    >>> import tempfile
    >>> from flax import linen as nn
    >>> folder = tempfile.TemporaryDirectory()
    >>> x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    >>> splits = data.split(x, np.int32(x[:, 0] > 0))
    >>> _, history = fit(nn.Dense(2), splits, optax.adam(0.1), folder.name, epochs=2)
    epoch 1/2   loss ...  accuracy ...   validation: loss ...  accuracy ...   saved
    epoch 2/2   loss ...  accuracy ...   validation: loss ...  accuracy ...   saved
    ...
    >>> folder.cleanup()
    """
    name = getattr(network, "__name__", type(network).__name__)
    settings = {
        "model": name,
        **(settings or {}),
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "early_stopping": early_stopping,
    }
    workdir = folder.path(workdir)
    check_arguments(workdir, settings, resume, save_every, use_wandb, mesh)
    splits = Splits(*splits)
    data.check(splits)
    classes = data.class_names(splits)
    arrays = {
        part: (jnp.asarray(examples), jnp.asarray(labels, jnp.int32))
        for part, (examples, labels) in zip(data.PARTS, splits, strict=False)
    }
    first = arrays["train"][0][0]
    settings |= {"example": [*first.shape], "dtype": f"{first.dtype}", "classes": classes}
    settings |= {"columns": [*splits.columns], folder.SHA256: data.fingerprint(splits)}
    try:
        settings = json.loads(json.dumps(settings))
    except TypeError as error:
        raise Refused(f"settings: {error}") from error
    folder.check(workdir, settings, resume)
    network = wrapped(network)
    check_network(network, settings["model"], jax.typeof(first), len(classes))
    if mesh is not None:  # all processes meet here, and none has written anything before
        parallel.assert_same((settings, resume, save_every, best))
    is_first = jax.process_index() == 0
    talk = say if is_first else lambda line: None
    run = _Run(network, arrays, tx, workdir, settings, save_every, mesh, talk)
    with _claimed(workdir, settings, resume), contextlib.ExitStack() as stack:
        run.checkpoints = Checkpoints(folder.absolute(workdir) / folder.CHECKPOINTS, best)
        stack.callback(run.checkpoints.close)
        resumed = resume and run.restore()
        with _together():
            if is_first:
                folder.write_config(workdir, settings)
        if resumed:
            run.say_where()
        if is_first:
            run.records.append(stack.enter_context(records.tensorboard(workdir, settings)))
        if is_first and use_wandb:
            run.records.append(stack.enter_context(records.wandb(workdir, settings)))
        for epoch in run.history:
            run.record(epoch)
        asked = asked_to_stop
        if asked is None:
            signals = Signals()
            stack.enter_context(signals.caught())
            asked = signals.asked
        try:
            run.train(asked, workdir / "profile" if profile else None)
        except Stopped as stopped:
            if asked_to_stop is None:  # else who asked knows how to go on
                raise Stopped(f"{stopped}; go on with resume=True") from None
            raise
        run.warn_of_guessing()
    return run.state, run.history


def check_arguments(
    workdir: epath.Path,
    settings: Settings,
    resume: bool,
    save_every: int,
    use_wandb: bool,
    mesh: jax.sharding.Mesh | None,
) -> None:
    """Raise RunError for what can be known before any data is read; change nothing."""
    for name, least in (("epochs", 1), ("batch_size", 1), ("early_stopping", 0)):
        if settings[name] < least:
            raise Refused(f"{name} {settings[name]}: at least {least} is needed")
    if not 0 <= settings["seed"] < 2**32:
        raise Refused(f"seed {settings['seed']}: 0 to 2**32 - 1 is needed")
    folder.check(workdir, settings, resume)
    if use_wandb:
        records.check_wandb()
    if save_every < 0:
        raise RunError(f"save_every {save_every}: 0 or more steps are needed")
    if mesh is not None and settings["batch_size"] % mesh.size:
        raise RunError(
            f"batch_size {settings['batch_size']}: it is split evenly over {mesh.size} devices, "
            f"so a multiple of {mesh.size} is needed"
        )


class _Run:
    """A run that has begun: its training state, how far it has got, and what of it is not told yet.

    Attributes:
      step: how many steps have been taken, in all epochs.
      totals: sums over the steps of the epoch that is begun, as `steps.Sums` has them.
      saved_at: the step of the last checkpoint.
      untold: epochs that have ended, each with its line, since the last checkpoint that is safe.
      records: where each epoch is recorded; none but in the first process.
    """

    checkpoints: Checkpoints

    def __init__(
        self,
        network: Classifier,
        splits: dict[str, tuple[jax.Array, jax.Array]],
        tx: optax.GradientTransformation,
        workdir: epath.Path,
        settings: Settings,
        save_every: int,
        mesh: jax.sharding.Mesh | None,
        say: Callable[[str], object],
    ) -> None:
        self.settings, self.workdir, self.splits = settings, workdir, splits
        self.save_every, self.mesh, self.say = save_every, mesh, say
        examples, labels = splits["train"]
        self.examples, self.epochs = len(labels), settings["epochs"]
        self.batch_size = settings["batch_size"]
        if self.batch_size > self.examples:
            raise Refused(
                f"batch_size {self.batch_size}: there are {self.examples} examples to train on"
            )
        self.epoch_steps = self.examples // self.batch_size
        self.total_steps = self.epochs * self.epoch_steps
        init_key, self.order_key = jax.random.split(jax.random.key(settings["seed"]))
        self.state = create_state(init_key, network, examples[:1], tx)
        if mesh is not None:
            self.state, self.splits = parallel.replicate((self.state, splits), mesh)
        self.step = self.saved_at = self.pieces = 0
        self.history: list[Epoch] = []
        self.totals = np.zeros(3)
        self.untold: list[tuple[Epoch, str]] = []
        self.records: list[records.Record] = []

    # -- where it goes on --------------------------------------------------------------------------

    def restore(self) -> bool:
        """Go on from the last checkpoint that is as it was saved; whether there is one."""
        found = self.checkpoints.restore(self.state)
        if not found:
            return False
        self.step, self.state, saved, damaged = found
        self.saved_at = self.step
        self.history, self.totals = saved["history"], np.array(saved["totals"])
        for line in damaged:
            self.say(f"{line}; it was moved to {self.workdir / 'damaged'}")
        if self.step > self.total_steps:
            done = len(self.history)
            raise RunError(f"{self.workdir} has {done} epochs already, {self.epochs} asked")
        self.check_answers()
        return True

    def check_answers(self) -> None:
        """A network may have parameters of the same shapes and do something else with them."""
        if not self.history or self.totals.any():  # saved within an epoch: nothing to compare with
            return
        was = self.history[-1]["validation_loss"]
        now = evaluate(self.state, *self.splits["validation"]).means()["loss"]
        if not math.isclose(was, now, rel_tol=0.05, abs_tol=0.01):  # other devices, other rounding
            raise Refused(
                f"{self.settings['model']} does not compute what it did: with the parameters in "
                f"{self.workdir} its validation loss was {was:.4g}, and now it is {now:.4g}: "
                "resume with the network that was trained, or choose another folder"
            )

    def say_where(self) -> None:
        epochs, further = divmod(self.step, self.epoch_steps)
        self.say(
            f"resumed after epoch {epochs}" + (f", {further} steps further" if further else "")
        )

    # -- epochs and their pieces -------------------------------------------------------------------

    def train(self, asked_to_stop: Callable[[], bool], profile: epath.Path | None) -> None:
        """The epochs that are left, or until it is asked to stop."""
        numbers = tqdm(
            range(self.step // self.epoch_steps + 1, self.epochs + 1),
            initial=len(self.history),
            total=self.epochs,
            unit="epoch",
            disable=None if jax.process_index() == 0 else True,  # None: unless stderr is a terminal
            leave=False,
        )
        for number in numbers:
            if self.patience_is_over():
                break
            for batches in self.batches(number):
                if not parallel.everywhere(not asked_to_stop()):
                    self.stop(number)
                with contextlib.ExitStack() as stack:
                    if profile and self.pieces == 1:  # the first one compiles
                        stack.enter_context(jax.profiler.trace(os.fspath(profile)))
                    self.train_piece(number, batches)
                if self.untold and not self.checkpoints.busy():
                    self.tell_when_safe()
                if self.save_every and self.due() and self.step % self.epoch_steps:
                    self.save()
            self.end_epoch(number)
        self.tell_when_safe()

    def batches(self, number: int) -> Iterator[jax.Array]:
        """The pieces of an epoch that are left: of each the order, int32 (steps, batch)."""
        key = jax.random.fold_in(self.order_key, number)
        order = digits.epoch_order(key, self.examples, self.batch_size)
        for begin in range(self.step % self.epoch_steps, self.epoch_steps, PIECE):
            piece = order[begin : begin + PIECE]
            yield piece if self.mesh is None else parallel.shard(piece, self.mesh, axis=1)

    def train_piece(self, number: int, batches: jax.Array) -> None:
        images, labels = self.splits["train"]
        self.state, sums = train_epoch(self.state, images, labels, batches)
        sums = jax.device_get(sums)
        for i in np.flatnonzero(~np.isfinite(sums.loss))[:1]:
            raise Diverged(
                f"the loss of step {self.step + i + 1}, in epoch {number}, is {sums.loss[i]}"
            )
        # Piece by piece, so that a run which was stopped between two of them has the same bits.
        self.totals += [part.sum(dtype=np.float64) for part in sums]
        self.step, self.pieces = self.step + len(batches), self.pieces + 1

    def stop(self, number: int) -> NoReturn:
        if self.step > self.saved_at:
            self.save()
        self.tell_when_safe()
        raise Stopped(f"stopped at step {self.step}, in epoch {number}")

    def end_epoch(self, number: int) -> None:
        """Measure it, and save it where a checkpoint is due."""
        epoch = self.measured(number)
        self.history.append(epoch)
        self.totals = np.zeros(3)
        line = (
            f"epoch {number:{len(str(self.epochs))}}/{self.epochs}   "
            "loss {loss:.4f}  accuracy {accuracy:.4f}   validation: "
            "loss {validation_loss:.4f}  accuracy {validation_accuracy:.4f}"
        ).format_map(epoch)
        if self.due() or number == self.epochs or self.patience_is_over():
            self.save(epoch["validation_loss"])
            line += "   saved"
        self.untold.append((epoch, line))

    def measured(self, number: int) -> Epoch:
        """An epoch as the history has it."""
        loss, correct, count = self.totals.tolist()
        epoch = {"epoch": number, "loss": loss / count, "accuracy": correct / count}
        for split in ("validation", "test"):
            means = evaluate(self.state, *self.splits[split]).means()
            epoch |= {f"{split}_{name}": value for name, value in means.items()}
        for name, value in epoch.items():
            if not math.isfinite(value):
                raise Diverged(f"the {name} of epoch {number} is {value}")
        noted = {name: self.settings[name] for name in NOTED if name in self.settings}
        return epoch | noted | {"time": time.time()}

    def patience_is_over(self) -> bool:
        losses = [epoch["validation_loss"] for epoch in self.history]
        patience = self.settings["early_stopping"]
        return 0 < patience <= len(losses) - 1 - int(np.argmin(losses)) if losses else False

    # -- what is saved, and what is said of it -----------------------------------------------------

    def due(self) -> bool:
        return self.step - self.saved_at >= self.save_every

    def save(self, best_of: float | None = None) -> None:
        """Begin to write a checkpoint, after the last one is safe.

        Args:
          best_of: by which number it may be the best; None: within an epoch there is none.
        """
        if bad := _not_finite(self.state):
            raise Diverged(f"{bad} is not finite after step {self.step}: the training diverged")
        self.tell_when_safe()
        run = {
            "config": self.settings,
            "history": [*self.history],
            "totals": self.totals.tolist(),
        }
        self.checkpoints.save(self.step, self.state, run, best_of)
        self.saved_at = self.step

    def tell_when_safe(self) -> None:
        """Wait for the checkpoint that is being written, then record and say what it holds."""
        self.checkpoints.wait()
        for epoch, line in self.untold:
            self.record(epoch)
            self.say(line)
        self.untold.clear()

    def record(self, epoch: Epoch) -> None:
        for record in self.records:
            record(epoch)

    def warn_of_guessing(self) -> None:
        loss, guess = (
            self.history[-1]["loss"],
            math.log(len(np.unique(self.splits["train"][1]))),
        )
        if loss > guess:
            advice = "train for more epochs, or lower" if loss < 1.5 * guess else "lower"
            self.say(
                f"warning: a loss of {loss:.4g} is worse than that of guessing, "
                f"{guess:.4g}: {advice} the learning rate"
            )


@contextlib.contextmanager
def _claimed(workdir: epath.Path, settings: Settings, resume: bool) -> Iterator[None]:
    """The folder is this run's alone, and all its processes see it."""
    with contextlib.ExitStack() as stack:
        with _together():
            if jax.process_index() == 0:
                stack.enter_context(folder.locked(workdir))
                folder.check(workdir, settings, resume)  # another may have been quicker
        with _together():
            if not workdir.exists() and folder.is_local(workdir):
                raise RunError(f"{workdir} is not one folder that all processes see")
        yield


class Diverged(RunError):
    """A number is infinite or NaN; the message says which, and when. What was saved is good."""


@contextlib.contextmanager
def _together() -> Iterator[None]:
    """What goes wrong in one process, goes wrong in all: none waits for one that has given up."""
    error = None
    try:
        yield
    except RunError as raised:
        error = raised
    if not parallel.everywhere(error is None):
        raise error or RunError("another process cannot go on, and says why")


@jax.jit
def _finite(tree: object) -> object:
    def finite(x: jax.Array) -> jax.Array:
        floating = jnp.issubdtype(x.dtype, jnp.inexact)
        return jnp.isfinite(x).all() if floating else jnp.array(True)

    return jax.tree.map(finite, tree)


def _not_finite(tree: object) -> str:
    """The name of the first array that has an infinity or a NaN; empty if none has."""
    for path, finite in jax.tree_util.tree_leaves_with_path(_finite(tree)):
        if not finite:
            return jax.tree_util.keystr(path)
    return ""
