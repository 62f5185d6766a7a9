"""The progress of one job while somebody watches: a live view, or plain lines.

Both are fed successive `JobStatus` values, print each event once, and end with a summary.
"""

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, TextIO, TypeVar

from rich.console import Console
from rich.live import Live
from rich.text import Text

from elastic.spec.status import JobEvent, JobStatus
from elastic.telemetry.progress_view import progress_view, waits_because
from elastic.telemetry.summary import event_line, progress_line, summary_lines

LINE_INTERVAL_S: Final = 2.0
"""At most one plain line of mere progress in this time: a log of a long job stays readable."""


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


def can_move_cursor(stream: TextIO) -> bool:
    """Whether a live view can be shown there."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def open_display(stream: TextIO, since_s: float = 0.0) -> Display[JobStatus]:
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
        self._last_state: tuple[str, str] | None = None

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
        state = (status.phase.value, waits_because(status))
        now_s = self._clock()
        # What a job has come to is told at once: it may stand still from here on.
        due = (
            state != self._last_state
            or self._last_line_s is None
            or now_s - self._last_line_s >= LINE_INTERVAL_S
        )
        if due and line != self._last_line:
            self._print(line)
            self._last_line, self._last_line_s, self._last_state = line, now_s, state

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
