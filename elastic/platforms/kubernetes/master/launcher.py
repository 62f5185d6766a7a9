"""Does what is next for launches without a pod and for pods without a launch.

`launching` decides what that is.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from elastic.errors import PlatformError
from elastic.platforms.base import Replica, ReplicaId
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.master.launches import Create, Launches, Remove, Wait, next_step
from elastic.platforms.kubernetes.master.watched import NameTakenError, ReplicaPods
from elastic.platforms.kubernetes.pods import observation

logger = logging.getLogger(__name__)


class Launcher:
    """Creates pods, and removes those that stand in their place, on the caller's thread."""

    def __init__(
        self,
        launches: Launches,
        pods: ReplicaPods,
        lock: "threading.RLock",
        on_end: Callable[[ReplicaId, Replica, Manifest], None],
        on_change: Callable[[], None],
    ) -> None:
        """Keep the parts.

        Args:
            launches: What was asked for.
            pods: What is there.
            lock: Of both; held around memory, never around a request.
            on_end: Called with a launch that has ended and its pod, before that is removed.
            on_change: Called when a launch waits for another reason than before.
        """
        self._launches = launches
        self._pods = pods
        self._lock = lock
        self._on_end = on_end
        self._on_change = on_change

    def advance_all(self) -> None:
        """Try what is next and whose time has come, as long as anybody answers."""
        with self._lock:
            self._launches.flush()
            now_s = time.monotonic()
            due = [r for r in self._launches.waiting() if self._launches.due_s(r) <= now_s]
            orphans = [
                (replica, pod)
                for replica, pod in self._orphans()
                if self._launches.due_s(replica) <= now_s
            ]
        for replica, pod in orphans:
            if not self._attempt(replica, partial(self._end_orphan, replica, pod)):
                return
        for replica in due:
            if not self.advance(replica):
                return

    def advance(self, replica: ReplicaId) -> bool:
        """Create the pod of a launch, or remove the one in its place; False if nobody answers."""
        return self._attempt(replica, partial(self._do_next, replica))

    def _attempt(self, replica: ReplicaId, step: Callable[[], None]) -> bool:
        try:
            step()
        except RefusedError as error:
            self._refuse(replica, error.detail or str(error))
        except NameTakenError as error:
            self._refuse(replica, str(error))
        except PlatformError as error:
            self._refuse(replica, str(error))
            return False
        return True

    def _orphans(self) -> Iterator[tuple[ReplicaId, Manifest]]:
        """Pods that run on though their launches have ended."""
        for pod in self._pods.own():
            replica = observation.replica_id(pod)
            if replica is not None and self._launches.is_orphan(pod, replica):
                yield replica, pod

    def _end_orphan(self, replica: ReplicaId, pod: Manifest) -> None:
        logger.warning("%s/%d has a pod although it was given up", replica.name, replica.launch)
        # The watch tells when it is about to go.
        self._refuse(replica, "")
        self._pods.delete(pod)

    def _do_next(self, replica: ReplicaId) -> None:
        with self._lock:
            blocking = self._pods.at(replica.role, replica.index)
            is_own = blocking is not None and self._pods.is_own(blocking)
            step = next_step(blocking, is_own, time.time())
        match step:
            case Create():
                self._create(replica)
            case Remove(pod, earlier, ended):
                self._on_end(earlier, ended, pod)
                self._refuse(replica, "")
                # Nothing runs there any more, or on a node that does not answer: no grace to wait
                # for. The watch tells when it is gone.
                self._pods.delete(pod, 0.0)
            case Wait(message):
                self._refuse(replica, message)

    def _create(self, replica: ReplicaId) -> None:
        pod = self._pods.create(replica)
        with self._lock:
            self._launches.adopt(pod, replica)
            # Outside of the watch's order: it may have told of this pod's end already.
            self._pods.put(pod)

    def _refuse(self, replica: ReplicaId, message: str) -> None:
        """Try again later; sooner if a pod of that name goes away."""
        with self._lock:
            if self._launches.refuse(replica, message, time.monotonic()):
                logger.warning("%s/%d: %s", replica.name, replica.launch, message)
                self._on_change()
