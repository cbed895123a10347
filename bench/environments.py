"""The peers' environments: one virtual environment each, below build/bench, from its lock file.

The lock files are made from the .in files beside them (name = torch, then tensorflow):

    uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
      --no-emit-index-url bench/NAME.in -o bench/NAME.lock        # torch: with --no-deps

torch itself stands in no lock file: its builds for the CPU and for each CUDA are different files
of one version, published in different places, so no one hash fits. Its version is pinned here.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from measure import BENCH, ContenderError, say

TORCH = "torch==2.13.0"
ADASPLASH = "adasplash==0.2.0"  # Triton kernels: of use with a GPU alone
CUDA = ("nvidia-", "cuda-", "triton")


def has_gpu() -> bool:
    found = shutil.which("nvidia-smi")
    return bool(found) and subprocess.run([found, "-L"], capture_output=True).returncode == 0


def peer_python() -> str:
    """A Python 3.11 that can make a virtual environment: $PEER_PYTHON, from PATH, or uv's."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    candidates = [os.environ.get("PEER_PYTHON"), sys.executable]
    candidates += [f"{folder}/python3.11" for folder in os.environ["PATH"].split(os.pathsep)]
    if uv:
        found = subprocess.run([uv, "python", "find", "3.11"], capture_output=True, text=True)
        candidates.append(found.stdout.strip())
    asked = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))"
    for candidate in filter(shutil.which, filter(None, candidates)):
        if subprocess.run([candidate, "-c", asked], capture_output=True).returncode == 0:
            return candidate
    raise ContenderError(
        "the peers need Python 3.11 with venv, and none was found: install it (for one, "
        "`uv python install 3.11`) or say where it is: make bench PEER_PYTHON=..."
    )


def environment(name: str) -> str:
    """The Python of a peer's environment, made if it is not there or its lock file has changed."""
    folder = BENCH.parent / "build" / "bench" / name
    python, lock = folder / "bin" / "python", BENCH / f"{name}.lock"
    pins = lock.read_bytes() + Path(__file__).read_bytes() + bytes([has_gpu()])
    digest, ready = hashlib.sha256(pins).hexdigest(), folder / "ready"
    if ready.exists() and ready.read_text() == digest:
        return str(python)
    say("setup", f"the environment of {name} (some minutes, once)")
    shutil.rmtree(folder, ignore_errors=True)
    run(peer_python(), "-m", "venv", folder)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-deps", "--require-hashes", "-r", lock)
    if name == "torch":
        install_torch(python, pip)
    ready.write_text(digest)
    return str(python)


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
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise ContenderError(f"{' '.join(map(str, command))}\n{said}")
    return done.stdout
