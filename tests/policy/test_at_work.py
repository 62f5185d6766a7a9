"""Who is waited for, and how many go on when it does not come."""

from elastic.policy.aggregation import UpdateRule, hold_limit_s, should_hold_reply
from elastic.policy.at_work import AtWork

STEP_S = 0.005
LIMIT_S = hold_limit_s(STEP_S)
RULE = UpdateRule(grads_to_wait=4)


def _four_at_work():
    at_work = AtWork()
    for worker in "abcd":
        at_work.begins(worker, 0.0)
    return at_work


def _go_on(at_work, waiting, num_accepted, now_s):
    """Have each that waits look, one after the other; who goes on."""
    gone = []
    for worker in waiting:
        if not should_hold_reply(RULE, num_accepted, at_work.num_awaited):
            at_work.begins(worker, now_s)
            gone.append(worker)
    return gone


def test_one_that_the_machine_keeps_waiting_is_waited_for():
    """Nobody computes what it is computing, though it takes sixty times as long as they."""
    at_work = _four_at_work()
    for worker in "abc":
        assert at_work.ends(worker)
    assert 60 * STEP_S < LIMIT_S
    assert _go_on(at_work, "abc", 3, 60 * STEP_S) == []


def test_as_many_go_on_as_the_group_lacks():
    at_work = _four_at_work()
    for worker in "abc":
        at_work.ends(worker)
    at_work.give_up(STEP_S)
    assert _go_on(at_work, "abc", 3, STEP_S + LIMIT_S) == ["a"]


def test_two_that_are_late_are_made_up_for_by_two():
    at_work = _four_at_work()
    for worker in "ab":
        at_work.ends(worker)
    at_work.give_up(STEP_S)
    assert _go_on(at_work, "ab", 2, STEP_S + LIMIT_S) == ["a", "b"]


def test_who_hangs_costs_one_wait_and_not_one_an_update():
    at_work = _four_at_work()
    num_waits, now_s = 0, 0.0
    for _update in range(100):
        num_accepted, computing, waiting = 0, list("abc"), []
        while num_accepted < 4:
            now_s += STEP_S
            for worker in computing:
                at_work.ends(worker)
                num_accepted += 1
            waiting, computing = [*waiting, *computing], []
            if num_accepted == 4:
                break
            computing = _go_on(at_work, waiting, num_accepted, now_s)
            if not computing:
                waited_since_s, now_s, num_waits = now_s, now_s + LIMIT_S, num_waits + 1
                at_work.give_up(waited_since_s)
                computing = _go_on(at_work, waiting, num_accepted, now_s)
            waiting = [worker for worker in waiting if worker not in computing]
        assert num_accepted == 4, "no gradient is computed that the group does not lack"
        for worker in "abc":
            at_work.begins(worker, now_s)
    assert num_waits == 1


def test_who_is_heard_of_again_is_waited_for_again():
    at_work = _four_at_work()
    at_work.give_up(1.0)
    assert (len(at_work), at_work.num_awaited) == (4, 0)
    at_work.begins("d", 2.0)
    assert at_work.num_awaited == 1
    assert at_work.ends("c")
    assert not at_work.ends("c")
    assert (len(at_work), at_work.num_awaited, "c" in at_work) == (3, 1, False)


def test_who_has_begun_since_is_not_late():
    at_work = _four_at_work()
    at_work.begins("a", 1.0)
    at_work.give_up(0.5)
    assert at_work.num_awaited == 1
