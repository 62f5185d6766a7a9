"""Measure the ratios of `benchmarks/RESULTS.md`.

    python -m benchmarks.run [NAME …] [--quick] [--save] [--strict]

A quiet machine gives figures worth keeping; on a busy one the ratios still hold roughly, since
both sides are measured in turn.
"""

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from benchmarks.measure import Ratio
from benchmarks.report import describe_machine, save, text_table
from benchmarks.sizes import FULL, QUICK, Size

NAMES: Final = (
    "startup",
    "dispatch",
    "push",
    "servers",
    "apply",
    "reading",
    "shuffling",
    "one_worker",
    "two_workers",
    "gpu",
    "recovery",
    "columns",
    "tabular",
    "rows",
    "clicks",
    "epoch_input",
    "controller",
    "plans",
    "simulated_day",
    "fractions",
    "sharing",
)


def main(arguments: Sequence[str]) -> int:
    """Measure what was named, or everything; print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and less work")
    parser.add_argument("--save", action="store_true", help="append to RESULTS.md and results.json")
    parser.add_argument("--strict", action="store_true", help="exit with 1 below a first bar")
    parsed = parser.parse_args(arguments)
    unknown = sorted(set(parsed.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    machine = describe_machine()
    ratios = measure(parsed.names or NAMES, QUICK if parsed.quick else FULL)
    print(text_table(ratios))
    if parsed.save:
        save(ratios, machine, shlex.join(["python", "-m", "benchmarks.run", *arguments]))
    return int(parsed.strict and any(ratio.verdict == "no" for ratio in ratios))


def measure(names: Sequence[str], size: Size) -> list[Ratio]:
    """Run benchmarks one after the other."""
    ratios: list[Ratio] = []
    for name in names:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        measured = importlib.import_module(f"benchmarks.{name}").run(size)
        # A whole run takes long, so what is known is told at once.
        print(text_table(measured), file=sys.stderr, flush=True)
        ratios += measured
    return ratios


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
