"""What a fresh interpreter does with a reader's file: run it and its tests, or draw its function.

It is run by its path, as `seejax.see._child` is, and answers as that does.
"""

import ast
import hashlib
import importlib.util
import json
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
LONG = 300  # characters of a message; the first of JAX's sentences says what is wrong


def digest(whole: str) -> str:
    """What is kept of a file that passes."""
    return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:16]


def module(file: str) -> ModuleType:
    """An empty module for the file, from whose folder it may import."""
    name = Path(file).stem
    made = sys.modules[name] = ModuleType(name)
    made.__file__ = file
    sys.path.insert(0, str(Path(file).parent))
    sys.argv = [file]
    return made


def checked(file: str, own: str, whole: str) -> dict[str, Any]:
    """Run the file with its tests. What is wrong, if it is: kind, message and line."""
    try:
        compile(own, file, "exec", dont_inherit=True)  # the tests would move its syntax errors
        exec(compile(whole, file, "exec", dont_inherit=True), vars(module(file)))
    except BaseException as error:  # SystemExit too
        return wrong(error, file, whole)
    return {"passed": True, "digest": digest(whole)}


def wrong(error: BaseException, file: str, whole: str) -> dict[str, Any]:
    kind, message = type(error).__name__, said(error)
    line = None
    if isinstance(error, SyntaxError) and error.filename == file:
        line, message = error.lineno, error.msg
    else:
        frames = traceback.walk_tb(error.__traceback__)
        for frame, number in frames:
            if frame.f_code.co_filename == file:
                line = number
    lines = whole.splitlines()
    text = lines[line - 1].strip() if line and line <= len(lines) else ""
    return {"kind": kind, "message": message, "line": line, "text": text}


def said(error: BaseException) -> str:
    """Its message on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        return ""
    return text if len(text) <= LONG else f"{text[:LONG].rsplit(' ', 1)[0]} …"


# -- a picture -------------------------------------------------------------------------------------


def drawn(file: str, own: str, whole: str) -> dict[str, Any]:
    """A picture, as text, of the first function of the reader that the tests call.

    Nothing, where the tests call none at their top, or with arguments that a loop makes.
    """
    made = module(file)
    try:
        exec(compile(own, file, "exec", dont_inherit=True), vars(made))
        functions = {node.name for node in ast.parse(own).body if isinstance(node, ast.FunctionDef)}
        for statement in ast.parse(whole).body[len(ast.parse(own).body) :]:
            if call := called(statement, functions):
                values = [value(argument, made) for argument in call.args]
                named = {str(word.arg): value(word.value, made) for word in call.keywords}
                from seejax import see

                picture = see.trace(value(call.func, made), *values, **named)
                return {"text": str(picture)}
            if not isinstance(statement, ast.Assert):
                tests = ast.Module([statement], [])
                exec(compile(tests, file, "exec", dont_inherit=True), vars(made))
    except BaseException as error:
        return wrong(error, file, whole)
    return {"text": ""}


def called(statement: ast.stmt, functions: set[str]) -> ast.Call | None:
    """The first call, with arguments, of one of these functions."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            starred = any(isinstance(argument, ast.Starred) for argument in node.args)
            named = node.func.id in functions and (node.args or node.keywords)
            if named and not starred and all(word.arg for word in node.keywords):
                return node
    return None


def value(node: ast.expr, made: ModuleType) -> Any:
    return eval(compile(ast.Expression(node), "<tests>", "eval"), vars(made))


# -- the process -----------------------------------------------------------------------------------


def work(question: str) -> dict[str, Any]:
    """The answer; the parts of the file are taken here, so what was run is what is kept."""
    from seejax.practice.exercises import book

    asked = json.loads(question)
    file = asked["file"]
    try:
        text = importlib.util.decode_source(Path(file).read_bytes())
    except OSError as error:
        return {"unread": error.strerror}
    except (SyntaxError, UnicodeDecodeError) as error:
        return {"kind": "SyntaxError", "message": said(error), "line": 1, "text": ""}
    exercise = book(asked["lang"])[asked["name"]]
    return (drawn if asked["see"] else checked)(file, *exercise.parts(text))


if __name__ == "__main__":
    sys.path.append(str(HERE.parents[1]))
    from seejax.see._child import answered

    answered(lambda: work(sys.argv[1]), *sys.argv[2:])
