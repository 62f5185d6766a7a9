"""Replicas: who runs, in which life, why a life ended; and what follows where it was a master's."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from elastic.errors import TransitionError
from elastic.spec.status import JobPhase, JobStatus, MasterHistory, WorkerStatus


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


# What follows when a job's master ends: another one, or the end of the job. Pure decisions.


PREPARING: Final = "Preparing"
"""A master's reason for a phase that lasts because it is not ready; its message is the step."""

KEEPING: Final = "Keeping"
"""A master's reason while it keeps the newest version of a job that its user has ended."""

MAX_MASTER_CRASHES: Final = 5
FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RestartMaster:
    """Start the master again after a while."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class EndJob:
    """End the job; `phase` is what to publish, None where the master did so itself."""

    phase: JobPhase | None = None
    reason: str = ""
    message: str = ""


CANCEL: Final = EndJob(JobPhase.CANCELLED, "Cancelled", "cancelled on request")


_PREPARING_PHASES: Final = frozenset(
    {None, JobPhase.PENDING, JobPhase.STARTING, JobPhase.RECOVERING}
)
"""What a master ends in that has not come to work; which of them says nothing of how far it was."""


def on_exit(
    history: MasterHistory,
    master: Replica,
    status: JobStatus | None,
    cancelled: bool,
    step: str = "",
) -> tuple[MasterHistory, RestartMaster | EndJob]:
    """Choose what follows the end of one master: tells a bad day from a crash loop.

    Args:
        history: Of those that ended before it.
        master: How it ended.
        status: What it published last.
        cancelled: The user has ended the job.
        step: Which step of the preparation it ended in; empty where in none.

    Returns:
        The history with this end, and what follows.
    """
    if status is not None and status.phase.is_final:
        return history, EndJob()
    if cancelled:
        return history, CANCEL
    if master.exit_reason is ExitReason.COMPLETED:
        message = "the master ended with exit code 0 and published no result: read its log"
        return history, EndJob(JobPhase.FAILED, "MasterError", message)
    history = _with_end(history, master, status)
    if history.crashes < MAX_MASTER_CRASHES:
        return history, RestartMaster(_delay_s(history.ends))
    where = f", last while it prepared the job ({step})" if step else ""
    message = (
        f"the master crashed {history.crashes} times without progress{where}: {master.message}"
    )
    return history, EndJob(JobPhase.FAILED, "MasterCrashed", message)


def _with_end(history: MasterHistory, master: Replica, status: JobStatus | None) -> MasterHistory:
    """The history with one end more.

    Progress is a model version above all earlier ones, or that one has begun to work at all: a
    master that falls back to its cut and dies at the same update again makes none.
    """
    version = 0 if status is None else status.progress.model_version
    has_worked = (None if status is None else status.phase) not in _PREPARING_PHASES
    is_progress = version > history.best_version or (has_worked and not history.has_worked)
    crashes, ends = (0, 0) if is_progress else (history.crashes, history.ends)
    return MasterHistory(
        # Kills are not the job's fault, so they cost it no crash, only the delay.
        crashes=crashes + (master.exit_reason is not ExitReason.KILLED),
        ends=ends + 1,
        best_version=max(version, history.best_version),
        has_worked=has_worked or history.has_worked,
    )


def _delay_s(num_ends: int) -> float:
    if num_ends == 1:
        return 0.0
    return float(min(FIRST_DELAY_S * 2.0 ** (num_ends - 2), MAX_DELAY_S))
