"""What MyST-NB, nbclient, Pygments and Sphinx do not promise is there, and means what it did."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from docutils.core import publish_doctree

ROOT = Path(__file__).parents[2]
NAMES = {
    "myst_nb.core.read": ["myst_nb_reader_plugin"],
    "myst_nb.ext.glue.utils": ["retrieve_glue_data"],
    "myst_nb.sphinx_": ["HideCodeCellNode"],
    "nbclient.client.NotebookClient": [
        "_async_check_alive",
        "_async_cleanup_kernel",
        "_async_poll_kernel_alive",
    ],
    "pygments.formatters.HtmlFormatter": ["_format_lines", "_get_css_class", "_get_css_classes"],
    "sphinx.ext.intersphinx": ["InventoryAdapter"],
}
ELSEWHERE = re.compile(
    r"scrapbook|papermill|nb_element|hide_mode|prompt_(?:show|hide)|source_map"
    r"|mystnb_config|[\"']cell_(?:index|metadata)"
)
KNOWING = {
    "docs/book/private.py",
    "docs/book/kernel.py",
    "tests/build/test_private.py",
    "tests/pages/test_outputs.py",  # makes a notebook with a glued value
    "docs/book/export/markdown.py",  # has a method for each kind of node, called as its class
}


@pytest.mark.parametrize(("place", "names"), NAMES.items())
def test_a_private_name_is_there(place: str, names: list[str]) -> None:
    try:
        found = importlib.import_module(place)
    except ModuleNotFoundError:
        module, _, name = place.rpartition(".")
        found = getattr(importlib.import_module(module), name)
    gone = [name for name in names if not hasattr(found, name)]
    assert not gone, f"{place} has no {', '.join(gone)} any more: see docs/book/private.py"


def test_no_other_file_touches_private_names() -> None:
    names = re.compile("|".join(rf"\b{name}\b" for each in NAMES.values() for name in each))
    files = [*(ROOT / "docs" / "book").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    for file in [*files, ROOT / "conftest.py", ROOT / "docs" / "conf.py"]:
        text, path = file.read_text("utf8"), file.relative_to(ROOT).as_posix()
        if path not in KNOWING:
            found = names.findall(text) + ELSEWHERE.findall(text)
            assert not found, f"{path}: {', '.join(found)} belong into docs/book/private.py"


PAGE = """\
---
file_format: mystnb
kernelspec: {name: python3}
---
# A page

```{code-cell}
:tags: [hide-output]
1 + 1
```

```{code-cell}
2
```
"""


def test_read_notebook_knows_where_a_cell_begins(tmp_path: Path) -> None:
    from book import private

    (tmp_path / "page.md").write_text(PAGE)
    notebook = private.read_notebook(tmp_path / "page.md")
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code"]
    lines = PAGE.splitlines()
    found = [lines[private.first_line(notebook, number) - 1] for number in (1, 2)]
    assert found == ["```{code-cell}"] * 2


def test_glued_gives_what_glue_has_kept() -> None:
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from myst_nb import glue

    from book import private

    InteractiveShell.instance()
    with capture_output() as captured:
        glue("share", 0.25)
    (output,) = captured.outputs
    kept = nbformat.v4.new_output("display_data", output.data, metadata=output.metadata)
    assert private.glued(kept) == ("share", "0.25")
    assert private.glued(nbformat.v4.new_output("display_data", {"text/plain": "1"})) is None


def test_a_cell_tells_its_kind_and_whether_it_is_folded(tmp_path: Path) -> None:
    from docutils import nodes
    from myst_nb.docutils_ import Parser

    from book import private

    settings = {"nb_execution_mode": "off"}
    (tmp_path / "page.md").write_text(PAGE)
    text = nbformat.writes(private.read_notebook(tmp_path / "page.md"))
    document = publish_doctree(text, parser=Parser(), settings_overrides=settings)
    cells = [each for each in document.findall(nodes.container) if private.is_code_cell(each)]
    assert [private.is_folded(cell) for cell in cells] == [True, False]
    attributes = dict(cells[0].attributes)
    private.fold_output(cells[1])
    assert cells[1]["hide_mode"] == attributes["hide_mode"], "as MyST-NB's own tag does"
    assert {"prompt_show", "prompt_hide"} <= attributes.keys()
    fold = private.fold_type()()
    private.set_kind(fold, "cured")
    assert private.kind(fold) == "cured"


def test_a_formatter_chooses_classes_and_changes_tokens_and_lines() -> None:
    from pygments import highlight
    from pygments.lexers import PythonLexer
    from pygments.token import Keyword

    from book import private

    class Loud(private.Formatter):
        def css_class(self, kind) -> str:
            return "k" if kind in Keyword else ""

        def cut(self, tokens):
            return ((kind, text.upper()) for kind, text in tokens)

        def finish(self, line: str) -> str:
            return f"> {line}"

    made = highlight("if x:\n    pass\n", PythonLexer(), Loud(nowrap=True))
    assert made == '> <span class="k">IF</span> X:\n>     <span class="k">PASS</span>\n'


def test_other_sites_are_asked_by_qualified_name() -> None:
    from sphinx.ext.intersphinx import InventoryAdapter

    from book import private

    env = SimpleNamespace()
    item = SimpleNamespace(uri="https://site.test/grad")
    InventoryAdapter(env).main_inventory["py:function"] = {"jax.grad": item}
    find = private.other_sites(env)
    assert find("jax.grad") == item.uri and find("jax.else") is None


def test_inline_script_gives_a_script_without_a_file() -> None:
    from sphinx.builders.html import StandaloneHTMLBuilder

    from book import private

    builder = SimpleNamespace(_js_files=[])
    for name, options in ((None, {"body": "x = 1"}), ("site.js", {})):
        StandaloneHTMLBuilder.add_js_file(builder, name, **options)
    assert [private.inline_script(each) for each in builder._js_files] == ["x = 1", ""]


def test_a_kernel_is_asked_whether_it_is_alive_by_what_book_kernel_extends() -> None:
    from nbclient import NotebookClient

    from book.kernel import Kernel

    asked = NotebookClient._async_poll_kernel_alive.__code__.co_names
    assert "_async_check_alive" in asked and "_async_check_alive" in vars(Kernel)
