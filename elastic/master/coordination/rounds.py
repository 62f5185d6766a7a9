"""What records have come to: losses, metrics and time added up, of epochs and of rounds.

A round is one pass over the evaluation data on one version of the model, each record once.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, Final

import numpy as np

from elastic.frameworks.base import Array, MetricState
from elastic.policy.tasks.epochs import EpochResult, default_records_per_task, remembered_epochs
from elastic.policy.tasks.ledger import Ledger, LedgerConfig, NoTask, Refusal
from elastic.policy.tasks.records import Shard, Task, TaskKind
from elastic.spec.job import JobSpec

FIRST_TASK_ID: Final = 1 << 48
"""Above every training task, so that a late report is never taken for an evaluation's."""
TASK_IDS_PER_ROUND: Final = 1 << 32


def evaluation_task_size(spec: JobSpec, shards: Sequence[Shard]) -> int:
    """Records of a task of an evaluation."""
    if spec.records_per_task is not None:
        return spec.records_per_task
    num_records = sum(shard.num_records for shard in shards)
    return default_records_per_task(num_records, spec.minibatch_size, spec.num_workers.maximum)


class Round:
    """One pass of the workers over some records, on one version of the model."""

    def __init__(self, version: int, ledger: Ledger) -> None:
        self.version = version
        self.ledger = ledger
        self.done = asyncio.Event()
        self._began_s = time.monotonic()

    def lease(
        self, worker: str, *, has_peers: bool = False, is_ahead: bool = False
    ) -> Task | NoTask:
        """The next range for a worker, with the version to use; see `Ledger.lease`."""
        task = self.ledger.lease(worker, has_peers=has_peers, is_ahead=is_ahead)
        return replace(task, model_version=self.version) if isinstance(task, Task) else task

    def samples_per_s(self) -> float:
        """Records done per second since the round was opened."""
        return self.ledger.records_done / max(time.monotonic() - self._began_s, 1e-3)

    def note_progress(self) -> None:
        """Wake whoever waits for the end of the round, if it has come."""
        if self.ledger.is_finished:
            self.done.set()


class EvaluationRound(Round):
    """Leases the evaluation records and adds up what workers report of them.

    A report counts together with its records, so that a worker lost between two reports neither
    loses nor doubles any.
    """

    def __init__(self, number: int, version: int, shards: Sequence[Shard], spec: JobSpec) -> None:
        """Open a round.

        Args:
            number: Counts the rounds of a master's life; keeps their task ids apart.
            version: The version of the model that all of its workers use.
            shards: The evaluation records.
            spec: How they are cut into tasks, and what a failing record means.
        """
        ledger = Ledger(
            shards,
            LedgerConfig(
                records_per_task=evaluation_task_size(spec, shards),
                num_epochs=1,
                kind=TaskKind.EVALUATION,
                first_task_id=FIRST_TASK_ID + number * TASK_IDS_PER_ROUND,
                max_task_failures=spec.max_task_failures,
                skip_bad_records=spec.skip_bad_records,
                # Sums over records are the same whatever the minibatches.
                may_shrink=True,
            ),
        )
        super().__init__(version, ledger)
        self._sums = MetricSums()

    def add(
        self, task_id: int, attempt: int, start: int, end: int, metrics: Sequence[MetricState]
    ) -> bool:
        """Count the sums over records `[start, end)` of a task; False if the lease was lost.

        Raises:
            ValueError: The metrics do not match those reported before; nothing was changed.
        """
        self._sums.check(metrics)
        staged = self.ledger.stage(task_id, attempt, start, end)
        if isinstance(staged, Refusal):
            return False
        self.ledger.commit([staged])
        self._sums.add(metrics)
        self.note_progress()
        return True

    def states(self) -> list[MetricState]:
        """The merged metrics."""
        return self._sums.states()


class MeanLoss:
    """Adds up losses, weighted by the records behind them."""

    def __init__(self) -> None:
        self.total = 0.0
        self.num_records = 0

    def add(self, loss: float, num_records: int) -> None:
        """Take one more minibatch into the mean."""
        self.total += loss * num_records
        self.num_records += num_records

    def take(self, other: "MeanLoss") -> None:
        """Take another mean into this one, and clear that."""
        self.total += other.total
        self.num_records += other.num_records
        other.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.total, self.num_records = 0.0, 0

    @property
    def mean(self) -> float:
        """The mean per record; NaN over none."""
        return self.total / self.num_records if self.num_records else math.nan


class MetricSums:
    """Element-wise sums by name; all reports have to be of the same metrics."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Array]] = {}

    def check(self, metrics: Sequence[MetricState]) -> None:
        """Check that metrics can be added.

        Raises:
            ValueError: They do not match those added before; nothing was changed.
        """
        names = [metric.name for metric in metrics]
        # A report without metrics is of records of which dataset_fn made no example.
        if names and self._sums and names != list(self._sums):
            raise ValueError(f"metrics {names} where others had {list(self._sums)}")
        for metric in metrics:
            known, new = _kinds(self._sums.get(metric.name, metric.values)), _kinds(metric.values)
            if known != new:
                raise ValueError(f"metric {metric.name!r} is {new} where others had {known}")

    def add(self, metrics: Sequence[MetricState]) -> None:
        """Add what has been checked."""
        for metric in metrics:
            if metric.name not in self._sums:
                self._sums[metric.name] = [value.copy() for value in metric.values]
            else:
                for total, value in zip(self._sums[metric.name], metric.values, strict=True):
                    total += value

    def take(self, other: "MetricSums") -> None:
        """Take other sums into these, and clear those."""
        self.add(other.states())
        other.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._sums = {}

    def states(self) -> list[MetricState]:
        """The merged metrics."""
        return [MetricState(name, tuple(values)) for name, values in self._sums.items()]

    def snapshot(self) -> list[Any]:
        """The sums, as JSON values."""
        return [
            [name, [[value.dtype.name, value.tolist()] for value in values]]
            for name, values in self._sums.items()
        ]

    def restore(self, snapshot: Sequence[Any]) -> None:
        """Go on from a snapshot."""
        self._sums = {
            name: [np.array(value, dtype) for dtype, value in values] for name, values in snapshot
        }


class EpochMeter:
    """Adds up one epoch after the other; the time of each counts from the end of the one before.

    Attributes:
        loss: Of what has counted in the epoch under way.
        metrics: Of the same, where workers report them.
        history: What the newest finished epochs came to, oldest first.
    """

    def __init__(self) -> None:
        self.loss = MeanLoss()
        self.metrics = MetricSums()
        self.history: tuple[EpochResult, ...] = ()
        self._earlier_s = 0.0
        self._since_s: float | None = None

    @property
    def mean_loss(self) -> float | None:
        """Of the epoch under way, or of the one before until something counts; None before that."""
        if self.loss.num_records:
            return self.loss.mean
        return self.history[-1].loss if self.history else None

    def work_begins(self, now_s: float) -> None:
        """A worker has got a task: from the first one on the epoch takes time."""
        if self._since_s is None:
            self._since_s = now_s

    def end(
        self,
        epoch: int,
        version: int,
        num_records: int,
        now_s: float,
        metrics: Mapping[str, float] | None = None,
    ) -> EpochResult:
        """Close the epoch, and begin the next.

        Args:
            epoch: Which one it was.
            version: Updates of the model by now.
            num_records: Records that have counted.
            now_s: The time on the clock of `work_begins`.
            metrics: What `metrics` have come to.
        """
        spent_s = self._spent_s(now_s)
        result = EpochResult(
            epoch, version, num_records, self.loss.mean, spent_s, dict(metrics or {})
        )
        self.history = remembered_epochs(self.history, result)
        self.loss.clear()
        self.metrics.clear()
        self._earlier_s, self._since_s = 0.0, now_s
        return result

    def pause_ends(self, now_s: float) -> None:
        """What came between two epochs, such as a callback, is part of neither."""
        self._since_s = now_s

    def snapshot(self, now_s: float) -> dict[str, Any]:
        """What another master goes on from, as JSON values."""
        return {
            "loss": [self.loss.total, self.loss.num_records],
            "metric_sums": self.metrics.snapshot(),
            "epoch_s": self._spent_s(now_s),
            "epochs": [list(astuple(each)) for each in self.history],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot; what an earlier version did not keep begins anew."""
        total, num_records = snapshot.get("loss", [0.0, 0])
        self.loss.total, self.loss.num_records = total, int(num_records)
        self.metrics.restore(snapshot.get("metric_sums", ()))
        self._earlier_s, self._since_s = snapshot.get("epoch_s", 0.0), None
        self.history = tuple(EpochResult(*each) for each in snapshot.get("epochs", ()))

    def _spent_s(self, now_s: float) -> float:
        return self._earlier_s + (0.0 if self._since_s is None else now_s - self._since_s)


def _kinds(arrays: Sequence[Array]) -> str:
    return " ".join(f"{array.dtype.name}{list(array.shape)}" for array in arrays)
