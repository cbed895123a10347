"""What a page of the book needs before its first cell: its figures' style, and `glue`.

Importing it in a notebook sets the style of Matplotlib's figures and has them drawn as SVG.
"""

import matplotlib.pyplot as plt
from IPython import get_ipython
from IPython.core.formatters import format_display_data
from IPython.display import display
from matplotlib_inline.backend_inline import set_matplotlib_formats

plt.style.use("seejax.see.figures")
if get_ipython():
    set_matplotlib_formats("svg")


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
