"""The progress of one job while somebody watches: a live view, or plain lines.

Both are fed successive `JobStatus` values, print each event once, and end with a summary.
"""

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elastic.spec.status import JobEvent, JobPhase, JobStatus
from elastic.telemetry.summary import (
    done_fraction,
    duration_text,
    epoch_text,
    eta_s,
    event_line,
    first_line,
    loss_text,
    percent_text,
    progress_line,
    run_s,
    summary_lines,
    workers_text,
)

LINE_INTERVAL_S: Final = 2.0
"""At most one plain progress line in this time, so that a log of a long job stays readable."""

PHASE_STYLES: Final = {
    JobPhase.RUNNING: "green",
    JobPhase.SUCCEEDED: "bold green",
    JobPhase.RECOVERING: "yellow",
    JobPhase.SUSPENDED: "yellow",
    JobPhase.FAILED: "bold red",
    JobPhase.CANCELLED: "red",
}


class Display(Protocol):
    """Shows one job; a context manager, so that a terminal is left as it was found."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, status: JobStatus) -> None:
        """Take the next status; the final one prints the summary."""


def can_move_cursor(stream: TextIO) -> bool:
    """Whether a live view can be shown there."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def open_display(stream: TextIO, since_s: float = 0.0) -> Display:
    """A live view on a terminal that can move its cursor, plain lines everywhere else.

    Args:
        since_s: Events before this moment are not told.
    """
    if can_move_cursor(stream):
        return LiveDisplay(Console(file=stream), since_s)
    return PlainDisplay(stream, since_s)


class _Events:
    """Tells the events of a status that were not there before."""

    def __init__(self, since_s: float) -> None:
        self._since_s = since_s
        self._seen: set[JobEvent] = set()

    def new_in(self, status: JobStatus) -> list[JobEvent]:
        new = [
            event
            for event in status.events
            if event not in self._seen and event.time_s >= self._since_s
        ]
        # A status holds the last events only, so nothing older can come back.
        self._seen = set(status.events)
        return new


class PlainDisplay:
    """Lines for logs and pipes: every event, and now and then how far the job is."""

    def __init__(
        self,
        stream: TextIO,
        since_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._wall_clock = wall_clock
        self._events = _Events(since_s)
        self._last_line = ""
        self._last_line_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def show(self, status: JobStatus) -> None:
        for event in self._events.new_in(status):
            self._print(event_line(event))
        if status.phase.is_final:
            for line in summary_lines(status, self._wall_clock()):
                self._print(line)
            return
        line = progress_line(status)
        now_s = self._clock()
        due = self._last_line_s is None or now_s - self._last_line_s >= LINE_INTERVAL_S
        if due and line != self._last_line:
            self._print(line)
            self._last_line, self._last_line_s = line, now_s

    def _print(self, line: str) -> None:
        # A reader of the pipe waits for each line, not for a full buffer.
        print(line, file=self._stream, flush=True)


class LiveDisplay:
    """A few lines that stay at the bottom of the terminal; events scroll by above them."""

    def __init__(
        self, console: Console, since_s: float = 0.0, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._console = console
        self._wall_clock = wall_clock
        self._events = _Events(since_s)
        # The view is transient: the summary takes its place.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, status: JobStatus) -> None:
        events = self._events.new_in(status)
        if events or not status.phase.is_final:
            # First, since each event that scrolls by draws the view below it again.
            self._live.update(progress_view(status, self._wall_clock()), refresh=True)
        for event in events:
            self._console.print(Text(event_line(event)))
        if not status.phase.is_final:
            return
        self._live.stop()
        for line in summary_lines(status, self._wall_clock()):
            self._console.print(Text(line))


def phase_text(status: JobStatus) -> Text:
    """The phase in its colour, with its reason and the first line of its message."""
    text = Text(str(status.phase), style=PHASE_STYLES.get(status.phase, "cyan"))
    why = ": ".join(filter(None, (status.reason, first_line(status.message))))
    return text.append(f"  {why}", style="default") if why else text


def progress_view(status: JobStatus, now_s: float) -> RenderableType:
    """Name, phase and reason; a bar with what is left; speed, loss and workers."""
    elapsed_s = run_s(status, now_s)
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(no_wrap=True)
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    head.add_row(
        Text(status.job_name, style="bold"),
        phase_text(status),
        "" if elapsed_s is None else duration_text(elapsed_s),
    )
    return Group(
        head, bar_view(status), Text(_speed_line(status), no_wrap=True, overflow="ellipsis")
    )


def bar_view(status: JobStatus) -> RenderableType:
    """A bar as wide as there is room, `done/total`, percent and ETA."""
    progress = status.progress
    fraction = done_fraction(status)
    left_s = eta_s(status)
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(ratio=1)
    for _ in range(3):
        row.add_column(justify="right", no_wrap=True)
    row.add_row(
        ProgressBar(total=1.0, completed=fraction or 0.0),
        f"{progress.records_done}/{progress.records_total or '?'}",
        percent_text(status),
        "" if left_s is None else f"ETA {duration_text(left_s)}",
    )
    return row


def _speed_line(status: JobStatus) -> str:
    progress = status.progress
    return "  ".join(
        (
            f"epoch {epoch_text(status)}",
            f"{progress.samples_per_s:.0f} samples/s",
            f"loss {loss_text(status)}",
            f"{workers_text(status)} workers",
            f"version {progress.model_version}",
        )
    )
