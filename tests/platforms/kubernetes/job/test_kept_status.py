"""What is done with a status that cannot be read, and with the workers of one that has ended."""

import json

import pytest
from support.fake_objects import FakeObjects
from support.pods import running

from elastic.errors import JobExistsError
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.job.submission import check_may_replace, clear
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission, status_of
from elastic.platforms.kubernetes.objects.names import STATUS_KEY, Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

RUNNING = JobStatus(
    job_name="a1",
    phase=JobPhase.RUNNING,
    submitted_s=1.0,
    desired_workers=1,
    workers=(WorkerStatus(index=0, launch=1, phase="Running", records_done=5),),
)
ENDED = RUNNING.model_copy(update={"phase": JobPhase.SUCCEEDED, "workers": ()})
CANCELLED = RUNNING.model_copy(update={"phase": JobPhase.CANCELLED})
NEWER = json.dumps(json.loads(RUNNING.model_dump_json()) | {"priority": "high"})
UNREADABLE = [
    pytest.param("{broken", id="broken"),
    pytest.param(NEWER.replace('"Running"', '"Dreaming"', 1), id="newer-phase"),
]


def job_of(name="a1"):
    spec = JobSpec(
        job_name=name, model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
    )
    return Job(spec, "team", f"uid-{name}", "registry/elastic:1")


@pytest.fixture
def api():
    with FakeObjects("team") as api:
        yield api


def add_job(api, status, name="a1", pods=("master", "worker-0")):
    """A job with its pods, all of which run."""
    job = job_of(name)
    api.add("configmaps", manifests.record(job, Submission(f"uid-{name}", 1.0, "image")))
    status_map = manifests.status(job, status if isinstance(status, JobStatus) else RUNNING)
    if isinstance(status, str):
        status_map["data"][STATUS_KEY] = status
    api.add("configmaps", status_map)
    made = {
        "master": manifests.master_pod(job),
        "worker-0": manifests.replica_pod(job, ReplicaId("worker", 0, 1), Owner("m", "uid-m")),
    }
    for replica in pods:
        made[replica]["metadata"] |= {"uid": replica, "creationTimestamp": "2026-01-01T00:00:00Z"}
        made[replica]["spec"]["nodeName"] = "node-0"
        api.add("pods", made[replica], **running())


def platform(api):
    return KubernetesPlatform(api.cluster(), "team")


def stored(api, name="a1"):
    return status_of(api.find("configmaps", f"elastic-{name}-status"))


@pytest.mark.parametrize("text", UNREADABLE)
def test_one_that_cannot_be_read_is_told_beside_the_others(api, text):
    add_job(api, text)
    add_job(api, RUNNING.model_copy(update={"job_name": "b2"}), "b2")
    one, other = platform(api).statuses()
    assert (one.job_name, one.phase, one.reason) == ("a1", JobPhase.RUNNING, "StatusUnreadable")
    assert (other.job_name, other.reason) == ("b2", "")
    assert platform(api).status("a1") == one


def test_one_of_a_newer_version_is_told_as_far_as_it_is_known(api):
    add_job(api, NEWER)
    assert platform(api).statuses() == [RUNNING]
    assert platform(api).status("a1") == RUNNING


@pytest.mark.parametrize("text", UNREADABLE)
def test_its_job_is_killed_and_forgotten_all_the_same(api, text):
    add_job(api, text)
    platform(api).kill("a1", 0.0)
    assert api.names() == ["configmaps/elastic-a1", "configmaps/elastic-a1-status"]
    assert stored(api).phase is JobPhase.CANCELLED
    platform(api).forget("a1")
    assert api.names() == []


@pytest.mark.parametrize("text", UNREADABLE)
def test_an_end_that_cannot_be_read_stays_for_the_version_that_can(api, text):
    add_job(api, text, pods=())
    platform(api).kill("a1", 0.0)
    assert api.find("configmaps", "elastic-a1-status")["data"][STATUS_KEY] == text


@pytest.mark.parametrize("text", UNREADABLE)
def test_its_job_may_be_replaced_once_it_has_ended(api, text):
    add_job(api, text, pods=("master",))
    objects, job = JobObjects(api.cluster(), "team", "a1"), job_of()
    spec = job.spec.model_copy(update={"overwrite": True})
    record = objects.record()
    with pytest.raises(JobExistsError, match=r"has not ended \(Running\)"):
        check_may_replace(objects, record, spec)
    objects.delete(PODS, "elastic-a1-master")
    check_may_replace(objects, record, spec)
    clear(objects, spec, job, record, [])
    assert api.names() == ["configmaps/elastic-a1"]


def test_a_cancelled_job_shows_no_worker_that_runs(api):
    add_job(api, CANCELLED, pods=())
    for status in (platform(api).status("a1"), *platform(api).statuses()):
        [worker] = status.workers
        assert (worker.phase, worker.last_exit) == ("Failed", "was ended with its job")


def test_one_whose_pods_are_there_shows_them_as_ending(api):
    add_job(api, CANCELLED)
    for status in (platform(api).status("a1"), *platform(api).statuses()):
        assert [worker.phase for worker in status.workers] == ["Ending"]


def test_killing_it_keeps_what_became_of_them(api):
    add_job(api, CANCELLED)
    platform(api).kill("a1", 0.0)
    [worker] = stored(api).workers
    assert (worker.phase, worker.records_done) == ("Failed", 5)
    before = len(api.requests)
    platform(api).status("a1")
    assert len(api.requests) - before == 3, "nobody asks for pods again"


def test_the_list_takes_two_requests_and_a_third_for_workers_left_behind(api):
    for name in ("a1", "b2", "c3"):
        add_job(api, ENDED.model_copy(update={"job_name": name}), name, pods=())
    platform(api).statuses()
    assert len(api.requests) == 2
    for name in ("d4", "e5"):
        add_job(api, CANCELLED.model_copy(update={"job_name": name}), name, pods=())
    api.requests.clear()
    platform(api).statuses()
    assert len(api.requests) == 3
