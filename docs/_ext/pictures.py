"""Style and script of seejax.see once a page, though every picture carries its own copy."""

import shutil
from pathlib import Path

from seejax import see


def copy_files(app) -> None:
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    for name in ("see.css", "see.js"):
        shutil.copy(see.STATIC / name, static / name)


def share_assets(app, pagename, templatename, context, doctree) -> None:
    body = context.get("body", "")
    if see.ASSETS in body:
        context["body"] = body.replace(see.ASSETS, "")
        app.add_css_file("see.css")
        app.add_js_file("see.js", loading_method="defer")


def setup(app) -> dict:
    app.connect("builder-inited", copy_files)
    app.connect("html-page-context", share_assets)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
