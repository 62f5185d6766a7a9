"""What `elastic status` shows: the tables of all jobs and objects, and one of them in depth."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.constrain import Constrain
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elastic.policy.replicas import ReplicaPhase, told_id
from elastic.spec.roles import WORKER
from elastic.spec.status import (
    BatchStatus,
    EventStatus,
    JobEvent,
    JobPhase,
    JobStatus,
    ListedJob,
    Listing,
    ObjectStatus,
    PodStatus,
    WorkerStatus,
)
from elastic.telemetry import summary
from elastic.telemetry.progress import (
    PHASE_STYLES,
    bar_view,
    epochs_done_text,
    phase_text,
    progress_texts,
)

MAX_EVENTS: Final = 10
MAX_EPOCHS: Final = 10
MAX_BAR_WIDTH: Final = 100
BAR_WIDTH: Final = 12
WHOLE_NAME: Final = 16
"""A job's name up to so long stands in one line, to be selected with a double click."""
MIN_WIDTH_FOR_BARS: Final = 100
"""Narrower, the name of a job needs the room."""
_NO_SUCCESS: Final = frozenset({JobPhase.FAILED, JobPhase.CANCELLED})
RECOVERIES: Final = frozenset(
    f"{who}{what}" for who in ("Worker", "Server", "Redis") for what in ("Lost", "Failed", "Hung")
) | {"MasterRestarted", "ParametersLost"}
"""Kinds of events that tell why something had to be done again."""
MAX_PODS: Final = 40
"""A job whose trainers fail again and again leaves hundreds."""


_STYLES: Final = {
    "running": "green",
    "succeeded": "bold green",
    "restarting": "yellow",
    "recovering": "yellow",
    "suspended": "yellow",
    "terminating": "yellow",
    "failed": "bold red",
    "cancelled": "red",
}
"""By phases in lower case, of whatever kind."""


def plain_table() -> Table:
    """An empty table without lines, as all of these are."""
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def add_name_column(table: Table, title: str, names: Sequence[str]) -> None:
    """A long name is folded: cut off, it could not be given to another command."""
    longest = max(map(len, names), default=0)
    table.add_column(title, overflow="fold", min_width=min(longest, WHOLE_NAME))


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """What is told in one line each, by their names."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


def jobs_table(statuses: Sequence[JobStatus], now_s: float) -> RenderableType:
    """One line per job."""
    if not statuses:
        return Text("no jobs")
    return _JobsTable(tuple(statuses), now_s)


@dataclass(frozen=True, slots=True)
class _JobsTable:
    """Has bars on a terminal that has room for them; a program reads the percents alone."""

    statuses: Sequence[JobStatus]
    now_s: float

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        has_bars = console.is_terminal and options.max_width >= MIN_WIDTH_FOR_BARS
        table = plain_table()
        add_name_column(table, "JOB", [status.job_name for status in self.statuses])
        table.add_column("PHASE", no_wrap=True)
        for title in ("PROGRESS", "WORKERS", "EPOCH", "LOSS", "SAMPLES/S", "AGE"):
            # "7 of 100000" may stand in two lines rather than a name.
            table.add_column(title, justify="right", no_wrap=title != "EPOCH")
        for status in self.statuses:
            table.add_row(
                status.job_name,
                Text(str(status.phase), style=PHASE_STYLES.get(status.phase, "cyan")),
                _bar(status) if has_bars else summary.percent_text(status),
                summary.workers_text(status),
                epochs_done_text(status),
                summary.loss_text(status),
                summary.speed_text(status),
                summary.age_text(status, self.now_s),
            )
        yield table


def _bar(status: JobStatus) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    row.add_column(width=BAR_WIDTH)
    row.add_column(width=len("100%"), justify="right")
    row.add_row(
        ProgressBar(total=1.0, completed=summary.done_fraction(status) or 0.0, width=BAR_WIDTH),
        summary.percent_text(status),
    )
    return row


def job_screen(status: JobStatus, now_s: float) -> RenderableType:
    """Everything the master has published about one job."""
    parts: list[RenderableType] = [
        Text(status.job_name, style="bold").append("  ").append(phase_text(status)),
        *(Text(f"  {line}") for line in status.message.strip().splitlines()[1:]),
    ]
    if status.progress.records_total:
        parts.append(_Progress(status))
    parts.append(facts_table(_facts(status, now_s)))
    if status.workers:
        parts += [Text(), _workers_table(status)]
    if status.epochs:
        parts += [Text(), _epochs_table(status)]
    parts += _event_lines("RECOVERIES", [e for e in status.events if e.kind in RECOVERIES])
    # The audit tells of the ends of epochs, which would leave no room for anything else.
    others = [e for e in status.events if e.kind not in RECOVERIES | {"EpochEnded"}]
    parts += _event_lines("EVENTS", others)
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a job is: with a bar on a terminal, in numbers alone for a program."""

    status: JobStatus

    def __rich_console__(
        self, console: Console, _options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        if console.is_terminal:
            yield Constrain(bar_view(self.status), MAX_BAR_WIDTH)
        else:
            yield Text(" ".join(progress_texts(self.status)).rstrip())


def _event_lines(title: str, events: Sequence[JobEvent]) -> Iterable[RenderableType]:
    """The newest events of a sort, below their title."""
    if not events:
        return []
    lines = [Text(summary.event_line(event)) for event in events[-MAX_EVENTS:]]
    return [Text(), Text(title, style="bold"), *lines]


def _facts(status: JobStatus, now_s: float) -> list[tuple[str, str]]:
    progress = status.progress
    duration_s = summary.run_s(status, now_s)
    facts = {
        "time": "" if duration_s is None else summary.duration_text(duration_s),
        "spent on": summary.time_split_text(status, now_s),
        "epoch": epochs_done_text(status),
        "updates": str(progress.model_version) if summary.is_training(status) else "",
        "batch": _batch_text(status.scaling.batch),
        "loss": summary.loss_text(status),
        "samples/s": summary.speed_text(status),
        "workers": summary.workers_text(status),
        "tables": summary.tables_text(status),
        "evaluates": summary.evaluation_text(status),
        "evaluation": summary.metrics_text(status),
        "best": summary.best_text(status),
        "checkpoint": summary.checkpoint_text(status),
        "export": status.export or "",
        "predictions": status.predictions or "",
        "records": _records_text(status),
        "failing": summary.failures_text(progress),
        "losses": summary.losses_text(status),
        "audit": "\n".join(summary.audit_lines(status)),
    }
    return [(name, value) for name, value in facts.items() if value not in ("", "-")]


def _batch_text(batch: BatchStatus | None) -> str:
    if batch is None:
        return ""
    noise = "" if batch.noise_scale is None else f", noise scale {batch.noise_scale:,.0f}"
    return f"{batch.records} records, of {batch.minimum} to {batch.maximum}{noise}"


def _epochs_table(status: JobStatus) -> RenderableType:
    """The newest finished epochs; which of their records counted is the audit's to tell."""
    table = plain_table()
    names = list(status.epochs[-1].metrics)
    for title in ("EPOCH", "LOSS", *map(str.upper, names), "SAMPLES/S", "TIME"):
        table.add_column(title, justify="right")
    for each in status.epochs[-MAX_EPOCHS:]:
        table.add_row(
            str(each.epoch),
            f"{each.loss:.4g}",
            *(f"{each.metrics[name]:.4g}" if name in each.metrics else "-" for name in names),
            f"{each.samples_per_s:.0f}",
            summary.duration_text(each.seconds),
        )
    return table


def _records_text(status: JobStatus) -> str:
    progress = status.progress
    if not summary.is_training(status):
        return f"{progress.skipped} skipped"
    return (
        f"{progress.computed_again} computed again, {progress.skipped} skipped, "
        f"{progress.rejected_gradients} gradients refused"
    )


def _worker_phase(status: JobStatus, worker: WorkerStatus) -> str:
    """As its process ended: but who ended well has not succeeded where its job has not."""
    has_ended_well = worker.phase == ReplicaPhase.SUCCEEDED
    return "Ended" if has_ended_well and status.phase in _NO_SUCCESS else worker.phase


def _workers_table(status: JobStatus) -> RenderableType:
    table = plain_table()
    has_others = any(worker.role != WORKER for worker in status.workers)
    table.add_column("REPLICA" if has_others else "WORKER", no_wrap=True)
    table.add_column("PHASE", no_wrap=True)
    for title in ("LAUNCH", "PID", "RECORDS", "SAMPLES/S"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("LAST EXIT", overflow="fold")
    waits = any(worker.message for worker in status.workers)
    if waits:
        table.add_column("WAITS BECAUSE", overflow="fold")
    for worker in status.workers:
        table.add_row(
            told_id(worker).name,
            _worker_phase(status, worker),
            str(worker.launch),
            "-" if worker.pid is None else str(worker.pid),
            *(
                (str(worker.records_done), f"{worker.samples_per_s:.0f}")
                if worker.role == WORKER
                else ("-", "-")
            ),
            Text(worker.last_exit),
            *([Text(worker.message)] if waits else []),
        )
    return table


def phase_style(phase: str) -> str:
    """How a phase of any kind is coloured."""
    return _STYLES.get(phase.lower(), "cyan")


@dataclass(frozen=True, slots=True)
class _Row:
    """One job in the table of all kinds."""

    namespace: str
    name: str
    kind: str
    phase: str
    replicas: str
    minimum: str
    maximum: str
    age: str
    progress: str = "-"


def listing_table(listing: Listing, now_s: float, has_namespaces: bool) -> RenderableType:
    """One line for each job and each object.

    Args:
        listing: What there is.
        now_s: Seconds since the epoch, for ages.
        has_namespaces: Whether they are of several namespaces, which are shown then.
    """
    rows = [*(_of_job(each, now_s) for each in listing.jobs)]
    rows += [_of_object(each, now_s) for each in listing.objects]
    return _ListingTable(tuple(rows), has_namespaces) if rows else Text("no jobs")


@dataclass(frozen=True, slots=True)
class _ListingTable:
    """Tells how far jobs are where there is room beside their names."""

    rows: Sequence[_Row]
    has_namespaces: bool

    def __rich_console__(
        self, _console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        has_progress = options.max_width >= MIN_WIDTH_FOR_BARS
        table = plain_table()
        if self.has_namespaces:
            add_name_column(table, "NAMESPACE", [row.namespace for row in self.rows])
        add_name_column(table, "JOB", [row.name for row in self.rows])
        table.add_column("KIND", no_wrap=True)
        table.add_column("PHASE", no_wrap=True)
        for title in ("READY", "MIN", "MAX", *(["PROGRESS"] if has_progress else []), "AGE"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(
                *([row.namespace] if self.has_namespaces else []),
                row.name,
                row.kind,
                Text(row.phase, style=phase_style(row.phase)),
                row.replicas,
                row.minimum,
                row.maximum,
                *([row.progress] if has_progress else []),
                row.age,
            )
        yield table


def _of_job(job: ListedJob, now_s: float) -> _Row:
    status, limits = job.status, job.workers
    running = sum(map(summary.is_running, status.workers))
    return _Row(
        job.namespace,
        status.job_name,
        job.kind or status.kind.value,
        str(status.phase),
        f"{running}/{status.desired_workers}",
        _number(limits.minimum if limits else None),
        _number(limits.maximum if limits else None),
        summary.age_text(status, now_s),
        summary.percent_text(status),
    )


def _of_object(status: ObjectStatus, now_s: float) -> _Row:
    return _Row(
        status.namespace,
        status.job_name,
        status.kind,
        status.phase or "-",
        _replicas(status),
        _number(status.replicas_min),
        _number(status.replicas_max),
        _age(status.submitted_s, now_s),
    )


def _replicas(status: ObjectStatus) -> str:
    return f"{status.replicas_ready}/{_number(status.replicas_wanted)}"


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _age(since_s: float | None, now_s: float) -> str:
    return "-" if since_s is None else summary.duration_text(now_s - since_s)


def object_screen(status: ObjectStatus, now_s: float) -> RenderableType:
    """All that is told of one object."""
    parts: list[RenderableType] = [_head(status), facts_table(_object_facts(status, now_s))]
    if status.conditions:
        parts += [Text(), _conditions_table(status, now_s)]
    if status.pods:
        parts += [Text(), _pods_table(status.pods[:MAX_PODS], now_s)]
        if len(status.pods) > MAX_PODS:
            parts.append(Text(f"and {len(status.pods) - MAX_PODS} more"))
    if status.events:
        parts += [Text(), Text("EVENTS", style="bold")]
        parts += [_object_event_line(each) for each in status.events[-MAX_EVENTS:]]
    return Group(*parts)


def _head(status: ObjectStatus) -> Text:
    head = Text(status.job_name, style="bold").append("  ")
    if not status.phase:
        return head.append("no controller has seen it yet", style="yellow")
    head.append(status.phase, style=phase_style(status.phase))
    why = ": ".join(filter(None, (status.reason, status.message)))
    return head.append(f"  {why}", style="not bold") if why else head


def _object_facts(status: ObjectStatus, now_s: float) -> list[tuple[str, str]]:
    limits = f"min {_number(status.replicas_min)}, max {_number(status.replicas_max)}"
    return [
        ("kind", f"{status.kind} ({status.api_version})"),
        ("namespace", status.namespace),
        (f"{status.scaled_role}s", f"{_replicas(status)} run ({limits})"),
        ("age", _age(status.submitted_s, now_s)),
    ]


def _conditions_table(status: ObjectStatus, now_s: float) -> RenderableType:
    table = plain_table()
    table.add_column("CONDITION", no_wrap=True)
    table.add_column("STATUS", no_wrap=True)
    table.add_column("SINCE", justify="right", no_wrap=True)
    table.add_column("MESSAGE", overflow="fold")
    for each in status.conditions:
        why = each.message or each.reason
        table.add_row(each.type, each.status, _age(each.changed_s, now_s), Text(why))
    return table


def _pods_table(pods: Sequence[PodStatus], now_s: float) -> RenderableType:
    table = plain_table()
    table.add_column("REPLICA", overflow="fold")
    table.add_column("PHASE", no_wrap=True)
    table.add_column("READY", no_wrap=True)
    for title in ("RESTARTS", "AGE"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("NODE", overflow="fold")
    has_messages = any(each.message for each in pods)
    if has_messages:
        table.add_column("BECAUSE", overflow="fold")
    for each in pods:
        table.add_row(
            each.replica,
            Text(each.phase, style=phase_style(each.phase)),
            "yes" if each.is_ready else "no",
            str(each.restarts),
            _age(each.created_s, now_s),
            each.node or "-",
            *([Text(each.message)] if has_messages else []),
        )
    return table


def _object_event_line(event: EventStatus) -> Text:
    """`12:01:03 SuccessfulCreatePod: Created pod: j-worker-0`, in local time."""
    at = "-" if event.time_s is None else time.strftime("%H:%M:%S", time.localtime(event.time_s))
    times = f" ({event.count} times)" if event.count > 1 else ""
    style = "yellow" if event.type == "Warning" else ""
    return Text(f"{at} {event.reason}: {event.message}{times}", style=style)
