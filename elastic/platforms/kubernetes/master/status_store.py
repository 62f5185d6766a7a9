"""The published status: written soon and seldom, its end at once."""

import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import NO_FENCE, Fence, StatusRefusedError
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.errors import is_permanent
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, Manifest
from elastic.platforms.kubernetes.objects import manifests, names
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.platforms.kubernetes.pods.masters import dump_end, reduced
from elastic.spec.status import JobPhase, JobStatus

logger = logging.getLogger(__name__)

MAX_LAST_WORDS: Final = 20
"""Replicas whose last words are kept: all of them have to fit into one ConfigMap."""

INTERVAL_S: Final = 2.0
"""Between two writes: a job of many hours changes its status all the time."""

REFUSED_INTERVALS: Final = 15
"""How many of them pass before a status is tried again that was refused for good."""


class StatusStore:
    """Writes the newest status in the background, at most every `INTERVAL_S`.

    Who publishes is the master's event loop, which must not wait for an API server.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        on_stored: Callable[[JobStatus], None] = lambda _status: None,
        interval_s: float = INTERVAL_S,
        termination_path: Path = names.TERMINATION_PATH,
        fence: Fence = NO_FENCE,
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._on_stored = on_stored
        self._interval_s = interval_s
        self._termination_path = termination_path
        self._fence = fence
        self._path = CONFIGMAPS.path(job.namespace, names.status_name(job.name))
        self._newest: JobStatus | None = None
        self._earlier: JobStatus | None = None
        self._is_dirty = False
        self._last_words: dict[str, str] = {}
        self._are_words_dirty = False
        self._is_closed = False
        self._is_stored = False
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    def start(self) -> None:
        """Begin to write what is published."""
        self._thread.start()

    def close(self) -> None:
        """Write no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def publish(self, status: JobStatus) -> None:
        """Have a status written; a final one is when this returns.

        Raises:
            StatusRefusedError: A final status is refused for good; the pod tells the end instead.
            PlatformError: A final status could not be written now.
        """
        with self._changed:
            self._newest, self._is_dirty = status, True
            self._changed.notify_all()
        if status.phase.is_final:
            try:
                self._write()
            except RefusedError as error:
                if not is_permanent(error):
                    raise
                self._tell_end(status)
                raise StatusRefusedError(
                    f"the end of the job is not published: {error}; its master's pod tells it"
                ) from error

    def flush(self) -> None:
        """Write what is published and not written yet.

        Raises:
            PlatformError: It could not be written.
        """
        with self._changed:
            is_dirty = self._is_dirty
        if is_dirty:
            self._write()

    def keep_last_words(self, replica: str, text: str) -> None:
        """Have the last words of a replica's launch written with the next status."""
        with self._changed:
            # The newest come last, and the oldest go first.
            self._last_words.pop(replica, None)
            self._last_words[replica] = text
            for name in list(self._last_words)[:-MAX_LAST_WORDS]:
                del self._last_words[name]
            self._are_words_dirty = True

    def last(self) -> JobStatus | None:
        """The status published last, written or not; by an earlier life where this one has none.

        Raises:
            PlatformError: It cannot be read.
        """
        with self._changed:
            if self._newest is not None or self._earlier is not None:
                return self._newest or self._earlier
        try:
            config_map = self._cluster.get(self._path)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise
        if not self._is_of_job(config_map):
            return None
        earlier, words = self._readable(config_map), _readable_words(config_map)
        with self._changed:
            self._last_words = words | self._last_words
            self._earlier = earlier
        return earlier

    def _is_of_job(self, config_map: Manifest) -> bool:
        """Whether it is of this submission, and not of an earlier job of the same name."""
        labels = config_map["metadata"].get("labels") or {}
        uid = self._job.submission_uid
        return bool(labels.get(names.SUBMISSION_LABEL, uid) == uid)

    def _readable(self, config_map: Manifest) -> JobStatus | None:
        try:
            return manifests.status_of(config_map)
        except manifests.StatusUnreadableError as error:
            # Lost is what the job had told of itself, and no reason to let it end.
            logger.warning("%s", error)
            return JobStatus(job_name=self._job.name, phase=JobPhase.RECOVERING)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_dirty or self._is_closed)
                if self._is_closed:
                    return
            began_s = time.monotonic()
            interval_s = self._interval_s
            try:
                self._write()
            except PlatformError as error:
                logger.warning("the status could not be written: %s", error)
                if isinstance(error, RefusedError) and is_permanent(error):
                    # Somebody has to mend that first, such as a right that was taken away.
                    interval_s *= REFUSED_INTERVALS
                with self._changed:
                    self._is_dirty = True
            with self._changed:
                rest_s = began_s + interval_s - time.monotonic()
                self._changed.wait_for(lambda: self._is_closed, max(0.0, rest_s))

    def _write(self) -> None:
        # One at a time, so that an older status never comes after a newer one.
        with self._writing:
            self._fence.check()
            with self._changed:
                status, self._is_dirty = self._newest, False
                words = dict(self._last_words) if self._are_words_dirty else None
                self._are_words_dirty = False
            assert status is not None
            is_whole = False
            try:
                is_whole = self._send_whole_or_reduced(status, words)
                if is_whole:
                    self._on_stored(status)
            finally:
                with self._changed:
                    is_lost = words is not None and not is_whole
                    self._are_words_dirty = self._are_words_dirty or is_lost

    def _send_whole_or_reduced(self, status: JobStatus, words: dict[str, str] | None) -> bool:
        """Send all, or where that is refused for good the least; False for the least."""
        try:
            self._send(manifests.status(self._job, status, words))
        except RefusedError as error:
            if not is_permanent(error):
                raise
            logger.warning("the status is refused, so it is tried without its lists: %s", error)
            self._send(manifests.status(self._job, reduced(status)))
            return False
        return True

    def _tell_end(self, end: JobStatus) -> None:
        try:
            self._termination_path.write_text(dump_end(end), encoding="utf-8")
        except OSError as error:
            logger.warning("cannot write %s: %s", self._termination_path, error.strerror)

    def _send(self, manifest: Manifest) -> None:
        try:
            self._cluster.patch(self._path, manifest)
        except RefusedError as error:
            is_missing = error.code == HTTPStatus.NOT_FOUND
            # A job may be forgotten before its master has ended, and stays so.
            if not is_missing or (self._is_stored and self._is_forgotten()):
                raise
            collection = CONFIGMAPS.path(self._job.namespace)
            self._cluster.create(collection, manifest)
        self._is_stored = True

    def _is_forgotten(self) -> bool:
        record = CONFIGMAPS.path(self._job.namespace, names.record_name(self._job.name))
        try:
            self._cluster.get(record)
        except RefusedError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return True
            raise
        return False


def _readable_words(config_map: Manifest) -> dict[str, str]:
    try:
        return manifests.last_words_of(config_map)
    except PlatformError as error:
        logger.warning("%s", error)
        return {}
