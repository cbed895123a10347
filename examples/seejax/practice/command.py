"""The command: lay exercises, follow saves, say in one line what is still wrong."""

import argparse
import json
import os
import re
import select
import signal
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from seejax.commands import language
from seejax.practice import attempt
from seejax.practice.exercises import Exercise, Missing, book, chosen, wrapped
from seejax.practice.folder import PROGRESS, Folder
from seejax.practice.hints import hint
from seejax.practice.words import WORDS
from seejax.runs import POLL_S, Run, finished, stated
from seejax.see._child import UNWRITTEN

PROGRAM = "python -m seejax.practice"
LIMIT_S = 30.0
SLOW_S = 5.0  # after so long a word is due
DEVICES = "--xla_force_host_platform_device_count=8"  # as the pages have
HELP = """\
status: 0 all pass (with --once) or it was ended, 1 some do not pass yet, 2 a mistake in the
command, or a file that cannot be written.

No file that exists is written to. To begin an exercise anew, delete its file or move it away.
JAX runs on the CPU with eight devices, as in the book, unless JAX_PLATFORMS and XLA_FLAGS say
otherwise."""


class Refused(Exception):
    """What was asked for cannot be: one sentence for who asked."""


class Practice:
    """What one call of the command works on: exercises, the reader's folder and language."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.words = WORDS[options.lang]
        self.folder = Folder(Path(options.to))
        try:
            self.exercises = chosen(options.names, options.lang)
        except Missing as error:
            raise Refused(self.missing(str(error))) from None

    def say(self, key: str, **values: Any) -> str:
        return self.words[key].format(**values)

    def missing(self, name: str) -> str:
        if not name:
            return self.say("no_pages")
        pages = dict.fromkeys(one.page for one in book(self.options.lang).values())
        return self.say("no_such", name=name, pages=", ".join(pages))

    def one(self, name: str) -> Exercise:
        """An exercise by its name."""
        every = book(self.options.lang)
        if name not in every:
            page = name.rpartition("-")[0]
            names = [each for each, it in every.items() if it.page in (page, name)] or [*every]
            raise Refused(self.say("no_such_exercise", name=name, names=", ".join(names)))
        return every[name]

    # -- before

    def lay(self) -> None:
        try:
            laid = self.folder.lay(self.exercises)
        except OSError as error:
            file, why = error.filename or self.options.to, error.strerror
            raise Refused(self.say("unwritten", file=file, why=why)) from None
        first = self.next() or self.exercises[0]
        place = {"folder": self.options.to, "file": self.folder.file(first)}
        if laid:
            tell(self.say("laid", count=len(laid), **place))
        else:
            count, passed = self.count()
            tell(self.say("here", count=count, passed=passed, **place))

    def next(self, after: Exercise | None = None) -> Exercise | None:
        """The first exercise that does not pass, of those after one and then of all."""
        at = self.exercises.index(after) + 1 if after in self.exercises else 0
        order = self.exercises[at:] + self.exercises[:at]
        return next((one for one in order if self.folder.state(one) != "passed"), None)

    def count(self) -> tuple[int, int]:
        states = [self.folder.state(one) for one in self.exercises]
        return len(states), states.count("passed")

    # -- an attempt

    def run(self, exercise: Exercise, see: bool = False) -> Run:
        question = {
            "file": str(self.folder.file(exercise).resolve()),
            "name": exercise.name,
            "lang": self.options.lang,
            "see": see,
        }
        flags = os.environ.get("XLA_FLAGS", "")
        environment = {
            "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or "cpu",
            "XLA_FLAGS": flags if DEVICES.partition("=")[0] in flags else f"{flags} {DEVICES}",
        }
        try:
            return Run(attempt.__file__, json.dumps(question), self.options.limit, environment)
        except OSError as error:
            raise Refused(self.say("no_run", why=error.strerror)) from None

    def report(self, exercise: Exercise, answer: dict[str, Any], once: bool = False) -> bool:
        """Say in one line what came of an attempt; return whether it passes."""
        if "passed" not in answer:
            tell(self.wrong(exercise, answer))
            return False
        try:
            self.folder.keep(exercise, answer["digest"])
        except OSError as error:
            file = self.folder.path / PROGRESS
            complain(self.say("unkept", file=file, why=error.strerror))
        if once:
            tell(f"{exercise.name}: {self.say('passed')}")
            return True
        if after := self.next(exercise):
            file = self.folder.file(after)
            tell(f"{exercise.name}: {self.say('next', name=after.name, file=file)}")
        else:
            tell(f"{exercise.name}: {self.say('all', count=len(self.exercises))}")
        if exercise.why:
            tell(indented(exercise.why))
        return True

    def wrong(self, exercise: Exercise, answer: dict[str, Any]) -> str:
        """The line that says what is wrong, with file and line as editors know them."""
        file = self.folder.file(exercise)
        line = answer.get("line")
        if "unread" in answer:
            return f"{file}: {self.say('unread', why=answer['unread'])}"
        if "hung" in answer:
            return self.hung(file, answer["hung"])
        if "status" in answer:
            return f"{file}: {self.died(answer['status'])}"
        place = f"{file}:{line}" if line else f"{file}"
        kind, message, text = answer["kind"], answer["message"], answer["text"]
        if kind == "AssertionError":
            held = text.removeprefix("assert ")
            return f"{place}: {message or self.say('does_not_hold', text=held)}"
        if not message:
            return f"{place}: {self.say('no_message', kind=kind, text=text)}"
        return f"{place}: {kind}: {message}"

    def hung(self, file: Path, frames: list[str]) -> str:
        limit = self.options.limit
        for frame in frames:  # innermost first; letters other than ASCII are escaped there
            if match := re.search(rf'{re.escape(file.name)}", line (\d+)', frame):
                number = int(match[1])
                lines = (self.file_text(file)).splitlines()
                text = lines[number - 1].strip() if number <= len(lines) else ""
                return f"{file}:{number}: {self.say('hung', limit=limit, text=text)}"
        return f"{file}: {self.say('hung_somewhere', limit=limit)}"

    @staticmethod
    def file_text(file: Path) -> str:
        try:
            return file.read_text("utf-8", "replace")
        except OSError:
            return ""

    def died(self, status: int) -> str:
        if status == UNWRITTEN:
            return self.say("no_answer", folder=tempfile.gettempdir())
        if status >= 0:
            return self.say("ended", status=status)
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = str(-status)
        said = self.say("killed", signal=name)
        return said + self.say("memory") * (name == "SIGKILL")

    # -- on request

    def hint(self, exercise: Exercise) -> str:
        text = self.folder.text(exercise)
        own = exercise.parts(text)[0] if text is not None else exercise.start
        names, line, why = hint(exercise, own)
        if names:
            return self.say("hint_names", names=", ".join(names))
        return self.say("hint_line", line=line) if line else self.say("hint_why", why=why)

    def progress(self) -> str:
        lines = [
            f"{exercise.name}: {self.say(self.folder.state(exercise))}  {exercise.title}"
            for exercise in self.exercises
        ]
        count, passed = self.count()
        return "\n".join([*lines, self.say("count", count=count, passed=passed)])

    def picture(self, exercise: Exercise, answer: dict[str, Any]) -> str:
        if "text" in answer and "kind" not in answer:
            return answer["text"] or self.say("no_picture", name=exercise.name)
        return self.wrong(exercise, answer)

    # -- how it goes on

    def once(self) -> int:
        """Check every exercise that was begun; the status says whether all pass."""
        passed = 0
        for exercise in self.exercises:
            if self.folder.state(exercise) == "new":
                tell(f"{self.folder.file(exercise)}: {self.say('new')}")
                continue
            passed += self.report(exercise, finished(self.run(exercise)), once=True)
        count = len(self.exercises)
        tell(self.say("count", count=count, passed=passed))
        return int(passed < count)

    def watch(self) -> NoReturn:
        """Check after each save, for ever."""
        files = {str(self.folder.file(exercise)): exercise for exercise in self.exercises}
        waiting = [(one, False) for one in self.exercises if self.folder.state(one) == "begun"]
        current = self.next() or self.exercises[0]
        seen = last = stated(files)
        run, running, slow = None, (current, False), False
        keyboard = terminal()
        tell(self.say("follows") + self.say("keys") * keyboard)
        try:
            while True:
                for key in keys(POLL_S) if keyboard else pause(POLL_S):
                    if key == "v":
                        waiting.insert(0, (current, True))
                    else:
                        self.press(key, current)
                now = stated(files)
                if now != last:
                    last = now  # and look again: a file is not written at once
                elif now != seen:
                    saved = [files[file] for file in now if now[file] != seen.get(file)]
                    seen = now
                    if run and saved:
                        run.end()
                        run = None
                        waiting.insert(0, running)
                    rest = [(one, see) for one, see in waiting if one not in saved]
                    waiting = [(one, False) for one in saved] + rest
                if not run and waiting:
                    running, slow = waiting.pop(0), False
                    current = running[0]
                    run = self.run(*running)
                if run and not slow and time.monotonic() - run.started > SLOW_S:
                    slow = True
                    tell(self.say("running", name=current.name, limit=self.options.limit))
                if run and (answer := run.poll()):
                    run = None
                    if running[1]:
                        tell(self.picture(current, answer))
                    elif self.report(current, answer):
                        current = self.next(current) or current
        finally:
            if run:
                run.end()

    def press(self, key: str, exercise: Exercise) -> None:
        if key == "h":
            tell(f"{exercise.name}: {self.hint(exercise)}")
        elif key == "s":
            tell(exercise.solution)
        elif key == "p":
            tell(self.progress())


# -- the terminal ----------------------------------------------------------------------------------


def tell(text: str) -> None:
    print(text, flush=True)


def complain(sentence: str) -> None:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr, flush=True)


def indented(prose: str) -> str:
    return "\n".join(textwrap.indent(wrapped(part), "  ") for part in prose.split("\n\n"))


def terminal() -> bool:
    """Whether a reader can press keys: not on Windows, whose terminals `select` does not know."""
    return os.name == "posix" and sys.stdin is not None and sys.stdin.isatty()


def keys(seconds: float) -> list[str]:
    """What was typed, waiting at most so long; a command in the background may not ask."""
    if os.getpgrp() != os.tcgetpgrp(sys.stdin.fileno()):
        return pause(seconds)
    if not select.select([sys.stdin], [], [], seconds)[0]:
        return []
    typed = os.read(sys.stdin.fileno(), 1024)
    if not typed:  # Ctrl-D
        raise KeyboardInterrupt
    return typed.decode("utf-8", "replace").lower().split()


def pause(seconds: float) -> list[str]:
    time.sleep(seconds)
    return []


def stopped(_: int, __: FrameType | None) -> NoReturn:
    raise SystemExit(143)


# -- the command -----------------------------------------------------------------------------------


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Do the book's exercises in your editor: each save is checked.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", metavar="PAGE", nargs="*", help="such as tour, or tour-2; without one, all pages")
    add("--to", metavar="FOLDER", default="practice", help="where the files lie (practice)")
    add("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="of a run (30)")
    add("--lang", choices=WORDS, default=language(), help="of the tasks and messages")
    instead = parser.add_mutually_exclusive_group()
    add = instead.add_argument
    add("--once", action="store_true", help="check all that was begun, and end")
    add("--progress", action="store_true", help="what passes, and end")
    add("--hint", metavar="EXERCISE", help="what to look up, or the next line; such as tour-2")
    add("--solution", metavar="EXERCISE", help="print it")
    add("--see", metavar="EXERCISE", help="draw your function that its tests call")
    return parser.parse_args(argv)


def practised(options: argparse.Namespace) -> int:
    practice = Practice(options)
    if not options.limit > 0:
        raise Refused(practice.say("limit", limit=options.limit))
    if options.hint:
        tell(practice.hint(practice.one(options.hint)))
    elif options.solution:
        tell(practice.one(options.solution).solution)
    elif options.progress:
        tell(practice.progress())
    elif options.see:
        exercise = practice.one(options.see)
        file = practice.folder.file(exercise)
        if not file.exists():
            raise Refused(practice.say("none_yet", file=file, page=exercise.page))
        answer = finished(practice.run(exercise, see=True))
        tell(practice.picture(exercise, answer))
        return int(not answer.get("text") or "kind" in answer)
    else:
        practice.lay()
        try:
            if options.once:
                return practice.once()
            practice.watch()
        except KeyboardInterrupt:
            count, passed = practice.count()
            tell(
                ("\n" if sys.stdout.isatty() else "")
                + practice.say("stopped", count=count, passed=passed)
            )
            return 130 if options.once else 0
    return 0


def main(argv: list[str] | None = None) -> int:
    """The command; returns its status."""
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack what a text needs
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # pyrefly: ignore
    options = parsed(argv)
    signal.signal(signal.SIGTERM, stopped)  # so that what was started ends with us
    try:
        return practised(options)
    except Refused as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as by `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
