"""What a page may load and run: this site, and nothing else (a Content-Security-Policy).

The policy stands in the page itself: nobody has to tell a server to send it, and a page from the
disk has it too. It lists the digest of each script and style sheet that stands in this very page.
Attributes of style, which have no digest, are allowed: they draw bars and place words, and can load
nothing that img-src does not let in.

Read the Docs adds its menu of versions and languages by a script from the page's own host (/_/),
which is 'self'; nothing that comes from another host, such as an advertisement, is let in. Who may
frame a page (frame-ancestors) no page can say, only its server.
"""

import base64
import hashlib
import re
from pathlib import Path

POLICY = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "style-src-attr": "'unsafe-inline'",
    "img-src": "'self' data:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'none'",
    "require-trusted-types-for": "'script'",
}
HEAD = re.compile(r'<meta charset="utf-8" ?/?>')
INLINE = re.compile(r"<(script|style)(?: type=\"text/\w+\")?>(.*?)</\1>", re.DOTALL)


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def guarded(html: str) -> str:
    """A whole page with its policy, which comes before all that it is about.

    >>> print(guarded('<meta charset="utf-8"><title>A</title>'))
    <meta charset="utf-8">
    <meta http-equiv="Content-Security-Policy" content="default-src 'self'; ...><title>A</title>
    """
    policy = dict(POLICY)
    for kind, text in dict.fromkeys(INLINE.findall(html)):
        policy[f"{kind}-src"] += f" {digest(text)}"
    content = "; ".join(f"{name} {sources}" for name, sources in policy.items())
    meta = f'<meta http-equiv="Content-Security-Policy" content="{content}">'
    html, places = HEAD.subn(lambda found: f"{found[0]}\n{meta}", html, count=1)
    if not places:
        raise ValueError("a page without <meta charset> has no place for its policy")
    return html


def guard(site: Path) -> None:
    """Give every page of a site its policy."""
    for page in site.rglob("*.html"):
        page.write_text(guarded(page.read_text("utf8")), "utf8")
