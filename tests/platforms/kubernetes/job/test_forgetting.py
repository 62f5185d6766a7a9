"""What is deleted of a job that has ended, and what keeps it whole; see also the contract."""

import pytest
from support.fake_objects import FakeObjects
from support.pods import running, terminated

from elastic.errors import JobExistsError
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus

OWNER = Owner("elastic-a1-master", "uid-m")
RECORD = ("configmaps", "elastic-a1")


class Objects(FakeObjects):
    """Can do something as a request comes."""

    def __init__(self):
        super().__init__("team")
        self.on_request = {}

    def _answer_one(self, seen):
        path = seen.path.partition("?")[0].removeprefix("/api/v1/namespaces/team/")
        self.on_request.get((seen.method, path), lambda: None)()
        return super()._answer_one(seen)

    def change_record(self):
        """As who submits the job again does first of all."""
        self.find(*RECORD)["metadata"]["resourceVersion"] = "2"


@pytest.fixture
def api():
    with Objects() as api:
        yield api


def add_job(api, phase=JobPhase.SUCCEEDED, **settings):
    spec = JobSpec(
        job_name="a1", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1,
        **settings,
    )  # fmt: skip
    job = Job(spec, "team", "uid", "registry/elastic:1")
    status = JobStatus(job_name="a1", phase=phase, submitted_s=1.0)
    api.add("configmaps", manifests.record(job, Submission("uid", 1.0, "image")))
    api.add("configmaps", manifests.status(job, status))
    api.add("secrets", manifests.token_secret(job, "t", OWNER))
    api.add("services", manifests.service(job, OWNER))
    return job


def forget(api):
    KubernetesPlatform(api.cluster(), "team").forget("a1")


def test_nothing_is_left_whatever_stands_beside_what_has_ended(api):
    job = add_job(
        api, tensorboard_log_dir="/r/events", volume="claim_name=c,mount_path=/r"
    )  # fmt: skip
    api.add("pods", manifests.master_pod(job) | {"status": terminated(0, phase="Running")})
    for manifest in manifests.board_objects(job, OWNER):
        kind = {"Pod": "pods", "Service": "services"}[manifest["kind"]]
        api.add(kind, manifest, phase="Running")
    worker = manifests.replica_pod(job, ReplicaId("worker", 0, 1), OWNER)
    api.add("pods", worker, phase="Pending")
    forget(api)
    assert api.names() == []
    graces = {
        seen.path.rpartition("/")[2]: seen.body["gracePeriodSeconds"]
        for seen in api.requests
        if seen.method == "DELETE" and "/pods/" in seen.path
    }
    # What runs is asked to end.
    assert graces == {
        "elastic-a1-master": 5, "elastic-a1-tensorboard": 5, "elastic-a1-worker-0": 0,
    }  # fmt: skip


@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.RUNNING])
def test_a_job_with_a_replica_at_work_is_left_whole(api, phase):
    job = add_job(api, phase)
    api.add("pods", manifests.master_pod(job) | {"status": running()})
    before = api.names()
    with pytest.raises(JobExistsError, match="`elastic kill` it first"):
        forget(api)
    assert api.names() == before


def test_a_job_that_waits_to_start_is_left_whole(api):
    job = add_job(api, JobPhase.PENDING)
    pod = manifests.master_pod(job)
    pod["metadata"]["creationTimestamp"] = "2126-01-01T00:00:00Z"
    api.add("pods", pod, phase="Pending")
    before = api.names()
    with pytest.raises(JobExistsError, match="has not ended: `elastic kill` it first"):
        forget(api)
    assert api.names() == before


def test_a_job_that_is_submitted_again_meanwhile_keeps_what_it_has(api):
    job = add_job(api)
    api.add("pods", manifests.master_pod(job), phase="Succeeded")
    api.on_request["DELETE", "pods/elastic-a1-master"] = api.change_record
    with pytest.raises(JobExistsError, match="submitted by somebody else"):
        forget(api)
    assert api.names() == [
        "configmaps/elastic-a1", "configmaps/elastic-a1-status", "secrets/elastic-a1-token",
        "services/elastic-a1-master",
    ]  # fmt: skip


def test_another_pod_of_the_name_is_left_alone(api):
    job = add_job(api)
    api.add("pods", manifests.master_pod(job), phase="Succeeded")

    def replace():
        api.find("pods", "elastic-a1-master")["metadata"]["uid"] = "another"
        api.change_record()

    api.on_request["DELETE", "pods/elastic-a1-master"] = replace
    with pytest.raises(JobExistsError):
        forget(api)
    assert "pods/elastic-a1-master" in api.names()


def test_the_record_goes_last_and_only_as_it_was_seen(api):
    add_job(api)
    api.on_request["DELETE", "configmaps/elastic-a1"] = api.change_record
    with pytest.raises(JobExistsError, match="submitted by somebody else"):
        forget(api)
    assert api.names() == ["configmaps/elastic-a1"]


@pytest.mark.parametrize(
    ("volume", "lost"),
    [
        pytest.param("", "", id="went-with-the-pod"),
        pytest.param("claim_name=c,mount_path=/data", "", id="not-for-the-state"),
        pytest.param(
            "claim_name=c,mount_path=/elastic/state", "what --resume goes on from", id="on-a-volume"
        ),
    ],
)
def test_only_the_record_knows_the_folder_of_cuts_on_a_volume(api, volume, lost):
    add_job(api, JobPhase.FAILED, volume=volume)
    platform = KubernetesPlatform(api.cluster(), "team")
    assert platform.would_lose(platform.status("a1")) == lost
