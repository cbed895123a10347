"""Pictures of seejax.see as a page needs them: in its language, one style sheet, one script.

A picture by itself, in a notebook, carries its own copy of both, and its words in both languages.
"""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from book.paths import language_of

SEE = find_spec("seejax.see").submodule_search_locations[0]  # without importing JAX
# As a picture wrote them when its cell ran: after an edit the files of today are others.
COPY = re.compile(r"<(style|script) data-seejax\b[^>]*>.*?</\1>", re.DOTALL)
# The words of a picture itself, which stand in both languages.
WORDS = re.compile(
    r'<span class="see-w"><span lang="en">([^<]*)</span><span lang="zh">([^<]*)</span></span>'
)


def copy_files(app) -> None:
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    for name in ("see.css", "see.js"):
        shutil.copy(Path(SEE, name), static / name)


def share_assets(app, pagename, templatename, context, doctree) -> None:
    body, copies = COPY.subn("", context.get("body", ""))
    if copies:
        context["body"] = WORDS.sub(r"\2" if language_of(app.config) == "zh" else r"\1", body)
        app.add_css_file("see.css")
        app.add_js_file("see.js", loading_method="defer")


def setup(app) -> dict:
    app.connect("builder-inited", copy_files)
    app.connect("html-page-context", share_assets)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
