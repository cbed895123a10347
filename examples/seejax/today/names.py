"""What names.toml says of a name."""

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

DATA = Path(__file__).with_name("names.toml")
LIBRARIES = ("jax", "jaxlib", "flax", "optax")
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Change:
    """One name that is gone, deprecated, or better written otherwise (a hint).

    Args:
      old: a dotted name; `name(argument)` is a keyword of it, `name('text')` its first argument,
        `import name` that import alone.
      kind: "removed", "deprecated" or "hint".
      since: the version of the library that removed or deprecated it, "" for a hint.
      now: the new name, where a renaming is all there is to do.
      write: what to write instead, where it is more than that.
      say: why nothing has to, or can, be written instead.
      but: what to mind about the new name.
      only: where the renaming is plain: "annotation", "with" (as `with name(...):`), "uncalled",
        or "named" (called with one argument, the others by name); "" for everywhere.
      method: old names an attribute of an object, which a parser cannot know the type of.
    """

    old: str
    kind: str
    since: str = ""
    now: str = ""
    write: str = ""
    say: str = ""
    but: str = ""
    only: str = ""
    method: bool = False

    @property
    def library(self) -> str:
        return self.old.removeprefix("import ").partition(".")[0]

    def renamed(self, name: str) -> str:
        """The new name of this name or of something in it; "" where there is none.

        >>> changes()["jax.experimental.stax"].renamed("jax.experimental.stax.Dense")
        'jax.example_libraries.stax.Dense'
        """
        return self.now and self.now + name.removeprefix(self.old)

    def sentence(self) -> str:
        """What is the matter, and what to write.

        >>> changes()["jax.tree_map"].sentence()
        'jax.tree_map was removed in jax 0.6.0; write jax.tree.map'
        >>> changes()["jax.numpy.clip(a_min)"].sentence()
        'jax.numpy.clip has no argument a_min since jax 0.10.0; write min'
        >>> methods()["to_py"].sentence()
        'if this is a jax.Array: to_py was removed in jax 0.4.7; write `numpy.asarray(x)`'
        """
        name, _, argument = self.old.removesuffix(")").partition("(")
        instead = f"write {self.now or self.write}" if self.now or self.write else self.say
        instead += f", {self.but}" if self.but else ""
        if self.kind == "hint":
            return f"{name} still works; today one would {instead}"
        if argument and self.kind == "removed":
            word = f"option {argument[1:-1]}" if argument[0] == "'" else f"argument {argument}"
            return f"{name} has no {word} since {self.library} {self.since}; {instead}"
        subject = f"the argument {argument} of {name}" if argument else name
        if self.method:
            kind, _, leaf = name.rpartition(".")
            subject = f"if this is a {kind}: {leaf}"
        was = "was removed in" if self.kind == "removed" else "is deprecated since"
        return f"{subject} {was} {self.library} {self.since}; {instead}"


@functools.cache
def changes() -> dict[str, Change]:
    """Every change, by the old name.

    >>> changes()["jax.ops.index_update"].write
    '`x.at[i].set(y)`'
    """
    found = {}
    for old, row in tomllib.loads(DATA.read_text("utf-8")).items():
        kind = next(kind for kind in ("removed", "deprecated", "hint") if kind in row)
        since = row.pop(kind)
        found[old] = Change(old, kind, "" if since is True else since, **row)
    return found


def change(name: str) -> Change | None:
    """What has changed about a dotted name, or about what it is a part of.

    >>> change("jax.experimental.stax.Dense").now, change("jax.jit")
    ('jax.example_libraries.stax', None)
    """
    return next((changes()[part] for part in _outwards(name) if _named(part)), None)


def latest(name: str) -> tuple[Change | None, str]:
    """The last change on the way of a name that moved more than once, and its name before that.

    >>> found, name = latest("jax.experimental.sharding.MeshPspecSharding")
    >>> name, found.renamed(name)
    ('jax.sharding.MeshPspecSharding', 'jax.sharding.NamedSharding')
    """
    found = change(name)
    if found and found.now and not found.only:
        later, moved = latest(found.renamed(name))
        if later and later.kind != "hint":
            return later, moved
    return found, name


@functools.cache
def newest(library: str) -> str:
    """The newest version of a library that the table knows of."""
    versions = [c.since for c in changes().values() if c.library == library and c.since]
    return max(versions, key=lambda since: [int(part) for part in since.split(".")])


def _outwards(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def _named(name: str) -> bool:
    return name in changes() and not changes()[name].method


@functools.cache
def methods() -> dict[str, Change]:
    """The changes of attributes of objects, by the attribute's name.

    >>> methods()["device_buffer"].write
    '`x.addressable_data(0)`'
    """
    return {c.old.rpartition(".")[2]: c for c in changes().values() if c.method}


@functools.cache
def _words() -> set[frozenset[str]]:
    """What a module spells that uses an old name, for each."""
    return {frozenset(_told(c)) for c in changes().values()}


def _told(c: Change) -> set[str]:
    parent, _, leaf = c.old.rpartition(".")
    if c.old.startswith("import "):
        return {c.old.removeprefix("import ")}
    if f"import {parent}" in changes() and parent.endswith(f".{leaf}"):  # jax.config.config
        return {f"{leaf}.{leaf}"}
    return {c.library, leaf} if c.method else set(WORD.findall(c.old))


def spelled(tree: ast.AST) -> bool:
    """Whether a module spells all words of any old name: without them it cannot use one.

    >>> spelled(ast.parse("import jax.numpy as jnp; jnp.prod(product)"))
    False
    >>> spelled(ast.parse("from jax import tree_map as tm"))
    True
    """
    found: set[str] = set()
    own: set[str] = set()
    starred = False
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                imported = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module), level=0, names=[ast.alias("*")]):
                imported, starred = [module], True
            case ast.ImportFrom(module=str(module), level=0):
                imported = [f"{module}.{alias.name}" for alias in node.names]
            case ast.Attribute(ast.Attribute(attr=first) | ast.Name(first), word):
                found |= {word, f"{first}.{word}"}
                continue
            case ast.Attribute(attr=word) | ast.keyword(arg=str(word)) | ast.Constant(str(word)):
                found.add(word)
                continue
            case ast.Name(word):
                own.add(word)
                continue
            case _:
                continue
        for words in (name.split(".") for name in imported if name.startswith(LIBRARIES)):
            found |= {*words, *map(".".join, pairwise(words))}
    if starred:  # then a name alone may be a library's
        found |= own
    return any(words <= found for words in _words())
