"""A node is lost: its workers are started elsewhere, and nobody else feels it."""

import time

import pytest
from support.cluster import needs_whole_cluster
from support.nodes import SimulatedNode
from support.statuses import each_epoch
from support.whole_jobs import Workshop

pytestmark = [
    *needs_whole_cluster,
    pytest.mark.skipif(not SimulatedNode.names(), reason="the cluster has no simulated node"),
]

NUM_RECORDS = 400
NUM_EPOCHS = 20
SOON_S = 60.0
SETTLED_S = 3.0
FALLEN = {1, 2}
"""Workers whose first choice is the node that is lost."""

# All launches of a worker are placed alike. They may run on two nodes, of which they prefer the
# one; the second wish outweighs that the other node has the image already.
PLACEMENT = """
from kubernetes import client

HOSTNAME, HOLLOW = "kubernetes.io/hostname", "elastic.test/hollow"


def where(key, operator, *values):
    requirement = client.V1NodeSelectorRequirement(key=key, operator=operator, values=list(values))
    return client.V1NodeSelectorTerm(match_expressions=[requirement])


class Placement:
    def with_pod(self, pod):
        labels = pod.metadata.labels
        if labels["elastic-replica-type"] != "worker" or labels["elastic-replica-index"] == "0":
            return
        node = where(HOSTNAME, "In", "{node}")
        others = client.V1LabelSelector(match_labels={{"elastic-job-name": "{job}"}})
        pod.spec.affinity = client.V1Affinity(
            node_affinity=client.V1NodeAffinity(
                required_during_scheduling_ignored_during_execution=client.V1NodeSelector(
                    node_selector_terms=[node, where(HOLLOW, "DoesNotExist")]
                ),
                preferred_during_scheduling_ignored_during_execution=[
                    client.V1PreferredSchedulingTerm(weight=100, preference=node)
                ],
            ),
            pod_anti_affinity=client.V1PodAntiAffinity(
                preferred_during_scheduling_ignored_during_execution=[
                    client.V1WeightedPodAffinityTerm(
                        weight=100,
                        pod_affinity_term=client.V1PodAffinityTerm(
                            label_selector=others, topology_key=HOSTNAME
                        ),
                    )
                ]
            ),
        )
        pod.spec.tolerations.append(
            client.V1Toleration(key=HOLLOW, operator="Exists", effect="NoSchedule")
        )


cluster = Placement()
"""


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "nodes")
    yield workshop
    workshop.close()


@pytest.fixture
def node(workshop):
    node = SimulatedNode.unused(workshop.cluster)
    yield node
    node.restore()


def _workers(job):
    """Pods by worker index."""
    return {
        int(pod["metadata"]["labels"]["elastic-replica-index"]): pod for pod in job.worker_pods()
    }


def _uids(pods):
    return {index: pod["metadata"]["uid"] for index, pod in pods.items()}


def _launches(status):
    return {worker.index: worker.launch for worker in status.workers}


def _records(status):
    return {worker.index: worker.records_done for worker in status.workers}


def _settled(job):
    """The job and its pods, once all workers run and stay.

    A simulated node under load says of a container that it has ended, a second after its start;
    its pod is then replaced.
    """
    uids, since_s = None, 0.0
    while uids is None or time.monotonic() - since_s < SETTLED_S:
        status = job.until(
            lambda s: [w.phase for w in s.workers] == ["Running"] * 3 and _records(s)[0] > 0,
            SOON_S,
        )
        before = _workers(job)
        if _uids(before) != uids:
            uids, since_s = _uids(before), time.monotonic()
        time.sleep(0.5)
    return status, before


def test_workers_of_a_lost_node_are_replaced_and_no_other_is_touched(workshop, node, tmp_path):
    cluster_spec = tmp_path / "placement.py"
    cluster_spec.write_text(PLACEMENT.format(node=node.name, job="nodes"))
    job = workshop.submit(
        "nodes",
        num_workers="3",
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 400},
        cluster_spec=str(cluster_spec),
        # A simulated node has no image, and gets any as soon as it asks for it.
        image_pull_policy="IfNotPresent",
    )
    status, before = _settled(job)
    places = {index: pod["spec"]["nodeName"] for index, pod in before.items()}
    assert {index for index, place in places.items() if place == node.name} == FALLEN
    assert places[0] not in SimulatedNode.names()
    # A simulated node runs nothing, so these never report, and are left alone all the same.
    assert all(_records(status)[index] == 0 for index in FALLEN)

    node.lose()
    print(node.until_given_up())
    lost = job.until(lambda s: s.workers_lost == status.workers_lost + len(FALLEN), SOON_S)
    news = [event for event in lost.events if event not in status.events]
    told = [event.message for event in news if event.kind == "WorkerLost"]
    print("told:", told)
    for index in FALLEN:
        [message] = [text for text in told if text.startswith(f"worker-{index} ")]
        assert f"its node {node.name} does not answer" in message
    # The one worker that was left went on while Kubernetes made up its mind.
    assert _records(lost)[0] > _records(status)[0]

    trained = job.until(lambda s: all(_records(s)[index] > 0 for index in FALLEN | {0}), SOON_S)
    launches = {index: n + (index in FALLEN) for index, n in _launches(status).items()}
    assert _launches(trained) == launches
    after = _workers(job)
    assert {after[index]["spec"]["nodeName"] for index in FALLEN} == {places[0]}
    assert after[0]["metadata"]["uid"] == before[0]["metadata"]["uid"]

    node.restore()
    version = job.status().progress.model_version
    job.until(lambda s: s.progress.model_version > version)
    # The node is back, and changes nothing.
    assert _uids(_workers(job)) == _uids(after)
    job.hurry()
    status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
    assert (status.worker_failures, status.master_restarts) == (0, 0)
    assert (status.workers_lost, _launches(status)) == (lost.workers_lost, launches)
    # Hung is another matter: whoever is gone with the node has not been judged by its silence.
    assert "WorkerHung" not in {event.kind for event in status.events}
