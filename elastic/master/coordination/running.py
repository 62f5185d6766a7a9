"""The parts of a job whose model is there, as those who look at it or act on it get them.

`Tasks` says which worker works on what: tasks leased, given back, lost and failed. There are two
kinds of work: the training records, and a round (an evaluation, a prediction) on one version of the
model, of which one is open at a time.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from elastic.master.coordination.rounds import FIRST_TASK_ID, Round
from elastic.master.coordination.sessions import (
    FailureReport,
    Failures,
    JobFailure,
    Sessions,
    WorkerSession,
)
from elastic.master.coordination.updates import CommitLog, Updates
from elastic.master.parameters.strategy import AnyStrategy
from elastic.policy.evaluation import may_evaluate
from elastic.policy.fleet import Liveness
from elastic.policy.minibatches import Retry
from elastic.policy.replicas import ReplicaId
from elastic.policy.tasks.ledger import Ledger, NoTask, Refusal, SkipRecord
from elastic.policy.tasks.records import Task, TaskKind
from elastic.policy.updates.elastic_batch import BatchChoice
from elastic.policy.updates.update_group import UpdateRule
from elastic.telemetry.meter import JobMeter

log = logging.getLogger(__name__)


class Tasks:
    """Leases tasks to the open sessions, and takes them back.

    Attributes:
        ledger: Of the training records; without any in a job that trains nothing.
        failures: Counts the minibatches that the user's code failed on.
    """

    def __init__(
        self,
        ledger: Ledger,
        sessions: Sessions,
        updates: Updates,
        failure: JobFailure,
        on_event: Callable[[str, str], None],
    ) -> None:
        """Keep the parts.

        Args:
            updates: Told who computes on training records, and that records need no gradient.
        """
        self.ledger = ledger
        self.failures = Failures(on_event)
        self._sessions = sessions
        self._updates = updates
        self._failure = failure
        self._round: Round | None = None
        self._is_training_held = False
        self._is_closed = False

    # -- what there is to do -------------------------------------------------------------------

    @property
    def round(self) -> Round | None:
        """The round that is open."""
        return self._round

    def open_round(self, round_: Round) -> None:
        """Have the workers do a round, beside training or after it."""
        self._round = round_

    def close_round(self) -> None:
        """The round is done; its reports are for nobody any more."""
        self._round = None

    def hold_training(self, *, is_held: bool = True) -> None:
        """Hand out no training records, as while an evaluation has to be waited for; or again."""
        self._is_training_held = is_held

    def close(self) -> None:
        """Tell every worker that asks that the job is done."""
        self._is_closed = True

    # -- leases --------------------------------------------------------------------------------

    async def admit(self, session: WorkerSession) -> None:
        """Let a worker that is about to ask for training records wait, if that is better."""
        has_records = self.ledger.num_queued > 0 and not self._trains_nothing
        if self._updates.is_computing(session) or not has_records:
            return
        if self._round_for(session) is None:
            await self._updates.wait_to_begin(session)

    def lease(self, session: WorkerSession, working_on: int | None = None) -> Task | NoTask:
        """The next task for a worker: of the open round, or of the training records.

        Args:
            session: Of the worker.
            working_on: The task it is about to end, if it asks ahead for one to follow: to have
                its records read meanwhile.
        """
        if self._is_closed:
            return NoTask.FINISHED
        # Who asks for a task has dropped what it held, such as one whose reply never came.
        self._take_back(session.worker, but=working_on)
        if working_on is not None:
            task = self._task_to_follow(session, working_on)
        else:
            task = self._next_task(session)
            self._begin(session, task)
        # Also without a task: who is told to wait asks again at once, or hangs.
        self._sessions.progressed(session)
        if not isinstance(task, Task):
            return NoTask.WAIT
        self._foresee()
        return task

    def _foresee(self) -> None:
        """Have the next lease prepared while the workers compute."""
        prepare = self.ledger.foresee()
        if prepare is not None:
            asyncio.get_running_loop().run_in_executor(None, prepare)

    def release(self, session: WorkerSession, task_id: int, attempt: int) -> bool:
        """Take back the rest of a lease; its worker asks for another, or is about to end."""
        self._updates.ends(session)
        return self._ledger_of(task_id).release(task_id, attempt)

    def lose(self, replica: ReplicaId) -> list[Task]:
        """Take everything back from a worker that is gone or fenced."""
        session = self._sessions.of(replica)
        if session is not None and session.replica == replica:
            self._sessions.close(session)
            self._updates.left(session)
        self._sessions.liveness.left(replica)
        return self._take_back(replica.launch_name)

    # -- reports -------------------------------------------------------------------------------

    def note_round_progress(
        self, session: WorkerSession, records: int, step_s: float | None
    ) -> None:
        """A worker has come further in a round: the work of a job that trains nothing."""
        if self.ledger.num_records:
            self._sessions.progressed(session)
        else:
            self._sessions.contributed(session, records, step_s)

    async def commit_empty(
        self, session: WorkerSession, task_id: int, attempt: int, start: int, end: int
    ) -> bool:
        """Count records of which dataset_fn made no example; False if the lease was lost."""
        round_ = self._round_of(task_id)
        if round_ is None:
            return await self._updates.commit_empty(session, task_id, attempt, start, end)
        staged = round_.ledger.stage(task_id, attempt, start, end)
        if isinstance(staged, Refusal):
            return False
        self._sessions.progressed(session)
        with self._failure.on_error():
            round_.ledger.commit([staged])
            round_.note_progress()
        return True

    async def failed(self, session: WorkerSession, report: FailureReport) -> bool:
        """The user's code failed on records of a task; False if the lease was lost before."""
        ledger = self._ledger_of(report.task_id)
        self._sessions.progressed(session)
        task = ledger.task_of(report.task_id, report.attempt)
        verdict = ledger.fail(
            report.task_id, report.attempt, report.start, report.end, report.runs_at
        )
        if task is None or isinstance(verdict, Refusal):
            return False
        log.warning(
            "records [%d, %d) of task %d failed: %s\n%s",
            report.start, report.end, report.task_id, report.message, report.trace,
        )  # fmt: skip
        error = self.failures.judge(verdict, report, task, session.replica)
        if error is not None:
            self._failure.fail(error)
        elif isinstance(verdict, SkipRecord):
            await self._skipped(session, report.task_id)
        return True

    def searched(self, session: WorkerSession, report: FailureReport) -> bool:
        """A worker has computed a part of what failed, or goes on in parts by itself."""
        self._sessions.progressed(session)
        ledger = self._ledger_of(report.task_id)
        task = ledger.task_of(report.task_id, report.attempt)
        if task is None:
            return False
        size = report.end - report.start
        if report.runs_at and ledger.shrink_to(report.runs_at):
            self.failures.shrunk(task.kind, size, report.runs_at, report.message)
        elif report.message and not report.runs_at:
            self.failures.retry(Retry.WHOLE, report, task, session.replica)
        elif not report.message:
            self.failures.part_computed(size)
        return True

    # -- inside --------------------------------------------------------------------------------

    @property
    def _trains_nothing(self) -> bool:
        return self.ledger.is_finished or self._is_training_held

    def _next_task(self, session: WorkerSession) -> Task | NoTask:
        if self._failure.error is not None:
            # The job is about to end: what came of another task would stand beside the reason.
            return NoTask.WAIT
        round_, has_peers = self._round_for(session), self._has_peers(session)
        task: Task | NoTask = NoTask.WAIT
        if round_ is not None:
            task = round_.lease(session.worker, has_peers=has_peers)
        if isinstance(task, Task) or self._trains_nothing:
            return task
        return self.ledger.lease(session.worker, has_peers=has_peers)

    def _task_to_follow(self, session: WorkerSession, task_id: int) -> Task | NoTask:
        """One of the same kind, so that who trains is told from who evaluates by its calls.

        A worker that trains gets none while there is something to evaluate: it will ask again.
        """
        ledger, round_ = self._ledger_of(task_id), self._round_for(session)
        if not ledger.holds_lease(session.worker, task_id):
            return NoTask.WAIT
        has_peers = self._has_peers(session)
        if round_ is not None and ledger is round_.ledger:
            return round_.lease(session.worker, has_peers=has_peers, is_ahead=True)
        is_round_due = round_ is not None and round_.ledger.num_queued > 0
        if ledger is not self.ledger or is_round_due or self._trains_nothing:
            return NoTask.WAIT
        return ledger.lease(session.worker, has_peers=has_peers, is_ahead=True)

    def _begin(self, session: WorkerSession, task: Task | NoTask) -> None:
        """Tell those who wait for updates, and the speeds, what a worker does now."""
        is_training = isinstance(task, Task) and task.kind is TaskKind.TRAINING
        if isinstance(task, Task):
            others = self._sessions.others(session)
            if is_training:
                is_new = not self._updates.is_computing(session)
                is_alone = not any(map(self._updates.is_computing, others))
            else:
                is_new, ledger = True, self._ledger_of(task.task_id)
                is_alone = not any(ledger.holds_lease(other.worker) for other in others)
            if is_new:
                self._sessions.work_begins(session, is_alone=is_alone)
        # Who searches fills no group meanwhile.
        if isinstance(task, Task) and is_training and not task.is_search:
            self._updates.begins(session)
        else:
            self._updates.ends(session)

    def _has_peers(self, session: WorkerSession) -> bool:
        """Whether another worker has shown that it can compute."""
        return any(other.records_done for other in self._sessions.others(session))

    def _round_for(self, session: WorkerSession) -> Round | None:
        """The open round, unless enough others work at it."""
        if self._round is None:
            return None
        others = self._sessions.others(session)
        num_at_it = sum(self._round.ledger.holds_lease(other.worker) for other in others)
        may = may_evaluate(len(others) + 1, num_at_it, self._trains_nothing)
        return self._round if may else None

    def _round_of(self, task_id: int) -> Round | None:
        return self._round if task_id >= FIRST_TASK_ID else None

    def _ledger_of(self, task_id: int) -> Ledger:
        round_ = self._round_of(task_id)
        return self.ledger if round_ is None else round_.ledger

    def _take_back(self, worker: str, but: int | None = None) -> list[Task]:
        lost = self.ledger.lose_worker(worker, but)
        if self._round is not None:
            lost += self._round.ledger.lose_worker(worker, but)
        return lost

    async def _skipped(self, session: WorkerSession, task_id: int) -> None:
        """A record that is skipped may be the last one that its epoch, or round, has waited for."""
        round_ = self._round_of(task_id)
        if round_ is not None:
            round_.ledger.end_epoch_if_complete()
            round_.note_progress()
            return
        with self._sessions.serving(session):
            await self._updates.end_epoch_if_complete()


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of what happens.

    Attributes:
        on_event: Told an event, as its kind and its message.
        on_contribution: Told of each worker whose records count.
        meter: Adds up, for curves and metrics.
    """

    on_event: Callable[[str, str], None]
    on_contribution: Callable[[ReplicaId], None]
    meter: JobMeter


@dataclass(frozen=True, slots=True)
class RunningJob:
    """One job in this life of the master.

    Attributes:
        ledger: Of the training records; without any in a job that trains nothing.
        parameters: Where they live.
    """

    ledger: Ledger
    parameters: AnyStrategy
    sessions: Sessions
    tasks: Tasks
    updates: Updates
    failure: JobFailure

    @classmethod
    def assemble(
        cls,
        ledger: Ledger,
        parameters: AnyStrategy,
        rule: UpdateRule,
        liveness: Liveness,
        commit_log: CommitLog,
        listeners: Listeners,
        loss: float | None = None,
        batch: BatchChoice | None = None,
    ) -> "RunningJob":
        """Put the parts together, as ledger and parameters stand.

        Args:
            loss: As it was last, in the cut that they are from.
            batch: How many records make an update, where that is chosen.
        """
        failure = JobFailure()
        sessions = Sessions(liveness, listeners.on_contribution)
        updates = Updates(
            ledger,
            parameters,
            rule,
            sessions,
            commit_log,
            failure,
            listeners.on_event,
            listeners.meter,
            loss,
            batch,
        )
        tasks = Tasks(ledger, sessions, updates, failure, listeners.on_event)
        return cls(ledger, parameters, sessions, tasks, updates, failure)
