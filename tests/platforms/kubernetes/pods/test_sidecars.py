"""A replica is its own container, whatever other containers stand in its pod and whatever first."""

from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from support.fake_api import Answer, FakeApi
from support.pods import DONE_WORDS, pod, running, terminated

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes import masters
from elastic.platforms.kubernetes.job.logs import follow_logs, read_logs, read_previous_logs
from elastic.platforms.kubernetes.master.launches import Remove, next_step
from elastic.platforms.kubernetes.masters import has_missed_its_start
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.platforms.kubernetes.pods import OVERDUE_S, observe, own_spec, own_state
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase

WORKER = ReplicaId("worker", 0, 1)
SPEC = JobSpec(
    job_name="j", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)
EARLY, LATE = "1970-01-01T00:00:10Z", "1970-01-01T01:00:00Z"
AGENT_RUNS = {"state": {"running": {"startedAt": EARLY}}, "ready": True, "restartCount": 7}
AGENT_ENDED = {"state": {"terminated": {"exitCode": 0}}, "ready": False, "restartCount": 0}
AGENT_WAITS = {"state": {"waiting": {"reason": "ErrImagePull"}}, "ready": False}
SILENT = [
    {"type": "Ready", "status": "False"},
    {"type": "ContainersReady", "status": "True"},
]
"""What the control plane makes of a node that does not answer."""
UNREADY = [
    {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
    {"type": "ContainersReady", "status": "False", "reason": "ContainersNotReady"},
]
"""What a node tells of a pod one of whose containers is not ready."""


def master(agent, own, phase="Running", conditions=()):
    """A master's pod beside an agent, whose name a node sorts first."""
    made = manifests.master_pod(Job(SPEC, "team", "uid", "registry/elastic:1"))
    made["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"
    made["spec"]["containers"].insert(0, {"name": "agent", "image": "agent:1"})
    made["spec"]["nodeName"] = "node-0"
    entries = [{"name": "agent", **agent}, {"name": "elastic", **own}]
    made["status"] = {
        "phase": phase, "conditions": list(conditions), "containerStatuses": entries,
    }  # fmt: skip
    return made


def runs(since=LATE):
    return {"state": {"running": {"startedAt": since}}, "ready": True, "restartCount": 0}


def worker(**metadata):
    made = pod(running(), namespace="team", **metadata)
    made["status"]["containerStatuses"][0]["restartCount"] = 3
    return made


class TestLogs:
    def asked(self, read):
        """What the log of the pod is asked for, by options."""
        with FakeApi(Answer(body=b"2026-01-01T00:00:00.1Z step 1\n")) as api:
            assert [line.text for line in read(api.cluster())] == ["step 1"]
            (seen,) = {seen.path for seen in api.requests}
        return {name: values[0] for name, values in parse_qs(urlsplit(seen).query).items()}

    def test_the_log_asked_for_is_the_replicas(self):
        asked = self.asked(lambda cluster: read_logs(cluster, [worker()], [], 3))
        assert asked == {"container": "elastic", "tailLines": "3", "timestamps": "true"}

    def test_so_is_the_one_that_is_followed(self):
        made = worker()
        made["status"] = terminated(0)
        made["status"]["containerStatuses"][0]["state"] = {"waiting": {}}
        asked = self.asked(
            lambda cluster: follow_logs(cluster, lambda: ([made], True), ["worker-0"], None)
        )
        assert (asked["container"], asked["follow"]) == ("elastic", "true")

    def test_and_the_one_of_a_life_before(self):
        made = worker()
        made["status"]["containerStatuses"][1]["restartCount"] = 1
        asked = self.asked(lambda cluster: read_previous_logs(cluster, [made], {}, [], None))
        assert (asked["container"], asked["previous"]) == ("elastic", "true")

    def test_another_containers_restart_leaves_no_life_before(self):
        with FakeApi() as api, pytest.raises(PlatformError, match="no container was restarted"):
            list(read_previous_logs(api.cluster(), [worker()], {}, [], None))


class TestMaster:
    @pytest.mark.parametrize("agent", [AGENT_RUNS, AGENT_ENDED], ids=["runs", "ended"])
    def test_one_that_runs_is_well_whatever_another_container_does(self, agent):
        conditions = UNREADY if agent is AGENT_ENDED else ()
        assert masters.find(master(agent, runs(), conditions=conditions), (), None, 0.0) is None

    def test_one_that_runs_is_not_pending_with_another_container(self):
        assert masters.find(master(AGENT_WAITS, runs(), "Pending"), (), None, 0.0) is None

    def test_one_whose_node_is_silent_is_said(self):
        found = masters.find(master(AGENT_RUNS, runs(), conditions=SILENT), (), None, 0.0)
        assert found.reason == "MasterUnreachable"

    def test_one_that_is_not_ready_for_somebody_elses_gate_is_well(self):
        gate = [{**SILENT[0], "reason": "ReadinessGatesNotReady"}, SILENT[1]]
        assert masters.find(master(AGENT_RUNS, runs(), conditions=gate), (), None, 0.0) is None

    def test_one_that_has_ended_mute_is_not_started_again_for_another_container(self):
        ended = {"state": {"terminated": {"exitCode": 0}}, "restartCount": 0}
        found = masters.find(master(AGENT_RUNS, ended), (), None, 0.0)
        assert (found.phase, found.reason) == (JobPhase.FAILED, "MasterLost")

    def test_one_between_two_lives_is_told_by_its_own_end(self):
        own = {
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "KeyError: 'x'"}},
            "restartCount": 2,
        }
        for agent, phase in ((AGENT_RUNS, "Running"), (AGENT_WAITS, "Pending")):
            found = masters.find(master(agent, own, phase), (), None, 0.0)
            assert found.message == ("the master ended (KeyError: 'x') and is started again")

    def test_the_image_that_cannot_be_pulled_is_its_own(self):
        own = {"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
        found = masters.find(master(AGENT_RUNS, own, "Pending"), (), None, 0.0)
        assert found.message.startswith("image registry/elastic:1 cannot be used: not found: ")

    def test_it_has_started_when_its_own_container_has(self):
        assert has_missed_its_start(master(AGENT_RUNS, runs(LATE)), 100.0, now_s=50.0)
        assert not has_missed_its_start(master(AGENT_RUNS, runs(EARLY)), 100.0, now_s=500.0)


class TestWorker:
    def test_one_that_leaves_after_another_container_is_not_taken_for_lost(self):
        leaving = pod(running(conditions=UNREADY), deleted=True)
        assert observe(leaving, WORKER).phase is ReplicaPhase.RUNNING

    def test_but_for_one_that_should_long_have_been_killed(self):
        leaving = pod(running(conditions=UNREADY), deleted=True)
        killed_s = datetime.fromisoformat(leaving["metadata"]["deletionTimestamp"]).timestamp()
        for late_s, is_final in ((0.0, False), (OVERDUE_S, False), (OVERDUE_S + 1.0, True)):
            seen = observe(leaving, WORKER, killed_s + late_s)
            assert seen.phase.is_final is is_final
            step = next_step(leaving, is_own=True, now_s=killed_s + late_s)
            assert isinstance(step, Remove) is is_final
        del leaving["metadata"]["deletionTimestamp"]
        assert not observe(leaving, WORKER, killed_s + 1e6).phase.is_final

    def test_one_on_a_node_that_does_not_answer_is(self):
        lost = observe(pod(running(conditions=SILENT), deleted=True), WORKER)
        assert lost.exit_reason is ExitReason.KILLED
        assert lost.message == "its node node-7 does not answer: deleted"

    def test_one_has_ended_though_another_container_goes_on(self):
        done = terminated(0, "Running", message=DONE_WORDS)
        assert observe(pod(done), WORKER).phase is ReplicaPhase.SUCCEEDED


def test_a_pod_that_is_not_ours_has_no_container_of_ours():
    stranger = {"metadata": {}, "spec": {"containers": [{"name": "x"}]}}
    assert (own_spec(stranger), own_state(stranger)) == ({}, {})
