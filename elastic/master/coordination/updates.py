"""Gradients become versions: accepted into a group, applied and committed in one step.

Everything here runs on one event loop, so a decision and what follows from it are not interrupted
but where `await` stands; the parameters' lock covers those places. `UpdateGroup` decides.

The records behind every update, in the order they counted, are what a replay needs: `CommitLog`.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from elastic.checkpoints.destinations import advice, in_words
from elastic.errors import JobSpecError, TrainingError
from elastic.frameworks.base import MetricState
from elastic.master.coordination.rounds import EpochMeter, MeanLoss, MetricSums
from elastic.master.coordination.sessions import JobFailure, Sessions, WorkerSession
from elastic.master.parameters.strategy import AnyStrategy
from elastic.policy.accounts import Size
from elastic.policy.cluster import Speed
from elastic.policy.minibatches import ADVICE, Oddity
from elastic.policy.tasks.epochs import Ending, EpochResult, ending_at
from elastic.policy.tasks.ledger import Audit, Ledger, Refusal, StagedRange
from elastic.policy.updates.elastic_batch import BatchChoice
from elastic.policy.updates.update_group import (
    Accept,
    GiveUp,
    LateGradients,
    Outcome,
    RefuseStale,
    Stay,
    UpdateGroup,
    UpdateRule,
    Wait,
)
from elastic.telemetry.meter import LEASE_LOST, STALE, JobMeter
from elastic.telemetry.summary import account_text, left_out_text, result_text

AfterUpdate: TypeAlias = Callable[[], Awaitable[None]]
AfterEpoch: TypeAlias = Callable[[EpochResult], Awaitable[None]]


class CommitLog:
    """Appends one JSON line an update: `{"version", "epoch", "records": [[shard, start, end]]}`.

    Written only where the user asks for it, before the reply that tells a worker of the commit.
    Without a path it does nothing.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._file: IO[str] | None = None

    def open(self, version: int) -> None:
        """Begin, or go on after the update to `version`: later lines belong to a lost future.

        Raises:
            JobSpecError: The file cannot be written, or is there and no commit log.
        """
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if version and self._path.exists():
                # Cut in place, as that needs no room on the disk.
                with self._path.open("r+b") as file:
                    file.truncate(_size_until(file, version))
            else:
                self._path.write_text("")
            self._file = self._path.open("a")
        except OSError as error:
            raise JobSpecError(
                f"--commit_log={self._path} cannot be written: {in_words(error)}: {advice(error)}"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise JobSpecError(
                f"--commit_log={self._path} is no commit log, so it cannot be gone on with: "
                "name another file"
            ) from error

    def append(
        self, version: int, ledger: Ledger, audit: Audit | None, staged: Sequence[StagedRange]
    ) -> None:
        """Note what was just committed; `audit` is set if that ended the epoch."""
        if self._file is None:
            return
        epoch = ledger.epoch if audit is None else audit.epoch
        records = [named for item in staged for named in ledger.named(item.records, epoch)]
        try:
            json.dump({"version": version, "epoch": epoch, "records": records}, self._file)
            self._file.write("\n")
            self._file.flush()
        except OSError as error:
            raise TrainingError(
                f"--commit_log={self._path} cannot be written: {in_words(error)}: "
                f"{advice(error)}, and run the job again with --resume"
            ) from error

    def close(self) -> None:
        """Let go of the file; all lines are in it, or the job has failed for want of one."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


def _size_until(file: IO[bytes], version: int) -> int:
    """How many bytes the lines up to `version` have."""
    size_bytes = 0
    for line in file:
        # A line cut short by a crash is of the lost future too.
        if not line.endswith(b"\n") or json.loads(line)["version"] > version:
            break
        size_bytes += len(line)
    return size_bytes


@dataclass(frozen=True, slots=True)
class GradientReport:
    """What a worker claims of a gradient."""

    task_id: int
    attempt: int
    start: int
    end: int
    model_version: int
    loss: float
    step_s: float
    metrics: Sequence[MetricState] = ()

    @property
    def num_records(self) -> int:
        return self.end - self.start


class Updates:
    """Stages what is accepted, has groups applied, commits their records, ends epochs.

    Attributes:
        loss: Of the newest gradient that was accepted.
        rejected_gradients: By this life of the master.
        epochs: What the epoch under way, and those before, came to.
        meter: Adds up what happens, for curves and metrics.
        ending: Why training ended although records were left.
        batch: How many records make an update, where that is chosen.
        training_done: Set when no record will be trained any more.
    """

    def __init__(
        self,
        ledger: Ledger,
        parameters: AnyStrategy,
        rule: UpdateRule,
        sessions: Sessions,
        commit_log: CommitLog,
        failure: JobFailure,
        on_event: Callable[[str, str], None],
        meter: JobMeter,
        loss: float | None = None,
        batch: BatchChoice | None = None,
    ) -> None:
        """Go on from where ledger and parameters stand.

        Args:
            loss: As it was last; a job may end without another gradient.
            batch: How many gradients make an update; None where `rule` says so once and for all.
        """
        self.loss = loss
        self.rejected_gradients = 0
        self.epochs = EpochMeter()
        self.meter = meter
        self.ending: Ending | None = None
        self.training_done = asyncio.Event()
        self._ledger = ledger
        self._parameters = parameters
        self._sessions = sessions
        self._commit_log = commit_log
        self._failure = failure
        self._on_event = on_event
        self._max_steps = rule.max_steps
        self._group = UpdateGroup(rule, parameters.version)
        self.batch = batch
        self._size_group()
        self._group_loss = MeanLoss()
        self._group_metrics = MetricSums()
        self._late = LateGradients(rule)
        self._told_oddities: set[Oddity] = set()
        self._woken = asyncio.Event()
        self._after_update: list[AfterUpdate] = []
        self._after_epoch: list[AfterEpoch] = []
        if ledger.is_finished:
            self._be_done()
        self._end_if_due()

    def subscribe(
        self, after_update: AfterUpdate | None = None, after_epoch: AfterEpoch | None = None
    ) -> None:
        """Have somebody told after those who are told already, while the lock is held.

        Args:
            after_update: Told of each new version, when its records are committed.
            after_epoch: Told what each epoch came to, before the next one begins.
        """
        if after_update is not None:
            self._after_update.append(after_update)
        if after_epoch is not None:
            self._after_epoch.append(after_epoch)

    # -- who computes --------------------------------------------------------------------------

    @property
    def num_computing(self) -> int:
        """Workers that have a task of the training records in work."""
        return len(self._group.at_work)

    def is_computing(self, session: WorkerSession) -> bool:
        """Whether a worker has."""
        return session.key in self._group.at_work

    def begins(self, session: WorkerSession) -> None:
        """A worker has got a task of the training records."""
        now_s = time.monotonic()
        self._group.at_work.begins(session.key, now_s)
        self.epochs.work_begins(now_s)

    def ends(self, session: WorkerSession) -> None:
        """One worker fewer can fill the group: those who wait for it may have to go on."""
        if self._group.at_work.ends(session.key):
            self._wake()

    def left(self, session: WorkerSession) -> None:
        """A worker's session has ended."""
        self.ends(session)
        self._parameters.left(session.key)

    async def wait_to_begin(self, session: WorkerSession) -> None:
        """Let a worker that is about to begin wait for an update that others are about to fill.

        What it computed on the version before that would only be refused.
        """
        with self._sessions.serving(session):
            await self._wait(self._group.wait(time.monotonic(), is_beginning=True))

    # -- gradients -----------------------------------------------------------------------------

    def precheck(self, session: WorkerSession, report: GradientReport) -> Outcome | None:
        """Refuse before the tensors are received, where that is certain already.

        Raises:
            ValueError: The report names a version that does not exist.
        """
        verdict = self._group.judge(report.model_version)
        return None if isinstance(verdict, Accept) else self._refuse(session, report, verdict)

    async def add(
        self, session: WorkerSession, report: GradientReport, contribution: object
    ) -> Outcome:
        """Judge a gradient; apply its group when that is complete.

        Raises:
            ValueError: The report breaks the protocol; nothing was changed.
        """
        with self._sessions.serving(session):
            async with self._parameters.lock:
                refused = self._accept(session, report, contribution)
                if refused is not None:
                    return refused
                applied = await self._apply_if_due()
                if not applied:
                    self._parameters.own_staged()
            if not applied:
                self._group.at_work.ends(session.key)
                await self._wait(self._group.wait(time.monotonic()))
            self._go_on(session)
            return Outcome(None, self._parameters.version)

    async def commit_empty(
        self, session: WorkerSession, task_id: int, attempt: int, start: int, end: int
    ) -> bool:
        """Count records of which dataset_fn made no example: they have no gradient to wait for."""
        with self._sessions.serving(session):
            async with self._parameters.lock:
                if self._group.is_over:
                    return False
                staged = self._ledger.stage(task_id, attempt, start, end)
                if isinstance(staged, Refusal):
                    return False
                self._sessions.progressed(session)
                with self._failure.on_error():
                    audit = self._ledger.commit([staged])
                    self.meter.commit(end - start)
                    self._commit_log.append(self._parameters.version, self._ledger, audit, [staged])
                    if audit is not None:
                        await self._end_epoch(audit)
                await self._apply_if_due()
                return True

    async def end_epoch_if_complete(self) -> None:
        """End an epoch that lacks nothing but its end, as when its last record was skipped."""
        async with self._parameters.lock:
            if await self._apply_if_due():
                return
            with self._failure.on_error():
                audit = self._ledger.end_epoch_if_complete()
                if audit is not None:
                    await self._end_epoch(audit)

    def measured(self, speeds: Mapping[Size, float], size: Size) -> None:
        """A speed has been measured: have the batch chosen anew, for the next group.

        Args:
            speeds: Of all sizes, in records a second.
            size: The present one.
        """
        if self.batch is None:
            return
        (workers, nodes, _), known = size, [_speed(*each) for each in speeds.items()]
        why = self.batch.reconsider(known, workers, max(1, nodes))
        if why is not None:
            self._on_event("BatchChanged", why)

    def note_oddity(self, oddity: Oddity) -> None:
        """A worker's first minibatches are odd: told once, whoever else meets the same."""
        if oddity not in self._told_oddities:
            self._told_oddities.add(oddity)
            self._on_event(oddity, ADVICE[oddity])

    def end_training(self, ending: Ending) -> None:
        """Train no further: what has counted stays, and the rest of the epoch is left out.

        The caller holds the parameters' lock. Gradients that wait for others to fill their group
        are dropped with it.
        """
        if self.training_done.is_set():
            return
        self.ending = ending
        self._ledger.stop()
        self._parameters.drop_staged()
        self._group_loss.clear()
        self._group_metrics.clear()
        self._on_event("TrainingEnded", ending.message)
        self._be_done()
        self._wake()

    def close(self) -> None:
        """Count nothing any more, and let those go who wait for an update."""
        self._group.end_training()
        self._wake()

    async def abandon(self) -> None:
        """Let those go who wait for an update: none is made here any more."""
        self.close()
        await self._parameters.close()

    # -- inside --------------------------------------------------------------------------------

    def _accept(
        self, session: WorkerSession, report: GradientReport, contribution: object
    ) -> Outcome | None:
        """Stage a gradient and its records; the outcome where it is refused."""
        verdict = self._group.judge(report.model_version)
        if not isinstance(verdict, Accept):
            return self._refuse(session, report, verdict)
        for sums in (self._group_metrics, self.epochs.metrics):
            sums.check(report.metrics)
        staged = self._ledger.stage(report.task_id, report.attempt, report.start, report.end)
        if staged is Refusal.OUT_OF_ORDER:
            raise ValueError(
                f"records [{report.start}, {report.end}) are not the next of task {report.task_id}"
            )
        if isinstance(staged, Refusal):
            self._count_refused(session, report, LEASE_LOST)
            return Outcome(staged, self._parameters.version)
        self._parameters.stage(contribution, verdict.learning_rate_scale)
        staleness = self._group.add(staged, report.model_version)
        self._late.accept()
        self._group_loss.add(report.loss, report.num_records)
        self._group_metrics.add(report.metrics)
        self.loss = report.loss
        self._sessions.contributed(session, report.num_records, report.step_s)
        self.meter.accept(report.loss, report.num_records, staleness, report.step_s)
        return None

    def _refuse(
        self, session: WorkerSession, report: GradientReport, verdict: RefuseStale | Refusal
    ) -> Outcome:
        if isinstance(verdict, Refusal):
            # Training is over: nothing that counts was lost by it.
            self._sessions.progressed(session, report.step_s)
        else:
            self._count_refused(session, report, STALE)
            self._go_on(session)
            # Where the batch is chosen, it is so that workers have enough to do.
            is_chosen = self.batch is not None
            hint = None if is_chosen else self._late.refuse(len(self._sessions.all()))
            if hint is not None:
                self._on_event("GradientsTooLate", hint)
        return Outcome(verdict, self._parameters.version)

    def _count_refused(self, session: WorkerSession, report: GradientReport, reason: str) -> None:
        # It did what it was to do: always too late is slow, and no hang.
        self._sessions.progressed(session, report.step_s)
        self.rejected_gradients += 1
        self.meter.reject(reason, report.num_records, report.step_s)
        self._ledger.computed_again += report.num_records

    async def _apply_if_due(self) -> bool:
        """Apply and commit the open group if it is complete; the caller holds the lock."""
        if not self._group.is_due(self._ledger.only_staged_left):
            return False
        with self._failure.on_error():
            await self._apply()
        return True

    async def _apply(self) -> None:
        update = self._group.begin_update()
        num_records = sum(item.records.num_records for item in update.ranges)
        self.epochs.loss.take(self._group_loss)
        self.epochs.metrics.take(self._group_metrics)
        began_s = time.perf_counter()
        try:
            await self._parameters.commit(update.state_share, self._rate_scale(num_records))
        finally:
            self._group.end_update(self._parameters.version)
            self._size_group()
        audit = self._ledger.commit(update.ranges)
        self.meter.update(time.perf_counter() - began_s)
        self.meter.commit(num_records)
        self._commit_log.append(self._parameters.version, self._ledger, audit, update.ranges)
        self._wake()
        if audit is not None:
            await self._end_epoch(audit)
        self._end_if_due()
        for tell in self._after_update:
            await tell()

    def _size_group(self) -> None:
        """Have the group that begins be of the batch that was chosen last."""
        if self.batch is not None:
            self._group.resize(self.batch.num_gradients)

    def _rate_scale(self, num_records: int) -> float:
        return 1.0 if self.batch is None else self.batch.rate_scale(num_records)

    async def _end_epoch(self, audit: Audit) -> None:
        self._parameters.end_epoch()
        states = self.epochs.metrics.states()
        metrics = self._parameters.model.metric_results(states) if states else {}
        result = self.epochs.end(
            audit.epoch, self._parameters.version, audit.committed, time.monotonic(), metrics
        )
        account = account_text(audit.records, audit.committed, audit.skipped)
        account += left_out_text(audit.left_out)
        self._on_event("EpochEnded", f"epoch {audit.epoch}: {result_text(result)}; {account}")
        for tell in self._after_epoch:
            await tell(result)
        # Callbacks may have taken long.
        self.epochs.pause_ends(time.monotonic())
        self._sessions.resume_rates()
        if self._ledger.is_finished:
            self._be_done()

    def _end_if_due(self) -> None:
        ending = ending_at(self._max_steps, self._parameters.version)
        if ending is not None:
            self.end_training(ending)

    def _be_done(self) -> None:
        self._group.end_training()
        self.training_done.set()

    # -- waiting for the others of a group -----------------------------------------------------

    async def _wait(self, wait: Wait) -> None:
        while True:
            now_s, num_workers = time.monotonic(), len(self._sessions.all())
            match self._group.look(
                wait, now_s, num_workers, self._sessions.liveness.typical_step_s
            ):
                case Stay(seconds):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._woken.wait(), seconds)
                case GiveUp():
                    self._wake()
                case _:
                    return

    def _go_on(self, session: WorkerSession) -> None:
        """It is answered and computes the next gradient, or the same again, if it is not lost."""
        if self._sessions.find(session.key) is session:
            self._group.at_work.begins(session.key, time.monotonic())
            self._sessions.progressed(session)

    def _wake(self) -> None:
        """Make the workers that wait for an update look again."""
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()


def _speed(size: Size, samples_per_s: float) -> Speed:
    workers, nodes, batch = size
    return Speed(workers, max(1, nodes), samples_per_s, batch)
