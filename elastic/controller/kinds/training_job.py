"""TrainingJob: a master, parameter servers and trainers, created in this order. Pure.

    "" ──▶ creating ──▶ running ──▶ succeeded
     │         │            │
     └─────────┴────────────┴─────▶ failed

When it has ended, master and parameter servers are released, and the pods of the trainers that have
ended stay for their logs. A trainer that still runs then is ended: what it talks to is gone, and it
holds what others wait for.

In which phase it is, its trainers say. Once one has succeeded, Kubernetes starts no other of its
Job and lets those that run come to their end: from then on the job's size is what it is. It takes a
trainer that was asked to go, and ends with 0, for one that has succeeded; we do not, and can only
let the others come to their end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from elastic.controller.kinds import training_look
from elastic.controller.kinds.common import Queues, group_actions, queue_of, words_of
from elastic.controller.kinds.training_look import (
    LABELS,
    RESOURCES,
    child_name,
    child_of,
    size_path,
)
from elastic.controller.reconciling import (
    Action,
    Create,
    Delete,
    Note,
    Observed,
    Outcome,
    Patch,
    Rejection,
)
from elastic.controller.resources.training_job import (
    RESOURCE,
    Phase,
    Role,
    ScaleStatus,
    TrainingJobSpec,
    TrainingJobStatus,
    read_job,
)
from elastic.platforms.kubernetes.api.resources import (
    BATCH_JOBS,
    PODS,
    REPLICA_SETS,
    Manifest,
    Resource,
)
from elastic.platforms.kubernetes.objects.names import job_additions, template_additions
from elastic.platforms.kubernetes.pods import has_failed

COMPONENT: Final = "training-job-controller"

_STOP: Final = {"spec": {"activeDeadlineSeconds": 0}}
"""Ends what still runs of a Job and keeps what has ended. The Job itself ends by it, which tells
queues that its room is free. Without pods to start, `parallelism: 0` would stop none that runs once
another has succeeded."""
TRANSITIONS: Final = {
    Phase.NONE: frozenset({Phase.CREATING, Phase.FAILED}),
    Phase.CREATING: frozenset({Phase.RUNNING, Phase.FAILED}),
    Phase.RUNNING: frozenset({Phase.SUCCEEDED, Phase.FAILED}),
    Phase.SUCCEEDED: frozenset[Phase](),
    Phase.FAILED: frozenset[Phase](),
}


@dataclass(frozen=True, slots=True)
class TrainingJobs:
    """The kind.

    Attributes:
        sizes: How many trainers and parameter servers a job is to have.
        queues: Those of the cluster; the trainers may wait in one.
    """

    sizes: Callable[[TrainingJobSpec, TrainingJobStatus], training_look.Sizes] = (
        training_look.wanted_sizes
    )
    resource: Resource = RESOURCE
    queues: Queues = field(default_factory=Queues)
    unwatched: Sequence[Resource] = ()
    component: str = COMPONENT
    sees_cluster: bool = False

    @property
    def children(self) -> Sequence[Resource]:
        return (REPLICA_SETS, BATCH_JOBS, PODS, *self.queues.groups)

    @property
    def looks_at(self) -> Sequence[Resource]:
        return self.queues.looks_at

    def job_of(self, resource: Resource, child: Manifest) -> str | None:
        """By the label of a role.

        None for pods: those belong to the ReplicaSet or Job that they were made by. One that has
        lost it is to be found by the next of that name, which takes no pod that is another's.
        """
        labels = child["metadata"].get("labels") or {}
        if resource in self.queues.groups:
            return labels.get(LABELS[Role.TRAINER])
        for role, label in LABELS.items():
            if RESOURCES[role] == resource and label in labels:
                return str(labels[label])
        return None

    def reconcile(self, observed: Observed) -> Outcome:
        """Decide by the phase; see the module."""
        job = observed.job
        status = training_look.status_of(job)
        groups = training_look.groups_of(job, observed.children, status)
        if "deletionTimestamp" in job["metadata"]:
            # What belongs to it goes with it; anything made now would too.
            return Outcome(status=training_look.written(status))
        if status.phase.is_final:
            return _ended(groups, status)
        reading = read_job(job)
        if reading.spec is None:
            return _unreadable(job, groups, status, reading.problem)
        # One that trains is not ended by what becomes of a queue's system.
        if status.phase is Phase.NONE and (problem := self.queues.problem(job)):
            return _unreadable(job, groups, status, problem)
        sizes = self.sizes(reading.spec, status)
        queued = self.queues.queued(job, reading.spec.trainer.min_instance)
        lacks_queue = self.queues.lacks(queue_of(job), observed)
        return _live(
            training_look.Look(
                observed, groups, status, reading, reading.spec, sizes, queued, lacks_queue
            )
        )

    def rejected(self, observed: Observed, rejection: Rejection) -> Outcome | None:
        """A job that has not begun to train is failed."""
        job, status = observed.job, training_look.status_of(observed.job)
        if status.phase not in (Phase.NONE, Phase.CREATING):
            return None
        groups = training_look.groups_of(job, observed.children, status)
        return _failed(job, groups, status, words_of(rejection))


def _live(here: training_look.Look) -> Outcome:
    end = end_of(here.groups[Role.TRAINER], here.spec.fault_tolerant)
    before = here.status.phase
    phase = next_phase(before, end, here.all_run)
    reason = end.reason if end is not None and phase is end.phase else ""
    actions = _releases(here.groups, phase) if phase.is_final else _steps(here)
    status = TrainingJobStatus(
        phase=phase,
        reason=reason if phase.is_final else training_look.missing_queue(here),
        scale_status=training_look.scale_status(here),
        replica_statuses=training_look.replica_statuses(here.groups, here.roles),
        observedGeneration=training_look.generation(here.observed.job),
    )
    notes = [*training_look.warnings(here), *training_look.phase_notes(before, phase, reason)]
    if not phase.is_final:
        notes.extend(training_look.queue_news(here))
    return Outcome(actions, training_look.written(status), notes)


def _steps(here: training_look.Look) -> list[Action]:
    """What brings a job nearer to what is wanted; the trainers come after their group."""
    label = {LABELS[Role.TRAINER]: here.name}
    return [*group_actions(here.queued, here.observed, label), *_scalings(here), *_next(here)]


def _next(here: training_look.Look) -> list[Action]:
    """Create the first that is missing, if all before it are ready."""
    for role in here.roles:
        group = here.groups[role]
        if group.owner is None:
            return [_create(here, role)]
        if not here.is_ready(role):
            return []
    return []


def _create(here: training_look.Look, role: Role) -> Create:
    size = here.wanted(role)
    manifest = child_of(here.name, role, here.spec, size)
    if role is Role.TRAINER and here.queued is not None:
        system, gang = here.queued.system, here.queued.gang
        spec = manifest["spec"]
        spec["template"] = template_additions(system, gang).to(spec["template"])
        manifest = job_additions(system, gang).to(manifest)
    pods = f"{size} {'pod' if size == 1 else 'pods'}"
    message = f"created {manifest['kind']} {child_name(here.name, role)} of {pods}"
    return Create(RESOURCES[role], manifest, Note("Created", message))


def _scalings(here: training_look.Look) -> list[Action]:
    """Bring what is there to its size: parameter servers leave before trainers and come after."""
    changes = [
        _scaling(here, role)
        for role in here.roles
        if _may_scale(here.groups[role]) and here.groups[role].size != here.wanted(role)
    ]
    is_growing = here.wanted(Role.PSERVER) > here.groups[Role.PSERVER].size
    return list(reversed(changes)) if is_growing else list(changes)


def _may_scale(group: training_look.Group) -> bool:
    is_over = group.is_complete or bool(group.job_failure)
    return group.owner is not None and not group.is_leaving and not is_over


def _scaling(here: training_look.Look, role: Role) -> Patch:
    size, before = here.wanted(role), here.groups[role].size
    name, path = child_name(here.name, role), size_path(role)
    message = f"{name}: {path} from {before} to {size}, since {here.sizes.of(role).reason}"
    return Patch(RESOURCES[role], name, {"spec": {path: size}}, Note("Scaled", message))


def _ended(groups: training_look.Groups, status: TrainingJobStatus) -> Outcome:
    """Nothing is created any more, and the phase stays; what is left is still told."""
    known = [each.training_resource_type for each in status.replica_statuses]
    scale = status.scale_status
    now = status.model_copy(
        update={
            "replica_statuses": training_look.replica_statuses(groups, known),
            "scale_status": ScaleStatus(
                trainer=training_look.now_has(scale.trainer, groups[Role.TRAINER]),
                pserver=training_look.now_has(scale.pserver, groups[Role.PSERVER]),
            ),
        }
    )
    return Outcome(_releases(groups, status.phase), training_look.written(now))


def _releases(groups: training_look.Groups, phase: Phase) -> list[Action]:
    """Remove master and parameter servers, and let no trainer begin or go on."""
    actions: list[Action] = []
    for role in (Role.MASTER, Role.PSERVER):
        owner = groups[role].owner
        if owner is not None and not groups[role].is_leaving:
            name = str(owner["metadata"]["name"])
            note = Note("Released", f"deleted ReplicaSet {name}, since the job has {phase}")
            actions.append(Delete(REPLICA_SETS, name, str(owner["metadata"]["uid"]), note=note))
    trainers = groups[Role.TRAINER]
    # A Job that is about to be complete is left to that.
    may_go_on = bool(trainers.active) or phase is Phase.FAILED
    if may_go_on and _may_scale(trainers) and not _is_stopped(trainers):
        assert trainers.owner is not None
        name = str(trainers.owner["metadata"]["name"])
        note = Note("Stopped", f"ended what still runs of Job {name}, since the job has {phase}")
        actions.append(Patch(BATCH_JOBS, name, _STOP, note))
    return actions


def _is_stopped(trainers: training_look.Group) -> bool:
    spec = (trainers.owner or {}).get("spec") or {}
    return spec.get("activeDeadlineSeconds") == _STOP["spec"]["activeDeadlineSeconds"]


def _failed(
    job: Manifest, groups: training_look.Groups, status: TrainingJobStatus, problem: str
) -> Outcome:
    """The end of a job that cannot be."""
    end = {
        "phase": Phase.FAILED,
        "reason": problem,
        "observed_generation": training_look.generation(job),
    }
    notes = training_look.phase_notes(status.phase, Phase.FAILED, problem)
    failed = status.model_copy(update=end)
    return Outcome(_releases(groups, Phase.FAILED), training_look.written(failed), notes)


def _unreadable(
    job: Manifest, groups: training_look.Groups, status: TrainingJobStatus, problem: str
) -> Outcome:
    """A new job fails. One that trains goes on as it is until its spec is mended: an error in an
    edit is no reason to lose what was trained.
    """
    if status.phase is Phase.NONE:
        return _failed(job, groups, status, problem)
    known = [each.training_resource_type for each in status.replica_statuses]
    held = status.model_copy(
        update={
            "reason": f"the job goes on as it was: {problem}",
            "replica_statuses": training_look.replica_statuses(groups, known),
            "observed_generation": training_look.generation(job),
        }
    )
    notes = (
        [training_look.warning("InvalidSpec", held.reason)]
        if training_look.is_new_spec(job, status)
        else []
    )
    return Outcome(status=training_look.written(held), notes=notes)


@dataclass(frozen=True, slots=True)
class End:
    """How a job has ended.

    Attributes:
        reason: Why it failed, for people; empty where it succeeded.
    """

    phase: Phase
    reason: str = ""


SUCCESS: Final = End(Phase.SUCCEEDED)


def end_of(trainers: training_look.Group, fault_tolerant: bool) -> End | None:
    """How the trainers have ended their job; None while they have not."""
    if trainers.owner is None or trainers.is_leaving:
        return None
    return _end_of_tolerant(trainers) if fault_tolerant else _end_of_strict(trainers)


def _end_of_strict(trainers: training_look.Group) -> End | None:
    """Each trainer has a part of every step: it takes one to fail, and all to succeed."""
    if trainers.failed:
        return _failed_end(f"a trainer failed: {training_look.failures(trainers.failed)}")
    if trainers.active:
        return None
    if 0 < trainers.num_succeeded >= trainers.size:
        return SUCCESS
    if trainers.is_complete:
        return _failed_end(
            f"{trainers.num_succeeded} of {trainers.size} trainers succeeded and the others were "
            "deleted: Kubernetes starts no pod of a Job after its first success"
        )
    return _given_up(trainers)


def _end_of_tolerant(trainers: training_look.Group) -> End | None:
    """The trainers take tasks from a queue: whoever is left goes on, and the last one to succeed
    has seen its end.
    """
    if trainers.active:
        return None
    if trainers.num_succeeded:
        return SUCCESS
    # Earlier ones were replaced. What was deleted is no failure, and is about to be replaced.
    num_needed = max(trainers.size, 1)
    newest = trainers.pods[-num_needed:]
    if len(newest) == num_needed and all(has_failed(pod) for pod in newest):
        return _failed_end(f"all trainers failed: {training_look.failures(newest)}")
    if trainers.is_complete:
        told = training_look.failures(trainers.failed) or "the others were deleted"
        return _failed_end(f"no trainer succeeded, and Kubernetes starts none any more: {told}")
    return _given_up(trainers)


def _given_up(trainers: training_look.Group) -> End | None:
    if not trainers.job_failure:
        return None
    return _failed_end(f"Kubernetes gave up the Job of the trainers: {trainers.job_failure}")


def _failed_end(reason: str) -> End:
    return End(Phase.FAILED, reason)


def next_phase(phase: Phase, end: End | None, all_run: bool) -> Phase:
    """The phase after this one; the same where nothing has changed.

    A job is seen running before it is seen to have succeeded, however short it was.

    Args:
        phase: One that is not final.
        end: How its trainers have ended it.
        all_run: Whether all that it needs is there, and every trainer runs or has succeeded.
    """
    wanted = phase
    if phase is Phase.NONE:
        wanted = Phase.CREATING
    elif end is not None:
        wanted = end.phase
    elif all_run:
        wanted = Phase.RUNNING
    if wanted is phase or wanted in TRANSITIONS[phase]:
        return wanted
    return Phase.RUNNING
