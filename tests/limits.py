"""Which pages keep to the limits of a page, and link each term where it first appears."""

from tools import book

LONGER: set[str] = set()
LIMITED = [page.stem for page in book.pages("zh") if page.stem not in LONGER]
