"""Every metric that a job exports, declared once; and its server, on threads of its own.

Names follow Prometheus' conventions: base units, `_total` for what only grows. No label has values
that grow with the length of a job or with its data.
"""

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
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
from elastic.telemetry.meter import LEASE_LOST, STALE, Counts, JobSample

JOB_LABEL: Final = "job_name"
"""On every metric: a scrape's own label `job` is the name of its configuration."""

WORKER_LABEL: Final = "worker"
"""On every metric of a worker: its index, which each of its launches has."""

MAX_EVALUATION_METRICS: Final = 100
"""The user names them; what is not told here is in the status."""

SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Bounds of the histograms: from a step of a toy to a checkpoint on a slow disk."""

_REJECTIONS: Final = (STALE, LEASE_LOST)

_EXITS: Final = tuple(reason.value for reason in ExitReason)

Keep = Callable[[Counts], None]


class Kind(StrEnum):
    """The types of metrics, as Prometheus has them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        label: The one label it has besides those that all have; empty for none.
    """

    name: str
    kind: Kind
    help: str
    label: str = ""


RECORDS_COMMITTED: Final = Metric(
    "elastic_records_committed_total", Kind.COUNTER, "Records that have counted."
)
RECORDS_AGAIN: Final = Metric(
    "elastic_records_computed_again_total",
    Kind.COUNTER,
    "Records whose gradient was refused, or which had counted before the job went back to a cut, "
    "so that they were computed again.",
)
UPDATES: Final = Metric("elastic_updates_total", Kind.COUNTER, "Updates that were applied.")
REJECTED: Final = Metric(
    "elastic_gradients_rejected_total",
    Kind.COUNTER,
    "Gradients that did not count: `stale`, or of a task that was somebody else's (`lease_lost`).",
    "reason",
)
EXITS: Final = Metric(
    "elastic_worker_exits_total",
    Kind.COUNTER,
    "Ends of workers: `Completed`, `UserError`, `Killed`, `OutOfMemory`, `NeverStarted`.",
    "reason",
)
RESTARTS: Final = Metric(
    "elastic_master_restarts_total", Kind.COUNTER, "Lives of the master after its first."
)
SERVERS_LOST: Final = Metric(
    "elastic_servers_lost_total",
    Kind.COUNTER,
    "Servers that were replaced: `ps` of the parameters, `redis` of the job's own.",
    "role",
)
EPOCH: Final = Metric("elastic_epoch", Kind.GAUGE, "The epoch that is trained, from 0.")
VERSION: Final = Metric(
    "elastic_model_version",
    Kind.GAUGE,
    "Updates behind the present parameters; goes back with a restarted master.",
)
LOSS: Final = Metric("elastic_loss", Kind.GAUGE, "Loss of the gradient accepted last.")
LEARNING_RATE: Final = Metric(
    "elastic_learning_rate", Kind.GAUGE, "Learning rate of the next update."
)
BATCH: Final = Metric(
    "elastic_batch_records", Kind.GAUGE, "Records of an update, where `elastic_batch` is set."
)
NOISE: Final = Metric(
    "elastic_gradient_noise_records",
    Kind.GAUGE,
    "Records of an update in which noise and gradient weigh the same, where that is measured.",
)
THROUGHPUT: Final = Metric(
    "elastic_samples_per_second",
    Kind.GAUGE,
    "Records per second over the last ten seconds, or five steps where those take longer.",
)
WORKERS: Final = Metric(
    "elastic_workers", Kind.GAUGE, "Workers: `desired`, `pending`, `running`.", "state"
)
TASKS: Final = Metric(
    "elastic_task_queue",
    Kind.GAUGE,
    "Ranges of this epoch's records: `queued` for a worker, `leased` to one.",
    "state",
)
EVALUATION: Final = Metric(
    "elastic_evaluation_metric", Kind.GAUGE, "Results of the last evaluation.", "name"
)
STEP: Final = Metric(
    "elastic_step_seconds",
    Kind.HISTOGRAM,
    "Time of a worker for one minibatch, reading included, without the exchange with the master.",
)
UPDATE: Final = Metric(
    "elastic_update_seconds", Kind.HISTOGRAM, "Time of the master for applying one update."
)
CHECKPOINT: Final = Metric(
    "elastic_checkpoint_seconds", Kind.HISTOGRAM, "Time for writing one checkpoint or cut."
)

MASTER_METRICS: Final = (
    RECORDS_COMMITTED, RECORDS_AGAIN, UPDATES, REJECTED, EXITS, RESTARTS, SERVERS_LOST, EPOCH,
    VERSION, LOSS, LEARNING_RATE, BATCH, NOISE, THROUGHPUT, WORKERS, TASKS, EVALUATION, STEP,
    UPDATE, CHECKPOINT,
)  # fmt: skip
"""What the master exports."""

WORKER_STEP: Final = Metric(
    "elastic_worker_step_seconds", Kind.HISTOGRAM, "Time for one minibatch, reading included."
)
PULL: Final = Metric(
    "elastic_worker_pull_seconds", Kind.HISTOGRAM, "Time for fetching the model when asked for."
)
PUSH: Final = Metric(
    "elastic_worker_push_seconds",
    Kind.HISTOGRAM,
    "Time from sending a gradient to its answer, waiting for its group included.",
)
RECEIVED: Final = Metric(
    "elastic_worker_received_bytes_total",
    Kind.COUNTER,
    "Bytes of parameters and state taken over, through shared memory too.",
)
SENT: Final = Metric(
    "elastic_worker_sent_bytes_total",
    Kind.COUNTER,
    "Bytes of gradients and state handed over, through shared memory too.",
)

WORKER_METRICS: Final = (WORKER_STEP, PULL, PUSH, RECEIVED, SENT)
"""What each worker exports."""


def series_names(metric: Metric) -> tuple[str, ...]:
    """The names that queries can use."""
    if metric.kind is Kind.HISTOGRAM:
        return tuple(f"{metric.name}{suffix}" for suffix in ("_bucket", "_sum", "_count"))
    return (metric.name,)


def tables() -> str:
    """The metrics as Markdown, for the docs."""
    parts = []
    for title, metrics in (("master", MASTER_METRICS), ("worker", WORKER_METRICS)):
        parts += [f"| of the {title} | type | label | what it says |", "| --- | --- | --- | --- |"]
        for m in metrics:
            label = f"`{m.label}`" if m.label else ""
            parts.append(f"| `{m.name}` | {m.kind} | {label} | {m.help} |")
        parts.append("")
    return "\n".join(parts)


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
        self.step = self._histogram(STEP)
        self.update = self._histogram(UPDATE)
        self.checkpoint = self._histogram(CHECKPOINT)
        self.registry.register(self)

    def collect(self) -> Iterator[Family]:
        """All but the histograms."""
        sample = self.sample
        counts = sample.counts
        self._keep(counts)
        yield self._family(RECORDS_COMMITTED, counts.records_committed)
        yield self._family(RECORDS_AGAIN, counts.records_computed_again)
        yield self._family(UPDATES, counts.updates)
        # From 0 on, or nobody could tell how fast they grow at first.
        yield self._family(REJECTED, {**dict.fromkeys(_REJECTIONS, 0), **counts.rejected})
        yield self._family(EXITS, {**dict.fromkeys(_EXITS, 0), **counts.exits})
        yield self._family(RESTARTS, sample.master_restarts)
        yield self._family(SERVERS_LOST, sample.servers_lost)
        yield self._family(EPOCH, sample.epoch)
        yield self._family(VERSION, sample.model_version)
        yield self._family(LOSS, sample.loss)
        yield self._family(LEARNING_RATE, sample.learning_rate)
        yield self._family(BATCH, sample.batch)
        yield self._family(NOISE, sample.noise_scale)
        yield self._family(THROUGHPUT, sample.samples_per_s)
        yield self._family(WORKERS, sample.workers)
        yield self._family(TASKS, sample.tasks)
        told = sorted(sample.evaluation.items())[:MAX_EVALUATION_METRICS]
        yield self._family(EVALUATION, dict(told))

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
    """What a worker tells; see `elastic.worker.step.StepMeter`."""

    def __init__(self, job_name: str, index: int) -> None:
        self.registry = CollectorRegistry()
        labels = {JOB_LABEL: job_name, WORKER_LABEL: str(index)}
        self._step = _histogram(WORKER_STEP, self.registry, labels)
        self._pull = _histogram(PULL, self.registry, labels)
        self._push = _histogram(PUSH, self.registry, labels)
        self._received = _counter(RECEIVED, self.registry, labels)
        self._sent = _counter(SENT, self.registry, labels)

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
        server, thread = start_http_server(port, usable_address(host), registry)
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


def usable_address(host: str) -> str:
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


if __name__ == "__main__":
    sys.stdout.write(tables())
