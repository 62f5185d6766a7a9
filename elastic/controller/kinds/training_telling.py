"""What is told of a TrainingJob: its status, and the events that are not of actions. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import ValidationError

from elastic.controller.kinds.queueing import queue_missing, queue_notes, queue_of
from elastic.controller.kinds.training_children import MADE_FROM, digest
from elastic.controller.kinds.training_look import Look
from elastic.controller.kinds.training_pods import Group, Groups
from elastic.controller.reconciling import EventType, Note
from elastic.controller.resources.common import time_text, without_blanks
from elastic.controller.resources.training_job import (
    Phase,
    Role,
    RoleScale,
    RoleStatus,
    ScaleStatus,
    TrainingJobSpec,
    TrainingJobStatus,
)
from elastic.platforms.kubernetes.api.resources import Manifest


def scale_status(here: Look) -> ScaleStatus:
    """The sizes; the time is that of the last change of what is wanted."""
    return ScaleStatus(trainer=_scale(here, Role.TRAINER), pserver=_scale(here, Role.PSERVER))


def _scale(here: Look, role: Role) -> RoleScale:
    before, size = here.status.scale_of(role), here.sizes.of(role)
    wanted = here.wanted(role)
    reason = size.reason if wanted == size.wanted else _NONE_STARTED
    has_changed = wanted != before.wanted or before.time is None
    return RoleScale(
        current=len(here.groups[role].active),
        wanted=wanted,
        reason=reason,
        time=time_text(here.observed.now_s) if has_changed else before.time,
    )


_NONE_STARTED: Final = "Kubernetes starts no trainer after the first success"


def now_has(scale: RoleScale, group: Group) -> RoleScale:
    """The size of a role whose job has ended: what was wanted last, and what is left."""
    return scale.model_copy(update={"current": len(group.active)})


def replica_statuses(groups: Groups, roles: Sequence[Role]) -> list[RoleStatus]:
    """The pods of each of these roles."""
    return [
        RoleStatus(
            training_resource_type=role,
            active=len(groups[role].running),
            succeeded=groups[role].num_succeeded,
            failed=len(groups[role].failed),
            resource_states=groups[role].states,
        )
        for role in roles
    ]


def is_new_spec(job: Manifest, status: TrainingJobStatus) -> bool:
    """Whether nothing was told of this spec yet."""
    return status.phase is Phase.NONE or status.observed_generation != generation(job)


def generation(job: Manifest) -> int | None:
    """The number of its spec, which every change of it raises."""
    number: int | None = job["metadata"].get("generation")
    return number


def status_of(job: Manifest) -> TrainingJobStatus:
    """The status as it was written last; of one that somebody made unreadable, the phase.

    Everything else is seen anew, and a job that has ended must not begin again.
    """
    status = job.get("status") or {}
    try:
        return TrainingJobStatus.model_validate(status)
    except ValidationError:
        phase = status.get("phase") if isinstance(status, Mapping) else None
        return TrainingJobStatus(phase=Phase(phase) if phase in tuple(Phase) else Phase.NONE)


def written(status: TrainingJobStatus) -> Manifest:
    """As it is in the object."""
    told: Manifest = without_blanks(status.model_dump(mode="json", by_alias=True))
    return told


def warnings(here: Look) -> list[Note]:
    """What is told of a spec once: when it is first seen."""
    if not is_new_spec(here.observed.job, here.status):
        return []
    notes = []
    if here.reading.unknown:
        names = ", ".join(here.reading.unknown)
        notes.append(warning("UnknownFields", f"{names}: no such field; it is kept and not used"))
    notes.extend(_unused_ranges(here.spec))
    notes.extend(_ignored_changes(here))
    return notes


def _unused_ranges(spec: TrainingJobSpec) -> list[Note]:
    if spec.fault_tolerant:
        return []
    ranges = {Role.PSERVER: spec.pserver, Role.TRAINER: spec.trainer}
    return [
        warning(
            "NotElastic",
            f"spec.{role}.max-instance={each.most} has no effect: without fault_tolerant the job "
            f"stays at min-instance={each.min_instance}",
        )
        for role, each in ranges.items()
        if each.most > each.min_instance
    ]


def _ignored_changes(here: Look) -> list[Note]:
    made = digest(here.spec)
    owners = [here.groups[role].owner for role in Role]
    outdated = [
        str(owner["metadata"]["name"])
        for owner in owners
        if owner is not None
        and (owner["metadata"].get("annotations") or {}).get(MADE_FROM, made) != made
    ]
    if not outdated:
        return []
    return [
        warning(
            "ChangeIgnored",
            f"{', '.join(outdated)} stay as they were made: of a job that was started only "
            "min-instance and max-instance can be changed; submit it anew for the rest",
        )
    ]


def missing_queue(here: Look) -> str:
    """What keeps the trainers of a job waiting whose queue is not there; empty where it is."""
    return queue_missing(*_queue(here)) if here.lacks_queue else ""


def queue_news(here: Look) -> tuple[Note, ...]:
    """That its queue is not there, or has come."""
    is_told = here.status.reason == queue_missing(*_queue(here))
    return queue_notes(*_queue(here), here.lacks_queue, is_told)


def _queue(here: Look) -> tuple[str, str]:
    """The queue that a job asks for, and its namespace."""
    job = here.observed.job
    return queue_of(job), job["metadata"].get("namespace", "default")


def phase_notes(before: Phase, phase: Phase, reason: str) -> list[Note]:
    """The event of a change of phase."""
    if phase is before:
        return []
    match phase:
        case Phase.CREATING:
            return [Note("Creating", "the spec was read; what the job needs is being created")]
        case Phase.RUNNING:
            return [Note("Running", "all that the job needs is ready, and its trainers run")]
        case Phase.SUCCEEDED:
            return [Note("Succeeded", "the trainers have succeeded")]
    return [warning("Failed", reason)]


def warning(reason: str, message: str) -> Note:
    """An event of something that whoever submitted the job should see."""
    return Note(reason, message, EventType.WARNING)
