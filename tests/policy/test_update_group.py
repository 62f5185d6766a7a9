"""Who is waited for, and how many go on when it does not come."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastic.policy.tasks.ledger import Refusal, StagedRange
from elastic.policy.tasks.records import RecordRange
from elastic.policy.updates.update_group import (
    AtWork,
    GiveUp,
    GoOn,
    RefuseStale,
    Stay,
    UpdateGroup,
    UpdateRule,
    hold_limit_s,
    should_hold_reply,
)

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


class _Machine(RuleBasedStateMachine):
    """Workers that compute, report, vanish and wait at random, as `Updates` plays it."""

    WORKERS = ("a", "b", "c", "d")

    @initialize(grads_to_wait=st.integers(1, 4))
    def start(self, grads_to_wait):
        self.wanted = grads_to_wait
        self.group = UpdateGroup(UpdateRule(grads_to_wait=grads_to_wait), 0)
        self.now_s = 0.0
        self.computing = {}
        self.waiting = {}
        self.applied = []

    @rule(worker=st.sampled_from(WORKERS))
    def begins(self, worker):
        if worker not in self.computing and worker not in self.waiting:
            self.group.at_work.begins(worker, self.now_s)
            self.computing[worker] = self.group.version

    @rule(worker=st.sampled_from(WORKERS), records=st.integers(1, 8))
    def reports(self, worker, records):
        if worker not in self.computing:
            return
        version = self.computing.pop(worker)
        verdict = self.group.judge(version)
        if isinstance(verdict, RefuseStale):
            assert version < self.group.version
            self.group.at_work.begins(worker, self.now_s)
            self.computing[worker] = self.group.version
            return
        assert version == self.group.version, "synchronous gradients are of the newest version"
        self.group.add(StagedRange(0, RecordRange(0, 0, records)), version)
        if self.group.is_due(only_staged_left=False):
            self._update()
            self.group.at_work.begins(worker, self.now_s)
            self.computing[worker] = self.group.version
            return
        self.group.at_work.ends(worker)
        self.waiting[worker] = self.group.wait(self.now_s)

    @rule(worker=st.sampled_from(WORKERS))
    def is_lost(self, worker):
        self.group.at_work.ends(worker)
        self.computing.pop(worker, None)
        self.waiting.pop(worker, None)

    @rule(num_gradients=st.integers(1, 4))
    def another_batch_is_chosen(self, num_gradients):
        self.wanted = num_gradients

    @rule(seconds=st.sampled_from([0.001, 0.1, 1.0, 10.0]))
    def time_passes(self, seconds):
        self.now_s += seconds

    def _update(self):
        update = self.group.begin_update()
        assert len(update.ranges) == self.group.rule.grads_to_wait
        self.applied.append(update)
        self.group.end_update(self.group.version + 1)
        self.group.resize(self.wanted)

    def _somebody_moves(self):
        """Have each that waits look, one after the other; whether any is not to stay."""
        answers = []
        for worker, wait in list(self.waiting.items()):
            answers.append(self.group.look(wait, self.now_s, len(self.WORKERS), STEP_S))
            if isinstance(answers[-1], GoOn):
                del self.waiting[worker]
                self.group.at_work.begins(worker, self.now_s)
                self.computing[worker] = self.group.version
        return not all(isinstance(answer, Stay) for answer in answers)

    @invariant()
    def nobody_waits_for_what_cannot_come(self):
        """Whoever waits looks until it stays or goes on, in a bounded number of looks."""
        if not hasattr(self, "group"):
            return
        assert self.group.version == len(self.applied)
        assert self.group.num_staged < self.group.rule.grads_to_wait
        for _round in range(3 * len(self.WORKERS)):
            if not self._somebody_moves():
                break
        else:
            raise AssertionError("they look for ever")
        if self.waiting:
            awaited = self.group.at_work.num_awaited
            assert self.group.num_staged + awaited >= self.group.rule.grads_to_wait


TestMachine = _Machine.TestCase
TestMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_what_is_begun_while_an_update_is_made_would_be_too_late():
    group = UpdateGroup(UpdateRule(grads_to_wait=1), 0)
    group.add(StagedRange(0, RecordRange(0, 0, 1)), 0)
    wait = group.wait(0.0)
    group.begin_update()
    assert isinstance(group.look(wait, 0.0, 1, STEP_S), Stay)
    group.end_update(1)
    assert isinstance(group.look(wait, 0.0, 1, STEP_S), GoOn)


def test_a_group_that_has_begun_keeps_its_size():
    group = UpdateGroup(UpdateRule(grads_to_wait=2), 0)
    group.add(StagedRange(0, RecordRange(0, 0, 1)), 0)
    with pytest.raises(ValueError, match="the group has begun, with 1 gradients"):
        group.resize(3)


def test_nothing_counts_after_the_end_and_nobody_waits():
    group = UpdateGroup(UpdateRule(grads_to_wait=2), 3)
    group.add(StagedRange(0, RecordRange(0, 0, 1)), 3)
    for worker in "bc":
        group.at_work.begins(worker, 0.0)
    wait = group.wait(0.0)
    assert isinstance(group.look(wait, 0.0, 3, STEP_S), Stay)
    group.end_training()
    assert group.judge(3) is Refusal.LEASE_LOST
    assert isinstance(group.look(wait, 0.0, 4, STEP_S), GoOn)
    assert not group.is_due(only_staged_left=True)


def test_a_late_gradient_moves_the_state_by_its_share():
    group = UpdateGroup(UpdateRule(is_async=True), 5)
    assert group.add(StagedRange(0, RecordRange(0, 0, 1)), 2) == 3
    assert group.begin_update().state_share == 0.25


def test_who_has_waited_long_enough_goes_on_without_the_one_that_is_silent():
    group = UpdateGroup(UpdateRule(grads_to_wait=2), 0)
    group.at_work.begins("b", 0.0)
    group.add(StagedRange(0, RecordRange(0, 0, 1)), 0)
    wait = group.wait(0.0)
    assert group.look(wait, 0.0, 2, STEP_S) == Stay(LIMIT_S)
    assert group.look(wait, LIMIT_S, 2, STEP_S) == GiveUp()
    assert group.look(wait, LIMIT_S, 2, STEP_S) == GoOn()
