"""The page of old code, made from docs/data/today.toml.

{today} is the field that finds an entry (today.js); {today} with a topic shows the topic's entries.
"""

import functools
from html import escape

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from book.paths import DOCS, language_of
from book.tables import table, words

DATA = DOCS / "data" / "today.toml"
PAGE, PREFIX = "today", "today-"  # of an anchor


@functools.cache
def entries() -> dict[str, dict]:
    """Every entry by its id.

    >>> entries()["tree-map"]["see"]
    ['pytrees-map']
    """
    return table(DATA.name)


def explained(entry: dict, language: str) -> str:
    """What an entry shows under its title, as a page would write it.

    >>> print(explained(entries()["google-brain"], "en"))
    It was true when it was written. ... OpenXLA.
    <BLANKLINE>
    Source: [Google DeepMind](...) · [OpenXLA](https://openxla.org/xla)
    """
    said = words(language)
    parts = []
    if "old" in entry:
        parts += [said["today_old"], f"```python\n{entry['old']}```"]
    if "fails" in entry:
        parts += [said["today_fails"], f"```text\n{entry['fails']}\n```"]
    if "misleads" in entry:
        parts += [said["today_misleads"], f"```python\n{entry['misleads']}```"]
    if "today" in entry:
        label = "today_new" if "old" in entry else "today_shown"
        parts += [said[label], f"```python\n{entry['today']}```"]
    parts.append(entry["why"][language])
    if "source" in entry:
        parts.append(said["today_source"] + entry["source"])
    return "\n\n".join(parts)


def worded(text: str) -> list[nodes.Node]:
    """A line of text, with code as code."""
    parts = text.split("`")
    return [nodes.literal(p, p) if n % 2 else nodes.Text(p) for n, p in enumerate(parts) if p]


class Filter(nodes.Element):
    """The field that today.js fills a place with; without a script there is none."""


def open_filter(translator, node) -> None:
    said = words(node["language"])
    attributes = {"class": "today-filter", "data-found": said["today_found"]}
    label = (
        f"<label>{escape(said['today_filter'])} <input type='search' spellcheck='false'></label>"
    )
    field = f"<template>{label} <output></output></template>"
    translator.body.append(translator.starttag(node, "div", "", **attributes) + field)


def close_filter(translator, node) -> None:
    translator.body.append("</div>\n")


class Today(SphinxDirective):
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DATA))
        language = language_of(self.config)
        if not self.arguments:
            return [Filter(language=language)]
        topic = {name: e for name, e in entries().items() if e["topic"] == self.arguments[0]}
        if not topic:
            raise self.error(f"no entry of docs/data/today.toml has the topic {self.arguments[0]}")
        listed = nodes.definition_list(classes=["today"])
        for name, entry in topic.items():
            term = nodes.term("", "", *worded(entry["said"][language]), names=[PREFIX + name])
            self.state.document.note_explicit_target(term)
            body = self.parse_text_to_nodes(explained(entry, language))
            if "see" in entry:
                body += self.parse_text_to_nodes(" · ".join(f"[](#{at})" for at in entry["see"]))
                body[-1]["classes"] += ["term-see", "no-search"]
            listed += nodes.definition_list_item("", term, nodes.definition("", *body))
        return [listed]


def setup(app) -> dict:
    app.add_node(Filter, html=(open_filter, close_filter))
    app.add_directive("today", Today)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
