"""What the queues of a cluster want of a job: groups, labels, annotations, `suspend`. Pure.

Four systems are known, and none is needed:

Kueue     quota by queues; pods are gated until their group is admitted, a batch Job is suspended
Volcano   a scheduler of its own, with PodGroups and queues
KAI       a scheduler of its own, with queues; it makes groups itself, of what it knows
native    `scheduling.k8s.io` PodGroup: so many pods are scheduled together or not at all; no queues

A group has to be there before its first pod, which names it and never changes.
"""

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from elastic.platforms.kubernetes.api.resources import Manifest, Resource

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


def refusal(systems: Collection[QueueSystem], queue: str) -> str:
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
