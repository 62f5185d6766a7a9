"""Epochs: their updates, what ends training before the last of them, and what they came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

MAX_EPOCHS: Final = 100
"""Remembered: the newest, which tell where training goes."""


def minibatches_of_epoch(num_records: int, minibatch_size: int, drop_last: bool) -> int:
    """Gradients of one epoch, of which only the last is of fewer records, or is left out."""
    num_whole, rest = divmod(num_records, minibatch_size)
    return num_whole + (rest > 0 and not drop_last)


def updates_of_job(
    num_minibatches: int, num_epochs: int, gradients_per_update: int, max_steps: int
) -> int:
    """Updates that a job makes of its gradients; the last group of an epoch may be a partial one.

    Args:
        num_minibatches: Of an epoch.
        num_epochs: Of the job.
        gradients_per_update: In a whole group; 1 where each is applied as it comes.
        max_steps: Updates after which training ends at the latest; 0 for no such end.
    """
    num_updates = num_epochs * -(-num_minibatches // gradients_per_update)
    return min(num_updates, max_steps) if max_steps else num_updates


@dataclass(frozen=True, slots=True)
class Ending:
    """Why training ended although records were left.

    Attributes:
        reason: One word for the job's status.
        message: What happened, for people.
    """

    reason: str
    message: str


def ending_at(max_steps: int, version: int) -> Ending | None:
    """What ends training after the update to `version`; None where it goes on.

    An update is applied whole, by one gradient or by many, so that this is exact in every mode.

    Args:
        max_steps: Updates of the job; 0 for as many as its epochs have.
        version: Updates applied so far.
    """
    if max_steps == 0 or version < max_steps:
        return None
    return Ending("MaxSteps", f"training ended after {version} updates: max_steps={max_steps}")


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
