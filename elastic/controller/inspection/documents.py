"""An object with its pods and events, as it is told. Pure."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from elastic.controller.inspection.pods import pod_statuses
from elastic.controller.inspection.seeing import Seen
from elastic.controller.resources.common import Condition, seconds_of
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.spec.status.objects import ConditionStatus, EventStatus, ObjectStatus

MAX_EVENTS: Final = 20


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
