"""Names that a package imports when they are asked for, and not before.

The package says where they come from as a type checker reads it, and nowhere else:

    if TYPE_CHECKING:
        from seejax.see._trace import Trace, trace

    __all__ = ["Trace", "trace"]
    __getattr__, __dir__ = lazy.attach(__name__)

So `seejax.see.trace` imports one picture and not all of them, `python -m seejax.training` can say
what is not installed, and the book's build sees which modules a page depends on.
"""

import ast
import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def sources(code: str) -> dict[str, str]:
    """The module that each name comes from which is imported under `if TYPE_CHECKING`.

    >>> sources("if TYPE_CHECKING:\\n    from seejax.see._trace import Trace, trace")
    {'Trace': 'seejax.see._trace', 'trace': 'seejax.see._trace'}
    """
    return {
        name.name: imported.module
        for block in ast.parse(code).body
        if isinstance(block, ast.If) and is_type_checking(block)
        for imported in block.body
        if isinstance(imported, ast.ImportFrom) and imported.module
        for name in imported.names
    }


def is_type_checking(node: ast.AST) -> bool:
    """Whether a statement is `if TYPE_CHECKING`, which never runs."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names are imported when asked for."""
    spec = find_spec(package)
    assert spec and spec.origin
    modules = sources(Path(spec.origin).read_text("utf8"))
    namespace = vars(sys.modules[package])

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        namespace[name] = getattr(importlib.import_module(modules[name]), name)
        return namespace[name]

    def __dir__() -> list[str]:
        return sorted({*namespace, *modules})

    return __getattr__, __dir__
