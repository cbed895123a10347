"""What one call of entmax forward + backward adds to the memory in use, seen in two ways."""

from pathlib import Path

from measure import say, workers
from race import Case, contender, once, row

SHAPE = (16384, 1024)


def measure(folder: Path, starts: int) -> Case:
    case = dict(what="memory", by="entmax", shape=SHAPE)
    contenders = [
        contender("jax", "seejax 1.5", **case, alpha=1.5),
        contender("jax", "seejax 1.333", **case, alpha=1.333),
        contender("jax", "softmax", **case | {"by": "softmax"}, alpha=1),
    ]
    title = f"memory of one call, {SHAPE[0]} × {SHAPE[1]} float32"
    say("bench", f"{title}: {', '.join(one.name for one in contenders)}")
    arrays, versions = {}, {}
    with workers(contenders) as running:
        for name, worker in running.items():
            answer, sizes = worker.prepare()
            arrays[name] = {key: round(float(size), 3) for key, size in sizes.items()}
            versions = {worker.contender.environment: answer["versions"]}
    rows = []
    for name, known in (("seejax 1.5", 2.01), ("seejax 1.333", 3.0)):
        plan = arrays[name]
        size = max(plan["output"] + plan["temp"], plan["grown"])
        key = f"memory-{name.split()[1]}"
        least = plan["output"]  # what is returned has to lie somewhere
        goal = ("<=", 4)
        rows.append(
            row(key, "headline", f"arrays, {name}", once(size), goal, (known,), limit=least)
        )
    return {"title": title, "environments": versions, "arrays": arrays, "rows": rows}
