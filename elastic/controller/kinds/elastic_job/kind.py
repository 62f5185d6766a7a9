"""What is told of one ElasticJob at one moment, and what is made and removed of it. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic import ValidationError

from elastic.controller.kinds.common import (
    GROUP_LABEL,
    JOB_LABEL,
    TYPE_LABEL,
    JobCondition,
    Queues,
    deadline_in_s,
    find_condition,
    group_actions,
    holds,
    index_of,
    job_ended_s,
    name_of,
    pause_s,
    pod_ended_s,
    queue_of,
    ready_s,
    removal_in_s,
    replica_labels,
    replica_name,
    soonest,
    to_remove_at_end,
    told,
    uid_of,
    words_of,
)
from elastic.controller.kinds.elastic_job.judgement import DEADLINE_EXCEEDED, has_ended, judge
from elastic.controller.kinds.elastic_job.objects import (
    STORE,
    WORKER,
    View,
    is_cut_off,
    is_outdated,
    store_name,
    store_pod,
    store_service,
    view_of,
    worker_pod,
    worker_service,
)
from elastic.controller.reconciling import (
    Action,
    Create,
    Delete,
    EventType,
    Note,
    Observed,
    Outcome,
    Patch,
    Rejection,
)
from elastic.controller.resources.common import (
    CleanPodPolicy,
    Reading,
    read_spec,
    seconds_of,
    time_text,
)
from elastic.controller.resources.elastic_job import (
    GROUP,
    RESOURCE,
    ElasticJobSpec,
    ElasticJobStatus,
    FailedPod,
    JobPhase,
)
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest, Resource
from elastic.platforms.kubernetes.objects.names import LAST_ANNOTATION
from elastic.platforms.kubernetes.pods import (
    has_failed,
    has_succeeded,
    is_active,
    is_deleted,
    is_pending,
)

INVALID: Final = "ElasticJobInvalid"
"""The reason of a job that never began, since nobody can tell what it is to be."""

_MAX_NAME: Final = 63
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""Of a service, and so of a job."""
CUT_OFF_S = 60.0
"""How long after a new store is ready a worker of the old one may still run.

Agents that lost their store end within seconds. One whose connection hangs would train on alone,
and the others wait for it.
"""

OVERDUE_S = 30.0
"""How long after a store's pod should have ended its node may still say so; then it is forgotten.

It keeps nothing that could be spoiled. A worker might, so workers wait for their nodes.
"""


class ElasticJobs:
    """The kind ElasticJob; see `Kind`."""

    resource = RESOURCE
    unwatched = ()
    component = "elastic-job-controller"
    sees_cluster = False

    def __init__(self, queues: Queues | None = None) -> None:
        """Args: the queues of the cluster, in which the pods of a job may wait."""
        self._queues = queues or Queues()
        self.children: Sequence[Resource] = (PODS, SERVICES, *self._queues.groups)
        self.looks_at = self._queues.looks_at

    def job_of(self, resource: Resource, child: Manifest) -> str | None:
        """By the labels that all objects of a job have."""
        labels = child["metadata"].get("labels") or {}
        if resource not in self.children or labels.get(GROUP_LABEL) != GROUP:
            return None
        return labels.get(JOB_LABEL)

    def reconcile(self, observed: Observed) -> Outcome:
        """Tell what is new, or else do what is to be done."""
        written = observed.job.get("status") or {}
        if is_deleted(observed.job):
            return Outcome(status=written)
        before = _read_status(written)
        reading = _read(observed.job)
        if reading.spec is None:
            return _refused(observed, before, reading.problem)
        # One that has begun is not ended by what becomes of a queue's system.
        if before.start_time is None and (problem := self._queues.problem(observed.job)):
            return _refused(observed, before, problem)
        queued = self._queues.queued(observed.job, reading.spec.min_size)
        view = view_of(observed, reading.spec, before, queued)
        lacks_queue = self._queues.lacks(queue_of(observed.job), observed)
        seen = judge(view, reading.unknown, lacks_queue)
        status = _written(seen.status)
        if status != written:
            return Outcome(status=status, notes=seen.notes, again_in_s=0.0)
        actions, again_in_s = (end_actions if has_ended(before) else live_actions)(view)
        return Outcome(actions, status, again_in_s=again_in_s)

    def rejected(self, observed: Observed, rejection: Rejection) -> Outcome | None:
        """A job whose workers cannot be made is failed, unless enough of them run."""
        before = _read_status(observed.job.get("status") or {})
        if has_ended(before) or holds(before.conditions, JobCondition.RUNNING):
            return None
        labels = rejection.create.manifest["metadata"].get("labels") or {}
        is_worker = rejection.create.resource == PODS and labels.get(TYPE_LABEL) == WORKER
        template = "spec.replicaSpecs.Worker.template" if is_worker else ""
        name = name_of(observed.job)
        message = f"ElasticJob {name} is failed because {words_of(rejection, template)}"
        return _failed(before, {}, message, observed.now_s)


def _read(job: Manifest) -> Reading[ElasticJobSpec]:
    reading = read_spec(ElasticJobSpec, job)
    problem = "" if reading.spec is None else _name_problem(name_of(job), reading.spec)
    return Reading(None, problem, reading.unknown) if problem else reading


def _name_problem(name: str, spec: ElasticJobSpec) -> str:
    longest = replica_name(name, WORKER, spec.max_size - 1)
    if len(longest) <= _MAX_NAME and _NAME.fullmatch(name):
        return ""
    most = _MAX_NAME - (len(longest) - len(name))
    return (
        f"metadata.name={name!r}: must be at most {most} characters, small letters, digits and "
        f"'-', beginning with a letter, since services are called after it, such as {longest}"
    )


def _refused(observed: Observed, before: ElasticJobStatus, problem: str) -> Outcome:
    """A spec that cannot be read fails a job that has not begun; one that runs keeps what it has.

    A slip of an editor shall not end days of training.
    """
    name, now_s = name_of(observed.job), observed.now_s
    generation = observed.job["metadata"].get("generation", 1)
    if before.observed_generation == generation or has_ended(before):
        return Outcome(status=_written(before))
    changes: dict[str, Any] = {"observed_generation": generation}
    if before.start_time is None:
        message = f"ElasticJob {name} is failed because {problem}"
        return _failed(before, changes, message, now_s)
    message = f"ElasticJob {name} keeps its workers as they are, since {problem}"
    notes = (Note(INVALID, message, EventType.WARNING),)
    return Outcome(status=_written(before.model_copy(update=changes)), notes=notes)


def _failed(
    before: ElasticJobStatus, changes: dict[str, Any], message: str, now_s: float
) -> Outcome:
    """The end of a job that cannot be."""
    conditions = told(before.conditions, JobCondition.FAILED, INVALID, message, now_s)
    end = {
        "conditions": conditions, "completion_time": time_text(now_s), "phase": JobPhase.FAILED,
    }  # fmt: skip
    notes = (Note(INVALID, message, EventType.WARNING),)
    return Outcome(status=_written(before.model_copy(update=changes | end)), notes=notes)


def _read_status(written: Manifest) -> ElasticJobStatus:
    """What was written last; a status that is none of ours tells nothing."""
    try:
        return ElasticJobStatus.model_validate(written)
    except ValidationError:
        return ElasticJobStatus.model_validate({})


def _written(status: ElasticJobStatus) -> Manifest:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def live_actions(view: View) -> tuple[list[Action], float | None]:
    """What brings a job that has not ended nearer to its spec, and when to look again."""
    waits_s = [_deadline_s(view), *_pauses_s(view), *_store_waits_s(view)]
    actions = [*_removals(view), *_store_removals(view), *_group(view), *_creations(view)]
    return actions, soonest(*(each for each in waits_s if each is None or each > 0))


def end_actions(view: View) -> tuple[list[Action], float | None]:
    """What is left to do for a job that has ended, and when to look again."""
    at_s = job_ended_s(view.before.conditions)
    ttl_s = view.spec.ttl_seconds_after_finished
    in_s = None if at_s is None else removal_in_s(at_s, ttl_s, view.now_s)
    if in_s == 0:
        return [Delete(RESOURCE, view.owner.name, view.owner.uid)], None
    policy = view.spec.clean_pod_policy
    failed = find_condition(view.before.conditions, JobCondition.FAILED)
    if failed is not None and failed.reason == DEADLINE_EXCEEDED and policy is CleanPodPolicy.NONE:
        # Else a deadline would end nothing.
        policy = CleanPodPolicy.RUNNING
    pods = to_remove_at_end(list(view.workers.values()), policy)
    actions: list[Action] = [*_leaving_queue(view), *(_delete_pod(pod) for pod in pods)]
    stay = {name_of(pod) for pod in view.workers.values() if not is_deleted(pod)}
    stay -= {name_of(pod) for pod in pods}
    is_store_needed = any(is_active(view.workers[index]) for index in _indexes_of(view, stay))
    if is_store_needed:
        stay.add(store_name(view.owner.name))
    elif view.store is not None and not is_deleted(view.store):
        actions.append(_delete_pod(view.store))
    actions += [
        _delete_service(service)
        for name, service in view.services.items()
        if name not in stay and not is_deleted(service)
    ]
    return actions, in_s


def _indexes_of(view: View, names: set[str]) -> Iterator[int]:
    return (index for index, pod in view.workers.items() if name_of(pod) in names)


def _removals(view: View) -> Iterator[Action]:
    """Of workers: those beyond the wanted ones, highest first, and those to be made anew."""
    wanted = {index for index, _ in view.wanted()}
    for index in sorted(view.workers, reverse=True):
        pod = view.workers[index]
        if is_deleted(pod):
            continue
        if index not in wanted or _is_to_be_replaced(view, index, pod):
            yield _delete_pod(pod)
    for name, service in sorted(view.services.items(), reverse=True):
        index_there = index_of(name, view.owner.name, WORKER)
        is_surplus = index_there is not None and index_there not in wanted
        if is_surplus and not is_deleted(service):
            yield _delete_service(service)


def _is_to_be_replaced(view: View, index: int, pod: Manifest) -> bool:
    if view.is_enough:
        return False
    if has_failed(pod):
        return _pause_left_s(view, str(index), pod) == 0
    if is_pending(pod) and is_cut_off(pod, view.owner):
        # It would begin with a store that is no more.
        return view.can_meet
    is_alive = is_active(pod) or is_pending(pod)
    return is_alive and (
        is_outdated(pod, view.owner, view.num_active) or _cut_off_left_s(view, pod) == 0
    )


def _pause_left_s(view: View, key: str, pod: Manifest) -> float | None:
    """Seconds until a pod that is over is replaced; None where it is not to be."""
    verdict = view.before.failed_pods.get(uid_of(pod))
    if verdict not in {FailedPod.FREE, FailedPod.SPENT}:
        return None
    pause = pause_s(view.before.quick_failures.get(key, 1))
    return max(0.0, pod_ended_s(pod) + pause - view.now_s)


def _cut_off_left_s(view: View, pod: Manifest) -> float | None:
    """Seconds until a worker that runs without its store is ended; None where it has it."""
    if not is_active(pod) or not view.can_meet or not is_cut_off(pod, view.owner):
        return None
    since_s = None if view.store is None else ready_s(view.store)
    return None if since_s is None else max(0.0, since_s + CUT_OFF_S - view.now_s)


def _pauses_s(view: View) -> Iterator[float | None]:
    for index, pod in view.wanted():
        if pod is not None and has_failed(pod):
            yield _pause_left_s(view, str(index), pod)
        elif pod is not None:
            yield _cut_off_left_s(view, pod)


def _deadline_s(view: View) -> float | None:
    started = view.before.start_time
    if started is None:
        return None
    return deadline_in_s(seconds_of(started), view.spec.active_deadline_seconds, view.now_s)


def _store_removals(view: View) -> Iterator[Action]:
    store = view.store
    if store is not None:
        if is_deleted(store):
            if _overdue_in_s(view, store) == 0:
                yield Delete(PODS, name_of(store), uid_of(store), grace_s=0)
        elif not view.owner.has_own_store or _is_store_over(view, store) or _is_spent(view):
            yield _delete_pod(store)
    service = view.services.get(store_name(view.owner.name))
    if service is not None and not view.owner.has_own_store and not is_deleted(service):
        yield _delete_service(service)


def _is_store_over(view: View, store: Manifest) -> bool:
    is_over = has_failed(store) or has_succeeded(store)
    return is_over and _pause_left_s(view, STORE, store) == 0


def _is_spent(view: View) -> bool:
    """Whether all workers of the store have failed: the last agent to end closes its rendezvous.

    Whoever joined that one would be refused; a new store begins with an open one.
    """
    failed = view.wanted_pods(has_failed)
    if view.succeeded or view.wanted_pods(lambda pod: is_active(pod) or is_pending(pod)):
        return False
    is_due = any(
        _pause_left_s(view, str(index), pod) == 0
        for index, pod in view.wanted()
        if pod is not None and has_failed(pod)
    )
    return is_due and any(not is_cut_off(pod, view.owner) for pod in failed)


def _store_waits_s(view: View) -> Iterator[float | None]:
    if view.store is None:
        return
    if is_deleted(view.store):
        yield _overdue_in_s(view, view.store)
    elif has_failed(view.store) or has_succeeded(view.store):
        yield _pause_left_s(view, STORE, view.store)


def _overdue_in_s(view: View, store: Manifest) -> float:
    at_s = seconds_of(store["metadata"]["deletionTimestamp"])
    return max(0.0, at_s + OVERDUE_S - view.now_s)


def _group(view: View) -> list[Action]:
    """Its group is there before the first worker, and knows how many have to start together."""
    labels = replica_labels(view.owner.name, GROUP, WORKER)
    return group_actions(view.owner.queued, view.observed, labels)


def _leaving_queue(view: View) -> Iterator[Action]:
    """Have Kueue count on no further pod of the job's group, and let go of those there."""
    told = [pod["metadata"].get("annotations") or {} for pod in view.members]
    if view.members and not any(LAST_ANNOTATION in each for each in told):
        change = {"metadata": {"annotations": {LAST_ANNOTATION: "false"}}}
        yield Patch(PODS, name_of(view.members[0]), change)


def _creations(view: View) -> Iterator[Action]:
    owner = view.owner
    if view.is_enough:
        return
    if owner.has_own_store:
        if store_name(owner.name) not in view.services:
            yield _create(SERVICES, store_service(owner))
        if view.store is None:
            yield _create(PODS, store_pod(owner))
    # One by one: what a quota refuses ends the pass, and the first workers may be enough.
    for index, pod in view.wanted():
        if replica_name(owner.name, WORKER, index) not in view.services:
            yield _create(SERVICES, worker_service(owner, index))
        if pod is None and index not in view.succeeded and view.can_meet:
            yield _create(PODS, worker_pod(owner, index, view.pod_names))


def _create(resource: Resource, manifest: Manifest) -> Create:
    note = Note(
        f"SuccessfulCreate{resource.kind}", f"Created {resource.kind.lower()}: {name_of(manifest)}"
    )
    return Create(resource, manifest, note)


def _delete_pod(pod: Manifest) -> Delete:
    note = Note("SuccessfulDeletePod", f"Deleted pod: {name_of(pod)}")
    return Delete(PODS, name_of(pod), uid_of(pod), note=note)


def _delete_service(service: Manifest) -> Delete:
    note = Note("SuccessfulDeleteService", f"Deleted service: {name_of(service)}")
    return Delete(SERVICES, name_of(service), uid_of(service), note=note)
