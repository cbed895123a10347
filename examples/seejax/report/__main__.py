"""Which programs a script makes JAX compile, when, and why: `python -m seejax.report train.py`.

The script runs as it is, with its own arguments after it. In the folder --folder, report-train by
default, stand then report.html, report.txt, report.json and the events; the text is printed to
stderr, too. `-m module` runs a module. The exit status is the script's.

Where the script is one of several processes, the report of each lies in process-0, process-1, … of
the folder, and report.html there shows them side by side. `--merge FOLDER …` does so with folders
that come from several machines.
"""

import argparse
import contextlib
import fcntl
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
from seejax.report import _recorder, together
from seejax.report.page import page
from seejax.report.summary import Summary, read, summary
from seejax.report.text import text

EVENTS = "events.jsonl"
WITH_VALUE = ("--folder", "--lang")
LAUNCHERS = (  # what tells a process its number, and how many there are
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)
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
    parser.add_argument("--merge", action="store_true", help="of reports, given by their folders")
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


def numbered(found: Summary) -> Summary:
    """With the number that a launcher gave this process, unless JAX knows of several."""
    for index, count in LAUNCHERS if found.processes == 1 else ():
        with contextlib.suppress(KeyError, ValueError):
            of = int(os.environ[index]), int(os.environ[count])
            return found._replace(process=of[0], processes=of[1])
    return found


def as_json(found: Summary) -> dict:
    programs = [program._asdict() for program in found.programs]
    advice = [each._asdict() for each in found.advice]
    return {**found._asdict(), "programs": programs, "advice": advice}


def save(folder: Path, report: str, page: str, document: dict) -> None:
    (folder / "report.txt").write_text(report, "utf8")
    (folder / "report.html").write_text(page, "utf8")
    (folder / "report.json").write_text(json.dumps(document, indent=1), "utf8")


def write(folder: Path, events: Path, lang: str, wall_s: float, status: int) -> str:
    """Write the report of the events of a process, and of all processes; its own as text."""
    found = numbered(summary(read(events)))
    ended = signal.Signals(-status).name if status < 0 else f"status {status}" if status else ""
    whole = bool(events.stat().st_mode & stat.S_IWUSR)  # else the recorder has given up
    found = found._replace(wall_s=wall_s, ended=found.ended or ended, whole=whole)
    own = folder / f"process-{found.process}" if found.processes > 1 else folder
    own.mkdir(exist_ok=True)
    events.replace(own / EVENTS)
    report = text(found, lang)
    save(own, report, page(found, lang), as_json(found))
    if own == folder:
        return f"{report}\n{folder / 'report.html'}"
    merge([folder], folder, lang)
    return f"{report}\n{own / 'report.html'}\n{folder / 'report.html'}"


def merge(folders: list[Path], into: Path, lang: str) -> str:
    """Write the report of all processes that have left one in these folders; it as text."""
    into.mkdir(parents=True, exist_ok=True)
    opened = os.open(into, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            fcntl.flock(opened, fcntl.LOCK_EX)  # the last to end sees them all
        run = together.together(folders)
        report = together.text(run, lang)
        document = {"processes": [as_json(each) for each in run.summaries]}
        save(into, report, together.page(run, into, lang), document)
        return report
    finally:
        os.close(opened)


def merged(folders: list[Path], into: Path | None, lang: str) -> int:
    """What --merge does; the status."""
    into = into or (folders[0] if len(folders) == 1 else Path("report-merged"))
    if into in folders and not list(into.glob("process-*/report.json")):
        print(f"there is no process-*/report.json in {into}", file=sys.stderr)
        return 2
    if not together.together(folders).summaries:
        print(f"there is no report.json in {', '.join(map(str, folders))}", file=sys.stderr)
        return 2
    try:
        print(f"{merge(folders, into, lang)}\n{into / 'report.html'}")
    except OSError as error:
        print(f"the report cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    ours, its = split(sys.argv[1:] if arguments is None else arguments)
    args = command().parse_args(ours)
    if args.merge:
        return merged([Path(args.script), *map(Path, its)], args.folder, args.lang)
    if not args.module and not Path(args.script).is_file():
        print(f"there is no file {args.script}", file=sys.stderr)
        return 2
    name = Path(args.script).stem if not args.module else args.script
    folder = args.folder or Path(f"report-{name}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = f"{os.uname().nodename}-{os.getpid()}"  # another run may use the folder
        (events := folder / f"events-{own}.jsonl").touch()
    except OSError as error:
        print(f"{folder} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    script = [*(["-m"] if args.module else []), args.script, *its]
    start = time.perf_counter()
    status = run(events.absolute(), script)
    try:
        report = write(folder, events, args.lang, time.perf_counter() - start, status)
    except OSError as error:
        print(f"the report cannot be written: {error.strerror}", file=sys.stderr)
        return status or 1
    print(f"\n{report}", file=sys.stderr)
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
    os._exit(1)
