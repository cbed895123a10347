"""The page of errors, made from seejax/errors/errors.toml and from what the page's cell has raised.

{errors} with a topic shows its errors: the message, the cause, the cure, and folded the code.
{notices} with a topic shows in the same way what is printed though a program goes on.
"""

import ast

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from book import private
from book.paths import language_of
from book.tables import words
from seejax.errors import DATA, NOTICES, PREFIX, Entry, Notice, entries, headword, notices

MESSAGES = "errors-messages"  # the name under which the cell keeps what was raised
CODE = "python3"  # not "python": its names are not linked, or the page would be too heavy
LENGTH = 320  # characters of a message: what it is about stands at its beginning


def of_topic(topic: str) -> dict[str, Entry]:
    """The entries of a topic, by their ids."""
    return {name: entry for name, entry in entries().items() if entry.topic == topic}


def shortened(message: str) -> str:
    """The beginning of a message, up to the end of a line or a word.

    >>> shortened("a b\\n" * 300)[-3:], len(shortened("word " * 200)) < 600
    ('b\\n…', True)
    """
    if len(message) <= LENGTH:
        return message
    kept = message[:LENGTH]
    end = "\n" if "\n" in kept[LENGTH // 2 :] else " "
    return kept.rpartition(end)[0] + end + "…"


def read_messages(text: str) -> dict[str, str]:
    """What the cell has kept: every message by the id of its entry."""
    return {name: shortened(said) for name, said in ast.literal_eval(text).items()}


class Errors(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(DATA))
        if not (topic := of_topic(self.arguments[0])):
            raise self.error(f"no error of {DATA.name} is of the topic {self.arguments[0]}")
        messages = read_messages(private.glued_in(self.state.document, MESSAGES))
        listed = nodes.definition_list(classes=["errors"])
        for name, entry in topic.items():
            listed += self.item(name, entry, messages[name])
        return [listed]

    def item(self, name: str, entry: Entry | Notice, message: str) -> nodes.definition_list_item:
        language = language_of(self.config)
        title = nodes.term("", "", nodes.literal("", headword(entry)), names=[PREFIX + name])
        self.state.document.note_explicit_target(title)
        see = self.parse_text_to_nodes(" · ".join(f"[](#{anchor})" for anchor in entry.see))
        see[-1]["classes"] += ["term-see", "no-search"]
        fold = private.fold_type()()
        private.set_kind(fold, "cured")
        codes = [block(code, CODE) for code in (entry.code, entry.cured)]
        fold += nodes.container("", *codes, classes=["cell_input"])
        said = block(message, "text")
        parts = [nodes.container("", said, classes=["cell_output", "traceback"])]
        for text in entry.cause, entry.cure:
            parts += self.parse_text_to_nodes(text[language])
        if entry.code:
            parts.append(nodes.container("", fold, classes=["tag_cured"]))
        else:
            unseen = words(language)["notices_unseen"].format(getattr(entry, "source", ""))
            parts += self.parse_text_to_nodes(unseen)
        parts += see
        item = nodes.definition_list_item("", title, nodes.definition("", *parts))
        kind = "error" if isinstance(entry, Entry) else "warning"
        told_by_frame = {message for _, message in getattr(entry, "framed", ())}
        item["says"] = {kind: [said for said in entry.says if said not in told_by_frame]}
        return item


class Notices(Errors):
    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(NOTICES))
        topic = {n: entry for n, entry in notices().items() if entry.topic == self.arguments[0]}
        if not topic:
            raise self.error(f"nothing of {NOTICES.name} is of the topic {self.arguments[0]}")
        listed = nodes.definition_list(classes=["errors"])
        for name, entry in topic.items():
            listed += self.item(name, entry, entry.text)
        return [listed]


def block(text: str, language: str) -> nodes.literal_block:
    text = text.strip("\n")
    return nodes.literal_block(text, text, language=language)


def setup(app) -> dict:
    app.add_directive("errors", Errors)
    app.add_directive("notices", Notices)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
