"""What `elastic status` shows: the table of all jobs, and one job in depth."""

from collections.abc import Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

from elastic.spec.status import JobStatus
from elastic.telemetry.progress_view import (
    PHASE_STYLES,
    bar_view,
    epochs_done_text,
    phase_text,
)
from elastic.telemetry.summary import (
    age_text,
    audit_lines,
    best_text,
    checkpoint_text,
    duration_text,
    event_line,
    is_training,
    loss_text,
    losses_text,
    metrics_text,
    percent_text,
    run_s,
    workers_text,
)

MAX_EVENTS: Final = 10
MAX_BAR_WIDTH: Final = 100


def _plain_table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def jobs_table(statuses: Sequence[JobStatus], now_s: float) -> RenderableType:
    """One line per job."""
    if not statuses:
        return Text("no jobs")
    table = _plain_table()
    # A long name is folded: cut off, it could not be given to another command.
    table.add_column("JOB", overflow="fold")
    table.add_column("PHASE", no_wrap=True)
    for title in ("PROGRESS", "EPOCH", "WORKERS", "LOSS", "SAMPLES/S", "AGE"):
        table.add_column(title, justify="right", no_wrap=True)
    for status in statuses:
        table.add_row(
            status.job_name,
            Text(str(status.phase), style=PHASE_STYLES.get(status.phase, "cyan")),
            percent_text(status),
            epochs_done_text(status),
            workers_text(status),
            loss_text(status),
            f"{status.progress.samples_per_s:.0f}",
            age_text(status, now_s),
        )
    return table


def job_screen(status: JobStatus, now_s: float) -> RenderableType:
    """Everything the master has published about one job."""
    progress = status.progress
    parts: list[RenderableType] = [
        Text(status.job_name, style="bold").append("  ").append(phase_text(status)),
        *(Text(f"  {line}") for line in status.message.strip().splitlines()[1:]),
    ]
    if status.progress.records_total:
        parts.append(Constrain(bar_view(status), MAX_BAR_WIDTH))
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(status, now_s):
        facts.add_row(name, Text(value))
    parts.append(facts)
    parts += [Text(line) for line in audit_lines(status)]
    parts.append(
        Text(
            f"{progress.computed_again} records computed again, {progress.skipped} skipped, "
            f"{progress.rejected_gradients} gradients refused; {losses_text(status)}"
            if is_training(status)
            else f"{progress.skipped} records skipped; {losses_text(status)}"
        )
    )
    if status.workers:
        parts += [Text(), _workers_table(status)]
    if status.events:
        parts += [Text(), *(Text(event_line(event)) for event in status.events[-MAX_EVENTS:])]
    return Group(*parts)


def _facts(status: JobStatus, now_s: float) -> list[tuple[str, str]]:
    duration_s = run_s(status, now_s)
    facts = {
        "time": "" if duration_s is None else duration_text(duration_s),
        "epoch": epochs_done_text(status),
        "updates": str(status.progress.model_version) if is_training(status) else "",
        "loss": loss_text(status),
        "samples/s": f"{status.progress.samples_per_s:.0f}",
        "workers": workers_text(status),
        "evaluation": metrics_text(status),
        "best": best_text(status),
        "checkpoint": checkpoint_text(status),
        "export": status.export or "",
        "predictions": status.predictions or "",
    }
    return [(name, value) for name, value in facts.items() if value not in ("", "-")]


def _workers_table(status: JobStatus) -> RenderableType:
    table = _plain_table()
    table.add_column("WORKER", no_wrap=True)
    table.add_column("PHASE", no_wrap=True)
    for title in ("LAUNCH", "PID", "RECORDS", "SAMPLES/S"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("LAST EXIT", overflow="fold")
    waits = any(worker.message for worker in status.workers)
    if waits:
        table.add_column("WAITS BECAUSE", overflow="fold")
    for worker in status.workers:
        table.add_row(
            f"worker-{worker.index}",
            worker.phase,
            str(worker.launch),
            "-" if worker.pid is None else str(worker.pid),
            str(worker.records_done),
            f"{worker.samples_per_s:.0f}",
            Text(worker.last_exit),
            *([Text(worker.message)] if waits else []),
        )
    return table
