"""Jobs in a namespace of their own in a real cluster, whose master does what a test says."""

import io
import tarfile
import time
from contextlib import contextmanager
from pathlib import Path

import docker

import elastic
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.cluster import RefusedError, connect
from elastic.platforms.kubernetes.api.resources import PODS
from elastic.platforms.kubernetes.job import installing
from elastic.platforms.kubernetes.job.installing import apply
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import spec_of, submission_of
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from support.cluster import KUBECONFIG, core, eventually, make_namespace, remove_namespace

IMAGE = "elastic-scripted:test"
PROGRAMS = Path(__file__).parents[1] / "platforms" / "kubernetes" / "programs"
FIRST_PROCESS = (
    "platforms/__init__.py",
    "platforms/process.py",
    "platforms/kubernetes/__init__.py",
    "platforms/kubernetes/supervisor.py",
)
"""All that the first process of a master's container is made of."""

TIMEOUT_S = 90.0

_PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
_DOCKERFILE = """\
FROM python:3.11-slim
COPY elastic /scripted/elastic
ENV PYTHONPATH=/scripted PYTHONUNBUFFERED=1
USER 65532
"""


def build_scripted_image():
    """Have the engine of the node hold the image of `programs`."""
    files = {"Dockerfile": _DOCKERFILE, "elastic/__init__.py": ""}
    files |= {f"elastic/{path.name}": path.read_text() for path in PROGRAMS.glob("*.py")}
    package = Path(elastic.__file__).parent
    files |= {f"elastic/{name}": (package / name).read_text() for name in FIRST_PROCESS}
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    context.seek(0)
    client = docker.from_env()
    try:
        client.images.build(fileobj=context, custom_context=True, tag=IMAGE, rm=True)
    finally:
        client.close()


class ClusterJobs:
    """A namespace that is ready for jobs."""

    def __init__(self, name, kubeconfig=KUBECONFIG):
        self.namespace = name
        self.cluster = connect(str(kubeconfig))
        self.platform = KubernetesPlatform(self.cluster, name)

    @classmethod
    def create(cls):
        """In a new namespace."""
        name = make_namespace(connect(KUBECONFIG), "laptop")
        jobs = cls(name)
        list(apply(jobs.cluster, installing.master_access(name, "elastic-master")))
        return jobs

    def end_pods(self):
        """Have no pod here, and wait for none."""
        for pod in self.list("pods"):
            self.remove("pods", pod["metadata"]["name"])

    def delete(self):
        remove_namespace(self.cluster, self.namespace)

    def spec(self, name="job", does="obey", **changes):
        """A job whose scripted master does something, with little to ask of the node."""
        small = "cpu=0.05,memory=32Mi"
        values = {
            "job_name": name,
            "model_zoo": "zoo",
            "model_def": "m.CustomModel",
            "training_data_dir": "/data",
            "minibatch_size": 1,
            "num_workers": "1:4",
            "namespace": self.namespace,
            "image": IMAGE,
            "image_pull_policy": "Never",
            "master_resource_request": "cpu=0.05,memory=64Mi",
            "worker_resource_request": small,
            "envs": {"MASTER_DOES": does},
        }
        for role in ("master", "worker"):
            if f"{role}_resource_request" not in changes:
                # By a twentieth of a core, which is a limit too, Python takes seconds to start.
                values[f"{role}_resource_limit"] = "cpu=1,memory=64Mi"
        return JobSpec(**values | changes)

    def submit(self, name="job", does="obey", **changes):
        self.platform.submit(self.spec(name, does, **changes))
        return self.objects(name)

    def objects(self, name="job"):
        return JobObjects(self.cluster, self.namespace, name)

    def until(self, phase, name="job", reason=None):
        """Wait until the job is in a phase, and perhaps for a reason; gives its status."""
        seen = []

        def look():
            seen[:] = [self.platform.status(name)]
            is_so = seen[0].phase == phase and reason in (None, seen[0].reason)
            return seen[0] if is_so else None

        deadline_s = time.monotonic() + TIMEOUT_S
        while not (status := look()):
            assert time.monotonic() < deadline_s, f"not {phase} {reason or ''}: {seen[0]}"
            time.sleep(0.1)
        return status

    def has_started(self, name):
        master = self.objects(name).find_master()
        return bool(master["status"].get("containerStatuses"))

    def logged(self, name, replica):
        """How many lines a replica has written."""
        return len(list(self.platform.logs(name, [replica], False, None)))

    def start_worker(self, index=0, name="job"):
        """Create a worker's pod as the master would, and wait until it runs."""
        objects = self.objects(name)
        record = objects.record()
        submission = submission_of(record)
        job = Job(spec_of(record), self.namespace, submission.uid, submission.image)
        owner = Owner.of(objects.find_master())
        pod = manifests.replica_pod(job, ReplicaId("worker", index, 1), owner)
        self.cluster.create(PODS.path(self.namespace), pod)
        pod_name = pod["metadata"]["name"]
        eventually(lambda: self.get("pods", pod_name)["status"]["phase"] == "Running")
        return pod_name

    def get(self, kind, name):
        try:
            return self.cluster.get(core(kind).path(self.namespace, name))
        except RefusedError as error:
            if error.code == 404:
                return None
            raise

    def list(self, kind):
        return self.cluster.get(core(kind).path(self.namespace)).get("items") or []

    def remove(self, kind, name, grace_s=0.0):
        self.cluster.delete(core(kind).path(self.namespace, name), grace_s)

    def create_object(self, kind, manifest):
        metadata = {"namespace": self.namespace, **manifest["metadata"]}
        return self.cluster.create(
            core(kind).path(self.namespace), {**manifest, "metadata": metadata}
        )

    def belongings(self):
        """Names of all objects that jobs have here."""
        return sorted(
            f"{kind}/{item['metadata']['name']}"
            for kind in ("configmaps", "secrets", "services", "pods")
            for item in self.list(kind)
            if (item["metadata"].get("labels") or {}).get("app") == "elastic"
        )

    def has_priority_class(self, name):
        return name in self._priority_classes()

    @contextmanager
    def priority_classes(self, wanted):
        """Have these classes in the cluster, and leave those that were there."""
        missing = [m for m in wanted if m["metadata"]["name"] not in self._priority_classes()]
        list(apply(self.cluster, missing))
        try:
            yield
        finally:
            for manifest in missing:
                self.cluster.delete(f"{_PRIORITY_CLASSES}/{manifest['metadata']['name']}")

    def _priority_classes(self):
        found = self.cluster.get(_PRIORITY_CLASSES)["items"]
        return {item["metadata"]["name"] for item in found}
