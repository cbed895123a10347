"""Where the things of the book lie, its languages, and the machine that its pages see."""

import functools
import os
import tomllib
from pathlib import Path
from typing import Any

from seejax.errors import SLUGS

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
THEME = DOCS / "theme"
BUILD = ROOT / "build"

# For each tree: its language as HTML names it, as Read the Docs spells it, as its readers do.
LANGUAGES = {
    "zh": {"hreflang": "zh-CN", "slug": SLUGS["zh"], "name": "中文"},
    "en": {"hreflang": "en", "slug": SLUGS["en"], "name": "English"},
}


def language_of(config: Any) -> str:
    """Which of our languages Sphinx is building: the tree, by what Sphinx calls the language."""
    return "zh" if config.language.startswith("zh") else "en"


MYST_EXTENSIONS = ["dollarmath", "colon_fence", "deflist"]

# What JAX is told before it is imported, here and in a reader's notebook.
JAX_ENV = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "JAX_PPRINT_USE_COLOR": "0",
}
# What the pages see as the machine: the same in both languages, for every builder, in the tests.
# SEEJAX_XLA_FLAGS="--xla_cpu_max_isa=SSE4_2" makes it another, whose numbers differ in last bits.
PAGE_ENV = {
    **JAX_ENV,
    "XLA_FLAGS": f"{JAX_ENV['XLA_FLAGS']} {os.environ.get('SEEJAX_XLA_FLAGS', '')}".strip(),
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "PYTHONHASHSEED": "0",
}
STYLE = ROOT / "examples" / "seejax" / "see" / "figures.mplstyle"  # of every figure
PLACES_ENV = {  # where these lie, and how many threads there are, changes no output
    "TFDS_DATA_DIR": str(BUILD / "tensorflow_datasets"),
    "MATPLOTLIBRC": str(STYLE),
    # scikit-learn counts cores if nobody says how many threads it may have, and warns if it cannot.
    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(os.cpu_count())),
}


class BuildError(Exception):
    """What the reader of the terminal has to know, in one message; no traceback of ours."""


def say(who: str, what: str) -> None:
    """One line of progress: which part of the build, and what it did."""
    print(f"{who:>8} │ {what}", flush=True)


@functools.cache
def project() -> dict[str, Any]:
    """What pyproject.toml says of the package: its name, its version, what it needs, its addresses.

    >>> project()["name"]
    'seejax'
    """
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]


def pages(language: str) -> list[Path]:
    """Every page of a language, in the order of their names."""
    return sorted((DOCS / language).rglob("*.md"))


def page_name(page: Path, language: str) -> str:
    """What links and built files call a page: its path within its language, without a suffix.

    >>> page_name(DOCS / "zh" / "jit.md", "zh")
    'jit'
    """
    return page.relative_to(DOCS / language).with_suffix("").as_posix()
