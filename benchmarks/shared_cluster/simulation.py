"""The cluster of the experiment: decisions each minute, jobs that run between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.shared_cluster.jobs import SimulatedJob
from benchmarks.shared_cluster.profiles import Profile
from benchmarks.shared_cluster.workloads import Request

NODES: Final = 16
GPUS_A_NODE: Final = 4
PERIOD_S: Final = 60
PUBLISHED_RESCALE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Share:
    """What a policy gives one job: GPUs by node index, and the global batch it shall use."""

    placement: dict[int, int]
    batch: int


Decide = Callable[[float, Sequence[SimulatedJob]], dict[str, Share]]
"""Now, and the jobs that were submitted, those that have ended included, which hold nothing; who is
left out holds nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How long each job took from its submission on, and how often its placement changed."""

    seconds: dict[str, float]
    changes: dict[str, int]

    @property
    def mean_s(self) -> float:
        """Mean completion time."""
        return sum(self.seconds.values()) / len(self.seconds)

    @property
    def p99_s(self) -> float:
        """Completion time that one job in a hundred exceeds (nearest rank)."""
        ordered = sorted(self.seconds.values())
        return ordered[-(-99 * len(ordered) // 100) - 1]


def simulate(
    workload: Sequence[Request],
    profiles: dict[str, Profile],
    decide: Decide,
    rescale_s: float = PUBLISHED_RESCALE_S,
) -> Outcome:
    """Run a workload until its last job has ended.

    Raises:
        ValueError: The policy gave out GPUs that are not there.
    """
    jobs = [SimulatedJob(request, profiles[request.application], rescale_s) for request in workload]
    waiting = sorted(jobs, key=lambda job: job.request.submitted_s, reverse=True)
    active: list[SimulatedJob] = []
    ended: list[SimulatedJob] = []
    now_s = 0
    while waiting or active:
        for job in active:
            job.run(now_s, PERIOD_S)
        now_s += PERIOD_S
        ended += [job for job in active if job.ended_s is not None]
        active = [job for job in active if job.ended_s is None]
        while waiting and waiting[-1].request.submitted_s <= now_s:
            active.append(waiting.pop())
        if active:
            _obey(decide(now_s, [*active, *ended]), active, now_s)
    return Outcome(
        {job.request.name: (job.ended_s or 0.0) - job.request.submitted_s for job in jobs},
        {job.request.name: job.changes for job in jobs},
    )


def _obey(shares: dict[str, Share], active: Sequence[SimulatedJob], now_s: float) -> None:
    used = [0] * NODES
    for share in shares.values():
        for node, count in share.placement.items():
            used[node] += count
    if max(used) > GPUS_A_NODE:
        raise ValueError(f"{max(used)} GPUs given out on a node of {GPUS_A_NODE}")
    for job in active:
        given = shares.get(job.request.name)
        if given is None:
            job.place({}, job.batch, now_s)
        else:
            job.place(given.placement, given.batch, now_s)
