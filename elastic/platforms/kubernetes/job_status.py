"""What a job's status is: what its master published last, corrected by what its pod shows.

Pure: the objects of the API server in, a status out.
"""

from collections.abc import Sequence
from typing import Any, Final

from elastic.platforms.kubernetes import master_pod, starting
from elastic.platforms.kubernetes.master_pod import Finding
from elastic.platforms.kubernetes.names import JOB_LABEL, SUBMISSION_LABEL, Manifest
from elastic.platforms.kubernetes.record import spec_of, status_of, submission_of
from elastic.spec.status import JobPhase, JobStatus

SUBMITTING_S: Final = 60.0
"""A record without a pod is so long taken for a job that is just being submitted."""


def published_status(status_map: Manifest | None, submission_uid: str) -> JobStatus | None:
    """The status that the master of this submission published last.

    Raises:
        PlatformError: It is damaged.
    """
    if status_map is None:
        return None
    labels = status_map["metadata"].get("labels") or {}
    if labels.get(SUBMISSION_LABEL, submission_uid) != submission_uid:
        return None
    return status_of(status_map)


def job_status(
    record: Manifest,
    status_map: Manifest | None,
    master: Manifest | None,
    now_s: float,
    warnings: Sequence[str] = (),
) -> JobStatus:
    """The job as it stands.

    Args:
        record: The ConfigMap that the job was submitted with.
        status_map: The ConfigMap that its master publishes in, if there is one.
        master: The master's pod, if there is one; looked up before `status_map`, so that a master
            that has left has published its end by now.
        now_s: By the API server's clock, which its objects' times are of.
        warnings: Messages of warning events about the pod, oldest first; see `needs_warnings`.
    """
    submission = submission_of(record)
    published = published_status(status_map, submission.uid)
    job_name = record["metadata"]["labels"][JOB_LABEL]
    base = published or JobStatus(job_name=job_name)
    if base.submitted_s is None:
        base = base.model_copy(update={"submitted_s": submission.submitted_s})
    if base.phase.is_final:
        return base
    if master is not None and _submission_of_pod(master) != submission.uid:
        master = None
    is_new = published is None and now_s - submission.submitted_s < SUBMITTING_S
    finding = (
        _without_master(is_new)
        if master is None
        else _of_master(record, published, master, now_s, warnings)
    )
    if finding is None:
        if published is None:
            return base.model_copy(update={"message": "the master begins its work"})
        return base
    update: dict[str, Any] = {
        "phase": finding.phase, "reason": finding.reason, "message": finding.message,
    }  # fmt: skip
    if finding.phase.is_final:
        update |= {"workers": (), "ended_s": finding.at_s or base.updated_s or base.submitted_s}
    return base.model_copy(update=update)


def needs_warnings(master: Manifest | None) -> bool:
    """Whether the events of the pod may tell more than the pod itself."""
    if master is None or master["status"].get("phase") != "Pending":
        return False
    return bool(master["spec"].get("nodeName"))


def _of_master(
    record: Manifest,
    published: JobStatus | None,
    master: Manifest,
    now_s: float,
    warnings: Sequence[str],
) -> Finding | None:
    """What is wrong with the job's own master, None where it works as it should."""
    found = master_pod.find(master, warnings)
    if starting.has_begun(published) or (found is not None and found.phase.is_final):
        return found
    timeout_s = spec_of(record).start_timeout
    if starting.is_given_up(master, timeout_s, now_s):
        return starting.too_late(master, timeout_s, "" if found is None else found.message)
    return found


def _submission_of_pod(pod: Manifest) -> str | None:
    return (pod["metadata"].get("labels") or {}).get(SUBMISSION_LABEL)


def _without_master(is_new: bool) -> Finding:
    if is_new:
        return Finding(JobPhase.PENDING, "Submitting", "the job is being submitted")
    return Finding(
        JobPhase.FAILED,
        "MasterDeleted",
        "the master pod is gone, and its workers with it: submit the job again, with --resume to "
        "go on from its newest checkpoint or with --overwrite to start anew",
    )
