"""Many workers lost at once, on simulated nodes: replaced soon, by few requests.

Shown is what the runner and the fleet of a master do, in the process of the test, with a master's
rights and pace; no master's process is there, and simulated nodes run no worker. The requests are
those that the API server has counted of the runner's account, without its watches.
"""

import time

import pytest
from support.accounts import CountedAccount
from support.cluster import (
    PodHarness,
    cluster,
    eventually,
    namespace,
    needs_cluster,
    owner,
)

from elastic.platforms.base import ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.api.transport import Pace
from elastic.platforms.kubernetes.objects import names
from elastic.policy.fleet import Delete, Fleet, FleetRules, Forget, Launch

__all__ = ["cluster", "namespace", "owner"]
pytestmark = needs_cluster

NUM_WORKERS = 30
REPLACED_WITHIN_S = 30.0
HOLLOW = "elastic.test/hollow=true"


def drive(runner, fleet, is_so, timeout_s=60.0):
    """Do what a master's replica manager does, until the observed replicas are so."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        observed = runner.observe()
        if is_so(observed):
            return observed
        assert time.monotonic() < deadline_s, f"never came about; observed: {observed}"
        for action in fleet.plan(observed, {"worker": NUM_WORKERS}, time.monotonic()):
            match action:
                case Launch(replica):
                    runner.launch(replica)
                case Forget(replica):
                    runner.forget(replica)
                case Delete():
                    pytest.fail(f"a healthy pod was to be deleted: {action}")
        runner.wait(0.5)


def all_run(observed, launch):
    return {r.id for r in observed if r.phase is ReplicaPhase.RUNNING} == {
        ReplicaId("worker", index, launch) for index in range(NUM_WORKERS)
    }


@pytest.fixture
def account(cluster, namespace):
    account = CountedAccount(cluster, namespace)
    yield account
    account.close()


@pytest.fixture
def harness(cluster, namespace, owner, tmp_path, account):
    nodes = cluster.get("/api/v1/nodes", {"labelSelector": HOLLOW})["items"]
    if not nodes:
        pytest.skip(f"the cluster has no simulated nodes (label {HOLLOW})")
    harness = PodHarness(
        cluster,
        namespace,
        owner,
        tmp_path,
        node_selector=HOLLOW,
        tolerations=f"{HOLLOW}:NoSchedule",
    )
    harness.runner.close()
    harness.runner = harness.start_runner(account.connect(Pace()))
    for index in range(NUM_WORKERS):
        for launch in (1, 2):
            harness.arrange(ReplicaId("worker", index, launch), "run")
    yield harness
    harness.close()


def test_30_workers_lost_at_once_are_replaced_by_two_requests_each(harness, account):
    fleet = Fleet(FleetRules({"worker": 0}, start_timeout_s=600.0))
    drive(harness.runner, fleet, lambda observed: all_run(observed, 1))
    before, started_s = account.requests(), time.monotonic()
    for pod in harness.pods():
        harness.remove_pod(pod["metadata"]["name"])

    def are_created():
        labels = [pod["metadata"]["labels"] for pod in harness.pods()]
        return [x[names.LAUNCH_LABEL] for x in labels] == ["2"] * NUM_WORKERS

    def look(_):
        return are_created()

    drive(harness.runner, fleet, look, REPLACED_WITHIN_S)
    took_s = time.monotonic() - started_s
    drive(harness.runner, fleet, lambda observed: all_run(observed, 2))
    requests = account.requests() - before
    print(f"\n{NUM_WORKERS} workers were replaced {took_s:.1f} s after the first was lost")
    print(f"the API server took {requests} requests for it")
    assert NUM_WORKERS <= requests <= 2 * NUM_WORKERS
    assert took_s < REPLACED_WITHIN_S
    assert fleet.failures("worker") == 0
    eventually(are_created)
