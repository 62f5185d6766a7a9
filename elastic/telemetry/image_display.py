"""The making of an image while somebody waits: a bar in a terminal, or plain lines."""

import time
from collections.abc import Callable
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live
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

_BAR_WIDTH: Final = 24


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
        row.add_column(width=_BAR_WIDTH)
        row.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=1.0, completed=progress.fraction or 0.0)
        row.add_row(bar, Text(progress.text if progress.is_detail else "", style="dim"))
        self._live.update(row)
