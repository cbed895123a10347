"""The record of what was measured, bench/results.json: read, and written a case at a time."""

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema

from environments import has_gpu
from measure import BENCH

RESULTS = BENCH / "results.json"
SCHEMA = BENCH / "results.schema.json"


def machine(used: int) -> dict[str, Any]:
    """What the times depend on; nothing that names this one machine."""
    sets, caches = [], []
    cpu = platform.processor() or platform.machine()
    ram = 0
    if Path("/proc/cpuinfo").exists():
        info = Path("/proc/cpuinfo").read_text()
        if named := re.search(r"^model name\s*: (.*)", info, re.M):  # an ARM says none
            cpu = named[1]
        flags = re.search(r"^(?:flags|Features)\s*: (.*)", info, re.M)[1].split()
        sets = [flag for flag in flags if re.match("sse4_2|avx|fma|f16c|amx|asimd|sve|bf16", flag)]
        for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
            level, kind, size = ((cache / n).read_text().strip() for n in ("level", "type", "size"))
            caches += [f"L{level} {size}"] if kind != "Instruction" else []
        ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpu = "none"
    if has_gpu():
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "cores_used": used,
        "instruction_sets": sets,
        "caches": caches,
        "ram_gib": round(ram),
        "accelerator": gpu,
        "system": f"{platform.system()} {platform.machine()}",
    }


def dated(case: dict[str, Any], used: int) -> dict[str, Any]:
    """A case with the day and the machine: each may be measured anew on another."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"title": case["title"], "date": today, "machine": machine(used)} | case


def write(results: dict[str, Any], path: Path) -> None:
    """All of it or nothing: a reader never meets half a file.

    Raises:
      jsonschema.ValidationError: it is not as results.schema.json says.
    """
    jsonschema.validate(results, json.loads(SCHEMA.read_text("utf8")))
    text = json.dumps(results, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+([-\d.e,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    new = path.with_suffix(".new")
    new.write_text(text + "\n", "utf8")
    new.replace(path)


def replace(path: Path, name: str, case: dict[str, Any], order: Sequence[str]) -> None:
    """Put one measured case into the record, in its place; the others stay as they are."""
    cases = json.loads(path.read_text("utf8")).get("cases", {}) if path.exists() else {}
    cases[name] = case
    write({"cases": {one: cases[one] for one in order if one in cases}}, path)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as the terminal shows them."""
    lines = []
    for one in rows:
        value = "–" if one["value"] is None else f"{one['value'][1]:.3g}"
        goal = "{} {:g}".format(*one["goal"]) if one["goal"] else ""
        mark = {True: "reached", False: "NOT REACHED", None: ""}[one["reached"]]
        known = f"(known: {', '.join(f'{k:g}' for k in one['known'])})" if one["known"] else ""
        limit = f"(at the limit: {one['limit']:.3g})" if one.get("limit") else ""
        end = " ".join(filter(None, (mark, limit, known, one["note"])))
        start = f"{one['name']:<32}{one['kind']:<12}{one['of']:<44}"
        lines.append(f"{start}{value:>7}  {goal:<8} {end}".rstrip())
    return "\n".join(lines)
