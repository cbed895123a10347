"""A page has one name, the one that index gives it in its toctree, wherever the site names it.

The title of a page is a sentence; its name is short. The sidebar takes it from the toctree; here
the links to the page before and after it, and links written without words, [](jit.md), take it too.
"""

from docutils import nodes
from sphinx import addnodes
from sphinx.environment import BuildEnvironment


def names(env: BuildEnvironment) -> dict[str, str]:
    """The name of every page in the toctrees of index, in the order of the book."""
    root = env.config.root_doc
    entries = [
        entry
        for toctree in env.get_doctree(root).findall(addnodes.toctree)
        for entry in toctree["entries"]
    ]
    return {root if page == "self" else page: name for name, page in entries if name}


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
    app.connect("html-page-context", name_neighbours)
    app.connect("doctree-resolved", name_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
