"""The command line: python -m seejax.training."""

import dataclasses
import logging
import os
import shlex
import signal
import sys
from typing import Annotated

import jax
import tyro
from tqdm import tqdm
from tyro.conf import OmitArgPrefixes, arg

from seejax.training import configured, digits, folder, parallel
from seejax.training.config import Config
from seejax.training.configured import train
from seejax.training.folder import Refused, RunError
from seejax.training.run import Diverged, Stopped
from seejax.training.signals import Signals

PROGRAM = "python -m seejax.training"


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where it is kept, and how it is run this time. --resume takes none of it from the run: give
    it again, as the line to go on with does that a stopped run prints."""

    workdir: Annotated[str, arg(metavar="DIR")] = ""
    """The folder of this run, or gs://..., s3://...; else runs/ and what is not the default."""
    resume: bool = False
    """Go on with the run in --workdir; hyperparameters that are not given are that run's."""
    data_dir: Annotated[str, arg(metavar="DIR")] = ""
    """Where TFDS keeps data; else TFDS_DATA_DIR or ~/tensorflow_datasets."""
    save_every: Annotated[int, arg(metavar="STEPS")] = 0
    """At least so many steps between two checkpoints; 0: one after each epoch."""
    best: bool = False
    """Keep the checkpoint of the lowest loss of validation, too."""
    wandb: bool = False
    """Log to Weights & Biases, too; WANDB_MODE=offline works."""
    profile: bool = False
    """Trace some steps into DIR/profile."""


@dataclasses.dataclass(frozen=True)
class DistributedOptions:
    """Several processes, each with the same arguments."""

    distributed: bool = False
    """Be one of them; in SLURM, Kubernetes or on a cloud TPU the rest is detected."""
    coordinator: Annotated[str, arg(metavar="HOST:PORT")] = ""
    """Process 0, and a port that is free there."""
    num_processes: Annotated[int | None, arg(metavar="N")] = None
    """How many, this one included."""
    process_id: Annotated[int | None, arg(metavar="I")] = None
    """Which one this is: 0 to N - 1, not the same."""
    timeout_s: Annotated[int, arg(metavar="S")] = 60
    """How long to wait for the others."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Train a classifier, of handwritten digits or of your own data. It can be killed and resumed.

    Exit status: 0 done, 1 it went wrong, 2 it was refused and nothing was changed,
    130 stopped by Ctrl-C, 143 by SIGTERM; both have saved what there was.
    """

    training: OmitArgPrefixes[Config] = dataclasses.field(default_factory=Config)
    run: OmitArgPrefixes[RunOptions] = dataclasses.field(default_factory=RunOptions)
    processes: OmitArgPrefixes[DistributedOptions] = dataclasses.field(
        default_factory=DistributedOptions
    )


def _parse(argv: list[str] | None, config: Config | None = None) -> Options:
    default = Options() if config is None else Options(config)
    return tyro.cli(Options, prog=PROGRAM, args=argv, default=default)


def _go_on(options: Options) -> str:
    """The line that resumes this run; the hyperparameters are in its folder."""
    run = dataclasses.replace(options.run, resume=True)
    words = []
    for part, usual in ((run, RunOptions()), (options.processes, DistributedOptions())):
        for name, value in vars(part).items():
            if value != getattr(usual, name):
                words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return f"{PROGRAM} {shlex.join(words)}"


def _write(sentence: str) -> None:
    """A line to stderr in one piece: threads of JAX and of Gloo write there as well."""
    sys.stderr.write(f"{sentence}\n")  # `print` writes the end of a line by itself
    sys.stderr.flush()


def _refuse(message: object) -> None:
    _write(f"{PROGRAM}: error: {message}")


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit status.

    >>> main(["--epochs", "0"])
    2
    """
    for name in ("absl", "asyncio"):  # Orbax and TFDS report each file; what matters is raised
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        options = _parse(argv)
        workdir = folder.path(options.run.workdir or configured.default(options.training))
        if options.run.resume:
            options = _parse(argv, configured.saved_config(workdir))
        config, run, several = options.training, options.run, options.processes
        options = dataclasses.replace(options, run=dataclasses.replace(run, workdir=f"{workdir}"))
        folder.check(workdir, vars(config), run.resume)
        go_on = _go_on(options)
        if several.distributed:
            _join(several)
        elif several != DistributedOptions():
            raise RunError("an address or a number of processes needs --distributed")
    except (RunError, ValueError) as error:
        _refuse(error)
        return 2
    except parallel.DistributedError as error:
        return _failed(str(error))
    signals = Signals()
    try:
        with signals.caught():
            _, history = train(
                config,
                workdir,
                resume=run.resume,
                save_every=run.save_every,
                best=run.best,
                profile=run.profile,
                use_wandb=run.wandb,
                data_dir=run.data_dir or None,
                say=lambda line: (tqdm.write(line, sys.stdout), sys.stdout.flush()),
                asked_to_stop=signals.asked,
                mesh=parallel.mesh() if several.distributed else None,
            )
    except Stopped as stopped:
        if jax.process_index() == 0:
            _write(f"{stopped}; go on with: {go_on}")
        return 128 + (signals.received or signal.SIGTERM)
    except (RunError, digits.DataError, parallel.DistributedError, OSError) as error:
        rate = f" --learning-rate {min(config.learning_rate / 10, Config.learning_rate):g}"
        hint = f"; go on, with a lower rate: {go_on}{rate}" if isinstance(error, Diverged) else ""
        return _failed(f"{error}{hint}", status=2 if isinstance(error, Refused) else 1)
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        first_line = str(error).splitlines()[0]
        return _failed(
            f"process {jax.process_index()} cannot go on ({first_line}): if another has died, "
            f"its own messages say why; go on with: {go_on}"
        )
    if jax.process_index() > 0:
        return 0
    final = history[-1]
    print(
        f"{final['epoch']} epochs, loss {final['loss']:.4f}, test accuracy "
        f"{final['test_accuracy']:.4f}. See it: tensorboard --logdir {shlex.quote(str(workdir))}"
    )
    return 0


def _join(several: DistributedOptions) -> None:
    """Become one of several processes."""
    # Gloo, which sums over CPUs, reports its connections to the file descriptor of stdout.
    sys.stdout = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, closefd=False)
    os.dup2(2, 1)
    parallel.initialize(
        several.coordinator or None,
        several.num_processes,
        several.process_id,
        timeout_s=several.timeout_s,
    )


def _failed(message: str, status: int = 1) -> int:
    _refuse(message)
    if jax.distributed.is_initialized():
        os._exit(status)  # at a normal exit JAX would wait for processes that wait for this one
    return status
