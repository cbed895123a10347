"""Which checks of a page can fail? Spoil what they check, one thing at a time, and see them fail.

    python -m tools.mutate            # every page: make mutate; it may take an hour
    python -m tools.mutate jit vmap   # these alone: make mutate PAGE="jit vmap"

A mutant is a cell with one number, operator, keyword argument or decorator changed or left out. A
check that no mutant of its cell, or of the cell that made its names, could bring to fail is
reported; so is one that no run has come to. The report lies in docs/data/mutation.json, and the
page `about` shows it.
"""

import argparse
import ast
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from myst_nb.core.read import myst_nb_reader_plugin

from tools.book import DOCS, PAGE_ENV, PLACES_ENV, ROOT, BuildError, pages, say
from tools.execute import source_line
from tools.judge import Check, of_process
from tools.keys import code_cells
from tools.mutants import REPORT, checks, digest, reports


def of_page(name: str) -> dict[str, Any]:
    """The report of a page as the file has it, lines as an editor counts them."""
    page = DOCS / "en" / f"{name}.md"
    notebook = myst_nb_reader_plugin(str(page))
    cells = code_cells(notebook)
    sources = [cell.source for cell in cells]
    raising = [n for n, c in enumerate(cells) if "raises-exception" in c.metadata.get("tags", [])]
    begin = time.perf_counter()
    places = f"{ROOT / 'docs'}{os.pathsep}{ROOT / 'examples'}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    env = {**kept, **PAGE_ENV, **PLACES_ENV, "MPLBACKEND": "agg", "PYTHONPATH": places}
    try:
        report = of_process(sources, raising, env)
    except BuildError as error:
        raise BuildError(f"{name}: {error}") from None

    def place(cell: int, line: int) -> str:
        return f"cell {cell + 1}, line {source_line(page, notebook, cells[cell], line)}"

    def told(found: set[Check]) -> list[str]:
        named = [(cell, checks(sources[cell])[number]) for cell, number in sorted(found)]
        return [f"{place(cell, one.lineno)}: {ast.unparse(one)[:100]}" for cell, one in named]

    every = set(report.checks)
    return {
        "cells": digest(sources),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "seconds": round(time.perf_counter() - begin),
        "checks": len(every),
        "tried": len(report.tried & every),
        "mutants": len(report.mutants),
        "never_reached": told(every - report.reached),
        "never_failed": told((report.tried & every) - report.failed),
        "survived": [f"{place(cell, one.line)}: {one.what}" for cell, one in report.survived],
    }


def finished(names: list[str]) -> Iterator[tuple[str, Future]]:
    """The pages as their reports come; on each processor is one of them."""
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        running = {pool.submit(of_page, name): name for name in names}
        for done in as_completed(running):
            yield running[done], done
    finally:
        pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="*", help="names of pages; all of them, if none is named")
    args = parser.parse_args()
    names = args.pages or [p.stem for p in pages("en") if "{code-cell}" in p.read_text("utf8")]
    bad = 0
    for name, reported in finished(names):
        try:
            report = reported.result()
        except BuildError as error:
            print(f"\n{error}\n", file=sys.stderr)
            bad += 1
            continue
        written = {**reports(), name: report}
        text = json.dumps(dict(sorted(written.items())), indent=1, ensure_ascii=False)
        REPORT.write_text(text + "\n", "utf8")
        tried = f"{report['tried']} of {report['checks']} checks met {report['mutants']} mutants"
        say("mutate", f"{name}: {tried} in {report['seconds']} s")
        for kind in ("never_reached", "never_failed"):
            for row in report[kind]:
                print(f"         │ {kind.replace('_', ' ')}: {row}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
