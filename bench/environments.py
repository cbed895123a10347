"""The peers' environments: a virtual environment for each lock file, below build/bench.

The lock files are made from the .in files beside them; Keras has the JAX of this book:

    uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
      --no-emit-index-url bench/NAME.in -o bench/NAME.lock
                                  # torch: with --no-deps; keras-jax: with -c requirements.lock

torch itself stands in no lock file: its builds for the CPU and for each CUDA are different files
of one version, published in different places, so no one hash fits. Its version is pinned here.
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import BENCH, ContenderError, say

TORCH = "torch==2.13.0"
ADASPLASH = "adasplash==0.2.0"  # Triton kernels: of use with a GPU alone
CUDA = ("nvidia-", "cuda-", "triton")


@functools.cache
def has_gpu() -> bool:
    found = shutil.which("nvidia-smi")
    return bool(found) and subprocess.run([found, "-L"], capture_output=True).returncode == 0


def pythons() -> Iterator[str]:
    """The Pythons that may run the peers, the best first.

    $PEER_PYTHON if it is set. Else this one, so that all contenders run in one Python; and 3.11,
    for where there is no build of PyTorch for this one at hand.
    """
    if asked := os.environ.get("PEER_PYTHON"):
        yield asked
        return
    yield sys.executable
    if sys.version_info[:2] != (3, 11):
        yield from filter(None, [shutil.which("python3.11")])


@functools.cache
def environment(name: str) -> str:
    """The Python of a peer's environment, made if it is not there or its lock file has changed."""
    folder = BENCH.parent / "build" / "bench" / name
    python, lock = folder / "bin" / "python", BENCH / f"{name}.lock"
    machine = f"{os.environ.get('PEER_PYTHON')} {sys.version} {has_gpu()}".encode()
    pins = lock.read_bytes() + Path(__file__).read_bytes() + machine
    digest, ready = hashlib.sha256(pins).hexdigest(), folder / "ready"
    if ready.exists() and ready.read_text() == digest:
        return str(python)
    say("setup", f"the environment of {name} (some minutes, once)")
    failures = []
    for candidate in pythons():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            fill(name, candidate, folder)
        except ContenderError as error:
            failures.append(str(error))
        else:
            ready.write_text(digest)
            return str(python)
    raise ContenderError(
        "\n\n".join(failures) + f"\nno environment for {name}: install another Python, such as "
        "3.11 (`uv python install 3.11`), and name it: make bench PEER_PYTHON=..."
    )


def fill(name: str, base: str, folder: Path) -> None:
    """A virtual environment of the Python `base`, with what the lock file says, and PyTorch."""
    python = folder / "bin" / "python"
    run(base, "-m", "venv", folder)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if name == "torch":
        install_torch(python, pip)  # first: where there is no build of it, nothing else is worth it
    run(*pip, "--no-deps", "--require-hashes", "-r", BENCH / f"{name}.lock")


def install_torch(python: Path, pip: list) -> None:
    """PyTorch: with CUDA where there is a GPU, and without its gigabytes where there is none."""
    if has_gpu():
        run(*pip, TORCH, ADASPLASH)
        return
    report = run(*pip, "--dry-run", "--report", "-", TORCH)
    wanted = [item["metadata"]["name"].lower() for item in json.loads(report)["install"]]
    if any(name.startswith(CUDA) for name in wanted):  # uv knows where the CPU build is
        uv = Path(sys.executable).with_name("uv")
        run(uv, "pip", "install", "--python", python, "--torch-backend", "cpu", "--no-deps", TORCH)
    else:
        run(*pip, "--no-deps", TORCH)


def run(*command: object) -> str:
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ContenderError(str(error)) from None
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise ContenderError(f"{' '.join(map(str, command))}\n{said}")
    return done.stdout
