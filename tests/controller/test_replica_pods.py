"""What pods, conditions and times mean to the kinds that make pods themselves."""

import pytest

from elastic.controller.kinds import pods
from elastic.controller.kinds.conditions import (
    JobCondition,
    ended_as,
    ended_s,
    holds,
    no_longer,
    told,
    written,
)
from elastic.controller.resources.common import CleanPodPolicy, RestartPolicy
from elastic.platforms.kubernetes.pods import states

AT_S = 1_750_000_000.0
AT = "2025-06-15T15:06:40Z"


def pod(phase="Running", *, is_going=False, codes=(), init=(), **status):
    metadata = {"name": "p", "uid": "u", "creationTimestamp": AT}
    if is_going:
        metadata["deletionTimestamp"] = AT

    def entries(them, name):
        return [
            {"name": f"{name}{n}", "state": {"terminated": {"exitCode": code}}}
            for n, code in enumerate(them)
        ]

    told_by_node = {
        "containerStatuses": entries(codes, "c"),
        "initContainerStatuses": entries(init, "i"),
    }
    return {"metadata": metadata, "status": {"phase": phase, **told_by_node, **status}}


@pytest.mark.parametrize(
    ("phase", "is_going", "expected"),
    [
        ("Pending", False, "pending"),
        ("Running", False, "active"),
        ("Unknown", False, "pending"),
        ("Succeeded", False, "succeeded"),
        ("Failed", False, "failed"),
        ("Pending", True, None),
        ("Running", True, None),
        ("Succeeded", True, None),
        ("Failed", True, None),
    ],
)
def test_each_pod_is_one_thing(phase, is_going, expected):
    there = pod(phase, is_going=is_going)
    seen = {
        "pending": states.is_pending(there),
        "active": states.is_active(there),
        "succeeded": states.has_succeeded(there),
        "failed": states.has_failed(there),
    }
    assert [name for name, is_so in seen.items() if is_so] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("codes", "init", "expected"),
    [
        ((), (), None),
        ((0, 0), (), 0),
        ((0, 3, 5), (), 3),
        ((1,), (7,), 7),
        ((137,), (0,), 137),
    ],
)
def test_exit_code(codes, init, expected):
    assert states.exit_code(pod("Failed", codes=codes, init=init)) == expected


DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}]}


@pytest.mark.parametrize(
    ("there", "is_free"),
    [
        pytest.param(pod("Failed", codes=(1,)), False, id="own-code"),
        pytest.param(pod("Failed", codes=(143,)), True, id="signal"),
        pytest.param(pod("Failed"), True, id="never-began"),
        pytest.param(pod("Failed", codes=(1,), reason="Evicted"), True, id="evicted"),
        pytest.param(pod("Failed", codes=(1,), **DISRUPTED), True, id="disrupted"),
        pytest.param(
            pod("Failed", codes=(1,), reason="DeadlineExceeded"), False, id="own-deadline"
        ),
    ],
)
def test_whose_doing_an_end_is(there, is_free):
    assert pods.is_free(there, RestartPolicy.EXIT_CODE) is is_free
    assert not pods.is_free(there, RestartPolicy.ON_FAILURE)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (pod("Failed", codes=(2,)), "exited with code 2"),
        (pod("Failed", reason="Evicted", message="no room"), "Evicted: no room"),
        (pod("Failed"), "ended without a reason"),
    ],
)
def test_why_a_pod_failed(there, words):
    assert states.why_failed(there) == words


def test_why_a_pod_ran_out_of_memory():
    there = pod("Failed", codes=(137,))
    there["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
    assert states.why_failed(there) == "exited with code 137: OOMKilled"


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("j-worker-0", 0),
        ("j-worker-12", 12),
        ("j-worker-012", None),
        ("j-worker-", None),
        ("j-worker-x", None),
        ("j-ps-0", None),
        ("other-worker-0", None),
        ("0", None),
    ],
)
def test_index_of_a_name(name, index):
    assert pods.index_of(name, "j", "worker") == index


@pytest.mark.parametrize(
    ("policy", "removed"),
    [
        (CleanPodPolicy.NONE, ["Pending"]),
        (CleanPodPolicy.RUNNING, ["Pending", "Running"]),
        (CleanPodPolicy.ALL, ["Pending", "Running", "Succeeded", "Failed"]),
    ],
)
def test_what_is_removed_at_the_end(policy, removed):
    there = [pod(phase) for phase in ("Pending", "Running", "Succeeded", "Failed")]
    going = pod("Running", is_going=True)
    assert pods.to_remove_at_end([*there, going], policy) == [
        each for each in there if each["status"]["phase"] in removed
    ]


def test_when_a_pod_ended():
    there = pod("Failed", codes=(1, 1), startTime="2025-06-15T15:06:50Z")
    for entry, second in zip(there["status"]["containerStatuses"], (55, 53), strict=True):
        entry["state"]["terminated"]["finishedAt"] = f"2025-06-15T15:06:{second}Z"
    assert pods.ended_s(there) == AT_S + 15
    assert pods.ran_s(there) == 5
    rejected = pod("Failed")
    assert pods.ended_s(rejected) == AT_S
    assert pods.ran_s(rejected) == 0


class TestClocks:
    @pytest.mark.parametrize(
        ("failures", "pause_s"), [(1, 0), (2, 10), (3, 20), (6, 160), (7, 300), (10_000, 300)]
    )
    def test_pause(self, failures, pause_s):
        assert pods.pause_s(failures) == pause_s

    @pytest.mark.parametrize(("ran_s", "count"), [(0, 4), (599, 4), (600, 1)])
    def test_in_a_row(self, ran_s, count):
        assert pods.failures_in_a_row(3, ran_s) == count

    @pytest.mark.parametrize("clock", [pods.deadline_in_s, pods.removal_in_s])
    @pytest.mark.parametrize(
        ("limit_s", "now_s", "in_s"), [(None, 99, None), (30, 10, 20), (30, 30, 0), (30, 99, 0)]
    )
    def test_limits(self, clock, limit_s, now_s, in_s):
        assert clock(0.0, limit_s, now_s) == in_s

    def test_soonest(self):
        assert pods.soonest(None, 3.0, 2.0) == 2.0
        assert pods.soonest(None) is None


class TestConditions:
    def test_life_of_a_job(self):
        now = told((), JobCondition.CREATED, "JobCreated", "created", AT_S)
        now = told(now, JobCondition.RUNNING, "JobRunning", "runs", AT_S + 1)
        now = told(now, JobCondition.RESTARTING, "JobRestarting", "restarts", AT_S + 2)
        assert holds(now, JobCondition.RUNNING), "those that are left go on"
        assert ended_as(now) is None
        assert ended_s(now) is None
        now = told(now, JobCondition.FAILED, "JobFailed", "failed", AT_S + 3)
        assert ended_as(now) is JobCondition.FAILED
        assert ended_s(now) == AT_S + 3
        assert [(c["type"], c["status"], c["message"]) for c in written(now)] == [
            ("Created", "True", "created"),
            ("Running", "False", "runs"),
            ("Restarting", "False", "restarts"),
            ("Failed", "True", "failed"),
        ]

    def test_times(self):
        first = told((), JobCondition.RUNNING, "R", "runs", AT_S)
        same = told(first, JobCondition.RUNNING, "R", "runs", AT_S + 9)
        assert written(same) == written(first)
        [other] = written(told(first, JobCondition.RUNNING, "R", "runs well", AT_S + 9))
        assert (other["lastUpdateTime"], other["lastTransitionTime"]) == (
            "2025-06-15T15:06:49Z",
            AT,
        )
        [ended] = written(no_longer(first, JobCondition.RUNNING, AT_S + 9))
        assert ended["lastTransitionTime"] == "2025-06-15T15:06:49Z"

    def test_what_never_was_cannot_end(self):
        assert no_longer((), JobCondition.RESTARTING, AT_S) == ()
