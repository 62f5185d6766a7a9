"""Ends a master that stands still: the user's code in an update of the parameters may hang for
ever, on the event loop or in a thread. Nobody else would notice, as the process is there."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from elastic.policy.fleet import HANG_FACTOR
from elastic.spec.model_def import stuck_in

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
LEAST_S: Final = 10.0
"""However short `hang_timeout` is: on a busy machine the first update compiles for seconds."""


@dataclass(slots=True)
class _Work:
    """What a thread is at, by the watch's own ticks.

    Attributes:
        limit_s: How long it may take before anybody asks where it is.
        taken_s: So far.
        told_s: When it was asked last.
    """

    limit_s: float
    taken_s: float = 0.0
    told_s: float = 0.0


class HangWatch:
    """Looks from a thread of its own at the event loop and at what others ask it to look at.

    It counts its own ticks, not the clock: a process that was stopped has not hung.
    """

    def __init__(self, limit_s: float, first_s: float, on_hang: Callable[[str], None]) -> None:
        """Watch the running event loop from `start` on.

        Args:
            limit_s: How long the loop may give no answer; and a piece of work may take, or
                `HANG_FACTOR` times the longest of its name where that is more.
            first_s: How long the first two of a name may take at the least: one may compile, and
                the other is the first to tell what is usual.
            on_hang: Told where the user's code stands; called from the thread, once.
        """
        self._limit_s = limit_s
        self._first_s = max(first_s, limit_s)
        self._on_hang = on_hang
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._answered = threading.Event()
        self._works = {self._loop_thread: _Work(limit_s)}
        """What each thread that is watched is at."""
        self._longest_s: dict[str, float | None] = {}
        """The longest work that came to an end, by name; the first teaches nothing."""
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
    def over(self, name: str) -> Iterator[None]:
        """Watch what the calling thread, which is not the loop's, does in the block."""
        thread = threading.get_ident()
        with self._lock:
            longest_s = self._longest_s.get(name)
            limit_s = self._first_s if longest_s is None else HANG_FACTOR * longest_s
            work = self._works[thread] = _Work(max(limit_s, self._limit_s))
        try:
            yield
        finally:
            with self._lock:
                del self._works[thread]
                is_first = name not in self._longest_s
                self._longest_s[name] = None if is_first else max(work.taken_s, longest_s or 0.0)

    def _run(self) -> None:
        self._ask()
        while not self._stopping.wait(TICK_S):
            for thread, taken_s in self._overdue():
                frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented
                where = None if frame is None else stuck_in(frame)
                if where is not None:
                    self._on_hang(f"{where} hangs: training has stood still for {taken_s:g} s")
                    return
                # A disk or a cluster that does not answer: another master would wait for it too.
                log.warning("training has stood still for %g s in code of its own", taken_s)

    def _overdue(self) -> list[tuple[int, float]]:
        """Let a tick pass; gives the threads that have reached their limit, and when they did."""
        overdue = []
        with self._lock:
            if self._answered.is_set():
                self._works[self._loop_thread] = _Work(self._limit_s)
                self._ask()
            for thread, work in self._works.items():
                work.taken_s += TICK_S
                if work.taken_s >= work.told_s + work.limit_s:
                    work.told_s = work.taken_s
                    overdue.append((thread, work.taken_s))
        return overdue

    def _ask(self) -> None:
        self._answered.clear()
        self._loop.call_soon_threadsafe(self._answered.set)
