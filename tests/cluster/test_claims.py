"""A claim for the master's state: the job goes on from it after its master's pod was lost."""

import pytest
from support.cluster import eventually, needs_cluster
from support.whole_jobs import CONTROL, Workshop

from elastic.platforms.kubernetes.api.resources import PERSISTENT_VOLUME_CLAIMS
from elastic.platforms.kubernetes.objects.names import STATE_PATH
from elastic.spec.status import JobPhase

pytestmark = needs_cluster

NUM_RECORDS = 400
NUM_EPOCHS = 20
ENOUGH = 3 * NUM_RECORDS
VOLUMES = "/api/v1/persistentvolumes"
CLAIM = "state"


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "claims")
    yield workshop
    workshop.close()


def _real_node(cluster):
    nodes = cluster.get("/api/v1/nodes")["items"]
    return next(
        node["metadata"]["labels"]["kubernetes.io/hostname"]
        for node in nodes
        if not node["spec"].get("taints")
    )


@pytest.fixture
def claim(workshop):
    """A claim, bound to a folder of the node that only root may write to; as a setting."""
    cluster, namespace = workshop.cluster, workshop.namespace
    folder = workshop.shared / "claimed"
    folder.mkdir(mode=0o755)
    name = f"{namespace}-{CLAIM}"
    node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [_real_node(cluster)]}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "local": {"path": str(folder)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}},
            "persistentVolumeReclaimPolicy": "Retain",
            **common,
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": namespace},
        "spec": {
            "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}},
            **common,
        },
    }
    cluster.create(VOLUMES, volume)
    cluster.create(PERSISTENT_VOLUME_CLAIMS.path(namespace), claim)
    path = PERSISTENT_VOLUME_CLAIMS.path(namespace, CLAIM)
    eventually(lambda: cluster.get(path)["status"]["phase"] == "Bound")
    yield f"claim_name={CLAIM},mount_path={STATE_PATH}"
    cluster.delete(path)
    cluster.delete(f"{VOLUMES}/{name}")


def test_a_job_goes_on_from_a_claim_after_its_masters_pod_was_lost(workshop, claim):
    settings = {
        "num_workers": "2",
        "num_epochs": NUM_EPOCHS,
        "grads_to_wait": 2,
        "model_params": {"num_records": NUM_RECORDS, "delay_ms": 60},
        "volume": f"{claim};host_path={workshop.shared},mount_path={CONTROL}",
    }
    job = workshop.submit("claimed", **settings)
    job.until(lambda s: s.progress.records_done >= ENOUGH)
    job.delete_pod(job.pod("master"), 0)
    lost = eventually(lambda: (status := job.status()).phase.is_final and status)
    assert (lost.phase, lost.reason) == (JobPhase.FAILED, "MasterDeleted")
    # They have no master to work for, and Kubernetes takes them away with their owner. Their node
    # may need a minute and more to say that they are gone, which nobody has to wait for.
    eventually(lambda: all(pod["metadata"].get("deletionTimestamp") for pod in job.pods()))
    job = workshop.submit("claimed", resume=True, **settings)
    job.hurry()
    status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    # The epochs before the loss are in the same account, and were not trained again.
    [run] = status.audits
    assert (run.num_epochs, run.committed) == (NUM_EPOCHS, NUM_RECORDS)
    [resumed] = [event.message for event in status.events if event.kind == "Resumed"]
    assert resumed.startswith(f"resumed from {STATE_PATH}/cuts/version-")
