"""A module of this repository as text: its signatures and docstrings, without what they do."""

import ast
from collections.abc import Iterator

from book.keys import file_of

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def stub(node: Definition) -> Definition:
    """A definition without its code: a function's docstring; of a class, what is public besides."""
    docstring = ast.get_docstring(node, clean=False)
    body: list[ast.stmt] = [ast.Expr(ast.Constant(docstring))] if docstring else []
    if isinstance(node, ast.ClassDef):
        body += [each for each in node.body if isinstance(each, ast.AnnAssign)]
        body += [stub(each) for each in public(node)]
    node.body = body or [ast.Expr(ast.Constant(...))]
    return node


def public(tree: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node


def definitions(module: str) -> Iterator[Definition]:
    """What a module defines; a package, what it takes from its own modules."""
    path = file_of(module)
    assert path, f"{module} is no module of this repository"
    tree = ast.parse(path.read_text("utf8"))
    yield from public(tree)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{module}."):
            taken = {each.name for each in node.names}
            yield from (each for each in definitions(node.module or "") if each.name in taken)


def stubs(module: str) -> str:
    """What a module offers, as Python.

    >>> stubs("seejax.lesson.recorded")[:19]
    'def load(name: str)'
    """
    return "\n\n".join(ast.unparse(stub(node)) for node in definitions(module))
