"""Workers as this life of the master knows them: who is there, how fast, and what has failed."""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from elastic.errors import TrainingError, UserError
from elastic.policy.fleet import Hang, Liveness
from elastic.policy.minibatches import Retry, SizeFault
from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks.ledger import LedgerError, PoisonedRecord, SkipRecord
from elastic.policy.tasks.records import Task, TaskKind
from elastic.policy.updates.update_group import Outcome
from elastic.rpc.layout import Mappings

WINDOW_S: Final = 10.0
"""What a speed is told of."""
WINDOW_STEPS: Final = 5.0
"""Unless so many typical steps take longer."""


@dataclass(slots=True)
class WorkerSession:
    """One worker process as the master knows it.

    Attributes:
        replica: Which launch of which replica it is.
        memory: Of the worker's, what is mapped here for rows.
        sequence: The newest report, with its outcome in `reply`, so that a repeated report is
            answered and not counted again.
    """

    key: str
    replica: ReplicaId
    pid: int
    host: str
    memory: Mappings = field(default_factory=Mappings)
    sequence: int = 0
    reply: "asyncio.Future[Outcome] | None" = None
    records_done: int = 0
    rate: "RateMeter" = field(default_factory=lambda: RateMeter())

    @property
    def worker(self) -> str:
        """Its name in the ledger."""
        return self.replica.launch_name


@dataclass(slots=True)
class RateMeter:
    """Records per second over a sliding window.

    Every record but those of the oldest mark was done since that mark, which opens the span: of
    steps that take longer than the window, there are always two marks.
    """

    _marks: deque[tuple[float, int]] = field(default_factory=deque)
    _records: int = 0
    _window_s: float = WINDOW_S

    def add(self, now_s: float, records: int) -> None:
        """Count records that were done now."""
        if self._marks:
            self._records += records
        self._marks.append((now_s, records))
        self._drop(now_s)

    def resume(self, now_s: float) -> None:
        """Work begins again: after a pause longer than the window, so does what is told of it.

        Shorter ones, as at the end of an epoch, are a part of the speed.
        """
        if self._marks and now_s - self._marks[-1][0] > self._window_s:
            self._marks = deque([(now_s, 0)])
            self._records = 0

    def per_second(self, now_s: float, step_s: float | None = None) -> float:
        """The rate over the window, or over the time since the first record if shorter.

        Args:
            now_s: Now, by the clock of `add`.
            step_s: What a step typically takes, if that is known. The records of all workers may
                come at once, so the window holds several of such steps; nor is it a standstill
                that nothing comes while one is under way.
        """
        step_s = step_s or 0.0
        self._window_s = max(WINDOW_S, WINDOW_STEPS * step_s)
        self._drop(now_s)
        if len(self._marks) < 2:
            return 0.0
        (opened_s, _), (last_s, _) = self._marks[0], self._marks[-1]
        ends_s = max(last_s, now_s - step_s)
        span_s = max(ends_s - opened_s, step_s)
        return self._records / span_s if span_s > 0 else 0.0

    def _drop(self, now_s: float) -> None:
        while len(self._marks) > 2 and self._marks[1][0] <= now_s - self._window_s:
            self._marks.popleft()
            self._records -= self._marks[0][1]


class Sessions:
    """The open sessions, and what is seen of each: signs of life, records, speed.

    Attributes:
        liveness: Judges who hangs.
        last_contribution_s: When records counted last, by the monotonic clock; 0 before the first.
    """

    def __init__(self, liveness: Liveness, on_contribution: Callable[[ReplicaId], None]) -> None:
        """Begin without any.

        Args:
            liveness: Judges who hangs.
            on_contribution: Told of each worker whose records count.
        """
        self.liveness = liveness
        self.last_contribution_s = 0.0
        self._rate = RateMeter()
        self._on_contribution = on_contribution
        self._by_key: dict[str, WorkerSession] = {}
        self._by_name: dict[str, WorkerSession] = {}

    # -- who is there --------------------------------------------------------------------------

    def open(self, replica: ReplicaId, pid: int, host: str) -> WorkerSession:
        """Begin a session; there must be none of another launch of that replica."""
        assert replica.name not in self._by_name, "the old session of a replica is lost first"
        session = WorkerSession(secrets.token_hex(8), replica, pid, host)
        self._by_key[session.key] = session
        self._by_name[replica.name] = session
        self.liveness.joined(replica, time.monotonic())
        return session

    def close(self, session: WorkerSession) -> None:
        """Forget a session; its later calls are refused."""
        self._by_key.pop(session.key, None)
        if self._by_name.get(session.replica.name) is session:
            del self._by_name[session.replica.name]

    def find(self, key: str) -> WorkerSession | None:
        return self._by_key.get(key)

    def of(self, replica: ReplicaId) -> WorkerSession | None:
        """That of a replica, whichever of its launches has it."""
        return self._by_name.get(replica.name)

    def all(self) -> list[WorkerSession]:
        return list(self._by_key.values())

    def others(self, session: WorkerSession) -> list[WorkerSession]:
        """All but one."""
        return [each for each in self._by_key.values() if each is not session]

    # -- what they do --------------------------------------------------------------------------

    def progressed(self, session: WorkerSession, step_s: float | None = None) -> None:
        """Note progress; `step_s` is how long a completed step took."""
        self.liveness.progressed(session.replica, time.monotonic(), step_s)

    def contributed(self, session: WorkerSession, records: int, step_s: float | None) -> None:
        """Count records of the job's own that a worker has brought."""
        now_s = time.monotonic()
        self.liveness.progressed(session.replica, now_s, step_s)
        session.records_done += records
        session.rate.add(now_s, records)
        self._rate.add(now_s, records)
        self.last_contribution_s = now_s
        self._on_contribution(session.replica)

    @contextmanager
    def serving(self, session: WorkerSession) -> Iterator[None]:
        """A call may have to wait for the parameters: a worker that waits for it does not hang."""
        watch = self.liveness.call_begins(session.replica)
        try:
            yield
        finally:
            self.liveness.call_ends(watch, time.monotonic())

    def hangs(self) -> list[Hang]:
        """The workers that are silent for too long; to be asked at least every second."""
        return self.liveness.hangs(time.monotonic())

    # -- how fast ------------------------------------------------------------------------------

    @property
    def samples_per_s(self) -> float:
        """Records that count per second, now."""
        return self._rate.per_second(time.monotonic(), self.liveness.typical_step_s)

    def work_begins(self, session: WorkerSession, *, is_alone: bool) -> None:
        """Leave out of the speeds the time in which a worker, or all, had nothing to do."""
        now_s = time.monotonic()
        session.rate.resume(now_s)
        if is_alone:
            self._rate.resume(now_s)

    def resume_rates(self) -> None:
        """Leave a pause of the whole job out of all speeds."""
        now_s = time.monotonic()
        for meter in (self._rate, *(session.rate for session in self._by_key.values())):
            meter.resume(now_s)


# What fails: minibatches by the user's code, counted and told as it happens; and the job.


FAILED: Final = "MinibatchFailed"
SHRUNK: Final = "MinibatchesShrunk"


@dataclass(frozen=True, slots=True)
class FailureReport:
    """What a worker tells of a failure; see `Ledger.fail`.

    Attributes:
        message: The exception, with the user's line.
        trace: The whole traceback.
    """

    task_id: int
    attempt: int
    start: int
    end: int
    message: str
    trace: str
    runs_at: int = 0


class JobFailure:
    """Why a job must end, if it must; the first reason stands.

    Attributes:
        event: Set when there is one.
    """

    def __init__(self) -> None:
        self.error: UserError | None = None
        self.event = asyncio.Event()

    def fail(self, error: UserError) -> None:
        """End the job."""
        if self.error is None:
            self.error = error
            self.event.set()

    @contextmanager
    def on_error(self) -> Iterator[None]:
        """What goes wrong between an update and its account ends the job, told by its reason."""
        try:
            yield
        except LedgerError as error:
            self.fail(TrainingError(f"the ledger does not add up: {error}"))
        except UserError as error:
            self.fail(error)


class Failures:
    """Counts over this life of the master.

    Attributes:
        tried_again: Minibatches that failed and were given out whole again.
        computed_alone: Times that one record was computed by itself, to see whether it fails.
    """

    def __init__(self, on_event: Callable[[str, str], None]) -> None:
        """Take what tells events."""
        self.tried_again = 0
        self.computed_alone = 0
        self._on_event = on_event

    def part_computed(self, num_records: int) -> None:
        """A part of what failed was computed, in search of the record that fails."""
        self.computed_alone += num_records == 1

    def judge(
        self,
        verdict: Retry | SizeFault | SkipRecord | PoisonedRecord,
        report: FailureReport,
        task: Task,
        replica: ReplicaId,
    ) -> UserError | None:
        """Count and tell what the ledger has decided; what ends the job is returned."""
        match verdict:
            case PoisonedRecord():
                return TrainingError(
                    f"record {verdict.index} of {verdict.shard_name!r} failed on "
                    f"{verdict.attempts} attempts: {report.message}: mend the record or the "
                    "model_def, or allow it with --skip_bad_records"
                )
            case SkipRecord():
                self._on_event(
                    "RecordSkipped",
                    f"record {verdict.index} of {verdict.shard_name!r} failed for good: "
                    f"{report.message}",
                )
            case SizeFault() if verdict.goes_on:
                self.shrunk(task.kind, verdict.fails_at, verdict.runs_at, report.message)
            case SizeFault():
                where = task.tell(report.start, report.end)
                too_what = _too_large if verdict.fails_at > 1 else _too_small
                return too_what(verdict, where, report.message)
            case Retry():
                self.retry(verdict, report, task, replica)
        return None

    def shrunk(self, kind: TaskKind, fails_at: int, runs_at: int, message: str) -> None:
        """Tell that the job goes on with smaller minibatches."""
        self._on_event(
            SHRUNK,
            f"{kind} fails at {fails_at} records a minibatch and runs at {runs_at}, with which it "
            f"goes on: {message}",
        )

    def retry(self, retry: Retry, report: FailureReport, task: Task, replica: ReplicaId) -> None:
        """Tell that a minibatch, or a record by itself, failed and is tried again."""
        self.tried_again += retry is Retry.WHOLE
        self.computed_alone += retry is Retry.ALONE
        self._on_event(
            FAILED,
            f"{task.tell(report.start, report.end)} failed on {replica.name}: "
            f"{report.message}: {_NEXT[retry]}",
        )


_NEXT: Final = {
    Retry.WHOLE: "the minibatch is tried again",
    Retry.IN_PARTS: "it is computed in parts, to find the record that fails",
    Retry.ALONE: "it is tried again by itself",
}


def _too_small(fault: SizeFault, where: str, message: str) -> UserError:
    return TrainingError(
        f"the minibatch fails at 1 record, runs at {fault.runs_at} ({where}, which is not to "
        f"blame): {message}: leave out an epoch's short last minibatch with --drop_last, or take a "
        "--minibatch_size that leaves no single record"
    )


def _too_large(fault: SizeFault, where: str, message: str) -> UserError:
    return TrainingError(
        f"the minibatch fails at {fault.fails_at} records, runs at {fault.runs_at} "
        f"({where}, none of which is to blame): {message}: give --minibatch_size "
        f"{fault.runs_at}, or --shrink_minibatches to go on with the size that runs"
    )
