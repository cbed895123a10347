"""The notebooks of the built site and the package: each is its page, and runs where no site is."""

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag

import jinja2
import nbformat
import pytest
from bs4 import BeautifulSoup
from built_site import LANGUAGES, SITE
from markdown_it import MarkdownIt
from packaging.requirements import Requirement
from playwright.sync_api import Browser, Page, expect

from book import paths, tables
from book.author import run_notebooks
from processes import Process

ROOT = paths.ROOT
CELL = re.compile(r"^```\{code-cell\}\n((?::[^\n]*\n)*)\n?(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMON = MarkdownIt("commonmark").enable("table")  # what everyone reads, and no more
FORMULA = re.compile(r"(```.*?```|`[^`]*`)|\$\$.+?\$\$|\$[^$]+?\$", re.DOTALL)  # not in code

# A page has run in the build: its cells are equal, and so is what JAX is told. What its notebook
# could still lack shows on these: the devices, also in processes that it starts; the package's
# pictures and figures. `make notebooks` runs all of them.
RUN = ["zh/index", "en/parallel", "zh/tour"]


def sources() -> list[str]:
    """Every page that has code."""
    pages = [path for language in LANGUAGES for path in paths.pages(language)]
    with_code = [path for path in pages if CELL.search(path.read_text("utf8"))]
    return [path.relative_to(paths.DOCS).with_suffix("").as_posix() for path in with_code]


PAGES = sources()


def built(page: str) -> Path:
    language, _, name = page.partition("/")
    return SITE / language / "notebooks" / f"{name}.ipynb"


def read(page: str) -> nbformat.NotebookNode:
    return nbformat.read(built(page), nbformat.NO_CONVERT)


def of_kind(page: str, kind: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in read(page).cells if cell.cell_type == kind]


def html(page: str) -> BeautifulSoup:
    return BeautifulSoup((SITE / f"{page}.html").read_text("utf8"), "html.parser")


def prose(page: str) -> BeautifulSoup:
    """What a reader of the notebook sees of its prose, formulas aside."""
    text = "\n\n".join(cell.source for cell in of_kind(page, "markdown"))
    return BeautifulSoup(
        COMMON.render(FORMULA.sub(lambda found: found[1] or "", text)), "html.parser"
    )


# -- a notebook is its page ------------------------------------------------------------------------


def test_each_page_with_code_has_a_notebook_in_both_languages(site: Path) -> None:
    found = [p.relative_to(SITE) for p in SITE.glob("*/notebooks/**/*.ipynb")]
    assert sorted(f"{p.parts[0]}/{p.stem}" for p in found) == sorted(PAGES)


def tagged(options: str) -> set[str]:
    found = re.search(r":tags: \[(.*)\]", options)
    return set(found[1].split(", ")) if found else set()


@pytest.mark.parametrize("page", PAGES)
def test_a_notebook_is_its_page_without_outputs(site: Path, page: str) -> None:
    notebook = read(page)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == notebook.metadata.language_info.name + "3"
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    install, settings, *cells = of_kind(page, "code")
    assert not any(cell.outputs or cell.execution_count for cell in (install, settings, *cells))
    text = (paths.DOCS / f"{page}.md").read_text("utf8")
    written = [(code.strip("\n"), options) for options, code in CELL.findall(text)]
    for n, (code, options) in enumerate(written):
        if "tests" in tagged(options):  # a reader sees them before the solution
            written[n - 1 : n + 1] = [(code, options), written[n - 1]]
    assert [cell.source for cell in cells] == [code for code, _ in written]
    for cell, (_, options) in zip(cells, written, strict=True):
        tags = tagged(options)
        if "tests" in tags:  # they fail until the reader has done the exercise
            tags.add("raises-exception")
        assert set(cell.metadata.get("tags", [])) == tags
        folds = {"hide-cell", "hide-input", "remove-cell", "remove-input", "mistake"}
        folded = bool(tags & folds)
        assert cell.metadata.get("jupyter", {}).get("source_hidden", False) == folded
        assert (cell.metadata.get("cellView") == "form") == folded
        assert "solution" not in tags or cell.metadata.jupyter.outputs_hidden
    first = notebook.cells[0]
    assert first.cell_type == "markdown" and notebook.cells[1] == install
    title = re.search(r"^# (.+)$", text, re.MULTILINE)[1]
    assert first.source.split("\n", 1)[0] == f"# {title}"


@pytest.mark.parametrize("page", PAGES)
def test_a_notebook_says_what_the_page_says(site: Path, page: str) -> None:
    article, said = html(page).select_one("article"), prose(page)
    cells = ".cell .cell_input, .cell .cell_output"
    added = f"template, {cells}, details:not(.fine) > summary, .headerlink, math, .no-search"
    for each in article.select(f"{added}, .guess-again"):
        each.decompose()
    for added in said.select("summary"):
        added.decompose()
    here, there = letters(said.get_text()), letters(article.get_text())
    words = tables.words(page[:2])
    for note in (words["notebook"], words["notebook_solution"]):
        rendered = BeautifulSoup(COMMON.render(note), "html.parser").get_text()
        assert letters(rendered) in here or note == words["notebook_solution"]
        here = here.replace(letters(rendered), "")
    at = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
    assert here == there, f"{here[at - 30 : at]} … {here[at : at + 30]} | {there[at : at + 30]}"


def letters(text: str) -> str:
    """Letters and digits alone: marks look as each reader's program wants them."""
    return "".join(filter(str.isalnum, text))


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_notebook_leads_to_a_section_of_the_site(site: Path, page: str) -> None:
    lost = []
    for link in prose(page).select("a, img"):
        address, anchor = urldefrag(link.get("href") or link["src"])
        if address.startswith("https://"):
            continue
        target = (built(page).parent / address).resolve()
        if not target.is_file():
            lost.append(f"{address} is no file")
        elif anchor and not section(target, unquote(anchor)):
            lost.append(f"{address}#{anchor} is no section")
    assert not lost, "\n".join(lost)


IDS: dict[Path, set[str]] = {}


def section(path: Path, anchor: str) -> bool:
    if path not in IDS:
        IDS[path] = set(re.findall(r'\bid="([^"]+)"', path.read_text("utf8")))
    return anchor in IDS[path]


@pytest.mark.parametrize("page", PAGES)
def test_the_install_cell_asks_for_what_is_imported(site: Path, page: str) -> None:
    install, settings, *cells = of_kind(page, "code")
    asked = re.findall(r'[^\s"]+', install.source.removeprefix("%pip install -q "))
    assert set(asked) <= set(built(page).with_name("requirements.txt").read_text("utf8").split())
    assert [Requirement(one).name for one in asked[:4]] == ["seejax", "jax", "flax", "optax"]
    assert all("==" in one for one in asked[:4])
    source = "\n".join(cell.source for cell in cells)
    imports = re.findall(r"^\s*(?:from|import) (\w+)", source, re.MULTILINE)
    for name in ("matplotlib", "wandb", "treescope", "scipy"):
        assert (name in imports) <= (name in asked)
    assert settings.source.count("JAX_PLATFORMS") == 1 and "import jax" not in settings.source


# -- it runs elsewhere -----------------------------------------------------------------------------


def test_notebooks_run_top_to_bottom_with_the_published_package(site: Path) -> None:
    assert set(RUN) <= set(PAGES)
    wrong = run_notebooks.run([built(page) for page in RUN])
    assert not wrong, "\n\n".join(wrong)


def test_a_notebook_that_fails_is_told(tmp_path: Path) -> None:
    code = nbformat.v4.new_code_cell
    expected = {"tags": ["raises-exception"]}
    cells = {
        "fails": [code("1 / 0")],
        "lacks": [code("%pip install -q 'seejax>1000'")],
        "calm": [code("1 + 1", metadata=expected)],
        "site": [code("import os; assert 'XLA_FLAGS' not in os.environ")],
        "fine": [
            code("import seejax; assert 'package' in seejax.__file__"),
            code("1 / 0", metadata=expected),
        ],
    }
    paths = []
    for name, each in cells.items():
        paths.append(tmp_path / "en" / "notebooks" / f"{name}.ipynb")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nbformat.v4.new_notebook(cells=each), paths[-1])
    wrong = run_notebooks.run(paths)
    assert [Path(one.split(":", 1)[0]).stem for one in wrong] == ["fails", "lacks", "calm"]


# -- the package -----------------------------------------------------------------------------------


def python(*words: object, **options: object) -> str:
    status, out, _ = Process(sys.executable, *map(str, words), merge=True, **options).end(
        limit_s=300
    )
    assert status == 0, out
    return out


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, made of the source distribution as an index has it."""
    out = tmp_path_factory.mktemp("dist")
    python("-m", "build", "--no-isolation", "--outdir", out, ROOT)
    python("-m", "twine", "check", "--strict", *out.iterdir())
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    files = {name for name in names if not name.startswith("seejax-")}
    kept = subprocess.run(
        ["git", "ls-files", "seejax"], cwd=ROOT / "examples", capture_output=True, encoding="utf8"
    )
    tracked = set(kept.stdout.split()) or files  # an archive of the book has no git
    records = {f"seejax/lesson/{name}.json" for name in ("results", "same_model", "slurm")}
    pages = {
        f"seejax/practice/pages/{language}/{file.name}"
        for language in paths.LANGUAGES
        for file in (paths.DOCS / language).iterdir()
        if file.suffix in (".md", ".svg")
    }
    assert files == tracked | records | pages
    assert {name.partition("/")[2] for name in names if name.startswith("seejax-")} == {
        "METADATA",
        "WHEEL",
        "RECORD",
        "licenses/LICENSE",
    }


README = """
import doctest, os, sys
import jax, jax.numpy as jnp
from seejax import see
from seejax.lesson import recorded
assert all(map(recorded.load, ("results.json", "same_model.json", "slurm.json")))
assert see.__file__.startswith(os.environ["PYTHONPATH"]), see.__file__
flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
names = {"jax": jax, "jnp": jnp}
told = doctest.testfile(sys.argv[1], module_relative=False, globs=names, optionflags=flags)
assert told.attempted > 3
sys.exit(told.failed)
"""


def test_what_the_readme_shows_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    zipfile.ZipFile(wheel).extractall(package)
    env = run_notebooks.environment(package)
    python("-c", README, ROOT / "README.md", env=env, cwd=tmp_path)


# -- on the page -----------------------------------------------------------------------------------


@pytest.fixture
def page(browser: Browser, serve: Callable[[Path], str], site: Path) -> Iterator[Callable]:
    contexts = []
    home = serve(site)

    def opened(path: str, **options: object) -> Page:
        contexts.append(browser.new_context(**options))
        contexts[-1].grant_permissions(["clipboard-read", "clipboard-write"])
        contexts[-1].set_default_timeout(60_000)
        tab = contexts[-1].new_page()
        tab.goto(f"{home}/{path}")
        return tab

    yield opened
    for each in contexts:
        each.close()


def clipboard(tab: Page) -> str:
    return tab.evaluate("navigator.clipboard.readText()").replace("\r\n", "\n")


@pytest.mark.parametrize(("language", "said"), [("zh", "已复制"), ("en", "Copied")])
@pytest.mark.parametrize("width", [375, 1440])
def test_a_cell_is_copied_by_mouse_and_keyboard(page, language: str, said: str, width: int) -> None:
    tab = page(f"{language}/jit.html", viewport={"width": width, "height": 800})
    _, _, *cells = of_kind(f"{language}/jit", "code")
    cells = [c for c in cells if not {"remove-input", "mistake"} & {*c.metadata.get("tags", [])}]
    buttons = tab.locator("button.copy")
    expect(buttons).to_have_count(len(cells))
    assert not tab.locator(".cell_output button.copy").count()
    first = tab.locator(".cell_input").first
    first.hover()
    button = first.locator("button.copy")
    expect(button).to_have_text(tables.words(language)["copy"])
    button.click()
    expect(first.locator("output")).to_have_text(said)  # a live region
    assert clipboard(tab) == cells[0].source
    second = buttons.nth(1)
    tab.keyboard.press("Tab")  # from now on focus is shown
    second.focus()
    expect(second).to_have_css("opacity", "1")
    tab.keyboard.press("Enter")
    expect(tab.locator(".cell_input").nth(1).locator("output")).to_have_text(said)
    assert clipboard(tab) == cells[1].source
    expect(first.locator("output")).to_have_text("")


def test_a_command_is_copied_without_prompt_and_output(page) -> None:
    tab = page("en/see.html")
    block = tab.locator(".highlight-console pre").first
    tab.locator(".highlight-console").first.hover()
    block.evaluate("e => e.textContent = '$ make html\\nBuilt in 3 s\\n$ make test\\n'")
    tab.locator(".highlight-console button.copy").first.click()
    expect(tab.locator(".highlight-console output").first).not_to_have_text("")
    assert clipboard(tab) == "make html\nmake test"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_notebook_is_one_click_away_without_script_too(page, language: str) -> None:
    tab = page(
        f"{language}/vmap.html", java_script_enabled=False, viewport={"width": 375, "height": 800}
    )
    assert not tab.locator("button.copy").count()
    for folded in tab.locator(".run > summary").all():  # where Colab is offered, too
        folded.click()
    with tab.expect_download() as download:
        tab.locator("a[download]").click()
    assert json.loads(Path(download.value.path()).read_text("utf8")) == json.loads(
        built(f"{language}/vmap").read_text("utf8")
    )


def test_a_page_without_code_offers_nothing_to_run(site: Path) -> None:
    assert not html("en/terms").select(".run") and html("en/jit").select(".run")


def test_colab_and_binder_are_offered_where_the_repository_is_known() -> None:
    from book.extensions import launch_buttons

    loader = jinja2.FileSystemLoader(paths.THEME)
    template = jinja2.Environment(loader=loader).get_template("parts/run.html")
    for address, count in (("https://github.com/a/b", 3), ("https://gitlab.com/a/b", 1), ("", 1)):
        text = template.render(
            run=launch_buttons.places("jit", "en", address),
            words=tables.words("en"),
            pagename="jit",
            pathto=lambda path, _: path,
        )
        links = BeautifulSoup(text, "html.parser").select("a")
        assert len(links) == count and all(link.get_text() for link in links)


def test_the_groups_name_what_builds_and_checks_the_package() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["dependency-groups"]
    assert {"build", "twine"} <= {Requirement(one).name for one in groups["test"]}
