"""The Chromium that tests and tools look with, and a font for its Chinese: found, never installed.

What is missing `make setup` installs (book.install), with a Python that has no packages yet: so
nothing but the standard library is imported before a browser is launched.
"""

import contextlib
import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from book.paths import ROOT, BuildError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIMIT_S = 60
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WHERE = """\
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    print(playwright.chromium.executable_path)
"""


def on_path() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def of_playwright() -> str | None:
    """The Chromium that Playwright has fetched, if it has."""
    python = ROOT / ".venv" / "bin" / "python"
    if not python.exists():
        return None
    asked = subprocess.run([python, "-c", WHERE], capture_output=True, text=True, timeout=LIMIT_S)
    path = asked.stdout.strip()
    return path if path and Path(path).is_file() else None


def has_libatomic() -> bool:
    """Whether the driver of Playwright can start: it is linked with this library."""
    try:
        ctypes.CDLL("libatomic.so.1")
    except OSError:
        return False
    return True


def has_chromium() -> bool:
    return bool(on_path() or of_playwright())


def has_chinese_font() -> bool:
    """Whether Chinese is drawn with a font, and not as boxes."""
    lister = shutil.which("fc-list")
    if not lister:
        return False
    return bool(subprocess.run([lister, ":lang=zh"], capture_output=True, timeout=LIMIT_S).stdout)


class Need(NamedTuple):
    """Something that a browser needs of the machine, and Debian's packages that bring it."""

    name: str
    packages: tuple[str, ...]
    is_there: Callable[[], bool]


LINUX = [
    Need("libatomic", ("libatomic1",), has_libatomic),
    Need("font for Chinese", ("fontconfig", "fonts-noto-cjk"), has_chinese_font),
]  # macOS and Windows bring both
CHROMIUM = Need("Chromium", ("chromium",), has_chromium)


def missing() -> list[Need]:
    """What a browser needs and this machine lacks."""
    needs = [*(LINUX if sys.platform == "linux" else []), CHROMIUM]
    return [need for need in needs if not need.is_there()]


def advice(needs: list[Need]) -> str:
    """What to do about what is missing, in one message."""
    packages = " ".join(package for need in needs for package in need.packages)
    return (
        f"There is no {' and no '.join(need.name for need in needs)} here. "
        f"On Debian `make setup` installs that, as root; or: apt-get install {packages}\n"
        "Elsewhere: .venv/bin/playwright install --with-deps chromium, and a font for Chinese."
    )


def executable() -> str:
    """The Chromium to launch, on a machine that has all that it needs.

    Raises:
      BuildError: something is missing; it says what to do.
    """
    if needs := missing():
        raise BuildError(advice(needs))
    return on_path() or of_playwright() or ""


@contextlib.contextmanager
def launched() -> Iterator["Browser"]:
    """The browser of the tests, of the printed book and of the pictures of pages."""
    path = executable()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()
