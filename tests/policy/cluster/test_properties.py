"""What holds of every policy on every cluster."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clusters import carried_out
from support.random_clusters import clusters, forbidden, out_of_range, overfull, shuffled

from elastic.policy.cluster.fulfillment import Fulfillment

POLICIES = [pytest.param(Fulfillment(), id="fulfillment")]

every_policy = pytest.mark.parametrize("policy", POLICIES)


@every_policy
@given(before=clusters())
def test_a_plan_ends_within_each_range_and_asked_again_at_the_same_moment_is_empty(policy, before):
    plan = policy.plan(before)
    assert not out_of_range(before, plan)
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
