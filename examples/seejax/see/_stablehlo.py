"""StableHLO, the text that JAX hands to the compiler, as lines that know their equations."""

import dataclasses
import hashlib
import re
from typing import Any

from seejax.see import _jax_private
from seejax.see._parts import Span, Spans

TAG = "SEEJAX"  # with a number behind it: the name scope that an equation is compiled under
_NAME = r'@([\w.$-]+|"[^"]*")'
_LOCATION = re.compile(r'\s?loc\((?:#loc\d*|unknown|"(?:[^"\\]|\\.)*"(?:\(#loc\d*\))?)\)')
_OPERATION = re.compile(r'(?:%\S+ = )?"?(?:[a-z]\w*\.|(?=call |return ))(\w+)')
_TOKEN = re.compile(
    r"(?P<v>%[\w#:]+)|(?P<t>tensor<[^>]*>)|(?P<o>\b[a-z]\w*\.[a-z]\w*|\b(?:call|return)(?= ))"
)


@dataclasses.dataclass
class Line:
    """One line of a function.

    Attributes:
      depth: levels of indentation; 0 for the first and the last line of the function.
      text: as JAX prints it.
      own: numbers of the equations that it is a step of.
      operation: its operation, `multiply` or `while`; "" for a line that only opens or closes.
    """

    depth: int
    text: str
    own: frozenset[int] = frozenset()

    @property
    def operation(self) -> str:
        found = _OPERATION.match(self.text)
        return found[1] if found and found[1] not in ("func", "return") else ""

    @property
    def calls(self) -> list[str]:
        """Names that may be those of functions."""
        return re.findall(_NAME, self.text)

    @property
    def bare(self) -> tuple[int, str]:
        """What it says, whatever the functions are called."""
        return self.depth, re.sub(_NAME, "@", self.text)

    @property
    def spans(self) -> Spans:
        """As the picture shows it: long constants cut, names of results left out."""
        text = re.sub(r"dense<([^>]{40})[^>]*>", r"dense<\1…>", self.text)
        text = re.sub(r' \{jax\.result_info = "[^"]*"\}', "", text)
        spans, end = [], 0
        for token in _TOKEN.finditer(text):
            spans += [Span(text[end : token.start()]), Span(token[0], token.lastgroup or "")]
            end = token.end()
        return tuple(span for span in [*spans, Span(text[end:])] if span.text)


def parse(text: str) -> dict[str, list[Line]]:
    """The functions of a module, by name, with what the locations say of their equations.

    >>> main = "  func.func public @main() {\\n    %0 = stablehlo.sine %a loc(#loc1)\\n  }\\n"
    >>> [(line.depth, line.text) for line in parse(main)["main"]]
    [(0, 'func.func public @main() {'), (1, '%0 = stablehlo.sine %a'), (0, '}')]
    >>> parse(main + f'#loc1 = loc("f/{TAG}2/sin"(#loc7))')["main"][1].own
    frozenset({2})
    """
    names = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", text, re.MULTILINE))
    functions: dict[str, list[Line]] = {}
    current: list[Line] | None = None
    opened: dict[int, Line] = {}  # by depth: what a line that closes it will say the place of
    for row in text.splitlines():
        if head := re.match(rf"  func\.func \w+ {_NAME}", row):
            current = functions.setdefault(head[1], [])
            opened.clear()
        if current is None or not row.startswith("  "):
            continue
        plain = _LOCATION.sub("", row)
        depth = (len(plain) - len(plain.lstrip())) // 2 - 1
        line = Line(depth, plain.strip())
        current.append(line)
        if line.operation:
            opened[depth] = line
        if place := re.search(r"loc\((#loc\d*)\)$", row):
            about = opened.get(depth) if line.text.startswith("}") else line
            if about is not None and about.operation:
                about.own = _own(place[1], names)
    return functions


def _own(place: str, names: dict[str, str]) -> frozenset[int]:
    """The equation that a location names; an operation may wrap its scope in a name of its own."""
    body = names.get(place, "")
    if tags := re.findall(TAG + r"(\d+)", body):
        return frozenset({int(tags[-1])})
    inner = (_own(each, names) for each in re.findall(r"#loc\d+", body))
    return next(filter(None, inner), frozenset())


def same(one: str, other: str) -> bool:
    """Whether two modules are one program, whatever their functions are called.

    A function that one of them has once for two calls, the other may have twice.

    >>> call = "  func.func public @main() {\\n    call @%s()\\n  }\\n"
    >>> function = "  func.func private @%s() {\\n    %%0 = stablehlo.%s %%a\\n  }\\n"
    >>> sine = "module @m {\\n" + call % "f" + function % ("f", "sine") + "}\\n"
    >>> same(sine, "module @m {\\n" + call % "g" + function % ("g", "sine") + "}\\n")
    True
    >>> same(sine, sine.replace("sine", "cosine"))
    False
    """
    return _meaning(one) == _meaning(other)


def _meaning(text: str) -> tuple[str, str]:
    """What stands around the functions, and the main one with each call written as its function."""
    around, *functions = re.split(r"^(?=  func\.func )", text, flags=re.MULTILINE)
    bodies: dict[str, str] = {}
    for function in functions:
        function, end, rest = function.partition("\n  }\n")
        around += rest
        if head := re.match(rf"  func\.func \w+ {_NAME}", function):
            bodies[head[1]] = function[: head.start(1)] + function[head.end(1) :] + end
    known: dict[str, str] = {}

    def digest(name: str) -> str:
        if name not in known:
            known[name] = ""  # a circle of calls has no meaning of its own
            whole = re.sub(_NAME, lambda m: digest(m[1]) if m[1] in bodies else m[0], bodies[name])
            known[name] = hashlib.sha256(whole.encode()).hexdigest()
        return known[name]

    return around, digest("main") if "main" in bodies else text


def lines(traced: Any, text: str) -> tuple[list[Line], bool]:
    """The lines of the program, and whether they know their equations.

    A twin of the program, in which each equation has a scope of its own, is lowered as well. JAX
    writes the scope into the location of each line. Two calls of one program share a function
    of StableHLO, whose lines then belong to the equations of both.
    """
    mine = parse(text)
    try:
        program, _ = _jax_private.tagged(traced.jaxpr, TAG)
        twin = _jax_private.with_jaxpr(traced, program).lower().as_text(debug_info=True)
        known = _pair(mine, parse(twin))
    except Exception:  # an exotic primitive that cannot be rebuilt
        known = False
    return [line for function in mine.values() for line in function], known


def _pair(mine: dict[str, list[Line]], twin: dict[str, list[Line]]) -> bool:
    """Gives each line what its counterparts in the twin know; False if there are none.

    A function that JAX wrote for one equation belongs to the equation that calls it.
    """
    found: list[tuple[Line, frozenset[int]]] = []
    nobody: frozenset[int] = frozenset()
    todo, seen = [("main", "main", nobody)], set()
    while todo:
        name, other_name, caller = todo.pop()
        if (name, other_name, caller) in seen or name not in mine:
            continue
        seen.add((name, other_name, caller))
        left, right = mine[name], twin.get(other_name, [])
        if [line.bare for line in left] != [line.bare for line in right]:
            return False
        for line, other in zip(left, right, strict=True):
            own = other.own or (caller if line.operation else nobody)
            found.append((line, own))
            called = zip(line.calls, other.calls, strict=True)
            todo += [(here, there, own) for here, there in called if here != name]
    for line, own in found:
        line.own |= own
    return True
