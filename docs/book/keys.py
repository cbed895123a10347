"""What the outputs of a page depend on, and nothing else: the key that they are kept under.

A key holds the page's code cells, the modules of this repository that these import, directly or
not, the data files that cells or modules name, PAGE_ENV, the versions of Python and of the locked
packages, how kernels are started, and the style of figures. Style sheets, scripts and prose are not
in it: changing them executes nothing. Nor are comments and docstrings of `seejax.see`, since no
picture shows the source of the code that draws it.
"""

import ast
import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from book.paths import BUILD, DOCS, PAGE_ENV, ROOT, STYLE
from seejax import lazy

if TYPE_CHECKING:
    import nbformat

MODULES = (ROOT / "examples", DOCS)  # where an import of this repository leads
# Modules have a rule of their own; the others only dress HTML.
NO_OUTPUT = {".py", ".pyc", ".css", ".js"}

Names = tuple[frozenset[str], frozenset[str]]


def code_cells(notebook: "nbformat.NotebookNode") -> "list[nbformat.NotebookNode]":
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@functools.cache
def packages() -> frozenset[str]:
    """The packages that live in this repository.

    >>> "seejax" in packages(), "book" in packages(), "jax" in packages()
    (True, True, False)
    """
    return frozenset(path.parent.name for root in MODULES for path in root.glob("*/__init__.py"))


def file_of(module: str) -> Path | None:
    """The file of a module of this repository, or None if it is not one of ours.

    >>> file_of("seejax.see").relative_to(ROOT).as_posix(), file_of("jax")
    ('examples/seejax/see/__init__.py', None)
    """
    for root in MODULES:
        place = root.joinpath(*module.split("."))
        for path in (place / "__init__.py", place.with_suffix(".py")):
            if path.is_file():
                return path
    return None


def named(*sources: str, package: str = "") -> Names:
    """The modules that Python source may import, and every string in it.

    A module named in a string counts: `python -m seejax.training`, or code for another process.
    Source that is not Python (a cell of another language) could import anything it mentions.
    Of a lazy package (`seejax.lazy`) a name counts alone, where it is seen which names are used;
    else all of them, written `seejax.see.*`.

    Args:
      sources: cells that share their names, or one module.
      package: where the source stands, for its relative imports.

    >>> sorted(named("from seejax import see; run('python -m seejax.today')", "see.trace(f)")[0])
    ['seejax', 'seejax.see', 'seejax.see.trace', 'seejax.today']
    >>> sorted(named("from . import _hlo", package="seejax.see")[0])
    ['seejax.see', 'seejax.see._hlo']
    """
    found, strings, trees = set(), set(), []
    for source in sources:
        try:
            trees.append(ast.parse(source))
        except (SyntaxError, ValueError):
            strings.add(source)
    for tree in trees:
        found |= imported(tree, package)
        strings |= strings_in(tree)
    for text in strings:
        for one in packages():
            found.update(everything(re.findall(rf"\b{one}(?:\.\w+)*", text)))
            for module, names in re.findall(rf"\bfrom +({one}[\w.]*) +import +([^\n;]+)", text):
                each = {f"{module}.{name}" for name in re.findall(r"\w+", names)}
                found.update(everything(each))
    found |= used(trees, strings, package)
    data = {name for names in data_files().values() for name in names}
    modules = {name for name in found if name not in data or file_of(name)}
    return frozenset(modules), frozenset(strings)


def strings_in(tree: ast.AST) -> set[str]:
    """The strings of a tree, but for those that stand alone: docstrings."""
    alone = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {n.value for n in found if isinstance(n.value, str) and id(n) not in alone}


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a tree, but for what stands under `if TYPE_CHECKING`."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        never = node.body if isinstance(node, ast.If) and lazy.is_type_checking(node) else []
        todo += [child for child in ast.iter_child_nodes(node) if child not in never]


def bound(tree: ast.AST, package: str) -> Iterator[tuple[str, str, str]]:
    """What import statements load: the module, and a name that they bind with what it stands for.

    >>> sorted(bound(ast.parse("import a.b; from a.c import d as e"), ""))
    [('a.b', 'a', 'a'), ('a.c', 'e', 'a.c.d')]
    """
    for node in running(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.name, *((alias.asname, alias.name) if alias.asname else (top, top)))
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parts if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                yield base, alias.asname or alias.name, f"{base}.{alias.name}"


def imported(tree: ast.AST, package: str) -> set[str]:
    """The names that the import statements of a tree may load as modules."""
    return {name for module, _, full in bound(tree, package) for name in (module, full)}


# -- lazy packages ---------------------------------------------------------------------------------


@functools.cache
def lazy_packages() -> dict[str, dict[str, str]]:
    """The packages that import their names when they are asked for: where each name comes from."""
    found = {}
    for root in MODULES:
        for path in root.rglob("__init__.py"):
            if origins := lazy.sources(path.read_text("utf8")):
                found[".".join(path.parent.relative_to(root).parts)] = origins
    return found


def everything(names: Iterable[str]) -> set[str]:
    """The same names; of a lazy package that is named as such, every name that it has."""
    return {*names} | {f"{name}.*" for name in names if name in lazy_packages()}


def used(trees: list[ast.Module], strings: set[str], package: str) -> set[str]:
    """Which names of lazy packages are used; all of a package that is used in another way.

    >>> sorted(used([ast.parse("from seejax import see as s; s.trace; s.tree.x")], set(), ""))
    ['seejax.see.trace', 'seejax.see.tree']
    >>> sorted(used([ast.parse("from seejax import see; draw = [see]")], set(), ""))
    ['seejax.see.*']
    """
    meaning: dict[str, set[str]] = {}
    for tree in trees:
        for _, name, full in bound(tree, package):
            if full.partition(".")[0] in packages():
                meaning.setdefault(name, set()).add(full)
    chains: list[tuple[str, list[str]]] = []
    for tree in trees:
        inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        for node in (n for n in ast.walk(tree) if id(n) not in inner):
            attributes: list[str] = []
            while isinstance(node, ast.Attribute):
                attributes.insert(0, node.attr)
                node = node.value
            if isinstance(node, ast.Name):
                chains += [(full, attributes) for full in meaning.get(node.id, ())]
    found = {name for full, attributes in chains for name in reached(full, attributes)}
    for name, fulls in meaning.items():  # code in a string may use the names of the code around it
        if any(re.search(rf"\b{name}\b", text) for text in strings):
            found.update(each for full in fulls for each in reached(full, ()))
    for fulls in meaning.values():  # a package that one module takes from another one
        found.update(each for full in fulls if not file_of(full) for each in reached(full, ()))
    return found


def reached(full: str, attributes: Iterable[str]) -> Iterator[str]:
    """The names of lazy packages that `full.attribute.attribute` may use."""
    chain = [*full.split("."), *attributes]
    for name, origins in lazy_packages().items():
        parts = name.split(".")
        if chain[: len(parts)] == parts:
            known = len(chain) > len(parts) and (
                chain[len(parts)] in origins or file_of(".".join(chain[: len(parts) + 1]))
            )
            yield ".".join(chain[: len(parts) + 1]) if known else f"{name}.*"
        elif parts[: len(chain)] == chain or parts[-1] in chain or chain[-1] == "*":
            yield f"{name}.*"  # the package around it as a value, or by way of another module


@functools.cache
def named_in_file(path: Path) -> Names:
    """What a module of this repository names."""
    root = next(root for root in MODULES if path.is_relative_to(root))
    package = ".".join(path.relative_to(root).parent.parts)
    return named(path.read_text("utf8"), package=package)


@functools.cache
def data_files() -> dict[Path, frozenset[str]]:
    """Every file that may be read while a page runs, with the names it can be asked for by."""
    package = [p for p in (ROOT / "examples").rglob("*") if p.suffix not in NO_OUTPUT]
    more = [*(DOCS / "data").glob("*"), *(ROOT / "bench").glob("*.json")]
    found = {}
    for path in filter(Path.is_file, [*package, *more]):
        names = {path.name}
        if path in package:  # "seejax.see.figures", as Matplotlib names a style in a package
            names.add(".".join(path.relative_to(ROOT / "examples").with_suffix("").parts))
        found[path] = frozenset(names)
    return found


def sources(notebook: "nbformat.NotebookNode") -> list[Path]:
    """The files of this repository that running a notebook may read."""
    from IPython.core.inputtransformer2 import TransformerManager

    transform = TransformerManager().transform_cell  # %magic and !command are no Python
    return files_named([named(*(transform(cell.source) for cell in code_cells(notebook)))])


def files_named(todo: list[Names]) -> list[Path]:
    """The files of this repository that code may read which names these, directly or not."""
    found: set[Path] = set()
    while todo:
        modules, strings = todo.pop()
        for name in loaded(modules):
            path = file_of(name)
            if path and path not in found:
                found.add(path)
                todo.append(named_in_file(path))
        for path, names in data_files().items():
            if any(name in text for name in names for text in strings):
                found.add(path)
    return sorted(found)


def loaded(names: frozenset[str]) -> set[str]:
    """The modules that are loaded with names: where those come from, and the packages around."""
    found = set()
    for name in names:
        package, _, last = name.rpartition(".")
        origins = lazy_packages().get(package, {})
        for module in origins.values() if last == "*" else [origins.get(last, name)]:
            parts = module.split(".")
            if parts[0] in packages():
                found |= {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return found


def content(path: Path) -> bytes:
    """What of a file can change an output: its bytes, or of the code that draws pictures, its code.

    >>> one, other = b"def f():\\n    'a'\\n    return 1", b"def f():  # b\\n    return 1"
    >>> code_of(one) == code_of(other) != code_of(b"def f(): return 2")
    True
    """
    found = path.read_bytes()
    drawn = path.suffix == ".py" and path.is_relative_to(ROOT / "examples" / "seejax" / "see")
    return code_of(found) if drawn else found


@functools.cache
def code_of(source: bytes) -> bytes:
    """Python without its comments and docstrings, or as it is where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            said = node.body and isinstance(node.body[0], ast.Expr)
            if said and isinstance(getattr(node.body[0], "value", None), ast.Constant):
                node.body[:1] = [] if node.body[1:] else [ast.Pass()]
    return ast.dump(tree).encode()


def digest_of(
    paths: Iterable[Path], read: Callable[[Path], bytes] = Path.read_bytes
) -> "hashlib._Hash":
    digest = hashlib.sha256()
    for path in sorted(set(paths)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + read(path))
    return digest


def always() -> list[Path]:
    """What every key holds: the versions, and how a kernel is started and told to draw."""
    return [ROOT / "requirements.lock", STYLE, *(DOCS / "book" / f"{n}.py" for n in KERNEL)]


KERNEL = ("kernel", "forkserver")


def world() -> str:
    """A digest of all that any key is made of beside its page."""
    for cached in (packages, lazy_packages, named_in_file, data_files):
        cached.cache_clear()
    modules = (path for root in MODULES for path in root.rglob("*.py"))
    digest = digest_of([*always(), DOCS / "book" / "keys.py", *data_files(), *modules])
    digest.update(json.dumps([PAGE_ENV, sys.version_info[:2]]).encode())
    return digest.hexdigest()


def state() -> str:
    """A digest of the pages and of all that keys are made of, to see what is edited meanwhile."""
    return world() + digest_of(DOCS.rglob("*.md")).hexdigest()


def key(notebook: "nbformat.NotebookNode") -> str:
    """The key of a notebook's outputs."""
    cells = [(cell.source, cell.metadata) for cell in code_cells(notebook)]
    kernel = notebook.metadata.get("kernelspec", {})
    whole = [cells, kernel, PAGE_ENV, sys.version_info[:2]]
    digest = digest_of([*always(), *sources(notebook)], content)
    digest.update(json.dumps(whole, sort_keys=True).encode())
    return digest.hexdigest()[:16]


class Known:
    """The keys of pages as they were found last: what has not changed is not worked out again.

    A page that is as it was need not be parsed; of one whose cells are as they were, it need not be
    found out what they import.
    """

    FILE = BUILD / "cache" / "keys.json"

    def __init__(self) -> None:
        self.world = world()
        self.used: dict[str, str] = {}
        try:
            self.keys: dict[str, str] = json.loads(self.FILE.read_text("utf8"))
        except (OSError, ValueError):
            self.keys = {}

    def key(self, page: Path, parse: "Callable[[], nbformat.NotebookNode]") -> str:
        """The key of a page, "" where it has no cells; `parse` reads it if need be."""
        return self.get(page.read_bytes(), lambda: self.key_of(parse()))

    def key_of(self, notebook: "nbformat.NotebookNode") -> str:
        cells = [(cell.source, cell.metadata) for cell in code_cells(notebook)]
        kernel = notebook.metadata.get("kernelspec", {})
        told = json.dumps([cells, kernel], sort_keys=True).encode()
        return self.get(told, lambda: key(notebook)) if cells else ""

    def get(self, of: bytes, work_out: Callable[[], str]) -> str:
        name = hashlib.sha256(self.world.encode() + of).hexdigest()
        if name not in self.keys:
            self.keys[name] = work_out()
        self.used[name] = self.keys[name]
        return self.used[name]

    def save(self) -> None:
        """Keep what was asked for, and the cells behind it; forget the rest."""
        if self.FILE.parent.is_dir():
            wanted = {*self.used.values()}
            kept = {name: key for name, key in self.keys.items() if key in wanted or not key}
            self.FILE.write_text(json.dumps(kept | self.used), "utf8")
