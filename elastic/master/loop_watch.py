"""Ends a master that stands still: small updates run on its event loop, and the user's code in one
of them may hang for ever. Nobody else would notice, as the process is there."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from typing import Final

from elastic.spec.user_frames import stuck_in

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
LEAST_S: Final = 10.0
"""However short `hang_timeout` is: on a busy machine the first update compiles for seconds."""


class LoopWatch:
    """Asks the event loop for an answer from a thread, again and again."""

    def __init__(self, limit_s: float, on_hang: Callable[[str], None]) -> None:
        """Watch the running event loop from `start` on.

        Args:
            limit_s: How long no answer may come.
            on_hang: Told where in the user's code the loop stands; called from the thread, once.
        """
        self._limit_s = limit_s
        self._on_hang = on_hang
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._answered = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop-watch", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; returns when `on_hang` is not going to be called."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        # Ticks of this thread, not the clock: a process that was stopped has not hung.
        silent_s = 0.0
        self._ask()
        while not self._stopping.wait(TICK_S):
            if self._answered.is_set():
                silent_s = 0.0
                self._ask()
                continue
            silent_s += TICK_S
            if silent_s < self._limit_s:
                continue
            where = self._stuck()
            if where is not None:
                self._on_hang(f"{where} hangs: the master has stood still for {silent_s:g} s")
                return
            # A disk or a cluster that does not answer: another master would wait for it too.
            log.warning("the master has stood still for %g s in code of its own", silent_s)
            silent_s = 0.0

    def _ask(self) -> None:
        self._answered.clear()
        self._loop.call_soon_threadsafe(self._answered.set)

    def _stuck(self) -> str | None:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - documented
        return None if frame is None else stuck_in(frame)
