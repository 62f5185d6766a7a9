"""What the objects of a job are called and whose they are, and where replicas find what they need.

Kubernetes removes what belongs to nobody any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.spec.platforms import MODEL_ZOO_PATH as MODEL_ZOO_PATH
from elastic.spec.roles import FLEET, MASTER
from elastic.spec.settings.cluster_forms import OWN_VARIABLES, STATE_MOUNT

TENSORBOARD: Final = "tensorboard"
APP: Final = "elastic"

# -- labels and annotations
APP_LABEL: Final = "app"
JOB_LABEL: Final = "elastic-job-name"
TYPE_LABEL: Final = "elastic-replica-type"
INDEX_LABEL: Final = "elastic-replica-index"
LAUNCH_LABEL: Final = "elastic-launch"
SUBMISSION_LABEL: Final = "elastic-submission"
"""Holds the uid of the submission, so that objects of an earlier job of the same name differ."""

TRAIN_JOB_LABEL: Final = "elastic.dev/train-job"
"""Holds the name of the resource that a job was made from, on all that belongs to it."""

# -- keys of ConfigMaps and of the Secret
SPEC_KEY: Final = "spec.json"
SUBMISSION_KEY: Final = "submission.json"
CONTROL_KEY: Final = "control.json"
STATUS_KEY: Final = "status.json"
STATE_KEY: Final = "state_of"
"""Of the record: the submission whose folder on the state volume holds the job's cuts."""

LAST_WORDS_KEY: Final = "last_words.json"
TOKEN_KEY: Final = "token"  # noqa: S105 - the name of a key, not a secret
CHAIN_KEY: Final = "tls.crt"
KEY_KEY: Final = "tls.key"
HOOK_KEYS: Final = {".py": "cluster_spec.py", ".yaml": "cluster_spec.yaml"}
"""By the suffix of the user's `cluster_spec`, the key of the record that ships it."""

# -- inside the pods
CONTAINER: Final = "elastic"
MASTER_PORT: Final = 50001
CALLS_PORT: Final = 50002
"""Of the master's Service too: calls by sockets of the job's own, most of all tensors."""
TENSORBOARD_PORT: Final = 6006
METRICS_PORT_NAME: Final = "metrics"
JOB_PATH: Final = Path("/elastic/job")
TOKEN_PATH: Final = Path("/elastic/token")
STATE_PATH: Final = Path(STATE_MOUNT)
KEPT_FOLDERS: Final = ("cuts", "checkpoints")
"""Below it, what the next submission of a job may go on from; the rest is of one pod's life."""

TERMINATION_PATH: Final = Path("/dev/termination-log")
TMP_PATH: Final = Path("/tmp")  # noqa: S108 - of the pod, nobody else is there
TMP_VOLUME: Final = "elastic-tmp"
"""Where a pod may write; a cluster_spec names it to say what it is made of."""

USER_ID: Final = 65532
"""The user of images that name none by number; no account of it needs to exist."""

# -- environment of the replicas
OWN_PREFIX: Final = OWN_VARIABLES

REPLICA_VARIABLE: Final = "ELASTIC_REPLICA"
JOB_VARIABLE: Final = "ELASTIC_JOB_NAME"
NAMESPACE_VARIABLE: Final = "ELASTIC_NAMESPACE"
ADDRESS_VARIABLE: Final = "ELASTIC_MASTER_ADDRESS"
POD_NAME_VARIABLE: Final = "ELASTIC_POD_NAME"
POD_UID_VARIABLE: Final = "ELASTIC_POD_UID"
POD_IP_VARIABLE: Final = "ELASTIC_POD_IP"
CORES_VARIABLE: Final = "ELASTIC_CORES"
"""How many cores the container may use, rounded up."""

SERVICE_ACCOUNT: Final = "elastic-master"
"""Default of the setting `service_account`: who the master is to the API server."""

TRAIN_JOBS: Final = Resource("elastic.dev", "v1", "elastictrainjobs", "ElasticTrainJob")
"""Resources that jobs are made from."""


def record_name(job_name: str) -> str:
    """The ConfigMap of what the job was submitted with and what users ask of it."""
    return f"elastic-{job_name}"


def status_name(job_name: str) -> str:
    """The ConfigMap of the published status."""
    return f"elastic-{job_name}-status"


def token_name(job_name: str) -> str:
    """The Secret of the job's token."""
    return f"elastic-{job_name}-token"


def master_name(job_name: str) -> str:
    """The master's pod, and the Service before it."""
    return f"elastic-{job_name}-{MASTER}"


def replica_pod_name(job_name: str, role: str, index: int) -> str:
    """The pod of a replica that the master launches; see `queueing.pod_name`."""
    return f"elastic-{job_name}-{role}-{index}"


def group_name(job_name: str, submission_uid: str) -> str:
    """The group of pods by which the job's queue knows those that have to start together."""
    return f"elastic-{job_name}-{submission_uid[:8]}"


def lease_name(job_name: str) -> str:
    """The Lease that a master holds where somebody may make another one beside it."""
    return f"elastic-{job_name}-{MASTER}"


def tensorboard_name(job_name: str) -> str:
    """The pod of a job's TensorBoard, and the Service before it."""
    return f"elastic-{job_name}-tensorboard"


def master_address(job_name: str, namespace: str) -> str:
    """`host:port` that workers reach the master by; the same for every life of it."""
    return f"{master_name(job_name)}.{namespace}.svc:{MASTER_PORT}"


def job_labels(job_name: str, submission_uid: str) -> dict[str, str]:
    """Labels on every object of a job."""
    return {APP_LABEL: APP, JOB_LABEL: job_name, SUBMISSION_LABEL: submission_uid}


def replica_labels(job_name: str, submission_uid: str, replica: ReplicaId) -> dict[str, str]:
    """Labels on a pod."""
    return job_labels(job_name, submission_uid) | {
        TYPE_LABEL: replica.role,
        INDEX_LABEL: str(replica.index),
        LAUNCH_LABEL: str(replica.launch),
    }


def selector(labels: Mapping[str, str]) -> str:
    """A label selector for objects that carry all of these."""
    return ",".join(f"{name}={value}" for name, value in labels.items())


def job_selector(job_name: str) -> str:
    """Selects every object of a job, whatever submission it is of."""
    return selector({APP_LABEL: APP, JOB_LABEL: job_name})


def fleet_selector(job_name: str) -> str:
    """Selects the pods of a job whose replicas its master launches."""
    roles = ",".join(role.name for role in FLEET)
    return f"{job_selector(job_name)},{TYPE_LABEL} in ({roles})"


def _reference(api_version: str, kind: str, name: str, uid: str, controller: bool) -> Manifest:
    """An entry for `metadata.ownerReferences`.

    Without `blockOwnerDeletion`, which only a deletion in the foreground heeds: where admission
    checks owner references, as in OpenShift, it takes a right to the `finalizers` of the owner.
    """
    reference: Manifest = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return reference | {"controller": True} if controller else reference


@dataclass(frozen=True, slots=True)
class Owner:
    """The master's pod, with which the objects that it owns are removed."""

    name: str
    uid: str

    @classmethod
    def of(cls, pod: Manifest) -> "Owner":
        """The owner that a stored pod is."""
        return cls(pod["metadata"]["name"], pod["metadata"]["uid"])

    def reference(self, controller: bool = True) -> Manifest:
        """The entry for `metadata.ownerReferences`.

        Args:
            controller: Whether this owner, of all, is the one that looks after the object.
        """
        return _reference("v1", "Pod", self.name, self.uid, controller)


@dataclass(frozen=True, slots=True)
class ResourceOwner:
    """The resource that a job was made from, such as an ElasticTrainJob.

    Whoever keeps it true makes the job's master again, so what belongs to it outlives masters.
    """

    api_version: str
    kind: str
    name: str
    uid: str

    def reference(self, controller: bool = True) -> Manifest:
        """The entry for `metadata.ownerReferences`.

        Args:
            controller: Whether this owner, of all, is the one that looks after the object.
        """
        return _reference(self.api_version, self.kind, self.name, self.uid, controller)

    @property
    def submission_uid(self) -> str:
        """The submission that the resource is: the same for every master that is made for it."""
        return self.uid.replace("-", "")


def references_of_belonging(resource: ResourceOwner | None, master: Owner | None) -> list[Manifest]:
    """Whom a Service, a Secret or a TensorBoard belongs to: one of the two, if there is any.

    Args:
        resource: That the job was made from.
        master: Its master's pod, which matters where there is no resource.
    """
    owner = resource or master
    return [] if owner is None else [owner.reference()]


def references_of_replica(resource: ResourceOwner | None, master: Owner | None) -> list[Manifest]:
    """Whom a worker belongs to: the resource, and the master that has launched it.

    Kubernetes collects it when both are gone: a worker outlives its master where there is a
    resource, for the next master to take it over.
    """
    if resource is None or master is None:
        return references_of_belonging(resource, master)
    return [resource.reference(), master.reference(controller=False)]
