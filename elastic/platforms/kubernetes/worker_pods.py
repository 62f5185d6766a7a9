"""The pods of a job's workers: a copy kept current by a watch, and requests that change them."""

import threading
from collections.abc import Callable
from typing import TypeAlias

from elastic.errors import PlatformError
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes import names
from elastic.platforms.kubernetes.api.cache import Cache, OnChange
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import PODS, Manifest
from elastic.platforms.kubernetes.api.watch import Watch, Watched
from elastic.platforms.kubernetes.manifests import Owner
from elastic.platforms.kubernetes.pods import observation
from elastic.platforms.kubernetes.podspec import Job

MakePod: TypeAlias = Callable[[Job, ReplicaId, Owner | None], Manifest]


class NameTakenError(PlatformError):
    """A pod of somebody else has the name."""


class WorkerPods(Watched):
    """All pods that carry this job's labels; those that its master owns are its own."""

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        owner: Owner,
        make_pod: MakePod,
        lock: "threading.RLock",
        on_change: OnChange,
        on_contact: Callable[[], None],
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
        """
        self._cluster = cluster
        self._job = job
        self._owner = owner
        self._make_pod = make_pod
        self._path = PODS.path(job.namespace)
        self._cache = Cache(on_change, lock)
        selector = {"labelSelector": names.worker_selector(job.name)}
        super().__init__(Watch(cluster, self._path, selector, self._cache, on_contact))

    def own(self) -> list[Manifest]:
        """Those that belong to the master's pod."""
        return [pod for pod in self._cache.all() if self.is_own(pod)]

    def is_own(self, pod: Manifest) -> bool:
        labels = pod["metadata"].get("labels") or {}
        owners = pod["metadata"].get("ownerReferences") or []
        is_ours = any(owner.get("uid") == self._owner.uid for owner in owners)
        return is_ours and labels.get(names.SUBMISSION_LABEL) == self._job.submission_uid

    def at(self, index: int) -> Manifest | None:
        """Whatever stands under the name that all launches of an index share."""
        return self._cache.get(self._job.namespace, names.worker_name(self._job.name, index))

    def of(self, replica: ReplicaId) -> Manifest | None:
        """The pod of one launch."""
        pod = self.at(replica.index)
        is_it = pod is not None and self.is_own(pod) and observation.replica_id(pod) == replica
        return pod if is_it else None

    def create(self, replica: ReplicaId) -> Manifest:
        """Create the pod of a launch; it is in the copy once it was `put` there.

        Raises:
            NameTakenError: One that does not belong to this job has the name.
            RefusedError: The API server does not take it.
            AwayError: It does not answer.
        """
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
        """
        metadata = pod["metadata"]
        self._cluster.delete(f"{self._path}/{metadata['name']}", grace_s, uid=metadata["uid"])
