"""What docs/data/today.toml says, tried out: old code fails or misleads as told, today's passes."""

import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from book.extensions import today

ENTRIES: dict[str, dict] = tomllib.loads(today.DATA.read_text("utf8"))
WITH_OLD_CODE = [name for name, entry in ENTRIES.items() if "old" in entry]
WITH_CODE = [name for name, entry in ENTRIES.items() if "today" in entry]


# -- the code --------------------------------------------------------------------------------------


@pytest.fixture
def afresh(plain_numpy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """JAX as a reader has it, and afterwards again as the tests have it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = dict(jax.config.values)
    compilation_cache.reset_cache()  # it looks for its folder once
    yield
    for name, value in before.items():
        if jax.config.values[name] != value:
            jax.config.update(name, value)
    compilation_cache.reset_cache()


def run(code: str, name: str) -> None:
    exec(compile(code, name, "exec"), {"__name__": "__main__"})


def ending(code: str, name: str) -> str:
    """How a program ends, as the last line of a traceback says it; nothing where it passes."""
    with warnings.catch_warnings(action="ignore"):  # old code may be warned of
        try:
            run(code, name)
        except Exception as error:
            kind = type(error)
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            return f"{module}{kind.__qualname__}: {error}"
    return ""


def agrees(said: str, text: str) -> bool:
    """Whether a text is as said, where … stands for anything."""
    return bool(re.fullmatch(".*".join(map(re.escape, said.split("…"))), text, re.DOTALL))


@pytest.mark.parametrize("name", WITH_OLD_CODE)
def test_old_code_fails_or_misleads_as_said(afresh: None, name: str) -> None:
    entry = ENTRIES[name]
    assert ("fails" in entry) != ("misleads" in entry)
    ended = ending(entry["old"], name)
    assert agrees(entry.get("fails", ""), ended), ended
    if "misleads" in entry:
        with warnings.catch_warnings(action="ignore"):
            run(entry["old"] + entry["misleads"], name)


@pytest.mark.parametrize("name", WITH_CODE)
def test_today_s_code_passes_without_a_warning(afresh: None, name: str) -> None:
    run(ENTRIES[name]["today"] + ENTRIES[name].get("border", ""), name)


def test_what_is_said_is_told_from_what_is_not() -> None:
    assert agrees("A: …b…", "A: a\nb c") and agrees("", "")
    assert not agrees("A: b", "A: b.") and not agrees("A: …b", "AB: b") and not agrees("", "A: b")
    assert ending("raise KeyError('x')", "x") == "KeyError: 'x'" and ending("1", "x") == ""
