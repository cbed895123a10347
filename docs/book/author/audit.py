"""What the built site costs a phone, and whether programs can read it: against bounds.

`make audit` or `make audit PAGE="jit vmap"`; it needs Node, and once the network, for npx to
fetch Lighthouse and afdocs. A page that has not changed since it was measured is not measured
again. The last row is the first page's text under the stock theme, to compare with.
"""

import argparse
import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book import chromium
from book.paths import BUILD, DOCS, LANGUAGES, MYST_EXTENSIONS, pages

SITE = BUILD / "html"
REPORTS = BUILD / "audit"
LIGHTHOUSE = "lighthouse@12"  # the newest that runs on Node 20
AFDOCS = "afdocs@0.22"
LIMIT_S = 180  # a page, and afdocs, which has 10 s more for each
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
FLAGS = "--headless=new --no-sandbox --disable-gpu --disable-background-networking"
STOCK = f"""\
extensions = ["myst_nb"]
myst_enable_extensions = {MYST_EXTENSIONS}
nb_execution_mode = "off"
html_theme = "sphinx_book_theme"
suppress_warnings = ["*"]
"""
# What afdocs is not asked: what depends on the server or on the address where the site will lie;
# and two checks that turn HTML into Markdown by themselves, though every page has its own.
NOT_ASKED = (
    *("content-negotiation", "cache-header-hygiene", "markdown-link-portability"),
    *("llms-txt-links-resolve", "llms-txt-links-markdown", "llms-txt-coverage"),
    *("page-size-html", "markdown-content-parity"),
)

# What is measured: its heading, and the bound that every page has to keep.
MEASURES = {
    "performance": ("perf", lambda v: v >= 0.95),
    "accessibility": ("a11y", lambda v: v == 1),
    "best-practices": ("best", lambda v: v == 1),
    "seo": ("SEO", lambda v: v == 1),
    "lcp_s": ("LCP s", lambda v: v <= 2.0),
    "cls": ("CLS", lambda v: v <= 0.02),
    "kib": ("KiB", lambda v: v <= 250),
    "requests": ("requests", lambda v: v <= 10),
}


def measured(report: dict[str, Any]) -> dict[str, float]:
    """The figures of a report of Lighthouse; weight is that of the page without its figures."""
    audits = report["audits"]
    loaded = audits["network-requests"]["details"]["items"]
    own = [item for item in loaded if "/_images/" not in item["url"]]
    return {
        **{name: report["categories"][name]["score"] or 0 for name in CATEGORIES},
        "lcp_s": audits["largest-contentful-paint"].get("numericValue", 9e3) / 1000,
        "cls": audits["cumulative-layout-shift"].get("numericValue", 1),
        "kib": sum(item["transferSize"] for item in own) / 1024,
        "requests": len(own),
    }


def lighthouse(url: str, report: Path, chrome: str) -> None:
    command = ["npx", "--yes", "--loglevel=error", LIGHTHOUSE, url, "--quiet", "--output=json"]
    command += [f"--output-path={report}", f"--chrome-flags={FLAGS}"]
    command += [f"--only-categories={','.join(CATEGORIES)}"]
    subprocess.run(command, env={**os.environ, "CHROME_PATH": chrome}, timeout=LIMIT_S, check=True)


def stock(page: Path) -> Path:
    """A page as the theme shows it when nothing is changed."""
    source, out = REPORTS / "source", SITE / "stock"
    source.mkdir(parents=True, exist_ok=True)
    (source / "conf.py").write_text(STOCK, "utf8")
    shutil.copy(page, source / "index.md")
    sphinx = [sys.executable, "-m", "sphinx", "-b", "html", "-q", source, out]
    subprocess.run(sphinx, check=True, stderr=subprocess.DEVNULL)
    return out / "index.html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of the built site while it is served."""
    handler = functools.partial(Quiet, directory=SITE)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def audits(address: str, chosen: list[Path]) -> Iterator[tuple[str, dict[str, float]]]:
    """Every page with its figures, one at a time."""
    chrome = chromium.executable()
    REPORTS.mkdir(parents=True, exist_ok=True)
    built = [SITE / page.relative_to(DOCS).with_suffix(".html") for page in chosen]
    try:
        for page in [*built, stock(chosen[0])]:
            name = page.relative_to(SITE).with_suffix("").as_posix()
            report = REPORTS / f"{name.replace('/', '-')}.json"
            if not report.exists() or report.stat().st_mtime < page.stat().st_mtime:
                lighthouse(f"{address}/{name}.html", report, chrome)
            yield name, measured(json.loads(report.read_text("utf8")))
    finally:
        shutil.rmtree(SITE / "stock", ignore_errors=True)


def refused_by_afdocs(address: str, language: str, chosen: list[Path]) -> Iterator[str]:
    """What keeps a program from finding and reading the pages of a language, by afdocs."""
    names = [page.relative_to(DOCS).with_suffix(".html") for page in chosen]
    urls = [f"{address}/{name.as_posix()}" for name in names if name.parts[0] == language]
    command = ["npx", "--yes", "--loglevel=error", AFDOCS, "check", f"{address}/{language}/"]
    command += [f"--urls={','.join(urls)}", "--quiet", "--format=json"]
    command += [f"--skip-checks={','.join(NOT_ASKED)}"]
    limit_s = LIMIT_S + 10 * len(urls)
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    try:
        results = json.loads(done.stdout)["results"]
    except (ValueError, LookupError):
        raise SystemExit(f"afdocs has given no report\n{done.stdout}{done.stderr}") from None
    for result in results:
        if result["status"] not in ("pass", "skip"):
            yield f"{result['status']}  {language}: {result['id']}: {result['message']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", help="names of pages, such as jit; else all")
    names = parser.parse_args().pages
    if not shutil.which("npx"):
        print("make audit needs Node 20 or newer: there is no npx on PATH", file=sys.stderr)
        return 1
    sources = [page for language in LANGUAGES for page in pages(language)]
    chosen = [page for page in sources if not names or page.stem in names]
    missed = 0
    with served() as address:
        for language in LANGUAGES:
            for line in refused_by_afdocs(address, language, chosen):
                missed += line.startswith("fail")
                print(line, flush=True)
        print(f"{'page':28}", *(f"{heading:>9}" for heading, _ in MEASURES.values()))
        for name, figures in audits(address, chosen):
            cells = []
            for measure, (_, kept) in MEASURES.items():
                bad = not name.startswith("stock") and not kept(figures[measure])
                missed += bad
                cells.append(f"{figures[measure]:8.3g}{'!' if bad else ' '}")
            print(f"{name:28}", *cells, flush=True)
    if missed:
        print(f"{missed} bounds are not kept (!)", file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
