"""What is better, and how long to wait for something better."""

import math
from dataclasses import dataclass
from enum import StrEnum


class Goal(StrEnum):
    """Which values of a metric are the better ones."""

    MIN = "min"
    MAX = "max"


def goal_of(monitor: str, mode: str) -> Goal:
    """What a metric's values should become.

    Args:
        monitor: The metric's name.
        mode: `min`, `max`, or `auto`, which is known of a loss only.

    Raises:
        ValueError: The mode is none of these, or the name does not tell.
    """
    if mode in tuple(Goal):
        return Goal(mode)
    if mode != "auto":
        raise ValueError(f"mode={mode!r} is none of 'min', 'max' and 'auto'")
    if monitor == "loss" or monitor.endswith("_loss"):
        return Goal.MIN
    raise ValueError(f"monitor={monitor!r} does not tell what is better: say mode='min' or 'max'")


def is_better(goal: Goal, value: float, best: float | None, min_delta: float = 0.0) -> bool:
    """Whether a value improves on the best one by more than `min_delta`; NaN never does."""
    if math.isnan(value):
        return False
    if best is None:
        return True
    return value < best - min_delta if goal is Goal.MIN else value > best + min_delta


@dataclass(frozen=True, slots=True)
class Patience:
    """How long nothing better has come.

    Attributes:
        best: The best value so far; None before the first.
        num_worse: Values since then.
    """

    best: float | None = None
    num_worse: int = 0

    def after(self, value: float, goal: Goal, min_delta: float) -> "Patience":
        """The state after one more value."""
        if is_better(goal, value, self.best, min_delta):
            return Patience(value, 0)
        return Patience(self.best, self.num_worse + 1)

    def is_exhausted(self, patience: int) -> bool:
        """Whether the values since the best are as many as one waits for; one at the least."""
        return self.num_worse >= max(patience, 1)
