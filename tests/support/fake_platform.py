"""A `ReplicaRunner` in memory: tests say what happens to its replicas, and see what was asked."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from elastic.platforms.base import (
    ExitReason,
    JobControl,
    Replica,
    ReplicaId,
    ReplicaPhase,
    UntoldEnds,
)
from elastic.spec.status import JobStatus


class FakeReplicaRunner:
    """Launched replicas run at once, or stay pending until `run` where `autostart` is off.

    Deleted replicas end at once unless they are in `stubborn`, which stay until `end`.
    """

    def __init__(self, autostart: bool = True) -> None:
        self.autostart = autostart
        self.stubborn: set[ReplicaId] = set()
        self.launched: list[ReplicaId] = []
        self.deleted: list[tuple[ReplicaId, float]] = []
        self.statuses: list[JobStatus] = []
        self.addresses: list[str] = []
        self._replicas: dict[ReplicaId, Replica] = {}
        self._control = JobControl()
        self._condition = threading.Condition()
        self._is_changed = True
        self._next_pid = 1000
        self._untold = UntoldEnds()

    # -- what the tests say

    def run(self, replica: ReplicaId) -> None:
        """Let a pending replica run."""
        self._next_pid += 1
        self._set(
            replace(
                self._replicas[replica],
                phase=ReplicaPhase.RUNNING,
                pid=self._next_pid,
                started_s=time.time(),
            )
        )

    def end(
        self,
        replica: ReplicaId,
        reason: ExitReason = ExitReason.KILLED,
        message: str = "",
        exit_code: int | None = None,
    ) -> None:
        """Let a replica end."""
        completed = reason is ExitReason.COMPLETED
        self._set(
            replace(
                self._replicas[replica],
                phase=ReplicaPhase.SUCCEEDED if completed else ReplicaPhase.FAILED,
                exit_reason=reason,
                exit_code=0 if completed else exit_code,
                message=message,
            )
        )

    def vanish(self, replica: ReplicaId) -> None:
        """Drop a replica without a trace, as a cluster does with a deleted pod."""
        del self._replicas[replica]
        self._wake()

    def ask(
        self, num_workers: int | None = None, cancelled: bool = False, autoscaled_for: str = ""
    ) -> None:
        """Ask for something as a user does, or an autoscaler that says why."""
        self._control = JobControl(num_workers, cancelled, autoscaled_for)
        self._wake()

    def restart(self) -> None:
        """Let a new master find what the one before has left."""
        self._untold = UntoldEnds()

    @property
    def running(self) -> list[ReplicaId]:
        return [r.id for r in self.observe() if r.phase is ReplicaPhase.RUNNING]

    # -- ReplicaRunner

    def launch(self, replica: ReplicaId) -> None:
        if replica in self.launched:
            return
        self.launched.append(replica)
        self._set(Replica(replica, ReplicaPhase.PENDING))
        if self.autostart:
            self.run(replica)

    def delete(self, replica: ReplicaId, grace_s: float) -> None:
        self.deleted.append((replica, grace_s))
        known = self._replicas.get(replica)
        if known is None or known.exit_reason is not None:
            return
        if replica not in self.stubborn or grace_s <= 0:
            self.end(replica, message="deleted")

    def observe(self) -> Sequence[Replica]:
        with self._condition:
            return [each for each in self._replicas.values() if each.id not in self._untold]

    def wait(self, timeout_s: float) -> bool:
        with self._condition:
            is_changed = self._condition.wait_for(lambda: self._is_changed, timeout_s)
            self._is_changed = False
            return is_changed

    def forget(self, replica: ReplicaId) -> None:
        self._untold.add(replica)

    def control(self) -> JobControl:
        return self._control

    def publish_status(self, status: JobStatus) -> None:
        self.statuses.append(status)
        for replica in self._untold.told_by(status):
            with self._condition:
                self._replicas.pop(replica, None)
            self._untold.discard(replica)

    def last_status(self) -> JobStatus | None:
        return self.statuses[-1] if self.statuses else None

    def publish_address(self, address: str) -> None:
        self.addresses.append(address)

    def _set(self, replica: Replica) -> None:
        with self._condition:
            self._replicas[replica.id] = replica
        self._wake()

    def _wake(self) -> None:
        with self._condition:
            self._is_changed = True
            self._condition.notify_all()
