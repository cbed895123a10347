"""The command line: python -m seejax.training."""

import argparse
import contextlib
import dataclasses
import functools
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
from tqdm import tqdm

from seejax import digits, parallel
from seejax.classifier import MODELS
from seejax.training.run import Config, RunError, _check_workdir, _workdir_config, train


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
