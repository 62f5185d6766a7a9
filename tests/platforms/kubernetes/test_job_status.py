"""What a job's status is, from what the API server holds."""

import json

import pytest

from elastic.platforms.kubernetes import manifests
from elastic.platforms.kubernetes.job_status import SUBMITTING_S, job_status, needs_warnings
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.record import Submission
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

SPEC = JobSpec(
    job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)
JOB = Job(SPEC, "team", "uid-2", "registry/elastic:1")
NOW_S = 1000.0
CREATED = "1970-01-01T00:14:00Z"
"""When the pods of these tests were created: 160 seconds ago."""
RUNNING = JobStatus(
    job_name="mnist",
    phase=JobPhase.RUNNING,
    updated_s=990.0,
    workers=(WorkerStatus(index=0, launch=1, phase="Running"),),
)
ENDED = JobStatus(job_name="mnist", phase=JobPhase.SUCCEEDED)


def master(phase="Running", uid="uid-2", deleted=False, node="node-0", conditions=(), **container):
    pod = manifests.master_pod(Job(SPEC, "team", uid, "registry/elastic:1"))
    pod["spec"]["nodeName"] = node
    pod["metadata"]["creationTimestamp"] = CREATED
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z" if deleted else None
    pod["status"] = {
        "phase": phase,
        "conditions": list(conditions),
        "containerStatuses": [{"restartCount": 0, **container}],
    }
    return pod


UP = master(state={"running": {}}, ready=True)


def waiting(reason, message="why"):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def look(published, pod, warnings=(), age_s=SUBMITTING_S * 2):
    record = manifests.record(JOB, Submission("uid-2", NOW_S - age_s, "image"))
    status_map = None if published is None else manifests.status(JOB, published)
    return job_status(record, status_map, pod, NOW_S, warnings)


def test_a_job_that_works_is_as_its_master_says():
    status = look(RUNNING, UP)
    assert status == RUNNING.model_copy(update={"submitted_s": status.submitted_s})
    assert status.submitted_s == NOW_S - 2 * SUBMITTING_S


@pytest.mark.parametrize(
    "pod", [None, UP, master("Failed"), master("Succeeded"), master(deleted=True)]
)
def test_an_end_that_was_published_stays(pod):
    assert look(ENDED, pod).phase is JobPhase.SUCCEEDED


def test_a_master_that_has_not_published_begins():
    status = look(None, UP)
    assert (status.phase, status.message) == (JobPhase.PENDING, "the master begins its work")


def test_a_record_without_a_master_is_being_submitted_only_at_first():
    assert look(None, None, age_s=1.0).reason == "Submitting"
    lost = look(None, None, age_s=SUBMITTING_S + 1)
    assert (lost.phase, lost.reason) == (JobPhase.FAILED, "MasterDeleted")


def test_a_job_that_had_a_master_and_has_none_has_failed():
    lost = look(RUNNING, None, age_s=1.0)
    assert (lost.phase, lost.reason, lost.workers) == (JobPhase.FAILED, "MasterDeleted", ())
    assert lost.ended_s == RUNNING.updated_s


def test_a_master_of_an_earlier_submission_is_none():
    old = master(uid="uid-1", state={"running": {}}, ready=True)
    assert look(None, old, age_s=1.0).reason == "Submitting"


def test_a_status_of_an_earlier_submission_is_none():
    record = manifests.record(JOB, Submission("uid-2", NOW_S, "image"))
    earlier = manifests.status(Job(SPEC, "team", "uid-1", "image"), ENDED)
    assert job_status(record, earlier, UP, NOW_S).phase is JobPhase.PENDING


UNSCHEDULABLE = [
    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
     "message": "0/3 nodes are available: 3 Insufficient cpu."},
]  # fmt: skip


@pytest.mark.parametrize(
    ("pod", "warnings", "reason", "message"),
    [
        pytest.param(
            master("Pending", node=None, conditions=UNSCHEDULABLE), (), "Unschedulable",
            "the master waits for a node: 0/3 nodes are available: 3 Insufficient cpu.",
            id="unschedulable",
        ),
        pytest.param(
            master("Pending", **waiting("ErrImagePull", "not found")), (), "ErrImagePull",
            "image registry/elastic:1 cannot be used: not found: push it",
            id="no-image",
        ),
        pytest.param(
            master("Pending", **waiting("ImagePullBackOff", 'Back-off pulling "x"')),
            ("Failed to pull image: manifest unknown", "Error: ErrImagePull"), "ErrImagePull",
            "image registry/elastic:1 cannot be used: Failed to pull image: manifest unknown: ",
            id="no-image-after-a-while-is-told-the-same",
        ),
        pytest.param(
            master("Pending", **waiting("CreateContainerConfigError", "no secret")), (),
            "CreateContainerConfigError", "the master cannot start: no secret",
            id="config-error",
        ),
        pytest.param(
            master("Pending", **waiting("ContainerCreating", "")), ("MountVolume failed:\n x",),
            "Starting", "the master cannot start yet: MountVolume failed: x",
            id="mount",
        ),
        pytest.param(
            master("Pending", **waiting("ContainerCreating", "")), (), "",
            "the master is being started",
            id="usual",
        ),
    ],
)  # fmt: skip
def test_a_pending_master_says_why(pod, warnings, reason, message):
    status = look(None, pod, warnings)
    assert (status.phase, status.reason) == (JobPhase.PENDING, reason)
    assert status.message.startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (json.dumps({"reason": "UserError", "message": "no such file"}), "no such file; Error"),
        ("Traceback\nImportError: torch", "Traceback\nImportError: torch; Error"),
        ("", "Error"),
    ],
)
def test_a_master_between_two_lives_recovers(words, message):
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": words}}
    pod = master(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended, restartCount=2)
    status = look(RUNNING, pod)
    assert (status.phase, status.reason) == (JobPhase.RECOVERING, "MasterLost")
    assert status.message == (
        f"the master ended ({message}, exit code 1) and is started again, after 2 restarts so far"
    )


def test_a_master_on_a_node_that_is_lost_is_said():
    lost = [{"type": "Ready", "status": "False"}]
    status = look(RUNNING, master(state={"running": {}}, ready=True, conditions=lost))
    assert (status.phase, status.reason) == (JobPhase.RECOVERING, "MasterUnreachable")
    assert "node-0" in status.message


@pytest.mark.parametrize(
    ("pod", "phase", "reason"),
    [
        (master(deleted=True), JobPhase.RECOVERING, "MasterDeleted"),
        (master("Failed"), JobPhase.FAILED, "MasterLost"),
        (master("Succeeded"), JobPhase.FAILED, "MasterLost"),
    ],
)
def test_a_master_that_does_not_come_back(pod, phase, reason):
    status = look(RUNNING, pod)
    assert (status.phase, status.reason) == (phase, reason)


def test_only_a_pod_with_a_node_has_events_worth_a_request():
    assert needs_warnings(master("Pending"))
    assert not needs_warnings(master("Pending", node=None))
    assert not needs_warnings(UP)
    assert not needs_warnings(None)
