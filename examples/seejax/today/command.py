"""python -m seejax.today: what of your files JAX, Flax and Optax have outgrown."""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from libcst import ParserSyntaxError

from seejax.today import files
from seejax.today.uses import find

PROGRAM = "python -m seejax.today"
HELP = """\
status: 0 nothing found, 1 something found that was not renamed, or a file that could not be read,
2 a mistake in the command.

--fix writes plain renamings alone, only where the new name is bound on every way there, and none
under a test of the version: it says what it changes, as --diff does, and puts each file in place
whole. The rest is yours to write. All else, a notebook's outputs and layout too, stays as it is."""


def main(argv: list[str] | None = None) -> int:
    """The command; returns its status."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Find old names of JAX, Flax and Optax in scripts and notebooks. Runs nothing.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help=".py, .ipynb or a folder"
    )
    parser.add_argument(
        "--hints", action="store_true", help="also what works but is written otherwise today"
    )
    fixing = parser.add_mutually_exclusive_group()
    fixing.add_argument(
        "--diff", action="store_true", help="show the plain renamings, write nothing"
    )
    fixing.add_argument(
        "--fix", action="store_true", help="show the plain renamings, then write them"
    )
    options = parser.parse_args(argv)
    for path in options.paths:
        if not os.path.lexists(path):
            parser.error(f"there is no {path}")
    try:
        return Report(options).run()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as by `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class Report:
    """What is printed, file by file, and the counts of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.files = self.found = self.fixed = self.unread = self.unwritten = 0
        self.plain = 0
        self.with_uses = 0

    def run(self) -> int:
        for path in files.listed(self.options.paths):
            self.files += 1
            try:
                if file := files.read(path):
                    self.look(file)
            except files.Unreadable as error:
                self.missed(f"{path}: {error}")
        self.summary()
        return int(self.found > self.fixed or self.unread + self.unwritten > 0)

    def look(self, file: files.File) -> None:
        for problem in file.problems:
            self.missed(problem)
        try:
            uses = find(file.source, self.options.hints)
        except (SyntaxError, ParserSyntaxError, RecursionError) as error:
            raise files.Unreadable(
                f"cannot be parsed: {str(error).partition(chr(10))[0]}"
            ) from None
        if not uses:
            return
        counted = [use for use in uses if use.change.kind != "hint"]
        edits = {edit for use in uses for edit in use.edits}
        data = b""
        try:
            data = file.renamed(edits) if edits else data
        except files.Unreadable as problem:
            self.report(f"{file.path}: nothing is renamed here, for {problem}")
            uses, edits = [replace(use, edits=()) for use in uses], set()
        plain = [use for use in uses if use.edits]
        if self.with_uses:
            print()
        self.with_uses += 1
        for use in uses:
            mark = " (--fix renames it)" if use.edits else ""
            print(f"{file.place(use.line, use.column)}: {use.sentence()}{mark}")
        self.found += len(counted)
        self.plain += len(plain)
        if edits and (self.options.diff or self.options.fix):
            print(file.diff(edits), end="")
        if edits and self.options.fix:
            try:
                file.write(data)
            except OSError as error:
                self.unwritten += 1
                return self.report(f"{file.path}: cannot be written: {error.strerror}")
            self.fixed += sum(use.change.kind != "hint" for use in plain)

    def missed(self, line: str) -> None:
        self.unread += 1
        self.report(line)

    def report(self, line: str) -> None:
        sys.stdout.flush()
        print(line, file=sys.stderr)

    def summary(self) -> None:
        summary = f"{_count(self.files, 'file')}, {_count(self.found, 'old name')}"
        if self.found or self.plain:
            summary += f" in {_count(self.with_uses, 'file')}"
        if self.options.fix:
            summary += f", {self.fixed} renamed"
        elif self.plain:
            summary += f", {_count(self.plain, 'plain renaming')}"
        if self.unread:
            summary += f", {self.unread} not read"
        if self.unwritten:
            summary += f", {self.unwritten} not written"
        sys.stdout.flush()
        print(summary, file=sys.stderr)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
