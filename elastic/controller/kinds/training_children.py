"""What a TrainingJob is made of: ReplicaSets of master and parameter servers, a Job of trainers.

Its pods are told how large the job is by their environment (TRAINERS, PSERVERS,
PADDLE_INIT_NUM_GRADIENT_SERVERS), and that of a running pod cannot change. So these are always the
minimum, as of when the ReplicaSet or Job was made, and its template is never changed again: every
pod of the job then reads the same numbers, whenever it was started. Programs that need them are
those without fault tolerance, whose size changes only where somebody edits the minimum; such an
edit reaches no environment. The others find who is there by the labels of the pods.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from elastic.controller.resources.common import MAX_INT32
from elastic.controller.resources.training_job import (
    MasterSpec,
    PserverSpec,
    Role,
    RoleResources,
    TrainerSpec,
    TrainingJobSpec,
)
from elastic.platforms.kubernetes.api.resources import BATCH_JOBS, REPLICA_SETS, Manifest, Resource
from elastic.spec.values.quantities import NANO, nanos_of

LABELS: Final = {
    Role.MASTER: "paddle-job-master",
    Role.PSERVER: "paddle-job-pserver",
    Role.TRAINER: "paddle-job",
}
"""What the pods of each role are found by, by the job's name. The start scripts of the images count
pods by them: no pod has the label of another role."""

MADE_FROM: Final = "elastic.dev/made-from"
"""Annotation: a digest of what was read of the spec, apart from sizes."""

RESOURCES: Final = {
    Role.MASTER: REPLICA_SETS,
    Role.PSERVER: REPLICA_SETS,
    Role.TRAINER: BATCH_JOBS,
}

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "alpha.kubernetes.io/nvidia-gpu")
_VOLUME: Final = "job"
"""The volume at `mountPath` of a job that names none."""


def name_of(job: str, role: Role) -> str:
    """Of the ReplicaSet or Job."""
    return f"{job}-{role}"


def size_path(role: Role) -> str:
    """The field of a child's spec that says how many pods there are to be."""
    return "parallelism" if role is Role.TRAINER else "replicas"


def child_of(job: str, role: Role, spec: TrainingJobSpec, size: int) -> Manifest:
    """The ReplicaSet or Job of a role.

    Args:
        job: The job's name.
        role: One that the job has.
        spec: The job's.
        size: How many pods there are to be.
    """
    labels = {LABELS[role]: job}
    resource: Resource = RESOURCES[role]
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(job, role, spec)}
    rest = _job_rest() if role is Role.TRAINER else {"selector": {"matchLabels": labels}}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name_of(job, role),
            "labels": labels,
            "annotations": {MADE_FROM: digest(spec)},
        },
        "spec": {size_path(role): size, **rest, "template": template},
    }


def _job_rest() -> Manifest:
    """No `completions`: they could not be changed with the size, and without them Kubernetes holds
    `parallelism` pods until the first has succeeded, and then lets the others come to their end.

    It replaces failed ones until `backoffLimit`, which also counts those that a shrinking job
    loses. Whether the job has failed is seen by the pods.
    """
    return {"backoffLimit": MAX_INT32}


def digest(spec: TrainingJobSpec) -> str:
    """Differs where two specs differ in more than sizes."""
    sizes = {"min_instance", "max_instance"}
    text = spec.model_dump_json(by_alias=True, exclude={"trainer": sizes, "pserver": sizes})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _pod_spec(job: str, role: Role, spec: TrainingJobSpec) -> Manifest:
    volumes, mounts = _volumes(spec)
    container = {
        "name": role.value,
        "image": spec.image,
        "command": _command(role, spec),
        **_some("ports", _ports(role, spec)),
        "env": _environment(job, spec),
        **_some("resources", _written(_role_spec(role, spec).resources)),
        **_some("volumeMounts", mounts),
    }
    return {
        "containers": [container],
        # A trainer that was restarted in place would be taken for one that never failed.
        "restartPolicy": "Never" if role is Role.TRAINER else "Always",
        **_some("volumes", volumes),
        **_some("nodeSelector", dict(spec.node_selector)),
        **_some("tolerations", list(spec.tolerations)),
        **_some("imagePullSecrets", [{"name": each.name} for each in spec.image_pull_secrets]),
        **(_HOST_NETWORK if spec.host_network else {}),
    }


_HOST_NETWORK: Final = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
"""By the node's own DNS the services of the cluster are not found."""


def _some(key: str, value: Any) -> Manifest:
    return {key: value} if value else {}


def _role_spec(role: Role, spec: TrainingJobSpec) -> MasterSpec | PserverSpec | TrainerSpec:
    match role:
        case Role.MASTER:
            return spec.master or MasterSpec()
        case Role.PSERVER:
            return spec.pserver
    return spec.trainer


def _written(resources: RoleResources) -> Manifest:
    return {
        **_some("limits", dict(resources.limits)),
        **_some("requests", dict(resources.requests)),
    }


def _command(role: Role, spec: TrainingJobSpec) -> list[str]:
    own = _role_spec(role, spec).command
    if own is not None:
        return list(own)
    match role:
        case Role.MASTER:
            return ["paddle_k8s", "start_master"]
        case Role.PSERVER:
            start = "start_new_pserver" if spec.fault_tolerant else "start_pserver"
            return ["paddle_k8s", start]
    if spec.fault_tolerant:
        return ["paddle_k8s", "start_new_trainer"]
    # The script of the images asks for the version of the program's interface: v1 was a topology
    # file, which no job of this kind can name.
    return ["paddle_k8s", "start_trainer", "v2"]


def _ports(role: Role, spec: TrainingJobSpec) -> list[Manifest]:
    """On the network of the node a port is taken from the node, so that two pods which name the
    same one cannot share it: there only the parameter servers do, who listen.
    """
    if spec.host_network and role is not Role.PSERVER:
        return []
    ports = range(spec.port, spec.port + spec.num_ports)
    return [{"name": f"jobport-{port}", "containerPort": port} for port in ports]


def _volumes(spec: TrainingJobSpec) -> tuple[list[Manifest], list[Manifest]]:
    """The volumes of each pod, and where its container has them."""
    volumes: list[Manifest] = [dict(each) for each in spec.volumes]
    mounts: list[Manifest] = [dict(each) for each in spec.volume_mounts]
    path = spec.mount_path
    # A mount that was written for this very path says more than we can.
    if path is None or any(mount["mountPath"] == path for mount in mounts):
        return volumes, mounts
    volumes = volumes or [{"name": _VOLUME, "emptyDir": {}}]
    return volumes, [{"name": volumes[0]["name"], "mountPath": path}, *mounts]


def _environment(job: str, spec: TrainingJobSpec) -> list[Manifest]:
    trainers, gpus = spec.trainer.min_instance, _gpus(spec.trainer.resources)
    values = {
        "PADDLE_JOB_NAME": job,
        "TRAINERS": trainers,
        "PSERVERS": spec.pserver.min_instance,
        "ENTRY": spec.trainer.entrypoint,
        # What images from before the name ENTRY read.
        "TOPOLOGY": spec.trainer.entrypoint,
        "TRAINER_PACKAGE": spec.trainer.workspace,
        "PADDLE_INIT_PORT": spec.port,
        "PADDLE_INIT_PORTS_NUM": spec.ports_num,
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": spec.ports_num_for_sparse,
        # Of one trainer's process: as many threads as it has GPUs, or else cores.
        "PADDLE_INIT_TRAINER_COUNT": gpus or _cores(spec.trainer.resources),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": trainers,
        "PADDLE_INIT_NUM_PASSES": spec.num_passes,
        "PADDLE_INIT_USE_GPU": int(gpus > 0),
    }
    return [
        *({"name": name, "value": str(value)} for name, value in values.items()),
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]


def _gpus(resources: RoleResources) -> int:
    # The limits alone give devices.
    return sum(_whole(resources.limits, name) for name in _GPUS)


def _cores(resources: RoleResources) -> int:
    return max(1, _whole(resources.requests or resources.limits, "cpu"))


def _whole(amounts: Mapping[str, int | float | str], name: str) -> int:
    return nanos_of(amounts.get(name, 0)) // NANO
