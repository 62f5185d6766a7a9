"""What a real master does in a real cluster that no other part can do for it."""

import pytest
from support.cluster import eventually, needs_cluster
from support.whole_jobs import Workshop

from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, EVENTS, PODS
from elastic.platforms.kubernetes.objects.manifests import status_of
from elastic.platforms.kubernetes.objects.names import status_name
from elastic.spec.status import JobPhase

pytestmark = needs_cluster

NUM_RECORDS = 400
LATE = "elastic.test/late"


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "master")
    yield workshop
    workshop.close()


@pytest.fixture
def node(workshop):
    """The node that runs containers; what a test labels it with is gone afterwards."""
    query = {"labelSelector": "elastic.test/hollow!=true"}
    [node] = workshop.cluster.get("/api/v1/nodes", query)["items"]
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    yield path
    workshop.cluster.patch(path, {"metadata": {"labels": {LATE: None}}})


def test_a_master_that_comes_too_late_leaves_its_job_failed(workshop, node):
    label = workshop.namespace
    job = workshop.submit("late", start_timeout=2, node_selector=f"{LATE}={label}")

    def published():
        path = CONFIGMAPS.path(workshop.namespace, status_name(job.name))
        found = [m for m in _maps(workshop) if m["metadata"]["name"] == path.rpartition("/")[2]]
        return status_of(found[0]) if found else None

    seen = eventually(lambda: (s := job.status()).phase is JobPhase.FAILED and s)
    assert (seen.reason, published()) == ("StartTimeout", None)
    assert "didn't match" in seen.message
    workshop.cluster.patch(node, {"metadata": {"labels": {LATE: label}}})
    eventually(lambda: (job.pod("master") or {}).get("status", {}).get("phase") == "Succeeded")
    end = published()
    assert (end.phase, end.reason) == (JobPhase.FAILED, "StartTimeout")
    assert end.message.endswith("it could start only later")
    assert [pod["metadata"]["name"] for pod in job.pods()] == ["elastic-late-master"]


def _maps(workshop):
    return workshop.cluster.get(CONFIGMAPS.path(workshop.namespace))["items"]


def test_what_happens_to_a_job_is_told_as_events_of_its_master(workshop):
    job = workshop.submit("events", num_epochs=2)
    job.until(lambda s: any(w.records_done for w in s.workers))
    workshop.cluster.delete(PODS.path(workshop.namespace, "elastic-events-worker-0"), grace_s=0)
    job.until(lambda s: any(w.launch == 2 and w.records_done for w in s.workers))
    job.hurry()
    status = job.succeed()
    uid = job.pod("master")["metadata"]["uid"]
    query = {"fieldSelector": f"involvedObject.uid={uid},source=elastic"}
    found = workshop.cluster.get(EVENTS.path(workshop.namespace), query)["items"]
    told = {e["reason"]: (e["type"], e["count"], e["message"]) for e in found}
    assert told["WorkerLost"] == ("Warning", 1, "worker-0 was killed: deleted")
    assert told["WorkerStarted"] == ("Normal", 1, "worker-0 is started again (launch 2)")
    assert told["Succeeded"] == ("Normal", 1, status.message)
    assert len(found) == len(told)
