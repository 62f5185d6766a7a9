"""What `elastic status` shows: the table of all jobs, and one job in depth."""

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
from elastic.spec.status import BatchStatus, JobEvent, JobPhase, JobStatus, WorkerStatus
from elastic.telemetry.progress import (
    PHASE_STYLES,
    bar_view,
    epochs_done_text,
    phase_text,
    progress_texts,
)
from elastic.telemetry.summary import (
    age_text,
    audit_lines,
    best_text,
    checkpoint_text,
    done_fraction,
    duration_text,
    evaluation_text,
    event_line,
    failures_text,
    is_training,
    loss_text,
    losses_text,
    metrics_text,
    percent_text,
    run_s,
    speed_text,
    tables_text,
    time_split_text,
    workers_text,
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
                _bar(status) if has_bars else percent_text(status),
                workers_text(status),
                epochs_done_text(status),
                loss_text(status),
                speed_text(status),
                age_text(status, self.now_s),
            )
        yield table


def _bar(status: JobStatus) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    row.add_column(width=BAR_WIDTH)
    row.add_column(width=len("100%"), justify="right")
    row.add_row(
        ProgressBar(total=1.0, completed=done_fraction(status) or 0.0, width=BAR_WIDTH),
        percent_text(status),
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
    lines = [Text(event_line(event)) for event in events[-MAX_EVENTS:]]
    return [Text(), Text(title, style="bold"), *lines]


def _facts(status: JobStatus, now_s: float) -> list[tuple[str, str]]:
    progress = status.progress
    duration_s = run_s(status, now_s)
    facts = {
        "time": "" if duration_s is None else duration_text(duration_s),
        "spent on": time_split_text(status, now_s),
        "epoch": epochs_done_text(status),
        "updates": str(progress.model_version) if is_training(status) else "",
        "batch": _batch_text(status.scaling.batch),
        "loss": loss_text(status),
        "samples/s": speed_text(status),
        "workers": workers_text(status),
        "tables": tables_text(status),
        "evaluates": evaluation_text(status),
        "evaluation": metrics_text(status),
        "best": best_text(status),
        "checkpoint": checkpoint_text(status),
        "export": status.export or "",
        "predictions": status.predictions or "",
        "records": _records_text(status),
        "failing": failures_text(progress),
        "losses": losses_text(status),
        "audit": "\n".join(audit_lines(status)),
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
            duration_text(each.seconds),
        )
    return table


def _records_text(status: JobStatus) -> str:
    progress = status.progress
    if not is_training(status):
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
