"""What a page says of itself where it is linked: its title, its description, a picture."""

import re
from html import escape, unescape

from docutils import nodes

from book.paths import language_of

LONGEST = 200  # characters of a description; what is beyond is cut off by those who show it
PICTURE = "_static/card.{}.png"  # one a language
SIZE = (1200, 630)  # what those who show them ask for


def description(doctree: nodes.document) -> str:
    """The first sentences of the page, as many as fit: after its title it says what it is about."""
    said = (p for p in doctree.findall(nodes.paragraph) if "times" not in p["classes"])
    first = next((p.astext() for p in said if p.astext().strip()), "")
    text = " ".join(first.split())
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
    if not doctree or app.builder.name != "html":
        return
    words, is_front = app.config.words, pagename == app.config.root_doc
    if is_front:  # the title of the page and of the book are the same words
        context["title"], context["docstitle"] = f"{words['title']} · {words['tagline']}", ""
    title = unescape(re.sub(r"<[^>]*>", "", context["title"]))
    context["description"] = said = description(doctree)
    picture = PICTURE.format(language_of(app.config))
    tags = {
        "og:site_name": words["title"],
        "og:type": "website" if is_front else "article",
        "og:title": title,
        "og:description": said,
        "og:locale": app.config.language.replace("en", "en_US"),
    }
    if base := app.config.html_baseurl:  # a picture is asked for by its whole address alone
        size = dict(zip(("og:image:width", "og:image:height"), map(str, SIZE), strict=True))
        tags |= {"og:url": context["pageurl"], "og:image": base + picture, **size}
        tags["og:image:alt"] = title
    named = {"description": said, "twitter:card": "summary_large_image" if base else "summary"}
    tags = [("name", *tag) for tag in named.items()] + [("property", *tag) for tag in tags.items()]
    context["metatags"] = context.get("metatags", "") + "".join(
        f'\n<meta {kind}="{name}" content="{escape(content)}">' for kind, name, content in tags
    )


def setup(app) -> dict:
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
