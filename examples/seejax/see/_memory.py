"""What memory a compiled program asks for, and what donation saves of it."""

import contextlib
import dataclasses
import functools
import math
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import jax

from seejax.see import _i18n, _jax_private, _jaxpr, _source
from seejax.see._parts import Bar, Column, Span, Spans, Table
from seejax.see._picture import Picture

_MOST = 60  # rows of arguments that are shown


@dataclasses.dataclass(frozen=True)
class Need:
    """Bytes that one program asks for on each device, by XLA's own plan of its memory.

    Attributes:
      arguments: arrays that the caller passes and the program reads; what it does not read is
        left out.
      results: arrays that it returns.
      taken: the part of the results that is written into donated arguments.
      temporary: what it needs besides, and gives back at its end.
      constants: arrays that are part of it, such as one closed over, and single numbers: as XLA
        tells, or, where it leaves some out (in a fusion, and in JAX 0.10), as its HLO has them.
      code: of the program itself; 0 also if XLA does not say, as for a CPU.
      host: of all these, in the memory of the host, which is not in the other numbers.
      peak: what XLA calls the peak, None if it does not. Without temporary memory on a CPU.
    """

    arguments: int
    results: int
    taken: int
    temporary: int
    constants: int
    code: int
    host: int
    peak: int | None

    @property
    def total(self) -> int:
        """All at once, on a device."""
        new = self.results - self.taken + self.temporary + self.constants + self.code
        return self.arguments + new


@dataclasses.dataclass(frozen=True)
class Argument:
    """One array among the arguments.

    Attributes:
      path: of the leaf, such as `state['w']`.
      type: dtype and shape of the whole array: `f32[3,4]`.
      donated: the caller gives it away.
      read: the program reads it; one that it does not read is not even passed. None if unknown.
      taken_by: the result that takes over its memory, such as `result['w']`; "" if none does;
        None if unknown.
    """

    path: str
    type: str
    donated: bool
    read: bool | None
    taken_by: str | None


class Memory(Picture):
    """What `see.memory` returns.

    Attributes:
      need: the `Need` of the program as f is, with all that it donates.
      kept: the `Need` of the same program if nothing is donated; None if nothing is, or if f is
        a `Compiled`, which cannot be compiled anew.
      arguments: tuple of `Argument`.
      devices: on how many devices it runs; each of them needs that much.
    """

    kind = "memory"
    name: str = ""

    def __init__(self, f: Any, args: tuple, kwargs: dict, options: dict) -> None:
        self.name = _source.name(f)
        self.kept: Need | None = None
        paths: tuple[str, ...] = ()
        if isinstance(f, jax.stages.Compiled):
            compiled = f
            self.name = re.sub(r"^HloModule (?:jit_)?|[,\s].*", "", _entry(f.as_text() or "")[0])
        else:
            traced = _jaxpr.traced(_afresh(f), args, kwargs, options)
            paths = _jax_private.argument_paths(traced.jaxpr)
            compiled = _compiled(traced)
            if any(leaf.donated for leaf in jax.tree.leaves(compiled.args_info)):
                self.kept = _need(_compiled(_jax_private.without_donation(traced)))
        self.need = _need(compiled)
        self.arguments = _arguments(compiled, paths)
        self.devices = _devices(compiled)

    def summary(self) -> Spans:
        said = [_i18n.size(self.need.total)]
        if self.kept:
            said.append(f"{_i18n.size(self.kept.total)} without donation")
        if self.devices > 1:
            said.append(f"on each of {self.devices} devices")
        spans = [span for each in said for span in (Span(", ", word=True), Span(each, word=True))]
        return tuple(spans[1:])

    def parts(self) -> Iterable[Table]:
        donated = any(argument.donated for argument in self.arguments)
        needs = {"with donation" if donated else "without donation": self.need}
        if self.kept:
            needs = {"without donation": self.kept, **needs}
        if not donated and not self.kept:
            needs = {"program": self.need}
        columns = ["arguments", "results", "taken over", "temporary"]
        for each in ("constants", "code", "host"):
            columns += [each] * any(_worth(getattr(need, each)) for need in needs.values())
        most = max(need.total for need in needs.values()) or 1
        yield Table(
            caption="what the program asks for on a device; other live arrays are not in it",
            columns=(
                Column("program"),
                *(Column(name, f"ms m-{name.split()[0]}", number=True) for name in columns),
                Column("total", "ms", number=True),
                Column("", "bar"),
            ),
            rows=tuple(
                (
                    (Span(title, word=True),),
                    *(_said(need, name) for name in columns),
                    (Span(_i18n.size(need.total)),),
                    Bar(tuple((f"m-{kind}", n / most) for kind, n in _shares(need))),
                )
                for title, need in needs.items()
            ),
        )
        if donated:
            rows = tuple(map(_row, self.arguments[:_MOST]))
            if left := max(0, len(self.arguments) - _MOST):
                rows += (((Span(f"… {left} more in arguments", word=True),), (), ()),)
            columns = ("argument", "type", "its memory")
            yield Table("what becomes of each argument", tuple(map(Column, columns)), rows)


def _worth(n: int) -> bool:
    """More than the few numbers that almost every program holds."""
    return n > 1000


def _said(need: Need, column: str) -> Spans:
    n = getattr(need, column.split()[0])
    return (Span("−" * (column == "taken over" and n > 0) + _i18n.size(n)),)


def _shares(need: Need) -> Iterable[tuple[str, int]]:
    yield "arguments", need.arguments
    yield "results", need.results - need.taken
    yield "temporary", need.temporary
    yield "constants", need.constants
    yield "code", need.code


def _row(argument: Argument) -> tuple[Spans, ...]:
    fate: Spans = (Span("kept for the caller", word=True),)
    if argument.donated:
        fate = (Span("donated, unknown whether taken", word=True),)
        if argument.taken_by is not None:
            fate = (Span("donated, not taken", "wavy", word=True),)
        if argument.read is False:
            fate = (Span("donated, not read", "wavy", word=True),)
        if argument.taken_by:
            by = Span(argument.taken_by, "mono")
            fate = (Span("taken over by", word=True), Span(" "), by)
    return (Span(argument.path, "mono"),), (Span(argument.type, "mono"),), fate


def _afresh(f: Any) -> Any:
    """The same function anew: JAX warns once, and whoever runs f should hear it."""
    if hasattr(f, "lower"):
        return f

    @functools.wraps(f, updated=())
    def same(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    return same


def _compiled(traced: Any) -> Any:
    with warnings.catch_warnings():  # the picture says which argument it is
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        return traced.lower().compile()


def _need(compiled: Any) -> Need:
    stats = compiled.memory_analysis()
    if stats is None:
        raise ValueError("see.memory: this backend does not say what memory a program needs")
    of = {
        name: getattr(stats, f"{name}_size_in_bytes")
        for name in ("argument", "output", "alias", "temp", "generated_code")
    }
    host = sum(getattr(stats, f"host_{name}_size_in_bytes", 0) for name in of if name != "alias")
    host -= getattr(stats, "host_alias_size_in_bytes", 0)
    all_of_it = getattr(stats, "total_allocation_bytes", 0)
    stated = all_of_it - of["argument"] - of["output"] + of["alias"] - of["temp"]
    return Need(
        arguments=of["argument"],
        results=of["output"],
        taken=of["alias"],
        temporary=of["temp"],
        constants=max(stated, _constants(compiled.as_text() or "")),
        code=of["generated_code"],
        host=host,
        peak=getattr(stats, "peak_memory_in_bytes", None) or None,
    )


def _constants(hlo: str) -> int:
    """Bytes of the long constants of a program: XLA's plan leaves out those inside a fusion."""
    found = re.findall(r" = ([a-z]+)(\d*)\w*\[([\d,]*)\]\S* constant\(\{\.\.\.\}\)", hlo)
    return sum(
        math.prod(map(int, filter(None, shape.split(",")))) * int(bits or 8) // 8
        for _, bits, shape in found
    )


def _devices(compiled: Any) -> int:
    shardings = []
    for name in "input_shardings", "output_shardings":
        with contextlib.suppress(ValueError):  # JAX counts a ref among them here
            shardings += jax.tree.leaves(getattr(compiled, name))
    return max((len(s.device_set) for s in shardings if hasattr(s, "device_set")), default=1)


def _arguments(compiled: Any, paths: tuple[str, ...]) -> tuple[Argument, ...]:
    infos = jax.tree.leaves_with_path(compiled.args_info)
    header, names = _entry(compiled.as_text() or "")
    if len(paths) != len(infos):  # of a Compiled, whose program has names, or of none
        places = [(side.idx, at, rest) for (side, at, *rest), _ in infos]
        paths = tuple(
            (at.key if by_name else f"args[{at.idx}]") + jax.tree_util.keystr(tuple(rest))
            for by_name, at, rest in places
        )
        paths = names if len(names) == len(infos) and all(names) else paths
    # JAX drops arguments that the program does not read, and XLA numbers those that are left.
    number: dict[str, int] | None = {path: i for i, path in enumerate(paths)}
    if len(names) != len(infos):
        known = set(names) <= set(paths) and len(set(names)) == len(names)
        number = {path: i for i, path in enumerate(names)} if known else None
    taken = _taken(compiled, header)
    arguments = []
    for path, (_, info) in zip(paths, infos, strict=True):
        typed = f"{_jaxpr.short_dtype(info.dtype)}[{','.join(map(str, info.shape))}]"
        read = None if number is None else path in number
        by: str | None = ""
        if info.donated:
            by = None if number is None else taken.get(number.get(path, -1), "")
        arguments.append(Argument(path, typed, bool(info.donated), read, by))
    return tuple(arguments)


def _entry(text: str) -> tuple[str, tuple[str, ...]]:
    """The first line of a program, and what JAX calls its arguments, in their order."""
    header = text.partition("\n")[0]
    inside = text[text.find("\nENTRY ") :]
    found = re.findall(r" parameter\((\d+)\)(?:.*?op_name=\"((?:[^\"\\]|\\.)*)\")?", inside)
    ordered = sorted((int(i), re.sub(r"\\(.)", r"\1", name)) for i, name in found)
    return header, tuple(name for _, name in ordered)


def _taken(compiled: Any, header: str) -> dict[int, str]:
    """Which result takes over which argument of the program."""
    tree = compiled.out_tree
    found = jax.tree.leaves_with_path(jax.tree.unflatten(tree, range(tree.num_leaves)))
    results = ["result" + jax.tree_util.keystr(path) for path, _ in found]
    pairs = re.findall(r"\{(\d*)\}: \((\d+), \{\}", header)
    return {int(i): results[int(o or 0)] for o, i in pairs if int(o or 0) < len(results)}


def memory(
    f: Callable[..., Any],
    /,
    *args: Any,
    donate_argnums: int | tuple[int, ...] | None = None,
    donate_argnames: str | tuple[str, ...] | None = None,
    **kwargs: Any,
) -> Memory:
    """What memory f asks for when it is compiled, as bars, with and without donation.

    Nothing is executed and no array is made: f is traced and compiled, so an argument may be a
    `jax.ShapeDtypeStruct` larger than the machine. The numbers are XLA's plan for one run on one
    device. What else is alive meanwhile is not in them, nor what a routine takes by itself (a sort
    or an FFT on a CPU), nor what an allocator adds, nor whether the runtime can use a donated
    array: it cannot while NumPy looks at it, for example.

    Args:
      f: a function, plain or jitted; or a `jax.stages.Compiled`, without further arguments. A
        jitted f keeps its own options, static arguments among them.
      args, kwargs: its arguments: arrays, `jax.ShapeDtypeStruct`, or pytrees of them.
      donate_argnums, donate_argnames: as for `jax.jit`. A jitted f is then jitted once more, and
        what it donates itself does not count, as in any call inside a jitted function.
    Returns:
      `Memory`: `.need`, `.kept`, `.arguments`, `.devices`.
    Raises:
      TypeError: f is not callable; a `Compiled` with arguments.
      ValueError: the backend tells no memory. Whatever f raises, too.
    Source: `Compiled.memory_analysis()`; who takes over whose memory from the optimized HLO.

    >>> import jax.numpy as jnp
    >>> picture = memory(lambda x: x.at[0].set(1.0), jnp.zeros(1000), donate_argnums=0)
    >>> (picture.kept.results, picture.kept.taken), (picture.need.results, picture.need.taken)
    ((4000, 0), (4000, 4000))
    >>> picture.arguments
    (Argument(path='x', type='f32[1000]', donated=True, read=True, taken_by='result'),)
    """
    given = {"donate_argnums": donate_argnums, "donate_argnames": donate_argnames}
    options = {name: value for name, value in given.items() if value is not None}
    if isinstance(f, jax.stages.Compiled) and (args or kwargs or options):
        raise TypeError("see.memory: a Compiled has its arguments already; give it alone")
    if not callable(f):
        raise TypeError(f"see.memory needs a function, got {type(f).__name__}")
    return Memory(f, args, kwargs, options)
