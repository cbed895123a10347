"""Processes that tests start: read while they run, so that none waits for us, and ended in time.

Each is the first of a group of its own. What a test has not ended itself, conftest.py ends.
"""

import contextlib
import os
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable

import psutil

LIMIT_S = 300  # for a busy machine; what is well takes seconds
SIZE = 24, 80  # of a terminal: rows, columns

started: list["Process"] = []


def wait_until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Return when the condition holds; fail when it does not within the limit."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"not within {limit_s} s"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Stream:
    """What a process has written so far to one of its outputs, read by a thread to its end."""

    def __init__(self, descriptor: int) -> None:
        self.data = b""
        self.descriptor = descriptor
        self.thread = threading.Thread(target=self.drain, daemon=True)
        self.thread.start()

    def drain(self) -> None:
        with contextlib.suppress(OSError):  # so a terminal ends when its last writer is gone
            while data := os.read(self.descriptor, 65536):
                self.data += data
        os.close(self.descriptor)

    @property
    def text(self) -> str:
        return self.data.decode("utf8", "replace")


class Process:
    """A running process.

    Args:
      command: the program and its arguments, each made a string.
      terminal: its stderr is a terminal.
      merge: its stderr goes where its stdout does.
      options: for `subprocess.Popen`, such as env and cwd.
    """

    def __init__(self, *command: object, terminal: bool = False, merge: bool = False, **options):
        ours, theirs = os.openpty() if terminal else os.pipe()
        if terminal:
            termios.tcsetwinsize(theirs, SIZE)
        out, stdout = os.pipe()
        self.popen = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT if merge else theirs,
            start_new_session=True,
            **options,
        )
        os.close(stdout)
        os.close(theirs)
        self.out, self.err = Stream(out), Stream(ours)
        started.append(self)

    def wait_for(self, text: str, stream: str = "out", limit_s: float = LIMIT_S) -> None:
        """Return when `text` was written; fail when the process ends without it."""
        where = getattr(self, stream)
        wait_until(lambda: text in where.text or not where.thread.is_alive(), limit_s)
        assert text in where.text, self.end(limit_s)

    def end(self, limit_s: float = LIMIT_S) -> tuple[int, str, str]:
        """Wait for its end; return its status and all that it wrote to stdout and stderr."""
        try:
            self.popen.wait(limit_s)
            for stream in (self.out, self.err):
                stream.thread.join(limit_s)
                assert not stream.thread.is_alive(), "it left a process that holds its output"
        except subprocess.TimeoutExpired:
            self.kill()
            said = f"{self.out.text}\n{self.err.text}"
            raise AssertionError(f"did not end within {limit_s} s; it said:\n{said}") from None
        return self.popen.returncode, self.out.text, self.err.text

    def send(self, how: signal.Signals, group: bool = False) -> None:
        """Send a signal to the process, or to its group as a terminal does."""
        (os.killpg if group else os.kill)(self.popen.pid, how)

    def kill(self) -> None:
        """End it, and what it has started in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


def stop_all() -> None:
    """End every process that is left, and see its outputs closed."""
    while started:
        process = started.pop()
        process.kill()
        for stream in (process.out, process.err):
            stream.thread.join(LIMIT_S)
