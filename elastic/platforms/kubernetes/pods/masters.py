"""What the master's pod says about the job: why no master runs, and how it ended. Pure.

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

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.manifests import MASTER_REPLICA
from elastic.platforms.kubernetes.objects.names import ResourceOwner
from elastic.platforms.kubernetes.objects.queues import QUEUE_LABEL, is_waiting
from elastic.platforms.kubernetes.pods import observation, states
from elastic.policy.masters import EndJob, on_exit
from elastic.spec.status import JobPhase, JobStatus, StoredStatus

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
    status, phase = pod["status"], states.phase_of(pod)
    if states.is_deleted(pod):
        return _deleted(pod, resource)
    if phase == states.FAILED:
        why = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
        message = f"the cluster has ended the master pod ({why or 'no reason given'})"
        if resource is not None:
            return Finding(JobPhase.RECOVERING, "MasterLost", f"{message}: {_remade(resource)}")
        return Finding(JobPhase.FAILED, "MasterLost", f"{message}: {advice}")
    # The phase is of all containers: another one may go on for ever, or never start.
    state = states.own_state(pod)
    if "running" in state:
        return _running(pod)
    if phase == states.SUCCEEDED or (state.get("terminated") or {}).get("exitCode") == 0:
        message = "the master has ended and has published no end of the job: read its log"
        return Finding(JobPhase.FAILED, "MasterLost", message)
    if phase == states.PENDING and not states.own_status(pod).get("restartCount"):
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
    return Finding(JobPhase.RECOVERING, observation.MASTER_DELETED, message)


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
    if master is None or states.phase_of(master) != states.PENDING:
        return False
    return bool(master["spec"].get("nodeName"))


def _pending(pod: Manifest, warnings: Sequence[str]) -> Finding:
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = f"the master waits for a node: {condition.get('message', 'none fits')}"
            if is_waiting(pod):
                message = f"the master {observation.why_pending(pod)}"
            return Finding(JobPhase.PENDING, condition.get("reason", "Unschedulable"), message)
    waiting = states.own_state(pod).get("waiting") or {}
    reason = waiting.get("reason", "")
    cause = _cause(warnings) or waiting.get("message", "")
    if reason in _IMAGE_REASONS:
        image = states.own_spec(pod).get("image")
        return Finding(
            JobPhase.PENDING,
            _IMAGE_REASONS[reason],
            f"image {image} cannot be used: {cause or reason}: push it where the nodes can pull "
            "it from, or correct --image, --docker_image_repository or --image_pull_policy",
        )
    if reason and reason not in states.QUIET_WAITS:
        return Finding(JobPhase.PENDING, reason, f"the master cannot start: {cause or reason}")
    if cause:
        return Finding(JobPhase.PENDING, "Starting", f"the master cannot start yet: {cause}")
    return Finding(JobPhase.PENDING, "", "the master is being started")


def _cause(warnings: Sequence[str]) -> str:
    """The newest warning that says more than the name of an error."""
    telling = [text for text in warnings if not text.startswith(("Error: ", "Back-off "))]
    return " ".join(telling[-1].split()) if telling else ""


def _running(pod: Manifest) -> Finding | None:
    if not states.is_node_silent(pod):
        return None
    message = f"node {pod['spec'].get('nodeName')} of the master does not answer the cluster"
    return Finding(JobPhase.RECOVERING, "MasterUnreachable", message)


def _hopeless(pod: Manifest, published: JobStatus | None) -> Finding | None:
    """The end of a job whose master is not going to do better when the node tries it again.

    That may be minutes from now; the next life of the master comes to the same by the same rule.
    """
    ended = states.last_terminated(pod)
    if published is None or ended is None:
        return None
    master = observation.ended_as(pod, MASTER_REPLICA, ended)
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
    told = _BACK_OFF.search((states.own_state(pod).get("waiting") or {}).get("message") or "")
    finished_s = _finished_s(states.last_terminated(pod) or {})
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
    ended = states.last_terminated(pod)
    return _why(pod, ended) if ended else ""


def _why(pod: Manifest, terminated: Mapping[str, Any]) -> str:
    """What it said itself, else what ended it: the log of one that was killed has no reason."""
    message = states.killed_by(terminated) or states.classify(pod, terminated)[1]
    return message or f"exit code {terminated.get('exitCode')}"


def has_begun(published: JobStatus | None) -> bool:
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
    running = states.own_state(pod).get("running")
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
    terminated: Mapping[str, Any] = states.own_state(master).get("terminated") or {}
    with suppress(ValueError, TypeError, KeyError, ValidationError):
        end = _STATUS.validate_python(json.loads(terminated.get("message") or "")[_KEY])
        told = {name: getattr(end, name) for name in end.model_fields_set}
        # When the job was submitted is the record's to tell, and the master may not know.
        told = {name: value for name, value in told.items() if value is not None}
        return published.model_copy(update={"message": "", **told}) if end.phase.is_final else None
    return None
