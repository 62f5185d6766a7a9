"""Who leaves a node for a job that starves under DRAGON, and who stays."""

import pytest
from support.clusters import decided, job, key, node, snapshot

from elastic.planning.policies import POLICIES, PolicyOptions
from elastic.policy.cluster import carried_out
from elastic.policy.scaling.dragon import Dragon


def test_who_came_up_and_was_not_needed_stays_with_as_many_as_there_were():
    """The CPU of `a` would be taken first, but the card of `b` comes with enough of it."""
    a = job("a", 1, 2, {"n0": 2}, cpu=2)
    b = job("b", 1, 4, {"n0": 2}, cpu=4, gpu=1)
    starved = job("c", 1, 1, cpu=1, gpu=1, waiting_since_s=0.0)
    before = snapshot([node("n0", cpu=12, gpu=2)], [a, b, starved])
    plan = Dragon().plan(before)
    assert decided(plan) == {"b": 1, "c": 1}
    after = carried_out(before, plan)
    assert {each.key: each.workers.placement for each in after.jobs} == {
        key("a"): {"n0": 2},
        key("b"): {"n0": 1},
        key("c"): {"n0": 1},
    }


def test_whoever_is_needed_for_a_second_pod_leaves_for_it():
    a = job("a", 1, 3, {"n0": 3}, cpu=2)
    b = job("b", 1, 4, {"n0": 2}, cpu=2, gpu=1)
    starved = job("c", 2, 2, cpu=3, gpu=1, waiting_since_s=0.0)
    before = snapshot([node("n0", cpu=12, gpu=3)], [a, b, starved])
    plan = Dragon().plan(before)
    assert decided(plan) == {"a": 2, "b": 1, "c": 2}


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_that_is_to_have_nothing_is_in_nobodys_way(name):
    nothing = job("a", 0, 0, cpu=2)
    starved = job("b", 1, 2, cpu=2, waiting_since_s=0.0)
    plan = (
        POLICIES[name]
        .policy(PolicyOptions())
        .plan(snapshot([node("n0", cpu=12)], [nothing, starved]))
    )
    assert decided(plan) == {"b": 2}
