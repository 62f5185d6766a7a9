"""Which Kubernetes Events a job gets, and when: everything told once, a storm in a few. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.manifests import Owner
from elastic.platforms.kubernetes.names import APP
from elastic.spec.status import JobEvent, JobPhase, JobStatus

BURST: Final = 20
INTERVAL_S: Final = 1.0
"""Between two Events, at the least."""
REFILL_S: Final = 10.0
"""Between two Events in the long run: a cluster keeps them for an hour, for all of its jobs."""
MAX_MESSAGE: Final = 1000
"""Kubernetes' own components cut messages at 1024 bytes."""

_UNTOLD: Final = frozenset({"EpochEnded", "Evaluated", "JobFailed"})
"""Progress, which may come every second for days, and what the job's end is told as anyway."""
_WARNINGS: Final = frozenset(
    {
        "WorkerLost", "WorkerFailed", "WorkerHung", "WorkerWaiting", "MasterRestarted",
        "PlatformAway", "CallbackSlow", "CheckpointFailed", "CheckpointDamaged", "RecordSkipped",
        JobPhase.FAILED.value,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """What has happened of one kind since it was told last, as one Event."""

    kind: str
    first_s: float
    last_s: float
    messages: tuple[str, ...]

    def followed_by(self, other: "Group") -> "Group":
        """Both as one."""
        return Group(self.kind, self.first_s, other.last_s, self.messages + other.messages)

    def message(self) -> str:
        """As many of the messages as there is room for, and how many there are besides."""
        text, num_told = self.messages[0][:MAX_MESSAGE], 1
        for message in self.messages[1:]:
            if len(text) + len(message) > MAX_MESSAGE:
                break
            text += f"; {message}"
            num_told += 1
        num_left = len(self.messages) - num_told
        return f"{text}; and {num_left} more" if num_left else text


class Backlog:
    """What has happened and is not told yet. Not thread-safe; the time comes in."""

    def __init__(self, since_s: float) -> None:
        """Begin empty; what happened before `since_s` was an earlier life of the master's to tell.

        A status has seconds since the epoch; the times below are monotonic.
        """
        self._since_s = since_s
        self._seen: frozenset[JobEvent] = frozenset()
        self._groups: dict[str, Group] = {}
        self._tokens = float(BURST)
        self._filled_s: float | None = None
        self._not_before_s = 0.0

    @property
    def is_empty(self) -> bool:
        return not self._groups

    def add(self, status: JobStatus) -> None:
        """Take what a published status tells for the first time."""
        # A status holds the newest events only, and one that has left it never comes back.
        events = [e for e in status.events if e.time_s >= self._since_s and e.kind not in _UNTOLD]
        if status.phase.is_final:
            events.append(_end(status))
        for new in (e for e in events if e not in self._seen):
            group = Group(new.kind, new.time_s, new.time_s, (new.message,))
            earlier = self._groups.get(new.kind)
            self._groups[new.kind] = group if earlier is None else earlier.followed_by(group)
        self._seen = frozenset(events)

    def due_s(self, now_s: float) -> float | None:
        """When the next Event may be written, or None where there is nothing to tell."""
        if not self._groups:
            return None
        self._fill(now_s)
        missing = max(0.0, 1.0 - self._tokens)
        return max(self._not_before_s, now_s + missing * REFILL_S)

    def take(self, now_s: float) -> Group | None:
        """The kind that has waited longest, to be told now."""
        if not self._groups:
            return None
        self._fill(now_s)
        self._tokens = max(0.0, self._tokens - 1.0)
        self._not_before_s = now_s + INTERVAL_S
        # Python's dicts keep the order of what was put in first.
        return self._groups.pop(next(iter(self._groups)))

    def _fill(self, now_s: float) -> None:
        gained = 0.0 if self._filled_s is None else (now_s - self._filled_s) / REFILL_S
        self._tokens = min(float(BURST), self._tokens + gained)
        self._filled_s = now_s


def event(group: Group, pod: Owner, namespace: str, name: str) -> Manifest:
    """The Event on the master's pod; in fields that every version since 1.20 has."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "type": "Warning" if group.kind in _WARNINGS else "Normal",
        "reason": group.kind,
        "message": group.message(),
        "count": len(group.messages),
        "firstTimestamp": _stamp(group.first_s),
        "lastTimestamp": _stamp(group.last_s),
        "source": {"component": APP},
        "reportingComponent": APP,
        "reportingInstance": pod.name,
    }


def _end(status: JobStatus) -> JobEvent:
    words: Sequence[str] = (status.reason, status.message)
    # "Succeeded: Succeeded: …" helps nobody.
    message = ": ".join(word for word in words if word and word != status.phase)
    time_s = status.ended_s or status.updated_s or 0.0
    return JobEvent(time_s=time_s, kind=status.phase.value, message=message)


def _stamp(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
