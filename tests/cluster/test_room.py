"""A job runs with the workers that there is room for, and grows when there is more."""

import pytest
from support.cluster import eventually, exists, needs_whole_cluster
from support.room import filler, free_cpu
from support.whole_jobs import Workshop

from elastic.platforms.kubernetes.api.resources import PODS

pytestmark = needs_whole_cluster

NUM_RECORDS = 400


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "room")
    yield workshop
    workshop.close()


def test_two_workers_are_wanted_and_there_is_room_for_one(workshop):
    cluster, namespace = workshop.cluster, workshop.namespace
    # The master and one worker fit beside the filler, a second worker does not.
    # What other tests have left is about to go.
    free = eventually(lambda: (cores := free_cpu(cluster)) > 1.0 and cores)
    cluster.create(PODS.path(namespace), filler("filler", free - 0.6))
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
    cluster.delete(PODS.path(namespace, "filler"), 0)
    job.until(lambda s: all(w.records_done > 0 for w in s.workers) and len(s.workers) == 2)
    job.hurry()
    job.succeed()
    assert job.counts() == [20.0] * NUM_RECORDS
    assert exists(cluster, PODS.path(namespace, "filler")) is None
