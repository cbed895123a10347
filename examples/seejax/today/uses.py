"""The old names that a module uses, found in its syntax tree: nothing is imported or run."""

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node as _full_name
from libcst.metadata import (
    Access,
    Assignment,
    BaseAssignment,
    CodePosition,
    CodeRange,
    ExpressionContext,
    ExpressionContextProvider,
    GlobalScope,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from seejax.today.names import LIBRARIES, Change, change, changes, methods, spelled

# Modules that need no import of their own once their package is imported.
LOADED = {"jax", "jax.dtypes", "jax.errors", "jax.lax", "jax.numpy", "jax.profiler", "jax.sharding"}
LOADED |= {"jax.tree", "jax.tree_util", "jax.interpreters", "jax.nn", "jax.random"}
LOADED |= {"functools", "itertools", "math"}
LOADED |= {"flax", "flax.linen", "optax", "optax.contrib", "optax.tree_utils"}
LOADED |= {"optax.second_order"}

ABSENT = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"}
VERSION = re.compile(  # of a library: jax.__version__, version("jax"), JAX_VERSION
    r"(?:jax|flax|optax)\w*(?:\.\w+)*?[._]*version|version\w*\W{0,4}(?:jax|flax|optax)",
    re.IGNORECASE,
)
BINDS = (cst.Import, cst.ImportFrom, cst.Assign, cst.Return, cst.Pass)


@dataclass(frozen=True, order=True)
class Edit:
    """Text in place of what stands from start to end; both are (line, column), as LibCST counts."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Use:
    """One place where a file uses an old name.

    Args:
      line, column: where it begins, both from 1.
      change: what has changed about it.
      edits: the renaming; none where it has to be written anew by hand.
    """

    line: int
    column: int
    change: Change
    edits: tuple[Edit, ...] = ()


def find(source: str) -> list[Use]:
    """The uses of old names in a module, in the order of the text.

    Args:
      source: Python 3.
    Raises:
      SyntaxError: it is not.

    >>> [use] = find("import jax.numpy as np\\nx = np.product(y)\\n")
    >>> use.line, use.column, use.change.sentence()
    (2, 5, 'jax.numpy.product was removed in jax 0.4.16; write jax.numpy.prod')
    >>> use.edits
    (Edit(start=(2, 4), end=(2, 14), text='np.prod'),)
    >>> find("def f(jax): return jax.tree_map")  # a name of the file's own
    []
    """
    if not spelled(
        ast.parse(source)
    ):  # most files: LibCST takes half a second for a thousand lines
        return []
    return sorted(_Module(source).uses(), key=lambda use: (use.line, use.column))


def edited(source: str, edits: Collection[Edit]) -> str:
    """The text after the edits; of two that overlap, the first is made.

    >>> edited("x = np.product(y)", [Edit((1, 4), (1, 14), "np.prod")])
    'x = np.prod(y)'
    """
    lines = lines_of(source)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    done, at = "", 0
    for edit in sorted(set(edits)):
        begin, end = (starts[line - 1] + column for line, column in (edit.start, edit.end))
        if begin >= at:
            done, at = done + source[at:begin] + edit.text, end
    return done + source[at:]


def lines_of(source: str) -> list[str]:
    r"""Its lines with their ends, as Python counts lines.

    >>> lines_of("a\r\nb\fc\n")
    ['a\r\n', 'b\x0cc\n']
    """
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", source)


class _Module:
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
        named = {_root(name) for node in self.imports for name in _modules(node)}
        self.libraries = named & set(LIBRARIES)
        self.names: dict[tuple[BaseAssignment, int], str | None] = {}
        self.moved: set[cst.CSTNode] = set()  # imports that --fix renames, or parts of them

    @functools.cached_property
    def positions(self) -> Mapping[cst.CSTNode, CodeRange]:
        return self.wrapper.resolve(PositionProvider)

    @functools.cached_property
    def scopes(self) -> list[Scope]:
        return list(dict.fromkeys(scope for scope in self.scoped.values() if scope))

    @functools.cached_property
    def scoped(self) -> Mapping[cst.CSTNode, Scope | None]:
        return self.wrapper.resolve(ScopeProvider)

    def uses(self) -> Iterator[Use]:
        if not self.libraries:
            return
        for node in self.imports:
            yield from self.imported(node)
        for access in self.accesses:
            yield from self.accessed(access)
        yield from self.methods()

    # -- imports

    def imported(self, node: cst.Import | cst.ImportFrom) -> Iterator[Use]:
        if isinstance(node, cst.Import):
            for alias in node.names:
                name = _name(alias.name)
                found = changes().get(f"import {name}") or change(name)
                if found and not self.minded(node, found):
                    new = found.renamed(name)
                    plain = new and (alias.asname or _root(new) == _root(name))
                    edits = (self.replaced(alias.name, new),) if plain else ()
                    self.moved |= {node} if edits else set()
                    yield self.use(alias, found, edits)
        elif node.module and not node.relative:
            base = _name(node.module)
            whole = changes().get(f"import {base}") or change(base)
            aliases = [] if isinstance(node.names, cst.ImportStar) else node.names
            old = {alias: change(f"{base}.{alias.name.value}") for alias in aliases}
            if whole and self.minded(node, whole):
                return
            old = {a: c and (None if self.minded(node, c) else c) for a, c in old.items()}
            if whole and all(found in (None, whole) for found in old.values()):
                new = whole.renamed(base)
                edits = (self.replaced(node.module, new),) if new else ()
                self.moved |= {node} if edits else set()
                yield self.use(node.module, whole, edits)
                return
            plain = {a: c for a, c in old.items() if c and c.now and self.everywhere(node, a, c)}
            edits = self.reimported(node, base, {alias: plain.get(alias) for alias in old})
            self.moved |= set(plain) if edits else set()
            for alias, found in old.items():
                if found:
                    yield self.use(alias, found, edits if alias in plain else ())

    def everywhere(self, node: cst.ImportFrom, alias: cst.ImportAlias, found: Change) -> bool:
        """Whether all that uses the imported name may be renamed."""
        if not found.only:
            return True
        uses = [
            self.chain(access)[-1]
            for access in self.accesses
            for a in access.referents
            if isinstance(a, ImportAssignment) and a.node is node and a.name == _local(alias)
        ]
        return bool(uses) and all(self.suits(use, found) for use in uses)

    def reimported(
        self, node: cst.ImportFrom, base: str, old: dict[cst.ImportAlias, Change | None]
    ) -> tuple[Edit, ...]:
        """The statement with the renamed names imported from where they are now."""
        moved = {alias: found for alias, found in old.items() if found}
        parts = []
        if kept := [alias for alias in old if alias not in moved]:
            if not node.lpar:
                kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            parts.append(self.code(node.with_changes(names=kept)))
        for alias, found in moved.items():
            parent, _, leaf = found.renamed(f"{base}.{alias.name.value}").rpartition(".")
            local = _local(alias)
            told = f"from {parent} import {leaf}" if parent else f"import {leaf}"
            parts.append(told + (f" as {local}" if local != leaf else ""))
        if not moved or self.code(node).count("#") > sum(part.count("#") for part in parts):
            return ()  # a comment would be lost
        line = self.parents[node]
        alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
        joint = "\n" + self.indent(node) if alone else "; "
        return (self.replaced(node, joint.join(parts)),)

    # -- names

    @functools.cached_property
    def accesses(self) -> list[Access]:
        found = {access.node: access for scope in self.scopes for access in scope.accesses}
        return [a for a in found.values() if not isinstance(a.node, cst.SimpleString)]  # in quotes

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

    @functools.cached_property
    def own(self) -> set[str]:
        """The names of a library that the file itself sets: jax.tree_map = ..."""
        found = set()
        for access in self.accesses:
            node = self.chain(access)[-1]
            name = _spelled(node, self.bound(access.referents))
            if self.contexts.get(node) in (ExpressionContext.STORE, ExpressionContext.DEL):
                found.add(name)
            elif isinstance(call := self.parents[self.parents[node]], cst.Call):
                text = call.args[1].value if len(call.args) > 1 else None
                if _name(call.func).endswith("setattr") and isinstance(text, cst.SimpleString):
                    found.add(f"{name}.{text.evaluated_value}")
        return found

    def accessed(self, access: Access) -> Iterator[Use]:
        chain = self.chain(access)
        follows = True
        if access.referents:
            bound = self.bound(access.referents)
            if (found := change(bound)) and found.now:  # its import has been told
                follows = self.follows(access)
                bound = found.renamed(bound)
        else:
            bound = self.starred(_name(chain[0]))
        if not bound:
            return
        name = _spelled(chain[-1], bound)
        found = change(name)
        if found and self.minded(chain[-1], found):
            return
        if found and len(found.old) > len(bound if access.referents else _root(bound)):
            part = chain[max(found.old.count(".") - bound.count("."), 0)]
            edits: tuple[Edit, ...] = ()
            if follows and self.known(access.referents) and self.suits(chain[-1], found):
                edits = self.renamed(part, chain[0], bound, found.renamed(found.old), access)
            yield self.use(part, found, edits)
        yield from self.called(chain[-1], (found.renamed(name) if found else "") or name, access)

    def starred(self, name: str) -> str:
        """What a name is that nothing binds but `from library import *`."""
        stars = [n for n in self.imports if isinstance(n.names, cst.ImportStar)]
        starred = [_modules(n)[0] if _modules(n) else "" for n in stars]
        if any(_root(module) not in LIBRARIES for module in starred):
            return ""
        told = [(m, f"{m}.{name}") for m in starred]
        return next((n for m, n in told if (c := change(n)) and len(c.old) > len(m)), "")

    def follows(self, access: Access) -> bool:
        """Whether --fix renames the import as well."""
        for a in access.referents:
            node = a.node if isinstance(a, ImportAssignment) else None
            if not isinstance(node, cst.Import | cst.ImportFrom):
                return False
            aliases = [] if isinstance(node.names, cst.ImportStar) else node.names
            if not {node, *(x for x in aliases if _local(x) == a.name)} & self.moved:
                return False
        return True

    def suits(self, node: cst.CSTNode, found: Change) -> bool:
        """Whether the renaming is plain in this place."""
        outer = self.parents[node]
        call = outer if isinstance(outer, cst.Call) and outer.func is node else None
        match found.only:
            case "annotation":
                inside = node
                while not isinstance(inside, cst.Annotation | cst.Call | cst.Module):
                    inside = self.parents[inside]
                return isinstance(inside, cst.Annotation)
            case "with":
                return bool(call and isinstance(self.parents[call], cst.WithItem))
            case "uncalled":
                return not call
            case "named":
                arguments = call.args if call else ()
                given = all(a.keyword for a in arguments[1:])
                return bool(call) and given and not any(a.star for a in arguments)
        return True

    def known(self, referents: Collection[BaseAssignment], depth: int = 9) -> bool:
        """Whether a name is one thing of a library, and nothing else anywhere."""
        if {self.assigned(a, 9) for a in referents} - {None} != {self.bound(referents)}:
            return False
        for a in referents:
            value = None if isinstance(a, ImportAssignment) else self.value(a)
            if not value or m.matches(value, m.Name("None")):
                continue
            if not depth or not self.known(a.scope[_root(_name(value))], depth - 1):
                return False
        return True

    def value(self, assignment: BaseAssignment) -> cst.BaseExpression | None:
        """The right side of `name = value`."""
        node = assignment.node if isinstance(assignment, Assignment) else None
        target = self.parents.get(node) if node else None
        statement = self.parents.get(target) if isinstance(target, cst.AssignTarget) else None
        if not isinstance(statement, cst.Assign) or len(statement.targets) > 1:
            return None
        return statement.value

    def bound(self, referents: Iterable[BaseAssignment], depth: int = 9) -> str:
        """What the assignments bind, where all of them bind the same thing of a library."""
        names = {self.assigned(a, depth) for a in referents} - {None}
        ours = {name for name in names if name and _root(name) in LIBRARIES}
        others = names - ours
        return ours.pop() if len(ours) == 1 and "" not in others else ""

    def assigned(self, assignment: BaseAssignment, depth: int) -> str | None:
        """The dotted name that is bound; "" for anything else, None for a stand-in."""
        if (assignment, depth) not in self.names:
            self.names[assignment, depth] = self._assigned(assignment, depth)
        return self.names[assignment, depth]

    def _assigned(self, assignment: BaseAssignment, depth: int) -> str | None:
        if isinstance(assignment, ImportAssignment):
            return _bound(assignment.node, assignment.name)
        if not isinstance(assignment, Assignment) or not depth:
            return ""
        if not (value := self.value(assignment)):
            return ""
        if m.matches(value, m.Name("None")):
            return None
        dotted = _name(value) if m.matches(value, m.Name() | m.Attribute()) else ""
        if not dotted or not re.fullmatch(r"[\w.]+", dotted):
            return ""
        root, _, rest = dotted.partition(".")
        bound = self.bound(assignment.scope[root], depth - 1)
        if not bound or ((found := change(bound)) and len(found.old) <= len(bound)):
            return ""
        name = f"{bound}.{rest}" if rest else bound
        return "" if change(name) else name  # told where it is assigned

    def renamed(
        self, part: cst.CSTNode, first: cst.CSTNode, bound: str, new: str, access: Access
    ) -> tuple[Edit, ...]:
        """The new name, spelled with what the file has imported."""
        local = _name(first)
        if not new or "#" in self.code(part):
            return ()
        if new.startswith(bound + "."):
            near = new.removeprefix(bound)
            if new.rpartition(".")[0] in LOADED or near.count(".") == 1:
                return (self.replaced(part, local + near),)
        package, module = _root(new), new.rpartition(".")[0] or new
        at = self.positions[part].start
        here = {self.assigned(a, 0) for a in access.scope[package]}
        if here - {package} or (any(package in scope for scope in self.scopes) and not here):
            return ()
        edit = self.replaced(part, new)
        before = [n for n in self.imports if self.precedes(n, at, part)]
        binders = [a.node for a in access.scope[package] if isinstance(a, Assignment)]
        is_bound = (local, bound) == (package, package) or any(n in before for n in binders)
        told = {name for node in before for name in _modules(node)}
        told |= {  # what is imported under its old name is there wherever it was
            found.renamed(name)
            for node in self.imports
            for name in _modules(node)
            if node in self.moved and (found := change(name))
        }
        loaded = module in LOADED or any(f"{name}.".startswith(f"{module}.") for name in told)
        if is_bound and loaded:
            return (edit,)
        needed = f"import {package if module in LOADED else module}\n"
        return (edit, *added) if (added := self.inserted(needed, package, access, before)) else ()

    def precedes(self, node: cst.CSTNode, at: CodePosition, use: cst.CSTNode) -> bool:
        """Whether every way to the use leads through this statement."""
        start = self.positions[node].start
        block = self.parents[node]
        if isinstance(block, cst.SimpleStatementLine):
            block = self.parents[block]
        while use is not self.module and use is not block:
            use = self.parents[use]
        return use is block and (start.line, start.column) < (at.line, at.column)

    def inserted(
        self, text: str, package: str, access: Access, before: list[cst.Import | cst.ImportFrom]
    ) -> tuple[Edit, ...]:
        """An import above the one that binds the name: where the name is, the import is too."""
        binders = [a for a in access.referents if isinstance(a, ImportAssignment)]
        sure = [a for a in binders if a.node in before]
        if not (sure or len(binders) == 1):
            return ()
        binder = (sure or binders)[0]
        line, scope = self.parents[binder.node], binder.scope
        alone = isinstance(line, cst.SimpleStatementLine) and line.body[0] is binder.node
        if not alone or self.scope(binder.node) is not scope:  # `global name` is another scope
            return ()
        if not isinstance(scope, GlobalScope) and access.scope[package]:
            return ()  # a name of the module would become one of the function
        start = self.positions[binder.node].start
        at = start.line, start.column
        return (Edit(at, at, text + self.indent(binder.node)),)

    # -- calls

    def called(self, function: cst.CSTNode, name: str, access: Access) -> Iterator[Use]:
        """Its keywords and options, called here or by functools.partial."""
        call = self.parents[function]
        if isinstance(call, cst.Arg):
            call = self.parents[call]
            if not (isinstance(call, cst.Call) and call.args[0].value is function):
                return
            if not _name(call.func).endswith("partial"):
                return
        elif not (isinstance(call, cst.Call) and call.func is function):
            return
        for argument in call.args:
            if argument.keyword and (found := changes().get(f"{name}({argument.keyword.value})")):
                plain = found.now and self.known(access.referents)
                edits = (self.replaced(argument.keyword, found.now),) if plain else ()
                yield self.use(argument.keyword, found, edits)
        first = call.args[0].value if call.args else None
        text = first.evaluated_value if isinstance(first, cst.SimpleString) else None
        if first and text and (found := changes().get(f"{name}({text!r})")):
            yield self.use(first, found)

    # -- attributes of objects

    def methods(self) -> Iterator[Use]:
        defined = {node.name.value for node in self.parents if isinstance(node, cst.FunctionDef)}
        for node in self.parents:
            if not isinstance(node, cst.Attribute):
                continue
            found = methods().get(node.attr.value)
            own = node.attr.value in defined or m.matches(
                node.value, m.Name("self") | m.Name("cls")
            )
            if not found or own or found.library not in self.libraries:
                continue
            if not self.guarded(node, found):
                yield self.use(node.attr, found)

    # -- where it stands

    def minded(self, node: cst.CSTNode, found: Change) -> bool:
        """Whether the file itself sets the name, or sees to it that it may be missing."""
        return found.old in self.own or self.guarded(node, found)

    def guarded(self, node: cst.CSTNode, found: Change) -> bool:
        """Whether it is asked for, or caught, that the name may be missing."""
        while node is not self.module:
            node, inner = self.parents[node], node
            if isinstance(node, cst.If | cst.IfExp):
                if inner is not node.test and self.asks(node.test, found):
                    return True
            elif isinstance(node, cst.Try) and self.falls_back(node):
                return True
        return False

    def asks(self, test: cst.CSTNode, found: Change) -> bool:
        """Whether a condition asks for the version of a library, or whether it has the name."""
        told = self.code(test)
        for name in re.findall(r"\w+", told):
            told += " ".join(self.values.get(name, ()))
        if VERSION.search(told):
            return True
        words = set(re.findall(r"\w+", f"{found.old} {found.now} {found.write}"))
        for call in m.findall(test, m.Call(m.Name("hasattr"))):
            if not isinstance(call, cst.Call) or len(call.args) != 2:
                continue
            if isinstance(text := call.args[1].value, cst.SimpleString):
                scope, root = self.scope(call), _root(_name(call.args[0].value))
                ours = found.method or (root and scope and self.bound(scope[root]))
                if ours and text.evaluated_value in words:
                    return True
        return False

    @functools.cached_property
    def values(self) -> dict[str, list[str]]:
        """The code of what is assigned to each name, wherever it speaks of a version."""
        told: dict[str, list[str]] = {}
        for node in self.parents:
            if isinstance(node, cst.Assign) and VERSION.search(value := self.code(node.value)):
                for target in node.targets:
                    told.setdefault(_name(target.target), []).append(f" {value}")
        return told

    def falls_back(self, node: cst.Try) -> bool:
        """Whether a `try` imports or assigns, and gives something else where a name is missing."""
        body = _statements(node.body)
        if not body or not all(isinstance(s, BINDS) for s in body):
            return False
        assigned = {x for s in body if isinstance(s, cst.Assign) for x in self.targets(s)}
        returns = any(isinstance(s, cst.Return) for s in body)
        for handler in node.handlers:
            caught = self.code(handler.type) if handler.type else "Exception"
            ends = m.findall(handler, m.Raise()) or re.search(r"\bexit\(", self.code(handler))
            if ends or not ABSENT & set(re.findall(r"\w+", caught)):
                continue
            inside = _statements(handler.body)
            given = {name for s in inside for name in self.targets(s)}
            if assigned <= given and returns <= any(isinstance(s, cst.Return) for s in inside):
                return True
        return False

    def targets(self, statement: cst.CSTNode) -> set[str]:
        """What an assignment or an import sets, as it is written."""
        if isinstance(statement, cst.Import | cst.ImportFrom):
            aliases = [] if isinstance(statement.names, cst.ImportStar) else statement.names
            return {_local(alias) for alias in aliases}
        if not isinstance(statement, cst.Assign):
            return set()
        return {self.code(target.target) for target in statement.targets}

    def scope(self, node: cst.CSTNode) -> Scope | None:
        while node not in self.scoped and node is not self.module:
            node = self.parents[node]
        return self.scoped.get(node)

    def indent(self, node: cst.CSTNode) -> str:
        """What stands before a statement on its line."""
        start = self.positions[node].start
        return self.lines[start.line - 1][: start.column]

    def use(self, node: cst.CSTNode, found: Change, edits: tuple[Edit, ...] = ()) -> Use:
        start = self.positions[node].start
        return Use(start.line, start.column + 1, found, edits)

    def replaced(self, node: cst.CSTNode, text: str) -> Edit:
        at = self.positions[node]
        return Edit((at.start.line, at.start.column), (at.end.line, at.end.column), text)

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)


def _name(node: cst.CSTNode | None) -> str:
    """The dotted name that a node spells; "" if it is none."""
    return (_full_name(node) or "") if node else ""


def _local(alias: cst.ImportAlias) -> str:
    """The name that an import binds in the file."""
    return _name(alias.asname.name if alias.asname else alias.name)


def _statements(block: cst.BaseSuite) -> list[cst.BaseSmallStatement]:
    """The simple statements of a block; none where it holds others."""
    if isinstance(block, cst.SimpleStatementSuite):
        return list(block.body)
    lines = [line for line in block.body if isinstance(line, cst.SimpleStatementLine)]
    return [s for line in lines for s in line.body] if len(lines) == len(block.body) else []


def _spelled(node: cst.CSTNode, bound: str) -> str:
    """The dotted name of an attribute of what the first name is bound to."""
    return ".".join([bound, *_name(node).split(".")[1:]])


def _root(name: str) -> str:
    return name.partition(".")[0]


def _modules(node: cst.Import | cst.ImportFrom) -> list[str]:
    """The modules that a statement imports, or imports from."""
    if isinstance(node, cst.Import):
        return [_name(alias.name) for alias in node.names]
    return [_name(node.module)] if not node.relative else []


def _bound(node: cst.CSTNode, local: str) -> str:
    """What the local name of an import stands for; "" for an import within the package."""
    if isinstance(node, cst.ImportFrom) and node.relative:
        return ""
    if not isinstance(node, cst.Import | cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
        return ""
    for alias in node.names:
        name = _name(alias.name)
        if isinstance(node, cst.ImportFrom):
            if local == _local(alias):
                return f"{_name(node.module)}.{name}"
        elif alias.asname:
            if local == _local(alias):
                return name
        elif _root(local) == _root(name):
            return _root(name)
    return ""
