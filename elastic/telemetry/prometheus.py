"""Serves a process' metrics to Prometheus, on threads of its own."""

import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client import Counter as CounterMetric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from elastic.errors import JobSpecError
from elastic.policy.replicas import ExitReason
from elastic.telemetry import metrics
from elastic.telemetry.metrics import JOB_LABEL, WORKER_LABEL, Kind, Metric
from elastic.telemetry.samples import LEASE_LOST, STALE, Counts, JobSample

MAX_EVALUATION_METRICS: Final = 100
"""The user names them; what is not told here is in the status."""

SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Bounds of the histograms: from a step of a toy to a checkpoint on a slow disk."""

_REJECTIONS: Final = (STALE, LEASE_LOST)
_EXITS: Final = tuple(reason.value for reason in ExitReason)

Keep = Callable[[Counts], None]


class JobExporter(Collector):
    """What the master tells: the sample it was given last, and three histograms.

    Attributes:
        sample: Replaced whole by the event loop, read by the threads that answer.
    """

    def __init__(self, job_name: str, keep: Keep) -> None:
        """Make the metrics.

        Args:
            job_name: A label of all of them.
            keep: Given the counts before they are told, so that a restarted master goes on from
                there: Prometheus takes a counter that falls for one that began anew at 0.
        """
        self.sample = JobSample()
        self.registry = CollectorRegistry()
        self._job_name = job_name
        self._keep = keep
        self.step = self._histogram(metrics.STEP)
        self.update = self._histogram(metrics.UPDATE)
        self.checkpoint = self._histogram(metrics.CHECKPOINT)
        self.registry.register(self)

    def collect(self) -> Iterator[Family]:
        """All but the histograms."""
        sample = self.sample
        counts = sample.counts
        self._keep(counts)
        yield self._family(metrics.RECORDS_COMMITTED, counts.records_committed)
        yield self._family(metrics.RECORDS_AGAIN, counts.records_computed_again)
        yield self._family(metrics.UPDATES, counts.updates)
        # From 0 on, or nobody could tell how fast they grow at first.
        yield self._family(metrics.REJECTED, {**dict.fromkeys(_REJECTIONS, 0), **counts.rejected})
        yield self._family(metrics.EXITS, {**dict.fromkeys(_EXITS, 0), **counts.exits})
        yield self._family(metrics.RESTARTS, sample.master_restarts)
        yield self._family(metrics.EPOCH, sample.epoch)
        yield self._family(metrics.VERSION, sample.model_version)
        yield self._family(metrics.LOSS, sample.loss)
        yield self._family(metrics.LEARNING_RATE, sample.learning_rate)
        yield self._family(metrics.THROUGHPUT, sample.samples_per_s)
        yield self._family(metrics.WORKERS, sample.workers)
        yield self._family(metrics.TASKS, sample.tasks)
        told = sorted(sample.evaluation.items())[:MAX_EVALUATION_METRICS]
        yield self._family(metrics.EVALUATION, dict(told))

    def describe(self) -> list[Family]:
        """Nothing: registering must not count for being scraped."""
        return []

    def _family(self, metric: Metric, value: float | Mapping[str, float] | None) -> Family:
        """One metric; without samples where nothing is known yet."""
        labels = [JOB_LABEL, metric.label] if metric.label else [JOB_LABEL]
        make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
        family = make(metric.name, metric.help, labels=labels)
        if isinstance(value, Mapping):
            for name, amount in value.items():
                family.add_metric([self._job_name, name], amount)
        elif value is not None:
            family.add_metric([self._job_name], value)
        return family

    def _histogram(self, metric: Metric) -> Histogram:
        return _histogram(metric, self.registry, {JOB_LABEL: self._job_name})


class WorkerExporter:
    """What a worker tells; see `elastic.worker.meter.StepMeter`."""

    def __init__(self, job_name: str, index: int) -> None:
        self.registry = CollectorRegistry()
        labels = {JOB_LABEL: job_name, WORKER_LABEL: str(index)}
        self._step = _histogram(metrics.WORKER_STEP, self.registry, labels)
        self._pull = _histogram(metrics.PULL, self.registry, labels)
        self._push = _histogram(metrics.PUSH, self.registry, labels)
        self._received = _counter(metrics.RECEIVED, self.registry, labels)
        self._sent = _counter(metrics.SENT, self.registry, labels)

    def computed(self, step_s: float) -> None:
        """A minibatch's gradient was computed."""
        self._step.observe(step_s)

    def pulled(self, pull_s: float) -> None:
        """The model was asked for and has come, or is here already."""
        self._pull.observe(pull_s)

    def pushed(self, push_s: float, size_bytes: int) -> None:
        """A gradient was sent and answered."""
        self._push.observe(push_s)
        self._sent.inc(size_bytes)

    def received(self, size_bytes: int) -> None:
        """A version of the model has come."""
        self._received.inc(size_bytes)


def serve(registry: CollectorRegistry, host: str, port: int) -> Callable[[], None]:
    """Answer `GET /metrics` from now on.

    Args:
        registry: What is told.
        host: Address to listen at; `::` for all there are.

    Returns:
        What ends it.

    Raises:
        JobSpecError: The port is in use, or may not be listened at.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        server, thread = start_http_server(port, _usable(host), registry)
    except OSError as error:
        raise JobSpecError(
            f"metrics_port={port} cannot be listened at on {host}: {error.strerror or error}: "
            "choose another, or 0 for no metrics"
        ) from error

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close


def _usable(host: str) -> str:
    """All addresses there are, also where the kernel knows no IPv6."""
    if host != "::":
        return host
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind((host, 0))
    except OSError:
        return "0.0.0.0"  # noqa: S104 - what was asked for
    return host


def _histogram(metric: Metric, registry: CollectorRegistry, labels: Mapping[str, str]) -> Histogram:
    made = Histogram(metric.name, metric.help, [*labels], registry=registry, buckets=SECONDS)
    return made.labels(**labels)


def _counter(
    metric: Metric, registry: CollectorRegistry, labels: Mapping[str, str]
) -> CounterMetric:
    return CounterMetric(metric.name, metric.help, [*labels], registry=registry).labels(**labels)
