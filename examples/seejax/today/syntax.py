"""A module's syntax tree, read and never run: what stands where, and what it is in."""

import functools
import re
from collections.abc import Iterator, Mapping

import libcst as cst
from libcst.helpers import get_full_name_for_node as full_name
from libcst.metadata import (
    CodeRange,
    ExpressionContextProvider,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)


def lines_of(source: str) -> list[str]:
    r"""Its lines with their ends, as Python counts lines.

    >>> lines_of("a\r\nb\fc\n")
    ['a\r\n', 'b\x0cc\n']
    """
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", source)


class Syntax:
    """The tree of a module, and its text."""

    def __init__(self, source: str) -> None:
        self.lines = lines_of(source)
        self.wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
        self.module = self.wrapper.module
        self.wrapper.resolve_many([ParentNodeProvider, ExpressionContextProvider])  # in one pass
        self.parents = self.wrapper.resolve(ParentNodeProvider)
        self.contexts = self.wrapper.resolve(ExpressionContextProvider)
        self.imports = [
            node for node in self.parents if isinstance(node, cst.Import | cst.ImportFrom)
        ]

    @functools.cached_property
    def positions(self) -> Mapping[cst.CSTNode, CodeRange]:
        return self.wrapper.resolve(PositionProvider)

    @functools.cached_property
    def scopes(self) -> list[Scope]:
        return list(dict.fromkeys(scope for scope in self.scoped.values() if scope))

    @functools.cached_property
    def scoped(self) -> Mapping[cst.CSTNode, Scope | None]:
        return self.wrapper.resolve(ScopeProvider)

    def scope(self, node: cst.CSTNode) -> Scope | None:
        while node not in self.scoped and node is not self.module:
            node = self.parents[node]
        return self.scoped.get(node)

    def binder(self, node: cst.CSTNode) -> cst.CSTNode:
        """The simple statement that a node stands in, if it does."""
        statement = node
        while not isinstance(statement, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            statement = self.parents[statement]
        return statement if isinstance(statement, cst.BaseSmallStatement) else node

    def around(self, node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
        """What a node stands in, from within, and where in it."""
        while node is not self.module:
            node, inner = self.parents[node], node
            yield node, inner

    def start(self, node: cst.CSTNode) -> tuple[int, int]:
        at = self.positions[node].start
        return at.line, at.column

    def end(self, node: cst.CSTNode) -> tuple[int, int]:
        at = self.positions[node].end
        return at.line, at.column

    def precedes(self, node: cst.CSTNode, use: cst.CSTNode) -> bool:
        """Whether every way to the use leads through this statement."""
        block = self.parents[node]
        if isinstance(block, cst.SimpleStatementLine):
            block = self.parents[block]
        inside = any(outer is block for outer, _ in self.around(use))
        return inside and self.start(node) < self.start(use)

    def indent(self, node: cst.CSTNode) -> str:
        """What stands before a statement on its line."""
        line, column = self.start(node)
        return self.lines[line - 1][:column]

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)


def name_of(node: cst.CSTNode | None) -> str:
    """The dotted name that a node spells; "" if it is none."""
    return (full_name(node) or "") if node else ""


def local_of(alias: cst.ImportAlias) -> str:
    """The name that an import binds in the file."""
    return name_of(alias.asname.name if alias.asname else alias.name)


def root_of(name: str) -> str:
    return name.partition(".")[0]


def modules_of(node: cst.Import | cst.ImportFrom) -> list[str]:
    """The modules that a statement imports, or imports from."""
    if isinstance(node, cst.Import):
        return [name_of(alias.name) for alias in node.names]
    return [name_of(node.module)] if not node.relative else []
