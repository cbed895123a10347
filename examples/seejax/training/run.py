"""A run: one piece of an epoch after another, in a folder, from wherever it had got to."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from seejax.training import digits, folder, parallel, records
from seejax.training.checkpoints import Checkpoints
from seejax.training.classifier import classifier
from seejax.training.config import Config, RunError
from seejax.training.records import Epoch
from seejax.training.steps import TrainState, create_state, evaluate, train_epoch

PIECE = 50
"""Steps in one program: between two of them a run can be asked to stop, and can be saved."""


class Stopped(Exception):
    """The run was asked to stop. All that it had done is saved; the message says how far it is."""


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
    """Run all epochs, or those that are left.

    Args:
      config: the hyperparameters; when resuming, those of the run in `workdir`, except for what
        may be changed.
      workdir: the folder of this run; without a checkpoint in it unless resuming. gs:// and s3://
        need the packages gcsfs and s3fs.
      resume: go on from the last checkpoint that is as it was saved; from the start if there is
        none.
      save_every: at least so many steps lie between two checkpoints; 0: one after each epoch.
      best: also keep the checkpoint of the epoch with the lowest loss of validation.
      profile: trace the second piece of this run into workdir/profile.
      use_wandb: log to W&B, too.
      data_dir: where TFDS keeps its data; None for its default.
      say: is given one line for each epoch. Where it ends in "saved", the checkpoint of that epoch
        is on the disk.
      asked_to_stop: is asked every PIECE steps; of several processes all stop when one is asked.
      mesh: from `seejax.training.parallel.mesh`, to split each batch over its devices. Several
        processes all call this, with one `workdir` that all of them see; the first alone logs
        and says anything.
    Returns:
      The final training state, and the history with an entry for each epoch from the first.
    Raises:
      RunError: the folder, the arguments or a checkpoint do not allow it, or the loss diverged.
      Stopped: it was asked to, and has saved what it had.
      seejax.training.digits.DataError: the data cannot be had.
      seejax.training.parallel.DistributedError: the processes do not agree on arguments or data.
    """
    workdir = folder.path(workdir)
    folder.check(workdir, config, resume)
    if use_wandb:
        records.check_wandb()
    if save_every < 0:
        raise RunError(f"save_every {save_every}: 0 or more steps are needed")
    if mesh is not None and config.batch_size % mesh.size:
        raise RunError(
            f"batch_size {config.batch_size}: it is split evenly over {mesh.size} devices, "
            f"so a multiple of {mesh.size} is needed"
        )

    splits = {
        name: jax.tree.map(jnp.asarray, digits.load(config.dataset, name, data_dir))
        for name in digits.SPLITS
    }
    n = len(splits["train"].labels)
    if config.batch_size > n:
        raise RunError(f"batch_size {config.batch_size}: {config.dataset} has {n} examples")
    epoch_steps = n // config.batch_size
    total = config.epochs * epoch_steps
    init_key, order_key = jax.random.split(jax.random.key(config.seed))
    images = splits["train"].images
    dtype = jnp.bfloat16 if config.bf16 else jnp.float32
    network = classifier(config.model, images.shape[1:], dtype=dtype)
    state = create_state(init_key, network, images[:1], config.make_optimizer(total))
    if mesh is not None:  # all processes meet here, and none has written anything before
        parallel.assert_same((config, resume, save_every, best))
        state, splits = parallel.replicate((state, splits), mesh)
    images, labels = splits["train"]

    first = jax.process_index() == 0
    speak = say if first else lambda line: None
    with contextlib.ExitStack() as stack:
        with _together():
            if first:
                stack.enter_context(folder.locked(workdir))
                folder.check(workdir, config, resume)  # another may have been quicker
        with _together():
            if not workdir.exists() and folder.is_local(workdir):
                raise RunError(f"{workdir} is not one folder that all processes see")
        checkpoints = Checkpoints(folder.absolute(workdir) / folder.CHECKPOINTS, best)
        stack.callback(checkpoints.close)

        step, history, totals = 0, [], np.zeros(3)
        if found := (checkpoints.restore(state) if resume else None):
            step, state, saved, damaged = found
            history, totals = saved["history"], np.array(saved["totals"])
            for line in damaged:
                speak(f"{line}; it was moved to {workdir / 'damaged'}")
        if step > total:
            raise RunError(f"{workdir} has {len(history)} epochs already, {config.epochs} asked")
        with _together():
            if first:
                folder.write_config(workdir, config)
        if found:
            within = f", {step % epoch_steps} steps further" if step % epoch_steps else ""
            speak(f"resumed after epoch {step // epoch_steps}{within}")

        tell_all = []
        if first:
            tell_all.append(stack.enter_context(records.tensorboard(workdir, config)))
        if first and use_wandb:
            tell_all.append(stack.enter_context(records.wandb(workdir, config)))
        for epoch in history:
            for tell in tell_all:
                tell(epoch)

        saved_at, pieces, untold = step, 0, list[tuple[Epoch, str]]()

        def told_when_safe() -> None:
            checkpoints.wait()
            for epoch, line in untold:
                for tell in tell_all:
                    tell(epoch)
                speak(line)
            untold.clear()

        def save(best_of: float | None = None) -> None:
            nonlocal saved_at
            if bad := _not_finite(state):
                raise Diverged(f"{bad} is not finite after step {step}: the training diverged")
            told_when_safe()
            run = {"config": vars(config), "history": [*history], "totals": totals.tolist()}
            checkpoints.save(step, state, run, best_of)
            saved_at = step

        def due() -> bool:
            return step - saved_at >= save_every

        bar = tqdm(
            range(step // epoch_steps + 1, config.epochs + 1),
            initial=len(history),
            total=config.epochs,
            unit="epoch",
            disable=None if first else True,  # None: unless stderr is a terminal
            leave=False,
        )
        for number in bar:
            if _patience_is_over(history, config.early_stopping):
                break
            order = digits.epoch_order(jax.random.fold_in(order_key, number), n, config.batch_size)
            for begin in range(step % epoch_steps, epoch_steps, PIECE):
                if not parallel.everywhere(not asked_to_stop()):
                    if step > saved_at:
                        save()
                    told_when_safe()
                    raise Stopped(f"stopped at step {step}, in epoch {number}")
                batches = order[begin : begin + PIECE]
                if mesh is not None:
                    batches = parallel.shard(batches, mesh, axis=1)
                traced = profile and pieces == 1  # the first one compiles
                where = os.fspath(workdir / "profile")
                with jax.profiler.trace(where) if traced else contextlib.nullcontext():
                    state, sums = train_epoch(state, images, labels, batches)
                    sums = jax.device_get(sums)
                for i in np.flatnonzero(~np.isfinite(sums.loss))[:1]:
                    raise Diverged(
                        f"the loss of step {step + i + 1}, in epoch {number}, is {sums.loss[i]}"
                    )
                # In pieces, as a run has done that was stopped between two of them: the same bits.
                totals += [part.sum(dtype=np.float64) for part in sums]
                step, pieces = step + len(batches), pieces + 1
                if untold and not checkpoints.busy():
                    told_when_safe()
                if save_every and due() and step % epoch_steps:
                    save()
            loss, correct, count = totals.tolist()
            epoch = {"epoch": number, "loss": loss / count, "accuracy": correct / count}
            for split in ("validation", "test"):
                means = evaluate(state, *splits[split]).means()
                epoch |= {f"{split}_{name}": value for name, value in means.items()}
            for name, value in epoch.items():
                if not math.isfinite(value):
                    raise Diverged(f"the {name} of epoch {number} is {value}")
            epoch |= {"learning_rate": config.learning_rate, "time": time.time()}
            history.append(epoch)
            totals = np.zeros(3)
            line = (
                f"epoch {number:{len(str(config.epochs))}}/{config.epochs}   "
                "loss {loss:.4f}  accuracy {accuracy:.4f}   validation: "
                "loss {validation_loss:.4f}  accuracy {validation_accuracy:.4f}"
            ).format_map(epoch)
            last = number == config.epochs or _patience_is_over(history, config.early_stopping)
            if due() or last:
                save(epoch["validation_loss"])
                line += "   saved"
            untold.append((epoch, line))
        told_when_safe()
        guess = math.log(len(np.unique(labels)))
        if history[-1]["loss"] > guess:
            speak(
                f"warning: a loss of {history[-1]['loss']:.4g} is worse than that of guessing, "
                f"{guess:.4g}: lower the learning rate"
            )
    return state, history


class Diverged(RunError):
    """A number is infinite or NaN; the message says which, and when. What was saved is good."""


def _patience_is_over(history: list[Epoch], patience: int) -> bool:
    losses = [epoch["validation_loss"] for epoch in history]
    return 0 < patience <= len(losses) - 1 - int(np.argmin(losses)) if losses else False


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
