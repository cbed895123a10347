"""The commands of this package, one a line, each with the extra that it needs."""

COMMANDS = {  # what stands behind `python -m`: the extra that it needs, and what it does
    "seejax.see": ("", "draw a function of a file, and again at each save"),
    "seejax.errors": ("", "say what an error of JAX means, and its cure"),
    "seejax.today": ("today", "find names that JAX, Flax and Optax have given up"),
    "seejax.training": ("training", "train a classifier of handwritten digits; it can be resumed"),
    "seejax.predict": ("training", "ask a trained classifier, or export it as one program"),
}

if __name__ == "__main__":
    for command, (extra, does) in COMMANDS.items():
        needs = f'  (pip install "seejax[{extra}]")' if extra else ""
        print(f"python -m {command:<16} {does}{needs}")
    print("Each of them has --help.")
