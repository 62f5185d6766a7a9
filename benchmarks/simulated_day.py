"""Minutes for which a simulated day of many jobs is computed, under each policy.

The day has the shape of Philly's, the policy is asked each minute, and jobs tell all of themselves.
As nothing is waited for, processor time stands for minutes.
"""

import time
from dataclasses import replace
from typing import Final

from benchmarks.measure import Bar, Ratio, Series
from benchmarks.sizes import Size
from elastic.planning.policies import POLICIES, PolicyOptions
from elastic.simulation.engine import Settings, simulate
from elastic.simulation.workload import Scenario, Submission, Tells, philly

MINUTES_BAR: Final = Bar(first=3.0, goal=1.0, is_ceiling=True)

_PERIOD_S: Final = 60.0


def run(size: Size) -> list[Ratio]:
    """Simulate the day once under each policy: the time of so long a run hardly varies."""
    day = _telling(philly(size.day_jobs, 0))
    return [
        Ratio(
            f"a simulated day, {name}",
            Series(f"{size.day_jobs:,} jobs", "min", (_minutes(name, day),)),
            Series("a minute", "min", (1.0,)),
            MINUTES_BAR,
        )
        for name in POLICIES
    ]


def _telling(day: Scenario) -> Scenario:
    told = tuple(_told(each) for each in day.workload.submissions)
    return replace(day, workload=replace(day.workload, submissions=told))


def _told(submission: Submission) -> Submission:
    return replace(submission, work=replace(submission.work, tells=Tells.ALL))


def _minutes(name: str, day: Scenario) -> float:
    policy = POLICIES[name].policy(PolicyOptions())
    start_s = time.process_time()
    simulate(day.nodes, day.workload, policy, Settings(_PERIOD_S))
    return (time.process_time() - start_s) / 60
