"""What was recorded elsewhere: speeds beside peers, PyTorch's gradients, a run under Slurm.

In a clone of the book's repository a record is read where it is written; a package carries copies.
"""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLACES = (HERE, HERE.parents[1] / "cluster", HERE.parents[2] / "bench")


def load(name: str) -> dict[str, Any]:
    """A record, by the name of its file.

    Raises:
      FileNotFoundError: nothing of this name was recorded.

    >>> load("same_model.json")["loss"] > 0, load("slurm.json")["killed"]["JobState"]
    (True, 'FAILED')
    >>> load("dreams.json")
    Traceback (most recent call last):
    ...
    FileNotFoundError: no record is called dreams.json
    """
    for path in (place / name for place in PLACES):
        if path.is_file():
            return json.loads(path.read_text("utf8"))
    raise FileNotFoundError(f"no record is called {name}")
