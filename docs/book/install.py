"""Set up .venv from the locks: `python -m book.install docs`, or `test` for what tests need too.

pip installs uv alone, at the version and hash of the lock; uv installs the rest, ten times as fast.
`python -m book.install browser` sees to what a browser needs of the machine. Whatever is installed
is installed here. Needs nothing but Python, for it comes before everything else.
"""

import ast
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from book import chromium

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
DPKG = Path("/var/lib/dpkg")  # what apt-get changes, whichever clone asks
LOCKS = {"docs": ROOT / "requirements.lock", "test": ROOT / "requirements-test.lock"}


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One set-up at a time of what lies in a folder: others wait."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def run(*command: object, **variables: str) -> bool:
    """Run a command; say what it said if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf8",
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return not done.returncode


def pip(*arguments: object) -> bool:
    return run(PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *arguments)


def settings_of_pip() -> dict[str, str]:
    """A mirror and a certificate that pip was told of, for uv, which does not ask pip.

    What is set for uv already stays as it is.
    """
    asked = [str(PYTHON), "-m", "pip", "config", "list"]
    listed = subprocess.run(asked, stdout=subprocess.PIPE, encoding="utf8").stdout
    found = dict(re.findall(r"^[\w:]+\.([\w-]+)=('.*')$", listed, re.MULTILINE))
    names = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
    values = {name: ast.literal_eval(found[key]) for key, name in names.items() if key in found}
    return {name: value for name, value in values.items() if name not in os.environ}


def install(group: str) -> bool:
    """Bring .venv to what the locks say; packages that they do not name are removed."""
    asked = [PYTHON, "-c", "import pip"]
    if not PYTHON.exists() or subprocess.run(asked, stderr=subprocess.DEVNULL).returncode:
        venv.create(VENV, with_pip=True, clear=True)
    marks = {name: VENV / f"ready-{name}" for name in LOCKS}
    groups = [name for name in LOCKS if name in ("docs", group) or marks[name].exists()]
    files = [part for name in groups for part in ("-r", LOCKS[name])]
    uv = re.search(r"^uv==(?:.*\\\n)*.*\n", LOCKS["docs"].read_text("utf8"), re.MULTILINE)
    only = VENV / "uv.lock"
    only.write_text(uv[0] if uv else "uv", "utf8")
    by_uv = [VENV / "bin" / "uv", "pip", "sync", "--quiet", "--python", PYTHON]
    by_uv += ["--require-hashes"]
    done = pip("--require-hashes", "-r", only) and run(
        *by_uv, *[LOCKS[name] for name in groups], **settings_of_pip()
    )
    if not done:
        print("   setup │ uv could not; trying pip alone", flush=True)
        done = pip("--require-hashes", *files)
    ours = ["--no-deps", "--no-build-isolation", "--no-index", "-e", "."]
    if not done or not pip(*ours):
        return False
    for name in groups:
        marks[name].touch()
    return True


def apt_get(*arguments: str) -> bool:
    waiting = ("--quiet", "-o", "DPkg::Lock::Timeout=600")  # another apt-get may be at work
    return run("apt-get", *waiting, *arguments, DEBIAN_FRONTEND="noninteractive")


def browser() -> None:
    """Install what a browser lacks, as root by apt-get; where that cannot be, say what to do.

    To lack it is no failure here: most tests need no browser, and the others say what to do.
    """
    if chromium.missing() and os.geteuid() == 0 and shutil.which("apt-get"):
        with alone(DPKG):
            if needs := chromium.missing():
                what = ", ".join(need.name for need in needs)
                print(f"   setup │ {what}: by apt-get", flush=True)
                apt_get("update")
                for need in needs:
                    apt_get("install", "--yes", "--no-install-recommends", *need.packages)
    if needs := chromium.missing():
        print(f"   setup │ {chromium.advice(needs)}", file=sys.stderr)


def main(group: str) -> int:
    if group == "browser":
        browser()
        return 0
    print("   setup │ .venv from the lock files", flush=True)
    with alone(ROOT):
        return int(not install(group))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
