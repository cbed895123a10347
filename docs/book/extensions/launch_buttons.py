"""Where a page can be run: its notebook here, and on Colab and Binder where these find it.

Both open notebooks from a repository on GitHub: from its branch `notebooks`, which CI writes.
"""

from docutils import nodes

from book import private
from book.extensions.build_facts import repository
from book.paths import language_of

BRANCH = "notebooks"
GITHUB = "https://github.com/"


def places(page: str, language: str, address: str) -> dict[str, str]:
    """Where the notebook of a page opens, by what the link is called in words.toml.

    >>> places("jit", "en", "https://github.com/someone/book")["run_colab"]
    'https://colab.research.google.com/github/someone/book/blob/notebooks/en/jit.ipynb'
    >>> places("jit", "en", "https://gitee.com/someone/book")
    {}
    """
    if not address.startswith(GITHUB):
        return {}
    name, path = address.removeprefix(GITHUB), f"{language}/{page}.ipynb"
    return {
        "run_colab": f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{path}",
        "run_binder": f"https://mybinder.org/v2/gh/{name}/{BRANCH}?urlpath=lab/tree/{path}",
    }


def link_notebook(app, pagename, templatename, context, doctree) -> None:
    cells = doctree.findall(nodes.container) if doctree else ()
    if any(map(private.is_code_cell, cells)):
        language = language_of(app.config)
        context["run"] = places(pagename, language, repository())


def setup(app) -> dict:
    app.connect("html-page-context", link_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
