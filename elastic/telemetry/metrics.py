"""Every metric that a job exports: declared once, for the exporters, the docs and their tests.

Names follow Prometheus' conventions: base units, `_total` for what only grows. No label has values
that grow with the length of a job or with its data.
"""

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

JOB_LABEL: Final = "job_name"
"""On every metric: a scrape's own label `job` is the name of its configuration."""

WORKER_LABEL: Final = "worker"
"""On every metric of a worker: its index, which each of its launches has."""


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
    "Records whose gradient was refused, so that it was computed again.",
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
    RECORDS_COMMITTED, RECORDS_AGAIN, UPDATES, REJECTED, EXITS, RESTARTS, EPOCH, VERSION, LOSS,
    LEARNING_RATE, THROUGHPUT, WORKERS, TASKS, EVALUATION, STEP, UPDATE, CHECKPOINT,
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


if __name__ == "__main__":
    sys.stdout.write(tables())
