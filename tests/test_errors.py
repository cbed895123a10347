"""Every error of the dictionary is raised and named; every cure works; the command reads it all."""

import io
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
from IPython.core.ultratb import AutoFormattedTB

from seejax import errors
from test_prose import misset
from tools import book, plain

ENTRIES = errors.entries()
GENERAL = {"dynamic-size": {"tracer-float"}}  # what an entry's message says, and more
pytestmark = pytest.mark.usefixtures("plain_numpy")


def run(code: str) -> None:
    exec(compile(code, "example.py", "exec"), {"__name__": "example"})


def raised(name: str) -> BaseException:
    with pytest.raises(Exception) as caught:
        run(ENTRIES[name].code)
    return caught.value


# -- the entries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENTRIES)
def test_an_error_is_raised_and_is_its_own_entry(name: str) -> None:
    said = errors.readable(errors.message(ENTRIES[name].code))
    claimed = {other for other, pattern in errors.patterns() if pattern.search(said)}
    assert claimed - GENERAL.get(name, set()) == {name}, said
    assert errors.name(said) == name
    assert not re.search(r"0x[0-9a-f]{6}|\d{9}>|^See http|/tmp|site-packages", said)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_cure_works(name: str) -> None:
    assert "assert" in ENTRIES[name].cured
    run(ENTRIES[name].cured)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_short_and_whole_in_both_languages(name: str) -> None:
    entry = ENTRIES[name]
    for code in entry.code, entry.cured:
        lines = code.strip().split("\n")
        assert len(lines) <= 12 and max(map(len, lines)) <= 88
    for text in entry.cause, entry.cure:
        assert set(text) == set(book.LANGUAGES)
        assert 1 <= len(re.findall(r"[。！？]", text["zh"])) <= 3
        assert 1 <= len(re.findall(r"[.!?](?=\s|$)", re.sub("`.*?`", "", text["en"]))) <= 4
        assert not misset(text["zh"]), misset(text["zh"])
    for language in book.LANGUAGES:
        assert set(entry.see) <= set(plain.sections(language))


def test_there_are_enough_and_the_page_has_every_topic() -> None:
    assert len(ENTRIES) >= 40
    for language in book.LANGUAGES:
        page = (book.DOCS / language / "errors.md").read_text("utf8")
        shown = re.findall(r"^```\{errors\} ([\w-]+)$", page, re.MULTILINE)
        assert shown == list(dict.fromkeys(entry.topic for entry in ENTRIES.values()))


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, entry in ENTRIES.items() for words in entry.says]
)
def test_the_words_of_other_versions_lead_to_the_same_entry(name: str, words: str) -> None:
    assert errors.name(words.replace("…", " f of <stdin>:1 ")) == name


# -- the command, on tracebacks as they are met ----------------------------------------------------

NOISE = "INFO:root:epoch 3\n训练中：第 3 轮\r 57%|█████▋    | 4/7 [00:01<00:00]\n"
AFTER = '\nTraceback (most recent call last):\n  File "x.py", line 1\nOSError: [Errno 9] 坏了\n'
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n"


def python(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def ipython(error: BaseException, mode: str, colors: str) -> str:
    shown = AutoFormattedTB(mode=mode, theme_name=colors)
    return shown.stb2text(shown.structured_traceback(type(error), error, error.__traceback__))


def short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


TRACEBACKS = {
    "tracer-bool": python,
    "out-of-memory": lambda error: python(error).replace("jax.errors.", "jaxlib._jax."),
    "nnx-trace-level": lambda error: AFTER + python(error),
    "tracer-array": lambda error: NOISE + python(error),
    "immutable": lambda error: python(error).replace("\n", "\r\n"),
    "scan-carry": lambda error: ipython(error, "Context", "linux"),
    "cond-branches": lambda error: ipython(error, "Verbose", "neutral"),
    "vmap-sizes": lambda error: ipython(error, "Plain", "nocolor"),
    "vmap-prefix": lambda error: ipython(error, "Minimal", "lightbg"),
    "escaped-tracer": lambda error: NOISE + ipython(error, "Context", "lightbg"),
    "tree-keys": lambda error: python(ValueError("unrelated")) + CHAIN + python(error),
    "grad-integer": lambda error: python(error) + CAUSED + AFTER,
    "nan": lambda error: f"[rank0]: {short(error)}".replace("\n", "\n[rank0]: "),
    "deleted": short,
    "key-reuse": lambda error: f"> {short(error)}".replace("\n", "\n> "),
    "rank-promotion": lambda error: "\n".join(
        f"E       {line}" for line in short(error).split("\n")
    ),
    "linen-rng": lambda error: f"2026-11-23 10:00:00,000 ERROR {python(error)}",
    "nnx-rngs": lambda error: f"  + Exception Group\n  | {short(error)}\n  +-----",
    "orbax-tree": lambda error: NOISE * 200 + python(error),
    "static-unhashable": lambda error: "\t" + python(error).replace("\n", "\n\t"),
}


def command(monkeypatch, capsys, raw: bytes, *options: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["errors", *options])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    code = errors.main()
    return code, *capsys.readouterr()


@pytest.mark.parametrize("name", TRACEBACKS)
def test_a_real_traceback_is_named(name: str, monkeypatch, capsys) -> None:
    raw = TRACEBACKS[name](raised(name)).encode()
    capsys.readouterr()
    for lang, coding in (("zh", "gb18030"), ("en", "utf-8"), ("en", "utf-16")):
        there = raw.decode().encode(coding)
        code, out, err = command(monkeypatch, capsys, there, "--lang", lang)
        found, cause, cure, address = out.strip().split("\n")
        assert (code, found, err) == (0, name, "")
        assert ENTRIES[name].cause[lang] in cause and ENTRIES[name].cure[lang] in cure
        assert address.endswith(f"errors.html#error-{name}")


@pytest.mark.parametrize("between", ["", CHAIN, CAUSED + AFTER + CHAIN])
def test_an_error_that_was_caught_is_not_what_ended_the_program(between: str) -> None:
    caught = python(raised("deleted"))
    assert errors.name(caught) == "deleted" and errors.name(caught + between + AFTER) is None


SHOWN = "ValueError: Incompatible shapes for broadcasting"
LAST = "TypeError: Gradient only defined for scalar-output functions. Output had shape: (3,)."
COLOURED = LAST.replace("TypeError", r"\u001b[31mTypeError\u001b[39m")


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (f"      2 # no {SHOWN}\n----> 3 jax.grad(f)(x)\n\n{LAST}", "grad-vector"),
        (f'    """Not\n    {SHOWN}\n    """\n>   jax.grad(f)(x)\nE   {LAST}', "grad-vector"),
        (f"    raise Mine('see {SHOWN}')\nhere.MyError: see there", None),
        (f"{SHOWN}: (3,)\nand later\n{LAST}", "grad-vector"),
        (f"RuntimeError: step 3: {LAST}", "grad-vector"),
        (f"{LAST}\nException ignored in: <function A.__del__ at 0x7f90>{AFTER}", "grad-vector"),
        (f"{LAST}\nException ignored in atexit callback <f>:{AFTER}", "grad-vector"),
        (f"Exception ignored while calling f:{AFTER}{LAST}", "grad-vector"),
        (f"我在训练时出现了{LAST}怎么办？", "grad-vector"),
        (f'  "traceback": [\n  "{COLOURED}"\n ]', "grad-vector"),
    ],
)
def test_what_was_raised_counts_and_not_what_stands_beside_it(text: str, entry: str) -> None:
    assert errors.name(text) == entry


HASHED = """
import dataclasses, functools, jax, jax.numpy as jnp

@dataclasses.dataclass(frozen=True)
class Scale:
    factor: jax.Array

    @functools.partial(jax.jit, static_argnums=0)
    def __call__(self, x):
        return self.factor * x

Scale(jnp.ones(3))(2.0)
"""


def test_a_traceback_that_a_message_quotes_is_not_a_second_error() -> None:
    said = errors.message(HASHED)
    assert "Traceback" in said and "unhashable type" in said
    for text in said, said + CAUSED + AFTER:
        assert errors.name(text) == "static-unhashable"


PYTEST = """
import jax, jax.numpy as jnp

def test_boxes(x=3):
    try:
        jax.vmap(jnp.dot)(jnp.ones((4, 3)), jnp.ones(3))
    except ValueError:
        jax.grad(lambda x: x**2)(x)
"""


def test_what_pytest_and_an_unfiltered_run_print_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PYTEST)
    ran = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=yes", "test_it.py"]
    env = {**book.PAGE_ENV, "JAX_TRACEBACK_FILTERING": "off", "PATH": ""}
    shown = subprocess.run(ran, cwd=tmp_path, env=env, capture_output=True, timeout=120)
    assert b"\x1b[" in shown.stdout and errors.name(shown.stdout.decode()) == "grad-integer"


def test_it_starts_without_jax_and_speaks_as_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "last.txt").write_text("TypeError: grad requires real- or complex-valued inputs")
    ran = [sys.executable, "-X", "importtime", "-m", "seejax.errors", tmp_path / "last.txt"]
    env = {"PYTHONPATH": str(book.ROOT / "examples"), "LANG": "zh_CN.UTF-8", "PYTHONUTF8": "1"}
    told = subprocess.run(ran, env=env, capture_output=True, encoding="utf8", timeout=120)
    assert told.returncode == 0 and ENTRIES["grad-integer"].cause["zh"] in told.stdout
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in told.stderr.split("\n")}
    assert "seejax" in loaded and not loaded & {"jax", "jaxlib", "numpy", "flax"}


def test_ascii_is_read_in_any_coding_and_where_a_character_is_cut() -> None:
    said = python(raised("deleted")) + "\nAndré, é. 训练"
    cut = [said.encode(coding)[:-1] for coding in ("utf-8", "utf-16", "gb18030")]
    for raw in said.encode("cp1252", "ignore"), *cut:
        assert errors.name(errors.text_of(raw)) == "deleted"


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "last.txt").write_text("TypeError: grad requires real- or complex-valued inputs")
    ran = [sys.executable, "-m", "seejax.errors", tmp_path / "last.txt"]
    env = {"PYTHONPATH": str(book.ROOT / "examples")}
    gone, pipe = os.pipe()
    os.close(gone)
    told = subprocess.run(ran, env=env, stdout=pipe, stderr=subprocess.PIPE, timeout=120)
    os.close(pipe)
    assert told.returncode == 0 and not told.stderr


@pytest.mark.parametrize(
    ("raw", "code", "told"),
    [
        (b"", 2, "Nothing to read"),
        (b" \n\t", 2, "Nothing to read"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 2, "not text"),
        (bytes(range(256)), 2, "not text"),
        (b"ZeroDivisionError: division by zero", 1, "no such error"),
        (b"x[0] = 1  # what raises TypeError here?", 1, "no such error"),
    ],
)
def test_what_it_cannot_name_is_said_in_one_line(monkeypatch, capsys, raw, code, told) -> None:
    got, out, err = command(monkeypatch, capsys, raw, "--lang", "en")
    assert got == code and told in out + err and (out + err).count("\n") == 1
    assert bool(err) == (code == 2)


def test_a_file_that_cannot_be_read_is_said_in_one_line(monkeypatch, capsys, tmp_path) -> None:
    for path in tmp_path / "gone.txt", tmp_path:
        code, out, err = command(monkeypatch, capsys, b"", "--lang", "en", str(path))
        assert code == 2 and not out and err.count("\n") == 1 and str(path) in err


@pytest.mark.parametrize(
    ("env", "lang"),
    [
        ({"LANG": "zh_CN.GBK"}, "zh"),
        ({"LC_ALL": "en_US.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "de_DE"}, "zh"),
        ({"LANG": "C"}, "en"),
    ],
)
def test_the_language_follows_the_system(monkeypatch, env: dict[str, str], lang: str) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert errors.language() == lang


def test_the_address_is_whole_where_the_book_has_one(monkeypatch) -> None:
    urls = SimpleNamespace(get_all=lambda _: ["Documentation, https://book.test/"])
    monkeypatch.setattr(errors.importlib.metadata, "metadata", lambda _: urls)
    whole = "https://book.test/zh-cn/latest/errors.html#error-nan"
    assert errors.address("nan", "zh") == whole


def test_what_a_program_prints_is_not_shown_and_one_that_ends_well_is_told(capsys) -> None:
    errors.message("print('loud')\n1 / 0")
    assert not capsys.readouterr().out
    with pytest.raises(ValueError, match="raises nothing"):
        errors.message("x = 1")
