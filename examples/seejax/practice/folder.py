"""A reader's folder: the files of exercises, and which of them pass.

What passes is known from a file of the folder, which holds a digest of each attempt that passed.
It is made from the attempts: where it is missing or damaged, they are run again.
"""

import contextlib
import importlib.util
import json
import os
from pathlib import Path

from seejax.practice.attempt import digest
from seejax.practice.exercises import LANGUAGES, Exercise, book

PROGRESS = "progress.json"


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, exercise: Exercise) -> Path:
        return self.path / f"{exercise.name}.py"

    def lay(self, exercises: list[Exercise]) -> list[Exercise]:
        """Write the files that are not there; return their exercises.

        Raises:
          OSError: one cannot be written; no part of it is left.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        laid = []
        for exercise in exercises:
            file = self.file(exercise)
            try:
                to = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileExistsError:
                continue
            try:
                with open(to, "wb") as stream:
                    stream.write(exercise.file.encode("utf-8"))
            except BaseException as error:
                with contextlib.suppress(OSError):
                    file.unlink()
                if isinstance(error, OSError):
                    error.filename = str(file)
                raise
            laid.append(exercise)
        return laid

    def text(self, exercise: Exercise) -> str | None:
        """What the file has now; None if there is none that can be read."""
        try:
            return importlib.util.decode_source(self.file(exercise).read_bytes())
        except (OSError, SyntaxError, UnicodeDecodeError):
            return None

    def state(self, exercise: Exercise) -> str:
        """One of "none", "new", "begun", "passed"."""
        if not os.path.lexists(self.file(exercise)):
            return "none"
        text = self.text(exercise)
        if text is None:
            return "begun"
        if self.passed().get(exercise.name) == digest(exercise.parts(text)[1]):
            return "passed"
        untouched = (book(lang)[exercise.name].file for lang in LANGUAGES)
        return "new" if text in untouched else "begun"

    def passed(self) -> dict[str, str]:
        """The digest of each attempt that passed, by the name of its exercise."""
        try:
            kept = json.loads((self.path / PROGRESS).read_text("utf-8"))["passed"]
            return {str(name): str(value) for name, value in kept.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}

    def keep(self, exercise: Exercise, value: str) -> None:
        """Remember an attempt that passed.

        Raises:
          OSError: it cannot be written; what was kept before stays.
        """
        before = self.passed()
        if before.get(exercise.name) == value:
            return
        after = json.dumps({"passed": {**before, exercise.name: value}}, indent=1) + "\n"
        begun = self.path / f".{PROGRESS}.{os.getpid()}"
        try:
            begun.write_text(after, encoding="utf-8")
            os.replace(begun, self.path / PROGRESS)
        except OSError:
            with contextlib.suppress(OSError):
                begun.unlink()
            raise
