"""Desired workers against observed ones."""

from dataclasses import replace

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
    TakenLaunches,
    backoff_s,
)
from elastic.policy.replicas import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.spec.roles import ROLES, Quorum

RULES = FleetRules({"worker": 2}, start_timeout_s=60, grace_s=5)


def worker(index, launch, reason=None, message=""):
    phase = {None: ReplicaPhase.RUNNING, ExitReason.COMPLETED: ReplicaPhase.SUCCEEDED}.get(
        reason, ReplicaPhase.FAILED
    )
    return Replica(ReplicaId("worker", index, launch), phase, reason, message=message)


def plan(fleet, observed, num_workers, now_s):
    return fleet.plan(observed, {"worker": num_workers}, now_s)


def launch(index, number):
    return Launch(ReplicaId("worker", index, number))


def test_missing_workers_are_launched_once():
    fleet = Fleet(RULES)
    assert plan(fleet, [], 2, 0.0) == [launch(0, 1), launch(1, 1)]
    assert plan(fleet, [], 2, 1.0) == [], "the platform has not shown them yet"
    assert plan(fleet, [worker(0, 1), worker(1, 1)], 2, 2.0) == []


def test_what_shows_no_effect_is_asked_for_again():
    """The platform was away when it was asked: the next look finds the same difference."""
    fleet = Fleet(RULES)
    assert plan(fleet, [], 1, 0.0) == [launch(0, 1)]
    assert plan(fleet, [], 1, 4.9) == []
    assert plan(fleet, [], 1, 5.0) == [launch(0, 1)], "the same launch, not a second worker"
    assert plan(fleet, [worker(0, 1)], 0, 10.0) == [Delete(ReplicaId("worker", 0, 1), 5.0)]
    assert plan(fleet, [worker(0, 1)], 0, 14.0) == []
    assert plan(fleet, [worker(0, 1)], 0, 15.0) == [Delete(ReplicaId("worker", 0, 1), 0.0)]


def test_killed_worker_is_replaced_at_once_and_for_free():
    fleet = Fleet(RULES)
    dead = worker(0, 1, ExitReason.KILLED)
    assert plan(fleet, [dead], 1, 0.0) == [NoteExit(dead, is_failure=False), launch(0, 2)]
    assert fleet.failures("worker") == 0


def test_an_exit_is_noted_once_and_forgotten_when_replaced():
    fleet = Fleet(RULES)
    dead = worker(0, 1, ExitReason.KILLED)
    plan(fleet, [dead], 1, 0.0)
    assert plan(fleet, [dead], 1, 1.0) == []
    assert plan(fleet, [dead, worker(0, 2)], 1, 2.0) == [Forget(dead.id)]


def test_user_errors_back_off_and_end_the_job_with_the_first_reason():
    fleet = Fleet(RULES)
    first = worker(0, 1, ExitReason.USER_ERROR, "ValueError: bad")
    assert plan(fleet, [first], 1, 0.0) == [NoteExit(first, is_failure=True)]
    assert plan(fleet, [first], 1, 0.6) == [launch(0, 2)]
    second = worker(0, 2, ExitReason.OUT_OF_MEMORY, "limit 1 GiB")
    plan(fleet, [first, second], 1, 1.0)
    third = worker(0, 3, ExitReason.USER_ERROR, "other")
    *_, verdict = plan(fleet, [third], 1, 9.0)
    assert verdict == FailJob(
        "WorkerFailures",
        "workers failed 3 times (max_worker_failures=2); the first was worker-0: ValueError: bad",
    )


def test_progress_clears_the_back_off():
    fleet = Fleet(RULES)
    for number in (1, 2, 3):
        plan(fleet, [worker(0, number, ExitReason.KILLED)], 1, 0.0)
    assert plan(fleet, [worker(0, 3, ExitReason.KILLED)], 1, 0.1) == []
    fleet.made_progress(ReplicaId("worker", 0, 1))
    plan(fleet, [worker(0, 4)], 1, 1.0)
    dead = worker(0, 4, ExitReason.KILLED)
    assert launch(0, 5) in plan(fleet, [dead], 1, 1.0)


def test_scaling_down_deletes_the_highest_index_once_and_an_exit_then_is_no_failure():
    fleet = Fleet(RULES)
    both = [worker(0, 1), worker(1, 1)]
    assert plan(fleet, both, 1, 0.0) == [Delete(ReplicaId("worker", 1, 1), 5)]
    assert plan(fleet, both, 1, 1.0) == []
    gone = worker(1, 1, ExitReason.USER_ERROR, "interrupted")
    assert plan(fleet, [worker(0, 1), gone], 1, 2.0) == [NoteExit(gone, is_failure=False)]


def test_scaling_up_again_while_the_old_one_drains_waits_for_it():
    fleet = Fleet(RULES)
    both = [worker(0, 1), worker(1, 1)]
    plan(fleet, both, 1, 0.0)
    assert plan(fleet, both, 2, 1.0) == []
    gone = worker(1, 1, ExitReason.COMPLETED)
    assert plan(fleet, [worker(0, 1), gone], 2, 2.0) == [
        NoteExit(gone, is_failure=False),
        launch(1, 2),
    ]


def test_restarted_master_touches_no_healthy_worker():
    fleet = Fleet(RULES)
    observed = [worker(0, 3), worker(1, 1), worker(2, 2, ExitReason.KILLED)]
    fleet.adopt_exits(observed, lambda _: True)
    assert plan(fleet, observed, 3, 0.0) == [launch(2, 3)]


def test_what_ended_while_there_was_no_master_is_noted():
    fleet = Fleet(RULES)
    told, killed = worker(0, 3, ExitReason.KILLED), worker(1, 1, ExitReason.KILLED)
    failed = worker(2, 2, ExitReason.USER_ERROR, "boom")
    fleet.adopt_exits([told, killed, failed], lambda replica: replica == told.id)
    actions = plan(fleet, [told, killed, failed], 3, 0.0)
    assert [a for a in actions if isinstance(a, NoteExit)] == [
        NoteExit(killed, is_failure=False),
        NoteExit(failed, is_failure=True),
    ]
    assert fleet.failures("worker") == 1


def test_numbers_that_an_earlier_master_may_have_given_are_not_given_again():
    fleet = Fleet(RULES, taken=TakenLaunches({"worker-0": 3, "worker-1": 2}, least=1))
    seen = [worker(1, 2)]
    assert plan(fleet, seen, 3, 0.0) == [launch(0, 4), launch(2, 2)]
    assert plan(fleet, seen, 3, 5.0) == [launch(0, 4), launch(2, 2)], "the same launches"
    assert fleet.current_launch(ReplicaId("worker", 1, 1)) == 2, "one that runs is no older"


def test_job_without_any_worker_fails_after_the_start_timeout():
    fleet = Fleet(RULES)
    plan(fleet, [], 1, 0.0)
    never = worker(0, 1, ExitReason.NEVER_STARTED, "no such image")
    assert not any(isinstance(a, FailJob) for a in plan(fleet, [never], 1, 60.0))
    *_, verdict = plan(fleet, [never], 1, 61.0)
    assert isinstance(verdict, FailJob)
    assert verdict.reason == "NoWorkers"
    assert "no such image" in verdict.message


def test_what_a_queue_holds_back_is_waited_for_as_long_as_it_takes():
    fleet = Fleet(RULES)
    held = Replica(ReplicaId("worker", 0, 1), ReplicaPhase.PENDING, is_queued=True)
    for now_s in (0.0, 61.0, 10_000.0):
        assert plan(fleet, [held], 1, now_s) == [] or now_s == 0.0
    out = replace(held, is_queued=False)
    assert plan(fleet, [out], 1, 10_001.0) == []
    [verdict] = plan(fleet, [out], 1, 10_062.0)
    assert verdict.reason == "NoWorkers"


def test_one_running_worker_resets_the_start_timeout():
    fleet = Fleet(RULES)
    plan(fleet, [], 1, 0.0)
    plan(fleet, [worker(0, 1)], 1, 50.0)
    assert not any(
        isinstance(a, FailJob) for a in plan(fleet, [worker(0, 1, ExitReason.KILLED)], 1, 100.0)
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
    fleet = Fleet(FleetRules({"worker": 2}, start_timeout_s=600.0))

    def plan_after(launch):
        replica = ReplicaId("worker", 0, launch)
        failed = Replica(replica, ReplicaPhase.FAILED, ExitReason.USER_ERROR, "bad")
        return plan(fleet, [failed], 1, 100.0 * launch)

    assert not any(isinstance(a, FailJob) for launch in (1, 2) for a in plan_after(launch))
    assert any(isinstance(action, FailJob) for action in plan_after(3))


class TestFurtherRole:
    """A further role is a further row: nothing of the fleet names the workers."""

    STORE = replace(
        ROLES["worker"], name="store", plural="stores", failures="max_store_failures",
        quorum=Quorum.ALL, is_scaled=False,
        words=replace(
            ROLES["worker"].words, too_many_failures="StoreFailures", too_few_run="NoStores"
        ),
    )  # fmt: skip

    def fleet(self, failures=None):
        rules = FleetRules({"worker": 2, "store": 0}, start_timeout_s=60)
        return Fleet(rules, failures, (self.STORE, ROLES["worker"]))

    def store(self, index, launch, reason=None):
        seen = worker(index, launch, reason, "disk full" if reason else "")
        return replace(seen, id=ReplicaId("store", index, launch))

    def test_each_is_launched_in_the_order_of_the_rows_and_by_its_own_numbers(self):
        fleet = self.fleet()
        wanted = {"worker": 1, "store": 2}
        assert fleet.plan([], wanted, 0.0) == [
            Launch(ReplicaId("store", 0, 1)), Launch(ReplicaId("store", 1, 1)), launch(0, 1),
        ]  # fmt: skip
        observed = [self.store(0, 1), self.store(1, 1, ExitReason.KILLED), worker(0, 1)]
        assert Launch(ReplicaId("store", 1, 2)) in fleet.plan(observed, wanted, 1.0)
        assert fleet.current_launch(ReplicaId("store", 1, 1)) == 2
        assert fleet.current_launch(ReplicaId("worker", 0, 1)) == 1

    def test_failures_count_by_role(self):
        failed = self.store(0, 1, ExitReason.USER_ERROR)
        *_, verdict = self.fleet({"worker": 2}).plan([failed], {"store": 1}, 0.0)
        assert verdict == FailJob(
            "StoreFailures",
            "stores failed 1 times (max_store_failures=0); the first was store-0: disk full",
        )

    def test_one_that_is_needed_and_missing_ends_the_job_though_others_run(self):
        fleet = self.fleet()
        wanted, observed = {"worker": 1, "store": 2}, [self.store(0, 1), worker(0, 1)]
        fleet.plan(observed, wanted, 0.0)
        *_, verdict = fleet.plan(observed, wanted, 61.0)
        assert isinstance(verdict, FailJob)
        assert verdict.reason == "NoStores"
        assert verdict.message.startswith("1 of 2 stores did not run for 61 s")

    def test_what_is_of_no_row_is_left_alone(self):
        stranger = replace(worker(0, 1, ExitReason.USER_ERROR), id=ReplicaId("other", 0, 1))
        assert Fleet(RULES).plan([stranger], {"worker": 0}, 0.0) == []
