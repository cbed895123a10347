"""A picture of a function in a script, which follows each save of the script.

    python -m seejax.see train.py:loss "f32[8,128]" "f32[128]"

opens it in the browser; Ctrl-C ends it. `--text` prints it, `-o loss.html` writes a page that needs
nothing else, and both end at once. Here are the command line and the following of a script;
`seejax.runs` has the runs, `_child` is what a run executes, `_server` what the browser sees.
"""

import argparse
import ast
import dataclasses
import json
import os
import signal
import sys
import time
import webbrowser
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from seejax import runs
from seejax.commands import language
from seejax.runs import POLL_S, State, finished, stated
from seejax.see import _child
from seejax.see._picture import has_screen
from seejax.see._server import NUMBERS, Shown, served, whole

HELP = """\
an argument, in quotes where your shell gives brackets a meaning, is one of
  f32[8,128], i32[], bool[3], key<fry>[]   an array of this type, written as jaxprs print it
  3.0, params, init(key<fry>[], f32[1,4])  Python, evaluated in the script
  x=f32[3]                                 either of them, by name

Where a picture needs numbers (calls, keys, timeline), floats are standard normal, integers 0,
booleans True.
A function that takes nothing and returns (f, args) stands for f with these arguments."""


class Run(runs.Run):
    """One fresh interpreter that runs the script and draws."""

    def __init__(self, request: _child.Request, limit_s: float) -> None:
        super().__init__(_child.__file__, json.dumps(dataclasses.asdict(request)), limit_s)
        self.script = request.script

    def poll(self) -> dict[str, Any] | None:
        """What came of it, or None while it runs."""
        answer = super().poll()
        if answer and "hung" in answer:
            frames = [frame for frame in answer["hung"] if _child.__file__ not in frame]
            said = (
                f"not done after {self.limit_s:g} s; --limit {4 * self.limit_s:g} gives it longer"
            )
            if mine := next((f.strip() for f in frames if self.script in f), None):
                said += f"; your line: {mine}"
            said += ". It was here:\n" + "\n".join(frames)
            return {"error": said, "seconds": answer["seconds"]}
        if answer and "status" in answer:
            said = f"the interpreter ended with status {answer['status']} and drew nothing"
            return {"error": said, "seconds": answer["seconds"]}
        return answer


def follow(request: _child.Request, limit_s: float, shown: Shown, seen: State) -> NoReturn:
    """Draw after each save of a file in `seen`, for ever; a save while it draws begins again."""
    last, watched = seen, list(seen)
    run: Run | None = None
    try:
        while True:
            time.sleep(POLL_S)
            now = stated(watched)
            if now != last:
                last = now  # and look again: a file is not written at once
            elif now != seen and request.script in now:
                if run:
                    run.end()
                seen, run = now, Run(request, limit_s)
                shown.update(None)
            if run and (answer := run.poll()):
                run = None
                watched = answer.get("files", watched)
                seen = last = stated(watched) | {f: seen[f] for f in watched if f in seen}
                shown.update(answer)
                report(answer)
    finally:
        if run:
            run.end()


def report(answer: dict[str, Any]) -> None:
    """One line, or the error, in the terminal."""
    if "text" in answer:
        said = answer["text"].split("\n", 1)[0]
    else:
        said = answer.get("usage") or answer["error"]
    print(f"{time.strftime('%H:%M:%S')}  {answer['seconds']:.1f} s  {said}", file=sys.stderr)


def refuse(sentence: str) -> NoReturn:
    print(f"python -m seejax.see: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def literal(option: str, text: str) -> str:
    try:
        ast.literal_eval(text)
    except (SyntaxError, ValueError):
        refuse(f"{option} needs numbers such as 0 or (None,0), got {text}")
    return text


def parsed(argv: list[str] | None) -> tuple[argparse.Namespace, _child.Request]:
    parser = argparse.ArgumentParser(
        prog="python -m seejax.see",
        description="Draw a function of a script, again after each save.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("function", metavar="SCRIPT.py:FUNCTION", help="or lib.model:FUNCTION, or a notebook's")
    add("arguments", metavar="ARGUMENT", nargs="*", help="see below")
    add("--picture", default="trace", help=f"one of {', '.join(_child.PICTURES)}")
    add("--static", action="append", default=[], metavar="NAME", help="a static argument")
    add("--argnums", default="0", help="for grad, as jax.grad has it")
    add("--in-axes", default="0", help="for axes, as jax.vmap has it, such as '(None,0)'")
    add("--out-axes", default="0", help="for axes, as jax.vmap has it")
    add("--text", action="store_true", help="print the picture and end")
    add("--all", action="store_true", help="with --text: every line, however long it is")
    add("-o", "--output", metavar="FILE.html", help="write a page that needs nothing else, and end")
    add("--limit", type=float, default=60.0, metavar="SECONDS", help="for one run (60)")
    add("--port", type=int, default=0, help="of the page (any that is free)")
    add("--no-browser", action="store_true", help="say the address and open nothing")
    add("--lang", choices=("en", "zh"), default=language(), help="of the page's own words")
    options = parser.parse_intermixed_args(argv)
    script, _, name = options.function.rpartition(":")
    if not script:
        script, name = options.function, ""
    module = ""
    if not Path(script).is_file() and (found := module_file(script)):
        module, script = script, found
    if not Path(script).is_file():
        refuse(f"there is no file {script}")
    if options.picture not in _child.PICTURES:
        refuse(f"there is no picture {options.picture}; there is {', '.join(_child.PICTURES)}")
    if not options.limit > 0:
        refuse(f"--limit needs seconds, more than 0, got {options.limit:g}")
    for argument in options.arguments:
        try:
            _child.split(argument)
        except _child.Usage as error:
            refuse(str(error))
    axes = literal("--in-axes", options.in_axes), literal("--out-axes", options.out_axes)
    return options, _child.Request(
        str(Path(script).resolve()),
        name,
        options.arguments,
        options.picture,
        options.static,
        *axes,
        literal("--argnums", options.argnums),
        module,
    )


def module_file(name: str) -> str | None:
    """The file of a module that is named as in an import, from the folder we are called in."""
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    stem = Path(*name.split("."))
    found = (p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file())
    return next(map(str, found), None)


def written(options: argparse.Namespace, answer: dict[str, Any], title: str) -> int:
    """Print it, write it, or both; the status says whether all went well."""
    if "error" in answer:
        print(answer["error"], file=sys.stderr)
        return 1
    if options.text:
        print(answer["all" if options.all else "text"])
        if answer["made"]:
            print(f"\n{NUMBERS}")
        sys.stdout.flush()
    if options.output:
        page = whole(title, options.lang, answer)
        try:
            Path(options.output).write_text(page, encoding="utf-8")
        except OSError as error:
            refuse(f"{options.output} cannot be written: {error.strerror}")
    return int(answer["failed"])


def opened(url: str) -> None:
    """Open the browser where there is a screen, and say how to look from afar."""
    if not has_screen() or "SSH_CONNECTION" in os.environ:
        port = url.rstrip("/").rpartition(":")[2]
        there = f"ssh -L {port}:localhost:{port} HOST"
        said = "from another machine: " + there + ", one number twice, then open the address there"
        print(said, file=sys.stderr)
    if has_screen():
        webbrowser.open(url)


def stopped(_: int, __: FrameType | None) -> NoReturn:
    raise SystemExit(143)


def main(argv: list[str] | None = None) -> int:
    """The command; returns its status."""
    options, request = parsed(argv)
    signal.signal(signal.SIGTERM, stopped)  # so that what was started ends with us
    once = bool(options.text or options.output)
    try:
        seen = stated([request.script])
        answer = finished(Run(request, options.limit))
        if "usage" in answer:
            refuse(answer["usage"])
        title = f"{request.name} · {Path(request.script).name}"
        if once:
            return written(options, answer, title)
        shown = Shown(title, options.lang)
        shown.update(answer)
        with served(shown, options.port) as url:
            print(f"{url}  follows {request.script}; Ctrl-C ends it", file=sys.stderr)
            report(answer)
            if not options.no_browser:
                opened(url)
            seen = stated(answer.get("files", ())) | seen
            follow(request, options.limit, shown, seen)
    except _child.Usage as error:
        refuse(str(error))
    except KeyboardInterrupt:
        return 130 if once else 0
    except BrokenPipeError:  # as by `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
