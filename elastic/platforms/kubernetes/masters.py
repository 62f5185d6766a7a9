"""What the master's pod says about the job: why no master runs, how it ended, its status. Pure.

As long as no master has begun, none can decide how long it is waited for. Whoever looks at the job
decides by the same rule, and so does a master that comes too late, about itself: what was Failed
for one is Failed for all.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes import pods
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.manifests import (
    MASTER_REPLICA,
    StatusUnreadableError,
    control_of,
    spec_of,
    status_of,
    submission_of,
)
from elastic.platforms.kubernetes.objects.names import (
    JOB_LABEL,
    QUEUE_LABEL,
    SUBMISSION_LABEL,
    ResourceOwner,
    is_waiting,
)
from elastic.platforms.kubernetes.objects.podspec import keeps_versions
from elastic.platforms.kubernetes.pods import MASTER_DELETED
from elastic.policy.fleet import desired_workers
from elastic.policy.replicas import EndJob, on_exit
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus, StoredStatus, with_present_speed

_IMAGE_REASONS: Final = {
    "ErrImagePull": "ErrImagePull",
    # The kubelet goes back and forth between the two; people watch one.
    "ImagePullBackOff": "ErrImagePull",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "InvalidImageName": "InvalidImageName",
    "ImageInspectError": "ErrImagePull",
    "RegistryUnavailable": "ErrImagePull",
}

_BACK_OFF: Final = re.compile(r"back-off (?:(\d+)m)?(?:(\d+)s)? restarting")

START_TIMEOUT: Final = "StartTimeout"
REPORT_S: Final = 10.0
"""A master that starts just in time is told of by its node a little later."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the master's pod says that the master itself cannot.

    Attributes:
        at_s: Since when, where that is known; seconds since the epoch.
    """

    phase: JobPhase
    reason: str
    message: str
    at_s: float | None = None


def find(
    pod: Manifest,
    warnings: Sequence[str],
    published: JobStatus | None,
    now_s: float,
    advice: str = "submit the job again",
    resource: ResourceOwner | None = None,
) -> Finding | None:
    """What is wrong with the master, None where it works as it should.

    Args:
        pod: The master's.
        warnings: Of the cluster about it, oldest first.
        published: The status that it told last.
        now_s: By the API server's clock.
        advice: What to do about a job whose master is gone for good.
        resource: That has the master's pod made again when it is gone; None where nobody does.
    """
    status, phase = pod["status"], pods.phase_of(pod)
    if pods.is_deleted(pod):
        return _deleted(pod, resource)
    if phase == pods.FAILED:
        why = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
        message = f"the cluster has ended the master pod ({why or 'no reason given'})"
        if resource is not None:
            return Finding(JobPhase.RECOVERING, "MasterLost", f"{message}: {_remade(resource)}")
        return Finding(JobPhase.FAILED, "MasterLost", f"{message}: {advice}")
    # The phase is of all containers: another one may go on for ever, or never start.
    state = pods.own_state(pod)
    if "running" in state:
        return _running(pod)
    if phase == pods.SUCCEEDED or (state.get("terminated") or {}).get("exitCode") == 0:
        message = "the master has ended and has published no end of the job: read its log"
        return Finding(JobPhase.FAILED, "MasterLost", message)
    if phase == pods.PENDING and not pods.own_status(pod).get("restartCount"):
        found = _pending(pod, warnings)
        # A job that has begun is not about to be started for the first time.
        has_predecessor = resource is not None and published is not None
        return replace(found, phase=JobPhase.RECOVERING) if has_predecessor else found
    return _hopeless(pod, published) or _between_lives(pod, now_s)


def _deleted(pod: Manifest, resource: ResourceOwner | None) -> Finding:
    what = f"the master pod is being deleted (node {pod['spec'].get('nodeName')})"
    if resource is not None:
        return Finding(JobPhase.RECOVERING, "MasterLost", f"{what}: {_remade(resource)}")
    message = f"{what}, and its workers with it"
    return Finding(JobPhase.RECOVERING, pods.MASTER_DELETED, message)


def not_made(resource: ResourceOwner, has_begun: bool) -> Finding:
    """What is to be said of a job without a master's pod, which its resource has made again.

    Args:
        resource: That the job was made from.
        has_begun: A master has told of itself before.
    """
    if has_begun:
        message = f"the master pod is gone: {_remade(resource)}"
        return Finding(JobPhase.RECOVERING, "MasterLost", message)
    message = f"the controller has yet to make the master of {resource.kind} {resource.name}"
    return Finding(JobPhase.PENDING, "Submitting", message)


def _remade(resource: ResourceOwner) -> str:
    return f"the controller makes {resource.kind} {resource.name} another one"


def needs_warnings(master: Manifest | None) -> bool:
    """Whether the events of the pod may tell more than the pod itself."""
    if master is None or pods.phase_of(master) != pods.PENDING:
        return False
    return bool(master["spec"].get("nodeName"))


def _pending(pod: Manifest, warnings: Sequence[str]) -> Finding:
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = f"the master waits for a node: {condition.get('message', 'none fits')}"
            if is_waiting(pod):
                message = f"the master {pods.why_pending(pod)}"
            return Finding(JobPhase.PENDING, condition.get("reason", "Unschedulable"), message)
    waiting = pods.own_state(pod).get("waiting") or {}
    reason = waiting.get("reason", "")
    cause = _cause(warnings) or waiting.get("message", "")
    if reason in _IMAGE_REASONS:
        image = pods.own_spec(pod).get("image")
        return Finding(
            JobPhase.PENDING,
            _IMAGE_REASONS[reason],
            f"image {image} cannot be used: {cause or reason}: push it where the nodes can pull "
            "it from, or correct --image, --docker_image_repository or --image_pull_policy",
        )
    if reason and reason not in pods.QUIET_WAITS:
        return Finding(JobPhase.PENDING, reason, f"the master cannot start: {cause or reason}")
    if cause:
        return Finding(JobPhase.PENDING, "Starting", f"the master cannot start yet: {cause}")
    return Finding(JobPhase.PENDING, "", "the master is being started")


def _cause(warnings: Sequence[str]) -> str:
    """The newest warning that says more than the name of an error."""
    telling = [text for text in warnings if not text.startswith(("Error: ", "Back-off "))]
    return " ".join(telling[-1].split()) if telling else ""


def _running(pod: Manifest) -> Finding | None:
    if not pods.is_node_silent(pod):
        return None
    message = f"node {pod['spec'].get('nodeName')} of the master does not answer the cluster"
    return Finding(JobPhase.RECOVERING, "MasterUnreachable", message)


def _hopeless(pod: Manifest, published: JobStatus | None) -> Finding | None:
    """The end of a job whose master is not going to do better when the node tries it again.

    That may be minutes from now; the next life of the master comes to the same by the same rule.
    """
    ended = pods.last_terminated(pod)
    if published is None or ended is None:
        return None
    master = pods.ended_as(pod, MASTER_REPLICA, ended)
    _, verdict = on_exit(published.master_history, master, published, cancelled=False)
    if not isinstance(verdict, EndJob) or verdict.phase is None:
        return None
    return Finding(verdict.phase, verdict.reason, verdict.message, _finished_s(ended))


def _between_lives(pod: Manifest, now_s: float) -> Finding:
    return Finding(
        JobPhase.RECOVERING,
        "MasterLost",
        f"the master ended ({last_end(pod) or 'nobody knows how'}) and {_restarts(pod, now_s)}",
    )


def _restarts(pod: Manifest, now_s: float) -> str:
    """When its node starts it again: a node waits longer each time, and says for how long."""
    told = _BACK_OFF.search((pods.own_state(pod).get("waiting") or {}).get("message") or "")
    finished_s = _finished_s(pods.last_terminated(pod) or {})
    if told is None or finished_s is None:
        return "is started again"
    minutes, seconds = (int(part or 0) for part in told.groups())
    left_s = finished_s + 60 * minutes + seconds - now_s
    return f"restarts in about {left_s:.0f} s" if left_s > 1 else "restarts in a moment"


def _finished_s(terminated: Mapping[str, Any]) -> float | None:
    text = terminated.get("finishedAt")
    return None if not text else datetime.fromisoformat(text).timestamp()


def last_end(pod: Manifest) -> str:
    """How the newest life of the master that is over has ended; empty where none is known."""
    ended = pods.last_terminated(pod)
    return _why(pod, ended) if ended else ""


def _why(pod: Manifest, terminated: Mapping[str, Any]) -> str:
    """What it said itself, else what ended it: the log of one that was killed has no reason."""
    message = pods.killed_by(terminated) or pods.classify(pod, terminated)[1]
    return message or f"exit code {terminated.get('exitCode')}"


def job_has_begun(published: JobStatus | None) -> bool:
    """Whether a master of this submission has ever told of itself."""
    # A resumed job has the status of its earlier submission until then, as Pending.
    return published is not None and published.phase is not JobPhase.PENDING


def is_given_up(pod: Manifest, timeout_s: float, now_s: float) -> bool:
    """Whether a job whose master has told nothing is not waited for any more.

    Args:
        pod: The master's.
        timeout_s: The job's `start_timeout`.
        now_s: By the API server's clock.
    """
    if is_waiting(pod):
        return False
    if _running_since_s(pod) is not None:
        return has_missed_its_start(pod, timeout_s, now_s)
    return now_s > _due_since_s(pod) + timeout_s + REPORT_S


def has_missed_its_start(pod: Manifest, timeout_s: float, now_s: float) -> bool:
    """Whether the present life of a master began too late; `now_s` if its node has yet to say."""
    began_s = _running_since_s(pod)
    return (now_s if began_s is None else began_s) > _due_since_s(pod) + timeout_s


def too_late(pod: Manifest, timeout_s: float, cause: str) -> Finding:
    """The end of a job whose master did not start in time."""
    message = f"the master did not start within {timeout_s:g} s (start_timeout={timeout_s:g})"
    return Finding(
        JobPhase.FAILED,
        START_TIMEOUT,
        f"{message}: {cause or 'it could start only later'}",
        at_s=_due_since_s(pod) + timeout_s,
    )


def _running_since_s(pod: Manifest) -> float | None:
    running = pods.own_state(pod).get("running")
    if running is None or not running.get("startedAt"):
        return None
    return datetime.fromisoformat(running["startedAt"]).timestamp()


def _due_since_s(pod: Manifest) -> float:
    """Since when its start is waited for; of one that came out of a queue, since it has a node."""
    labels = pod["metadata"].get("labels") or {}
    for condition in (pod.get("status") or {}).get("conditions") or ():
        is_placed = condition.get("type") == "PodScheduled" and condition.get("status") == "True"
        if QUEUE_LABEL in labels and is_placed and condition.get("lastTransitionTime"):
            return datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()
    return _created_s(pod)


def _created_s(pod: Manifest) -> float:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()


MAX_BYTES: Final = 4096
"""Kubernetes cuts off the rest."""

MAX_MESSAGE: Final = 1000
_KEY: Final = "job_end"
_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(StoredStatus)
_LISTS: Final = frozenset({"events", "audits", "workers", "epochs", "evaluations"})


def reduced(status: JobStatus) -> JobStatus:
    """The same status without whatever may be long."""
    num_audited = status.audits_left_out + sum(audit.num_epochs for audit in status.audits)
    change = {
        "events": (),
        "audits": (),
        "audits_left_out": num_audited,
        "workers": (),
        "epochs": (),
        "evaluations": (),
        "message": status.message[:MAX_MESSAGE],
    }
    return status.model_copy(update=change)


def dump_end(end: JobStatus) -> str:
    """The text that `end_of` finds in the pod: as much of the end as fits."""
    short = reduced(end).model_dump(mode="json", exclude=set(_LISTS))
    least = {name: short[name] for name in ("job_name", "phase", "reason", "ended_s", "progress")}
    brief = {**least, "message": short["message"][: MAX_MESSAGE // 4]}
    # Letters beyond ASCII take more bytes than one, and a path may be long.
    for told in (short, brief, least):
        text = json.dumps({_KEY: told}, ensure_ascii=False)
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


def end_of(master: Manifest, published: JobStatus) -> JobStatus | None:
    """The end that a master left in its pod, beside what it had published before; None for none."""
    terminated: Mapping[str, Any] = pods.own_state(master).get("terminated") or {}
    with suppress(ValueError, TypeError, KeyError, ValidationError):
        end = _STATUS.validate_python(json.loads(terminated.get("message") or "")[_KEY])
        told = {name: getattr(end, name) for name in end.model_fields_set}
        # When the job was submitted is the record's to tell, and the master may not know.
        told = {name: value for name, value in told.items() if value is not None}
        return published.model_copy(update={"message": "", **told}) if end.phase.is_final else None
    return None


# What a job's status is: what its master published last, corrected by what its pod shows.
#
# Pure: the objects of the API server in, a status out.


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
    has_begun = bool(problem) or job_has_begun(published)
    spec, control = _spec_of(record), _control_of(record)
    finding: Finding | None
    if master is None and submission.owner is not None:
        finding = not_made(submission.owner, has_begun)
    elif master is None:
        is_new = not has_begun and now_s - submission.submitted_s < SUBMITTING_S
        finding = _without_master(is_new, spec)
    else:
        told = published if has_begun else None
        finding = find(master, warnings, told, now_s, _advice(spec), submission.owner)
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
    if is_given_up(master, spec.start_timeout, now_s):
        return too_late(master, spec.start_timeout, _why_not_begun(master, found))
    return found


def _why_not_begun(master: Manifest, found: Finding | None) -> str:
    # The same whether its container runs again in this very moment or not.
    if end := last_end(master):
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
