"""What goes on before a job while somebody waits: data is converted, an image is made.

Each as a bar in a terminal that can move its cursor, and as plain lines everywhere else.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elastic.spec.image_progress import ImageProgress
from elastic.telemetry.display import (
    LINE_INTERVAL_S,
    Display,
    LiveView,
    PlainLines,
    can_move_cursor,
)
from elastic.telemetry.summary import duration_text

_CONVERSION_BAR_WIDTH: Final = 30


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


def open_conversion_display(stream: TextIO) -> Display[ConversionProgress]:
    """A bar on a terminal that can move its cursor, plain lines everywhere else."""
    if can_move_cursor(stream):
        return LiveConversionDisplay(Console(file=stream))
    return PlainConversionDisplay(stream)


class PlainConversionDisplay(PlainLines):
    """A line now and then, with the time that the rest will take."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._first: tuple[float, int] | None = None
        self._last_line_s = clock()

    def show(self, progress: ConversionProgress) -> None:
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
        self.print(f"data: {progress}{left}")


class LiveConversionDisplay(LiveView):
    """A bar with counts and the time that is left; it is gone when all is done."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            BarColumn(_CONVERSION_BAR_WIDTH),
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=None)
        super().__init__(self._progress)

    def show(self, progress: ConversionProgress) -> None:
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
