"""What a pod's JSON means."""

import json

import pytest
from support.pods import DONE_WORDS, pod, running, terminated, waiting, with_state

from elastic.platforms.base import ExitReason, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.pods import (
    last_words,
    observe,
    observe_removed,
    replica_id,
)
from elastic.platforms.process import UNFINISHED

WORKER = ReplicaId("worker", 0, 1)
OWN_WORDS = json.dumps({"reason": "UserError", "message": "ValueError: bad", "traceback": "…"})
KILLED_WORDS = json.dumps({"reason": "Killed", "message": "the master was away"})
UNREADY = [{"type": "Ready", "status": "False"}]
PREEMPTED = [
    {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "preempted by another pod",
    }
]


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        pytest.param(
            terminated(0, message=DONE_WORDS), ExitReason.COMPLETED, "", id="code-0"
        ),
        pytest.param(terminated(0), ExitReason.USER_ERROR, UNFINISHED, id="unsaid-success"),
        pytest.param(
            terminated(0) | {"conditions": PREEMPTED}, ExitReason.COMPLETED,
            "PreemptionByScheduler: preempted by another pod", id="one-that-was-asked-need-not-say",
        ),
        pytest.param(
            terminated(1, message=OWN_WORDS), ExitReason.USER_ERROR, "ValueError: bad",
            id="its-own-words",
        ),
        pytest.param(
            terminated(1, message=KILLED_WORDS), ExitReason.KILLED, "the master was away",
            id="its-own-reason",
        ),
        pytest.param(
            terminated(1, message="Traceback\n  File\nKeyError: 'x'\n\n"),
            ExitReason.USER_ERROR, "KeyError: 'x'", id="last-line-of-its-log",
        ),
        pytest.param(
            terminated(3), ExitReason.USER_ERROR, "exit code 3 and no output", id="silent"
        ),
        pytest.param(
            terminated(3, message="2026-01-01 00:00:00,000 I elastic.master.x: Resumed: from 7\n"),
            ExitReason.USER_ERROR, "exit code 3, without a word why", id="our-own-news",
        ),
        pytest.param(
            terminated(137, reason="OOMKilled"), ExitReason.OUT_OF_MEMORY,
            "out of memory (its limit is 64Mi): raise memory in --worker_resource_limit",
            id="out-of-memory",
        ),
        pytest.param(
            terminated(137, message="line 9"), ExitReason.KILLED, "ended from outside by SIGKILL",
            id="kill-9",
        ),
        pytest.param(
            terminated(143), ExitReason.KILLED, "ended from outside by SIGTERM", id="sigterm"
        ),
        pytest.param(
            terminated(139), ExitReason.USER_ERROR, "crashed with SIGSEGV", id="segfault"
        ),
        pytest.param(
            terminated(255, message="last words"), ExitReason.USER_ERROR,
            "exit code 255: last words", id="255-is-no-signal",
        ),
        pytest.param(
            terminated(128, reason="StartError", message="no such program"),
            ExitReason.NEVER_STARTED, "no such program", id="start-error",
        ),
        pytest.param(
            terminated(127, reason="ContainerCannotRun", message="no such program"),
            ExitReason.NEVER_STARTED, "no such program", id="container-cannot-run",
        ),
        pytest.param(
            terminated(137, pod_reason="Evicted"), ExitReason.KILLED,
            "Evicted: the cluster's words", id="evicted",
        ),
        pytest.param(
            terminated(143) | {"conditions": PREEMPTED}, ExitReason.KILLED,
            "PreemptionByScheduler: preempted by another pod", id="preempted",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "OutOfcpu", "message": "node has no room"},
            ExitReason.KILLED, "OutOfcpu: node has no room", id="refused-by-its-node",
        ),
        pytest.param(
            {"phase": "Failed"}, ExitReason.KILLED, "ended by the cluster without a reason",
            id="without-a-word",
        ),
        pytest.param(
            {
                "phase": "Failed",
                "initContainerStatuses": [
                    {"name": "fetch", "state": {"terminated": {"exitCode": 2, "message": "no\n"}}}
                ],
            },
            ExitReason.USER_ERROR, "init container fetch failed: no", id="init-container",
        ),
    ],
)  # fmt: skip
def test_ends(status, reason, message):
    ended = observe(pod(status), WORKER)
    is_completed = reason is ExitReason.COMPLETED
    assert ended.phase is (ReplicaPhase.SUCCEEDED if is_completed else ReplicaPhase.FAILED)
    assert (ended.exit_reason, ended.message) == (reason, message)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param({"phase": "Pending"}, "", id="just-created"),
        pytest.param({}, "", id="no-status-yet"),
        pytest.param(
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient cpu.",
                    }
                ],
            },
            "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.",
            id="unschedulable",
        ),
        pytest.param(
            waiting("ErrImagePull", "not found"), "ErrImagePull: not found", id="wrong-image"
        ),
        pytest.param(waiting("ImagePullBackOff"), "ImagePullBackOff", id="wrong-image-later"),
        pytest.param(waiting("ContainerCreating"), "", id="on-its-way"),
    ],
)
def test_what_cannot_start_yet_is_pending_and_says_why(status, message):
    replica = observe(pod(status), WORKER)
    assert (replica.phase, replica.message) == (ReplicaPhase.PENDING, message)
    assert replica.exit_reason is None


def test_running_since():
    replica = observe(pod(running()), WORKER)
    assert (replica.phase, replica.started_s) == (ReplicaPhase.RUNNING, 1767225610.0)


def test_a_running_pod_that_is_not_ready_is_healthy():
    """Its node may be away for a moment; nothing has been decided about the pod."""
    status = running(conditions=UNREADY)
    assert observe(pod(status), WORKER).phase is ReplicaPhase.RUNNING
    assert observe(pod({**status, "phase": "Unknown"}), WORKER).phase is ReplicaPhase.RUNNING


def test_a_pod_that_is_given_time_to_end_runs_until_it_has():
    assert observe(pod(running(), deleted=True), WORKER).phase is ReplicaPhase.RUNNING
    ended = observe(pod(terminated(143), deleted=True), WORKER)
    assert (ended.exit_reason, ended.message) == (ExitReason.KILLED, "deleted")
    gracefully = observe(pod(terminated(0), deleted=True), WORKER)
    assert (gracefully.exit_reason, gracefully.message) == (ExitReason.COMPLETED, "deleted")


def test_a_pod_to_be_removed_from_a_node_that_does_not_answer_is_lost():
    lost = observe(pod(running(conditions=UNREADY), deleted=True), WORKER)
    assert lost.exit_reason is ExitReason.KILLED
    assert lost.message == "its node node-7 does not answer: deleted"


def test_what_was_removed():
    vanished = observe_removed(pod(running()), WORKER)
    assert (vanished.exit_reason, vanished.message) == (ExitReason.KILLED, "deleted")
    assert observe_removed(pod(waiting("ErrImagePull")), WORKER).phase is ReplicaPhase.FAILED
    # Its own end was seen before.
    assert observe_removed(pod(terminated(139)), WORKER).exit_reason is ExitReason.USER_ERROR


def test_which_launch_a_pod_is():
    assert replica_id(pod(launch=3, index=5)) == ReplicaId("worker", 5, 3)
    stranger = pod()
    stranger["metadata"]["labels"]["elastic-launch"] = "x"
    assert replica_id(stranger) is None
    assert replica_id({"metadata": {"name": "x", "uid": "y"}}) is None


def test_another_containers_state_is_not_the_replicas():
    entry = {"name": "sidecar", "state": {"terminated": {"exitCode": 1}}}
    status = with_state({"running": {"startedAt": "2026-01-01T00:00:10Z"}})
    status["containerStatuses"][0] = entry
    assert observe(pod(status), WORKER).phase is ReplicaPhase.RUNNING


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(terminated(1, message=OWN_WORDS), "…", id="its-traceback"),
        pytest.param(terminated(1, message=KILLED_WORDS), "the master was away", id="its-message"),
        pytest.param(terminated(137, message="line 8\nline 9\n"), "line 8\nline 9", id="its-log"),
        pytest.param(terminated(0), "", id="nothing"),
        pytest.param(running(), "", id="not-ended"),
        pytest.param({"phase": "Pending"}, "", id="not-begun"),
    ],
)
def test_last_words(status, words):
    assert last_words(pod(status)) == words
