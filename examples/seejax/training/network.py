"""A reader's own network: where it is, what library it is of, and whether it fits the data."""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

from seejax.training.classifier import Classifier, from_linen, from_nnx
from seejax.training.folder import Refused

Network = Classifier | nn.Module | Callable[..., Any]
"""A Linen module, or what makes one when it is called; a class or function of NNX that is called
with `rngs`; or what `seejax.training.classifier` makes of them."""


def named(name: str) -> Network:
    """The class or function that `net.py:Net` or `package.net:Net` names.

    A file is looked for from the current folder, and a module there first.

    Raises:
      Refused: there is no such file or name in it, or the file cannot be run.
    """
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute.isidentifier():
        raise Refused(f"model {name}: write the file and the name in it, as in net.py:Net")
    file = Path(module_name if module_name.endswith(".py") else f"{module_name}.py")
    if module_name.endswith(".py") and not file.is_file():
        raise Refused(f"model {name}: there is no file {file} seen from {os.getcwd()}")
    try:
        module = _run(file) if file.is_file() else _import(module_name)
    except (Exception, SystemExit) as error:
        raise Refused(f"model {name}: {module_name} cannot be run ({_said(error)})") from error
    if not hasattr(module, attribute):
        own = [key for key, x in vars(module).items() if _is_network(x, module.__name__)]
        there = f"it has {', '.join(own)}" if own else "there is no network in it"
        raise Refused(f"model {name}: {module_name} has no {attribute}; {there}")
    return getattr(module, attribute)


def _run(file: Path) -> ModuleType:
    """A file as a module, anew: the next one of this name may be another file."""
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # what it imports from beside it
    name = str(file.resolve())  # nothing else is called so: not `random`, whatever the file is
    spec = importlib.util.spec_from_file_location(name, name)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def _import(name: str) -> ModuleType:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(name)


def _is_network(value: object, module: str) -> bool:
    kinds = (nn.Module, nnx.Module)
    is_class = isinstance(value, type) and issubclass(value, kinds)
    return (is_class and value.__module__ == module) or isinstance(value, nn.Module)


def _said(error: BaseException) -> str:
    """What went wrong in the reader's code, in a line: the error, and where it was raised there."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "site-packages" not in f[0]]
    others = (str(Path(__file__).parent), str(Path(os.__file__).parent), "<")
    frames = [f for f in frames if not f.filename.startswith(others)]
    where = f", {os.path.basename(frames[-1].filename)} line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}{where}"


def wrapped(network: Network) -> Classifier:
    """Pure functions of any network.

    Raises:
      Refused: it is none, or cannot be made.

    >>> wrapped(nn.Dense(3)).apply.__module__
    'seejax.training.classifier'
    >>> wrapped(lambda rngs: nnx.Linear(4, 3, rngs=rngs)).apply.__module__
    'seejax.training.classifier'
    >>> wrapped(lambda: "a network")
    Traceback (most recent call last):
    seejax.training.folder.Refused: <lambda> is no network: give a class or function ...
    """
    if isinstance(network, Classifier):
        return network
    name = getattr(network, "__name__", type(network).__name__)
    if isinstance(network, nnx.Module):
        raise Refused(f"{name} is made already: give the class, or a function that takes rngs")
    try:
        if not isinstance(network, nn.Module):
            # The signature of a class of NNX is that of its metaclass, which takes anything.
            made_by = network.__init__ if isinstance(network, type) else network
            if "rngs" in inspect.signature(made_by).parameters:
                return from_nnx(lambda rngs: network(rngs=rngs))
            network = network()
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"{name} cannot be made ({_said(error)}): {HOW}") from error
    if not isinstance(network, nn.Module):
        raise Refused(f"{name} is no network: {HOW}")
    called = inspect.signature(type(network).__call__).parameters
    if "train" not in called:
        return from_linen(network)
    if called["train"].default is not False:
        raise Refused(f"{name}.__call__ takes train: its default has to be False, as it is used")
    return from_linen(network, train=True)


HOW = (
    "give a class or function that makes a Linen module when called with nothing, or one of NNX "
    "when called with rngs"
)


def check(network: Classifier, name: str, example: jax.ShapeDtypeStruct, classes: int) -> None:
    """Raise Refused unless it makes of a batch of examples the logits of these classes.

    Args:
      name: what the sentence calls it.
      example: one, without the axis of the batch.
    """
    examples = jax.ShapeDtypeStruct((2, *example.shape), example.dtype)
    shown = f"{examples.dtype}{list(examples.shape)}"

    def outputs(key: jax.Array, examples: jax.Array) -> tuple[jax.Array, jax.Array]:
        variables = network.init(key, examples)
        learning, _ = network.apply_train(variables, examples, key)
        return network.apply(variables, examples), learning

    try:
        found = jax.eval_shape(outputs, jax.random.key(0), examples)
    except Exception as error:
        raise Refused(f"{name} fails on examples {shown} ({_said(error)})") from error
    for logits in found:
        shape = getattr(logits, "shape", None)
        if shape is None or len(shape) != 2 or shape[0] != 2 or shape[1] < classes:
            said = type(logits).__name__ if shape is None else list(shape)
            raise Refused(
                f"{name} makes {said} of examples {shown}: it has to be [2, {classes}], a logit "
                f"for each of the {classes} classes"
            )
        if not jnp.issubdtype(logits.dtype, jnp.floating):
            raise Refused(f"{name} makes {logits.dtype}: logits are floats")
