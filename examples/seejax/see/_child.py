"""What `python -m seejax.see` runs in a fresh interpreter: a script, then one picture of it.

The script comes first and JAX after it, as when the script is run by itself: so what it sets for
JAX in `os.environ` counts. That is why this file is run by its path, and imports late.
"""

import ast
import contextlib
import dataclasses
import difflib
import faulthandler
import importlib.machinery
import importlib.util
import inspect
import json
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

HERE = Path(__file__).parent
UNWRITTEN = 74  # the status of one that could not write its answer: EX_IOERR of sysexits.h

_DTYPE = (
    r"bool|bf16|f16|f32|f64|f8_\w+|[iu](?:4|8|16|32|64)|c64|c128|bfloat16|float(?:16|32|64|8_\w+)"
    r"|u?int(?:4|8|16|32|64)|complex(?:64|128)|key<\w+>"
)
_ARRAY = re.compile(rf"(?<![\w.\"'])({_DTYPE})\[([\d,\s]*)\]")
_KEYWORD = re.compile(r"([^\W\d]\w*)=(?!=)(.*)", re.DOTALL)
_LONG = {"bf": "bfloat", "f": "float", "i": "int", "u": "uint", "c": "complex"}
_IMPLEMENTATIONS = {"fry": "threefry2x32", "urbg": "unsafe_rbg"}  # as jaxprs write them


class Usage(Exception):
    """What was asked for cannot be: one sentence for who asked."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What to draw; in_axes, out_axes and argnums are Python literals."""

    script: str
    name: str
    arguments: list[str]
    picture: str
    static: list[str]
    in_axes: str
    out_axes: str
    argnums: str
    module: str = ""  # its name, where it was asked for by that: lib.model


# --- arguments


def split(argument: str) -> tuple[str, str]:
    """The keyword, or "", and the Python expression that an argument stands for.

    An array is written as a jaxpr prints its type; in an expression it becomes a call of `_array`.

    >>> split("f32[8, 128]"), split("x=i32[]"), split("3.0")
    (('', "_array('f32', (8, 128,))"), ('x', "_array('i32', ())"), ('', '3.0'))
    >>> split("f32[8,")
    Traceback (most recent call last):
    seejax.see._child.Usage: the argument f32[8, is neither an array such as f32[8,128] nor Python
    """
    keyword, expression = "", argument
    if match := _KEYWORD.fullmatch(argument):
        keyword, expression = match.groups()
    called = _ARRAY.sub(lambda m: f"_array({m[1]!r}, {_shape(m[2], argument)})", expression)
    try:
        ast.parse(called.strip(), mode="eval")
    except SyntaxError:
        raise _neither(argument) from None
    return keyword, called.strip()


def _neither(argument: str) -> Usage:
    return Usage(f"the argument {argument} is neither an array such as f32[8,128] nor Python")


def _shape(text: str, argument: str) -> str:
    numbers = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(number.isdecimal() for number in numbers):
        raise _neither(argument)
    return "(" + " ".join(f"{int(number)}," for number in numbers) + ")"


class _Arrays:
    """Makes the arrays of one call: standard normal numbers, integers 0, booleans True."""

    def __init__(self, only_types: bool) -> None:
        import numpy as np

        self.only_types = only_types
        self.rng = np.random.default_rng(0)

    def __call__(self, dtype: str, shape: tuple[int, ...]) -> Any:
        import jax
        import jax.numpy as jnp

        if match := re.fullmatch(r"key<(\w+)>", dtype):
            try:
                key = jax.random.key(0, impl=_IMPLEMENTATIONS.get(match[1], match[1]))
            except ValueError:
                raise Usage(
                    f"no random key is of the kind {dtype}; the usual is key<fry>"
                ) from None
            if self.only_types:
                return jax.ShapeDtypeStruct(shape, key.dtype)
            return jax.random.split(key, shape) if shape else key
        name = re.sub(r"^(bf|f|i|u|c)(?=\d)", lambda m: _LONG[m[1]], dtype)
        kind = getattr(jnp, "bool_" if name == "bool" else name, None)
        if kind is None:
            raise Usage(f"JAX has no dtype {dtype}")
        wide = name in ("float64", "int64", "uint64", "complex128")
        if wide and not jax.config.jax_enable_x64:
            raise Usage(f"{dtype} needs jax_enable_x64, which the script may set")
        if self.only_types:
            return jax.ShapeDtypeStruct(shape, kind)
        if not jnp.issubdtype(kind, jnp.inexact):
            return jnp.full(shape, name == "bool", kind)
        numbers = self.rng.standard_normal(shape)
        if jnp.issubdtype(kind, jnp.complexfloating):
            numbers = numbers + 1j * self.rng.standard_normal(shape)
        return jnp.asarray(numbers, kind)


def _arguments(request: Request, module: ModuleType, only_types: bool) -> tuple[list, dict]:
    """An array that is a whole argument may be its type only; one in an expression is made."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    make, typed = _Arrays(False), _Arrays(only_types)
    for argument in request.arguments:
        keyword, expression = split(argument)
        whole = _ARRAY.fullmatch(argument.removeprefix(f"{keyword}=").strip())
        names = {**vars(module), "_array": typed if whole else make}
        try:
            value = eval(expression, names)
        except Usage:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}".split("\n")[0]
            raise Usage(f"the argument {argument} cannot be made: {said}") from None
        if not keyword:
            args.append(value)
        elif keyword in kwargs:
            raise Usage(f"the argument {keyword} is given twice")
        else:
            kwargs[keyword] = value
    return args, kwargs


# --- the script and what is asked of it


class _Fresh(importlib.machinery.SourceFileLoader):
    """Never from a .pyc: that is matched by seconds and size, which two saves may share."""

    def path_stats(self, path: str) -> NoReturn:
        raise OSError  # Python then neither reads nor writes one


def _finder(folder: Path) -> Callable[[str], Any]:
    """A hook for `sys.path_hooks`: fresh modules from the folder of the script."""
    machinery = importlib.machinery

    def hook(path: str) -> Any:
        if not _ours(path, folder):
            raise ImportError
        extensions = machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES
        return machinery.FileFinder(path, extensions, (_Fresh, machinery.SOURCE_SUFFIXES))

    return hook


def _ours(path: str, folder: Path) -> bool:
    """Whether it lies in the folder of the script, and not in a Python installed there."""
    installed = any(Path(path).is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
    return Path(path).is_relative_to(folder) and not installed


def _named(path: Path, module: str) -> tuple[str, Path]:
    """The module that a file is, and the folder from which it is imported under this name.

    A file beside an `__init__.py` is of that package, so that `from . import` works in it.
    """
    if module:
        return module, path.parents[module.count(".") + (path.stem == "__init__")]
    parts, folder = [path.stem], path.parent
    while path.suffix == ".py" and folder.name.isidentifier() and (folder / "__init__.py").exists():
        parts, folder = [folder.name, *parts], folder.parent
    name = ".".join(parts)
    return (name if len(parts) > 1 or name not in sys.modules else f"_{name}"), folder


def _executed(path: Path, module: str = "") -> ModuleType:
    """The script as a module of its own name, which is not `__main__`."""
    name, root = _named(path, module)
    for folder in {root: None, path.parent: None, Path.cwd(): None}:
        sys.path_hooks.insert(0, _finder(folder))
    sys.path[:0] = dict.fromkeys([str(root), str(path.parent)])
    sys.path.append(str(Path.cwd()))  # as for `python -m`; last, for it may hold anything
    sys.argv = [str(path)]
    package = name.rpartition(".")[0]
    if package:
        importlib.import_module(package)
        if name in sys.modules:  # by its package
            return sys.modules[name]
    loader = _Fresh(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    if path.suffix == ".ipynb":
        vars(made)["display"] = lambda *_, **__: None
        code = _notebook(path)
    else:
        code = loader.source_to_code(path.read_bytes(), str(path))
    exec(code, vars(made))
    if package:
        setattr(sys.modules[package], name.rpartition(".")[2], made)
    return made


def _notebook(path: Path) -> Any:
    """The code cells of a notebook as one program, without what is for IPython alone."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    kept = [source for source in sources if not source.lstrip().startswith("%%")]
    text = "\n\n".join(kept) + "\n"
    text = re.sub(r"^(\s*)([%!?].*)$", r"\1pass  # \2", text, flags=re.MULTILINE)
    file = f"<{path.name}>"  # its source is kept under this name: the file itself is no Python
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return compile(text, file, "exec", dont_inherit=True)


def _found(module: ModuleType, request: Request) -> Any:
    file = Path(request.script).name
    value: Any = module
    for part in request.name.split(".") if request.name else ():
        if not hasattr(value, part):
            known = [name for name in dir(value) if not name.startswith("_")]
            near = difflib.get_close_matches(part, known, 3, 0.5) or _functions(module)
            raise Usage(f"{file} has no {request.name}{_or(near)}")
        value = getattr(value, part)
    if value is module:
        raise Usage(f"say which function, as in {file}:NAME{_or(_functions(module))}")
    if not callable(value) and request.picture != "tree":
        kind = type(value).__name__
        raise Usage(f"{request.name} is not callable: it is of type {kind}; try --picture tree")
    return value


def _functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
    ]


def _or(names: list[str]) -> str:
    return f"; there is {', '.join(names[:5])}" if names else ""


def _checked(f: Any, request: Request, args: list, kwargs: dict) -> None:
    """Whether f takes such arguments, as far as it says."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        takes = signature.replace(parameters=bare, return_annotation=signature.empty)
        raise Usage(f"{request.name} takes {takes}: {error}") from None


# --- pictures


def _trace(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    from seejax import see

    return see.trace(f, *args, static_argnames=tuple(request.static) or None, **kwargs)


def _calls(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    """Two calls with the same types; the first one gets copies, should f donate them."""
    import jax

    from seejax import see

    seen = see.calls(f, **({"static_argnames": request.static} if request.static else {}))
    copies = jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array) else x, (args, kwargs))
    for its_args, its_kwargs in copies, (args, kwargs):
        seen(*its_args, **its_kwargs)
    return seen


def _grad(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    from seejax import see

    return see.grad(f, *args, argnums=ast.literal_eval(request.argnums), **kwargs)


def _axes(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    from seejax import see

    axes = ast.literal_eval(request.in_axes), ast.literal_eval(request.out_axes)
    return see.axes(f, *axes, *args, **kwargs)


def _tree(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    """What f returns, of which only the types are computed; or an object of the script."""
    import jax

    from seejax import see

    if not callable(f):
        return see.tree(f)
    jitted = jax.jit(f, static_argnames=request.static or None)
    return see.tree(jax.eval_shape(jitted, *args, **kwargs))


def _keys(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    from seejax import see

    with see.keys() as keys:
        f(*args, **kwargs)
    return keys


def _memory(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    import jax

    from seejax import see

    jitted = jax.jit(f, static_argnames=request.static) if request.static else f
    return see.memory(jitted, *args, **kwargs)


def _kernel(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    import jax

    from seejax import see

    jitted = jax.jit(f, static_argnames=request.static) if request.static else f
    return see.kernel(jitted, *args, **kwargs)


def _timeline(f: Any, args: list, kwargs: dict, request: Request) -> Any:
    """Two calls: the first one compiles."""
    import jax

    from seejax import see

    jitted = jax.jit(f, static_argnames=request.static or None)
    with see.timeline() as seen:
        for _ in range(2):
            jax.block_until_ready(jitted(*args, **kwargs))
    return seen


PICTURES: dict[str, tuple[Callable[..., Any], bool]] = {  # name: what draws it, needs numbers
    "trace": (_trace, False),
    "calls": (_calls, True),
    "grad": (_grad, False),
    "axes": (_axes, False),
    "tree": (_tree, False),
    "keys": (_keys, True),
    "memory": (_memory, False),
    "timeline": (_timeline, True),
    "kernel": (_kernel, False),
}


def draw(request: Request) -> dict[str, Any]:
    """Run the script and draw; what the terminal and the page show."""
    module = _executed(Path(request.script), request.module)
    sys.path.append(str(HERE.parents[1]))
    f = _found(module, request)
    picture, needs_numbers = PICTURES[request.picture]
    args, kwargs = _arguments(request, module, not needs_numbers)
    if callable(f):
        _checked(f, request, args, kwargs)
        f, args, kwargs = _unpacked(f, args, kwargs)
    elif args or kwargs:
        raise Usage(f"{request.name} is not callable and takes no arguments")
    drawn = picture(f, args, kwargs, request)
    made = any(_ARRAY.search(argument) for argument in request.arguments)
    return {
        "text": re.sub(r"print\(picture\.text\(\)\)$", "--text --all", str(drawn)),
        "all": drawn.text(),
        "html": drawn.html(),
        "failed": getattr(drawn, "error", None) is not None,
        "made": bool(made and needs_numbers),
    }


def _unpacked(f: Any, args: list, kwargs: dict) -> tuple[Any, list, dict]:
    """A function that takes nothing and returns (f, args), or (f, args, kwargs), stands for f."""
    try:
        nothing = not inspect.signature(f).parameters
    except (TypeError, ValueError):
        nothing = False
    result = f() if nothing else None
    if isinstance(result, tuple) and len(result) in (2, 3) and callable(result[0]):
        if not isinstance(result[1], tuple | list):
            kind = type(result[1]).__name__
            raise Usage(f"expected (f, args) with a tuple of arguments, got a {kind}")
        return result[0], list(result[1]), dict(*result[2:])
    return f, args, kwargs


def _told(error: BaseException) -> dict[str, Any]:
    """A traceback that begins in the script; one sentence for what a picture itself refuses."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, TypeError | ValueError) and len(frames) > 1:
        *_, last = frames
        if Path(last.f_code.co_filename).parent == HERE and last.f_code.co_filename != __file__:
            return {"usage": " ".join(str(error).split())}
    where = error.__traceback__
    ours = (__file__, "<frozen importlib")
    while where and where.tb_frame.f_code.co_filename.startswith(ours):
        where = where.tb_next
    text = "".join(traceback.format_exception(type(error), error, where))
    return {"error": text[-20_000:].rstrip()}


def _files(script: str, module: str) -> list[str]:
    """The script and the modules beside it, and from where we are called, that it imported."""
    _, root = _named(Path(script), module)
    files = {script: None}
    for loaded in list(sys.modules.values()):
        file = getattr(loaded, "__file__", None) or ""
        if file.endswith(".py") and (_ours(file, root) or _ours(file, Path.cwd())):
            files[file] = None
    return list(files)[:200]


def answered(
    work: Callable[[], dict[str, Any]], answer_file: str, hung_file: str, limit_s: str
) -> NoReturn:
    """Do the work of a run and write its answer; whatever it does, this ends within the limit."""
    hung = open(hung_file, "w")  # noqa: SIM115 (open until the end)
    faulthandler.dump_traceback_later(float(limit_s), exit=True, file=hung)
    answer = work()
    try:
        Path(answer_file).write_text(json.dumps(answer), encoding="utf-8")
    except OSError:
        os._exit(UNWRITTEN)
    for stream in sys.stdout, sys.stderr:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the script has closed it
            stream.flush()
    os._exit(0)  # a thread that the script left behind does not hold us


def main(question: str, *files: str) -> None:
    """Draw, and write the answer."""
    request = Request(**json.loads(question))

    def work() -> dict[str, Any]:
        answer: dict[str, Any]
        try:
            answer = draw(request)
        except Usage as error:
            answer = {"usage": str(error)}
        except BaseException as error:  # SystemExit too: it must not end us without an answer
            answer = _told(error)
        return {**answer, "files": _files(request.script, request.module)}

    answered(work, *files)


if __name__ == "__main__":
    main(*sys.argv[1:])
