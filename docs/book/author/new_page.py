"""Lay the places of a new page, in both languages: `make page NAME=scan AFTER=control-flow`.

A page is two files, an entry and a card in each index, and a link from the page before it; what is
written there holds the place until somebody writes. `make page` ends with what is left to do.
"""

import argparse
import itertools
import re
import sys
from pathlib import Path

from book.author import pairs
from book.paths import DOCS, LANGUAGES

PAGE = """\
---
file_format: mystnb
kernelspec:
  name: python3
pair: unstamped
---

({name})=
# {title}

{question}

({name}-guess)=
## {guess}

{puzzle}

```{{code-cell}}
:tags: [puzzle]

import jax.numpy as jnp

jnp.arange(3) + 1
```

({name}-takeaways)=
## {takeaways}

- {point}

({name}-next)=
## {next}

{ahead}
"""

WORDS = {
    "zh": {
        "title": "标题里有一个动词",
        "question": "这一页回答什么问题？写成一句话。",
        "guess": "先猜：会输出什么？",
        "puzzle": "先出一个谜题。",
        "takeaways": "要点",
        "point": "读者该记住什么。",
        "next": "接着读",
        "ahead": "下一页是[{short}]({name}.md)。",
        "last": "这是最后一页。",
        "first": "先读：",
    },
    "en": {
        "title": "Say what to do, with a verb",
        "question": "Which question does this page answer? Say it in one sentence.",
        "guess": "Guess first: what does it show?",
        "puzzle": "Begin with a puzzle.",
        "takeaways": "Takeaways",
        "point": "What a reader should keep in mind.",
        "next": "Read next",
        "ahead": "Next comes [{short}]({name}.md).",
        "last": "This is the last page.",
        "first": "First: ",
    },
}

LEFT = """\
docs/{{zh,en}}/{name}.md are there, with their places in both index.md and at the end of {after}.md.
What is left to do:
  1. In both index.md, give {name} its short name (in the toctree and on its card) and its question.
  2. Write both pages; make serve shows each save.
  3. At the end of {after}.md and of {name}.md, say how one leads to the next; the old link goes.
  4. make accept, which keeps what the page shows, when you have read it.
  5. make pair PAGE={name}, and the same for index and {after}: both languages were read again.
  6. git add the new files, and make check PAGE={name}.
"""


def entries(index: str) -> dict[str, str]:
    """The pages of an index in their order, with their short names."""
    found = re.findall(r"^(\S.*) <([\w-]+)>$", index, re.MULTILINE)
    return {name: short for short, name in found if name != "self"}


def with_entry(index: str, name: str, after: str, words: dict[str, str]) -> str:
    """The index with one more line in a toctree and one more card."""
    index = re.sub(rf"^(\S.* <{after}>\n)", rf"\1{name} <{name}>\n", index, flags=re.MULTILINE)
    card = f"- [{name}]({name}.md)\n\n  {words['question']}\n\n"
    card += f"  *{words['first']}{entries(index)[after]}*\n"
    of_after = rf"^(- \[[^\]]+\]\({after}\.md\)\n(?:\n|  .*\n)*)"
    return re.sub(of_after, lambda found: found[0] + card, index, count=1, flags=re.MULTILINE)


def lay(name: str, after: str, docs: Path = DOCS) -> list[str]:
    """Write all the places of a page; return what stands against it."""
    index = {language: docs / language / "index.md" for language in LANGUAGES}
    names = list(entries(index["en"].read_text("utf8")))
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        return [f"NAME={name}: a name is of small letters, digits and hyphens"]
    if f"{name}.md" in pairs.siblings(docs):
        return [f"NAME={name}: there is such a page"]
    if after not in names:
        return [f"AFTER={after}: after which page does it come? {', '.join(names)}"]
    in_step = [page for page in ("index", after) if not pairs.drift(f"{page}.md", docs)]
    for language, words in WORDS.items():
        text = index[language].read_text("utf8")
        following = dict(itertools.pairwise(names)).get(after)
        ahead = words["last"]
        if following:
            ahead = words["ahead"].format(short=entries(text)[following], name=following)
        page = PAGE.format(name=name, **{**words, "ahead": ahead})
        (docs / language / f"{name}.md").write_text(page, "utf8")
        index[language].write_text(with_entry(text, name, after, words), "utf8")
        before = docs / language / f"{after}.md"
        link = words["ahead"].format(short=name, name=name)
        before.write_text(f"{before.read_text('utf8').rstrip()}\n\n{link}\n", "utf8")
    for page in (name, *in_step):  # what is laid here is the same in both languages
        pairs.stamp(page, docs)
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("after", nargs="?", default="")
    args = parser.parse_args()
    if messages := lay(args.name, args.after):
        print("\n".join(messages), file=sys.stderr)
        return 1
    print(LEFT.format(name=args.name, after=args.after), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
