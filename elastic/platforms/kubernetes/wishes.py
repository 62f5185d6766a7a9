"""What users ask of a job, in its record, kept current by a watch."""

import logging
import threading
from collections.abc import Callable

from elastic.errors import PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes import names
from elastic.platforms.kubernetes.api.cache import Cache
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, Manifest
from elastic.platforms.kubernetes.api.watch import Watch, Watched
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.record import control_of

logger = logging.getLogger(__name__)


class Wishes(Watched):
    """The newest wishes that could be read; a record that is damaged or gone changes nothing."""

    def __init__(
        self, cluster: Cluster, job: Job, lock: "threading.RLock", on_change: Callable[[], None]
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the job runs.
            job: Whose record it is.
            lock: Of whoever asks.
            on_change: Called when they have changed, or the API server was lost or is back.
        """
        self._lock = lock
        self._on_change = on_change
        self._control = JobControl()
        path = CONFIGMAPS.path(job.namespace)
        selector = {"fieldSelector": f"metadata.name={names.record_name(job.name)}"}
        cache = Cache(self._on_record, lock)
        super().__init__(Watch(cluster, path, selector, cache, on_change))

    def control(self) -> JobControl:
        """What users have asked for."""
        with self._lock:
            return self._control

    def _on_record(self, _: Manifest | None, new: Manifest | None) -> None:
        if new is None:
            logger.warning("the record of the job has been deleted: its wishes stay as they were")
            return
        try:
            control = control_of(new)
        except PlatformError as error:
            logger.warning("%s", error)
            return
        with self._lock:
            if control != self._control:
                self._control = control
                self._on_change()
