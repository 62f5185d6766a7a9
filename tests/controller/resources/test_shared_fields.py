"""What several kinds have alike: bounds of a run policy, and conditions that change or do not."""

import pytest

from elastic.controller.resources.common import (
    Condition,
    ConditionStatus,
    RunPolicy,
    read_spec,
    seconds_of,
    time_text,
    with_condition,
)

THEN_S, NOW_S = 1_700_000_000.0, 1_700_000_005.0
TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE


def _set(conditions, type_, status, reason="Because", message="so", now_s=THEN_S):
    return with_condition(conditions, type_, status, reason, message, now_s)


def _running():
    return _set(_set((), "Created", TRUE), "Running", TRUE)


def _written(condition: Condition) -> dict:
    return condition.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"cleanPodPolicy": "Some"}, "spec.cleanPodPolicy='Some'"),
        ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished=-1"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds=0"),
        ({"backoffLimit": -1}, "spec.backoffLimit=-1"),
        ({"backoffLimit": 2**31}, "spec.backoffLimit=2147483648"),
    ],
)
def test_policy_names_the_field_and_the_value_that_it_refuses(written, problem):
    assert read_spec(RunPolicy, {"spec": written}).problem.startswith(problem)


def test_policy_takes_the_bounds_themselves():
    written = {"ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 1, "backoffLimit": 0}
    spec = read_spec(RunPolicy, {"spec": written}).spec
    assert spec is not None
    assert (spec.ttl_seconds_after_finished, spec.active_deadline_seconds) == (0, 1)


def test_condition_is_written_as_kubernetes_has_it():
    (created,) = _set((), "Created", TRUE, "JobCreated", "job a is created")
    assert _written(created) == {
        "type": "Created",
        "status": "True",
        "reason": "JobCreated",
        "message": "job a is created",
        "lastUpdateTime": "2023-11-14T22:13:20Z",
        "lastTransitionTime": "2023-11-14T22:13:20Z",
    }


def test_setting_what_is_so_already_changes_nothing():
    assert _set(_running(), "Running", TRUE, now_s=NOW_S) == _running()


def test_another_message_is_an_update_and_no_transition():
    _, running = _set(_running(), "Running", TRUE, message="still", now_s=NOW_S)
    assert running.last_update_time == time_text(NOW_S)
    assert running.last_transition_time == time_text(THEN_S)


def test_what_ceases_to_hold_keeps_its_place_and_what_comes_to_hold_goes_last():
    stopped = _set(_set(_running(), "Running", FALSE), "Restarting", TRUE)
    assert [each.type for each in stopped] == ["Created", "Running", "Restarting"]
    again = _set(_set(stopped, "Restarting", FALSE), "Running", TRUE, now_s=NOW_S)
    assert [each.type for each in again] == ["Created", "Restarting", "Running"]
    assert again[-1].last_transition_time == time_text(NOW_S)


def test_times_are_read_as_they_are_written():
    assert seconds_of(time_text(NOW_S)) == NOW_S
