"""Which workers hang: leases by time, with a limit learned from the steps that completed."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from elastic.policy.replicas import ReplicaId

HANG_FACTOR: Final = 5.0
"""A step this many times longer than the longest recent one is a hang."""

NUM_RECENT_STEPS: Final = 200

HEARTBEAT_LIMIT_S: Final = 20.0
"""Silence of a worker that has stepped before; a heartbeat is due every two seconds."""

STALL_S: Final = 5.0
"""A longer time between two looks means that the master itself stood still."""


@dataclass(frozen=True, slots=True)
class Hang:
    """A worker silent for `silent_s`, more than the `limit_s` it had.

    Attributes:
        what: What did not come: `progress`, any `sign of life`, or the request for a first task.
    """

    worker: ReplicaId
    silent_s: float
    limit_s: float
    what: str = "progress"


FIRST_TASK: Final = "first task"
"""What a worker owes that hangs in set-up."""


@dataclass(slots=True)
class Watch:
    """What is known of one worker; `num_calls` of its calls are at the master."""

    last_progress_s: float
    last_heard_s: float
    is_in_set_up: bool = True
    has_stepped: bool = False
    num_calls: int = 0


class Liveness:
    """Remembers when each worker last made progress. Not thread-safe; the time comes in.

    Progress is what a worker does for the job: it takes a task, reports. Heartbeats are not
    progress: they come from a thread that goes on while the step hangs. They tell earlier than any
    step that a whole machine is gone. The time that the master takes for a call, in which a user's
    callback may run, is nobody's silence.

    A worker is in set-up (imports its framework, registers, builds the model) until it asks for
    its first task.
    """

    def __init__(self, floor_s: float, first_step_s: float) -> None:
        """Set the limits.

        Args:
            floor_s: The limit is never below this, whatever was learned.
            first_step_s: The limit of a worker's set-up, and before its first step, which may
                compile the model.
        """
        self._floor_s = floor_s
        self._set_up_s = first_step_s
        self._first_step_s = max(floor_s, first_step_s)
        self._steps_s: deque[float] = deque(maxlen=NUM_RECENT_STEPS)
        self._watches: dict[ReplicaId, Watch] = {}
        self._last_look_s: float | None = None

    def observed_running(self, workers: Iterable[ReplicaId], now_s: float) -> None:
        """Start to watch the workers that are new: one may hang before it has ever called."""
        for worker in workers:
            self._watches.setdefault(worker, Watch(now_s, now_s))

    def joined(self, worker: ReplicaId, now_s: float) -> None:
        """Watch a worker that registered; the time of its set-up goes on."""
        self._watches.setdefault(worker, Watch(now_s, now_s)).last_heard_s = now_s

    def is_at_work(self, worker: ReplicaId) -> bool:
        """Whether it has asked for a task."""
        return worker in self._watches and not self._watches[worker].is_in_set_up

    def left(self, worker: ReplicaId) -> None:
        """Stop watching; also if it was not watched."""
        self._watches.pop(worker, None)

    def heard(self, worker: ReplicaId, now_s: float) -> None:
        """Note any call of a worker, heartbeats included."""
        watch = self._watches.get(worker)
        if watch is not None:
            watch.last_heard_s = now_s

    def progressed(self, worker: ReplicaId, now_s: float, step_s: float | None = None) -> None:
        """Note progress; `step_s` is how long a completed step took."""
        watch = self._watches.get(worker)
        if watch is None:
            return
        watch.last_progress_s = now_s
        watch.is_in_set_up = False
        if step_s is not None:
            # The first step of a worker compiles; it would teach a limit that finds no hang.
            if watch.has_stepped:
                self._steps_s.append(step_s)
            watch.has_stepped = True

    def call_begins(self, worker: ReplicaId) -> Watch | None:
        """Note that the worker waits for the master, so that its silence is no hang."""
        watch = self._watches.get(worker)
        if watch is not None:
            watch.num_calls += 1
        return watch

    def call_ends(self, watch: Watch | None, now_s: float) -> None:
        """Note that it waits no longer; `watch` is what `call_begins` gave."""
        if watch is None:
            return
        watch.num_calls -= 1
        if not watch.is_in_set_up:
            watch.last_progress_s = now_s

    def limit_s(self, worker: ReplicaId) -> float:
        """The silence that makes this worker a hang."""
        watch = self._watches.get(worker)
        if watch is None or watch.is_in_set_up:
            return self._set_up_s
        if not watch.has_stepped:
            return self._first_step_s
        return max(self._floor_s, HANG_FACTOR * max(self._steps_s, default=0.0))

    def hangs(self, now_s: float) -> list[Hang]:
        """The workers whose silence is over their limit; to be asked at least every second."""
        self._forgive_stall(now_s)
        found = []
        for worker, watch in self._watches.items():
            silent_s = now_s - watch.last_progress_s
            limit_s = self.limit_s(worker)
            unheard_s = now_s - watch.last_heard_s
            if not watch.num_calls and silent_s > limit_s:
                what = FIRST_TASK if watch.is_in_set_up else "progress"
                found.append(Hang(worker, silent_s, limit_s, what))
            elif watch.has_stepped and unheard_s > HEARTBEAT_LIMIT_S:
                found.append(Hang(worker, unheard_s, HEARTBEAT_LIMIT_S, "sign of life"))
        return found

    def _forgive_stall(self, now_s: float) -> None:
        """Not count the time in which the master could not have heard anybody."""
        if self._last_look_s is not None and now_s - self._last_look_s > STALL_S:
            stalled_s = now_s - self._last_look_s
            for watch in self._watches.values():
                watch.last_progress_s = min(now_s, watch.last_progress_s + stalled_s)
                watch.last_heard_s = min(now_s, watch.last_heard_s + stalled_s)
        self._last_look_s = now_s

    @property
    def typical_step_s(self) -> float | None:
        """Median of the recent steps, or None before the second step of any worker."""
        if not self._steps_s:
            return None
        return sorted(self._steps_s)[len(self._steps_s) // 2]
