"""A small book built as the real one is, for tests of what builds."""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bs4 import BeautifulSoup

from book.paths import ROOT
from processes import Process

INDEX = """\
(index)=
# {book}

```{{toctree}}
page
```

{{ref}}`page-next`
"""

HEAD = """\
---
file_format: mystnb
kernelspec:
  name: python3
---
"""

PAGE = (
    HEAD
    + """\
(page)=
# {title}

{prose}

```{{code-cell}}
from seejax import tiny

tiny.value
```

(page-next)=
## {title} 2

```{{code-cell}}
:tags: [raises-exception]

1 / 0
```
"""
)


class Book:
    """A book of two pages with the real book's machinery, and the ways to build it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.html = root / "build" / "html"
        self.out = root / "out" / "html"
        self.mark = root / "mark"

    def write(self) -> None:
        machinery = shutil.ignore_patterns("zh", "en", "__pycache__")
        shutil.copytree(ROOT / "docs", self.root / "docs", ignore=machinery)
        shutil.copytree(ROOT / "examples", self.root / "examples", ignore=machinery)
        for name in ("requirements.lock", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root)
        self.module("tiny", "value = 41 + 1\n")
        for language, book, title, prose in (
            ("zh", "小书", "追踪", "第一版。"),
            ("en", "Small book", "Tracing", "First edition."),
        ):
            (self.root / "docs" / language).mkdir()
            self.page(language, "index").write_text(INDEX.format(book=book), "utf8")
            self.page(language).write_text(PAGE.format(title=title, prose=prose), "utf8")

    def copy(self, root: Path) -> "Book":
        shutil.copytree(self.root, root, symlinks=True)
        return Book(root)

    def page(self, language: str, name: str = "page") -> Path:
        return self.root / "docs" / language / f"{name}.md"

    def module(self, name: str, text: str) -> None:
        (self.root / "examples" / "seejax" / f"{name}.py").write_text(text)

    def add(self, name: str, *cells: str) -> None:
        """One more page, of these cells."""
        text = HEAD + f"({name})=\n# {name}\n\n"
        text += "\n\n".join(f"```{{code-cell}}\n{cell}\n```" for cell in cells) + "\n"
        for language in ("zh", "en"):
            self.page(language, name).write_text(text, "utf8")
        self.edit("page\n", f"page\n{name}\n", name="index")

    def edit(self, old: str, new: str, *languages: str, name: str = "page") -> None:
        for language in languages or ("zh", "en"):
            text = self.page(language, name).read_text("utf8")
            assert old in text
            self.page(language, name).write_text(text.replace(old, new), "utf8")

    def start(self, *how: object, before: Sequence = (), **variables: str) -> Process:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("READTHEDOCS")}
        places = ("guard", "docs", "examples")
        path = os.pathsep.join(str(self.root / place) for place in places)
        return Process(
            *(*before, sys.executable, *(how or ("-m", "book.build"))),
            env={**clean, "PYTHONPATH": path, "SLOW_MARK": str(self.mark), **variables},
            cwd=self.root,
            merge=True,
        )

    def build(self, *how: object, fails: bool = False, **options) -> str:
        status, output, _ = self.start(*how, **options).end()
        assert bool(status) == fails, output
        assert "Traceback (most recent call last)" not in output
        return output

    def execute(self) -> int:
        """What a build does before Sphinx; return how many cells it has executed."""
        code = "from book.execute import execute; execute(['zh', 'en'])"
        return executed(self.build("-c", code))

    def build_en(self) -> str:
        """English alone: for what is not about languages, and quicker."""
        out = str(self.out.parent)
        return self.build(READTHEDOCS_LANGUAGE="en", READTHEDOCS_OUTPUT=out)

    def shown(self, language: str, name: str = "page") -> str:
        return (self.html / language / f"{name}.html").read_text("utf8")

    def outputs(self, language: str) -> list[str]:
        return outputs(self.html / language / "page.html")

    def site(self) -> str:
        """A digest of everything that is published."""
        digest = hashlib.sha256()
        for path in sorted(p for p in self.html.rglob("*") if p.is_file()):
            digest.update(str(path.relative_to(self.html)).encode() + path.read_bytes())
        return digest.hexdigest()


def outputs(path: Path) -> list[str]:
    """What the cells of a built page show."""
    page = BeautifulSoup(path.read_text("utf8"), "html.parser")
    return [cell.get_text(" ", strip=True) for cell in page.select(".cell_output")]


def executed(output: str) -> int:
    return int(re.search(r"(\d+) cells executed", output)[1])
