"""What is told of one ElasticTrainJob at one moment, and what is made and removed of it."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from elastic.controller.kinds.common import (
    Queues,
    name_of,
    queue_of,
    removal_in_s,
    soonest,
    uid_of,
    words_of,
)
from elastic.controller.kinds.elastic_train_job.judgement import (
    NUM_WORKERS_ANNOTATION,
    judge,
    pause_left_s,
    refused,
    rejected,
    wanted_workers,
)
from elastic.controller.kinds.elastic_train_job.view import (
    CHILDREN,
    Life,
    View,
    create_board,
    create_claim,
    create_master,
    create_record,
    create_service,
    create_status,
    create_token,
    group_action,
    life_of,
    overdue_s,
    read_resource,
    view_of,
)
from elastic.controller.reconciling import Action, Delete, Note, Observed, Outcome, Patch, Rejection
from elastic.controller.resources.common import seconds_of
from elastic.controller.resources.elastic_train_job import RESOURCE
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.masters import job_has_begun
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import dump_control
from elastic.platforms.kubernetes.objects.names import QUEUE_LABEL, TRAIN_JOB_LABEL, groups_among
from elastic.platforms.kubernetes.pods import (
    has_failed,
    has_run,
    has_succeeded,
    is_deleted,
    own_state,
)
from elastic.policy.accounts import split_at
from elastic.spec.settings.cluster import state_volume
from elastic.spec.status import JobPhase, JobStatus, TimeCategory

_CLAIM: Final = "spec.state.volumeClaimTemplate"
"""What the claim of a job's state is made from."""
Wait: TypeAlias = float | None
"""Seconds until the next look; None where only a change matters."""


class ElasticTrainJobs:
    """The kind ElasticTrainJob; see `Kind`."""

    resource = RESOURCE
    unwatched = (SECRETS,)
    component = "elastic-train-job-controller"
    sees_cluster = False

    def __init__(self, queues: Queues | None = None) -> None:
        """Args: the queues of the cluster, in which the pods of a job may wait."""
        self._queues = queues or Queues()
        self.children: Sequence[Resource] = (*CHILDREN, *self._queues.groups)
        self.looks_at = self._queues.looks_at

    def job_of(self, resource: Resource, child: Manifest) -> str | None:
        """By the label of what was made from a resource; no other job's objects have it."""
        if resource not in self.children:
            return None
        labels = child["metadata"].get("labels") or {}
        return labels.get(TRAIN_JOB_LABEL)

    def reconcile(self, observed: Observed) -> Outcome:
        """Tell what is new, or else do what is to be done."""
        written = observed.job.get("status") or {}
        if is_deleted(observed.job):
            # What belongs to it goes with it; anything made now would too.
            return Outcome(status=written)
        reading, asked = read_resource(observed.job)
        try:
            view = view_of(observed, reading.spec, asked, self._queues)
        except PlatformError as error:
            return refused(observed, str(error))
        if view is None:
            return refused(observed, reading.problem)
        is_over = view.phase is not None and view.phase.is_final
        # One that has begun is not ended by what becomes of a queue's system.
        if view.record is None and not is_over and (problem := self._problem(view)):
            return refused(observed, problem)
        seen = judge(view, reading)
        if seen.status != written:
            return Outcome(status=seen.status, notes=seen.notes, again_in_s=0.0)
        actions, again_in_s = (end_actions if is_over else live_actions)(view)
        return Outcome(actions, written, again_in_s=soonest(again_in_s, seen.again_in_s))

    def rejected(self, observed: Observed, rejection: Rejection) -> Outcome | None:
        """A job that has not begun is failed; see `refusing.rejected`."""
        is_claim = rejection.create.resource == PERSISTENT_VOLUME_CLAIMS
        return rejected(observed, words_of(rejection, _CLAIM if is_claim else ""))

    def _problem(self, view: View) -> str:
        """Why a job cannot wait where it asks to; empty where it can."""
        if view.spec is None or view.asked is None:
            return ""
        queue, label = view.asked.queue, queue_of(view.resource)
        field = f"metadata.labels.{QUEUE_LABEL}" if label else view.spec.queue_field
        return self._queues.problem_with(queue, field)


def live_actions(view: View) -> tuple[list[Action], Wait]:
    """What brings a job that has not ended nearer to its spec, and when to look again."""
    if view.is_suspended:
        return list(_suspension(view)), _overdue_in_s(view)
    actions = [*_belongings(view), *_scaling(view), *_master(view)]
    pause_in_s = pause_left_s(view) if view.life is Life.FAILED else None
    return actions, soonest(_overdue_in_s(view), pause_in_s)


def end_actions(view: View) -> tuple[list[Action], Wait]:
    """What is left to do for a job that has ended, and when to look again."""
    in_s = removal_wait_s(view)
    if in_s == 0:
        return [remove(view.resource)], None
    return [*_publication_of_end(view), *_pods_left(view)], in_s


def removal_wait_s(view: View) -> Wait:
    """Seconds until a job that has ended is removed; None for never."""
    ttl_s = None if view.spec is None else view.spec.ttl_seconds_after_finished
    ended = next((each for each in view.before.conditions if each.type == view.phase), None)
    if ended is None or ended.last_transition_time is None:
        return None
    return removal_in_s(seconds_of(ended.last_transition_time), ttl_s, view.now_s)


def remove(resource: Manifest) -> Delete:
    """Remove the job itself, and with it all that belongs to it."""
    return Delete(RESOURCE, name_of(resource), uid_of(resource))


def _belongings(view: View) -> Iterator[Action]:
    """What outlives masters; the record first, which tells whose the names of all others are."""
    job = view.job
    if view.record is None:
        yield create_record(job, view.resource)
    yield from _claim(view)
    if view.status_map is None:
        yield create_status(job)
    if not view.has(SERVICES, names.master_name(job.name)):
        yield create_service(job)
    # Before the first pod that names it.
    if job.queue_system in view.queues.systems and (action := group_action(job, view.group)):
        yield action


def _claim(view: View) -> Iterator[Action]:
    state = None if view.spec is None else view.spec.state
    if state is None or state.volume_claim_template is None:
        return
    volume, name = state_volume(view.job.spec.volume), view.claim
    # A template that was written into the spec of a job that is there is none of this job's.
    is_used = volume is not None and volume.claim_name == name
    if name is not None and is_used and not view.has(PERSISTENT_VOLUME_CLAIMS, name):
        template = state.volume_claim_template
        yield create_claim(view.job, name, {"metadata": template.metadata, "spec": template.spec})


def _scaling(view: View) -> Iterator[Action]:
    """Pass an edit of the number of workers on, as `elastic scale` does."""
    wanted, record = wanted_workers(view), view.record
    if wanted is None or record is None or view.asked is None:
        return
    control = view.control.by_user(wanted)
    change = {
        "metadata": {
            # Of two who change at once, one is refused and looks again.
            "resourceVersion": record["metadata"].get("resourceVersion"),
            "annotations": {NUM_WORKERS_ANNOTATION: str(view.asked.num_workers)},
        },
        "data": {names.CONTROL_KEY: dump_control(control)},
    }
    note = Note("Scaled", f"Asked for {wanted} workers, as spec.job.num_workers has it now")
    yield Patch(CONFIGMAPS, name_of(record), change, note)


def _master(view: View) -> Iterator[Action]:
    """Have a master, and beside it a TensorBoard where the job writes its curves."""
    master = view.master
    match view.life:
        case Life.ABSENT:
            # It may have to run elsewhere, and the volume of the curves goes with the master.
            if view.board is not None:
                yield from _end(view, view.board)
            yield create_token(view.job, view.random_hex, view.record is None)
            yield create_master(view.job)
        case Life.ALIVE:
            for create in create_board(view.job):
                if not view.has(create.resource, name_of(create.manifest)):
                    yield create
        case Life.FAILED if pause_left_s(view) > 0:
            return
        case Life.FAILED | Life.OVERDUE:
            assert master is not None, "a pod that has failed, or is to go, is there"
            yield _delete(master, by_force=True)


def _suspension(view: View) -> Iterator[Action]:
    """Have no pods: the master goes first, and may keep its newest version meanwhile."""
    if view.master is not None:
        yield from _end(view, view.master)
    elif view.pods:
        for pod in view.pods:
            yield from _end(view, pod)
        yield from _leaving_queue(view)
    else:
        yield from _publication_of_suspension(view)


def _publication_of_suspension(view: View) -> Iterator[Action]:
    """Tell those who ask without a controller; the next master finds it as it was left."""
    told = view.published
    if told is None or not job_has_begun(told) or told.phase.is_final:
        return
    if told.phase is not JobPhase.SUSPENDED:
        # From now on it waits for its user.
        until_now = split_at(told, view.now_s)
        rests = until_now.model_copy(update={"current": TimeCategory.QUEUE})
        yield _publish(view, told.model_copy(update={"time_split": rests}), JobPhase.SUSPENDED)


def _publication_of_end(view: View) -> Iterator[Action]:
    """Tell of an end that no master has told of: it is known by a pod, or by there being none."""
    told = view.published
    if view.record is None or (told is not None and told.phase.is_final):
        return
    if view.status_map is None:
        yield create_status(view.job)
    assert view.phase is not None, "a job that has ended has a phase"
    yield _publish(view, told or JobStatus(job_name=view.job.name), view.phase)


def _publish(view: View, told: JobStatus, phase: JobPhase) -> Patch:
    """Publish in the place of a master, with the words of the status."""
    written = view.written
    update = {
        "phase": phase,
        "reason": written.get("reason", ""),
        "message": written.get("message", ""),
        "ended_s": written.get("ended_s"),
        "submitted_s": told.submitted_s or written.get("submitted_s"),
        "workers": (),
    }
    text = told.model_copy(update=update).model_dump_json()
    change = {"data": {names.STATUS_KEY: text}}
    return Patch(CONFIGMAPS, names.status_name(view.job.name), change)


def _pods_left(view: View) -> Iterator[Action]:
    """Of a job that has ended: a master that never ran has no log, and workers outlive one."""
    master = view.master
    if master is not None and not has_run(master):
        yield from _end(view, master)
    if master is None or "running" not in own_state(master):
        for pod in view.workers:
            if not has_failed(pod) and not has_succeeded(pod):
                yield from _end(view, pod)
        yield from _leaving_queue(view)


def _leaving_queue(view: View) -> Iterator[Action]:
    """Have Kueue let go of workers that are to go: it holds them for others to take their place."""
    for group in groups_among(pod for pod in view.workers if is_deleted(pod)):
        if end := view.queues.end_of_group(group):
            yield end


def _end(view: View, pod: Manifest) -> Iterator[Action]:
    """Ask a pod to go, once, and by force where nobody can tell any more whether it has."""
    match life_of(pod, view.now_s):
        case Life.OVERDUE | Life.FAILED:
            yield _delete(pod, by_force=True)
        case Life.ALIVE:
            yield _delete(pod)


def _delete(pod: Manifest, by_force: bool = False) -> Delete:
    is_forced = by_force and is_deleted(pod)
    name = name_of(pod)
    told = (
        f"Deleted pod: {name}, whose node does not tell its end"
        if is_forced
        else (f"Deleted pod: {name}")
    )
    note = Note("SuccessfulDeletePod", told)
    return Delete(PODS, name, uid_of(pod), 0.0 if by_force else None, note)


def _overdue_in_s(view: View) -> Wait:
    """Seconds until the next pod that is to go should be gone."""
    waits_s = (overdue_s(pod) - view.now_s for pod in view.pods if is_deleted(pod))
    return soonest(*(each for each in waits_s if each > 0))
