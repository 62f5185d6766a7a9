"""Every metric that a controller exports, and the values behind them."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from elastic.telemetry.prometheus import SECONDS, Kind, Metric

PASSES: Final = Metric(
    "elastic_controller_passes_total", Kind.COUNTER, "Looks at one job, by its kind.", "kind"
)
ACTIONS: Final = Metric(
    "elastic_controller_actions_total",
    Kind.COUNTER,
    "What was done in the cluster: `create`, `patch`, `delete`, `status`.",
    "action",
)
ERRORS: Final = Metric(
    "elastic_controller_errors_total",
    Kind.COUNTER,
    "Passes that failed, and are tried again, by the kind of job.",
    "kind",
)
QUEUE: Final = Metric(
    "elastic_controller_queue_depth", Kind.GAUGE, "Jobs that wait to be looked at."
)
LATENCY: Final = Metric(
    "elastic_controller_event_to_action_seconds",
    Kind.HISTOGRAM,
    "Time from a change that was heard of to the end of the pass that took it into account.",
)
LEADER: Final = Metric(
    "elastic_controller_leader", Kind.GAUGE, "1 where this process acts, 0 where it stands by."
)
MISSING: Final = Metric(
    "elastic_controller_missing_types",
    Kind.GAUGE,
    "1 for each type that is to be watched and cannot be: not installed, or not permitted.",
    "resource",
)

METRICS: Final = (PASSES, ACTIONS, ERRORS, QUEUE, LATENCY, LEADER, MISSING)
"""What a controller exports."""

_ACTIONS: Final = ("create", "patch", "delete", "status")


@dataclass(frozen=True, slots=True)
class Durations:
    """How long something took, each time so far.

    Attributes:
        counts: By the bounds of `SECONDS`, how many took so long and longer than the bound before;
            the last one counts those above all bounds.
        sum_s: Of all of them.
    """

    counts: Sequence[int] = (0,) * (len(SECONDS) + 1)
    sum_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What there is to tell at one moment, since the start of the process where it is counted.

    Attributes:
        passes: By kind of job.
        actions: By what was done.
        errors: By kind of job.
        queue_depth: Jobs that wait.
        latency: From an event to what followed from it.
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

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passes: Counter[str] = Counter()
        self._actions: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._latency = [0] * (len(SECONDS) + 1)
        self._latency_sum_s = 0.0

    def passed(self, kind: str) -> None:
        """A job of that kind was looked at."""
        with self._lock:
            self._passes[kind] += 1

    def acted(self, action: str) -> None:
        """Something was done in the cluster; `action` is one of those that `ACTIONS` names."""
        with self._lock:
            self._actions[action] += 1

    def failed(self, kind: str) -> None:
        """A pass over a job of that kind has failed."""
        with self._lock:
            self._errors[kind] += 1

    def answered(self, latency_s: float) -> None:
        """An event was taken into account so long after it was heard of."""
        with self._lock:
            self._latency[bisect_left(SECONDS, latency_s)] += 1
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


class ControllerExporter(Collector):
    """Tells Prometheus of one controller."""

    def __init__(
        self, sample: Callable[[], Sample], is_leading: Callable[[], bool], kinds: Sequence[str]
    ) -> None:
        """Keep the parts.

        Args:
            sample: Asked for each scrape.
            is_leading: Likewise.
            kinds: Told from 0 on, or nobody could tell how fast they grow at first.
        """
        self.registry = CollectorRegistry()
        self._sample = sample
        self._is_leading = is_leading
        self._kinds = kinds
        self.registry.register(self)

    def collect(self) -> Iterator[Family]:
        """All metrics."""
        sample, zeros = self._sample(), dict.fromkeys(self._kinds, 0)
        yield _family(PASSES, {**zeros, **sample.passes})
        yield _family(ACTIONS, {**dict.fromkeys(_ACTIONS, 0), **sample.actions})
        yield _family(ERRORS, {**zeros, **sample.errors})
        yield _family(QUEUE, sample.queue_depth)
        yield _histogram(LATENCY, sample.latency)
        yield _family(LEADER, int(self._is_leading()))
        yield _family(MISSING, dict.fromkeys(sample.missing, 1))

    def describe(self) -> list[Family]:
        """Nothing: registering must not count for being scraped."""
        return []


def _family(metric: Metric, value: float | Mapping[str, float]) -> Family:
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=[metric.label] if metric.label else [])
    if isinstance(value, Mapping):
        for name, amount in value.items():
            family.add_metric([name], amount)
    else:
        family.add_metric([], value)
    return family


def _histogram(metric: Metric, durations: Durations) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help)
    bounds = [*map(str, SECONDS), "+Inf"]
    family.add_metric(
        [], list(zip(bounds, accumulate(durations.counts), strict=True)), durations.sum_s
    )
    return family
