"""Short waits for another process of the machine, spent awake.

Who sleeps has to be woken, and so has the core that has slept as well: on a virtual machine the one
who sends pays 0.3 ms for that, and the other begins 0.1 ms late. Of a step of a small model, a
report of its gradient and its update take two to three milliseconds.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

AWAKE_S: Final = 0.005
"""The longest wait that is spent so."""

CROWDED: Final = 0.25
"""The share of a wait in which other processes had the core, from which on one needs it."""

PAUSE_S: Final = 1.0
"""How long it is then left to them."""

_is_awake: Final = threading.Lock()
"""Held by the one thread of this process that is: two would take each other the interpreter."""


class Spinning(Protocol):
    """What can be waited for awake."""

    def spin(self, seconds: float) -> None:
        """Return when something has come, or after so long."""


class Vigil:
    """Waits awake for answers that are about to come, by how long the last of their kind took.

    Of a group of workers most wait for each other, so long that none of them stays awake. By any
    thread.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        """Take the clocks: of the wall, and of the processor time of this process.

        The calling thread's would not do: another of this process may read records meanwhile.
        """
        self._clock = clock
        self._cpu_clock = cpu_clock
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
                self._stay_awake(connection, min(2 * last_s, AWAKE_S), began_s)
            finally:
                _is_awake.release()
        yield
        self._last_s[kind] = self._clock() - began_s

    def _stay_awake(self, connection: Spinning, seconds: float, began_s: float) -> None:
        began_cpu_s = self._cpu_clock()
        connection.spin(seconds)
        now_s = self._clock()
        waited_s = now_s - began_s
        if waited_s - (self._cpu_clock() - began_cpu_s) > CROWDED * waited_s:
            self._left_until_s = now_s + PAUSE_S
