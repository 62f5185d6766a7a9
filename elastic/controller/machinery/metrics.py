"""Every metric that a controller exports, declared once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from elastic.controller.machinery.meter import BOUNDS_S, Durations, Sample
from elastic.telemetry.prometheus import Kind, Metric

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


def table() -> str:
    """The metrics as Markdown, for the docs."""
    lines = ["| metric | type | label | what it says |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        label = f"`{metric.label}`" if metric.label else ""
        lines.append(f"| `{metric.name}` | {metric.kind} | {label} | {metric.help} |")
    return "\n".join(lines) + "\n"


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
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    family.add_metric(
        [], list(zip(bounds, accumulate(durations.counts), strict=True)), durations.sum_s
    )
    return family
