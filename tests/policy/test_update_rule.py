"""Which gradient counts, and when an update is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.policy.updates.update_group import (
    Accept,
    LateGradients,
    RefuseStale,
    UpdateRule,
    hold_limit_s,
    is_update_due,
    judge_gradient,
    should_hold_reply,
    should_wait_to_begin,
)

SYNC = UpdateRule(grads_to_wait=2)
ASYNC = UpdateRule(is_async=True)


@pytest.mark.parametrize(
    ("rule", "gradient_version", "expected"),
    [
        pytest.param(SYNC, 7, Accept(), id="sync-current"),
        pytest.param(SYNC, 6, RefuseStale(7), id="sync-refuses-any-older"),
        pytest.param(ASYNC, 2, Accept(), id="async-takes-any-age"),
        pytest.param(UpdateRule(is_async=True, max_staleness=3), 4, Accept(), id="bound-holds"),
        pytest.param(
            UpdateRule(is_async=True, max_staleness=3), 3, RefuseStale(7), id="bound-refuses"
        ),
        pytest.param(
            UpdateRule(is_async=True, lr_staleness_modulation=True), 3, Accept(0.25), id="divides"
        ),
        pytest.param(
            UpdateRule(is_async=True, lr_staleness_modulation=True), 7, Accept(1.0), id="fresh"
        ),
    ],
)
def test_judge_gradient(rule, gradient_version, expected):
    assert judge_gradient(rule, gradient_version, current_version=7) == expected


def test_version_from_the_future_breaks_the_protocol():
    with pytest.raises(ValueError, match="version 8, but the newest is 7"):
        judge_gradient(SYNC, 8, 7)


@pytest.mark.parametrize(
    ("rule", "num_accepted", "only_staged_left", "expected"),
    [
        pytest.param(SYNC, 1, False, False, id="group-open"),
        pytest.param(SYNC, 2, False, True, id="group-full"),
        pytest.param(SYNC, 1, True, True, id="last-partial-group-is-not-waited-for"),
        pytest.param(SYNC, 0, True, False, id="nothing-to-apply"),
        pytest.param(ASYNC, 1, False, True, id="async-at-once"),
    ],
)
def test_is_update_due(rule, num_accepted, only_staged_left, expected):
    assert is_update_due(rule, num_accepted, only_staged_left) is expected


@pytest.mark.parametrize(
    ("grads_to_wait", "num_accepted", "num_computing", "expected"),
    [
        pytest.param(2, 1, 1, True, id="the-other-fills-the-group"),
        pytest.param(2, 1, 0, False, id="nobody-else-can"),
        pytest.param(4, 1, 1, False, id="two-workers-cannot-fill-four-yet"),
        pytest.param(4, 3, 1, True, id="now-they-can"),
    ],
)
def test_should_hold_reply(grads_to_wait, num_accepted, num_computing, expected):
    rule = UpdateRule(grads_to_wait=grads_to_wait)
    assert should_hold_reply(rule, num_accepted, num_computing) is expected


@pytest.mark.parametrize(
    ("num_accepted", "num_computing", "num_workers", "expected"),
    [
        pytest.param(0, 1, 2, False, id="there-is-room"),
        pytest.param(1, 1, 2, True, id="the-other-fills-the-group"),
        pytest.param(1, 1, 3, False, id="more-workers-than-a-group-takes"),
    ],
)
def test_should_wait_to_begin(num_accepted, num_computing, num_workers, expected):
    assert should_wait_to_begin(SYNC, num_accepted, num_computing, num_workers) is expected


@given(grads_to_wait=st.integers(1, 5), choices=st.lists(st.integers(0, 10_000), max_size=80))
def test_no_gradient_is_late_where_a_group_takes_those_of_all_workers(grads_to_wait, choices):
    """Whichever workers come, leave and end their minibatch, in whatever order."""
    rule = UpdateRule(grads_to_wait=grads_to_wait)
    version, num_accepted = 0, 0
    on_version: dict[int, int] = {}
    waiting: set[int] = set()
    for number in choices:
        worker = number % grads_to_wait
        if number % 7 == 0:
            on_version.pop(worker, None)
            waiting.discard(worker)
        elif worker in on_version:
            assert on_version.pop(worker) == version, "its gradient would be refused"
            num_accepted += 1
            waiting.add(worker)
        else:
            waiting.add(worker)
        if num_accepted == grads_to_wait:
            version, num_accepted = version + 1, 0
        for each in sorted(waiting):
            num_workers = len(waiting) + len(on_version)
            if not should_wait_to_begin(rule, num_accepted, len(on_version), num_workers):
                waiting.remove(each)
                on_version[each] = version


@pytest.mark.parametrize(
    ("typical_step_s", "expected_s"),
    [
        pytest.param(None, 5.0, id="no-step-is-known"),
        pytest.param(1.5, 3.0, id="two-steps"),
        pytest.param(0.005, 0.5, id="a-busy-machine-takes-longer-than-the-step"),
    ],
)
def test_hold_limit(typical_step_s, expected_s):
    assert hold_limit_s(typical_step_s) == expected_s


def test_async_never_holds():
    assert not should_hold_reply(ASYNC, 1, 5)


@pytest.mark.parametrize(
    ("rule", "num_accepted", "num_late", "num_workers", "is_told"),
    [
        pytest.param(UpdateRule(), 20, 20, 2, True, id="half-thrown-away"),
        pytest.param(UpdateRule(), 30, 10, 2, True, id="a-quarter"),
        pytest.param(UpdateRule(), 31, 9, 2, False, id="less-than-a-quarter"),
        pytest.param(UpdateRule(), 19, 20, 2, False, id="too-few-to-judge"),
        pytest.param(UpdateRule(grads_to_wait=2), 20, 20, 2, False, id="a-group-for-all"),
        pytest.param(UpdateRule(grads_to_wait=2), 20, 20, 3, True, id="one-too-many"),
        pytest.param(UpdateRule(is_async=True), 20, 20, 2, False, id="async"),
        pytest.param(UpdateRule(), 0, 40, 0, False, id="all-gone-by-now"),
    ],
)
def test_late_gradients_are_told(rule, num_accepted, num_late, num_workers, is_told):
    hints = hints_of(rule, num_accepted, num_late, num_workers)
    assert (hints[-1] is not None) == is_told


def hints_of(rule, num_accepted, num_late, num_workers):
    """What is said after each gradient that comes too late."""
    late = LateGradients(rule)
    for _ in range(num_accepted):
        late.accept()
    return [late.refuse(num_workers) for _ in range(num_late)]


def test_late_gradients_are_told_once_with_what_to_do():
    hints = hints_of(UpdateRule(), 55, 45, 3)
    assert [hint for hint in hints if hint] == [
        "19 of 74 gradients came too late and were computed again, since 3 workers share updates "
        "of grads_to_wait=1: --grads_to_wait 3 uses all of them, and so does --use_async"
    ]
