"""What is submitted to a simulated cluster, when, and how fast it is; and workloads that are made.

Pure values. The speed of a job by its size is relative to the size that its user asked for.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

from elastic.policy.cluster import (
    CPU,
    GPU,
    MEMORY,
    MILLI,
    Amounts,
    Group,
    Job,
    JobPhase,
    Node,
    Rules,
)

SAMPLES_PER_S: Final = 100.0
"""Of a job of which nothing is known, at the size that its user asked for: any number will do."""


class Speed(Protocol):
    """Relative speed by size; 0 without workers."""

    def at(self, workers: int, nodes: int) -> float:
        """Work done in a second, in any unit.

        Args:
            workers: Those that run.
            nodes: On how many nodes they are.
        """
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """A job that holds what it has for a time, whatever its size."""

    def at(self, workers: int, _nodes: int) -> float:
        """See `Speed`."""
        return 1.0 if workers else 0.0


@dataclass(frozen=True, slots=True)
class Amdahl:
    """Each worker adds its share, but for what is not shared.

    Attributes:
        serial: The part of one worker's time that others do not shorten, 0 to 1; 0 is linear.
    """

    serial: float = 0.0

    def at(self, workers: int, _nodes: int) -> float:
        """See `Speed`."""
        return 1.0 / (self.serial + (1.0 - self.serial) / workers) if workers else 0.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Speeds that were measured at some sizes; linear between them, and flat beyond the last.

    Attributes:
        points: (workers, speed), ascending, at least one.
        spread: Factor on the speed for each further node, above 0 and up to 1.
    """

    points: tuple[tuple[int, float], ...]
    spread: float = 1.0

    @classmethod
    def of(cls, speeds: Mapping[int, float], spread: float = 1.0) -> "Measured":
        """By the number of workers."""
        return cls(tuple(sorted(speeds.items())), spread)

    def at(self, workers: int, nodes: int) -> float:
        """See `Speed`."""
        if not workers:
            return 0.0
        return self._on_one_node(workers) * self.spread ** max(0, nodes - 1)

    def _on_one_node(self, workers: int) -> float:
        sizes = [size for size, _ in self.points]
        at = bisect_left(sizes, workers)
        if at == len(sizes):
            return self.points[-1][1]
        size, speed = self.points[at]
        # Below the smallest that was measured: in proportion.
        below, slower = self.points[at - 1] if at else (0, 0.0)
        return slower + (speed - slower) * (workers - below) / (size - below)


class Tells(StrEnum):
    """What a job tells of itself while it runs."""

    NOTHING = "nothing"
    SPEED = "speed"
    ALL = "all"
    """Also how much work remains."""


@dataclass(frozen=True, slots=True)
class Work:
    """How much a job has to do.

    Attributes:
        seconds: How long it takes at the size that its user asked for.
        speed: By size.
        tells: What policies get to know of it.
        samples_per_s: At that size.
    """

    seconds: float
    speed: Speed = field(default_factory=Amdahl)
    tells: Tells = Tells.NOTHING
    samples_per_s: float = SAMPLES_PER_S


@dataclass(frozen=True, slots=True)
class Submission:
    """One job of a workload.

    Attributes:
        job: As policies see it when it comes: nothing of it is placed.
        work: What it has to do.
        rescale_s: Seconds without progress for each change of its size; None for those of its kind.
    """

    job: Job
    work: Work
    rescale_s: float | None = None

    @property
    def asked(self) -> int:
        """Workers that its user asked for; the most that it may have where nobody has said."""
        return self.job.workers.size_at_start


@dataclass(frozen=True, slots=True)
class Service:
    """Pods that are no job and come and go by a schedule, as those of a Deployment.

    Attributes:
        steps: (second, pods from then on), ascending.
    """

    name: str
    requests: Amounts
    limits: Amounts
    steps: tuple[tuple[float, int], ...]
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time of which utilisation and fairness are told by themselves.

    Attributes:
        to_s: None for the first end of a job.
    """

    name: str
    from_s: float
    to_s: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """All that a simulated cluster is to run.

    Attributes:
        submissions: By the time of submission.
        windows: Spans to be told of, beside the whole.
    """

    submissions: tuple[Submission, ...]
    services: tuple[Service, ...] = ()
    windows: tuple[Window, ...] = ()

    @classmethod
    def of(cls, submissions: list[Submission]) -> "Workload":
        """Submissions in any order, the first of which is to come at second 0."""
        if not submissions:
            return cls(())
        first_s = min(each.job.submitted_s for each in submissions)
        ordered = sorted(submissions, key=lambda each: each.job.submitted_s)
        return cls(tuple(_earlier(each, first_s) for each in ordered))


def _earlier(submission: Submission, by_s: float) -> Submission:
    at_s = submission.job.submitted_s - by_s
    return replace(submission, job=replace(submission.job, submitted_s=at_s, waiting_since_s=at_s))


# Workloads that are made: two published experiments, and shapes that public traces have. Pure.
#
# What is drawn is drawn by a seed: the same seed makes the same workload on every machine.


_GIB: Final = 1 << 30
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload, and the cluster that it is meant for."""

    workload: Workload
    nodes: tuple[Node, ...]


def equal_jobs(num_jobs: int, _seed: int) -> Scenario:
    """Jobs that are alike, one each 10 s, each of which holds what it has for 300 s once started.

    Source: the published experiment of the fulfillment autoscaler: 20 jobs of 2 to 60 trainers on
    133 nodes. Nothing is drawn. Its figures: average pending 47.2 s (308.5 s without autoscaling),
    steady utilisation 86%, fairness 0.38 to 0.47.
    """
    submissions = [_trainers(f"job-{i:02}", 10.0 * (i + 1), 300.0) for i in range(num_jobs)]
    windows = (Window("steady", 300.0), Window("all_in", 10.0 * num_jobs + 10.0))
    return Scenario(Workload(tuple(submissions), windows=windows), _many_small_nodes())


def off_peak(num_jobs: int, _seed: int) -> Scenario:
    """Jobs beside a service that shrinks for the night and grows again.

    Source: the second of those experiments: 6 such jobs beside a Deployment of 400, 300, 200, 100,
    200, 300 and 400 pods, 90 s each. Nothing is drawn. Its figures: utilisation 83.4% (61.9%
    without autoscaling), off-peak 79.4% (44.9%).
    """
    step_s, counts = 90.0, (400, 300, 200, 100, 200, 300, 400)
    end_s = step_s * len(counts)
    submissions = [_trainers(f"job-{i:02}", 10.0 * i, end_s) for i in range(num_jobs)]
    needs = {CPU: 3 * MILLI, MEMORY: 3 * _GIB}
    steps = tuple((step_s * index, count) for index, count in enumerate(counts))
    windows = (Window("schedule", 0.0, end_s), Window("off_peak", step_s, end_s - step_s))
    services = (Service("nginx", needs, needs, steps),)
    return Scenario(Workload(tuple(submissions), services, windows), _many_small_nodes())


def _many_small_nodes() -> tuple[Node, ...]:
    """133 equal nodes that have 2,348 cores and 13.67 TB together."""
    count = 133
    each = {CPU: 2_348 * MILLI // count, MEMORY: 13_670_000_000_000 // count}
    return tuple(Node(f"node-{index:03}", each) for index in range(count))


def _trainers(name: str, submitted_s: float, hold_s: float) -> Submission:
    trainer, server = {CPU: 5 * MILLI, MEMORY: 8 * _GIB}, {CPU: 4 * MILLI, MEMORY: 5 * _GIB}
    master = {CPU: MILLI}
    job = Job(
        name, "team", "TrainingJob", Group(2, 60, 0, trainer, trainer), submitted_s,
        JobPhase.WAITING, ps=Group(10, 10, 0, server, server, role="pserver"),
        others=(Group(1, 1, 0, master, master, role="master"),), waiting_since_s=submitted_s,
    )  # fmt: skip
    return Submission(job, Work(hold_s, Constant()))


def tfjobs(num_jobs: int, seed: int) -> Scenario:
    """TFJobs with a parameter server each, on 8 nodes of 32 cores.

    Workers asked for: 1 (2 in 10), 2 (4), 4 (3) or 8 (1); a job runs with half of them, and
    may have twice as many. Work is log-normal with a median of 2 minutes at the size asked for, of
    which 5% are not shared among workers. Submissions are a Poisson process, which asks for
    70% of the cores on average: by chance there are times at which it is more than all.
    """
    # Nothing here is a secret.
    draw = random.Random(seed)  # noqa: S311
    needs = {CPU: 4 * MILLI, MEMORY: 8 * _GIB}
    nodes = _nodes(8, {CPU: 32 * MILLI, MEMORY: 128 * _GIB})
    drawn = [
        (_size(draw, _TFJOB_SIZES), draw.lognormvariate(math.log(120), 1.0))
        for _ in range(num_jobs)
    ]
    core_s = sum(4 * (size + 1) * work_s for size, work_s in drawn)
    gap_s = core_s / num_jobs / (0.7 * 32 * len(nodes))
    submissions, at_s = [], 0.0
    for index, (size, work_s) in enumerate(drawn):
        workers = Group(max(1, size // 2), 2 * size, 0, needs, needs, asked=size)
        job = Job(
            f"tfjob-{index:05}", "team", "TFJob", workers, at_s, JobPhase.WAITING,
            ps=Group(1, 1, 0, needs, needs, role="ps"), waiting_since_s=at_s,
        )  # fmt: skip
        submissions.append(Submission(job, Work(work_s, Amdahl(0.05))))
        at_s += draw.expovariate(1 / gap_s)
    return Scenario(Workload(tuple(submissions)), nodes)


_TFJOB_SIZES: Final = ((1, 0.2), (2, 0.4), (4, 0.3), (8, 0.1))


def philly(num_jobs: int, seed: int) -> Scenario:
    """GPU jobs of the shape of the Philly trace, a day of them, on nodes of 8 GPUs.

    Most jobs have one GPU and last minutes; the few large ones last long, and have most of the GPU
    time: log-normal work whose median grows with the size, and whose mean is a multiple of it. By
    day there are three times as many submissions as by night. There are so many nodes that what is
    asked for is 90% of them on average. A job runs with a quarter of what it asks for, and may have
    twice as much; 5% of its work is not shared.

    Source: the shape follows Jeon et al., ATC 2019; the parameters are ours, fitted to nothing.
    """
    # Nothing here is a secret.
    draw = random.Random(seed)  # noqa: S311
    submissions, gpu_s = [], 0.0
    for index, at_s in enumerate(sorted(_by_day(draw) for _ in range(num_jobs))):
        size = _size(draw, _PHILLY_SIZES)
        work_s = min(_DAY_S, draw.lognormvariate(math.log(600 * size**0.5), 1.6))
        gpu_s += size * work_s
        needs = {CPU: 4 * MILLI, MEMORY: 32 * _GIB, GPU: MILLI}
        job = Job(
            f"job-{index:05}", "team", "ElasticTrainJob",
            Group(max(1, size // 4), 2 * size, 0, needs, needs, asked=size), at_s, JobPhase.WAITING,
            waiting_since_s=at_s,
        )  # fmt: skip
        submissions.append(Submission(job, Work(work_s, Amdahl(0.05))))
    count = max(8, math.ceil(gpu_s / (0.9 * 8 * _DAY_S)))
    node = {CPU: 48 * MILLI, MEMORY: 384 * _GIB, GPU: 8 * MILLI}
    return Scenario(Workload(tuple(submissions)), _nodes(count, node))


_PHILLY_SIZES: Final = ((1, 0.7), (2, 0.09), (4, 0.09), (8, 0.09), (16, 0.03))


def _by_day(draw: random.Random) -> float:
    """A second of the day: a sine with its low at midnight, three times as high at noon."""
    while True:
        at_s = draw.uniform(0, _DAY_S)
        if draw.uniform(0, 3) < 2 - math.cos(2 * math.pi * at_s / _DAY_S):
            return at_s


def _size(draw: random.Random, sizes: tuple[tuple[int, float], ...]) -> int:
    [size] = draw.choices([size for size, _ in sizes], [part for _, part in sizes])
    return size


def _nodes(count: int, allocatable: Mapping[str, int]) -> tuple[Node, ...]:
    return tuple(Node(f"node-{index:04}", allocatable) for index in range(count))


@dataclass(frozen=True, slots=True)
class Generator:
    """One that can be asked for by its name.

    Attributes:
        num_jobs: As many as it makes where nobody says.
    """

    make: Callable[[int, int], Scenario]
    num_jobs: int
    summary: str


GENERATORS: Final[Mapping[str, Generator]] = MappingProxyType(
    {
        "equal_jobs": Generator(equal_jobs, 20, "20 equal TrainingJobs on 133 nodes, published"),
        "off_peak": Generator(
            off_peak, 6, "6 of them beside a Deployment by day and night, published"
        ),
        "tfjobs": Generator(tfjobs, 200, "TFJobs that ask for 70% of 8 nodes"),
        "philly": Generator(philly, 1000, "a day of GPU jobs of the shape of the Philly trace"),
    }
)
