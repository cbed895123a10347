"""The page of `python -m seejax.see`: what it shows, and the server that gives it to this machine.

Nothing leaves this machine: the server listens on 127.0.0.1, and its page loads from there alone.
"""

import contextlib
import http.server
import json
import secrets
import sys
import threading
from collections.abc import Iterator
from typing import Any

from seejax.see import _child, _html
from seejax.see._html import _said

NUMBERS = "array arguments: floats are standard normal, integers 0, booleans True"

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


def _note(answer: dict[str, Any]) -> str:
    """Where its array arguments came from, if it was given numbers that nobody chose."""
    return f'<p id="note">{_said(NUMBERS)}</p>' if answer["made"] else ""


def whole(title: str, lang: str, answer: dict[str, Any]) -> str:
    """A page of one picture, which needs nothing else and follows nothing."""
    return _html.page(title, lang, answer["html"] + _note(answer))


class Shown:
    """What the served page shows now; written by one thread, read by those of the server."""

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
                self.note = _note(answer)
            elif answer:
                self.error = answer.get("usage") or answer["error"]

    def state(self) -> dict[str, str]:
        with self.lock:
            body = f'<div class="{"old" * bool(self.error)}">{self.picture}</div>{self.note}'
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
        assets += '<script src="/page.js" defer></script>'
        title, version, body = (state[key] for key in ("title", "version", "html"))
        return _html.page(title, self.lang, body, assets, version, ended)


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
    """The address of the page, as long as the block lasts.

    Raises:
      Usage: the port cannot be used.
    """
    try:
        server = Server(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise _child.Usage(f"port {port} cannot be used: {why}") from None
    hosts = tuple(f"{name}:{server.server_port}" for name in ("127.0.0.1", "localhost"))
    server.RequestHandlerClass = type("Bound", (Handler,), {"shown": shown, "hosts": hosts})
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    try:
        yield f"http://{hosts[0]}/"
    finally:
        server.shutdown()
        server.server_close()
