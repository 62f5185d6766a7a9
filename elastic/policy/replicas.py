"""Names for replicas: who runs, in which life, and why a life ended."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from elastic.errors import TransitionError
from elastic.spec.status import WorkerStatus


class ReplicaPhase(StrEnum):
    """Life of one launch: `PENDING → RUNNING → SUCCEEDED | FAILED`; a new launch is a new life.

    `TRANSITIONS` says what may follow what.
    """

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        return not TRANSITIONS[self]

    def to(self, phase: "ReplicaPhase") -> "ReplicaPhase":
        """Enter a phase; to be seen in the same one again changes nothing.

        Raises:
            TransitionError: It cannot follow.
        """
        if phase is not self and phase not in TRANSITIONS[self]:
            raise TransitionError(f"a replica that is {self} cannot become {phase}")
        return phase


TRANSITIONS: Final[Mapping[ReplicaPhase, frozenset[ReplicaPhase]]] = {
    # Who looks late has not seen it run.
    ReplicaPhase.PENDING: frozenset(
        {ReplicaPhase.RUNNING, ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED}
    ),
    ReplicaPhase.RUNNING: frozenset({ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED}),
    ReplicaPhase.SUCCEEDED: frozenset(),
    ReplicaPhase.FAILED: frozenset(),
}


class ExitReason(StrEnum):
    """Why a replica ended, as far as its platform can tell."""

    COMPLETED = "Completed"
    USER_ERROR = "UserError"
    """The replica exited by itself with an error; its message is the traceback's last line."""
    KILLED = "Killed"
    """Ended from outside: a signal, a deletion, an eviction. Not the job's fault."""
    OUT_OF_MEMORY = "OutOfMemory"
    NEVER_STARTED = "NeverStarted"
    """The platform could not start it: no such image, no such program."""


@dataclass(frozen=True, slots=True)
class ReplicaId:
    """One life of one replica: the same role and index is launched again under a new `launch`."""

    role: str
    index: int
    launch: int

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def launch_name(self) -> str:
        """Of this life alone, as the ledger knows who holds a lease: `ROLE-INDEX/LAUNCH`."""
        return f"{self.name}/{self.launch}"


@dataclass(frozen=True, slots=True)
class Replica:
    """What the platform observes of one launch.

    Attributes:
        is_queued: Whether a queue of the platform holds it back, as long as that may take.
        node: The machine that it is on; empty where that is not told.
    """

    id: ReplicaId
    phase: ReplicaPhase
    exit_reason: ExitReason | None = None
    exit_code: int | None = None
    message: str = ""
    pid: int | None = None
    started_s: float | None = None
    is_queued: bool = False
    node: str = ""

    def entering(self, phase: ReplicaPhase, **change: Any) -> "Replica":
        """The same launch in its next phase.

        Raises:
            TransitionError: The phase cannot follow the present one.
        """
        return replace(self, phase=self.phase.to(phase), **change)


ASKED_TO_END: Final = "was asked to end"
"""How a launch ended that nobody needed any more."""


def told_id(row: WorkerStatus) -> ReplicaId:
    """Of whom a row of the status tells."""
    return ReplicaId(row.role, row.index, row.launch)


def told_phase(replica: Replica, *, is_needed: bool) -> ReplicaPhase:
    """The phase that people are told of a launch: one that was ended as unneeded has not failed.

    Such as a worker that `scale` takes away, or that is still starting when its job is done.
    """
    was_ended = replica.phase.is_final and replica.exit_reason is ExitReason.KILLED
    return ReplicaPhase.SUCCEEDED if was_ended and not is_needed else replica.phase


def exit_text(replica: Replica) -> str:
    """How an ended launch ended: `was killed: ended from outside by SIGKILL`."""
    words = {
        ExitReason.COMPLETED: "ended",
        ExitReason.USER_ERROR: "failed",
        ExitReason.KILLED: "was killed",
        ExitReason.OUT_OF_MEMORY: "ran out of memory",
        ExitReason.NEVER_STARTED: "could not be started",
        None: "ended",
    }[replica.exit_reason]
    return f"{words}: {replica.message}" if replica.message else words
