"""Kernels forked from one Python that has imported what most pages import.

Importing JAX, Flax and Matplotlib takes a kernel two to six seconds; forking takes none. It is safe
because nothing in the server starts a thread or a backend of JAX before it forks: it just imports.

    python -m book.forkserver     # started by `ForkServer`; requests and answers are lines of JSON
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from jupyter_client.provisioning import LocalProvisioner

# What the pages import; what is missing here, a kernel imports by itself.
IMPORTS = ("IPython", "ipykernel.kernelapp", "numpy", "jax.numpy", "flax.linen", "flax.nnx")
IMPORTS += ("optax", "matplotlib.pyplot")
INLINE = "module://matplotlib_inline.backend_inline"  # as a kernel that imports Matplotlib sets it
LOST = 255  # the exit status of a kernel whose server has ended


class ForkServer:
    """The process that forks kernels; it ends, and they with it, when this end is closed."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "book.forkserver"]
        pipe = subprocess.PIPE
        environment = {**os.environ, "MPLBACKEND": INLINE}
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment, start_new_session=True
        )
        self.lock = threading.Lock()  # one request at a time

    def ask(self, **request: Any) -> int | None:
        """Send a request; return the answer.

        Raises:
          OSError: the server has ended.
        """
        with self.lock:
            stdin, stdout = self.process.stdin, self.process.stdout
            assert stdin and stdout
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            if not (line := stdout.readline()):
                raise BrokenPipeError("the server of kernels has ended")
            return json.loads(line)

    def close(self) -> None:
        with self.lock, contextlib.suppress(OSError), self.process as process:
            process.stdin.close()  # pyrefly: ignore


class Forked:
    """A forked kernel, as `subprocess.Popen` would show it to Jupyter."""

    stdin = stdout = stderr = None

    def __init__(self, server: ForkServer, command: list[str], cwd: str, env: dict) -> None:
        self.server = server
        pid = server.ask(fork=command, cwd=cwd, env=env)
        assert pid
        self.pid: int = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                self.returncode = self.server.ask(poll=self.pid)
            except (OSError, ValueError):
                self.returncode = LOST
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + timeout if timeout is not None else None
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("kernel", timeout or 0)
            time.sleep(0.01)
        return self.returncode or 0

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class ForkedProvisioner(LocalProvisioner):
    """Gives Jupyter a kernel of `server` where it would start a Python anew."""

    server: ForkServer

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        environment = {name: str(value) for name, value in options["env"].items()}
        self.process = Forked(self.server, cmd, options["cwd"], environment)
        self.pid = self.pgid = self.process.pid  # pyrefly: ignore - it leads a session of its own
        self.cwd = options["cwd"]
        return self.connection_info


def run_kernel(command: list[str], cwd: str, env: dict[str, str]) -> None:
    """Become the kernel that a command line of Jupyter describes."""
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what was stdout spoke with the other end
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = command[command.index("ipykernel_launcher") :]
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


def serve() -> None:
    """Answer requests until there are none."""
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # ipykernel reads it now: a kernel ends with us
    for name in IMPORTS:
        with contextlib.suppress(ImportError):
            __import__(name)
    if sys.path[0] == os.getcwd():
        del sys.path[0]  # as ipykernel_launcher does
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if command := request.get("fork"):
            sys.stdout.flush()
            if not (answer := os.fork()):
                answers.close()
                run_kernel(command, request["cwd"], request["env"])
                os._exit(0)
        else:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)


if __name__ == "__main__":
    serve()
