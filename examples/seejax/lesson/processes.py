"""A few Python processes that are one JAX program and run the functions that you send them.

    pair = Processes(2, devices=4)     # two processes, each with four pretended CPU devices

    @pair.run                          # in both; `counts` is what each returned, in order
    def counts():
        return jax.process_index(), jax.device_count()

    pair.start(counts_again, on=[0])   # in one of them only
    pair.wait(limit_s=2)               # TimeoutError if it has not come back by then

For looking at what several processes see, from a notebook; a training starts its processes by a
command (`seejax.training`). Every wait has an end, and no process outlives the one that made it.
"""

import ast
import contextlib
import inspect
import io
import multiprocessing.connection
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

LIMIT_S = 60


def address() -> str:
    """An address of this machine with a free port, at which processes of this machine can meet.

    To whoever asks for any port Linux gives one from 32768 on, macOS and Windows one from 49152 on:
    it could be one that was free here a moment ago. So this is one of those below.

    Raises:
      OSError: no port is free.

    >>> host, port = address().split(":")
    >>> host, int(port) < 32768
    ('127.0.0.1', True)
    """
    ports = random.SystemRandom().sample(range(20_000, 32_768), 100)  # whatever seed is set
    for port in ports:
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return f"127.0.0.1:{port}"
    raise OSError(f"{len(ports)} ports were tried, and none is free")


class RemoteError(RuntimeError):
    """What went wrong in the processes; `errors` has the message of each, by its index."""

    def __init__(self, errors: Mapping[int, str]) -> None:
        self.errors = dict(errors)
        super().__init__("\n".join(f"process {i}: {text}" for i, text in self.errors.items()))


class Processes:
    """Processes that have met by `jax.distributed.initialize`, each with devices of its own.

    A function is sent as its source, so it takes nothing from around it but its arguments and the
    names that the processes have: jax, jnp, np, multihost_utils, and whatever an earlier function
    made `global`. Arguments and results are pickled: plain values and NumPy arrays.

    Args:
      n: how many processes.
      devices: how many CPU devices each of them pretends to have.
      limit_s: how long they may take to come together.
      heartbeat_s: after how long without a sign of life JAX counts one as dead.
    Raises:
      ValueError: less than one process or device.
      TimeoutError, RemoteError: they did not come together.

    >>> Processes(0)
    Traceback (most recent call last):
    ValueError: 0 processes of 4 devices: at least 1 of each is needed
    """

    def __init__(
        self, n: int = 2, devices: int = 4, *, limit_s: float = LIMIT_S, heartbeat_s: int = 10
    ) -> None:
        if n < 1 or devices < 1:
            raise ValueError(f"{n} processes of {devices} devices: at least 1 of each is needed")
        coordinator = address()
        kept = {k: v for k, v in os.environ.items() if "_proxy" not in k.lower()}
        kept |= {"JAX_PLATFORMS": "cpu"}
        flags = f"{kept.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        kept |= {"XLA_FLAGS": flags.strip()}  # of a flag given twice, XLA takes the last
        self._logs, self._popens, self._connections = [], [], []
        self._busy: set[int] = set()
        self._answers: dict[int, tuple[bool, Any, str]] = {}
        for i in range(n):
            ours, theirs = multiprocessing.connection.Pipe()
            log = tempfile.TemporaryFile()  # noqa: SIM115, closed by close()
            command = [theirs.fileno(), coordinator, n, i, heartbeat_s]
            popen = subprocess.Popen(
                [sys.executable, "-m", "seejax.lesson.processes", *map(str, command)],
                pass_fds=[theirs.fileno()],
                env=kept,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            theirs.close()
            self._logs.append(log)
            self._popens.append(popen)
            self._connections.append(ours)
            self._busy.add(i)
        try:
            self.wait(limit_s)
        except BaseException:
            self.close()
            raise

    def run(self, f: Callable, *args: Any, limit_s: float = LIMIT_S) -> list:
        """Run f(*args) in every process and wait: what each returned, in order."""
        self.start(f, *args)
        return list(self.wait(limit_s).values())

    def start(self, f: Callable, *args: Any, on: Iterable[int] | None = None) -> None:
        """Begin f(*args) in every process, or in those whose index is in `on`; do not wait."""
        on = range(len(self._popens)) if on is None else sorted(set(on))
        if not set(on) <= set(range(len(self._popens))):
            raise ValueError(f"on={list(on)}: there are processes 0 to {len(self._popens) - 1}")
        if waiting := (self._busy | set(self._answers)) & set(on):
            raise RuntimeError(f"process {min(waiting)} has not been waited for: wait()")
        request = _source(f), f.__name__, args
        for i in on:
            self._busy.add(i)
            with contextlib.suppress(OSError):  # it has ended, which wait() will tell
                self._connections[i].send(request)

    def wait(self, limit_s: float = LIMIT_S) -> dict[int, Any]:
        """What was started and is not answered yet: {index: what it returned}.

        Raises:
          TimeoutError: some have not come back; they go on, and a later wait() has all answers.
          RemoteError: all have come back, some by an exception, or because they ended.
        """
        end = time.monotonic() + limit_s
        while left := {i: self._connections[i] for i in self._busy}:
            rest = max(0.0, end - time.monotonic())
            ready = multiprocessing.connection.wait(list(left.values()), rest)
            if not ready:
                names = ", ".join(map(str, sorted(left)))
                raise TimeoutError(f"not back within {limit_s:g} s: process {names}")
            for i in [i for i, connection in left.items() if connection in ready]:
                self._busy.remove(i)
                try:
                    self._answers[i] = left[i].recv()
                except (EOFError, OSError):
                    self._answers[i] = False, self._end(i), ""
        answers, self._answers = dict(sorted(self._answers.items())), {}
        for i, (_, _, printed) in answers.items():
            for line in printed.splitlines():
                print(f"{i} │ {line}")
        if errors := {i: value for i, (well, value, _) in answers.items() if not well}:
            raise RemoteError(errors)
        return {i: value for i, (_, value, _) in answers.items()}

    def kill(self, i: int) -> None:
        """End a process as `kill -9` does."""
        self._popens[i].kill()
        self._popens[i].wait()

    def said(self, i: int) -> str:
        """All that a process and its libraries have written to stdout and stderr."""
        self._logs[i].seek(0)
        return self._logs[i].read().decode("utf8", "replace")

    def _end(self, i: int) -> str:
        status = self._popens[i].wait(LIMIT_S)
        return f"ended by {signal.Signals(-status).name if status < 0 else f'status {status}'}"

    def close(self) -> None:
        """End all of them; they leave without waiting for each other."""
        for popen, connection in zip(self._popens, self._connections, strict=True):
            connection.close()
            popen.kill()
            popen.wait()
        for log in self._logs:
            log.close()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _source(f: Callable) -> str:
    """The source of a function, without its decorators."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(f)))
    except (OSError, TypeError, SyntaxError):
        tree = ast.Module([], [])
    found = tree.body[0] if tree.body else None
    if not isinstance(found, ast.FunctionDef) or getattr(f, "__closure__", None):
        raise TypeError(
            "send a function made by def that encloses no variable: it goes there as its source"
        )
    found.decorator_list = []
    return ast.unparse(found)


def _serve(descriptor: int, coordinator: str, n: int, i: int, heartbeat_s: int) -> None:
    """What each process does: meet the others, then run what comes until the connection ends."""
    connection = multiprocessing.connection.Connection(descriptor)
    requests: queue.SimpleQueue = queue.SimpleQueue()

    def read() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                requests.put(connection.recv())
        os._exit(0)  # whoever started this process is gone; it may be waiting in a collective

    threading.Thread(target=read, daemon=True).start()
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils

    jax.distributed.initialize(coordinator, n, i, heartbeat_timeout_seconds=heartbeat_s)
    scope: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np, "multihost_utils": multihost_utils}
    connection.send((True, None, ""))
    while True:
        source, name, args = requests.get()
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                exec(source, scope)
                answer = True, scope[name](*args), out.getvalue()
            connection.send(answer)
        except BaseException as error:
            connection.send((False, f"{type(error).__name__}: {error}", out.getvalue()))


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
