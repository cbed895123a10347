"""The reports of several processes side by side."""

import json
import os
from collections import Counter, defaultdict
from html import escape
from pathlib import Path
from typing import NamedTuple

from seejax.report.page import code_in, document
from seejax.report.summary import Advice, Program, Summary
from seejax.report.words import CURES, TOGETHER, WORDS, title

MOST = 10  # programs that differ


class Together(NamedTuple):
    """What several processes of one run did.

    Attributes:
      summaries: of each process that left a report, by its number.
      files: the reports of these.
      missing: the processes that left none, or not yet.
      different: by name and equations, programs that were not compiled equally often, and how
        often by each of `summaries`; what took longest comes first.
      advice: what to change; by process, the largest first.
    """

    summaries: list[Summary]
    files: list[Path]
    missing: list[int]
    different: list[tuple[str, int, list[int]]]
    advice: list[dict[int, Advice]]


def together(folders: list[Path]) -> Together:
    """Compare the reports in these folders, or in process-0, process-1, … of them.

    Those of an earlier run with more or fewer processes are left out.
    """
    files = [
        file
        for folder in folders
        for file in sorted(folder.glob("process-*/report.json")) or [folder / "report.json"]
    ]
    loaded = [(summary, file) for file in files if (summary := load(file))]
    of_run, count = dict(enumerate(loaded)), len(loaded)
    if any(summary.processes > 1 for summary, _ in loaded):  # else JAX knew of no others
        count = max((summary for summary, _ in loaded), key=lambda each: each.started).processes
        of_run = {each.process: (each, file) for each, file in loaded if each.processes == count}
    pairs = [
        (summary._replace(process=n, processes=count), file)
        for n, (summary, file) in sorted(of_run.items())
    ]
    each = [summary for summary, _ in pairs]
    missing = [n for n in range(count) if n not in of_run]
    return Together(each, [file for _, file in pairs], missing, different(each), shared(each))


def load(file: Path) -> Summary | None:
    """The summary that a report.json holds; None if it holds none."""
    try:
        found = json.loads(file.read_text("utf8"))
        programs = [Program(**each) for each in found["programs"]]
        advice = [Advice(**each) for each in found["advice"]]
        return Summary(**found)._replace(programs=programs, advice=advice)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def different(each: list[Summary]) -> list[tuple[str, int, list[int]]]:
    """Programs that were not compiled equally often: what took longest comes first."""
    seconds: dict[tuple[str, int], float] = defaultdict(float)
    counts: list[Counter[tuple[str, int]]] = [Counter() for _ in each]
    for count, summary in zip(counts, each, strict=True):
        for program in summary.programs:
            if program.compiled:
                count[program.name, program.equations] += 1
                seconds[program.name, program.equations] += program.total_s
    keys = sorted(seconds, key=lambda key: -seconds[key])
    by_key = [(*key, [count[key] for count in counts]) for key in keys]
    return [line for line in by_key if len(set(line[2])) > 1]


def shared(each: list[Summary]) -> list[dict[int, Advice]]:
    """The advice of all processes, what is about the same thing together."""
    by_subject: dict[tuple[str, str, str], dict[int, Advice]] = defaultdict(dict)
    for summary in each:
        for advice in summary.advice:
            by_subject[advice.kind, advice.subject, advice.where][summary.process] = advice
    largest = {key: max(a.seconds for a in found.values()) for key, found in by_subject.items()}
    order = sorted(by_subject, key=lambda key: (key[0] == "no-cache", -largest[key]))
    return [by_subject[key] for key in order]


def table(run: Together, lang: str) -> list[list[str]]:
    """A head, and a row for each process."""
    rows = [list(TOGETHER["columns"][lang])]
    for summary in run.summaries:
        phases = [f"{summary.seconds(phase):.2f}" for phase in ("trace", "lower", "compile")]
        made = sum(program.compiled for program in summary.programs)
        ended = summary.ended or "–"
        rows.append([str(summary.process), f"{summary.wall_s:.1f}", str(made), *phases, ended])
    return rows


def comparison(run: Together, lang: str) -> list[str]:
    """Sentences about who is missing and what differs."""
    lines = [TOGETHER["missing"][lang].format(n) for n in run.missing]
    if not run.different:
        return [*lines, TOGETHER["alike"][lang]] if len(run.summaries) > 1 else lines
    lines.append(TOGETHER["different"][lang])
    for name, equations, counts in run.different[:MOST]:
        pairs = zip(run.summaries, counts, strict=True)
        times = [TOGETHER["count"][lang].format(s.process, n) for s, n in pairs]
        size = f" ({WORDS['equations'][lang].format(equations)})" * (equations > 1)
        lines.append(f"  `{name}`{size}: {', '.join(times)}")
    more = len(run.different) - MOST
    return [*lines, f"  … +{more}"] if more > 0 else lines


def items(run: Together, lang: str) -> list[tuple[str, list[str], str]]:
    """What to change: a title, what was seen, the cure."""
    found = []
    for by_process in run.advice:
        advice = max(by_process.values(), key=lambda each: each.seconds)
        seconds = [TOGETHER["took"][lang].format(n, a.seconds) for n, a in by_process.items()]
        seen = [", ".join(seconds), *advice.evidence]
        found.append((title(advice, lang), seen, CURES[advice.kind][lang]))
    return found


def text(run: Together, lang: str) -> str:
    rows = table(run, lang)
    lines = [heading(run, lang), "", *("\t".join(row) for row in rows)]
    lines += ["", *comparison(run, lang), "", WORDS["first"][lang]]
    for n, (head, seen, cure) in enumerate(items(run, lang), 1):
        lines += [f"{n}. {head}", *(f"     {each}" for each in seen), f"   {cure}"]
    return "\n".join(lines if run.advice else [*lines, WORDS["nothing"][lang]]) + "\n"


def heading(run: Together, lang: str) -> str:
    argv = " ".join(run.summaries[0].argv)
    return TOGETHER["heading"][lang].format(argv, run.summaries[0].processes)


def page(run: Together, folder: Path, lang: str) -> str:
    """As a page that lies in the folder, with links to the page of each process."""
    links = [os.path.relpath(file.with_name("report.html"), folder) for file in run.files]
    head, *rows = table(run, lang)
    cells = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    for (n, *rest), link in zip(rows, links, strict=True):
        first = f'<td><a href="{escape(link)}">{n}</a></td>'
        cells.append(first + "".join(f"<td>{escape(cell)}</td>" for cell in rest))
    body = [f"<h1>{escape(heading(run, lang))}</h1><div class=wide><table>"]
    body += [*(f"<tr>{row}</tr>" for row in cells), "</table></div>"]
    body += [f"<p>{code_in(line)}</p>" for line in comparison(run, lang)]
    body.append(f"<h2>{WORDS['first'][lang]}</h2>")
    for title_, seen, cure in items(run, lang):
        evidence = "".join(f'<div class="p">{escape(each)}</div>' for each in seen)
        body.append(f"<p><b>{code_in(title_)}</b></p>{evidence}<div>{escape(cure)}</div>")
    if not run.advice:
        body.append(f"<p>{WORDS['nothing'][lang]}</p>")
    return document(heading(run, lang), "".join(body), lang)
