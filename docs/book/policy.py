"""What a page may load and run: this site, and nothing else (a Content-Security-Policy).

The policy stands in the page itself: nobody has to tell a server to send it, and a page from the
disk has it too. It lists the digest of each script and style that stands in this very page. A
digest cannot allow an attribute of style, so each becomes a rule of the page's own style sheet.

Read the Docs adds its menu of versions and languages by a script from the page's own host (/_/),
which is 'self'; nothing that comes from another host, such as an advertisement, is let in. Who may
frame a page (frame-ancestors) no page can say, only its server.
"""

import base64
import hashlib
import json
import re
from html import escape, unescape
from pathlib import Path

POLICY = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'none'",
    "require-trusted-types-for": "'script'",
}
HEAD = re.compile(r'<meta charset="utf-8" ?/?>')
STYLED = re.compile(r'(<\w[^<>]*? )style="([^"]*)"')
INLINE = re.compile(r"<(script|style)(?: type=\"text/\w+\")?>(.*?)</\1>", re.DOTALL)


def sheet(html: str) -> tuple[str, str]:
    """A page with its attributes of style under another name, and the rules that stand for them.

    >>> sheet('<i class="b" style="width:3%">a style="b"</i>')
    ('<i class="b" data-style="width:3%">a style="b"</i>', '[data-style="width:3%"]{width:3%}')
    """
    rules = {}

    def named(match: re.Match) -> str:
        style = " ".join(unescape(match[2]).split())
        rules[style] = f"[data-style={json.dumps(style, ensure_ascii=False)}]{{{style}}}"
        return f'{match[1]}data-style="{escape(style)}"'

    return STYLED.sub(named, html), "".join(rules.values())


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def guarded(html: str) -> str:
    """A whole page with its policy, which comes before all that it is about.

    >>> print(guarded('<meta charset="utf-8"><title>A</title>'))
    <meta charset="utf-8">
    <meta http-equiv="Content-Security-Policy" content="default-src 'self'; ...><title>A</title>
    """
    html, rules = sheet(html)
    if rules:
        html = html.replace("</head>", f"<style>{rules}</style>\n</head>", 1)
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
