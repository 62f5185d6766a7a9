"""Whole jobs in a real cluster: built, pushed, trained, broken on purpose and counted."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import docker
import psutil

from elastic.errors import ElasticError, PlatformError
from elastic.master.cuts import read_cut
from elastic.platforms.images import ImageRequest, build_and_push
from elastic.platforms.kubernetes import access
from elastic.platforms.kubernetes.connection import RefusedError, connect
from elastic.platforms.kubernetes.installing import apply
from elastic.platforms.kubernetes.names import collection_path, object_path
from elastic.platforms.kubernetes.platform import KubernetesPlatform
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

    def __init__(self, num_records, name="whole"):
        self.num_records = num_records
        self.cluster = connect(KUBECONFIG)
        self.namespace = make_namespace(self.cluster, name)
        list(apply(self.cluster, access.master_access(self.namespace, "elastic-master")))
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

    def _build(self):
        with tempfile.TemporaryDirectory() as folder:
            zoo = Path(folder) / "zoo"
            shutil.copytree(MODEL_ZOO / "counting", zoo / "counting")
            shutil.copy(FAULTY_ZOO / "faulty.py", zoo)
            data = prepared_dir("counting", num_records=self.num_records)
            shutil.copy(data / "train.npz", zoo)
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
        path = object_path("pods", self.workshop.namespace, f"elastic-{self.name}-{replica}")
        try:
            return self.cluster.get(path)
        except RefusedError as error:
            if error.code != 404:
                raise
            return None

    def pods(self):
        query = {"labelSelector": f"app=elastic,elastic-job-name={self.name}"}
        return self.cluster.get(collection_path("pods", self.workshop.namespace), query)["items"]

    def running_workers(self):
        """Indices of workers whose pods run and are not being deleted."""
        return [
            int(pod["metadata"]["labels"]["elastic-replica-index"])
            for pod in self.pods()
            if pod["metadata"]["labels"]["elastic-replica-type"] == "worker"
            and pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def delete_pod(self, replica, grace_s):
        path = object_path("pods", self.workshop.namespace, f"elastic-{self.name}-{replica}")
        self.cluster.delete(path, grace_s)

    def kill_container(self, replica):
        """SIGKILL to the first process of a replica's container, as the node sees it."""
        pod = self.pod(replica)
        labels = [
            f"io.kubernetes.pod.uid={pod['metadata']['uid']}",
            "io.kubernetes.container.name=elastic",
        ]
        engine = docker.from_env()
        try:
            containers = engine.containers.list(filters={"label": labels})
            for container in containers:
                with contextlib.suppress(docker.errors.APIError):
                    container.kill("SIGKILL")
            return bool(containers)
        finally:
            engine.close()

    def make_greedy(self, replica):
        """Have a worker take memory until it is over its limit."""
        (self.workshop.shared / f"eat-{replica}").touch()

    def hurry(self):
        """Let the workers count without their slowness from now on."""
        (self.workshop.shared / "hurry").touch()

    @contextlib.contextmanager
    def cut_from_api_server(self):
        """Break the master's connections to the API server, and refuse new ones meanwhile."""
        address = self.pod("master")["status"]["podIP"]
        rule = ["-s", address, "-p", "tcp", "-m", "multiport", "--dports", "443,6443"]
        rule += ["-j", "REJECT", "--reject-with", "tcp-reset"]
        chains = ("INPUT", "FORWARD")
        for chain in chains:
            subprocess.run(["iptables", "-I", chain, *rule], check=True)
        try:
            yield
        finally:
            for chain in chains:
                subprocess.run(["iptables", "-D", chain, *rule], check=True)


@contextlib.contextmanager
def stopped_api_server():
    """The API server neither answers nor refuses, as on a machine that hangs."""
    [server] = [p for p in psutil.process_iter(["name"]) if p.info["name"] == "kube-apiserver"]
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)


class PodHistory:
    """Which launches of workers had a pod, as far as a look every tenth of a second tells."""

    def __init__(self, job):
        self._job = job
        self.uids = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join()

    def _watch(self):
        while not self._stopping.wait(POLL_S):
            # Some of the faults keep the API server from answering.
            with contextlib.suppress(PlatformError):
                for pod in self._job.pods():
                    labels = pod["metadata"]["labels"]
                    if labels["elastic-replica-type"] == "worker":
                        key = (int(labels["elastic-replica-index"]), int(labels["elastic-launch"]))
                        self.uids[key] = pod["metadata"]["uid"]


def break_at_random(job, seed, num_faults):
    """Break a running job at random moments, seeded; returns what was done to it, in words."""
    rng = random.Random(seed)
    done = []
    kinds = ["delete-now", "delete-gently", "kill", "kill-master", "memory", "cut"]
    while len(done) < num_faults:
        time.sleep(rng.uniform(0.5, 4.0))
        status = job.status()
        assert not status.phase.is_final, f"over after {done}: {status}"
        kind = "api-server" if len(done) == num_faults // 2 else rng.choice(kinds)
        if _break(job, kind, rng):
            done.append(kind)
    return done


def _break(job, kind, rng):
    if kind == "api-server":
        with stopped_api_server():
            time.sleep(60)
        return True
    if kind == "cut":
        with job.cut_from_api_server():
            time.sleep(rng.uniform(0.5, 5.0))
        return True
    if kind == "kill-master":
        return job.kill_container("master")
    workers = job.running_workers()
    if not workers:
        return False
    replica = f"worker-{rng.choice(workers)}"
    if kind == "memory":
        job.make_greedy(replica)
        return True
    if kind == "kill":
        return job.kill_container(replica)
    with contextlib.suppress(RefusedError):
        job.delete_pod(replica, 0 if kind == "delete-now" else 30)
        return True
    return False
