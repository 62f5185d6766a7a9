"""A real cluster for tests: $ELASTIC_TEST_KUBECONFIG names it; each module has its namespace.

Import `namespace` and what else a module needs into its conftest or into itself, and mark the
module with `pytestmark = needs_cluster`; or with `needs_whole_cluster`, where it breaks or fills
what all share (a node, the API server): others run beside each other, it runs by itself.
"""

import os
import secrets
import time

import docker
import pytest

from elastic.platforms.base import JobControl, ReplicaId
from elastic.platforms.kubernetes.api.cluster import RefusedError, connect
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, SERVICE_ACCOUNTS, Resource
from elastic.platforms.kubernetes.master.runner import KubernetesReplicaRunner
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.manifests import Submission, dump_control
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec

KUBECONFIG = os.environ.get("ELASTIC_TEST_KUBECONFIG", "")
IMAGE = "python:3.11-slim"
TIMEOUT_S = 60.0

needs_cluster = [
    pytest.mark.cluster,
    pytest.mark.skipif(not KUBECONFIG, reason="ELASTIC_TEST_KUBECONFIG names no cluster"),
    # Python's ssl leaves the socket of a handshake that its server resets to the garbage collector,
    # and these tests kill API servers and cut connections.
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
]

# Kubernetes 1.20, built with Go 1.18 or newer as Debian does, ends with the first custom resource
# that it is to store, and every test beside it. Its version does not tell: whoever has another one
# says so.
needs_custom_resources = [
    *needs_cluster,
    pytest.mark.skipif(
        not os.environ.get("ELASTIC_TEST_CUSTOM_RESOURCES"),
        reason="ELASTIC_TEST_CUSTOM_RESOURCES does not say that the API server can store them",
    ),
]

needs_whole_cluster = [*needs_cluster, pytest.mark.alone]


def core(plural):
    """A type of object of the core group, by its name in paths."""
    return Resource("", "v1", plural, "")


PROGRAM = """
import ctypes, os, signal, sys, time
behaviour = sys.argv[1]
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    # The first process of a container ends at no signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
# Where a traceback goes too: an engine may mix the two streams in any order.
print("ready", file=sys.stderr, flush=True)
match behaviour.split():
    case ["run"] | ["stubborn"]:
        while True:
            time.sleep(60)
    case ["fail"]:
        raise ValueError("bad record")
    case ["crash"]:
        ctypes.string_at(0)
    case ["greedy"]:
        hoard = bytearray(1 << 30)
    case ["exit", code]:
        sys.exit(int(code))
    case ["succeed"]:
        with open("/dev/termination-log", "w") as file:
            file.write('{"reason": "Completed", "message": ""}')
    case ["say", reason]:
        with open("/dev/termination-log", "w") as file:
            file.write('{"reason": "%s", "message": "said so"}' % reason)
        sys.exit(1)
"""


def open_cluster():
    return connect(KUBECONFIG)


def eventually(probe, timeout_s=TIMEOUT_S):
    """Wait until the probe gives something true, and return it."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := probe()):
        assert time.monotonic() < deadline_s, "never came about"
        time.sleep(0.1)
    return found


def make_namespace(cluster, prefix):
    """A new namespace in which pods can be started."""
    name = f"{prefix}-{secrets.token_hex(3)}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    cluster.create("/api/v1/namespaces", manifest)
    # Pods are refused until a controller has made this one.
    path = SERVICE_ACCOUNTS.path(name, "default")
    eventually(lambda: exists(cluster, path))
    return name


def exists(cluster, path):
    try:
        return cluster.get(path)
    except RefusedError as error:
        if error.code != 404:
            raise
        return None


def remove_namespace(cluster, name):
    """Remove a namespace; its pods at once, so that nothing of it keeps a core busy."""
    cluster_pods = PODS.path(name)
    for pod in cluster.get(cluster_pods)["items"]:
        cluster.delete(f"{cluster_pods}/{pod['metadata']['name']}", grace_s=0)
    cluster.delete(f"/api/v1/namespaces/{name}")


def make_owner(cluster, namespace, name="owner"):
    """A pod that stands in for a master: what it owns stays as long as it does."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {
                    "name": "elastic",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-c", "import time; time.sleep(100000)"],
                }
            ],
            "terminationGracePeriodSeconds": 0,
        },
    }
    return Owner.of(cluster.create(PODS.path(namespace), manifest))


class PodHarness:
    """A runner whose workers run `PROGRAM` in real pods; the test stands in for the master."""

    def __init__(self, cluster, namespace, owner, state_path, **settings):
        self.cluster = cluster
        self.namespace = namespace
        self.state_path = state_path
        self.behaviours = {}
        spec = JobSpec(
            job_name=f"job-{secrets.token_hex(3)}",
            model_zoo="/model_zoo",
            model_def="a.B",
            training_data_dir="data",
            minibatch_size=1,
            num_workers="1:4",
            worker_resource_request="cpu=0.01,memory=32Mi",
            worker_resource_limit="cpu=1,memory=128Mi",
            image_pull_policy="IfNotPresent",
            **settings,
        )
        self.job = Job(spec, namespace, secrets.token_hex(8), IMAGE)
        self.owner = owner
        self._create("configmaps", manifests.record(self.job, Submission("uid", 1.0, IMAGE)))
        self._create("secrets", manifests.token_secret(self.job, "token"))
        self.runner = self.start_runner()

    def start_runner(self, cluster=None):
        """A further life of the master, on the same state."""
        runner = KubernetesReplicaRunner(
            cluster or self.cluster, self.job, self.owner, self.state_path, self._make_pod
        )
        runner.start()
        return runner

    def restart(self):
        self.runner.close()
        self.runner = self.start_runner()

    def close(self):
        self.runner.close()
        for pod in self.pods():
            self.remove_pod(pod["metadata"]["name"])

    # -- Harness

    def arrange(self, replica, behaviour):
        self.behaviours[replica] = behaviour

    def settle(self, replica):
        path = f"{self.pod_path(replica)}/log"
        eventually(lambda: b"ready" in list(self.cluster.lines(path, {})))

    def kill(self, replica):
        labels = [
            f"io.kubernetes.pod.uid={self._uid(replica)}",
            "io.kubernetes.container.name=elastic",
        ]
        engine = docker.from_env()
        try:
            (container,) = engine.containers.list(filters={"label": labels})
            container.kill("SIGKILL")
        finally:
            engine.close()

    def ask(self, num_workers=None, cancelled=False):
        path = CONFIGMAPS.path(self.namespace, names.record_name(self.job.name))
        control = dump_control(JobControl(num_workers, cancelled))
        self.cluster.patch(path, {"data": {names.CONTROL_KEY: control}})

    def identity(self, replica):
        return self._uid(replica.id)

    def published_address(self):
        (container,) = manifests.replica_pod(self.job, ReplicaId("worker", 0, 1), None)["spec"][
            "containers"
        ]
        return {entry["name"]: entry.get("value") for entry in container["env"]}[
            names.ADDRESS_VARIABLE
        ]

    def expected_address(self, published):
        return f"elastic-{self.job.name}-master.{self.namespace}.svc:50001"

    # -- what only tests of this platform ask for

    def pods(self):
        query = {"labelSelector": names.job_selector(self.job.name)}
        return self.cluster.get(PODS.path(self.namespace), query)["items"]

    def pod_path(self, replica):
        name = names.replica_pod_name(self.job.name, replica.role, replica.index)
        return PODS.path(self.namespace, name)

    def remove_pod(self, name, grace_s=0):
        self.cluster.delete(PODS.path(self.namespace, name), grace_s=grace_s)

    def _uid(self, replica):
        pod = self.cluster.get(self.pod_path(replica))
        assert pod["metadata"]["labels"][names.LAUNCH_LABEL] == str(replica.launch)
        return pod["metadata"]["uid"]

    def _create(self, kind, manifest):
        self.cluster.create(core(kind).path(self.namespace), manifest)

    def _make_pod(self, job, replica, owner):
        pod = manifests.replica_pod(job, replica, owner)
        behaviour = self.behaviours[replica]
        (container,) = pod["spec"]["containers"]
        container["command"] = (
            ["/no/such/program"]
            if behaviour == "unstartable"
            else ["python", "-c", PROGRAM, behaviour]
        )
        return pod


@pytest.fixture(scope="module")
def cluster():
    return open_cluster()


@pytest.fixture(scope="module")
def namespace(cluster):
    name = make_namespace(cluster, "runner")
    yield name
    remove_namespace(cluster, name)


@pytest.fixture(scope="module")
def owner(cluster, namespace):
    return make_owner(cluster, namespace)


@pytest.fixture
def harness(cluster, namespace, owner, tmp_path):
    harness = PodHarness(cluster, namespace, owner, tmp_path)
    yield harness
    harness.close()
