"""Short waits for another process of the machine, spent awake.

Who sleeps has to be woken, and so has the core that has slept as well, which costs the one who
sends and the one who waits. On a virtual machine a report of a small gradient, its update among it,
took 2.4 ms, and takes 1.7 where its worker stays awake.
"""

import math
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

AWAKE_S: Final = 0.005
"""The longest wait that is spent so."""

CROWDED: Final = 3
"""Waits in a row in which the core went to somebody else, from which on somebody needs it."""

PAUSE_S: Final = 1.0
"""How long it is then left to them."""

_is_awake: Final = threading.Lock()
"""Held by the one thread of this process that is: two would take each other the interpreter."""


class Spinning(Protocol):
    """What can be waited for awake."""

    def spin(self, seconds: float) -> None:
        """Return when something has come, or after so long."""


def num_displaced() -> int:
    """How often the calling thread would have gone on, and another had its core."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


class Vigil:
    """Waits awake for answers that are about to come, by how long the last of their kind took.

    Of a group of workers most wait for each other, so long that none of them stays awake. By any
    thread.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        num_displaced: Callable[[], int] = num_displaced,
    ) -> None:
        """Take a clock, and what counts how often the core was taken from the calling thread.

        Its processor time would not tell: the machine below a virtual one takes from that too.
        """
        self._clock = clock
        self._num_displaced = num_displaced
        self._num_crowded = 0
        self._last_s: dict[bytes, float] = {}
        self._left_until_s = -math.inf

    @contextmanager
    def over(self, connection: Spinning, kind: bytes) -> Iterator[None]:
        """Around the wait for an answer of this kind, which is read at the end of it."""
        began_s = self._clock()
        last_s = self._last_s.get(kind, math.inf)
        is_short = last_s < AWAKE_S and began_s >= self._left_until_s
        if is_short and _is_awake.acquire(blocking=False):
            try:
                self._stay_awake(connection, min(2 * last_s, AWAKE_S))
            finally:
                _is_awake.release()
        yield
        self._last_s[kind] = self._clock() - began_s

    def _stay_awake(self, connection: Spinning, seconds: float) -> None:
        before = self._num_displaced()
        connection.spin(seconds)
        is_alone = self._num_displaced() == before
        self._num_crowded = 0 if is_alone else self._num_crowded + 1
        if self._num_crowded >= CROWDED:
            self._num_crowded = 0
            self._left_until_s = self._clock() + PAUSE_S
