"""The collector of cycles rests while a policy plans, and no longer."""

import gc

import pytest

from benchmarks.plans import empty_cluster
from elastic.planning.policies import POLICIES, PolicyOptions

every_policy = pytest.mark.parametrize("name", POLICIES)


@pytest.fixture(autouse=True)
def collecting():
    """As it is by default."""
    gc.enable()
    yield
    gc.enable()


def num_collections(plan):
    begun = []

    def note(phase, _info):
        begun.append(phase)

    gc.callbacks.append(note)
    try:
        plan()
    finally:
        gc.callbacks.remove(note)
    return begun.count("start")


@every_policy
def test_nothing_is_collected_while_a_policy_plans(name):
    policy, snapshot = POLICIES[name].policy(PolicyOptions()), empty_cluster(400, seed=0)
    # One is due as it goes on.
    assert num_collections(lambda: policy.plan(snapshot)) <= 1
    assert gc.isenabled()
    without = type(policy).plan.__wrapped__
    assert num_collections(lambda: without(policy, snapshot)) > 1


@every_policy
def test_it_goes_on_where_a_plan_fails_and_stays_off_where_it_was(name):
    policy = POLICIES[name].policy(PolicyOptions())
    with pytest.raises(AttributeError):
        policy.plan(None)
    assert gc.isenabled()
    gc.disable()
    policy.plan(empty_cluster(4, seed=0))
    assert not gc.isenabled()
