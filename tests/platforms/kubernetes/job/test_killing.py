"""How the pods of a job are made to go where nodes take their time; for more see test_platform."""

import copy
import time
from email.utils import parsedate_to_datetime

import pytest
from support.fake_api import Answer
from support.fake_objects import FakeObjects
from support.pods import UID, pod, running, terminated, waiting

from elastic.platforms.base import StillAliveError
from elastic.platforms.kubernetes.job import objects as job_objects
from elastic.platforms.kubernetes.job.objects import JobObjects, end_pods, kill_job
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.policy.replicas import KEEPING
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus


def alone(status):
    """Without the sidecar, which runs as long as it may."""
    changed = copy.deepcopy(status)
    del changed["containerStatuses"][0]
    return changed


INIT_RUNS = alone(waiting("PodInitializing")) | {
    "initContainerStatuses": [{"state": {"running": {}}}]
}


class SlowNode(FakeObjects):
    """Its pods come to `end` when they are deleted, and stay until nobody gives them any grace."""

    def __init__(self, end):
        super().__init__("team")
        self._end = end
        self.graces = []

    def _answer_one(self, seen):
        if seen.method != "DELETE":
            return super()._answer_one(seen)
        self.graces.append(seen.body["gracePeriodSeconds"])
        self.last_uid = seen.body.get("preconditions", {}).get("uid")
        if not self.graces[-1]:
            return super()._answer_one(seen)
        left = self.find("pods", "elastic-j-worker-0")
        left["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
        left["status"] = self._end
        return Answer()


def end(node, timeout_s):
    begun = pod(alone(running()))
    begun["metadata"]["labels"] |= {"elastic-job-name": "j"}
    node.add("pods", begun)
    with node:
        end_pods(JobObjects(node.cluster(), "team", "j"), time.monotonic(), timeout_s)


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(alone(terminated(0, "Succeeded", "Completed")), id="ended"),
        pytest.param(alone(waiting("ContainerCreating")), id="container-removed"),
    ],
)
def test_a_deleted_pod_that_has_ended_does_not_wait_for_its_nodes_clean_up(status):
    node = SlowNode(status)
    end(node, 8.0)
    assert node.graces == [2, 0]
    assert node.last_uid == UID, "another pod of that name is left alone"


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(alone(running()), id="own-container"),
        pytest.param(terminated(0), id="sidecar"),
        pytest.param(INIT_RUNS, id="init-container"),
    ],
)
def test_one_of_which_something_runs_is_not_forgotten(status):
    node = SlowNode(status)
    with pytest.raises(StillAliveError, match=r"elastic-j-worker-0 \(node node-7\)"):
        end(node, 2.0)
    assert 0 not in node.graces


@pytest.mark.parametrize("timeout_s", [0.0, 1.0])
def test_a_killed_job_stays_cancelled_whatever_its_master_publishes_while_it_ends(timeout_s):
    spec = JobSpec(
        job_name="j", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
    )
    job = Job(spec, "team", "s", "image")
    status = manifests.status(job, JobStatus(job_name="j", phase=JobPhase.RUNNING))
    with FakeObjects("team") as api:
        api.add("configmaps", manifests.record(job, Submission("s", 1.0, "image")))
        api.add("configmaps", status)
        master = manifests.master_pod(job)
        master["metadata"]["uid"] = UID
        api.add("pods", master, **alone(running()))
        objects = JobObjects(api.cluster(), "team", "j")
        kill_job(objects, timeout_s)
        assert objects.status().phase is JobPhase.CANCELLED
        api.add("configmaps", status)
        assert objects.status().phase is JobPhase.CANCELLED


@pytest.fixture
def keeping(monkeypatch):
    """A job whose master says that it keeps its newest version, and where to publish its end."""
    monkeypatch.setattr(job_objects, "MASTER_S", 0.0)
    spec = JobSpec(
        job_name="j", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
    )
    job = Job(spec, "team", "s", "image")

    def publish(phase, reason):
        status = JobStatus(job_name="j", phase=phase, reason=reason)
        api.add("configmaps", manifests.status(job, status))

    with FakeObjects("team") as api:
        api.add("configmaps", manifests.record(job, Submission("s", 1.0, "image")))
        publish(JobPhase.RUNNING, KEEPING)
        master = manifests.master_pod(job)
        master["metadata"]["uid"] = UID
        api.add("pods", master, **alone(running()))
        yield JobObjects(api.cluster(), "team", "j"), publish


def test_a_master_that_keeps_its_newest_version_is_waited_for(keeping):
    objects, publish = keeping
    looks = []

    def on_wait(what):
        looks.append(what)
        if len(looks) == 3:
            publish(JobPhase.CANCELLED, "ByItself")

    kill_job(objects, 120.0, on_wait)
    assert looks[:3] == ["its master to tell its end"] * 3
    assert objects.published().reason == "ByItself"


def test_a_second_kill_waits_for_no_version(keeping):
    objects, _ = keeping
    objects.ask(cancelled=True)
    waits = []
    kill_job(objects, 120.0, waits.append)
    assert "its master to tell its end" not in waits
    assert objects.status().phase is JobPhase.CANCELLED


def test_a_job_ends_by_the_clusters_clock():
    spec = JobSpec(
        job_name="j", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
    )  # fmt: skip
    job = Job(spec, "team", "uid", "image")
    with FakeObjects("team") as api:
        api.date = "Thu, 01 Jan 2026 00:00:30 GMT"
        api.add("configmaps", manifests.record(job, Submission("uid", 1.0, "image")))
        published = JobStatus(job_name="j", phase=JobPhase.RUNNING, submitted_s=1.0)
        api.add("configmaps", manifests.status(job, published))
        api.add("pods", manifests.master_pod(job), phase="Running")
        kill_job(JobObjects(api.cluster(), "team", "j"), 0.0)
        status = JobStatus.model_validate_json(
            api.find("configmaps", "elastic-j-status")["data"]["status.json"]
        )
    assert status.phase is JobPhase.CANCELLED
    assert status.ended_s == pytest.approx(parsedate_to_datetime(api.date).timestamp(), abs=10.0)
