"""What is printed though a program goes on: printed again, in a process of its own, and named."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from test_errors import command

import limits
from book import paths
from seejax import errors

NOTICES = errors.notices()
SEEN = [name for name, entry in NOTICES.items() if entry.seen]
UNSEEN = [name for name, entry in NOTICES.items() if not entry.seen]
LOCKED = re.search(r"^jax==(\S+)", (paths.ROOT / "requirements.lock").read_text(), re.M)[1]


def squashed(text: str) -> str:
    return " ".join(text.split())


def run(folder: Path, code: str) -> subprocess.CompletedProcess:
    """A program of its own, with the settings of a reader who has set none."""
    (folder / "train.py").write_text(code)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env = {**kept, "JAX_PLATFORMS": "cpu", "TMPDIR": str(folder)}
    ran = [sys.executable, "train.py"]
    return subprocess.run(ran, cwd=folder, env=env, capture_output=True, text=True, timeout=600)


@limits.OF_ITS_PYTHON
@pytest.mark.parametrize("name", SEEN)
def test_a_notice_is_printed_and_is_its_own_entry(name: str, tmp_path: Path) -> None:
    entry = NOTICES[name]
    done = run(tmp_path, entry.code)
    assert done.returncode == 0, done.stderr
    assert errors.noticed(done.stderr) == [name]
    assert errors.find(done.stderr) is None
    if importlib.metadata.version("jax") == LOCKED:  # its words are kept; others may differ
        kept = errors.pattern(squashed(entry.text))
        assert kept.search(squashed(done.stderr)), done.stderr


@pytest.mark.parametrize("name", SEEN)
def test_a_cured_program_prints_nothing_of_it(name: str, tmp_path: Path) -> None:
    assert "assert" in NOTICES[name].cured
    done = run(tmp_path, NOTICES[name].cured)
    assert done.returncode == 0, done.stderr
    assert errors.noticed(done.stderr) == []


@pytest.mark.parametrize("name", NOTICES)
def test_a_notice_is_known_by_its_text(name: str) -> None:
    entry = NOTICES[name]
    assert errors.noticed(squashed(entry.text)) == [name]
    assert errors.pattern(entry.says[0]).search(squashed(entry.text))
    assert entry.seen == bool(entry.code) == bool(entry.cured) == (not entry.source)


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, entry in NOTICES.items() for words in entry.says]
)
def test_the_words_of_other_versions_lead_to_the_same_notice(name: str, words: str) -> None:
    assert errors.noticed(f"a.py:3: UserWarning: {words.replace('…', ' f ')} and so on") == [name]


def test_unseen_words_stand_in_the_installed_packages() -> None:
    """All but those of the plugins for GPUs, which are not installed here."""
    packages = Path(importlib.metadata.distribution("jax").locate_file(""))
    source = "".join(
        p.read_text("utf8")
        for p in [packages / "jax/_src/xla_bridge.py", *packages.glob("jaxlib/*.py")]
    )
    source = re.sub(r'"\s*\n\s*f?"', "", source)
    binary = b"".join(file.read_bytes() for file in packages.glob("jaxlib/libjax_common*"))
    elsewhere = {"delay-kernel", "bfc-pool", "remat-limit"}
    for name in {*UNSEEN} - elsewhere:
        for words in NOTICES[name].says[0].split("…"):
            assert words in source or words.encode() in binary, name


PRETENDED = """
from jax._src import hardware_utils
hardware_utils._NVIDIA_GPU_DEVICES = ["/dev/null"]
import jax
jax.devices()
"""


def test_a_gpu_that_is_pretended_has_its_line_printed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRETENDED)
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ran = [sys.executable, "train.py"]
    for setting, wanted in ({}, ["gpu-unused"]), ({"JAX_PLATFORMS": "cpu"}, []):
        done = subprocess.run(
            ran, cwd=tmp_path, env=env | setting, capture_output=True, text=True, timeout=120
        )
        assert errors.noticed(done.stderr) == wanted
        assert (squashed(NOTICES["gpu-unused"].text) in squashed(done.stderr)) == bool(wanted)


# -- the command -----------------------------------------------------------------------------------

WARNED = "a.py:1: UserWarning: Some donated buffers were not usable: float32[8].\n"
FORKED = "/v/popen_fork.py:66: RuntimeWarning:\n\nos.fork() was called. os.fork() is inco\n"


def test_notices_are_printed_in_their_order(monkeypatch, capsys) -> None:
    code, out, _ = command(monkeypatch, capsys, (FORKED + WARNED).encode(), "--lang", "en")
    assert code == 0 and out.startswith("fork-threads\n")
    assert "\n\ndonation-unused\n" in out


def test_an_error_that_ended_the_program_goes_before_notices(monkeypatch, capsys) -> None:
    known = WARNED + "Traceback (most recent call last):\nKeyReuseError: In f, argument 0\n"
    code, out, _ = command(monkeypatch, capsys, known.encode(), "--lang", "en")
    assert code == 0 and out.startswith("key-reuse\n") and "donation" not in out
    other = WARNED + "Traceback (most recent call last):\nZeroDivisionError: division by zero\n"
    code, out, _ = command(monkeypatch, capsys, other.encode(), "--lang", "en")
    assert code == 1 and out.startswith("The dictionary has no such error.")
    assert "donation-unused" in out


def test_a_notice_is_looked_up_and_shows_its_programs(monkeypatch, capsys) -> None:
    code, out, _ = command(monkeypatch, capsys, b"", "--lang", "zh", "--example", "x64-cut")
    assert code == 0 and out.startswith("x64-cut\n") and 'jnp.zeros(3, "float64")' in out
    code, out, _ = command(monkeypatch, capsys, b"", "--lang", "en", "slow-compile")
    assert code == 0 and "--example" not in out


STRANGERS = tomllib.loads(Path(__file__).with_name("strangers.toml").read_text("utf8"))["pasted"]


def test_what_strangers_pasted_is_named_nine_times_of_ten(monkeypatch, capsys) -> None:
    missed = []
    for row in STRANGERS:
        _, out, _ = command(monkeypatch, capsys, row["text"].encode(), "--lang", "en")
        if out.split("\n")[0] != row["entry"]:
            missed.append(row["text"])
    assert len(STRANGERS) >= 20 and len(missed) <= len(STRANGERS) / 10, missed
