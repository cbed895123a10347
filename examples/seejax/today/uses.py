"""The old names that a module uses, found in its syntax tree: nothing is imported or run."""

import ast
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import eq, ge, gt, le, lt, ne

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node as _full_name
from libcst.metadata import (
    Access,
    Assignment,
    BaseAssignment,
    CodeRange,
    ExpressionContext,
    ExpressionContextProvider,
    FunctionScope,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

from seejax.today.names import LIBRARIES, Change, change, changes, latest, methods, newest, spelled

# Modules that need no import of their own once their package is imported.
LOADED = {"jax", "jax.dtypes", "jax.errors", "jax.lax", "jax.numpy", "jax.profiler", "jax.sharding"}
LOADED |= {"jax.tree", "jax.tree_util", "jax.interpreters", "jax.nn", "jax.random"}
LOADED |= {"functools", "itertools", "math"}
LOADED |= {"flax", "flax.linen", "optax", "optax.contrib", "optax.tree_utils"}
LOADED |= {"optax.second_order"}

ABSENT = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"}
VERSION = re.compile(  # of a library: jax.__version__, version("jax"), JAX_VERSION
    r"(jax|flax|optax)(?:[\w.]*[._])?version|(?<![a-z])version\w*\W{0,4}(jax|flax|optax)",
    re.IGNORECASE,
)
COMPARED = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
GIVES = m.Import() | m.ImportFrom() | m.Assign() | m.Return()
GIVES |= m.FunctionDef() | m.ClassDef()


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
      unsure: what has to be so for the file to use it; "" where nothing else can be.
    """

    line: int
    column: int
    change: Change
    edits: tuple[Edit, ...] = ()
    unsure: str = ""

    def sentence(self) -> str:
        return self.unsure + self.change.sentence()


def find(source: str, hints: bool = False) -> list[Use]:
    """The uses of old names in a module, in the order of the text.

    Args:
      source: Python 3.
      hints: also what works, and is written otherwise today.
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
    return sorted(_Module(source, hints).uses(), key=lambda use: (use.line, use.column))


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
    def __init__(self, source: str, hints: bool) -> None:
        self.hints = hints
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
        self.bindings: dict[Access, Collection[BaseAssignment]] = {}
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
            for use in self.accessed(access):
                if self.hints or use.change.kind != "hint":
                    yield use
        yield from self.methods()

    # -- imports

    def imported(self, node: cst.Import | cst.ImportFrom) -> Iterator[Use]:
        fixed = not self.versioned(node)  # else the name may be one for old versions
        if isinstance(node, cst.Import):
            for alias in node.names:
                name = _name(alias.name)
                found = changes().get(f"import {name}") or change(name)
                if found and not self.minded(node, found):
                    new = found.renamed(name)
                    plain = fixed and new and (alias.asname or _root(new) == _root(name))
                    edits = (self.replaced(alias.name, new),) if plain else ()
                    self.moved |= {node} if edits else set()
                    yield self.use(alias, found, edits)
        elif node.module and not node.relative:
            base = _name(node.module)
            whole = changes().get(f"import {base}") or change(base)
            aliases = [] if isinstance(node.names, cst.ImportStar) else node.names
            if whole and self.minded(node, whole):
                return
            old = {alias: self.changed(alias, f"{base}.{alias.name.value}") for alias in aliases}
            if whole and all(found in (None, whole) for found in old.values()):
                new = whole.renamed(base)
                edits = (self.replaced(node.module, new),) if fixed and new else ()
                self.moved |= {node} if edits else set()
                yield self.use(node.module, whole, edits)
                return
            plain = {a: c for a, c in old.items() if c and c.now and self.everywhere(node, a, c)}
            moved = {alias: plain.get(alias) if fixed else None for alias in old}
            edits = self.reimported(node, base, moved)
            self.moved |= set(plain) if edits else set()
            for alias, found in old.items():
                if found:
                    yield self.use(alias, found, edits if alias in plain else ())

    def changed(self, alias: cst.ImportAlias, name: str) -> Change | None:
        """What has changed about an imported name, if it is to be told."""
        found = change(name)
        if not found or self.minded(alias, found) or (found.kind == "hint" and not self.hints):
            return None
        return latest(name)[0]

    def everywhere(self, node: cst.ImportFrom, alias: cst.ImportAlias, found: Change) -> bool:
        """Whether all that uses the imported name may be renamed."""
        if not found.only:
            return True
        uses = [
            self.chain(access)[-1]
            for access in self.accesses
            for a in self.referents(access)
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
            alone = node.with_changes(names=kept, semicolon=cst.MaybeSentinel.DEFAULT)
            parts.append(self.code(alone))
        for alias, found in moved.items():
            _, name = latest(f"{base}.{alias.name.value}")
            parent, _, leaf = found.renamed(name).rpartition(".")
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

    @functools.cached_property
    def own(self) -> set[str]:
        """The names of a library that the file itself sets: jax.tree_map = ..."""
        found = set()
        for access in self.accesses:
            node = self.chain(access)[-1]
            name = _spelled(node, self.bound(self.referents(access)))
            if self.contexts.get(node) in (ExpressionContext.STORE, ExpressionContext.DEL):
                found.add(name)
            elif isinstance(call := self.parents[self.parents[node]], cst.Call):
                text = call.args[1].value if len(call.args) > 1 else None
                if _name(call.func).endswith("setattr") and isinstance(text, cst.SimpleString):
                    found.add(f"{name}.{text.evaluated_value}")
        return found

    def accessed(self, access: Access) -> Iterator[Use]:
        chain = self.chain(access)
        referents = self.referents(access)
        follows = True
        if referents:
            bound = self.bound(referents)
            found, name = latest(bound)
            if found and found.now:  # its import has been told
                follows = self.follows(access)
                bound = found.renamed(name)
        else:
            bound = self.starred(_name(chain[0]))
        if not bound:
            return
        name = _spelled(chain[-1], bound)
        first = change(name)
        if first and self.minded(chain[-1], first):
            return
        found, last = latest(name)
        sure = self.known(referents)
        unsure = "" if sure or not referents else f"if {_name(chain[0])} is {bound}: "
        if first and found and len(first.old) > len(bound if referents else _root(bound)):
            part = chain[-1 - last.removeprefix(found.old).count(".")]
            edits: tuple[Edit, ...] = ()
            if follows and sure and self.suits(chain[-1], found):
                edits = self.renamed(part, chain[0], bound, found.now, access)
            yield self.use(part, found, edits, unsure)
        now = found.renamed(last) if found else ""
        for use in self.called(chain[-1], now or last, sure):
            yield replace(use, unsure=unsure)

    def starred(self, name: str) -> str:
        """What a name is that nothing binds but `from library import *`."""
        stars = [n for n in self.imports if isinstance(n.names, cst.ImportStar)]
        starred = [_modules(n)[0] if _modules(n) else "" for n in stars]
        if any(_root(module) not in LIBRARIES for module in starred):
            return ""
        for found in (f"{module}.{name}" for module in starred):
            if any(old == found or old.startswith(f"{found}(") for old in changes()):
                return found
        return ""

    def follows(self, access: Access) -> bool:
        """Whether --fix renames the import as well."""
        for a in self.referents(access):
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
        told = {self.assigned(a, 9) for a in self.behind(node)} - {None, ""}
        return _spelled(node, told.pop() or "") if len(told) == 1 else _name(node)

    # -- the order of things

    def referents(self, access: Access) -> Collection[BaseAssignment]:
        """What a name can be bound to where it is used: nothing from before it was bound anew."""
        if access not in self.bindings:
            self.bindings[access] = access.referents  # for `x = x.y`, which asks again
            self.bindings[access] = self.live(access)
        return self.bindings[access]

    def live(self, access: Access) -> Collection[BaseAssignment]:
        use, scope = self.chain(access)[0], access.scope
        found = {a for a in scope[_name(use)] if isinstance(a, Assignment)}
        told = {self.assigned(a, 9) for a in found} if len(found) > 1 else set()
        if len(told) < 2 or not any(map(_ours, filter(None, told))):
            return found if told else access.referents
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

    def loops(self, node: cst.CSTNode) -> set[cst.CSTNode]:
        return {outer for outer, _ in self.around(node) if isinstance(outer, cst.For | cst.While)}

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

    def bound(self, referents: Iterable[BaseAssignment], depth: int = 9) -> str:
        """What the assignments bind, where all of them bind the same thing of a library."""
        names = {self.assigned(a, depth) for a in referents} - {None}
        ours = {name for name in names if name and _ours(name)}
        return ours.pop() if len(ours) == 1 and "" not in names else ""

    def assigned(self, assignment: BaseAssignment, depth: int) -> str | None:
        """The dotted name that is bound; "" for anything else, None for a stand-in."""
        if (assignment, depth) not in self.names:
            self.names[assignment, depth] = self._assigned(assignment, depth)
        return self.names[assignment, depth]

    def _assigned(self, assignment: BaseAssignment, depth: int) -> str | None:
        if isinstance(assignment, ImportAssignment):
            return _bound(assignment.node, assignment.name)
        if not depth or not (value := self.value(assignment)):
            return ""
        if m.matches(value, m.Name("None")):
            return None
        dotted = _name(value) if m.matches(value, m.Name() | m.Attribute()) else ""
        if not dotted or not re.fullmatch(r"[\w.]+", dotted):
            return ""
        _, _, rest = dotted.partition(".")
        bound = self.bound(self.behind(value), depth - 1)
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
        here = {self.assigned(a, 0) for a in access.scope[package]}
        if here - {package} or package in self.rebound:
            return ()
        edit = self.replaced(part, new)
        before = [n for n in self.imports if self.precedes(n, part)]
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

    @functools.cached_property
    def rebound(self) -> set[str]:
        """The names that something else than an import binds, or unbinds, anywhere in the file."""
        binding = cst.Param | cst.MatchAs | cst.MatchStar | cst.MatchMapping | cst.NameItem
        return {
            node.value
            for node in self.parents
            if isinstance(node, cst.Name)
            if isinstance(self.parents[node], binding)
            or self.contexts.get(node) in (ExpressionContext.STORE, ExpressionContext.DEL)
        }

    def inserted(
        self, text: str, package: str, access: Access, before: list[cst.Import | cst.ImportFrom]
    ) -> tuple[Edit, ...]:
        """An import above the one that binds the name: where the name is, the import is too."""
        binders = [a for a in self.referents(access) if isinstance(a, ImportAssignment)]
        sure = [a for a in binders if a.node in before]
        if not (sure or len(binders) == 1):
            return ()
        binder = max(sure or binders, key=lambda a: self.start(a.node))
        line, scope = self.parents[binder.node], binder.scope
        alone = isinstance(line, cst.SimpleStatementLine) and line.body[0] is binder.node
        if not alone or self.scope(binder.node) is not scope:  # `global name` is another scope
            return ()
        if {a.scope for a in access.scope[package]} - {scope}:
            return ()  # the name is, or would become, another one in a function
        at = self.start(binder.node)
        return (Edit(at, at, text + self.indent(binder.node)),)

    # -- calls

    def called(self, function: cst.CSTNode, name: str, sure: bool) -> Iterator[Use]:
        """Its keywords and options, called here or by functools.partial."""
        call = self.parents[function]
        if isinstance(call, cst.Arg):
            call = self.parents[call]
            if not (isinstance(call, cst.Call) and call.args[0].value is function):
                return
            if not self.meant(call.func).endswith("partial"):
                return
        elif not (isinstance(call, cst.Call) and call.func is function):
            return
        for argument in call.args:
            if argument.keyword and (found := changes().get(f"{name}({argument.keyword.value})")):
                edits = (self.replaced(argument.keyword, found.now),) if found.now and sure else ()
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
        """Whether it is not reached today, or a handler gives another name for it."""
        if any(self.holds(test, found) is (not so) for test, so in self.conditions(node)):
            return True
        return any(
            isinstance(outer, cst.Try) and inner is outer.body and self.falls_back(outer, node)
            for outer, inner in self.around(node)
        )

    def conditions(self, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, bool]]:
        """The tests on the way to a node, and whether each has to hold."""
        for outer, inner in self.around(node):
            if isinstance(outer, cst.If | cst.IfExp) and inner is not outer.test:
                yield outer.test, inner is outer.body

    def versioned(self, node: cst.CSTNode) -> str:
        """A word about it, where a test on the way asks for the version of a library."""
        asked = any(VERSION.search(self.told(test)) for test, _ in self.conditions(node))
        return "under a test of the version: " if asked else ""

    def holds(self, test: cst.CSTNode, found: Change) -> bool | None:
        """Whether a condition holds today; None where that cannot be seen."""
        match test:
            case cst.Name(value=name) if len(self.values.get(name, ())) == 1:
                return self.holds(self.values[name][0], found)
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                return {True: False, False: True, None: None}[self.holds(inner, found)]
            case cst.BooleanOperation(operator=sign, left=left, right=right):
                told = {self.holds(left, found), self.holds(right, found)}
                enough = isinstance(sign, cst.Or)
                return enough if enough in told else None if None in told else not enough
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget() as target]):
                return self.compared(left, self.code(target.operator).strip(), target.comparator)
            case cst.Call(args=[asked, cst.Arg(value=cst.SimpleString() as text)]):
                leaf, name = (
                    text.evaluated_value,
                    f"{self.meant(asked.value)}.{text.evaluated_value}",
                )
                if self.code(test.func) != "hasattr" or not (found.method or _ours(name)):
                    return None
                words = re.findall(r"\w+", found.now + found.write)
                if leaf in words or any(name == c.now for c in changes().values()):
                    return True
                if found.old.endswith(f".{leaf}") or ((c := change(name)) and c.kind == "removed"):
                    return False
        return None

    def compared(self, left: cst.CSTNode, sign: str, right: cst.CSTNode) -> bool | None:
        """Whether a comparison with a version holds today, as Python would have it."""
        first, second = (VERSION.search(self.told(side)) for side in (left, right))
        asked, given = first or second, right if first else left
        if not asked or (first and second) or sign not in COMPARED:
            return None
        today, version = newest((asked[1] or asked[2]).lower()), self.code(given)
        if isinstance(given, cst.SimpleString):
            sides = today, given.evaluated_value  # compared as text
        elif re.fullmatch(r"\D*\d+((\.|,\s*)\d+)+\D*", version):
            sides = [[int(n) for n in re.findall(r"\d+", text)] for text in (today, version)]
        else:
            return None
        return COMPARED[sign](*(sides if first else reversed(sides)))

    def told(self, node: cst.CSTNode) -> str:
        """The code of an expression, and of what its names are, where that speaks of a version."""
        told = self.code(node)
        values = [v for name in re.findall(r"\w+", told) for v in self.values.get(name, ())]
        return " ".join([told, *map(self.code, values)])

    @functools.cached_property
    def values(self) -> dict[str, list[cst.BaseExpression]]:
        """What is assigned to each name, wherever it speaks of a version."""
        told: dict[str, list[cst.BaseExpression]] = {}
        for node in self.parents:
            if isinstance(node, cst.Assign) and VERSION.search(self.code(node.value)):
                for target in node.targets:
                    told.setdefault(_name(target.target), []).append(node.value)
        return told

    def falls_back(self, node: cst.Try, use: cst.CSTNode) -> bool:
        """Whether a handler gives what the use gives: from elsewhere, and no mere stand-in."""
        wanted = self.targets(use if isinstance(use, cst.ImportAlias) else self.binder(use))
        for handler in node.handlers:
            caught = self.code(handler.type) if handler.type else "Exception"
            if wanted and ABSENT & set(re.findall(r"\w+", caught)):
                given = [self.targets(s) for s in m.findall(handler, GIVES) if self.earnest(s)]
                if wanted <= set().union(*given):
                    return True
        return False

    def earnest(self, statement: cst.CSTNode) -> bool:
        """Whether it imports or defines a name, or gives something of a library."""
        value = getattr(statement, "value", None)
        names = m.findall(value, m.Name()) if value else ()
        return not isinstance(statement, cst.Assign | cst.Return) or any(
            _root(self.meant(name)) in (*LIBRARIES, "numpy") for name in names
        )

    def targets(self, node: cst.CSTNode) -> set[str]:
        """What a statement binds, as it is written; "return" for what it returns."""
        match node:
            case cst.Import(names=[*aliases]) | cst.ImportFrom(names=[*aliases]):
                return set(map(_local, aliases))
            case cst.ImportAlias():
                return {_local(node)}
            case cst.Assign(targets=[*targets]):
                return {self.code(target.target) for target in targets}
            case cst.FunctionDef() | cst.ClassDef():
                return {node.name.value}
        return {"return"} if isinstance(node, cst.Return) else set()

    def scope(self, node: cst.CSTNode) -> Scope | None:
        while node not in self.scoped and node is not self.module:
            node = self.parents[node]
        return self.scoped.get(node)

    def indent(self, node: cst.CSTNode) -> str:
        """What stands before a statement on its line."""
        line, column = self.start(node)
        return self.lines[line - 1][:column]

    def use(
        self, node: cst.CSTNode, found: Change, edits: tuple[Edit, ...] = (), unsure: str = ""
    ) -> Use:
        line, column = self.start(node)
        asked = self.versioned(node)
        return Use(line, column + 1, found, () if asked else edits, asked + unsure)

    def replaced(self, node: cst.CSTNode, text: str) -> Edit:
        return Edit(self.start(node), self.end(node), text)

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node)


def _name(node: cst.CSTNode | None) -> str:
    """The dotted name that a node spells; "" if it is none."""
    return (_full_name(node) or "") if node else ""


def _local(alias: cst.ImportAlias) -> str:
    """The name that an import binds in the file."""
    return _name(alias.asname.name if alias.asname else alias.name)


def _spelled(node: cst.CSTNode, bound: str) -> str:
    """The dotted name of an attribute of what the first name is bound to."""
    return ".".join([bound, *_name(node).split(".")[1:]])


def _ours(name: str) -> bool:
    return _root(name) in LIBRARIES


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
