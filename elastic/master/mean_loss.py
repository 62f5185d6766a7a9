"""The mean loss of the gradients that have counted in an epoch."""

import math


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

    def snapshot(self) -> list[float]:
        """The sums, as JSON values."""
        return [self.total, self.num_records]

    def restore(self, snapshot: list[float]) -> None:
        """Go on from a snapshot."""
        self.total, self.num_records = snapshot[0], int(snapshot[1])
