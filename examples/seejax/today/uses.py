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
    CodeRange,
    ExpressionContextProvider,
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

ABSENT = {"ImportError", "ModuleNotFoundError", "AttributeError"}
ASKS = re.compile(r"hasattr|version", re.IGNORECASE)


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
        self.wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
        self.module = self.wrapper.module
        self.wrapper.resolve_many([ParentNodeProvider, ExpressionContextProvider])  # in one pass
        self.parents = self.wrapper.resolve(ParentNodeProvider)
        self.imports = [
            node for node in self.parents if isinstance(node, cst.Import | cst.ImportFrom)
        ]
        named = {_root(name) for node in self.imports for name in _modules(node)}
        self.libraries = named & set(LIBRARIES)

    @functools.cached_property
    def positions(self) -> Mapping[cst.CSTNode, CodeRange]:
        return self.wrapper.resolve(PositionProvider)

    @functools.cached_property
    def scopes(self) -> list[Scope]:
        scopes = self.wrapper.resolve(ScopeProvider)
        return list(dict.fromkeys(scope for scope in scopes.values() if scope))

    def uses(self) -> Iterator[Use]:
        if not self.libraries:
            return
        for node in self.imports:
            yield from self.imported(node)
        known = set()
        for access in (access for scope in self.scopes for access in scope.accesses):
            if access.node in known:
                continue
            known.add(access.node)
            yield from self.accessed(access)
        yield from self.methods()

    # -- imports

    def imported(self, node: cst.Import | cst.ImportFrom) -> Iterator[Use]:
        if self.guarded(node):
            return
        if isinstance(node, cst.Import):
            for alias in node.names:
                name = _name(alias.name)
                if found := changes().get(f"import {name}") or change(name):
                    new = found.renamed(name)
                    plain = new and (alias.asname or _root(new) == _root(name))
                    edits = (self.replaced(alias.name, new),) if plain else ()
                    yield self.use(alias, found, edits)
        elif node.module and not node.relative:
            base = _name(node.module)
            whole = changes().get(f"import {base}") or change(base)
            aliases = [] if isinstance(node.names, cst.ImportStar) else node.names
            old = {alias: change(f"{base}.{alias.name.value}") for alias in aliases}
            if whole and all(found in (None, whole) for found in old.values()):
                new = whole.renamed(base)
                edits = (self.replaced(node.module, new),) if new else ()
                yield self.use(node.module, whole, edits)
                return
            edits = self.reimported(node, base, old)
            for alias, found in old.items():
                if found:
                    yield self.use(alias, found, edits if found.now else ())

    def reimported(
        self, node: cst.ImportFrom, base: str, old: dict[cst.ImportAlias, Change | None]
    ) -> tuple[Edit, ...]:
        """The statement with the renamed names imported from where they are now."""
        moved = {alias: found for alias, found in old.items() if found and found.now}
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
        joint = "\n" + " " * self.positions[node].start.column if alone else "; "
        return (self.replaced(node, joint.join(parts)),)

    # -- names

    def accessed(self, access: Access) -> Iterator[Use]:
        if isinstance(access.node, cst.SimpleString):  # an annotation in quotes
            return
        first = access.node
        while isinstance(first, cst.Attribute):
            first = first.value
        chain: list[cst.CSTNode] = [first]
        while isinstance(outer := self.parents[chain[-1]], cst.Attribute):
            if outer.value is not chain[-1]:
                break
            chain.append(outer)
        if not (bound := self.bound(access.referents)):
            return
        name = ".".join([bound, *(c.attr.value for c in chain if isinstance(c, cst.Attribute))])
        if self.guarded(chain[-1]):
            return
        found = change(name)
        if found and len(found.old) > len(bound):  # else its import has been told
            part = chain[found.old.count(".") - bound.count(".")]
            edits = self.renamed(part, _name(first), bound, found.renamed(found.old), access)
            yield self.use(part, found, edits)
        yield from self.called(chain[-1], (found.renamed(name) if found else "") or name)

    def bound(self, referents: Iterable[BaseAssignment], depth: int = 9) -> str:
        """What the assignments bind, where all of them bind the same thing of a library."""
        names = {self.assigned(a, depth) for a in referents} - {None}
        ours = {name for name in names if name and _root(name) in LIBRARIES}
        others = names - ours
        return ours.pop() if len(ours) == 1 and "" not in others else ""

    def assigned(self, assignment: BaseAssignment, depth: int) -> str | None:
        """The dotted name that is bound; "" for anything else, None for a stand-in."""
        if isinstance(assignment, ImportAssignment):
            return _bound(assignment.node, assignment.name)
        if not isinstance(assignment, Assignment) or not depth:
            return ""
        target = self.parents.get(assignment.node)
        statement = self.parents.get(target) if isinstance(target, cst.AssignTarget) else None
        if not isinstance(statement, cst.Assign) or len(statement.targets) > 1:
            return ""
        value = statement.value
        if m.matches(value, m.Name("None")):
            return None
        dotted = _name(value) if m.matches(value, m.Name() | m.Attribute()) else ""
        if not dotted or not re.fullmatch(r"[\w.]+", dotted) or "." not in self.code(value):
            return ""
        root, _, rest = dotted.partition(".")
        bound = self.bound(assignment.scope[root], depth - 1)
        if not bound or ((found := change(bound)) and len(found.old) <= len(bound)):
            return ""
        name = f"{bound}.{rest}"
        return "" if change(name) else name  # told where it is assigned

    def renamed(
        self, part: cst.CSTNode, local: str, bound: str, new: str, access: Access
    ) -> tuple[Edit, ...]:
        """The new name, spelled with what the file has imported."""
        if not new or "#" in self.code(part):
            return ()
        if new.startswith(bound + "."):
            near = new.removeprefix(bound)
            if new.rpartition(".")[0] in LOADED or near.count(".") == 1:
                return (self.replaced(part, local + near),)
        package, module = _root(new), new.rpartition(".")[0] or new
        told = {name for node in self.imports for name in _modules(node)}
        told |= {found.renamed(name) for name in told if (found := change(name))}
        loaded = module in LOADED or any(f"{name}.".startswith(f"{module}.") for name in told)
        here = {self.assigned(a, 0) for a in access.scope[package]}
        edit = self.replaced(part, new)
        if here == {package} and loaded:
            return (edit,)
        if here - {package} or (any(package in scope for scope in self.scopes) and not here):
            return ()
        imports = [a.node for a in access.referents if isinstance(a, ImportAssignment)]
        line = self.parents[imports[0]] if imports else None
        if not isinstance(line, cst.SimpleStatementLine) or line.body[0] is not imports[0]:
            return ()
        start = self.positions[imports[0]].start
        at = start.line, start.column
        needed = package if module in LOADED else module
        return (edit, Edit(at, at, f"import {needed}\n" + " " * start.column))

    # -- calls

    def called(self, function: cst.CSTNode, name: str) -> Iterator[Use]:
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
                edits = (self.replaced(argument.keyword, found.now),) if found.now else ()
                yield self.use(argument.keyword, found, edits)
        first = call.args[0].value if call.args else None
        text = first.evaluated_value if isinstance(first, cst.SimpleString) else None
        if first and (found := changes().get(f"{name}({text!r})")):
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
            if not found or own or found.library not in self.libraries or self.guarded(node):
                continue
            yield self.use(
                node.attr, found, (self.replaced(node.attr, found.now),) if found.now else ()
            )

    # -- where it stands

    def guarded(self, node: cst.CSTNode) -> bool:
        """Whether the file itself sees to it that the name may be missing."""
        while node is not self.module:
            node, inner = self.parents[node], node
            if isinstance(node, cst.If | cst.IfExp):
                if inner is not node.test and ASKS.search(self.code(node.test)):
                    return True
            elif isinstance(node, cst.Try):
                caught = [self.code(h.type) if h.type else "ImportError" for h in node.handlers]
                if ABSENT & set(re.findall(r"\w+", " ".join(caught))):
                    return True
        return False

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
