"""The workers of a job that has ended or loses its master: what became of each. Pure.

The master's last word is older than their end, so what is seen of their pods counts.
"""

from collections.abc import Sequence
from typing import Any, Final

from elastic.platforms.kubernetes import observation
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.exits import is_deleted
from elastic.policy.fleet import WORKER
from elastic.policy.replicas import ReplicaId, ReplicaPhase, exit_text, told_phase
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

ENDING: Final = "Ending"
"""The phase of a worker whose pod is there though its job has ended: it is about to end too."""

MASTER_DELETED: Final = "MasterDeleted"
"""The reason of a job whose workers go with its master's pod."""

_FINAL: Final = frozenset({ReplicaPhase.SUCCEEDED.value, ReplicaPhase.FAILED.value})


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
    seen = {observation.replica_id(pod): pod for pod in pods}
    workers = tuple(
        _seen(worker, seen.get(ReplicaId(WORKER, worker.index, worker.launch)), status)
        for worker in status.workers
    )
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
        return worker.model_copy(update=how | _ended(phase, last_exit))
    replica = observation.observe(pod, ReplicaId(WORKER, worker.index, worker.launch))
    if replica.phase.is_final:
        phase = told_phase(replica, is_needed=not is_done)
        return worker.model_copy(update=how | _ended(phase, exit_text(replica)))
    if job.phase.is_final or is_deleted(pod):
        return worker.model_copy(update=how | {"phase": ENDING})
    return worker


def _ended(phase: ReplicaPhase, last_exit: str) -> dict[str, Any]:
    return {"phase": phase.value, "last_exit": last_exit}
