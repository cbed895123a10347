"""What every picture shares: one wrapper, one style sheet, one script."""

import html
import pathlib

STATIC = pathlib.Path(__file__).parent
"""The folder that holds `see.css` and `see.js`, for a site that serves them once a page."""

ASSETS = (
    f"<style data-seejax>{(STATIC / 'see.css').read_text(encoding='utf-8')}</style>"
    f"<script data-seejax>{(STATIC / 'see.js').read_text(encoding='utf-8')}</script>"
)
"""Prepended to each HTML output, so that a notebook needs nothing else to show it."""


def escape(text: object) -> str:
    """HTML text that shows `text` literally, inside an element or a quoted attribute.

    >>> escape('<b class="x">')
    '&lt;b class=&quot;x&quot;&gt;'
    """
    return html.escape(str(text), quote=True)


class Picture:
    """Something JAX did, shown as HTML by a notebook and as text by a terminal.

    A picture sets `kind`, its class in the style sheet, and writes itself twice: `_body` is
    HTML in which everything that came from a program is escaped, `__str__` is plain text that
    says the same.

    >>> class Dot(Picture):
    ...     kind = "dot"
    ...
    ...     def __str__(self):
    ...         return "o"
    ...
    ...     def _body(self):
    ...         return "<b>o</b>"
    >>> Dot()
    o
    >>> Dot().html()
    '<div class="see see-dot"><b>o</b></div>'
    """

    kind: str

    def __str__(self) -> str:
        raise NotImplementedError

    def _body(self) -> str:
        raise NotImplementedError

    def html(self) -> str:
        """The picture alone, for a page that already has `see.css` and `see.js`."""
        # A blank line would end the HTML block where a notebook passes through Markdown.
        body = "\n".join(line for line in self._body().split("\n") if line.strip())
        return f'<div class="see see-{self.kind}">{body}</div>'

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return ASSETS + self.html()
