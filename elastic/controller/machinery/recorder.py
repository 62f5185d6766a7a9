"""Tells what happens to jobs as Events, where `kubectl describe` shows it; nothing waits for it.

Notes that are equal within a while are one Event that is counted up. An object tells a number of
notes at once, and then few: those beyond are gathered by their reason and told together when their
time has come (`Backlog`, which is pure). Nothing is dropped but where there is no room at all.
"""

import heapq
import logging
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from elastic.controller.reconciling import EventType, Note
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import EVENTS, Manifest
from elastic.platforms.kubernetes.api.transport import BUSY, AwayError, RefusedError

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
BURST: Final = 50
"""Notes of one object at once."""

REFILL_S: Final = 10.0
"""Between two notes of one object in the long run: a cluster keeps events for an hour."""

MAX_WAITING: Final = 2000
"""Events that wait to be written, of all objects."""

MAX_OBJECTS: Final = 4096
"""Whose budgets are remembered; those of the others are full again by then, or nearly."""

MAX_GATHERED: Final = 50
"""Different messages that are kept of those told together; beyond, they are counted."""

MAX_MESSAGE: Final = 1000
"""Kubernetes' own components cut messages at 1024 bytes."""

_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """What an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, item: Manifest) -> "Subject":
        """Of an object as the API server has it."""
        metadata = item["metadata"]
        namespace = metadata.get("namespace", "")
        return cls(item["apiVersion"], item["kind"], namespace, metadata["name"], metadata["uid"])


@dataclass(frozen=True, slots=True)
class Topic:
    """What events share that may be told together."""

    subject: Subject
    component: str
    type: EventType
    reason: str


@dataclass(slots=True)
class Telling:
    """One event that is to be written.

    Attributes:
        messages: Each with how often it came; more than one where they are told together.
        unkept: Messages that are counted only.
        first_s: Seconds since the epoch.
        last_s: Likewise.
    """

    topic: Topic
    messages: dict[str, int]
    first_s: float
    last_s: float
    unkept: int = field(default=0)

    @property
    def count(self) -> int:
        """How many notes it is made of."""
        return sum(self.messages.values()) + self.unkept

    @property
    def message(self) -> str:
        """As many of the messages as there is room for, and how many there are besides."""
        texts = list(self.messages)
        shown, num_shown = texts[0][:MAX_MESSAGE], 1
        for text in texts[1:]:
            if len(shown) + len(text) > MAX_MESSAGE:
                break
            shown, num_shown = f"{shown}; {text}", num_shown + 1
        left = len(texts) - num_shown + self.unkept
        return f"{shown}; and {left} more" if left else shown

    def add(self, message: str, now_s: float) -> None:
        """One more note on the topic."""
        self.last_s = now_s
        if message in self.messages or len(self.messages) < MAX_GATHERED:
            self.messages[message] = self.messages.get(message, 0) + 1
        else:
            self.unkept += 1


class Backlog:
    """What waits to be told. Not thread-safe; the time comes in."""

    def __init__(
        self, burst: int = BURST, refill_s: float = REFILL_S, max_waiting: int = MAX_WAITING
    ) -> None:
        """Begin empty; see the constants."""
        self._burst = float(burst)
        self._refill_s = refill_s
        self._max_waiting = max_waiting
        self._ready: OrderedDict[tuple[Topic, str], Telling] = OrderedDict()
        self._held: dict[Subject, OrderedDict[Topic, Telling]] = {}
        self._num_held = 0
        self._releases: list[tuple[float, str, Subject]] = []
        self._budgets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._ready and not self._held

    def add(self, subject: Subject, component: str, note: Note, now_s: float) -> bool:
        """Take a note; False where there is no room for it."""
        topic = Topic(subject, component, note.type, note.reason)
        waiting = self._ready.get((topic, note.message)) or self._held_on(topic)
        if waiting is not None:
            waiting.add(note.message, now_s)
            return True
        if len(self._ready) + self._num_held >= self._max_waiting:
            return False
        telling = Telling(topic, {note.message: 1}, now_s, now_s)
        # What is held has waited longer, and the next token is its own.
        if subject not in self._held and self._spend(subject.uid, now_s):
            self._ready[topic, note.message] = telling
        else:
            self._hold(telling, now_s)
        return True

    def due_s(self, now_s: float) -> float | None:
        """When the next event may be written, or None where nothing waits."""
        if self._ready:
            return now_s
        return self._releases[0][0] if self._releases else None

    def take(self, now_s: float, is_leaving: bool = False) -> Telling | None:
        """What has waited longest and may be told now.

        Args:
            now_s: By the clock of `add`.
            is_leaving: Nothing more will come, so nothing is held back.
        """
        if self._ready:
            return self._ready.popitem(last=False)[1]
        if not self._releases or (self._releases[0][0] > now_s and not is_leaving):
            return None
        _, uid, subject = heapq.heappop(self._releases)
        held = self._held[subject]
        _, telling = held.popitem(last=False)
        self._num_held -= 1
        self._spend(uid, now_s)
        if held:
            self._schedule(subject, now_s)
        else:
            del self._held[subject]
        return telling

    # -- inside --------------------------------------------------------------------------------

    def _held_on(self, topic: Topic) -> Telling | None:
        held = self._held.get(topic.subject)
        return None if held is None else held.get(topic)

    def _hold(self, telling: Telling, now_s: float) -> None:
        subject = telling.topic.subject
        if subject not in self._held:
            self._held[subject] = OrderedDict()
            self._schedule(subject, now_s)
        self._held[subject][telling.topic] = telling
        self._num_held += 1

    def _schedule(self, subject: Subject, now_s: float) -> None:
        missing = max(0.0, 1.0 - self._budget(subject.uid, now_s))
        heapq.heappush(self._releases, (now_s + missing * self._refill_s, subject.uid, subject))

    def _budget(self, uid: str, now_s: float) -> float:
        tokens, filled_s = self._budgets.get(uid, (self._burst, now_s))
        return min(self._burst, tokens + (now_s - filled_s) / self._refill_s)

    def _spend(self, uid: str, now_s: float) -> bool:
        """Take a token of an object; False where it has none left."""
        tokens = self._budget(uid, now_s)
        has_one = tokens >= 1.0 - _ROUNDING
        self._budgets[uid] = (tokens - 1.0 if has_one else tokens, now_s)
        self._budgets.move_to_end(uid)
        if len(self._budgets) > MAX_OBJECTS:
            self._budgets.popitem(last=False)
        return has_one


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
