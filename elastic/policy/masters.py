"""What follows when a job's master ends: another one, or the end of the job. Pure decisions."""

from dataclasses import dataclass
from typing import Final

from elastic.policy.replicas import ExitReason, Replica
from elastic.spec.status import JobPhase, JobStatus

PREPARING: Final = "Preparing"
"""A master's reason for a phase that lasts because it is not ready; its message is the step."""

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


class MasterHistory:
    """Remembers how a job's masters ended, to tell a bad day from a crash loop.

    Progress is a model version above all earlier ones, or a phase that no master ended in since:
    a master that falls back to its cut and dies at the same update again makes none.
    """

    def __init__(self) -> None:
        self._num_crashes = 0
        self._num_ends = 0
        self._best_version = -1
        self._phases: set[JobPhase | None] = set()

    def on_exit(
        self, master: Replica, status: JobStatus | None, cancelled: bool, step: str = ""
    ) -> RestartMaster | EndJob:
        """Choose what follows the end of one master.

        Args:
            master: How it ended.
            status: What it published last.
            cancelled: The user has ended the job.
            step: Which step of the preparation it ended in; empty where in none.
        """
        if status is not None and status.phase.is_final:
            return EndJob()
        if cancelled:
            return CANCEL
        if master.exit_reason is ExitReason.COMPLETED:
            message = "the master ended with exit code 0 and published no result: read its log"
            return EndJob(JobPhase.FAILED, "MasterError", message)
        self._note_progress(status)
        self._num_ends += 1
        # Kills are not the job's fault, so they cost it no crash, only the delay.
        if master.exit_reason is not ExitReason.KILLED:
            self._num_crashes += 1
        if self._num_crashes >= MAX_MASTER_CRASHES:
            where = f", last while it prepared the job ({step})" if step else ""
            message = (
                f"the master crashed {self._num_crashes} times without progress{where}: "
                f"{master.message}"
            )
            return EndJob(JobPhase.FAILED, "MasterCrashed", message)
        return RestartMaster(self._delay_s())

    def _note_progress(self, status: JobStatus | None) -> None:
        phase = None if status is None else status.phase
        version = 0 if status is None else status.progress.model_version
        if version > self._best_version:
            self._phases.clear()
        if version > self._best_version or phase not in self._phases:
            self._num_crashes = self._num_ends = 0
        self._best_version = max(version, self._best_version)
        self._phases.add(phase)

    def _delay_s(self) -> float:
        if self._num_ends == 1:
            return 0.0
        return float(min(FIRST_DELAY_S * 2.0 ** (self._num_ends - 2), MAX_DELAY_S))
