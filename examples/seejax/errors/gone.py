"""A name that is gone from JAX, Flax or Optax: what a message says of it, and what to write today.

The table is the one of `python -m seejax.today`, names.toml.
"""

import re

from seejax.today import names
from seejax.today.names import Change

OF = rf"(?P<module>(?:{'|'.join(names.LIBRARIES)})(?:\.\w+)*)"
ABSENT = [  # how Python and the libraries say that a module has no such name
    re.compile(rf"[Mm]odule '?{OF}'? has no attribute '(?P<name>\w+)'"),
    re.compile(rf"cannot import name '(?P<name>\w+)' from '{OF}'"),
    re.compile(rf"No module named '{OF}\.(?P<name>\w+)'"),
    re.compile(
        rf"(?:Error|Warning): {OF}\.(?P<name>\w+) (?:was|is|has been) (?:removed|deprecated)"
    ),
]
KEYWORD = re.compile(r"(?P<name>\w+)\(\) got an unexpected keyword argument '(?P<argument>\w+)'")
METHOD = re.compile(r"'[\w.]*(?:ArrayImpl|Tracer)' object has no attribute '(?P<name>\w+)'")


def name(message: str) -> str | None:
    """The dotted name that a message says is not there.

    >>> name("AttributeError: module 'jax' has no attribute 'tree_map'")
    'jax.tree_map'
    >>> name("ImportError: cannot import name 'linear_util' from 'jax' (jax/__init__.py)")
    'jax.linear_util'
    >>> name("ModuleNotFoundError: No module named 'jaxtyping.nothing'")
    """
    found = next(filter(None, (pattern.search(message) for pattern in ABSENT)), None)
    return f"{found['module']}.{found['name']}" if found else None


def change(message: str) -> Change | None:
    """What the table says of the name, the argument or the method that a message misses.

    >>> change("AttributeError: module 'jax.numpy' has no attribute 'DeviceArray'").now
    'jax.Array'
    >>> change("TypeError: clip() got an unexpected keyword argument 'a_min'").now
    'min'
    >>> change("AttributeError: 'ArrayImpl' object has no attribute 'to_py'").write
    '`numpy.asarray(x)`'
    >>> change("AttributeError: module 'jax' has no attribute 'tree_mop'")
    """
    if found := name(message):
        known = names.latest(found)[0]
        return known if known and known.kind != "hint" else None
    if found := KEYWORD.search(message):
        ending = f".{found['name']}({found['argument']})"
        rows = (row for row in names.changes().values() if row.old.endswith(ending))
        return next((row for row in rows if row.kind == "removed"), None)
    if found := METHOD.search(message):
        row = names.methods().get(found["name"])
        return row if row and row.kind == "removed" else None
    return None


def told(known: Change, lang: str) -> str:
    """What the table says, as a sentence in "zh" or "en".

    >>> told(names.changes()["jax.tree_map"], "en")
    'jax.tree_map was removed in jax 0.6.0; write jax.tree.map.'
    >>> told(names.changes()["jax.tree_map"], "zh")
    '`jax.tree_map` 从 jax 0.6.0 起没有了，现在写 `jax.tree.map`。'
    """
    if lang == "en":
        return known.sentence() + "."
    old, _, argument = known.old.removeprefix("import ").removesuffix(")").partition("(")
    subject = f"`{old}` 的参数 `{argument}` " if argument else f"`{old}` "
    state = "起没有了" if known.kind == "removed" else "起不再推荐"
    lead = f"{subject}从 {known.library} {known.since} {state}"
    instead = f"`{known.now}`" if known.now else known.write
    if instead and not re.search(r"[A-Za-z]", re.sub(r"`[^`]*`| or ", "", instead)):
        instead = f"，现在写 {instead.replace(' or ', ' 或 ')}"
    else:  # the table explains in English
        instead = f"。表里的说明是英文：{known.write or known.say}"
    return lead + instead + (f"（英文：{known.but}）" if known.but else "") + "。"
