"""Desired workers against observed ones: what to launch, what to delete, when to give up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from elastic.policy.replicas import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.spec.job import WorkerRange

WORKER: Final = "worker"
MAX_BACKOFF_S: Final = 60.0
ASK_AGAIN_S: Final = 5.0
"""A launch or a deletion that shows no effect for so long may never have reached the platform."""

FREE_LAUNCHES: Final = 2
"""Kills in a row without any progress between, before even a kill is answered with back-off."""


@dataclass(frozen=True, slots=True)
class FleetRules:
    """Limits of a job's workers.

    Attributes:
        max_worker_failures: Exits by the user's own fault that are answered with a new launch.
        start_timeout_s: How long a job may be without any running worker.
        grace_s: How long a worker that is scaled away may take for its minibatch.
    """

    max_worker_failures: int
    start_timeout_s: float
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Launch:
    """Start this replica."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Delete:
    """End this replica, which is one too many."""

    replica: ReplicaId
    grace_s: float


@dataclass(frozen=True, slots=True)
class NoteExit:
    """A replica has ended, told once: its lease must go back, and people should know."""

    replica: Replica
    is_failure: bool


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the record of a replica that a newer launch has replaced."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class FailJob:
    """Nothing more can be done with these workers."""

    reason: str
    message: str


Action: TypeAlias = Launch | Delete | NoteExit | Forget | FailJob


@dataclass(slots=True)
class _Slot:
    """One worker index over all of its launches."""

    launch: int = 0
    exits_in_a_row: int = 0
    not_before_s: float = 0.0
    asked_to_launch_s: float | None = None
    asked_to_delete_s: float | None = None
    delete_by_s: float = 0.0


@dataclass(slots=True)
class Fleet:
    """Decides about the workers of one job from what is observed, whole, each time.

    It holds only what the platform cannot tell: exits already noted and back-off. Losing it with
    the master costs a repeated note, never a healthy worker.
    """

    rules: FleetRules
    failures: int = 0
    first_failure: str = ""
    _slots: dict[int, _Slot] = field(default_factory=dict)
    _noted: set[ReplicaId] = field(default_factory=set)
    _alone_since_s: float | None = None

    def made_progress(self, index: int) -> None:
        """A worker's gradient counted: its index owes no more back-off."""
        if index in self._slots:
            self._slots[index].exits_in_a_row = 0

    def current_launch(self, index: int) -> int:
        """The newest launch of a worker index; 0 when it never ran."""
        return self._slots[index].launch if index in self._slots else 0

    def adopt_exits(
        self, observed: Sequence[Replica], is_told: Callable[[ReplicaId], bool]
    ) -> None:
        """Take exits that an earlier life of the master has told as known.

        The others happened while there was no master: they are noted, and count, as any.
        """
        self._noted.update(
            r.id for r in observed if r.id.role == WORKER and r.phase.is_final and is_told(r.id)
        )

    def plan(self, observed: Sequence[Replica], desired: int, now_s: float) -> list[Action]:
        """Compare, and say what to do; doing it, or none of it, and asking again is safe."""
        workers = [replica for replica in observed if replica.id.role == WORKER]
        newest = {r.id.index: r for r in sorted(workers, key=lambda r: r.id.launch)}
        actions: list[Action] = []
        for replica in sorted(workers, key=lambda r: (r.id.index, r.id.launch)):
            actions += self._look_at(replica, newest[replica.id.index], now_s)
        if self.failures > self.rules.max_worker_failures:
            return [*actions, self._too_many_failures()]
        for index in range(desired):
            actions += self._want(index, newest.get(index), now_s)
        for index, replica in sorted(newest.items()):
            if index >= desired:
                actions += self._unwant(replica, now_s)
        return actions + self._check_alone(workers, desired, now_s)

    def next_wake_s(self, now_s: float) -> float | None:
        """Seconds until a back-off ends, or None when none is pending."""
        waits = [s.not_before_s - now_s for s in self._slots.values() if s.not_before_s > now_s]
        return min(waits) if waits else None

    def _look_at(self, replica: Replica, newest: Replica, now_s: float) -> list[Action]:
        slot = self._slots.setdefault(replica.id.index, _Slot())
        if replica.id.launch >= slot.launch:
            slot.launch = replica.id.launch
            slot.asked_to_launch_s = None
        if not replica.phase.is_final:
            return []
        actions: list[Action] = []
        if replica.id not in self._noted:
            self._noted.add(replica.id)
            actions.append(self._note_exit(slot, replica, now_s))
        # Not before the next life is seen: until then this record holds the launch number.
        if replica is not newest:
            self._noted.discard(replica.id)
            actions.append(Forget(replica.id))
        return actions

    def _note_exit(self, slot: _Slot, replica: Replica, now_s: float) -> NoteExit:
        is_failure = (
            replica.exit_reason
            in (
                ExitReason.USER_ERROR,
                ExitReason.OUT_OF_MEMORY,
                ExitReason.NEVER_STARTED,
            )
            and slot.asked_to_delete_s is None
        )
        if is_failure:
            self.failures += 1
            self.first_failure = self.first_failure or f"{replica.id.name}: {replica.message}"
        slot.asked_to_delete_s = None
        slot.exits_in_a_row += 1
        slot.not_before_s = now_s + backoff_s(slot.exits_in_a_row, is_failure)
        return NoteExit(replica, is_failure)

    def _want(self, index: int, newest: Replica | None, now_s: float) -> list[Action]:
        slot = self._slots.setdefault(index, _Slot())
        if newest is not None and not newest.phase.is_final:
            return []
        if slot.asked_to_launch_s is not None:
            if now_s - slot.asked_to_launch_s < ASK_AGAIN_S:
                return []
            slot.asked_to_launch_s = now_s
            return [Launch(ReplicaId(WORKER, index, slot.launch))]
        if now_s < slot.not_before_s:
            return []
        slot.launch += 1
        slot.asked_to_launch_s = now_s
        slot.asked_to_delete_s = None
        return [Launch(ReplicaId(WORKER, index, slot.launch))]

    def _unwant(self, replica: Replica, now_s: float) -> list[Action]:
        slot = self._slots[replica.id.index]
        asked_s = slot.asked_to_delete_s
        if replica.phase.is_final or (asked_s is not None and now_s - asked_s < ASK_AGAIN_S):
            return []
        if asked_s is None:
            slot.delete_by_s = now_s + self.rules.grace_s
        slot.asked_to_delete_s = now_s
        # A grace that is running goes on: asking again does not begin it anew.
        return [Delete(replica.id, max(0.0, slot.delete_by_s - now_s))]

    def _check_alone(self, workers: Sequence[Replica], desired: int, now_s: float) -> list[Action]:
        if desired == 0 or any(r.phase is ReplicaPhase.RUNNING for r in workers):
            self._alone_since_s = None
            return []
        if self._alone_since_s is None:
            self._alone_since_s = now_s
        waited_s = now_s - self._alone_since_s
        if waited_s <= self.rules.start_timeout_s:
            return []
        last = next((r.message for r in reversed(workers) if r.message), "no worker could start")
        return [
            FailJob(
                "NoWorkers",
                f"no worker ran for {waited_s:.0f} s (start_timeout="
                f"{self.rules.start_timeout_s:g}): {last}",
            )
        ]

    def _too_many_failures(self) -> FailJob:
        return FailJob(
            "WorkerFailures",
            f"workers failed {self.failures} times (max_worker_failures="
            f"{self.rules.max_worker_failures}); the first was {self.first_failure}",
        )


def desired_workers(limits: WorkerRange, wanted: int | None, room: int | None = None) -> int:
    """How many workers a job is to have.

    Args:
        limits: Of the job.
        wanted: By its user since; None where nobody has asked for another number.
        room: How many the platform has room for, as far as it can tell.
    """
    if wanted is None:
        wanted = limits.maximum if room is None else min(limits.maximum, room)
    return max(limits.minimum, wanted)


def backoff_s(exits_in_a_row: int, is_failure: bool) -> float:
    """Seconds to wait before the next launch of an index.

    The cluster's doing is answered at once until it looks like a storm; the job's own failures
    wait from the first.
    """
    free = 0 if is_failure else FREE_LAUNCHES
    if exits_in_a_row <= free:
        return 0.0
    return float(min(MAX_BACKOFF_S, 0.5 * 2.0 ** (exits_in_a_row - free - 1)))
