"""`python -m seejax.see` against the pictures made here, and as a new user meets it."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import sys
import urllib.request
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import jax.scipy
import numpy as np
import optax
import pytest
from playwright.sync_api import expect

from processes import LIMIT_S, Process, alive, wait_until
from seejax import see
from seejax.see import __main__ as command
from seejax.see import _child, _html, _server

LOSS = """\
import jax.numpy as jnp

def loss(w, x, y):
    h = jnp.tanh(x @ w)
    return jnp.mean((h - y) ** 2)

rate = 0.1

def step(n, *, rate):
    return rate * jnp.ones(n)

if __name__ == "__main__":
    raise SystemExit("a script is not run as the main program")
"""
TRAIN = """\
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(8)(x)))

def create(key):
    model = MLP()
    params = model.init(key, jnp.ones((1, 4)))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))

@jax.jit(donate_argnums=0)
def step(state, x, labels):
    def loss(params):
        logits = state.apply_fn({"params": params}, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    value, grads = jax.value_and_grad(loss)(state.params)
    return state.apply_gradients(grads=grads), value

def case():
    return step, (create(jax.random.key(0)), jnp.ones((5, 4)), jnp.zeros(5, jnp.int32))

def draws(key):
    return jax.random.normal(key, (3,)) + jax.random.uniform(key, (3,))

dense, tx, scipy = nn.Dense(3), optax.adam(1e-3), jax.scipy
"""
TYPES = "f32[4]", "f32[3,4]", "f32[3]"


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "lossy.py"
    file.write_text(LOSS)
    return file


@pytest.fixture
def drawn(monkeypatch):
    """What a fresh interpreter answers, drawn in this one."""

    def draw(file, name, *arguments, picture="trace", static=(), axes="0", argnums="0"):
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
        monkeypatch.setattr(sys, "argv", sys.argv)
        before = set(sys.modules)
        asked = _child.Request(
            str(file), name, list(arguments), picture, list(static), axes, "0", argnums
        )
        try:
            return _child.draw(asked)
        finally:
            for extra in set(sys.modules) - before:
                if getattr(sys.modules[extra], "__file__", "") == str(file):
                    del sys.modules[extra]

    return draw


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    file = tmp_path_factory.mktemp("train") / "train_mlp.py"
    file.write_text(TRAIN)
    return file


def run(*arguments, **options):
    return Process(sys.executable, "-m", "seejax.see", *arguments, **options)


# --- arguments


def value_of(argument, only_types=False):
    keyword, expression = _child.split(argument)
    make = {"_array": _child._Arrays(only_types), "jnp": jnp}
    return keyword, eval(expression, make)


@pytest.mark.parametrize("only_types", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        jnp.ones((8, 128)),
        jnp.zeros((0, 3)),
        jnp.int32(3),
        jnp.ones(3, bool),
        jnp.ones((2, 1), "bfloat16"),
        jnp.ones(2, "float16"),
        jnp.ones(2, "float8_e4m3fn"),
        jnp.ones(2, "complex64"),
        jnp.ones(2, "uint8"),
        jnp.ones(2, "int4"),
        jax.random.key(0),
        jax.random.split(jax.random.key(0), (2, 3)),
        jax.random.key(0, impl="rbg"),
        jax.random.key(0, impl="unsafe_rbg"),
    ],
    ids=lambda value: f"{value.dtype}{value.shape}",
)
def test_an_array_is_written_as_jax_itself_prints_its_type(value, only_types):
    """JAX's own jaxpr says how; what is made of that has the type that JAX gives the value."""
    (printed,) = re.findall(r"lambda ; a:(\S+?)\. let", str(jax.make_jaxpr(lambda x: x)(value)))
    _, made = value_of(printed, only_types)
    assert (made.shape, made.dtype) == (value.shape, value.dtype)
    assert isinstance(made, jax.ShapeDtypeStruct) == only_types
    if not jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        _, long = value_of(f"{value.dtype}{list(value.shape)}")
        assert (long.shape, long.dtype) == (value.shape, value.dtype)


def test_the_numbers_are_what_the_help_says():
    _, (a, b) = value_of("[f32[2000], f32[2000]]")
    for numbers in a, b:
        assert abs(numbers.mean()) < 0.1 and abs(numbers.std() - 1) < 0.1
    assert not np.allclose(a, b) and np.array_equal(a, value_of("f32[2000]")[1])
    assert value_of("i32[3]")[1].tolist() == [0] * 3 and value_of("bool[2]")[1].all()
    _, keys = value_of("key<fry>[4]")
    assert len({tuple(np.ravel(jax.random.key_data(key))) for key in keys}) == 4


def test_anything_else_is_python():
    keyword, tree = value_of('params={"w": f32[2,3], "b": [f32[3], i32[]], "n": 2}')
    assert keyword == "params"
    assert jax.tree.map(jnp.shape, tree) == {"w": (2, 3), "b": [(3,), ()], "n": ()}
    assert value_of("3.0") == ("", 3.0) and value_of("n=-1") == ("n", -1)
    assert value_of("'f32[3]'") == ("", "f32[3]") and value_of("1 == 2") == ("", False)
    assert value_of("jnp.ones(3)[1]")[1] == 1.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.py:f"], "there is no file nothing.py"),
        (["lossy.py:loss", "f32[8,"], "the argument f32[8, is neither an array such as"),
        (["lossy.py:loss", "f32[3,,4]"], "the argument f32[3,,4] is neither"),
        (["lossy.py:loss", "f32[-3]"], "f32[-3] cannot be made: NameError"),
        (["lossy.py:loss", "f32[n]"], "f32[n] cannot be made: NameError"),
        (["lossy.py:loss", "f32[4"], "neither"),
        (["lossy.py:loss", "f64[4]"], "f64 needs jax_enable_x64"),
        (["lossy.py:loss", "key<nix>[]"], "no random key is of the kind key<nix>"),
        (["lossy.py:los", *TYPES], "lossy.py has no los; there is loss"),
        (["lossy.py:qqqqqq"], "lossy.py has no qqqqqq; there is loss, step"),
        (["lossy.py"], "say which function, as in lossy.py:NAME; there is loss, step"),
        (["lossy.py:rate"], "rate is not callable: it is of type float"),
        (["lossy.py:loss", *TYPES[:2]], "loss takes (w, x, y): missing a required argument: 'y'"),
        (["lossy.py:loss", *TYPES, "1"], "loss takes (w, x, y): too many positional arguments"),
        (["lossy.py:loss", *TYPES, "z=1"], "got an unexpected keyword argument 'z'"),
        (["lossy.py:step", "3", "rate=1", "rate=2"], "the argument rate is given twice"),
        (
            ["lossy.py:loss", *TYPES, "--picture", "film"],
            "there is no picture film; there is trace",
        ),
        (["lossy.py:loss", *TYPES, "--in-axes", "a"], "--in-axes needs numbers such as 0"),
        (["lossy.py:loss", *TYPES, "--limit", "0"], "--limit needs seconds, more than 0"),
        (["lossy.py:loss", *TYPES, "--picture", "axes"], "the mapped axes differ in size"),
        (["lossy.py:loss", *TYPES, "--picture", "grad", "--argnums", "7"], "argnums has 7"),
        (["lossy.py:loss", *TYPES, "-o", "no/where.html"], "no/where.html cannot be written"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, said, script, drawn, monkeypatch, capsys):
    class Here:
        """A run in this interpreter, where no process is needed to read the sentence."""

        process = type("", (), {"returncode": 0})

        def __init__(self, request, limit_s):
            self.request = request

        def poll(self):
            r = self.request
            options = {"static": r.static, "axes": r.in_axes, "argnums": r.argnums}
            try:
                return drawn(r.script, r.name, *r.arguments, picture=r.picture, **options)
            except Exception as error:
                usage = isinstance(error, _child.Usage)
                return {"usage": str(error)} if usage else _child._told(error)

    monkeypatch.setattr(command, "Run", Here)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.chdir(script.parent)
    with pytest.raises(SystemExit) as ended:
        command.main([*arguments, "--no-browser", *["--text"] * ("-o" not in arguments)])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


# --- where a function may stand


MODEL = """
import jax.numpy as jnp
from .parts import layer

def forward(x):
    return layer(x).sum()
"""
PARTS = """
import beside
import jax.numpy as jnp

def layer(x):
    return jnp.tanh(x) * beside.scale
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "lib_of_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "model.py").write_text(MODEL)
    (folder / "parts.py").write_text(PARTS)
    (tmp_path / "beside.py").write_text("scale = 2.0\n")
    monkeypatch.chdir(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith(("lib_of_test", "beside"))]:
        del sys.modules[name]


def test_a_function_of_a_package_with_relative_imports(package, drawn):
    answer = drawn(package / "model.py", "forward", "f32[3]")
    assert "error" not in answer and "tanh" in answer["text"]
    assert "return jnp.tanh(x) * beside.scale" in answer["text"]  # the source of its part, too
    followed = _child._files(str(package / "model.py"), "")
    names = {Path(file).name for file in followed}
    assert {"model.py", "parts.py", "beside.py"} <= names


def test_a_module_by_its_name(package, monkeypatch):
    monkeypatch.setattr(command, "language", lambda: "en")
    _, request = command.parsed(["lib_of_test.model:forward", "f32[3]"])
    assert (request.module, Path(request.script)) == ("lib_of_test.model", package / "model.py")
    _, request = command.parsed(["lib_of_test:forward"])
    assert Path(request.script) == package / "__init__.py"
    assert _child._named(Path(request.script), request.module) == ("lib_of_test", package.parent)
    assert command.module_file("nothing.here") is None


def test_the_folder_of_the_call_is_on_the_path_and_shadows_nothing(tmp_path, monkeypatch, drawn):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "own_helper.py").write_text("def twice(x):\n    return 2 * x\n")
    (tmp_path / "optax.py").write_text("raise ImportError('not this one')\n")
    script = tmp_path / "scripts" / "uses_helper.py"
    script.write_text("import optax, own_helper\n\ndef f(x):\n    return own_helper.twice(x)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_helper", raising=False)
    assert "return 2 * x" in drawn(script, "f", "f32[3]")["text"]


def test_a_function_of_a_notebook(tmp_path, drawn):
    cells = [
        "%matplotlib inline\nimport jax.numpy as jnp",
        "%%time\nraise RuntimeError",
        "if True:\n    !ls\ndef error(w, x):\n    return jnp.sin(x @ w).sum()",
        "display(error(jnp.ones(3), jnp.ones(3)))",
    ]
    notebook = {"cells": [{"cell_type": "code", "source": c.splitlines(True)} for c in cells]}
    notebook["cells"].insert(0, {"cell_type": "markdown", "source": ["# no Python"]})
    file = tmp_path / "train.ipynb"
    file.write_text(json.dumps(notebook))
    answer = drawn(file, "error", "f32[3]", "f32[3]")
    lines = answer["text"].splitlines()
    assert any(re.fullmatch(r" *2 +return jnp\.sin\(x @ w\)\.sum\(\)", line) for line in lines)
    assert "changed" not in answer["text"] and not answer["failed"]


@pytest.mark.parametrize("connection", [False, True])
def test_who_looks_from_afar_is_told_how(monkeypatch, capsys, connection):
    opened = []
    monkeypatch.setattr(command.webbrowser, "open", opened.append)
    monkeypatch.setattr(command, "has_screen", lambda: True)
    if connection:
        monkeypatch.setenv("SSH_CONNECTION", "1 2 3 4")
    else:
        monkeypatch.delenv("SSH_CONNECTION", raising=False)
    command.opened("http://localhost:8765/")
    assert ("ssh -L 8765:localhost:8765" in capsys.readouterr().err) == connection
    assert opened == ["http://localhost:8765/"]


# --- pictures


def test_each_picture_is_the_one_that_see_makes(script, drawn):
    names = {"__name__": "lossy"}
    exec(compile(LOSS, script, "exec"), names)
    loss = names["loss"]
    a, b, c = (jnp.ones(shape) for shape in ((4,), (3, 4), (3,)))
    assert drawn(script, "loss", *TYPES)["text"] == str(see.trace(loss, a, b, c))
    assert drawn(script, "loss", *TYPES)["html"] == see.trace(loss, a, b, c).html()
    said = drawn(script, "loss", *TYPES, picture="grad", argnums="(0,1)")["text"]
    assert said == str(see.grad(loss, a, b, c, argnums=(0, 1)))
    said = drawn(script, "loss", *TYPES, picture="axes", axes="(None,0,0)")["text"]
    assert said == str(see.axes(loss, (None, 0, 0), 0, a, b, c))
    shape = drawn(script, "step", "4", "rate=2.0", picture="tree", static=["n"])["text"]
    assert "f32[4]" in shape
    lines = drawn(script, "loss", *TYPES, picture="calls")["text"].splitlines()
    assert [line.split()[1] for line in lines[-2:]] == ["compiled", "cached"]


def test_only_what_needs_numbers_gets_them(script, drawn):
    assert drawn(script, "loss", *TYPES, picture="calls")["made"]
    assert not drawn(script, "loss", *TYPES)["made"]
    huge = drawn(script, "loss", "f32[1000000]", "f32[1000000,1000000]", "f32[]")
    assert not huge["failed"] and "f32[1000000,1000000]" in huge["text"]


@jax.numpy_dtype_promotion("standard")  # Optax promotes, and in its own process it may
@jax.numpy_rank_promotion("allow")
def test_what_flax_and_optax_made(train, drawn):
    whole = drawn(train, "case")  # stands for the step, with its arguments
    assert whole["text"].startswith("step: ") and not whole["failed"]
    types = drawn(train, "step", "create(key<fry>[])", "f32[5,4]", "i32[5]")
    equations = re.compile(r"step: \d+ equations")
    assert equations.match(types["text"])[0] == equations.match(whole["text"])[0]
    twice = drawn(train, "case", picture="calls")["text"]  # although it donates its state
    assert [line.split()[1] for line in twice.splitlines()[-2:]] == ["compiled", "cached"]
    assert "1 reused" in drawn(train, "draws", "key<fry>[]", picture="keys")["text"]
    params = nn.Dense(3).init(jax.random.key(0), jnp.ones((1, 4)))
    shapes = jax.eval_shape(lambda: params)
    text = drawn(train, "dense.init", "key<fry>[]", "f32[1,4]", picture="tree")["text"]
    assert text == str(see.tree(shapes))
    applied = drawn(train, "dense.apply", "dense.init(key<fry>[], f32[1,4])", "f32[7,4]")
    assert not applied["failed"] and "dot_general" in applied["text"]
    state = drawn(train, "tx.init", '{"w": f32[3]}', picture="tree")["text"]
    assert state == str(see.tree(jax.eval_shape(optax.adam(1e-3).init, {"w": jnp.ones(3)})))
    text = drawn(train, "scipy.special.logsumexp", "f32[5]")["text"]
    assert text == str(see.trace(jax.scipy.special.logsumexp, jnp.ones(5)))


def test_the_environment_is_the_scripts_and_its_prints_are_not_the_picture(tmp_path):
    file = tmp_path / "wide.py"
    file.write_text(
        "import os\nos.environ['JAX_ENABLE_X64'] = '1'\nprint('hello from the script')\n"
        "import jax.numpy as jnp\ndef f(x):\n    return jnp.sin(x)\n"
    )
    status, out, err = run(file.name + ":f", "f64[3]", "--text", cwd=tmp_path).end()
    assert status == 0 and out.startswith("f: 1 equation") and "f64[3] = sin" in out
    assert "hello" not in out and "hello from the script" in err


def test_a_function_that_fails_is_drawn_and_the_status_says_so(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def f(x):\n    return 1 if x > 0 else 2\n")
    status, out, _ = run(f"{file}:f", "f32[]", "--text").end()
    assert status == 1 and "f: not traced" in out and "TracerBoolConversionError" in out


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(:\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("import os\nos._exit(7)\n", "ended with status 7"),
        ("input('name? ')\n", "EOFError"),
        ("import time\ndef wait():\n    time.sleep(999)\nwait()\n", "line 3 in wait"),
        ("while True: pass\n", "not done after 6 s; --limit 24 gives it longer; your line: File"),
    ],
)
def test_a_script_that_does_not_run_ends_in_time_and_says_where(source, said, tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(source)
    status, out, err = run(f"{file}:f", "--text", "--limit", "6").end()
    assert (status, out) == (1, "") and said in err
    assert "_child.py" not in err and "__main__" not in err  # our own frames say nothing


# --- following


class Followed:
    """The command as it follows a file, and its state as the page asks for it."""

    def __init__(self, file, *arguments, **options):
        self.file = file
        self.process = run(f"{file}:loss", *arguments, "--no-browser", **options)
        self.process.wait_for("follows", "err")
        self.url = re.search(r"http://127\.0\.0\.1:\d+/", self.process.err.text)[0]

    def state(self):
        with urllib.request.urlopen(self.url + "state?none", timeout=60) as answer:
            return json.load(answer)

    def save(self, text):
        """Save, and return the state when a run has ended since."""
        version = self.state()["version"]
        self.file.write_text(text)
        wait_until(
            lambda: (now := self.state())["version"] != version and not now["title"].startswith("…")
        )
        return self.state()


def test_it_follows_each_save_of_the_script_and_of_what_it_imports(script):
    helper = script.with_name("helper.py")
    helper.write_text("def bend(x):\n    return x\n")
    using = LOSS.replace("def loss", "import helper\ndef loss").replace(
        "h - y", "helper.bend(h - y)"
    )
    script.write_text(using)
    writes = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    followed = Followed(script, *TYPES, env=writes)
    first = followed.state()
    assert "see-trace" in first["html"] and "tanh" in first["html"]
    assert "cosh" in followed.save(using.replace("jnp.tanh", "jnp.cosh"))["html"]
    broken = followed.save("def broken(:\n")
    assert "SyntaxError" in broken["html"] and 'class="old"' in broken["html"]
    assert "cosh" in broken["html"] and broken["title"].startswith("! ")
    assert "SyntaxError" in followed.process.err.text
    gone = followed.save(using.replace("def loss", "def lost"))
    assert "lossy.py has no loss; there is lost" in gone["html"]
    good = followed.save(using)
    assert "tanh" in good["html"] and 'class="old"' not in good["html"]
    followed.file = helper
    assert "logistic" in followed.save("import jax\nbend = jax.nn.sigmoid\n")["html"]
    # Python would take the compiled module that it has: same size, saved in the same second.
    stat = helper.stat()
    helper.write_text("import jax\nbend = jax.nn.softmax\n")
    assert helper.stat().st_size == stat.st_size
    os.utime(helper, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    wait_until(lambda: "reduce_max" in followed.state()["html"])
    assert not list(script.parent.rglob("*.pyc"))
    followed.process.send(signal.SIGINT)
    status, out, err = followed.process.end()
    assert status == 0 and not out and "KeyboardInterrupt" not in err


def test_a_run_that_hangs_is_ended_and_a_save_begins_again(script, tmp_path):
    pid = tmp_path / "pid"
    hangs = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(999)\n"
    followed = Followed(script, *TYPES)
    script.write_text(hangs)
    wait_until(lambda: pid.exists() and pid.read_text())
    assert "see-trace" in followed.state()["html"]  # the last good picture stays
    assert followed.state()["title"].startswith("…")
    assert "cosh" in followed.save(LOSS.replace("tanh", "cosh"))["html"]
    wait_until(lambda: not alive(int(pid.read_text())))
    pid.unlink()
    script.write_text(hangs)
    wait_until(lambda: pid.exists() and pid.read_text())
    followed.process.send(signal.SIGTERM)
    assert followed.process.end()[0] == 143
    wait_until(lambda: not alive(int(pid.read_text())))


@pytest.mark.parametrize(("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ending_a_run_that_prints_leaves_nothing(tmp_path, how, status):
    file, pid = tmp_path / "slow.py", tmp_path / "pid"
    file.write_text(
        f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(999)\n"
    )
    process = run(f"{file}:f", "--text")
    wait_until(lambda: pid.exists() and pid.read_text())
    process.send(how, group=True)  # as a terminal does
    assert process.end() == (status, "", "")
    wait_until(lambda: not alive(int(pid.read_text())))


@contextlib.contextmanager
def a_page(shown):
    with _server.served(shown, 0) as url:
        yield http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=60)


def asked(connection, method, path, **headers):
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_the_server_answers_get_on_this_machine_and_nothing_else():
    shown = _server.Shown("<b>f</b>", "en")
    error = "<script>alert(1)</script>"
    shown.update({"html": "<i>drawn</i>", "made": True})
    shown.update({"error": error})
    with a_page(shown) as connection:
        status, page, headers = asked(connection, "GET", "/")
        assert status == 200 and error not in page and _html.escape(error) in page
        assert "<b>f</b>" not in page and "<i>drawn</i>" in page
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            assert asked(connection, method, "/")[0] == 501
        port = connection.port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", ""):
            assert asked(connection, "GET", "/", Host=host)[0] == 403
        assert asked(connection, "GET", "/", Host=f"localhost:{port}")[0] == 200
        for path in ("/etc/passwd", "/../__main__.py", "/see.css/.."):
            assert asked(connection, "GET", path)[0] == 404
        for name in ("see.css", "see.js"):
            assert asked(connection, "GET", f"/{name}")[1] == (_html.STATIC / name).read_text()
        version = json.loads(asked(connection, "GET", "/state?")[1])["version"]
        assert asked(connection, "GET", f"/state?{version}")[0] == 204
        assert asked(connection, "GET", "/state?0")[0] == 200
    with pytest.raises(OSError):
        asked(connection, "GET", "/")


def test_a_port_that_cannot_be_used_is_said(script, monkeypatch, capsys):
    class Drawn:
        def __init__(self, *_):
            self.process = type("", (), {"returncode": 0})

        def poll(self):
            return {"html": "", "text": "", "made": False, "seconds": 0.0}

    monkeypatch.setattr(command, "Run", Drawn)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with a_page(_server.Shown("f", "en")) as connection:
        for port in (connection.port, 70_000):
            with pytest.raises(SystemExit) as ended:
                command.main([f"{script}:loss", "--port", str(port), "--no-browser"])
            said = capsys.readouterr().err
            assert ended.value.code == 2 and f"port {port} cannot be used" in said
            assert said.count("\n") == 1


# --- in a browser


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1000, "height": 500})
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    refused = []
    page.on("console", lambda m: m.type == "error" and refused.append(m.text))
    yield page
    assert not [text for text in refused if "net::ERR_" not in text]  # a server that has gone
    page.close()


def test_a_new_user_saves_errs_and_goes_on(page, script):
    long = LOSS.replace("    return jnp", "    h = jnp.sin(h)\n" * 70 + "    return jnp")
    script.write_text(long)
    followed = Followed(script, *TYPES)
    page.goto(followed.url)
    jaxpr = page.get_by_role("figure", name="jaxpr", exact=True)
    expect(jaxpr).to_contain_text("tanh")
    assert page.title() == "loss · lossy.py"
    # Somewhere in the middle, with a fold open and a line chosen.
    page.locator("details").first.locator("summary").click()
    page.mouse.move(4, 4)  # over a line, it would bring the counterparts into sight
    code = jaxpr.locator(".see-code")
    code.evaluate("el => el.scrollTo({ top: 333, behavior: 'instant' })")
    page.evaluate("scrollTo(0, 200)")
    places = "() => [scrollY, document.querySelectorAll('.see-code')[1].scrollTop]"
    before = page.evaluate(places)
    assert before == [200, 333]
    script.write_text(long.replace("jnp.tanh", "jnp.cosh"))
    expect(jaxpr).to_contain_text("cosh", timeout=1000 * LIMIT_S)
    assert page.evaluate(places) == before
    assert page.locator("details").first.evaluate("el => el.open")
    # An error stays in sight below, and the last good picture with it, marked as old.
    script.write_text(long.replace("def loss", "def def loss"))
    said = page.get_by_role("alert")
    expect(said).to_contain_text("SyntaxError", timeout=1000 * LIMIT_S)
    expect(said).to_be_in_viewport()
    expect(said).to_contain_text("the picture is of the last save that ran")
    expect(jaxpr).to_contain_text("cosh")
    assert page.locator(".old").count() == 1
    assert page.evaluate(places) == before
    script.write_text(long)
    expect(jaxpr).to_contain_text("tanh", timeout=1000 * LIMIT_S)
    expect(said).to_have_count(0)
    assert page.locator(".old").count() == 0
    # The picture is alive after all that: what belongs together lights up.
    jaxpr.get_by_text("tanh", exact=True).hover()
    expect(page.locator(".see-l.see-on")).not_to_have_count(0)
    followed.process.send(signal.SIGINT)
    assert followed.process.end()[0] == 0
    expect(page.get_by_text("the command has ended")).to_be_visible(timeout=1000 * LIMIT_S)


def test_a_written_page_needs_nothing_else(browser, script, tmp_path, monkeypatch):
    target = tmp_path / "out" / "loss.html"
    target.parent.mkdir()
    process = run(f"{script}:loss", *TYPES, "-o", target, "--lang", "zh")
    assert process.end() == (0, "", "")
    shutil.move(target, tmp_path / "elsewhere.html")
    context = browser.new_context(offline=True, viewport={"width": 375, "height": 700})
    page = context.new_page()
    page.on("request", lambda r: r.url.startswith("file:") or pytest.fail(r.url))
    page.goto((tmp_path / "elsewhere.html").as_uri())
    expect(page.get_by_role("figure", name="Python 源码", exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    page.get_by_text("tanh", exact=True).first.click()
    expect(page.locator(".see-on")).not_to_have_count(0)
    context.close()


def test_where_there_is_a_browser_it_is_opened(script, tmp_path):
    seen = tmp_path / "seen"
    opener = tmp_path / "opener"
    opener.write_text(f"#!/bin/sh\necho $1 > {seen}\n")
    opener.chmod(0o755)
    environment = {**os.environ, "BROWSER": str(opener)}
    process = run(f"{script}:loss", *TYPES, env=environment)
    wait_until(lambda: seen.exists() and seen.read_text().startswith("http://127.0.0.1:"))
    process.send(signal.SIGINT, group=True)
    assert process.end()[0] == 0


def test_what_the_help_says_can_be_read():
    status, out, _ = run("--help").end()
    assert status == 0
    assert all(name in out for name in (*_child.PICTURES, "f32[8,128]", "key<fry>[]", "--text"))
