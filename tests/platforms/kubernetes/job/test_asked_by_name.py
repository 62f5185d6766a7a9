"""Which jobs may be forgotten or scaled, and which name is of no job."""

from email.utils import parsedate_to_datetime

import pytest
from support.fake_objects import FakeObjects

from elastic.errors import JobExistsError, JobNotFoundError, JobSpecError
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus


@pytest.fixture
def api():
    """A namespace with the job a1, which has succeeded."""
    spec = JobSpec(
        job_name="a1", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1,
        num_workers="1:4",
    )  # fmt: skip
    job = Job(spec, "team", "uid", "registry/elastic:1")
    with FakeObjects("team") as api:
        api.add("configmaps", manifests.record(job, Submission("uid", 1.0, "image")))
        ended = JobStatus(job_name="a1", phase=JobPhase.SUCCEEDED, submitted_s=1.0)
        api.add("configmaps", manifests.status(job, ended))
        api.add("pods", manifests.master_pod(job), phase="Succeeded")
        api.job = job
        yield api


@pytest.fixture
def platform(api):
    return KubernetesPlatform(api.cluster(), "team")


def test_a_job_whose_pods_have_ended_is_forgotten_with_them(api, platform):
    worker = manifests.replica_pod(api.job, ReplicaId("worker", 0, 1), Owner("m", "uid-m"))
    api.add("pods", worker, phase="Failed")
    platform.forget("a1")
    assert api.names() == []


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_one_with_a_pod_that_has_not_ended_is_left_whole(api, platform, phase):
    worker = manifests.replica_pod(api.job, ReplicaId("worker", 0, 1), Owner("m", "uid-m"))
    api.add("pods", worker, phase=phase)
    before = api.names()
    with pytest.raises(JobExistsError, match=r"pods \(elastic-a1-worker-0\): `elastic kill` it"):
        platform.forget("a1")
    assert api.names() == before


@pytest.mark.parametrize("num_workers", [2, 99])
def test_of_an_ended_job_no_number_of_workers_is_right(api, platform, num_workers):
    record = api.find("configmaps", "elastic-a1")
    with pytest.raises(
        JobSpecError, match=r"has ended as Succeeded, so it has no workers to scale$"
    ):
        platform.scale("a1", num_workers)
    assert api.find("configmaps", "elastic-a1") == record


def test_the_time_is_that_of_the_api_servers_last_answer(api, platform):
    api.date = "Thu, 01 Jan 2026 00:00:30 GMT"
    platform.status("a1")
    assert platform.now_s() == pytest.approx(parsedate_to_datetime(api.date).timestamp(), abs=10.0)


@pytest.mark.parametrize("name", ["a1#2", "a1?x=y", "a1/", "a1 ", "a1%20", "../pods/a1"])
def test_what_would_end_or_continue_a_path_is_no_jobs_name(api, platform, name):
    for ask in (platform.status, platform.spec, platform.forget):
        with pytest.raises(JobNotFoundError, match="lower-case letters, digits and '-' only"):
            ask(name)
    with pytest.raises(JobNotFoundError):
        platform.kill(name, 0.0)
    assert api.requests == []
