"""Train a classifier, from a command line or from Python, so that it can be killed at any moment.

    python -m seejax.training --dataset digits --model linen --epochs 20 --workdir runs/first
    python -m seejax.training --workdir runs/first --resume

Of your own data, with a network of your own; `data` says how the data may look:

    python -m seejax.training --data photos --model net.py:Net --workdir runs/own

    splits = training.read("photos")            # or training.split(examples, labels)
    state, history = training.fit(Net, splits, optax.adam(1e-3), "runs/own", epochs=20)

On several machines it is the same command in each. In a cluster that JAX knows (SLURM, Kubernetes,
cloud TPU) add `--distributed`; elsewhere tell each process who it is:

    python -m seejax.training --distributed --coordinator host:1234 --num-processes 2 --process-id 0

    steps          pure functions, of use without the rest: a state goes in, the next comes out
    optimizers     what updates it, from its description
    run            one piece of an epoch after another, in a folder: of any network and data
    data           your own data, and what is set aside of it
    network        your own network
    config         the hyperparameters that the command line has
    configured     a run of them
    folder         of a run: locked while it runs
    checkpoints    written meanwhile, and read back only if each bit is as it was
    signals        Ctrl-C and SIGTERM
    records        TensorBoard and W&B
    command        the command line
    predict        what a trained network says, and its export

A run writes into `workdir`:

    config.json      the hyperparameters
    checkpoints/     Orbax: the whole training state and the history so far; the last 3, each in a
                     folder named by the steps that were taken
    tensorboard/     event files of three runs, train, validation and test: `loss` and `accuracy`
    wandb/           with --wandb; WANDB_MODE=offline needs no account and no network
    profile/         with --profile: open it with XProf or Perfetto
    damaged/         checkpoints that were not what had been saved, moved aside by --resume
    lock             one run at a time; it says nothing when no process holds it

Ctrl-C and SIGTERM save and say how to go on. An epoch's order of examples depends on the seed and
the number of the epoch alone, and an epoch is done in pieces of the same steps each time: a run
that was stopped or killed, and resumed, ends in the same bits as one that was not.
"""

from typing import TYPE_CHECKING

from seejax import lazy

if TYPE_CHECKING:
    from seejax.training.command import main
    from seejax.training.config import Config
    from seejax.training.configured import train
    from seejax.training.data import Splits, read, split
    from seejax.training.folder import Refused, RunError
    from seejax.training.optimizers import OPTIMIZERS, SCHEDULES, optimizer, schedule
    from seejax.training.records import Epoch
    from seejax.training.run import Diverged, Stopped, fit
    from seejax.training.steps import (
        Sums,
        TrainState,
        create_state,
        evaluate,
        scan_epoch,
        train_epoch,
        train_step,
    )

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "Config",
    "Diverged",
    "Epoch",
    "Refused",
    "RunError",
    "Splits",
    "Stopped",
    "Sums",
    "TrainState",
    "create_state",
    "evaluate",
    "fit",
    "main",
    "optimizer",
    "read",
    "scan_epoch",
    "schedule",
    "split",
    "train",
    "train_epoch",
    "train_step",
]

__getattr__, __dir__ = lazy.attach(__name__)
