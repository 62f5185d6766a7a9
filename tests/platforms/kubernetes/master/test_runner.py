"""What the runner does in a real cluster beyond the contract of every runner."""

import json
import time
from dataclasses import replace

import pytest
from support.api_proxy import ApiProxy, CountingPace, cluster_through
from support.cluster import (
    IMAGE,
    KUBECONFIG,
    cluster,
    core,
    eventually,
    harness,
    namespace,
    needs_cluster,
    open_cluster,
    owner,
)
from support.platform_contract import (
    FIRST,
    SECOND,
    launch,
    until,
    until_ended,
    until_phase,
)

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS
from elastic.platforms.kubernetes.api.transport import find_access
from elastic.platforms.kubernetes.master.publishing import STATUS_INTERVAL_S
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import last_words_of
from elastic.spec.status import JobPhase, JobStatus

__all__ = ["cluster", "harness", "namespace", "owner"]
pytestmark = needs_cluster

AGAIN = ReplicaId("worker", 0, 2)


@pytest.mark.parametrize(
    ("behaviour", "reason", "message"),
    [
        pytest.param("exit 3", ExitReason.USER_ERROR, "ready", id="last-line-of-the-log"),
        pytest.param("say OutOfMemory", ExitReason.OUT_OF_MEMORY, "said so", id="its-own-word"),
        pytest.param("greedy", ExitReason.OUT_OF_MEMORY, "its limit is 128Mi", id="out-of-memory"),
    ],
)
def test_exits_are_classified(harness, behaviour, reason, message):
    harness.arrange(FIRST, behaviour)
    harness.runner.launch(FIRST)
    ended = until_ended(harness.runner, FIRST)
    assert ended.exit_reason is reason, ended
    assert message in ended.message


def test_pods_belong_to_the_master_and_say_what_they_are(harness):
    launch(harness, FIRST)
    (pod,) = harness.pods()
    assert pod["metadata"]["name"] == f"elastic-{harness.job.name}-worker-0"
    assert pod["metadata"]["labels"] == {
        "app": "elastic",
        "elastic-job-name": harness.job.name,
        "elastic-submission": harness.job.submission_uid,
        "elastic-replica-type": "worker",
        "elastic-replica-index": "0",
        "elastic-launch": "1",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "owner",
            "uid": harness.owner.uid,
            "controller": True,
        }
    ]


def test_a_deleted_pod_has_been_killed_and_is_replaced_under_its_name(harness):
    first = harness.identity(launch(harness, FIRST))
    harness.remove_pod(f"elastic-{harness.job.name}-worker-0")
    ended = until_ended(harness.runner, FIRST)
    assert (ended.exit_reason, ended.message) == (ExitReason.KILLED, "deleted")
    second = launch(harness, AGAIN)
    assert harness.identity(second) != first
    assert until_ended(harness.runner, FIRST) == ended


def test_a_replacement_costs_two_requests(harness, tmp_path):
    pace = CountingPace()
    harness.runner.close()
    harness.runner = harness.start_runner(Cluster(find_access(KUBECONFIG), pace))
    harness.arrange(FIRST, "exit 1")
    harness.runner.launch(FIRST)
    ended = until_ended(harness.runner, FIRST)
    assert ended.exit_code == 1
    requests = pace.requests
    harness.arrange(AGAIN, "run")
    harness.runner.launch(AGAIN)
    until_phase(harness.runner, AGAIN, ReplicaPhase.RUNNING)
    assert pace.requests - requests == 2


def test_what_a_replaced_worker_wrote_last_is_kept(harness, cluster):
    harness.arrange(FIRST, "fail")
    harness.runner.launch(FIRST)
    until_ended(harness.runner, FIRST)
    launch(harness, AGAIN)
    harness.runner.publish_status(JobStatus(job_name="job", phase=JobPhase.FAILED))
    name = names.status_name(harness.job.name)
    words = last_words_of(cluster.get(CONFIGMAPS.path(harness.namespace, name)))
    assert words["worker-0"].startswith("ready\nTraceback (most recent call last):")
    assert words["worker-0"].endswith("ValueError: bad record")


def test_what_cannot_be_pulled_is_pending_and_says_why(harness):
    harness.job = replace(harness.job, image="127.0.0.1:1/no/such:image")
    harness.runner.close()
    harness.runner = harness.start_runner()
    harness.arrange(FIRST, "run")
    harness.runner.launch(FIRST)
    observed = until(harness.runner, lambda o: "ImagePull" in o[FIRST].message)
    assert observed[FIRST].phase is ReplicaPhase.PENDING
    harness.runner.delete(FIRST, grace_s=0.0)
    assert until_ended(harness.runner, FIRST).exit_reason is ExitReason.KILLED


def test_a_refused_pod_is_pending_and_comes_when_it_may(harness, cluster, namespace):
    path = core("resourcequotas").path(namespace)
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    cluster.create(path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    try:
        eventually(lambda: "hard" in cluster.get(f"{path}/none").get("status", {}))
        harness.arrange(FIRST, "run")
        harness.runner.launch(FIRST)
        (refused,) = harness.runner.observe()
        assert refused.phase is ReplicaPhase.PENDING
        assert "exceeded quota: none" in refused.message
    finally:
        cluster.delete(f"{path}/none")
    until_phase(harness.runner, FIRST, ReplicaPhase.RUNNING)


def test_a_strangers_pod_of_that_name_is_left_alone(harness, cluster, namespace):
    name = f"elastic-{harness.job.name}-worker-0"
    stranger = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": IMAGE, "command": ["sleep", "1000"]}]},
    }
    path = PODS.path(namespace)
    uid = cluster.create(path, stranger)["metadata"]["uid"]
    harness.arrange(FIRST, "run")
    harness.runner.launch(FIRST)
    (waiting,) = harness.runner.observe()
    assert "not of this job" in waiting.message
    assert cluster.get(f"{path}/{name}")["metadata"]["uid"] == uid
    cluster.delete(f"{path}/{name}", grace_s=0)
    until_phase(harness.runner, FIRST, ReplicaPhase.RUNNING)


class TestARestartedMaster:
    def test_finds_its_workers_running(self, harness):
        first = harness.identity(launch(harness, FIRST))
        harness.runner.close()
        harness.runner = harness.start_runner()
        (found,) = harness.runner.observe()
        assert (found.id, found.phase) == (FIRST, ReplicaPhase.RUNNING)
        harness.runner.launch(FIRST)
        assert harness.identity(found) == first

    def test_is_told_of_a_pod_that_vanished_meanwhile(self, harness):
        launch(harness, FIRST)
        harness.runner.close()
        harness.remove_pod(f"elastic-{harness.job.name}-worker-0")
        harness.runner = harness.start_runner()
        (gone,) = harness.runner.observe()
        assert (gone.id, gone.exit_reason) == (FIRST, ExitReason.KILLED)
        assert "while the master was away" in gone.message

    def test_finds_pods_without_a_book_and_goes_on_counting(self, harness, tmp_path):
        launch(harness, FIRST)
        harness.runner.close()
        (tmp_path / "launches.json").unlink()
        harness.runner = harness.start_runner()
        assert [r.id for r in harness.runner.observe()] == [FIRST]

    def test_remembers_how_launches_ended(self, harness):
        harness.arrange(FIRST, "exit 1")
        harness.runner.launch(FIRST)
        until_ended(harness.runner, FIRST)
        second = launch(harness, AGAIN)
        harness.runner.close()
        harness.runner = harness.start_runner()
        observed = {r.id: r for r in harness.runner.observe()}
        assert observed[FIRST].exit_code == 1
        assert observed[AGAIN] == second


class TestTheApiServerAway:
    @pytest.fixture
    def proxy(self, harness):
        proxy = ApiProxy(open_cluster().server)
        harness.runner.close()
        harness.runner = harness.start_runner(cluster_through(proxy, KUBECONFIG))
        yield proxy
        proxy.close()

    def test_says_so_and_notices_afterwards_what_was_lost(self, harness, proxy):
        launch(harness, FIRST)
        launch(harness, SECOND)
        proxy.shut()
        eventually(lambda: is_away(harness.runner))
        harness.remove_pod(f"elastic-{harness.job.name}-worker-0")
        with pytest.raises(PlatformError, match=r"does not answer|broke"):
            harness.runner.observe()
        proxy.reopen()
        eventually(lambda: not is_away(harness.runner))
        assert until_ended(harness.runner, FIRST).exit_reason is ExitReason.KILLED
        until_phase(harness.runner, SECOND, ReplicaPhase.RUNNING)

    def test_a_launch_asked_for_meanwhile_is_made_afterwards(self, harness, proxy):
        proxy.shut()
        harness.arrange(FIRST, "run")
        harness.runner.launch(FIRST)
        eventually(lambda: is_away(harness.runner))
        proxy.reopen()
        eventually(lambda: not is_away(harness.runner))
        until_phase(harness.runner, FIRST, ReplicaPhase.RUNNING)


def is_away(runner):
    try:
        runner.observe()
    except PlatformError:
        return True
    return False


class WritesNoted(Cluster):
    """Notes the objects that are written by it."""

    def __init__(self, access):
        super().__init__(access)
        self.written = []

    def create(self, path, manifest, dry_run=False):
        self.written.append(f"{path}/{manifest['metadata']['name']}")
        return super().create(path, manifest, dry_run)

    def patch(self, path, change):
        self.written.append(path)
        return super().patch(path, change)


class TestStatus:
    def test_is_written_seldom_but_its_end_at_once(self, harness, cluster):
        path = CONFIGMAPS.path(harness.namespace, names.status_name(harness.job.name))
        noting = WritesNoted(find_access(KUBECONFIG))
        harness.runner.close()
        harness.runner = harness.start_runner(noting)
        began_s = time.monotonic()
        for number in range(20):
            harness.runner.publish_status(
                JobStatus(job_name="job", phase=JobPhase.RUNNING, message=str(number))
            )
        harness.runner.publish_status(JobStatus(job_name="job", phase=JobPhase.SUCCEEDED))
        assert json.loads(cluster.get(path)["data"]["status.json"])["phase"] == "Succeeded"
        # A running one at the most, and the last; the first of them is tried as a patch, and
        # created then. Where the API server took its time, one more for each interval of that.
        intervals = (time.monotonic() - began_s) // STATUS_INTERVAL_S
        assert 2 <= noting.written.count(path) <= 3 + intervals

    def test_outlives_the_master(self, harness):
        final = JobStatus(job_name="job", phase=JobPhase.FAILED, message="why")
        harness.runner.publish_status(final)
        harness.runner.close()
        harness.runner = harness.start_runner()
        assert harness.runner.last_status() == final
