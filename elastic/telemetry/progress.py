"""The progress of one job while somebody watches: a live view, or plain lines.

Both are fed successive `JobStatus` values, print each event once, and end with a summary.
"""

import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from elastic.spec.status import JobEvent, JobStatus
from elastic.telemetry.display import (
    LINE_INTERVAL_S,
    Display,
    LiveView,
    PlainLines,
    can_move_cursor,
)
from elastic.telemetry.progress_view import progress_view, waits_because
from elastic.telemetry.summary import event_line, progress_line, summary_lines


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
            self.print(event_line(event))
        if status.phase.is_final:
            for line in summary_lines(status, self._wall_clock()):
                self.print(line)
            return
        line = progress_line(status)
        state = (status.phase.value, waits_because(status))
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
            self._console.print(Text(event_line(event)))
        if not status.phase.is_final:
            return
        self._live.stop()
        for line in summary_lines(status, self._wall_clock()):
            self._console.print(Text(line))
