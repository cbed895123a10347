"""A hint that goes as far as the reader has come: it is made from the solution and the attempt.

First the names that the solution calls and the attempt does not: what to look up, not how to put
it together. Who has all of them is shown the next line that is missing; who has all lines, the why.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from seejax.practice.exercises import Exercise


class Hint(NamedTuple):
    """One of the three."""

    names: list[str]
    line: str
    why: str


def hint(exercise: Exercise, attempt: str) -> Hint:
    """The hint for what a reader has written.

    Args:
      attempt: the reader's code, without the tests; of one that is no Python yet, where it started
        is taken.
    """
    start, solution = exercise.start, exercise.solution
    imports = f"{start}\n{solution}"
    try:
        written = names(attempt, imports)
    except (SyntaxError, ValueError):
        written = names(start, imports)
    if missing := [name for name in names(solution, imports) if name not in written]:
        return Hint(missing, "", "")
    have = {bare(line) for line in attempt.splitlines()}
    lines = (line for line in solution.splitlines() if bare(line) and bare(line) not in have)
    line = next(lines, "").strip()
    return Hint([], line, "" if line else exercise.why)


def names(code: str, imports: str) -> list[str]:
    """The names of libraries that code uses, in the order of its text, as it writes them.

    >>> names("def f(x): return jax.vmap(jnp.sin)(x.T)", "import jax, jax.numpy as jnp")
    ['jax.vmap', 'jnp.sin']
    """
    bound = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(ast.parse(imports))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return list(dict.fromkeys(used(ast.parse(code), bound)))


def used(node: ast.AST, bound: set[str]) -> Iterator[str]:
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id in bound:
        yield ast.unparse(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from used(child, bound)


def bare(line: str) -> str:
    """A line of code without its comment and its spaces."""
    return "".join(line.partition("  #")[0].split())
