"""What a job's status is: what its master published last, corrected by what its pod shows.

Pure: the objects of the API server in, a status out.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from elastic.platforms.kubernetes.names import JOB_LABEL, SUBMISSION_LABEL, Manifest
from elastic.platforms.kubernetes.record import status_of, submission_of
from elastic.spec.status import JobPhase, JobStatus

SUBMITTING_S: Final = 60.0
"""A record without a pod is so long taken for a job that is just being submitted."""

_IMAGE_REASONS: Final = {
    "ErrImagePull": "ErrImagePull",
    # The kubelet goes back and forth between the two; people watch one.
    "ImagePullBackOff": "ErrImagePull",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "InvalidImageName": "InvalidImageName",
    "ImageInspectError": "ErrImagePull",
    "RegistryUnavailable": "ErrImagePull",
}
_USUAL_WAITS: Final = frozenset({"ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class Finding:
    """What the master's pod says that the master itself cannot."""

    phase: JobPhase
    reason: str
    message: str


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
    finding = _without_master(is_new) if master is None else _find(master, warnings)
    if finding is None:
        if published is None:
            return base.model_copy(update={"message": "the master begins its work"})
        return base
    update: dict[str, Any] = {
        "phase": finding.phase, "reason": finding.reason, "message": finding.message,
    }  # fmt: skip
    if finding.phase.is_final:
        update |= {"workers": (), "ended_s": base.updated_s or submission.submitted_s}
    return base.model_copy(update=update)


def needs_warnings(master: Manifest | None) -> bool:
    """Whether the events of the pod may tell more than the pod itself."""
    if master is None or master["status"].get("phase") != "Pending":
        return False
    return bool(master["spec"].get("nodeName"))


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


def _find(pod: Manifest, warnings: Sequence[str]) -> Finding | None:
    """What is wrong with the master, None where it works as it should."""
    status = pod["status"]
    if pod["metadata"].get("deletionTimestamp"):
        node = pod["spec"].get("nodeName")
        return Finding(
            JobPhase.RECOVERING,
            "MasterDeleted",
            f"the master pod is being deleted (node {node}), and its workers with it",
        )
    match status.get("phase"):
        case "Pending":
            return _pending(pod, warnings)
        case "Succeeded":
            message = "the master has ended and has published no end of the job: read its log"
            return Finding(JobPhase.FAILED, "MasterLost", message)
        case "Failed":
            why = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
            return Finding(
                JobPhase.FAILED,
                "MasterLost",
                f"the cluster has ended the master pod ({why or 'no reason given'}): submit the "
                "job again, with --resume to go on from its newest checkpoint",
            )
    return _running(pod)


def _pending(pod: Manifest, warnings: Sequence[str]) -> Finding:
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = f"the master waits for a node: {condition.get('message', 'none fits')}"
            return Finding(JobPhase.PENDING, condition.get("reason", "Unschedulable"), message)
    waiting = (_container(pod).get("state") or {}).get("waiting") or {}
    reason = waiting.get("reason", "")
    cause = _cause(warnings) or waiting.get("message", "")
    if reason in _IMAGE_REASONS:
        image = pod["spec"]["containers"][0]["image"]
        return Finding(
            JobPhase.PENDING,
            _IMAGE_REASONS[reason],
            f"image {image} cannot be used: {cause or reason}: push it where the nodes can pull "
            "it from, or correct --image, --docker_image_repository or --image_pull_policy",
        )
    if reason and reason not in _USUAL_WAITS:
        return Finding(JobPhase.PENDING, reason, f"the master cannot start: {cause or reason}")
    if cause:
        return Finding(JobPhase.PENDING, "Starting", f"the master cannot start yet: {cause}")
    return Finding(JobPhase.PENDING, "", "the master is being started")


def _cause(warnings: Sequence[str]) -> str:
    """The newest warning that says more than the name of an error."""
    telling = [text for text in warnings if not text.startswith(("Error: ", "Back-off "))]
    return " ".join(telling[-1].split()) if telling else ""


def _running(pod: Manifest) -> Finding | None:
    container = _container(pod)
    state = container.get("state") or {}
    if "running" not in state:
        last = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
        restarts = container.get("restartCount", 0)
        return Finding(
            JobPhase.RECOVERING,
            "MasterLost",
            f"the master ended ({_last_words(last)}) and is started again, "
            f"after {restarts} restarts so far",
        )
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions") or ()}
    # Only the control plane can say so of a container that its own node calls ready.
    if container.get("ready") and conditions.get("Ready") == "False":
        node = pod["spec"].get("nodeName")
        message = f"node {node} of the master does not answer the cluster"
        return Finding(JobPhase.RECOVERING, "MasterUnreachable", message)
    return None


def _container(pod: Manifest) -> dict[str, Any]:
    statuses: list[dict[str, Any]] = pod["status"].get("containerStatuses") or [{}]
    return statuses[0]


def _last_words(terminated: dict[str, Any]) -> str:
    """Why a container ended: what it wrote itself, else what the cluster says."""
    text = str(terminated.get("message") or "").strip()
    # No record of ours, such as the end of a traceback, is told as it is.
    with suppress(ValueError, TypeError, KeyError):
        text = str(json.loads(text)["message"])
    code = terminated.get("exitCode")
    reason = terminated.get("reason") or "ended"
    how = reason if code is None else f"{reason}, exit code {code}"
    return f"{text}; {how}" if text else how
