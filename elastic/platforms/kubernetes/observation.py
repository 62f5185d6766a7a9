"""What a pod's JSON means for the replica in it. Pure: a pod in, a `Replica` out."""

import json
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.names import (
    CONTAINER,
    INDEX_LABEL,
    LAUNCH_LABEL,
    TYPE_LABEL,
    Manifest,
)

_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
_CODE_NOT_STARTED: Final = 128
_SIGNAL_BASE: Final = 128
"""A container ended by signal n has the exit code 128 + n, as in a shell."""

_OUTSIDE: Final = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
)
"""What people and systems send; any other deadly signal is the program's own doing."""

_DELETED: Final = "deleted"
_QUIET_WAITS: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons to wait that everything goes through."""


@dataclass(frozen=True, slots=True)
class Termination:
    """What a replica wrote about its own end."""

    reason: ExitReason
    message: str
    traceback: str = ""


def replica_id(pod: Manifest) -> ReplicaId | None:
    """Which launch a pod is; None where it is no replica of ours."""
    labels = pod["metadata"].get("labels") or {}
    role, index, launch = (
        str(labels.get(label) or "") for label in (TYPE_LABEL, INDEX_LABEL, LAUNCH_LABEL)
    )
    if not role or not index.isdecimal() or not launch.isdecimal():
        return None
    return ReplicaId(role, int(index), int(launch))


def observe(pod: Manifest, replica: ReplicaId) -> Replica:
    """What is to be seen of one launch."""
    status = pod.get("status") or {}
    state = _container(status, "containerStatuses").get("state") or {}
    started_s = _started_s(state)
    if "terminated" in state:
        terminated = state["terminated"]
        return _ended(replica, *_classify(pod, terminated), terminated.get("exitCode"), started_s)
    if status.get("phase") == "Succeeded":
        return _ended(replica, ExitReason.COMPLETED, "", 0, started_s)
    if status.get("phase") == "Failed":
        return _ended(replica, *_classify_without_container(pod), None, started_s)
    if _is_lost(pod, state):
        message = f"its node {_node(pod)} does not answer: {_deletion_words(pod)}"
        return _ended(replica, ExitReason.KILLED, message, None, started_s)
    if "running" in state:
        return Replica(replica, ReplicaPhase.RUNNING, started_s=started_s)
    return Replica(replica, ReplicaPhase.PENDING, message=_why_pending(status))


def observe_removed(pod: Manifest, replica: ReplicaId) -> Replica:
    """What is to be said of one launch whose pod has been removed, from what was seen last."""
    seen = observe(pod, replica)
    if seen.phase.is_final:
        return seen
    return _ended(replica, ExitReason.KILLED, _deletion_words(pod), None, seen.started_s)


def observe_last_life(pod: Manifest, replica: ReplicaId) -> tuple[int, Replica] | None:
    """How the container ended that was restarted in place last, and its number from 0.

    None where the container runs for the first time.
    """
    entry = _container(pod.get("status") or {}, "containerStatuses")
    terminated = (entry.get("lastState") or {}).get("terminated")
    if not terminated:
        return None
    reason, message = _classify(pod, terminated)
    ended = _ended(replica, reason, message, terminated.get("exitCode"), None)
    return max(0, int(entry.get("restartCount", 1)) - 1), ended


def gone(replica: ReplicaId, message: str) -> Replica:
    """A launch whose pod vanished while nobody looked."""
    return _ended(replica, ExitReason.KILLED, message, None, None)


def parse_termination(text: str) -> Termination | None:
    """Read a replica's own words; None where the text is something else, such as its log."""
    with suppress(ValueError, TypeError, KeyError):
        record = json.loads(text)
        return Termination(ExitReason(record["reason"]), str(record["message"]))
    return None


def _classify(pod: Manifest, terminated: Mapping[str, Any]) -> tuple[ExitReason, str]:
    """Choose the reason of a container's end, and a message for people."""
    code, reason = terminated.get("exitCode"), str(terminated.get("reason") or "")
    text = str(terminated.get("message") or "").strip()
    termination = parse_termination(text)
    if reason == "OOMKilled":
        return ExitReason.OUT_OF_MEMORY, f"out of memory (its limit is {_memory_limit(pod)})"
    if reason in _NOT_STARTED or (code == _CODE_NOT_STARTED and termination is None):
        return ExitReason.NEVER_STARTED, text or reason
    if code == 0:
        # It may have ended by itself because it was asked to.
        return ExitReason.COMPLETED, _outside_cause(pod) or ""
    if termination is not None and termination.reason is not ExitReason.COMPLETED:
        return termination.reason, termination.message
    cause = _outside_cause(pod)
    if cause is not None:
        return ExitReason.KILLED, cause
    number = _signal_number(code, terminated)
    if number is None:
        return ExitReason.USER_ERROR, _last_line(text) or f"exit code {code} and no output"
    if number in _OUTSIDE:
        return ExitReason.KILLED, f"ended from outside by {_signal_name(number)}"
    return ExitReason.USER_ERROR, f"crashed with {_signal_name(number)}"


def _classify_without_container(pod: Manifest) -> tuple[ExitReason, str]:
    """A pod that failed before its container ran, or whose node lost all memory of it."""
    status = pod.get("status") or {}
    for entry in status.get("initContainerStatuses") or []:
        terminated = (entry.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            words = _last_line(str(terminated.get("message") or "")) or terminated.get("reason")
            return ExitReason.USER_ERROR, f"init container {entry.get('name')} failed: {words}"
    return ExitReason.KILLED, _outside_cause(pod) or "ended by the cluster without a reason"


def _outside_cause(pod: Manifest) -> str | None:
    """The cluster's own words for having ended a pod; None where it did not."""
    status = pod.get("status") or {}
    if status.get("reason"):
        # Evicted, Preempting, Shutdown, NodeLost, OutOfcpu, …
        return _joined(status["reason"], status.get("message"))
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return _joined(condition.get("reason"), condition.get("message"))
    return _DELETED if _is_deleted(pod) else None


def _deletion_words(pod: Manifest) -> str:
    return _outside_cause(pod) or _DELETED


def _is_deleted(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_lost(pod: Manifest, state: Mapping[str, Any]) -> bool:
    """Whether a pod is to be removed and its node cannot say that it was.

    The node controller marks pods of a silent node as not ready, while their containers stay as
    the node told last. A node that does answer tells the container's end first.
    """
    conditions = (pod.get("status") or {}).get("conditions") or []
    is_unready = any(c.get("type") == "Ready" and c.get("status") != "True" for c in conditions)
    return _is_deleted(pod) and is_unready and "running" in state


def _why_pending(status: Mapping[str, Any]) -> str:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(kind) or []:
            waiting = (entry.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") and waiting["reason"] not in _QUIET_WAITS:
                return _joined(waiting["reason"], waiting.get("message"))
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _joined(condition.get("reason"), condition.get("message"))
    return ""


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


def _container(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    entries = status.get(kind) or []
    found: Mapping[str, Any] = next((e for e in entries if e.get("name") == CONTAINER), {})
    return found


def _started_s(state: Mapping[str, Any]) -> float | None:
    text = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    return None if not text else datetime.fromisoformat(text).timestamp()


def _memory_limit(pod: Manifest) -> str:
    for container in pod["spec"].get("containers") or []:
        if container.get("name") == CONTAINER:
            limits = (container.get("resources") or {}).get("limits") or {}
            return str(limits.get("memory", "none, the node is full"))
    return "unknown"


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


def _joined(reason: object, message: object) -> str:
    return ": ".join(str(part) for part in (reason, message) if part)


def _node(pod: Manifest) -> str:
    return str(pod["spec"].get("nodeName", "unknown"))
