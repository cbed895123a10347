"""The parts of the book and its pages: a page has one name, wherever the site names it.

The title of a page is a sentence; its name is short. The toctrees of index give it, and here the
sidebar, the links to the page before and after it, and links without words, [](jit.md), take it.
"""

import functools
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.environment import BuildEnvironment

ALL = 100  # pages: in a larger book the sidebar opens one part, and a page of it weighs no more


class Part(NamedTuple):
    caption: str
    section: str  # of the front page, which says what is in it; may be empty
    pages: dict[str, str]  # and their names


@functools.lru_cache(maxsize=1)  # each page asks for them
def parts(env: BuildEnvironment) -> list[Part]:
    """The toctrees of index, in the order of the book."""
    root = env.config.root_doc
    front = env.get_doctree(root)
    sections = {title.astext(): title.parent["ids"][0] for title in front.findall(nodes.title)}
    found = []
    for toctree in front.findall(addnodes.toctree):
        caption = toctree["caption"] or ""
        pages = {
            root if page == "self" else page: name for name, page in toctree["entries"] if name
        }
        found.append(Part(caption, sections.get(caption, ""), pages))
    return found


def names(env: BuildEnvironment) -> dict[str, str]:
    """The name of every page in the toctrees of index, in the order of the book."""
    return {page: name for part in parts(env) for page, name in part.pages.items()}


def read_front_first(app, env, docnames: list[str]) -> None:
    """Read the front page before the pages that ask for the names it gives."""
    docnames.sort(key=lambda page: page != app.config.root_doc)


def list_parts(app, pagename, templatename, context, doctree) -> None:
    """For sidebar.html: every part; and which are open."""
    all_of_them = parts(app.env)
    few = sum(len(part.pages) for part in all_of_them) <= ALL
    context["parts"] = [(part, few or pagename in part.pages) for part in all_of_them]


def name_neighbours(app, pagename, templatename, context, doctree) -> None:
    if pagename not in app.env.all_docs:
        return
    known = names(app.env)
    order = [app.config.root_doc, *(page for page in known if page != app.config.root_doc)]
    place = order.index(pagename) if pagename in order else -1
    for side, where in (("prev", place - 1), ("next", place + 1)):
        if context.get(side) and 0 <= where < len(order):
            context[side]["title"] = known.get(order[where], context[side]["title"])


def name_links(app, doctree, docname) -> None:
    """A link that says a page's title, because it was written without words, says its name."""
    titles = {title.astext(): page for page, title in app.env.titles.items()}
    for link in doctree.findall(nodes.reference):
        page = titles.get(link.astext())
        if page and link.get("internal") and not link.get("refid") and "#" not in link["refuri"]:
            link.children = []
            link += nodes.Text(names(app.env).get(page, app.env.titles[page].astext()))


def setup(app) -> dict:
    app.connect("env-before-read-docs", read_front_first)
    app.connect("html-page-context", list_parts)
    app.connect("html-page-context", name_neighbours)
    app.connect("doctree-resolved", name_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
