"""Names in code lead to where they are documented: the right place, and none is left out."""

import ast
import contextlib
import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urldefrag

import pytest
from bs4 import BeautifulSoup, Tag
from built_site import LANGUAGES, PAGES, WIDTHS, soup
from playwright.sync_api import Browser, Page, expect

import limits
from book import inventories, paths, private
from book.extensions import code_links
from book.keys import code_cells

ENTRIES = {
    name: inventories.read(inventories.file(name).read_bytes(), address)
    for name, address in inventories.SITES.items()
}
DOCUMENTED = {name for entries in ENTRIES.values() for name in entries}
ADDRESSES = {address for entries in ENTRIES.values() for _, address in entries.values()}
USUAL = (
    "import jax, flax, optax, numpy\nimport jax.numpy as jnp, numpy as np\nfrom jax import lax\n"
)
USUAL += "from flax import linen, linen as nn, nnx\nfrom seejax import see\n"
CODE = ".highlight a[href]"
PROSE = "article :not(pre) > code a[href]"


def external(path: str, selector: str) -> list[Tag]:
    return [link for link in soup(path).select(selector) if "://" in str(link["href"])]


# -- inventories -----------------------------------------------------------------------------------


@limits.OF_ITS_PYTHON
@pytest.mark.parametrize("name", inventories.SITES)
@pytest.mark.filterwarnings("ignore")
def test_every_name_is_installed_and_stands_on_its_site(name: str) -> None:
    assert ENTRIES[name]
    for full, (_, address) in ENTRIES[name].items():
        inventories.find(full)
        assert address.startswith(inventories.SITES[name]), address
        assert urldefrag(address).fragment, address


@pytest.mark.filterwarnings("ignore")
def test_an_inventory_keeps_what_is_installed_and_its_other_names() -> None:
    documented = {
        "jax.sharding.PartitionSpec": ("py:class", "a#P"),
        "jax.jit": ("py:function", "b#jit"),
        "jax.Array.at": ("py:attribute", "c#at"),  # of a class
        "jax.jot": ("py:function", "d#jot"),  # not installed
        "numpy.where": ("py:function", "e#where"),  # of another library
    }
    kept = inventories.cut(documented, "jax")
    assert kept["jax.P"] == ("py:class", "a#P") and kept["jax.jit"] == ("py:function", "b#jit")
    assert not {"jax.Array.at", "jax.jot", "numpy.where"} & set(kept)
    assert {address for _, address in kept.values()} == {"a#P", "b#jit"}


@limits.OF_ITS_PYTHON
def test_inventories_are_made_anew_by_one_command(tmp_path: Path) -> None:
    """From copies of today's, as sites would send them, come today's."""
    code = "import sys, pathlib; from book import inventories as i; "
    code += "i.FOLDER = pathlib.Path(sys.argv.pop()); i.main()"
    for name in inventories.SITES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "objects.inv").write_bytes(inventories.file(name).read_bytes())
    command = [sys.executable, "-c", code, tmp_path, tmp_path]
    done = subprocess.run(command, cwd=paths.DOCS, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    for name, address in inventories.SITES.items():
        made = inventories.read((tmp_path / f"{name}.inv").read_bytes(), address)
        assert made.items() >= ENTRIES[name].items()


# -- links -----------------------------------------------------------------------------------------


@functools.cache
def namespace(path: str) -> dict[str, object]:
    """What the imports of a page give: run, where code_links reads them."""
    language, _, name = path.removesuffix(".html").partition("/")
    notebook = private.read_notebook(paths.DOCS / language / f"{name}.md")
    given: dict[str, object] = {}
    exec(USUAL, given)
    for cell in code_cells(notebook):
        with contextlib.suppress(SyntaxError):
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    with contextlib.suppress(ImportError):  # a page that shows a failing one
                        exec(ast.unparse(node), given)
    return given


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_link_leads_to_what_its_name_stands_for(site: Path, language: str) -> None:
    """What a reader gets who types it after the page's imports is what the anchor names."""
    wrong, count = [], 0
    for path in [path for path in PAGES if path.startswith(language)]:
        for link in external(path, f"{CODE}, {PROSE}"):
            address, text = str(link["href"]), link.get_text()
            if address not in ADDRESSES:
                wrong.append(f"{path}: {address} stands in no inventory")
                continue
            count += 1
            anchor = urldefrag(address).fragment.removeprefix("module-")
            try:
                meant = eval(text, dict(namespace(path)))
            except (NameError, AttributeError):  # in an import, where it is no name yet
                if not f".{anchor}".endswith(f".{text}"):
                    wrong.append(f"{path}: {text} leads to {anchor}")
                continue
            if meant is not inventories.find(anchor) and meant != inventories.find(anchor):
                wrong.append(f"{path}: {text} leads to {anchor}")
    assert not wrong, "\n".join(wrong)
    assert count


NAME = re.compile(r"(?<![\w.])(?:jax|jnp|np|numpy|lax|optax|nnx|linen)(?:\.[A-Za-z_]\w*)+")
FULL = {"jnp": "jax.numpy", "np": "numpy", "lax": "jax.lax", "nnx": "flax.nnx"}
FULL |= {"linen": "flax.linen"}


def unlinked(block: Tag) -> Iterator[str]:
    """The documented names in a piece of code that are no link: found by their spelling."""
    copy = BeautifulSoup(str(block), "html.parser")
    for part in copy.select("a, .c, .s"):
        part.replace_with(" ")
    for name in NAME.findall(copy.get_text()):
        first, _, rest = name.partition(".")
        if f"{FULL.get(first, first)}.{rest}" in DOCUMENTED:
            yield name


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_documented_name_in_a_cell_is_left_without_a_link(site: Path, language: str) -> None:
    left = [
        f"{path}: {name}"
        for path in PAGES
        if path.startswith(language)
        for block in soup(path).select(".cell .cell_input .highlight")
        for name in unlinked(block)
        # a page that writes `lax, x = jax.lax, 3` has a lax of its own
        if not re.search(rf"^{name.partition('.')[0]}, .* = ", soup(path).get_text(), re.MULTILINE)
    ]
    assert not left, "\n".join(left)


@pytest.mark.parametrize("language", LANGUAGES)
def test_prose_links_a_name_once_a_section_and_never_in_a_title(site: Path, language: str) -> None:
    for path in [path for path in PAGES if path.startswith(language)]:
        assert not soup(path).select("h1 code a, h2 code a, h3 code a, a code a, dt.sig code a")
        for section in soup(path).select("article section"):
            own = [
                str(link["href"])
                for link in section.select(":not(pre) > code a[href]")
                if link.find_parent("section") is section
            ]
            assert len(own) == len(set(own)), (path, section["id"])
    assert external(f"{language}/jit.html", PROSE)


def test_a_name_that_a_page_gives_to_its_own_is_left_alone() -> None:
    meaning = code_links.scope(["import numpy as np", "def f(jax): return jax.jit", "lax = 3"])
    code = "jax.jit(f), lax.scan, np.where"
    found = code_links.links(code, meaning, lambda name: name)
    assert [link.name for link in found] == ["numpy.where"]


def test_links_stand_where_their_names_stand() -> None:
    code = (
        'é = "jnp.sin"  # jnp.cos\n@jax.jit\ndef f(x):\n    return jnp.sin(x)[np.pi:], "é", jnp.cos'
    )
    found = code_links.links(code, code_links.scope([code]), lambda name: name)
    assert [code[link.begin : link.end] for link in found] == [
        "jax.jit",
        "jnp.sin",
        "np.pi",
        "jnp.cos",
    ]


# -- the reference ---------------------------------------------------------------------------------


def test_every_public_name_of_seejax_has_its_place(site: Path) -> None:
    for module in ("see", "entmax", "entmax.attention", "training"):
        found = importlib.import_module(f"seejax.{module}")
        for name in found.__all__:
            what = getattr(found, name)  # of other names, a number or a type, nothing is said
            if getattr(what, "__module__", "").startswith("seejax."):
                for language in LANGUAGES:
                    anchors = {tag["id"] for tag in soup(f"{language}/api.html").select("dt[id]")}
                    assert f"seejax.{module}.{name}" in anchors, (language, module, name)


def test_cells_lead_to_the_reference(site: Path) -> None:
    for language in LANGUAGES:
        links = {str(a["href"]) for a in soup(f"{language}/jit.html").select(CODE)}
        assert "api.html#seejax.see.trace" in links


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.set_default_timeout(60_000)
    yield page
    page.close()


@pytest.fixture(scope="module")
def server(site: Path, serve: Callable[[Path], str]) -> str:
    return serve(site)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_link_in_code_looks_like_code_until_it_is_pointed_at(
    page: Page, server: str, width: str, scheme: str
) -> None:
    page.set_viewport_size({"width": WIDTHS[width], "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{server}/zh/jit.html")
    link = page.locator(".cell_input:visible .highlight a").first
    style = "(e, name) => getComputedStyle(e)[name]"
    colour = link.evaluate(style, "color")
    assert colour == page.locator(".cell_input pre").first.evaluate(style, "color")
    assert link.evaluate(style, "textDecorationColor") == "rgba(0, 0, 0, 0)"
    link.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(link).to_be_focused()
    assert link.evaluate(style, "textDecorationColor") == colour
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_reference_opens_at_a_name_without_a_script(browser: Browser, server: str) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 375, "height": 800})
    page = context.new_page()
    page.goto(f"{server}/en/jit.html")
    page.locator("a[href='api.html#seejax.see.trace']:visible").first.click()
    page.wait_for_url("**/en/api.html#seejax.see.trace")
    expect(page.locator("[id='seejax.see.trace']")).to_be_in_viewport()
    context.close()
