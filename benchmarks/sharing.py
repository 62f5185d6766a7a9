"""Mean completion time of the jobs that share 64 GPUs, beside published policies.

It is the experiment of `benchmarks.shared_cluster`, on the published workloads, each of which is a
round. They are no part of the project: without them there is nothing to measure.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.measure import Bar, Ratio, Series
from benchmarks.shared_cluster.__main__ import COLUMNS, FOLDERS
from benchmarks.shared_cluster.profiles import read_profiles
from benchmarks.shared_cluster.published import POLLUX, TIRESIAS
from benchmarks.shared_cluster.simulation import simulate
from benchmarks.shared_cluster.workloads import read_workload
from benchmarks.sizes import Size

TRACES: Final = "ELASTIC_TEST_TRACES"
"""Names the folder, where it is not `shared/traces/pollux` beside the project."""

BARS: Final = {
    ("goodput, told", "Pollux"): Bar(first=1.04, goal=1.0, is_ceiling=True),
    ("goodput, told", "shortest remaining time"): Bar(first=1.0, goal=0.95, is_ceiling=True),
    ("goodput, not told", "Tiresias"): Bar(first=1.0, goal=0.9, is_ceiling=True),
    ("goodput, told, elastic batches", "Pollux"): Bar(first=0.9, goal=0.85, is_ceiling=True),
    ("goodput, told, each by itself", "Pollux"): None,
    ("goodput, told, our rescale", "Pollux"): None,
    ("goodput, told, never moved", "Pollux"): None,
    ("goodput, told, never stopped", "Pollux"): None,
    ("goodput, not told, never stopped", "Tiresias"): None,
}
"""By column and what it is divided by."""


def run(_size: Size) -> list[Ratio]:
    """Simulate each published workload with each column once: it comes out the same each time."""
    traces = _traces()
    if traces is None:
        print(f"sharing is left out: {TRACES} names no published workloads", file=sys.stderr)
        return []
    means = {"Pollux": _published(POLLUX), "Tiresias": _published(TIRESIAS), **_simulated(traces)}
    return [
        Ratio(f"sharing, {one} by {other}", means[one], means[other], bar)
        for (one, other), bar in BARS.items()
    ]


def _traces() -> Path | None:
    places = [Path(os.environ[TRACES])] if TRACES in os.environ else []
    places += [each / "shared" / "traces" / "pollux" for each in Path(__file__).parents]
    return next((each for each in places if (each / "traces").is_dir()), None)


def _published(means_s: Mapping[tuple[str, int], int]) -> Series:
    return Series("published", "s", tuple(float(means_s[key]) for key in POLLUX))


def _simulated(traces: Path) -> dict[str, Series]:
    profiles = read_profiles(traces / "traces")
    workloads = [
        read_workload(traces / FOLDERS[load] / f"workload-{number}.csv") for load, number in POLLUX
    ]
    return {
        name: Series(
            name, "s", tuple(simulate(each, profiles, *column).mean_s for each in workloads)
        )
        for name, column in COLUMNS.items()
    }
