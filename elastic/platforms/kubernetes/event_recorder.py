"""Writes what happens to a job as Events of its master's pod, where `kubectl describe` shows it."""

import logging
import secrets
import threading
import time
from http import HTTPStatus
from typing import Final

from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.errors import BUSY, AwayError, RefusedError
from elastic.platforms.kubernetes.api.resources import EVENTS, Manifest
from elastic.platforms.kubernetes.job_events import Backlog, Group, event
from elastic.platforms.kubernetes.manifests import Owner
from elastic.spec.status import JobStatus

logger = logging.getLogger(__name__)

AWAY_PAUSE_S: Final = 30.0
FAREWELL_S: Final = 3.0
"""What telling of the job's end may hold that end up."""


class EventRecorder:
    """A thread that tells what published statuses hold; nothing that goes wrong here matters.

    An API server that does not answer is asked again later, one that refuses is asked no more.
    """

    def __init__(self, cluster: Cluster, namespace: str, pod: Owner) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._pod = pod
        self._path = EVENTS.path(namespace)
        self._backlog = Backlog(time.time())
        self._changed = threading.Condition()
        self._is_writing = False
        self._is_leaving = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin to write what is told."""
        self._thread.start()

    def close(self) -> None:
        """Write no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def tell(self, status: JobStatus) -> None:
        """Have written soon what this status tells first; the job's end before this returns.

        The end waits for no more than `FAREWELL_S`.
        """
        with self._changed:
            self._backlog.add(status)
            self._is_leaving = self._is_leaving or status.phase.is_final
            self._changed.notify_all()
            if status.phase.is_final:
                self._changed.wait_for(self._is_idle, FAREWELL_S)

    def _is_idle(self) -> bool:
        return self._is_closed or (self._backlog.is_empty and not self._is_writing)

    # -- on the recorder's thread --------------------------------------------------------------

    def _run(self) -> None:
        while (group := self._next()) is not None:
            name = f"{self._pod.name}.{secrets.token_hex(8)}"
            manifest = event(group, self._pod, self._namespace, name)
            # Under the same name, so that one whose answer was lost is not told twice.
            while not self._write(manifest) and self._may_try_again():
                pass
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _next(self) -> Group | None:
        """Wait for something to tell, and for its time; None when there will be nothing more."""
        with self._changed:
            while not self._is_closed:
                now_s = time.monotonic()
                due_s = self._backlog.due_s(now_s)
                # Nothing comes after the end, so there is no storm to hold back.
                if due_s is not None and (due_s <= now_s or self._is_leaving):
                    self._is_writing = True
                    return self._backlog.take(now_s)
                self._changed.wait(None if due_s is None else due_s - now_s)
        return None

    def _write(self, manifest: Manifest) -> bool:
        """Write one Event; False where it is worth another try."""
        try:
            self._cluster.create(self._path, manifest)
        except AwayError as error:
            logger.info("events are told later: %s", error)
            return False
        except RefusedError as error:
            if error.code in BUSY:
                return False
            if error.code == HTTPStatus.FORBIDDEN:
                logger.warning("the job's events are in its status only: %s", error)
                self.close()
            elif error.code != HTTPStatus.CONFLICT:
                logger.warning("an event was not taken: %s", error)
        return True

    def _may_try_again(self) -> bool:
        """Wait for the next try; False where there is no time for one."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._is_leaving, AWAY_PAUSE_S)
            return not (self._is_closed or self._is_leaving)
