"""The programs of a run as a tree of the script's own lines."""

from typing import NamedTuple

from seejax.report.summary import Line, Program


class Node(NamedTuple):
    """A line of the script: the programs made right there, and the lines that it called."""

    line: Line
    programs: list[Program]
    below: dict[Line, "Node"]

    @property
    def total_s(self) -> float:
        own = sum(program.total_s for program in self.programs)
        return own + sum(node.total_s for node in self.below.values())


def tree(programs: list[Program]) -> Node:
    root = Node(("", 0, ""), [], {})
    for program in programs:
        node = root
        for line in program.stack:
            node = node.below.setdefault(line, Node(line, [], {}))
        node.programs.append(program)
    return root


def largest(node: Node) -> list[Node]:
    """What lies below, by seconds."""
    return sorted(node.below.values(), key=lambda each: -each.total_s)


def by_name(programs: list[Program]) -> list[tuple[str, list[Program]]]:
    """Programs of one name together, by seconds."""
    found: dict[str, list[Program]] = {}
    for program in programs:
        found.setdefault(program.name, []).append(program)
    return sorted(found.items(), key=lambda item: -sum(p.total_s for p in item[1]))
