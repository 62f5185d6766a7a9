"""Desired workers against observed ones."""

import pytest

from elastic.policy.fleet import (
    MAX_BACKOFF_S,
    Delete,
    FailJob,
    Fleet,
    FleetRules,
    Forget,
    Launch,
    NoteExit,
    backoff_s,
)
from elastic.policy.replicas import ExitReason, Replica, ReplicaId, ReplicaPhase

RULES = FleetRules(max_worker_failures=2, start_timeout_s=60, grace_s=5)


def worker(index, launch, reason=None, message=""):
    phase = {None: ReplicaPhase.RUNNING, ExitReason.COMPLETED: ReplicaPhase.SUCCEEDED}.get(
        reason, ReplicaPhase.FAILED
    )
    return Replica(ReplicaId("worker", index, launch), phase, reason, message=message)


def launch(index, number):
    return Launch(ReplicaId("worker", index, number))


def test_missing_workers_are_launched_once():
    fleet = Fleet(RULES)
    assert fleet.plan([], 2, 0.0) == [launch(0, 1), launch(1, 1)]
    assert fleet.plan([], 2, 1.0) == [], "the platform has not shown them yet"
    assert fleet.plan([worker(0, 1), worker(1, 1)], 2, 2.0) == []


def test_what_shows_no_effect_is_asked_for_again():
    """The platform was away when it was asked: the next look finds the same difference."""
    fleet = Fleet(RULES)
    assert fleet.plan([], 1, 0.0) == [launch(0, 1)]
    assert fleet.plan([], 1, 4.9) == []
    assert fleet.plan([], 1, 5.0) == [launch(0, 1)], "the same launch, not a second worker"
    assert fleet.plan([worker(0, 1)], 0, 10.0) == [Delete(ReplicaId("worker", 0, 1), 5.0)]
    assert fleet.plan([worker(0, 1)], 0, 14.0) == []
    assert fleet.plan([worker(0, 1)], 0, 15.0) == [Delete(ReplicaId("worker", 0, 1), 0.0)]


def test_killed_worker_is_replaced_at_once_and_for_free():
    fleet = Fleet(RULES)
    dead = worker(0, 1, ExitReason.KILLED)
    assert fleet.plan([dead], 1, 0.0) == [NoteExit(dead, is_failure=False), launch(0, 2)]
    assert fleet.failures == 0


def test_an_exit_is_noted_once_and_forgotten_when_replaced():
    fleet = Fleet(RULES)
    dead = worker(0, 1, ExitReason.KILLED)
    fleet.plan([dead], 1, 0.0)
    assert fleet.plan([dead], 1, 1.0) == []
    assert fleet.plan([dead, worker(0, 2)], 1, 2.0) == [Forget(dead.id)]


def test_user_errors_back_off_and_end_the_job_with_the_first_reason():
    fleet = Fleet(RULES)
    first = worker(0, 1, ExitReason.USER_ERROR, "ValueError: bad")
    assert fleet.plan([first], 1, 0.0) == [NoteExit(first, is_failure=True)]
    assert fleet.plan([first], 1, 0.6) == [launch(0, 2)]
    second = worker(0, 2, ExitReason.OUT_OF_MEMORY, "limit 1 GiB")
    fleet.plan([first, second], 1, 1.0)
    third = worker(0, 3, ExitReason.USER_ERROR, "other")
    *_, verdict = fleet.plan([third], 1, 9.0)
    assert verdict == FailJob(
        "WorkerFailures",
        "workers failed 3 times (max_worker_failures=2); the first was worker-0: ValueError: bad",
    )


def test_progress_clears_the_back_off():
    fleet = Fleet(RULES)
    for number in (1, 2, 3):
        fleet.plan([worker(0, number, ExitReason.KILLED)], 1, 0.0)
    assert fleet.plan([worker(0, 3, ExitReason.KILLED)], 1, 0.1) == []
    fleet.made_progress(0)
    fleet.plan([worker(0, 4)], 1, 1.0)
    dead = worker(0, 4, ExitReason.KILLED)
    assert launch(0, 5) in fleet.plan([dead], 1, 1.0)


def test_scaling_down_deletes_the_highest_index_once_and_an_exit_then_is_no_failure():
    fleet = Fleet(RULES)
    both = [worker(0, 1), worker(1, 1)]
    assert fleet.plan(both, 1, 0.0) == [Delete(ReplicaId("worker", 1, 1), 5)]
    assert fleet.plan(both, 1, 1.0) == []
    gone = worker(1, 1, ExitReason.USER_ERROR, "interrupted")
    assert fleet.plan([worker(0, 1), gone], 1, 2.0) == [NoteExit(gone, is_failure=False)]


def test_scaling_up_again_while_the_old_one_drains_waits_for_it():
    fleet = Fleet(RULES)
    both = [worker(0, 1), worker(1, 1)]
    fleet.plan(both, 1, 0.0)
    assert fleet.plan(both, 2, 1.0) == []
    gone = worker(1, 1, ExitReason.COMPLETED)
    assert fleet.plan([worker(0, 1), gone], 2, 2.0) == [
        NoteExit(gone, is_failure=False),
        launch(1, 2),
    ]


def test_restarted_master_touches_no_healthy_worker():
    fleet = Fleet(RULES)
    observed = [worker(0, 3), worker(1, 1), worker(2, 2, ExitReason.KILLED)]
    fleet.adopt_exits(observed, lambda _: True)
    assert fleet.plan(observed, 3, 0.0) == [launch(2, 3)]


def test_what_ended_while_there_was_no_master_is_noted():
    fleet = Fleet(RULES)
    told, killed = worker(0, 3, ExitReason.KILLED), worker(1, 1, ExitReason.KILLED)
    failed = worker(2, 2, ExitReason.USER_ERROR, "boom")
    fleet.adopt_exits([told, killed, failed], lambda replica: replica == told.id)
    actions = fleet.plan([told, killed, failed], 3, 0.0)
    assert [a for a in actions if isinstance(a, NoteExit)] == [
        NoteExit(killed, is_failure=False),
        NoteExit(failed, is_failure=True),
    ]
    assert fleet.failures == 1


def test_job_without_any_worker_fails_after_the_start_timeout():
    fleet = Fleet(RULES)
    fleet.plan([], 1, 0.0)
    never = worker(0, 1, ExitReason.NEVER_STARTED, "no such image")
    assert not any(isinstance(a, FailJob) for a in fleet.plan([never], 1, 60.0))
    *_, verdict = fleet.plan([never], 1, 61.0)
    assert isinstance(verdict, FailJob)
    assert verdict.reason == "NoWorkers"
    assert "no such image" in verdict.message


def test_one_running_worker_resets_the_start_timeout():
    fleet = Fleet(RULES)
    fleet.plan([], 1, 0.0)
    fleet.plan([worker(0, 1)], 1, 50.0)
    assert not any(
        isinstance(a, FailJob) for a in fleet.plan([worker(0, 1, ExitReason.KILLED)], 1, 100.0)
    )


@pytest.mark.parametrize(
    ("exits", "is_failure", "expected"),
    [
        pytest.param(1, False, 0.0, id="first-kill"),
        pytest.param(2, False, 0.0, id="second-kill"),
        pytest.param(3, False, 0.5, id="a-storm-begins"),
        pytest.param(1, True, 0.5, id="own-failure"),
        pytest.param(3, True, 2.0, id="doubles"),
        pytest.param(50, True, MAX_BACKOFF_S, id="bounded"),
    ],
)
def test_backoff(exits, is_failure, expected):
    assert backoff_s(exits, is_failure) == expected


def test_as_many_failures_as_allowed_do_not_end_the_job():
    fleet = Fleet(FleetRules(max_worker_failures=2, start_timeout_s=600.0))

    def plan(launch):
        replica = ReplicaId("worker", 0, launch)
        failed = Replica(replica, ReplicaPhase.FAILED, ExitReason.USER_ERROR, "bad")
        return fleet.plan([failed], 1, 100.0 * launch)

    assert not any(isinstance(a, FailJob) for launch in (1, 2) for a in plan(launch))
    assert any(isinstance(action, FailJob) for action in plan(3))
