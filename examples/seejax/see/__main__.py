"""A picture of a function in a script, which follows each save of the script.

    python -m seejax.see train.py:loss "f32[8,128]" "f32[128]"

opens it in the browser; Ctrl-C ends it. `--text` prints it, `-o loss.html` writes a page that needs
nothing else, and both end at once. Nothing leaves this machine: the page comes from 127.0.0.1.
"""

import argparse
import ast
import contextlib
import dataclasses
import http.server
import json
import locale
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from seejax.see import _html, _script
from seejax.see._html import _said

POLL_S = 0.1  # how often files are looked at
GRACE_S = 10.0  # beyond the limit, for a process that cannot end itself

HELP = """\
an argument, in quotes where your shell gives brackets a meaning, is one of
  f32[8,128], i32[], bool[3], key<fry>[]   an array of this type, written as jaxprs print it
  3.0, params, init(key<fry>[], f32[1,4])  Python, evaluated in the script
  x=f32[3]                                 either of them, by name

Where a picture needs numbers (calls, keys, timeline), floats are standard normal, integers 0,
booleans True.
A function that takes nothing and returns (f, args) stands for f with these arguments."""

SHELL = """\
<!doctype html><html lang="{lang}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
{assets}<style>{css}</style></head>
<body data-version="{version}"><main>{body}</main>{ended}</body></html>
"""
CSS = """\
:root{color-scheme:light dark}
body{margin:0;padding:1em;background:light-dark(#fff,#111316);color:light-dark(#1f2328,#dfe2e6);
font:14px/1.5 system-ui,sans-serif}
.see{margin:0}
.old>.see{filter:grayscale(1);outline:2px dashed #b3261e;outline-offset:4px}
#said,#ended{position:sticky;bottom:0;max-height:45vh;overflow:auto;margin:1em 0 0;padding:.6em 1em;
border:1px solid;border-radius:8px;background:light-dark(#fdecea,#3a1b1a);
color:light-dark(#b3261e,#ff9a92)}
#said pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4em 0 0}
#ended{position:fixed;inset:0 0 auto;margin:0}
#note{color:light-dark(#646b73,#a3aab4)}
"""
SCRIPT = """\
(() => {
  const main = document.querySelector("main"), ended = document.querySelector("#ended");
  const inner = () => [...main.querySelectorAll(".see-code")];
  const stops = () => [...main.querySelectorAll("[tabindex]")];
  const folds = () => [...main.querySelectorAll("details")];
  const show = ({ version, html, title }) => {
    document.body.click(); // lets go of a line that was clicked
    const at = [scrollX, scrollY], inside = inner().map((el) => [el.scrollLeft, el.scrollTop]);
    const open = folds().map((el) => el.open), focus = stops().indexOf(document.activeElement);
    main.innerHTML = html;
    folds().forEach((el, i) => { el.open = !!open[i]; });
    inner().forEach((el, i) => {
      if (inside[i]) el.scrollTo({ left: inside[i][0], top: inside[i][1], behavior: "instant" });
    });
    stops()[focus]?.focus({ preventScroll: true });
    scrollTo({ left: at[0], top: at[1], behavior: "instant" });
    document.body.dataset.version = version;
    document.title = title;
  };
  const ask = async () => {
    try {
      const answer = await fetch("/state?" + document.body.dataset.version);
      if (answer.status === 200) show(await answer.json());
      ended.hidden = true;
    } catch { ended.hidden = false; }
    setTimeout(ask, 300);
  };
  ask();
})();
"""
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)  # the pictures have style attributes, which no nonce can allow


class Run:
    """One fresh interpreter that runs the script and draws; it ends within the limit, or is ended.

    It leads a group of its own: Ctrl-C in the terminal is for us, and whatever the script has
    started ends with it. What the script prints goes to our stderr.
    """

    def __init__(self, request: _script.Request, limit_s: float) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="seejax-")
        self.answer, self.hung = (Path(self.folder.name, name) for name in ("answer", "hung"))
        self.limit_s, self.started = limit_s, time.monotonic()
        question = json.dumps(dataclasses.asdict(request))
        command = [sys.executable, "-P", _script.__file__, question]
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
        self.process = subprocess.Popen(
            [*command, str(self.answer), str(self.hung), str(limit_s)],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env=environment,
            start_new_session=True,
        )

    def poll(self) -> dict[str, Any] | None:
        """What came of it, or None while it runs."""
        ran_s = time.monotonic() - self.started
        if self.process.poll() is None and ran_s < self.limit_s + GRACE_S:
            return None
        status = self.process.poll()
        hung = self.hung.read_text("utf-8") if self.hung.exists() else ""
        if self.answer.exists() and status == 0:
            said = json.loads(self.answer.read_text("utf-8"))
        elif status is None or hung:
            frames = hung.splitlines()[1:]
            where = "\n".join(frame for frame in frames if _script.__file__ not in frame)
            said = {"error": f"not done after {self.limit_s:g} s (--limit); it was here:\n{where}"}
        else:
            said = {"error": f"the interpreter ended with status {status} and drew nothing"}
        self.end()
        return {**said, "seconds": ran_s}

    def end(self) -> None:
        """End it and what it has started, now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def finished(run: Run) -> dict[str, Any]:
    """Wait for the end of a run, which has one."""
    try:
        while (answer := run.poll()) is None:
            time.sleep(0.02)
        return answer
    finally:
        if run.process.returncode is None:
            run.end()


class Shown:
    """What the page shows now; written by one thread, read by those of the server."""

    def __init__(self, title: str, lang: str) -> None:
        self.title, self.lang = title, lang
        self.run, self.number = secrets.token_hex(4), 0
        self.picture = self.note = self.error = ""
        self.drawing = False
        self.lock = threading.Lock()

    def update(self, answer: dict[str, Any] | None) -> None:
        """A run has ended, or (None) begun. An error leaves the last good picture in place."""
        with self.lock:
            self.number += 1
            self.drawing = answer is None
            if answer and "html" in answer:
                self.picture, self.error = answer["html"], ""
                self.note = "made" if answer["made"] else ""
            elif answer:
                self.error = answer.get("usage") or answer["error"]

    def state(self) -> dict[str, str]:
        with self.lock:
            body = f'<div class="{"old" * bool(self.error)}">{self.picture}</div>'
            if self.note:
                body += f'<p id="note">{_said(NUMBERS)}</p>'
            if self.error:
                old = _said("the picture is of the last save that ran") if self.picture else ""
                shown = _html.escape(self.error)
                body += (
                    f'<div id="said" role="alert"><strong>{old}</strong><pre>{shown}</pre></div>'
                )
            sign = "… " if self.drawing else "! " if self.error else ""
            version = f"{self.run}-{self.number}"
            return {"version": version, "title": sign + self.title, "html": body}

    def page(self) -> str:
        state = self.state()
        assets = '<link rel="stylesheet" href="/see.css"><script src="/see.js" defer></script>'
        ended = f'<p id="ended" role="status" hidden>{_said("the command has ended")}</p>'
        return SHELL.format(
            lang=self.lang,
            title=_html.escape(state["title"]),
            assets=assets + '<script src="/page.js" defer></script>',
            css=CSS,
            version=state["version"],
            body=state["html"],
            ended=ended,
        )


NUMBERS = "array arguments: floats are standard normal, integers 0, booleans True"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET alone, and only who asks for this machine by name: no other site's page can."""

    shown: Shown
    hosts: tuple[str, ...]

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.hosts:
            self.send_error(403, "not for this host")
            return
        path, _, query = self.path.partition("?")
        static = {"/see.css": "text/css", "/see.js": "text/javascript"}
        if path == "/":
            self.reply("text/html", self.shown.page())
        elif path == "/page.js":
            self.reply("text/javascript", SCRIPT)
        elif path in static:
            self.reply(static[path], (_html.STATIC / path[1:]).read_text("utf-8"))
        elif path != "/state":
            self.send_error(404)
        elif (state := self.shown.state())["version"] == query:
            self.reply("application/json", "", 204)
        else:
            self.reply("application/json", json.dumps(state))

    def reply(self, kind: str, text: str, status: int = 200) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went on before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def served(shown: Shown, port: int) -> Iterator[str]:
    """The address of the page, as long as the block lasts."""
    try:
        server = Server(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        refuse(f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}")
    hosts = tuple(f"{name}:{server.server_port}" for name in ("127.0.0.1", "localhost"))
    server.RequestHandlerClass = type("Bound", (Handler,), {"shown": shown, "hosts": hosts})
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    try:
        yield f"http://{hosts[0]}/"
    finally:
        server.shutdown()
        server.server_close()


State = dict[str, tuple[int, int, int]]


def stated(files: Iterable[str]) -> State:
    """What a save changes of each file; one that is missing, as while it is saved, is left out."""
    found = {}
    for file in files:
        with contextlib.suppress(OSError):
            stat = os.stat(file)
            found[file] = stat.st_mtime_ns, stat.st_size, stat.st_ino
    return found


def follow(request: _script.Request, limit_s: float, shown: Shown, seen: State) -> NoReturn:
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
                told(answer)
    finally:
        if run:
            run.end()


def told(answer: dict[str, Any]) -> None:
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


def parsed(argv: list[str] | None) -> tuple[argparse.Namespace, _script.Request]:
    parser = argparse.ArgumentParser(
        prog="python -m seejax.see",
        description="Draw a function of a script, again after each save.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("function", metavar="SCRIPT.py:FUNCTION")
    add("arguments", metavar="ARGUMENT", nargs="*", help="see below")
    add("--picture", default="trace", help=f"one of {', '.join(_script.PICTURES)}")
    add("--static", action="append", default=[], metavar="NAME", help="a static argument")
    add("--argnums", default="0", help="for grad, as jax.grad has it")
    add("--in-axes", default="0", help="for axes, as jax.vmap has it, such as '(None,0)'")
    add("--out-axes", default="0", help="for axes, as jax.vmap has it")
    add("--text", action="store_true", help="print the picture and end")
    add("-o", "--output", metavar="FILE.html", help="write a page that needs nothing else, and end")
    add("--limit", type=float, default=60.0, metavar="SECONDS", help="for one run (60)")
    add("--port", type=int, default=0, help="of the page (any that is free)")
    add("--no-browser", action="store_true", help="say the address and open nothing")
    add("--lang", choices=("en", "zh"), default=language(), help="of the page's own words")
    options = parser.parse_intermixed_args(argv)
    script, _, name = options.function.rpartition(":")
    if not script:
        script, name = options.function, ""
    if not Path(script).is_file():
        refuse(f"there is no file {script}")
    if options.picture not in _script.PICTURES:
        refuse(f"there is no picture {options.picture}; there is {', '.join(_script.PICTURES)}")
    if not options.limit > 0:
        refuse(f"--limit needs seconds, more than 0, got {options.limit:g}")
    for argument in options.arguments:
        try:
            _script.split(argument)
        except _script.Usage as error:
            refuse(str(error))
    axes = literal("--in-axes", options.in_axes), literal("--out-axes", options.out_axes)
    return options, _script.Request(
        str(Path(script).resolve()),
        name,
        options.arguments,
        options.picture,
        options.static,
        *axes,
        literal("--argnums", options.argnums),
    )


def language() -> str:
    name = os.environ.get("LC_ALL") or os.environ.get("LANG") or locale.getlocale()[0] or ""
    return "zh" if name.startswith(("zh", "Chinese")) else "en"


def written(options: argparse.Namespace, answer: dict[str, Any], title: str) -> int:
    """Print it, write it, or both; the status says whether all went well."""
    if "error" in answer:
        print(answer["error"], file=sys.stderr)
        return 1
    if options.text:
        print(answer["text"])
        if answer["made"]:
            print(f"\n{NUMBERS}")
        sys.stdout.flush()
    if options.output:
        note = f'<p id="note">{_said(NUMBERS)}</p>' if answer["made"] else ""
        page = SHELL.format(
            lang=options.lang,
            title=_html.escape(title),
            assets=_html.ASSETS,
            css=CSS,
            version="",
            body=answer["html"] + note,
            ended="",
        )
        try:
            Path(options.output).write_text(page, encoding="utf-8")
        except OSError as error:
            refuse(f"{options.output} cannot be written: {error.strerror}")
    return int(answer["failed"])


def opened(url: str) -> None:
    """Open the browser where there is a screen; not one that would take over the terminal."""
    screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if sys.platform != "linux" or screen:
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
            told(answer)
            if not options.no_browser:
                opened(url)
            seen = stated(answer.get("files", ())) | seen
            follow(request, options.limit, shown, seen)
    except KeyboardInterrupt:
        return 130 if once else 0
    except BrokenPipeError:  # as by `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
