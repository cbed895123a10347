"""How Chinese is set: AutoCorrect's rules, on pages of directives and cells."""

import json
import re

import autocorrect_py

from book.author import pairs

MARKDOWN = pairs.markdown()

# AutoCorrect's own rules, but: a formula is spaced as a word is, and 雅可比-向量积 is one word.
RULES = {"space-dollar": 1, "space-dash": 0}

IDEOGRAPH_CODE = re.compile("([\u4e00-\u9fff])`")
CODE_IDEOGRAPH = re.compile("`([\u4e00-\u9fff])")


def prose(text: str) -> str:
    """The page as AutoCorrect can read it, line for line: directives opened, cells closed."""
    lines = text.split("\n")

    def open_directives(first: int, last: int) -> None:
        for token in MARKDOWN.parse("\n".join(lines[first:last])):
            name, _, argument = token.info[1:].partition("}")
            if token.type not in ("fence", "colon_fence") or not token.info.startswith("{"):
                continue
            if name not in {*pairs.VERBATIM, "code-cell"}:
                begin, end = first + token.map[0], first + token.map[1] - 1
                lines[begin], lines[end] = argument, ""
                open_directives(begin, end)

    open_directives(0, len(lines))
    words = re.compile(r"\{[\w:-]+\}`([^`<]+) <([^`>]+)>`")  # {ref}`words <target>`
    return "\n".join(words.sub(r"[\1](\2)", line) for line in lines)


def misset(text: str) -> list[tuple[int, str, str]]:
    """Line, what stands there, and how it is set rightly; code is left alone."""
    autocorrect_py.load_config(json.dumps({"rules": RULES}))
    found = [(line.line, line.old, line.new) for line in autocorrect_py.lint_for(text, "md").lines]
    for block in MARKDOWN.parse(text):
        parts, line = block.children or [], block.map[0] + 1 if block.map else 0
        for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
            line += part.type == "softbreak"
            if part.type == "code_inline":  # AutoCorrect does not look at its edges
                left, code, right = (getattr(p, "content", "") for p in (before, part, after))
                old = f"{left[-6:]}`{code}`{right[:6]}"
                new = IDEOGRAPH_CODE.sub(r"\1 `", f"{left[-6:]}`") + code
                new += CODE_IDEOGRAPH.sub(r"` \1", f"`{right[:6]}")
                found += [(line, old, new)] if new != old else []
    return found
