"""A name in code leads to where it is documented: on its library's site, or on the page `api`.

What a name stands for is read from the imports of the page, all its cells together, as they run
for a reader: after `import jax.numpy as jnp`, jnp.where is jax.numpy.where. A name that a page also
gives to something of its own is left alone. Addresses come from docs/data/inventories. In
a cell each place is linked, in the prose of one section the first.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import NamedTuple

from docutils import nodes
from pygments.token import Text
from sphinx import addnodes
from sphinx.highlighting import PygmentsBridge

from book import private
from book.extensions.assets import Plain

PYTHON = {"ipython3", "python"}
USUAL = """
import jax, jax.numpy as jnp, numpy, numpy as np, flax, optax
from jax import lax
from flax import linen, nnx
from seejax import see
"""  # what prose means by a name that its page has not imported
NO_LINK = nodes.title | nodes.reference | addnodes.desc_signature | addnodes.pending_xref

Find = Callable[[str], str | None]  # the address of a qualified name


class Link(NamedTuple):
    begin: int
    end: int
    name: str
    address: str


# -- what names stand for --------------------------------------------------------------------------


def parsed(code: str) -> ast.Module:
    """The code as a tree; an empty one where it is no Python."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each name that imports give, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                top = each.name.partition(".")[0]
                yield (each.asname, each.name) if each.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                yield each.asname or each.name, f"{node.module}.{each.name}"


def own(tree: ast.AST) -> Iterator[str]:
    """Each name that code gives to something of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def scope(codes: Iterable[str]) -> dict[str, str]:
    """What the names of a page stand for, where this is one thing alone.

    >>> here = scope(["import jax.numpy as jnp", "from jax import grad as D, jit", "jit = 3"])
    >>> here["jnp"], here["D"], here["np"], "jit" in here
    ('jax.numpy', 'jax.grad', 'numpy', False)
    """
    trees = [parsed(code) for code in codes]
    meant: dict[str, set[str]] = {}
    for tree in trees:
        for name, full in imported(tree):
            meant.setdefault(name, set()).add(full)
    for name, full in imported(ast.parse(USUAL)):
        meant.setdefault(name, {full})
    others = {name for tree in trees for name in own(tree)}
    return {
        name: min(full) for name, full in meant.items() if len(full) == 1 and name not in others
    }


# -- where they stand in code ----------------------------------------------------------------------


def links(code: str, meaning: dict[str, str], find: Find) -> list[Link]:
    """The names in a piece of code that are documented, in their order.

    >>> found = links("import jax\\ny = jax.jit(f).lower", {"jax": "jax"}, {"jax.jit": "J"}.get)
    >>> [(link.begin, link.end, link.name, link.address) for link in found]
    [(15, 22, 'jax.jit', 'J')]
    """
    lines = code.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def at(line: int, column: int) -> int:
        """A place as a count of characters; the tree counts bytes."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    def whole(node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return meaning.get(node.id)
        if isinstance(node, ast.Attribute) and (left := whole(node.value)):
            return f"{left}.{node.attr}"
        return None

    def named() -> Iterator[tuple[int, int, str]]:
        for node in ast.walk(parsed(code)):
            if isinstance(node, ast.Name | ast.Attribute) and (name := whole(node)):
                assert node.end_lineno and node.end_col_offset
                begin = at(node.lineno, node.col_offset)
                yield begin, at(node.end_lineno, node.end_col_offset), name
            elif isinstance(node, ast.Import | ast.ImportFrom):
                module = node.module if isinstance(node, ast.ImportFrom) else None
                if module:
                    begin = code.index(module, at(node.lineno, node.col_offset) + len("from"))
                    yield begin, begin + len(module), module
                for each in node.names:
                    begin = at(each.lineno, each.col_offset)
                    full = f"{module}.{each.name}" if module else each.name
                    yield begin, begin + len(each.name), full

    found: list[Link] = []
    # the longest name that begins at a place; jnp in jnp.where is no name of its own
    for begin, end, name in sorted(named(), key=lambda each: (each[0], -each[1])):
        inside = found and begin < found[-1].end
        if not inside and "\n" not in code[begin:end] and (address := find(name)):
            found.append(Link(begin, end, name, address))
    return found


def firsts(found: Iterable[Link], seen: set[str]) -> list[Link]:
    """Those whose address has not been seen, which it is from now on."""
    kept = []
    for link in found:
        if link.address not in seen:
            seen.add(link.address)
            kept.append(link)
    return kept


# -- as HTML ---------------------------------------------------------------------------------------

OPEN, NUMBERED, CLOSE = "\ue000", "\ue001", "\ue002"  # private characters, which no code has


def marked(tokens: Iterable[tuple], links: list[Link]) -> Iterator[tuple]:
    """The tokens of code, cut where links begin and end, with marks between."""
    marks = [
        mark
        for number, link in enumerate(links)
        for mark in ((link.begin, f"{OPEN}{number}{NUMBERED}"), (link.end, CLOSE))
    ]
    here = 0
    for kind, text in tokens:
        end = here + len(text)
        while marks and (marks[0][0] < end or marks[0] == (end, CLOSE)):
            place, mark = marks.pop(0)
            yield kind, text[: place - here]
            yield Text, mark
            text, here = text[place - here :], place
        yield kind, text
        here = end


class Linked(Plain):
    """Highlighted code in which some names are links."""

    def __init__(self, links: list[Link] | None = None, **options) -> None:
        super().__init__(**options)
        self.links = links or []

    def cut(self, tokens: Iterable[tuple]) -> Iterator[tuple]:
        return marked(tokens, self.links)

    def finish(self, line: str) -> str:
        line = re.sub(f"{OPEN}(\\d+){NUMBERED}", self.opened, line)
        return line.replace(CLOSE, "</a>")

    def opened(self, mark: re.Match) -> str:
        return f'<a href="{escape(self.links[int(mark[1])].address)}">'


# -- in Sphinx -------------------------------------------------------------------------------------


def finder(app, page: str) -> Find:
    """Where a qualified name is documented, seen from a page."""
    elsewhere = private.other_sites(app.env)
    ours = app.env.domains.python_domain

    def find(name: str) -> str | None:
        if place := ours.objects.get(name) or ours.modules.get(name):
            here = app.builder.get_relative_uri(page, place.docname)
            return f"{here}#{place.node_id}" if place.docname != page else f"#{place.node_id}"
        return elsewhere(name)

    return find


def link_names(app, doctree: nodes.document, docname: str) -> None:
    if app.builder.format != "html":
        return
    blocks = [
        block
        for block in doctree.findall(nodes.literal_block)
        if block.get("language") in PYTHON and block.rawsource == block.astext()
    ]
    meaning = scope(block.astext() for block in blocks)
    find = finder(app, docname)
    for block in blocks:
        found = links(block.astext(), meaning, find)
        block["highlight_args"] = {**block.get("highlight_args", {}), "links": found}
    for literal, seen in list(literals(doctree, set())):
        text = literal.astext()
        put_in(literal, text, firsts(links(text, meaning, find), seen))


def literals(node: nodes.Node, seen: set[str]) -> Iterator[tuple[nodes.literal, set[str]]]:
    """The literals of the prose, each with what its section has linked so far."""
    for child in node.children:
        if isinstance(child, nodes.literal):
            yield child, seen
        elif not isinstance(child, NO_LINK):
            yield from literals(child, set() if isinstance(child, nodes.section) else seen)


def put_in(literal: nodes.literal, text: str, found: list[Link]) -> None:
    """Make links of parts of a literal."""
    if not found:
        return
    literal.children, here = [], 0
    for link in found:
        literal += nodes.Text(text[here : link.begin])
        words, here = text[link.begin : link.end], link.end
        internal = "://" not in link.address
        literal += nodes.reference("", words, refuri=link.address, internal=internal)
    literal += nodes.Text(text[here:])


def read_again(app, env, added, changed, removed) -> set[str]:
    """Every page, when the reference has changed: it may lead to what is there no longer."""
    return env.found_docs if "api" in added | changed else set()


def setup(app) -> dict:
    app.setup_extension("book.extensions.assets")  # whose formatter this one extends
    PygmentsBridge.html_formatter = Linked
    app.connect("env-get-outdated", read_again)
    app.connect("doctree-resolved", link_names, priority=400)  # before explanations are added
    return {"parallel_read_safe": True, "parallel_write_safe": True}
