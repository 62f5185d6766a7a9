"""Tells the account of a job's time what happens, by this machine's clock."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elastic.master.coordination.running import RunningJob
from elastic.policy.time_account import Moment, TimeAccount
from elastic.spec.status import JobPhase, JobStatus
from elastic.spec.status.time_split import TimeCategory, TimeSplit


class TimeKeeper:
    """Keeps the account over all lives of the master: what lies between two was spent recovering.

    What lies between the end of a job and its resumption was spent in the queue, and so was the
    time for which its user has suspended it.
    """

    def __init__(
        self, earlier: JobStatus, was_running: bool, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        now_s = clock()
        begun_s = now_s if earlier.submitted_s is None else earlier.submitted_s
        told = earlier.time_split
        is_lost = was_running and earlier.phase is not JobPhase.SUSPENDED
        between = TimeCategory.RECOVER if is_lost else TimeCategory.QUEUE
        self._account = TimeAccount(begun_s, told.model_copy(update={"current": between}))
        self._account.enter(TimeCategory.RECOVER if was_running else TimeCategory.START, now_s)
        self._num_waits = 0
        self._before_waits = self._account.current

    def look(self, phase: JobPhase, job: RunningJob | None, *, is_paused: bool = False) -> None:
        """Have the account judge what the job does now; while it waits, that is known."""
        if self._num_waits or phase.is_final:
            return
        now_s = self._clock()
        if job is None:
            self._account.look(Moment(now_s, phase))
            return
        silent_s = time.monotonic() - job.sessions.last_contribution_s
        self._account.look(
            Moment(
                now_s,
                phase,
                is_paused=is_paused,
                is_trained=job.ledger.is_finished,
                is_evaluating=job.tasks.round is not None,
                is_computing=job.updates.num_computing > 0,
                last_contribution_s=now_s - silent_s,
                typical_step_s=job.sessions.liveness.typical_step_s,
            )
        )

    @contextmanager
    def checkpointing(self) -> Iterator[None]:
        """Everything waits for a checkpoint while the block runs, or several that overlap."""
        if self._num_waits == 0:
            self._before_waits = self._account.current
            self._account.enter(TimeCategory.CHECKPOINT, self._clock())
        self._num_waits += 1
        try:
            yield
        finally:
            self._num_waits -= 1
            if self._num_waits == 0:
                self._account.enter(self._before_waits, self._clock())

    def end_s(self) -> float:
        """Now, but never before what has been counted: the clock may have been set back."""
        return max(self._clock(), self._account.since_s)

    def split(self, until_s: float) -> TimeSplit:
        """The account as of a moment."""
        return self._account.split(until_s)
