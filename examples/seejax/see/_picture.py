"""What every picture is: a name, a summary, a doubt if there is one, and its parts."""

import abc
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from seejax.commands import language
from seejax.see import _html, _text
from seejax.see._parts import Part, Spans


def has_screen() -> bool:
    """Whether a browser would have a window, and not take over the terminal."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    return sys.platform != "linux" or any(os.environ.get(name) for name in names)


class Picture(abc.ABC):
    """Something JAX did, shown as HTML by a notebook and as text by a terminal.

    A picture says `summary()` and `parts()`, and nothing else: both outputs are made of them, so
    they cannot differ.

    Attributes:
      kind: its class in the style sheet.
      lead: words before its name.
      name: what it is a picture of.
      doubt: what it is not sure of; always in the header. Empty: all that it shows is so.

    >>> from seejax.see._parts import Line, Pane, Span
    >>> class Dot(Picture):
    ...     kind = "dot"
    ...     name = "a"
    ...
    ...     def summary(self):
    ...         return (Span("1 call", word=True),)
    ...
    ...     def parts(self):
    ...         yield Pane("jaxpr", (Line((Span("<o>"),)),))
    >>> Dot()
    a: 1 call
    <BLANKLINE>
    jaxpr
      <o>
    >>> "&lt;o&gt;" in Dot().html(), "1 次调用" in Dot().html()
    (True, True)
    """

    kind: ClassVar[str]
    lead: ClassVar[str] = ""

    @property
    @abc.abstractmethod
    def name(self) -> str: ...

    @property
    def doubt(self) -> Spans:
        return ()

    @abc.abstractmethod
    def summary(self) -> Spans:
        """What is to be known first, in one line."""

    @abc.abstractmethod
    def parts(self) -> Iterable[Part]:
        """The panes and tables, in order."""

    def html(self) -> str:
        """The picture alone, for a page that already has `see.css` and `see.js`."""
        return _html.render(self)

    def text(self) -> str:
        """All of it as text, however long; `print(picture)` cuts what is longer than 400 lines."""
        return _text.render(self)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Writes it into a file, and returns the path.

        Args:
          file: `loss.html`, a page that needs nothing else, or `loss.txt`, all of it as text.
        Raises:
          ValueError: the file is of another kind.
        """
        path = Path(file)
        if path.suffix == ".html":
            page = _html.page(f"{self.name} · see.{self.kind}", language(), self.html())
            path.write_text(page, encoding="utf-8")
        elif path.suffix == ".txt":
            path.write_text(self.text() + "\n", encoding="utf-8")
        else:
            raise ValueError(
                f"a picture can be saved as .html or .txt, not as {path.suffix or path.name};"
                " for an image, open the .html in a browser and print it or take a screenshot"
            )
        return path

    def show(self) -> Path:
        """Opens it in the browser, from a script; returns the page that it wrote for that.

        Raises:
          RuntimeError: no browser can be opened here; the sentence says where the page is.
        """
        path = self.save(Path(tempfile.mkdtemp(prefix="seejax-"), f"{self.kind}.html"))
        if not (has_screen() and webbrowser.open(path.as_uri())):
            raise RuntimeError(f"no browser can be opened here; the picture is in {path}")
        return path

    def __str__(self) -> str:
        return _text.render(self, everything=False)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return _html.ASSETS + self.html()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}
