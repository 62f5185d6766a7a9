"""Where policy meets the running job: sessions, the ledger, the open group of gradients.

Everything here runs on one event loop, so a decision and what follows from it are not
interrupted but where `await` stands; the parameters' lock covers those places.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from elastic.errors import TrainingError, UserError
from elastic.frameworks.base import MetricState
from elastic.master.averaging import Contribution, WeightedSum
from elastic.master.commit_log import CommitLog
from elastic.master.epoch_meter import EpochMeter, MeanLoss
from elastic.master.evaluation import FIRST_TASK_ID, Round
from elastic.master.failures import FailureReport, Failures
from elastic.master.metric_sums import MetricSums
from elastic.master.parameters import ParameterStore
from elastic.master.sessions import RateMeter, Sessions, WorkerSession
from elastic.policy.aggregation import (
    Accept,
    LateGradients,
    RefuseStale,
    UpdateRule,
    hold_limit_s,
    is_update_due,
    judge_gradient,
    should_hold_reply,
    should_wait_to_begin,
)
from elastic.policy.at_work import AtWork
from elastic.policy.ending import Ending, ending_at
from elastic.policy.epochs import EpochResult
from elastic.policy.evaluation import may_evaluate
from elastic.policy.failing import Retry
from elastic.policy.ledger import (
    Audit,
    Ledger,
    LedgerError,
    NoTask,
    Refusal,
    SkipRecord,
    StagedRange,
)
from elastic.policy.liveness import Hang, Liveness
from elastic.policy.oddities import ADVICE, Oddity
from elastic.policy.records import Task, TaskKind
from elastic.telemetry.meter import JobMeter
from elastic.telemetry.samples import LEASE_LOST, STALE
from elastic.telemetry.summary import account_text, left_out_text, result_text

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GradientReport:
    """A received gradient: what it claims, and its arrays."""

    task_id: int
    attempt: int
    start: int
    end: int
    model_version: int
    loss: float
    step_s: float
    metrics: Sequence[MetricState] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a gradient: None as refusal means it was accepted."""

    refusal: RefuseStale | Refusal | None
    model_version: int


async def _nothing() -> None:
    pass


async def _nothing_at_epoch_end(_result: EpochResult) -> None:
    pass


class Coordinator:
    """Accepts and refuses; applies and commits in one step."""

    def __init__(
        self,
        ledger: Ledger,
        store: ParameterStore,
        rule: UpdateRule,
        liveness: Liveness,
        commit_log: CommitLog,
        on_event: Callable[[str, str], None],
    ) -> None:
        self.ledger = ledger
        self.store = store
        self.sessions = Sessions()
        self.liveness = liveness
        self.evaluation: Round | None = None
        self.loss: float | None = None
        self.rejected_gradients = 0
        self.failures = Failures(on_event)
        self.rate = RateMeter()
        self.last_contribution_s = 0.0
        self.failure: UserError | None = None
        self.ending: Ending | None = None
        self.on_update: Callable[[], Awaitable[None]] = _nothing
        self.on_epoch_end: Callable[[EpochResult], Awaitable[None]] = _nothing_at_epoch_end
        self.on_epoch_result: Callable[[EpochResult], None] = lambda _result: None
        self.epochs = EpochMeter()
        self.is_held = False
        self.meter = JobMeter()
        self.on_contribution: Callable[[int], None] = lambda _index: None
        self.training_done = asyncio.Event()
        self.failed = asyncio.Event()
        self.closed = False
        self._rule = rule
        self._commit_log = commit_log
        self._on_event = on_event
        self._group = WeightedSum(store.parameter_layout, store.state_layout)
        self._staged: list[StagedRange] = []
        self._group_loss = MeanLoss()
        self._group_metrics = MetricSums()
        self._staleness = 0
        self._late = LateGradients(rule)
        self._told_oddities: set[Oddity] = set()
        self._at_work = AtWork()
        self._is_updating = False
        self._woken = asyncio.Event()
        if ledger.is_finished:
            self.training_done.set()
        self._end_if_due()

    @property
    def samples_per_s(self) -> float:
        """Records that count per second, now."""
        return self.rate.per_second(time.monotonic(), self.liveness.typical_step_s)

    # -- tasks ---------------------------------------------------------------------------------

    def lease(self, session: WorkerSession, working_on: int | None = None) -> Task | NoTask:
        """The next task for a worker: of the open evaluation, or of the training records.

        Args:
            session: Of the worker.
            working_on: The task it is about to end, if it asks ahead for one to follow: to have
                its records read meanwhile.
        """
        if self.closed:
            return NoTask.FINISHED
        # Who asks for a task has dropped what it held, such as one whose reply never came.
        self._take_back(session.worker, but=working_on)
        if working_on is not None:
            return self._task_to_follow(session, working_on)
        task = self._next_task(session)
        if isinstance(task, Task):
            self._begin_work(session, task)
        # Who searches fills no group meanwhile.
        if isinstance(task, Task) and task.kind is TaskKind.TRAINING and not task.is_search:
            now_s = time.monotonic()
            self._at_work.begins(session.key, now_s)
            self.epochs.work_begins(now_s)
        else:
            self._stop_computing(session)
        # Also without a task: who is told to wait asks again at once, or hangs.
        self.liveness.progressed(session.worker, time.monotonic())
        return task if isinstance(task, Task) else NoTask.WAIT

    def _next_task(self, session: WorkerSession) -> Task | NoTask:
        evaluation, has_peers = self._evaluation_for(session), self._has_peers(session)
        task: Task | NoTask = NoTask.WAIT
        if evaluation is not None:
            task = evaluation.lease(session.worker, has_peers=has_peers)
        if isinstance(task, Task) or self._trains_nothing:
            return task
        return self.ledger.lease(session.worker, has_peers=has_peers)

    def _task_to_follow(self, session: WorkerSession, task_id: int) -> Task | NoTask:
        """One of the same kind, so that who trains is told from who evaluates by its calls.

        A worker that trains gets none while there is something to evaluate: it will ask again.
        """
        self.liveness.progressed(session.worker, time.monotonic())
        ledger, evaluation = self._ledger_of(task_id), self._evaluation_for(session)
        has_lease = ledger.holds_lease(session.worker, task_id)
        is_evaluation_due = evaluation is not None and evaluation.ledger.num_queued > 0
        has_peers = self._has_peers(session)
        task: Task | NoTask = NoTask.WAIT
        if has_lease and evaluation is not None and ledger is evaluation.ledger:
            task = evaluation.lease(session.worker, has_peers=has_peers, is_ahead=True)
        elif (
            has_lease and ledger is self.ledger and not (is_evaluation_due or self._trains_nothing)
        ):
            task = ledger.lease(session.worker, has_peers=has_peers, is_ahead=True)
        return task if isinstance(task, Task) else NoTask.WAIT

    def _has_peers(self, session: WorkerSession) -> bool:
        """Whether another worker has shown that it can compute."""
        return any(s.records_done for s in self.sessions.all() if s is not session)

    def _evaluation_for(self, session: WorkerSession) -> Round | None:
        """The open evaluation, unless enough others work at it."""
        if self.evaluation is None:
            return None
        others = [s for s in self.sessions.all() if s is not session]
        num_evaluating = sum(self.evaluation.ledger.holds_lease(s.worker) for s in others)
        may = may_evaluate(len(others) + 1, num_evaluating, self._trains_nothing)
        return self.evaluation if may else None

    @property
    def _trains_nothing(self) -> bool:
        return self.ledger.is_finished or self.is_held

    def release(self, session: WorkerSession, task_id: int, attempt: int) -> bool:
        """Take back the rest of a lease; its worker asks for another, or is about to end."""
        self._stop_computing(session)
        return self._ledger_of(task_id).release(task_id, attempt)

    # -- gradients -----------------------------------------------------------------------------

    def precheck(self, session: WorkerSession, report: GradientReport) -> Outcome | None:
        """Refuse before the tensors are received, where that is certain already.

        Raises:
            ValueError: The report names a version that does not exist.
        """
        verdict = judge_gradient(self._rule, report.model_version, self.store.version)
        if self.training_done.is_set():
            return self._refuse_after_end(session, report)
        if isinstance(verdict, RefuseStale):
            self._count_late(session, report)
            return Outcome(verdict, self.store.version)
        return None

    async def add_gradient(
        self, session: WorkerSession, report: GradientReport, contribution: Contribution
    ) -> Outcome:
        """Judge a gradient; apply its group when that is complete.

        Raises:
            ValueError: The report breaks the protocol; nothing was changed.
        """
        with self.serving(session):
            async with self.store.lock:
                outcome = self._accept(session, report, contribution)
                if outcome.refusal is not None:
                    return outcome
                applied = await self._apply_if_due()
                if not applied:
                    self._group.own()
            if not applied:
                await self._hold(session)
            self._go_on(session)
            return Outcome(None, self.store.version)

    @contextmanager
    def serving(self, session: WorkerSession) -> Iterator[None]:
        """A call may have to wait for the parameters: a worker that waits for it does not hang."""
        watch = self.liveness.call_begins(session.worker)
        try:
            yield
        finally:
            self.liveness.call_ends(watch, time.monotonic())

    def _accept(
        self, session: WorkerSession, report: GradientReport, contribution: Contribution
    ) -> Outcome:
        version = self.store.version
        verdict = judge_gradient(self._rule, report.model_version, version)
        if self.training_done.is_set():
            return self._refuse_after_end(session, report)
        if isinstance(verdict, RefuseStale):
            self._count_late(session, report)
            return Outcome(verdict, version)
        for sums in (self._group_metrics, self.epochs.metrics):
            sums.check(report.metrics)
        staged = self.ledger.stage(report.task_id, report.attempt, report.start, report.end)
        if staged is Refusal.OUT_OF_ORDER:
            raise ValueError(
                f"records [{report.start}, {report.end}) are not the next of task {report.task_id}"
            )
        if isinstance(staged, Refusal):
            self._count_refused(session, report, LEASE_LOST)
            return Outcome(staged, version)
        assert isinstance(verdict, Accept)
        contribution.learning_rate_scale = verdict.learning_rate_scale
        self._group.add(contribution)
        self._late.accept()
        self._staged.append(staged)
        records = report.end - report.start
        self._group_loss.add(report.loss, records)
        self._group_metrics.add(report.metrics)
        self.loss = report.loss
        self._note_contribution(session, records, report.step_s)
        self._staleness = version - report.model_version
        self.meter.accept(report.loss, records, self._staleness, report.step_s)
        return Outcome(None, version)

    def _note_contribution(
        self, session: WorkerSession, records: int, step_s: float | None
    ) -> None:
        now_s = time.monotonic()
        self.liveness.progressed(session.worker, now_s, step_s)
        session.records_done += records
        session.rate.add(now_s, records)
        self.rate.add(now_s, records)
        self.last_contribution_s = now_s
        self.on_contribution(session.index)

    def note_round_progress(
        self, session: WorkerSession, records: int, step_s: float | None
    ) -> None:
        """A worker has come further in a round: the work of a job that trains nothing."""
        if self.ledger.num_records:
            self.liveness.progressed(session.worker, time.monotonic())
        else:
            self._note_contribution(session, records, step_s)

    async def _apply_if_due(self) -> bool:
        """Apply and commit the open group if it is complete; the caller holds the lock."""
        if not is_update_due(self._rule, self._group.count, self.ledger.only_staged_left):
            return False
        with self._failing_the_job():
            await self._apply()
        return True

    @contextmanager
    def _failing_the_job(self) -> Iterator[None]:
        """What goes wrong between an update and its account ends the job, told by its reason."""
        try:
            yield
        except LedgerError as error:
            self.fail_job(TrainingError(f"the ledger does not add up: {error}"))
        except UserError as error:
            self.fail_job(error)

    async def _apply(self) -> None:
        group, staged = self._group, self._staged
        self._group, self._staged = group.successor(), []
        self.epochs.loss.take(self._group_loss)
        self.epochs.metrics.take(self._group_metrics)
        share = 1.0 / (1 + self._staleness) if self._rule.is_async else 1.0
        began_s = time.perf_counter()
        self._is_updating = True
        try:
            await self.store.apply(group, share)
        finally:
            self._is_updating = False
        audit = self.ledger.commit(staged)
        self.meter.update(time.perf_counter() - began_s)
        self.meter.commit(sum(item.records.num_records for item in staged))
        self._commit_log.append(self.store.version, self.ledger, audit, staged)
        self._wake_held()
        if audit is not None:
            await self._end_epoch(audit)
        self._end_if_due()
        await self.on_update()

    async def commit_empty(
        self, session: WorkerSession, task_id: int, attempt: int, start: int, end: int
    ) -> bool:
        """Count records of which dataset_fn made no example: they have no gradient to wait for."""
        with self.serving(session):
            async with self.store.lock:
                return await self._commit_empty(session, task_id, attempt, start, end)

    async def _commit_empty(
        self, session: WorkerSession, task_id: int, attempt: int, start: int, end: int
    ) -> bool:
        ledger = self._ledger_of(task_id)
        staged = ledger.stage(task_id, attempt, start, end)
        if isinstance(staged, Refusal):
            return False
        self.liveness.progressed(session.worker, time.monotonic())
        with self._failing_the_job():
            audit = ledger.commit([staged])
            if ledger is self.ledger:
                self.meter.commit(end - start)
                self._commit_log.append(self.store.version, ledger, audit, [staged])
                if audit is not None:
                    await self._end_epoch(audit)
            elif self.evaluation is not None:
                self.evaluation.note_progress()
        await self._apply_if_due()
        return True

    async def admit(self, session: WorkerSession) -> None:
        """Let a worker that is about to begin wait for an update that others are about to fill.

        What it computed on the version before that would only be refused.
        """
        is_at_work = session.key in self._at_work
        has_records = self.ledger.num_queued > 0 and not self._trains_nothing
        if is_at_work or not has_records or self._evaluation_for(session) is not None:
            return
        with self.serving(session):
            await self._wait_for_update(
                lambda: should_wait_to_begin(
                    self._rule,
                    self._group.count,
                    self._at_work.num_awaited,
                    len(self.sessions.all()),
                )
            )

    async def _hold(self, session: WorkerSession) -> None:
        """Let a worker wait for its group as long as others can still fill it."""
        self._at_work.ends(session.key)
        await self._wait_for_update(
            lambda: should_hold_reply(self._rule, self._group.count, self._at_work.num_awaited)
        )

    def _go_on(self, session: WorkerSession) -> None:
        """It is answered and computes the next gradient, or the same again, if it is not lost."""
        if self.sessions.find(session.key) is session:
            now_s = time.monotonic()
            self._at_work.begins(session.key, now_s)
            self.liveness.progressed(session.worker, now_s)

    async def _wait_for_update(self, is_worth_it: Callable[[], bool]) -> None:
        version, since_s = self.store.version, time.monotonic()
        # While the update is made, its group is empty: what is begun now would be too late.
        while (
            self.store.version == version
            and not self.training_done.is_set()
            and (self._is_updating or is_worth_it())
        ):
            left_s = since_s + hold_limit_s(self.liveness.typical_step_s) - time.monotonic()
            if left_s > 0:
                woken = self._woken
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), left_s)
            else:
                self._at_work.give_up(since_s)
                since_s = time.monotonic()
                self._wake_held()

    def _begin_work(self, session: WorkerSession, task: Task) -> None:
        """Leave what nobody has worked out of the speeds."""
        now_s = time.monotonic()
        others = [other for other in self.sessions.all() if other is not session]
        if task.kind is TaskKind.TRAINING:
            was_at_work = session.key in self._at_work
            is_alone = not any(other.key in self._at_work for other in others)
        else:
            was_at_work, ledger = False, self._ledger_of(task.task_id)
            is_alone = not any(ledger.holds_lease(other.worker) for other in others)
        if not was_at_work:
            session.rate.resume(now_s)
            if is_alone:
                self.rate.resume(now_s)

    def _stop_computing(self, session: WorkerSession) -> None:
        """One worker fewer can fill the group: those who wait for it may have to go on."""
        if self._at_work.ends(session.key):
            self._wake_held()

    def _wake_held(self) -> None:
        """Make the workers that wait for an update look again."""
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()

    def _refuse_after_end(self, session: WorkerSession, report: GradientReport) -> Outcome:
        """Say to leave the task; nobody computes its records again."""
        self.liveness.progressed(session.worker, time.monotonic(), report.step_s)
        return Outcome(Refusal.LEASE_LOST, self.store.version)

    def _count_late(self, session: WorkerSession, report: GradientReport) -> None:
        self._count_refused(session, report, STALE)
        self._go_on(session)
        hint = self._late.refuse(len(self.sessions.all()))
        if hint is not None:
            self._on_event("GradientsTooLate", hint)

    def _count_refused(self, session: WorkerSession, report: GradientReport, reason: str) -> None:
        # It did what it was to do: always too late is slow, and no hang.
        self.liveness.progressed(session.worker, time.monotonic(), report.step_s)
        self.rejected_gradients += 1
        self.meter.reject(reason, report.end - report.start, report.step_s)
        self.ledger.computed_again += report.end - report.start

    def note_oddity(self, oddity: Oddity) -> None:
        """A worker's first minibatches are odd: told once, whoever else meets the same."""
        if oddity not in self._told_oddities:
            self._told_oddities.add(oddity)
            self._on_event(oddity, ADVICE[oddity])

    # -- the end -------------------------------------------------------------------------------

    def end_training(self, ending: Ending) -> None:
        """Train no further: what has counted stays, and the rest of the epoch is left out.

        The caller holds the parameters' lock. Gradients that wait for others to fill their group
        are dropped with it.
        """
        if self.training_done.is_set():
            return
        self.ending = ending
        self.ledger.stop()
        self._group, self._staged = self._group.successor(), []
        self._group_loss.clear()
        self._group_metrics.clear()
        self._on_event("TrainingEnded", ending.message)
        self.training_done.set()
        self._wake_held()

    def _end_if_due(self) -> None:
        ending = ending_at(self._rule.max_steps, self.store.version)
        if ending is not None:
            self.end_training(ending)

    # -- failures ------------------------------------------------------------------------------

    async def record_failed(self, session: WorkerSession, report: FailureReport) -> bool:
        """The user's code failed on records of a task; False if the lease was lost before."""
        ledger = self._ledger_of(report.task_id)
        self.liveness.progressed(session.worker, time.monotonic())
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
        error = self.failures.judge(verdict, report, task, session.index)
        if error is not None:
            self.fail_job(error)
        elif isinstance(verdict, SkipRecord):
            with self.serving(session):
                async with self.store.lock:
                    await self._end_epoch_without(ledger)
        return True

    def note_search(self, session: WorkerSession, report: FailureReport) -> bool:
        """A worker has computed a part of what failed, or goes on in parts by itself."""
        self.liveness.progressed(session.worker, time.monotonic())
        ledger = self._ledger_of(report.task_id)
        task = ledger.task_of(report.task_id, report.attempt)
        if task is None:
            return False
        size = report.end - report.start
        if report.runs_at and ledger.shrink_to(report.runs_at):
            self.failures.shrunk(task.kind, size, report.runs_at, report.message)
        elif report.message and not report.runs_at:
            self.failures.retry(Retry.WHOLE, report, task, session.index)
        elif not report.message:
            self.failures.part_computed(size)
        return True

    async def end_open_epoch(self) -> None:
        """End an epoch of which a cut lacks nothing but its end, as after its last was skipped."""
        async with self.store.lock:
            await self._end_epoch_without(self.ledger)

    async def _end_epoch_without(self, ledger: Ledger) -> None:
        """A record that is skipped may be the last one that its epoch has waited for."""
        if not await self._apply_if_due() and ledger is self.ledger:
            with self._failing_the_job():
                audit = ledger.end_epoch_if_complete()
                if audit is not None:
                    await self._end_epoch(audit)
        elif self.evaluation is not None and ledger is self.evaluation.ledger:
            ledger.end_epoch_if_complete()
            self.evaluation.note_progress()

    def fail_job(self, error: UserError) -> None:
        """End the job; the first reason stands."""
        if self.failure is None:
            self.failure = error
            self.failed.set()

    def lose(self, worker: str, index: int) -> list[Task]:
        """Take everything back from a worker that is gone or fenced."""
        session = self.sessions.of_index(index)
        if session is not None and session.worker == worker:
            self.sessions.close(session)
            self._stop_computing(session)
        self.liveness.left(worker)
        return self._take_back(worker)

    @property
    def is_computing(self) -> bool:
        """Whether a worker has a task of the training records in work."""
        return len(self._at_work) > 0

    def hangs(self) -> Sequence[Hang]:
        return self.liveness.hangs(time.monotonic())

    # -- inside --------------------------------------------------------------------------------

    def _ledger_of(self, task_id: int) -> Ledger:
        if self.evaluation is not None and task_id >= FIRST_TASK_ID:
            return self.evaluation.ledger
        return self.ledger

    def _take_back(self, worker: str, but: int | None = None) -> list[Task]:
        lost = self.ledger.lose_worker(worker, but)
        if self.evaluation is not None:
            lost += self.evaluation.ledger.lose_worker(worker, but)
        return lost

    async def _end_epoch(self, audit: Audit) -> None:
        self.store.end_epoch()
        states = self.epochs.metrics.states()
        metrics = self.store.model.metric_results(states) if states else {}
        result = self.epochs.end(
            audit.epoch, self.store.version, audit.committed, time.monotonic(), metrics
        )
        account = account_text(audit.records, audit.committed, audit.skipped)
        account += left_out_text(audit.left_out)
        self._on_event("EpochEnded", f"epoch {audit.epoch}: {result_text(result)}; {account}")
        self.on_epoch_result(result)
        await self.on_epoch_end(result)
        # Callbacks may have taken long.
        now_s = time.monotonic()
        self.epochs.pause_ends(now_s)
        for meter in (self.rate, *(session.rate for session in self.sessions.all())):
            meter.resume(now_s)
        if self.ledger.is_finished:
            self.training_done.set()
