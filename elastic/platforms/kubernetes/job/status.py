"""What a job's status is: what its master published last, corrected by what its pod shows.

Pure: the objects of the API server in, a status out.
"""

from collections.abc import Sequence
from typing import Any, Final

from elastic.errors import PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.manifests import (
    StatusUnreadableError,
    control_of,
    spec_of,
    status_of,
    submission_of,
)
from elastic.platforms.kubernetes.objects.names import JOB_LABEL, SUBMISSION_LABEL
from elastic.platforms.kubernetes.objects.podspec import keeps_versions
from elastic.platforms.kubernetes.pods import masters
from elastic.platforms.kubernetes.pods.masters import Finding, end_of
from elastic.platforms.kubernetes.pods.observation import MASTER_DELETED
from elastic.policy.fleet import desired_workers
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus, with_present_speed

STATUS_UNREADABLE: Final = "StatusUnreadable"
"""The reason of a job whose status is damaged, or of a newer version: the rest is its pod's."""

SUBMITTING_S: Final = 60.0
"""A record without a pod is so long taken for a job that is just being submitted."""


def published_status(status_map: Manifest | None, submission_uid: str) -> JobStatus | None:
    """The status that the master of this submission published last.

    Raises:
        StatusUnreadableError: It is damaged.
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
    """The job as it stands, but for workers that an end has left behind; see `processes`.

    Args:
        record: The ConfigMap that the job was submitted with.
        status_map: The ConfigMap that its master publishes in, if there is one.
        master: The master's pod, if there is one; looked up before `status_map`, so that a master
            that has left has published its end by now.
        now_s: By the API server's clock, which its objects' times are of.
        warnings: Messages of warning events about the pod, oldest first; see `needs_warnings`.
    """
    return with_present_speed(_job_status(record, status_map, master, now_s, warnings))


def _job_status(
    record: Manifest,
    status_map: Manifest | None,
    master: Manifest | None,
    now_s: float,
    warnings: Sequence[str],
) -> JobStatus:
    submission = submission_of(record)
    problem = ""
    try:
        published = published_status(status_map, submission.uid)
    except StatusUnreadableError as error:
        published, problem = None, str(error)
    job_name = record["metadata"]["labels"][JOB_LABEL]
    base = published or JobStatus(job_name=job_name, message="the master begins its work")
    if base.submitted_s is None:
        base = base.model_copy(update={"submitted_s": submission.submitted_s})
    if base.phase.is_final:
        return base
    if master is not None and _submission_of_pod(master) != submission.uid:
        master = None
    end = None if master is None else end_of(master, base.model_copy(update={"workers": ()}))
    if end is not None:
        return end
    if master is None and base.phase is JobPhase.SUSPENDED and not _control_of(record).cancelled:
        # Whoever looks after the job has ended its master, and will make another one.
        return base
    has_begun = bool(problem) or masters.has_begun(published)
    spec, control = _spec_of(record), _control_of(record)
    finding: Finding | None
    if master is None and submission.owner is not None:
        finding = masters.not_made(submission.owner, has_begun)
    elif master is None:
        is_new = not has_begun and now_s - submission.submitted_s < SUBMITTING_S
        finding = _without_master(is_new, spec)
    else:
        told = published if has_begun else None
        finding = masters.find(master, warnings, told, now_s, _advice(spec), submission.owner)
        if not has_begun:
            finding = _before_beginning(finding, spec, master, now_s)
    if control.cancelled:
        finding = _cancelled(base, finding, master)
    if problem:
        finding = _unreadable(finding, problem)
    return _corrected(base, finding, _desired_workers(spec, control))


def _corrected(base: JobStatus, finding: Finding | None, num_desired: int) -> JobStatus:
    """What was published, with what was found."""
    update: dict[str, Any] = {"desired_workers": base.desired_workers or num_desired}
    if finding is not None:
        update |= {
            "phase": finding.phase, "reason": finding.reason, "message": finding.message,
        }  # fmt: skip
        if finding.phase.is_final:
            update["ended_s"] = finding.at_s or base.updated_s or base.submitted_s
        if finding.phase is JobPhase.FAILED:
            update["workers"] = ()
    return base.model_copy(update=update)


def _before_beginning(
    found: Finding | None, spec: JobSpec | None, master: Manifest, now_s: float
) -> Finding | None:
    """What was found, or that the job's master has not begun in time."""
    if spec is None or (found is not None and found.phase.is_final):
        return found
    if masters.is_given_up(master, spec.start_timeout, now_s):
        return masters.too_late(master, spec.start_timeout, _why_not_begun(master, found))
    return found


def _why_not_begun(master: Manifest, found: Finding | None) -> str:
    # The same whether its container runs again in this very moment or not.
    if end := masters.last_end(master):
        return f"each time it ended ({end})"
    return "" if found is None else found.message


def _spec_of(record: Manifest) -> JobSpec | None:
    """The specification, None where another version wrote what this one cannot read."""
    try:
        return spec_of(record)
    except PlatformError:
        return None


def _control_of(record: Manifest) -> JobControl:
    try:
        return control_of(record)
    except PlatformError:
        return JobControl()


def _desired_workers(spec: JobSpec | None, control: JobControl) -> int:
    """What the master is going to want, before it has said so."""
    if spec is None:
        return 0
    return desired_workers(spec.num_workers, control.num_workers, spec.workers_at_first)


def _cancelled(base: JobStatus, found: Finding | None, master: Manifest | None) -> Finding:
    """A job that its user has ended, whatever else is to be seen of it."""
    phase = base.phase if found is None else found.phase
    is_leaving = master is None or bool(master["metadata"].get("deletionTimestamp"))
    if is_leaving or phase.is_final:
        at_s = None if found is None else found.at_s
        return Finding(JobPhase.CANCELLED, "Cancelled", "cancelled by its user", at_s)
    return Finding(phase, "Cancelling", "cancelled by its user, and about to end")


def _unreadable(found: Finding | None, problem: str) -> Finding:
    """A job of which only the pod can be read."""
    phase = JobPhase.RUNNING if found is None else found.phase
    message = "; ".join(filter(None, (problem, "" if found is None else found.message)))
    return Finding(phase, STATUS_UNREADABLE, message, None if found is None else found.at_s)


def _submission_of_pod(pod: Manifest) -> str | None:
    return (pod["metadata"].get("labels") or {}).get(SUBMISSION_LABEL)


def _without_master(is_new: bool, spec: JobSpec | None) -> Finding:
    if is_new:
        return Finding(JobPhase.PENDING, "Submitting", "the job is being submitted")
    message = f"the master pod is gone, and its workers with it: {_advice(spec)}"
    return Finding(JobPhase.FAILED, MASTER_DELETED, message)


def _advice(spec: JobSpec | None) -> str:
    """What to do about a job whose master is gone: --resume is refused where nothing is kept."""
    again = "with --overwrite to start anew"
    if spec is not None and keeps_versions(spec):
        again = f"with --resume to go on from its newest checkpoint or {again}"
    return f"submit the job again, {again}"
