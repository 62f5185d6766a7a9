"""A job whose master does not start in time has failed, whoever looks and whenever."""

import pytest
from support.fake_platform import FakeReplicaRunner

from elastic.platforms.kubernetes.master.environment import begin_life
from elastic.platforms.kubernetes.masters import REPORT_S, has_missed_its_start, job_status
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission
from elastic.platforms.kubernetes.objects.names import QueueSystem
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus

TIMEOUT_S = 100.0
SPEC = JobSpec(
    job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1,
    start_timeout=TIMEOUT_S,
)  # fmt: skip
JOB = Job(SPEC, "team", "uid", "registry/elastic:1")
PULLING = {"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
CRASHED = {
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"exitCode": 1, "message": "No module named elastic"}},
    "restartCount": 4,
}
RESUMED = JobStatus(job_name="mnist", phase=JobPhase.PENDING, updated_s=-1000.0)


def running(started):
    return {"state": {"running": {"startedAt": f"1970-01-01T00:{started}Z"}}, "ready": True}


def master(container, phase="Pending"):
    """A master's pod that was created at 0."""
    pod = manifests.master_pod(JOB)
    pod["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"
    pod["spec"]["nodeName"] = "node-0"
    pod["status"] = {"phase": phase, "containerStatuses": [{"name": "elastic", **container}]}
    return pod


def look(pod, now_s, published=None):
    record = manifests.record(JOB, Submission("uid", 0.0, "image"))
    status_map = None if published is None else manifests.status(JOB, published)
    return job_status(record, status_map, pod, now_s)


@pytest.mark.parametrize("published", [None, RESUMED], ids=["new", "resumed"])
@pytest.mark.parametrize(
    ("container", "phase", "words"),
    [
        pytest.param(PULLING, "Pending", "image registry/elastic:1 cannot be used: not found: ",
                     id="no-image"),
        pytest.param(CRASHED, "Running", "No module named elastic", id="an-image-without-elastic"),
    ],
)  # fmt: skip
def test_it_is_waited_for_so_long_and_has_failed_then(container, phase, words, published):
    pod = master(container, phase)
    before = look(pod, TIMEOUT_S + REPORT_S, published)
    assert not before.phase.is_final
    assert words in before.message
    after = look(pod, TIMEOUT_S + REPORT_S + 1, published)
    assert (after.phase, after.reason) == (JobPhase.FAILED, "StartTimeout")
    assert after.message.startswith("the master did not start within 100 s (start_timeout=100): ")
    assert words in after.message
    assert after.ended_s == TIMEOUT_S


def test_why_it_has_failed_is_the_same_while_its_program_is_tried_once_more():
    again = CRASHED | {"state": {"running": {"startedAt": "1970-01-01T00:02:00Z"}}}
    status = look(master(again, "Running"), TIMEOUT_S + 60)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "StartTimeout")
    assert status.message.endswith(": each time it ended (No module named elastic)")
    assert status == look(master(CRASHED, "Running"), TIMEOUT_S + 60)


def test_a_master_that_starts_in_time_may_take_its_time_to_tell():
    status = look(master(running("01:40"), "Running"), now_s=10_000.0)
    assert status.message == "the master begins its work"


def test_a_master_that_starts_too_late_is_failed_for_everybody():
    pod = master(running("01:41"), "Running")
    status = look(pod, now_s=10_000.0)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "StartTimeout")
    assert "it could start only later" in status.message
    assert has_missed_its_start(pod, TIMEOUT_S, now_s=0.0)


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.RUNNING])
def test_a_job_that_has_begun_is_never_too_late(phase):
    begun = JobStatus(job_name="mnist", phase=phase)
    assert look(master(CRASHED, "Running"), 10_000.0, begun).phase is JobPhase.RECOVERING


class TestTheMasterItself:
    """By the clock of its node, where the node has not said yet that it runs."""

    def end(self, tmp_path, pod, *published):
        runner = FakeReplicaRunner()
        for status in published:
            runner.publish_status(status)
        has_ended = begin_life(tmp_path, lambda: pod, runner, SPEC) is None
        return has_ended, runner.last_status()

    @pytest.mark.parametrize("container", [running("01:41"), PULLING], ids=["told", "not-yet"])
    @pytest.mark.parametrize("published", [(), (RESUMED,)], ids=["new", "resumed"])
    def test_ends_a_job_that_all_others_have_taken_for_failed(self, tmp_path, container, published):
        has_ended, status = self.end(tmp_path, master(container), *published)
        assert has_ended
        assert (status.phase, status.reason) == (JobPhase.FAILED, "StartTimeout")

    def test_goes_on_where_it_is_in_time(self, tmp_path):
        has_ended, status = self.end(tmp_path, master(running("01:40")))
        assert (has_ended, status) == (False, None)

    def test_goes_on_where_an_earlier_life_has_begun(self, tmp_path):
        begun = JobStatus(job_name="mnist", phase=JobPhase.RUNNING)
        has_ended, status = self.end(tmp_path, master(running("01:41")), begun)
        assert (has_ended, status) == (False, begun)


QUEUED = Job(
    SPEC.model_copy(update={"queue": "team-a"}), "team", "uid", "i", queue_system=QueueSystem.KUEUE
)


def queued(placed=None):
    """A master's pod that was put into a queue at 0, and left it with a node."""
    pod = manifests.master_pod(QUEUED)
    pod["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    pod["status"] = {"phase": "Pending", "conditions": [gated | {"message": "gates"}]}
    if placed is not None:
        pod["spec"]["nodeName"] = "node-0"
        found = {"type": "PodScheduled", "status": "True"}
        found["lastTransitionTime"] = f"1970-01-01T00:{placed}Z"
        pod["status"]["conditions"] = [found]
    return pod


def test_a_queue_is_waited_for_as_long_as_it_takes_and_is_told():
    status = look(queued(), 1000 * TIMEOUT_S)
    assert status.phase is JobPhase.PENDING
    assert status.reason == "SchedulingGated"
    assert status.message == "the master waits in queue team-a: SchedulingGated: gates"


@pytest.mark.parametrize(
    ("now_s", "phase"),
    [
        (1800 + TIMEOUT_S + REPORT_S, JobPhase.PENDING),
        (1801 + TIMEOUT_S + REPORT_S, JobPhase.FAILED),
    ],
)
def test_after_the_queue_a_master_has_as_long_as_any(now_s, phase):
    status = look(queued(placed="30:00"), now_s)
    assert status.phase is phase
