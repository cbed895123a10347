"""What crawlers are told: where a page's Markdown is, and by a sitemap and robots.txt, every page.

Sitemaps are made of whole addresses; where the site has none (html_baseurl is empty) it has no
sitemap. sphinx-sitemap makes addresses of Sphinx's names of languages (zh_CN); ours are of Read the
Docs' (zh-cn).
"""

import os
from pathlib import Path
from xml.etree import ElementTree as xml

from book.extensions.build_facts import changes
from book.extensions.languages import address, alternates
from book.paths import LANGUAGES, ROOT, language_of

SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
XHTML = "http://www.w3.org/1999/xhtml"


def changed(app, page: str) -> str | None:
    """The day of a page's last change."""
    source = Path(app.env.doc2path(page))
    return changes().get(os.path.relpath(source, ROOT))


def link_markdown(app, pagename, templatename, context, doctree) -> None:
    if not doctree or app.builder.name != "html":
        return
    name, root = pagename.rpartition("/")[2], "../" * pagename.count("/")
    context["metatags"] = context.get("metatags", "") + (
        f'\n<link rel="alternate" type="text/markdown" href="{name}.md">'
        f'\n<link rel="alternate" type="text/plain" title="llms.txt" href="{root}llms.txt">'
    )


def write(app, error) -> None:
    """The sitemap of this language, and for the root of its host robots.txt, which names both."""
    if error or app.builder.name != "html" or not app.config.html_baseurl:
        return
    here = language_of(app.config)
    xml.register_namespace("", SITEMAP)
    xml.register_namespace("xhtml", XHTML)
    pages = xml.Element(f"{{{SITEMAP}}}urlset")
    for page in sorted(app.env.found_docs):
        url = xml.SubElement(pages, f"{{{SITEMAP}}}url")
        links = alternates(f"{page}.html", here)
        xml.SubElement(url, f"{{{SITEMAP}}}loc").text = links[LANGUAGES[here]["hreflang"]]
        if day := changed(app, page):
            xml.SubElement(url, f"{{{SITEMAP}}}lastmod").text = day
        for hreflang, href in links.items():
            said = {"rel": "alternate", "hreflang": hreflang, "href": href}
            xml.SubElement(url, f"{{{XHTML}}}link", said)
    xml.indent(pages)
    out = Path(app.outdir)
    xml.ElementTree(pages).write(out / "sitemap.xml", "UTF-8", xml_declaration=True)
    maps = [f"Sitemap: {address('sitemap.xml', here, there)}\n" for there in LANGUAGES]
    (out / "robots.txt").write_text("User-agent: *\nAllow: /\n\n" + "".join(maps), "utf8")


def setup(app) -> dict:
    app.connect("html-page-context", link_markdown)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
