"""Which jobs may go with all that is kept of them, and what would be lost with it. Pure."""

from collections.abc import Sequence
from pathlib import PurePath

from elastic.spec.kinds import JobKind
from elastic.spec.status import JobPhase, JobStatus


def ended_s(status: JobStatus) -> float | None:
    """When a job has ended; None for one that goes on, or where nobody knows.

    An end that no master has told of is dated by what was heard of the job last.
    """
    if not status.phase.is_final:
        return None
    return status.ended_s or status.updated_s or status.submitted_s


def ended_before(statuses: Sequence[JobStatus], moment_s: float) -> list[JobStatus]:
    """The jobs that have ended by then; both clocks are the platform's."""
    return [s for s in statuses if (at_s := ended_s(s)) is not None and at_s <= moment_s]


def only_here(status: JobStatus, own_folder: PurePath, has_kept: bool) -> str:
    """What only the job's own folder has, for people; empty where nothing is lost with it.

    Args:
        status: Of a job that has ended.
        own_folder: Where the job keeps what its user has named no place for.
        has_kept: Whether something is there that another job could go on from.
    """
    if not has_kept or not status.kind.can_resume:
        return ""
    if status.phase is not JobPhase.SUCCEEDED:
        return "what --resume goes on from"
    named = (status.export, status.checkpoint, status.predictions)
    is_own = [PurePath(path).is_relative_to(own_folder) for path in named if path]
    # A model is somewhere even where nobody tells where; predictions may have gone to user code.
    is_result_here = any(is_own) or status.kind is JobKind.TRAIN
    return "results that are nowhere else" if is_result_here and all(is_own) else ""
