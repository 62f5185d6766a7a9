"""Ends of workers that a master knows of, and that no stored status tells yet.

The record of such an end must outlive the master: the next one finds it, and counts it. An end that
the status tells must not, or it would count twice. A status that has a later launch of the same
worker tells how the earlier ones ended, since both are decided in one step.
"""

import threading

from elastic.platforms.base import ReplicaId
from elastic.spec.status import JobStatus


class UntoldEnds:
    """Launches that are to be forgotten once they are told. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launches: set[ReplicaId] = set()

    def add(self, replica: ReplicaId) -> None:
        """Forget this one as soon as a status tells of a later launch."""
        with self._lock:
            self._launches.add(replica)

    def __contains__(self, replica: ReplicaId) -> bool:
        with self._lock:
            return replica in self._launches

    def told_by(self, stored: JobStatus) -> list[ReplicaId]:
        """Those that a status tells which has been stored: nothing needs to remember them now."""
        newest = {worker.index: worker.launch for worker in stored.workers}
        with self._lock:
            return [each for each in self._launches if each.launch < newest.get(each.index, 0)]

    def discard(self, replica: ReplicaId) -> None:
        """This one has been forgotten."""
        with self._lock:
            self._launches.discard(replica)
