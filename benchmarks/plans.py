"""Seconds of a plan for a whole cluster, and how they grow with the cluster.

A plan is a function of a snapshot alone, so it is timed in processor time of this one process. The
growth is the exponent by which the time grows with the number of jobs; nodes grow with the jobs.
"""

import gc
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.measure import Bar, Ratio, Series
from benchmarks.sizes import Size
from elastic.planning.policies import POLICIES, PolicyOptions
from elastic.policy.cluster import (
    Group,
    Job,
    JobPhase,
    Node,
    Policy,
    Snapshot,
    Speed,
    Telling,
    carried_out,
)

SECONDS_BAR: Final = Bar(first=1.0, goal=1.0, is_ceiling=True)
GROWTH_BAR: Final = Bar(first=1.2, goal=1.1, is_ceiling=True)

TURNOVER: Final = 0.05
"""The part of the jobs that have ended since the last plan, and that have come."""

_GI: Final = 1 << 30
_GPU_NODE: Final = {"cpu": 64_000, "memory": 256 * _GI, "nvidia.com/gpu": 8000, "pods": 110}
_CPU_NODE: Final = {"cpu": 32_000, "memory": 128 * _GI, "pods": 110}
_GPU_WORKER: Final = {"cpu": 4000, "memory": 16 * _GI, "nvidia.com/gpu": 1000}
_CPU_WORKER: Final = {"cpu": 2000, "memory": 6 * _GI}
_SERVER: Final = {"cpu": 1000, "memory": 4 * _GI}


def run(size: Size) -> list[Ratio]:
    """Time each policy at all numbers of jobs."""
    return [ratio for name in POLICIES for ratio in _measure(name, size)]


def _measure(name: str, size: Size) -> list[Ratio]:
    policy = POLICIES[name].policy(PolicyOptions())
    counts = size.plan_jobs
    rounds = [
        [plan_seconds(policy, count, seed) for count in counts] for seed in range(size.plan_rounds)
    ]
    ratios = []
    for at, what in enumerate(("a first plan", "a busy plan")):
        found = [[each[at] for each in of_round] for of_round in rounds]
        seconds = Series(
            f"{what}, {counts[-1]:,} jobs on {counts[-1] // 2:,} nodes", "s",
            tuple(each[-1] for each in found),
        )  # fmt: skip
        one = Series("a second", "s", (1.0,) * len(found))
        ratios.append(Ratio(f"plans, {name}, {what}", seconds, one, SECONDS_BAR))
        growth = Series(
            f"exponent of {what} by jobs", "exponent",
            tuple(_exponent(counts, each) for each in found),
        )  # fmt: skip
        in_proportion = Series("in proportion", "exponent", (1.0,) * len(found))
        ratios.append(Ratio(f"plans, {name}, growth of {what}", growth, in_proportion, GROWTH_BAR))
    return ratios


def _exponent(counts: Sequence[int], seconds: Sequence[float]) -> float:
    """By least squares on logarithms."""
    return float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])


def plan_seconds(policy: Policy, num_jobs: int, seed: int) -> tuple[float, float]:
    """Processor time of a first plan, of an empty cluster, and of a busy one later."""
    new = empty_cluster(num_jobs, seed)
    first_s, running = _timed(policy, new)
    for tick in (60.0, 120.0):
        # DRAGON grows once nothing has changed for a minute.
        running = carried_out(running, policy.plan(replace(running, now_s=new.now_s + tick)))
    busy_s, _ = _timed(policy, turned_over(replace(running, now_s=new.now_s + 240.0), seed))
    return first_s, busy_s


def _timed(policy: Policy, snapshot: Snapshot) -> tuple[float, Snapshot]:
    # What is collected meanwhile is the garbage of what was made before.
    gc.collect()
    start_s = time.process_time()
    plan = policy.plan(snapshot)
    return time.process_time() - start_s, carried_out(snapshot, plan)


def empty_cluster(num_jobs: int, seed: int) -> Snapshot:
    """Jobs of which half have GPUs, on half as many nodes of which half have eight; none runs."""
    rng = random.Random(seed)
    nodes = tuple(
        Node(f"n{number:05}", _GPU_NODE if number % 2 else _CPU_NODE)
        for number in range(max(2, num_jobs // 2))
    )
    jobs = tuple(_job(rng, f"j{number:05}", 1000.0 + rng.random()) for number in range(num_jobs))
    return Snapshot(2000.0, nodes, jobs)


def turned_over(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same cluster a little later: some jobs have ended, and others have come."""
    rng = random.Random(seed + 1)
    jobs = list(snapshot.jobs)
    for at in rng.sample(range(len(jobs)), int(TURNOVER * len(jobs))):
        came_s = snapshot.now_s - 60 * rng.random()
        jobs[at] = _job(rng, f"new-{jobs[at].name}", came_s)
    return replace(snapshot, jobs=tuple(jobs))


def _job(rng: random.Random, name: str, submitted_s: float) -> Job:
    has_gpu = rng.random() < 0.5
    least = rng.choice([1, 1, 2])
    needs = _GPU_WORKER if has_gpu else _CPU_WORKER
    workers = Group(least, rng.choice([4, 8, 16, 64]), 0, needs, needs)
    num_servers = rng.choice([0, 1, 2])
    ps = None
    if not has_gpu and num_servers:
        ps = Group(num_servers, num_servers, 0, _SERVER, _SERVER, role="ps")
    rate, power = rng.choice([1.0, 5.0]), 0.6 + 0.4 * rng.random()
    speeds = tuple(Speed(k, -(-k // 8), rate * k**power, 64) for k in (1, 4, 16))
    telling = Telling(speeds, rng.random() * 1e7, rescale_s=1.0, global_batch_size=64)
    return Job(
        name,
        "team",
        "TFJob" if ps else "ElasticTrainJob",
        workers,
        submitted_s,
        JobPhase.WAITING,
        ps=ps,
        telling=telling,
        waiting_since_s=submitted_s,
    )
