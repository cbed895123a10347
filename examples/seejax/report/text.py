"""The report as text, for a terminal and a log."""

from seejax.report.summary import Line, Summary, largest_programs, near
from seejax.report.tree import Node, by_name, largest, tree
from seejax.report.words import CURES, WORDS, head, parts, size, title, why

LEAST = 0.01  # of all seconds: what a line of the tree must have


def text(summary: Summary, lang: str) -> str:
    lines = head(summary, lang)
    if summary.version:
        lines += ["", f"{WORDS['first'][lang]}"]
        for n, advice in enumerate(summary.advice, 1):
            lines += [f"{n}. {title(advice, lang)}"]
            lines += [f"     {evidence}" for evidence in advice.evidence]
            lines += [f"   {CURES[advice.kind][lang]}"]
        if not summary.advice:
            lines += [WORDS["nothing"][lang]]
        if large := largest_programs(summary.programs):
            lines += ["", WORDS["largest"][lang]]
        for program in large:
            lines += [
                f"- {program.name}",
                *(f"     {part}" for part in parts(program, summary.wall_s, lang)),
            ]
        lines += ["", WORDS["tree"][lang], *_tree(tree(summary.programs), lang)]
    return "\n".join(lines) + "\n"


def shown(line: Line) -> str:
    """
    >>> shown(("/somewhere/else/train.py", 3, "main"))
    '/somewhere/else/train.py:3 main'
    """
    return f"{near(line[0])}:{line[1]} {line[2]}"


def _tree(node: Node, lang: str, indent: int = 0, least: float = 0.0) -> list[str]:
    least = least or LEAST * node.total_s
    lines = []
    pad = "  " * indent
    for name, each in by_name(node.programs):
        seconds = sum(program.total_s for program in each)
        if seconds < least:
            continue
        times = "" if len(each) == 1 else " " + WORDS["times"][lang].format(len(each))
        large = ": " * bool(text := size(each, lang)) + text
        lines.append(f"{seconds:7.2f} s {pad}{name}{times}{large}")
        lines += [f"            {pad}{reason}" for reason in why(each, lang)[:3]]
    for below in largest(node):
        if below.total_s >= least:
            lines.append(f"{below.total_s:7.2f} s {pad}{shown(below.line)}")
            lines += _tree(below, lang, indent + 1, least)
    return lines
