"""The cluster takes a worker away, in its own ways: it is replaced, and nothing is lost."""

import time
from contextlib import suppress

import pytest
from support.cluster import eventually, needs_whole_cluster
from support.room import filler, free_cpu
from support.whole_jobs import Workshop

from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.job.logs import ExcuseError, PodLog

pytestmark = needs_whole_cluster

NUM_RECORDS = 400
NUM_EPOCHS = 20
GRACE_S = 30.0
"""What a pod that is evicted gets to end by itself, where nobody asks for another time."""
CRITICAL = "system-cluster-critical"
"""A class of priority that every cluster has."""


@pytest.fixture(scope="module")
def workshop():
    workshop = Workshop(NUM_RECORDS, "evictions")
    yield workshop
    workshop.close()


def _losses(status):
    return [event for event in status.events if event.kind == "WorkerLost"]


def test_an_evicted_worker_leaves_by_itself_and_is_replaced(workshop):
    job = workshop.submit(
        "evicted",
        num_workers="1",
        num_epochs=NUM_EPOCHS,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 60},
    )
    evicted_s, last_lines = [], []
    for launch in (1, 2, 3):
        job.until(lambda s, n=launch: [w.launch for w in s.workers if w.records_done] == [n])
        pod = job.pod("worker-0")
        lines = PodLog(workshop.cluster, pod).lines(follow=True)
        words = [next(lines).text]
        evicted_s.append(time.time())
        job.evict(pod)
        # The log ends so where the node has removed the container.
        with suppress(ExcuseError):
            words.extend(line.text for line in lines)
        last_lines.append(words[-1])
    job.until(lambda s: [w.launch for w in s.workers if w.records_done] == [4])
    job.hurry()
    status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert (status.workers_lost, status.worker_failures) == (3, 0)
    assert ["leaving, as asked" in line for line in last_lines] == [True] * 3, last_lines
    losses = _losses(status)
    # The kubelet of Kubernetes 1.20 may remove a container before it has told its exit code: the
    # state goes from `running` to `waiting`, and nobody can say any more how it ended.
    told = {"worker-0 ended: deleted", "worker-0 was killed: deleted"}
    assert {loss.message for loss in losses} <= told
    # Who does not leave is killed when its grace is over.
    for asked_s, loss in zip(evicted_s, losses, strict=True):
        assert loss.time_s - asked_s < 0.8 * GRACE_S


def test_a_preempted_worker_comes_back_when_there_is_room(workshop):
    cluster, namespace = workshop.cluster, workshop.namespace
    job = workshop.submit(
        "preempted",
        num_workers="2",
        num_epochs=NUM_EPOCHS,
        grads_to_wait=2,
        model_params={"num_records": NUM_RECORDS, "delay_ms": 60},
        master_pod_priority=CRITICAL,
        worker_resource_request="cpu=0.4,memory=256Mi",
        worker_resource_limit="cpu=1,memory=512Mi",
    )
    job.until(lambda s: [bool(w.records_done) for w in s.workers] == [True, True])
    # It fits only in the place of one worker.
    urgent = filler("urgent", free_cpu(cluster) + 0.2, CRITICAL)
    cluster.create(PODS.path(namespace), urgent)
    path = PODS.path(namespace, "urgent")
    eventually(lambda: cluster.get(path)["status"]["phase"] == "Running")
    alone = job.until(lambda s: any("Insufficient cpu" in w.message for w in s.workers))
    assert len(_losses(alone)) == 1
    assert sorted(worker.phase for worker in alone.workers) == ["Pending", "Running"]
    done = alone.progress.records_done
    job.until(lambda s: s.progress.records_done >= done + 40)
    cluster.delete(path, 0)
    job.until(lambda s: [bool(w.records_done) for w in s.workers] == [True, True])
    job.hurry()
    status = job.succeed()
    assert job.counts() == [float(NUM_EPOCHS)] * NUM_RECORDS
    assert (status.workers_lost, status.worker_failures, status.master_restarts) == (1, 0, 0)
    assert sorted(worker.launch for worker in status.workers) == [1, 2]
