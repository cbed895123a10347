"""The old names that a module uses, found in its syntax tree: nothing is imported or run."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

import libcst as cst
from libcst import matchers as m
from libcst.metadata import Access

from seejax.today import names
from seejax.today.bindings import spelled
from seejax.today.names import LIBRARIES, Change, change, changes, latest
from seejax.today.renaming import Edit, Renaming
from seejax.today.syntax import modules_of, name_of, root_of


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
    # Most files name none, and LibCST takes half a second for a thousand lines.
    if not names.spelled(ast.parse(source)):
        return []
    return sorted(Uses(source, hints).uses(), key=lambda use: (use.line, use.column))


class Uses(Renaming):
    """Where a module uses an old name, and how that is written today."""

    def __init__(self, source: str, hints: bool) -> None:
        super().__init__(source)
        self.hints = hints
        named = {root_of(name) for node in self.imports for name in modules_of(node)}
        self.libraries = named & set(LIBRARIES)

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

    def imported(self, node: cst.Import | cst.ImportFrom) -> Iterator[Use]:
        fixed = not self.versioned(node)  # else the name may be one for old versions
        if isinstance(node, cst.Import):
            for alias in node.names:
                name = name_of(alias.name)
                found = changes().get(f"import {name}") or change(name)
                if found and not self.handled(node, found):
                    new = found.renamed(name)
                    plain = fixed and new and (alias.asname or root_of(new) == root_of(name))
                    edits = (self.replaced(alias.name, new),) if plain else ()
                    self.moved |= {node} if edits else set()
                    yield self.use(alias, found, edits)
        elif node.module and not node.relative:
            base = name_of(node.module)
            whole = changes().get(f"import {base}") or change(base)
            aliases = [] if isinstance(node.names, cst.ImportStar) else node.names
            if whole and self.handled(node, whole):
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
        """What has changed about an imported name, if it is to be reported."""
        found = change(name)
        if not found or self.handled(alias, found) or (found.kind == "hint" and not self.hints):
            return None
        return latest(name)[0]

    def accessed(self, access: Access) -> Iterator[Use]:
        chain = self.chain(access)
        referents = self.referents(access)
        follows = True
        if referents:
            bound = self.bound(referents)
            found, name = latest(bound)
            if found and found.now:  # its import has been reported
                follows = self.follows(access)
                bound = found.renamed(name)
        else:
            bound = self.starred(name_of(chain[0]))
        if not bound:
            return
        name = spelled(chain[-1], bound)
        first = change(name)
        if first and self.handled(chain[-1], first):
            return
        found, last = latest(name)
        sure = self.known(referents)
        unsure = "" if sure or not referents else f"if {name_of(chain[0])} is {bound}: "
        if first and found and len(first.old) > len(bound if referents else root_of(bound)):
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
        starred = [modules_of(n)[0] if modules_of(n) else "" for n in stars]
        if any(root_of(module) not in LIBRARIES for module in starred):
            return ""
        for found in (f"{module}.{name}" for module in starred):
            if any(old == found or old.startswith((f"{found}(", f"{found}.")) for old in changes()):
                return found
        return ""

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

    def methods(self) -> Iterator[Use]:
        defined = {node.name.value for node in self.parents if isinstance(node, cst.FunctionDef)}
        for node in self.parents:
            if not isinstance(node, cst.Attribute):
                continue
            found = names.methods().get(node.attr.value)
            own = node.attr.value in defined or m.matches(
                node.value, m.Name("self") | m.Name("cls")
            )
            if not found or own or found.library not in self.libraries:
                continue
            if not self.guarded(node, found):
                yield self.use(node.attr, found)

    def use(
        self, node: cst.CSTNode, found: Change, edits: tuple[Edit, ...] = (), unsure: str = ""
    ) -> Use:
        line, column = self.start(node)
        asked = self.versioned(node)
        return Use(line, column + 1, found, () if asked else edits, asked + unsure)
