"""Training curves: written behind the job's back, and shown with TensorBoard.

They are written by a thread, which empties a bounded queue. What shows them runs in the command
line's process, or as a pod's program:

`python -m elastic.telemetry.board --logdir DIR --port N [--master HOST:PORT]`
"""

import argparse
import logging
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elastic.errors import ElasticError, JobSpecError
from elastic.spec.values import pip_install
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


LINGER_S: Final = 3600.0
"""How long a board in a cluster can be looked at when the master of its job is gone."""

LOOK_S: Final = 30.0
CONNECT_S: Final = 5.0
MAX_DATA_BYTES: Final = 512 << 20
"""Beside a master: a board that grows beyond ends, and not what shares its container's memory."""

STACK_BYTES: Final = 1 << 20
_WORST_VICTIM: Final = "1000"


class Board:
    """A TensorBoard server in threads of this process."""

    def __init__(self, log_dir: Path, host: str, port: int) -> None:
        """Keep the parts.

        Args:
            log_dir: Where the event files are, or will be.
            host: Address to listen at; empty for all there are, of whichever family.
            port: 0 takes a free one.
        """
        self._log_dir = log_dir
        self._host = host
        self._port = port

    def start(self) -> str:
        """Begin to serve; returns the address for a browser.

        Raises:
            JobSpecError: The port is in use, or tensorboard is not installed.
        """
        # What TensorBoard's own build without TensorFlow has: with it, it does not import
        # TensorFlow, which takes ten seconds and 300 MB and adds nothing to scalars and texts.
        sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("notf"))
        try:
            from tensorboard import default, program
        except ImportError as error:
            raise JobSpecError(MISSING.partition(",")[0]) from error
        self._check_port()
        server = program.TensorBoard(plugins=default.get_plugins())
        where = f"--host={self._host}" if self._host else "--bind_all"
        # The default reader is a process and a package of its own.
        how = ("--load_fast=false", "--reload_interval=5")
        server.configure(
            ["tensorboard", f"--logdir={self._log_dir}", where, f"--port={self._port}", *how]
        )
        try:
            address: str = server.launch()
        except (program.TensorBoardServerException, OSError) as error:
            raise self._unusable(error) from error
        return address

    def _check_port(self) -> None:
        """TensorBoard itself would take another port than the one that was asked for."""
        if not self._port:
            return
        try:
            with socket.create_server((self._host, self._port)):
                pass
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> JobSpecError:
        # `socket` puts the address into its text, which is told already.
        number = error.errno if isinstance(error, OSError) else None
        why = str(error) if number is None else os.strerror(number)
        return JobSpecError(
            f"--port {self._port} cannot be listened at: {why}: choose another, or 0 for a free one"
        )


def main() -> int:
    """Serve until told to end, or until the master has been gone for long."""
    parser = argparse.ArgumentParser(prog="elastic.telemetry.board")
    parser.add_argument("--logdir", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--master", default="", help="host:port; without it, serve for ever")
    parser.add_argument("--beside-master", action="store_true")
    arguments = parser.parse_args()
    # The first process of a container ignores signals that it has no handler for.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    if arguments.beside_master:
        _be_modest()
    try:
        address = Board(arguments.logdir, "", arguments.port).start()
    except ElasticError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"TensorBoard of {arguments.logdir} at {address}\n")
    sys.stdout.flush()
    if not arguments.master:
        threading.Event().wait()
    stay_while(lambda: is_listening(arguments.master), time.monotonic, time.sleep)
    sys.stdout.write(f"the master has been gone for {LINGER_S / 60:.0f} minutes: ends\n")
    return 0


def stay_while(
    is_heard: Callable[[], bool], now_s: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Return once nothing has been heard for `LINGER_S`.

    Args:
        is_heard: Asked every `LOOK_S`.
        now_s: The clock.
        sleep: Waits by that clock.
    """
    last_s = now_s()
    while now_s() - last_s < LINGER_S:
        sleep(LOOK_S)
        if is_heard():
            last_s = now_s()


def is_listening(address: str) -> bool:
    """Whether anybody takes connections at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_S):
            return True
    except OSError:
        return False


def _be_modest() -> None:
    """Take no time and no memory that the master needs."""
    os.nice(10)
    # Stacks and the buffers of linear algebra, one for each thread, count as data.
    threading.stack_size(STACK_BYTES)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_WORST_VICTIM, encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
