"""The conversion of data while somebody waits: a bar in a terminal, or plain lines."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from elastic.telemetry.display import (
    LINE_INTERVAL_S,
    Display,
    LiveView,
    PlainLines,
    can_move_cursor,
)
from elastic.telemetry.summary import duration_text

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
            BarColumn(_BAR_WIDTH),
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
