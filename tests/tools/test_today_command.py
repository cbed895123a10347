"""`python -m seejax.today`: each row of its data against the installed libraries; the command."""

import functools
import importlib
import importlib.metadata
import inspect
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import pytest

from processes import Process
from seejax.today.command import main
from seejax.today.names import Change, changes
from seejax.today.renaming import LOADED, MODULES, edited
from seejax.today.uses import find

ROOT = Path(__file__).parents[2]
ROWS = changes()
DOTTED = re.compile(r"\b(?:jax|flax|optax|functools|numpy|math|dataclasses)\.\w[\w.]*")

# -- each row against the installed libraries -----------------------------------------------------


def resolve(name: str) -> Any:
    """What a dotted name stands for; AttributeError if nothing."""
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], 2):
        module = ".".join(parts[:count])
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(module)
            except ModuleNotFoundError as error:  # not that of something which it imports
                assert error.name and f"{module}.".startswith(f"{error.name}."), error
                raise AttributeError(name) from None
    return found


def told(action: Callable[[], object]) -> list[str]:
    """The warnings of an action, and what it logs."""
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            action()
    finally:
        logging.getLogger().removeHandler(handler)
    return heard + [str(warning.message) for warning in caught]


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


X = jnp.ones((2, 2))
CALLED = {  # what warns, or raises, only when it is called
    "jax.checkpoint(concrete)": lambda: jax.checkpoint(jnp.sin, concrete=True),
    "jax.remat(concrete)": lambda: jax.remat(jnp.sin, concrete=True),
    "jax.host_id": lambda: jax.host_id(),
    "jax.host_ids": lambda: jax.host_ids(),
    "jax.host_count": lambda: jax.host_count(),
    "jax.local_devices(host_id)": lambda: jax.local_devices(host_id=0),
    "jax.numpy.sort(kind)": lambda: jnp.sort(X, kind="stable"),
    "jax.numpy.argsort(kind)": lambda: jnp.argsort(X, kind="stable"),
    "jax.pure_callback(vectorized)": lambda: jax.pure_callback(
        lambda x: x, X, X, vectorized=True
    ).block_until_ready(),
    "flax.linen.SelfAttention": lambda: nn.SelfAttention(2).init(jax.random.key(0), X),
    "flax.traverse_util.Traversal": lambda: flax.traverse_util.ModelParamTraversal(lambda *_: True),
    "flax.traverse_util.ModelParamTraversal": lambda: flax.traverse_util.ModelParamTraversal(
        lambda *_: True
    ),
    "flax.experimental.nnx": lambda: importlib.reload(
        importlib.import_module("flax.experimental.nnx")
    ),
}


def gone(row: Change) -> bool:
    """Whether what the row says is removed is not to be had."""
    name, _, argument = row.old.removesuffix(")").partition("(")
    if name.startswith("import "):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name.removeprefix("import "))
        return True
    if row.method:
        return not hasattr(X if row.library == "jax" else nn.Module, name.rpartition(".")[2])
    if not argument:
        with warnings.catch_warnings(action="ignore"), pytest.raises(AttributeError):
            resolve(name)
        return True
    if argument.startswith("'"):
        with pytest.raises(AttributeError, match="Unrecognized"):
            resolve(name)(argument.strip("'"), True)
        return True
    if row.old in CALLED:
        with pytest.raises(Exception, match=argument):
            CALLED[row.old]()
        return True
    with warnings.catch_warnings(action="ignore"):
        parameters = inspect.signature(resolve(name)).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    found = parameters.get(argument)
    return (
        found.kind is found.POSITIONAL_ONLY if found else inspect.Parameter.VAR_KEYWORD not in kinds
    )


def test_each_old_name_is_gone_or_warns_as_its_row_says():
    """In an interpreter of its own: a module that another test has imported warns no more."""
    code = "import test_today_command as test; print(*test.unproved(), sep='\\n')"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    process = Process(sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": path})
    status, out, err = process.end()
    assert (status, out) == (0, "\n"), out + err


def unproved() -> list[str]:
    """The rows that are not as the installed libraries have it."""
    wrong = []
    for row in ROWS.values():
        if row.kind == "hint":
            with warnings.catch_warnings(action="ignore"):
                resolve(row.old)
            assert not row.since
        elif version(row.since) > version(importlib.metadata.version(row.library)):
            continue
        elif row.kind == "removed":
            try:
                assert gone(row)
            except BaseException as error:
                wrong.append(f"{row.old}: {error}")
        else:
            action = CALLED.get(row.old, lambda name=row.old: resolve(name))
            heard = [line for line in told(action) if re.search(r"deprecated|renamed|alias", line)]
            if not heard:
                wrong.append(f"{row.old} does not warn")
    return wrong


def test_what_to_write_instead_exists():
    wrong = []
    for row in ROWS.values():
        assert bool(row.now) + bool(row.write) + bool(row.say) == 1, row
        names = DOTTED.findall(f"{row.write} {row.say} {row.but}")
        name, _, argument = row.old.removesuffix(")").partition("(")
        if row.now and argument:
            if row.now not in inspect.signature(resolve(name)).parameters:
                wrong.append(f"{name} has no {row.now}")
        elif row.now and row.method:
            assert hasattr(X, row.now)
        elif row.now:
            names.append(row.now)
            if parent := row.now.rpartition(".")[0]:  # for `from parent import name`
                importlib.import_module(parent)
        for new in names:
            try:
                assert not [
                    line for line in told(lambda new=new: resolve(new)) if "deprecated" in line
                ]
            except (AttributeError, AssertionError):
                wrong.append(f"{row.old}: {new}")
    assert not wrong, "\n".join(wrong)


def test_rows_name_each_library_and_a_version():
    broken = [row for row in ROWS.values() if row.kind != "hint"]
    assert {row.library for row in broken} == {"jax", "jaxlib", "flax", "optax"}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", row.since) for row in broken)


def test_modules_that_need_no_import_of_their_own():
    """An edit may write `jax.tree.map` where only jax is imported."""
    ours = sorted(name for name in LOADED if name.startswith(("jax", "flax", "optax")))
    code = "\n".join(["import jax, flax, optax", *ours])
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# -- what is found --------------------------------------------------------------------------------

FOUND = {
    "from jax.config import config": ["1:24 jax.config.config"],
    "import jax.config": ["1:8 import jax.config"],
    "import jax.config as c\nc.update('jax_array', True)": [
        "1:8 import jax.config",
        "2:10 jax.config.update('jax_array')",
    ],
    "from jax import tree_util as tu\ntu.tree_multimap(f, x)": ["2:1 jax.tree_util.tree_multimap"],
    "import jax.numpy as np\ndef f(x): return np.product(x) + np.prod(x)": [
        "2:18 jax.numpy.product"
    ],
    "from jax import tree_map\nf = tree_map(g, tree_map(g, x))": ["1:17 jax.tree_map"],
    "from jax.experimental import stax\nstax.Dense(3)": ["1:30 jax.experimental.stax"],
    "from jax.experimental.stax import (Dense,  # a\n  Relu)": ["1:6 jax.experimental.stax"],
    "import jax.experimental.stax\njax.experimental.stax.Dense": [
        "1:8 jax.experimental.stax",
        "2:1 jax.experimental.stax",
    ],
    "from jax.experimental.stax import *": ["1:6 jax.experimental.stax"],
    "import jax\ntu = jax.tree_util\ndef f(x):\n  return tu.tree_multimap(g, x)": [
        "4:10 jax.tree_util.tree_multimap"
    ],
    "import jax\nfmap = jax.tree_map\nfmap(f, x)": ["2:8 jax.tree_map"],
    "def f(x):\n  import jax\n  return jax.tree_map": ["3:10 jax.tree_map"],
    "try:\n  import jax\nexcept ImportError:\n  jax = None\njax.tree_map": ["5:1 jax.tree_map"],
    "try:\n  import jax.numpy as np\nexcept ImportError:\n  import numpy as np\nnp.product(x)": [
        "5:1 jax.numpy.product"
    ],
    "from functools import partial\nimport jax.numpy as np\npartial(np.clip, a_min=0)": [
        "3:18 jax.numpy.clip(a_min)"
    ],
    "from jax.numpy import clip\nclip(x, a_min=0, a_max=f(a_min=3))": [
        "2:9 jax.numpy.clip(a_min)",
        "2:18 jax.numpy.clip(a_max)",
    ],
    "import jax\nx.block_host_until_ready().to_py()": [
        "2:3 jax.Array.block_host_until_ready",
        "2:28 jax.Array.to_py",
    ],
    "import jax\nclass A:\n  def f(self, x: jax.numpy.DeviceArray) -> jax.random.KeyArray: ...": [
        "3:18 jax.numpy.DeviceArray",
        "3:44 jax.random.KeyArray",
    ],
    "import flax\n@flax.struct.dataclass\nclass S:\n  o: flax.optim.Optimizer": ["4:6 flax.optim"],
    "import jax\nprint(f'{jax.tree_map(f, x)}')": ["2:10 jax.tree_map"],
    "import jax\n# jax.tree_map\n'jax.tree_map'": [],
    # conditions and handlers that are about something else
    "import jax\nif args.data_version == 2:\n  jax.tree_map(f, x)": ["3:3 jax.tree_map"],
    "import jax\nif hasattr(args, 'tree_map'):\n  jax.tree_map(f, x)": ["3:3 jax.tree_map"],
    "import jax\nif args.conversion: jax.tree_map(f, x)": ["2:21 jax.tree_map"],
    "import jax\ntry:\n  z = jax.tree_multimap(f)\nexcept (OSError, AttributeError) as e:\n  e": [
        "3:7 jax.tree_multimap"
    ],
    "import jax\ntry:\n  main()\n  jax.tree_map\nexcept:\n  pass": ["4:3 jax.tree_map"],
    "try:\n  from jax import tree_map\nexcept ImportError:\n  raise": ["2:19 jax.tree_map"],
    "try:\n  from jax import tree_multimap as t\nexcept:\n  from jax import tree_map as t": [
        "4:19 jax.tree_map"
    ],
    "import jax\nif hasattr(jax.tree_util, 'tree_map'): jax.tree_map(f, x)": ["2:40 jax.tree_map"],
    "import jax\nif not hasattr(jax.core, 'Primitive'): jax.core.Primitive": [
        "2:40 jax.core.Primitive"
    ],
    "import jax\nif hasattr(x, 'numpy'): x.numpy()\nelse: x.to_py()": ["3:9 jax.Array.to_py"],
    "import jax\nhasattr(jax, 'tree') and jax.tree_map(f, x)": ["2:26 jax.tree_map"],
    "import jax\nwith pytest.raises(ValueError): jax.tree_map(f, x)": ["2:33 jax.tree_map"],
    "import jax\nwith pytest.raises(Exception): jax.tree_map(f, x)": ["2:32 jax.tree_map"],
    "import jax\nwith pytest.raises(AttributeError): g(jax.tree_map(f, x))": ["2:39 jax.tree_map"],
    "import jax\nwith pytest.raises(AttributeError):\n  g()\n  jax.tree_map(f, x)": [
        "4:3 jax.tree_map"
    ],
    "import jax\ntry: p = jax.tree.map(f, load(x))\nexcept Exception: p = jax.tree_map(f, y)": [
        "3:23 jax.tree_map"
    ],
    "import jax\nV = jax.__version_info__[:2]\nif V == (0, 12): jax.tree_map(f, x)": [
        "3:18 jax.tree_map"
    ],
    "import jax\nif jax.__version_info__[0:2] == (0, 12): jax.tree_map": ["2:42 jax.tree_map"],
    # what is no test of the version of JAX
    "import jax\nc = {'jax': jax.__version__, 'lr': 0.1}\nif c['lr'] < 0.5: jax.tree_map(f, x)": [
        "3:19 jax.tree_map"
    ],
    "import jax\nr = init(config=dict(v=jax.__version__))\nif r.a == 1.5: jax.tree_map(f, x)": [
        "3:16 jax.tree_map"
    ],
    "import jax\nif V(jaxopt.__version__) < V('0.8'): jax.tree_map(f, x)": ["2:38 jax.tree_map"],
    "import jax\nif version('jaxtyping') < '0.1': jax.tree_map(f, x)": ["2:34 jax.tree_map"],
    "import jax\ndef f():\n  old = jax.__version_info__ < (0, 2)\n"
    "def g(x, old=False):\n  if old: jax.tree_map(f, x)": ["5:11 jax.tree_map"],
    "import jax\nif jax.__version_info__[:2] <= (0, 12): jax.tree_map(f, x)": ["2:41 jax.tree_map"],
    # what follows an old name, a star, an alias
    "import jax.numpy as jnp\nxp: Any = jnp\nxp.product(x)": ["3:1 jax.numpy.product"],
    "import jax.numpy as jnp\nif (xp := jnp): xp.product(x)": ["2:17 jax.numpy.product"],
    "from jax import *\ntree_util.tree_multimap(f, t)": ["2:1 jax.tree_util.tree_multimap"],
    "from jax.config import config\nconfig.enable_omnistaging()": [
        "1:24 jax.config.config",
        "2:1 jax.config.enable_omnistaging",
    ],
    "from jax.experimental import optix as o\no.additive_weight_decay(1); o.adam(1)": [
        "1:30 jax.experimental.optix",
        "2:1 optax.additive_weight_decay",
    ],
    "from jax.numpy import *\nfrom jax import *\nproduct(x); prod(x); tree_map(f, x)": [
        "3:1 jax.numpy.product",
        "3:22 jax.tree_map",
    ],
    "import jax.numpy as jnp\nnp = jnp\nnp.product(x)": ["3:1 jax.numpy.product"],
    "from jaxlib.xla_extension import XlaRuntimeError, Client": [
        "1:34 jaxlib.xla_extension.XlaRuntimeError",
        "1:51 jaxlib.xla_extension",
    ],
    "from jax.numpy import *\nclip(x, a_min=0)": ["2:9 jax.numpy.clip(a_min)"],
    "import jax\nnp = jnp = jax.numpy\nnp.product(x)": ["3:1 jax.numpy.product"],
    "import jax\nnp, lax = jax.numpy, jax.lax\nnp.product(x)": ["3:1 jax.numpy.product"],
    "import jax.numpy as n\ndef f(x, np=n): return np.product(x)": ["2:24 jax.numpy.product"],
    "from functools import partial as p\nimport jax.numpy as np\np(np.clip, a_min=0)": [
        "3:12 jax.numpy.clip(a_min)"
    ],
    "import jax\njax.remat(f, concrete=True)": ["2:14 jax.remat(concrete)"],
    # a handler gives a stand-in, or something else, or nothing: the old name fails without a word
    "try:\n  import jax\n  from jax.config import config\nexcept ImportError:\n  jax = None": [
        "3:26 jax.config.config"
    ],
    "try:\n  from jax import tree_map\n  HAS = True\nexcept ImportError:\n  HAS = False": [
        "2:19 jax.tree_map"
    ],
    "import jax\ntry: y = jax.tree_map(f, x)\nexcept Exception: y = x": ["2:10 jax.tree_map"],
    "import jax\ndef f(t):\n  try: return jax.tree_map(g, t)\n  except Exception: return t": [
        "3:15 jax.tree_map"
    ],
    "try: from jax.ops import index_add\nexcept ImportError: pass": ["1:26 jax.ops.index_add"],
    # a condition that holds today, or may hold
    "import jax\nif jax.__version_info__ >= (0, 2): jax.tree_map": ["2:36 jax.tree_map"],
    "import jax\nif jax.__version_info__ < (0, 4): pass\nelse: jax.tree_map": ["3:7 jax.tree_map"],
    "import jax\nif jax.__version__ < '0.4.26': jax.tree_map": ["2:32 jax.tree_map"],  # as text
    "import jax\nif old(jax.__version__): jax.tree_map": ["2:26 jax.tree_map"],
    "import jax\njax_inversion = True\nif jax_inversion: jax.tree_map": ["3:19 jax.tree_map"],
    "import jax\nif hasattr(jax, 'tree'): jax.tree_map": ["2:26 jax.tree_map"],
    # what is bound when
    "import jax\njax.numpy.product(x)\nimport jax.numpy": ["2:1 jax.numpy.product"],
    "import jax.numpy as n\nn.product(x)\nimport numpy as n\nn.product(x)": [
        "2:1 jax.numpy.product"
    ],
    "import jax.numpy as n\ndef f(): n.product(x)\nimport numpy as n": ["2:10 jax.numpy.product"],
    "import jax.numpy as n\nfor i in x:\n  n.product(x)\n  import numpy as n": [
        "3:3 jax.numpy.product"
    ],
    # a name that moved twice
    "import jax\njax.experimental.sharding.MeshPspecSharding": [
        "2:1 jax.sharding.MeshPspecSharding"
    ],
    "from jax.experimental.optix import adam, InitUpdate": [
        "1:36 jax.experimental.optix",
        "1:42 jax.experimental.optix.InitUpdate",
    ],
}
QUIET = [
    "def f(jax): return jax.tree_map",
    "import jax\njax = wrapped(jax)\njax.tree_map",
    "class jax: tree_map = 1\njax.tree_map",
    "from . import jax\njax.tree_map",
    "from .jax import tree_map",
    "from mine import jax\njax.tree_map",
    "import numpy as jax\njax.tree_map; jax.product(x)",
    "import jax\nfor jax in range(3): jax.tree_map",
    "import jax\n[jax.tree_map for jax in x]",
    "import jax\nlambda jax: jax.tree_map",
    "try:\n  from jax import tree_map\nexcept ImportError:\n  from jax.tree import map as tree_map",
    "import jax\ntry:\n  f = jax.tree_map\nexcept AttributeError:\n  f = jax.tree.map",
    "import jax\nf = jax.tree_map if hasattr(jax, 'tree_map') else jax.tree.map",
    "import jax\nif jax.__version_info__ < (0, 4, 26):\n  f = jax.tree_map",
    "import numpy as np\nnp.product(x); np.clip(x, a_min=0); y.to_py()",
    "import jax\nclass A:\n  def to_py(self): ...\n  def f(self): self.to_py()",
    "import jax\nself.device_buffer",
    "import jax.numpy as jnp\njnp.clip(x, min=0); f(a_min=3)",
    "from optax import tree\ntree.map(f, x)",
    "import functools, jax\njax.tree_map = functools.partial(f)\njax.tree_map(g, x)",
    "import jax.numpy as jnp\njnp.product = jnp.prod\njnp.product(x)",
    "import jax\nsetattr(jax, 'tree_map', f)\njax.tree_map(g, x)",
    "import jax\nif not hasattr(jax, 'tree_map'):\n  jax.tree_map = f\njax.tree_map(g, x)",
    "import jax\nif hasattr(jax, 'tree'):\n  f = jax.tree.map\nelse:\n  f = jax.tree_map",
    "import jax\nfrom importlib.metadata import version\nif version('jax') < '0.1': jax.tree_map",
    "import jax\nOLD = jax.__version_info__ < (0, 4, 26)\nif OLD: jax.tree_map",
    "import jax\ntry:\n  f = jax.tree_map\nexcept AttributeError:\n  from jax.tree import map as f",
    "from jax.numpy import *\nfrom mine import *\nproduct(x)",
    "import jax.numpy as n\nimport numpy as n\nn.product(x)",
    "import jax.numpy as n\nimport numpy as n\ndef f(): n.product(x)",
    "from jax import random\nimport random\nrandom.shuffle([1, 2])",
    "import jax.numpy as n\nn = 1\nn.product(x)",
    "import jax\nif '0.4.26' > jax.__version__ or jax.__version_info__ < (0, 5): pass\n"
    "else:\n  if jax.__version_info__ < (0, 2) and x: jax.tree_map",
    "import jax\nfrom packaging.version import Version as V\n"
    "NEW = V(jax.__version__) >= V('0.4.26')\nif not NEW: jax.tree_map",
    "import jax\nif hasattr(jax, 'new_ref') and hasattr(jax, 'Ref'): ...\n"
    "else: from jax.experimental import MutableArray as Ref",
    "try:\n  from jax import tree_map\nexcept ImportError:\n  def tree_map(f, x): ...",
    "try:\n  from jax.sharding import Mesh\nexcept ImportError:\n"
    "  from jax.experimental.maps import Mesh",
    "import jax\ntry: f = jax.tree.map\nexcept AttributeError: f = jax.tree_map",
    "try:\n  import jax.example_libraries.stax as s\nexcept:\n  import jax.experimental.stax as s",
    "import jax\njax.core.Var if hasattr(jax.core, 'Var') else jax.extend.core.Var",
    "import optax\noptax.hvp if hasattr(optax, 'hvp') else optax.second_order.hvp",
    "import jax\nf = hasattr(jax, 'tree_map') and jax.tree_map or jax.tree.map",
    "import jax\nif getattr(jax, 'tree_map', None): jax.tree_map(f, x)",
    "import jax\nif getattr(jax, 'tree', None) is None: jax.tree_map(f, x)",
    "import jax\nNEW = hasattr(jax, 'tree')\nif not NEW: jax.tree_map(f, x)",
    "import jax\nOLD: bool = jax.__version_info__ < (0, 4, 25)\nif OLD: jax.tree_map(f, x)",
    "import jax\ndef f(t):\n  try: return jax.tree.map(g, t)\n"
    "  except AttributeError: return jax.tree_map(g, t)",
    "import jax\nwith self.assertRaisesRegex(AttributeError, 'x'): jax.tree_map(f, x)",
    "import jax\nwith pytest.raises(AttributeError): jax.tree_map(f, x)",
    "import jax\ndef f(t):\n  try: return jax.tree_map(g, t)\n"
    "  except AttributeError: return jax.tree.map(g, t)",
    "",
]


@pytest.mark.parametrize("source", FOUND, ids=lambda text: text.replace("\n", "; ")[:60])
def test_uses_are_found_where_they_stand(source):
    assert [f"{use.line}:{use.column} {use.change.old}" for use in find(source)] == FOUND[source]


@pytest.mark.parametrize("source", QUIET, ids=lambda text: text.replace("\n", "; ")[:60])
def test_what_is_not_jax_or_is_guarded_is_no_alarm(source):
    assert find(source) == []


def cells(page: Path) -> str:
    """The code cells of a page, but those that are there to raise."""
    found = re.findall(r"^```\{code-cell\}.*?\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    return "\n".join(
        re.sub(r"^:.*\n", "", cell, flags=re.M) for cell in found if "raises-exception" not in cell
    )


def test_nothing_is_found_in_the_code_of_this_book(capsys, tmp_path):
    for page in (ROOT / "docs" / "en").rglob("*.md"):
        if code := cells(page):
            (tmp_path / f"{page.stem}.py").write_text(code, "utf-8")
    places = [ROOT / name for name in ("examples", "docs", "bench", "conftest.py")]
    status = main([*map(str, places), str(tmp_path)])
    said = capsys.readouterr()
    assert (status, said.out) == (0, ""), said


# -- --fix ----------------------------------------------------------------------------------------

RENAMED = {
    "import jax\njax.tree_map(f, x)": "import jax\njax.tree.map(f, x)",
    "import jax.numpy as np\nnp.product(x)": "import jax.numpy as np\nnp.prod(x)",
    "from jax import vmap, tree_map as tm\ntm(f, x)": (
        "from jax import vmap\nfrom jax.tree import map as tm\ntm(f, x)"
    ),
    "from jax import (grad, tree_map,\n  vmap)": (
        "from jax import (grad, vmap)\nfrom jax.tree import map as tree_map"
    ),
    "from jax import (grad,\n  tree_map,  # of trees\n  vmap)": None,
    "def f():\n  from jax import tree_map, jit\n  g()": (
        "def f():\n  from jax import jit\n  from jax.tree import map as tree_map\n  g()"
    ),
    "if x: from jax import tree_map, jit": (
        "if x: from jax import jit; from jax.tree import map as tree_map"
    ),
    "from jax.config import config; config.update(a, b)": (
        "from jax import config; config.update(a, b)"
    ),
    "import jax.experimental.stax as s\ns.Dense": "import jax.example_libraries.stax as s\ns.Dense",
    "import jax.experimental.stax\njax.experimental.stax.Dense": (
        "import jax.example_libraries.stax\njax.example_libraries.stax.Dense"
    ),
    "from jax.experimental.stax import (Dense,  # a\n  Relu)": (
        "from jax.example_libraries.stax import (Dense,  # a\n  Relu)"
    ),
    "from jax.experimental import optix\noptix.adam(1)": "import optax as optix\noptix.adam(1)",
    "import jax.numpy as jnp\nx: jnp.DeviceArray": (
        "import jax\nimport jax.numpy as jnp\nx: jax.Array"
    ),
    "from jax import lax\nn = lax.prod(s)": "import math\nfrom jax import lax\nn = math.prod(s)",
    "import jax\njax.core.Primitive('p')": (
        "import jax.extend.core\nimport jax\njax.extend.core.Primitive('p')"
    ),
    "import jax.numpy as jnp\ndef f(jax): return jnp.DeviceArray": None,
    "import jax.numpy as np\nnp.clip(x, a_min=0, a_max=1)": (
        "import jax.numpy as np\nnp.clip(x, min=0, max=1)"
    ),
    "import jax\ny = x.block_host_until_ready()": None,  # x may be anything
    # the new name's import: not on every way to the line, so it is written again
    "import jax.numpy as jnp\ny = jnp.trapz(x)\nimport jax.scipy.integrate": (
        "import jax.scipy.integrate\nimport jax.numpy as jnp\n"
        "y = jax.scipy.integrate.trapezoid(x)\nimport jax.scipy.integrate"
    ),
    "import jax.numpy as jnp\nif x:\n  import jax\ny: jnp.DeviceArray": (
        "import jax\nimport jax.numpy as jnp\nif x:\n  import jax\ny: jax.Array"
    ),
    "def f():\n\timport jax.numpy as jnp\n\treturn jnp.trapz(x)": (
        "def f():\n\timport jax.scipy.integrate\n\timport jax.numpy as jnp\n"
        "\treturn jax.scipy.integrate.trapezoid(x)"
    ),
    "def f():\n\tfrom jax import tree_map, jit\n\tg()": (
        "def f():\n\tfrom jax import jit\n\tfrom jax.tree import map as tree_map\n\tg()"
    ),
    # … or there is no place for it
    "def f():\n  jax.devices()\n  import jax.numpy as n\n  n.trapz(x)\nimport jax": None,
    "def f():\n  global n\n  import jax.numpy as n\ndef g(x): return n.trapz(x)": None,
    # … or the new name is another in the function, or may be unbound there
    "import jax.numpy as n\ndef f(x):\n  if x:\n    import jax\n  return n.trapz(x)": None,
    "import jax\ndef f(x):\n  if x:\n    import math\n  return jax.lax.prod(x)": None,
    "import jax\ndef f(x):\n  y = jax.partial(g)\n  import functools": None,
    "import jax\ndef f(x):\n  def g(): return jax.lax.prod(x)\n  if x: import math": None,
    "import jax.numpy as n\nimport jax\ndel jax\nn.trapz(x)": None,
    "import jax\nmatch x:\n  case [math]: jax.lax.prod(x)": None,
    "import jax\nwith f() as math: pass\njax.lax.prod(x)": None,
    # … or a test asks for the version
    "import jax\n_, minor, _ = jax.__version__.split('.')\nif int(minor) < 4: jax.tree_map": None,
    "import jax\nif jax.__version_info__ >= (0, 2): jax.tree_map": None,
    "import jax\nif old(jax.__version__):\n  from jax import tree_map\n  tree_map(f, x)": None,
    # a name that moved twice
    "from jax.experimental.sharding import MeshPspecSharding as M, Sharding\nM()": (
        "from jax.sharding import NamedSharding as M\nfrom jax.sharding import Sharding\nM()"
    ),
    "import jax\njax.xla.DeviceArray": None,
    "from jax import tree_map, jit; x = 1\nimport jax\njax.tree_map(f, x)": (
        "from jax import jit; from jax.tree import map as tree_map; x = 1\n"
        "import jax\njax.tree.map(f, x)"
    ),
    "from optax import safe_int32_increment, hvp": (  # the first is a hint
        "from optax import safe_int32_increment\nfrom optax.second_order import hvp"
    ),
    "from flax import nnx\nnnx.register_variable_name_type_pair('q', nnx.Param, True)": None,
    # a name with two meanings
    "if x:\n  import numpy as n\nelse:\n  import jax.numpy as n\nn.trapz(y), n.clip(a_min=y)": None,
    "if x:\n  import numpy as n\nelse:\n  import jax.numpy as n\no = n\no.product(y)": None,
    # a new name that means more, or is called otherwise
    "import jax.numpy as n\nisinstance(x, n.DeviceArray)": None,
    "from jax.random import KeyArray\nx: KeyArray\nisinstance(x, (int, KeyArray))": None,
    "from jax.random import KeyArray\nx: list[KeyArray]": (
        "from jax import Array as KeyArray\nx: list[KeyArray]"
    ),
    "from optax import tree_utils as t\nt.tree_l2_norm(g, True); t.tree_l2_norm(g, squared=True)": (
        "from optax import tree_utils as t\nt.tree_l2_norm(g, True); t.tree_norm(g, squared=True)"
    ),
    "from flax import nnx\nnnx.VariableState(nnx.Param, 1.0)": None,
    "import jax\nc = jax.sharding.use_mesh(m)\nwith jax.sharding.use_mesh(m): pass": (
        "import jax\nc = jax.sharding.use_mesh(m)\nwith jax.set_mesh(m): pass"
    ),
    "from jax.sharding import use_mesh\nc = use_mesh(m)": None,
    # an import and what is taken from it
    "from jax.experimental import optix as o\no.additive_weight_decay(1)": (
        "import optax as o\no.add_decayed_weights(1)"
    ),
    "from jax.experimental import (  # old\n  stax, optix)\noptix.additive_weight_decay(1)": None,
    "import jax\njax.ops.index_update(x, 0, 1)": None,
    "import jax\njax.tree_map(lambda x: jax.tree_leaves(x), y)": (
        "import jax\njax.tree.map(lambda x: jax.tree.leaves(x), y)"
    ),
}


@pytest.mark.parametrize("source", RENAMED, ids=lambda text: text.replace("\n", "; ")[:60])
def test_a_plain_renaming_and_nothing_else_is_written(source):
    uses = find(source)
    assert uses
    new = edited(source, {edit for use in uses for edit in use.edits})
    assert new == (RENAMED[source] or source)
    if new != source:
        assert not [use for use in find(new) if use.edits], "once is enough"


RUN = {  # what a file prints that --fix has changed
    "import jax.numpy as jnp\ndef f(x: jnp.DeviceArray): return jnp.trapz(x)\n"
    "print(f(jnp.arange(3.0)))\nimport jax": "2.0",
    "import sys, jax.numpy as jnp\nif '--x' in sys.argv:\n  import jax.scipy.integrate\n"
    "print(jnp.product(jnp.arange(1, 4)))": "6",
    "from jax import core\nprint(core.Literal.__name__)": "Literal",
    "import jax.numpy as jnp\nfrom optax import tree_utils as otu\n"
    "print(otu.tree_l2_norm({'w': jnp.array([3.0, 4.0])}, squared=True))": "25.0",
    "from jax.experimental import optix\nt = optix.chain(optix.additive_weight_decay(.1))\n"
    "print(t.update(1.0, t.init(1.0), 1.0)[0])": "1.1",
    "from jax.experimental.optix import InitUpdate, adam\n"
    "print(isinstance(adam(0.1), InitUpdate))": "True",
    "from jax.experimental.sharding import MeshPspecSharding as M, Sharding\n"
    "print(issubclass(M, Sharding))": "True",
    "from jax import experimental\nprint(len(experimental.stax.Dense(3)))": "2",
    "import jax\nmath = jax.lax\ndef f():\n  import jax\n  return jax.core.Primitive\n"
    "print(f().__name__)": "Primitive",
}


def test_what_is_renamed_runs(tmp_path):
    """In one new interpreter, so that no import of this one helps."""
    for number, source in enumerate(RUN):
        new = edited(source, {edit for use in find(source) for edit in use.edits})
        assert new != source
        (tmp_path / f"case{number}.py").write_text(new)
    code = "import runpy, sys\nfor path in sys.argv[1:]: runpy.run_path(path)"
    paths = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *paths],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == [*RUN.values()], done.stderr


def test_new_names_that_are_modules_are_known():
    new = {change.now for change in changes().values()} - {""}
    modules = {name for name in new if name.count(".") and is_module(name)}
    assert modules - LOADED == MODULES


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what it is in is none
        return False


def test_advice_for_safe_map_is_true():
    """It returned a list, at once."""
    f, xs, ys = (lambda x, y: x - y), [5, 7], [1, 2]
    for module in ("core", "util"):
        told = ROWS[f"jax.{module}.safe_map"].write.strip("`")
        assert eval(told, {"f": f, "xs": xs, "ys": ys}) == [4, 5]
        assert eval(ROWS[f"jax.{module}.safe_zip"].write.strip("`"), {"xs": xs, "ys": ys}) == [
            (5, 1),
            (7, 2),
        ]
    curry = eval(ROWS["jax.curry"].write.strip("`"), {"functools": functools})
    assert curry(f)(5)(1) == 4


def test_what_may_be_otherwise_is_told_with_an_if():
    [use] = find("import jax.numpy as n\ndef f(x, np=n): return np.product(x)")
    assert use.sentence().startswith("if np is jax.numpy: jax.numpy.product was removed in")
    [use] = find("import jax\nif old(jax.__version__): jax.tree_map")
    assert use.sentence().startswith("under a test of the version: jax.tree_map was removed in")


def test_a_method_is_told_with_an_if():
    [use] = find("import jax\nFrame().to_py()")
    assert use.change.sentence().startswith(
        "if this is a jax.Array: to_py was removed in jax 0.4.7"
    )


def test_versions_of_the_change_log():
    """Removed before the module was: jax's change log, 0.5.0 and 0.6.0."""
    assert ROWS["jax.lib.xla_extension.XlaRuntimeError"].since == "0.6.0"
    assert ROWS["jax.lib.xla_client.XlaRuntimeError"].since == "0.5.0"


OLD = """\
# -*- coding: {coding} -*-
import jax, jax.numpy as np  # 雪
from jax import tree_map, grad

x = np.product(np.arange(1., 4.))   # keeps   its spaces\t
y = tree_map(lambda a: a + 1, {{"é": x}})
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "gb18030"])
def test_fix_shows_the_diff_and_keeps_encoding_newlines_mode_and_link(
    coding, newline, tmp_path, capsys
):
    text = OLD.format(coding=coding.removesuffix("-sig")).replace("\n", newline)
    real = tmp_path / "real.py"
    real.write_bytes(text.encode(coding))
    real.chmod(0o754)
    link = tmp_path / "link.py"
    link.symlink_to(real)
    before = real.read_bytes()
    assert main([str(link), "--diff"]) == 1
    shown = capsys.readouterr()
    assert real.read_bytes() == before
    assert "-x = np.product(" in shown.out and "+x = np.prod(" in shown.out
    assert main([str(link), "--fix"]) == 0
    assert capsys.readouterr().out == shown.out
    expected = text.replace("np.product", "np.prod").replace(
        "from jax import tree_map, grad",
        f"from jax import grad{newline}from jax.tree import map as tree_map",
    )
    assert real.read_bytes().decode(coding) == expected
    assert real.stat().st_mode & 0o777 == 0o754 and link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.py", "real.py"]
    space: dict[str, Any] = {}
    exec(compile(real.read_bytes(), "real.py", "exec"), space)
    assert space["y"] == {"é": 7}
    assert main([str(link)]) == 0


CELLS = [
    {"cell_type": "markdown", "metadata": {}, "source": "<b>`jax.tree_map`</b>"},
    ["%%time\n", "!pip install jax \\\n", "  flax\n", "import jax\n", "x = jax.tree_map(f, a)"],
    ["%%bash\n", "jax.tree_map and more"],
    [
        "%timeit -n 10 jax.tree_map(f, a)\n",
        "y = !ls jax\n",
        "jax.tree_map?\n",
        "z = (3\n",
        "  % 2)\n",
    ],
    ["y = (a\n", "  % b)\n", "await jax.tree_map"],
    ["this is no Python"],
    [],
]


def notebook() -> dict:
    made = []
    for cell in CELLS:
        if isinstance(cell, list):
            out = {"name": "stdout", "output_type": "stream", "text": ["jax.tree_map ü\n"]}
            code = {"cell_type": "code", "execution_count": 3, "metadata": {"tags": ["a"]}}
            made.append({**code, "outputs": [out], "source": cell})
        else:
            made.append(cell)
    made[-2]["source"] = "".join(made[-2]["source"])
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.mark.parametrize("form", [{"indent": 1}, {"indent": 2, "ensure_ascii": False}, {}])
def test_notebooks_keep_their_layout_outputs_and_magics(form, tmp_path, capsys):
    path = tmp_path / "old.ipynb"
    text = json.dumps(notebook(), **form) + "\n" * ("indent" in form)
    if form.get("indent") == 2:  # as Colab writes it
        text = text.replace("<", r"\u003c").replace(">", r"\u003e")
    path.write_text(text, "utf-8")
    assert main([str(path), "--fix"]) == 1  # for the cell that is no Python
    said = capsys.readouterr()
    places = re.findall(r"old\.ipynb:cell (\S+): jax.tree_map was", said.out)
    assert places == ["2:5:5", "4:1:15", "5:3:7"]
    assert said.err.count("\n") == 2 and "cell 6: line 1 is no Python 3" in said.err
    expected = text
    for old in ("x = jax.tree_map(f", "-n 10 jax.tree_map(f", "await jax.tree_map"):
        assert text.count(old) == 1
        expected = expected.replace(old, old.replace("tree_map", "tree.map"))
    assert path.read_text("utf-8") == expected


READ = {  # cells with a magic, and where they use an old name: as IPython has them
    "%matplotlib inline\ny = jax.tree_map(f, x)  # why this?": ["2:5"],
    "!ls\nif y:  # or not?\n    jax.tree_map(f, y)": ["3:5"],
    "!ls\ny = f(a,  # really?\n      jax.tree_map(f, y))": ["3:7"],
    '!ls\ndef g():\n    """What is it?\n    How?\n    """\n    return jax.tree_map': ["6:12"],
    '!ls\nprint("%d"\n      %jax.tree_leaves(1)[0])': ["3:8"],
    "jax.tree_map?\nx = jax.tree_map ?\n?jax.tree_map\njax.tree_map": ["4:1"],
    "%prun -s cumulative jax.tree_map(f, x)": ["1:21"],
    "%lprun -f f jax.tree_map(f, x)": ["1:13"],
    "r = %timeit -n 3 -o jax.tree_map(f, \\\n  jax.tree_leaves(x))": ["1:21", "2:3"],
    "%time\njax.tree_map(f, x)": ["2:1"],
}


@pytest.mark.parametrize("cell", READ)
def test_a_magic_hides_no_python(cell, tmp_path, capsys):
    path = tmp_path / "a.ipynb"
    code = [{"cell_type": "code", "source": text} for text in ("import jax", cell)]
    path.write_text(json.dumps({"cells": code}), "utf-8")
    assert main([str(path)]) == 1
    said = capsys.readouterr()
    assert re.findall(r"cell 2:(\d+:\d+): jax\.\w+ was", said.out) == READ[cell]
    assert "not read" not in said.err


@pytest.mark.parametrize(
    "magic", ["%%writefile a.py", "%%python", "%%python3 -u", "%%script python"]
)
def test_python_for_another_place_is_said_to_be_unread(magic, tmp_path, capsys):
    path = tmp_path / "a.ipynb"
    code = [{"cell_type": "code", "source": f"{magic}\nimport jax\njax.tree_map"}]
    path.write_text(json.dumps({"cells": code}), "utf-8")
    assert main([str(path)]) == 1
    assert f"a.ipynb:cell 1: not read: {magic.split()[0]}" in capsys.readouterr().err


def test_a_cell_that_is_not_renamed_stays_as_it_was_laid_out(tmp_path):
    path = tmp_path / "a.ipynb"
    source = [["import jax\n", "jax.tree_map"], ["a = 1\nb = 2"]]
    text = json.dumps({"cells": [{"cell_type": "code", "source": s} for s in source]})
    path.write_text(text, "utf-8")
    assert main([str(path), "--fix"]) == 0
    assert path.read_text("utf-8") == text.replace("tree_map", "tree.map")


@pytest.mark.parametrize("option", [[], ["--diff"], ["--fix"]])
def test_no_renaming_is_promised_where_the_layout_cannot_be_kept(option, tmp_path, capsys):
    path = tmp_path / "a.ipynb"
    code = {"cell_type": "code", "source": "import jax\njax.tree_map", "outputs": [1000.0]}
    path.write_text(json.dumps({"cells": [code]}).replace("1000.0", "1.0E3"), "utf-8")
    assert main([str(path), *option]) == 1
    said = capsys.readouterr()
    assert said.out.count("\n") == 1 and "--fix" not in said.out
    assert "nothing is renamed here, for it is laid out in an unusual way" in said.err
    assert "not read" not in said.err


# -- the command ----------------------------------------------------------------------------------


def test_trouble_is_one_line_each_and_the_others_are_still_looked_at(tmp_path, capsys):
    files = {
        "syntax.py": b"import jax\ndef f(:\n",
        "python2.py": b"import jax\nprint 'x'\n",
        "latin.py": b"import jax  # \xe9\n",
        "cookie.py": b"# coding: klingon\nimport jax\n",
        "wide.py": "import jax\n".encode("utf-16"),
        "null.py": b"import jax\0\n",
        "empty.py": b"",
        "empty.ipynb": b"",
        "broken.ipynb": b'{"cells": ["jax',
        "three.ipynb": b'{"worksheets": [], "jax": 1}',
        "julia.ipynb": b'{"cells": [], "metadata": {"language": "jax"}}',
        "deep.py": b"import jax\n" + b"(" * 300 + b")" * 300,
        "good.py": b"import jax\njax.tree_map",
        "not_python.txt": b"jax.tree_map",
        ".git/hidden.py": b"import jax\njax.tree_map",
        "env/pyvenv.cfg": b"",
        "env/lib/installed.py": b"import jax\njax.tree_map",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "gone.py").symlink_to("nothing.py")
    (tmp_path / "again").symlink_to(tmp_path)
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr()
    told = [line.removeprefix(f"{tmp_path}{os.sep}") for line in said.err.splitlines()]
    troubled = "broken.ipynb cookie.py deep.py gone.py latin.py loop.py null.py pipe.py python2.py"
    troubled += " syntax.py three.ipynb wide.py"
    assert [line.partition(":")[0] for line in told[:-1]] == troubled.split()
    assert told[-1] == "16 files, 1 old name in 1 file, 1 plain renaming, 12 not read"
    assert said.out.count("\n") == 1 and "good.py:2:1: jax.tree_map was removed" in said.out


def test_files_are_grouped_each_use_is_one_clear_line_and_the_status_is_for_ci(tmp_path, capsys):
    (tmp_path / "a.py").write_text("import jax\njax.tree_map\njax.ops.index_add\n")
    (tmp_path / "b.py").write_text("import optax\noptax.hvp\n")
    (tmp_path / "c.py").write_text("import jax\njax.random.PRNGKey(0)\n")
    assert main([str(tmp_path)]) == 1
    a, b = (f"{tmp_path / name}:2:1" for name in ("a.py", "b.py"))
    assert capsys.readouterr().out == (
        f"{a}: jax.tree_map was removed in jax 0.6.0; write jax.tree.map (--fix renames it)\n"
        f"{a[:-3]}3:1: jax.ops.index_add was removed in jax 0.3.2; write `x.at[i].add(y)`\n"
        "\n"
        f"{b}: optax.hvp was removed in optax 0.1.8; write optax.second_order.hvp"
        " (--fix renames it)\n"
    )
    assert main([str(tmp_path / "c.py")]) == 0
    assert capsys.readouterr().out == ""
    assert main([str(tmp_path / "c.py"), "--hints"]) == 0
    assert "still works" in capsys.readouterr().out
    assert main([str(tmp_path / "a.py"), "--fix"]) == 1  # one of two was renamed
    assert "2 old names in 1 file, 1 renamed" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["nothing.py"], ["--fix", "--diff", "."], ["--what"]])
def test_a_mistake_in_the_command_is_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: python -m seejax.today" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_stays_whole(tmp_path, capsys, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text("import jax\njax.tree_map\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert main([str(path), "--fix"]) == 1
    said = capsys.readouterr().err
    assert f"{path}: cannot be written: No space left on device\n" in said
    assert said.endswith("0 renamed, 1 not written\n")
    assert path.read_text() == "import jax\njax.tree_map\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]


def test_it_needs_none_of_the_three_libraries():
    code = (
        "import sys; import seejax.today.command; print({'jax', 'flax', 'optax'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n", done.stderr
