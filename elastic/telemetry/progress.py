"""What is shown while somebody waits: data converted, an image made, the progress of a job.

A display is a live view where a terminal can move its cursor, and plain lines everywhere else.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self, TextIO, TypeVar

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elastic.spec.status import ImageProgress, JobEvent, JobPhase, JobStatus
from elastic.telemetry import summary
from elastic.telemetry.summary import duration_text

LINE_INTERVAL_S: Final = 2.0
"""At most one plain line of mere progress in this time: a log of a long job stays readable."""

_PLAIN_TERMINALS: Final = ("dumb", "unknown")
"""Take text and nothing else; Rich takes the same two for such."""

Shown = TypeVar("Shown", contravariant=True)


class Display(Protocol[Shown]):
    """Shows how something goes on; a context manager, for a terminal is left as it was found."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, progress: Shown, /) -> None:
        """Take every look, changed or not: what is held back for a while is shown by a later one.

        Of a job, the final status prints the summary.
        """


class Startable(Protocol):
    """A part of the terminal that is drawn anew: Rich's `Live` or its `Progress`."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


def can_move_cursor(stream: TextIO) -> bool:
    """Whether a live view can be shown there."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in _PLAIN_TERMINALS


def takes_colours(stream: TextIO) -> bool:
    """Whether colours can be shown there, and are wanted."""
    return can_move_cursor(stream) and not os.environ.get("NO_COLOR")


class PlainLines:
    """Lines on a stream; the context manager of a display that prints nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def print(self, line: str) -> None:
        # A reader of the pipe waits for each line, not for a full buffer.
        print(line, file=self._stream, flush=True)


class LiveView:
    """The context manager of a display that draws a part of the terminal anew."""

    def __init__(self, drawn: Startable) -> None:
        self._drawn = drawn

    def __enter__(self) -> Self:
        self._drawn.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drawn.stop()


# What goes on without a job while somebody waits: data is converted, a workload simulated, an image
# made.
#
# Each as a bar in a terminal that can move its cursor, and as plain lines everywhere else.


class Counted(Protocol):
    """Something of which it is known how much there is in all; its text says both."""

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int: ...

    def __str__(self) -> str: ...


_BAR_WIDTH: Final = 30


@dataclass(frozen=True, slots=True)
class ConversionProgress:
    """How far a conversion is.

    Attributes:
        done: Of `total`, in `unit`s.
        unit: `records`, or `sources` where nobody knows how many records there will be.
        num_records: Written so far.
        num_files: Written so far.
    """

    done: int
    total: int
    unit: str
    num_records: int
    num_files: int

    def __str__(self) -> str:
        records = "" if self.unit == "records" else f", {self.num_records} records"
        return f"{self.done} of {self.total} {self.unit}{records} in {self.num_files} files"


@dataclass(frozen=True, slots=True)
class SimulationProgress:
    """How far the simulation of a workload under one policy is, in jobs that have ended."""

    policy: str
    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.policy}, {self.done:,} of {self.total:,} jobs have ended"


def open_counting_display(stream: TextIO, what: str) -> Display[Counted]:
    """A bar on a terminal that can move its cursor, plain lines everywhere else.

    Args:
        stream: Where to.
        what: Goes on, for lines among others.
    """
    if can_move_cursor(stream):
        return LiveCountingDisplay(Console(file=stream))
    return PlainCountingDisplay(stream, what)


class PlainCountingDisplay(PlainLines):
    """A line now and then, with the time that the rest will take."""

    def __init__(
        self, stream: TextIO, what: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream)
        self._what, self._clock = what, clock
        self._first: tuple[float, int] | None = None
        self._last_line_s = clock()

    def show(self, progress: Counted) -> None:
        now_s = self._clock()
        if self._first is None:
            # What an earlier run has done tells nothing of how fast this one is.
            self._first = (now_s, progress.done)
        if now_s - self._last_line_s < LINE_INTERVAL_S:
            return
        self._last_line_s = now_s
        first_s, first_done = self._first
        left = ""
        if progress.done > first_done:
            pace_s = (now_s - first_s) / (progress.done - first_done)
            left = f", {duration_text(pace_s * (progress.total - progress.done))} left"
        self.print(f"{self._what}: {progress}{left}")


class LiveCountingDisplay(LiveView):
    """A bar with counts and the time that is left; it is gone when all is done."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            BarColumn(_BAR_WIDTH),
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None)
        super().__init__(self._progress)

    def show(self, progress: Counted) -> None:
        self._progress.update(
            self._task, completed=progress.done, total=progress.total, description=str(progress)
        )


_IMAGE_BAR_WIDTH: Final = 24


def open_image_display(stream: TextIO) -> Display[ImageProgress]:
    """A live view on a terminal that can move its cursor, plain lines everywhere else."""
    if can_move_cursor(stream):
        return LiveImageDisplay(Console(file=stream))
    return PlainImageDisplay(stream)


class PlainImageDisplay(PlainLines):
    """Lines for logs and pipes: every step, and of its output a line now and then."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._last_line_s = clock()

    def show(self, progress: ImageProgress) -> None:
        now_s = self._clock()
        if progress.is_detail and now_s - self._last_line_s < LINE_INTERVAL_S:
            return
        self._last_line_s = now_s
        self.print(f"image: {progress.text}")


class LiveImageDisplay(LiveView):
    """A bar and the newest line of output at the bottom; steps scroll by above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True)
        super().__init__(self._live)

    def show(self, progress: ImageProgress) -> None:
        if not progress.is_detail:
            self._console.print(Text(f"image: {progress.text}"))
        row = Table.grid(expand=True, padding=(0, 1))
        row.add_column(width=_IMAGE_BAR_WIDTH)
        row.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=1.0, completed=progress.fraction or 0.0)
        row.add_row(bar, Text(progress.text if progress.is_detail else "", style="dim"))
        self._live.update(row)


# The progress of one job on a terminal: how it looks at one moment, and while somebody watches.
#
# A display is a live view, or plain lines. Both are fed successive `JobStatus` values, print each
# event once, and end with a summary.


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


def phase_text(status: JobStatus) -> Text:
    """The phase in its colour, with its reason and the first line of its message."""
    why = summary.why_text(status, summary.first_line(status.message))
    text = _phase(status)
    return text.append(f"  {why}", style="default") if why else text


def progress_view(status: JobStatus, now_s: float) -> RenderableType:
    """Name and phase; a bar with what is left; speed, loss and workers; why the job waits."""
    elapsed_s = summary.run_s(status, now_s)
    waits = summary.waits_because(status)
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(no_wrap=True)
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    head.add_row(
        Text(status.job_name, style="bold"),
        _phase(status) if waits else phase_text(status),
        "" if elapsed_s is None else summary.duration_text(elapsed_s),
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
        ProgressBar(total=1.0, completed=summary.done_fraction(status) or 0.0),
        *progress_texts(status),
    )
    return row


def progress_texts(status: JobStatus) -> tuple[str, str, str]:
    """Records or steps of their total, percent, and ETA or nothing."""
    progress = status.progress
    left_s = summary.eta_s(status)
    amount = f"{progress.records_done}/{progress.records_total or '?'}"
    if summary.ends_by_steps(progress):
        amount = f"{progress.model_version}/{progress.max_steps} steps"
    eta = "" if left_s is None else f"ETA {summary.duration_text(left_s)}"
    return amount, summary.percent_text(status), eta


def epochs_done_text(status: JobStatus) -> str:
    """As `epoch_text`, but `2 of 2` once every epoch is done: then none is under way."""
    num_epochs = status.progress.num_epochs
    is_done = summary.all_epochs_done(status) and num_epochs > 0
    return f"{num_epochs} of {num_epochs}" if is_done else summary.epoch_text(status)


def _phase(status: JobStatus) -> Text:
    return Text(str(status.phase), style=PHASE_STYLES.get(status.phase, "cyan"))


def _speed_line(status: JobStatus) -> str:
    progress = status.progress
    is_trained = summary.is_training(status)
    return "  ".join(
        (
            *([f"epoch {epochs_done_text(status)}"] if is_trained else []),
            f"{summary.speed_text(status)} samples/s",
            *([f"loss {summary.loss_text(status)}"] if is_trained else []),
            f"{summary.workers_text(status)} workers",
            f"version {progress.model_version}",
            *([f"evaluates {summary.evaluation_text(status)}"] if status.evaluation else []),
        )
    )


def open_display(
    stream: TextIO, since_s: float = 0.0, wall_clock: Callable[[], float] = time.time
) -> Display[JobStatus]:
    """A live view on a terminal that can move its cursor, plain lines everywhere else.

    Args:
        since_s: Events before this moment are not told.
        wall_clock: Tells the time as the job's own times are told.
    """
    if can_move_cursor(stream):
        return LiveDisplay(Console(file=stream), since_s, wall_clock)
    return PlainDisplay(stream, since_s, wall_clock=wall_clock)


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


class PlainDisplay(PlainLines):
    """Lines for logs and pipes: every event, and now and then how far the job is."""

    def __init__(
        self,
        stream: TextIO,
        since_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(stream)
        self._clock = clock
        self._wall_clock = wall_clock
        self._events = _Events(since_s)
        self._last_line = ""
        self._last_line_s: float | None = None
        self._last_state: tuple[str, str] | None = None

    def show(self, status: JobStatus) -> None:
        for event in self._events.new_in(status):
            self.print(summary.event_line(event))
        if status.phase.is_final:
            for line in summary.summary_lines(status, self._wall_clock()):
                self.print(line)
            return
        line = summary.progress_line(status)
        state = (status.phase.value, summary.waits_because(status))
        now_s = self._clock()
        # What a job has come to is told at once: it may stand still from here on.
        due = (
            state != self._last_state
            or self._last_line_s is None
            or now_s - self._last_line_s >= LINE_INTERVAL_S
        )
        if due and line != self._last_line:
            self.print(line)
            self._last_line, self._last_line_s, self._last_state = line, now_s, state


class LiveDisplay(LiveView):
    """A few lines that stay at the bottom of the terminal; events scroll by above them."""

    def __init__(
        self, console: Console, since_s: float = 0.0, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._console = console
        self._wall_clock = wall_clock
        self._events = _Events(since_s)
        # The view is transient: the summary takes its place.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        super().__init__(self._live)

    def show(self, status: JobStatus) -> None:
        events = self._events.new_in(status)
        if events or not status.phase.is_final:
            # First, since each event that scrolls by draws the view below it again.
            self._live.update(progress_view(status, self._wall_clock()), refresh=True)
        for event in events:
            self._console.print(Text(summary.event_line(event)))
        if not status.phase.is_final:
            return
        self._live.stop()
        for line in summary.summary_lines(status, self._wall_clock()):
            self._console.print(Text(line))
