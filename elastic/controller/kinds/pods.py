"""Pods of replicas that a controller makes itself: names and labels, states, ends, clean-up. Pure.

A pod that was asked to be removed is nothing any more but in the way: whatever its phase says, it
is neither active nor failed, since it did not end by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from elastic.controller.resources.common import CleanPodPolicy, RestartPolicy, seconds_of
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.containers import is_deleted, joined, outside_cause

JOB_LABEL: Final = "job-name"
GROUP_LABEL: Final = "group-name"
INDEX_LABEL: Final = "replica-index"
TYPE_LABEL: Final = "replica-type"

CLUSTER_CODE: Final = 128
"""Exit codes from here on are of signals, which are the cluster's doing under `ExitCode`."""


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


def is_active(pod: Manifest) -> bool:
    """Whether it runs."""
    return _phase(pod) == "Running" and not is_deleted(pod)


def is_pending(pod: Manifest) -> bool:
    """Whether it may come to run."""
    return not is_deleted(pod) and _phase(pod) not in {"Running", "Succeeded", "Failed"}


def has_succeeded(pod: Manifest) -> bool:
    """Whether it ended well; what was asked to end may do so with code 0, its work undone."""
    return _phase(pod) == "Succeeded" and not is_deleted(pod)


def has_failed(pod: Manifest) -> bool:
    """Whether it ended otherwise, by itself or by its node."""
    return _phase(pod) == "Failed" and not is_deleted(pod)


def is_ready(pod: Manifest) -> bool:
    """Whether it runs and answers."""
    return is_active(pod) and any(
        each.get("type") == "Ready" and each.get("status") == "True" for each in _conditions(pod)
    )


def ready_s(pod: Manifest) -> float | None:
    """Since when it does, in seconds since the epoch; None where it does not."""
    if not is_ready(pod):
        return None
    [text] = (c.get("lastTransitionTime") for c in _conditions(pod) if c.get("type") == "Ready")
    return None if text is None else seconds_of(text)


def exit_code(pod: Manifest) -> int | None:
    """The first code other than 0 of its containers, else 0; None where none of them has ended."""
    codes = [ended["exitCode"] for ended in _ends(pod) if isinstance(ended.get("exitCode"), int)]
    return next((code for code in codes if code), 0 if codes else None)


def is_free(pod: Manifest, policy: RestartPolicy) -> bool:
    """Whether the end of a failed pod is the cluster's doing, which costs a job nothing.

    Under `ExitCode` alone: that of a container by a signal, and that of a pod that its node or the
    scheduler has ended, whatever its containers made of it.
    """
    if policy is not RestartPolicy.EXIT_CODE:
        return False
    code = exit_code(pod)
    return _is_clusters(pod) or code is None or code >= CLUSTER_CODE


def why_failed(pod: Manifest) -> str:
    """In words, for people: the cluster's own, else the exit code and what is told with it."""
    cause = outside_cause(pod)
    if cause is not None:
        return cause
    code = exit_code(pod)
    if code is None:
        return "ended without a reason"
    reasons = (str(ended.get("reason")) for ended in _ends(pod) if ended.get("exitCode"))
    told = next((reason for reason in reasons if reason not in _DULL), None)
    return joined(f"exited with code {code}", told)


def started_s(pod: Manifest) -> float | None:
    """When its node took it, in seconds since the epoch."""
    text = (pod.get("status") or {}).get("startTime")
    return None if text is None else seconds_of(text)


def finished_s(pod: Manifest) -> float | None:
    """When the last of its containers ended; None where none is known to have."""
    return max(
        (seconds_of(e["finishedAt"]) for e in _ends(pod) if e.get("finishedAt")), default=None
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


def _is_clusters(pod: Manifest) -> bool:
    # A deadline in the template is the job's own.
    has_own_deadline = (pod.get("status") or {}).get("reason") == "DeadlineExceeded"
    return outside_cause(pod) is not None and not has_own_deadline


def _conditions(pod: Manifest) -> Iterable[Mapping[str, Any]]:
    return (pod.get("status") or {}).get("conditions") or ()


def _phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


_DULL: Final = frozenset({"Error", "Completed", "None"})
"""Reasons of a container's end that say no more than its code."""


def _ends(pod: Manifest) -> Iterable[Mapping[str, Any]]:
    """How its containers have ended, those that prepare it first."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(kind) or ():
            if ended := _end(entry):
                yield ended


def _end(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return (entry.get("state") or {}).get("terminated") or {}
