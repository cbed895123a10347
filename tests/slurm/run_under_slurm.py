"""make test-slurm: the book's training under a real Slurm, compared, killed, and resumed.

It starts a Slurm of one node (cluster.sh), submits examples/cluster/train.sbatch as a reader would,
and ends that Slurm again. When all is as it should be, what was seen goes into
examples/cluster/slurm.json, which the page on many processes shows.

Exit status: 0 all is well; 1 something is not; 3 no Slurm can be had here. Every wait has an end.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "tests" / "slurm" / "cluster.sh"
JOB = ROOT / "examples" / "cluster" / "train.sbatch"
RECORD = ROOT / "examples" / "cluster" / "slurm.json"
LIMIT_S = 300  # for a job; it takes twenty seconds on a calm machine
EPOCHS = 5
INTERRUPTED_AFTER = 2
RUNS = ("one", "two", "killed", "stopped")
TOLERANCE = 1e-5  # two devices add up the batch in another order
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint")
DONE = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


class Failure(Exception):
    """What is not as it should be, in one line."""


def say(text: str) -> None:
    print(f"test-slurm: {text}", flush=True)


def shell(*command: object, limit_s: float = 60, **options) -> str:
    """What a command says; a failure has its last lines."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=limit_s,
        stdin=subprocess.DEVNULL,
        **options,
    )
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()[-40:])
        raise Failure(f"{Path(str(command[0])).name} ended with {done.returncode}: {said}")
    return done.stdout


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {LIMIT_S} s")
        time.sleep(0.1)


class Slurm:
    """A folder to work in, and the environment that reaches the Slurm that runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {k: v for k, v in os.environ.items() if "_proxy" not in k.lower()}
        kept = {k: v for k, v in kept.items() if not k.startswith(("SLURM_", "JAX_", "XLA_"))}
        bin_folder = Path(sys.executable).parent  # `python` in the job file is this Python
        self.env = kept | {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "examples"),
            "TFDS_DATA_DIR": str(folder / "data"),
            "JAX_PLATFORMS": "cpu",
            "SLURM_CONF": str(folder / "slurm" / "slurm.conf"),
        }

    def __call__(self, *command: object, limit_s: float = 60) -> str:
        return shell(*command, env=self.env, cwd=self.folder, limit_s=limit_s)

    def submit(self, workdir: str, epochs: int = EPOCHS) -> "Job":
        options = [workdir, "--epochs", epochs]
        number = int(self("sbatch", "--parsable", JOB, *options))
        return Job(self, number, f"sbatch {JOB.name} {' '.join(map(str, options))}")

    def epochs(self, workdir: str) -> list[dict]:
        """The history in the last checkpoint."""
        found = (self.folder / workdir / "checkpoints").glob("[0-9]*")
        last = max(found, key=lambda path: int(path.name))
        return json.loads((last / "run" / "metadata").read_text("utf8"))["run"]["history"]


class Job:
    def __init__(self, slurm: Slurm, number: int, command: str) -> None:
        self.slurm, self.number, self.command = slurm, number, command

    def state(self) -> dict[str, str]:
        text = self.slurm("scontrol", "show", "job", "--oneliner", self.number)
        fields = dict(re.findall(r"(\S+?)=(\S*)", text))
        return {name: fields[name] for name in ("JobState", "ExitCode")}

    def log(self) -> list[str]:
        """What the job wrote, without what Gloo says of its connections, and tracebacks' frames."""
        file = self.slurm.folder / f"digits-{self.number}.log"
        text = file.read_text("utf8") if file.exists() else ""
        text = re.sub(rf"\b{re.escape(socket.gethostname().split('.')[0])}\b", "node", text)
        frame = re.compile(r"\d+:   |\d+: Traceback|.*\[Gloo\]")
        return [line for line in text.splitlines() if line and not frame.match(line)]

    def end(self) -> dict[str, str]:
        wait_until(lambda: self.state()["JobState"] in DONE, f"the end of {self.command}")
        return self.state()

    def kill(self, task: int) -> None:
        """kill -9 a process of the job's only step."""
        rows = self.slurm("scontrol", "listpids", f"{self.number}.0").splitlines()[1:]
        pids = [int(row.split()[0]) for row in rows if row.split()[4] == str(task)]
        os.kill(pids[0], signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM to the processes of its steps: what a preemption and a time limit begin with."""
        self.slurm("scancel", "--signal=TERM", self.number)

    def record(self) -> dict:
        return {"command": self.command, **self.state(), "log": self.log()}


def losses(history: list[dict]) -> list[list[float]]:
    return [[epoch["loss"], epoch["test_loss"]] for epoch in history]


BITS = """
import hashlib, sys
import jax, numpy as np
from seejax import training
config = training.Config(epochs=int(sys.argv[2]))
state, _ = training.train(config, sys.argv[1], resume=True, say=lambda line: None)
leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]
print(hashlib.sha256(b"".join(leaves)).hexdigest())
"""


def bits(slurm: Slurm, workdir: str) -> str:
    """A digest of the whole training state in the last checkpoint."""
    return slurm(sys.executable, "-c", BITS, workdir, EPOCHS, limit_s=LIMIT_S).strip()


def check(slurm: Slurm) -> dict:
    """All that is to be shown, as the record has it."""
    one = ["-m", "seejax.training", "--epochs", EPOCHS, "--workdir", "runs/one"]
    slurm(sys.executable, *one, limit_s=LIMIT_S)
    say("one process has trained, without Slurm")

    job = slurm.submit("runs/two")
    if job.end()["JobState"] != "COMPLETED":
        raise Failure(f"{job.command}: {job.state()}: {job.log()[-5:]}")
    two = job.record()
    pairs = zip(losses(slurm.epochs("runs/one")), losses(slurm.epochs("runs/two")), strict=True)
    apart = max(abs(x - y) for a, b in pairs for x, y in zip(a, b, strict=True))
    if apart > TOLERANCE:
        raise Failure(f"losses of one process and of two differ by {apart}")
    say(f"two processes have trained under Slurm: losses equal within {apart:.1e}")

    def interrupted(workdir: str, interrupt: Callable[[Job], None]) -> tuple[dict, dict]:
        """A job that is interrupted after an epoch or two, and the same line again, as recorded."""
        job = slurm.submit(workdir)
        seen = f"epoch {INTERRUPTED_AFTER}/"
        wait_until(lambda: any(seen in line for line in job.log()), f"epoch {INTERRUPTED_AFTER}")
        interrupt(job)
        begin = time.monotonic()
        if job.end()["JobState"] != "FAILED":
            raise Failure(f"the interrupted job: {job.state()}: {job.log()[-5:]}")
        first = job.record() | {"ended_s": round(time.monotonic() - begin, 1)}
        job = slurm.submit(workdir)
        if job.end()["JobState"] != "COMPLETED":
            raise Failure(f"{job.command}: {job.state()}: {job.log()[-5:]}")
        resumed = job.record()
        if not any("resumed after epoch" in line for line in resumed["log"]):
            raise Failure("it did not resume")
        return first, resumed

    killed, resumed = interrupted("runs/killed", lambda job: job.kill(1))
    if not any("task 1: Killed" in line for line in killed["log"]):
        raise Failure(f"Slurm does not say that task 1 was killed: {killed['log'][-5:]}")
    say(f"task 1 was killed: the job failed within {killed['ended_s']} s, and Slurm said why")

    stopped, _ = interrupted("runs/stopped", Job.terminate)
    if not any("stopped at step" in line for line in stopped["log"]):
        raise Failure(f"no line says that it was saved: {stopped['log'][-5:]}")
    say(f"the job was sent SIGTERM: it saved, and ended within {stopped['ended_s']} s")

    digests = [bits(slurm, f"runs/{run}") for run in RUNS[1:]]
    if len(set(digests)) > 1:
        raise Failure("a resumed run ended in other bits than the one that nobody interrupted")
    say("the same command resumed each, and it ended in the same bits")
    return {
        "date": datetime.date.today().isoformat(),
        "versions": {
            "Slurm": slurm("sinfo", "--version").split()[-1],
            "Python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
        "losses": {
            name: losses(slurm.epochs(f"runs/{name}"))
            for name in ("one", "two", "killed", "stopped")
        },
        "state_sha256": dict(zip(RUNS[1:], digests, strict=True)),
        "two": two,
        "killed": killed,
        "resumed": resumed,
        "stopped": stopped,
    }


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `finally` runs
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        slurm = Slurm(Path(name))
        Path(name).chmod(0o755)
        place = slurm.folder / "slurm"
        try:
            env = os.environ | {"PYTHON": sys.executable}
            up = subprocess.run([CLUSTER, "up", place], env=env, timeout=1000)
            if up.returncode:
                return up.returncode
            record = check(slurm)
        except (Failure, subprocess.TimeoutExpired) as error:
            say(f"FAILED: {error}")
            return 1
        finally:
            subprocess.run([CLUSTER, "down", place], timeout=120, check=False)
    new = RECORD.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf8")
    new.replace(RECORD)
    say(f"well, in {time.monotonic() - begin:.0f} s; see {RECORD.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
