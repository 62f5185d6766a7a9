"""An object with its pods and events, as it is told. Pure."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from elastic.controller.inspection.kinds import Seen
from elastic.controller.kinds.pods import name_of
from elastic.controller.resources.common import Condition, seconds_of
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.observation import why_pending
from elastic.platforms.kubernetes.pods.states import (
    has_failed,
    is_deleted,
    is_ready,
    phase_of,
    why_failed,
)
from elastic.spec.status.objects import ConditionStatus, EventStatus, ObjectStatus, PodStatus

MAX_EVENTS: Final = 20
TERMINATING: Final = "Terminating"
"""What Kubernetes has no phase for, though its tools say so."""


def object_status(
    kind: Seen,
    job: Manifest,
    pods: Iterable[Manifest] | None = None,
    events: Iterable[Manifest] | None = None,
) -> ObjectStatus:
    """What is told of an object.

    Args:
        kind: What it is.
        job: The object.
        pods: Its own; None where they were not asked for, or may not be seen.
        events: Its own; likewise.
    """
    standing, metadata = kind.standing(job), job["metadata"]
    count = standing.count
    return ObjectStatus(
        kind=kind.resource.kind,
        api_version=kind.resource.api_version,
        namespace=metadata["namespace"],
        job_name=metadata["name"],
        phase=standing.phase,
        reason=standing.reason,
        message=standing.message,
        submitted_s=_moment(metadata.get("creationTimestamp")),
        scaled_role=count.role,
        replicas_ready=count.ready,
        replicas_wanted=count.wanted,
        replicas_min=count.minimum,
        replicas_max=count.maximum,
        conditions=tuple(map(_condition, standing.conditions)),
        pods=None if pods is None else pod_statuses(kind, pods),
        events=None if events is None else _events(events),
    )


def _condition(condition: Condition) -> ConditionStatus:
    return ConditionStatus(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        changed_s=_moment(condition.last_transition_time),
    )


def _events(events: Iterable[Manifest]) -> tuple[EventStatus, ...]:
    told = [_event(each) for each in events]
    return tuple(sorted(told, key=lambda each: each.time_s or 0.0)[-MAX_EVENTS:])


def _event(event: Manifest) -> EventStatus:
    times = (event.get("lastTimestamp"), event.get("eventTime"), event.get("firstTimestamp"))
    return EventStatus(
        time_s=_moment(next((each for each in times if each), None)),
        type=str(event.get("type") or "Normal"),
        reason=str(event.get("reason") or ""),
        message=str(event.get("message") or ""),
        count=int(event.get("count") or 1),
    )


def _moment(text: Any) -> float | None:
    """Seconds since the epoch; None for what is no moment."""
    with suppress(ValueError, TypeError):
        return seconds_of(text)
    return None


def replica_of(kind: Seen, pod: Manifest) -> str:
    """What people call it: `worker-0`; `trainer-x7k2p` or `rdzv` where there is no index."""
    role, index = kind.role_of(pod)
    if index is not None:
        return f"{role}-{index}"
    own = name_of(pod).rpartition("-")[2]
    return role if own == role else f"{role}-{own}"


def pod_statuses(kind: Seen, pods: Iterable[Manifest]) -> tuple[PodStatus, ...]:
    """The pods as they are told, by role, index and age."""
    ranks = {role: rank for rank, role in enumerate(kind.roles)}

    def order(pod: PodStatus) -> tuple[int, int, float, str]:
        rank = ranks.get(pod.role, len(ranks))
        return rank, pod.index or 0, pod.created_s or 0.0, pod.pod

    return tuple(sorted((_pod_status(kind, pod) for pod in pods), key=order))


def _pod_status(kind: Seen, pod: Manifest) -> PodStatus:
    role, index = kind.role_of(pod)
    status = pod.get("status") or {}
    created = pod["metadata"].get("creationTimestamp")
    return PodStatus(
        replica=replica_of(kind, pod),
        role=role,
        index=index,
        pod=name_of(pod),
        phase=TERMINATING if is_deleted(pod) else phase_of(pod),
        is_ready=is_ready(pod),
        restarts=sum(
            int(each.get("restartCount") or 0) for each in status.get("containerStatuses") or ()
        ),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        message=why_failed(pod) if has_failed(pod) else why_pending(pod),
        created_s=seconds_of(created) if created else None,
    )
