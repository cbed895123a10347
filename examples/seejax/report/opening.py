"""How a program of the script is opened in `see.trace`."""

import ast
import math
import shlex
from pathlib import Path

from seejax.report.summary import Program, near

LONG = 500  # characters of a command
LIMIT_S = 60  # what a run of seejax.see may take by itself


def command(program: Program, wall_s: float) -> str:
    """What to type; "" if a command cannot name the function, or its arguments.

    The command runs the script first, so where that takes long it needs another limit.
    """
    if not program.function or program.arguments is None:
        return ""
    file = near(program.stack[-1][0])
    if program.function not in global_names(Path(file)):
        return ""
    limit = [f"--limit={math.ceil(4 * wall_s)}"] if 2 * wall_s > LIMIT_S else []
    words = ["python", "-m", "seejax.see", *limit, f"{file}:{program.function}", *program.arguments]
    typed = shlex.join(words)
    return typed if len(typed) <= LONG else ""


def global_names(file: Path) -> set[str]:
    """The names that a script has whoever imports it: not those behind `if __name__ == …`."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign):
            nodes = [node for target in statement.targets for node in ast.walk(target)]
            names |= {node.id for node in nodes if isinstance(node, ast.Name)}
        elif isinstance(statement, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in statement.names}
    return names


def line(program: Program) -> str:
    """What to write before the line that calls it; "" if no jitted function is called there."""
    return f"from seejax import see; see.trace({program.call}).show()" if program.call else ""
