"""Train a classifier of handwritten digits, from a command line that can be killed at any moment.

    python -m seejax.training --dataset digits --model linen --epochs 20 --workdir runs/first
    python -m seejax.training --workdir runs/first --resume

On several machines it is the same command in each. In a cluster that JAX knows (SLURM, Kubernetes,
cloud TPU) add `--distributed`; elsewhere tell each process who it is:

    python -m seejax.training --distributed --coordinator host:1234 --num-processes 2 --process-id 0

    steps      pure functions, of use without the rest: a training state goes in, the next comes out
    run        one epoch after another, in a folder
    command    the command line

After each epoch a run writes into `workdir`:

    config.json      the hyperparameters
    checkpoints/     Orbax: the whole training state and the history so far, for the last 3 epochs
    tensorboard/     event files of two runs, train and test, each with `loss` and `accuracy`
    wandb/           with --wandb; WANDB_MODE=offline needs no account and no network

An epoch's order of examples depends on the seed and the number of the epoch alone, so there is
nothing else to save: a run that was killed and resumed ends in the same bits as one that was not.
"""

from seejax.training.command import main
from seejax.training.config import Config, RunError
from seejax.training.records import Epoch
from seejax.training.run import Diverged, Stopped, train
from seejax.training.steps import (
    Sums,
    TrainState,
    create_state,
    evaluate,
    losses_and_logits,
    train_epoch,
    train_step,
)

__all__ = [
    "Config",
    "Diverged",
    "Epoch",
    "RunError",
    "Stopped",
    "Sums",
    "TrainState",
    "create_state",
    "evaluate",
    "losses_and_logits",
    "main",
    "train",
    "train_epoch",
    "train_step",
]
