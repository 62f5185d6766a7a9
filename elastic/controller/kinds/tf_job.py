"""TFJob: places PS and workers, tells TensorFlow of its cluster, and knows the end.

A pass either tells or acts. What is seen is written down first, and only a status that says it all
is followed by actions: so a failed pod is counted before it is removed, and once, whenever the
controller dies; and a job whose pods the cluster refuses to make still tells how it stands.

Jobs are placed one by one, each in what the pods of all leave free when it is asked; or where their
status says, which a scheduler of all of them has written.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from elastic.controller.kinds.placing import Rooms
from elastic.controller.kinds.pods import (
    GROUP_LABEL,
    JOB_LABEL,
    TYPE_LABEL,
    name_of,
    pause_s,
    removal_in_s,
    soonest,
    uid_of,
    words_of,
)
from elastic.controller.kinds.tf_replicas import (
    GROUP,
    Plan,
    Replica,
    View,
    pod_of,
    replicas_of,
    service_of,
)
from elastic.controller.kinds.tf_status import (
    Account,
    account_of,
    deadline_left_s,
    is_ended,
    refused,
    rejected,
)
from elastic.controller.reconciling import Action, Delete, Note, Observed, Outcome, Rejection
from elastic.controller.resources.common import CleanPodPolicy, seconds_of
from elastic.controller.resources.tf_job import (
    RESOURCE,
    SHARE_PODS,
    Role,
    TFJobStatus,
    read_status,
    read_tf_job,
)
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest, Resource
from elastic.platforms.kubernetes.pods.states import is_deleted

LOOK_FOR_ROOM_S: Final = 5.0
"""How often a job looks for room that waits for it: room comes from pods and nodes of others."""


class TFJobs:
    """The kind TFJob, with its scheduler."""

    resource = RESOURCE
    unwatched = ()
    looks_at = ()
    component = "tfjob-controller"
    sees_cluster = True

    def __init__(self, has_kubeshare: bool = False, *, is_planned: bool = False) -> None:
        """Keep what is known of the cluster.

        Args:
            has_kubeshare: Whether it knows SharePods; where it does not, they cannot be watched.
            is_planned: Whether a scheduler of all jobs together writes their sizes and places
                into their status; else each is placed where it fits first.
        """
        self._has_kubeshare, self._is_planned = has_kubeshare, is_planned
        self._rooms = Rooms()
        self.children: Sequence[Resource] = (PODS, SERVICES)
        if has_kubeshare:
            self.children = (PODS, SERVICES, SHARE_PODS)

    def job_of(self, resource: Resource, child: Manifest) -> str | None:
        """The name of the job that has these labels on its children."""
        labels = child["metadata"].get("labels") or {}
        if resource not in self.children or labels.get(GROUP_LABEL) != GROUP:
            return None
        return labels.get(JOB_LABEL)

    def reconcile(self, observed: Observed) -> Outcome:
        """Tell what has changed, or do what is left to be done."""
        job = observed.job
        if is_deleted(job):
            # What it controls is Kubernetes' to remove.
            return Outcome(status=job.get("status") or {})
        before, reading = read_status(job), read_tf_job(job)
        if reading.spec is None:
            return _told(refused(before, reading.problem, observed.now_s))
        replicas = replicas_of(observed)
        view = View(
            observed,
            reading.spec,
            before,
            replicas,
            self._has_kubeshare,
            self._rooms,
            self._is_planned,
        )
        account = account_of(view, reading.unknown)
        if account.status != before:
            return _told(account)
        return Outcome(
            actions=tuple(_clean(view) if account.plan is None else _work(view, account.plan)),
            status=_written(account.status),
            again_in_s=_again_in_s(view, account.plan),
        )

    def rejected(self, observed: Observed, rejection: Rejection) -> Outcome | None:
        """A job whose replicas cannot be made is failed, unless it runs."""
        before = read_status(observed.job)
        labels = rejection.create.manifest["metadata"].get("labels") or {}
        roles = [role for role in Role if role.task_type == labels.get(TYPE_LABEL)]
        template = f"spec.tfReplicaSpecs.{roles[0].value}.template" if roles else ""
        is_pod = rejection.create.resource == PODS
        problem = words_of(rejection, template if is_pod else "")
        account = rejected(before, name_of(observed.job), problem, observed.now_s)
        return None if account is None else _told(account)


def _told(account: Account) -> Outcome:
    """A pass that acts follows, as the job has another status then."""
    return Outcome(status=_written(account.status), notes=account.notes)


def _written(status: TFJobStatus) -> Manifest:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def _work(view: View, plan: Plan) -> Iterator[Action]:
    """Remove what is too many and what has failed, then make what is lacking and has a place."""
    if plan.size is None:
        return
    surplus = [each for each in view.replicas if each.name not in plan.wanted]
    for replica in sorted(surplus, key=lambda each: -each.index):
        yield from _delete(replica)
    for replica in view.replicas:
        if replica.has_failed and replica.name in plan.wanted and not _pause_left_s(view, replica):
            yield from _delete(replica)
    services = view.observed.children.get(SERVICES, ())
    for service in services:
        if name_of(service) not in plan.wanted:
            yield from _delete_service(service)
    there = {name_of(service) for service in services}
    placed = {replica.name for replica in view.replicas} | plan.seats.keys()
    for name, (role, index) in plan.wanted.items():
        if name in placed and name not in there:
            yield service_of(view.name, view.spec, role, index)
    for name, seat in plan.seats.items():
        role, index = plan.wanted[name]
        yield pod_of(view.name, view.namespace, view.spec, role, index, seat)


def _clean(view: View) -> Iterator[Action]:
    """Remove what is to go with the end of the job, and then the job."""
    policy = view.spec.clean_pod_policy
    kept = set()
    for replica in view.replicas:
        goes = policy is CleanPodPolicy.ALL or (
            policy is CleanPodPolicy.RUNNING and not replica.is_over
        )
        if goes:
            yield from _delete(replica)
        else:
            kept.add(replica.name)
    for service in view.observed.children.get(SERVICES, ()):
        if policy is not CleanPodPolicy.NONE and name_of(service) not in kept:
            yield from _delete_service(service)
    if _removal_in_s(view) == 0.0:
        job = view.observed.job
        yield Delete(RESOURCE, view.name, uid_of(job))


def _delete(replica: Replica) -> Iterator[Delete]:
    if not replica.is_deleted:
        is_pod = replica.resource is PODS
        reason, what = ("SuccessfulDeletePod", "pod") if is_pod else _SHARE_POD_DELETED
        note = Note(reason, f"Deleted {what}: {replica.name}")
        yield Delete(replica.resource, replica.name, replica.uid, note=note)


_SHARE_POD_DELETED: Final = ("SuccessfulDeleteSharePod", "SharePod")


def _delete_service(service: Manifest) -> Iterator[Delete]:
    if not is_deleted(service):
        name = name_of(service)
        note = Note("SuccessfulDeleteService", f"Deleted service: {name}")
        yield Delete(SERVICES, name, uid_of(service), note=note)


def _pause_left_s(view: View, replica: Replica) -> float:
    """Seconds until a failed replica is replaced; those that fail at once are not at once."""
    row = view.before.failures.get(replica.name, 1)
    return max(0.0, replica.ended_s + pause_s(row) - view.observed.now_s)


def _removal_in_s(view: View) -> float | None:
    completed = view.before.completion_time
    if completed is None:
        return None
    ttl_s = view.spec.ttl_seconds_after_finished
    return removal_in_s(seconds_of(completed), ttl_s, view.observed.now_s)


def _again_in_s(view: View, plan: Plan | None) -> float | None:
    """When something follows from the time alone."""
    if is_ended(view.before):
        return _removal_in_s(view) or None
    assert plan is not None, "a job that has not ended has a plan"
    deadline_s = deadline_left_s(view)
    pauses = [_pause_left_s(view, each) or None for each in view.replicas if each.has_failed]
    room_s = LOOK_FOR_ROOM_S if plan.missing else None
    return soonest(deadline_s or None, room_s, *pauses)
