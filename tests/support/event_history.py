"""Every event that a job has told, also those that its status has no room for any more."""

import contextlib
import re
import threading

from elastic.errors import PlatformError

_LOOK_S = 0.25
_ENDINGS = ("WorkerLost", "WorkerFailed")
_ENDED = re.compile(r"(worker-\d+) ")
_STARTED = re.compile(r"(worker-\d+) is started again \(launch (\d+)\)")


class EventHistory:
    """Collects a job's events while it runs: looks far more often than a status is written."""

    def __init__(self, job):
        self._job = job
        self._events = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._collect, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join()

    def told(self):
        """The events up to now, in the order in which they were told."""
        self._look()
        return list(self._events)

    def _collect(self):
        while not self._stopping.wait(_LOOK_S):
            # Some of the faults keep the API server from answering.
            with contextlib.suppress(PlatformError):
                self._look()

    def _look(self):
        # A new life of a master tells the events of the earlier ones first.
        for event in self._job.status().events:
            self._events.setdefault(event)


def endings(events, workers):
    """(replica, launch) to the message that tells of its end.

    The event of an end names the replica; which launch of it, the next start tells. That event may
    be lost with a master, which the end is not: of the newest launch `workers` tell, the rows of a
    status after all events.
    """
    next_launches, ends = {f"worker-{row.index}": row.launch for row in workers}, {}
    for event in reversed(events):
        if event.kind == "WorkerStarted":
            replica, launch = _STARTED.match(event.message).groups()
            next_launches[replica] = int(launch)
        elif event.kind in _ENDINGS:
            replica = _ENDED.match(event.message)[1]
            launch = next_launches[replica] - 1
            ends[replica, launch] = event.message
            # An end before this one, without a start between them, is of an earlier launch.
            next_launches[replica] = launch
    return ends
