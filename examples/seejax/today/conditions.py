"""Under which conditions a name is reached: tests of the version, and handlers of its absence."""

import functools
import re
from collections.abc import Iterator
from operator import eq, ge, gt, le, lt, ne

import libcst as cst
from libcst import matchers as m
from libcst.metadata import ExpressionContext

from seejax.today.bindings import Bindings, is_ours, spelled
from seejax.today.names import LIBRARIES, Change, change, changes, newest
from seejax.today.syntax import local_of, name_of, root_of

MISSING = {"ImportError", "ModuleNotFoundError", "AttributeError"}
ABSENT = MISSING | {"Exception"}
VERSION = re.compile(  # of a library: jax.__version__, version("jax"), JAX_VERSION
    r"(?<![a-z])(?:(jax|flax|optax)(?:lib)?(?:\.[\w.]*|_\w*)?version"
    r"|version\w*\W{0,4}(jax|flax|optax)(?:lib)?(?![a-z]))",
    re.IGNORECASE,
)
RAISES = re.compile(r"(^|\.)(raises|assertRaises)(Regex)?$")
COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
GIVES = m.Import() | m.ImportFrom() | m.Assign() | m.Return()
GIVES |= m.FunctionDef() | m.ClassDef()


class Conditions(Bindings):
    """Whether a module itself sees to it that a name may be missing."""

    @functools.cached_property
    def own(self) -> set[str]:
        """The names of a library that the file itself sets: jax.tree_map = ..."""
        found = set()
        for access in self.accesses:
            node = self.chain(access)[-1]
            name = spelled(node, self.bound(self.referents(access)))
            if self.contexts.get(node) in (ExpressionContext.STORE, ExpressionContext.DEL):
                found.add(name)
            elif isinstance(call := self.parents[self.parents[node]], cst.Call):
                text = call.args[1].value if len(call.args) > 1 else None
                if name_of(call.func).endswith("setattr") and isinstance(text, cst.SimpleString):
                    found.add(f"{name}.{text.evaluated_value}")
        return found

    def handled(self, node: cst.CSTNode, found: Change) -> bool:
        """Whether the file itself sets the name, or sees to it that it may be missing."""
        return found.old in self.own or self.guarded(node, found)

    def guarded(self, node: cst.CSTNode, found: Change) -> bool:
        """Whether it is not reached today, or a handler gives another name for it."""
        if any(self.holds(test, found) is (not so) for test, so in self.conditions(node)):
            return True
        return any(self.caught(outer, inner, node) for outer, inner in self.around(node))

    def caught(self, outer: cst.CSTNode, inner: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether another name is there when this one is missing, or its absence is the point."""
        match outer:
            case cst.Try() if inner is outer.body:
                return self.falls_back(outer, node)
            case cst.Try() if isinstance(inner, cst.ExceptHandler):
                return self.is_fallback(outer, inner, node)
            case cst.With() if inner is outer.body:  # with pytest.raises(AttributeError): ...
                called = [item.item for item in outer.items if isinstance(item.item, cst.Call)]
                checks = [c for c in called if RAISES.search(name_of(c.func))]
                asked = any(MISSING & self.named(arg.value) for c in checks for arg in c.args)
                return asked and len(inner.body) == 1 and self.is_the_point(node)
        return False

    def is_the_point(self, node: cst.CSTNode) -> bool:
        """Whether a statement is the name, or a call of it: nothing else in it comes before."""
        outer = self.parents[node]
        while isinstance(outer, cst.Attribute) or (
            isinstance(outer, cst.Call) and outer.func is node
        ):
            node, outer = outer, self.parents[outer]
        return isinstance(outer, cst.Expr | cst.Assign)

    def conditions(self, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """The tests on the way to a node, and whether each has to hold."""
        for outer, inner in self.around(node):
            if isinstance(outer, cst.If | cst.IfExp) and inner is not outer.test:
                yield outer.test, inner is outer.body
            if isinstance(outer, cst.BooleanOperation) and inner is outer.right:
                yield outer.left, isinstance(outer.operator, cst.And)

    def versioned(self, node: cst.CSTNode) -> str:
        """A word about it, where a test on the way asks for the version of a library."""
        asked = any(VERSION.search(self.expanded(test)) for test, _ in self.conditions(node))
        return "under a test of the version: " if asked else ""

    def holds(self, test: cst.CSTNode, found: Change) -> bool | None:
        """Whether a condition holds today; None where that cannot be seen."""
        match test:
            case cst.Name(value=name) if self.values.get(name) and self.rebound[name] == 1:
                return self.holds(self.values[name][0], found)
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                return {True: False, False: True, None: None}[self.holds(inner, found)]
            case cst.BooleanOperation(operator=sign, left=left, right=right):
                sides = {self.holds(left, found), self.holds(right, found)}
                enough = isinstance(sign, cst.Or)
                return enough if enough in sides else None if None in sides else not enough
            case cst.Comparison(
                left=cst.Call() as asked,
                comparisons=[cst.ComparisonTarget(operator=sign, comparator=cst.Name("None"))],
            ) if isinstance(sign, cst.Is | cst.IsNot):
                value = self.holds(asked, found)
                return None if value is None else value is isinstance(sign, cst.IsNot)
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget() as target]):
                return self.compared(left, self.code(target.operator).strip(), target.comparator)
            case cst.Call(args=[asked, cst.Arg(value=cst.SimpleString() as text), *default]):
                given = self.code(test.func), *(self.code(arg.value) for arg in default)
                if given in (("hasattr",), ("getattr", "None"), ("getattr", "False")):
                    return self.there(self.meant(asked.value), str(text.evaluated_value), found)
        return None

    def there(self, owner: str, leaf: str, found: Change) -> bool | None:
        """Whether a name is there today that the file asks for where it uses an old one."""
        name, advice = f"{owner}.{leaf}", f"{found.now} {found.write}"
        if found.method and not is_ours(owner):  # of an object: hasattr(x, "to_py")
            mentioned = leaf in re.findall(r"\.(\w+)", advice)
            return True if mentioned else False if found.old.endswith(f".{leaf}") else None
        if not is_ours(name):
            return None
        if (gone := change(name)) and gone.kind == "removed":
            return False
        new = {*re.findall(r"[\w.]+", advice), *(c.now for c in changes().values())}
        return True if any(f"{each}.".startswith(f"{name}.") for each in new) else None

    def compared(self, left: cst.CSTNode, sign: str, right: cst.CSTNode) -> bool | None:
        """Whether a comparison with a version holds today, as Python would have it."""
        first, second = (VERSION.search(self.expanded(side)) for side in (left, right))
        asked, given = first or second, right if first else left
        if not asked or (first and second) or sign not in COMPARED:
            return None
        today, version = newest((asked[1] or asked[2]).lower()), self.code(given)
        if isinstance(given, cst.SimpleString):
            sides = today, given.evaluated_value  # compared as text
        elif re.fullmatch(r"\D*\d+((\.|,\s*)\d+)+\D*", version) and not m.matches(given, m.Float()):
            sides = [[int(n) for n in re.findall(r"\d+", text)] for text in (today, version)]
            if part := re.search(r"\[0?:(\d)\]", self.expanded(left if first else right)):
                sides[0] = sides[0][: int(part[1])]  # jax.__version_info__[:2]
        else:
            return None
        return COMPARED[sign](*(sides if first else reversed(sides)))

    def expanded(self, node: cst.CSTNode) -> str:
        """The code of an expression, and of what its names are, where that speaks of a version."""
        text = self.code(node)
        values = [v for name in re.findall(r"\w+", text) for v in self.values.get(name, ())]
        return " ".join([text, *map(self.code, values)])

    @functools.cached_property
    def values(self) -> dict[str, list[cst.BaseExpression]]:
        """What is assigned to each name, wherever it speaks of a version or asks for a name."""
        assigned: dict[str, list[cst.BaseExpression]] = {}
        noted = m.Dict() | m.Arg(keyword=m.Name())  # among other things, as in a log
        for node in self.parents:
            if not isinstance(node, cst.Assign | cst.AnnAssign | cst.NamedExpr) or not node.value:
                continue
            code = self.code(node.value)
            if not (VERSION.search(code) or "hasattr(" in code) or m.findall(node.value, noted):
                continue
            several = isinstance(node, cst.Assign)
            for target in [each.target for each in node.targets] if several else [node.target]:
                parts = getattr(target, "elements", None)  # major, minor, *_ = ...
                for each in [part.value for part in parts] if parts else [target]:
                    assigned.setdefault(name_of(each), []).append(node.value)
        return assigned

    def falls_back(self, node: cst.Try, use: cst.CSTNode) -> bool:
        """Whether a handler gives what the use gives: from elsewhere, and no mere stand-in."""
        wanted = self.targets(use if isinstance(use, cst.ImportAlias) else self.binder(use))
        for handler in node.handlers:
            if wanted and ABSENT & self.named(handler.type):
                given = [self.targets(s) for s in m.findall(handler, GIVES) if self.gives_name(s)]
                if wanted <= set().union(*given):
                    return True
        return False

    def is_fallback(self, node: cst.Try, handler: cst.ExceptHandler, use: cst.CSTNode) -> bool:
        """Whether what is tried gives it, by names that are there: then nothing comes here."""
        wanted = self.targets(use if isinstance(use, cst.ImportAlias) else self.binder(use))
        tried = [s for s in m.findall(node.body, GIVES) if self.gives_name(s)]
        given = set().union(*(self.targets(s) for s in tried if not self.is_old(s)))
        caught = self.named(handler.type)
        if m.findall(node.body, m.Call()) and not caught <= MISSING:  # a call may fail otherwise
            return False
        return bool(wanted and caught & ABSENT) and wanted <= given

    def named(self, caught: cst.CSTNode | None) -> set[str]:
        """The errors that a handler names; a bare `except:` catches all of them."""
        return set(re.findall(r"\w+", self.code(caught))) if caught else ABSENT

    def is_old(self, statement: cst.CSTNode) -> bool:
        """Whether it spells a name that is gone."""
        match statement:
            case cst.Import(names=[*aliases]):
                names = [name_of(alias.name) for alias in aliases]
            case cst.ImportFrom(module=module, names=[*aliases]):
                names = [f"{name_of(module)}.{name_of(alias.name)}" for alias in aliases]
            case _:
                names = [self.meant(n) for n in m.findall(statement, m.Name() | m.Attribute())]
        found = [changes().get(f"import {name}") or change(name) for name in names]
        return any(each and each.kind == "removed" for each in found)

    def gives_name(self, statement: cst.CSTNode) -> bool:
        """Whether it imports or defines a name, or gives something of a library."""
        value = getattr(statement, "value", None)
        names = m.findall(value, m.Name()) if value else ()
        return not isinstance(statement, cst.Assign | cst.Return) or any(
            root_of(self.meant(name)) in (*LIBRARIES, "numpy") for name in names
        )

    def targets(self, node: cst.CSTNode) -> set[str]:
        """What a statement binds, as it is written; "return" for what it returns."""
        match node:
            case cst.Import(names=[*aliases]) | cst.ImportFrom(names=[*aliases]):
                return set(map(local_of, aliases))
            case cst.ImportAlias():
                return {local_of(node)}
            case cst.Assign(targets=[*targets]):
                return {self.code(target.target) for target in targets}
            case cst.FunctionDef() | cst.ClassDef():
                return {node.name.value}
        return {"return"} if isinstance(node, cst.Return) else set()
