"""Beside each page that is written, the same page for others: as Markdown, and as a notebook.

Both are made of the page's nodes as Sphinx has resolved them, so a directive is written once, and
what need not be written again, Sphinx knows.
"""

import json
import shutil
from pathlib import Path

from docutils import nodes

from book import cache, private
from book.export import llms, notebooks
from book.extensions.toc import names, parts
from book.paths import language_of


def keep_text(app, doctree: nodes.document) -> None:
    private.keep_text(doctree)


def noted(app, page: str) -> Path:
    """Where the whole of a page is kept for llms-full.txt, and what llms.txt says of it."""
    return Path(app.doctreedir, "llms", f"{page}.json")


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf8")


def export(app, pagename, templatename, context, doctree) -> None:
    if doctree is None or app.builder.name != "html":
        return
    out, language = Path(app.outdir), language_of(app.config)
    text = llms.markdown(app.builder, pagename, language, doctree)
    for place, piece in llms.pieces(text, app.builder, pagename, language, doctree).items():
        put(out / place, piece)
    title, about = app.env.titles[pagename].astext(), context["description"]
    put(noted(app, pagename), json.dumps(llms.Page(title, about, text)))
    file = out / notebooks.FOLDER / f"{pagename}.ipynb"
    if any(map(private.is_code_cell, doctree.findall(nodes.container))):
        cells = cache.read(private.executed(app.env, pagename))
        notebooks.write(notebooks.notebook(app.builder, pagename, language, doctree, cells), file)
    else:
        file.unlink(missing_ok=True)


def forget(app, env, page: str) -> None:
    """A page is gone, or about to be read anew."""
    noted(app, page).unlink(missing_ok=True)
    out = Path(app.outdir)
    shutil.rmtree(out / f"{page}.sections", ignore_errors=True)
    (out / f"{page}.md").unlink(missing_ok=True)


def write(app, error) -> None:
    """What is made of all pages together."""
    if error or app.builder.name != "html":
        return
    out, language = Path(app.outdir), language_of(app.config)
    pages = {
        page: llms.Page(*json.loads(noted(app, page).read_text("utf8")))
        for page in dict.fromkeys([*names(app.env), *sorted(app.env.found_docs)])
        if page in app.env.found_docs
    }
    for old in (out / notebooks.FOLDER).rglob("*.ipynb"):
        if old.relative_to(out / notebooks.FOLDER).with_suffix("").as_posix() not in pages:
            old.unlink()
    put(out / "llms.txt", llms.listed(language, parts(app.env), pages))
    put(out / "llms-full.txt", "\n".join(page.text for page in pages.values()))
    put(out / notebooks.FOLDER / "requirements.txt", notebooks.needed(out / notebooks.FOLDER))


def setup(app) -> dict:
    app.setup_extension("book.extensions.opengraph")  # which describes the page
    app.connect("doctree-read", keep_text)
    app.connect("env-purge-doc", forget)
    app.connect("html-page-context", export)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
