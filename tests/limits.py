"""Which pages keep to the limits of a page, and which tests hold on the Python of the book."""

import sys

import pytest

from tools import book

LONGER: set[str] = set()
LIMITED = [page.stem for page in book.pages("zh") if page.stem not in LONGER]

PYTHON = (book.ROOT / ".python-version").read_text().strip()
OF_ITS_PYTHON = pytest.mark.skipif(
    sys.version_info[:2] != tuple(map(int, PYTHON.split("."))),
    reason=f"so it is on Python {PYTHON}: another may have another JAX, with other names and words",
)
