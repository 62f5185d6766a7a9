"""What kinds of jobs have alike: their pods, their conditions, and how they wait in queues. Pure.

Of pods that kinds make themselves: names and labels, times and what follows from them, clean-up,
and what is said of an object that the API server never takes as it is. Nothing here is remembered
by a process: a controller that was just started waits for the same moments as the one before it.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from elastic.controller.reconciling import (
    Action,
    Create,
    Delete,
    EventType,
    Note,
    Observed,
    Patch,
    Rejection,
)
from elastic.controller.resources.common import (
    CleanPodPolicy,
    Condition,
    ConditionStatus,
    RestartPolicy,
    seconds_of,
    with_condition,
)
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.platforms.kubernetes.objects.names import (
    GROUPS,
    KUEUE_QUEUES,
    KUEUE_WORKLOADS,
    QUEUE_LABEL,
    Gang,
    QueueSystem,
    group_change,
    group_of,
    queue_refusal,
    system_for,
    systems_served,
)
from elastic.platforms.kubernetes.pods import (
    clusters_doing,
    conditions_of,
    ends_of,
    exit_code,
    is_active,
    is_deleted,
    is_pending,
    is_ready,
)

JOB_LABEL: Final = "job-name"
GROUP_LABEL: Final = "group-name"
INDEX_LABEL: Final = "replica-index"
TYPE_LABEL: Final = "replica-type"

CLUSTER_CODE: Final = 128
"""Exit codes from here on are of signals, which are the cluster's doing under `ExitCode`."""
FIRST_PAUSE_S: Final = 10.0
"""Before the second replacement in a row; the first is made at once."""

LAST_PAUSE_S: Final = 300.0
"""As the kubelet's own."""

STEADY_S: Final = 600.0
"""A pod that ran so long was no quick failure: the count begins anew, as the kubelet's."""
_FIELD: Final = re.compile(r"(?<=[\s\[])(?=(?:spec|metadata)\.)")
"""Where a field of the object begins in the API server's words."""


def replica_name(job: str, role: str, index: int) -> str:
    """Of a replica's pod and of its service: `JOB-worker-0`."""
    return f"{job}-{role}-{index}"


def replica_labels(job: str, group: str, role: str, index: int | None = None) -> dict[str, str]:
    """What a replica's pod is found by; all of a role's where there is no index."""
    labels = {JOB_LABEL: job, GROUP_LABEL: group, TYPE_LABEL: role}
    return labels if index is None else labels | {INDEX_LABEL: str(index)}


def index_of(name: str, job: str, role: str) -> int | None:
    """The index in the name of a replica's object; None for whatever else has another name."""
    digits = name.removeprefix(f"{job}-{role}-")
    is_index = digits.isdecimal() and replica_name(job, role, int(digits)) == name
    return int(digits) if is_index else None


def name_of(item: Manifest) -> str:
    name: str = item["metadata"]["name"]
    return name


def uid_of(item: Manifest) -> str:
    uid: str = item["metadata"]["uid"]
    return uid


def ready_s(pod: Manifest) -> float | None:
    """Since when it does, in seconds since the epoch; None where it does not."""
    if not is_ready(pod):
        return None
    text = conditions_of(pod)["Ready"].get("lastTransitionTime")
    return None if text is None else seconds_of(text)


def is_free(pod: Manifest, policy: RestartPolicy) -> bool:
    """Whether the end of a failed pod is the cluster's doing, which costs a job nothing.

    Under `ExitCode` alone: that of a container by a signal, and that of a pod that its node or the
    scheduler has ended, whatever its containers made of it.
    """
    if policy is not RestartPolicy.EXIT_CODE:
        return False
    code = exit_code(pod)
    return clusters_doing(pod) is not None or code is None or code >= CLUSTER_CODE


def started_s(pod: Manifest) -> float | None:
    """When its node took it, in seconds since the epoch."""
    text = (pod.get("status") or {}).get("startTime")
    return None if text is None else seconds_of(text)


def finished_s(pod: Manifest) -> float | None:
    """When the last of its containers ended; None where none is known to have."""
    return max(
        (seconds_of(e["finishedAt"]) for e in ends_of(pod) if e.get("finishedAt")), default=None
    )


def pod_ended_s(pod: Manifest) -> float:
    """When a pod that is over ended, as far as it tells; its node may have refused to begin it."""
    end_s = finished_s(pod)
    began_s = started_s(pod) if end_s is None else end_s
    return seconds_of(pod["metadata"]["creationTimestamp"]) if began_s is None else began_s


def ran_s(pod: Manifest) -> float:
    """How long a pod that is over ran; 0 where it is not known."""
    began_s, end_s = started_s(pod), finished_s(pod)
    return 0.0 if began_s is None or end_s is None else max(0.0, end_s - began_s)


def pod_restart_policy(policy: RestartPolicy) -> str:
    """That of the pods: Kubernetes knows no `ExitCode`, so that we see each end ourselves."""
    return "Never" if policy is RestartPolicy.EXIT_CODE else policy.value


def to_remove_at_end(pods: Sequence[Manifest], policy: CleanPodPolicy) -> list[Manifest]:
    """Which of a job's pods are to be removed once it has ended.

    One that has not begun has no log and nothing to do any more: it goes under every policy.
    """

    def is_unwanted(pod: Manifest) -> bool:
        if is_deleted(pod):
            return False
        if is_pending(pod) or policy is CleanPodPolicy.ALL:
            return True
        return policy is CleanPodPolicy.RUNNING and is_active(pod)

    return [pod for pod in pods if is_unwanted(pod)]


def pause_s(failures_in_a_row: int) -> float:
    """How long after a pod's end its replacement is made: 0, 10, 20, 40, … 300 s.

    Args:
        failures_in_a_row: At one index, the newest included, >= 1; none ran for `STEADY_S`.
    """
    # A count without bounds must not overflow a float.
    doublings = min(failures_in_a_row - 2, 16)
    return 0.0 if doublings < 0 else min(FIRST_PAUSE_S * 2.0**doublings, LAST_PAUSE_S)


def failures_in_a_row(before: int, ran_s: float) -> int:
    """The count with one more failure, of a pod that ran that long."""
    return 1 if ran_s >= STEADY_S else before + 1


def deadline_in_s(started_s: float, active_deadline_s: int | None, now_s: float) -> float | None:
    """Seconds until a job's deadline, 0 once it is over; None where it has none."""
    return None if active_deadline_s is None else max(0.0, started_s + active_deadline_s - now_s)


def removal_in_s(ended_s: float, ttl_s: int | None, now_s: float) -> float | None:
    """Seconds until a job that has ended is to be removed, 0 once it is; None for never."""
    return None if ttl_s is None else max(0.0, ended_s + ttl_s - now_s)


def soonest(*waits_s: float | None) -> float | None:
    """When to look again: the first of these moments; None where there is none."""
    return min((each for each in waits_s if each is not None), default=None)


def words_of(rejection: Rejection, template: str = "") -> str:
    """Which object cannot be made and why, with the field and its value, for people.

    Args:
        rejection: What was refused.
        template: Field of the job that the object is made from, which its own fields are below.
    """
    create = rejection.create
    why = _FIELD.sub(f"{template}.", rejection.why) if template else rejection.why
    return f"{create.resource.kind} {name_of(create.manifest)} cannot be made: {why}"


# How the conditions of a job follow each other, for kinds that have Kubeflow's five. Pure.
#
#     Created ──▶ Running ⇄ Restarting ──▶ Succeeded | Failed
#
# A job may run while it restarts: those that are left go on beside what is made anew. `Running`
# stays in the list when it no longer holds, with what it said last, as the job's own past.


class JobCondition(StrEnum):
    """What may be the case with a job."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINAL: Final = (JobCondition.SUCCEEDED, JobCondition.FAILED)
"""A job of which one of these holds has ended."""

Conditions: TypeAlias = tuple[Condition, ...]
"""At most one of each type."""


def written(conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """The same, as a status has them."""
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in conditions]


def holds(conditions: Sequence[Condition], type_: JobCondition) -> bool:
    """Whether something is the case now."""
    found = find_condition(conditions, type_)
    return found is not None and found.status is ConditionStatus.TRUE


def find_condition(conditions: Sequence[Condition], type_: JobCondition) -> Condition | None:
    """The one of a type, whether or not it holds."""
    return next((each for each in conditions if each.type == type_), None)


def ended_as(conditions: Sequence[Condition]) -> JobCondition | None:
    """How the job has ended; None while it has not."""
    return next((type_ for type_ in FINAL if holds(conditions, type_)), None)


def job_ended_s(conditions: Sequence[Condition]) -> float | None:
    """When it has, in seconds since the epoch; None while it has not."""
    type_ = ended_as(conditions)
    found = None if type_ is None else find_condition(conditions, type_)
    if found is None or found.last_transition_time is None:
        return None
    return seconds_of(found.last_transition_time)


def told(
    conditions: Conditions, type_: JobCondition, reason: str, message: str, now_s: float
) -> Conditions:
    """The conditions once something has come to be the case; what excludes it does no longer.

    Args:
        conditions: As they are.
        type_: What is the case now.
        reason: Why, in one word.
        message: Why, for people.
        now_s: Seconds since the epoch.
    """
    if type_ in FINAL:
        excluded = {*JobCondition} - {type_, JobCondition.CREATED}
        for other in (each for each in JobCondition if each in excluded):
            conditions = no_longer(conditions, other, now_s)
    return with_condition(conditions, type_, ConditionStatus.TRUE, reason, message, now_s)


def no_longer(
    conditions: Conditions,
    type_: JobCondition,
    now_s: float,
    reason: str | None = None,
    message: str | None = None,
) -> Conditions:
    """The conditions once something is no more the case; the very same where it never was.

    Args:
        conditions: As they are.
        type_: What is not the case now.
        now_s: Seconds since the epoch.
        reason: Why, in one word; what it said last where None.
        message: Why, for people; likewise.
    """
    found = find_condition(conditions, type_)
    if found is None:
        return conditions
    return with_condition(
        conditions,
        type_,
        ConditionStatus.FALSE,
        found.reason if reason is None else reason,
        found.message if message is None else message,
        now_s,
    )


# How jobs of the controller's kinds wait in queues. Pure.
#
# A job asks for a queue by the label that Kueue has for it, whichever system the queue is of.


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
        told = queue_refusal(self.systems, queue) if queue else ""
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
