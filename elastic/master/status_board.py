"""What the master tells about its job, gathered in one place and published on change."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError, legible
from elastic.master.callbacks import CallbackRunner
from elastic.master.coordination.running import RunningJob
from elastic.master.coordination.sessions import WorkerSession
from elastic.platforms.base import (
    Replica,
    ReplicaId,
    ReplicaPhase,
    ReplicaRunner,
    StatusRefusedError,
)
from elastic.policy.accounts import Moment, SizeSpeeds, TimeAccount
from elastic.policy.replicas import told_id, told_phase
from elastic.policy.tasks.epochs import EpochResult
from elastic.policy.tasks.ledger import Audit, Ledger
from elastic.policy.updates.elastic_batch import (
    BatchChoice,
    EarlierBatch,
    GradientNoise,
    NoiseGrowth,
)
from elastic.spec.job import JobSpec
from elastic.spec.roles import FLEET, PS, REDIS, WORKER
from elastic.spec.status import (
    NO_MASTERS,
    BatchStatus,
    BestStatus,
    CutShort,
    EpochAudit,
    EpochStatus,
    EvaluationProgress,
    EvaluationStatus,
    JobEvent,
    JobPhase,
    JobStatus,
    MasterHistory,
    Progress,
    ScalingStatus,
    SizeSpeed,
    TableStatus,
    TimeCategory,
    TimeSplit,
    WorkerStatus,
    with_present_speed,
)

log = logging.getLogger(__name__)

MAX_EVENTS: Final = 50
PAUSED: Final = "Paused"
"""The reason of a job that is to have no workers for now."""

_RANKS: Final = {role.name: rank for rank, role in enumerate(FLEET)}


@dataclass(slots=True)
class _Launch:
    """Records of one launch of a worker, over all of its sessions."""

    number: int
    records_before: int = 0
    session: WorkerSession | None = None

    def add(self, session: WorkerSession) -> None:
        """Count a session too, which goes on; the one before has ended."""
        if session is not self.session:
            self.records_before = self.records_done
            self.session = session

    @property
    def records_done(self) -> int:
        return self.records_before + (0 if self.session is None else self.session.records_done)


class StatusBoard:
    """Keeps phase, events and counts over all lives of the master; builds `JobStatus`."""

    def __init__(
        self,
        spec: JobSpec,
        runner: ReplicaRunner,
        earlier: JobStatus | None,
        master_history: MasterHistory = NO_MASTERS,
        last_end: str = "",
    ) -> None:
        """Go on from what was published before, see `open`."""
        self._spec = spec
        self._master_history = master_history
        self._runner = runner
        self._was_running = was_running = _was_running(earlier)
        self._base = earlier or JobStatus(job_name=spec.job_name)
        self.master_restarts = self._base.master_restarts + int(was_running)
        # Who resumes a job has mended what failed it, so it may fail as often as a new one.
        self.worker_failures = self._base.worker_failures if was_running else 0
        lost = {WORKER: self._base.workers_lost, PS: self._base.servers_lost}
        self.lost = Counter({**lost, REDIS: self._base.redis_lost})
        """By role, the ends of replicas that were replaced."""
        # The life of a master begins in one of these, whatever the one before has told.
        self.phase = JobPhase.RECOVERING if was_running else JobPhase.STARTING
        self.reason = ""
        self.message = ""
        self.phase_since_s = time.monotonic()
        self.metrics: dict[str, float] = dict(self._base.metrics)
        self.checkpoint: str | None = self._base.checkpoint
        self.checkpoint_problem = ""
        self.export: str | None = None
        self.predictions: str | None = None
        self._own_ledger: Ledger | None = None
        self.desired_workers = 0
        self.replicas: tuple[Replica, ...] = ()
        self.last_exits: dict[str, str] = {}
        self.asked_to_end: set[ReplicaId] = set()
        self._started_s = self._base.started_s or time.time()
        self._ended_s: float | None = None
        self.time = TimeKeeper(self._base, was_running)
        self._speeds = _speeds_of(self._base.scaling)
        self._events = list(self._base.events)
        self._audits = (self._base.audits, self._base.audits_left_out)
        self._num_audited: int | None = None
        self._told_epochs: tuple[Sequence[EpochResult], tuple[EpochStatus, ...]] = ((), ())
        # Of a job that was submitted again, the launches begin anew.
        told = self._told_workers = self._base.workers if was_running else ()
        self._launches = {told_id(row).name: _Launch(row.launch, row.records_done) for row in told}
        self._published: JobStatus | None = None
        self._job: RunningJob | None = None
        self._tables: Callable[[], tuple[TableStatus, ...]] | None = None
        self._callbacks: CallbackRunner | None = None
        self._best_path: Callable[[int], Path] | None = None
        if was_running:
            # Which cut it goes back to is told once that is read; there may be none yet.
            why = last_end and f": the one before {last_end}"
            self.note("MasterRestarted", f"the master was restarted{why}")

    @classmethod
    def open(
        cls,
        spec: JobSpec,
        runner: ReplicaRunner,
        master_history: MasterHistory = NO_MASTERS,
        last_end: str = "",
    ) -> "StatusBoard":
        """The board of a master, which goes on from the status that its platform keeps.

        Args:
            master_history: How the masters before it ended, as far as that decides what follows.
            last_end: How the last of them did, for people; empty where nobody knows.
        """
        return cls(spec, runner, runner.last_status(), master_history, last_end)

    @property
    def earlier_rejected_gradients(self) -> int:
        """Those that earlier lives of the master have told of."""
        return self._base.progress.rejected_gradients

    @property
    def earlier_batch(self) -> EarlierBatch | None:
        """The batch and the noise of its gradients that were told last; None where none were."""
        told = self._batch()
        if told is None:
            return None
        num_updates = told.updates_measured
        return EarlierBatch(
            told.records,
            GradientNoise(told.grad_sqr, told.grad_var, num_updates),
            GradientNoise(told.first_grad_sqr, told.first_grad_var, num_updates),
            told.measured_at,
            NoiseGrowth(told.noise_growth, told.changes_measured),
        )

    @property
    def progress(self) -> Progress:
        """How far the job has come; until it is followed, as it was told last."""
        return self._progress()

    @property
    def job(self) -> RunningJob | None:
        """What is told of; None before its model is there."""
        return self._job

    def follow(self, job: RunningJob) -> None:
        """Tell of a job from now on; what was counted of one before goes on."""
        if self._job is not None:
            self._base = self._base.model_copy(update={"progress": self._progress()})
            self._num_audited = None
        self._job = job

    def count_by(self, ledger: Ledger) -> None:
        """Take the progress from the one pass of a job that trains nothing."""
        self._own_ledger = ledger

    def follow_tables(self, sizes: Callable[[], tuple[TableStatus, ...]] | None) -> None:
        """Tell how large tables of embeddings are from now on; None while they are not there."""
        self._tables = sizes

    def follow_callbacks(self, callbacks: CallbackRunner, best_path: Callable[[int], Path]) -> None:
        """Tell what evaluations came to, and where the best version is."""
        self._callbacks, self._best_path = callbacks, best_path

    def note(self, kind: str, message: str) -> None:
        """Add an event; it is logged too."""
        # A callback's words are its user's.
        message = legible(message)
        log.info("%s: %s", kind, message)
        self._events.append(JobEvent(time_s=time.time(), kind=kind, message=message))
        if len(self._events) > MAX_EVENTS:
            del self._events[_most_dispensable(self._events)]

    def last_note(self, kind: str) -> str:
        """The message of the newest event of a kind that is remembered; empty where none is."""
        return next((each.message for each in reversed(self._events) if each.kind == kind), "")

    def evaluated(self, version: int, num_records: int, metrics: dict[str, float]) -> None:
        """Keep the newest metrics, and tell them."""
        self.metrics = metrics
        shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.note("Evaluated", f"version {version} on {num_records} records: {shown}")

    def evaluation_lost(self, version: int) -> None:
        """Tell that callbacks will not see what a version has come to."""
        self.note(
            "EvaluationLost",
            f"version {version} was under evaluation when the master was lost, and could not be "
            "kept for another: callbacks go on without it",
        )

    def explain(self, reason: str, message: str) -> None:
        """Say why the present phase lasts."""
        self.reason, self.message = reason, message

    def set_phase(self, phase: JobPhase, reason: str = "", message: str = "") -> None:
        """Enter a phase; final ones set the end of the job.

        Raises:
            TransitionError: It cannot follow the present one.
        """
        self.phase.to(phase)
        if phase != self.phase:
            why = f" ({reason})" if reason not in ("", phase) else ""
            log.info("phase %s → %s%s", self.phase, phase, why)
        self.phase, self.reason, self.message = phase, reason, legible(message)
        self.phase_since_s = time.monotonic()
        if phase.is_final:
            self._ended_s = self.time.end_s()
        else:
            self._look_at_time()

    def _look_at_time(self) -> None:
        self.time.look(self.phase, self._job, is_paused=self.reason == PAUSED)

    def publish(self) -> bool:
        """Publish, if anything but the time has changed; False if that has to be tried again."""
        self._look_at_time()
        self._look_at_speed()
        status = self.build()
        if self._published is None or _differ(status, self._published):
            try:
                self._runner.publish_status(status)
            except StatusRefusedError as error:
                # It has been tried in every form; trying for ever would only hold up the end.
                log.error("%s", error)  # noqa: TRY400 - its own text says it all
            except PlatformError as error:
                # Such as a full disk: the job matters more than what is told of it.
                log.warning("%s", error)
                return False
            self._published = status
        return True

    def build(self) -> JobStatus:
        """The status as of now."""
        audits, audits_left_out = self._told_audits()
        now_s = self.time.end_s()
        status = JobStatus(
            job_name=self._spec.job_name,
            kind=self._spec.kind,
            phase=self.phase,
            reason=self.reason,
            message=self.message,
            submitted_s=self._base.submitted_s,
            started_s=self._started_s,
            ended_s=self._ended_s,
            updated_s=now_s,
            desired_workers=self.desired_workers,
            workers=self._workers(),
            progress=self._progress(),
            audits=audits,
            audits_left_out=audits_left_out,
            cut_short=self._cut_short(),
            metrics=self.metrics,
            epochs=self._epochs(),
            evaluations=self._evaluations(),
            best=self._best(),
            checkpoint=self.checkpoint,
            checkpoint_problem=self.checkpoint_problem,
            export=self.export,
            predictions=self.predictions,
            master_restarts=self.master_restarts,
            master_history=self._master_history,
            worker_failures=self.worker_failures,
            workers_lost=self.lost[WORKER],
            servers_lost=self.lost[PS],
            redis_lost=self.lost[REDIS],
            events=tuple(self._events),
            evaluation=self._evaluation(),
            tables=self._base.tables if self._tables is None else self._tables(),
            scaling=_scaling(self._speeds, self._batch()),
            time_split=self.time.split(now_s if self._ended_s is None else self._ended_s),
        )
        return with_present_speed(status)

    def _progress(self) -> Progress:
        job, ledger = self._job, self._counting()
        if job is None or ledger is None:
            return self._base.progress
        epochs = self._spec.num_epochs
        return Progress(
            epoch=min(ledger.epoch, epochs - 1),
            # A single pass is no epoch of anything.
            num_epochs=epochs if self._own_ledger is None else 0,
            records_done=ledger.total_done,
            records_total=epochs * ledger.num_records,
            skipped=len(ledger.skipped_records),
            computed_again=ledger.computed_again,
            model_version=job.parameters.version,
            max_steps=self._spec.max_steps,
            loss=job.updates.loss,
            mean_loss=job.updates.epochs.mean_loss,
            samples_per_s=round(job.sessions.samples_per_s, 1),
            rejected_gradients=self.earlier_rejected_gradients + job.updates.rejected_gradients,
            minibatches_tried_again=self._base.progress.minibatches_tried_again
            + job.tasks.failures.tried_again,
            records_computed_alone=self._base.progress.records_computed_alone
            + job.tasks.failures.computed_alone,
            shrunk_minibatch_size=ledger.shrunk_to,
        )

    def _look_at_speed(self) -> None:
        """Have the speed at the present size measured, while nothing else is computed."""
        job, ledger = self._job, self._counting()
        if job is None or ledger is None:
            return
        is_elsewhere = job.tasks.round is not None and self._own_ledger is None
        is_working = self.phase is JobPhase.RUNNING and not is_elsewhere
        at_work = {session.replica for session in job.sessions.all()}
        nodes = {each.node for each in self.replicas if each.id in at_work} - {""}
        records = ledger.total_done
        batch = None if job.updates.batch is None else job.updates.batch.batch
        size = (len(at_work), len(nodes), batch) if is_working else None
        if self._speeds.look(time.monotonic(), size, records) and size is not None:
            job.updates.measured(self._speeds.told, size)

    def _batch(self) -> BatchStatus | None:
        """The batch, where it is chosen."""
        if self._job is None:
            return self._base.scaling.batch
        choice = self._job.updates.batch
        return None if choice is None else _batch_status(choice)

    def _counting(self) -> Ledger | None:
        """The ledger of the job's own records: of its one pass, else of training."""
        if self._job is None:
            return None
        return self._own_ledger or self._job.ledger

    def _evaluation(self) -> EvaluationProgress | None:
        """What goes on beside training; the progress of a job of one pass is its own."""
        round_ = None if self._job is None else self._job.tasks.round
        if round_ is None or self._own_ledger is not None or self.phase.is_final:
            return None
        return EvaluationProgress(
            model_version=round_.version,
            records_done=round_.ledger.records_done,
            records_total=round_.ledger.num_records,
            # Its last digits would be news four times a second.
            samples_per_s=float(f"{round_.samples_per_s():.2g}"),
        )

    def _told_audits(self) -> tuple[tuple[EpochAudit, ...], int]:
        ledger = self._counting()
        if ledger is not None:
            audits = ledger.audits
            # Told four times a second, of what may be a hundred thousand epochs.
            if len(audits) != self._num_audited:
                self._audits, self._num_audited = audit_runs(audits), len(audits)
        return self._audits

    def _evaluations(self) -> tuple[EvaluationStatus, ...]:
        if self._callbacks is None:
            return self._base.evaluations
        return tuple(
            EvaluationStatus(version=each.version, epoch=each.epoch, metrics=dict(each.metrics))
            for each in self._callbacks.history
        )

    def _epochs(self) -> tuple[EpochStatus, ...]:
        if self._job is None or self._own_ledger is not None:
            return self._base.epochs
        history = self._job.updates.epochs.history
        # Told four times a second, and new only when an epoch has ended.
        if history is not self._told_epochs[0]:
            self._told_epochs = history, tuple(map(_epoch_status, history))
        return self._told_epochs[1]

    def _best(self) -> BestStatus | None:
        if self._callbacks is None or self._best_path is None:
            return self._base.best
        best, rule = self._callbacks.best, self._callbacks.best_rule
        if best is None or rule is None:
            return None
        return BestStatus(
            version=best.version,
            epoch=best.epoch,
            monitor=rule.monitor,
            value=best.metrics[rule.monitor],
            checkpoint=str(self._best_path(best.version)),
        )

    def _cut_short(self) -> CutShort | None:
        account = None if self._job is None else self._job.ledger.cut_short
        if account is None:
            return None
        return CutShort(
            epoch=account.epoch,
            records=account.records,
            committed=account.committed,
            skipped=account.skipped,
        )

    def has_told_end(self, worker: ReplicaId) -> bool:
        """Whether an earlier life of the master, or an earlier run, has told how it ended."""
        if not self._was_running:
            return True
        told = next((row for row in self._base.workers if told_id(row).name == worker.name), None)
        if told is None:
            return False
        return worker.launch < told.launch or (
            worker.launch == told.launch and ReplicaPhase(told.phase).is_final
        )

    def _workers(self) -> tuple[WorkerStatus, ...]:
        if not self.replicas:
            # A master that dies before it has looked takes along nothing of what has been told:
            # by these rows the next one knows which ends are counted.
            return self._told_workers
        newest = {
            (_RANKS[r.id.role], r.id.index): r
            for r in sorted(self.replicas, key=lambda r: r.id.launch)
            if r.id.role in _RANKS
        }
        now_s = time.monotonic()
        sessions = self._job.sessions if self._job else None
        step_s = sessions.liveness.typical_step_s if sessions else None
        rows = []
        for (_, index), replica in sorted(newest.items()):
            session = sessions.of(replica.id) if sessions else None
            rows.append(
                WorkerStatus(
                    role=replica.id.role,
                    index=index,
                    launch=replica.id.launch,
                    phase=told_phase(replica, is_needed=replica.id not in self.asked_to_end),
                    pid=None if replica.phase.is_final else replica.pid,
                    records_done=self._records_of(replica.id, session),
                    samples_per_s=_speed(session, now_s, step_s),
                    last_exit=self.last_exits.get(replica.id.name, ""),
                    message=replica.message if replica.phase is ReplicaPhase.PENDING else "",
                )
            )
        return tuple(rows)

    def _records_of(self, worker: ReplicaId, session: WorkerSession | None) -> int:
        """What this launch has done; its session ends before its pod or process does."""
        launch = self._launches.get(worker.name)
        if launch is None or launch.number != worker.launch:
            launch = self._launches[worker.name] = _Launch(worker.launch)
        if session is not None and session.replica.launch == launch.number:
            launch.add(session)
        return launch.records_done


def _was_running(earlier: JobStatus | None) -> bool:
    """Whether the job was at work when that was told, so that a master of it was lost."""
    return (
        earlier is not None
        and earlier.started_s is not None
        # Submitted again with --resume: its events and counts go on, but no master was lost.
        and earlier.phase is not JobPhase.PENDING
        and not earlier.phase.is_final
    )


def _speeds_of(told: ScalingStatus) -> SizeSpeeds:
    speeds = (((each.workers, each.nodes, each.batch), each.samples_per_s) for each in told.speeds)
    return SizeSpeeds.of(speeds, told.rescale_s)


def _scaling(speeds: SizeSpeeds, batch: BatchStatus | None) -> ScalingStatus:
    rescale_s = speeds.rescale_s
    return ScalingStatus(
        speeds=tuple(
            SizeSpeed(workers=workers, nodes=nodes, samples_per_s=round(each, 1), batch=records)
            for (workers, nodes, records), each in speeds.told.items()
        ),
        rescale_s=None if rescale_s is None else round(rescale_s, 1),
        batch=batch,
    )


def _batch_status(choice: BatchChoice) -> BatchStatus:
    noise, limits = choice.noise, choice.limits
    return BatchStatus(
        records=choice.batch,
        minimum=limits.minimum,
        maximum=limits.maximum,
        grad_sqr=noise.sqr,
        grad_var=noise.var,
        first_grad_sqr=choice.first_noise.sqr,
        first_grad_var=choice.first_noise.var,
        updates_measured=noise.num_updates,
        measured_at=choice.measured_at,
        noise_growth=choice.growth.power,
        changes_measured=choice.growth.num_changes,
        noise_scale=noise.scale,
    )


def _epoch_status(result: EpochResult) -> EpochStatus:
    return EpochStatus(
        epoch=result.epoch,
        version=result.version,
        records=result.records,
        loss=result.loss,
        seconds=round(result.seconds, 3),
        samples_per_s=round(result.samples_per_s, 1),
        metrics=dict(result.metrics),
    )


def _speed(session: WorkerSession | None, now_s: float, step_s: float | None) -> float:
    return 0.0 if session is None else round(session.rate.per_second(now_s, step_s), 1)


_CLOCKS: Final = {"updated_s", "time_split"}
_TOLD: Final = ("progress", *(JobStatus.model_fields.keys() - {"progress"} - _CLOCKS))
"""What a status tells, beginning with what changes most: comparing all of it costs as much as
writing it."""


def _most_dispensable(events: Sequence[JobEvent]) -> int:
    """Which event to drop: the oldest of the kind that there are most of.

    A hundred ends of epochs, or failed checkpoints, do not push out the one worker that was lost.
    """
    counts = Counter(event.kind for event in events)
    commonest = max(counts.values())
    return next(i for i, event in enumerate(events) if counts[event.kind] == commonest)


def _differ(one: JobStatus, other: JobStatus) -> bool:
    if one.time_split.current is not other.time_split.current:
        return True
    return any(getattr(one, name) != getattr(other, name) for name in _TOLD)


# Tells the account of a job's time what happens, by this machine's clock.


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


# The ledger's audits as a status tells them: small for any number of epochs. Pure.


MAX_RUNS: Final = 100
"""Kept of epochs that all went differently: the newest, beside which the oldest say little."""


def audit_runs(audits: Sequence[Audit]) -> tuple[tuple[EpochAudit, ...], int]:
    """Equal neighbours as one, and how many of the oldest epochs are left out.

    Args:
        audits: Of every finished epoch, oldest first.
    """
    runs = []
    for (records, committed, skipped, left_out), group in groupby(
        audits,
        key=lambda audit: (audit.records, audit.committed, audit.skipped, audit.left_out),
    ):
        first, *others = group
        runs.append(
            EpochAudit(
                epoch=first.epoch,
                num_epochs=1 + len(others),
                records=records,
                committed=committed,
                skipped=skipped,
                left_out=left_out,
            )
        )
    num_told_no_more = sum(run.num_epochs for run in runs[:-MAX_RUNS])
    return tuple(runs[-MAX_RUNS:]), num_told_no_more
