"""What a simulation tells of the time that it went through. Pure values."""

from collections.abc import Mapping
from dataclasses import dataclass

from elastic.policy.cluster.amounts import Amounts


@dataclass(frozen=True, slots=True)
class JobRun:
    """What became of one job.

    Attributes:
        name: Its key.
        asked: Workers that its user asked for.
        started_s: When all of its smallest size first had nodes; None where it never had.
        ended_s: When its work was done; None where it was not.
        sizes: (second, workers that have a node), at each change.
        scale_actions: Changes of its size while it ran.
        amounts: What each worker requests, with the part of a GPU that it has.
        fixed: What the rest of the job requests together.
    """

    name: str
    min: int
    max: int
    asked: int
    submitted_s: float
    started_s: float | None
    ended_s: float | None
    sizes: tuple[tuple[float, int], ...]
    scale_actions: int
    amounts: Amounts
    fixed: Amounts

    @property
    def completion_s(self) -> float | None:
        """From its submission to its end."""
        return None if self.ended_s is None else self.ended_s - self.submitted_s


@dataclass(frozen=True, slots=True)
class Usage:
    """What was in use from one moment on.

    Attributes:
        used: Of each resource, by jobs and services; parts of GPUs by what they are.
        services: Of each resource, by services alone.
        cards: GPUs of which parts were given out.
        shared_milli: Thousandths of those that were.
        waiting: Jobs that had come and did not run.
    """

    at_s: float
    used: Mapping[str, int]
    services: Mapping[str, int]
    cards: int
    shared_milli: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A whole simulation.

    Attributes:
        capacity: Of all nodes together.
        usage: At each change, ascending.
        end_s: When nothing was left to happen.
        num_plans: How often the policy was asked.
        notes: What the policy said last of each job that never ran.
    """

    jobs: tuple[JobRun, ...]
    capacity: Amounts
    usage: tuple[Usage, ...]
    end_s: float
    num_plans: int
    notes: Mapping[str, str]
