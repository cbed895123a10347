"""What `python -m seejax.report` runs: the script, and a note of all that JAX makes programs of.

    python _recorder.py EVENTS script.py [argument ...]
    python _recorder.py EVENTS -m module [argument ...]

The script comes first: JAX is imported by it, after whatever it sets in `os.environ`, and the
listeners are registered then. Each event is one line of JSON, written when it happens, so that a
kill loses none. Where it cannot be written the script goes on, and the file becomes read-only.
"""

import ast
import builtins
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import linecache
import logging
import os
import re
import runpy
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter
from types import FrameType, ModuleType
from typing import Any

KINDS = {  # JAX's names of what it measures; the tests ask whether they are still these
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
    "/jax/compilation_cache/cache_hits": "hit",
    "/jax/compilation_cache/cache_misses": "miss",
}
EXPLAIN = "jax_explain_cache_misses"  # the option that makes JAX say why something is traced
LOGGERS = (  # which it makes say more
    "jax._src.interpreters.partial_eval",
    "jax._src.compiler",
    "jax._src.compilation_cache",
)
ENOUGH = 100  # causes of one function; JAX compares with all before, and takes ever longer
MISS = "TRACING CACHE MISS"  # how a cause begins
STORING = (  # how the rest begins, which is for debugging without the option
    "PERSISTENT COMPILATION CACHE MISS",
    "Not writing persistent cache entry",
    "Writing ",
    "_get_cache: ",
)
CONSTANTS = "A large amount of constants were captured"  # how the warning begins
WARN_FROM = "jax_captured_constants_warn_bytes"  # the option, and that of how many lines it names
FRAMES = "jax_captured_constants_report_frames"
LARGE = 1 << 20  # bytes: what JAX itself warns of is 2000 times as much
MOST = 5  # lines of a program that are noted
HERE = os.path.abspath(__file__)
PRIVATE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "see", "_jax_private.py")
LIBRARIES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib")
)


class Recorder:
    """Writes the events of this process to a file; after a failure to write it writes no more."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.works = True
        self.process = os.getpid()
        self.process_of: Any = None  # tells which of several it is, until that is noted
        self.started = time.perf_counter()
        self.causes: Counter[str] = Counter()  # by the function that they are about
        self.explain = False  # whether the script itself wants to read why something is traced

    def note(self, kind: str, **fields: Any) -> None:
        if not self.works or os.getpid() != self.process:  # a fork has a recorder as well
            return
        event = {
            "kind": kind,
            "at": time.perf_counter() - self.started,
            "thread": threading.get_ident(),
            **fields,
        }
        try:
            # Opened anew: a script may close every file that it did not open, or get its number.
            with open(self.path, "ab", buffering=0) as file:
                file.write((json.dumps(event) + "\n").encode())
        except OSError:
            self.works = False
            with contextlib.suppress(OSError):
                os.chmod(self.path, 0o444)  # which needs no room on the disk

    def note_process(self) -> None:
        """Note once which of several processes this is, as soon as it is known."""
        if self.process_of and (found := self.process_of()):
            self.process_of = None
            self.note("process", index=found[0], count=found[1])

    def listen(self) -> None:
        """Register with JAX, which has just been imported."""
        import jax

        private = None
        with contextlib.suppress(Exception):  # of a JAX that we do not know
            private = by_path(PRIVATE)
            self.process_of = private.process

        def on_duration(event: str, duration_secs: float, **about: Any) -> None:
            if kind := KINDS.get(event):
                frame, more = sys._getframe(1), {}
                self.note_process()
                with contextlib.suppress(Exception):
                    if kind == "lower":
                        more = program(private, private.lowered(frame)) | called(frame)
                    elif kind == "compile":
                        more = {"memory": private.compiled_memory(frame)}
                name = str(about.get("fun_name", ""))
                self.note(kind, name=name, seconds=duration_secs, stack=lines(frame), **more)

        def on_event(event: str, **about: Any) -> None:
            if kind := KINDS.get(event):
                self.note(kind)

        jax.monitoring.register_event_duration_secs_listener(on_duration)
        jax.monitoring.register_event_listener(on_event)
        self.explain = jax.config.jax_explain_cache_misses
        update = jax.config.update
        update(EXPLAIN, True)
        frames = jax.config.jax_captured_constants_report_frames

        def keep_explaining(name: str, val: Any) -> None:
            nonlocal frames
            if name == EXPLAIN:
                self.explain = bool(val)
                return
            if name == FRAMES:
                frames = val
            if name == WARN_FROM:
                update(FRAMES, frames)  # the warning is the script's now
            update(name, val)

        jax.config.update = keep_explaining
        for name in LOGGERS:
            self.overhear(logging.getLogger(name), update)
        if "JAX_CAPTURED_CONSTANTS_WARN_BYTES" not in os.environ:
            update(WARN_FROM, LARGE)
            update(FRAMES, 16)
            warnings.warn = self.warned(warnings.warn, jax.config)
        self.note("jax", version=jax.__version__)

    def overhear(self, logger: logging.Logger, update: Any) -> None:
        """Note the causes that a logger is given; it says what it would say by itself."""
        enabled, handle = logger.isEnabledFor, logger.handle

        def handle_rest(record: logging.LogRecord) -> None:
            text = record.getMessage()
            if text.startswith(MISS):
                self.note("cause", text=text)
                function = re.search(r"\S+ (?:id=\d+ )?defined at (\S+)", text)
                about = function[1] if function else ""
                self.causes[about] += 1
                if self.causes[about] == ENOUGH and not self.explain:
                    update(EXPLAIN, False)
                if not self.explain:
                    return
            elif text.startswith(STORING) and not self.explain:
                record.levelno, record.levelname = logging.DEBUG, "DEBUG"
            if enabled(record.levelno):
                handle(record)

        # A script may silence its loggers; causes are noted all the same.
        logger.isEnabledFor = lambda level: level >= logging.WARNING or enabled(level)
        logger.handle = handle_rest

    def warned(self, warn: Any, config: Any) -> Any:
        """`warnings.warn`, but what JAX would not have said by itself is noted and not shown."""

        def warn_of_rest(
            message: Any, category: Any = None, stacklevel: int = 1, *rest: Any, **more: Any
        ) -> None:
            text = str(message)
            if text.startswith(CONSTANTS):
                self.note("constants", text=text, stack=lines(sys._getframe(1)))
                ours = config.jax_captured_constants_warn_bytes == LARGE  # not the script's
                if ours and "GB total" not in text:
                    return
            if more.get("skip_file_prefixes"):
                more["skip_file_prefixes"] = (HERE, *more["skip_file_prefixes"])
            else:
                stacklevel = max(stacklevel, 1) + 1
            warn(message, category, stacklevel, *rest, **more)

        return warn_of_rest


def lines(frame: FrameType | None) -> list[list[Any]]:
    """The reader's own lines that lead to here, outermost first: file, line, function."""
    found: list[list[Any]] = []
    while frame:
        code = frame.f_code
        file = code.co_filename
        if readers(file):
            found.append([file, frame.f_lineno, code.co_name])
        frame = frame.f_back
    return found[::-1]


def called(frame: FrameType | None) -> dict[str, Any]:
    """How the reader's innermost line calls what is made a program: `loss(w, x)`.

    Returns:
      {} unless a jitted function is called there. Else `call`: the function and its arguments, as
        in the source; `function`: its name, "" if it is no global one; `arguments`: as
        `python -m seejax.see` takes them, None if one cannot be written so.
    """
    inner = None
    while frame and not readers(frame.f_code.co_filename):
        frame, inner = frame.f_back, frame
    if not frame or not inner:
        return {}
    with contextlib.suppress(Exception):  # a source that is not there, or has changed
        node = ast.parse(source_of(frame), mode="eval").body
        assert isinstance(node, ast.Call)
        f = node.func
        if isinstance(f, ast.Attribute) and f.attr in ("lower", "trace"):
            f = f.value
        jitted = found(f, frame)
        if not hasattr(jitted, "lower") and not makes_jitted(f, frame):
            return {}
        name = ast.unparse(f)
        given = [ast.unparse(each) for each in (*node.args, *node.keywords)]
        arguments = None
        with contextlib.suppress(TypeError):
            named = inner.f_locals.get("kwargs", {}).items()
            arguments = [written(value) for value in inner.f_locals["args"]]
            arguments += [f"{key}={written(value)}" for key, value in named]
        return {
            "call": ", ".join([name, *given]),
            "function": name if frame.f_globals.get(name, frame) is jitted else "",
            "arguments": arguments,
        }
    return {}


def source_of(frame: FrameType) -> str:
    """The expression that the frame is at."""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, end_line, column, end_column = map(int, positions)  # type: ignore[arg-type]
    text = linecache.getlines(frame.f_code.co_filename)[line - 1 : end_line]
    raw = [each.encode() for each in text]  # columns are in bytes
    raw[-1] = raw[-1][:end_column]
    raw[0] = raw[0][column:]
    return b"".join(raw).decode()


def found(f: ast.expr, frame: FrameType) -> Any:
    """The value of a name, or of an attribute of one, without running code of the script."""
    if isinstance(f, ast.Name):
        return frame.f_locals.get(f.id, frame.f_globals.get(f.id))
    if isinstance(f, ast.Attribute):
        return inspect.getattr_static(found(f.value, frame), f.attr, None)
    return None


def makes_jitted(f: ast.expr, frame: FrameType) -> bool:
    """Whether it is `jax.jit(loss)`, or that of another library."""
    name = getattr(found(f.func, frame), "__name__", "") if isinstance(f, ast.Call) else ""
    return name in ("jit", "pjit", "filter_jit")


def written(value: Any) -> str:
    """An argument as `python -m seejax.see` takes it.

    >>> import numpy as np
    >>> written({"w": np.ones((2, 3), "float32"), "rate": 0.1})
    '{"w": float32[2,3], "rate": 0.1}'
    >>> written(object())
    Traceback (most recent call last):
    TypeError: object
    """
    if type(value) is str:
        return json.dumps(value)  # with double quotes, which shells take within single ones
    if value is None or type(value) in (bool, int, float, complex):
        return repr(value)
    if type(value) is dict:
        items = (f"{written(key)}: {written(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if type(value) is list:
        return f"[{', '.join(map(written, value))}]"
    if type(value) is tuple:
        return f"({''.join(f'{written(item)}, ' for item in value)})"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    raise TypeError(type(value).__name__)


def readers(file: str) -> bool:
    """Whether it is the reader's own, and no library."""
    return file != HERE and not file.startswith(("<frozen", *LIBRARIES))


def by_path(file: str) -> Any:
    """A module from its file: our package need not be where the script imports from."""
    spec = importlib.util.spec_from_file_location("_seejax_private", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(private: Any, jaxpr: Any) -> dict[str, Any]:
    """How many equations it has, and the lines that most of them come from."""
    count = equations(private, jaxpr, None, {})
    most = [[*line, n] for line, n in count.most_common(MOST) if line]
    return {"equations": count.total(), "lines": most}


def equations(private: Any, jaxpr: Any, outer: Any, known: dict) -> Counter[Any]:
    """Equations by the reader's line that they come from, those within others included.

    Those of a library's jitted function count for the line that calls it.
    """
    if (key := (id(jaxpr), outer)) in known:
        return known[key]
    found = known[key] = Counter()
    for eqn in private.opened(jaxpr).eqns:
        line = innermost(private.frames(eqn), known) or outer
        found[line] += 1
        for _, inner in private.subjaxprs(eqn):
            found.update(equations(private, inner, line, known))
    return found


def innermost(frames: list[Any], known: dict) -> Any:
    """The reader's innermost line: file, line, function; None if there is none."""
    for code, offset in reversed(frames):
        if readers(code.co_filename):
            if (key := (id(code), offset)) not in known:
                line = list(code.co_positions())[offset // 2][0]
                known[key] = code.co_filename, line or code.co_firstlineno, code.co_name
            return known[key]
    return None


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls something when a module has been imported, and is not seen otherwise."""

    def __init__(self, module: str, then: Any) -> None:
        self.module, self.then = module, then

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.module:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                if spec.loader:
                    self.follow(spec.loader)
                return spec
        return None

    def follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            loader.exec_module = execute
            waiting = self in sys.meta_path
            if waiting:
                sys.meta_path.remove(self)
            execute(module)
            if waiting:
                self.then()

        loader.exec_module = execute_and_tell


def main() -> None:
    events, *command = sys.argv[1:]
    recorder = Recorder(events)
    recorder.note("begin", argv=command, pid=os.getpid(), time=time.time())
    sys.meta_path.insert(0, AfterImport("jax", recorder.listen))
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            from_folder(os.getcwd())
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, path = command, os.path.abspath(command[0])
            from_folder(os.path.dirname(os.path.realpath(path)))
            run_file(path)
    except BaseException as error:
        by_exit = isinstance(error, SystemExit)  # how, its parent knows
        recorder.note_process()
        recorder.note("end", error="" if by_exit else type(error).__name__)
        raise
    recorder.note_process()
    recorder.note("end", error="")


def from_folder(folder: str) -> None:
    """Where modules are looked for first, instead of in our own folder."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def run_file(path: str) -> None:
    """As `python path` does; `runpy` would change `sys.argv[0]`."""
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __builtins__=builtins, __cached__=None, __loader__=loader)
    sys.modules["__main__"] = module
    exec(code, vars(module))


def begin_in_script(error: BaseException) -> None:
    """Let the traceback that Python shows begin in the script, without our frames and runpy's."""
    trace, hook = error.__traceback__, sys.excepthook
    while trace and trace.tb_frame.f_code.co_filename in {HERE, runpy.__file__, "<frozen runpy>"}:
        trace = trace.tb_next

    def show(kind: Any, error: BaseException, _: Any) -> None:
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = show


if __name__ == "__main__":
    try:
        main()
    except SystemExit:
        raise
    except BaseException as error:
        begin_in_script(error)
        raise
