"""What a simulation comes to in numbers. Pure.

Means over time are weighted by it. A job that never ran has waited to the end, so that no policy
looks good by refusing jobs.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.policy.cluster.amounts import CPU, MEMORY, MILLI, PODS, is_gpu
from elastic.simulation.outcome import JobRun, Outcome
from elastic.simulation.workload import Window

WHOLE: Final = "whole"


@dataclass(frozen=True, slots=True)
class Span:
    """Means over a span of time.

    Attributes:
        utilisation: Part of the capacity that is in use, 0 to 1, by resource; of CPU, memory, the
            main resource and what a job asks for.
        jain: Fairness over the scores (size - min) / (max - min) of all jobs with a range that have
            come and not ended; 1 where all are alike, 1/n where one of n has all. None where there
            was never a job with a range.
        card_use: Of the GPUs of which parts are given out, the part that is; None without any.
    """

    name: str
    from_s: float
    to_s: float
    utilisation: Mapping[str, float]
    jain: float | None
    card_use: float | None


@dataclass(frozen=True, slots=True)
class Times:
    """Durations of jobs in seconds; None where there is no job to tell of."""

    mean_s: float | None
    p50_s: float | None
    p99_s: float | None
    max_s: float | None


@dataclass(frozen=True, slots=True)
class Metrics:
    """See the module.

    Attributes:
        main_resource: The one whose use is told first: GPUs where the cluster has them, else CPU.
        pending: From submission to start; of those that never started, to the end.
        completion: From submission to end, of jobs that ended.
        makespan_s: From the first submission to the last end.
        scale_actions: Changes of the sizes of jobs while they ran.
        spans: The whole first, then the windows of the workload.
    """

    num_jobs: int
    num_never_started: int
    num_not_ended: int
    main_resource: str
    pending: Times
    completion: Times
    makespan_s: float
    scale_actions: int
    num_plans: int
    spans: tuple[Span, ...]

    @property
    def whole(self) -> Span:
        """Over all of the time."""
        return self.spans[0]

    def span(self, name: str) -> Span:
        """A window of the workload, by its name."""
        return next(each for each in self.spans if each.name == name)


def measure(outcome: Outcome, windows: Sequence[Window] = ()) -> Metrics:
    """All numbers of a simulation."""
    jobs = outcome.jobs
    ends = [job.ended_s for job in jobs if job.ended_s is not None]
    last_s = max(ends, default=outcome.end_s)
    spans = [Window(WHOLE, 0.0, last_s), *windows]
    first_s = min(ends, default=outcome.end_s)
    completions = [job.completion_s for job in jobs if job.completion_s is not None]
    return Metrics(
        num_jobs=len(jobs),
        num_never_started=sum(job.started_s is None for job in jobs),
        num_not_ended=sum(job.ended_s is None for job in jobs),
        main_resource=main_resource(outcome),
        pending=_times([_pending_s(job, outcome.end_s) for job in jobs]),
        completion=_times(completions),
        makespan_s=last_s,
        scale_actions=sum(job.scale_actions for job in jobs),
        num_plans=outcome.num_plans,
        spans=tuple(_span(outcome, each, first_s) for each in spans),
    )


def main_resource(outcome: Outcome) -> str:
    """GPUs where there are any, else CPU."""
    return next((name for name in sorted(outcome.capacity) if is_gpu(name)), CPU)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many percent do not exceed (nearest rank); of one and more."""
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


def _pending_s(job: JobRun, end_s: float) -> float:
    return (end_s if job.started_s is None else job.started_s) - job.submitted_s


def _times(values: list[float]) -> Times:
    if not values:
        return Times(None, None, None, None)
    mean_s = sum(values) / len(values)
    return Times(mean_s, percentile(values, 50), percentile(values, 99), max(values))


def _span(outcome: Outcome, window: Window, first_end_s: float) -> Span:
    to_s = first_end_s if window.to_s is None else window.to_s
    # Where the first job ends before the window begins, what held until then stands for it.
    from_s = min(window.from_s, to_s)
    usage = [(each.at_s, each) for each in outcome.usage]
    utilisation = {
        resource: _mean([(at_s, each.used.get(resource, 0)) for at_s, each in usage], from_s, to_s)
        / capacity
        for resource, capacity in sorted(outcome.capacity.items())
        if capacity and _is_told(outcome, resource)
    }
    cards = _mean([(at_s, each.cards) for at_s, each in usage], from_s, to_s)
    shared = _mean([(at_s, each.shared_milli / MILLI) for at_s, each in usage], from_s, to_s)
    fairness = list(_jain(outcome.jobs))
    return Span(
        window.name,
        from_s,
        to_s,
        utilisation,
        _mean(fairness, from_s, to_s) if fairness else None,
        shared / cards if cards else None,
    )


def _is_told(outcome: Outcome, resource: str) -> bool:
    """Whether somebody wants to know: nodes of a cluster have disks and bounds of pods as well."""
    if resource in (CPU, MEMORY, main_resource(outcome)):
        return True
    return resource != PODS and any(
        each.used.get(resource, 0) > each.services.get(resource, 0) for each in outcome.usage
    )


def _mean(series: Sequence[tuple[float, float]], from_s: float, to_s: float) -> float:
    """The mean of what holds from each moment to the next, between two moments.

    Args:
        series: (second, value), ascending; 0 before the first.
        from_s: Where the span begins.
        to_s: Where it ends; what held just before, if that is not later.
    """
    if to_s <= from_s:
        return next((value for at_s, value in reversed(series) if at_s < to_s), 0.0)
    total = 0.0
    for index, (at_s, value) in enumerate(series):
        until_s = series[index + 1][0] if index + 1 < len(series) else to_s
        total += value * max(0.0, min(until_s, to_s) - max(at_s, from_s))
    return total / (to_s - from_s)


def _jain(jobs: Sequence[JobRun]) -> Iterator[tuple[float, float]]:
    """Fairness from each moment on at which the score of a job changes."""
    elastic = [job for job in jobs if job.max > job.min]
    scores: dict[str, float] = {}
    total = squares = 0.0
    for at_s, name, score in heapq.merge(*map(_scores, elastic)):
        old = scores.pop(name, 0.0)
        if score is not None:
            scores[name] = score
        total += (score or 0.0) - old
        squares += (score or 0.0) ** 2 - old**2
        # Sums of many differences: what is left of nothing is not exactly nothing.
        is_nothing = squares < _NOTHING
        yield at_s, 1.0 if is_nothing else total**2 / (len(scores) * squares)


_NOTHING: Final = 1e-9


def _scores(job: JobRun) -> Iterator[tuple[float, str, float | None]]:
    """The score of a job at each change, from its submission on; None from its end on."""
    yield job.submitted_s, job.name, 0.0
    for at_s, size in job.sizes:
        if at_s != job.ended_s:
            yield at_s, job.name, max(0, size - job.min) / (job.max - job.min)
    if job.ended_s is not None:
        yield job.ended_s, job.name, None
