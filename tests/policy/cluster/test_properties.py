"""What holds of every policy on every cluster.

Each run plays some clusters, always the same; `make soak` plays forty times as many.
"""

import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cluster_properties import (
    can_be_made_room_for,
    could_stay,
    forbidden,
    never_started,
    out_of_range,
    overfull,
)
from support.random_clusters import clusters, shuffled, without_parts

from elastic.policy.cluster import carried_out
from elastic.policy.scaling.dragon import Dragon
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.policy.scaling.goodput import Goodput
from elastic.policy.scaling.queueing import Fifo, Gang
from elastic.policy.scaling.speed import Seen, fit
from elastic.policy.scaling.standings import waiting_order


@dataclass(frozen=True)
class GoodputOfStoppable:
    """`Goodput` where all jobs may be stopped."""

    is_movable: bool

    def plan(self, snapshot):
        may = {"is_stoppable": True, "is_movable": self.is_movable}
        jobs = tuple(replace(each, **may) for each in snapshot.jobs)
        return Goodput().plan(replace(snapshot, jobs=jobs))


STOPPING = GoodputOfStoppable(is_movable=False)
MOVING = GoodputOfStoppable(is_movable=True)

POLICIES = {
    "fulfillment": Fulfillment(),
    "dragon": Dragon(),
    "gang": Gang(),
    "fifo": Fifo(),
    "goodput": Goodput(),
    "goodput, stopping jobs": STOPPING,
    "goodput, moving jobs": MOVING,
}

USUAL_EXAMPLES = 100


def examples(count):
    times = 40 if settings.default.max_examples > USUAL_EXAMPLES else 1
    return settings(max_examples=count * times, derandomize=True)


def of(*names):
    policies = [pytest.param(POLICIES[each], id=each) for each in names]
    return pytest.mark.parametrize("policy", policies)


every_policy = of(*POLICIES)


@every_policy
@examples(50)
@given(before=clusters())
def test_a_plan_ends_within_each_range_and_asked_again_at_the_same_moment_is_empty(policy, before):
    plan = policy.plan(before)
    assert not out_of_range(before, plan, may_stop=policy in (STOPPING, MOVING))
    after = carried_out(before, plan)
    again = policy.plan(after)
    assert again.decisions == ()


@every_policy
@examples(50)
@given(before=clusters(), seed=st.integers(0, 99))
def test_a_plan_does_not_depend_on_the_order_of_lists(policy, before, seed):
    assert policy.plan(shuffled(before, random.Random(seed))) == policy.plan(before)


@every_policy
@examples(50)
@given(before=clusters())
def test_each_added_pod_has_a_node_that_can_hold_it(policy, before):
    assert overfull(before) == []
    after = carried_out(before, policy.plan(before))
    assert overfull(after) == []
    assert forbidden(before, after) == []


@every_policy
@examples(10)
@given(before=clusters(max_nodes=3, max_jobs=4))
def test_no_size_changes_back_and_forth_while_the_cluster_stays_as_it_is(policy, before):
    now, changes = before, {}
    for tick in range(100):
        now = replace(now, now_s=before.now_s + 5 * tick)
        plan = policy.plan(now)
        for each in plan.decisions:
            changes.setdefault(each.job, []).append(each.replicas)
        now = carried_out(now, plan)
    assert all(len(sizes) <= 3 for sizes in changes.values()), changes


@every_policy
@examples(50)
@given(before=clusters())
def test_nobody_gives_what_nobody_takes(policy, before):
    """But one that is no slower without."""
    before = with_placed_pods(before)
    after = carried_out(before, policy.plan(before))
    max_load = policy.max_load if isinstance(policy, Fulfillment) else None
    jobs = {each.name: (was, each) for was, each in zip(before.jobs, after.jobs, strict=True)}
    idle = could_stay(before, after, max_load)
    assert [each for each in idle if is_slower(*jobs[each[0]])] == []


def with_placed_pods(snapshot):
    """For pods of others somebody may give, and when they come there is not said by a plan."""
    return replace(snapshot, pods=tuple(each for each in snapshot.pods if each.node is not None))


def is_slower(was, now):
    """As far as the job tells speeds."""
    model = fit(Seen(was.telling.speeds))
    if model is None or not now.workers.placed:
        return True
    speeds = [
        model.samples_per_s(each.placed, len(each.placement)) for each in (was.workers, now.workers)
    ]
    return speeds[1] < speeds[0]


AGES_S = {
    "fulfillment": 100.0,
    "goodput": 1e9,
    "goodput, stopping jobs": 1e9,
    "goodput, moving jobs": 1e9,
}
"""Time between two plans: what waits counts more after it."""


@pytest.mark.parametrize("name", AGES_S)
@examples(10)
@given(before=clusters(max_nodes=4))
def test_nobody_is_passed_by_for_ever_who_could_run(name, before):
    assert never_started(POLICIES[name], with_placed_pods(before), AGES_S[name]) == set()


@examples(100)
@given(before=clusters(max_nodes=4, max_jobs=5))
def test_under_dragon_who_waits_longest_is_served_whenever_scaling_down_can_make_room(before):
    before, policy = with_placed_pods(without_parts(before)), Dragon()
    waiting = sorted((each for each in before.jobs if each.is_waiting), key=waiting_order)
    if not waiting or not can_be_made_room_for(before, waiting[0]):
        return
    starved = replace(waiting[0], waiting_since_s=before.now_s - policy.starve_after_s)
    others = [each for each in before.jobs if each is not waiting[0]]
    later = [replace(each, waiting_since_s=before.now_s - 1) for each in others if each.is_waiting]
    running = [each for each in others if not each.is_waiting]
    before = replace(before, jobs=(starved, *running, *later))
    after = carried_out(before, policy.plan(before))
    assert not after.jobs[0].is_waiting
