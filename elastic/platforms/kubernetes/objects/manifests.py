"""The objects of a job, as plain dicts: pure functions of the job's specification."""

from collections.abc import Mapping
from dataclasses import dataclass

from elastic.platforms.base import JobControl, ReplicaId
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.hooks import Hook
from elastic.platforms.kubernetes.objects.podspec import (
    KEEPING_GRACE_S,
    LOST_NODE_S,
    MASTER_GRACE_S,
    WORKER_GRACE_S,
    Job,
    container,
    keeps_versions,
    pod_spec,
    scrape_annotations,
    state_volumes,
)
from elastic.platforms.kubernetes.objects.record import (
    Submission,
    dump_control,
    dump_last_words,
    dump_submission,
)
from elastic.spec.job import JobSpec
from elastic.spec.roles import MASTER, ROLES, WORKER
from elastic.spec.settings.cluster_forms import state_volume, worker_priority
from elastic.spec.status import JobStatus

MASTER_REPLICA = ReplicaId(MASTER, 0, 1)


@dataclass(frozen=True, slots=True)
class Owner:
    """The master's pod, with which the objects that it owns are removed."""

    name: str
    uid: str

    @classmethod
    def of(cls, pod: Manifest) -> "Owner":
        """The owner that a stored pod is."""
        return cls(pod["metadata"]["name"], pod["metadata"]["uid"])

    def reference(self) -> Manifest:
        """The entry for `metadata.ownerReferences`.

        Without `blockOwnerDeletion`, which only a deletion in the foreground heeds: where admission
        checks owner references, as in OpenShift, it takes a right to `pods/finalizers`.
        """
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
        }


def spec_for_pods(spec: JobSpec, hook: Hook | None) -> JobSpec:
    """The specification as it holds inside the pods: with their paths, not the laptop's."""
    cluster_spec = "" if hook is None else str(names.JOB_PATH / hook.key)
    return spec.model_copy(update={"model_zoo": names.MODEL_ZOO_PATH, "cluster_spec": cluster_spec})


def record(job: Job, submission: Submission, control: JobControl | None = None) -> Manifest:
    """The ConfigMap of what the job was submitted with, and of what users ask of it."""
    data = {
        names.SPEC_KEY: job.spec.model_dump_json(),
        names.SUBMISSION_KEY: dump_submission(submission),
        names.CONTROL_KEY: dump_control(control or JobControl()),
    }
    if state_volume(job.spec.volume) is not None:
        data[names.STATE_KEY] = job.state_of
    if job.hook is not None:
        data[job.hook.key] = job.hook.text
    return _config_map(job, names.record_name(job.name), data)


def status(job: Job, published: JobStatus, last_words: Mapping[str, str] | None = None) -> Manifest:
    """The ConfigMap of the published status; without `last_words` those there stay."""
    data = {names.STATUS_KEY: published.model_dump_json()}
    if last_words is not None:
        data[names.LAST_WORDS_KEY] = dump_last_words(last_words)
    return _config_map(job, names.status_name(job.name), data)


def token_secret(job: Job, token: str, owner: Owner | None = None) -> Manifest:
    """The Secret that authenticates every call within the job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, names.token_name(job.name), owner),
        "type": "Opaque",
        "stringData": {names.TOKEN_KEY: token},
    }


def service(job: Job, owner: Owner | None = None) -> Manifest:
    """The Service that gives the master a name which every life of it keeps."""
    labels = names.replica_labels(job.name, job.submission_uid, MASTER_REPLICA)
    metadata = _metadata(job, names.master_name(job.name), owner)
    metadata["labels"] = labels
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": labels,
            "ports": [
                {
                    "name": "grpc",
                    "protocol": "TCP",
                    "port": names.MASTER_PORT,
                    "targetPort": job.spec.master_port or names.MASTER_PORT,
                }
            ],
            # Workers may call as soon as the master listens; it has no readiness of its own.
            "publishNotReadyAddresses": True,
        },
    }
    return manifest if job.hook is None else job.hook.edit_service(manifest)


def master_pod(job: Job) -> Manifest:
    """The master's pod, whose container restarts in place, and the master within it."""
    role = ROLES[MASTER]
    command = [
        *("python", "-P", "-m", "elastic.platforms.kubernetes.supervisor"),
        *(str(names.STATE_PATH), str(names.TERMINATION_PATH)),
        *("python", "-P", "-m", role.module, "--kubernetes"),
    ]
    spec = pod_spec(job, container(job, MASTER_REPLICA, command))
    spec["volumes"] += state_volumes(job)
    spec["restartPolicy"] = "OnFailure"
    spec["serviceAccountName"] = job.spec.service_account
    spec["automountServiceAccountToken"] = True
    spec["terminationGracePeriodSeconds"] = (
        KEEPING_GRACE_S if keeps_versions(job.spec) else MASTER_GRACE_S
    )
    if priority := getattr(job.spec, role.priority):
        spec["priorityClassName"] = priority
    return _pod(job, names.master_name(job.name), MASTER_REPLICA, spec, None)


def replica_pod(job: Job, replica: ReplicaId, owner: Owner | None) -> Manifest:
    """The pod of one launch that the master makes; without an owner only for a dry run."""
    role = ROLES[replica.role]
    command = [
        *("python", "-P", "-m", role.module, "--kubernetes"),
        *("--index", str(replica.index), "--launch", str(replica.launch)),
    ]
    spec = pod_spec(job, container(job, replica, command))
    # What restarts in place cannot be told from what went on; the master replaces pods instead.
    spec["restartPolicy"] = "Never"
    spec["automountServiceAccountToken"] = False
    spec["terminationGracePeriodSeconds"] = WORKER_GRACE_S
    spec["tolerations"] += [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": LOST_NODE_S,
        }
        for state in ("not-ready", "unreachable")
    ]
    classes, num_replicas = getattr(job.spec, role.priority), role.limits(job.spec).maximum
    if priority := worker_priority(classes, replica.index, num_replicas):
        spec["priorityClassName"] = priority
    name = names.replica_pod_name(job.name, replica.role, replica.index)
    return _pod(job, name, replica, spec, owner)


def example_pod(job: Job, role: str = WORKER) -> Manifest:
    """The pod of the first replica of a role, to ask the API server whether it would take it."""
    return replica_pod(job, ReplicaId(role, 0, 1), None)


def _pod(job: Job, name: str, replica: ReplicaId, spec: Manifest, owner: Owner | None) -> Manifest:
    metadata = _metadata(job, name, owner)
    metadata["labels"] = names.replica_labels(job.name, job.submission_uid, replica)
    annotations = scrape_annotations(job.spec)
    if annotations:
        metadata["annotations"] = annotations
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return pod if job.hook is None else job.hook.edit_pod(pod)


def _config_map(job: Job, name: str, data: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job, name, None),
        "data": data,
    }


def _metadata(job: Job, name: str, owner: Owner | None) -> Manifest:
    metadata: Manifest = {
        "name": name,
        "namespace": job.namespace,
        "labels": names.job_labels(job.name, job.submission_uid),
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner.reference()]
    return metadata
