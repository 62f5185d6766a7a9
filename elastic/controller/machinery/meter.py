"""What an engine has done, as plain numbers that any exporter can read."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Of the buckets of durations; those of the other metrics of elastic."""


@dataclass(frozen=True, slots=True)
class Durations:
    """How long something took, each time so far.

    Attributes:
        counts: By the meter's bounds, how many took so long and longer than the bound before; the
            last one counts those above all bounds.
        sum_s: Of all of them.
    """

    counts: Sequence[int] = (0,) * (len(BOUNDS_S) + 1)
    sum_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What there is to tell at one moment, since the start of the process where it is counted.

    Attributes:
        passes: By kind of job.
        actions: By what was done: `create`, `patch`, `delete`, `status`.
        errors: By kind of job.
        queue_depth: Jobs that wait.
        latency: From an event to the end of the pass that took it into account.
        missing: Types that cannot be watched, as `tfjobs.kubeflow.org`.
    """

    passes: Mapping[str, int] = field(default_factory=dict)
    actions: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    queue_depth: int = 0
    latency: Durations = Durations()
    missing: Sequence[str] = ()


class Meter:
    """Counts what an engine does. Safe to use from several threads."""

    def __init__(self, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        self._bounds_s = bounds_s
        self._lock = threading.Lock()
        self._passes: Counter[str] = Counter()
        self._actions: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._latency = [0] * (len(bounds_s) + 1)
        self._latency_sum_s = 0.0

    def passed(self, kind: str) -> None:
        """A job of that kind was looked at."""
        with self._lock:
            self._passes[kind] += 1

    def acted(self, action: str) -> None:
        """Something was done in the cluster, see `Sample.actions`."""
        with self._lock:
            self._actions[action] += 1

    def failed(self, kind: str) -> None:
        """A pass over a job of that kind has failed."""
        with self._lock:
            self._errors[kind] += 1

    def answered(self, latency_s: float) -> None:
        """An event was taken into account so long after it was heard of."""
        with self._lock:
            self._latency[bisect_left(self._bounds_s, latency_s)] += 1
            self._latency_sum_s += latency_s

    def sample(self, queue_depth: int, missing: Sequence[str]) -> Sample:
        """All counts, and what only the engine knows."""
        with self._lock:
            return Sample(
                dict(self._passes),
                dict(self._actions),
                dict(self._errors),
                queue_depth,
                Durations(tuple(self._latency), self._latency_sum_s),
                tuple(missing),
            )
