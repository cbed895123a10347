"""Sphinx settings of both languages; `-t zh` or `-t en` says which one is being built."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from book import inventories, paths, tables  # noqa: E402 - now it is on the path

tree = "zh" if tags.has("zh") else "en"  # noqa: F821 - Sphinx defines tags
words = tables.words(tree)

# -- extensions: what each of ours needs set up before it, it says itself --------------------------
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.intersphinx", "sphinx.ext.napoleon"]
extensions += [
    f"book.extensions.{path.stem}" for path in sorted(DOCS.glob("book/extensions/[!_]*"))
]
extensions += ["book.export.pages"]
myst_enable_extensions = paths.MYST_EXTENSIONS
myst_heading_anchors = 0  # sections are linked by the anchors that both languages share
nitpick_ignore = [("py:class", "collections.abc.Mapping")]  # Python's own names lead nowhere
nitpicky = True  # a reference that leads nowhere is a warning, and a warning ends the build

# -- names: where they are documented; the page api is made of docstrings -------------------------
intersphinx_mapping = {
    site: (url, str(inventories.file(site))) for site, url in inventories.SITES.items()
}
# every picture has its summary and its parts: what they draw, the page `see` shows
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_default_options |= {"exclude-members": "summary, parts"}
autodoc_typehints = "none"  # what an argument is, a docstring says in words
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]  # a list, not entries of their own
if tree == "zh":  # dashes of the English docstrings; Chinese quotation marks are written as such
    smartquotes_excludes, smartquotes_action = {"builders": ["man", "text"]}, "De"
add_module_names = toc_object_entries = False
default_role = "literal"  # of a docstring: what stands in `these`

# -- execution: docs/book has run every page before Sphinx starts; here its cache is only read ----
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_output_stderr = "warn"  # what JAX warns about is news to the author first
nb_merge_streams = True
nb_render_error_lexer = "text"

# -- html ------------------------------------------------------------------------------------------
project = author = html_title = words["title"]
copyright = "See JAX, Apache-2.0"
language = {"zh": "zh_CN"}.get(tree, tree)
exclude_patterns = ["**/.ipynb_checkpoints"]

html_theme = "see_jax"  # docs/theme
html_favicon = "theme/static/mark.svg"
html_additional_pages = {"404": "404.html"}  # what Read the Docs shows for a page that is not there
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_copy_source = False
html_use_index = html_domain_indices = False  # the search is better
html_show_sourcelink = False
html_context = {"words": words}
