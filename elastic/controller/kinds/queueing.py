"""How jobs of the controller's kinds wait in queues. Pure.

A job asks for a queue by the label that Kueue has for it, whichever system the queue is of.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.controller.reconciling import Action, Create, Delete, EventType, Note, Observed, Patch
from elastic.controller.resources.common import Condition, ConditionStatus, with_condition
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.platforms.kubernetes.objects.queues import (
    GROUPS,
    KUEUE_QUEUES,
    KUEUE_WORKLOADS,
    QUEUE_LABEL,
    Gang,
    QueueSystem,
    group_change,
    group_of,
    refusal,
    system_for,
    systems_served,
)

QUEUE_MISSING: Final = "QueueMissing"


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of a cluster, as a kind of jobs sees them.

    Attributes:
        systems: Those that it has, and whose groups this controller may make.
        workloads: The type by which Kueue knows a group; None where there is no Kueue.
        local_queues: The type of Kueue's queues; None likewise.
    """

    systems: Collection[QueueSystem] = ()
    workloads: Resource | None = None
    local_queues: Resource | None = None

    @classmethod
    def of(cls, is_served: Callable[[Resource], bool]) -> "Queues":
        """Those of a cluster that knows certain types."""
        workloads = next((each for each in KUEUE_WORKLOADS if is_served(each)), None)
        local_queues = next((each for each in KUEUE_QUEUES if is_served(each)), None)
        return cls(systems_served(is_served), workloads, local_queues)

    @property
    def groups(self) -> Sequence[Resource]:
        """Types of the groups that jobs have."""
        return tuple(group for system, group in GROUPS.items() if system in self.systems)

    @property
    def looks_at(self) -> Sequence[Resource]:
        """Types that tell whether a job's queue is there."""
        return () if self.local_queues is None else (self.local_queues,)

    def lacks(self, queue: str, observed: Observed) -> bool:
        """Whether there is no queue of this name, as far as that can be seen.

        Kueue would hold the pods for ever, and say nothing that a user looks at. Of the other
        systems it is not known which queues a namespace may use.

        Args:
            queue: Empty where none is asked for.
            observed: The job that asks.
        """
        if self.local_queues is None or self.system_of(queue) is not QueueSystem.KUEUE:
            return False
        there = observed.looked_at.get(self.local_queues)
        return there is not None and all(each["metadata"]["name"] != queue for each in there)

    def problem(self, job: Manifest) -> str:
        """Why a job cannot wait where it asks to, for people; empty where it can."""
        return self.problem_with(queue_of(job), f"metadata.labels.{QUEUE_LABEL}")

    def problem_with(self, queue: str, field: str) -> str:
        """The same of a queue that is named in a field; no queue is no problem."""
        told = refusal(self.systems, queue) if queue else ""
        return f"{field}={queue} {told}" if told else ""

    def system_of(self, queue: str) -> QueueSystem | None:
        """The system that has a queue; None where it is not here, or none is asked for."""
        return system_for(self.systems, queue) if queue else None

    def end_of_group(self, name: str) -> Delete | None:
        """Has Kueue forget a group of pods that are to go, and let go of them.

        Args:
            name: Of the group, which is never used for other pods.

        Returns:
            None where there is no Kueue.
        """
        return None if self.workloads is None else Delete(self.workloads, name)

    def queued(self, job: Manifest, min_count: int) -> "Queued | None":
        """How a job waits; None for one that asks for no queue, or for none that is here.

        Args:
            job: The object.
            min_count: How many of its pods have to start together.
        """
        queue, name = queue_of(job), str(job["metadata"]["name"])
        system = self.system_of(queue)
        if system is None:
            return None
        # Another job of this name has another group: Kueue remembers by its name that one is over.
        group = f"{name}-{str(job['metadata']['uid'])[:8]}"
        return Queued(system, Gang(group, min_count, queue))


@dataclass(frozen=True, slots=True)
class Queued:
    """One job in its queue."""

    system: QueueSystem
    gang: Gang


def queue_of(job: Manifest) -> str:
    """The queue that a job asks for, or empty."""
    return str((job["metadata"].get("labels") or {}).get(QUEUE_LABEL) or "")


def queue_missing(queue: str, namespace: str) -> str:
    """What a job is told of whose queue is not there."""
    return (
        f"queue={queue} is not there: namespace {namespace} has no LocalQueue of that name, and "
        f"pods that wait in it are held until it has: have it made (kubectl get localqueues -n "
        f"{namespace} shows those that are there), or delete the job and apply it with another "
        "queue"
    )


def queue_notes(queue: str, namespace: str, is_missing: bool, is_told: bool) -> tuple[Note, ...]:
    """That a job's queue is not there, or has come: once each.

    Args:
        queue: That the job asks for.
        namespace: The job's.
        is_missing: Whether the queue is not there now.
        is_told: Whether the job's status says so already.
    """
    if is_missing is is_told:
        return ()
    if not is_missing:
        return (Note("QueueFound", f"namespace {namespace} has a LocalQueue {queue} now"),)
    return (Note(QUEUE_MISSING, queue_missing(queue, namespace), EventType.WARNING),)


def is_queue_missing(conditions: Sequence[Condition]) -> bool:
    """Whether the conditions of a job tell that its queue is not there."""
    return any(
        each.type == QUEUE_MISSING and each.status is ConditionStatus.TRUE for each in conditions
    )


def with_queue_notes(
    conditions: tuple[Condition, ...], notes: Sequence[Note], now_s: float
) -> tuple[Condition, ...]:
    """The conditions of a job once it is told what has become of its queue."""
    for note in notes:
        is_missing = note.reason == QUEUE_MISSING
        status = ConditionStatus.TRUE if is_missing else ConditionStatus.FALSE
        conditions = with_condition(
            conditions, QUEUE_MISSING, status, note.reason, note.message, now_s
        )
    return conditions


def group_actions(
    queued: Queued | None, observed: Observed, labels: dict[str, str]
) -> list[Action]:
    """What has to be done before the first pod is made: its group is there, with today's minimum.

    Args:
        queued: The job in its queue.
        observed: What there is.
        labels: By which its objects belong to the job.
    """
    made = None if queued is None else group_of(queued.system, queued.gang)
    if queued is None or made is None:
        return []
    resource, manifest = made
    there = next(
        (
            each
            for each in observed.children.get(resource, ())
            if each["metadata"]["name"] == queued.gang.name
        ),
        None,
    )
    if there is None:
        metadata = manifest["metadata"]
        manifest["metadata"] = {**metadata, "labels": {**metadata["labels"], **labels}}
        note = Note("CreatedPodGroup", f"created PodGroup {queued.gang.name}")
        return [Create(resource, manifest, note)]
    change = group_change(queued.system, queued.gang, there)
    return [] if change is None else [Patch(resource, queued.gang.name, change)]
