"""Two jobs side by side: a worker of one and the master of the other have nothing to do."""

import json
import time

import pytest
from support.cluster import eventually, needs_cluster
from support.whole_jobs import Workshop

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.manifests import spec_of, submission_of
from elastic.platforms.kubernetes.objects.podspec import Job

pytestmark = needs_cluster

NUM_RECORDS = 400
NUM_EPOCHS = 15
STRANGER = "stranger"


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "tokens")
    yield workshop
    workshop.close()


def _submit(workshop, name, tls):
    return workshop.submit(
        name,
        tls=tls,
        num_workers="1",
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 200},
    )


def _stranger(workshop, own, other):
    """A worker of one job, with its program, files and token, at the address of another's master.

    To that master it would be the newer launch of its only worker.
    """
    record = JobObjects(workshop.cluster, workshop.namespace, own).record()
    submission = submission_of(record)
    job = Job(spec_of(record), workshop.namespace, submission.uid, submission.image)
    pod = manifests.replica_pod(job, ReplicaId("worker", 0, 2), None)
    # Known by no label, lest the master of its own job takes it for a worker too many.
    pod["metadata"] = {"name": STRANGER}
    [container] = pod["spec"]["containers"]
    [address] = [e for e in container["env"] if e["name"] == names.ADDRESS_VARIABLE]
    address["value"] = names.master_address(other, workshop.namespace)
    return pod


def _outcome(cluster, path):
    for entry in cluster.get(path)["status"].get("containerStatuses") or []:
        if "terminated" in entry["state"]:
            return entry["state"]["terminated"]
    return None


@pytest.mark.parametrize(
    ("name", "tls", "words"),
    [
        ("encrypted", True, ["the master cannot be called", "another certificate"]),
        ("clear", False, ["UNAUTHENTICATED", "needs this job's token"]),
    ],
)
def test_a_worker_of_another_job_is_refused_and_disturbs_nothing(workshop, name, tls, words):
    cluster, namespace = workshop.cluster, workshop.namespace
    jobs = ours, theirs = [_submit(workshop, f"{name}-{each}", tls) for each in ("one", "two")]
    for job in jobs:
        job.until(lambda s: [w.records_done > 0 for w in s.workers] == [True])
    before = {job.name: job.pod("worker-0")["metadata"]["uid"] for job in jobs}
    # They may have waited for room, which other tests take, before they began.
    began_s = time.time()

    cluster.create(PODS.path(namespace), _stranger(workshop, theirs.name, ours.name))
    path = PODS.path(namespace, STRANGER)
    ended = eventually(lambda: _outcome(cluster, path))
    said = json.loads(ended["message"])
    print("the stranger's last words:", said["message"])
    assert ended["exitCode"] == 1
    assert [word for word in words if word not in said["message"]] == []
    cluster.delete(path, 0.0)

    version = ours.status().progress.model_version
    ours.until(lambda s: s.progress.model_version > version)
    for job in jobs:
        job.hurry()
    for job in jobs:
        status = job.succeed()
        since = {event.kind for event in status.events if event.time_s > began_s}
        assert since == {"EpochEnded"}
        assert [(w.index, w.launch) for w in status.workers] == [(0, 1)]
        assert (status.workers_lost, status.worker_failures, status.master_restarts) == (0, 0, 0)
        # Nothing was refused or computed again for the stranger's sake.
        assert status.progress.computed_again == 0
        assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
        assert job.pod("worker-0")["metadata"]["uid"] == before[job.name]
