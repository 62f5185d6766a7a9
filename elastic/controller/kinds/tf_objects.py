"""What is made for a replica of a TFJob: its pod, or SharePod, and its service. Pure."""

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from elastic.controller.kinds.placing import Seat
from elastic.controller.kinds.pods import pod_restart_policy, replica_labels, replica_name
from elastic.controller.reconciling import Create, Note
from elastic.controller.resources.pod_parts import CARD_ID
from elastic.controller.resources.tf_job import (
    CONTAINER,
    DEFAULT_PORT,
    PORT_NAME,
    SHARE_PODS,
    Role,
    TFJobSpec,
)
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest

GROUP: Final = "kubeflow.org"

TF_CONFIG: Final = "TF_CONFIG"


def service_of(job: str, spec: TFJobSpec, role: Role, index: int) -> Create:
    """The name of one replica; it leads to it before it is ready, since all wait for each other."""
    name, labels = _identity(job, role, index)
    port = {"name": PORT_NAME, "port": port_of(spec.roles[role].template)}
    manifest = {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [port],
        },
    }
    return Create(SERVICES, manifest, Note("SuccessfulCreateService", f"Created service: {name}"))


def pod_of(job: str, namespace: str, spec: TFJobSpec, role: Role, index: int, seat: Seat) -> Create:
    """One replica at its place.

    Args:
        job: Its name.
        namespace: Of the job.
        spec: Of the job; it has the role.
        role: What the replica is.
        index: Among those of the role.
        seat: The node, and the card of which the replica has a part.
    """
    name, labels = _identity(job, role, index)
    replicas = spec.roles[role]
    template: Manifest = copy.deepcopy(replicas.template)
    metadata = template.get("metadata") or {}
    annotations = dict(metadata.get("annotations") or {})
    pod_spec = template["spec"]
    config = tf_config(job, namespace, spec, role, index)
    for container in pod_spec["containers"]:
        _configure(container, config)
    for container in (*pod_spec["containers"], *(pod_spec.get("initContainers") or ())):
        _request_limits(container)
    pod_spec["restartPolicy"] = pod_restart_policy(replicas.restart_policy)
    pod_spec["nodeName"] = seat.node
    resource, note = PODS, Note("SuccessfulCreatePod", f"Created pod: {name}")
    if seat.card is not None:
        annotations[CARD_ID] = seat.card
        resource, note = SHARE_PODS, Note("SuccessfulCreateSharePod", f"Created SharePod: {name}")
    manifest: dict[str, Any] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": {**(metadata.get("labels") or {}), **labels}},
        "spec": pod_spec,
    }
    if annotations:
        manifest["metadata"]["annotations"] = annotations
    return Create(resource, manifest, note)


def tf_config(job: str, namespace: str, spec: TFJobSpec, role: Role, index: int) -> str:
    """What TensorFlow is told of its cluster, and who it is there.

    All workers that may come are listed, since the environment of a running pod cannot change. An
    evaluator knows the cluster and is no part of it.
    """
    cluster = {
        each.task_type: [
            f"{replica_name(job, each.task_type, i)}.{namespace}.svc:{port_of(replicas.template)}"
            for i in range(spec.worker_range[2] if each is Role.WORKER else replicas.replicas)
        ]
        for each, replicas in spec.roles.items()
        if each is not Role.EVALUATOR
    }
    config = {
        "cluster": dict(sorted(cluster.items())),
        "task": {"type": role.task_type, "index": index},
        "environment": "cloud",
    }
    return json.dumps(config, separators=(",", ":"))


def port_of(template: Manifest) -> int:
    """Where the replicas of a template answer each other."""
    for container in template["spec"]["containers"]:
        for port in container.get("ports") or ():
            if container["name"] == CONTAINER and port.get("name") == PORT_NAME:
                number: int = port["containerPort"]
                return number
    return DEFAULT_PORT


def _identity(job: str, role: Role, index: int) -> tuple[str, dict[str, str]]:
    task_type = role.task_type
    return replica_name(job, task_type, index), replica_labels(job, GROUP, task_type, index)


def _configure(container: Manifest, config: str) -> None:
    others = [each for each in container.get("env") or () if each["name"] != TF_CONFIG]
    container["env"] = [*others, {"name": TF_CONFIG, "value": config}]


def _request_limits(container: Manifest) -> None:
    """Request what is limited and not requested: an API server does so with pods alone."""
    resources: Mapping[str, Any] = container.get("resources") or {}
    if limits := resources.get("limits"):
        requests = {**limits, **(resources.get("requests") or {})}
        container["resources"] = {**resources, "requests": requests}
