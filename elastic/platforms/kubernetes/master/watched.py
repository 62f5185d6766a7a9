"""What a master watches: the pods of its replicas, and what users ask in the job's record."""

import logging
import threading
from collections.abc import Callable
from typing import TypeAlias

from elastic.errors import PlatformError
from elastic.platforms.base import NO_FENCE, Fence, JobControl, ReplicaId
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.informer import Cache, OnChange, Watch
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, Manifest
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import control_of
from elastic.platforms.kubernetes.objects.podspec import Job, pod_name
from elastic.platforms.kubernetes.pods import observation

logger = logging.getLogger(__name__)

MakePod: TypeAlias = Callable[[Job, ReplicaId, names.Owner | None], Manifest]


class NameTakenError(PlatformError):
    """A pod of somebody else has the name."""


class Watched:
    """What is kept current by one watch, as whoever asks it starts and ends it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def start(self) -> None:
        """Look at all of it, and follow it from then on.

        Raises:
            PlatformError: The cluster cannot be read.
        """
        self._watch.start()

    def close(self) -> None:
        """Follow it no longer."""
        self._watch.close()

    @property
    def failure(self) -> PlatformError | None:
        """Why nobody knows at the moment how things are, or None."""
        return self._watch.failure


class ReplicaPods(Watched):
    """All pods that carry this job's labels.

    Its own are those that belong to its master's pod, or to the resource that the job was made
    from: a master that is made again takes over the workers of the one before.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        owner: names.Owner,
        make_pod: MakePod,
        lock: "threading.RLock",
        on_change: OnChange,
        on_contact: Callable[[], None],
        fence: Fence = NO_FENCE,
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the job runs.
            job: What its pods are made from.
            owner: The master's pod.
            make_pod: Makes the pod of one launch.
            lock: Of whoever asks and is told.
            on_change: See `OnChange`.
            on_contact: See `Watch`.
            fence: Of the master: nothing is made or removed that it does not let pass.
        """
        self._fence = fence
        self._cluster = cluster
        self._job = job
        self._owner = owner
        self._owner_uids = {owner.uid} | ({job.owner.uid} if job.owner else set())
        self._make_pod = make_pod
        self._path = PODS.path(job.namespace)
        self._cache = Cache(on_change, lock)
        selector = {"labelSelector": names.fleet_selector(job.name)}
        super().__init__(Watch(cluster, self._path, selector, self._cache, on_contact))

    def own(self) -> list[Manifest]:
        """Those of this submission that are nobody else's."""
        return [pod for pod in self._cache.all() if self.is_own(pod)]

    def is_own(self, pod: Manifest) -> bool:
        labels = pod["metadata"].get("labels") or {}
        owners = pod["metadata"].get("ownerReferences") or []
        is_ours = any(owner.get("uid") in self._owner_uids for owner in owners)
        return is_ours and labels.get(names.SUBMISSION_LABEL) == self._job.submission_uid

    def at(self, replica: ReplicaId) -> Manifest | None:
        """Whatever stands under the name that the pod of a launch has, or is to have."""
        return self._cache.get(self._job.namespace, pod_name(self._job, replica))

    def before(self, replica: ReplicaId) -> list[tuple[ReplicaId, Manifest]]:
        """Pods of earlier launches of an index, where they have other names."""
        found = [(observation.replica_id(pod), pod) for pod in self.own()]
        return [
            (other, pod)
            for other, pod in found
            if other is not None
            and (other.role, other.index) == (replica.role, replica.index)
            and other.launch < replica.launch
        ]

    def of(self, replica: ReplicaId) -> Manifest | None:
        """The pod of one launch."""
        pod = self.at(replica)
        is_it = pod is not None and self.is_own(pod) and observation.replica_id(pod) == replica
        return pod if is_it else None

    def create(self, replica: ReplicaId) -> Manifest:
        """Create the pod of a launch; it is in the copy once it was `put` there.

        Raises:
            NameTakenError: One that does not belong to this job has the name.
            RefusedError: The API server does not take it.
            AwayError: It does not answer.
            FencedError: Another master may act for the job.
        """
        self._fence.check()
        manifest = self._make_pod(self._job, replica, self._owner)
        try:
            return self._cluster.create(self._path, manifest)
        except RefusedError as error:
            if not error.is_taken:
                raise
            name = manifest["metadata"]["name"]
            raise NameTakenError(f"a pod named {name} is there that is not of this job") from error

    def put(self, pod: Manifest) -> None:
        """Take over what was created, before the watch tells of it."""
        self._cache.put(pod)

    def delete(self, pod: Manifest, grace_s: float | None = None) -> None:
        """Ask for a pod to be deleted, and for no other of its name.

        Args:
            pod: As it was seen.
            grace_s: See `Cluster.delete`.

        Raises:
            RefusedError: The API server refuses.
            AwayError: It does not answer.
            FencedError: Another master may act for the job.
        """
        self._fence.check()
        metadata = pod["metadata"]
        self._cluster.delete(f"{self._path}/{metadata['name']}", grace_s, uid=metadata["uid"])


class ControlWatch(Watched):
    """What users have asked for; a record that is damaged or gone changes nothing."""

    def __init__(
        self, cluster: Cluster, job: Job, lock: "threading.RLock", on_change: Callable[[], None]
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the job runs.
            job: Whose record it is.
            lock: Of whoever asks.
            on_change: Called when that has changed, or the API server was lost or is back.
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
            logger.warning("the record of the job has been deleted: what it asked for stays")
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
