"""Commands on a job that was made from a resource, which has its master made again."""

import threading

import pytest
from support.api_server_in_memory import InMemoryApi
from support.owned_job import MASTER, STATUS, OwnedJob

from elastic.errors import JobExistsError, JobSpecError
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.manifests import control_of
from elastic.platforms.kubernetes.objects.names import TRAIN_JOBS
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

RUNNING = JobStatus(
    job_name="j",
    phase=JobPhase.RUNNING,
    started_s=2.0,
    desired_workers=1,
    workers=(WorkerStatus(index=0, launch=1, phase="Running"),),
)
WORKER = "elastic-j-worker-0"


@pytest.fixture
def api():
    with InMemoryApi() as api:
        yield api


@pytest.fixture
def job(api):
    """One whose master and worker run."""
    job = OwnedJob(api)
    master = job.make_master()
    pod = manifests.replica_pod(job.job, ReplicaId("worker", 0, 1), master)
    job.cluster.create(PODS.path("team"), pod)
    job.run(WORKER)
    job.publish(RUNNING)
    return job


def set_status(job, name, status):
    path = PODS.path("team", name, "status")
    job.cluster.patch(path, {"status": status})


class TestStatus:
    def test_one_whose_master_is_gone_recovers_and_its_workers_are_told(self, job):
        job.lose_master()
        [status] = job.platform.statuses()
        assert status == job.platform.status("j")
        assert (status.phase, status.reason) == (JobPhase.RECOVERING, "MasterLost")
        assert status.message == (
            "the master pod is gone: the controller makes ElasticTrainJob j another one"
        )
        assert [worker.phase for worker in status.workers] == ["Running"]
        assert status.ended_s is None

    def test_one_whose_master_is_about_to_go_does_too(self, job):
        job.cluster.delete(PODS.path("team", MASTER), grace_s=30.0)
        status = job.platform.status("j")
        assert (status.phase, status.reason) == (JobPhase.RECOVERING, "MasterLost")
        assert "its workers with it" not in status.message

    def test_one_whose_master_the_cluster_has_ended_does_too(self, job):
        set_status(job, MASTER, {"phase": "Failed", "reason": "Evicted", "containerStatuses": []})
        status = job.platform.status("j")
        assert (status.phase, status.reason) == (JobPhase.RECOVERING, "MasterLost")
        assert status.message.startswith("the cluster has ended the master pod (Evicted)")

    def test_one_whose_next_master_waits_for_a_node_does_and_says_so(self, job):
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        set_status(
            job, MASTER, {"phase": "Pending", "containerStatuses": [], "conditions": [condition]}
        )
        status = job.platform.status("j")
        assert (status.phase, status.reason) == (JobPhase.RECOVERING, "Unschedulable")

    def test_one_that_has_no_master_yet_waits_however_long(self, api):
        status = OwnedJob(api).platform.status("j")
        assert (status.phase, status.reason) == (JobPhase.PENDING, "Submitting")
        assert status.message == "the controller has yet to make the master of ElasticTrainJob j"

    def test_an_end_that_was_published_stays(self, job):
        job.publish(RUNNING.entering(JobPhase.SUCCEEDED, "", "", ended_s=3.0))
        job.lose_master()
        assert job.platform.status("j").phase is JobPhase.SUCCEEDED


def test_one_whose_master_is_gone_can_be_scaled(job):
    job.lose_master()
    job.platform.scale("j", 2)
    record = job.cluster.get(CONFIGMAPS.path("team", "elastic-j"))
    assert control_of(record).num_workers == 2
    with pytest.raises(JobSpecError, match="outside the range"):
        job.platform.scale("j", 9)


def test_its_logs_are_followed_while_its_master_is_away(job):
    job.lose_master()
    lines = job.platform.logs("j", [], follow=True, tail=None)
    ended = threading.Event()

    def follow():
        list(lines)
        ended.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert not ended.wait(1.0), "the job goes on"
    job.publish(RUNNING.entering(JobPhase.SUCCEEDED, "", "", ended_s=3.0))
    thread.join()


class TestKilling:
    def test_the_end_is_told_before_the_pods_are_gone(self, job, api):
        """Or whoever makes the master again would do so once more."""
        job.lose_master()
        num_requests = len(api.requests)
        job.platform.kill("j", 0.0)
        requests = api.requests[num_requests:]
        told, deleted = ("patch", STATUS), ("delete", PODS.path("team", WORKER))
        assert requests.index(told) < requests.index(deleted)
        assert job.published().phase is JobPhase.CANCELLED
        assert job.platform.status("j").phase is JobPhase.CANCELLED
        assert job.pods() == {}

    def test_a_status_that_has_to_be_made_for_it_belongs_to_the_resource(self, job):
        job.cluster.delete(STATUS)
        job.platform.kill("j", 0.0)
        metadata = job.cluster.get(STATUS)["metadata"]
        assert metadata["ownerReferences"] == [job.owner.reference()]
        assert metadata["labels"][names.TRAIN_JOB_LABEL] == "j"


class TestForgetting:
    def test_the_resource_goes_and_all_with_it(self, job):
        job.platform.kill("j", 0.0)
        assert "elastictrainjobs/j" in job.names()
        job.platform.forget("j")
        assert job.names() == []

    def test_who_may_not_delete_the_resource_deletes_nothing(self, job, api):
        job.platform.kill("j", 0.0)
        before = job.names()
        api.deny(TRAIN_JOBS.plural, "delete")
        with pytest.raises(RefusedError, match="cannot delete resource"):
            job.platform.forget("j")
        api.allow(TRAIN_JOBS.plural)
        assert job.names() == before

    def test_another_resource_of_the_name_is_left_alone(self, job, api):
        """It was deleted and made again, and the objects of the first one are still there."""
        job.platform.kill("j", 0.0)
        api.objects.collects_garbage = False
        path = TRAIN_JOBS.path("team", "j")
        made = job.cluster.get(path)
        job.cluster.delete(path)
        again = {"metadata": {"name": "j"}, "apiVersion": made["apiVersion"], "kind": made["kind"]}
        job.cluster.create(TRAIN_JOBS.path("team"), again)
        job.platform.forget("j")
        assert job.names() == ["elastictrainjobs/j"]


@pytest.mark.parametrize("phase", [JobPhase.RUNNING, JobPhase.FAILED])
@pytest.mark.parametrize("how", [{}, {"overwrite": True}, {"resume": True}])
def test_its_name_is_taken_for_what_is_submitted_without_a_resource(job, phase, how):
    job.publish(RUNNING.entering(phase, "", ""))
    before = job.names()
    spec = job.job.spec.model_copy(update={"image": "image:1", **how})
    with pytest.raises(JobExistsError) as refused:
        job.platform.submit(spec)
    assert str(refused.value) == (
        "job 'j' is made from ElasticTrainJob j, which keeps it as it says: change that, or remove "
        "it with `elastic kill j -n team --forget`, or choose another --job_name"
    )
    assert job.names() == before
