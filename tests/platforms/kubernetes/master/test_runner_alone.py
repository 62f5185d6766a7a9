"""What the runner does of itself, against a server of this process that says what a test wants."""

import json
import threading

import pytest
from support.cluster import eventually
from support.fake_api import Answer, FakeApi, refusal
from support.pods import pod, terminated

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, ReplicaId
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.platforms.kubernetes.objects.manifests import replica_pod
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec

SPEC = JobSpec(
    job_name="j", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)
JOB = Job(SPEC, "team", "s", "image")
FIRST, AGAIN = ReplicaId("worker", 0, 1), ReplicaId("worker", 0, 2)
NOTHING = {"items": [], "metadata": {"resourceVersion": "1"}}


@pytest.fixture
def make_runner(tmp_path):
    runners = []

    def make(api):
        runners.append(
            KubernetesReplicaRunner(
                api.cluster(patience_s=0.0), JOB, Owner("m", "master-uid"), tmp_path
            )
        )
        return runners[-1]

    yield make
    for runner in runners:
        runner.close()


@pytest.mark.parametrize("kind", ["pods", "configmaps"])
def test_a_start_of_which_a_part_was_refused_can_be_tried_again(make_runner, kind):
    refused = []

    def answer(seen):
        if "watch=true" in seen.path:
            return Answer(silent=True)
        if f"/{kind}?" in seen.path and not refused:
            refused.append(seen)
            return refusal(403, "not yet")
        return Answer(body=NOTHING)

    with FakeApi(answer=answer) as api:
        runner = make_runner(api)
        with pytest.raises(PlatformError, match="not yet"):
            runner.start()
        runner.start()
        assert runner.observe() == []
        lists = [seen.path for seen in api.requests if "watch=true" not in seen.path]
        runner.close()
    assert len(refused) == 1
    assert len(lists) == 3, "what was listed is followed, and listed no more"


def test_a_launch_that_was_deleted_before_its_creation_showed_leaves_no_pod(make_runner):
    """The answer to the creation is lost, and the watch tells of the pod only then."""
    given_up, deletions = threading.Event(), []
    made = replica_pod(JOB, FIRST, Owner("m", "master-uid"))
    made["metadata"] |= {"uid": "pod-uid", "resourceVersion": "2"}
    made["status"] = {"phase": "Pending"}
    path = f"/pods/{made['metadata']['name']}"

    def answer(seen):
        if seen.method == "POST":
            return Answer(cut=True)
        if seen.method == "DELETE":
            deletions.append((seen.path.endswith(path), seen.body["preconditions"]["uid"]))
            return refusal(503) if len(deletions) == 1 else Answer()
        if "/pods?" in seen.path and "watch=true" in seen.path:
            given_up.wait(10.0)
            return Answer(body=json.dumps({"type": "ADDED", "object": made}).encode())
        return Answer(silent=True) if "watch=true" in seen.path else Answer(body=NOTHING)

    def is_deleted():
        runner.wait(0.1)
        return len(deletions) > 1

    with FakeApi(answer=answer) as api:
        runner = make_runner(api)
        runner.start()
        runner.launch(FIRST)
        runner.delete(FIRST, 30.0)
        assert runner.observe()[0].exit_reason is ExitReason.KILLED
        given_up.set()
        # The first try is refused.
        eventually(is_deleted)
        runner.close()
    assert deletions == [(True, "pod-uid")] * 2


def test_how_a_launch_has_ended_is_kept_before_its_pod_is_removed(make_runner):
    """The next life of the master finds no pod, and nothing else tells."""
    failed = pod(terminated(1, message="KeyError"), namespace="team", resourceVersion="2")
    pods = [failed]

    def answer(seen):
        if "watch=true" in seen.path:
            return Answer(silent=True)
        if seen.method == "DELETE":
            pods.clear()
        return Answer(body={**NOTHING, "items": pods if "/pods?" in seen.path else []})

    with FakeApi(answer=answer) as api:
        dying = make_runner(api)
        dying.start()
        dying.launch(AGAIN)
        assert not pods
        dying.close()
        runner = make_runner(api)
        runner.start()
        first, _ = runner.observe()
    assert (first.id, first.exit_reason, first.message) == (
        FIRST,
        ExitReason.USER_ERROR,
        "KeyError",
    )


def test_a_past_that_is_gone_is_listed_anew(make_runner):
    gone = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
    lists = []

    def answer(seen):
        if "watch=true" in seen.path:
            is_old = "resourceVersion=old" in seen.path
            return Answer(body=json.dumps(gone).encode()) if is_old else Answer(silent=True)
        version = "new" if seen.path in lists else "old"
        lists.append(seen.path)
        return Answer(body={"items": [], "metadata": {"resourceVersion": version}})

    with FakeApi(answer=answer) as api:
        make_runner(api).start()
        eventually(lambda: len(lists) == 4)
    assert sorted(lists[:2]) == sorted(lists[2:])


def test_a_watch_goes_on_from_the_last_bookmark(make_runner):
    """Where nothing happens for long, the API server still knows its version and not the list's."""
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "marked"}}}
    watches = []

    def answer(seen):
        if "watch=true" not in seen.path:
            return Answer(body={"items": [], "metadata": {"resourceVersion": "listed"}})
        watches.append(seen.path)
        is_marked = "resourceVersion=marked" in seen.path
        return Answer(silent=True) if is_marked else Answer(body=json.dumps(bookmark).encode())

    with FakeApi(answer=answer) as api:
        make_runner(api).start()
        eventually(lambda: len(watches) >= 4)
    # Of pods and of ConfigMaps, each from where the one before it ended.
    assert sum("resourceVersion=listed" in path for path in watches) == 2
    assert sum("resourceVersion=marked" in path for path in watches) == 2
