"""The objects of a job as plain dicts, made of its specification, and what its ConfigMaps hold.

Pure functions: values become objects, and what was written into an object is read from it. Those of
its TensorBoard stand last.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import JobControl, ReplicaId
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.names import QueueSystem
from elastic.platforms.kubernetes.objects.podspec import (
    KEEPING_GRACE_S,
    MASTER_GRACE_S,
    WORKER_GRACE_S,
    Hook,
    Job,
    bearing_with_lost_node,
    container,
    keeps_versions,
    pod_name,
    pod_spec,
    queue_labels,
    queued,
    resources,
    scrape_annotations,
    state_volumes,
)
from elastic.spec.job import JobSpec
from elastic.spec.roles import MASTER, ROLES, WORKER
from elastic.spec.settings.cluster import parse_volumes, state_volume, worker_priority
from elastic.spec.status import JobStatus, StoredStatus
from elastic.spec.values import Certificate

T = TypeVar("T")

_CONTROL: Final = TypeAdapter(JobControl)
_SPEC: Final = TypeAdapter(JobSpec)
_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(StoredStatus)
_LAST_WORDS: Final = TypeAdapter(dict[str, str])

MASTER_REPLICA = ReplicaId(MASTER, 0, 1)


class StatusUnreadableError(PlatformError):
    """What is stored as a job's status is none that this version can read."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission of a job.

    Attributes:
        uid: Random; tells the objects of this submission from those of earlier ones.
        image: What the pods run.
        owner: The resource that the job was made from; None for one that a user has submitted.
        queue_system: See `Job`.
    """

    uid: str
    submitted_s: float
    image: str
    owner: names.ResourceOwner | None = None
    queue_system: QueueSystem | None = None


_SUBMISSION: Final = TypeAdapter(Submission)


def dump_submission(submission: Submission) -> str:
    """The text that `read_submission` reads."""
    return _SUBMISSION.dump_json(submission).decode()


def dump_control(control: JobControl) -> str:
    """The text that `control_of` reads."""
    return _CONTROL.dump_json(control).decode()


def dump_last_words(last_words: Mapping[str, str]) -> str:
    """The text that `last_words_of` reads."""
    return _LAST_WORDS.dump_json(dict(last_words)).decode()


def read_submission(text: str, where: str) -> Submission:
    """Read a submission.

    Raises:
        PlatformError: It is none; `where` is named.
    """
    return _read(text, _SUBMISSION, where)


def read_spec(text: str, where: str) -> JobSpec:
    """Read a specification.

    Raises:
        PlatformError: It is none; `where` is named.
    """
    return _read(text, _SPEC, where)


def submission_of(record: Manifest) -> Submission:
    """The submission in a job's record.

    Raises:
        PlatformError: It is missing or damaged.
    """
    return read_submission(*_text(record, names.SUBMISSION_KEY))


def spec_of(record: Manifest) -> JobSpec:
    """The specification in a job's record.

    Raises:
        PlatformError: It is missing or damaged.
    """
    return read_spec(*_text(record, names.SPEC_KEY))


def control_of(record: Manifest) -> JobControl:
    """What users asked of a job.

    Raises:
        PlatformError: It is missing or damaged.
    """
    text, where = _text(record, names.CONTROL_KEY)
    return _read(text, _CONTROL, where)


def status_of(config_map: Manifest) -> JobStatus | None:
    """The published status; None where the ConfigMap holds none yet.

    Raises:
        StatusUnreadableError: It is damaged.
    """
    if names.STATUS_KEY not in (config_map.get("data") or {}):
        return None
    text, where = _text(config_map, names.STATUS_KEY)
    try:
        return _STATUS.validate_json(text)
    except ValidationError as error:
        raise StatusUnreadableError(
            f"{where} is damaged or of a newer version: {_first_problem(error)}: look with that "
            "version, or submit the job again with --overwrite"
        ) from error


def last_words_of(config_map: Manifest) -> dict[str, str]:
    """By replica, such as `worker-0`, what its launch before the present one wrote last.

    Raises:
        PlatformError: They are damaged.
    """
    if names.LAST_WORDS_KEY not in (config_map.get("data") or {}):
        return {}
    text, where = _text(config_map, names.LAST_WORDS_KEY)
    return _read(text, _LAST_WORDS, where)


def _text(config_map: Manifest, key: str) -> tuple[str, str]:
    metadata: Mapping[str, Any] = config_map.get("metadata") or {}
    where = f"{key} of ConfigMap {metadata.get('namespace')}/{metadata.get('name')}"
    text = (config_map.get("data") or {}).get(key)
    if text is None:
        raise PlatformError(f"{where} is missing: this is not the record of a job")
    return str(text), where


def _read(text: str, adapter: TypeAdapter[T], where: str) -> T:
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise PlatformError(
            f"{where} is damaged or of another version: {_first_problem(error)}: submit the job "
            "again"
        ) from error


def _first_problem(error: ValidationError) -> str:
    return str(error.errors()[0]["msg"])


def spec_for_pods(spec: JobSpec, hook: Hook | None) -> JobSpec:
    """The specification as it holds inside the pods: with their paths, not the laptop's."""
    cluster_spec = "" if hook is None else str(names.JOB_PATH / hook.key)
    update = {
        "model_zoo": names.MODEL_ZOO_PATH,
        "cluster_spec": cluster_spec,
        "tls": spec.is_encrypted,
    }
    return spec.model_copy(update=update)


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
    manifest = _config_map(job, names.record_name(job.name), data)
    manifest["metadata"]["labels"] |= queue_labels(job)
    return manifest


def status(job: Job, published: JobStatus, last_words: Mapping[str, str] | None = None) -> Manifest:
    """The ConfigMap of the published status; without `last_words` those there stay."""
    data = {names.STATUS_KEY: published.model_dump_json()}
    if last_words is not None:
        data[names.LAST_WORDS_KEY] = dump_last_words(last_words)
    return _config_map(job, names.status_name(job.name), data)


def empty_status(job: Job) -> Manifest:
    """The ConfigMap of the published status, before anything is published."""
    return _config_map(job, names.status_name(job.name), {})


def state_claim(job: Job, name: str, template: Manifest) -> Manifest:
    """The PersistentVolumeClaim of a job's state, made from a claim template.

    Args:
        job: The job.
        name: Of the claim.
        template: Its `spec`, and labels and annotations in its `metadata`.
    """
    given = template.get("metadata") or {}
    made = metadata(job, name, names.references_of_belonging(job.owner, None))
    made["labels"] = (given.get("labels") or {}) | made["labels"]
    if annotations := given.get("annotations"):
        made["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": made,
        "spec": template["spec"],
    }


def token_secret(
    job: Job, token: str, owner: names.Owner | None = None, certificate: Certificate | None = None
) -> Manifest:
    """The Secret that authenticates, and with a certificate encrypts, every call within the job."""
    data = {names.TOKEN_KEY: token}
    if certificate is not None:
        data |= {names.CHAIN_KEY: certificate.chain, names.KEY_KEY: certificate.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(
            job, names.token_name(job.name), names.references_of_belonging(job.owner, owner)
        ),
        "type": "Opaque",
        "stringData": data,
    }


def calls_port(job: Job) -> int:
    """Where the master listens for calls by sockets: next to where it does for those by gRPC."""
    port = job.spec.master_port or names.MASTER_PORT
    beside = (port + 1, port - 1, port - 2)
    return next(p for p in beside if p < 1 << 16 and p != job.spec.served_metrics_port)


def service(job: Job, owner: names.Owner | None = None) -> Manifest:
    """The Service that gives the master a name which every life of it keeps."""
    references = names.references_of_belonging(job.owner, owner)
    port = job.spec.master_port or names.MASTER_PORT
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, names.master_name(job.name), references, MASTER_REPLICA),
        "spec": {
            "type": "ClusterIP",
            "selector": names.replica_labels(job.name, job.submission_uid, MASTER_REPLICA),
            "ports": [
                {
                    # By which a mesh takes what comes for messages, or for TLS to pass on as it is.
                    "name": "tls" if job.spec.tls else "grpc",
                    "protocol": "TCP",
                    "port": names.MASTER_PORT,
                    "targetPort": port,
                },
                {
                    "name": "tls-calls" if job.spec.tls else "tcp-calls",
                    "protocol": "TCP",
                    "port": names.CALLS_PORT,
                    "targetPort": calls_port(job),
                },
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
    if job.owner is not None:
        # Somebody makes it again elsewhere.
        spec["tolerations"] += bearing_with_lost_node()
    references = names.references_of_belonging(job.owner, None)
    return _pod(job, names.master_name(job.name), MASTER_REPLICA, spec, references)


def replica_pod(job: Job, replica: ReplicaId, owner: names.Owner | None) -> Manifest:
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
    spec["tolerations"] += bearing_with_lost_node()
    classes, num_replicas = getattr(job.spec, role.priority), role.limits(job.spec).maximum
    if priority := worker_priority(classes, replica.index, num_replicas):
        spec["priorityClassName"] = priority
    name = pod_name(job, replica)
    return _pod(job, name, replica, spec, names.references_of_replica(job.owner, owner))


def example_pod(job: Job, role: str = WORKER) -> Manifest:
    """The pod of the first replica of a role, to ask the API server whether it would take it."""
    return replica_pod(job, ReplicaId(role, 0, 1), None)


def _pod(
    job: Job, name: str, replica: ReplicaId, spec: Manifest, references: list[Manifest]
) -> Manifest:
    made = metadata(job, name, references, replica)
    annotations = scrape_annotations(job.spec)
    if annotations:
        made["annotations"] = annotations
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": spec}
    return queued(job, replica, pod if job.hook is None else job.hook.edit_pod(pod))


def _config_map(job: Job, name: str, data: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, name, names.references_of_belonging(job.owner, None)),
        "data": data,
    }


def metadata(
    job: Job, name: str, references: list[Manifest], replica: ReplicaId | None = None
) -> Manifest:
    """The metadata of an object of a job.

    Args:
        job: The job.
        name: Of the object.
        references: To whom it belongs, see `names`.
        replica: That it is, or stands before; None where it is of the job as a whole.
    """
    labels = job.labels
    if replica is not None:
        labels |= names.replica_labels(job.name, job.submission_uid, replica)
    made: Manifest = {"name": name, "namespace": job.namespace, "labels": labels}
    if references:
        made["ownerReferences"] = references
    return made


# Where a job's TensorBoard runs in a cluster, and what it is made of: plain values.
#
# A container beside the master's would keep the pod of a job that has ended, and where all
# containers of a pod must end, the job with it. So it is a pod of its own where another pod can
# read the event files, which is on a volume; and else a second process of the master's container,
# which ends with the first. Neither needs a right: the submitter creates the pod, the master starts
# the process.


BOARD_REPLICA: Final = ReplicaId(names.TENSORBOARD, 0, 1)
BOARD_REQUEST: Final = "cpu=0.1,memory=256Mi"
BOARD_LIMIT: Final = "cpu=1,memory=1Gi"
BOARD_GRACE_S: Final = 2
_VOLUMES: Final = ("user-", names.TMP_VOLUME)
_PROGRAM: Final = ("-P", "-m", "elastic.telemetry.board")


def are_events_shared(spec: JobSpec) -> bool:
    """Whether another pod can read the event files, since a volume holds them."""
    path = PurePosixPath(spec.tensorboard_log_dir)
    return any(
        path.is_relative_to(volume.mount_path)
        for volume in parse_volumes(spec.volume)
        if not volume.is_for_state
    )


def board_program(spec: JobSpec) -> list[str]:
    """What Python runs beside the master where nobody else can read the event files."""
    where = ["--logdir", spec.tensorboard_log_dir, "--port", str(names.TENSORBOARD_PORT)]
    return [*_PROGRAM, *where, "--beside-master"]


def board_objects(job: Job, owner: names.Owner | None) -> list[Manifest]:
    """What a submission creates: nothing where no events are written."""
    if not job.spec.tensorboard_log_dir:
        return []
    if not are_events_shared(job.spec):
        return [board_service(job, owner)]
    return [board_service(job, owner), board_pod(job, owner, board_beside_master(job))]


def board_service(job: Job, owner: names.Owner | None) -> Manifest:
    """The Service that gives the TensorBoard a name, wherever it runs."""
    replica = BOARD_REPLICA if are_events_shared(job.spec) else MASTER_REPLICA
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


def board_pod(job: Job, owner: names.Owner | None, affinity: Manifest | None) -> Manifest:
    """The pod; it ends by itself when the job's master has been gone for an hour.

    Args:
        affinity: Where it has to be, for most volumes can be had on one node only.
    """
    master = names.master_address(job.name, job.namespace)
    where = ["--logdir", job.spec.tensorboard_log_dir, "--port", str(names.TENSORBOARD_PORT)]
    main = container(job, BOARD_REPLICA, ["python", *_PROGRAM, *where, "--master", master])
    del main["envFrom"]
    main["resources"] = resources(BOARD_REQUEST, BOARD_LIMIT)
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
    spec["terminationGracePeriodSeconds"] = BOARD_GRACE_S
    if affinity is not None:
        spec["affinity"] = affinity
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(job, owner), "spec": spec}
    return manifest if job.hook is None else job.hook.edit_pod(manifest)


def board_beside_master(job: Job) -> Manifest:
    """On the node of a master that runs, or is about to."""
    labels = names.replica_labels(job.name, job.submission_uid, MASTER_REPLICA)
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def board_on_node(name: str) -> Manifest:
    """On the node where the master was; one that has ended attracts nothing."""
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _metadata(job: Job, owner: names.Owner | None) -> Manifest:
    references = names.references_of_belonging(job.owner, owner)
    return metadata(job, names.tensorboard_name(job.name), references, BOARD_REPLICA)
