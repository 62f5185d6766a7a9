"""Tells what happens to a job as Events of its master's pod, where `kubectl describe` shows it.

Everything is told once, and a storm in a few.
"""

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.errors import BUSY, AwayError, RefusedError
from elastic.platforms.kubernetes.api.resources import EVENTS, Manifest
from elastic.platforms.kubernetes.objects.names import APP, Owner
from elastic.spec.status import JobEvent, JobPhase, JobStatus

logger = logging.getLogger(__name__)

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
        "ServerLost", "ServerFailed", "ServerHung", "ServerWaiting", "ParametersLost",
        "RedisLost", "RedisFailed", "RedisHung", "RedisWaiting",
        "PlatformAway", "CallbackSlow", "CheckpointFailed", "CheckpointDamaged", "RecordSkipped",
        JobPhase.FAILED.value,
    }
)  # fmt: skip

AWAY_PAUSE_S: Final = 30.0
FAREWELL_S: Final = 3.0
"""What telling of the job's end may hold that end up."""


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


class EventRecorder:
    """A thread that tells what published statuses hold; nothing that goes wrong here matters.

    An API server that does not answer is asked again later, one that refuses is asked no more.
    """

    def __init__(self, cluster: Cluster, namespace: str, pod: Owner) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._pod = pod
        self._path = EVENTS.path(namespace)
        self._backlog = Backlog(time.time())
        self._changed = threading.Condition()
        self._is_writing = False
        self._is_leaving = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to write what is told."""
        self._thread.start()

    def close(self) -> None:
        """Write no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def tell(self, status: JobStatus) -> None:
        """Have written soon what this status tells first; the job's end before this returns.

        The end waits for no more than `FAREWELL_S`.
        """
        with self._changed:
            self._backlog.add(status)
            self._is_leaving = self._is_leaving or status.phase.is_final
            self._changed.notify_all()
            if status.phase.is_final:
                self._changed.wait_for(self._is_idle, FAREWELL_S)

    def _is_idle(self) -> bool:
        return self._is_closed or (self._backlog.is_empty and not self._is_writing)

    # -- on the recorder's thread --------------------------------------------------------------

    def _run(self) -> None:
        while (group := self._next()) is not None:
            name = f"{self._pod.name}.{secrets.token_hex(8)}"
            manifest = event(group, self._pod, self._namespace, name)
            # Under the same name, so that one whose answer was lost is not told twice.
            while not self._write(manifest) and self._may_try_again():
                pass
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _next(self) -> Group | None:
        """Wait for something to tell, and for its time; None when there will be nothing more."""
        with self._changed:
            while not self._is_closed:
                now_s = time.monotonic()
                due_s = self._backlog.due_s(now_s)
                # Nothing comes after the end, so there is no storm to hold back.
                if due_s is not None and (due_s <= now_s or self._is_leaving):
                    self._is_writing = True
                    return self._backlog.take(now_s)
                self._changed.wait(None if due_s is None else due_s - now_s)
        return None

    def _write(self, manifest: Manifest) -> bool:
        """Write one Event; False where it is worth another try."""
        try:
            self._cluster.create(self._path, manifest)
        except AwayError as error:
            logger.info("events are told later: %s", error)
            return False
        except RefusedError as error:
            if error.code in BUSY:
                return False
            if error.code == HTTPStatus.FORBIDDEN:
                logger.warning("the job's events are in its status only: %s", error)
                self.close()
            elif error.code != HTTPStatus.CONFLICT:
                logger.warning("an event was not taken: %s", error)
        return True

    def _may_try_again(self) -> bool:
        """Wait for the next try; False where there is no time for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._is_leaving, AWAY_PAUSE_S)
            return not (self._is_closed or self._is_leaving)
