"""Measure this book's code beside its peers, and write bench/results.json.

python bench/run.py                       # all cases: make bench
python bench/run.py --only mlp gpu        # these cases anew; in the record the others stay
python bench/run.py --record /tmp/x.json  # into another record, for development
python bench/run.py --check               # exit status 1 where a bound is not reached

A case is written as soon as it is measured. torch.compile needs a C++ compiler at hand (g++).
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from cases import bisect, cnn, entmax15, gpu, kept_memory, layers, lengths, memory, mlp
from measure import ContenderError, cores, say
from record import RESULTS, dated, replace, table

CORES = 2  # what the bounds are about

CASES = {  # in the order of the record
    "entmax15": partial(entmax15.measure, scale=1.0),
    "entmax15-peaked": partial(entmax15.measure, scale=8.0),
    "bisect": partial(bisect.measure, scale=1.0),
    "bisect-peaked": partial(bisect.measure, scale=8.0),
    "lengths": lengths.measure,
    "memory": memory.measure,
    "kept-memory": kept_memory.measure,
    "mlp": mlp.measure,
    "cnn": cnn.measure,
    "layers": layers.measure,
    "gpu": gpu.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=CASES, help="these cases; the others stay")
    parser.add_argument("--starts", type=int, default=3, help="processes of each contender")
    parser.add_argument("--record", type=Path, default=RESULTS, help="where to write")
    parser.add_argument("--check", action="store_true", help="fail where a bound is not reached")
    args = parser.parse_args()
    if args.starts < 1:
        parser.error(f"--starts is 1 at least, not {args.starts}")
    used, done, rows = cores(CORES), [], []
    try:
        for name in args.only or CASES:
            with tempfile.TemporaryDirectory() as folder:
                case = CASES[name](Path(folder), args.starts)
            replace(args.record, name, dated(case, used), tuple(CASES))
            done.append(name)
            rows += case["rows"]
            print(table(case["rows"]), flush=True)
    except ContenderError as error:
        print(f"\n{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    finally:
        others = "all cases" if len(done) == len(CASES) else "the other cases are as they were"
        say("written", f"{', '.join(done) or 'nothing'} into {args.record.name}; {others}")
    missed = [one["name"] for one in rows if one["reached"] is False]
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
