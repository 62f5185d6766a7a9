"""When a version is evaluated, which one is the best, and how long nothing better may come."""

import math

import pytest

from elastic.policy.evaluation import (
    MAX_EVALUATIONS,
    BestRule,
    Evaluation,
    EvaluationRule,
    Goal,
    Patience,
    goal_of,
    is_better,
    is_evaluation_due,
    is_new_best,
    may_evaluate,
    remembered,
)

RULE = EvaluationRule(steps=10, throttle_s=5.0, start_delay_s=60.0)


@pytest.mark.parametrize(
    ("version", "last_version", "training_s", "since_last_s", "expected"),
    [
        pytest.param(10, 0, 60.0, None, True, id="first"),
        pytest.param(10, 0, 59.9, None, False, id="first-too-early"),
        pytest.param(9, 0, 99.0, None, False, id="too-few-updates"),
        pytest.param(20, 10, 99.0, 5.0, True, id="next"),
        pytest.param(20, 10, 99.0, 4.9, False, id="next-too-soon"),
        pytest.param(23, 19, 99.0, 9.0, True, id="made-up-for-later"),
        pytest.param(19, 13, 99.0, 9.0, False, id="not-yet-again"),
    ],
)
def test_a_version_is_due(version, last_version, training_s, since_last_s, expected):
    assert is_evaluation_due(RULE, version, last_version, training_s, since_last_s) is expected


def test_without_steps_none_is_due():
    assert not is_evaluation_due(EvaluationRule(), 10**6, 0, 1e9, None)


@pytest.mark.parametrize(
    ("num_workers", "num_evaluating", "is_done", "expected"),
    [(1, 0, False, True), (4, 1, False, True), (4, 2, False, False), (4, 3, True, True)],
)
def test_half_of_the_workers_train_on(num_workers, num_evaluating, is_done, expected):
    assert may_evaluate(num_workers, num_evaluating, is_done) is expected


@pytest.mark.parametrize(
    ("goal", "value", "best", "min_delta", "expected"),
    [
        (Goal.MIN, 1.0, None, 0.0, True),
        (Goal.MIN, 1.0, 2.0, 0.0, True),
        (Goal.MIN, 2.0, 2.0, 0.0, False),
        (Goal.MIN, 1.9, 2.0, 0.1, False),
        (Goal.MAX, 3.0, 2.0, 0.0, True),
        (Goal.MAX, 1.0, 2.0, 0.0, False),
        (Goal.MAX, math.nan, None, 0.0, False),
        (Goal.MIN, math.nan, 2.0, 0.0, False),
    ],
)
def test_what_is_better(goal, value, best, min_delta, expected):
    assert is_better(goal, value, best, min_delta) is expected


@pytest.mark.parametrize(
    ("patience", "stops_after"), [(0, 3), (1, 3), (2, 4), (3, 5), (4, None)]
)  # fmt: skip
def test_patience_ends_with_the_values_since_the_best(patience, stops_after):
    state = Patience()
    stopped = None
    for number, value in enumerate([3.0, 1.0, 2.0, 2.0, 1.0], start=1):
        state = state.after(value, Goal.MIN, 0.0)
        if stopped is None and state.is_exhausted(patience):
            stopped = number
    assert stopped == stops_after


@pytest.mark.parametrize(
    ("monitor", "mode", "expected"),
    [("loss", "auto", Goal.MIN), ("val_loss", "auto", Goal.MIN), ("auc", "max", Goal.MAX)],
)
def test_the_goal_of_a_metric(monitor, mode, expected):
    assert goal_of(monitor, mode) is expected


@pytest.mark.parametrize(("monitor", "mode"), [("accuracy", "auto"), ("loss", "best")])
def test_a_goal_that_is_not_told_is_asked_for(monitor, mode):
    with pytest.raises(ValueError, match="mode="):
        goal_of(monitor, mode)


def _evaluation(version, value, epoch=0):
    return Evaluation(version, epoch, {"loss": value})


def test_the_first_of_equal_versions_is_the_best():
    rule = BestRule("loss", Goal.MIN, from_epoch=1)
    best = _evaluation(10, 1.0, epoch=1)
    assert is_new_best(rule, best, None)
    assert not is_new_best(rule, _evaluation(20, 1.0, epoch=2), best)
    assert is_new_best(rule, _evaluation(20, 0.9, epoch=2), best)
    assert not is_new_best(rule, _evaluation(5, 0.1, epoch=0), None)
    assert not is_new_best(None, best, None)


def test_what_is_remembered_is_bounded_and_of_one_future():
    history = ()
    for version in range(1, MAX_EVALUATIONS + 11):
        history = remembered(history, _evaluation(version, 1.0))
    assert [each.version for each in history] == list(range(11, MAX_EVALUATIONS + 11))
    again = remembered(history, _evaluation(50, 2.0))
    assert [each.version for each in again] == list(range(11, 51))
    assert again[-1].metrics == {"loss": 2.0}
