"""What is counted and told of an ElasticJob: its failures, its conditions, its end. Pure.

    held = workers that run + workers that ended well

    nobody runs, and minReplicas ended well         succeeded
    past activeDeadlineSeconds                      failed
    held < minReplicas, and nobody is to come       failed

Once `minReplicas` workers have ended well nobody is made any more: there is nothing left to do.
"""

from dataclasses import dataclass
from typing import Any, Final

from elastic.controller.kinds.common import (
    Conditions,
    JobCondition,
    deadline_in_s,
    ended_as,
    failures_in_a_row,
    holds,
    is_free,
    is_queue_missing,
    name_of,
    no_longer,
    queue_notes,
    queue_of,
    ran_s,
    replica_labels,
    told,
    uid_of,
    with_queue_notes,
)
from elastic.controller.kinds.elastic_job.objects import STORE, WORKER, View, is_cut_off
from elastic.controller.reconciling import EventType, Note
from elastic.controller.resources.common import (
    ConditionStatus,
    seconds_of,
    time_text,
    with_condition,
)
from elastic.controller.resources.elastic_job import (
    GROUP,
    ElasticJobStatus,
    FailedPod,
    JobPhase,
    WorkerStatus,
    WorkerStatuses,
)
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods import (
    exit_code,
    has_failed,
    has_succeeded,
    is_active,
    is_deleted,
    is_pending,
    why_failed,
    why_pending,
)

DEADLINE_EXCEEDED: Final = "ElasticJobDeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Told:
    """A status, and what is to be told of how it came about."""

    status: ElasticJobStatus
    notes: tuple[Note, ...] = ()

    def then(self, notes: tuple[Note, ...] = (), **changes: Any) -> "Told":
        """The same with more of both."""
        return Told(self.status.model_copy(update=changes), (*self.notes, *notes))


def judge(view: View, unknown: tuple[str, ...], lacks_queue: bool = False) -> Told:
    """The status of a job as it is to be, and what is new in it.

    Args:
        view: The job at this moment.
        unknown: Fields of its spec that nobody knows.
        lacks_queue: Whether the queue that it is to wait in is not there.
    """
    if has_ended(view.before):
        return Told(view.before).then(**_counts_after_end(view))
    told_so_far = _with_beginning(view, unknown)
    told_so_far = _with_failures(view, told_so_far)
    told_so_far = told_so_far.then(**_counts(view))
    end = _end(view, told_so_far.status)
    if end is None:
        told_so_far = _with_queue(view, _with_running(view, told_so_far), lacks_queue)
    else:
        told_so_far = told_so_far.then(
            (Note(end.reason, end.message),),
            conditions=told(
                told_so_far.status.conditions, end.type, end.reason, end.message, view.now_s
            ),
            completion_time=time_text(view.now_s),
        )
    return told_so_far.then(phase=_phase(told_so_far.status.conditions))


def has_ended(status: ElasticJobStatus) -> bool:
    """Whether a job is over; one that was refused never began, and may still be corrected."""
    return ended_as(status.conditions) is not None and status.start_time is not None


def _warn_of_unknown(unknown: tuple[str, ...]) -> tuple[Note, ...]:
    """One event for all fields that were not understood."""
    if not unknown:
        return ()
    message = f"Unknown fields have no effect: {', '.join(unknown)}"
    return (Note("UnknownFields", message, EventType.WARNING),)


def _with_beginning(view: View, unknown: tuple[str, ...]) -> Told:
    """That it was seen, and how its spec has changed since."""
    so_far, before, name, now_s = Told(view.before), view.before, view.owner.name, view.now_s
    generation = view.job["metadata"].get("generation", 1)
    if generation != before.observed_generation:
        so_far = so_far.then(_warn_of_unknown(unknown), observed_generation=generation)
    if before.start_time is None:
        # A spec that was wrong may have been corrected.
        refused = no_longer(before.conditions, JobCondition.FAILED, now_s)
        reason, message = "ElasticJobCreated", f"job {name} is created."
        so_far = so_far.then(
            (Note(reason, message),),
            conditions=told(refused, JobCondition.CREATED, reason, message, now_s),
            start_time=time_text(now_s),
            completion_time=None,
        )
    was, now = before.wanted_replicas, view.spec.replicas
    if was not in {None, now}:
        message = f"ElasticJob {name} is scaled from {was} to {now} workers."
        so_far = so_far.then((Note("ElasticJobScaled", message),))
    labels = replica_labels(name, GROUP, WORKER)
    return so_far.then(
        wanted_replicas=now,
        rdzv_endpoint=view.owner.endpoint,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
    )


def _with_failures(view: View, so_far: Told) -> Told:
    """Each pod that has failed, with what is to become of it."""
    there = {uid_of(pod) for pod in (*view.workers.values(), *filter(None, [view.store]))}
    quick = view.before.quick_failures.items()
    keys = {STORE, *(str(index) for index, _ in view.wanted())}
    so_far = so_far.then(
        failed_pods={uid: v for uid, v in view.before.failed_pods.items() if uid in there},
        quick_failures={k: v for k, v in quick if k in keys},
    )
    before = so_far.status
    for index, pod in view.wanted():
        if pod is not None and has_failed(pod):
            so_far = _with_failure(view, so_far, index, pod)
    is_new = {FailedPod.FREE, FailedPod.SPENT}
    num_new = sum(
        verdict in is_new and before.failed_pods.get(uid) not in is_new
        for uid, verdict in so_far.status.failed_pods.items()
    )
    if num_new:
        so_far = so_far.then((_restarting(view, num_new),))
    return _with_store_end(view, so_far)


def _with_failure(view: View, so_far: Told, index: int, pod: Manifest) -> Told:
    status, uid = so_far.status, uid_of(pod)
    known = status.failed_pods.get(uid)
    verdict = _verdict(view, status, pod) if known in {None, FailedPod.KEPT} else known
    if known is None:
        so_far = so_far.then((_exited(view, pod),))
    if verdict is known:
        return so_far
    changes: dict[str, Any] = {"failed_pods": status.failed_pods | {uid: verdict}}
    if verdict is FailedPod.KEPT:
        return so_far.then(() if view.is_enough else (_kept(view, pod),), **changes)
    if verdict is FailedPod.SPENT:
        changes["restart_count"] = status.restart_count + 1
    else:
        changes["free_restart_count"] = status.free_restart_count + 1
    if not is_cut_off(pod, view.owner):
        changes["quick_failures"] = _with_quick(status, str(index), pod)
    return so_far.then(**changes)


def _verdict(view: View, status: ElasticJobStatus, pod: Manifest) -> FailedPod:
    """What is to become of a failed pod.

    The loss of the store ends all agents with code 1; it is ours, and none of the job's.
    """
    limit = view.spec.backoff_limit
    if view.is_enough:
        return FailedPod.KEPT
    if is_free(pod, view.spec.worker.restart_policy) or is_cut_off(pod, view.owner):
        return FailedPod.FREE
    return FailedPod.SPENT if limit is None or status.restart_count < limit else FailedPod.KEPT


def _with_quick(status: ElasticJobStatus, key: str, pod: Manifest) -> dict[str, int]:
    before = status.quick_failures.get(key, 0)
    return status.quick_failures | {key: failures_in_a_row(before, ran_s(pod))}


def _with_store_end(view: View, so_far: Told) -> Told:
    """The end of the store's pod, which is always one too early; it costs nothing but time."""
    store, status = view.store, so_far.status
    if store is None or not (has_failed(store) or has_succeeded(store)):
        return so_far
    uid = uid_of(store)
    if uid in status.failed_pods:
        return so_far
    message = f"Rendezvous store {name_of(store)} is made anew: {why_failed(store)}"
    return so_far.then(
        (Note("RendezvousStoreEnded", message, EventType.WARNING),),
        failed_pods=status.failed_pods | {uid: FailedPod.FREE},
        quick_failures=_with_quick(status, STORE, store),
    )


def _exited(view: View, pod: Manifest) -> Note:
    where = f"{view.job['metadata'].get('namespace', 'default')}.{name_of(pod)}"
    code = exit_code(pod)
    if not code:
        return Note("PodFailed", f"Pod: {where} failed: {why_failed(pod)}", EventType.WARNING)
    return Note("ExitedWithCode", f"Pod: {where} exited with code {code}")


def _kept(view: View, pod: Manifest) -> Note:
    message = (
        f"Pod {name_of(pod)} is not replaced: all of backoffLimit={view.spec.backoff_limit} is "
        f"spent. Raise it to have failed workers replaced"
    )
    return Note("BackoffLimitExceeded", message, EventType.WARNING)


def _restarting(view: View, num_failed: int) -> Note:
    message = (
        f"ElasticJob {view.owner.name} is restarting because {num_failed} Worker replica(s) failed."
    )
    return Note("ElasticJobRestarting", message, EventType.WARNING)


def _counts(view: View) -> dict[str, Any]:
    failed = view.wanted_pods(has_failed)
    counts = WorkerStatus(active=view.num_active, succeeded=len(view.succeeded), failed=len(failed))
    alive = view.wanted_pods(lambda pod: is_active(pod) or is_pending(pod))
    return {
        "replica_statuses": WorkerStatuses(Worker=counts),
        "replicas": len(alive),
        "succeeded_workers": view.succeeded,
    }


def _counts_after_end(view: View) -> dict[str, Any]:
    """What ended stays counted, whether or not its pod stays."""
    before = view.before.replica_statuses.worker
    active = sum(is_active(pod) for pod in view.workers.values())
    counts = WorkerStatus(active=active, succeeded=before.succeeded, failed=before.failed)
    return {"replica_statuses": WorkerStatuses(Worker=counts), "replicas": active}


def _with_running(view: View, so_far: Told) -> Told:
    """Whether enough workers run, and whether some are about to be made anew."""
    name, now_s, before = view.owner.name, view.now_s, so_far.status.conditions
    replaced = [
        pod
        for pod in view.wanted_pods(has_failed)
        if so_far.status.failed_pods.get(uid_of(pod)) is not FailedPod.KEPT
    ]
    after = no_longer(before, JobCondition.RESTARTING, now_s)
    if replaced:
        note = _restarting(view, len(replaced))
        after = told(before, JobCondition.RESTARTING, note.reason, note.message, now_s)
    held = view.num_active + len(view.succeeded)
    if view.num_active and held >= view.spec.min_size:
        reason, message = "ElasticJobRunning", f"ElasticJob {name} is running."
        is_new = not holds(before, JobCondition.RUNNING)
        after = told(after, JobCondition.RUNNING, reason, message, now_s)
        return so_far.then((Note(reason, message),) if is_new else (), conditions=after)
    return _with_waiting(view, so_far, after)


def _with_queue(view: View, so_far: Told, is_missing: bool) -> Told:
    """That its queue is not there, or has come."""
    before, namespace = so_far.status.conditions, view.job["metadata"].get("namespace", "default")
    notes = queue_notes(queue_of(view.job), namespace, is_missing, is_queue_missing(before))
    return so_far.then(notes, conditions=with_queue_notes(before, notes, view.now_s))


def _with_waiting(view: View, so_far: Told, after: Conditions) -> Told:
    reason, message = "ElasticJobWaiting", _waits(view)
    was_running = holds(after, JobCondition.RUNNING)
    after = with_condition(
        after, JobCondition.RUNNING, ConditionStatus.FALSE, reason, message, view.now_s
    )
    return so_far.then((Note(reason, message),) if was_running else (), conditions=after)


def _waits(view: View) -> str:
    """What a job waits for that does not run."""
    told_so_far = (
        f"ElasticJob {view.owner.name} waits: {view.num_active} of at least "
        f"{view.spec.min_size} workers run."
    )
    if not view.can_meet:
        told_so_far += " Its rendezvous store is not ready."
    stores = [view.store] if view.store is not None and is_pending(view.store) else []
    for pod in (*stores, *view.wanted_pods(is_pending)):
        if why := why_pending(pod):
            return f"{told_so_far} {name_of(pod)} is pending: {why}"
    return told_so_far


@dataclass(frozen=True, slots=True)
class _End:
    type: JobCondition
    reason: str
    message: str


def _end(view: View, status: ElasticJobStatus) -> _End | None:
    """How the job ends, where this is its end."""
    assert status.start_time is not None
    job, deadline_s = f"ElasticJob {view.owner.name}", view.spec.active_deadline_seconds
    if not view.num_active and view.is_enough:
        message = f"{job} is successfully completed."
        return _End(JobCondition.SUCCEEDED, "ElasticJobSucceeded", message)
    if deadline_in_s(seconds_of(status.start_time), deadline_s, view.now_s) == 0:
        message = (
            f"{job} is failed because it was active for longer than "
            f"activeDeadlineSeconds={deadline_s}."
        )
        return _End(JobCondition.FAILED, DEADLINE_EXCEEDED, message)
    held = view.num_active + len(view.succeeded)
    if held < view.spec.min_size and not _is_anybody_to_come(view, status):
        failed = status.replica_statuses.worker.failed
        message = f"{job} is failed because {failed} Worker replica(s) failed."
        return _End(JobCondition.FAILED, "ElasticJobFailed", message)
    return None


def _is_anybody_to_come(view: View, status: ElasticJobStatus) -> bool:
    """Whether a worker is about to run, or is to be made."""

    def may_come(index: int, pod: Manifest | None) -> bool:
        if pod is None:
            return index not in view.succeeded
        if has_failed(pod):
            return status.failed_pods.get(uid_of(pod)) is not FailedPod.KEPT
        return is_pending(pod) or is_deleted(pod)

    return any(may_come(index, pod) for index, pod in view.wanted())


def _phase(conditions: Conditions) -> JobPhase:
    ended = ended_as(conditions)
    if ended is not None:
        return JobPhase(ended.value)
    for type_ in (JobCondition.RUNNING, JobCondition.RESTARTING):
        if holds(conditions, type_):
            return JobPhase(type_.value)
    return JobPhase.CREATED
