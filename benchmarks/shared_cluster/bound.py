"""What no schedule of the experiment can be better than, with the users' batches.

    python -m benchmarks.shared_cluster.bound TRACES [--loads LOAD …]

A linear program, which knows all jobs to come, divides GPUs at will, and changes sizes for
nothing: all that is left of the experiment is that a job waits for the next decision, and takes
as long as a change to start. It spreads the work of each job over time. If that is done by time `t`
in the mean, and a job's work takes `T` at its best size, the job ends at `t + T / 2` at the
soonest.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from benchmarks.shared_cluster.__main__ import FOLDERS
from benchmarks.shared_cluster.jobs import gain, split_batch, step_seconds
from benchmarks.shared_cluster.profiles import SINGLE, Profile, read_profiles
from benchmarks.shared_cluster.simulation import (
    GPUS_A_NODE,
    NODES,
    PERIOD_S,
    PUBLISHED_RESCALE_S,
)
from benchmarks.shared_cluster.workloads import Request, read_workload

FINE_S: Final = 36_000
"""Until then time is in slots as long as the time between decisions, later in long ones."""

LONG_S: Final = 900
END_S: Final = 300_000

Sizes = list[tuple[int, float]]
"""GPUs, and the part of the whole work that is done in a second."""


def sizes_of(profile: Profile, request: Request) -> Sizes:
    """Those worth having: what is between two of them is as good as taking turns with them."""
    found = [(0, 0.0)]
    most = min(NODES * GPUS_A_NODE, request.batch // profile.min_local_batch)
    for gpus in range(1, (1 if request.application in SINGLE else most) + 1):
        point = gpus, 1 / _work_s(profile, request.batch, gpus)
        if point[1] <= found[-1][1]:
            continue
        while len(found) > 1 and _slope(found[-2], found[-1]) <= _slope(found[-2], point):
            found.pop()
        found.append(point)
    return found[1:]


def _slope(one: tuple[int, float], other: tuple[int, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def _work_s(profile: Profile, asked_batch: int, gpus: int) -> float:
    """Seconds of the whole job on so many GPUs, on as few nodes as can be."""
    whole, part = divmod(gpus, GPUS_A_NODE)
    layout = [GPUS_A_NODE] * whole + [part] * bool(part)
    batch, local, accumulations = split_batch(asked_batch, gpus, profile)
    steps, done = 0.0, 0.0
    for epoch, end in enumerate(profile.ends):
        worth = gain(*profile.gradients(batch, epoch), batch / profile.min_batch)
        steps, done = steps + (end - done) / worth, end
    return steps * step_seconds(profile, layout, local, accumulations)


def bound_s(workload: Sequence[Request], profiles: dict[str, Profile]) -> float:
    """Mean completion time that no schedule is below.

    Raises:
        ValueError: The work does not fit before the last slot.
    """
    edges = [*range(0, FINE_S, PERIOD_S), *range(FINE_S, END_S + 1, LONG_S)]
    slots = list(pairwise(edges))
    rows: list[int] = []
    columns: list[int] = []
    amounts: list[float] = []
    work: list[tuple[int, int, float]] = []
    costs: list[float] = []
    limits = [float(NODES * GPUS_A_NODE)] * len(slots)
    always_s = 0.0
    for number, request in enumerate(workload):
        sizes = sizes_of(profiles[request.application], request)
        always_s += 1 / sizes[-1][1] / 2 - request.submitted_s
        ready_s = math.ceil(request.submitted_s / PERIOD_S) * PERIOD_S + PUBLISHED_RESCALE_S
        for slot, (begin_s, end_s) in enumerate(slots):
            from_s = max(begin_s, ready_s)
            seconds = end_s - from_s
            if seconds <= 0:
                continue
            for gpus, rate in sizes:
                at = len(costs)
                # All that is done in a slot counts as done when it begins.
                costs.append(rate * seconds * from_s)
                work.append((number, at, rate * seconds))
                rows += [slot, len(limits)]
                columns += [at, at]
                amounts += [gpus * seconds / (end_s - begin_s), 1.0]
            limits.append(1.0)
    of_job, of_size, parts = zip(*work, strict=True)
    found = linprog(
        costs,
        A_ub=csr_matrix((amounts, (rows, columns)), shape=(len(limits), len(costs))),
        b_ub=limits,
        A_eq=csr_matrix((parts, (of_job, of_size)), shape=(len(workload), len(costs))),
        b_eq=np.ones(len(workload)),
        method="highs-ipm",
    )
    if found.status:
        raise ValueError(f"no bound was found: {found.message}")
    return float((found.fun + always_s) / len(workload))


def main(arguments: Sequence[str]) -> int:
    """Print the bound of each workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared_cluster.bound")
    parser.add_argument("traces", type=Path)
    parser.add_argument("--loads", nargs="*", choices=FOLDERS, default=["0.5", "1.0"])
    parsed = parser.parse_args(arguments)
    profiles = read_profiles(parsed.traces / "traces")
    for load in parsed.loads:
        for path in sorted((parsed.traces / FOLDERS[load]).glob("workload-*.csv")):
            seconds = bound_s(read_workload(path), profiles)
            print(f"{load}, {path.stem}: {seconds:,.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
