"""The only file that knows what MyST-NB, Pygments and Sphinx do not promise.

These are names with an underscore, modules that no documentation names, and how a cell lies in a
notebook or a document. tests/build/test_private.py fails first, and says which it is, when a new
version has changed one.

nbclient's `_async_check_alive` and `_async_cleanup_kernel` are extended where kernels are made, in
`book.kernel`: the keys of all pages hold that file. What takes a second to import is imported where
it is used: a build that has nothing to do starts without it.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

import nbformat
from docutils import nodes
from pygments.formatters import HtmlFormatter

# -- a page as a notebook --------------------------------------------------------------------------


def read_notebook(page: Path) -> nbformat.NotebookNode:
    """A page as MyST-NB reads it: cells of Markdown and of code."""
    from myst_nb.core.read import myst_nb_reader_plugin

    return myst_nb_reader_plugin(str(page))


def first_line(notebook: nbformat.NotebookNode, number: int) -> int:
    """The line of its page on which a cell begins."""
    return notebook.metadata.source_map[number]


def glued(output: nbformat.NotebookNode) -> tuple[str, str] | None:
    """The name of a value that `glue` has kept, and its text; None for any other output."""
    kept = output.get("metadata", {}).get("scrapbook")
    return (kept["name"], output["data"][kept["mime_prefix"] + "text/plain"]) if kept else None


async def watch(client: Any) -> None:
    """What nbclient does beside a cell that runs: ask whether its kernel is alive."""
    await client._async_poll_kernel_alive()


# -- a page as a document --------------------------------------------------------------------------


def glued_in(document: nodes.document, name: str) -> str:
    """The text of a value that a cell of this page has glued."""
    from myst_nb.ext.glue.utils import retrieve_glue_data

    return retrieve_glue_data(document, name).data["text/plain"]


def fold_type() -> type[nodes.Element]:
    """The element that hides a part of a cell until the reader opens it."""
    from myst_nb.sphinx_ import HideCodeCellNode

    return HideCodeCellNode


def is_code_cell(node: nodes.Node) -> TypeGuard[nodes.container]:
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def cell_tags(cell: nodes.container) -> list[str]:
    return cell["cell_metadata"].get("tags", [])


def cell_index(cell: nodes.container) -> int:
    """Its place among all cells of the notebook that the page is."""
    return cell["cell_index"]


LONGEST = 64  # characters of an error, which say enough to know it by


def shown(cell: nodes.container) -> str:
    """What a cell showed as text; of an error, the first line of what it says."""
    texts = []
    for output in cell.findall(nodes.container):
        if output.get("nb_element") == "mime_bundle":
            forms = output.findall(nodes.container)
            texts += [form.astext() for form in forms if form.get("mime_type") == "text/plain"]
    for block in cell.findall(nodes.literal_block):
        if "stream" in block["classes"]:
            texts.append(block.astext())
        elif "traceback" in block["classes"]:
            said = re.findall(r"^[\w.]+: .*", block.astext(), re.MULTILINE)
            texts.append(textwrap.shorten(said[-1], LONGEST, placeholder=" …"))
    return "\n".join(text.rstrip("\n") for text in texts)


def keep_text(document: nodes.document) -> None:
    """Let HTML keep the text of its output, which MyST-NB drops when it has chosen the HTML."""
    for bundle in document.findall(nodes.container):
        if bundle.get("nb_element") == "mime_bundle":
            inner = bundle.findall(nodes.container)
            forms = {form["mime_type"]: form for form in inner if "mime_type" in form}
            if forms.keys() >= {"text/html", "text/plain"}:
                for drawn in forms["text/html"].findall(nodes.raw):
                    drawn["plain"] = forms["text/plain"].astext()


def executed(env: Any, page: str) -> str:
    """The notebook that MyST-NB has kept of a page when it read it."""
    return Path(env.mystnb_config.output_folder, f"{page}.ipynb").read_text("utf8")


def is_folded(cell: nodes.container) -> bool:
    return "hide_mode" in cell


def fold_output(cell: nodes.container) -> None:
    """What the tag hide-output does: text, errors and pictures are folded, the code is not."""
    cell["hide_mode"] = "output"


def set_kind(cell_or_fold: nodes.Element, kind: str) -> None:
    """Note what is folded; a cell hands it on to its fold."""
    cell_or_fold["prompt_show"] = cell_or_fold["prompt_hide"] = kind


def kind(fold: nodes.Element) -> str:
    return fold["prompt_show"]


# -- code, links and scripts -----------------------------------------------------------------------


class Formatter(HtmlFormatter):
    """Code as HTML; a subclass chooses its classes, and changes tokens and lines."""

    def css_class(self, kind: Any) -> str:
        """The class of a kind of token; none, and it has no element of its own."""
        raise NotImplementedError

    def cut(self, tokens: Iterable[tuple]) -> Iterable[tuple]:
        return tokens

    def finish(self, line: str) -> str:
        return line

    def _get_css_class(self, ttype: Any) -> str:
        return self.css_class(ttype)

    _get_css_classes = _get_css_class

    def _format_lines(self, tokensource: Iterable[tuple]) -> Iterator[tuple[int, str]]:
        lines = super()._format_lines(self.cut(tokensource))  # pyrefly: ignore
        for is_code, line in lines:
            yield is_code, self.finish(line)


def other_sites(env: Any) -> Callable[[str], str | None]:
    """What gives the address of a qualified name on another site that intersphinx knows."""
    from sphinx.ext.intersphinx import InventoryAdapter

    inventory = sorted(InventoryAdapter(env).main_inventory.items())

    def find(name: str) -> str | None:
        return next((items[name].uri for _, items in inventory if name in items), None)

    return find


def inline_script(asset: Any) -> str:
    """What stands in a <script> that names no file."""
    return asset.attributes.get("body", "") if not asset.filename else ""
