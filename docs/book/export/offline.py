"""The site to take away: `python -m book.export.offline zip pdf` makes what it is told.

    build/htmlzip/see-jax.zip          both languages, to be opened from the disk
    build/pdf/see-jax-{zh,en}.pdf      one book a language, printed on A4

On Read the Docs they are of its language alone and lie where it looks for them.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from book import chromium
from book.build import targets
from book.export import pdf
from book.export.chapters import book
from book.paths import BUILD, BuildError, say

FORMATS = ("zip", "pdf")
NAME = "see-jax"


def zipped(html: Path, out: Path) -> Path:
    if not (html / "index.html").exists():
        raise BuildError(f"{html} has no index.html: make html")
    return Path(shutil.make_archive(str(out), "zip", html))


def make(wanted: list[str]) -> Iterator[Path]:
    """Make the formats; yield each file when it is there."""
    sites = targets()
    out = Path(os.environ.get("READTHEDOCS_OUTPUT", BUILD))
    if "zip" in wanted:
        yield zipped(out / "html", out / "htmlzip" / NAME)
    if "pdf" not in wanted:
        return
    with chromium.launched() as browser:
        for language, html in sites.items():
            file = out / "pdf" / f"{NAME}-{language}.pdf"
            pdf.write(book(html, language, pdf.place), browser, file)
            yield file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("formats", nargs="+", choices=FORMATS)
    begin = time.perf_counter()
    try:
        for file in make(parser.parse_args().formats):
            seconds, begin = time.perf_counter() - begin, time.perf_counter()
            size = file.stat().st_size / 1e6
            say("offline", f"{os.path.relpath(file)}: {size:.1f} MB in {seconds:.0f} s")
    except BuildError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
