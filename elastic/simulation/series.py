"""What plots show, as numbers over time. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.simulation.outcome import JobRun, Outcome

OTHERS: Final = "other jobs"
SERVICES: Final = "services"


@dataclass(frozen=True, slots=True)
class Stack:
    """What is in use of one resource, by who has it; values hold from each moment to the next.

    Attributes:
        times_s: Ascending.
        layers: (name, one value for each time), the lowest first; parts of the capacity, 0 to 1.
    """

    times_s: tuple[float, ...]
    layers: tuple[tuple[str, tuple[float, ...]], ...]


def stack(outcome: Outcome, resource: str, most: int) -> Stack:
    """Use over time by job.

    Args:
        outcome: Of a simulation.
        resource: Which one.
        most: So many jobs have a layer, those with the most use; the others share one.
    """
    capacity = outcome.capacity[resource]
    changes = {job.name: list(_changes(job, resource)) for job in outcome.jobs}
    named = set(sorted(changes, key=lambda name: (-_area(changes[name]), name))[:most])
    deltas: list[tuple[float, str, float]] = []
    for job in outcome.jobs:
        label = job.name.rpartition("/")[2] if job.name in named else OTHERS
        deltas += [(at_s, label, delta / capacity) for at_s, delta in changes[job.name]]
    before = 0
    for usage in outcome.usage:
        if (now := usage.services.get(resource, 0)) != before:
            deltas.append((usage.at_s, SERVICES, (now - before) / capacity))
            before = now
    labels = [job.name.rpartition("/")[2] for job in outcome.jobs if job.name in named]
    return _swept(deltas, [SERVICES, *labels, OTHERS])


def _swept(deltas: list[tuple[float, str, float]], labels: list[str]) -> Stack:
    deltas.sort()
    level: dict[str, float] = defaultdict(float)
    times: list[float] = []
    columns: dict[str, list[float]] = {label: [] for label in labels}
    for index, (at_s, label, delta) in enumerate(deltas):
        level[label] += delta
        if index + 1 < len(deltas) and deltas[index + 1][0] == at_s:
            continue
        times.append(at_s)
        for each, values in columns.items():
            # What is left of nothing after many sums is not exactly nothing.
            values.append(max(0.0, level[each]))
    used = {label for _, label, _ in deltas}
    layers = tuple((label, tuple(columns[label])) for label in labels if label in used)
    return Stack(tuple(times), layers)


def _changes(job: JobRun, resource: str) -> Iterator[tuple[float, float]]:
    """(second, by how much the use of a job changes then)."""
    each, fixed = job.amounts.get(resource, 0), job.fixed.get(resource, 0)
    before = 0
    for at_s, size in job.sizes:
        yield at_s, (size - before) * each + ((size > 0) - (before > 0)) * fixed
        before = size


def _area(changes: Sequence[tuple[float, float]]) -> float:
    """Use times time, to the last change."""
    total = level = 0.0
    for index, (at_s, delta) in enumerate(changes):
        level += delta
        if index + 1 < len(changes):
            total += level * (changes[index + 1][0] - at_s)
    return total


def waiting(outcome: Outcome) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Jobs that wait, from each moment to the next: times in seconds, and how many."""
    times = tuple(each.at_s for each in outcome.usage)
    return times, tuple(each.waiting for each in outcome.usage)


def used(outcome: Outcome, resource: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The part of the capacity that is in use, from each moment to the next."""
    capacity = outcome.capacity[resource]
    times = tuple(each.at_s for each in outcome.usage)
    return times, tuple(each.used.get(resource, 0) / capacity for each in outcome.usage)


def averaged(
    series: tuple[Sequence[float], Sequence[float]], end_s: float, num_bins: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means over equal spans, where a series changes more often than that; else the series itself.

    Args:
        series: Times in seconds, ascending, and what holds from each to the next; 0 before.
        end_s: Where the last span ends, > 0.
        num_bins: Spans.

    Returns:
        The beginning of each span, and its mean.
    """
    times, values = series
    if len(times) <= num_bins:
        return tuple(times), tuple(values)
    width_s, sums = end_s / num_bins, [0.0] * num_bins
    for at_s, until_s, value in zip(times, [*times[1:], end_s], values, strict=True):
        until_s = min(until_s, end_s)
        while at_s < until_s:
            index = min(int(at_s / width_s), num_bins - 1)
            # At least to the next number: widths do not add up exactly.
            step_s = min(until_s, max((index + 1) * width_s, math.nextafter(at_s, math.inf)))
            sums[index] += value * (step_s - at_s)
            at_s = step_s
    return tuple(index * width_s for index in range(num_bins)), tuple(s / width_s for s in sums)


def distribution(outcome: Outcome) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Completion times in seconds, ascending, and the part of all jobs that ended within each."""
    times = sorted(job.completion_s for job in outcome.jobs if job.completion_s is not None)
    count = len(outcome.jobs)
    return tuple(times), tuple((index + 1) / count for index in range(len(times)))
