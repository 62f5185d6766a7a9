"""What a master tells of its job: the published status, and Events of its pod.

`kubectl describe` shows the Events. Everything is told once, and a storm in a few.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import NO_FENCE, Fence, StatusRefusedError
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, EVENTS, Manifest
from elastic.platforms.kubernetes.api.transport import BUSY, AwayError, is_permanent
from elastic.platforms.kubernetes.masters import dump_end, reduced
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.names import APP, Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.status import JobEvent, JobPhase, JobStatus

logger = logging.getLogger(__name__)

BURST: Final = 20
EVENT_INTERVAL_S: Final = 1.0
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
        self._not_before_s = now_s + EVENT_INTERVAL_S
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


# The published status: written soon and seldom, its end at once.


MAX_LAST_WORDS: Final = 20
"""Replicas whose last words are kept: all of them have to fit into one ConfigMap."""

STATUS_INTERVAL_S: Final = 2.0
"""Between two writes: a job of many hours changes its status all the time."""

REFUSED_INTERVALS: Final = 15
"""How many of them pass before a status is tried again that was refused for good."""


class StatusStore:
    """Writes the newest status in the background, at most every `INTERVAL_S`.

    Who publishes is the master's event loop, which must not wait for an API server.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        on_stored: Callable[[JobStatus], None] = lambda _status: None,
        interval_s: float = STATUS_INTERVAL_S,
        termination_path: Path = names.TERMINATION_PATH,
        fence: Fence = NO_FENCE,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._on_stored = on_stored
        self._interval_s = interval_s
        self._termination_path = termination_path
        self._fence = fence
        self._path = CONFIGMAPS.path(job.namespace, names.status_name(job.name))
        self._newest: JobStatus | None = None
        self._earlier: JobStatus | None = None
        self._is_dirty = False
        self._last_words: dict[str, str] = {}
        self._are_words_dirty = False
        self._is_closed = False
        self._is_stored = False
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    def start(self) -> None:
        """Begin to write what is published."""
        self._thread.start()

    def close(self) -> None:
        """Write no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def publish(self, status: JobStatus) -> None:
        """Have a status written; a final one is when this returns.

        Raises:
            StatusRefusedError: A final status is refused for good; the pod tells the end instead.
            PlatformError: A final status could not be written now.
        """
        with self._changed:
            self._newest, self._is_dirty = status, True
            self._changed.notify_all()
        if status.phase.is_final:
            try:
                self._write()
            except RefusedError as error:
                if not is_permanent(error):
                    raise
                self._tell_end(status)
                raise StatusRefusedError(
                    f"the end of the job is not published: {error}; its master's pod tells it"
                ) from error

    def flush(self) -> None:
        """Write what is published and not written yet.

        Raises:
            PlatformError: It could not be written.
        """
        with self._changed:
            is_dirty = self._is_dirty
        if is_dirty:
            self._write()

    def keep_last_words(self, replica: str, text: str) -> None:
        """Have the last words of a replica's launch written with the next status."""
        with self._changed:
            # The newest come last, and the oldest go first.
            self._last_words.pop(replica, None)
            self._last_words[replica] = text
            for name in list(self._last_words)[:-MAX_LAST_WORDS]:
                del self._last_words[name]
            self._are_words_dirty = True

    def last(self) -> JobStatus | None:
        """The status published last, written or not; by an earlier life where this one has none.

        Raises:
            PlatformError: It cannot be read.
        """
        with self._changed:
            if self._newest is not None or self._earlier is not None:
                return self._newest or self._earlier
        try:
            config_map = self._cluster.get(self._path)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise
        if not self._is_of_job(config_map):
            return None
        earlier, words = self._readable(config_map), _readable_words(config_map)
        with self._changed:
            self._last_words = words | self._last_words
            self._earlier = earlier
        return earlier

    def _is_of_job(self, config_map: Manifest) -> bool:
        """Whether it is of this submission, and not of an earlier job of the same name."""
        labels = config_map["metadata"].get("labels") or {}
        uid = self._job.submission_uid
        return bool(labels.get(names.SUBMISSION_LABEL, uid) == uid)

    def _readable(self, config_map: Manifest) -> JobStatus | None:
        try:
            return manifests.status_of(config_map)
        except manifests.StatusUnreadableError as error:
            # Lost is what the job had told of itself, and no reason to let it end.
            logger.warning("%s", error)
            return JobStatus(job_name=self._job.name, phase=JobPhase.RECOVERING)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_dirty or self._is_closed)
                if self._is_closed:
                    return
            began_s = time.monotonic()
            interval_s = self._interval_s
            try:
                self._write()
            except PlatformError as error:
                logger.warning("the status could not be written: %s", error)
                if isinstance(error, RefusedError) and is_permanent(error):
                    # Somebody has to mend that first, such as a right that was taken away.
                    interval_s *= REFUSED_INTERVALS
                with self._changed:
                    self._is_dirty = True
            with self._changed:
                rest_s = began_s + interval_s - time.monotonic()
                self._changed.wait_for(lambda: self._is_closed, max(0.0, rest_s))

    def _write(self) -> None:
        # One at a time, so that an older status never comes after a newer one.
        with self._writing:
            self._fence.check()
            with self._changed:
                status, self._is_dirty = self._newest, False
                words = dict(self._last_words) if self._are_words_dirty else None
                self._are_words_dirty = False
            assert status is not None
            is_whole = False
            try:
                is_whole = self._send_whole_or_reduced(status, words)
                if is_whole:
                    self._on_stored(status)
            finally:
                with self._changed:
                    is_lost = words is not None and not is_whole
                    self._are_words_dirty = self._are_words_dirty or is_lost

    def _send_whole_or_reduced(self, status: JobStatus, words: dict[str, str] | None) -> bool:
        """Send all, or where that is refused for good the least; False for the least."""
        try:
            self._send(manifests.status(self._job, status, words))
        except RefusedError as error:
            if not is_permanent(error):
                raise
            logger.warning("the status is refused, so it is tried without its lists: %s", error)
            self._send(manifests.status(self._job, reduced(status)))
            return False
        return True

    def _tell_end(self, end: JobStatus) -> None:
        try:
            self._termination_path.write_text(dump_end(end), encoding="utf-8")
        except OSError as error:
            logger.warning("cannot write %s: %s", self._termination_path, error.strerror)

    def _send(self, manifest: Manifest) -> None:
        try:
            self._cluster.patch(self._path, manifest)
        except RefusedError as error:
            is_missing = error.code == HTTPStatus.NOT_FOUND
            # A job may be forgotten before its master has ended, and stays so.
            if not is_missing or (self._is_stored and self._is_forgotten()):
                raise
            collection = CONFIGMAPS.path(self._job.namespace)
            self._cluster.create(collection, manifest)
        self._is_stored = True

    def _is_forgotten(self) -> bool:
        record = CONFIGMAPS.path(self._job.namespace, names.record_name(self._job.name))
        try:
            self._cluster.get(record)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return True
            raise
        return False


def _readable_words(config_map: Manifest) -> dict[str, str]:
    try:
        return manifests.last_words_of(config_map)
    except PlatformError as error:
        logger.warning("%s", error)
        return {}
