"""What a job's status is, from what the API server holds."""

import json
from dataclasses import replace

import pytest

from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.masters import SUBMITTING_S, dump_end, job_status, needs_warnings
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission
from elastic.platforms.kubernetes.objects.names import STATUS_KEY
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.policy.replicas import MAX_MASTER_CRASHES
from elastic.spec.job import JobSpec, WorkerRange
from elastic.spec.status import JobPhase, JobStatus, MasterHistory, Progress, WorkerStatus

SPEC = JobSpec(
    job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)
JOB = Job(SPEC, "team", "uid-2", "registry/elastic:1")
NOW_S = 1000.0
NOW = "1970-01-01T00:16:40Z"
CREATED = "1970-01-01T00:14:00Z"
"""When the pods of these tests were created: 160 seconds ago."""
RUNNING = JobStatus(
    job_name="mnist",
    phase=JobPhase.RUNNING,
    updated_s=990.0,
    desired_workers=1,
    workers=(WorkerStatus(index=0, launch=1, phase="Running"),),
)
ENDED = JobStatus(job_name="mnist", phase=JobPhase.SUCCEEDED)


def master(phase="Running", uid="uid-2", deleted=False, node="node-0", conditions=(), **container):
    pod = manifests.master_pod(Job(SPEC, "team", uid, "registry/elastic:1"))
    pod["spec"]["nodeName"] = node
    pod["metadata"]["creationTimestamp"] = CREATED
    if deleted:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pod["status"] = {
        "phase": phase,
        "conditions": list(conditions),
        "containerStatuses": [{"name": "elastic", "restartCount": 0, **container}],
    }
    return pod


UP = master(state={"running": {}}, ready=True)


def waiting(reason, message="why"):
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def look(
    published, pod, warnings=(), age_s=SUBMITTING_S * 2, control=None, now_s=NOW_S, **settings
):
    job = replace(JOB, spec=SPEC.model_copy(update=settings))
    record = manifests.record(job, Submission("uid-2", NOW_S - age_s, "image"), control)
    if isinstance(published, str):
        status_map = manifests.status(JOB, RUNNING)
        status_map["data"][STATUS_KEY] = published
    else:
        status_map = None if published is None else manifests.status(JOB, published)
    return job_status(record, status_map, pod, now_s, warnings)


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


def test_a_job_that_is_suspended_needs_no_master_and_may_be_cancelled():
    suspended = RUNNING.model_copy(update={"phase": JobPhase.SUSPENDED, "reason": "Suspended"})
    assert (found := look(suspended, None)).phase is JobPhase.SUSPENDED
    assert found.reason == "Suspended"
    assert look(suspended, None, control=JobControl(cancelled=True)).phase is JobPhase.CANCELLED


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


NEWS = "ed 3 records\n2026-01-01 00:00:00,000 I elastic.master.board: EpochEnded: epoch 1\n"
"""The end of a log, as a node cuts it."""


@pytest.mark.parametrize(
    ("code", "reason", "words", "message"),
    [
        pytest.param(1, "Error", json.dumps({"reason": "UserError", "message": "no such file"}),
                     "no such file", id="its-own-words"),
        pytest.param(1, "Error", "Traceback\nImportError: torch", "ImportError: torch",
                     id="last-line-of-a-traceback"),
        pytest.param(1, "Error", "", "exit code 1 and no output", id="mute"),
        pytest.param(7, "Error", NEWS, "exit code 7, without a word why", id="news-are-no-reason"),
        pytest.param(137, "Error", NEWS, "killed by SIGKILL", id="killed"),
        pytest.param(137, "OOMKilled", NEWS,
                     "out of memory (its limit is 1024Mi): raise memory in "
                     "--master_resource_request",
                     id="memory"),
        pytest.param(139, "Error", NEWS, "crashed with SIGSEGV", id="crash-in-c"),
        pytest.param(128, "StartError", "no python", "no python", id="never-started"),
    ],
)  # fmt: skip
def test_a_master_between_two_lives_recovers(code, reason, words, message):
    ended = {"terminated": {"exitCode": code, "reason": reason, "message": words}}
    pod = master(state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=ended, restartCount=2)
    status = look(RUNNING, pod)
    assert (status.phase, status.reason) == (JobPhase.RECOVERING, "MasterLost")
    assert status.message == f"the master ended ({message}) and is started again"


def back_off(text, code=137):
    """A pod whose node waits before it starts the master's container again."""
    waits = {"reason": "CrashLoopBackOff", "message": f"back-off {text} restarting failed …"}
    ended = {"exitCode": code, "reason": "Error", "message": "boom", "finishedAt": NOW}
    return master(state={"waiting": waits}, lastState={"terminated": ended}, restartCount=2)


@pytest.mark.parametrize(("text", "later_s", "words"), [
    ("10s", 0.0, "restarts in about 10 s"),
    ("2m40s", 15.0, "restarts in about 145 s"),
    ("5m0s", 0.0, "restarts in about 300 s"),
    ("10s", 12.0, "restarts in a moment"),
])  # fmt: skip
def test_when_its_node_starts_a_master_again_is_told(text, later_s, words):
    status = look(RUNNING, back_off(text), now_s=NOW_S + later_s)
    assert status.message == f"the master ended (killed by SIGKILL) and {words}"


def test_a_master_that_will_do_no_better_is_not_waited_for():
    """A node may wait for minutes: by the rule of the master, all know how it will judge."""
    history = MasterHistory(crashes=MAX_MASTER_CRASHES - 1, ends=4, best_version=7, has_worked=True)
    told = RUNNING.model_copy(
        update={"master_history": history, "progress": Progress(model_version=7)}
    )
    status = look(told, back_off("2m40s", code=1))
    assert (status.phase, status.reason) == (JobPhase.FAILED, "MasterCrashed")
    assert "crashed 5 times without progress: boom" in status.message
    assert status.ended_s == NOW_S
    # A kill is no crash, and progress forgives.
    assert look(told, back_off("2m40s")).phase is JobPhase.RECOVERING
    ahead = told.model_copy(update={"progress": Progress(model_version=8)})
    assert look(ahead, back_off("2m40s", code=1)).phase is JobPhase.RECOVERING


def speeds(status):
    return [status.progress.samples_per_s, *(worker.samples_per_s for worker in status.workers)]


def test_a_job_has_the_speed_told_last_only_while_it_runs():
    worker = WorkerStatus(index=0, launch=1, phase="Running", samples_per_s=5.0)
    told = {"progress": Progress(samples_per_s=5.0), "workers": (worker,)}
    running, ended = RUNNING.model_copy(update=told), ENDED.model_copy(update=told)
    assert speeds(look(running, UP)) == [5.0, 5.0]
    assert speeds(look(running, master(**waiting("CrashLoopBackOff")))) == [0.0, 0.0]
    assert speeds(look(running, master("Failed"))) == [0.0]
    assert speeds(look(ended, None)) == [0.0, 0.0]


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


GO_ON = "with --resume to go on from its newest checkpoint or with --overwrite to start anew"


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, "submit the job again, with --overwrite to start anew"),
        ({"checkpoint_dir": "/results"}, f"submit the job again, {GO_ON}"),
        (
            {"volume": "claim_name=kept,mount_path=/elastic/state"},
            f"submit the job again, {GO_ON}",
        ),
        (
            {"volume": "claim_name=kept,mount_path=/results"},
            "submit the job again, with --overwrite to start anew",
        ),
    ],
)
def test_resuming_is_advised_only_where_it_is_not_refused(settings, advice):
    lost = look(RUNNING, None, **settings)
    assert lost.message.endswith(f"its workers with it: {advice}")
    evicted = look(RUNNING, master("Failed"), **settings)
    assert evicted.message.endswith(f"(no reason given): {advice}")


CANCELLED = JobControl(cancelled=True)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(None, id="gone"),
        pytest.param(master(deleted=True, state={"running": {}}), id="leaves"),
        pytest.param(master("Failed"), id="ended"),
    ],
)
def test_a_job_that_its_user_ended_is_cancelled_once_its_master_cannot_say_so(pod):
    status = look(RUNNING, pod, control=CANCELLED)
    assert (status.phase, status.reason) == (JobPhase.CANCELLED, "Cancelled")
    assert status.ended_s == RUNNING.updated_s
    assert status.workers == RUNNING.workers, "their pods tell what became of them"


def test_it_is_about_to_be_while_its_master_runs():
    status = look(RUNNING, UP, control=CANCELLED)
    assert (status.phase, status.reason) == (JobPhase.RUNNING, "Cancelling")


def test_an_end_that_was_reached_before_stays():
    assert look(ENDED, None, control=CANCELLED).phase is JobPhase.SUCCEEDED


@pytest.mark.parametrize("control", [None, CANCELLED])
def test_an_end_that_only_the_pod_tells_counts(control):
    left = master("Succeeded", state={"terminated": {"exitCode": 0, "message": dump_end(ENDED)}})
    status = look(RUNNING, left, control=control)
    assert (status.phase, status.workers) == (JobPhase.SUCCEEDED, ())
    assert status.desired_workers == ENDED.desired_workers


@pytest.mark.parametrize(
    ("control", "expected"),
    [(None, 4), (JobControl(num_workers=3), 3), (JobControl(num_workers=1), 2)],
)
@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(master("Pending"), id="pending"),
        pytest.param(master(state={"waiting": {}}, restartCount=1), id="between-lives"),
        pytest.param(UP, id="begins"),
    ],
)
def test_the_workers_wanted_are_known_before_the_master_says_so(pod, control, expected):
    status = look(None, pod, control=control, num_workers=WorkerRange(minimum=2, maximum=4))
    assert (status.desired_workers, status.workers) == (expected, ())


UNREADABLE = ["{broken", json.dumps({"job_name": "mnist", "phase": "Dreaming"})]


@pytest.mark.parametrize("text", UNREADABLE)
@pytest.mark.parametrize(
    ("pod", "phase"),
    [
        pytest.param(UP, JobPhase.RUNNING, id="runs"),
        pytest.param(master("Pending"), JobPhase.PENDING, id="waits"),
        pytest.param(
            master(state={"waiting": {}}, restartCount=1), JobPhase.RECOVERING, id="between-lives"
        ),
        pytest.param(master("Succeeded"), JobPhase.FAILED, id="has-ended"),
        pytest.param(None, JobPhase.FAILED, id="gone"),
    ],
)
def test_a_status_that_cannot_be_read_leaves_what_the_pod_tells(text, pod, phase):
    status = look(text, pod)
    assert (status.job_name, status.phase, status.reason) == ("mnist", phase, "StatusUnreadable")
    assert status.message.startswith(
        "status.json of ConfigMap team/elastic-mnist-status is damaged or of a newer version: "
    )
    assert status.submitted_s == NOW_S - 2 * SUBMITTING_S


def test_a_record_of_another_version_costs_what_it_says_and_no_more():
    record = manifests.record(JOB, Submission("uid-2", NOW_S - 200, "image"))
    record["data"] |= {"spec.json": '{"newer": 1}', "control.json": "{broken"}
    status = job_status(record, manifests.status(JOB, RUNNING), UP, NOW_S)
    assert (status.phase, status.desired_workers) == (JobPhase.RUNNING, 1)
