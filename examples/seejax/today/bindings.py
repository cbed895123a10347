"""What the names of a module stand for, where they are used."""

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable

import libcst as cst
from libcst import matchers as m
from libcst.metadata import (
    Access,
    Assignment,
    BaseAssignment,
    ExpressionContext,
    FunctionScope,
    ImportAssignment,
)

from seejax.today.names import LIBRARIES, change
from seejax.today.syntax import Syntax, local_of, name_of, root_of


class Bindings(Syntax):
    """The names of a module, and the things of a library that they are bound to."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.names: dict[tuple[BaseAssignment, int], str | None] = {}
        self.bindings: dict[Access, Collection[BaseAssignment]] = {}

    @functools.cached_property
    def accesses(self) -> list[Access]:
        found = {access.node: access for scope in self.scopes for access in scope.accesses}
        return [a for a in found.values() if isinstance(a.node, cst.Name | cst.Attribute)]

    @functools.cached_property
    def reads(self) -> dict[cst.CSTNode, Access]:
        """The accesses, by what begins with them: `a`, `a.b` and `a.b.c`."""
        return {node: access for access in self.accesses for node in self.chain(access)}

    def chain(self, access: Access) -> list[cst.CSTNode]:
        """The name, and the attributes of attributes that begin with it."""
        first = access.node
        while isinstance(first, cst.Attribute):
            first = first.value
        chain: list[cst.CSTNode] = [first]
        while isinstance(outer := self.parents[chain[-1]], cst.Attribute):
            if outer.value is not chain[-1]:
                break
            chain.append(outer)
        return chain

    def known(self, referents: Collection[BaseAssignment], depth: int = 9) -> bool:
        """Whether a name is one thing of a library, and nothing else anywhere."""
        if {self.assigned(a, 9) for a in referents} - {None} != {self.bound(referents)}:
            return False
        for a in referents:
            value = None if isinstance(a, ImportAssignment) else self.value(a)
            if not value or m.matches(value, m.Name("None")):
                continue
            if not depth or isinstance(getattr(a, "node", None), cst.Param):
                return False
            if not self.known(self.behind(value), depth - 1):
                return False
        return True

    def value(self, assignment: BaseAssignment) -> cst.BaseExpression | None:
        """What is given to a name, or is given where a call leaves the argument out."""
        node = assignment.node if isinstance(assignment, Assignment) else None
        if isinstance(node, cst.Param):
            default = node.default
            return None if not default or m.matches(default, m.Name("None")) else default
        return self.given(node) if node else None

    def given(self, target: cst.CSTNode) -> cst.BaseExpression | None:
        outer = self.parents.get(target)
        if isinstance(outer, cst.AssignTarget) and isinstance(
            own := self.parents[outer], cst.Assign
        ):
            return own.value
        if isinstance(outer, cst.AnnAssign | cst.NamedExpr) and outer.target is target:
            return outer.value
        if isinstance(outer, cst.Element) and isinstance(left := self.parents[outer], cst.Tuple):
            right = self.given(left)  # of a, b = x, y
            if isinstance(right, cst.Tuple) and len(right.elements) == len(left.elements):
                return right.elements[left.elements.index(outer)].value
        return None

    def behind(self, node: cst.CSTNode) -> Collection[BaseAssignment]:
        """What the first name of an expression can be bound to."""
        access = self.reads.get(node)
        return self.referents(access) if access else set()

    def meant(self, node: cst.CSTNode) -> str:
        """The dotted name that an expression spells, with what its first name is bound to."""
        names = {self.assigned(a, 9) for a in self.behind(node)} - {None, ""}
        return spelled(node, names.pop() or "") if len(names) == 1 else name_of(node)

    # -- the order of things

    def referents(self, access: Access) -> Collection[BaseAssignment]:
        """What a name can be bound to where it is used: nothing from before it was bound anew."""
        if access not in self.bindings:
            self.bindings[access] = access.referents  # for `x = x.y`, which asks again
            self.bindings[access] = self.live(access)
        return self.bindings[access]

    def live(self, access: Access) -> Collection[BaseAssignment]:
        use, scope = self.chain(access)[0], access.scope
        found = {a for a in scope[name_of(use)] if isinstance(a, Assignment)}
        names = {self.assigned(a, 9) for a in found} if len(found) > 1 else set()
        if len(names) < 2 or not any(map(is_ours, filter(None, names))):
            return found if names else access.referents
        owner, later = next(iter(found)).scope, False
        while scope is not owner and scope is not scope.parent:
            later = later or isinstance(scope, FunctionScope)  # it may run after all of the text
            scope = scope.parent
        at, loops = self.start(use), self.loops(use)
        binders = {a: self.binder(a.node) for a in found}
        before = {a: end for a, b in binders.items() if (end := self.end(b)) <= at}
        sure = [end for a, end in before.items() if self.precedes(binders[a], use)]
        after = {a for a in found - set(before) if later or loops & self.loops(a.node)}
        elsewhere = {a for a in found if self.scope(a.node) is not owner}  # by `global name`
        last = {a for a, end in before.items() if end >= max(sure, default=end)}
        return last | after | elsewhere or access.referents

    def loops(self, node: cst.CSTNode) -> set[cst.CSTNode]:
        return {outer for outer, _ in self.around(node) if isinstance(outer, cst.For | cst.While)}

    def bound(self, referents: Iterable[BaseAssignment], depth: int = 9) -> str:
        """What the assignments bind, where all of them bind the same thing of a library."""
        names = {self.assigned(a, depth) for a in referents} - {None}
        ours = {name for name in names if name and is_ours(name)}
        return ours.pop() if len(ours) == 1 and "" not in names else ""

    def assigned(self, assignment: BaseAssignment, depth: int) -> str | None:
        """The dotted name that is bound; "" for anything else, None for a stand-in."""
        if (assignment, depth) not in self.names:
            self.names[assignment, depth] = self._assigned(assignment, depth)
        return self.names[assignment, depth]

    def _assigned(self, assignment: BaseAssignment, depth: int) -> str | None:
        if isinstance(assignment, ImportAssignment):
            return imported(assignment.node, assignment.name)
        if not depth or not (value := self.value(assignment)):
            return ""
        if m.matches(value, m.Name("None")):
            return None
        dotted = name_of(value) if m.matches(value, m.Name() | m.Attribute()) else ""
        if not dotted or not re.fullmatch(r"[\w.]+", dotted):
            return ""
        _, _, rest = dotted.partition(".")
        bound = self.bound(self.behind(value), depth - 1)
        if not bound or ((found := change(bound)) and len(found.old) <= len(bound)):
            return ""
        name = f"{bound}.{rest}" if rest else bound
        return "" if change(name) else name  # told where it is assigned

    @functools.cached_property
    def rebound(self) -> Counter[str]:
        """How often something else than an import binds, or unbinds, a name in the file."""
        binding = cst.Param | cst.MatchAs | cst.MatchStar | cst.MatchMapping | cst.NameItem
        return Counter(
            node.value
            for node in self.parents
            if isinstance(node, cst.Name)
            if isinstance(self.parents[node], binding)
            or self.contexts.get(node) in (ExpressionContext.STORE, ExpressionContext.DEL)
        )


def spelled(node: cst.CSTNode, bound: str) -> str:
    """The dotted name of an attribute of what the first name is bound to."""
    return ".".join([bound, *name_of(node).split(".")[1:]])


def is_ours(name: str) -> bool:
    return root_of(name) in LIBRARIES


def imported(node: cst.CSTNode, local: str) -> str:
    """What the local name of an import stands for; "" for an import within the package."""
    if isinstance(node, cst.ImportFrom) and node.relative:
        return ""
    if not isinstance(node, cst.Import | cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
        return ""
    for alias in node.names:
        name = name_of(alias.name)
        if isinstance(node, cst.ImportFrom):
            if local == local_of(alias):
                return f"{name_of(node.module)}.{name}"
        elif alias.asname:
            if local == local_of(alias):
                return name
        elif root_of(local) == root_of(name):
            return root_of(name)
    return ""
