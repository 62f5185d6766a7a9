"""When to evaluate while training goes on, and how many workers may be taken for it."""

from dataclasses import dataclass


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
