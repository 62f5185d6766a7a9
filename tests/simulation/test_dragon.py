"""DRAGON against plain FIFO and gang scheduling, on seeded TFJobs."""

import pytest

from elastic.planning.policies import POLICIES, PolicyOptions
from elastic.simulation.engine import simulate
from elastic.simulation.outcome import measure
from elastic.simulation.workload import GENERATORS

NAMES = ("dragon", "gang", "fifo")


def run(num_jobs, seed):
    scenario = GENERATORS["tfjobs"].make(num_jobs, seed)
    found = {}
    for name in NAMES:
        policy = POLICIES[name].policy(PolicyOptions())
        found[name] = measure(simulate(scenario.nodes, scenario.workload, policy))
    return found


@pytest.fixture(scope="module", params=range(1, 6))
def metrics(request):
    return run(200, request.param)


def assert_better(dragon, plain):
    assert dragon.num_not_ended == plain.num_not_ended == 0
    assert dragon.whole.utilisation["cpu"] > plain.whole.utilisation["cpu"]
    assert dragon.completion.mean_s < plain.completion.mean_s
    assert dragon.makespan_s < plain.makespan_s
    assert dragon.pending.p99_s < plain.pending.p99_s


@pytest.mark.sampled(2)
@pytest.mark.parametrize("other", ["gang", "fifo"])
def test_dragon_uses_more_and_is_done_sooner_and_fewer_wait_long(metrics, other):
    assert_better(metrics["dragon"], metrics[other])


def test_under_dragon_hardly_anybody_waits_longer_than_until_others_give_way(metrics):
    # 30 s, and what passes until the policy is asked.
    assert metrics["dragon"].pending.p99_s < 40


@pytest.mark.soak
def test_the_same_holds_of_10_000_jobs():
    found = run(10_000, 1)
    for other in ("gang", "fifo"):
        assert_better(found["dragon"], found[other])
