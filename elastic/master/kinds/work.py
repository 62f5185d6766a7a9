"""What a job has to do, whatever its kind, what the master gives it for that, and its preparation.

The master prepares its job on a thread: the user's code may hang on it for ever.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from elastic.errors import ModelDefError, TrainingError
from elastic.master.coordination.running import Listeners, RunningJob
from elastic.master.coordination.updates import CommitLog
from elastic.master.parameters.ring import ServerRing
from elastic.master.parameters.tables import Tables
from elastic.master.report.status_board import StatusBoard
from elastic.master.report.telemetry import Telemetry
from elastic.platforms.surroundings import MasterEnvironment
from elastic.policy.replicas import ReplicaId
from elastic.spec.job import JobSpec
from elastic.spec.user_frames import describe, stuck_in

T = TypeVar("T")

Until: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]
"""Waits for an event, or raises what ends the job before."""


class Preparation:
    """Runs one piece of work after the other, all of them within one time limit.

    Which step it is at is told to `on_step` on the event loop, and kept in a file, which says so
    even where the step ends the process.
    """

    def __init__(self, timeout_s: float, step_path: Path, on_step: Callable[[str], None]) -> None:
        self._timeout_s = timeout_s
        self._step_path = step_path
        self._on_step = on_step
        self._loop = asyncio.get_running_loop()
        self._deadline_s: float | None = None
        self._step = ""
        self._is_over = False

    def at(self, step: str) -> None:
        """Say what comes next; called from the work."""
        self._step = step
        with suppress(OSError):
            # A full disk costs only the name of the step.
            self._step_path.write_text(step, encoding="utf-8")
        self._loop.call_soon_threadsafe(self._tell, step)

    async def run(self, work: Callable[[], T]) -> T:
        """Do a piece of work; what it raises is raised here.

        Raises:
            UserError: Also where the work ends the process, or takes longer than is left.
        """
        self._deadline_s = self._deadline_s or time.monotonic() + self._timeout_s
        done: Future[T] = Future()
        # So that it cannot be cancelled, though nobody may wait for it any more.
        done.set_running_or_notify_cancel()
        thread = threading.Thread(
            target=_settle, args=(done, work), name="preparation", daemon=True
        )
        thread.start()
        waiting = asyncio.wrap_future(done)
        left_s = max(0.0, self._deadline_s - time.monotonic())
        try:
            await asyncio.wait([waiting], timeout=left_s)
            if waiting.done():
                return waiting.result()
        finally:
            waiting.cancel()
        raise self._hung(thread)

    def end(self) -> None:
        """Nothing is prepared any more, whatever a thread that hangs may still do."""
        self._is_over = True
        with suppress(OSError):
            self._step_path.unlink(missing_ok=True)

    def _tell(self, step: str) -> None:
        if not self._is_over:
            self._on_step(step)

    def _hung(self, thread: threading.Thread) -> TrainingError:
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - documented
        stuck = None if frame is None else stuck_in(frame)
        what = f"{stuck} hangs" if stuck else "the master hangs"
        return TrainingError(
            f"{what} while the master prepares the job ({self._step}): that took longer than "
            f"start_timeout={self._timeout_s:g} s: mend it, or raise --start_timeout",
            "PreparationTimeout",
        )


def _settle(done: "Future[T]", work: Callable[[], T]) -> None:
    try:
        result = work()
    except SystemExit as error:
        ended = ModelDefError(f"the user's code ended the process: {describe(error)}")
        ended.__cause__ = error
        done.set_exception(ended)
    except BaseException as error:  # noqa: BLE001 - whoever waits for the thread raises it again
        done.set_exception(error)
    else:
        done.set_result(result)


def _untold(_replica: ReplicaId) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class JobParts:
    """What there is of a job before its model is.

    Attributes:
        spec: The job's own, with what its first life has settled for good.
        is_first_life: No master of this submission has been there before.
        ring: The parameter servers; None where the master has the parameters.
        on_server_progress: Told of each server when it has made an update.
        is_back: The job was at work before in this life of the master: only a cut has its values.
        tables: Of embeddings, whose rows are kept beside the parameters; None where there are none.
    """

    env: MasterEnvironment
    spec: JobSpec
    board: StatusBoard
    telemetry: Telemetry
    commit_log: CommitLog
    preparation: Preparation
    is_first_life: bool
    listeners: Listeners
    ring: ServerRing | None = None
    on_server_progress: Callable[[ReplicaId], None] = _untold
    is_back: bool = False
    tables: Tables | None = None


class Work(Protocol):
    """Everything between a job's preparation and its end."""

    @property
    def job(self) -> RunningJob:
        """Its parts, which meet the workers."""

    @property
    def prediction_dir(self) -> Path | None:
        """Where workers put files of predictions; None where there are none."""

    async def run(self, until: Until) -> None:
        """Have every record worked through, and make the job's result.

        Raises:
            UserError: What ended the job before.
        """

    async def abandon(self) -> None:
        """Stop all that goes on beside the workers; the job begins anew with its newest cut."""

    async def leave(self) -> None:
        """Keep what would be lost with the master, which is to end; nothing counts after it."""
