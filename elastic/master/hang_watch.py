"""Ends a master that stands still: the user's code in an update of the parameters may hang for
ever, on the event loop or in a thread. Nobody else would notice, as the process is there."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from elastic.spec.user_frames import stuck_in

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
LEAST_S: Final = 10.0
"""However short `hang_timeout` is: on a busy machine the first update compiles for seconds."""


class HangWatch:
    """Looks from a thread of its own at the event loop and at what others ask it to look at.

    It counts its own ticks, not the clock: a process that was stopped has not hung.
    """

    def __init__(self, limit_s: float, on_hang: Callable[[str], None]) -> None:
        """Watch the running event loop from `start` on.

        Args:
            limit_s: How long the loop may give no answer, and a piece of work may take.
            on_hang: Told where the user's code stands; called from the thread, once.
        """
        self._limit_s = limit_s
        self._on_hang = on_hang
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._answered = threading.Event()
        self._still_s: dict[int, float] = {self._loop_thread: 0.0}
        """For each thread that is watched, how long it has been at what it does."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hang-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; returns when `on_hang` is not going to be called."""
        self._stopping.set()
        self._thread.join()

    @contextmanager
    def over(self) -> Iterator[None]:
        """Watch what the calling thread, which is not the loop's, does in the block."""
        thread = threading.get_ident()
        with self._lock:
            self._still_s[thread] = 0.0
        try:
            yield
        finally:
            with self._lock:
                del self._still_s[thread]

    def _run(self) -> None:
        self._ask()
        while not self._stopping.wait(TICK_S):
            for thread, still_s in self._overdue():
                frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented
                where = None if frame is None else stuck_in(frame)
                if where is not None:
                    self._on_hang(f"{where} hangs: training has stood still for {still_s:g} s")
                    return
                # A disk or a cluster that does not answer: another master would wait for it too.
                log.warning("training has stood still for %g s in code of its own", still_s)

    def _overdue(self) -> list[tuple[int, float]]:
        """Let a tick pass; gives the threads that have reached the limit, which count anew."""
        with self._lock:
            for thread in self._still_s:
                self._still_s[thread] += TICK_S
            if self._answered.is_set():
                self._still_s[self._loop_thread] = 0.0
                self._ask()
            overdue = [pair for pair in self._still_s.items() if pair[1] >= self._limit_s]
            self._still_s.update((thread, 0.0) for thread, _ in overdue)
        return overdue

    def _ask(self) -> None:
        self._answered.clear()
        self._loop.call_soon_threadsafe(self._answered.set)
