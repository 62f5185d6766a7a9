"""What a simulation tells of the time that it went through, in numbers, and for people. Pure.

Means over time are weighted by it. A job that never ran has waited to the end, so that no policy
looks good by refusing jobs. Reports have policies side by side.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from elastic.planning.policies import aligned
from elastic.policy.cluster import CPU, MEMORY, MILLI, PODS, Amounts, is_gpu
from elastic.simulation.workload import Window

WHOLE: Final = "whole"


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


@dataclass(frozen=True, slots=True)
class Result:
    """One simulation.

    Attributes:
        policy: The name of who decided.
        wall_s: How long the simulation took, in seconds of the real clock.
    """

    policy: str
    outcome: Outcome
    metrics: Metrics
    wall_s: float


def result_lines(results: Sequence[Result]) -> list[str]:
    """A column for each policy, a row for each number."""
    columns = [_cells(each) for each in results]
    labels = list(dict.fromkeys(label for column in columns for label in column))
    rows = [["", *(each.policy for each in results)]]
    rows += [[label, *(column.get(label, "-") for column in columns)] for label in labels]
    return aligned(rows, right=range(1, len(results) + 1))


def _cells(result: Result) -> dict[str, str]:
    metrics = result.metrics
    cells = {
        "jobs": str(metrics.num_jobs),
        "never started": str(metrics.num_never_started),
        "not ended": str(metrics.num_not_ended),
        "pending, mean s": _number(metrics.pending.mean_s),
        "pending, p99 s": _number(metrics.pending.p99_s),
        "completion, mean s": _number(metrics.completion.mean_s),
        "completion, p99 s": _number(metrics.completion.p99_s),
        "makespan, s": _number(metrics.makespan_s),
        "scale actions": str(metrics.scale_actions),
    }
    for span in metrics.spans:
        where = f" ({span.name}, {span.from_s:.0f} to {span.to_s:.0f} s)"
        where = "" if span is metrics.whole else where
        for resource, used in span.utilisation.items():
            cells[f"{resource} in use{where}"] = f"{100 * used:.1f}%"
        if span.jain is not None:
            cells[f"fairness{where}"] = f"{span.jain:.3f}"
        if span.card_use is not None:
            cells[f"shared GPUs in use{where}"] = f"{100 * span.card_use:.1f}%"
    cells["plans"] = str(metrics.num_plans)
    cells["took, s"] = f"{result.wall_s:.1f}"
    return cells


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def result_document(results: Sequence[Result]) -> dict[str, Any]:
    """The same and each job, as plain values."""
    return {"policies": {each.policy: _document(each) for each in results}}


def _document(result: Result) -> dict[str, Any]:
    metrics = asdict(result.metrics)
    metrics["spans"] = {span["name"]: span for span in metrics["spans"]}
    return {
        "metrics": metrics,
        "wall_s": result.wall_s,
        "jobs": [_job(each) for each in result.outcome.jobs],
        "notes": dict(result.outcome.notes),
    }


def _job(job: JobRun) -> dict[str, Any]:
    return {
        "name": job.name,
        "submitted_s": job.submitted_s,
        "started_s": job.started_s,
        "ended_s": job.ended_s,
        "scale_actions": job.scale_actions,
        "sizes": [list(each) for each in job.sizes],
    }
