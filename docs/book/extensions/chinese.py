"""A line break in the source is a space in English; between Chinese characters it is nothing."""

import re

from docutils import nodes

from book.paths import language_of

# Han characters and the punctuation that is set full width
WIDE = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef“”‘’…—]")


def joins(before: str, after: str) -> bool:
    """Whether a line ending in `before` goes on with `after` without a space.

    >>> joins("图", "左"), joins("。", "x"), joins("图", "x"), joins("x", "，")
    (True, True, False, True)
    """
    punctuation = [c for c in (before, after) if WIDE.match(c) and not c.isalpha()]
    return bool(punctuation or (WIDE.match(before) and WIDE.match(after)))


def join_lines(app, doctree) -> None:
    if language_of(app.config) != "zh":
        return
    for block in doctree.findall(nodes.TextElement):
        if isinstance(block, nodes.literal_block) or isinstance(block.parent, nodes.TextElement):
            continue
        texts = list(block.findall(nodes.Text))
        for before, text, after in zip(texts, texts[1:], texts[2:], strict=False):
            if text == "\n" and joins(before[-1:], after[:1]):
                siblings = text.parent.children  # by identity: every line break equals every other
                place = next(i for i, each in enumerate(siblings) if each is text)
                siblings[place] = nodes.Text("")


def setup(app) -> dict:
    app.connect("doctree-read", join_lines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
