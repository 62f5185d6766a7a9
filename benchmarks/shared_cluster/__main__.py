"""Replay the published experiment of 64 shared GPUs; see `benchmarks/README.md`.

    python -m benchmarks.shared_cluster TRACES [--loads LOAD …] [--generated SEED …]

TRACES is the folder with `workloads*` and `traces` of the published simulator.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.shared_cluster.columns import GoodputColumn
from benchmarks.shared_cluster.profiles import read_profiles
from benchmarks.shared_cluster.published import OPTIMUS, POLLUX, TIRESIAS
from benchmarks.shared_cluster.shortest import shortest_remaining_first
from benchmarks.shared_cluster.simulation import PUBLISHED_RESCALE_S, Decide, simulate
from benchmarks.shared_cluster.workloads import Request, make_workload, read_workload

FOLDERS: Final = {
    "0.5": "workloads-0.5",
    "1.0": "workloads",
    "1.5": "workloads-1.5",
    "2.0": "workloads-2.0",
    "realistic": "workloads-realistic",
}
OWN_RESCALE_S: Final = 1.0
"""About one minibatch of these applications, which is what a change of size costs our own jobs."""

COLUMNS: Final[dict[str, tuple[Decide, float]]] = {
    "shortest remaining time": (shortest_remaining_first, PUBLISHED_RESCALE_S),
    "goodput, told": (GoodputColumn(True, False, PUBLISHED_RESCALE_S), PUBLISHED_RESCALE_S),
    "goodput, told, each by itself": (
        GoodputColumn(True, False, PUBLISHED_RESCALE_S, is_alike_known=False),
        PUBLISHED_RESCALE_S,
    ),
    "goodput, not told": (GoodputColumn(False, False, PUBLISHED_RESCALE_S), PUBLISHED_RESCALE_S),
    "goodput, told, elastic batches": (
        GoodputColumn(True, True, PUBLISHED_RESCALE_S),
        PUBLISHED_RESCALE_S,
    ),
    "goodput, told, never moved": (
        GoodputColumn(True, False, PUBLISHED_RESCALE_S, is_movable=False),
        PUBLISHED_RESCALE_S,
    ),
    "goodput, told, never stopped": (
        GoodputColumn(True, False, PUBLISHED_RESCALE_S, is_stoppable=False),
        PUBLISHED_RESCALE_S,
    ),
    "goodput, not told, never stopped": (
        GoodputColumn(False, False, PUBLISHED_RESCALE_S, is_stoppable=False),
        PUBLISHED_RESCALE_S,
    ),
    "goodput, told, our rescale": (GoodputColumn(True, False, OWN_RESCALE_S), OWN_RESCALE_S),
}


def main(arguments: Sequence[str]) -> int:
    """Print one row a workload: mean and p99 of each column, and the published means."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shared_cluster", description=__doc__
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--loads", nargs="*", choices=FOLDERS, default=list(FOLDERS))
    parser.add_argument("--generated", nargs="*", type=int, default=[], metavar="SEED")
    parsed = parser.parse_args(arguments)
    profiles = read_profiles(parsed.traces / "traces")
    published = {"Pollux": POLLUX, "Tiresias": TIRESIAS, "Optimus": OPTIMUS}
    names = ("workload", *published, *COLUMNS)
    print("| " + " | ".join(names) + " |")
    print("| --- " * len(names) + "|")
    for name, key, workload in _workloads(parsed.traces, parsed.loads, parsed.generated):
        cells = [f"{table[key]:,}" if key in table else "-" for table in published.values()]
        for decide, rescale_s in COLUMNS.values():
            outcome = simulate(workload, profiles, decide, rescale_s)
            cells.append(f"{outcome.mean_s:,.0f} ({outcome.p99_s:,.0f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return 0


def _workloads(
    traces: Path, loads: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, tuple[str, int], list[Request]]]:
    """Name, key in the published tables, jobs."""
    for load in loads:
        for path in sorted((traces / FOLDERS[load]).glob("workload-*.csv")):
            number = int(path.stem.rpartition("-")[2])
            yield f"{load}, w{number}", (load, number), read_workload(path)
    for seed in seeds:
        jobs = 80 * (1 + seed % 4)
        yield f"generated, {jobs} jobs, seed {seed}", ("", seed), make_workload(jobs, seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
