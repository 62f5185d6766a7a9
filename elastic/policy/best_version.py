"""Evaluations as a job remembers them, and which of its versions is the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.policy.patience import Goal, is_better

MAX_EVALUATIONS: Final = 100
"""Remembered: the newest, which tell where training goes."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one version of the model came to; `epoch` is the one that it is of."""

    version: int
    epoch: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BestRule:
    """Which versions are better.

    Attributes:
        monitor: Name of the metric.
        goal: Whether it should be small or large.
        from_epoch: Versions of earlier epochs do not count.
    """

    monitor: str
    goal: Goal
    from_epoch: int = 0


def is_new_best(rule: BestRule | None, evaluation: Evaluation, best: Evaluation | None) -> bool:
    """Whether a version is the one to keep; of equal ones the first is."""
    if rule is None or evaluation.epoch < rule.from_epoch:
        return False
    value = evaluation.metrics.get(rule.monitor)
    if value is None:
        return False
    return is_better(rule.goal, value, None if best is None else best.metrics[rule.monitor])


def remembered(history: Sequence[Evaluation], evaluation: Evaluation) -> tuple[Evaluation, ...]:
    """The history with one more; what a lost future said of this version or later ones goes."""
    earlier = [each for each in history if each.version < evaluation.version]
    return (*earlier, evaluation)[-MAX_EVALUATIONS:]
