"""Small books for tests of what builds: one is built once, and tests take copies."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from small_book import Book, executed


@pytest.fixture(scope="session")
def built(made_once: Callable[..., Path]) -> Book:
    """The book, built once; its tests take copies."""

    def build(folder: Path) -> None:
        book = Book(folder)
        book.write()
        output = book.build()
        assert executed(output) == 2, "the two languages run their two cells once"

    return Book(made_once("book", build))


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
