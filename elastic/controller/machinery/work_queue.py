"""Which job is looked at next: each once, in the order of asking, and failures ever more rarely.

A key is in work at most once at a time. What is asked for meanwhile is kept, so that the last look
at a key always begins after the last time it was asked for.
"""

import heapq
import random
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

RETRIES_PER_S: Final = 20.0
"""Of all keys together: a thousand that fail at once must not come back at once."""

RETRY_BURST: Final = 100
_MAX_DOUBLINGS: Final = 30
_SPARE_TIMERS: Final = 64


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long a key that failed rests: doubled with each failure in a row.

    Attributes:
        first_s: After the first failure, at the most.
        last_s: Never longer.
        jitter: The part of a pause that is drawn, from 0 to 1: what failed together shall not come
            back together.
    """

    first_s: float = 0.1
    last_s: float = 60.0
    jitter: float = 0.5

    def pause_s(self, failures: int, rng: random.Random) -> float:
        """The pause after so many failures in a row, >= 1."""
        # A count without bounds must not overflow a float.
        full_s = self.first_s * 2.0 ** min(failures - 1, _MAX_DOUBLINGS)
        return min(self.last_s, full_s) * rng.uniform(1.0 - self.jitter, 1.0)


@dataclass(frozen=True, slots=True)
class Taken(Generic[K]):
    """A key that is in work until `done`.

    Attributes:
        since_s: When it was asked for, or was due, by the queue's clock; the first time, where it
            was asked for several times.
    """

    key: K
    since_s: float


class WorkQueue(Generic[K]):
    """Keys that wait to be taken. Safe to use from several threads."""

    def __init__(
        self,
        back_off: BackOff | None = None,
        retries_per_s: float = RETRIES_PER_S,
        retry_burst: int = RETRY_BURST,
        now_s: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """Keep the parts.

        Args:
            back_off: See `again`.
            retries_per_s: Of all keys that failed, in the long run.
            retry_burst: Of them, at once.
            now_s: The clock, in seconds; it never goes back.
            rng: For the jitter.
        """
        self._back_off = back_off or BackOff()
        self._retries_per_s = retries_per_s
        self._retry_burst = float(retry_burst)
        self._now_s = now_s
        self._rng = rng or random.Random()  # noqa: S311 - jitter, no secret
        self._changed = threading.Condition()
        # Dicts keep the order in which keys were asked for.
        self._ready: dict[K, float] = {}
        self._in_work: set[K] = set()
        self._asked_meanwhile: dict[K, float] = {}
        self._due: dict[K, tuple[float, int]] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._num_timers = 0
        self._failures: dict[K, int] = {}
        self._tokens = self._retry_burst
        self._filled_s = now_s()
        self._is_closed = False

    @property
    def depth(self) -> int:
        """Keys that could be taken now, or once the work on them is done."""
        with self._changed:
            self._wake_due()
            return len(self._ready) + len(self._asked_meanwhile)

    @property
    def num_later(self) -> int:
        """Keys that wait for a moment to come."""
        with self._changed:
            self._wake_due()
            return len(self._due)

    def add(self, key: K) -> None:
        """Have a key looked at as soon as may be."""
        with self._changed:
            self._ask(key, self._now_s())

    def add_after(self, key: K, delay_s: float) -> None:
        """Have a key looked at in `delay_s`, or sooner where it is asked for sooner.

        A look that begins before then settles it: who looks knows when to look next.
        """
        with self._changed:
            self._ask_later(key, delay_s)

    def again(self, key: K, at_least_s: float = 0.0) -> float:
        """Have a key that failed looked at again, after a pause that grows with each failure.

        Args:
            key: What failed.
            at_least_s: For failures that nothing but a change will mend.

        Returns:
            The pause in seconds; at most twice the back-off's last, or `at_least_s`.
        """
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause_s = max(at_least_s, self._back_off.pause_s(failures, self._rng))
            pause_s += self._wait_for_token_s()
            self._ask_later(key, pause_s)
            return pause_s

    def forget(self, key: K) -> None:
        """A key succeeded, or is no more: its next failure is its first."""
        with self._changed:
            self._failures.pop(key, None)

    def take(self) -> Taken[K] | None:
        """Wait for a key; None once the queue is closed. `done` must follow."""
        with self._changed:
            while not self._is_closed:
                taken = self._take()
                if taken is not None:
                    # Whoever waits for the next moment may have been this thread.
                    if self._ready or self._due:
                        self._changed.notify()
                    return taken
                self._changed.wait(self._until_next_s())
        return None

    def take_now(self) -> Taken[K] | None:
        """A key that can be taken in this moment, or None. `done` must follow."""
        with self._changed:
            return None if self._is_closed else self._take()

    def done(self, key: K) -> None:
        """The work on a key has ended; it is ready again where it was asked for meanwhile."""
        with self._changed:
            self._in_work.discard(key)
            since_s = self._asked_meanwhile.pop(key, None)
            if since_s is not None:
                self._ready[key] = since_s
                self._changed.notify()

    def close(self) -> None:
        """Give out nothing more; all who wait return."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # -- under the lock ------------------------------------------------------------------------

    def _ask(self, key: K, since_s: float) -> None:
        if self._is_closed:
            return
        asked = self._asked_meanwhile if key in self._in_work else self._ready
        asked.setdefault(key, since_s)
        self._changed.notify()

    def _ask_later(self, key: K, delay_s: float) -> None:
        due_s = self._now_s() + max(0.0, delay_s)
        known = self._due.get(key)
        if self._is_closed or (known is not None and known[0] <= due_s):
            return
        self._num_timers += 1
        self._due[key] = (due_s, self._num_timers)
        heapq.heappush(self._timers, (due_s, self._num_timers, key))
        self._drop_spare_timers()
        self._changed.notify()

    def _drop_spare_timers(self) -> None:
        """Timers that were replaced lie in the heap until their time, which may be days away."""
        if len(self._timers) > 2 * len(self._due) + _SPARE_TIMERS:
            self._timers = [timer for timer in self._timers if self._is_current(timer)]
            heapq.heapify(self._timers)

    def _take(self) -> Taken[K] | None:
        self._wake_due()
        if not self._ready:
            return None
        key = next(iter(self._ready))
        since_s = self._ready.pop(key)
        self._in_work.add(key)
        self._due.pop(key, None)
        return Taken(key, since_s)

    def _wake_due(self) -> None:
        now_s = self._now_s()
        while self._timers and self._timers[0][0] <= now_s:
            timer = heapq.heappop(self._timers)
            if self._is_current(timer):
                due_s, _, key = timer
                del self._due[key]
                self._ask(key, due_s)

    def _is_current(self, timer: tuple[float, int, K]) -> bool:
        due_s, number, key = timer
        return self._due.get(key) == (due_s, number)

    def _until_next_s(self) -> float | None:
        return max(0.0, self._timers[0][0] - self._now_s()) if self._timers else None

    def _wait_for_token_s(self) -> float:
        """Take a token, perhaps one that is still to come; seconds until it is there."""
        now_s = self._now_s()
        gained = (now_s - self._filled_s) * self._retries_per_s
        # The queue of those who wait for tokens has an end, or a storm would hold up what follows.
        least = -self._retries_per_s * self._back_off.last_s
        self._tokens = max(least, min(self._retry_burst, self._tokens + gained) - 1.0)
        self._filled_s = now_s
        return max(0.0, -self._tokens / self._retries_per_s)
