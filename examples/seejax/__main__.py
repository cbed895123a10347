"""`python -m seejax`: the commands of this package, one a line, with the extra that each needs."""

from typing import NamedTuple

from seejax.commands import install


class Command(NamedTuple):
    extra: str
    does: str


COMMANDS = {
    "seejax.see": Command("", "draw a function of a file, and again at each save"),
    "seejax.report": Command("", "run a script: what JAX compiled for it, where, and why"),
    "seejax.practice": Command("", "do the book's exercises, checked at each save"),
    "seejax.errors": Command("", "say what an error of JAX means, and its cure"),
    "seejax.today": Command("today", "find names that JAX, Flax and Optax have given up"),
    "seejax.training": Command("training", "train a classifier; it can be killed and resumed"),
    "seejax.predict": Command("training", "ask a trained classifier, or export it"),
}


def main() -> None:
    for name, command in COMMANDS.items():
        needs = command.extra and f"[{command.extra}]"
        print(f"python -m {name:<16} {command.does:<50} {needs}".rstrip())
    print(f"--help says more. [training] is an extra: {install('training')}")


if __name__ == "__main__":
    main()
