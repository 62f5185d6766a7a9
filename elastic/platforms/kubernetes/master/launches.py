"""The launches of a job: what the master has asked for, and what is next for each of them.

They are kept in a file on the volume of the master's pod, so a restarted container knows which
launches were made, which have ended and which number comes next: what no pod can tell once it is
gone. It is small and replaced whole. No requests are made here, and no clock is read.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods import observation
from elastic.platforms.kubernetes.pods.containers import is_deleted

logger = logging.getLogger(__name__)

FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0


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
    earlier = observation.replica_id(blocking)
    if not is_own or earlier is None:
        return Wait(f"waits until {blocking['metadata']['name']} of an earlier job is gone")
    seen = observation.observe(blocking, earlier, now_s)
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
        return not is_deleted(pod) and not observation.observe(pod, replica).phase.is_final

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
            return observation.observe(pod, launch.replica, now_s)
        refusal = self._refusals.get(launch.replica)
        message = "" if refusal is None else refusal.message
        return Replica(launch.replica, ReplicaPhase.PENDING, message=message)
