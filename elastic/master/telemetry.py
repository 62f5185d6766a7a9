"""What a master tells TensorBoard and Prometheus: sampled here, written and served elsewhere."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elastic.errors import JobSpecError
from elastic.master.coordination.running import RunningJob
from elastic.master.status_board import StatusBoard
from elastic.platforms.registry import MasterEnvironment
from elastic.policy.replicas import ExitReason, ReplicaPhase
from elastic.policy.tasks.epochs import EpochResult
from elastic.policy.tasks.ledger import Ledger
from elastic.spec.roles import PS, REDIS, WORKER
from elastic.spec.status import TimeCategory
from elastic.telemetry.board import EventLog, job_text
from elastic.telemetry.meter import (
    EVALUATION,
    STALE,
    Counts,
    JobMeter,
    JobSample,
    KeptCounts,
    Point,
    Window,
)

if TYPE_CHECKING:
    from elastic.telemetry.prometheus import JobExporter


DENSE_UPDATES: Final = 200
"""Every one of the first updates has a point of its own, so that a short job has a curve too."""

INTERVAL_S: Final = 1.0
"""Between the points of later ones: TensorBoard shows a thousand of a curve at most."""

CLOSE_S: Final = 5.0
"""How long the last points may take to be written; the job's end waits for them."""

COUNTS_NAME: Final = "counts.json"


def is_point_due(version: int, last_version: int | None, now_s: float, last_s: float) -> bool:
    """Whether the version just made is to be a point.

    Args:
        version: The number of updates so far.
        last_version: That of the point before; None where there is none yet.
        now_s: Now, by the clock of `last_s`.
        last_s: When the point before was taken; without meaning where there is none.
    """
    if version == last_version:
        return False
    return last_version is None or version <= DENSE_UPDATES or now_s - last_s >= INTERVAL_S


def _nothing() -> None:
    pass


class Telemetry:
    """Takes samples on the event loop; where neither is wanted, does next to nothing."""

    def __init__(self, env: MasterEnvironment, board: StatusBoard, is_first_life: bool) -> None:
        self.meter = JobMeter()
        self._env = env
        self._spec = env.spec
        self._board = board
        self._is_first_life = is_first_life
        self._kept = KeptCounts(env.recovery_dir.with_name(COUNTS_NAME))
        self._earlier = Counts()
        self._job: RunningJob | None = None
        self._pass: tuple[RunningJob, Ledger] | None = None
        self._log: EventLog | None = None
        self._exporter: JobExporter | None = None
        self._close_exporter: Callable[[], None] = _nothing
        self._last_version: int | None = None
        self._last_s = 0.0
        self._learning_rate: float | None = None

    def start(self) -> None:
        """Serve metrics, if they are wanted.

        Raises:
            JobSpecError: The port is in use; a restarted master goes on without.
        """
        port = self._spec.served_metrics_port
        if not port:
            return
        # Nobody else pays for the import.
        from elastic.telemetry.prometheus import JobExporter, serve

        exporter = JobExporter(self._spec.job_name, self._kept.keep)
        self._earlier = self._kept.load() or Counts()
        try:
            self._close_exporter = serve(exporter.registry, self._env.host.strip("[]"), port)
        except JobSpecError as error:
            if self._is_first_life:
                raise
            self._board.note("MetricsNotServed", str(error))
            return
        self.meter.on_step_s = exporter.step.observe
        self.meter.on_update_s = exporter.update.observe
        self.meter.on_checkpoint_s = exporter.checkpoint.observe
        self._exporter = exporter
        self.look()

    def attach(self, job: RunningJob, evaluates_as_before: bool = True) -> None:
        """Begin with the job as it was restored.

        Args:
            job: Its parts.
            evaluates_as_before: Whether a version has the same results as before its cut.
        """
        if self._job is None:
            self._earlier = self._at_least(self._earlier, job)
        self._job = job
        if self._log is not None:
            # The job has gone back to a cut within this life.
            self._log.close(CLOSE_S)
            self._log = None
        if not self._spec.tensorboard_log_dir:
            return
        version = job.parameters.version
        loop = asyncio.get_running_loop()

        def on_failure(why: str) -> None:
            # A disk that hangs may answer when nobody listens any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._note_failure, why)

        self._log = EventLog(
            Path(self._spec.tensorboard_log_dir),
            version + 1 if version else 0,
            job_text(self._spec),
            on_failure,
            EVALUATION if evaluates_as_before else None,
        )
        self._log.start()

    def attach_pass(self, job: RunningJob, ledger: Ledger) -> None:
        """Begin with a job that evaluates or predicts, whose ledger is that of its one pass."""
        self._pass = job, ledger

    async def updated(self) -> None:
        """Take a point of the version just applied, if it is due."""
        self._look_at_version()

    def _look_at_version(self, is_last: bool = False) -> None:
        """The last version always is due."""
        job, now_s = self._job, time.monotonic()
        if job is None or (self._log is None and self._exporter is None):
            return
        version = job.parameters.version
        is_due = is_point_due(version, self._last_version, now_s, self._last_s)
        if is_due or (is_last and self._last_version not in (None, version)):
            self._last_version, self._last_s = version, now_s
            self._learning_rate = job.parameters.learning_rate
            self._write_point(job, self.meter.take_window())

    async def epoch_ended(self, result: EpochResult) -> None:
        """Tell what an epoch came to, at the version of its end."""
        if self._log is not None:
            values = (
                ("epoch/loss", result.loss),
                ("epoch/samples_per_s", result.samples_per_s),
                ("epoch/seconds", result.seconds),
                *((f"train_metrics/{name}", value) for name, value in result.metrics.items()),
            )
            self._log.write(Point(result.version, time.time(), values))

    def evaluated(self, version: int, metrics: dict[str, float]) -> None:
        """Tell the results of an evaluation at the version that was evaluated."""
        if self._log is not None:
            values = tuple((f"{EVALUATION}{name}", value) for name, value in metrics.items())
            self._log.write(Point(version, time.time(), values))

    def exited(self, reason: ExitReason | None) -> None:
        """Count the end of a worker."""
        self.meter.exit(reason.value if reason else "Unknown")

    def look(self) -> None:
        """Have the metrics show the job as it is now."""
        if self._exporter is not None:
            self._exporter.sample = self.sample()

    async def close(self) -> None:
        """Write what waits, and listen no more."""
        self._look_at_version(is_last=True)
        await asyncio.to_thread(self._close)

    # -- inside --------------------------------------------------------------------------------

    def _close(self) -> None:
        if self._log is not None:
            self._log.close(CLOSE_S)
        self._close_exporter()

    def _counts(self) -> Counts:
        return self._earlier.plus(self.meter.counts())

    def _at_least(self, kept: Counts, job: RunningJob) -> Counts:
        """What was told last, or what the cut stands for where that is more."""
        ledger = job.ledger
        rejected = Counter(kept.rejected)
        # The status knows those that nobody has asked for since, but not why they were refused.
        rejected[STALE] += max(self._board.earlier_rejected_gradients - rejected.total(), 0)
        return Counts(
            max(kept.records_committed, ledger.total_done - len(ledger.skipped_records)),
            max(kept.records_computed_again, ledger.computed_again),
            max(kept.updates, job.parameters.version),
            +rejected,
            kept.exits,
        )

    def _write_point(self, job: RunningJob, window: Window) -> None:
        if self._log is None:
            return
        workers, counts, ledger = self._workers(), self._counts(), job.ledger
        values: list[tuple[str, float]] = [
            ("throughput/samples_per_s", job.sessions.samples_per_s),
            ("workers/running", workers[ReplicaPhase.RUNNING.lower()]),
            ("workers/desired", workers["desired"]),
            ("updates/rejected_gradients", sum(counts.rejected.values())),
            ("records/computed_again", ledger.computed_again),
            ("epoch", ledger.epoch + ledger.records_done / max(ledger.num_records, 1)),
        ]
        if self._learning_rate is not None:
            values.append(("train/learning_rate", self._learning_rate))
        if window.loss is not None:
            values.append(("train/loss", window.loss))
        if (chosen := job.updates.batch) is not None:
            values.append(("train/batch", chosen.batch))
            if (noise := chosen.noise.scale) is not None:
                values.append(("train/noise_scale", noise))
        if self._spec.is_async:
            values += [
                ("updates/staleness_mean", window.mean_staleness),
                ("updates/staleness_max", window.max_staleness),
            ]
        now_s = time.time()
        split = self._board.time.split(now_s)
        values += [(f"time/{each}_s", getattr(split, f"{each}_s")) for each in TimeCategory]
        self._log.write(Point(job.parameters.version, now_s, tuple(values)))

    def sample(self) -> JobSample:
        """The job as it is now."""
        job, board = self._job, self._board
        if self._pass is not None:
            return self._sample_of_pass(*self._pass)
        if job is None:
            return JobSample(
                self._counts(),
                board.master_restarts,
                workers=self._workers(),
                servers_lost=self._servers_lost(),
            )
        ledger, chosen = job.ledger, job.updates.batch
        return JobSample(
            self._counts(),
            board.master_restarts,
            ledger.epoch,
            job.parameters.version,
            job.updates.loss,
            self._learning_rate,
            job.sessions.samples_per_s,
            self._workers(),
            {"queued": ledger.num_queued, "leased": ledger.num_leased},
            dict(board.metrics),
            None if chosen is None else chosen.batch,
            None if chosen is None else chosen.noise.scale,
            self._servers_lost(),
        )

    def _sample_of_pass(self, job: RunningJob, ledger: Ledger) -> JobSample:
        done = ledger.records_done - len(ledger.skipped_records)
        if ledger.audits:
            done = ledger.audits[-1].committed
        counts = self._counts()
        return JobSample(
            # A master that begins an evaluation anew has counted these records before.
            replace(counts, records_committed=max(self._earlier.records_committed, done)),
            self._board.master_restarts,
            model_version=job.parameters.version,
            samples_per_s=job.sessions.samples_per_s,
            workers=self._workers(),
            tasks={"queued": ledger.num_queued, "leased": ledger.num_leased},
            evaluation=dict(self._board.metrics),
            servers_lost=self._servers_lost(),
        )

    def _servers_lost(self) -> dict[str, int]:
        return {role: self._board.lost[role] for role in (PS, REDIS)}

    def _workers(self) -> dict[str, int]:
        phases = Counter(r.phase for r in self._board.replicas if r.id.role == WORKER)
        return {
            "desired": self._board.desired_workers,
            **{p.lower(): phases[p] for p in (ReplicaPhase.PENDING, ReplicaPhase.RUNNING)},
        }

    def _note_failure(self, why: str) -> None:
        self._board.note("TensorBoardNotWritten", f"no events are written for TensorBoard: {why}")
