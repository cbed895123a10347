"""One book in two languages: equal sections have equal names, each page leads to the other's."""

import os
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.util import logging

from book.paths import LANGUAGES, language_of

logger = logging.getLogger(__name__)


def share_anchors(app, doctree) -> None:
    """Let a section's explicit anchor be its only id.

    The id that docutils makes from the heading comes first otherwise, and no other language has it.
    """
    for section in doctree.findall(nodes.section):
        named = [doctree.nameids[n] for n in section["names"] if doctree.nametypes.get(n)]
        if named:
            section["ids"] = named
        else:
            title = section.next_node(nodes.title).astext()
            logger.warning("the section %r has no (anchor)= above it", title, location=section)


def address(page: str, here: str, there: str) -> str:
    """Where a page stands in another language: in the tree beside this one, or on its own site."""
    canonical = os.environ.get("READTHEDOCS_CANONICAL_URL")
    if not canonical:
        return "../" * (page.count("/") + 1) + f"{there}/{page}"
    head, found, tail = canonical.rpartition(f"/{LANGUAGES[here]['slug']}/")
    if not found:
        raise ValueError(f"no /{LANGUAGES[here]['slug']}/ in READTHEDOCS_CANONICAL_URL={canonical}")
    return f"{head}/{LANGUAGES[there]['slug']}/{tail}{page}"


def alternates(page: str, here: str) -> dict[str, str]:
    """The addresses of a page in every language; a reader of any other is given English."""
    found = {LANGUAGES[there]["hreflang"]: address(page, here, there) for there in LANGUAGES}
    return {**found, "x-default": found["en"]}


def link_languages(app, pagename, templatename, context, doctree) -> None:
    """Give templates the switch, and search engines the alternates."""
    here, page = language_of(app.config), pagename + ".html"
    there = next(language for language in LANGUAGES if language != here)
    context["translation"] = {"href": address(page, here, there), **LANGUAGES[there]}
    context["site_root"] = urlsplit(app.config.html_baseurl).path or f"/{here}/"
    if not app.config.html_baseurl:  # search engines take whole addresses alone
        return
    context["metatags"] = context.get("metatags", "") + "".join(
        f'\n<link rel="alternate" hreflang="{hreflang}" href="{href}">'
        for hreflang, href in alternates(page, here).items()
    )


def setup(app) -> dict:
    app.connect("doctree-read", share_anchors, priority=100)  # before the contents are collected
    app.connect("html-page-context", link_languages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
