"""Notes that are not told yet, and how many of them an object may have. Pure.

An object tells a number of notes at once, and then few: those beyond are gathered by their reason
and told together when their time has come. Nothing is dropped but where there is no room at all.
"""

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from elastic.controller.reconciling import EventType, Note
from elastic.platforms.kubernetes.api.resources import Manifest

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
