"""What the master has asked for, against the pods that are there: what is next for each launch.

No requests are made here, and no clock is read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from elastic.platforms.base import Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.book import Launch, LaunchBook
from elastic.platforms.kubernetes.pods import observation
from elastic.platforms.kubernetes.pods.containers import is_deleted

FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 60.0


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

    def __init__(self, book: LaunchBook) -> None:
        self._book = book
        self._refusals: dict[ReplicaId, _Refusal] = {}

    def load(self) -> None:
        """Read what an earlier life of the master has written, see `LaunchBook.load`."""
        self._book.load()

    def flush(self) -> None:
        """Write what could not be written before."""
        self._book.flush()

    def __iter__(self) -> Iterator[Launch]:
        return iter(self._book)

    def get(self, replica: ReplicaId) -> Launch | None:
        return self._book.get(replica)

    def ask(self, replica: ReplicaId) -> bool:
        """Note that a launch is wanted; False if it was before.

        Raises:
            PlatformError: It could not be written down.
        """
        if self._book.get(replica) is not None:
            return False
        self._book.add(Launch(replica))
        return True

    def adopt(self, pod: Manifest, replica: ReplicaId) -> None:
        """Note the pod of a launch, also where the creation's answer never reached us."""
        launch = self._book.get(replica)
        if launch is None and replica.launch <= self._book.newest(replica.index):
            return
        if launch is None or launch.pod_uid is None:
            self._refusals.pop(replica, None)
            self._book.note(replace(launch or Launch(replica), pod_uid=pod["metadata"]["uid"]))

    def end(self, replica: ReplicaId, ended: Replica) -> bool:
        """Note how a launch has ended; False if that was known, or nobody asked for it."""
        launch = self._book.get(replica)
        if launch is None or launch.ended is not None:
            return False
        self._refusals.pop(replica, None)
        self._book.note(replace(launch, ended=ended))
        return True

    def forget(self, replica: ReplicaId) -> None:
        """Tell of an ended launch no more."""
        self._book.forget(replica)

    def waiting(self) -> list[ReplicaId]:
        """Launches that have no pod yet."""
        return [
            launch.replica
            for launch in self._book
            if launch.pod_uid is None and launch.ended is None and not launch.is_forgotten
        ]

    def is_orphan(self, pod: Manifest, replica: ReplicaId) -> bool:
        """Whether a pod runs on whose launch has ended, and was not asked to end.

        The answer to its creation was lost, and the launch given up before the pod showed itself.
        """
        launch = self._book.get(replica)
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

    def release(self, index: int) -> None:
        """The name of an index has become free: what waits for it is tried at once."""
        for replica, refusal in self._refusals.items():
            if replica.index == index:
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
