"""Fair measuring: every contender in its own process, taking turns, checked before it is timed."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

BENCH = Path(__file__).resolve().parent
Arrays = dict[str, np.ndarray]


class ContenderError(Exception):
    """A contender that cannot be measured, and why; no traceback of ours."""


class Contender(NamedTuple):
    """Who is measured: a script in an environment, and the case that it prepares."""

    name: str
    python: str
    script: Path
    case: dict[str, Any]
    environ: dict[str, str] = {}  # noqa: RUF012 - never written
    environment: str = "jax"  # the name under which its versions are recorded


class Worker:
    """The running process of a contender."""

    def __init__(self, contender: Contender, folder: Path, timeout_s: float = 600) -> None:
        self.contender, self.timeout_s = contender, timeout_s
        self.output = folder / f"{contender.name}.npz"
        self.log = open(folder / f"{contender.name}.log", "w+b")  # noqa: SIM115 - see close
        self.process = subprocess.Popen(
            [contender.python, BENCH / "worker.py", contender.script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=contender.environ or None,
            cwd=folder,
            start_new_session=True,  # Ctrl-C is for the parent, who then closes its workers
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
          ContenderError: the process ended, or said nothing for timeout_s.
        """
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(self.timeout_s):
                raise self.failure(f"said nothing for {self.timeout_s:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise self.failure(f"ended with status {self.process.wait()}")
        return json.loads(line)

    def failure(self, what: str) -> ContenderError:
        self.log.seek(0)
        said = self.log.read().decode(errors="replace").strip().splitlines()[-12:]
        return ContenderError(f"{self.contender.name} {what}; its stderr:\n" + "\n".join(said))

    def prepare(self) -> tuple[dict[str, Any], Arrays]:
        """Let it compile; return its answer and the arrays that it computed."""
        answer = self.ask(case=self.contender.case, save=str(self.output))
        with np.load(self.output) as arrays:
            return answer, dict(arrays)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()


@contextlib.contextmanager
def workers(contenders: Sequence[Contender]) -> Iterator[dict[str, Worker]]:
    """The processes of the contenders, ended with the block, however it ends."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running = {}
        for contender in contenders:
            running[contender.name] = worker = Worker(contender, Path(folder))
            stack.callback(worker.close)
        yield running


def differences(name: str, got: Arrays, reference: Arrays, tolerance: Mapping) -> dict[str, float]:
    """The largest absolute difference from the reference of each array that has a tolerance.

    Raises:
      ContenderError: one is above its tolerance: a wrong answer is not worth timing.
    """
    found = {}
    for key, limit in tolerance.items():
        if got[key].shape != reference[key].shape:
            raise ContenderError(
                f"{name}: {key} has shape {got[key].shape}, not {reference[key].shape}"
            )
        distance = np.abs(got[key].astype(np.float64) - reference[key])
        wrong = ~(distance <= limit)  # so that NaN is wrong
        if wrong.any():
            raise ContenderError(
                f"{name}: {key} differs by {distance.max():.2g}, allowed is {limit:g} "
                f"({wrong.sum()} of {wrong.size} entries)"
            )
        found[key] = float(f"{distance.max():.3g}")
    return found


def take_turns(
    running: Mapping[str, Worker],
    rounds: int,
    first: int = 0,
    warmups: int = 1,
    warm_s: float = 0.0,
    repeats: int = 1,
    pause_s: float = 0.05,
) -> dict[str, list[float]]:
    """Seconds of every contender in every round: the median of its repeats in that turn.

    In a round each has one turn, so that a busy moment of the machine meets all of them; who
    begins changes from round to round; `first` counts the rounds before. The pause lets the threads
    of the last one go to sleep; the calls before the repeats, so many and for so long, bring the
    next one's caches and memory back.
    """
    names = list(running)
    seconds = {name: [] for name in names}
    for turn in range(first, first + rounds):
        begin = turn % len(names)
        for name in names[begin:] + names[:begin]:
            time.sleep(pause_s)
            answer = running[name].ask(warmups=warmups, warm_s=warm_s, repeats=repeats)
            seconds[name].append(float(np.median(answer["seconds"])))
    return seconds


def quartiles(values: Sequence[float]) -> list[float]:
    """The first quartile, the median, the third.

    >>> quartiles([1.0, 2.0, 3.0, 4.0, 100.0])
    [2.0, 3.0, 4.0]
    """
    return [float(f"{q:.4g}") for q in np.percentile(values, [25, 50, 75])]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Quartiles of the ratio within a round: what slows a whole round down cancels.

    >>> ratios([2.0, 20.0, 2.0], [1.0, 10.0, 1.0])
    [2.0, 2.0, 2.0]
    """
    return quartiles(np.divide(above, below))


def cores(limit: int) -> int:
    """Keep this process and its workers on so many cores; return how many they are."""
    if not hasattr(os, "sched_setaffinity"):  # macOS
        return os.cpu_count() or 1
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:limit])
    return len(os.sched_getaffinity(0))


TUNING = "XLA_ JAX_ TF_ KERAS_ OMP_ KMP_ MKL_ TORCH CUDA_VISIBLE PYTHON MALLOC_ GLIBC_ LD_PRELOAD"

# glibc gives the memory of large arrays back, or keeps it, by small accidents of their order; then
# every call meets its pages anew, and takes twice as long, or does not. Here all contenders keep
# what they have freed, and in one place: the places of single threads are given back all the same.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_ARENA_MAX": "1",
}


def environ(keep_memory: bool = True, **more: str) -> dict[str, str]:
    """This process' variables without those that would tune one library and not the others."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(tuple(TUNING.split()))}
    kept |= KEEP_MEMORY if keep_memory else {}
    return kept | {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"} | more


def say(who: str, what: str) -> None:
    print(f"{who:>8} │ {what}", file=sys.stderr, flush=True)
