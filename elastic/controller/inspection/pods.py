"""A pod of an object: what it is called, and how it is. Pure."""

from collections.abc import Iterable
from typing import Final

from elastic.controller.inspection.seeing import Seen
from elastic.controller.kinds.pods import name_of
from elastic.controller.resources.common import seconds_of
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.observation import why_pending
from elastic.platforms.kubernetes.pods.states import (
    has_failed,
    is_deleted,
    is_ready,
    phase_of,
    why_failed,
)
from elastic.spec.status.objects import PodStatus

TERMINATING: Final = "Terminating"
"""What Kubernetes has no phase for, though its tools say so."""


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
