"""Writes training curves behind the job's back: a bounded queue, and a thread that empties it."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elastic.errors import JobSpecError
from elastic.spec.values.packages import pip_install
from elastic.telemetry.meter import Point

if TYPE_CHECKING:
    from elastic.spec.job import JobSpec
    from elastic.telemetry.event_file import EventFile

log = logging.getLogger(__name__)

QUEUE_LENGTH: Final = 1000
"""Points that wait for a slow disk; more are left out, for the job waits for none."""

FLUSH_S: Final = 1.0
RETRY_S: Final = 30.0
"""A disk that was full may have been cleared since."""

MISSING: Final = (
    f"the package tensorboard is not installed: {pip_install('tensorboard')}, or leave out "
    "--tensorboard_log_dir"
)


def check_installed() -> None:
    """Find that there is no tensorboard before there is a job.

    Raises:
        JobSpecError: There is none.
    """
    if find_spec("tensorboard") is None:
        raise JobSpecError(MISSING)


class EventLog:
    """The event files of one life of a master. `write` and `close` are for one thread."""

    def __init__(
        self,
        folder: Path,
        first_step: int,
        about: str,
        on_failure: Callable[[str], None],
        once: str | None = None,
    ) -> None:
        """Keep the parts; `start` begins to write.

        Args:
            folder: Where the files are.
            first_step: Steps from this one on are written anew, whatever stands there.
            about: Markdown that is kept beside the curves.
            on_failure: Told once, on another thread, why nothing can be written.
            once: How the tags begin of values that may come again, as those before `first_step`
                do that a cut has not seen come: what stands there of them is not written again.
        """
        self._folder = folder
        self._first_step: int | None = first_step
        self._about = about
        self._on_failure = on_failure
        self._once = once
        self._told: frozenset[tuple[str, int]] = frozenset()
        self._has_failed = False
        self._is_useless = False
        self._file: EventFile | None = None
        self._retry_at_s = 0.0
        self._queue: queue.Queue[Point | None] = queue.Queue(QUEUE_LENGTH)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tensorboard", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def write(self, point: Point) -> None:
        """Have a point written soon; never waits."""
        try:
            self._queue.put_nowait(point)
        except queue.Full:
            log.debug("the disk is too slow for the point of step %d", point.step)

    def close(self, timeout_s: float) -> None:
        """Write what waits, for so long at the most."""
        self._is_closing.set()
        # Wakes the thread; where the queue is full it is awake.
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(timeout_s)

    # -- on its own thread ---------------------------------------------------------------------

    def _run(self) -> None:
        is_open = True
        while is_open:
            points, is_open = self._next_points()
            try:
                self._write_all(points)
            except ImportError as error:
                log.debug("%s", error)
                self._is_useless = True
                self._fail(MISSING)
            except OSError as error:
                self._drop_file()
                self._retry_at_s = time.monotonic() + RETRY_S
                self._fail(f"{self._folder}: {error.strerror or error}")
        self._drop_file()

    def _next_points(self) -> tuple[list[Point], bool]:
        """What waits, once there is anything or a moment has passed; and whether more can come."""
        # Asked first: what is written before `close` is in the queue by then.
        is_open = not self._is_closing.is_set()
        points: list[Point] = []
        try:
            point = self._queue.get(timeout=FLUSH_S if is_open else 0)
            while point is not None:
                points.append(point)
                point = self._queue.get_nowait()
        except queue.Empty:
            return points, is_open
        return points, False

    def _write_all(self, points: list[Point]) -> None:
        if self._is_useless or (self._file is None and time.monotonic() < self._retry_at_s):
            return
        if self._file is None:
            self._open()
            assert self._file is not None
        for point in points:
            if (untold := self._untold(point)).values:
                self._file.write_point(untold)
        self._file.flush()

    def _untold(self, point: Point) -> Point:
        if not self._told:
            return point
        values = tuple(each for each in point.values if (each[0], point.step) not in self._told)
        return replace(point, values=values)

    def _open(self) -> None:
        # Not before it is needed: it takes a third of a second.
        from elastic.telemetry.event_file import EventFile, told_values

        if self._once is not None and self._first_step and self._folder.is_dir():
            self._told = told_values(self._folder, self._once, self._first_step)
        self._file = EventFile(self._folder, self._first_step)
        # What this life has written stands, also after a pause.
        self._first_step = None
        self._file.write_text("job", self._about)

    def _drop_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                log.debug("%s", error)

    def _fail(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._on_failure(why)


def job_text(spec: "JobSpec") -> str:
    """What a job is, beside its curves: its settings but the defaults, as a Markdown table."""
    given = spec.model_dump(mode="json", exclude_defaults=True)
    rows = [f"| {name} | {_cell(value)} |" for name, value in sorted(given.items())]
    return "\n".join(["| setting | value |", "| --- | --- |", *rows])


def _cell(value: object) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{name}={item}" for name, item in value.items())
    text = " ".join(str(value).split()).replace("|", "\\|").replace("`", "'")
    return f"`{text}`"
