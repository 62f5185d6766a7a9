"""The epoch under way: the mean loss of what has counted in it, and the time that it takes."""

import math
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from elastic.master.metric_sums import MetricSums
from elastic.policy.epochs import EpochResult, remembered_epochs


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
