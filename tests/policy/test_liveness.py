"""Leases by time."""

from elastic.policy.fleet import FIRST_TASK, HANG_FACTOR, HEARTBEAT_LIMIT_S, Hang, Liveness


def look(liveness, until_s, heard=()):
    """Look every second from where `liveness` stands, as the master does; the last answer."""
    second = int(liveness._last_look_s or 0)
    hangs = []
    while second < until_s:
        second += 1
        for worker in heard:
            liveness.heard(worker, float(second))
        hangs = liveness.hangs(float(second))
    return hangs


def test_first_step_may_compile():
    liveness = Liveness(floor_s=10, first_step_s=100)
    liveness.joined("w", 0.0)
    liveness.progressed("w", 1.0)
    assert look(liveness, 100) == []
    assert look(liveness, 102) == [Hang("w", 101.0, 100)]


def test_who_never_asks_for_a_task_hangs_in_set_up():
    """From its launch on: registering half-way is no new beginning."""
    liveness = Liveness(floor_s=200, first_step_s=100)
    liveness.observed_running(["w"], 0.0)
    assert look(liveness, 50) == []
    liveness.joined("w", 50.0)
    assert look(liveness, 100, heard="w") == []
    assert look(liveness, 101, heard="w") == [Hang("w", 101.0, 100, FIRST_TASK)]


def test_who_has_asked_for_a_task_is_through_with_its_set_up():
    liveness = Liveness(floor_s=200, first_step_s=100)
    liveness.observed_running(["w", "v"], 0.0)
    liveness.progressed("w", 99.0)
    liveness.observed_running(["w", "v"], 99.0)
    assert [liveness.is_at_work(worker) for worker in ("w", "v", "unknown")] == [True, False, False]
    assert look(liveness, 101) == [Hang("v", 101.0, 100, FIRST_TASK)]
    liveness.left("v")
    assert look(liveness, 99 + 200) == []
    assert look(liveness, 99 + 201) == [Hang("w", 201.0, 200)]


def test_limit_is_learned_from_steps_but_never_below_the_floor():
    liveness = Liveness(floor_s=10, first_step_s=100)
    liveness.joined("w", 0.0)
    liveness.progressed("w", 1.0, step_s=50.0)  # compiles; teaches nothing
    assert liveness.limit_s("w") == 10
    liveness.progressed("w", 2.0, step_s=1.0)
    assert liveness.limit_s("w") == 10
    liveness.progressed("w", 9.0, step_s=7.0)
    assert liveness.limit_s("w") == HANG_FACTOR * 7.0
    assert look(liveness, 9 + 34, heard="w") == []
    assert look(liveness, 9 + 36, heard="w") == [Hang("w", 36.0, 35.0)]


def test_waiting_for_the_master_is_no_hang():
    liveness = Liveness(floor_s=10, first_step_s=10)
    liveness.joined("w", 0.0)
    liveness.progressed("w", 4.0)
    one, other = liveness.call_begins("w"), liveness.call_begins("w")
    liveness.progressed("w", 5.0)
    liveness.call_ends(one, 6.0)
    assert look(liveness, 100) == []
    liveness.call_ends(other, 100.0)
    assert look(liveness, 110) == []
    assert look(liveness, 111) == [Hang("w", 11.0, 10)]


def test_a_call_during_set_up_does_not_prolong_it():
    liveness = Liveness(floor_s=10, first_step_s=10)
    liveness.joined("w", 0.0)
    liveness.call_ends(liveness.call_begins("w"), 9.0)
    assert look(liveness, 11) == [Hang("w", 11.0, 10, FIRST_TASK)]


def test_a_call_of_a_worker_that_has_been_replaced_meanwhile_is_not_its_own():
    liveness = Liveness(floor_s=10, first_step_s=10)
    liveness.joined("w", 0.0)
    old = liveness.call_begins("w")
    liveness.left("w")
    liveness.joined("w", 1.0)
    liveness.progressed("w", 1.0)
    liveness.call_ends(old, 50.0)
    liveness.call_ends(liveness.call_begins("unknown"), 50.0)
    assert look(liveness, 12) == [Hang("w", 11.0, 10)]


def test_who_left_is_not_watched():
    liveness = Liveness(floor_s=10, first_step_s=10)
    liveness.joined("w", 0.0)
    liveness.left("w")
    liveness.progressed("w", 1.0)
    assert liveness.hangs(1000.0) == []


def test_typical_step_is_the_median():
    liveness = Liveness(floor_s=1, first_step_s=1)
    liveness.joined("w", 0.0)
    assert liveness.typical_step_s is None
    for step_s in (99.0, 1.0, 3.0, 2.0):
        liveness.progressed("w", 0.0, step_s)
    assert liveness.typical_step_s == 2.0


def test_a_machine_that_is_gone_is_found_before_its_step_is_due():
    liveness = Liveness(floor_s=600, first_step_s=600)
    liveness.joined("w", 0.0)
    liveness.progressed("w", 1.0, step_s=1.0)
    assert look(liveness, 20, heard="w") == []
    assert look(liveness, 40) == []
    assert look(liveness, 41) == [Hang("w", 21.0, HEARTBEAT_LIMIT_S, "sign of life")]


def test_time_in_which_the_master_stood_still_is_forgiven():
    liveness = Liveness(floor_s=10, first_step_s=10)
    liveness.joined("w", 0.0)
    assert liveness.hangs(1.0) == []
    assert liveness.hangs(1000.0) == [], "nobody could have been heard"
    assert look(liveness, 1009) == []
    assert look(liveness, 1010) == [Hang("w", 11.0, 10, FIRST_TASK)]
