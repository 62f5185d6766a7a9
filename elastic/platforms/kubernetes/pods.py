"""What the JSON of a pod means for the replica in it, decided here and nowhere else. Pure.

How any pod stands, the controllers' included, a replica's own container from others, and why it
ended and by whose doing; then what is to be seen of one launch, and what became of the workers of a
job that is over. What a master's pod says of its job is in `masters`.

Belongs here: whatever reads the `status` of a pod.
Does not belong here: requests, and what follows what was seen.
"""

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.names import (
    CONTAINER,
    INDEX_LABEL,
    LAUNCH_LABEL,
    QUEUE_LABEL,
    TYPE_LABEL,
    is_waiting,
)
from elastic.platforms.kubernetes.supervisor import OUT_OF_MEMORY
from elastic.platforms.process import UNFINISHED, exit_words
from elastic.policy.replicas import exit_text, told_id, told_phase
from elastic.spec.roles import ROLES
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

# How a pod stands, whoever's it is, how its containers are, and whose doing their end was. Pure.
#
# Whoever looks at pods decides it here: the controllers, the master, and the commands.
#
# A pod that was asked to be removed is nothing any more but in the way: whatever its phase says, it
# is neither active nor failed, since it did not end by itself.
#
# A replica's own container is told from others by its name. A cluster_spec, a service mesh or an
# agent may add containers, and a node sorts their states by name: where one stands in a list means
# nothing.


PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

_ENDED: Final = frozenset({SUCCEEDED, FAILED})
_MAY_RUN: Final = frozenset({RUNNING, "Unknown"})
_DULL: Final = frozenset({"Error", "Completed", "None"})
"""Reasons of a container's end that say no more than its code."""

QUIET_WAITS: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons to wait that everything goes through."""

_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
_CODE_NOT_STARTED: Final = 128
_SIGNAL_BASE: Final = 128
"""A container ended by signal n has the exit code 128 + n, as in a shell."""

_OUTSIDE: Final = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
)
"""What people and systems send; any other deadly signal is the program's own doing."""

_DELETED: Final = "deleted"
_TAKEN_AWAY: Final = frozenset({"DisruptionTarget", "TerminationTarget"})
"""Conditions by which Kubernetes, and Kueue, say of a pod why they end it."""


def phase_of(pod: Manifest) -> str:
    """As Kubernetes has it; `Pending` where nothing was told yet."""
    return str((pod.get("status") or {}).get("phase") or PENDING)


def has_ended(pod: Manifest) -> bool:
    """Whether it has ended, and takes no room any more, whether or not it was asked to."""
    return phase_of(pod) in _ENDED


def may_run(pod: Manifest) -> bool:
    """Whether something of it may run, as far as its phase tells, whether or not it is to go."""
    return phase_of(pod) in _MAY_RUN


def is_active(pod: Manifest) -> bool:
    """Whether it runs."""
    return phase_of(pod) == RUNNING and not is_deleted(pod)


def is_pending(pod: Manifest) -> bool:
    """Whether it may come to run."""
    return not is_deleted(pod) and phase_of(pod) != RUNNING and not has_ended(pod)


def has_succeeded(pod: Manifest) -> bool:
    """Whether it ended well; what was asked to end may do so with code 0, its work undone."""
    return phase_of(pod) == SUCCEEDED and not is_deleted(pod)


def has_failed(pod: Manifest) -> bool:
    """Whether it ended otherwise, by itself or by its node."""
    return phase_of(pod) == FAILED and not is_deleted(pod)


def is_ready(pod: Manifest) -> bool:
    """Whether it runs and answers."""
    return is_active(pod) and holds(pod, "Ready")


def conditions_of(item: Manifest | None) -> dict[str, Mapping[str, Any]]:
    """The conditions of a pod, or of any other object, by type."""
    conditions = ((item or {}).get("status") or {}).get("conditions") or ()
    return {str(each.get("type")): each for each in conditions}


def holds(item: Manifest | None, type_: str) -> bool:
    """Whether a condition is there and true."""
    return conditions_of(item).get(type_, {}).get("status") == "True"


def ends_of(pod: Manifest) -> Iterator[Mapping[str, Any]]:
    """How its containers have ended, those that prepare it first."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(kind) or ():
            if ended := end_of(entry):
                yield ended


def end_of(container: Mapping[str, Any], run: str = "state") -> Mapping[str, Any]:
    """How a run of a container has ended; empty where it has not.

    Args:
        container: What a node tells of it.
        run: `state` for the newest one, `lastState` for the one before.
    """
    return (container.get(run) or {}).get("terminated") or {}


def exit_code(pod: Manifest) -> int | None:
    """The first code other than 0 of its containers, else 0; None where none of them has ended."""
    codes = [end["exitCode"] for end in ends_of(pod) if isinstance(end.get("exitCode"), int)]
    return next((code for code in codes if code), 0 if codes else None)


def clusters_doing(pod: Manifest) -> str | None:
    """The cluster's own words for having ended a pod; None where it did not.

    None also for a deadline in its template, which is the job's own.
    """
    has_own_deadline = (pod.get("status") or {}).get("reason") == "DeadlineExceeded"
    return None if has_own_deadline else outside_cause(pod)


def why_failed(pod: Manifest) -> str:
    """In words, for people: the cluster's own, else the exit code and what is told with it."""
    cause = outside_cause(pod)
    if cause is not None:
        return cause
    code = exit_code(pod)
    if code is None:
        return "ended without a reason"
    reasons = (str(end.get("reason")) for end in ends_of(pod) if end.get("exitCode"))
    told = next((reason for reason in reasons if reason not in _DULL), None)
    return joined(f"exited with code {code}", told)


def own_status(pod: Manifest) -> dict[str, Any]:
    """What the node has told of the container; empty before it has told anything."""
    return status_of(pod, CONTAINER)


def status_of(pod: Manifest, container: str) -> dict[str, Any]:
    """What the node has told of a container of any pod; likewise."""
    return _named((pod.get("status") or {}).get("containerStatuses"), container)


def own_spec(pod: Manifest) -> dict[str, Any]:
    """What the container was made from; empty in a pod that is not ours."""
    return _named(pod["spec"].get("containers"), CONTAINER)


def own_state(pod: Manifest) -> dict[str, Any]:
    """The present state: one key of `waiting`, `running`, `terminated`, or none."""
    state: dict[str, Any] = own_status(pod).get("state") or {}
    return state


def last_terminated(pod: Manifest) -> dict[str, Any] | None:
    """How the newest run of it that is over has ended; None where none is known."""
    ended: dict[str, Any] | None = own_state(pod).get("terminated") or (
        own_status(pod).get("lastState") or {}
    ).get("terminated")
    return ended


def has_run(pod: Manifest) -> bool:
    """Whether anything of a pod may have to end, or have ended with words that nobody has read."""
    return any(
        not {"running", "terminated"}.isdisjoint(container.get("state") or {})
        or container.get("lastState")
        for container in _all(pod)
    )


def is_over(pod: Manifest) -> bool:
    """Whether nothing of a deleted pod runs: its node starts nothing for it any more."""
    return is_deleted(pod) and not any(
        "running" in (container.get("state") or {}) for container in _all(pod)
    )


def is_node_silent(pod: Manifest) -> bool:
    """Whether the control plane has marked a pod as not ready since its node does not answer.

    It marks the pod alone, and leaves what the node told of the containers. A container that has
    ended or fails its probe is told by the node itself, which marks both.
    """
    conditions = {c.get("type"): c for c in (pod.get("status") or {}).get("conditions") or ()}
    ready, containers_ready = (conditions.get(k) or {} for k in ("Ready", "ContainersReady"))
    return (
        ready.get("status", "True") != "True"
        and containers_ready.get("status", "True") == "True"
        # Somebody else's gate: the node does answer.
        and ready.get("reason") != "ReadinessGatesNotReady"
        and bool(own_status(pod).get("ready", True))
    )


def _all(pod: Manifest) -> list[Manifest]:
    """What the node tells of each, those that prepare the pod included."""
    kinds = ("initContainerStatuses", "containerStatuses")
    return [container for kind in kinds for container in pod["status"].get(kind) or ()]


def _named(entries: list[dict[str, Any]] | None, name: str) -> dict[str, Any]:
    return next((entry for entry in entries or () if entry.get("name") == name), {})


@dataclass(frozen=True, slots=True)
class Termination:
    """What a replica wrote about its own end."""

    reason: ExitReason
    message: str
    traceback: str = ""


def parse_termination(text: str) -> Termination | None:
    """Read a replica's own words; None where the text is something else, such as its log."""
    with suppress(ValueError, TypeError, KeyError):
        record = json.loads(text)
        reason, message = ExitReason(record["reason"]), str(record["message"])
        return Termination(reason, message, str(record.get("traceback", "")))
    return None


def own_last_words(terminated: Mapping[str, Any]) -> str:
    """What a container wrote last: the traceback of its record, or the end of its log.

    Kubernetes keeps 2048 bytes of the log of a container that failed and left no record.
    """
    text = str(terminated.get("message") or "").strip()
    termination = parse_termination(text)
    return text if termination is None else termination.traceback or termination.message


def classify(pod: Manifest, terminated: Mapping[str, Any]) -> tuple[ExitReason, str]:
    """Choose the reason of a container's end, and a message for people."""
    code, reason = terminated.get("exitCode"), str(terminated.get("reason") or "")
    text = str(terminated.get("message") or "").strip()
    termination = parse_termination(text)
    # Docker says so of a container in which any process was killed for memory, however it ended.
    if reason == OUT_OF_MEMORY and code != 0:
        return ExitReason.OUT_OF_MEMORY, _out_of_memory(pod)
    if reason in _NOT_STARTED or (code == _CODE_NOT_STARTED and termination is None):
        return ExitReason.NEVER_STARTED, text or reason
    if code == 0:
        # It may have ended by itself because it was asked to.
        return ExitReason.COMPLETED, outside_cause(pod) or ""
    if termination is not None and termination.reason is not ExitReason.COMPLETED:
        return termination.reason, termination.message
    cause = outside_cause(pod)
    if cause is not None:
        return ExitReason.KILLED, cause
    number = _signal_number(code, terminated)
    if number is None:
        return ExitReason.USER_ERROR, exit_words(code or 0, _last_line(text))
    if number in _OUTSIDE:
        return ExitReason.KILLED, f"ended from outside by {_signal_name(number)}"
    return ExitReason.USER_ERROR, f"crashed with {_signal_name(number)}"


def classify_worker(pod: Manifest, terminated: Mapping[str, Any]) -> tuple[ExitReason, str]:
    """The same of a worker, which says so where it completes: its user's code can exit with 0."""
    reason, message = classify(pod, terminated)
    text = str(terminated.get("message") or "").strip()
    has_cause = bool(message) or parse_termination(text) is not None
    if reason is ExitReason.COMPLETED and not has_cause:
        return ExitReason.USER_ERROR, UNFINISHED
    return reason, message


def killed_by(terminated: Mapping[str, Any]) -> str | None:
    """The signal that ended a container from outside; None where anything else did.

    What such a container logged last has nothing to do with its end.
    """
    number = _signal_number(terminated.get("exitCode"), terminated)
    text = str(terminated.get("message") or "").strip()
    if terminated.get("reason") == OUT_OF_MEMORY or parse_termination(text) is not None:
        return None
    return f"killed by {_signal_name(number)}" if number in _OUTSIDE else None


def classify_without_container(pod: Manifest) -> tuple[ExitReason, str]:
    """A pod that failed before its container ran, or whose node lost all memory of it."""
    status = pod.get("status") or {}
    for entry in status.get("initContainerStatuses") or []:
        terminated = (entry.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            words = _last_line(str(terminated.get("message") or "")) or terminated.get("reason")
            return ExitReason.USER_ERROR, f"init container {entry.get('name')} failed: {words}"
    return ExitReason.KILLED, outside_cause(pod) or "ended by the cluster without a reason"


def outside_cause(pod: Manifest) -> str | None:
    """The cluster's own words for having ended a pod; None where it did not."""
    status = pod.get("status") or {}
    if status.get("reason"):
        # Evicted, Preempting, Shutdown, NodeLost, OutOfcpu, …
        return joined(status["reason"], status.get("message"))
    for condition in status.get("conditions") or []:
        if condition.get("type") in _TAKEN_AWAY and condition.get("status") == "True":
            return joined(condition.get("reason"), condition.get("message"))
    return _DELETED if is_deleted(pod) else None


def deletion_words(pod: Manifest) -> str:
    return outside_cause(pod) or _DELETED


def is_deleted(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _out_of_memory(pod: Manifest) -> str:
    """What happened, and the setting that helps."""
    resources = own_spec(pod).get("resources") or {}
    limit, request = ((resources.get(k) or {}).get("memory") for k in ("limits", "requests"))
    role = ROLES.get((pod["metadata"].get("labels") or {}).get(TYPE_LABEL) or "")
    if limit is None:
        return "out of memory (it has no limit, the node is full)"
    # What has no limit of its own is limited to what it asks for.
    if role is None:
        return f"out of memory (its limit is {limit})"
    setting = role.resource_request if limit == request else role.resource_limit
    return f"out of memory (its limit is {limit}): raise memory in --{setting}"


def _signal_number(code: int | None, terminated: Mapping[str, Any]) -> int | None:
    if terminated.get("signal"):
        return int(terminated["signal"])
    number = 0 if code is None else code - _SIGNAL_BASE
    # Programs also exit with 255 and the like by themselves.
    return number if number in signal.valid_signals() else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def joined(reason: object, message: object) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)


# What a pod's JSON means for the replica in it. Pure: a pod in, a `Replica` out.
#
# The last word of a master that is gone is older than the end of its workers, so of those what is
# seen of their pods counts.


OVERDUE_S: Final = 30.0
"""How long after a pod should have been killed its node may still be about to say so."""

ENDING: Final = "Ending"
"""The phase of a worker whose pod is there though its job has ended: it is about to end too."""

MASTER_DELETED: Final = "MasterDeleted"
"""The reason of a job whose workers go with its master's pod."""

_FINAL: Final = frozenset({ReplicaPhase.SUCCEEDED.value, ReplicaPhase.FAILED.value})


def replica_id(pod: Manifest) -> ReplicaId | None:
    """Which launch a pod is; None where it is no replica of ours."""
    labels = pod["metadata"].get("labels") or {}
    role, index, launch = (
        str(labels.get(label) or "") for label in (TYPE_LABEL, INDEX_LABEL, LAUNCH_LABEL)
    )
    if not role or not index.isdecimal() or not launch.isdecimal():
        return None
    return ReplicaId(role, int(index), int(launch))


def role_of(pod: Manifest) -> str:
    """What a pod is to its job; empty where it is none of a job's."""
    return str((pod["metadata"].get("labels") or {}).get(TYPE_LABEL) or "")


def replica_name(pod: Manifest) -> str:
    """`worker-0`, as users name it."""
    labels = pod["metadata"].get("labels") or {}
    return f"{labels.get(TYPE_LABEL, 'pod')}-{labels.get(INDEX_LABEL, '0')}"


def observe(pod: Manifest, replica: ReplicaId, now_s: float | None = None) -> Replica:
    """What is to be seen of one launch of a worker.

    Args:
        pod: Its own.
        replica: Which launch that is.
        now_s: Seconds since the epoch; None where no time is to change what is seen.
    """
    phase, state = phase_of(pod), own_state(pod)
    started_s = _started_s(state)
    if "terminated" in state:
        terminated = state["terminated"]
        reason, message = classify_worker(pod, terminated)
        return _ended(replica, reason, message, terminated.get("exitCode"), started_s)
    if phase == SUCCEEDED:
        return _ended(replica, ExitReason.COMPLETED, "", 0, started_s)
    if phase == FAILED:
        return _ended(replica, *classify_without_container(pod), None, started_s)
    if "running" in state and _is_lost(pod, now_s):
        message = f"its node {_node(pod)} does not answer: {deletion_words(pod)}"
        return _ended(replica, ExitReason.KILLED, message, None, started_s)
    if "running" in state:
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        return Replica(replica, ReplicaPhase.RUNNING, started_s=started_s, node=node)
    return Replica(
        replica,
        ReplicaPhase.PENDING,
        message=why_pending(pod),
        is_queued=is_waiting(pod),
    )


def observe_removed(pod: Manifest, replica: ReplicaId) -> Replica:
    """What is to be said of one launch whose pod has been removed, from what was seen last."""
    seen = observe(pod, replica)
    if seen.phase.is_final:
        return seen
    return _ended(replica, ExitReason.KILLED, deletion_words(pod), None, seen.started_s)


def ended_as(pod: Manifest, replica: ReplicaId, terminated: Mapping[str, Any]) -> Replica:
    """A replica whose end is told in the form in which a node tells that of a container."""
    reason, message = classify(pod, terminated)
    return _ended(replica, reason, message, terminated.get("exitCode"), None)


def last_words(pod: Manifest) -> str:
    """What the replica in a pod wrote last before it ended, as far as the pod tells."""
    return own_last_words(own_state(pod).get("terminated") or {})


def why_pending(pod: Manifest) -> str:
    """What a pod waits for that has not begun; empty where it only takes its time."""
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(kind) or []:
            waiting = (entry.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") and waiting["reason"] not in QUIET_WAITS:
                return joined(waiting["reason"], waiting.get("message"))
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            told = joined(condition.get("reason"), condition.get("message"))
            return joined(why_queued(pod), told)
    return why_queued(pod)


def why_queued(pod: Manifest) -> str:
    """That a pod waits in a queue, and in which; empty where it does not."""
    if not is_waiting(pod):
        return ""
    return f"waits in queue {pod['metadata']['labels'][QUEUE_LABEL]}"


def gone(replica: ReplicaId, message: str) -> Replica:
    """A launch whose pod vanished while nobody looked."""
    return _ended(replica, ExitReason.KILLED, message, None, None)


def _is_lost(pod: Manifest, now_s: float | None) -> bool:
    """Whether a pod is to be removed and its node cannot say that it was.

    A pod that leaves in peace may be not ready too: another container of it has ended first. Where
    one had ended before, nobody can mark the pod any more, and only time tells.
    """
    deleted_at = pod["metadata"].get("deletionTimestamp")
    if not deleted_at:
        return False
    # The time by which its node is to have killed it, grace included.
    overdue_s = datetime.fromisoformat(deleted_at).timestamp() + OVERDUE_S
    return is_node_silent(pod) or (now_s is not None and now_s > overdue_s)


def _ended(
    replica: ReplicaId, reason: ExitReason, message: str, code: int | None, started_s: float | None
) -> Replica:
    is_completed = reason is ExitReason.COMPLETED
    return Replica(
        replica,
        ReplicaPhase.SUCCEEDED if is_completed else ReplicaPhase.FAILED,
        exit_reason=reason,
        exit_code=code,
        message=message,
        started_s=started_s,
    )


def _started_s(state: Mapping[str, Any]) -> float | None:
    text = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return None if not text else datetime.fromisoformat(text).timestamp()


def _node(pod: Manifest) -> str:
    return str(pod["spec"].get("nodeName", "unknown"))


def needs_pods(status: JobStatus) -> bool:
    """Whether only the pods can tell what became of the workers."""
    is_over = status.phase.is_final or status.reason == MASTER_DELETED
    return is_over and any(worker.phase not in _FINAL for worker in status.workers)


def with_seen_workers(status: JobStatus, pods: Sequence[Manifest]) -> JobStatus:
    """The same status, its workers as their pods show them instead of as the master saw them.

    Args:
        status: One that `needs_pods`.
        pods: Of the job; which roles are among them does not matter.
    """
    seen = {replica_id(pod): pod for pod in pods}
    workers = tuple(_seen(worker, seen.get(told_id(worker)), status) for worker in status.workers)
    return status.model_copy(update={"workers": workers})


def _seen(worker: WorkerStatus, pod: Manifest | None, job: JobStatus) -> WorkerStatus:
    if worker.phase in _FINAL:
        return worker
    is_done = job.phase is JobPhase.SUCCEEDED
    how: dict[str, Any] = {"samples_per_s": 0.0, "message": ""}
    if pod is None:
        is_started = worker.phase != ReplicaPhase.PENDING
        last_exit = "was ended with its job" if is_started else "was not started"
        phase = ReplicaPhase.SUCCEEDED if is_done else ReplicaPhase.FAILED
        return worker.model_copy(update=how | _told_end(phase, last_exit))
    replica = observe(pod, told_id(worker))
    if replica.phase.is_final:
        phase = told_phase(replica, is_needed=not is_done)
        return worker.model_copy(update=how | _told_end(phase, exit_text(replica)))
    if job.phase.is_final or is_deleted(pod):
        return worker.model_copy(update=how | {"phase": ENDING})
    return worker


def _told_end(phase: ReplicaPhase, last_exit: str) -> dict[str, Any]:
    return {"phase": phase.value, "last_exit": last_exit}
