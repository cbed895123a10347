"""Which programs a script makes JAX compile, when, and why: `python -m seejax.report train.py`.

The script runs as it is, with its own arguments after it. In the folder --folder, report-train by
default, stand then report.html, report.txt, report.json and the events; the text is printed to
stderr, too. `-m module` runs a module. The exit status is the script's.
"""

import argparse
import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path

from seejax.commands import language
from seejax.report import _recorder
from seejax.report.page import page
from seejax.report.summary import read, summary
from seejax.report.text import text

EVENTS = "events.jsonl"
WITH_VALUE = ("--folder", "--lang")
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def command() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m seejax.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--folder", type=Path, help="where the report is written")
    parser.add_argument("--lang", choices=("zh", "en"), default=language(), help="of the report")
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m")
    parser.add_argument("script", help="the script, or the module")
    parser.add_argument("argument", nargs="*", help="its arguments, passed on as they are")
    return parser


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments to the script, and those of the script.

    >>> split(["--lang", "en", "train.py", "--", "-v"])
    (['--lang', 'en', 'train.py'], ['--', '-v'])
    """
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in WITH_VALUE else 1
    return arguments[: at + 1], arguments[at + 1 :]


def python() -> list[str]:
    """The interpreter, with the options that it was started with: `python -O -m seejax.report`."""
    options = list(takewhile(lambda option: not option.startswith("-m"), sys.orig_argv[1:]))
    as_module = len(options) + 1 < len(sys.orig_argv)
    return [sys.executable, *options] if as_module else [sys.executable]


def run(events: Path, script: list[str]) -> int:
    """Run the script to its end; the status of its process, negative for a signal."""
    process = subprocess.Popen([*python(), _recorder.__file__, events, *script])

    def forward(number: int, frame: object) -> None:
        if number != signal.SIGINT or not in_foreground():
            process.send_signal(number)

    old = {number: signal.signal(number, forward) for number in (*FORWARDED, signal.SIGINT)}
    try:
        return process.wait()
    finally:
        for number, way in old.items():
            signal.signal(number, way)


def in_foreground() -> bool:
    """Whether Ctrl-C in a terminal reaches us, and so the script by itself."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def write(folder: Path, lang: str, wall_s: float, status: int) -> str:
    """Write the report of the events in a folder; what it says as text."""
    events = folder / EVENTS
    found = summary(read(events))
    ended = signal.Signals(-status).name if status < 0 else f"status {status}" if status else ""
    whole = bool(events.stat().st_mode & stat.S_IWUSR)  # else the recorder has given up
    found = found._replace(wall_s=wall_s, ended=found.ended or ended, whole=whole)
    report = text(found, lang)
    (folder / "report.txt").write_text(report, "utf8")
    (folder / "report.html").write_text(page(found, lang), "utf8")
    programs = [program._asdict() for program in found.programs]
    advice = [each._asdict() for each in found.advice]
    document = {**found._asdict(), "programs": programs, "advice": advice}
    (folder / "report.json").write_text(json.dumps(document, indent=1), "utf8")
    return report


def main(arguments: list[str] | None = None) -> int:
    ours, its = split(sys.argv[1:] if arguments is None else arguments)
    args = command().parse_args(ours)
    if not args.module and not Path(args.script).is_file():
        print(f"there is no file {args.script}", file=sys.stderr)
        return 2
    name = Path(args.script).stem if not args.module else args.script
    folder = args.folder or Path(f"report-{name}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (events := folder / f"events-{os.getpid()}.jsonl").touch()  # another run may use the folder
    except OSError as error:
        print(f"{folder} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    script = [*(["-m"] if args.module else []), args.script, *its]
    start = time.perf_counter()
    status = run(events.absolute(), script)
    try:
        events.replace(folder / EVENTS)
        report = write(folder, args.lang, time.perf_counter() - start, status)
    except OSError as error:
        print(f"the report cannot be written: {error.strerror}", file=sys.stderr)
        return status or 1
    print(f"\n{report}\n{folder / 'report.html'}", file=sys.stderr)
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
    os._exit(1)
