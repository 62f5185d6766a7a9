"""What the master's pod says about the job: why no master runs, where none does. Pure."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from elastic.platforms.kubernetes.names import Manifest
from elastic.spec.status import JobPhase

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
    """What the master's pod says that the master itself cannot.

    Attributes:
        at_s: Since when, where that is known; seconds since the epoch.
    """

    phase: JobPhase
    reason: str
    message: str
    at_s: float | None = None


def find(pod: Manifest, warnings: Sequence[str]) -> Finding | None:
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
