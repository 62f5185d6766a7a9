"""What is kept of a job that has ended: what a resumed one goes on with, which ones may go."""

from collections.abc import Sequence
from pathlib import PurePath

from elastic.spec.kinds import JobKind
from elastic.spec.status import NO_MASTERS, JobPhase, JobStatus, Progress
from elastic.spec.status.time_split import TimeCategory


def resumed(status: JobStatus, submitted_s: float | None, kind: JobKind) -> JobStatus:
    """The status until the new master tells its own: what was reached stays, how it ended does not.

    The account of its time goes on too, from the first submission.

    Args:
        status: Of the job that has ended.
        submitted_s: When that was submitted, as far as its platform knows; a master may not.
        kind: Of the new one. What a job of another kind has counted, it does not compute again.
    """
    waits = {"current": TimeCategory.QUEUE}
    return status.model_copy(
        update={
            "phase": JobPhase.PENDING,
            "reason": "",
            "message": "",
            "ended_s": None,
            # Who resumes a job has mended what failed it.
            "master_history": NO_MASTERS,
            "workers": (),
            "progress": status.progress if status.kind is kind else Progress(),
            "submitted_s": submitted_s if status.submitted_s is None else status.submitted_s,
            "time_split": status.time_split.model_copy(update=waits),
        }
    )


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
