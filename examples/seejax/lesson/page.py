"""What a page of the book needs to say in its prose what a cell has found: `glue`."""

from IPython.core.formatters import format_display_data
from IPython.display import display


def glue(name: str, value: object) -> None:
    """Keep a value under a name, for the prose to show: {glue:text}`page-name:.1f`.

    The cell shows nothing, and a notebook opened elsewhere needs no MyST-NB for it.

    Args:
      name: unique in the book; it begins with the page's name.
      value: anything a notebook can display.
    Source: MyST-NB reads this from a cell's outputs, as `myst_nb.glue` leaves it there.

    >>> glue("page-answer", 42)
    """
    prefix = "application/papermill.record/"
    data, metadata = format_display_data(value)
    metadata["scrapbook"] = {"name": name, "mime_prefix": prefix}
    display({prefix + kind: text for kind, text in data.items()}, metadata=metadata, raw=True)
