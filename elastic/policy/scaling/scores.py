"""How fulfilled jobs are, and who comes before whom."""

from typing import Final, NamedTuple

from elastic.policy.cluster.amounts import CPU, MEMORY, Amounts, is_gpu
from elastic.policy.cluster.snapshot import Group, Job

FULFILLED: Final = 1.0


def score(group: Group, size: int) -> float:
    """How much of its range a group has: 0 at its minimum, 1 at its maximum.

    A group without a range has all that it can have.
    """
    return (size - group.min) / (group.max - group.min) if group.max > group.min else FULFILLED


class ExactScore(NamedTuple):
    """A score without rounding: `above` workers of `span` that a job may have above its minimum."""

    above: int
    span: int

    def is_below(self, other: "ExactScore") -> bool:
        """Whether it is the lower one."""
        return self.above * other.span < other.above * self.span


def exact_score(group: Group, size: int) -> ExactScore:
    """Of a group with a range."""
    return ExactScore(size - group.min, group.max - group.min)


def least_size(group: Group, floor: ExactScore) -> int:
    """The smallest size whose score is not below a floor."""
    return group.min - (-floor.above * (group.max - group.min) // floor.span)


def servers_for(job: Job, num_workers: int) -> int:
    """How many parameter servers go with so many workers: the same part of their range.

    Servers of a job whose workers have no range have nothing to follow, and stay at their minimum.
    """
    ps, workers = job.ps, job.workers
    if ps is None:
        return 0
    span, wide = ps.max - ps.min, workers.max - workers.min
    if not span or not wide:
        return ps.min
    above = min(max(num_workers - workers.min, 0), wide)
    # Half a server rounds up.
    return ps.min + (2 * above * span + wide) // (2 * wide)


Weight = tuple[int, int, int, float, str]
"""GPU, CPU and memory of one worker, then age and name: who of equally fulfilled jobs is first."""


def weight(job: Job) -> Weight:
    """Smaller and older jobs come first, and give last."""
    workers = job.workers
    part = workers.share.milli if workers.share is not None else 0
    gpus = _gpus(workers.requests) + part
    asked = workers.requests
    return gpus, asked.get(CPU, 0), asked.get(MEMORY, 0), job.submitted_s, job.key


def giving_weight(weight: Weight) -> Weight:
    """The other way round: larger and younger jobs give first."""
    gpus, cpu, memory, submitted_s, key = weight
    return -gpus, -cpu, -memory, -submitted_s, key


def needs_gpu(job: Job) -> bool:
    """Whether any replica of it has a GPU, or a part of one."""
    return any(group.share is not None or _gpus(group.requests) > 0 for group in job.groups)


def waiting_since_s(job: Job) -> float:
    """Since when a job waits, for one that does."""
    return job.submitted_s if job.waiting_since_s is None else job.waiting_since_s


def waiting_order(job: Job) -> tuple[float, float, str]:
    """For sorting: who waits longest comes first, then who was submitted first."""
    return waiting_since_s(job), job.submitted_s, job.key


def _gpus(amounts: Amounts) -> int:
    return sum(amount for name, amount in amounts.items() if is_gpu(name))
