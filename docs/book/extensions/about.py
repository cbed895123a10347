"""{about} versions and {about} pages: what the book was built with, and what is checked in it."""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from book import counts
from book.extensions.toc import names
from book.paths import language_of


class About(SphinxDirective):
    """A table that book.counts has made."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        language = language_of(self.config)
        try:
            text = counts.told(self.arguments[0], language, names(self.env))
            return self.parse_text_to_nodes(text)
        except ValueError as error:
            raise self.error(str(error)) from None


def setup(app) -> dict:
    app.add_directive("about", About)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
