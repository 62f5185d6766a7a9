"""When cuts are taken, and the one thread that writes them: of two masters never both at once."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from elastic.checkpoints.contents import CutRows, RowsGoneError
from elastic.checkpoints.cuts import Cut, prune, version_of, write_cut
from elastic.checkpoints.destinations import advice, in_words
from elastic.master.coordination.running import RunningJob
from elastic.platforms.base import NO_FENCE, Fence, FencedError

log = logging.getLogger(__name__)

KEPT_RECOVERY_CUTS: Final = 2

T = TypeVar("T")

POLL_S: Final = 0.25

Check: TypeAlias = Callable[[], None]
"""Called right before what is written can be seen; raises where it must not be."""


@dataclass(frozen=True, slots=True)
class CutPlan:
    """Where cuts go, and what they say of their job.

    Attributes:
        recovery_dir: For those that a restarted master goes back to.
        checkpoint_dir: For those that are kept; None where the user asks for none.
        checkpoint_steps: Updates between those; 0 for the last version only.
        keep_checkpoint_max: How many of them stay; 0 for all.
        evaluated_on: Tells the evaluation records from others.
        grads_to_wait: Gradients of an update; None where that has no meaning.
    """

    recovery_dir: Path
    checkpoint_dir: Path | None
    job_name: str
    run_id: str
    checkpoint_steps: int = 0
    keep_checkpoint_max: int = 0
    evaluated_on: str = ""
    grads_to_wait: int | None = None


def _unmeasured(_seconds: float) -> None:
    pass


class Cutter:
    """Copies the job's state under the parameters' lock, and writes it behind the job's back.

    A cut that cannot be written is told as an event and does not stop the job: the one before
    stays what a restart goes back to.

    Attributes:
        writing: Held while anything is written, in the order in which it was begun.
        newest_checkpoint: The last cut that was written to be kept.
        problem: Why the final cut is not where checkpoints go; empty where it is.
        metrics: What the next cuts say of the model.
    """

    def __init__(
        self,
        job: RunningJob,
        plan: CutPlan,
        on_event: Callable[[str, str], None],
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_written: Callable[[float], None] = _unmeasured,
        fence: Fence = NO_FENCE,
    ) -> None:
        """Keep the parts.

        Args:
            waiting: Entered while everything waits for a cut, so that the time is accounted for.
            on_written: Told how long each cut took to be written.
            fence: Of this master: no cut is seen that it does not let pass.
        """
        self._job = job
        self._plan = plan
        self._recovery_dir = plan.recovery_dir
        self._checkpoint_dir = plan.checkpoint_dir
        self._callbacks: Callable[[], dict[str, Any]] = dict
        self._on_event = on_event
        self._waiting = waiting
        self.writing = asyncio.Lock()
        self._pending: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Task[Path | OSError]] = set()
        self._last_recovery_version: int | None = None
        self._last_failed: tuple[Path, int] | None = None
        self._cut_before: Path | None = None
        self._held: list[CutRows] = []
        self.newest_checkpoint: Path | None = None
        self.problem = ""
        self.metrics: dict[str, float] = {}
        self._on_written = on_written
        self._writer = FencedWriter(fence)

    @property
    def evaluated_on(self) -> str:
        """Tells the evaluation records of this job from others."""
        return self._plan.evaluated_on

    def include(self, callbacks: Callable[[], dict[str, Any]]) -> None:
        """Have cuts keep what callbacks have seen and decided."""
        self._callbacks = callbacks

    async def checkpoint_if_due(self) -> None:
        """Begin a checkpoint, if the version just applied is one that the user wants kept.

        The caller holds the parameters' lock. Writing goes on behind the next steps; only a disk
        slower than `checkpoint_steps` updates makes them wait, for no checkpoint is left out.
        """
        version = self._job.parameters.version
        steps = self._plan.checkpoint_steps
        if self._checkpoint_dir is None or not steps or version % steps:
            return
        with self._waiting():
            await self.settle()
            self._pending = asyncio.create_task(self._checkpoint(await self.capture()))

    async def settle(self) -> None:
        """Wait until the checkpoint that has begun is written."""
        if self._pending is not None:
            await self._pending

    async def finish(self) -> None:
        """Wait until all that has begun to be written is there, whether or not it is."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        if self._pending is not None:
            await asyncio.gather(self._pending, return_exceptions=True)

    def take_over(self, held: Sequence[CutRows], cut: Cut) -> None:
        """Go on where a life before has ended.

        Args:
            held: What the store holds for its recovery cuts, oldest first.
            cut: That the job has gone back to.
        """
        self._held.extend(held)
        path = None if cut.rows is None else cut.rows.path
        if path is not None and path.parent == self._recovery_dir:
            self._cut_before = path

    async def capture(self) -> Cut:
        """Copy one moment, rows included; the caller holds the parameters' lock."""
        return await self._captured(self._job.parameters.hold_rows)

    async def _capture_next(self) -> Cut:
        """The same for a recovery cut, which need not write what the one before has."""
        before = self._cut_before
        since = None if before is None else version_of(before)
        cut = await self._captured(partial(self._job.parameters.hold_rows_since, since))
        if cut.rows is not None:
            cut.rows = replace(cut.rows, before=before)
        return cut

    async def _captured(self, hold_rows: Callable[[], Awaitable[CutRows | None]]) -> Cut:
        job, plan = self._job, self._plan
        parameters, state, optimizer = await job.parameters.copy()
        rows = await hold_rows()
        return Cut(
            version=job.parameters.version,
            parameters=parameters,
            state=state,
            optimizer=optimizer,
            ledger=job.ledger.snapshot(),
            run_id=plan.run_id,
            job_name=plan.job_name,
            metrics=dict(self.metrics),
            evaluated_on=plan.evaluated_on,
            loss=job.updates.loss,
            steering=self._callbacks(),
            grads_to_wait=plan.grads_to_wait,
            created_s=time.time(),
            rows=rows,
        )

    async def _checkpoint(self, cut: Cut) -> None:
        assert self._checkpoint_dir is not None
        written = await self._write(self._checkpoint_dir, cut, self._plan.keep_checkpoint_max)
        if isinstance(written, Path):
            self.newest_checkpoint = written

    async def recovery_cut(self, is_wanted: bool = False) -> bool:
        """Take and write a cut for a restarted master, if there is anything new.

        Args:
            is_wanted: Take it in any case: the version is old, but what is said of it is new.

        Returns:
            Whether the newest version is in a cut now.
        """
        if self._job.parameters.version == self._last_recovery_version and not is_wanted:
            return True
        async with self._job.parameters.lock:
            with self._waiting():
                cut = await self._capture_next()
        written = await self._write(self._recovery_dir, cut, KEPT_RECOVERY_CUTS)
        if not isinstance(written, Path):
            return False
        self._last_recovery_version, self._cut_before = cut.version, written
        return True

    async def final_checkpoint(self) -> bool:
        """Keep the trained parameters where checkpoints go, or else as the last recovery cut.

        Returns:
            Whether they are kept anywhere; `problem` says why not where they belong.
        """
        with self._waiting():
            return await self._final_checkpoint()

    async def _final_checkpoint(self) -> bool:
        await self.settle()
        async with self._job.parameters.lock:
            cut = await self.capture()
        self.problem = ""
        written: Path | OSError | None = None
        if self._checkpoint_dir is not None:
            written = await self._write(self._checkpoint_dir, cut, self._plan.keep_checkpoint_max)
            if isinstance(written, OSError):
                self.problem = _problem(self._checkpoint_dir, written)
        if not isinstance(written, Path):
            # Where the user's disk is full, what was trained is not lost for it.
            async with self._job.parameters.lock:
                cut = await self.capture()
            written = await self._write(self._recovery_dir, cut, KEPT_RECOVERY_CUTS)
        if isinstance(written, OSError):
            self.problem = self.problem or _problem(self._recovery_dir, written)
            return False
        self.newest_checkpoint = written
        return True

    async def last_cut(self, is_checkpoint: bool) -> bool:
        """Keep the newest version, and let no other follow: the parameters' lock is never freed.

        Args:
            is_checkpoint: Keep it where the user wants checkpoints, not beside the recovery cuts.

        Returns:
            Whether it is kept; why not is told as an event.
        """
        await self._job.parameters.lock.acquire()
        folder, keep, capture = self._recovery_dir, KEPT_RECOVERY_CUTS, self._capture_next
        if is_checkpoint and self._checkpoint_dir is not None:
            folder, keep = self._checkpoint_dir, self._plan.keep_checkpoint_max
            capture = self.capture
        with self._waiting():
            cut = await capture()
        written = await self._write(folder, cut, keep)
        if not isinstance(written, Path):
            return False
        if folder == self._checkpoint_dir:
            self.newest_checkpoint = written
        return True

    async def run(self, interval_s: float) -> None:
        """Take recovery cuts on their own schedule, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.recovery_cut()

    async def _write(self, folder: Path, cut: Cut, keep: int) -> Path | OSError:
        """Write one cut, which lets go of its rows; returns where it is, or why it is not."""
        # Who waits for it may be cancelled, but a thread cannot: were another to write before it
        # has ended, both could lose the cut.
        writing = asyncio.create_task(self._write_in_turn(folder, cut, keep))
        self._writes.add(writing)
        writing.add_done_callback(self._writes.discard)
        return await asyncio.shield(writing)

    async def _write_in_turn(self, folder: Path, cut: Cut, keep: int) -> Path | OSError:
        written: Path | OSError | None = None
        try:
            written = await self._written(folder, cut, keep)
        finally:
            self._let_go(cut.rows, is_written=isinstance(written, Path))
        return written

    def _let_go(self, rows: CutRows | None, *, is_written: bool) -> None:
        """Need the rows of a cut no more, but where the store holds them for a recovery cut."""
        if rows is None:
            return
        if not (rows.is_held and is_written):
            rows.let_go()
            return
        self._held.append(rows)
        while len(self._held) > KEPT_RECOVERY_CUTS:
            self._held.pop(0).let_go()

    async def _written(self, folder: Path, cut: Cut, keep: int) -> Path | OSError:
        async with self.writing:
            began_s = time.perf_counter()
            try:
                path = await self._writer.write(lambda check: write_cut(folder, cut, check))
                self._on_written(time.perf_counter() - began_s)
            except OSError as error:
                self._tell_failure(folder, cut.version, error)
                return error
            try:
                await self._writer.write(lambda check: prune(folder, keep, path, check))
            except OSError as error:
                # The new one is whole; the old ones are tried again with the next.
                log.warning("old checkpoints in %s stay: %s", folder, in_words(error))
            return path

    def _tell_failure(self, folder: Path, version: int, error: OSError) -> None:
        message = (
            f"checkpoint of version {version} could not be written to {folder}: {_in_words(error)}"
        )
        log.warning(message)
        # The last version is tried again after its evaluation, and fails for the same reason.
        if self._last_failed != (folder, version):
            self._last_failed = (folder, version)
            self._on_event("CheckpointFailed", message)


def _problem(folder: Path, error: OSError) -> str:
    return f"NOT in {folder}: {_in_words(error)}, and run the job again with --resume"


def _in_words(error: OSError) -> str:
    """What is wrong, and what to do about the place, unless that has no part in it."""
    if isinstance(error, RowsGoneError):
        return in_words(error)
    return f"{in_words(error)}: {advice(error)}"


class FencedWriter:
    """Writes on a thread, and waits as long as nobody knows whether another master writes too."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    async def write(self, work: Callable[[Check], T]) -> T:
        """Have `work` done, from its beginning again where it was fenced in the midst of it.

        Args:
            work: Calls what it is given before each step that others see; leaves nothing behind
                where that raises.

        Raises:
            OSError: As `work` does.
        """
        is_told = False
        while True:
            try:
                self._fence.check()
                return await asyncio.to_thread(work, self._fence.check)
            except FencedError as error:
                if not is_told:
                    log.warning("%s", error)
                    is_told = True
            await asyncio.sleep(POLL_S)
