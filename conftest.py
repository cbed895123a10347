"""What tests and doctests meet: eight CPU devices, and a JAX that promotes nothing silently.

>>> jax.device_count()
8
>>> for mixed in ("int8", (2,)), ("float32", (3, 2)):
...     try:
...         jnp.ones(2) + jnp.ones(mixed[1], mixed[0])
...     except ValueError:
...         print(*mixed, "refused")
int8 (2,) refused
float32 (3, 2) refused
"""

import doctest
import os
import re
from collections.abc import Iterator
from pathlib import Path

# JAX and TFDS read these when they start, so they come before their import.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["TFDS_DATA_DIR"] = str(Path(__file__).parent / "build" / "tensorflow_datasets")

import jax
import jax.numpy as jnp
import pytest
from playwright.sync_api import Browser, sync_playwright

import chromium

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace: dict) -> None:
    """The names that a doctest may use without importing them, in modules and pages alike."""
    doctest_namespace.update(jax=jax, jnp=jnp)


class MarkdownParser(doctest.DocTestParser):
    r"""Finds examples in pages, where a closing fence ends the output as an empty line does.

    >>> [(e.lineno, e.want) for e in MarkdownParser().get_examples("```\n>>> 1 + 1\n2\n```\nSo.")]
    [(1, '2\n')]
    """

    def parse(self, string: str, name: str = "<string>") -> list:
        fence = re.compile(r"^ *(`{3,}|~{3,}|:{3,}).*$", re.MULTILINE)
        return super().parse(fence.sub("", string), name)


doctest.DocTestParser = MarkdownParser  # pytest takes it for text files; modules keep their own


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium; installed if need be, and never left out."""
    chromium.chinese_font()
    with sync_playwright() as playwright:
        path = chromium.executable(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(executable_path=path, args=chromium.ARGUMENTS)
        yield browser
        browser.close()
