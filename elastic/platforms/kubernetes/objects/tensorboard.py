"""Where a job's TensorBoard runs in a cluster, and what it is made of: plain values.

A container beside the master's would keep the pod of a job that has ended, and where all
containers of a pod must end, the job with it. So it is a pod of its own where another pod can read
the event files, which is on a volume; and else a second process of the master's container, which
ends with the first. Neither needs a right: the submitter creates the pod, the master starts the
process.
"""

from pathlib import PurePosixPath
from typing import Final

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import MASTER_REPLICA, metadata
from elastic.platforms.kubernetes.objects.podspec import Job, container, pod_spec, resources
from elastic.spec.job import JobSpec
from elastic.spec.settings.cluster_forms import parse_volumes

REPLICA: Final = ReplicaId(names.TENSORBOARD, 0, 1)
REQUEST: Final = "cpu=0.1,memory=256Mi"
LIMIT: Final = "cpu=1,memory=1Gi"
GRACE_S: Final = 2
_VOLUMES: Final = ("user-", names.TMP_VOLUME)
_PROGRAM: Final = ("-P", "-m", "elastic.telemetry.board")


def is_shared(spec: JobSpec) -> bool:
    """Whether another pod can read the event files, since a volume holds them."""
    path = PurePosixPath(spec.tensorboard_log_dir)
    return any(
        path.is_relative_to(volume.mount_path)
        for volume in parse_volumes(spec.volume)
        if not volume.is_for_state
    )


def program(spec: JobSpec) -> list[str]:
    """What Python runs beside the master where nobody else can read the event files."""
    where = ["--logdir", spec.tensorboard_log_dir, "--port", str(names.TENSORBOARD_PORT)]
    return [*_PROGRAM, *where, "--beside-master"]


def objects(job: Job, owner: names.Owner | None) -> list[Manifest]:
    """What a submission creates: nothing where no events are written."""
    if not job.spec.tensorboard_log_dir:
        return []
    if not is_shared(job.spec):
        return [service(job, owner)]
    return [service(job, owner), pod(job, owner, beside_master(job))]


def service(job: Job, owner: names.Owner | None) -> Manifest:
    """The Service that gives the TensorBoard a name, wherever it runs."""
    replica = REPLICA if is_shared(job.spec) else MASTER_REPLICA
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, owner),
        "spec": {
            "type": "ClusterIP",
            "selector": names.replica_labels(job.name, job.submission_uid, replica),
            "ports": [
                {
                    "name": "http",
                    "protocol": "TCP",
                    "port": names.TENSORBOARD_PORT,
                    "targetPort": names.TENSORBOARD_PORT,
                }
            ],
        },
    }


def pod(job: Job, owner: names.Owner | None, affinity: Manifest | None) -> Manifest:
    """The pod; it ends by itself when the job's master has been gone for an hour.

    Args:
        affinity: Where it has to be, for most volumes can be had on one node only.
    """
    master = names.master_address(job.name, job.namespace)
    where = ["--logdir", job.spec.tensorboard_log_dir, "--port", str(names.TENSORBOARD_PORT)]
    main = container(job, REPLICA, ["python", *_PROGRAM, *where, "--master", master])
    del main["envFrom"]
    main["resources"] = resources(REQUEST, LIMIT)
    main["ports"] = [{"name": "http", "containerPort": names.TENSORBOARD_PORT}]
    main["volumeMounts"] = [
        mount if mount["name"] == names.TMP_VOLUME else {**mount, "readOnly": True}
        for mount in main["volumeMounts"]
        if mount["name"].startswith(_VOLUMES)
    ]
    spec = pod_spec(job, main)
    # Neither the job's record nor its secrets are any business of a web server's.
    spec["volumes"] = [v for v in spec["volumes"] if v["name"].startswith(_VOLUMES)]
    spec["restartPolicy"] = "OnFailure"
    spec["automountServiceAccountToken"] = False
    spec["terminationGracePeriodSeconds"] = GRACE_S
    if affinity is not None:
        spec["affinity"] = affinity
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(job, owner), "spec": spec}
    return manifest if job.hook is None else job.hook.edit_pod(manifest)


def beside_master(job: Job) -> Manifest:
    """On the node of a master that runs, or is about to."""
    labels = names.replica_labels(job.name, job.submission_uid, MASTER_REPLICA)
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def on_node(name: str) -> Manifest:
    """On the node where the master was; one that has ended attracts nothing."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _metadata(job: Job, owner: names.Owner | None) -> Manifest:
    references = names.references_of_belonging(job.owner, owner)
    return metadata(job, names.tensorboard_name(job.name), references, REPLICA)
