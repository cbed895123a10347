"""Small books for tests of what builds: one is built once a worker, and tests take copies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from small_book import Book, executed


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The book, built once; its tests take copies."""
    book = Book(tmp_path_factory.mktemp("book"))
    book.write()
    output = book.build()
    assert executed(output) == 2, "the two languages run their two cells once"
    return book


@pytest.fixture
def book(built: Book, tmp_path: Path) -> Iterator[Book]:
    yield built.copy(tmp_path / "book")


@pytest.fixture
def small(tmp_path: Path) -> Book:
    """A book that was never built."""
    book = Book(tmp_path / "book")
    book.root.mkdir()
    book.write()
    return book
