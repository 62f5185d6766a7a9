"""What pods, conditions and times mean to the kinds that make pods themselves."""

import pytest

from elastic.controller.kinds import common
from elastic.controller.kinds.common import (
    JobCondition,
    ended_as,
    holds,
    job_ended_s,
    no_longer,
    told,
    written,
)
from elastic.controller.resources.common import CleanPodPolicy, RestartPolicy
from elastic.platforms.kubernetes.pods import (
    exit_code,
    has_failed,
    has_succeeded,
    is_active,
    is_pending,
    why_failed,
)

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
        "pending": is_pending(there),
        "active": is_active(there),
        "succeeded": has_succeeded(there),
        "failed": has_failed(there),
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
    assert exit_code(pod("Failed", codes=codes, init=init)) == expected


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
    assert common.is_free(there, RestartPolicy.EXIT_CODE) is is_free
    assert not common.is_free(there, RestartPolicy.ON_FAILURE)


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (pod("Failed", codes=(2,)), "exited with code 2"),
        (pod("Failed", reason="Evicted", message="no room"), "Evicted: no room"),
        (pod("Failed"), "ended without a reason"),
    ],
)
def test_why_a_pod_failed(there, words):
    assert why_failed(there) == words


def test_why_a_pod_ran_out_of_memory():
    there = pod("Failed", codes=(137,))
    there["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
    assert why_failed(there) == "exited with code 137: OOMKilled"


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
    assert common.index_of(name, "j", "worker") == index


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
    assert common.to_remove_at_end([*there, going], policy) == [
        each for each in there if each["status"]["phase"] in removed
    ]


def test_when_a_pod_ended():
    there = pod("Failed", codes=(1, 1), startTime="2025-06-15T15:06:50Z")
    for entry, second in zip(there["status"]["containerStatuses"], (55, 53), strict=True):
        entry["state"]["terminated"]["finishedAt"] = f"2025-06-15T15:06:{second}Z"
    assert common.pod_ended_s(there) == AT_S + 15
    assert common.ran_s(there) == 5
    rejected = pod("Failed")
    assert common.pod_ended_s(rejected) == AT_S
    assert common.ran_s(rejected) == 0


class TestClocks:
    @pytest.mark.parametrize(
        ("failures", "pause_s"), [(1, 0), (2, 10), (3, 20), (6, 160), (7, 300), (10_000, 300)]
    )
    def test_pause(self, failures, pause_s):
        assert common.pause_s(failures) == pause_s

    @pytest.mark.parametrize(("ran_s", "count"), [(0, 4), (599, 4), (600, 1)])
    def test_in_a_row(self, ran_s, count):
        assert common.failures_in_a_row(3, ran_s) == count

    @pytest.mark.parametrize("clock", [common.deadline_in_s, common.removal_in_s])
    @pytest.mark.parametrize(
        ("limit_s", "now_s", "in_s"), [(None, 99, None), (30, 10, 20), (30, 30, 0), (30, 99, 0)]
    )
    def test_limits(self, clock, limit_s, now_s, in_s):
        assert clock(0.0, limit_s, now_s) == in_s

    def test_soonest(self):
        assert common.soonest(None, 3.0, 2.0) == 2.0
        assert common.soonest(None) is None


class TestConditions:
    def test_life_of_a_job(self):
        now = told((), JobCondition.CREATED, "JobCreated", "created", AT_S)
        now = told(now, JobCondition.RUNNING, "JobRunning", "runs", AT_S + 1)
        now = told(now, JobCondition.RESTARTING, "JobRestarting", "restarts", AT_S + 2)
        assert holds(now, JobCondition.RUNNING), "those that are left go on"
        assert ended_as(now) is None
        assert job_ended_s(now) is None
        now = told(now, JobCondition.FAILED, "JobFailed", "failed", AT_S + 3)
        assert ended_as(now) is JobCondition.FAILED
        assert job_ended_s(now) == AT_S + 3
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
