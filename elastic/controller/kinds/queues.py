"""What the queues of a cluster want of a job: groups, labels, annotations, `suspend`. Pure.

Three systems are known, and none is needed:

native    `scheduling.k8s.io` PodGroup: so many pods are scheduled together or not at all; no queues
Kueue     quota by queues; pods are gated until their group is admitted, a batch Job is suspended
Volcano   a scheduler of its own, with PodGroups and queues

A group has to be there before its first pod, which names it and never changes.
"""

import copy
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from elastic.platforms.kubernetes.api.resources import Manifest, Resource

NATIVE_GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
"""Since 1.37; the v1alpha2 of 1.36 has another form and is not used."""

VOLCANO_GROUPS: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
KUEUE_QUEUES: Final = ("kueue.x-k8s.io", "localqueues")
"""Group and plural; we make none, and what we write means the same in every version of them."""

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
TOTAL_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-total-count"
VOLCANO_ANNOTATION: Final = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
VOLCANO_SCHEDULER: Final = "volcano"

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class QueueSystem(StrEnum):
    """See the module."""

    NATIVE = "native"
    KUEUE = "kueue"
    VOLCANO = "volcano"


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
        name: Of its group, unique in the namespace: the job's.
        min_count: How many pods have to start together, the master not counted, at least 1.
        queue: In which it waits; None where the system has one for all, or none.
        places_itself: Whether whoever makes the pods chooses their nodes too.
    """

    name: str
    min_count: int
    queue: str | None = None
    places_itself: bool = False


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


def systems_served(served: Collection[tuple[str, str, str]]) -> frozenset[QueueSystem]:
    """Which systems a cluster has.

    Args:
        served: Group, version and plural of the types that its API server serves.
    """
    found = {
        system
        for system, resource in _GROUPS.items()
        if (resource.group, resource.version, resource.plural) in served
    }
    if any((group, plural) == KUEUE_QUEUES for group, _, plural in served):
        found.add(QueueSystem.KUEUE)
    return frozenset(found)


_GROUPS: Final = {QueueSystem.NATIVE: NATIVE_GROUPS, QueueSystem.VOLCANO: VOLCANO_GROUPS}


def refusal(system: QueueSystem, gang: Gang) -> str:
    """Why a job cannot wait in a queue of this system, for people; empty where it can."""
    if gang.places_itself:
        return (
            f"job {gang.name} chooses the nodes of its pods itself, which no queue can hold back: "
            "leave out the queue, or let Kubernetes place its pods"
        )
    if system is QueueSystem.KUEUE and gang.queue is None:
        return f"job {gang.name} names no queue, and Kueue knows a job by that: name a LocalQueue"
    if system is QueueSystem.NATIVE and gang.queue is not None:
        return (
            f"queue={gang.queue}: the groups of Kubernetes itself have no queues: leave it out, or "
            "install Kueue or Volcano"
        )
    for what, value in (("queue", gang.queue), ("name", gang.name)):
        if value is not None and not _LABEL_VALUE.fullmatch(value):
            return f"{what}={value} cannot be a label: up to 63 letters, digits, '-', '_' and '.'"
    return ""


def group_of(system: QueueSystem, gang: Gang) -> tuple[Resource, Manifest] | None:
    """The object that has to be there before the first pod; None where there is none."""
    match system:
        case QueueSystem.NATIVE:
            spec: Manifest = {"schedulingPolicy": {"gang": {"minCount": gang.min_count}}}
        case QueueSystem.VOLCANO:
            spec = {"minMember": gang.min_count}
            if gang.queue is not None:
                spec["queue"] = gang.queue
        case QueueSystem.KUEUE:
            # The pods of a group are known to Kueue by what they carry.
            return None
    resource = _GROUPS[system]
    manifest = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": gang.name},
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
    match system:
        case QueueSystem.NATIVE:
            if part is Part.MASTER:
                return Additions()
            return Additions(spec={"schedulingGroup": {"podGroupName": gang.name}})
        case QueueSystem.VOLCANO:
            return _of_volcano(gang, part)
    labels = {QUEUE_LABEL: gang.queue or ""}
    if part is not Part.MINIMUM:
        return Additions(labels)
    # Kueue admits none of a group before it has seen all of it: a pod beyond is not of the group.
    return Additions({**labels, GROUP_LABEL: gang.name}, {TOTAL_ANNOTATION: str(gang.min_count)})


def _of_volcano(gang: Gang, part: Part) -> Additions:
    annotations = {} if part is Part.MASTER else {VOLCANO_ANNOTATION: gang.name}
    if part is Part.MASTER and gang.queue is not None:
        # Volcano makes a group of one for a pod that names none.
        annotations = {VOLCANO_QUEUE_ANNOTATION: gang.queue}
    return Additions(annotations=annotations, spec={"schedulerName": VOLCANO_SCHEDULER})


def job_additions(system: QueueSystem, gang: Gang) -> Additions:
    """What a batch Job is given itself, when it is made; its pods by `template_additions`.

    Kueue lifts `suspend` when there is room, and sets it again to take the room back: whoever made
    the Job leaves the field alone from then on.
    """
    if system is not QueueSystem.KUEUE:
        return Additions()
    return Additions({QUEUE_LABEL: gang.queue or ""}, spec={"suspend": True})


def template_additions(system: QueueSystem, gang: Gang) -> Additions:
    """What the pods of a batch Job are given: nothing by Kueue, which would gate them twice."""
    if system is QueueSystem.KUEUE:
        return Additions()
    return pod_additions(system, gang, Part.MINIMUM)
