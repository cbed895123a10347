"""What the site says to machines: structured data, the sitemap, robots.txt, where Markdown is.

Sitemaps are made of whole addresses; where the site has none (html_baseurl is empty) it has no
sitemap, and Sphinx writes no canonical link. Structured data takes addresses relative to the page.
"""

import json
import os
from pathlib import Path
from xml.etree import ElementTree as xml

from book.extensions.build_facts import changes
from book.extensions.languages import address, alternates
from book.extensions.toc import names, parts
from book.paths import LANGUAGES, ROOT, language_of

SITEMAP = "http://www.sitemaps.org/schemas/sitemap/0.9"
XHTML = "http://www.w3.org/1999/xhtml"
LICENSE = "https://www.apache.org/licenses/LICENSE-2.0"


def changed(app, page: str) -> str | None:
    """The day of a page's last change."""
    source = Path(app.env.doc2path(page))
    return changes().get(os.path.relpath(source, ROOT))


def structured(app, page: str, shared: dict[str, str]) -> dict:
    """A page in the words of schema.org."""
    words, front = app.config.words, app.config.root_doc
    home = app.config.html_baseurl or "../" * page.count("/")
    language = LANGUAGES[language_of(app.config)]["hreflang"]
    common = {"inLanguage": language, "license": LICENSE, "isAccessibleForFree": True}
    book = {"@type": "Book", "name": words["title"], "url": f"{home}{front}.html"}
    said = {
        "name" if page == front else "headline": shared["title"],
        "description": shared["description"],
        "url": f"{home}{page}.html",
        "image": home + shared["picture"],
        "author": {"@type": "Organization", "name": words["title"]},
        "encoding": {
            "@type": "MediaObject",
            "encodingFormat": "text/markdown",
            "contentUrl": f"{home}{page}.md",
        },
    }
    if day := changed(app, page):
        said["dateModified"] = day
    if page == front:
        return {"@context": "https://schema.org", **book, **said, **common}
    trail = [(book["name"], book["url"])]
    for part in parts(app.env):
        if page in part.pages and part.section:
            trail.append((part.caption, f"{book['url']}#{part.section}"))
    trail.append((names(app.env).get(page, shared["title"]), said["url"]))
    steps = [
        {"@type": "ListItem", "position": place, "name": name, "item": url}
        for place, (name, url) in enumerate(trail, 1)
    ]
    article = {"@type": ["TechArticle", "LearningResource"], **said, **common, "isPartOf": book}
    crumbs = {"@type": "BreadcrumbList", "itemListElement": steps}
    return {"@context": "https://schema.org", "@graph": [article, crumbs]}


def describe(app, pagename, templatename, context, doctree) -> None:
    if "shared" not in context:
        return
    data = json.dumps(structured(app, pagename, context["shared"]), ensure_ascii=False)
    data = data.replace("<", "\\u003c")  # it ends no script
    name, root = pagename.rpartition("/")[2], "../" * pagename.count("/")
    context["metatags"] += (
        f'\n<link rel="alternate" type="text/markdown" href="{name}.md">'
        f'\n<link rel="alternate" type="text/plain" title="llms.txt" href="{root}llms.txt">'
        f'\n<script type="application/ld+json">{data}</script>'
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
    app.setup_extension("book.extensions.opengraph")  # which describes the page
    app.connect("html-page-context", describe)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
