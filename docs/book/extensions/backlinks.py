"""The way from a section to the entries of `errors` and `today` that it treats: lines at its end.

An error has one such line, in the first section that its entry names; old code has one in each.
"""

import textwrap
from collections.abc import Iterator

from docutils import nodes

from book.extensions import errors, today
from book.paths import language_of
from book.tables import words
from seejax.errors import DATA, PAGE, PREFIX, entries, notices

SHORT = 64  # characters of an error: its name, and enough to know it by


def errors_in(anchors: set[str], language: str) -> Iterator[tuple[str, str]]:
    """Where an error that a section treats stands, and what to call it.

    >>> next(errors_in({"jit-tracers"}, "en"))[1]
    '`TracerArrayConversionError: The numpy.ndarray conversion …`'
    """
    for name, entry in (entries() | notices()).items():
        if entry.see[0] in anchors:
            whole = errors.headword(entry).replace("`", "")
            said = textwrap.shorten(whole, SHORT, placeholder=" …").replace("… …", "…")
            yield PREFIX + name, f"`{said}`"


def old_code_in(anchors: set[str], language: str) -> Iterator[tuple[str, str]]:
    """Where old code that a section treats stands, and what tutorials say of it.

    >>> list(old_code_in({"pytrees-map"}, "en"))[0]
    ('today-tree-map', ...)
    """
    for name, entry in today.entries().items():
        if anchors & set(entry.get("see", ())):
            yield today.PREFIX + name, entry["said"][language]


LEADS = {  # the page that has the entries, what says which of them a section treats, and their file
    PAGE: (errors_in, DATA),
    today.PAGE: (old_code_in, today.DATA),
}


def note_sections(app, doctree) -> None:
    """A page with such a section is read again when the entries change."""
    for find, data in LEADS.values():
        if any(any(find(set(s["ids"]), "en")) for s in doctree.findall(nodes.section)):
            app.env.note_dependency(str(data))


def lead_on(app, doctree, docname) -> None:
    language = language_of(app.config)
    for section in list(doctree.findall(nodes.section)) if app.builder.format == "html" else ():
        inner = (n for n, child in enumerate(section) if isinstance(child, nodes.section))
        end = next(inner, len(section))  # before the sections inside it
        for page, (find, _) in LEADS.items():
            found = list(find(set(section["ids"]), language)) if page in app.env.found_docs else []
            if not found:
                continue
            to = app.builder.get_relative_uri(docname, page)
            line = nodes.paragraph("", words(language)[f"{page}_lead"])
            line["classes"] += ["term-see", "no-search"]
            for n, (anchor, said) in enumerate(found):
                line += [nodes.Text(" · ")] if n else []
                link = nodes.reference("", "", *today.worded(said), internal=True)
                link["refuri"] = f"{to}#{anchor}"
                line += link
            section.insert(end, line)
            end += 1


def setup(app) -> dict:
    app.connect("doctree-read", note_sections)
    app.connect("doctree-resolved", lead_on)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
