"""A master that is asked to end takes its workers along only where its pod is to go."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from support.fake_api import Answer, FakeApi, refusal

TESTS = Path(__file__).parents[3]
MASTER_PATH = "/api/v1/namespaces/team/pods/elastic-mnist-master"
WORKERS_PATH = "/api/v1/namespaces/team/pods"

# A real process, since it ends by a signal; and the real runner, which has seen its pods.
PROGRAM = """
import sys, threading
from kubernetes.client.configuration import Configuration
from elastic.platforms.registry import Departure
from elastic.platforms.kubernetes.master import environment
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.transport import Access
from elastic.platforms.kubernetes.api.cluster import Lease
from elastic.platforms.kubernetes.master.environment import LeaseFence
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.spec.job import JobSpec
from pathlib import Path

url, state, master_path, keeps_s, is_owned = sys.argv[1:]

def keep():
    Path(state, "kept").touch()
    departure.be_ready()

environment.LEAVE_PATIENCE_S = 2.0
configuration = Configuration()
configuration.host = url
cluster = Cluster(Access(configuration, "team", "a test"))
spec = JobSpec(job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d",
               minibatch_size=1)
own = Owner("elastic-mnist-master", "master-uid")
runner = KubernetesReplicaRunner(cluster, Job(spec, "team", "s", "image"), own, Path(state))
runner.start()
departure = Departure()
if keeps_s:
    departure.prepare(lambda: threading.Timer(float(keeps_s), keep).start())
fence = None
if is_owned:
    lease = Lease(cluster, "team", "elastic-mnist-master", own.uid)
    fence = LeaseFence(lease, sys.exit, lambda: True)
    fence.acquire()
environment.leave_on_sigterm(cluster, runner, master_path, own, departure, fence)
print("ready", flush=True)
threading.Event().wait(60)
"""


def worker(index, owner="master-uid"):
    labels = {
        "app": "elastic", "elastic-job-name": "mnist", "elastic-submission": "s",
        "elastic-replica-type": "worker", "elastic-replica-index": str(index),
        "elastic-launch": "1",
    }  # fmt: skip
    name = f"elastic-mnist-worker-{index}"
    metadata = {"name": name, "uid": f"uid-{index}", "labels": labels}
    metadata["ownerReferences"] = [{"uid": owner}]
    return {"metadata": metadata, "spec": {}, "status": {"phase": "Pending"}}


class Server:
    """An API server with two pods of the job and one of somebody else."""

    def __init__(self, is_deleted, is_silent=False, grace_s=None):
        self.grace_s = grace_s
        self.is_deleted = is_deleted
        self.is_silent = is_silent
        self.is_gone = False
        self.is_over = threading.Event()
        self.holders = []

    def __call__(self, seen):
        if "watch=true" in seen.path:
            self.is_over.wait()
            return Answer(cut=True)
        if seen.path == MASTER_PATH and seen.method == "GET":
            metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if self.is_deleted else {}
            if self.grace_s is not None:
                metadata["deletionGracePeriodSeconds"] = self.grace_s
            if self.is_gone:
                return refusal(404, "not found", "NotFound")
            return Answer(body={"metadata": metadata}, silent=self.is_silent)
        if "/leases/" in seen.path:
            if seen.method == "PATCH":
                self.holders.append(seen.body["spec"].get("holderIdentity", "as before"))
            spec = {"holderIdentity": "master-uid", "leaseTransitions": 1}
            return Answer(body={"metadata": {"resourceVersion": "1"}, "spec": spec})
        if seen.method == "GET":
            is_pods = seen.path.startswith(WORKERS_PATH)
            pods = [worker(0), worker(1), worker(2, owner="stranger")]
            return Answer(body={"metadata": {"resourceVersion": "1"}, "items": pods * is_pods})
        return Answer()


def end(server, tmp_path, keeps_s="", is_owned=""):
    """Send a running master SIGTERM; gives its exit code and what it deleted, in order."""
    with FakeApi(answer=server) as api:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, api.url, str(tmp_path), MASTER_PATH, keeps_s, is_owned],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            with process.stdout as output:
                assert output.readline() == "ready\n"
                process.send_signal(signal.SIGTERM)
                code = process.wait(30.0)
        finally:
            process.kill()
            process.wait()
            server.is_over.set()
        deletions = [seen for seen in api.requests if seen.method == "DELETE"]
    return code, [
        (Path(d.path).name, d.body["gracePeriodSeconds"], d.body["preconditions"])
        for d in deletions
    ]


def test_a_master_whose_pod_is_deleted_removes_its_workers_and_itself(tmp_path):
    code, deleted = end(Server(is_deleted=True), tmp_path)
    assert code == 128 + signal.SIGTERM
    assert deleted == [
        ("elastic-mnist-worker-0", 0, {"uid": "uid-0"}),
        ("elastic-mnist-worker-1", 0, {"uid": "uid-1"}),
        ("elastic-mnist-master", 0, {"uid": "master-uid"}),
    ]


def test_a_master_whose_container_alone_is_stopped_leaves_its_workers_at_work(tmp_path):
    assert end(Server(is_deleted=False), tmp_path) == (128 + signal.SIGTERM, [])


def test_a_master_whom_nobody_answers_ends_all_the_same(tmp_path):
    assert end(Server(is_deleted=True, is_silent=True), tmp_path) == (128 + signal.SIGTERM, [])


def test_a_master_keeps_its_newest_version_before_it_ends_anything(tmp_path):
    code, deleted = end(Server(is_deleted=True, grace_s=60), tmp_path, keeps_s="0.3")
    assert code == 128 + signal.SIGTERM
    assert (tmp_path / "kept").exists()
    assert deleted[-1] == ("elastic-mnist-master", 0, {"uid": "master-uid"})
    assert len(deleted) == 3


def test_a_master_that_takes_too_long_to_keep_it_ends_in_its_grace(tmp_path):
    began_s = time.monotonic()
    code, deleted = end(Server(is_deleted=True, grace_s=5), tmp_path, keeps_s="60")
    assert time.monotonic() - began_s < 30.0
    assert code == 128 + signal.SIGTERM
    assert not (tmp_path / "kept").exists()
    assert len(deleted) == 3


def test_a_master_that_is_made_again_leaves_its_workers_to_the_next_which_may_begin(tmp_path):
    server = Server(is_deleted=True, grace_s=60)
    code, deleted = end(server, tmp_path, keeps_s="0.3", is_owned="yes")
    assert code == 128 + signal.SIGTERM
    assert (tmp_path / "kept").exists()
    assert server.holders == ["as before", None]
    assert deleted == [("elastic-mnist-master", 0, {"uid": "master-uid"})]


def test_so_does_one_whose_pod_was_removed_by_force(tmp_path):
    server = Server(is_deleted=False)
    server.is_gone = True
    end(server, tmp_path, keeps_s="0.3", is_owned="yes")
    assert (tmp_path / "kept").exists()
    assert server.holders == ["as before", None]
