"""The report as one page of HTML that needs nothing else."""

from html import escape

from seejax.report.summary import PHASES, Summary, largest_programs
from seejax.report.text import shown
from seejax.report.tree import Node, by_name, largest, tree
from seejax.report.words import CURES, WORDS, head, parts, size, title, why

STYLE = """
:root { color-scheme: light dark; --bar: #2a7f78; --line: #8884; }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
body { overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.2rem; margin-top: 2rem }
code, summary, .p { font-family: ui-monospace, monospace; font-size: .9em }
ol > li { margin-bottom: 1rem }
details { border-left: 1px solid var(--line); padding-left: 1rem }
summary { cursor: pointer }
.s { display: inline-block; min-width: 4.5rem; text-align: right }
.s { font-variant-numeric: tabular-nums }
.bar { display: inline-block; height: .7em; margin: 0 .5em; vertical-align: middle }
.bar { background: var(--bar) }
.wide { overflow-x: auto } th, td { padding: .2rem .8rem; text-align: right }
.why { margin-left: 6rem } .why, .size { color: #777 }
"""


def page(summary: Summary, lang: str) -> str:
    name = escape(" ".join(summary.argv))
    body = [f"<h1>{name}</h1>", *(f"<p>{code_in(line)}</p>" for line in head(summary, lang))]
    if summary.version:
        body.append(f"<h2>{WORDS['first'][lang]}</h2>")
        items = []
        for advice in summary.advice:
            seen = "".join(f'<div class="p">{escape(each)}</div>' for each in advice.evidence)
            cure = escape(CURES[advice.kind][lang])
            items.append(f"<li><b>{code_in(title(advice, lang))}</b>{seen}<div>{cure}</div></li>")
        body.append(f"<ol>{''.join(items)}</ol>" if items else f"<p>{WORDS['nothing'][lang]}</p>")
        if large := largest_programs(summary.programs):
            body.append(f"<h2>{WORDS['largest'][lang]}</h2>")
        for program in large:
            seen = "".join(
                f"<div>{code_in(part)}</div>" for part in parts(program, summary.wall_s, lang)
            )
            body.append(f'<p><b class="p">{escape(program.name)}</b></p>{seen}')
        body.append(f"<h2>{WORDS['tree'][lang]}</h2>")
        root = tree(summary.programs)
        body += _nodes(root, lang, root.total_s or 1.0)
    return document(" ".join(summary.argv), "".join(body), lang)


def document(name: str, body: str, lang: str) -> str:
    """A whole page, of a name in plain text and a body in HTML."""
    return (
        f'<!doctype html><html lang="{lang}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)}</title><style>{STYLE}</style><body>{body}</body></html>\n"
    )


def code_in(text: str) -> str:
    """
    >>> code_in("`a<b>` runs")
    '<code>a&lt;b&gt;</code> runs'
    """
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def _seconds(seconds: float, total: float) -> str:
    width = f"{20 * seconds / total:.2f}"
    return (
        f'<span class="s">{seconds:.2f} s</span><span class="bar" style="width:{width}em"></span>'
    )


def _nodes(node: Node, lang: str, total: float) -> list[str]:
    found = []
    for name, each in by_name(node.programs):
        seconds = sum(program.total_s for program in each)
        times = "" if len(each) == 1 else " " + WORDS["times"][lang].format(len(each))
        phases = {phase: sum(p.seconds.get(phase, 0.0) for p in each) for phase in PHASES}
        hint = escape(", ".join(f"{phase} {s:.3f} s" for phase, s in phases.items()))
        reasons = why(each, lang)
        causes = "".join(f'<div class="why p">{escape(reason)}</div>' for reason in reasons)
        bar, large = _seconds(seconds, total), escape(size(each, lang))
        found.append(
            f'<div class="p" title="{hint}">{bar}<b>{escape(name)}</b>{times} <span '
            f'class="size">{large}</span>{causes}</div>'
        )
    for below in largest(node):
        is_open = " open" if below.total_s > 0.2 * total else ""
        label = _seconds(below.total_s, total) + escape(shown(below.line))
        inner = "".join(_nodes(below, lang, total))
        found.append(f"<details{is_open}><summary>{label}</summary>{inner}</details>")
    return found
