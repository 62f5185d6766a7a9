"""What holds of every policy on every cluster."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cluster_properties import could_stay, forbidden, out_of_range, overfull
from support.clusters import carried_out
from support.random_clusters import clusters, shuffled

from elastic.policy.cluster.dragon import Dragon
from elastic.policy.cluster.fulfillment import Fulfillment
from elastic.policy.cluster.goodput import Goodput
from elastic.policy.cluster.queueing import Fifo, Gang
from elastic.policy.cluster.speed import fit

POLICIES = {
    "fulfillment": Fulfillment(),
    "dragon": Dragon(),
    "gang": Gang(),
    "fifo": Fifo(),
    "goodput": Goodput(),
    "goodput, stopping jobs": Goodput(preempts=True),
}


def of(*names):
    return pytest.mark.parametrize(
        "policy", [pytest.param(POLICIES[each], id=each) for each in names]
    )


every_policy = of(*POLICIES)


@every_policy
@given(before=clusters())
def test_a_plan_ends_within_each_range_and_asked_again_at_the_same_moment_is_empty(policy, before):
    plan = policy.plan(before)
    assert not out_of_range(before, plan, may_stop=policy == Goodput(preempts=True))
    after = carried_out(before, plan)
    again = policy.plan(after)
    assert again.decisions == ()


@every_policy
@given(before=clusters(), seed=st.integers(0, 99))
def test_a_plan_does_not_depend_on_the_order_of_lists(policy, before, seed):
    assert policy.plan(shuffled(before, random.Random(seed))) == policy.plan(before)


@every_policy
@given(before=clusters())
def test_each_added_pod_has_a_node_that_can_hold_it(policy, before):
    assert overfull(before) == []
    after = carried_out(before, policy.plan(before))
    assert overfull(after) == []
    assert forbidden(before, after) == []


@every_policy
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
@given(before=clusters())
def test_nobody_gives_what_nobody_takes(policy, before):
    """But one that is no slower without."""
    # For pods of others somebody may give, and when they come there is not said by a plan.
    before = replace(before, pods=tuple(each for each in before.pods if each.node is not None))
    after = carried_out(before, policy.plan(before))
    max_load = policy.max_load if isinstance(policy, Fulfillment) else None
    jobs = {each.name: (was, each) for was, each in zip(before.jobs, after.jobs, strict=True)}
    assert [each for each in could_stay(before, after, max_load) if is_slower(*jobs[each[0]])] == []


def is_slower(was, now):
    """As far as the job tells speeds."""
    model = fit(was.telling.speeds)
    if model is None or not now.workers.placed:
        return True
    speeds = [
        model.samples_per_s(each.placed, len(each.placement)) for each in (was.workers, now.workers)
    ]
    return speeds[1] < speeds[0]
