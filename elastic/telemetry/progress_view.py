"""How one job looks at one moment on a terminal: its phase, why it waits, its bar, its speed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elastic.spec.status import JobPhase, JobStatus
from elastic.telemetry.summary import (
    all_epochs_done,
    done_fraction,
    duration_text,
    ends_by_steps,
    epoch_text,
    eta_s,
    evaluation_text,
    first_line,
    is_training,
    loss_text,
    percent_text,
    run_s,
    speed_text,
    workers_text,
)

PHASE_STYLES: Final = {
    JobPhase.RUNNING: "green",
    JobPhase.SUCCEEDED: "bold green",
    JobPhase.RECOVERING: "yellow",
    JobPhase.SUSPENDED: "yellow",
    JobPhase.FAILED: "bold red",
    JobPhase.CANCELLED: "red",
}
MAX_REASON_LINES: Final = 6
"""Room for what a container engine or a scheduler says, not for a whole traceback."""


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """Text folded into as many lines as it takes, up to `MAX_REASON_LINES`; `…` ends one cut."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = list(Text(self.text).wrap(console, options.max_width))
        yield from lines[:MAX_REASON_LINES]
        if len(lines) > MAX_REASON_LINES:
            yield Text("…")


def waits_because(status: JobStatus) -> str:
    """Reason and message of a job that is in any phase but Running; empty where it has none."""
    return "" if status.phase is JobPhase.RUNNING else _why(status, status.message.strip())


def phase_text(status: JobStatus) -> Text:
    """The phase in its colour, with its reason and the first line of its message."""
    why = _why(status, first_line(status.message))
    text = _phase(status)
    return text.append(f"  {why}", style="default") if why else text


def progress_view(status: JobStatus, now_s: float) -> RenderableType:
    """Name and phase; a bar with what is left; speed, loss and workers; why the job waits."""
    elapsed_s = run_s(status, now_s)
    waits = waits_because(status)
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(no_wrap=True)
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    head.add_row(
        Text(status.job_name, style="bold"),
        _phase(status) if waits else phase_text(status),
        "" if elapsed_s is None else duration_text(elapsed_s),
    )
    speed = Text(_speed_line(status), no_wrap=True, overflow="ellipsis")
    return Group(head, bar_view(status), speed, *([_Paragraph(waits)] if waits else []))


def bar_view(status: JobStatus) -> RenderableType:
    """A bar as wide as there is room, records or steps of their total, percent and ETA."""
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(ratio=1)
    for _ in range(3):
        row.add_column(justify="right", no_wrap=True)
    row.add_row(
        ProgressBar(total=1.0, completed=done_fraction(status) or 0.0), *progress_texts(status)
    )
    return row


def progress_texts(status: JobStatus) -> tuple[str, str, str]:
    """Records or steps of their total, percent, and ETA or nothing."""
    progress = status.progress
    left_s = eta_s(status)
    amount = f"{progress.records_done}/{progress.records_total or '?'}"
    if ends_by_steps(progress):
        amount = f"{progress.model_version}/{progress.max_steps} steps"
    eta = "" if left_s is None else f"ETA {duration_text(left_s)}"
    return amount, percent_text(status), eta


def epochs_done_text(status: JobStatus) -> str:
    """As `epoch_text`, but `2 of 2` once every epoch is done: then none is under way."""
    num_epochs = status.progress.num_epochs
    is_done = all_epochs_done(status) and num_epochs > 0
    return f"{num_epochs} of {num_epochs}" if is_done else epoch_text(status)


def _phase(status: JobStatus) -> Text:
    return Text(str(status.phase), style=PHASE_STYLES.get(status.phase, "cyan"))


def _why(status: JobStatus, message: str) -> str:
    """`reason: message`; a reason that only repeats the phase says nothing."""
    reason = "" if status.reason == status.phase.value else status.reason
    return ": ".join(filter(None, (reason, message)))


def _speed_line(status: JobStatus) -> str:
    progress = status.progress
    is_trained = is_training(status)
    return "  ".join(
        (
            *([f"epoch {epochs_done_text(status)}"] if is_trained else []),
            f"{speed_text(status)} samples/s",
            *([f"loss {loss_text(status)}"] if is_trained else []),
            f"{workers_text(status)} workers",
            f"version {progress.model_version}",
            *([f"evaluates {evaluation_text(status)}"] if status.evaluation else []),
        )
    )
