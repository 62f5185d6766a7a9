"""What epochs came to, as a job remembers them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

MAX_EPOCHS: Final = 100
"""Remembered: the newest, which tell where training goes."""


@dataclass(frozen=True, slots=True)
class EpochResult:
    """What one epoch came to.

    Attributes:
        epoch: Which one, from 0.
        version: Updates of the model at its end.
        records: Records that have counted in it.
        loss: Mean over these, each by the loss of its minibatch; NaN where there were none.
        seconds: What it took, without the time that a lost master cost.
        metrics: The user's metrics over these records, where the job wants them.
    """

    epoch: int
    version: int
    records: int
    loss: float
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def logs(self) -> dict[str, float]:
        """What callbacks are told of the training records; no metric is called `loss`."""
        return {**self.metrics, "loss": self.loss}

    @property
    def samples_per_s(self) -> float:
        """Records that have counted per second; 0 where it took no time."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


def remembered_epochs(
    history: Sequence[EpochResult], result: EpochResult
) -> tuple[EpochResult, ...]:
    """The history with one more."""
    return (*history, result)[-MAX_EPOCHS:]
