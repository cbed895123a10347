"""What can be changed in a cell, one thing at a time, so that a check of it should fail."""

import ast
import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

from tools.book import DOCS

REPORT = DOCS / "data" / "mutation.json"

# What a check holds for whatever they are, or only how near is near enough: not worth a mutant.
ANY = {"key", "default_rng", "PRNGKey", "fold_in", "print", "round", "glue", "subplots"}
NEAR = {"atol", "rtol", "eps", "decimals", "seed", "repeat", "number", "timeout", "figsize"}
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Change(NamedTuple):
    """One thing to change in a cell."""

    line: int  # in the cell, from 1
    what: str
    check: int | None  # in which check of the cell it is, if in one
    node: int  # as ast.walk counts them
    field: str
    value: Any  # a number, a string or an operator; of a list, the place that is left out


def name_of(function: ast.expr) -> str:
    """The last name of what is called: `key` of `jax.random.key`."""
    return getattr(function, "attr", getattr(function, "id", ""))


def is_check(node: ast.AST) -> TypeGuard[ast.stmt]:
    """An assert, or a call of a function that checks, such as `check_grads` or `assert_equal`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return name_of(node.value.func).startswith(("assert_", "check_"))
    return isinstance(node, ast.Assert)


def checks_in(tree: ast.AST) -> list[ast.stmt]:
    found = [node for node in ast.walk(tree) if is_check(node)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def checks(source: str) -> list[ast.stmt]:
    """The checks in the source of a cell, in their order.

    >>> [check.lineno for check in checks("x = 1\\nassert x\\nfor y in x:\\n    check_grads(y)")]
    [2, 4]
    """
    return checks_in(ast.parse(source))


def spoilt(node: ast.AST) -> Iterator[tuple[str, str, Any]]:
    """What can be changed in one node: what is said of it, its field, and the field's new value."""
    match node:
        case ast.Constant(value=bool(old)):
            yield f"{old} → {not old}", "value", not old
        case ast.Constant(value=str(old)):
            yield f"{old!r} → {old + '?'!r}", "value", old + "?"
        case ast.Constant(value=int(old)):
            yield f"{old} → {old + 1}", "value", old + 1
        case ast.Constant(value=float(old)):
            new = 2 * old if old else 1.0
            yield f"{old} → {new}", "value", new
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            new = SWAPS[type(op)]
            yield f"{type(op).__name__} → {new.__name__}", "op", new()
        case ast.UnaryOp(op=ast.USub()):
            yield "-x → +x", "op", ast.UAdd()
        case ast.Call(keywords=[_, *_] as keywords):
            for place, word in enumerate(keywords):
                if word.arg and word.arg not in NEAR:
                    yield f"without {word.arg}", "keywords", place
        case ast.FunctionDef(decorator_list=decorators):
            for place, one in enumerate(decorators):
                yield f"without @{ast.unparse(one)}", "decorator_list", place


def worth(node: ast.AST, checked: bool = False) -> Iterator[ast.AST]:
    """The nodes of a tree whose change a check should see; `checked` is what it says itself."""
    match node:
        case ast.Call(func=function) if not checked and name_of(function) in ANY:
            return
        case ast.keyword(arg=name) if name in NEAR:
            return
        case ast.Assert(test=test):  # and not its message
            yield from worth(test, True)
            return
        case ast.Compare(left=left, ops=ops, comparators=[*rest]):
            exact = all(isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.In) for op in ops)
            for side in [left, *rest]:
                if exact or not isinstance(side, ast.Constant):  # a bound may be generous
                    yield from worth(side, checked)
            return
        case ast.JoinedStr():
            return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from worth(child, checked)


def changes(source: str) -> list[Change]:
    """What can be changed in a cell; strings only where a check compares them.

    >>> [change.what for change in changes("y = f(2, n=3) - 1\\nassert y == 0.5 and y < 9")]
    ['Sub → Add', 'without n', '2 → 3', '3 → 4', '1 → 2', 'And → Or', '0.5 → 1.0']
    """
    tree = ast.parse(source)
    number = {id(node): n for n, node in enumerate(ast.walk(tree))}
    own = {id(node): n for n, check in enumerate(checks_in(tree)) for node in ast.walk(check)}
    return [
        Change(getattr(node, "lineno", 1), what, own.get(id(node)), number[id(node)], field, value)
        for node in worth(tree)
        for what, field, value in spoilt(node)
        if id(node) in own or not isinstance(value, str)
    ]


def changed(source: str, *made: Change) -> ast.Module:
    """A cell with these changes.

    >>> source = "@jit\\ndef f(x):\\n    return g(x, y=1, z=2)"
    >>> for change in changes(source):
    ...     print(ast.unparse(changed(source, change)).replace("\\n    ", " ").replace("\\n", " "))
    def f(x): return g(x, y=1, z=2)
    @jit def f(x): return g(x, z=2)
    @jit def f(x): return g(x, y=1)
    @jit def f(x): return g(x, y=2, z=2)
    @jit def f(x): return g(x, y=1, z=3)
    """
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    for change in made:
        node = nodes[change.node]
        if isinstance(old := getattr(node, change.field), list):
            del old[change.value]
        else:
            setattr(node, change.field, change.value)
    return ast.fix_missing_locations(tree)


def digest(sources: list[str]) -> str:
    """Tells whether a report speaks of a page's cells as they are."""
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]


def reports() -> dict[str, dict[str, Any]]:
    """The last report of every page that has one, by the page's name."""
    return json.loads(REPORT.read_text("utf8")) if REPORT.exists() else {}
