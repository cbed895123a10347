"""What every picture is: a name, a summary, a doubt if there is one, and its parts."""

import abc
from collections.abc import Iterable
from typing import Any, ClassVar

from seejax.see import _html, _text
from seejax.see._parts import Part, Spans


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

    def __str__(self) -> str:
        return _text.render(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return _html.ASSETS + self.html()

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}
