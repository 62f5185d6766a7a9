"""Names for replicas: who runs, in which life, and why a life ended."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class ReplicaPhase(StrEnum):
    """Life of one launch: `PENDING → RUNNING → SUCCEEDED | FAILED`; a new launch is a new life."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        return self in (ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED)


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


@dataclass(frozen=True, slots=True)
class Replica:
    """What the platform observes of one launch."""

    id: ReplicaId
    phase: ReplicaPhase
    exit_reason: ExitReason | None = None
    exit_code: int | None = None
    message: str = ""
    pid: int | None = None
    started_s: float | None = None


ASKED_TO_END: Final = "was asked to end"
"""How a launch ended that nobody needed any more."""


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
