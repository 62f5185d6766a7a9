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
from elastic.master.coordinator import Coordinator
from elastic.master.cutter import Cutter
from elastic.master.environment import MasterEnvironment
from elastic.master.status_board import StatusBoard
from elastic.policy.epochs import EpochResult
from elastic.policy.ledger import Ledger
from elastic.policy.replicas import ExitReason, ReplicaPhase
from elastic.policy.sampling import is_point_due
from elastic.spec.roles import WORKER
from elastic.spec.time_split import TimeCategory
from elastic.telemetry.event_log import EventLog
from elastic.telemetry.job_text import job_text
from elastic.telemetry.kept_counts import KeptCounts
from elastic.telemetry.meter import JobMeter
from elastic.telemetry.samples import EVALUATION, STALE, Counts, JobSample, Point, Window

if TYPE_CHECKING:
    from elastic.telemetry.prometheus import JobExporter

CLOSE_S: Final = 5.0
"""How long the last points may take to be written; the job's end waits for them."""


COUNTS_NAME: Final = "counts.json"


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
        self._coordinator: Coordinator | None = None
        self._pass: tuple[Coordinator, Ledger] | None = None
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

    def attach(
        self, coordinator: Coordinator, cutter: Cutter, evaluates_as_before: bool = True
    ) -> None:
        """Begin with the job as it was restored.

        Args:
            coordinator: Of the job.
            cutter: Of the job.
            evaluates_as_before: Whether a version has the same results as before its cut.
        """
        self._coordinator = coordinator
        coordinator.meter = self.meter
        cutter.on_written = self.meter.on_checkpoint_s
        self._earlier = self._at_least(self._earlier, coordinator)
        if not self._spec.tensorboard_log_dir:
            return
        version = coordinator.store.version
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

    def attach_pass(self, coordinator: Coordinator, ledger: Ledger) -> None:
        """Begin with a job that evaluates or predicts, whose ledger is that of its one pass."""
        self._pass = coordinator, ledger

    def updated(self, is_last: bool = False) -> None:
        """Take a point of the version just applied, if it is due; the last one always is."""
        coordinator, now_s = self._coordinator, time.monotonic()
        if coordinator is None or (self._log is None and self._exporter is None):
            return
        version = coordinator.store.version
        is_due = is_point_due(version, self._last_version, now_s, self._last_s)
        if is_due or (is_last and self._last_version not in (None, version)):
            self._last_version, self._last_s = version, now_s
            self._learning_rate = coordinator.store.learning_rate
            self._write_point(coordinator, self.meter.take_window())

    def epoch_ended(self, result: EpochResult) -> None:
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
        self.updated(is_last=True)
        await asyncio.to_thread(self._close)

    # -- inside --------------------------------------------------------------------------------

    def _close(self) -> None:
        if self._log is not None:
            self._log.close(CLOSE_S)
        self._close_exporter()

    def _counts(self) -> Counts:
        return self._earlier.plus(self.meter.counts())

    def _at_least(self, kept: Counts, coordinator: Coordinator) -> Counts:
        """What was told last, or what the cut stands for where that is more."""
        ledger = coordinator.ledger
        total = ledger.epoch * ledger.num_records + ledger.records_done
        rejected = Counter(kept.rejected)
        # The status knows those that nobody has asked for since, but not why they were refused.
        rejected[STALE] += max(self._board.earlier_rejected_gradients - rejected.total(), 0)
        return Counts(
            max(kept.records_committed, total - len(ledger.skipped_records)),
            max(kept.records_computed_again, ledger.computed_again),
            max(kept.updates, coordinator.store.version),
            +rejected,
            kept.exits,
        )

    def _write_point(self, coordinator: Coordinator, window: Window) -> None:
        if self._log is None:
            return
        workers, counts, ledger = self._workers(), self._counts(), coordinator.ledger
        values: list[tuple[str, float]] = [
            ("throughput/samples_per_s", coordinator.samples_per_s),
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
        if self._spec.is_async:
            values += [
                ("updates/staleness_mean", window.mean_staleness),
                ("updates/staleness_max", window.max_staleness),
            ]
        now_s = time.time()
        split = self._board.time.split(now_s)
        values += [(f"time/{each}_s", getattr(split, f"{each}_s")) for each in TimeCategory]
        self._log.write(Point(coordinator.store.version, now_s, tuple(values)))

    def sample(self) -> JobSample:
        """The job as it is now."""
        coordinator, board = self._coordinator, self._board
        if self._pass is not None:
            return self._sample_of_pass(*self._pass)
        if coordinator is None:
            return JobSample(self._counts(), board.master_restarts, workers=self._workers())
        ledger = coordinator.ledger
        return JobSample(
            self._counts(),
            board.master_restarts,
            ledger.epoch,
            coordinator.store.version,
            coordinator.loss,
            self._learning_rate,
            coordinator.samples_per_s,
            self._workers(),
            {"queued": ledger.num_queued, "leased": ledger.num_leased},
            dict(board.metrics),
        )

    def _sample_of_pass(self, coordinator: Coordinator, ledger: Ledger) -> JobSample:
        done = ledger.records_done - len(ledger.skipped_records)
        if ledger.audits:
            done = ledger.audits[-1].committed
        counts = self._counts()
        return JobSample(
            # A master that begins an evaluation anew has counted these records before.
            replace(counts, records_committed=max(self._earlier.records_committed, done)),
            self._board.master_restarts,
            model_version=coordinator.store.version,
            samples_per_s=coordinator.samples_per_s,
            workers=self._workers(),
            tasks={"queued": ledger.num_queued, "leased": ledger.num_leased},
            evaluation=dict(self._board.metrics),
        )

    def _workers(self) -> dict[str, int]:
        phases = Counter(r.phase for r in self._board.replicas if r.id.role == WORKER)
        return {
            "desired": self._board.desired_workers,
            **{p.lower(): phases[p] for p in (ReplicaPhase.PENDING, ReplicaPhase.RUNNING)},
        }

    def _note_failure(self, why: str) -> None:
        self._board.note("TensorBoardNotWritten", f"no events are written for TensorBoard: {why}")
