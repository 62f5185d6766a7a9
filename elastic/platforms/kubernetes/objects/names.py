"""What the objects of a job are called, whose they are, and what queues want written on them.

And where replicas find what they need. Kubernetes removes what belongs to nobody any more.
"""

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.spec.platforms import MODEL_ZOO_PATH as MODEL_ZOO_PATH
from elastic.spec.roles import FLEET, MASTER
from elastic.spec.settings.cluster import OWN_VARIABLES, STATE_MOUNT

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


# What the queues of a cluster want of a job: groups, labels, annotations, `suspend`. Pure.
#
# Four systems are known, and none is needed:
#
# Kueue     quota by queues; pods are gated until their group is admitted, a batch Job is suspended
# Volcano   a scheduler of its own, with PodGroups and queues
# KAI       a scheduler of its own, with queues; it makes groups itself, of what it knows
# native    `scheduling.k8s.io` PodGroup: so many pods start together or not at all; no queues
#
# A group has to be there before its first pod, which names it and never changes.


NATIVE_GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
"""Since 1.37; the v1alpha2 of 1.36 has another form and is not used."""

VOLCANO_GROUPS: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
KAI_QUEUES: Final = Resource("scheduling.run.ai", "v2", "queues", "Queue", namespaced=False)
KUEUE_QUEUES: Final = tuple(
    Resource("kueue.x-k8s.io", version, "localqueues", "LocalQueue")
    for version in ("v1beta2", "v1beta1")
)
"""Newest first; what we write means the same in both."""

KUEUE_WORKLOADS: Final = tuple(
    Resource(each.group, each.version, "workloads", "Workload") for each in KUEUE_QUEUES
)
"""What Kueue makes of each group, by the group's name; without it, Kueue lets go of its pods."""

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""On all that waits in a queue, whichever system it is of: users of several need one label."""

GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
TOTAL_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-total-count"
LAST_ANNOTATION: Final = "kueue.x-k8s.io/retriable-in-group"
"""`false` on one pod of a group: it is over when all its pods are, however they ended."""

VOLCANO_ANNOTATION: Final = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
VOLCANO_SCHEDULER: Final = "volcano"
KAI_LABEL: Final = "kai.scheduler/queue"
KAI_SCHEDULER: Final = "kai-scheduler"

DEFAULT_QUEUE: Final = "default"
"""Where the groups of Kubernetes itself wait, which have no queues."""

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class QueueSystem(StrEnum):
    """See the module; where a cluster has several, the first of these is asked."""

    KUEUE = "kueue"
    VOLCANO = "volcano"
    KAI = "kai"
    NATIVE = "native"


class Part(StrEnum):
    """What a pod is to the minimum of its job.

    The master is admitted alone: it makes the others. Those of the minimum come together, and what
    is beyond it comes one by one.
    """

    MASTER = "master"
    MINIMUM = "minimum"
    BEYOND = "beyond"


@dataclass(frozen=True, slots=True)
class Gang:
    """A job as a queue sees it.

    Attributes:
        name: Of its group, unique in the namespace.
        min_count: How many pods have to start together, the master not counted, at least 1.
        queue: In which it waits.
    """

    name: str
    min_count: int
    queue: str


@dataclass(frozen=True, slots=True)
class Additions:
    """What an object is given so that a queue knows it.

    Attributes:
        spec: Fields of its spec.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    def to(self, manifest: Manifest) -> Manifest:
        """The object, or template of one, with them; what it had of the same name gives way."""
        new = copy.deepcopy(manifest)
        metadata = new.setdefault("metadata", {})
        for key, values in (("labels", self.labels), ("annotations", self.annotations)):
            if values:
                metadata[key] = {**metadata.get(key, {}), **values}
        if self.spec:
            new["spec"] = {**new.get("spec", {}), **copy.deepcopy(dict(self.spec))}
        return new


_TYPES: Final = {
    QueueSystem.KUEUE: KUEUE_QUEUES,
    QueueSystem.VOLCANO: (VOLCANO_GROUPS,),
    QueueSystem.KAI: (KAI_QUEUES,),
    QueueSystem.NATIVE: (NATIVE_GROUPS,),
}
"""Types by which a system is known; one of them is enough."""

GROUPS: Final = {QueueSystem.VOLCANO: VOLCANO_GROUPS, QueueSystem.NATIVE: NATIVE_GROUPS}
"""Those of which we make an object for each job."""


def systems_served(is_served: Callable[[Resource], bool]) -> frozenset[QueueSystem]:
    """Which systems a cluster has.

    Args:
        is_served: Whether its API server knows a type.
    """
    return frozenset(
        system for system, types in _TYPES.items() if any(is_served(each) for each in types)
    )


def system_for(systems: Collection[QueueSystem], queue: str) -> QueueSystem | None:
    """The system that has a queue of this name, as far as that can be told; None where none has.

    The groups of Kubernetes itself have one queue, so to speak: that of its scheduler.
    """
    return next(
        (
            each
            for each in QueueSystem
            if each in systems and (each is not QueueSystem.NATIVE or queue == DEFAULT_QUEUE)
        ),
        None,
    )


def queue_refusal(systems: Collection[QueueSystem], queue: str) -> str:
    """Why no job can wait in a queue of this name, for people; empty where it can."""
    if not _LABEL_VALUE.fullmatch(queue):
        return "is no name of a queue: up to 63 letters, digits, '-', '_' and '.'"
    if system_for(systems, queue) is not None:
        return ""
    if QueueSystem.NATIVE in systems:
        return (
            "is not known here: the groups of Kubernetes itself have no queues, and no other "
            f"system is installed: ask for {DEFAULT_QUEUE!r}, which has a job's least number of "
            "pods start together, or install Kueue, Volcano or KAI"
        )
    return (
        "is not known here: this cluster has no queues (neither Kueue, Volcano nor KAI is "
        "installed, nor has it the PodGroups of Kubernetes 1.37): leave it out, or install one"
    )


def is_waiting(pod: Manifest) -> bool:
    """Whether a pod waits in a queue, or for the node that its queue has to find."""
    is_queued = QUEUE_LABEL in (pod["metadata"].get("labels") or {})
    return is_queued and not (pod.get("spec") or {}).get("nodeName")


def groups_among(pods: Iterable[Manifest]) -> list[str]:
    """The names of the groups of Kueue that pods are of."""
    labels = (pod["metadata"].get("labels") or {} for pod in pods)
    return sorted({str(each[GROUP_LABEL]) for each in labels if GROUP_LABEL in each})


def group_of(system: QueueSystem, gang: Gang) -> tuple[Resource, Manifest] | None:
    """The object that has to be there before the first pod; None where there is none."""
    resource = GROUPS.get(system)
    if resource is None:
        # The pods of a group are known to Kueue by what they carry, and to KAI by their owner.
        return None
    spec: Manifest = {"schedulingPolicy": {"gang": {"minCount": gang.min_count}}}
    if system is QueueSystem.VOLCANO:
        spec = {"minMember": gang.min_count, "queue": gang.queue}
    manifest = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": gang.name, "labels": {QUEUE_LABEL: gang.queue}},
        "spec": spec,
    }
    return resource, manifest


def group_change(system: QueueSystem, gang: Gang, group: Manifest) -> Manifest | None:
    """The merge patch that gives a group the minimum of today; None where it has it."""
    wanted = group_of(system, gang)
    if wanted is None:
        return None
    spec, now = wanted[1]["spec"], group.get("spec") or {}
    if system is QueueSystem.VOLCANO:
        differs = now.get("minMember") != gang.min_count
        return {"spec": {"minMember": gang.min_count}} if differs else None
    policy = now.get("schedulingPolicy") or {}
    return {"spec": spec} if policy.get("gang") != spec["schedulingPolicy"]["gang"] else None


def pod_additions(system: QueueSystem, gang: Gang, part: Part) -> Additions:
    """What a pod that is made by itself is given, or the template of one."""
    labels = {QUEUE_LABEL: gang.queue}
    match system:
        case QueueSystem.NATIVE:
            if part is Part.MASTER:
                return Additions(labels)
            return Additions(labels, spec={"schedulingGroup": {"podGroupName": gang.name}})
        case QueueSystem.VOLCANO:
            # Volcano makes a group of one for a pod that names none.
            annotations = (
                {VOLCANO_QUEUE_ANNOTATION: gang.queue}
                if part is Part.MASTER
                else {VOLCANO_ANNOTATION: gang.name}
            )
            return Additions(labels, annotations, {"schedulerName": VOLCANO_SCHEDULER})
        case QueueSystem.KAI:
            return Additions(
                {**labels, KAI_LABEL: gang.queue}, spec={"schedulerName": KAI_SCHEDULER}
            )
    if part is not Part.MINIMUM:
        return Additions(labels)
    # Kueue admits none of a group before it has seen all of it: a pod beyond is not of the group.
    return Additions({**labels, GROUP_LABEL: gang.name}, {TOTAL_ANNOTATION: str(gang.min_count)})


def needs_own_name(system: QueueSystem, part: Part) -> bool:
    """Whether a pod that replaces another one must not have its name.

    Kueue holds what has ended of a group until it has seen who takes its place.
    """
    return system is QueueSystem.KUEUE and part is Part.MINIMUM


def job_additions(system: QueueSystem, gang: Gang) -> Additions:
    """What a batch Job is given itself, when it is made; its pods by `template_additions`.

    Kueue lifts `suspend` when there is room, and sets it again to take the room back: whoever made
    the Job leaves the field alone from then on.
    """
    labels = {QUEUE_LABEL: gang.queue}
    return Additions(labels, spec={"suspend": True} if system is QueueSystem.KUEUE else {})


def template_additions(system: QueueSystem, gang: Gang) -> Additions:
    """What the pods of a batch Job are given: nothing by Kueue, which would gate them twice."""
    if system is QueueSystem.KUEUE:
        return Additions()
    return pod_additions(system, gang, Part.MINIMUM)
