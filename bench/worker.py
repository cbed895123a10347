"""One contender in a process of its own: a JSON request a line comes in, an answer a line goes out.

    python bench/worker.py CONTENDER.py     # CONTENDER.py defines prepare(case)

prepare(case) returns three functions: begin() -> state, whose time does not count;
run(state) -> result, timed, which returns when the result is there, not when it was asked for;
check(result) -> arrays by name, which are compared with those of the other contenders.
This file needs NumPy alone: it runs in the environment of every peer.
"""

import importlib.util
import json
import os
import platform
import sys
import time

import numpy as np


def main(script: str) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf8")
    os.dup2(2, 1)  # what a library prints is no answer
    spec = importlib.util.spec_from_file_location("contender", script)
    contender = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(contender)
    clock = getattr(contender, "clock", time.perf_counter)

    def timed() -> tuple[float, object]:
        state = begin()
        start = clock()
        result = run(state)
        return clock() - start, result

    for line in sys.stdin:
        request = json.loads(line)
        if "case" in request:
            begin, run, check = contender.prepare(request["case"])
            first_s, result = timed()  # traced and compiled here, and reported apart
            np.savez(request["save"], **check(result))
            versions = {"python": platform.python_version()} | contender.versions()
            answer = {"first_s": first_s, "versions": versions}
        else:
            begun, calls = clock(), 0
            while calls < request["warmups"] or clock() - begun < request["warm_s"]:
                timed()
                calls += 1
            answer = {"seconds": [timed()[0] for _ in range(request["repeats"])]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
