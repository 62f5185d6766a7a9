"""What a job that is submitted again with --resume keeps of its status. Pure."""

from elastic.spec.status import NO_MASTERS, JobPhase, JobStatus
from elastic.spec.status.time_split import TimeCategory


def resumed(status: JobStatus, submitted_s: float | None) -> JobStatus:
    """The status until the new master tells its own: what was reached stays, how it ended does not.

    The account of its time goes on too, from the first submission.

    Args:
        status: Of the job that has ended.
        submitted_s: When that was submitted, as far as its platform knows; a master may not.
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
            "submitted_s": submitted_s if status.submitted_s is None else status.submitted_s,
            "time_split": status.time_split.model_copy(update=waits),
        }
    )
