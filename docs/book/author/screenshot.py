"""Take README's picture of the built front page: its first screen, one line of the trace lit.

`python -m book.author.screenshot` takes docs/screenshot.png of the site in build/html.
"""

import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser

from book import chromium
from book.paths import BUILD, DOCS, ROOT

PAGE = BUILD / "html" / "zh" / "index.html"
PICTURE = DOCS / "screenshot.png"
SIZE = {"width": 1440, "height": 900}
COLOURS = 64  # a screen of text needs no more, and weighs a third
LINE = "variance ="  # of the source in the picture: the one that the mouse points at


def take(browser: Browser, to: Path) -> None:
    """The same window each time: its size, a light ground, nothing that moves."""
    page = browser.new_page(
        viewport=SIZE, color_scheme="light", reduced_motion="reduce", device_scale_factor=1
    )
    page.goto(PAGE.as_uri())
    page.locator(".see").get_by_text(LINE).first.hover()
    page.screenshot(path=to, animations="disabled", caret="hide")
    page.close()


def main() -> int:
    if not PAGE.exists():
        print(f"{PAGE.relative_to(ROOT)} is not there: make html", file=sys.stderr)
        return 1
    with chromium.launched() as browser:
        take(browser, PICTURE)
    Image.open(PICTURE).quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}, {PICTURE.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
