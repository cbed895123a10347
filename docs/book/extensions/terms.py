"""The page of terms, made from docs/data/terms.toml, and what a link to one of them shows.

{terms} lists the terms by name; {terms} with a group explains those of the group. A page that links
to a term carries its explanation once, at its end, for terms.js to show where the reader points.
"""

import functools

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from book.paths import DOCS, language_of
from book.tables import table

DATA = DOCS / "data" / "terms.toml"
PREFIX = "term-"  # of an anchor
PAGE = "terms"


@functools.cache
def terms() -> dict[str, dict]:
    """Every term by its id.

    >>> terms()["tracer"]["zh"]
    '追踪器'
    """
    return table(DATA.name)


def in_order(language: str) -> list[str]:
    """The ids by name: Latin names first, then Chinese ones by their sound.

    The usual Chinese characters stand in GB 18030 in the order of their sound.

    >>> in_order("zh").index("sharding") < in_order("zh").index("tracing")  # fēn, zhuī
    True
    """
    return sorted(terms(), key=lambda name: terms()[name][language].lower().encode("gb18030"))


def full_name(term: dict, language: str) -> str:
    """A term with its name in the other language, where that is another name.

    >>> full_name(terms()["tracer"], "en"), full_name(terms()["jaxpr"], "zh")
    ('tracer (追踪器)', 'jaxpr')
    """
    here, there = term[language], term["en" if language == "zh" else "zh"]
    if here == there:
        return here
    return f"{here}（{there}）" if language == "zh" else f"{here} ({there})"


class Terms(SphinxDirective):
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DATA))
        language = language_of(self.config)
        if not self.arguments:
            lines = [f"- [{terms()[n][language]}](#{PREFIX}{n})" for n in in_order(language)]
            listed = nodes.container(classes=["terms-index"])
            listed += self.parse_text_to_nodes("\n".join(lines))
            return [listed]
        group = {n: t for n, t in terms().items() if t["group"] == self.arguments[0]}
        if not group:
            raise self.error(f"no term of docs/data/terms.toml is in the group {self.arguments[0]}")
        entries = nodes.definition_list(classes=["terms"])
        for name, term in group.items():
            title = nodes.term("", full_name(term, language), names=[PREFIX + name])
            self.state.document.note_explicit_target(title)
            explained = self.parse_text_to_nodes(term["explain"][language])
            if "see" in term:
                explained += self.parse_text_to_nodes(f"[]({term['see']}.md)")
                explained[-1]["classes"] += ["term-see", "no-search"]
            entries += nodes.definition_list_item("", title, nodes.definition("", *explained))
        return [entries]


class Tips(nodes.Element):
    """The explanations that terms.js shows; without a script they are no part of the page."""


def open_template(translator, node) -> None:
    translator.body.append('<template class="term-tips">\n')


def close_template(translator, node) -> None:
    translator.body.append("</template>\n")


def linked(doctree: nodes.document) -> dict[str, list[nodes.reference]]:
    """The links to terms, by the term's id, in the order of the page."""
    found: dict[str, list[nodes.reference]] = {}
    for link in doctree.findall(nodes.reference):
        anchor = link.get("refid") or link.get("refuri", "").rpartition("#")[2]
        if anchor.startswith(PREFIX):
            found.setdefault(anchor, []).append(link)
    return found


def note_links(app, doctree) -> None:
    """A page that shows terms is read again when their explanations change."""
    links = doctree.findall(addnodes.pending_xref)
    if any(link.get("reftarget", "").startswith(PREFIX) for link in links):
        app.env.note_dependency(str(DATA))


def carry_explanations(app, doctree, docname) -> None:
    if app.builder.format != "html" or docname == PAGE or not (links := linked(doctree)):
        return
    page = app.env.get_doctree(PAGE)
    tips = Tips(classes=["no-search"])
    for anchor, places in links.items():
        for link in places:
            link["classes"].append("term")
        title, explained = next(t for t in page.findall(nodes.term) if anchor in t["ids"]).parent
        tip = nodes.container(ids=[f"tip-{anchor}"], classes=["term-tip"])
        tip += nodes.paragraph("", "", nodes.strong("", title.astext()))
        tip += [part.deepcopy() for part in explained if "term-see" not in part["classes"]]
        tips += tip
    doctree += tips


def setup(app) -> dict:
    app.add_node(Tips, html=(open_template, close_template))
    app.add_directive("terms", Terms)
    app.connect("doctree-read", note_links)
    app.connect("doctree-resolved", carry_explanations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
