"""Ends what would go on for ever, soon and with a reason, where the code under test is broken."""

import time

NUM_STEPS = 10_000
STILL_S = 90.0
"""No job of a test stands still for so long on a busy machine: a start of all its processes takes
a part of it, and so does finding out that a worker hangs."""


def until(is_so, num_steps=NUM_STEPS):
    """Step until something is so; fails after too many steps."""
    for _ in range(num_steps):
        if is_so():
            return
        yield
    raise AssertionError(f"not so after {num_steps} steps")


class Stillness:
    """Notices that a job neither trains nor tells of anything any more."""

    def __init__(self, limit_s=STILL_S):
        self._limit_s = limit_s
        self._seen = None
        self._since_s = time.monotonic()

    def look(self, status):
        """Fails where nothing has changed for too long, with the last status."""
        seen = status and (
            status.phase,
            status.message,
            status.progress.records_done,
            status.progress.model_version,
            len(status.events),
            len(status.evaluations),
            [(worker.launch, worker.phase) for worker in status.workers],
        )
        now_s = time.monotonic()
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        assert now_s - self._since_s < self._limit_s, (
            f"the job has stood still for {self._limit_s:g} s: {status}"
        )
