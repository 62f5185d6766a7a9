"""The programs of two masters of one job, each in what it finds in a pod of its own."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.api_server_in_memory import NAMESPACE, InMemoryApi
from support.owned_job import MASTER, OwnedJob

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import LEASES, PODS
from elastic.platforms.kubernetes.objects import manifests

TESTS = Path(__file__).parents[3]

# All as in a pod, but for where its files and its API server are.
PROGRAM = """
import sys, threading
from functools import partial
from pathlib import Path
from kubernetes.client.configuration import Configuration
from elastic.platforms.base import NO_FENCE
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.transport import Access
from elastic.platforms.kubernetes.master import environment
from elastic.platforms.kubernetes.objects import names

url, folder = sys.argv[1], Path(sys.argv[2])
configuration = Configuration()
configuration.host = url
access = Access(configuration, "team", "a test")
environment.pod_access = lambda: access
environment.connect_from_pod = partial(Cluster, access, None)
environment.PodSurroundings = partial(environment.PodSurroundings, folder, folder)
names.STATE_PATH = folder / "state"
given = environment.open_environment()
given.fence.check()
print(given.run_id, given.fence is not NO_FENCE, given.taken_launches.least, flush=True)
threading.Event().wait(300)
"""


class Pod:
    """The master's pod, and its program."""

    def __init__(self, job, folder):
        self.owner = job.make_master()
        self._state = folder / self.owner.uid
        (self._state / "state").mkdir(parents=True)
        record = job.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/elastic-j")
        for key, text in {**record["data"], "token": "t"}.items():
            (self._state / key).write_text(text)
        fields = {
            "ELASTIC_NAMESPACE": NAMESPACE,
            "ELASTIC_POD_NAME": MASTER,
            "ELASTIC_POD_UID": self.owner.uid,
            "PYTHONPATH": str(TESTS),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, job.api.url, str(self._state)],
            env={**os.environ, **fields},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = None
        self.has_begun = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        self.said = self.process.stdout.readline().split()
        self.has_begun.set()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def job():
    with InMemoryApi() as api:
        yield OwnedJob(api)


@pytest.fixture
def make(job, tmp_path):
    pods = []

    def make():
        pods.append(Pod(job, tmp_path))
        return pods[-1]

    yield make
    for pod in pods:
        pod.close()


def holder(job):
    lease = job.cluster.get(LEASES.path(NAMESPACE, MASTER))
    return lease["spec"].get("holderIdentity")


def test_the_next_master_begins_as_soon_as_the_last_one_leaves_and_finds_its_workers(job, make):
    first = make()
    assert first.has_begun.wait(60.0)
    assert first.said == [job.owner.submission_uid, "True", "0"]
    assert holder(job) == first.owner.uid
    worker = manifests.replica_pod(job.job, ReplicaId("worker", 0, 1), first.owner)
    job.cluster.create(PODS.path(NAMESPACE), worker)

    job.cluster.delete(PODS.path(NAMESPACE, MASTER), grace_s=60.0)
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(30.0) == 128 + signal.SIGTERM
    assert holder(job) is None
    assert job.pods() == {"elastic-j-worker-0": 1}, "and its own pod is gone"

    second = make()
    assert second.has_begun.wait(10.0), "it does not wait for the end of the lease"
    assert second.said == [job.owner.submission_uid, "True", "1"]
    assert holder(job) == second.owner.uid


def test_one_that_the_api_server_has_forgotten_ends_when_it_hears_of_the_next(job, make):
    """Its container lives on, as on a node that was cut off."""
    first = make()
    assert first.has_begun.wait(60.0)
    job.lose_master()
    second = make()
    assert not second.has_begun.wait(5.0), "the first one still holds the lease"
    # As time alone would do it, had the first one been cut off.
    path = LEASES.path(NAMESPACE, MASTER)
    job.cluster.patch(path, {"spec": {"holderIdentity": None}})
    assert second.has_begun.wait(10.0)
    assert first.process.wait(10.0) == 3
    assert holder(job) == second.owner.uid
