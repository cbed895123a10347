"""A Chromium to look at the site with, and a font for its Chinese: found, else installed."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from book.paths import BuildError

LIMIT_S = 600
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
HELP = """\
There is no {what} here, and it could not be installed:
{why}
On Debian or Ubuntu, as root: apt-get install chromium fonts-noto-cjk
Elsewhere: .venv/bin/playwright install --with-deps chromium, and a font for Chinese."""


def run(*command: str) -> str:
    """Run a command; return what it said last if it failed or did not end, else nothing."""
    try:
        result = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf8",
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not end within {LIMIT_S} s"
    return result.stdout[-500:] if result.returncode else ""


def apt_get(*packages: str) -> str:
    """Install Debian's packages where that is ours to do; return why not, or nothing."""
    if not shutil.which("apt-get"):
        return "apt-get is not on PATH"
    if os.geteuid() != 0:
        return "apt-get needs root"
    run("apt-get", "--quiet", "update")
    return run("apt-get", "--quiet", "install", "--yes", "--no-install-recommends", *packages)


def playwright_install() -> str:
    """Let Playwright fetch its own Chromium; return why not, or nothing."""
    return run(sys.executable, "-m", "playwright", "install", "chromium")


def on_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def executable(own: str, fetch: Callable[[], str] = playwright_install) -> str:
    """The Chromium on PATH, else Playwright's `own`, else one of them after installing it.

    Raises:
      BuildError: there is none, and none can be installed; it says what to do.
    """
    if found := on_path() or (own if Path(own).is_file() else None):
        return found
    reasons = [apt_get("chromium")]
    if found := on_path():
        return found
    reasons.append(fetch())
    if Path(own).is_file():
        return own
    raise BuildError(HELP.format(what="Chromium", why="\n".join(filter(None, reasons))))


def chinese_font() -> None:
    """See to it that Chinese is drawn with a font and not as boxes.

    Raises:
      BuildError: there is no such font, and none can be installed.
    """
    if sys.platform != "linux":
        return  # macOS and Windows bring one
    if not has_chinese_font():
        why = apt_get("fontconfig", "fonts-noto-cjk")
        if not has_chinese_font():
            raise BuildError(HELP.format(what="font for Chinese", why=why))


def has_chinese_font() -> bool:
    lister = shutil.which("fc-list")
    if not lister:
        return False
    return bool(subprocess.run([lister, ":lang=zh"], capture_output=True, timeout=LIMIT_S).stdout)


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """The browser of the tests, of the printed book and of the pictures of pages."""
    chinese_font()
    with sync_playwright() as playwright:
        path = executable(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()
