"""How a pod stands, and how its containers have ended, whoever's pod it is. Pure.

Whoever looks at pods decides it here: the controllers, the master, and the commands. What an end
means to a replica of ours, by the words that it left, is in `containers`.

A pod that was asked to be removed is nothing any more but in the way: whatever its phase says, it
is neither active nor failed, since it did not end by itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.containers import is_deleted, joined, outside_cause

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

_ENDED: Final = frozenset({SUCCEEDED, FAILED})
_MAY_RUN: Final = frozenset({RUNNING, "Unknown"})
_DULL: Final = frozenset({"Error", "Completed", "None"})
"""Reasons of a container's end that say no more than its code."""


def phase_of(pod: Manifest) -> str:
    """As Kubernetes has it; `Pending` where nothing was told yet."""
    return str((pod.get("status") or {}).get("phase") or PENDING)


def has_ended(pod: Manifest) -> bool:
    """Whether it has ended, and takes no room any more, whether or not it was asked to."""
    return phase_of(pod) in _ENDED


def may_run(pod: Manifest) -> bool:
    """Whether something of it may run, as far as its phase tells, whether or not it is to go."""
    return phase_of(pod) in _MAY_RUN


def is_active(pod: Manifest) -> bool:
    """Whether it runs."""
    return phase_of(pod) == RUNNING and not is_deleted(pod)


def is_pending(pod: Manifest) -> bool:
    """Whether it may come to run."""
    return not is_deleted(pod) and phase_of(pod) != RUNNING and not has_ended(pod)


def has_succeeded(pod: Manifest) -> bool:
    """Whether it ended well; what was asked to end may do so with code 0, its work undone."""
    return phase_of(pod) == SUCCEEDED and not is_deleted(pod)


def has_failed(pod: Manifest) -> bool:
    """Whether it ended otherwise, by itself or by its node."""
    return phase_of(pod) == FAILED and not is_deleted(pod)


def is_ready(pod: Manifest) -> bool:
    """Whether it runs and answers."""
    return is_active(pod) and holds(pod, "Ready")


def conditions_of(item: Manifest | None) -> dict[str, Mapping[str, Any]]:
    """The conditions of a pod, or of any other object, by type."""
    conditions = ((item or {}).get("status") or {}).get("conditions") or ()
    return {str(each.get("type")): each for each in conditions}


def holds(item: Manifest | None, type_: str) -> bool:
    """Whether a condition is there and true."""
    return conditions_of(item).get(type_, {}).get("status") == "True"


def ends_of(pod: Manifest) -> Iterator[Mapping[str, Any]]:
    """How its containers have ended, those that prepare it first."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(kind) or ():
            if ended := end_of(entry):
                yield ended


def end_of(container: Mapping[str, Any], run: str = "state") -> Mapping[str, Any]:
    """How a run of a container has ended; empty where it has not.

    Args:
        container: What a node tells of it.
        run: `state` for the newest one, `lastState` for the one before.
    """
    return (container.get(run) or {}).get("terminated") or {}


def exit_code(pod: Manifest) -> int | None:
    """The first code other than 0 of its containers, else 0; None where none of them has ended."""
    codes = [end["exitCode"] for end in ends_of(pod) if isinstance(end.get("exitCode"), int)]
    return next((code for code in codes if code), 0 if codes else None)


def clusters_doing(pod: Manifest) -> str | None:
    """The cluster's own words for having ended a pod; None where it did not.

    None also for a deadline in its template, which is the job's own.
    """
    has_own_deadline = (pod.get("status") or {}).get("reason") == "DeadlineExceeded"
    return None if has_own_deadline else outside_cause(pod)


def why_failed(pod: Manifest) -> str:
    """In words, for people: the cluster's own, else the exit code and what is told with it."""
    cause = outside_cause(pod)
    if cause is not None:
        return cause
    code = exit_code(pod)
    if code is None:
        return "ended without a reason"
    reasons = (str(end.get("reason")) for end in ends_of(pod) if end.get("exitCode"))
    told = next((reason for reason in reasons if reason not in _DULL), None)
    return joined(f"exited with code {code}", told)
