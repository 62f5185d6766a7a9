"""The master's side of the platform: worker pods, asked for and observed."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeAlias

from elastic.errors import PlatformError
from elastic.platforms.base import JobControl, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes import names, observation
from elastic.platforms.kubernetes.book import Launch, LaunchBook
from elastic.platforms.kubernetes.connection import Cluster, RefusedError
from elastic.platforms.kubernetes.manifests import Owner, worker_pod
from elastic.platforms.kubernetes.mirror import Mirror
from elastic.platforms.kubernetes.names import Manifest
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.record import control_of
from elastic.platforms.kubernetes.status_store import StatusStore
from elastic.platforms.kubernetes.watch import Watch
from elastic.spec.status import JobStatus

logger = logging.getLogger(__name__)

BOOK_NAME: Final = "launches.json"
FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0
PATIENCE_S: Final = 2.0
"""For one request: whoever runs replicas tries again by itself, and must not be held up."""

MakePod: TypeAlias = Callable[[Job, ReplicaId, Owner | None], Manifest]
GONE_MESSAGE: Final = "its pod was deleted while the master was away"


@dataclass(slots=True)
class _Refusal:
    """Why a launch has no pod yet, and when it is tried again."""

    message: str
    pause_s: float
    at_s: float


class KubernetesReplicaRunner:
    """Workers of one job as pods that belong to the master's pod.

    All launches of an index share the pod's name, so a new one waits until the pod of the old one
    is gone. What waits is moved on by `wait`: no thread but the caller's ever creates or deletes.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        owner: Owner,
        state_path: Path,
        make_pod: MakePod = worker_pod,
    ) -> None:
        """Keep the parts; `start` begins to watch.

        Args:
            cluster: Where the job runs.
            job: What its pods are made from.
            owner: The master's pod.
            state_path: Folder that outlives the master's container.
            make_pod: Makes the pod of one launch.
        """
        self._cluster = cluster
        self._job = job
        self._owner = owner
        self._make_pod = make_pod
        self._pods_path = names.collection_path("pods", job.namespace)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._is_changed = True
        self._book = LaunchBook(state_path / BOOK_NAME)
        self._refusals: dict[ReplicaId, _Refusal] = {}
        self._control = JobControl()
        self._pods = Mirror(self._on_pod, self._lock)
        self._records = Mirror(self._on_record, self._lock)
        self._status = StatusStore(cluster, job)
        self._watches = (
            Watch(
                cluster,
                self._pods_path,
                {"labelSelector": names.worker_selector(job.name)},
                self._pods,
                self._wake,
            ),
            Watch(
                cluster,
                names.collection_path("configmaps", job.namespace),
                {"fieldSelector": f"metadata.name={names.record_name(job.name)}"},
                self._records,
                self._wake,
            ),
        )

    def start(self) -> None:
        """Look at everything once, and watch it from then on.

        Raises:
            PlatformError: The book or the cluster cannot be read.
        """
        with self._lock:
            self._book.load()
        for watch in self._watches:
            watch.start()
        self._status.start()
        with self._lock:
            for launch in self._book:
                if launch.pod_uid is not None and self._pod_of(launch.replica) is None:
                    self._note_end(launch.replica, observation.gone(launch.replica, GONE_MESSAGE))

    def close(self) -> None:
        """Watch no longer; pods go on."""
        for watch in self._watches:
            watch.close()
        self._status.close()

    def end_all(self) -> None:
        """Have every pod of the job removed at once, for the master's own is."""
        for pod in self._pods.all():
            if self._is_own(pod):
                try:
                    self._delete_pod(pod, 0.0)
                except PlatformError as error:
                    logger.warning("%s", error)

    # -- ReplicaRunner

    def launch(self, replica: ReplicaId) -> None:
        """Ask for a pod; launching twice changes nothing.

        Raises:
            PlatformError: The request could not be recorded.
        """
        with self._lock:
            if self._book.get(replica) is not None:
                return
            self._book.add(Launch(replica))
        self._advance(replica)

    def delete(self, replica: ReplicaId, grace_s: float) -> None:
        """Ask for a pod to be deleted; a launch that has none yet ends at once.

        Raises:
            PlatformError: The API server does not answer, or refuses.
        """
        with self._lock:
            launch, pod = self._book.get(replica), self._pod_of(replica)
            if launch is None or launch.ended is not None:
                return
            if pod is None and launch.pod_uid is None:
                self._note_end(replica, observation.gone(replica, "deleted before it was created"))
                return
        if pod is not None and not observation.observe(pod, replica).phase.is_final:
            self._delete_pod(pod, grace_s)

    def observe(self) -> Sequence[Replica]:
        """Every launch that is not forgotten, whatever has become of its pod.

        Raises:
            PlatformError: The API server is away, so nobody knows how things are.
        """
        for watch in self._watches:
            if watch.failure is not None:
                raise watch.failure
        with self._lock:
            replicas = [self._observed(launch) for launch in self._book if not launch.is_forgotten]
        return sorted(replicas, key=lambda r: (r.id.role, r.id.index, r.id.launch))

    def wait(self, timeout_s: float) -> bool:
        """Block until something may have changed, and move on what waits for pods to go."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._advance_all()
            with self._changed:
                until_s = min([deadline_s, *(self._due_s(r) for r in self._waiting())])
                self._changed.wait_for(
                    lambda: self._is_changed, max(0.0, until_s - time.monotonic())
                )
                is_changed, self._is_changed = self._is_changed, False
            if is_changed:
                self._advance_all()
                return True
            if time.monotonic() >= deadline_s:
                return False

    def forget(self, replica: ReplicaId) -> None:
        """Tell of an ended launch no more; its pod, and so its log, stays until the next."""
        with self._lock:
            self._book.forget(replica)

    def control(self) -> JobControl:
        """What users have asked for, in the job's record."""
        with self._lock:
            return self._control

    def publish_status(self, status: JobStatus) -> None:
        """Have the status written soon; a final one is written when this returns.

        Raises:
            PlatformError: A final status could not be written.
        """
        self._status.publish(status)

    def last_status(self) -> JobStatus | None:
        """The status published last, by this or an earlier life of the master."""
        return self._status.last()

    def publish_address(self, address: str) -> None:
        """Nothing: workers know the master by the name of its Service, whichever life it is in."""

    # -- what the watches tell, on their threads

    def _on_pod(self, old: Manifest | None, new: Manifest | None) -> None:
        with self._lock:
            pod = new or old
            assert pod is not None
            replica = observation.replica_id(pod)
            if replica is None or not self._is_own(pod):
                # It may have stood where one of ours belongs.
                for launch in self._waiting():
                    self._release(launch.index)
                self._wake()
                return
            if new is None:
                self._release(replica.index)
            self._adopt(pod, replica)
            if new is None:
                self._note_end(replica, observation.observe_removed(pod, replica))
            seen = None if new is None else observation.observe(new, replica)
            if seen is None or old is None or seen != observation.observe(old, replica):
                self._wake()

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
                self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._is_changed = True
            self._changed.notify_all()

    # -- launches

    def _observed(self, launch: Launch) -> Replica:
        if launch.ended is not None:
            return launch.ended
        pod = self._pod_of(launch.replica)
        if pod is not None:
            return observation.observe(pod, launch.replica)
        refusal = self._refusals.get(launch.replica)
        message = "" if refusal is None else refusal.message
        return Replica(launch.replica, ReplicaPhase.PENDING, message=message)

    def _pod_of(self, replica: ReplicaId) -> Manifest | None:
        pod = self._pods.get(names.worker_name(self._job.name, replica.index))
        is_it = pod is not None and self._is_own(pod) and observation.replica_id(pod) == replica
        return pod if is_it else None

    def _is_own(self, pod: Manifest) -> bool:
        labels = pod["metadata"].get("labels") or {}
        owners = pod["metadata"].get("ownerReferences") or []
        is_ours = any(owner.get("uid") == self._owner.uid for owner in owners)
        return is_ours and labels.get(names.SUBMISSION_LABEL) == self._job.submission_uid

    def _waiting(self) -> list[ReplicaId]:
        """Launches that have no pod yet."""
        return [
            launch.replica
            for launch in self._book
            if launch.pod_uid is None and launch.ended is None and not launch.is_forgotten
        ]

    def _due_s(self, replica: ReplicaId) -> float:
        refusal = self._refusals.get(replica)
        return 0.0 if refusal is None else refusal.at_s

    def _advance_all(self) -> None:
        with self._lock:
            self._book.flush()
            now_s = time.monotonic()
            due = [replica for replica in self._waiting() if self._due_s(replica) <= now_s]
        for replica in due:
            if not self._advance(replica):
                return

    def _adopt(self, pod: Manifest, replica: ReplicaId) -> None:
        """Note the pod of a launch, also where the creation's answer never reached us."""
        launch = self._book.get(replica)
        if launch is None and replica.launch <= self._book.newest(replica.index):
            return
        if launch is None or launch.pod_uid is None:
            self._refusals.pop(replica, None)
            self._book.note(replace(launch or Launch(replica), pod_uid=_uid(pod)))

    def _advance(self, replica: ReplicaId) -> bool:
        """Create the pod of a launch, or delete the one in its place; False if nobody answers."""
        with self._lock:
            blocking = self._pods.get(names.worker_name(self._job.name, replica.index))
        try:
            if blocking is None:
                self._create(replica)
            else:
                self._clear(blocking, replica)
        except RefusedError as error:
            self._refuse(replica, error.detail or str(error))
        except PlatformError as error:
            self._refuse(replica, str(error))
            return False
        return True

    def _create(self, replica: ReplicaId) -> None:
        manifest = self._make_pod(self._job, replica, self._owner)
        try:
            pod = self._cluster.create(self._pods_path, manifest)
        except RefusedError as error:
            if error.code == HTTPStatus.CONFLICT:
                name = manifest["metadata"]["name"]
                self._refuse(replica, f"a pod named {name} is there that is not of this job")
                return
            raise
        with self._lock:
            self._adopt(pod, replica)
            # Outside of the watch's order: it may have told of this pod's end already.
            self._pods.put(pod)

    def _clear(self, blocking: Manifest, replica: ReplicaId) -> None:
        """Have the pod of an earlier launch removed; the watch tells when it is gone."""
        earlier = observation.replica_id(blocking)
        if not self._is_own(blocking) or earlier is None:
            self._refuse(
                replica, f"waits until {blocking['metadata']['name']} of an earlier job is gone"
            )
            return
        with self._lock:
            seen = observation.observe(blocking, earlier)
            if seen.phase.is_final:
                self._note_end(earlier, seen)
        if not seen.phase.is_final:
            self._refuse(replica, f"waits until launch {earlier.launch} has ended")
            return
        self._refuse(replica, "")
        # Nothing runs there any more, or on a node that does not answer: no grace to wait for.
        self._delete_pod(blocking, 0.0)

    def _delete_pod(self, pod: Manifest, grace_s: float) -> None:
        path = f"{self._pods_path}/{pod['metadata']['name']}"
        self._cluster.delete(path, grace_s, uid=_uid(pod))

    def _refuse(self, replica: ReplicaId, message: str) -> None:
        """Try again later; sooner if a pod of that name goes away."""
        with self._lock:
            last = self._refusals.get(replica)
            pause_s = FIRST_RETRY_S if last is None else min(2 * last.pause_s, LAST_RETRY_S)
            if message and (last is None or last.message != message):
                logger.warning("%s/%d: %s", replica.name, replica.launch, message)
                self._wake()
            self._refusals[replica] = _Refusal(message, pause_s, time.monotonic() + pause_s)

    def _release(self, index: int) -> None:
        """The name of an index has become free: what waits for it is tried at once."""
        for replica, refusal in self._refusals.items():
            if replica.index == index:
                refusal.at_s = 0.0

    def _note_end(self, replica: ReplicaId, ended: Replica) -> None:
        launch = self._book.get(replica)
        if launch is not None and launch.ended is None:
            self._refusals.pop(replica, None)
            self._book.note(replace(launch, ended=ended))
            self._wake()


def _uid(pod: Manifest) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid
