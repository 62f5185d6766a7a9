"""A job runs with the workers that there is room for, and grows when there is more."""

import pytest
from support.cluster import exists, needs_cluster
from support.whole_jobs import Workshop

from elastic.platforms.kubernetes.names import collection_path, object_path

pytestmark = needs_cluster

NUM_RECORDS = 400


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "room")
    yield workshop
    workshop.close()


def _free_cpu(cluster):
    """Cores of the node that runs containers which no pod has asked for."""

    def cores(amount):
        return float(amount[:-1]) / 1000 if amount.endswith("m") else float(amount)

    nodes = cluster.get("/api/v1/nodes", {"labelSelector": "elastic.test/hollow!=true"})["items"]
    [node] = nodes
    name = node["metadata"]["name"]
    pods = cluster.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"})["items"]
    asked = sum(
        cores(container["resources"].get("requests", {}).get("cpu", "0"))
        for pod in pods
        if pod["status"]["phase"] in ("Pending", "Running")
        for container in pod["spec"]["containers"]
    )
    return cores(node["status"]["allocatable"]["cpu"]) - asked


def test_two_workers_are_wanted_and_there_is_room_for_one(workshop):
    cluster, namespace = workshop.cluster, workshop.namespace
    # The master and one worker fit beside the filler, a second worker does not.
    free = _free_cpu(cluster)
    assert free > 1.0, "other pods take the node"
    filler = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "filler"},
        "spec": {
            "containers": [
                {
                    "name": "filler",
                    "image": "python:3.11-slim",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-c", "import time; time.sleep(100000)"],
                    "resources": {"requests": {"cpu": f"{round((free - 0.6) * 1000)}m"}},
                }
            ],
            "terminationGracePeriodSeconds": 0,
        },
    }
    cluster.create(collection_path("pods", namespace), filler)
    job = workshop.submit(
        "room",
        num_workers="2",
        num_epochs=20,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 60},
        worker_resource_request="cpu=0.4,memory=256Mi",
        worker_resource_limit="cpu=1,memory=512Mi",
    )
    status = job.until(
        lambda s: s.progress.records_done >= 40 and any(w.message for w in s.workers)
    )
    waiting = [worker for worker in status.workers if worker.phase == "Pending"]
    assert len(waiting) == 1
    assert "Insufficient cpu" in waiting[0].message
    assert status.phase == "Running"
    cluster.delete(object_path("pods", namespace, "filler"), 0)
    job.until(lambda s: all(w.records_done > 0 for w in s.workers) and len(s.workers) == 2)
    job.succeed()
    assert job.counts() == [20.0] * NUM_RECORDS
    assert exists(cluster, object_path("pods", namespace, "filler")) is None
