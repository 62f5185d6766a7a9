"""Jobs of ten pods each, of all kinds in turn, in an API server of this process."""

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import ROOT
from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PERSISTENT_VOLUME_CLAIMS,
    SECRETS,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.objects.names import master_name

# An API server, a kubelet and the controllers of Kubernetes itself are made for the tests.
sys.path += [str(ROOT / "tests")]

NAMESPACE: Final = "team"
NUM_PODS: Final = 10
PODS_A_NODE: Final = 100
KILLED: Final = 137
PATIENCE_S: Final = 900.0
STILL_S: Final = 2.0


class World:
    """An API server with jobs."""

    def __init__(self, api: Any, kubelet: Any, num_jobs: int) -> None:
        self.api = api
        self._kubelet = kubelet
        self._jobs = [_job(number) for number in range(num_jobs)]
        self._writes: list[tuple[float, str]] = []
        self._masters = self._stand_ins()
        api.on_request = self._note

    @property
    def num_writes(self) -> int:
        """Of the controller, but for those of leases and events."""
        return len(self._writes)

    def submit(self) -> None:
        """Have all jobs begin."""
        for resource, manifest in self._jobs:
            self.api.objects.create(_place(resource), manifest)

    def are_running(self) -> bool:
        """Whether each of them has all its pods, and its status says so."""
        self._begin_masters()
        return not self._masters and all(
            _is_running(job) for resource in _RESOURCES for job in self._list(resource)
        )

    def touch(self) -> None:
        """Change each job in a way that means nothing."""
        for resource, manifest in self._jobs:
            place = _place(resource, manifest["metadata"]["name"])
            stamp = str(time.monotonic())
            self.api.objects.merge(place, {"metadata": {"annotations": {"touched": stamp}}})

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Raises: RuntimeError: It never comes about."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline_s:
                raise RuntimeError("the controller never gets there")
            time.sleep(0.1)

    def wait_for_rest(self) -> None:
        """Wait until the controller has written nothing for a while."""
        seen, since_s = -1, 0.0

        def is_still() -> bool:
            nonlocal seen, since_s
            if self.num_writes != seen:
                seen, since_s = self.num_writes, time.monotonic()
            return time.monotonic() - since_s >= STILL_S

        self.wait(is_still)

    def answer_times_s(self, count: int, pause_s: float, rng: random.Random) -> list[float]:
        """Have worker after worker fail, and tell how long each job took to write of it.

        Of a job of our own its master is lost: its workers are that one's business.
        """
        failed = []
        for number in range(count):
            resource, manifest = self._jobs[number % len(self._jobs)]
            name = manifest["metadata"]["name"]
            failed.append((self._lose_one(resource, name, rng), name))
            time.sleep(pause_s)
        self.wait_for_rest()
        return [self._first_write_s(name, at_s) - at_s for at_s, name in failed]

    def objects(self) -> list[Manifest]:
        """All that a controller of these jobs keeps copies of, but for nodes."""
        from support.api_objects import Place

        kept = [*_RESOURCES, *(each for resource in _RESOURCES for each in _MADE_OF[resource])]
        places = {Place(each.group, each.version, each.plural) for each in kept}
        return [item for place in places for item in self.api.objects.list(place)[0]]

    def size_bytes(self) -> int:
        """Of these, as JSON."""
        from support.api_objects import encoded

        return sum(len(encoded(item)) for item in self.objects())

    def _lose_one(self, resource: Resource, job: str, rng: random.Random) -> float:
        """When a pod was lost, by the monotonic clock."""
        if resource is _TRAIN_JOBS:
            self.wait(lambda: self._has_master(job))
            lost_s = time.monotonic()
            self.api.objects.delete(_place(_PODS, master_name(job)), {"gracePeriodSeconds": 0})
            return lost_s
        pod = rng.choice(self._workers(resource, job))
        lost_s = time.monotonic()
        self._kubelet.end(NAMESPACE, pod, KILLED)
        return lost_s

    def _stand_ins(self) -> dict[str, Any]:
        """What the masters of our own jobs do, by the names of those that have not begun."""
        from support.stand_in_master import StandInMaster

        names = [each["metadata"]["name"] for of, each in self._jobs if of is _TRAIN_JOBS]
        return {name: StandInMaster(self.api.objects, NAMESPACE, name) for name in names}

    def _begin_masters(self) -> None:
        for name in [each for each in self._masters if self._has_master(each)]:
            self._masters.pop(name).begin(NUM_PODS - 1)

    def _has_master(self, job: str) -> bool:
        from support.api_objects import RefusalError

        try:
            pod = self.api.objects.get(_place(_PODS, master_name(job)))
        except RefusalError:
            return False
        return bool(pod["status"]["phase"] == "Running")

    def _list(self, resource: Resource) -> list[Manifest]:
        items: list[Manifest] = self.api.objects.list(_place(resource))[0]
        return items

    def _workers(self, resource: Resource, job: str) -> list[str]:
        from support.api_objects import Place

        mark = "trainer" if resource is training_job.RESOURCE else "worker"
        pods = self.api.objects.list(Place("", "v1", "pods", NAMESPACE))[0]
        return [
            pod["metadata"]["name"]
            for pod in pods
            if pod["metadata"]["name"].startswith(f"{job}-{mark}-")
            and pod["status"]["phase"] == "Running"
        ]

    def _note(self, asked: Any) -> None:
        is_write = asked.verb in ("create", "update", "patch", "delete")
        if asked.user and is_write and asked.place.plural not in ("leases", "events"):
            self._writes.append((asked.time_s, asked.place.name))

    def _first_write_s(self, name: str, since_s: float) -> float:
        return next(at_s for at_s, of in self._writes if of == name and at_s >= since_s)


@contextmanager
def world(num_jobs: int) -> Iterator[World]:
    """An API server with nodes for so many jobs, of which none has begun."""
    from support.api_server_in_memory import InMemoryApi
    from support.handover import add_nodes
    from support.kubelet_in_memory import Kubelet
    from support.workloads_in_memory import Workloads

    names = [f"node-{number}" for number in range(1 + num_jobs * NUM_PODS // PODS_A_NODE)]
    with InMemoryApi() as api:
        api.serve(*_RESOURCES, SECRETS)
        add_nodes(api, names)
        kubelet, workloads = Kubelet(api, nodes=names).start(), Workloads(api).start()
        try:
            yield World(api, kubelet, num_jobs)
        finally:
            workloads.close()
            kubelet.close()


def kubeconfig(api: Any, folder: Path) -> Path:
    """A file by which a controller finds the server."""
    path: Path = api.kubeconfig(folder / "kubeconfig.yaml", "controller")
    return path


_TRAIN_JOBS: Final = elastic_train_job.RESOURCE
_RESOURCES: Final = (elastic_job.RESOURCE, tf_job.RESOURCE, training_job.RESOURCE, _TRAIN_JOBS)
_PODS: Final = Resource("", "v1", "pods", "Pod")
_SERVICES: Final = Resource("", "v1", "services", "Service")
_MADE_OF: Final = {
    elastic_job.RESOURCE: (_PODS, _SERVICES),
    tf_job.RESOURCE: (_PODS, _SERVICES),
    training_job.RESOURCE: (
        _PODS,
        Resource("apps", "v1", "replicasets", "ReplicaSet"),
        Resource("batch", "v1", "jobs", "Job"),
    ),
    _TRAIN_JOBS: (_PODS, _SERVICES, CONFIGMAPS, PERSISTENT_VOLUME_CLAIMS),
}


def _place(resource: Resource, name: str = "") -> Any:
    from support.api_objects import Place

    return Place(resource.group, resource.version, resource.plural, NAMESPACE, name)


def _job(number: int) -> tuple[Resource, Manifest]:
    resource = _RESOURCES[number % len(_RESOURCES)]
    spec = _SPECS[resource]
    name = f"{resource.kind.lower()}-{number}"
    manifest = {"apiVersion": resource.api_version, "kind": resource.kind}
    return resource, manifest | {"metadata": {"name": name}, "spec": spec}


def _template(container: str) -> Manifest:
    resources = {"limits": {"cpu": "500m", "memory": "1Gi"}}
    return {"spec": {"containers": [{"name": container, "image": "a:1", "resources": resources}]}}


def _role(count: int, container: str) -> Manifest:
    return {"replicas": count, "restartPolicy": "ExitCode", "template": _template(container)}


_ROLE: Final = {"resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
_SPECS: Final = {
    elastic_job.RESOURCE: {
        "rdzvEndpoint": "etcd-service:2379",
        "minReplicas": 5,
        "maxReplicas": NUM_PODS,
        "replicaSpecs": {"Worker": _role(NUM_PODS, "worker")},
    },
    tf_job.RESOURCE: {
        "min-instances": 1,
        "tfReplicaSpecs": {
            "PS": _role(2, "tensorflow"),
            "Worker": _role(NUM_PODS - 2, "tensorflow"),
        },
    },
    training_job.RESOURCE: {
        "fault_tolerant": True,
        "master": _ROLE,
        "pserver": {"min-instance": 3, **_ROLE},
        "trainer": {"min-instance": NUM_PODS - 4, **_ROLE},
    },
    _TRAIN_JOBS: {
        "image": "a:1",
        "job": {
            "model_def": "digits.digits_torch.CustomModel",
            "training_data_dir": "/data/digits",
            "minibatch_size": 32,
            "num_workers": NUM_PODS - 1,
        },
        "state": {"claimName": "state"},
    },
}


def _is_running(job: Manifest) -> bool:
    status = job.get("status") or {}
    match job["kind"]:
        case "ElasticJob":
            return bool(status.get("replicas") == NUM_PODS and status["phase"] == "Running")
        case "TFJob":
            counts = status.get("replicaStatuses", {}).values()
            return sum(each.get("active", 0) for each in counts) == NUM_PODS
        case "ElasticTrainJob":
            return bool(status.get("phase") == "Running")
    counts = status.get("replica_statuses", ())
    return sum(each.get("active", 0) for each in counts) == NUM_PODS
