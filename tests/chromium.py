"""A Chromium to look at the site with, and a font for its Chinese: found, else installed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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
    """The Chromium on PATH, else Playwright's `own`, else one of them after installing it."""
    if found := on_path() or (own if Path(own).exists() else None):
        return found
    reasons = [apt_get("chromium")]
    if found := on_path():
        return found
    reasons.append(fetch())
    if Path(own).exists():
        return own
    raise RuntimeError(HELP.format(what="Chromium", why="\n".join(filter(None, reasons))))


def chinese_font() -> None:
    """See to it that Chinese is drawn with a font and not as boxes."""
    if sys.platform != "linux":
        return  # macOS and Windows bring one
    if not has_chinese_font():
        why = apt_get("fontconfig", "fonts-noto-cjk")
        if not has_chinese_font():
            raise RuntimeError(HELP.format(what="font for Chinese", why=why))


def has_chinese_font() -> bool:
    lister = shutil.which("fc-list")
    command = [lister, ":lang=zh"]
    return bool(lister and subprocess.run(command, capture_output=True, timeout=LIMIT_S).stdout)
