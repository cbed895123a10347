"""Where names of other libraries are documented: docs/data/inventories, made anew by

    python -m book.inventories            # from the sites themselves: make inventories
    python -m book.inventories FOLDER     # from what was fetched before: FOLDER/jax/objects.inv

Each is what the site itself says in its objects.inv, cut to names of the version that is installed
here, without members of classes. A name that a library has twice is documented once: the other
one, `jax.P` for `jax.sharding.PartitionSpec`, is added with the same address.
"""

import argparse
import importlib
import inspect
import logging
import urllib.request
import warnings
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from sphinx.util.inventory import InventoryFile

from book.paths import DOCS, say

FOLDER = DOCS / "data" / "inventories"
SITES = {
    "jax": "https://docs.jax.dev/en/latest/",
    "flax": "https://flax.readthedocs.io/en/stable/",
    "linen": "https://flax-linen.readthedocs.io/en/latest/",
    "optax": "https://optax.readthedocs.io/en/latest/",
    "numpy": "https://numpy.org/doc/stable/",
}
MODULES = {"flax": "flax.nnx", "linen": "flax.linen"}  # what a site is about, if not its namesake
LIMIT_S = 60

Entry = tuple[str, str]  # kind and address


def file(site: str) -> Path:
    return FOLDER / f"{site}.inv"


def find(name: str) -> object:
    """What a name stands for in the packages installed here.

    >>> find("functools.partial").__name__
    'partial'
    >>> find("functools.partly")
    Traceback (most recent call last):
    LookupError: functools.partly
    """
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        try:
            for part in parts[n:]:
                found = getattr(found, part)
        except AttributeError:
            break
        return found
    raise LookupError(name)


def read(content: bytes, site: str = "") -> dict[str, Entry]:
    """The names of an inventory, with their addresses on the site."""
    inventory = InventoryFile.loads(content, uri=site).data
    return {
        name: (kind, item.uri)
        for kind in sorted(inventory)
        if kind.startswith("py:")
        for name, item in inventory[kind].items()
    }


def public(module: ModuleType, seen: set[str]) -> Iterator[tuple[str, object]]:
    """Every name that a package offers, with what it stands for."""
    seen.add(module.__name__)
    for name in dir(module):
        full = f"{module.__name__}.{name}"
        if name.startswith("_"):
            continue
        try:
            what = getattr(module, name)
        except AttributeError:  # one that was removed, and says so
            continue
        if not inspect.ismodule(what):
            yield full, what
        elif what.__name__ == full and full not in seen:
            yield from public(what, seen)


def cut(documented: dict[str, Entry], module: str) -> dict[str, Entry]:
    """What is of use here: names that are installed, and the other names of the module's."""
    package = module.partition(".")[0]
    kept: dict[str, Entry] = {}
    known: dict[int, Entry] = {}
    for name, entry in sorted(documented.items()):
        if name.split(".")[0] == package:
            try:
                what, parent = find(name), find(name.rpartition(".")[0] or name)
            except LookupError:
                continue
            if inspect.ismodule(parent):
                kept[name] = entry
                if callable(what):
                    known.setdefault(id(what), entry)
    others = public(importlib.import_module(module), set())
    kept |= {name: known[id(it)] for name, it in others if name not in kept and id(it) in known}
    return kept


def write(site: str, entries: dict[str, Entry]) -> None:
    """An inventory as Sphinx reads it."""
    package = MODULES.get(site, site).partition(".")[0]
    lines = (f"{name} {kind} 1 {address} -\n" for name, (kind, address) in sorted(entries.items()))
    head = f"# Sphinx inventory version 2\n# Project: {site}\n# Version: {version(package)}\n"
    head += "# The remainder of this file is compressed using zlib.\n"
    file(site).write_bytes(head.encode() + zlib.compress("".join(lines).encode(), 9))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m book.inventories")
    parser.add_argument(
        "folder", nargs="?", type=Path, help="with SITE/objects.inv; else the sites"
    )
    folder = parser.parse_args().folder
    warnings.simplefilter("ignore")  # names that are on their way out say so
    logging.disable()
    FOLDER.mkdir(exist_ok=True)
    for site, address in SITES.items():
        source = folder.resolve().as_uri() + f"/{site}/" if folder else address
        with urllib.request.urlopen(f"{source}objects.inv", timeout=LIMIT_S) as answer:
            documented = read(answer.read())
        entries = cut(documented, MODULES.get(site, site))
        write(site, entries)
        say(site, f"{len(entries)} names of {len(documented)}")


if __name__ == "__main__":
    main()
