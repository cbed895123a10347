"""What the commands of this package share: the reader's language, a missing extra."""

import contextlib
import locale
import os
import sys
from collections.abc import Iterator


def install(extra: str) -> str:
    """How an extra is installed: from the package index, or in a clone of the repository.

    >>> install("today")
    'pip install "seejax[today]" (in a clone: pip install -e ".[today]")'
    """
    return f'pip install "seejax[{extra}]" (in a clone: pip install -e ".[{extra}]")'


@contextlib.contextmanager
def needing(extra: str, command: str) -> Iterator[None]:
    """Import what an extra brings; where a package is missing, one sentence and exit status 2."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "seejax":  # a mistake of ours, which no installation cures
            raise
        sentence = f"python -m {command} needs the package {missing}: {install(extra)}"
        print(sentence, file=sys.stderr)
        sys.exit(2)


def language() -> str:
    """The language of the reader, as the system has it: "zh", or "en" for all others."""
    variables = ("LC_ALL", "LC_MESSAGES", "LANG")  # POSIX: the first that is set counts
    name = next(filter(None, map(os.environ.get, variables)), None) or locale.getlocale()[0] or ""
    return "zh" if name.lower().startswith(("zh", "chinese")) else "en"
