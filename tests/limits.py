"""Which tests hold on the Python of the book alone, or on processors that XLA serves in full."""

import sys

import jax
import jax.numpy as jnp
import pytest

from book import paths

PYTHON = (paths.ROOT / ".python-version").read_text().strip()
OF_ITS_PYTHON = pytest.mark.skipif(
    sys.version_info[:2] != tuple(map(int, PYTHON.split("."))),
    reason=f"so it is on Python {PYTHON}: another may have another JAX, with other names and words",
)


def multiplies_float16() -> bool:
    try:
        return bool((3 * jnp.ones(2, "float16")).sum() == 6)
    except jax.errors.JaxRuntimeError:
        return False


# For a processor without F16C, XLA translates float16 into functions that it does not link.
NO_FLOAT16 = pytest.mark.skipif(not multiplies_float16(), reason="XLA has no float16 here")
HALF = ["bfloat16", pytest.param("float16", marks=NO_FLOAT16)]
