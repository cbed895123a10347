"""Checkpoints that are read back only if each bit is as it was, written while training goes on."""

import contextlib
import hashlib
import json
import shutil
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers

from seejax.training import folder, parallel
from seejax.training.folder import RunError

KEPT = 3
MARGIN = 2**20  # bytes, for all that is not arrays
BEST = "best"
CHANGED = "its SHA-256 is not that of what was saved"

Run = dict[str, Any]
"""What JSON can say of a run: its hyperparameters, its history, how far its epoch has got."""


class Damaged(Exception):
    """A checkpoint is not what was saved; the message says what is wrong."""


def _shapes(state: Any) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): jax.typeof(leaf).str_short() for path, leaf in leaves}


def _digest(run: Run, arrays: Any = ()) -> str:
    """SHA-256 of every bit that is saved. The format of the files has no such sum of its own for
    the arrays: a bit that a disk has turned would be trained on."""
    sha = hashlib.sha256(json.dumps(run, sort_keys=True).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(arrays):
        sha.update(jax.tree_util.keystr(path).encode())
        sha.update(np.ascontiguousarray(leaf))
    return sha.hexdigest()


def _cause(error: BaseException) -> str:
    """What lies under an error of Orbax, in a line."""
    while under := error.__cause__ or error.__context__:
        error = under
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


class Checkpoints:
    """The checkpoints of a run: the last few, and with `keep_best` that of the best validation.

    Args:
      place: where they are; each in a folder of its own, named by the steps taken.
      keep_best: keep the one of the lowest `best` that `save` was given, too.
    """

    def __init__(self, place: epath.Path, keep_best: bool = False) -> None:
        kept: list = [checkpoint_managers.LatestN(KEPT)]
        metric: dict[str, Any] = {}
        if keep_best:
            metric = {"best_fn": lambda metrics: metrics[BEST], "best_mode": "min"}  # saved with it
            kept.append(
                checkpoint_managers.BestN(
                    get_metric_fn=metric["best_fn"],
                    reverse=True,
                    n=1,
                    keep_checkpoints_without_metrics=False,
                )
            )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=checkpoint_managers.AnyPreservationPolicy(kept),
            cleanup_tmp_directories=True,  # left by a process that was killed while it wrote
            **metric,
        )
        self._folder = place
        self._manager = ocp.CheckpointManager(place, options=options)
        self._writing: int | None = None
        self.last: int | None = None
        """The steps of the last checkpoint that is on the disk."""

    def save(self, step: int, state: Any, run: Run, best: float | None = None) -> None:
        """Begin to write a checkpoint; `wait` says when it is safe. `state` may be given away."""
        self.wait()
        self._check_space(state)
        run = run | {"shapes": _shapes(state)}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            run=ocp.args.JsonSave({"run": run, "sha256": [_digest(run), _digest(run, state)]}),
        )
        self._writing = step
        try:
            self._manager.save(step, args=items, metrics=None if best is None else {BEST: best})
        except jax.errors.JaxRuntimeError:  # of another process, not of the disk
            raise
        except Exception as error:
            raise self._not_written(error) from error

    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._manager.is_saving_in_progress()

    def wait(self) -> None:
        """Return when what was saved is on the disk.

        Raises:
          RunError: it could not be written.
        """
        try:
            self._manager.wait_until_finished()
        except jax.errors.JaxRuntimeError:  # of another process, not of the disk
            raise
        except Exception as error:
            raise self._not_written(error) from error
        self.last, self._writing = self._writing or self.last, None

    def _check_space(self, state: Any) -> None:
        """Before the disk is full: Orbax and TensorBoard fail in threads, with many words."""
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) + MARGIN
        free = shutil.disk_usage(self._folder).free if folder.is_local(self._folder) else needed
        if not parallel.everywhere(free >= needed):
            raise RunError(
                f"the next checkpoint needs {needed / 2**20:.1f} MiB, and {free / 2**20:.1f} are "
                f"left at {self._folder}; {self._safe()}"
            )

    def _safe(self) -> str:
        return "none is safe" if self.last is None else f"that of step {self.last} is safe"

    def _not_written(self, error: Exception) -> RunError:
        if jax.process_index() == 0:  # what is half written would keep a full disk full
            for left in self._folder.glob(f"{self._writing}.*"):
                left.rmtree(missing_ok=True)
        return RunError(
            f"the checkpoint of step {self._writing} cannot be written to {self._folder} "
            f"({_cause(error)}); {self._safe()}"
        )

    def restore(self, template: Any) -> tuple[int, Any, Run, list[str]] | None:
        """The last checkpoint that is as it was saved.

        Args:
          template: arrays of the shapes and shardings that the state shall have.
        Returns:
          Its steps, state and run, and a line for each later one that is damaged; those are moved
          aside, not deleted. None if there is no checkpoint.
        Raises:
          RunError: all are damaged, or of another network or optimizer. Nothing was changed.
        """
        damaged: dict[int, str] = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            read: tuple[Any, Run] | None = None
            try:
                read = self._read(step, template)
            except Damaged as error:
                damaged[step] = str(error)
            if parallel.everywhere(read is not None) and read:
                self._move_aside(damaged)
                self.last = step
                lines = [f"checkpoint {k} is damaged: {why}" for k, why in damaged.items()]
                return step, *read, lines
            damaged.setdefault(step, "another process cannot read it")
        if damaged:
            reasons = "; ".join(f"{step}: {reason}" for step, reason in damaged.items())
            raise RunError(f"no checkpoint in {self._folder} can be read ({reasons})")
        return None

    def _read(self, step: int, template: Any) -> tuple[Any, Run]:
        try:
            saved = self._manager.restore(step, args=ocp.args.Composite(run=ocp.args.JsonRestore()))
            run, sums = saved["run"]["run"], saved["run"]["sha256"]
        except Exception as error:  # Orbax raises whatever the broken file led to
            raise Damaged(_cause(error)) from error
        if _digest(run) != sums[0]:
            raise Damaged(CHANGED)
        ours, shapes = _shapes(template), run["shapes"]
        for path in [*ours, *shapes]:
            if shapes.get(path) != ours.get(path):
                other = "optimizer" if path.startswith(".opt_state") else "network"
                raise RunError(
                    f"checkpoint {step} is of another {other}: {path} is "
                    f"{shapes.get(path, 'not')} there, {ours.get(path, 'not')} here"
                )
        try:
            args = ocp.args.Composite(state=ocp.args.StandardRestore(template))
            state = self._manager.restore(step, args=args)["state"]
        except Exception as error:
            raise Damaged(_cause(error)) from error
        if _digest(run, state) != sums[1]:
            raise Damaged(CHANGED)
        return state, run

    def _move_aside(self, damaged: dict[int, str]) -> None:
        if not damaged:
            return
        if jax.process_index() == 0:
            aside = self._folder.parent / "damaged"
            aside.mkdir(exist_ok=True)
            for step in damaged:
                target = aside / str(step)
                if target.exists():
                    target.rmtree()
                (self._folder / str(step)).rename(target)
        parallel.everywhere(True)  # it is done for all
        self._manager.reload()

    def close(self) -> None:
        # While one is being written, something else has ended the run, and that is what is told.
        ignored = (Exception,) if self._writing is not None else ()
        with contextlib.suppress(*ignored):
            self._manager.close()
