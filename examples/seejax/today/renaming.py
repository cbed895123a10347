"""How an old name is written anew, where that is no more than another name."""

from collections.abc import Collection
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import Access, Assignment, ImportAssignment

from seejax.today.conditions import Conditions
from seejax.today.names import Change, change, latest
from seejax.today.syntax import lines_of, local_of, modules_of, name_of, root_of

# Modules that need no import of their own once their package is imported.
LOADED = {"jax", "jax.dtypes", "jax.errors", "jax.lax", "jax.numpy", "jax.profiler", "jax.sharding"}
LOADED |= {"jax.tree", "jax.tree_util", "jax.interpreters", "jax.nn", "jax.random"}
LOADED |= {"functools", "itertools", "math"}
LOADED |= {"flax", "flax.linen", "optax", "optax.contrib", "optax.tree_utils"}
LOADED |= {"optax.second_order"}
# New names that are modules, and have to be imported as such.
MODULES = {"jax.example_libraries.optimizers", "jax.example_libraries.stax"}
MODULES |= {"jax.experimental.array_serialization", "flax.nnx"}


@dataclass(frozen=True, order=True)
class Edit:
    """Text in place of what stands from start to end; both are (line, column), as LibCST counts."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


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


class Renaming(Conditions):
    """The edits that rename a name and, where it needs one, its import."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.moved: set[cst.CSTNode] = set()  # imports that are renamed, or parts of them

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

    def everywhere(self, node: cst.ImportFrom, alias: cst.ImportAlias, found: Change) -> bool:
        """Whether all that uses the imported name may be renamed."""
        if not found.only:
            return True
        uses = [
            self.chain(access)[-1]
            for access in self.accesses
            for a in self.referents(access)
            if isinstance(a, ImportAssignment) and a.node is node and a.name == local_of(alias)
        ]
        return bool(uses) and all(self.suits(use, found) for use in uses)

    def follows(self, access: Access) -> bool:
        """Whether --fix renames the import as well."""
        for a in self.referents(access):
            node = a.node if isinstance(a, ImportAssignment) else None
            if not isinstance(node, cst.Import | cst.ImportFrom):
                return False
            aliases = [] if isinstance(node.names, cst.ImportStar) else node.names
            if not {node, *(x for x in aliases if local_of(x) == a.name)} & self.moved:
                return False
        return True

    def renamed(
        self, part: cst.CSTNode, first: cst.CSTNode, bound: str, new: str, access: Access
    ) -> tuple[Edit, ...]:
        """The new name, spelled with what the file has imported."""
        local = name_of(first)
        if not new or "#" in self.code(part):
            return ()
        if new.startswith(bound + "."):
            near = new.removeprefix(bound)
            loaded = new.rpartition(".")[0] in LOADED or near.count(".") == 1
            if loaded and new not in MODULES:
                return (self.replaced(part, local + near),)
        package, module = root_of(new), new if new in MODULES else new.rpartition(".")[0] or new
        here = {self.assigned(a, 0) for a in access.scope[package]}
        if here - {package} or package in self.rebound:
            return ()
        edit = self.replaced(part, new)
        before = [n for n in self.imports if self.precedes(n, part)]
        binders = [a.node for a in access.scope[package] if isinstance(a, Assignment)]
        is_bound = (local, bound) == (package, package) or any(n in before for n in binders)
        imported = {name for node in before for name in modules_of(node)}
        imported |= {  # what is imported under its old name is there wherever it was
            found.renamed(name)
            for node in self.imports
            for name in modules_of(node)
            if node in self.moved and (found := change(name))
        }
        loaded = module in LOADED or any(f"{name}.".startswith(f"{module}.") for name in imported)
        if is_bound and loaded:
            return (edit,)
        needed = f"import {package if module in LOADED else module}\n"
        return (edit, *added) if (added := self.inserted(needed, package, access, before)) else ()

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
            local = local_of(alias)
            statement = f"from {parent} import {leaf}" if parent else f"import {leaf}"
            parts.append(statement + (f" as {local}" if local != leaf else ""))
        if not moved or self.code(node).count("#") > sum(part.count("#") for part in parts):
            return ()  # a comment would be lost
        line = self.parents[node]
        alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
        joint = "\n" + self.indent(node) if alone else "; "
        return (self.replaced(node, joint.join(parts)),)

    def replaced(self, node: cst.CSTNode, text: str) -> Edit:
        return Edit(self.start(node), self.end(node), text)
