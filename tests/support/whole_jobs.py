"""Whole jobs in a real cluster: built, trained, watched, broken on purpose and counted."""

import base64
import contextlib
import os
import shutil
import socket
import ssl
import tempfile
import time
from pathlib import Path

import docker
import psutil

from elastic.checkpoints.cuts import read_cut
from elastic.errors import ElasticError
from elastic.platforms.images import ImageRequest, build_and_push
from elastic.platforms.kubernetes.api.cluster import RefusedError, connect
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, SECRETS
from elastic.platforms.kubernetes.job import installing
from elastic.platforms.kubernetes.job.installing import apply
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects import names
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase
from support.cluster import KUBECONFIG, make_namespace, remove_namespace
from support.datasets import MODEL_ZOO, prepared_dir

BASE_IMAGE = os.environ.get("ELASTIC_TEST_BASE_IMAGE", "elastic-base:ci")
"""Has both frameworks, so that a test installs nothing."""

FAULTY_ZOO = Path(__file__).with_name("zoo_faults")
CONTROL = "/control"
POLL_S = 0.1
PATIENCE_S = 300.0


class Workshop:
    """A namespace with the rights of a master, an image of the counting models, and a folder that
    pods and test share."""

    def __init__(self, num_records, name="whole", requirements=()):
        """Make all of it.

        Args:
            num_records: Of the data.
            name: Begins that of the namespace.
            requirements: Packages that pip installs into the image.
        """
        self.num_records = num_records
        self._requirements = requirements
        self.cluster = connect(KUBECONFIG)
        self.namespace = make_namespace(self.cluster, name)
        list(apply(self.cluster, installing.master_access(self.namespace, "elastic-master")))
        self.shared = Path(tempfile.mkdtemp(prefix="elastic-control-"))
        # Pods run as another user than the test.
        self.shared.chmod(0o777)
        self.platform = KubernetesPlatform(self.cluster, self.namespace)
        self.image = self._build()

    def close(self):
        remove_namespace(self.cluster, self.namespace)
        shutil.rmtree(self.shared, ignore_errors=True)

    def spec(self, name, **changes):
        """A counting job, small enough for several workers on one node."""
        values = {
            "job_name": name,
            "model_zoo": "/model_zoo",
            "model_def": "faulty.CustomModel",
            "model_params": {"num_records": self.num_records, "delay_ms": 20},
            "training_data_dir": "/model_zoo/train.npz",
            "minibatch_size": 8,
            "records_per_task": 40,
            "hang_timeout": 60,
            "recovery_interval": 1,
            "namespace": self.namespace,
            "image": self.image,
            "image_pull_policy": "Never",
            "master_resource_request": "cpu=0.1,memory=512Mi",
            "master_resource_limit": "cpu=1,memory=1Gi",
            "worker_resource_request": "cpu=0.1,memory=256Mi",
            "worker_resource_limit": "cpu=1,memory=512Mi",
            "volume": f"host_path={self.shared},mount_path={CONTROL}",
            "checkpoint_dir": f"{CONTROL}/checkpoints-{name}",
        }
        return JobSpec(**values | changes)

    def submit(self, name, **changes):
        spec = self.spec(name, **changes)
        self.platform.submit(spec)
        return WholeJob(self, spec)

    def config_maps(self):
        return self.cluster.get(CONFIGMAPS.path(self.namespace))["items"]

    def _build(self):
        with tempfile.TemporaryDirectory() as folder:
            zoo = Path(folder) / "zoo"
            shutil.copytree(MODEL_ZOO / "counting", zoo / "counting")
            shutil.copytree(FAULTY_ZOO, zoo, dirs_exist_ok=True)
            data = prepared_dir("counting", num_records=self.num_records)
            shutil.copy(data / "train.npz", zoo)
            if self._requirements:
                (zoo / "requirements.txt").write_text("\n".join(self._requirements) + "\n")
            request = ImageRequest(model_zoo=zoo, image_base=BASE_IMAGE, pull_policy="Never")
            return build_and_push(request, lambda _: None)


class WholeJob:
    """A submitted job of a workshop."""

    def __init__(self, workshop, spec):
        self.workshop = workshop
        self.spec = spec
        self.name = spec.job_name
        self.cluster = workshop.cluster
        self.platform = workshop.platform

    def status(self):
        return self.platform.status(self.name)

    def until(self, condition, timeout_s=PATIENCE_S):
        """Poll until `condition(status)`; fails with the job's own words."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            status = self.status()
            if condition(status):
                return status
            has_ended = status.phase.is_final or time.monotonic() > deadline_s
            assert not has_ended, f"not reached: {status}\n{self.logs()}"
            time.sleep(POLL_S)

    def succeed(self, timeout_s=PATIENCE_S):
        deadline_s = time.monotonic() + timeout_s
        while not (status := self.status()).phase.is_final:
            assert time.monotonic() < deadline_s, f"still {status}\n{self.logs()}"
            time.sleep(POLL_S)
        assert status.phase is JobPhase.SUCCEEDED, f"{status}\n{self.logs()}"
        return status

    def counts(self):
        """The trained counts, from the job's last checkpoint."""
        path = Path(self.status().checkpoint)
        cut = read_cut(self.workshop.shared / path.relative_to(CONTROL))
        return cut.parameters["counts"].tolist()

    def logs(self):
        with contextlib.suppress(ElasticError):
            lines = self.platform.logs(self.name, [], False, 40)
            return "\n".join(f"{line.replica}: {line.text}" for line in lines)
        return "(no logs)"

    def pod(self, replica):
        path = PODS.path(self.workshop.namespace, f"elastic-{self.name}-{replica}")
        try:
            return self.cluster.get(path)
        except RefusedError as error:
            if error.code != 404:
                raise
            return None

    def pods(self):
        query = {"labelSelector": f"app=elastic,elastic-job-name={self.name}"}
        return self.cluster.get(PODS.path(self.workshop.namespace), query)["items"]

    def leave(self, timeout_s=PATIENCE_S):
        """Wait until none of its pods is at work; fails with the words of those that are."""
        deadline_s = time.monotonic() + timeout_s
        while left := [pod["metadata"]["name"] for pod in self.pods() if is_at_work(pod)]:
            assert time.monotonic() < deadline_s, f"{left} stay:\n{self.logs()}"
            time.sleep(POLL_S)

    def worker_pods(self):
        """Pods of workers whose containers run and that are not being deleted."""
        return [
            pod
            for pod in self.pods()
            if pod["metadata"]["labels"]["elastic-replica-type"] == "worker" and is_at_work(pod)
        ]

    def delete_pod(self, pod, grace_s):
        """Delete this very pod, not another of its name."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.cluster.delete(PODS.path(self.workshop.namespace, name), grace_s, uid)

    def evict(self, pod):
        """Ask for a pod to be evicted, as `kubectl drain` does; it gets its grace."""
        cluster = self.workshop.cluster
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        groups = {group["name"]: group for group in cluster.get("/apis")["groups"]}
        known = {version["version"] for version in groups["policy"]["versions"]}
        eviction = {
            "apiVersion": "policy/v1" if "v1" in known else "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        cluster.create(PODS.path(namespace, name) + "/eviction", eviction)

    def kill_container(self, pod):
        """SIGKILL to the first process of a pod's container, as the node sees it; False if it
        had none."""
        with self._containers(pod) as containers:
            for container in containers:
                try:
                    container.kill("SIGKILL")
                except docker.errors.APIError:
                    return False
            return bool(containers)

    def process_id(self, pod):
        """Of the first process of a pod's container, on its node; None if nothing runs there."""
        with self._containers(pod) as containers:
            return next((container.attrs["State"]["Pid"] for container in containers), None)

    def kill_master(self):
        """SIGKILL to the master itself, and not to the first process of its container.

        Gives when that was, in seconds since the epoch; None where there was no master.
        """
        first = self.process_id(self.pod("master"))
        children = [] if first is None else psutil.Process(first).children(recursive=True)
        masters = [child for child in children if "elastic.master" in child.cmdline()]
        for master in masters:
            master.kill()
        return time.time() if masters else None

    @contextlib.contextmanager
    def _containers(self, pod):
        labels = [
            f"io.kubernetes.pod.uid={pod['metadata']['uid']}",
            "io.kubernetes.container.name=elastic",
        ]
        engine = docker.from_env()
        try:
            yield engine.containers.list(filters={"label": labels}, ignore_removed=True)
        finally:
            engine.close()

    def make_master_greedy(self):
        """Have each master that begins from now on take memory until it is over its limit."""
        (self.workshop.shared / f"eat-master-{self.name}").touch()

    def make_greedy(self, pod_uid):
        """Have the worker in a pod take memory until it is over its limit."""
        (self.workshop.shared / f"eat-{pod_uid}").touch()

    def hurry(self):
        """Let the workers count without their slowness from now on."""
        (self.workshop.shared / f"hurry-{self.name}").touch()


def is_at_work(pod):
    """Whether a pod's container runs, as the API server has it, and nobody has asked it to end."""
    states = [entry.get("state") or {} for entry in pod["status"].get("containerStatuses") or []]
    return "deletionTimestamp" not in pod["metadata"] and any("running" in s for s in states)


def secret_of(job):
    """What authenticates and encrypts the calls of a job, by its keys."""
    path = SECRETS.path(job.workshop.namespace, names.token_name(job.name))
    data = job.cluster.get(path)["data"]
    return {key: base64.b64decode(text).decode() for key, text in data.items()}


def shown_certificate(host, port):
    """What whoever listens there shows to anybody, as PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, port)) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(binary_form=True))
