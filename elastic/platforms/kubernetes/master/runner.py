"""The master's side of the platform: pods of replicas, asked for and observed."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import NO_FENCE, Fence, JobControl, Replica, ReplicaId, UntoldEnds
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.groups import end_group
from elastic.platforms.kubernetes.master.launches import (
    ControlWatch,
    Create,
    Launches,
    LaunchNumbers,
    LaunchRecords,
    MakePod,
    NameTakenError,
    Past,
    Remove,
    ReplicaPods,
    Wait,
    next_step,
)
from elastic.platforms.kubernetes.master.publishing import EventRecorder, StatusStore
from elastic.platforms.kubernetes.objects.manifests import replica_pod
from elastic.platforms.kubernetes.objects.names import Owner, QueueSystem
from elastic.platforms.kubernetes.objects.podspec import Job, gang_of
from elastic.platforms.kubernetes.pods import gone, last_words, observe, observe_removed, replica_id
from elastic.policy.fleet import NO_LAUNCHES, TakenLaunches
from elastic.spec.status import JobPhase, JobStatus

logger = logging.getLogger(__name__)

LAUNCHES_NAME: Final = "launches.json"

PATIENCE_S: Final = 2.0
"""For one request: whoever runs replicas tries again by itself, and must not be held up."""

GONE_MESSAGE: Final = "its pod was deleted while the master was away"


class Launcher:
    """Creates pods, and removes those that stand in their place, on the caller's thread."""

    def __init__(
        self,
        launches: Launches,
        pods: ReplicaPods,
        lock: "threading.RLock",
        on_end: Callable[[ReplicaId, Replica, Manifest], None],
        on_change: Callable[[], None],
        on_create: Callable[[ReplicaId], None],
    ) -> None:
        """Keep the parts.

        Args:
            launches: What was asked for.
            pods: What is there.
            lock: Of both; held around memory, never around a request.
            on_end: Called with a launch that has ended and its pod, before that is removed.
            on_change: Called when a launch waits for another reason than before.
            on_create: Called with a launch before it gets a pod, which it may refuse by raising
                `PlatformError`.
        """
        self._launches = launches
        self._pods = pods
        self._lock = lock
        self._on_end = on_end
        self._on_change = on_change
        self._on_create = on_create
        self._is_closed = False
        self._creating = threading.Lock()
        """Held while a pod is made, so that whoever ends all knows of all."""

    def close(self) -> None:
        """Create no more pods, from any thread; one that is being created is known on return."""
        with self._creating:
            self._is_closed = True

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
            replica = replica_id(pod)
            if replica is not None and self._launches.is_orphan(pod, replica):
                yield replica, pod

    def _end_orphan(self, replica: ReplicaId, pod: Manifest) -> None:
        logger.warning("%s/%d has a pod although it was given up", replica.name, replica.launch)
        # The watch tells when it is about to go.
        self._refuse(replica, "")
        self._pods.delete(pod)

    def _do_next(self, replica: ReplicaId) -> None:
        with self._lock:
            blocking = self._pods.at(replica)
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
        with self._creating:
            if self._is_closed:
                return
            self._on_create(replica)
            pod = self._pods.create(replica)
            with self._lock:
                self._launches.adopt(pod, replica)
                # Outside of the watch's order: it may have told of this pod's end already.
                self._pods.put(pod)
                replaced = self._pods.before(replica)
        for earlier, old in replaced:
            # Its queue has seen by now who takes its place, and lets it go.
            self._on_end(earlier, observe(old, earlier), old)
            self._pods.delete(old, 0.0)

    def _refuse(self, replica: ReplicaId, message: str) -> None:
        """Try again later; sooner if a pod of that name goes away."""
        with self._lock:
            if self._launches.refuse(replica, message, time.monotonic()):
                logger.warning("%s/%d: %s", replica.name, replica.launch, message)
                self._on_change()


def _ready(_replica: ReplicaId) -> None:
    """A job that has one master's pod keeps its launches there."""


class KubernetesReplicaRunner:
    """Replicas of one job as pods that belong to the master's pod, or to the job's resource.

    All launches of an index share the pod's name, so a new one waits until the pod of the old one
    is gone. What waits is moved on by `wait`: no thread but the caller's ever creates or deletes.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        owner: Owner,
        state_path: Path,
        make_pod: MakePod = replica_pod,
        fence: Fence = NO_FENCE,
        has_predecessor: Callable[[], bool] = lambda: False,
    ) -> None:
        """Keep the parts; `start` begins to watch.

        Args:
            cluster: Where the job runs.
            job: What its pods are made from.
            owner: The master's pod.
            state_path: Folder that outlives the master's container.
            make_pod: Makes the pod of one launch.
            fence: Of the master.
            has_predecessor: Whether a master in another pod may have launched something before.
        """
        self._cluster = cluster
        self._job = job
        self._lock = threading.RLock()
        # Where nobody makes the master's pod again, nobody needs what is not in it.
        self._numbers = None if job.owner is None else LaunchNumbers(cluster, job, fence)
        self._has_predecessor = has_predecessor
        self._taken = NO_LAUNCHES
        self._changed = threading.Condition(self._lock)
        self._is_changed = True
        self._launches = Launches(LaunchRecords(state_path / LAUNCHES_NAME))
        self._pods = ReplicaPods(
            cluster, job, owner, make_pod, self._lock, self._on_pod, self._wake, fence
        )
        self._launcher = Launcher(
            self._launches,
            self._pods,
            self._lock,
            self._note_end,
            self._wake,
            _ready if self._numbers is None else self._numbers.take,
        )
        self._asked = ControlWatch(cluster, job, self._lock, self._wake)
        self._untold = UntoldEnds()
        self._status = StatusStore(cluster, job, self._on_stored, fence=fence)
        self._events = EventRecorder(cluster, job.namespace, owner)

    def start(self) -> None:
        """Look at everything once, and watch it from then on.

        Raises:
            PlatformError: The launches or the cluster cannot be read; it may be started again.
        """
        with self._lock:
            self._launches.load()
        past = Past() if self._numbers is None else self._numbers.load(self._has_predecessor())
        self._taken = past.taken
        self._asked.start()
        # After all else that may fail: what pods tell is noted with the launches that were read.
        self._pods.start()
        self._status.start()
        self._events.start()
        with self._lock:
            for launch in self._launches:
                if launch.pod_uid is not None and self._pods.of(launch.replica) is None:
                    self._note_end(launch.replica, gone(launch.replica, GONE_MESSAGE))
            for replica in past.running:
                self._launches.note_gone(replica, gone(replica, GONE_MESSAGE))

    @property
    def taken_launches(self) -> TakenLaunches:
        """Launch numbers that masters in other pods may have given; known once it is started."""
        return self._taken

    def close(self) -> None:
        """Watch no longer; pods go on."""
        self._pods.close()
        self._asked.close()
        self._status.close()
        self._events.close()

    def end_all(self) -> None:
        """Have every pod of the job removed at once, for the master's own is.

        None is created from then on: those that are gone would be launched again while this
        process still runs, and stay until the cluster's collector has seen that their owner went.
        """
        self._launcher.close()
        for pod in self._pods.own():
            try:
                self._pods.delete(pod, 0.0)
            except PlatformError as error:
                logger.warning("%s", error)
        self._leave_queue()

    def tell_now(self) -> None:
        """Have the newest status stored before this returns.

        Raises:
            PlatformError: It could not be.
        """
        self._status.flush()

    # -- ReplicaRunner

    def launch(self, replica: ReplicaId) -> None:
        """Ask for a pod; launching twice changes nothing.

        Raises:
            PlatformError: The request could not be recorded.
        """
        with self._lock:
            is_new = self._launches.ask(replica)
        if is_new:
            self._launcher.advance(replica)

    def delete(self, replica: ReplicaId, grace_s: float) -> None:
        """Ask for a pod to be deleted; a launch that has none yet ends at once.

        Raises:
            PlatformError: The API server does not answer, or refuses.
        """
        with self._lock:
            launch, pod = self._launches.get(replica), self._pods.of(replica)
            if launch is None or launch.ended is not None:
                return
            if pod is None and launch.pod_uid is None:
                self._note_end(replica, gone(replica, "deleted before it was created"))
                return
        if pod is not None and not observe(pod, replica).phase.is_final:
            self._pods.delete(pod, grace_s)

    def observe(self) -> Sequence[Replica]:
        """Every launch that is not forgotten, whatever has become of its pod.

        Raises:
            PlatformError: The API server is away, so nobody knows how things are.
        """
        failure = self._pods.failure or self._asked.failure
        if failure is not None:
            raise failure
        with self._lock:
            replicas = [
                self._launches.observed(launch, self._pods.of(launch.replica), time.time())
                for launch in self._launches
                if not launch.is_forgotten and launch.replica not in self._untold
            ]
        return sorted(replicas, key=lambda r: (r.id.role, r.id.index, r.id.launch))

    def wait(self, timeout_s: float) -> bool:
        """Block until something may have changed, and move on what waits for pods to go."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._launcher.advance_all()
            with self._changed:
                due_s = map(self._launches.due_s, self._launches.waiting())
                until_s = min([deadline_s, *due_s])
                self._changed.wait_for(
                    lambda: self._is_changed, max(0.0, until_s - time.monotonic())
                )
                is_changed, self._is_changed = self._is_changed, False
            if is_changed:
                self._launcher.advance_all()
                return True
            if time.monotonic() >= deadline_s:
                return False

    def forget(self, replica: ReplicaId) -> None:
        """Tell of an ended launch no more; its pod, and so its log, stays until the next.

        The next life of the master finds it again, unless a status has told of a later launch.
        """
        self._untold.add(replica)

    def control(self) -> JobControl:
        """What users have asked for, in the job's record."""
        return self._asked.control()

    def publish_status(self, status: JobStatus) -> None:
        """Have the status written soon; a final one is written when this returns.

        Raises:
            PlatformError: A final status could not be written.
        """
        self._status.publish(status)
        self._events.tell(status)
        if status.phase.is_final and status.phase is not JobPhase.SUCCEEDED:
            # Of workers that have all ended well the queue knows it by itself.
            self._leave_queue()

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
            replica = replica_id(pod)
            if replica is None or not self._pods.is_own(pod):
                # It may have stood where one of ours belongs.
                for waiting in self._launches.waiting():
                    self._launches.release(waiting.role, waiting.index)
                self._wake()
                return
            if new is None:
                self._launches.release(replica.role, replica.index)
            self._launches.adopt(pod, replica)
            if new is None:
                self._note_end(replica, observe_removed(pod, replica), pod)
            seen = None if new is None else observe(new, replica)
            if seen is None or old is None or seen != observe(old, replica):
                self._wake()

    def _on_stored(self, status: JobStatus) -> None:
        with self._lock:
            for replica in self._untold.told_by(status):
                self._launches.forget(replica)
                self._untold.discard(replica)

    def _leave_queue(self) -> None:
        """Give the room of the workers back; without it the job has ended all the same."""
        gang = gang_of(self._job)
        if gang is None or self._job.queue_system is not QueueSystem.KUEUE:
            return
        try:
            end_group(self._cluster, self._job.namespace, gang.name)
        except PlatformError as error:
            logger.warning("the queue still counts the workers of this job: %s", error)

    def _wake(self) -> None:
        with self._changed:
            self._is_changed = True
            self._changed.notify_all()

    def _note_end(self, replica: ReplicaId, ended: Replica, pod: Manifest | None = None) -> None:
        """Note how a launch has ended, and what it wrote last, which goes with its pod."""
        with self._lock:
            words = "" if pod is None else last_words(pod)
            if words:
                self._status.keep_last_words(replica.name, words)
            if self._launches.end(replica, ended):
                self._wake()
