"""Which tests hold on the Python of the book alone."""

import sys

import pytest

from book import paths

PYTHON = (paths.ROOT / ".python-version").read_text().strip()
OF_ITS_PYTHON = pytest.mark.skipif(
    sys.version_info[:2] != tuple(map(int, PYTHON.split("."))),
    reason=f"so it is on Python {PYTHON}: another may have another JAX, with other names and words",
)
