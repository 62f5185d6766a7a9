"""What a pod's JSON means for the replica in it. Pure: a pod in, a `Replica` out.

The last word of a master that is gone is older than the end of its workers, so of those what is
seen of their pods counts.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.names import INDEX_LABEL, LAUNCH_LABEL, TYPE_LABEL
from elastic.platforms.kubernetes.objects.queues import QUEUE_LABEL, is_waiting
from elastic.platforms.kubernetes.pods import states
from elastic.policy.replicas import exit_text, told_id, told_phase
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

OVERDUE_S: Final = 30.0
"""How long after a pod should have been killed its node may still be about to say so."""

ENDING: Final = "Ending"
"""The phase of a worker whose pod is there though its job has ended: it is about to end too."""

MASTER_DELETED: Final = "MasterDeleted"
"""The reason of a job whose workers go with its master's pod."""

_FINAL: Final = frozenset({ReplicaPhase.SUCCEEDED.value, ReplicaPhase.FAILED.value})


def replica_id(pod: Manifest) -> ReplicaId | None:
    """Which launch a pod is; None where it is no replica of ours."""
    labels = pod["metadata"].get("labels") or {}
    role, index, launch = (
        str(labels.get(label) or "") for label in (TYPE_LABEL, INDEX_LABEL, LAUNCH_LABEL)
    )
    if not role or not index.isdecimal() or not launch.isdecimal():
        return None
    return ReplicaId(role, int(index), int(launch))


def role_of(pod: Manifest) -> str:
    """What a pod is to its job; empty where it is none of a job's."""
    return str((pod["metadata"].get("labels") or {}).get(TYPE_LABEL) or "")


def replica_name(pod: Manifest) -> str:
    """`worker-0`, as users name it."""
    labels = pod["metadata"].get("labels") or {}
    return f"{labels.get(TYPE_LABEL, 'pod')}-{labels.get(INDEX_LABEL, '0')}"


def observe(pod: Manifest, replica: ReplicaId, now_s: float | None = None) -> Replica:
    """What is to be seen of one launch of a worker.

    Args:
        pod: Its own.
        replica: Which launch that is.
        now_s: Seconds since the epoch; None where no time is to change what is seen.
    """
    phase, state = states.phase_of(pod), states.own_state(pod)
    started_s = _started_s(state)
    if "terminated" in state:
        terminated = state["terminated"]
        reason, message = states.classify_worker(pod, terminated)
        return _ended(replica, reason, message, terminated.get("exitCode"), started_s)
    if phase == states.SUCCEEDED:
        return _ended(replica, ExitReason.COMPLETED, "", 0, started_s)
    if phase == states.FAILED:
        return _ended(replica, *states.classify_without_container(pod), None, started_s)
    if "running" in state and _is_lost(pod, now_s):
        message = f"its node {_node(pod)} does not answer: {states.deletion_words(pod)}"
        return _ended(replica, ExitReason.KILLED, message, None, started_s)
    if "running" in state:
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        return Replica(replica, ReplicaPhase.RUNNING, started_s=started_s, node=node)
    return Replica(
        replica,
        ReplicaPhase.PENDING,
        message=why_pending(pod),
        is_queued=is_waiting(pod),
    )


def observe_removed(pod: Manifest, replica: ReplicaId) -> Replica:
    """What is to be said of one launch whose pod has been removed, from what was seen last."""
    seen = observe(pod, replica)
    if seen.phase.is_final:
        return seen
    return _ended(replica, ExitReason.KILLED, states.deletion_words(pod), None, seen.started_s)


def ended_as(pod: Manifest, replica: ReplicaId, terminated: Mapping[str, Any]) -> Replica:
    """A replica whose end is told in the form in which a node tells that of a container."""
    reason, message = states.classify(pod, terminated)
    return _ended(replica, reason, message, terminated.get("exitCode"), None)


def last_words(pod: Manifest) -> str:
    """What the replica in a pod wrote last before it ended, as far as the pod tells."""
    return states.last_words(states.own_state(pod).get("terminated") or {})


def why_pending(pod: Manifest) -> str:
    """What a pod waits for that has not begun; empty where it only takes its time."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(kind) or []:
            waiting = (entry.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") and waiting["reason"] not in states.QUIET_WAITS:
                return states.joined(waiting["reason"], waiting.get("message"))
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            told = states.joined(condition.get("reason"), condition.get("message"))
            return states.joined(why_queued(pod), told)
    return why_queued(pod)


def why_queued(pod: Manifest) -> str:
    """That a pod waits in a queue, and in which; empty where it does not."""
    if not is_waiting(pod):
        return ""
    return f"waits in queue {pod['metadata']['labels'][QUEUE_LABEL]}"


def gone(replica: ReplicaId, message: str) -> Replica:
    """A launch whose pod vanished while nobody looked."""
    return _ended(replica, ExitReason.KILLED, message, None, None)


def _is_lost(pod: Manifest, now_s: float | None) -> bool:
    """Whether a pod is to be removed and its node cannot say that it was.

    A pod that leaves in peace may be not ready too: another container of it has ended first. Where
    one had ended before, nobody can mark the pod any more, and only time tells.
    """
    deleted_at = pod["metadata"].get("deletionTimestamp")
    if not deleted_at:
        return False
    # The time by which its node is to have killed it, grace included.
    overdue_s = datetime.fromisoformat(deleted_at).timestamp() + OVERDUE_S
    return states.is_node_silent(pod) or (now_s is not None and now_s > overdue_s)


def _ended(
    replica: ReplicaId, reason: ExitReason, message: str, code: int | None, started_s: float | None
) -> Replica:
    is_completed = reason is ExitReason.COMPLETED
    return Replica(
        replica,
        ReplicaPhase.SUCCEEDED if is_completed else ReplicaPhase.FAILED,
        exit_reason=reason,
        exit_code=code,
        message=message,
        started_s=started_s,
    )


def _started_s(state: Mapping[str, Any]) -> float | None:
    text = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return None if not text else datetime.fromisoformat(text).timestamp()


def _node(pod: Manifest) -> str:
    return str(pod["spec"].get("nodeName", "unknown"))


def needs_pods(status: JobStatus) -> bool:
    """Whether only the pods can tell what became of the workers."""
    is_over = status.phase.is_final or status.reason == MASTER_DELETED
    return is_over and any(worker.phase not in _FINAL for worker in status.workers)


def with_seen_workers(status: JobStatus, pods: Sequence[Manifest]) -> JobStatus:
    """The same status, its workers as their pods show them instead of as the master saw them.

    Args:
        status: One that `needs_pods`.
        pods: Of the job; which roles are among them does not matter.
    """
    seen = {replica_id(pod): pod for pod in pods}
    workers = tuple(_seen(worker, seen.get(told_id(worker)), status) for worker in status.workers)
    return status.model_copy(update={"workers": workers})


def _seen(worker: WorkerStatus, pod: Manifest | None, job: JobStatus) -> WorkerStatus:
    if worker.phase in _FINAL:
        return worker
    is_done = job.phase is JobPhase.SUCCEEDED
    how: dict[str, Any] = {"samples_per_s": 0.0, "message": ""}
    if pod is None:
        is_started = worker.phase != ReplicaPhase.PENDING
        last_exit = "was ended with its job" if is_started else "was not started"
        phase = ReplicaPhase.SUCCEEDED if is_done else ReplicaPhase.FAILED
        return worker.model_copy(update=how | _told_end(phase, last_exit))
    replica = observe(pod, told_id(worker))
    if replica.phase.is_final:
        phase = told_phase(replica, is_needed=not is_done)
        return worker.model_copy(update=how | _told_end(phase, exit_text(replica)))
    if job.phase.is_final or states.is_deleted(pod):
        return worker.model_copy(update=how | {"phase": ENDING})
    return worker


def _told_end(phase: ReplicaPhase, last_exit: str) -> dict[str, Any]:
    return {"phase": phase.value, "last_exit": last_exit}
