"""Many workers lost at once, on simulated nodes: replaced soon, by few requests."""

import time

import pytest
from support.api_proxy import CountingPace
from support.cluster import (
    KUBECONFIG,
    PodHarness,
    cluster,
    eventually,
    namespace,
    needs_cluster,
    owner,
)

from elastic.platforms.base import ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes import names
from elastic.platforms.kubernetes.connection import Cluster
from elastic.platforms.kubernetes.kubeconfig import find_access
from elastic.policy.fleet import Delete, Fleet, FleetRules, Forget, Launch

__all__ = ["cluster", "namespace", "owner"]
pytestmark = needs_cluster

NUM_WORKERS = 30
REPLACED_WITHIN_S = 30.0
HOLLOW = "elastic.test/hollow=true"


class PacedCount(CountingPace):
    """Counts, and bounds the rate as in a master."""

    def wait(self):
        super(CountingPace, self).wait()
        super().wait()


def drive(runner, fleet, is_so, timeout_s=60.0):
    """Do what a master's worker manager does, until the observed replicas are so."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        observed = runner.observe()
        if is_so(observed):
            return observed
        assert time.monotonic() < deadline_s, f"never came about; observed: {observed}"
        for action in fleet.plan(observed, NUM_WORKERS, time.monotonic()):
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
def pace():
    return PacedCount()


@pytest.fixture
def harness(cluster, namespace, owner, tmp_path, pace):
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
    harness.runner = harness.start_runner(Cluster(find_access(KUBECONFIG), pace))
    for index in range(NUM_WORKERS):
        for launch in (1, 2):
            harness.arrange(ReplicaId("worker", index, launch), "run")
    yield harness
    harness.close()


def test_30_workers_lost_at_once_are_replaced_by_two_requests_each(harness, pace):
    fleet = Fleet(FleetRules(max_worker_failures=0, start_timeout_s=600.0))
    drive(harness.runner, fleet, lambda observed: all_run(observed, 1))
    requests, started_s = pace.requests, time.monotonic()
    for pod in harness.pods():
        harness.remove_pod(pod["metadata"]["name"])

    def are_created():
        labels = [pod["metadata"]["labels"] for pod in harness.pods()]
        return [x[names.LAUNCH_LABEL] for x in labels] == ["2"] * NUM_WORKERS

    def look(_):
        return are_created()

    drive(harness.runner, fleet, look, REPLACED_WITHIN_S)
    took_s = time.monotonic() - started_s
    print(f"\n{NUM_WORKERS} workers were replaced {took_s:.1f} s after the first was lost")
    drive(harness.runner, fleet, lambda observed: all_run(observed, 2))
    # Watches are renewed now and then; they are few, and not one a pod.
    assert pace.requests - requests <= 2 * NUM_WORKERS
    assert took_s < REPLACED_WITHIN_S
    assert fleet.failures == 0
    eventually(are_created)
