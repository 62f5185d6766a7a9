"""The launches of a job: their pods, watched, and what is next for each of them.

Watched are the pods of the master's replicas, and what users ask in the job's record.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import NO_FENCE, Fence, JobControl, Replica
from elastic.platforms.kubernetes import pods
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError
from elastic.platforms.kubernetes.api.informer import Cache, OnChange, Watch
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS, Manifest
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import (
    StatusUnreadableError,
    control_of,
    status_of,
)
from elastic.platforms.kubernetes.objects.podspec import Job, pod_name
from elastic.platforms.kubernetes.pods import is_deleted
from elastic.policy.fleet import NO_LAUNCHES, TakenLaunches
from elastic.policy.replicas import ReplicaId, ReplicaPhase, told_id

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
        found = [(pods.replica_id(pod), pod) for pod in self.own()]
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
        is_it = pod is not None and self.is_own(pod) and pods.replica_id(pod) == replica
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


# The launches of a job: what the master has asked for, and what is next for each of them.
#
# They are kept in a file on the volume of the master's pod, so a restarted container knows which
# launches were made, which have ended and which number comes next: what no pod can tell once it is
# gone. It is small and replaced whole. No requests are made for that, and no clock is read.
#
# Where somebody makes a master's pod again, its launches are not in a file that the next one finds.
# There the number of a launch is in the ConfigMap of the status before the launch has a pod
# (`LaunchNumbers`), so that the next master gives none again, whichever pod and node it is in. A
# first launch costs nothing: whoever follows another master takes number 1 for given.


FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0

PREFIX: Final = "launch."
"""Of the keys, which go on with the name of a replica."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    Attributes:
        pod_uid: Of its pod, once that was created.
        ended: How it ended, once that was seen.
        is_forgotten: The master asked not to be told of it again; the number stays taken.
    """

    replica: ReplicaId
    pod_uid: str | None = None
    ended: Replica | None = None
    is_forgotten: bool = False


_LAUNCHES: Final = TypeAdapter(list[Launch])


class LaunchRecords:
    """Launches by replica id. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._launches: dict[ReplicaId, Launch] = {}
        self._is_written = True

    def load(self) -> None:
        """Read what an earlier life of the master has written.

        Raises:
            PlatformError: The file cannot be read, or holds something else.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except OSError as error:
            raise PlatformError(f"cannot read {self._path}: {error.strerror}") from error
        try:
            self._launches = {launch.replica: launch for launch in _LAUNCHES.validate_json(text)}
        except ValidationError as error:
            raise PlatformError(
                f"{self._path} is damaged: {error.errors()[0]['msg']}: delete the master's pod "
                "and submit the job again with --resume"
            ) from error

    def get(self, replica: ReplicaId) -> Launch | None:
        return self._launches.get(replica)

    def newest(self, role: str, index: int) -> int:
        """The highest launch number of a replica; 0 where it was never launched."""
        return max(
            (key.launch for key in self._launches if (key.role, key.index) == (role, index)),
            default=0,
        )

    def __iter__(self) -> Iterator[Launch]:
        return iter(list(self._launches.values()))

    def add(self, launch: Launch) -> None:
        """Write a launch down before anything is done for it.

        Raises:
            PlatformError: It could not be written; nothing has changed.
        """
        launches = self._launches | {launch.replica: launch}
        self._write(launches)
        self._launches = launches

    def note(self, launch: Launch) -> None:
        """Note what has become of a launch: it is so, whether or not it can be written now."""
        if self._launches.get(launch.replica) != launch:
            self._launches[launch.replica] = launch
            self._is_written = False
            self.flush()

    def forget(self, replica: ReplicaId) -> None:
        """Tell of a launch no more; it is dropped for good once a later one is known."""
        launch = self._launches.get(replica)
        if launch is None:
            return
        self._launches[replica] = replace(launch, is_forgotten=True)
        for key, other in list(self._launches.items()):
            if other.is_forgotten and key.launch < self.newest(key.role, key.index):
                del self._launches[key]
        self._is_written = False
        self.flush()

    def flush(self) -> None:
        """Write what could not be written before."""
        if self._is_written:
            return
        try:
            self._write(self._launches)
        except PlatformError as error:
            # A full disk: the job matters more, and the next change tries again.
            logger.warning("%s", error)
        else:
            self._is_written = True

    def _write(self, launches: dict[ReplicaId, Launch]) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(_LAUNCHES.dump_json(list(launches.values())))
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise PlatformError(f"cannot write {self._path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Create:
    """The place is free: create the pod."""


@dataclass(frozen=True, slots=True)
class Remove:
    """The pod of an earlier launch has ended and stands in the place: remove it."""

    pod: Manifest
    earlier: ReplicaId
    ended: Replica


@dataclass(frozen=True, slots=True)
class Wait:
    """Something else stands in the place, which is not ours to remove."""

    message: str


Step: TypeAlias = Create | Remove | Wait


@dataclass(slots=True)
class _Refusal:
    """Why a launch has no pod yet, and when it is tried again."""

    message: str
    pause_s: float
    at_s: float


def next_step(blocking: Manifest | None, is_own: bool, now_s: float | None = None) -> Step:
    """Choose what a launch without a pod needs.

    Args:
        blocking: What stands under the name that its pod is to have.
        is_own: Whether that belongs to this job.
        now_s: See `observation.observe`.
    """
    if blocking is None:
        return Create()
    earlier = pods.replica_id(blocking)
    if not is_own or earlier is None:
        return Wait(f"waits until {blocking['metadata']['name']} of an earlier job is gone")
    seen = pods.observe(blocking, earlier, now_s)
    if seen.phase.is_final:
        return Remove(blocking, earlier, seen)
    return Wait(f"waits until launch {earlier.launch} has ended")


class Launches:
    """All launches of one job and what has become of them. Not thread-safe."""

    def __init__(self, records: LaunchRecords) -> None:
        self._records = records
        self._refusals: dict[ReplicaId, _Refusal] = {}

    def load(self) -> None:
        """Read what an earlier life of the master has written, see `LaunchRecords.load`."""
        self._records.load()

    def flush(self) -> None:
        """Write what could not be written before."""
        self._records.flush()

    def __iter__(self) -> Iterator[Launch]:
        return iter(self._records)

    def get(self, replica: ReplicaId) -> Launch | None:
        return self._records.get(replica)

    def ask(self, replica: ReplicaId) -> bool:
        """Note that a launch is wanted; False if it was before.

        Raises:
            PlatformError: It could not be written down.
        """
        if self._records.get(replica) is not None:
            return False
        self._records.add(Launch(replica))
        return True

    def adopt(self, pod: Manifest, replica: ReplicaId) -> None:
        """Note the pod of a launch, also where the creation's answer never reached us."""
        launch = self._records.get(replica)
        if launch is None and replica.launch <= self._records.newest(replica.role, replica.index):
            return
        if launch is None or launch.pod_uid is None:
            self._refusals.pop(replica, None)
            self._records.note(replace(launch or Launch(replica), pod_uid=pod["metadata"]["uid"]))

    def end(self, replica: ReplicaId, ended: Replica) -> bool:
        """Note how a launch has ended; False if that was known, or nobody asked for it."""
        launch = self._records.get(replica)
        if launch is None or launch.ended is not None:
            return False
        self._refusals.pop(replica, None)
        self._records.note(replace(launch, ended=ended))
        return True

    def note_gone(self, replica: ReplicaId, ended: Replica) -> None:
        """Note how a launch of another master has ended, of which nothing else is to be seen."""
        if self._records.get(replica) is None:
            self._records.note(Launch(replica, ended=ended))

    def forget(self, replica: ReplicaId) -> None:
        """Tell of an ended launch no more."""
        self._records.forget(replica)

    def waiting(self) -> list[ReplicaId]:
        """Launches that have no pod yet."""
        return [
            launch.replica
            for launch in self._records
            if launch.pod_uid is None and launch.ended is None and not launch.is_forgotten
        ]

    def is_orphan(self, pod: Manifest, replica: ReplicaId) -> bool:
        """Whether a pod runs on whose launch has ended, and was not asked to end.

        The answer to its creation was lost, and the launch given up before the pod showed itself.
        """
        launch = self._records.get(replica)
        if launch is not None and launch.ended is None:
            return False
        return not is_deleted(pod) and not pods.observe(pod, replica).phase.is_final

    def due_s(self, replica: ReplicaId) -> float:
        """When a launch without a pod is to be tried, or an orphan to be removed."""
        refusal = self._refusals.get(replica)
        return 0.0 if refusal is None else refusal.at_s

    def refuse(self, replica: ReplicaId, message: str, now_s: float) -> bool:
        """Try again later, sooner if the place becomes free; True if the message is news."""
        last = self._refusals.get(replica)
        pause_s = FIRST_RETRY_S if last is None else min(2 * last.pause_s, LAST_RETRY_S)
        self._refusals[replica] = _Refusal(message, pause_s, now_s + pause_s)
        return bool(message) and (last is None or last.message != message)

    def release(self, role: str, index: int) -> None:
        """The name of a replica has become free: what waits for it is tried at once."""
        for replica, refusal in self._refusals.items():
            if (replica.role, replica.index) == (role, index):
                refusal.at_s = 0.0

    def observed(self, launch: Launch, pod: Manifest | None, now_s: float | None = None) -> Replica:
        """A launch as it stands; `pod` is its own, if there is one."""
        if launch.ended is not None:
            return launch.ended
        if pod is not None:
            return pods.observe(pod, launch.replica, now_s)
        refusal = self._refusals.get(launch.replica)
        message = "" if refusal is None else refusal.message
        return Replica(launch.replica, ReplicaPhase.PENDING, message=message)


@dataclass(frozen=True, slots=True)
class Past:
    """What the masters before this one have left in the API server.

    Attributes:
        taken: Launch numbers that are not given again.
        running: Launches that were told to run.
    """

    taken: TakenLaunches = NO_LAUNCHES
    running: Sequence[ReplicaId] = ()


class LaunchNumbers:
    """The numbers of one job, kept beside its status. Not thread-safe."""

    def __init__(self, cluster: Cluster, job: Job, fence: Fence) -> None:
        self._cluster = cluster
        self._fence = fence
        self._submission_uid = job.submission_uid
        self._path = CONFIGMAPS.path(job.namespace, names.status_name(job.name))
        self._kept: dict[str, int] = {}

    def load(self, has_predecessor: bool) -> Past:
        """Read what was kept.

        Args:
            has_predecessor: A master in another pod may have launched something before.

        Raises:
            PlatformError: The API server is away or refuses.
        """
        least = int(has_predecessor)
        try:
            config_map = self._cluster.get(self._path)
        except RefusedError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return Past(TakenLaunches({}, least))
        labels = config_map["metadata"].get("labels") or {}
        if labels.get(names.SUBMISSION_LABEL) != self._submission_uid:
            return Past(TakenLaunches({}, least))
        self._kept = _kept(config_map)
        newest, running = dict(self._kept), []
        for told, phase in _told(config_map):
            newest[told.name] = max(told.launch, newest.get(told.name, 0))
            if phase == ReplicaPhase.RUNNING:
                running.append(told)
        return Past(TakenLaunches(newest, least), running)

    def take(self, replica: ReplicaId) -> None:
        """Keep the number of a launch that is about to get a pod.

        Raises:
            PlatformError: The API server is away or refuses: the launch must wait.
            FencedError: Another master may act for the job.
        """
        if replica.launch <= max(1, self._kept.get(replica.name, 0)):
            return
        self._fence.check()
        key = f"{PREFIX}{replica.name}"
        self._cluster.patch(self._path, {"data": {key: str(replica.launch)}})
        self._kept[replica.name] = replica.launch


def _kept(config_map: Manifest) -> dict[str, int]:
    data = config_map.get("data") or {}
    return {
        key.removeprefix(PREFIX): int(text)
        for key, text in data.items()
        if key.startswith(PREFIX) and str(text).isdecimal()
    }


def _told(config_map: Manifest) -> list[tuple[ReplicaId, str]]:
    """Each replica as the last status told it."""
    try:
        status = status_of(config_map)
    except StatusUnreadableError:
        return []
    return [] if status is None else [(told_id(row), row.phase) for row in status.workers]
