"""What kinds that make the pods of their replicas themselves have alike. Pure.

Names and labels, times and what follows from them, clean-up, and what is said of an object that the
API server never takes as it is. Nothing here is remembered by a process: a controller that was just
started waits for the same moments as the one before it.
"""

import re
from collections.abc import Sequence
from typing import Final

from elastic.controller.reconciling import Rejection
from elastic.controller.resources.common import CleanPodPolicy, RestartPolicy, seconds_of
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.states import (
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


def ended_s(pod: Manifest) -> float:
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
