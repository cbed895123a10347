"""Measure this book's code beside its peers, in one run, and write bench/results.json.

python bench/run.py                    # all of it: make bench
python bench/run.py --only entmax      # one group, for development; writes nothing
python bench/run.py --check            # exit status 1 where a bound is not reached
"""

import argparse
import datetime
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from environments import environment, has_gpu
from measure import (
    BENCH,
    Contender,
    ContenderError,
    cores,
    differences,
    environ,
    quartiles,
    ratios,
    say,
    take_turns,
    workers,
)

RESULTS = BENCH / "results.json"
SCHEMA = BENCH / "results.schema.json"
CORES = 2  # what the bounds are about

Group = dict[str, Any]
Row = dict[str, Any]


def contender(library: str, name: str, device: str = "cpu", **case: Any) -> Contender:
    """A contender by its library: where it runs, and which file prepares it."""
    python = sys.executable if library == "jax" else environment(library)
    script = {"jax": "peers_jax.py", "torch": "peers_torch.py", "tensorflow": "peers_keras.py"}
    more = {"BENCH_DEVICE": device, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if device == "cpu":
        more |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"}
    if library == "jax":
        more["PYTHONPATH"] = str(BENCH.parent / "examples")
    return Contender(name, python, BENCH / script[library], case, environ(**more))


def measured(
    title: str,
    contenders: Sequence[Contender],
    judge: Callable[[Contender, dict], tuple[dict, dict]],
    starts: int,
    rounds: int,
    **turn: Any,
) -> tuple[Group, dict[str, dict]]:
    """Let contenders compile, compare their answers, take turns; return the group and the answers.

    All of it so many times, in new processes: some luck lasts as long as a process.

    judge: a contender, all answers -> the arrays to find, and how far off each may be.
    """
    say("bench", f"{title}: {', '.join(c.name for c in contenders)}")
    entries = {one.name: {"first_s": [], "difference": {}, "seconds": []} for one in contenders}
    for start in range(starts):
        answers = {}
        with workers(contenders) as running:
            for name, worker in running.items():
                answer, answers[name] = worker.prepare()
                entries[name]["first_s"].append(answer["first_s"])
                entries[name]["versions"] = answer["versions"]
            for one in contenders:
                reference, tolerance = judge(one, answers)
                entries[one.name]["tolerance"] = tolerance
                worst = entries[one.name]["difference"]
                off = differences(one.name, answers[one.name], reference, tolerance)
                worst |= {key: max(value, worst.get(key, 0.0)) for key, value in off.items()}
            for name, seconds in take_turns(running, rounds, start * rounds, **turn).items():
                entries[name]["seconds"] += [float(f"{s:.4g}") for s in seconds]
    for entry in entries.values():
        entry["first_s"] = quartiles(entry["first_s"])[1]
        entry |= {"quartiles": quartiles(entry["seconds"]), "min": min(entry["seconds"])}
    return {"title": title, "starts": starts, "rounds": rounds, "contenders": entries}, answers


def row(
    name: str,
    of: str,
    value: list[float] | None,
    relation: str,
    bound: float | None,
    note: str = "",
) -> Row:
    """A line of the table. of: what the value is; value: quartiles, or None if not measured."""
    reached = None
    if value and bound:
        reached = value[1] >= bound if relation == ">=" else value[1] <= bound
    return dict(
        name=name, of=of, value=value, relation=relation, bound=bound, reached=reached, note=note
    )


def times(group: Group, name: str, above: str, below: str, relation: str, bound: float | None):
    """How many times as long one contender takes as another."""
    seconds = {key: entry["seconds"] for key, entry in group["contenders"].items()}
    value = ratios(seconds[above], seconds[below])
    return row(name, f"{above} / {below}", value, relation, bound)


def entmax_reference(z: np.ndarray, g: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    """p and g·∂p/∂z in float64, by sixty bisections: the judge of all contenders."""
    z, g = z.astype(np.float64), g.astype(np.float64)
    if alpha == 1:
        p = np.exp(z - z.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        slope = p
    else:
        x = (alpha - 1) * (z - z.max(-1, keepdims=True))
        low, high = np.full_like(x[:, :1], -1.0), np.zeros_like(x[:, :1])
        for _ in range(60):
            middle = (low + high) / 2
            p = np.maximum(x - middle, 0) ** (1 / (alpha - 1))
            above = p.sum(-1, keepdims=True) >= 1
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        slope = np.where(p > 0, p, 1) ** (2 - alpha) * (p > 0)
    mean = (slope * g).sum(-1, keepdims=True) / slope.sum(-1, keepdims=True)
    return {"p": p, "dz": slope * (g - mean)}


def scores(folder: Path, shape: tuple[int, int], scale: float) -> tuple[np.ndarray, dict[str, str]]:
    """Scores and cotangents, drawn once and read by all; the paths of their files."""
    rng = np.random.default_rng(0)
    z, g = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
    files = {"z": str(folder / f"z{scale}-{shape[1]}.npy"), "g": str(folder / f"g{shape[1]}.npy")}
    np.save(files["z"], scale * z)
    np.save(files["g"], g)
    return scale * z, g, files


def entmax_judge(z: np.ndarray, g: np.ndarray) -> Callable:
    known = {}

    def judge(one: Contender, _: dict) -> tuple[dict, dict]:
        alpha = one.case.get("alpha", 1.5)
        if alpha not in known:
            known[alpha] = entmax_reference(z, g, alpha)
        # At the edge of the support the slope is p^(2-α): its error is a root of that of p.
        return known[alpha], {"p": 1e-5, "dz": 1e-2}

    return judge


def bench_entmax(folder: Path, starts: int) -> tuple[dict[str, Group], list[Row]]:
    """α-entmax forward + backward beside deep-spin's package and jax.nn.softmax."""
    groups, rows = {}, []
    for scale, key in ((1.0, "entmax"), (8.0, "entmax-peaked")):
        z, g, files = scores(folder, (4096, 512), scale)
        jax, torch = dict(what="vjp", **files), dict(what="entmax", **files)
        contenders = [
            contender("jax", "seejax 1.5", **jax, by="entmax", alpha=1.5),
            contender("torch", "entmax15", **torch, by="entmax15", alpha=1.5),
            contender("torch", "entmax_bisect 1.5", **torch, by="entmax_bisect", alpha=1.5),
            contender("jax", "seejax 1.333", **jax, by="entmax", alpha=1.333),
            contender("torch", "entmax_bisect 1.333", **torch, by="entmax_bisect", alpha=1.333),
            contender("jax", "softmax", **jax, by="softmax", alpha=1),
        ]
        title = f"entmax, 4096 × 512 float32, N(0, 1) × {scale:g}, forward + backward"
        turn = dict(starts=starts, rounds=3, warmups=2, warm_s=0.2, repeats=5)
        group, _ = measured(title, contenders, entmax_judge(z, g), **turn)
        groups[key] = group
        rows += [
            times(group, f"{key}-sort", "entmax15", "seejax 1.5", ">=", 15),
            times(group, f"{key}-bisect", "entmax_bisect 1.5", "seejax 1.5", ">=", 40),
            times(group, f"{key}-general", "entmax_bisect 1.333", "seejax 1.333", ">=", 10),
            times(group, f"{key}-softmax", "seejax 1.5", "softmax", "<=", 2),
        ]
    return groups, rows


def bench_memory(folder: Path, starts: int) -> tuple[dict[str, Group], list[Row]]:
    """What one call of entmax forward + backward adds to the memory in use, seen in two ways."""
    shape, case = [16384, 1024], dict(what="memory", by="entmax")
    contenders = [
        contender("jax", "seejax 1.5", **case, shape=shape, alpha=1.5),
        contender("jax", "seejax 1.333", **case, shape=shape, alpha=1.333),
        contender("jax", "softmax", **case | {"by": "softmax"}, shape=shape, alpha=1),
    ]
    say("bench", f"memory: {', '.join(one.name for one in contenders)}")
    group = {"title": f"memory of one call, {shape[0]} × {shape[1]} float32", "arrays": {}}
    with workers(contenders) as running:
        for name, worker in running.items():
            group["arrays"][name] = {k: round(float(v), 3) for k, v in worker.prepare()[1].items()}
    rows = []
    for name in ("seejax 1.5", "seejax 1.333"):
        plan = group["arrays"][name]
        size = max(plan["output"] + plan["temp"], plan["grown"])
        rows.append(row(f"memory-{name.split()[1]}", f"arrays, {name}", [size] * 3, "<=", 4))
    return {"memory": group}, rows


def bench_rows(folder: Path, starts: int) -> tuple[dict[str, Group], list[Row]]:
    """Time per element of α = 1.5 as the rows get longer, and fewer."""
    contenders, judges, sizes = [], {}, (32, 128, 512, 2048, 8192, 32000)
    for n in sizes:
        z, g, files = scores(folder, (2**21 // n, n), 1.0)
        one = contender("jax", f"n = {n}", what="vjp", by="entmax", alpha=1.5, **files)
        contenders.append(one)
        judges[one.name] = entmax_judge(z, g)
    title = "entmax, α = 1.5, 2²¹ float32 elements in rows of n, forward + backward"
    turn = dict(starts=starts, rounds=3, warmups=2, warm_s=0.2, repeats=5)
    judge = lambda one, answers: judges[one.name](one, answers)  # noqa: E731
    group, _ = measured(title, contenders, judge, **turn)
    each = [
        np.divide(group["contenders"][f"n = {n}"]["seconds"], 2**21 // n * n) * 1e9 for n in sizes
    ]
    group["ns_per_element"] = {str(n): quartiles(ns) for n, ns in zip(sizes, each, strict=True)}
    medians = np.median(each, axis=1)
    spread = float(f"{medians.max() / medians.min():.4g}")
    return {"rows": group}, [row("rows-linear", "slowest n / fastest n", [spread] * 3, "<=", 2)]


def bench_epoch(folder: Path, starts: int) -> tuple[dict[str, Group], list[Row]]:
    """One epoch of an MLP: 784-128-128-10, Adam, batch 32, 60,000 images, shuffled."""
    rng, widths = np.random.default_rng(0), (784, 128, 128, 10)
    x = rng.random((60_000, 784), dtype=np.float32)
    y = (x @ rng.standard_normal((784, 10), dtype=np.float32)).argmax(1).astype(np.int32)
    weights = {}
    for i, (m, n) in enumerate(itertools.pairwise(widths)):  # Glorot, the same for all
        limit = (6 / (m + n)) ** 0.5
        weights[f"w{i}"] = rng.uniform(-limit, limit, (m, n)).astype(np.float32)
    np.savez(folder / "mlp.npz", x=x, y=y, **weights)
    case = dict(what="epoch", data=str(folder / "mlp.npz"), batch=32, checked=64)
    keras = dict(steps_per_execution=1, jit_compile="auto", tf_data=False)
    tuned = dict(steps_per_execution=125, jit_compile=True, tf_data=True)
    contenders = [
        contender("jax", "flax step", **case, by="step"),
        contender("jax", "flax scan", **case, by="scan"),
        contender("tensorflow", "keras fit", **case, **keras),
        contender("tensorflow", "keras tuned", **case, **tuned),
        contender("torch", "torch", **case, fused=False, loader=False),
        contender("torch", "torch fused", **case, fused=True, loader=False),
        contender("torch", "torch loader", **case, fused=False, loader=True),
    ]

    def judge(one: Contender, answers: dict) -> tuple[dict, dict]:
        # Two steps in one order agree closely; not more of them, for Keras adds Adam's epsilon
        # before the bias correction and the others after it. An epoch in each one's own shuffle
        # ends somewhere near.
        return answers["flax step"], {"early_loss": 1e-3, "logits": 1e-3, "loss": 0.06}

    title = "an epoch of the MLP 784-128-128-10: Adam, batch 32, 60,000 rows float32, shuffled"
    turn = dict(starts=min(starts, 3), rounds=3, warmups=0, repeats=1, pause_s=0.3)
    group, answers = measured(title, contenders, judge, **turn)
    for name, answer in answers.items():
        group["contenders"][name]["loss"] = float(f"{answer['loss']:.4g}")
    rows = [
        times(group, f"epoch-{ours}-{peer}".replace(" ", "-"), peer, f"flax {ours}", ">=", bound)
        for peer, limit in (
            ("keras fit", 5),
            ("keras tuned", None),
            ("torch", 4),
            ("torch fused", None),
            ("torch loader", None),
        )
        for ours, bound in (("scan", limit), ("step", None))
    ]
    return {"epoch": group}, rows


GPU_ROWS = (
    ("gpu-copy", "seejax 1.5", "copy", "<=", 2),
    ("gpu-adasplash", "adasplash", "seejax 1.5", ">=", 1),
)


def bench_gpu(folder: Path, starts: int) -> tuple[dict[str, Group], list[Row]]:
    """α = 1.5 forward + backward against copying, and against AdaSplash; only with a GPU."""
    asked = "import jax; print(jax.default_backend())"
    seen = has_gpu() and subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True
    )
    if not seen or seen.stdout.strip() not in ("gpu", "cuda"):
        why = "JAX sees no GPU: pip install 'jax[cuda13]'" if has_gpu() else "no GPU at hand"
        return {}, [
            row(name, f"{above} / {below}", None, relation, bound, f"not measured: {why}")
            for name, above, below, relation, bound in GPU_ROWS
        ]
    z, g, files = scores(folder, (16384, 4096), 1.0)
    jax, judge = dict(what="vjp", alpha=1.5, by="entmax", **files), entmax_judge(z, g)
    contenders = [
        contender("jax", "seejax 1.5", "cuda", **jax),
        contender("jax", "copy", "cuda", **jax | {"what": "copy"}),
        contender("torch", "adasplash", "cuda", **jax | {"what": "entmax", "by": "adasplash"}),
        contender("torch", "entmax15", "cuda", **jax | {"what": "entmax", "by": "entmax15"}),
    ]

    def judged(one: Contender, answers: dict) -> tuple[dict, dict]:
        return ({}, {}) if one.name == "copy" else judge(one, answers)

    title = "entmax on a GPU, 16384 × 4096 float32, N(0, 1), forward + backward"
    turn = dict(starts=starts, rounds=3, warmups=2, repeats=10)
    group, _ = measured(title, contenders, judged, **turn)
    return {"gpu": group}, [times(group, *gpu_row) for gpu_row in GPU_ROWS]


BENCHES = {
    "entmax": bench_entmax,
    "memory": bench_memory,
    "rows": bench_rows,
    "epoch": bench_epoch,
    "gpu": bench_gpu,
}


def machine(used: int) -> dict[str, Any]:
    """What the times depend on; nothing that names this one machine."""
    cpu = platform.processor() or platform.machine()
    ram = 0
    if Path("/proc/cpuinfo").exists():
        cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
        ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpu = "none"
    if has_gpu():
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "cores_used": used,
        "ram_gib": round(ram),
        "accelerator": gpu,
        "system": f"{platform.system()} {platform.machine()}",
    }


def write(results: dict[str, Any], path: Path) -> None:
    """All of it or nothing: a reader never meets half a file."""
    jsonschema.validate(results, json.loads(SCHEMA.read_text("utf8")))
    text = json.dumps(results, indent=1, ensure_ascii=False)
    text = re.sub(r"\[\s+([-\d.e,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    new = path.with_suffix(".new")
    new.write_text(text + "\n", "utf8")
    new.replace(path)


def table(rows: Sequence[Row]) -> str:
    """The rows as the terminal shows them."""
    lines = []
    for one in rows:
        value = "–" if one["value"] is None else f"{one['value'][1]:.3g}"
        bound = "" if one["bound"] is None else f"{one['relation']} {one['bound']:g}"
        mark = {True: "reached", False: "NOT REACHED", None: one["note"]}[one["reached"]]
        lines.append(f"{one['name']:<26}{one['of']:<34}{value:>7}  {bound:<6} {mark}".rstrip())
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=BENCHES, help="one group; nothing is written")
    parser.add_argument("--starts", type=int, default=5, help="processes of each contender")
    parser.add_argument("--check", action="store_true", help="fail where a bound is not reached")
    args = parser.parse_args()
    used = cores(CORES)
    groups, rows = {}, []
    try:
        for name in [args.only] if args.only else BENCHES:
            with tempfile.TemporaryDirectory() as folder:
                more_groups, more_rows = BENCHES[name](Path(folder), args.starts)
            groups |= more_groups
            rows += more_rows
            print(table(more_rows), flush=True)
    except ContenderError as error:
        print(f"\n{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; bench/results.json is as it was", file=sys.stderr)
        return 130
    if not args.only:
        entries = [e for group in groups.values() for e in group.get("contenders", {}).values()]
        versions = {"python": platform.python_version()}
        for entry in entries:
            versions |= entry.pop("versions")
        results = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(used),
            "versions": dict(sorted(versions.items())),
            "rows": rows,
            "groups": groups,
        }
        write(results, RESULTS)
        say("bench", f"written: {RESULTS.relative_to(BENCH.parent)}")
    missed = [one["name"] for one in rows if one["reached"] is False]
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
