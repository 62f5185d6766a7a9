"""SIGTERM to the master of a job of this machine: it ends the job as `elastic kill` does."""

import logging
import os
import signal
import threading
import time
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.killing import MASTER_S, ask, has_trained, keeps_version

logger = logging.getLogger(__name__)

TOGETHER_S: Final = 2.0
"""Signals so close to each other are one request: a machine that shuts down asks every process, and
a supervisor that is asked hands it on to its master."""
_POLL_S: Final = 0.25


class _Leaving:
    """What has been asked of this process, and what follows from it."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self._asked_s: float | None = None
        self._is_urgent = False

    def on_signal(self, number: int, _frame: object) -> None:
        """End the job where that is new, and else this process."""
        now_s = time.monotonic()
        if self._asked_s is None and not self._is_over():
            self._asked_s = now_s
            # Not here: the interrupted code may hold any lock.
            threading.Thread(target=self._end_job, name="leave", daemon=True).start()
        elif self._asked_s is None or self._is_urgent or now_s - self._asked_s >= TOGETHER_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _is_over(self) -> bool:
        """Whether the job has ended, or somebody else has asked for that and waits no longer."""
        try:
            status = self._directory.sound_status()
            return self._directory.is_cancelled() or (status is not None and status.phase.is_final)
        except PlatformError:
            # Nobody can be asked by way of a folder that cannot be looked at.
            return True

    def _end_job(self) -> None:
        """See `kill_job`, of which this is the first half."""
        logger.warning("asked to end by SIGTERM: ends the job, as elastic kill does")
        deadline_s = time.monotonic() + MASTER_S
        ask(self._directory)
        while has_trained(self._directory):
            if time.monotonic() >= deadline_s and not keeps_version(self._directory):
                break
            time.sleep(_POLL_S)
        self._is_urgent = True
        os.kill(os.getpid(), signal.SIGTERM)


def leave_on_sigterm(directory: JobDirectory) -> None:
    """From now on, end the job on SIGTERM, and this process at once on a second one.

    To be called by the main thread of a master.
    """
    signal.signal(signal.SIGTERM, _Leaving(directory).on_signal)
