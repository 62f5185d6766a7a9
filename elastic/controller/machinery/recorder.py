"""Tells what happens to jobs as Events, where `kubectl describe` shows it; nothing waits for it.

Notes that are equal within a while are one Event that is counted up.
"""

import logging
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from elastic.controller.machinery.backlog import Backlog, Subject, Telling, Topic
from elastic.controller.reconciling import Note
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.errors import BUSY, AwayError, RefusedError
from elastic.platforms.kubernetes.api.resources import EVENTS, Manifest

logger = logging.getLogger(__name__)

WINDOW_S: Final = 600.0
"""How long after it was told last an Event is counted up, and not told anew."""

MAX_REMEMBERED: Final = 4096
"""Events that may be counted up."""

AWAY_PAUSE_S: Final = 5.0
DROPPED_EVERY_S: Final = 60.0
"""How often it is logged, at the most, that there was no room for some."""

FAREWELL_S: Final = 3.0
"""What telling of the last notes may hold up the end of the process."""


@dataclass(frozen=True, slots=True)
class _Written:
    """An Event that is there."""

    name: str
    count: int
    last_s: float


class EventRecorder:
    """A thread that writes what it was told. Safe to use from several threads."""

    def __init__(
        self, cluster: Cluster, instance: str = "", backlog: Backlog | None = None
    ) -> None:
        """Keep the parts; `start` begins to write.

        Args:
            cluster: Where the objects are.
            instance: Of the controller, such as the name of its pod.
            backlog: Bounds what is told.
        """
        self._cluster = cluster
        self._instance = instance
        self._backlog = backlog or Backlog()
        self._written: OrderedDict[tuple[Topic, str], _Written] = OrderedDict()
        self._denied: set[str] = set()
        self._changed = threading.Condition()
        self._is_writing = False
        self._is_leaving = False
        self._is_closed = False
        self._num_dropped = 0
        self._dropped_told_s = -DROPPED_EVERY_S
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to write what is told."""
        self._thread.start()

    def tell(self, item: Manifest, component: str, note: Note) -> None:
        """Have a note of an object written soon; returns at once, and never fails."""
        with self._changed:
            has_room = self._backlog.add(Subject.of(item), component, note, self._cluster.now_s())
            if not has_room:
                self._note_dropped()
            self._changed.notify_all()

    def close(self) -> None:
        """Write what waits, for no longer than `FAREWELL_S`, and then no more."""
        with self._changed:
            self._is_leaving = True
            self._changed.notify_all()
            if self._thread.is_alive():
                self._changed.wait_for(
                    lambda: self._backlog.is_empty and not self._is_writing, FAREWELL_S
                )
            self._is_closed = True
            self._changed.notify_all()

    def _note_dropped(self) -> None:
        self._num_dropped += 1
        now_s = time.monotonic()
        if now_s - self._dropped_told_s >= DROPPED_EVERY_S:
            logger.warning(
                "more events are told than can be written: %d dropped so far", self._num_dropped
            )
            self._dropped_told_s = now_s

    # -- on the recorder's thread --------------------------------------------------------------

    def _run(self) -> None:
        while (telling := self._next()) is not None:
            name = f"{telling.topic.subject.name}.{secrets.token_hex(8)}"
            # Under the same name, so that one whose answer was lost is not told twice.
            while not self._write(telling, name) and self._may_try_again():
                pass
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _next(self) -> Telling | None:
        """Wait for something to tell, and for its time; None when there will be nothing more."""
        with self._changed:
            while not self._is_closed:
                now_s = self._cluster.now_s()
                telling = self._backlog.take(now_s, self._is_leaving)
                if telling is not None:
                    self._is_writing = True
                    return telling
                due_s = self._backlog.due_s(now_s)
                self._changed.wait(None if due_s is None else max(0.0, due_s - now_s))
        return None

    def _write(self, telling: Telling, name: str) -> bool:
        """Write one Event; False where it is worth another try."""
        try:
            if not self._count_up(telling):
                self._create(telling, name)
        except AwayError:
            return False
        except RefusedError as error:
            if error.code in BUSY:
                return False
            self._name_refusal(telling.topic.subject.namespace, error)
        except PlatformError as error:
            logger.warning("an event was not written: %s", error)
        return True

    def _count_up(self, telling: Telling) -> bool:
        """Add to an Event that is there; False where there is none."""
        key = (telling.topic, telling.message)
        written = self._written.pop(key, None)
        if written is None or telling.last_s - written.last_s > WINDOW_S:
            return False
        count = written.count + telling.count
        path = EVENTS.path(_home(telling.topic.subject), written.name)
        try:
            self._cluster.patch(path, {"count": count, "lastTimestamp": _stamp(telling.last_s)})
        except RefusedError as error:
            # The cluster keeps them for an hour, or less where it was told to.
            if error.code == HTTPStatus.NOT_FOUND:
                return False
            self._written[key] = written
            raise
        except AwayError:
            self._written[key] = written
            raise
        self._remember(telling, written.name, count)
        return True

    def _create(self, telling: Telling, name: str) -> None:
        path = EVENTS.path(_home(telling.topic.subject))
        try:
            self._cluster.create(path, event(telling, name, self._instance))
        except RefusedError as error:
            # An earlier try got through, and its answer was lost.
            if not error.is_taken:
                raise
        self._remember(telling, name, telling.count)

    def _remember(self, telling: Telling, name: str, count: int) -> None:
        self._written[telling.topic, telling.message] = _Written(name, count, telling.last_s)
        if len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)

    def _name_refusal(self, namespace: str, error: RefusedError) -> None:
        if error.is_denied:
            if namespace not in self._denied:
                logger.warning("events of %s are not written: %s", namespace, error)
            self._denied.add(namespace)
        else:
            # Such as one of a namespace that is about to go.
            logger.info("an event was not taken: %s", error)

    def _may_try_again(self) -> bool:
        """Wait for the next try; False where there is no time for one."""
        deadline_s = time.monotonic() + AWAY_PAUSE_S
        with self._changed:
            while not self._is_leaving and (left_s := deadline_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
            return not self._is_leaving


def event(telling: Telling, name: str, instance: str) -> Manifest:
    """The Event; in fields that every version since 1.20 has."""
    topic = telling.topic
    subject = topic.subject
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": _home(subject)},
        "involvedObject": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "type": topic.type.value,
        "reason": topic.reason,
        "message": telling.message,
        "count": telling.count,
        "firstTimestamp": _stamp(telling.first_s),
        "lastTimestamp": _stamp(telling.last_s),
        "source": {"component": topic.component},
        "reportingComponent": topic.component,
        "reportingInstance": instance,
    }


def _home(subject: Subject) -> str:
    """The namespace of its Events; those of objects in none are in this one."""
    return subject.namespace or "default"


def _stamp(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
