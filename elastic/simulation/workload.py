"""What is submitted to a simulated cluster, when, and how fast it is. Pure values.

The speed of a job by its size is relative to the size that its user asked for.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

from elastic.policy.cluster.amounts import Amounts
from elastic.policy.cluster.rules import Rules
from elastic.policy.cluster.snapshot import Job

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
