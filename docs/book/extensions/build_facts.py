"""What a page says of its own making: {built}`jax`, {built}`date`, {repository}`words <.>`.

All of it is put in when a page is written. No cell holds it, so no cell runs again for its sake.
"""

import functools
import os
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import ReferenceRole, SphinxRole

from book import counts
from book.paths import ROOT, project

# How a forge spells the address at which a file is edited; {} is the file.
EDIT = {
    "github.com": "/edit/main/{}",
    "gitee.com": "/edit/main/{}",
    "gitlab.com": "/-/edit/main/{}",
    "codeberg.org": "/_edit/main/{}",
}
FORGES = r"github\.com|gitlab\.com|gitee\.com|codeberg\.org|bitbucket\.org|gitcode\.com"
ADDRESS = re.compile(
    rf"(?:https?://(?:[^@/]*@)?|ssh://(?:\w+@)?|\w+@)({FORGES})"
    r"(?::\d+/|[:/])([\w.-]+(?:/[\w.-]+)+)/?"
)


def public(address: str) -> str:
    """Where readers find a repository that git knows by this address; nothing if it is no forge.

    >>> public("git@github.com:someone/book.git"), public("https://me:secret@gitee.com/someone/book")
    ('https://github.com/someone/book', 'https://gitee.com/someone/book')
    >>> public("/somewhere/book"), public("http://127.0.0.1/git/book")
    ('', '')
    """
    match = ADDRESS.fullmatch(address.strip())
    return f"https://{match[1]}/{match[2].removesuffix('.git')}" if match else ""


def git(*arguments: str) -> str:
    """What git says of this repository; nothing where the book was unpacked from an archive."""
    try:
        return subprocess.run(
            ["git", "-C", ROOT, *arguments], capture_output=True, encoding="utf8"
        ).stdout
    except FileNotFoundError:
        return ""


def repository() -> str:
    """The public address of this repository, where it has one."""
    address = os.environ.get("READTHEDOCS_GIT_CLONE_URL")
    address = address or project().get("urls", {}).get("Repository")
    return public(address or git("remote", "get-url", "origin"))


@functools.cache
def changes() -> dict[str, str]:
    """The day of the last change of every page; nothing in a clone that has no history."""
    if git("rev-parse", "--is-shallow-repository").strip() != "false":
        return {}
    days: dict[str, str] = {}
    day = ""
    for line in git("log", "--format=day %cs", "--name-only", "--", "docs").splitlines():
        if line.startswith("day "):
            day = line.removeprefix("day ")
        elif line:
            days.setdefault(line, day)
    return days


def edit_address(url: str, path: str) -> str:
    """Where a reader can propose a change of a file, if we know how this forge spells it.

    >>> edit_address("https://gitlab.com/someone/book", "docs/en/jit.md")
    'https://gitlab.com/someone/book/-/edit/main/docs/en/jit.md'
    """
    way = EDIT.get(url.removeprefix("https://").partition("/")[0], "")
    return url + way.format(path) if url and way else ""


def facts() -> dict[str, str]:
    """What {built}`…` can say: the version of JAX, the day (UTC) on which the site was built, on
    which machine, and how many functions test it.

    >>> facts()["jax"] == jax.__version__
    True
    """
    seconds = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    day = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    return {
        "jax": version("jax"),
        "date": day,
        "machine": counts.machine(),
        "tests": str(counts.number_of_tests()),
    }


class Fact(nodes.Inline, nodes.TextElement):
    """The place of a fact, until the page is written."""


class Built(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if self.text not in facts():
            message = f"{{built}} knows {', '.join(facts())}, not {self.text}"
            return [], [self.inliner.reporter.error(message, line=self.lineno)]
        return [Fact("", fact=self.text)], []


class Repository(ReferenceRole):
    """A link to the repository, or the words alone where it has no public address."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if url := repository():
            return [nodes.reference("", self.title, refuri=url)], []
        return [nodes.inline("", self.title)], []


def put_in(app, doctree, docname) -> None:
    for place in list(doctree.findall(Fact)):
        place.replace_self(nodes.Text(facts()[place["fact"]]))


def write_again(app, env) -> list[str]:
    """The front page says the day of the build: when it is another one, the page is written."""
    day, env.day_of_build = getattr(env, "day_of_build", None), facts()["date"]
    return [] if day == env.day_of_build else [env.config.root_doc]


def link_repository(app, pagename, templatename, context, doctree) -> None:
    context["repository"] = url = repository()
    source = Path(app.env.doc2path(pagename))
    if url and source.is_relative_to(ROOT) and source.is_file():
        path = source.relative_to(ROOT).as_posix()
        context["changed"] = changes().get(path, "")
        context["edit_url"] = edit_address(url, path)


def setup(app) -> dict:
    app.add_node(Fact)
    app.add_role("built", Built())
    app.add_role("repository", Repository())
    app.connect("doctree-resolved", put_in)
    app.connect("env-updated", write_again)
    app.connect("html-page-context", link_repository)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
