"""What a page says of itself where it is linked: its description, and the card of a shared link."""

import re
from html import escape

from docutils import nodes

LONGEST = 200  # characters of a description; what is beyond is cut off by those who show it


def description(doctree: nodes.document) -> str:
    """The first sentences of the page, as many as fit: after its title it says what it is about."""
    first = next((p for p in doctree.findall(nodes.paragraph) if p.astext().strip()), None)
    text = " ".join(first.astext().split()) if first else ""
    return fitting(text)


def fitting(text: str, longest: int = LONGEST) -> str:
    """The sentences at the beginning of a text that fit; the first one fits always.

    >>> fitting("What runs? And when? At night.", 20), fitting("跑的是什么？为什么？", 6)
    ('What runs? And when?', '跑的是什么？')
    """
    kept = ""
    for sentence in re.findall(r".+?(?:[。？！]|[.?!](?=\s|$)|$)\s*", text):
        if kept and len(kept + sentence.rstrip()) > longest:
            break
        kept += sentence
    return kept.rstrip()


def describe(app, pagename, templatename, context, doctree) -> None:
    if not doctree:
        return
    words, is_front = app.config.words, pagename == app.config.root_doc
    if is_front:  # the title of the page and of the book are the same words
        context["title"], context["docstitle"] = f"{words['title']} · {words['tagline']}", ""
    said = {"description": description(doctree)}
    card = {
        "og:site_name": words["title"],
        "og:type": "website" if is_front else "article",
        "og:title": re.sub(r"<[^>]*>", "", context["title"]),
        "og:description": said["description"],
        "og:locale": app.config.language.replace("en", "en_US"),
        "og:url": context.get("pageurl"),
        "og:image": app.config.html_baseurl and f"{app.config.html_baseurl}_static/screenshot.png",
    }
    said["twitter:card"] = "summary_large_image" if card["og:image"] else "summary"
    tags = [("name", name, said[name]) for name in said]
    tags += [("property", name, content) for name, content in card.items() if content]
    context["metatags"] = context.get("metatags", "") + "".join(
        f'\n<meta {kind}="{name}" content="{escape(content)}">' for kind, name, content in tags
    )


def setup(app) -> dict:
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
