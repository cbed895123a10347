"""Reads the text of optimised HLO into instructions that know which equation they come from."""

import dataclasses
import itertools
import re
from collections.abc import Iterator

# Instructions that move or name data; what is left is work for a kernel.
PLUMBING = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "copy", "iota"}
PLUMBING |= {"broadcast", "call", "while", "conditional", "after-all", "opt-barrier"}
PLUMBING |= {"copy-start", "copy-done", "partition-id", "replica-id"}
MOVES = {"parameter", "tuple", "get-tuple-element", "bitcast", "copy"}  # they compute nothing
NESTING = {"fusion", "call", "while", "conditional"}
_CALLED = ("calls", "to_apply", "body", "condition", "branch_computations")
_CALLED += ("true_computation", "false_computation", "called_computations")
_HIDDEN = ("metadata", "backend_config", "frontend_attributes", "sharding")


@dataclasses.dataclass
class Instruction:
    """One line of HLO: `ROOT name = type opcode(operands), attributes`."""

    name: str
    root: bool
    type: str
    opcode: str
    operands: list[str]
    attributes: dict[str, str]
    called: list[str]
    op_name: str
    frame: int
    own: frozenset[int] = frozenset()

    def role(self, called: str) -> str:
        """What a computation it calls is to it: `body`, `condition`, `branch 0`."""
        for key in _CALLED:
            names = re.findall(r"[^\s,{}%]+", self.attributes.get(key, ""))
            if called in names:
                return f"branch {names.index(called)}" if len(names) > 1 else key.split("_")[0]
        return ""


@dataclasses.dataclass
class Computation:
    """A list of instructions: the entry, a fusion, the body of a loop, a branch, a reducer."""

    name: str
    entry: bool
    instructions: list[Instruction] = dataclasses.field(default_factory=list)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[(\[{]|[)\]}]|,')
_NAME = re.compile(r"[^\s,{}%]+")
_HEAD = re.compile(r"\s+(ROOT )?%?([^\s=]+) = ")
_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*)"')
_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s(]+) \(.*\{$")
_INDEX = re.compile(r"/\*index=\d+\*/")  # XLA counts long lists


def _end(text: str, start: int) -> int:
    """The index after the bracket that closes the one at `start`, quotes respected."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        char = text[token.start()]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return token.end()
    return len(text)


def _split(text: str) -> list[str]:
    r"""Splits at the commas that stand outside brackets and quotes.

    >>> _split("a{1, 2}, b(3, 4), c")
    ['a{1, 2}', 'b(3, 4)', 'c']
    >>> _split(r'a="{\"b\": 1, ", c')
    ['a="{\\"b\\": 1, "', 'c']
    """
    parts, start, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        char = text[token.start()]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start : token.start()].strip())
            start = token.end()
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _instruction(line: str) -> Instruction | None:
    head = _HEAD.match(line)
    if not head:
        return None
    rest = _INDEX.sub("", line[head.end() :])
    cut = _end(rest, 0) if rest.startswith("(") else rest.find(" ")
    type_, rest = rest[:cut], rest[cut:].lstrip()
    opcode, paren, _ = rest.partition("(")
    if not paren:
        return None
    close = _end(rest, len(opcode))
    inside = rest[len(opcode) + 1 : close - 1]
    attributes = {}
    for part in _split(rest[close:].lstrip(", ")):
        key, _, value = part.partition("=")
        attributes[key] = value
    called = [
        name for key in _CALLED if key in attributes for name in _NAME.findall(attributes[key])
    ]
    if opcode in ("constant", "parameter"):
        operands = [inside]
    else:  # an operand may be printed with its type in front
        operands = [part.split(" ")[-1].lstrip("%") for part in _split(inside)]
    metadata = attributes.get("metadata", "")
    op_name = _OP_NAME.search(metadata)
    frame = re.search(r"stack_frame_id=(\d+)", metadata)
    return Instruction(
        name=head[2],
        root=bool(head[1]),
        type=re.sub(r"(?<=\])\{[^}]*\}", "", type_),
        opcode=opcode,
        operands=operands,
        attributes={k: v for k, v in attributes.items() if k not in _HIDDEN},
        called=called,
        op_name=op_name[1] if op_name else "",
        frame=int(frame[1]) if frame else 0,
    )


def parse(text: str) -> dict[str, Computation]:
    """All computations of an HLO module, by name.

    >>> module = parse('ENTRY %main (x: f32[]) -> f32[] {\\n  ROOT %y = f32[] sine(%x)\\n}')
    >>> module["main"].instructions[0].opcode
    'sine'
    """
    computations: dict[str, Computation] = {}
    current = None
    for line in text.splitlines():
        head = _COMPUTATION.match(line)
        if head:
            current = computations[head[2]] = Computation(head[2], bool(head[1]))
        elif line.startswith("}"):
            current = None
        elif current is not None and (instruction := _instruction(line)):
            current.instructions.append(instruction)
    return computations


def places(text: str) -> dict[int, set[tuple[str, int]]]:
    """Stack frame number → the (file, line) pairs of that frame and those around it."""
    tables: dict[str, dict[int, str]] = {}
    table: dict[int, str] = {}
    for line in text.splitlines():
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = tables.setdefault(line, {})
        elif row := re.match(r'(\d+) (".*"|\{.*\})$', line):
            table[int(row[1])] = row[2]

    def field(row: str, name: str) -> int:
        found = re.search(rf"\b{name}=(\d+)", row)
        return int(found[1]) if found else 0

    result: dict[int, set[tuple[str, int]]] = {}
    for number in tables.get("StackFrames", {}):
        seen: set[int] = set()
        result[number] = set()
        current = number
        while current not in seen and (frame := tables["StackFrames"].get(current)):
            seen.add(current)
            location = tables["FileLocations"].get(field(frame, "file_location_id"), "")
            file = tables["FileNames"].get(field(location, "file_name_id"), '""')[1:-1]
            result[number].add((file, field(location, "line")))
            current = field(frame, "parent_frame_id") - 1  # printed one too high; 1 is no parent
    return result


def _short(attributes: dict[str, str]) -> list[str]:
    """The attributes as the picture shows them.

    >>> _short({"lhs_contracting_dims": "{1}", "rhs_contracting_dims": "{0}", "dimensions": "{}"})
    ['contract 1·0']
    """
    rest = {k: v for k, v in attributes.items() if k not in _CALLED and v != "{}"}
    parts = [rest.pop("kind")] if "kind" in rest else []
    for verb, key in (("contract", "contracting"), ("batch", "batch")):
        left, right = rest.pop(f"lhs_{key}_dims", ""), rest.pop(f"rhs_{key}_dims", "")
        if left:
            parts.append(f"{verb} {left[1:-1]}·{right[1:-1]}")
    return parts + [f"{key}={value}" for key, value in rest.items()]


@dataclasses.dataclass
class Row:
    """An instruction where the picture shows it.

    Attributes:
      own: equations it computes; a fusion computes those of all instructions fused in it.
      group: `own` and, but for a fusion, the equations of everything nested in it.
      parts: (kind, text) pieces of the line; kind is v(ariable), t(ype), o(peration) or "".
      nested: the rows of what it calls.
      kernel: name of the kernel it is part of, or "".
      heading: what it begins: the body or condition of a loop, a branch.
    """

    instruction: Instruction
    own: frozenset[int]
    group: frozenset[int]
    parts: list[tuple[str, str]]
    nested: list["Row"]
    kernel: str
    heading: str = ""

    @property
    def plumbing(self) -> bool:
        return self.instruction.opcode in PLUMBING and not self.nested


def walk(rows: list[Row]) -> Iterator[Row]:
    """Every row, those nested in others included."""
    for row in rows:
        yield row
        yield from walk(row.nested)


def rows(computations: dict[str, Computation]) -> list[Row]:
    """The entry computation, with everything it calls nested where it is called.

    Scalar constants stand where they are used, and the parameters of a fusion are the operands
    given to it: both save a line that says nothing.
    """
    entry = next(c for c in computations.values() if c.entry)
    shown: set[str] = set()
    # A fusion that only reads a result often holds a bitcast of it, tagged like the result.
    instructions = [i for c in computations.values() for i in c.instructions]
    computed = frozenset().union(*(i.own for i in instructions if i.opcode not in MOVES))

    def nest(computation: Computation, given: list[str] | None, kernel: str) -> list[Row]:
        alias: dict[str, str] = {}
        result = []
        for i in computation.instructions:
            if i.opcode == "parameter" and given is not None:
                number = int(i.operands[0])
                alias[i.name] = given[number] if number < len(given) else i.name
                continue
            if i.opcode == "constant" and i.type.endswith("[]") and not i.root:
                alias[i.name] = i.operands[0]
                continue
            result.append(row(i, alias, kernel))
        return result

    def row(i: Instruction, alias: dict[str, str], kernel: str) -> Row:
        literal = i.opcode in ("constant", "parameter")
        operands = i.operands if literal else [alias.get(name, name) for name in i.operands]
        inside = kernel or (i.name if i.opcode not in PLUMBING else "")
        nested, tail = [], []
        for name in i.called:
            callee = computations.get(name)
            if callee is None:
                continue
            work = [j for j in callee.instructions if j.opcode not in ("parameter", "constant")]
            if i.opcode not in NESTING and len(work) == 1:
                tail.append(work[0].opcode)  # a reducer: reduce(x, 0), add
            elif name in shown:
                tail.append(name)
            else:
                shown.add(name)
                given = operands if i.opcode in ("fusion", "call") else None
                below = nest(callee, given, inside if i.opcode not in PLUMBING else "")
                if below and i.opcode in ("while", "conditional"):
                    below[0].heading = i.role(name)
                nested += below
        tail += _short(i.attributes)
        inner = frozenset(itertools.chain.from_iterable(r.group for r in nested))
        own = i.own
        if i.opcode == "fusion":
            for r in walk(nested):
                own |= r.own - computed if r.instruction.opcode in MOVES else r.own
            inner = own
        text = ", ".join(operands)
        text = text if len(text) <= 60 else text[:59] + "…"
        after = ", ".join(tail)
        after = after if len(after) <= 70 else after[:69] + "…"
        parts = [("v", i.name), ("", " = "), ("t", i.type), ("", " "), ("o", i.opcode)]
        parts += [("", f"({text})"), ("t", f", {after}" if after else "")]
        if i.root:
            parts.insert(0, ("t", "ROOT "))
        return Row(i, own, i.own | inner, parts, nested, inside)

    return nest(entry, None, "")
