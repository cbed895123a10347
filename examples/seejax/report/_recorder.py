"""What `python -m seejax.report` runs: the script, and a note of all that JAX makes programs of.

    python _recorder.py EVENTS script.py [argument ...]
    python _recorder.py EVENTS -m module [argument ...]

The script comes first: JAX is imported by it, after whatever it sets in `os.environ`, and the
listeners are registered then. Each event is one line of JSON, written when it happens, so that a
kill loses none. Where it cannot be written the script goes on.
"""

import builtins
import importlib.abc
import json
import logging
import os
import runpy
import sys
import sysconfig
import threading
import time
import warnings
from types import FrameType, ModuleType
from typing import Any

KINDS = {  # JAX's names of what it measures; the tests ask whether they are still these
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
    "/jax/compilation_cache/cache_hits": "hit",
    "/jax/compilation_cache/cache_misses": "miss",
}
MISS = "TRACING CACHE MISS"  # how the log begins that says why something is traced
LOGGER = "jax._src.interpreters.partial_eval"  # which says it
CONSTANTS = "A large amount of constants were captured"  # how the warning begins
LARGE = 1 << 20  # bytes: what JAX itself warns of is 2000 times as much
HERE = os.path.abspath(__file__)
LIBRARIES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib")
)


class Recorder:
    """Writes events to a file; after a failure to write it writes no more."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.started = time.perf_counter()

    def note(self, kind: str, **fields: Any) -> None:
        if self.file < 0:
            return
        event = {
            "kind": kind,
            "at": time.perf_counter() - self.started,
            "thread": threading.get_ident(),
            **fields,
        }
        try:
            os.write(self.file, (json.dumps(event) + "\n").encode())
        except OSError:
            self.file = -1

    def listen(self) -> None:
        """Register with JAX, which has just been imported."""
        import jax

        def on_duration(event: str, duration_secs: float, **about: Any) -> None:
            if kind := KINDS.get(event):
                said = str(about.get("fun_name", ""))
                self.note(kind, name=said, seconds=duration_secs, stack=lines(sys._getframe(1)))

        def on_event(event: str, **about: Any) -> None:
            if kind := KINDS.get(event):
                self.note(kind)

        jax.monitoring.register_event_duration_secs_listener(on_duration)
        jax.monitoring.register_event_listener(on_event)
        asked = jax.config.jax_explain_cache_misses  # by the script's environment
        jax.config.update("jax_explain_cache_misses", True)

        def keep(record: logging.LogRecord) -> bool:
            said = record.getMessage()
            if said.startswith(MISS):
                self.note("cause", said=said)
                return asked
            return True

        logging.getLogger(LOGGER).addFilter(keep)
        if "JAX_CAPTURED_CONSTANTS_WARN_BYTES" not in os.environ:
            jax.config.update("jax_captured_constants_warn_bytes", LARGE)
            jax.config.update("jax_captured_constants_report_frames", 4)
            warnings.warn = self.warned(warnings.warn, jax.config)
        self.note("jax", version=jax.__version__)

    def warned(self, warn: Any, config: Any) -> Any:
        """`warnings.warn`, but what JAX would not have said by itself is noted and not shown."""

        def heard(message: Any, category: Any = None, stacklevel: int = 1, *rest: Any, **more: Any):
            said = str(message)
            if said.startswith(CONSTANTS):
                self.note("constants", said=said, stack=lines(sys._getframe(1)))
                ours = config.jax_captured_constants_warn_bytes == LARGE  # not the script's
                if ours and "GB total" not in said:
                    return
            warn(message, category, stacklevel + 1, *rest, **more)

        return heard


def lines(frame: FrameType | None) -> list[list[Any]]:
    """The reader's own lines that lead to here, outermost first: file, line, function."""
    found: list[list[Any]] = []
    while frame:
        code = frame.f_code
        file = code.co_filename
        if file != HERE and not file.startswith(("<frozen", *LIBRARIES)):
            found.append([file, frame.f_lineno, code.co_name])
        frame = frame.f_back
    return found[::-1]


class AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls something when a module has been imported, and is not seen otherwise."""

    def __init__(self, module: str, then: Any) -> None:
        self.module, self.then = module, then
        self.loader: Any = None  # of the module itself

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.module or self.loader:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                self.loader, spec.loader = spec.loader, self
                return spec
        return None

    def create_module(self, spec: Any) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.then()


def main() -> None:
    events, *command = sys.argv[1:]
    recorder = Recorder(events)
    recorder.note("begin", argv=command, pid=os.getpid(), time=time.time())
    sys.meta_path.insert(0, AfterImport("jax", recorder.listen))
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, path = command, os.path.abspath(command[0])
            sys.path[0] = os.path.dirname(path)
            run_file(path)
    except BaseException as error:
        left = isinstance(error, SystemExit) and not error.code
        recorder.note("end", error="" if left else type(error).__name__)
        raise
    recorder.note("end", error="")


def run_file(path: str) -> None:
    """As `python path` does; `runpy` would change `sys.argv[0]`."""
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    vars(module).update(__file__=path, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    exec(code, vars(module))


def shorten(error: BaseException) -> None:
    """Take our own frames and those of runpy out of a traceback: it begins in the script."""
    trace = error.__traceback__
    ours = {HERE, runpy.__file__, "<frozen runpy>"}
    while trace and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    error.__traceback__ = trace or error.__traceback__


if __name__ == "__main__":
    try:
        main()
    except Exception as error:  # as Python shows it, from the script on
        shorten(error)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
