"""What the command of errors prints: the reader's own line, today's name, examples, a list."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from test_errors import CAUSED, ENTRIES, command, ipython, python

from book import paths
from seejax import errors
from seejax.errors import __main__, gone, lines
from seejax.today import names

pytestmark = pytest.mark.usefixtures("plain_numpy")


def raised(name: str) -> Exception:
    return errors.raised(ENTRIES[name].code)


def run(folder: Path, code: str, **env: str) -> str:
    """What a program of the reader's prints to its standard error."""
    (folder / "train.py").write_text(code)
    ran = [sys.executable, "train.py"]
    settings = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env}
    done = subprocess.run(ran, cwd=folder, env=settings, capture_output=True, timeout=120)
    assert done.returncode, "it should fail"
    return done.stderr.decode()


# -- names that are gone ---------------------------------------------------------------------------

ROWS = [
    row
    for row in names.changes().values()
    if row.kind == "removed" and not row.method and not re.search(r"[ (]", row.old)
]


def missing(name: str) -> list[str]:
    """How Python and the libraries say that a name is not there."""
    parent, _, leaf = name.rpartition(".")
    return [
        f"AttributeError: module '{parent}' has no attribute '{leaf}'",
        f"ImportError: cannot import name '{leaf}' from '{parent}' (/v/{parent}/__init__.py)",
        f"ModuleNotFoundError: No module named '{name}'",
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.old)
def test_a_gone_name_is_found_however_it_is_said(row: names.Change) -> None:
    if "." in row.old.removeprefix(row.library + "."):
        said = missing(row.old)
    else:
        said = [each for each in missing(row.old) if row.library != row.old]
    for message in said:
        assert errors.name(message) == errors.GONE
        assert gone.name(message) == row.old
        found = gone.change(message)
        assert found and found.kind in ("removed", "deprecated")
        for lang in paths.LANGUAGES:
            assert f"{found.since}" in gone.told(found, lang)


def test_a_gone_argument_and_a_gone_method_are_found() -> None:
    with pytest.raises(TypeError) as caught:
        jnp.clip(jnp.ones(3), a_min=0.0)
    assert errors.name(python(caught.value)) == errors.GONE
    with pytest.raises(AttributeError) as missed:
        jnp.ones(3).to_py()
    assert errors.name(python(missed.value)) == errors.GONE
    assert errors.name("AttributeError: 'ArrayImpl' object has no attribute 'to_pie'") is None
    assert errors.name("TypeError: clip() got an unexpected keyword argument 'a_mean'") is None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("module 'jax' has no attribute 'tree_map'", "write jax.tree.map"),
        ("module 'jax.numpy' has no attribute 'DeviceArray'", "write jax.Array"),
        ("module 'flax' has no attribute 'optim'", "`optax`"),
        ("module 'jax' has no attribute 'tree_mop'", ""),  # misspelled
        ("module 'jax' has no attribute 'tree'", ""),  # newer than the installed version
    ],
)
def test_today_s_name_is_printed_where_the_table_has_it(
    monkeypatch, capsys, message: str, said: str
) -> None:
    raw = f"AttributeError: {message}\n".encode()
    code, out, _ = command(monkeypatch, capsys, raw, "--lang", "en")
    assert code == 0 and out.startswith(errors.GONE)
    assert "python -m seejax.today" in out
    assert [line for line in out.split("\n") if line.startswith("Today:")] == (
        [line for line in out.split("\n") if said in line and line.startswith("Today:")]
    )
    assert bool(said) == ("\nToday:" in out)


def test_an_old_name_in_an_installed_package_names_the_package(monkeypatch, capsys) -> None:
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n'
        '    import flax\n  File "/v/lib/python3.11/site-packages/flax/core/axes.py", line 5\n'
        "    from jax import linear_util as lu\n"
        "ImportError: cannot import name 'linear_util' from 'jax' (/v/jax/__init__.py)\n"
    )
    shown = {"flax": text, "numpyro": text.replace("/flax/", "/numpyro/"), "": ""}
    for package, raw in shown.items():
        code, out, _ = command(monkeypatch, capsys, raw.encode(), "--lang", "en")
        assert (f"pip install -U {package}" in out) == bool(package) == (code == 0)
    assert "train.py, line 2" in command(monkeypatch, capsys, text.encode(), "--lang", "en")[1]


# -- messages that say too little ------------------------------------------------------------------


@pytest.mark.parametrize("call", ["jnp.ones(3)", "jax.devices()", "jax.random.key(0)"])
def test_a_platform_that_is_not_there_is_named_without_a_message(tmp_path: Path, call: str) -> None:
    code = f"import jax, jax.numpy as jnp\n{call}\n"
    text = run(tmp_path, code, JAX_PLATFORMS="cuda")
    assert errors.name(text) == "no-backend"
    assert errors.name("AssertionError") is None
    assert errors.name('  File "a.py", line 1\n    assert x\nAssertionError') is None


def test_a_module_given_to_jit_is_told_from_an_array_in_a_set(tmp_path: Path) -> None:
    for name in "jit-module", "unhashable-array":
        text = run(tmp_path, ENTRIES[name].code)
        assert errors.name(text) == name
        assert errors.name(ipython(raised(name), "Context", "linux")) == name


# -- the reader's own line -------------------------------------------------------------------------


def test_own_line_is_the_innermost_of_one_s_own(tmp_path: Path) -> None:
    code = (
        "import jax\nimport jax.numpy as jnp\n\ndef loss(x):\n    return jnp.sum(x @ x.T)\n\n"
        "jax.jit(loss)(jnp.ones((2, 3, 4)))\n"
    )
    for filtering in "auto", "off":
        text = run(tmp_path, code, JAX_TRACEBACK_FILTERING=filtering)
        found = lines.own(text)
        assert found == (str(tmp_path / "train.py"), 5, "return jnp.sum(x @ x.T)")


@pytest.mark.parametrize("mode", ["Context", "Verbose", "Plain"])
def test_own_line_of_ipython(mode: str) -> None:
    found = errors.own_line(
        text := ipython(raised("tracer-bool"), mode, "linux"), errors.find(text)
    )
    assert found and found.source == "if x > 0:" and found.number == 5


def test_own_line_of_a_notebook_cell() -> None:
    text = (
        "Cell In[3], line 7, in loss(x)\n      5 def loss(x):\n----> 7     if x > 0:\n"
        "File /v/lib/python3.12/site-packages/jax/core.py:9, in f(x)\n----> 9   raise\n"
    )
    assert lines.own(text) == ("Cell In[3]", 7, "if x > 0:")
    old = "<ipython-input-9-30d862> in <cell line: 14>()\n     13 import t5\n---> 14 import t5x\n"
    assert lines.own(old) == ("<ipython-input-9-30d862>", 14, "import t5x")


def test_own_line_of_pytest() -> None:
    text = ">       jax.grad(f)(3)\nE       TypeError: grad\n\ntest_it.py:9: TypeError\n"
    assert lines.own(text) == ("test_it.py", 9, "jax.grad(f)(3)")


def test_own_line_stands_in_the_traceback_that_was_named() -> None:
    error = raised("grad-integer")
    other = 'Traceback (most recent call last):\n  File "late.py", line 1\n    x\nKeyError: 1\n'
    text = python(error) + CAUSED + other
    found = errors.own_line(text, errors.find(text))
    assert found and found.file == "example.py"
    assert lines.own("ValueError: no frames") is None
    assert errors.own_line("TypeError: grad requires real- or", None) is None


def test_own_line_is_printed_and_given_to_programs(monkeypatch, capsys) -> None:
    raw = python(raised("tracer-bool")).encode()
    code, out, _ = command(monkeypatch, capsys, raw, "--lang", "en")
    assert code == 0 and "\nYour line: example.py, line 5\n    if x > 0:\n" in out
    code, out, _ = command(monkeypatch, capsys, raw, "--lang", "zh")
    assert "\n你的代码：example.py 第 5 行\n    if x > 0:\n" in out
    code, out, _ = command(monkeypatch, capsys, raw, "--json")
    (entry,) = json.loads(out)["entries"]
    assert entry["line"] == {"file": "example.py", "line": 5, "source": "if x > 0:"}


# -- looking an entry up ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", ["tracer-bool", "TracerBoolConversionError", "jax.errors.TracerBoolConversionError"]
)
def test_an_entry_is_looked_up_by_its_name_or_class(monkeypatch, capsys, words: str) -> None:
    code, out, err = command(monkeypatch, capsys, b"", "--lang", "en", words)
    assert (code, out.split("\n")[0], err) == (0, "tracer-bool", "")
    code, typed, _ = command(monkeypatch, capsys, words.encode(), "--lang", "en")
    assert "Your line" not in out
    if words != "tracer-bool":  # as a text, a class is enough, and an id is no text
        assert (code, typed) == (0, out)


def test_a_class_of_many_entries_lists_them(monkeypatch, capsys) -> None:
    code, out, _ = command(monkeypatch, capsys, b"", "--lang", "en", "ValueError")
    listed = [line.split()[0] for line in out.strip().split("\n")]
    assert code == 0 and len(listed) > 9 and set(listed) <= set(ENTRIES)
    code, out, _ = command(monkeypatch, capsys, b"", "--json", "ValueError")
    assert [entry["name"] for entry in json.loads(out)["entries"]] == listed


def test_a_file_goes_before_an_entry_of_its_name(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nan").write_text("ZeroDivisionError: division by zero")
    assert command(monkeypatch, capsys, b"", "nan")[0] == 1
    Path("nan").unlink()
    assert command(monkeypatch, capsys, b"", "nan")[0] == 0


def test_the_programs_are_printed_when_asked_for(monkeypatch, capsys) -> None:
    name = "immutable"
    code, out, _ = command(monkeypatch, capsys, b"", "--lang", "en", "--example", name)
    plain = out.replace("\n    ", "\n")
    assert code == 0
    for program in ENTRIES[name].code, ENTRIES[name].cured:
        assert program.strip() in plain
    shorter = command(monkeypatch, capsys, b"", "--lang", "en", name)[1]
    assert "--example" in shorter and "import" not in shorter


@pytest.mark.parametrize("lang", paths.LANGUAGES)
def test_the_list_has_every_entry_once(monkeypatch, capsys, lang: str) -> None:
    code, out, _ = command(monkeypatch, capsys, b"", "--lang", lang, "--list")
    listed = [line.split()[0] for line in out.split("\n") if line.startswith("  ")]
    assert code == 0 and listed == [*ENTRIES, *errors.notices()]


@pytest.mark.parametrize("lang", paths.LANGUAGES)
def test_without_an_address_the_page_s_title_is_printed(monkeypatch, capsys, lang: str) -> None:
    monkeypatch.setattr(errors, "address", lambda name, lang: f"errors.html#error-{name}")
    out = command(monkeypatch, capsys, b"", "--lang", lang, "nan")[1]
    assert "errors.html" not in out and errors.headword(ENTRIES["nan"]) in out
    page = (paths.DOCS / lang / "errors.md").read_text("utf8")
    title = re.search(r"^# ([^:：]+)", page, re.M)[1]
    assert title in out
    monkeypatch.setattr(errors, "address", lambda name, lang: "https://book.test/#error-nan")
    out = command(monkeypatch, capsys, b"", "--lang", lang, "nan")[1]
    assert out.strip().endswith("https://book.test/#error-nan") and title not in out


def test_what_is_neither_a_file_nor_an_entry_is_said_in_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    code, out, err = command(monkeypatch, capsys, b"", "--lang", "en", "tracer-boole")
    assert code == 2 and not out and err.count("\n") == 1 and "--list" in err


def test_the_programs_of_a_cure_are_not_run_by_the_command(monkeypatch, capsys) -> None:
    monkeypatch.setattr(jax, "jit", lambda *_: pytest.fail("it ran"))
    assert command(monkeypatch, capsys, b"", "--example", "tracer-bool")[0] == 0
    assert __main__.indented("a\n\nb") == "    a\n\n    b"
