"""Runs of a reader's file, each in a process of its own, and what a save of the file changes.

`seejax.see` and `seejax.practice` follow files with it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

POLL_S = 0.1  # how often files are looked at
GRACE_S = 10.0  # beyond the limit, for a process that cannot end itself


class Run:
    """One fresh interpreter that runs a file; it ends within the limit, or is ended.

    It leads a group of its own: Ctrl-C in the terminal is for us, and whatever the file has
    started ends with it. What the file prints goes to our stderr.

    Args:
      child: the program that does it, which ends with `seejax.see._child.answered`.
      question: its first argument.
      limit_s: seconds.
      environment: what it gets beside ours.
    """

    def __init__(
        self,
        child: str,
        question: str,
        limit_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="seejax-")
        self.answer, self.hung = (Path(self.folder.name, name) for name in ("answer", "hung"))
        self.limit_s, self.started = limit_s, time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-P", child, question, self.answer, self.hung, str(limit_s)],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, **(environment or {})},
            start_new_session=True,
        )

    def poll(self) -> dict[str, Any] | None:
        """What came of it, or None while it runs.

        Returns:
          The answer; {"hung": where it was, innermost first} if it was not done within the limit;
          {"status": of the process} if it ended without an answer. And its "seconds".
        """
        ran_s = time.monotonic() - self.started
        if self.process.poll() is None and ran_s < self.limit_s + GRACE_S:
            return None
        status = self.process.poll()
        hung = self.hung.read_text("utf-8") if self.hung.exists() else ""
        if self.answer.exists() and status == 0:
            came = json.loads(self.answer.read_text("utf-8"))
        elif status is None or hung:
            came = {"hung": hung.splitlines()[1:]}
        else:
            came = {"status": status}
        self.end()
        return {**came, "seconds": ran_s}

    def end(self) -> None:
        """End it and what it has started, now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def finished(run: Run) -> dict[str, Any]:
    """Wait for the end of a run, which has one."""
    try:
        while (answer := run.poll()) is None:
            time.sleep(0.02)
        return answer
    finally:
        if run.process.returncode is None:
            run.end()


State = dict[str, tuple[int, int, int]]


def stated(files: Iterable[str]) -> State:
    """What a save changes of each file; one that is missing, as while it is saved, is left out."""
    found = {}
    for file in files:
        with contextlib.suppress(OSError):
            stat = os.stat(file)
            found[file] = stat.st_mtime_ns, stat.st_size, stat.st_ino
    return found
