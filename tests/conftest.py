"""The browser that the tests of the site and of the pictures share."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium; installed if need be, and never left out."""
    chromium.chinese_font()
    with sync_playwright() as playwright:
        path = chromium.executable(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(executable_path=path, args=chromium.ARGUMENTS)
        yield browser
        browser.close()
