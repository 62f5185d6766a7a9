"""What follows when a job's master ends: another one, or the end of the job. Pure decisions."""

from dataclasses import dataclass
from typing import Final

from elastic.policy.replicas import ExitReason, Replica
from elastic.spec.status import JobPhase, JobStatus, MasterHistory

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
