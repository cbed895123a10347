"""Every exercise of the book can be done, and only so; the command that checks attempts at it."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from book import paths
from processes import Process, alive, wait_until
from seejax.practice import attempt
from seejax.practice.exercises import BELOW, Exercise, Missing, book, chosen, parsed, plain
from seejax.practice.folder import PROGRESS, Folder
from seejax.practice.hints import hint
from seejax.practice.words import WORDS

EXERCISES = book("en")
WRONG = Path(__file__).parent / "wrong_solutions"
MISTAKES = [
    pytest.param(f"{file.stem}-{number}", wrong, id=f"{file.stem}-{number}: {wrong['mistake']}")
    for file in sorted(WRONG.glob("*.toml"))
    for number, several in tomllib.loads(file.read_text("utf8")).items()
    for wrong in several
]
FIRST = next(iter(EXERCISES))
LINE = EXERCISES["tour-3"].file.partition(EXERCISES["tour-3"].start)[0].count("\n") + 1


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plain_numpy: None):
    """What the command's process answers for an attempt, here: each has a module of its own."""

    def checked(exercise: Exercise, own: str) -> dict:
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(sys, "argv", sys.argv)
        file = tmp_path / f"{exercise.name}.py"
        file.write_text(exercise.file.replace(exercise.start, own), encoding="utf8")
        try:
            return attempt.checked(str(file), *exercise.parts(file.read_text("utf8")))
        finally:
            sys.modules.pop(exercise.name, None)

    return checked


# -- the exercises of the pages --------------------------------------------------------------------


@pytest.mark.parametrize("name", EXERCISES)
def test_exercise_fails_where_it_starts_and_says_why(name: str, check) -> None:
    answer = check(EXERCISES[name], EXERCISES[name].start)
    assert "passed" not in answer and answer["message"], answer
    assert answer["kind"] not in ("SyntaxError", "NameError", "ModuleNotFoundError"), answer


@pytest.mark.parametrize("name", EXERCISES)
def test_exercise_is_passed_by_its_solution_without_the_page(name: str, check) -> None:
    exercise = EXERCISES[name]
    answer = check(exercise, f"{exercise.start}\n\n{exercise.solution}")
    assert "passed" in answer, answer


@pytest.mark.parametrize(("name", "wrong"), MISTAKES)
def test_exercise_is_not_passed_by_a_mistake(name: str, wrong: dict, check) -> None:
    exercise = EXERCISES[name]
    answer = check(exercise, f"{exercise.start}\n\n{wrong['code'].strip()}")
    assert "passed" not in answer, f"the tests of {name} accept it"
    assert wrong["says"] in answer["message"], answer


def test_mistakes_are_two_for_each_exercise_of_a_page_that_has_some() -> None:
    for file in WRONG.glob("*.toml"):
        mistakes = tomllib.loads(file.read_text("utf8"))
        numbers = [str(one.number) for one in EXERCISES.values() if one.page == file.stem]
        assert [*mistakes] == numbers
        assert all(len(several) >= 2 for several in mistakes.values())


@pytest.mark.parametrize("language", paths.LANGUAGES)
def test_exercises_of_a_page_are_all_found_and_whole(language: str) -> None:
    found = book(language)
    for page in paths.pages(language):
        text = page.read_text("utf8")
        exercises = [one for one in found.values() if one.page == page.stem]
        assert len(exercises) == len(re.findall(r"^:tags: \[.*\bexercise\b", text, re.MULTILINE))
        assert [one.number for one in exercises] == [*range(1, len(exercises) + 1)]
    for exercise in found.values():
        assert exercise.title and exercise.task and exercise.why
        assert not re.search(r"\]\(|\{\w+\}`|:::|```", exercise.task + exercise.why)
        other = EXERCISES[exercise.name]
        code = [(one.start, one.solution, one.tests) for one in (exercise, other)]
        assert code[0] == code[1], "code is the same in both languages"


def test_exercises_come_in_the_order_of_the_book() -> None:
    assert FIRST == "tour-1"
    index = (paths.DOCS / "en" / "index.md").read_text("utf8")
    pages = list(dict.fromkeys(one.page for one in EXERCISES.values()))
    assert pages == sorted(pages, key=lambda page: index.index(f"<{page}>\n"))


def test_chosen_are_a_page_or_one_exercise() -> None:
    assert [one.name for one in chosen(["tour-2"], "zh")] == ["tour-2"]
    assert chosen([], "en") == [*EXERCISES.values()]
    with pytest.raises(Missing, match="nowhere"):
        chosen(["tour", "nowhere"], "en")


PAGE = """\
# Do it, then

**1. Old.** Has no cells of the new kind.

```{code-cell}
:tags: [hide-cell, solution]

assert True
```

**2. Why [so](a.md)?** First.

```console
$ ls
```

Then *this*.°

```{code-cell}
:tags: [exercise]

x = 1
```

```{code-cell}
:tags: [hide-cell, solution]

x = 2
```

```{code-cell}
:tags: [tests]

assert x == 2, "two"
```

The end.

:::{container} why
Not right after it.
:::
"""


def test_parsed_leaves_out_what_has_no_start() -> None:
    (only,) = parsed("page", "en", PAGE)
    assert (only.name, only.title, only.why) == ("page-2", "Why so?", "")
    assert only.task == "First.\n\n\n\n$ ls\n\n\nThen *this*." or "$ ls" in only.task
    assert (only.start, only.solution, only.tests) == ("x = 1", "x = 2", 'assert x == 2, "two"')


def test_plain_keeps_the_words_of_both_languages() -> None:
    assert plain("用[追踪器](#term-tracer)。°然后") == "用追踪器。然后"
    assert plain("It is so.° Then {term}`jit` of {doc}`a page <jit>`.") == (
        "It is so. Then jit of a page."
    )


# -- hints, and what is kept -----------------------------------------------------------------------


def test_hint_goes_as_far_as_the_reader_has_come() -> None:
    exercise = EXERCISES["tour-2"]
    assert hint(exercise, exercise.start).names == ["jax.grad", "jax.tree.map", "jax.vmap"]
    assert hint(exercise, "def (").names == ["jax.grad", "jax.tree.map", "jax.vmap"]
    with_grad = f"{exercise.start}\njax.grad(loss)"
    assert hint(exercise, with_grad).names == ["jax.tree.map", "jax.vmap"]
    with_all = f"{with_grad}, jax.tree.map, jax.vmap"
    assert hint(exercise, with_all).line == "for _ in range(10):"
    assert hint(exercise, exercise.solution).why == exercise.why


def test_folder_never_writes_to_a_file_that_exists(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "tour-1.py").write_text("mine")
    laid = folder.lay(chosen(["tour"], "zh"))
    assert [one.name for one in laid] == ["tour-2", "tour-3", "tour-4"]
    assert (tmp_path / "tour-1.py").read_text() == "mine"
    assert folder.lay(chosen(["tour"], "en")) == []
    states = [folder.state(one) for one in chosen(["tour"], "en")]
    assert states == ["begun", "new", "new", "new"], "begun in either language"


@pytest.mark.parametrize(
    "damaged", ["", "{", "[]", '{"passed": 3}', '{"passed": {"tour-1": 3}}', "\0"]
)
def test_progress_that_is_damaged_loses_nothing(damaged: str, tmp_path: Path) -> None:
    folder, exercise = Folder(tmp_path), EXERCISES["tour-1"]
    folder.lay([exercise])
    whole = exercise.parts(exercise.file)[1]
    folder.keep(exercise, attempt.digest(whole))
    assert folder.state(exercise) == "passed"
    (tmp_path / PROGRESS).write_text(damaged)
    assert folder.state(exercise) == "new"
    folder.keep(exercise, attempt.digest(whole))
    assert folder.state(exercise) == "passed"
    folder.file(exercise).write_text(exercise.file.replace("** 2", "** 3"))
    assert folder.state(exercise) == "begun", "what was changed since is no longer what passed"
    assert sorted(os.listdir(tmp_path)) == [PROGRESS, "tour-1.py"]


def test_words_are_the_same_in_both_languages() -> None:
    zh, en = WORDS["zh"], WORDS["en"]
    assert zh.keys() == en.keys()
    for key in zh:
        fields = [sorted(set(re.findall(r"\{\w+[^}]*\}", text))) for text in (zh[key], en[key])]
        assert fields[0] == fields[1], key


# -- the command -----------------------------------------------------------------------------------


def practice(*arguments: object, cwd: Path, **options) -> Process:
    env = {**os.environ, "LC_ALL": "en_US.UTF-8"}
    command = sys.executable, "-m", "seejax.practice", *arguments
    return Process(*command, cwd=cwd, env=env, **options)


def write(folder: Path, name: str, own: str) -> None:
    text = EXERCISES[name].file
    assert (folder / f"{name}.py").exists()
    (folder / f"{name}.py").write_text(text.replace(EXERCISES[name].start, own), encoding="utf8")


def test_practice_says_after_each_save_what_is_wrong(tmp_path: Path) -> None:
    """An attempt without JAX is quick; the last one is the solution."""
    process = practice("tour", "--limit", "20", cwd=tmp_path)
    folder = tmp_path / "practice"
    file = "practice/tour-3.py"
    process.wait_for("exercises laid into practice: 4; begin with practice/tour-1.py\n")
    process.wait_for("each save is checked; Ctrl-C ends it\n")
    for own, said in [
        ("derivative = (1", f"{file}:{LINE}: SyntaxError: '(' was never closed\n"),
        ("def f():", f"{file}:{LINE + 1}: IndentationError: expected an indented block"),
        ("1 / 0", f"{file}:{LINE}: ZeroDivisionError: division by zero\n"),
        ("import os\nos._exit(3)", f"{file}: the process ended itself (status 3) before"),
        ("import os\nos.abort()", f"{file}: the process was ended by SIGABRT before"),
        ("raise SystemExit(0)", f"{file}:{LINE}: SystemExit: 0\n"),
        ("assert 1 > 2", f"{file}:{LINE}: 1 > 2 does not hold\n"),
        ("raise ValueError", f"{file}:{LINE}: ValueError without a message: raise ValueError\n"),
    ]:
        write(folder, "tour-3", own)
        process.wait_for(said)
    exercise = EXERCISES["tour-3"]
    write(folder, "tour-3", f"{exercise.start}\n{exercise.solution}")
    process.wait_for("tour-3: passes. Next: tour-4, practice/tour-4.py\n  It is negative")
    process.send(signal.SIGINT)
    status, out, err = process.end()
    assert out.endswith("stopped: 1 of 4 pass; the same command goes on from here\n")
    assert status == 0 and "Traceback" not in out + err
    again = practice("tour", "--progress", "--lang", "zh", cwd=tmp_path).end()
    assert again[0] == 0 and "tour-3: 通过  " in again[1] and "tour-4: 还没有动手  " in again[1]
    assert again[1].endswith("4 道里通过了 1 道\n")


def test_practice_ends_an_endless_loop_and_checks_the_save_that_follows(tmp_path: Path) -> None:
    process = practice("tour-3", "--limit", "7", cwd=tmp_path)
    process.wait_for("each save is checked")
    endless = "import os\nprint(os.getpid(), flush=True)\nwhile True: pass"
    write(tmp_path / "practice", "tour-3", endless)
    process.wait_for("tour-3 is still running; it may for 7 s (--limit)\n")
    process.wait_for(
        f"practice/tour-3.py:{LINE + 2}: "
        "not done after 7 s (--limit); it was here: while True: pass\n"
    )
    write(tmp_path / "practice", "tour-3", endless + "  # again")
    wait_until(lambda: len(process.err.text.split()) == 2)
    write(tmp_path / "practice", "tour-3", "1 / 0")  # while it runs
    process.wait_for(f"practice/tour-3.py:{LINE}: ZeroDivisionError: division by zero\n")
    write(tmp_path / "practice", "tour-3", endless)
    wait_until(lambda: len(process.err.text.split()) == 3)
    process.send(signal.SIGINT, group=True)
    assert process.end()[0] == 0
    assert not any(alive(int(pid)) for pid in process.err.text.split()), "all are ended with it"


def test_practice_checks_all_once(tmp_path: Path) -> None:
    first = practice("tour-3", "tour-1", "--once", cwd=tmp_path).end()
    assert first[:2] == (
        1,
        "exercises laid into practice: 2; begin with practice/tour-1.py\n"
        "practice/tour-1.py: not begun\npractice/tour-3.py: not begun\n0 of 2 pass\n",
    )
    exercise = EXERCISES["tour-3"]
    solved = f"{exercise.start}\n{exercise.solution}\nprint('mine')"
    write(tmp_path / "practice", "tour-3", solved)
    (tmp_path / "practice" / PROGRESS).write_text("{")  # broken
    status, out, err = practice("tour-3", "--once", cwd=tmp_path).end()
    assert (status, out.splitlines()[1:]) == (0, ["tour-3: passes", "1 of 1 pass"]), err
    assert "mine" in err, "what the reader prints is seen"
    assert json.loads((tmp_path / "practice" / PROGRESS).read_text())["passed"].keys() == {"tour-3"}
    text = (tmp_path / "practice" / "tour-3.py").read_text()
    cheated = text[: BELOW.search(text).end()].replace("jax.grad(final)(0.1)", "7.0")
    (tmp_path / "practice" / "tour-3.py").write_text(cheated)  # and its tests deleted
    status, out, _ = practice("tour-3", "--once", cwd=tmp_path).end()
    assert status == 1 and "by hand it is" in out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--hint", "tour-2"], 0, "you do not yet: jax.grad, jax.tree.map, jax.vmap"),
        (["--lang", "zh", "--hint", "tour-2"], 0, "还没有用的：jax.grad, jax.tree.map, jax.vmap"),
        (["--solution", "tour-3"], 0, "derivative = jax.grad(final)(0.1)"),
        (["nowhere"], 2, "no page or exercise is called nowhere; pages with exercises: tour"),
        (["--lang", "zh", "nowhere"], 2, "没有叫 nowhere 的页或习题；有习题的页：tour"),
        (["--hint", "tour-9"], 2, "no exercise is called tour-9; there is tour-1, tour-2"),
        (["--see", "tour-1"], 2, "there is no practice/tour-1.py yet; python -m seejax.practice"),
        (["--limit", "0"], 2, "--limit needs seconds, more than 0, got 0"),
        (["--to", "a_file"], 2, "a_file cannot be written: File exists"),
        (["--to", "a_file/practice"], 2, "a_file/practice cannot be written: Not a directory"),
        (["--progress"], 0, "tour-1: not laid  Make it robust"),
    ],
)
def test_practice_answers_in_a_line(
    arguments: list[str], status: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "a_file").touch()
    code, out, err = practice(*arguments, cwd=tmp_path).end()
    assert code == status and said in (err if status == 2 else out), out + err
    assert len(err.splitlines()) == int(status == 2)
    assert os.listdir(tmp_path) == ["a_file"], "nothing is laid where only a question was asked"


def test_practice_draws_the_function_of_the_attempt(tmp_path: Path) -> None:
    practice("tour-2", "tour-3", "--once", cwd=tmp_path).end()
    exercise = EXERCISES["tour-2"]
    write(tmp_path / "practice", "tour-2", f"{exercise.start}\n{exercise.solution}")
    status, out, err = practice("--see", "tour-2", cwd=tmp_path).end()
    assert status == 0 and out.startswith("finals: "), out + err
    assert "return jax.vmap(final)(rates)" in out
    write(tmp_path / "practice", "tour-3", "x = (")
    status, out, _ = practice("--see", "tour-3", "--lang", "zh", cwd=tmp_path).end()
    assert (status, out) == (1, f"practice/tour-3.py:{LINE}: SyntaxError: '(' was never closed\n")


NO_ROOM = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
os.execv(sys.executable, [sys.executable, "-m", "seejax.practice", *sys.argv[1:]])
"""


def practice_without_room(*arguments: str, cwd: Path) -> Process:
    """The command where nothing can be written to any file."""
    env = {**os.environ, "LC_ALL": "en_US.UTF-8"}
    return Process(sys.executable, "-c", NO_ROOM, *arguments, cwd=cwd, env=env)


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small file system takes root")
def test_practice_on_a_full_disk_is_one_line_and_leaves_no_half_file(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", disk]
    if subprocess.run(mount, timeout=60, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (disk / "big").write_bytes(bytes(4096))
        status, out, err = practice("tour", "--once", "--to", "disk", cwd=tmp_path).end()
        assert (status, out) == (2, "")
        assert re.fullmatch(
            r"python -m seejax.practice: disk/tour-\d.py cannot be written: .*\n", err
        ), err
        for file in disk.glob("*.py"):
            assert file.read_text("utf8") == EXERCISES[file.stem].file
        (disk / "big").unlink()
        one = EXERCISES["tour-3"]
        status, out, err = practice("tour-3", "--once", "--to", "disk", cwd=tmp_path).end()
        (disk / "tour-3.py").write_text(f"{one.start}\n{one.solution}\n", encoding="utf8")
        status, out, err = practice("tour-3", "--once", "--to", "disk", cwd=tmp_path).end()
        assert status == 0 and "tour-3: passes\n" in out
        assert "progress.json cannot be written: No space left on device. Nothing is lost" in err
        assert not [*disk.glob(".*")]
    finally:
        subprocess.run(["umount", disk], timeout=60, check=True)


def test_practice_whose_files_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    status, out, err = practice_without_room("tour", cwd=tmp_path).end()
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.endswith("practice/tour-1.py cannot be written: File too large")
    assert os.listdir(tmp_path / "practice") == []


def test_practice_without_room_for_temporary_files_is_one_line(tmp_path: Path) -> None:
    practice("tour-3", "--once", cwd=tmp_path).end()
    write(tmp_path / "practice", "tour-3", "1 / 0")
    ended = practice_without_room("tour-3", "--once", cwd=tmp_path).end()
    assert ended[0] == 2 and "no process can be started: No usable temporary" in ended[2]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
def test_practice_whose_output_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seejax.practice", "--hint", "tour-1"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


def test_pages_are_in_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", tmp_path]
    subprocess.run(command, cwd=paths.ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        for language in paths.LANGUAGES:
            for page in paths.pages(language):
                name = f"seejax/practice/pages/{language}/{page.name}"
                assert packed.read(name) == page.read_bytes()
        packed.extractall(tmp_path / "installed")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    said = [sys.executable, "-m", "seejax.practice", "--solution", "tour-3"]
    done = subprocess.run(said, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{EXERCISES['tour-3'].solution}\n", done.stderr
