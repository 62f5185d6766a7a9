"""When to evaluate, what is better, which version is best, how long to wait for a better one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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


@dataclass(frozen=True, slots=True)
class EvaluationRule:
    """How often to evaluate.

    Attributes:
        steps: Updates between evaluations; 0 for none before the end of training.
        throttle_s: Time between the ends and beginnings of two evaluations, at the least.
        start_delay_s: Time from the start of training to the first evaluation, at the least.
    """

    steps: int = 0
    throttle_s: float = 0.0
    start_delay_s: float = 0.0


def is_evaluation_due(
    rule: EvaluationRule,
    version: int,
    last_version: int,
    training_s: float,
    since_last_s: float | None,
) -> bool:
    """Whether the version just reached should be evaluated.

    Args:
        rule: How often to evaluate.
        version: The version just reached.
        last_version: The version evaluated last, or that training began with.
        training_s: Time since training began.
        since_last_s: Time since the last evaluation ended; None before the first.
    """
    if rule.steps == 0 or version // rule.steps == last_version // rule.steps:
        return False
    if since_last_s is None:
        return training_s >= rule.start_delay_s
    return since_last_s >= rule.throttle_s


def may_evaluate(num_workers: int, num_evaluating: int, is_training_done: bool) -> bool:
    """Whether one more worker may take an evaluation task.

    Half of the workers go on training; a single worker has to do both in turn.
    """
    return is_training_done or num_evaluating < max(1, num_workers // 2)
