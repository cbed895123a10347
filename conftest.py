"""What tests and doctests meet: eight CPU devices, and a JAX that promotes nothing silently."""

import doctest
import os
import re

# JAX reads these when it starts, so they come before its import.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace: dict) -> None:
    """The names that a doctest may use without importing them, in modules and pages alike."""
    doctest_namespace.update(jax=jax, jnp=jnp)


class MarkdownParser(doctest.DocTestParser):
    """Finds examples in pages, where a closing fence ends the output as an empty line does."""

    def parse(self, string: str, name: str = "<string>") -> list:
        fence = re.compile(r"^ *(`{3,}|~{3,}|:{3,}).*$", re.MULTILINE)
        return super().parse(fence.sub("", string), name)


doctest.DocTestParser = MarkdownParser  # pytest takes it for text files; modules keep their own
