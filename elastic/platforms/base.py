"""What the master and the command line ask of a platform.

`Platform` is the command line's side: jobs by name. `ReplicaRunner` is the master's side: the
replicas of its own job, its published status, and what users asked of it meanwhile.
Everything is level-triggered: the observed replicas are always read whole, so a missed event
never matters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from elastic.errors import JobSpecError, PlatformError
from elastic.policy.replicas import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.spec.job import JobSpec
from elastic.spec.since import Since
from elastic.spec.status import JobPhase, JobStatus

__all__ = [
    "BoardFolder",
    "BoardInCluster",
    "ExitReason",
    "JobControl",
    "LogLine",
    "Platform",
    "Replica",
    "ReplicaId",
    "ReplicaPhase",
    "ReplicaRunner",
    "StatusRefusedError",
    "StillAliveError",
    "unheard",
    "writes_no_events",
]


class StatusRefusedError(PlatformError):
    """A job's end will not be taken where its status is kept, however often it is tried."""


class StillAliveError(PlatformError):
    """Something of a job that was to end is still there."""


@dataclass(frozen=True, slots=True)
class JobControl:
    """What users asked of a running job since it was submitted.

    Attributes:
        num_workers: The size wanted by `elastic scale`, or None where nobody asked.
        cancelled: `elastic kill` was called.
    """

    num_workers: int | None = None
    cancelled: bool = False


class ReplicaRunner(Protocol):
    """The master's side of a platform, for the replicas of one job."""

    def launch(self, replica: ReplicaId) -> None:
        """Ask for a replica to be started; returns at once, launching twice changes nothing.

        Raises:
            PlatformError: The request itself could not be recorded.
        """

    def delete(self, replica: ReplicaId, grace_s: float) -> None:
        """Ask for a replica to end: SIGTERM, and SIGKILL after `grace_s`; also if unknown."""

    def observe(self) -> Sequence[Replica]:
        """All launches that the platform still knows, ended ones included; not the master's own."""

    def wait(self, timeout_s: float) -> bool:
        """Block until something observed or asked may have changed; True if it did."""

    def forget(self, replica: ReplicaId) -> None:
        """Drop an ended launch from `observe`; its logs stay.

        It is dropped for good once a status that tells of a later launch of the same worker is
        stored. Until then a next master finds it again, which would not know of it otherwise.
        """

    def control(self) -> JobControl:
        """What users have asked for."""

    def publish_status(self, status: JobStatus) -> None:
        """Make the status readable for everybody, also after the job has ended.

        Raises:
            StatusRefusedError: It is not to be tried again.
            PlatformError: It may be.
        """

    def last_status(self) -> JobStatus | None:
        """The status published last, by this or an earlier life of the master."""

    def publish_address(self, address: str) -> None:
        """Tell workers where the master listens (`host:port`)."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one replica's log.

    Attributes:
        stamp: When it was written, by ISO 8601; empty where nobody knows.
    """

    replica: str
    text: str
    stamp: str = field(default="", compare=False)


def unheard(_what: str) -> None:
    """Tell nobody what is waited for."""


@dataclass(frozen=True, slots=True)
class BoardFolder:
    """The event files of a job, in a folder of this machine."""

    path: Path


@dataclass(frozen=True, slots=True)
class BoardInCluster:
    """A TensorBoard that runs in a pod.

    Attributes:
        note: What its user should know of it, or empty.
    """

    namespace: str
    pod: str
    port: int
    note: str = ""


def writes_no_events(job_name: str) -> JobSpecError:
    """The error of a job that has no curves to look at."""
    return JobSpecError(
        f"job {job_name!r} writes no events for TensorBoard: submit it with "
        "--tensorboard_log_dir DIR"
    )


def has_ended(job_name: str, status: JobStatus) -> JobSpecError:
    """The error of a job whose workers are no more; of one that has succeeded nothing is left."""
    again = ""
    if status.phase is not JobPhase.SUCCEEDED:
        flag = "--resume" if status.kind.can_resume else "--overwrite"
        again = f": submit it again with {flag}"
    return JobSpecError(
        f"job {job_name!r} has ended as {status.phase}, so it has no workers to scale{again}"
    )


class Platform(Protocol):
    """The command line's side of a platform."""

    def submit(self, spec: JobSpec) -> None:
        """Start the job's master and return.

        Raises:
            JobExistsError: A job of that name runs, or its kept state would be overwritten.
            PlatformError: The master could not be started; nothing was left behind.
        """

    def now_s(self) -> float:
        """Seconds since the epoch by the clock that the times of its jobs are told by."""

    def jobs(self) -> Sequence[str]:
        """Names of all known jobs, running or ended, oldest first."""

    def statuses(self) -> Sequence[JobStatus]:
        """`status` of all `jobs`, in one look."""

    def status(self, job_name: str) -> JobStatus:
        """What the master published last, corrected by what the platform itself sees.

        Raises:
            JobNotFoundError: No such job.
        """

    def spec(self, job_name: str) -> JobSpec:
        """The specification the job was submitted with."""

    def submitted_s(self, job_name: str) -> float | None:
        """When it was submitted last, with --resume too; None where nobody knows.

        Raises:
            JobNotFoundError: No such job.
        """

    def board(self, job_name: str) -> BoardFolder | BoardInCluster:
        """Where the job's curves can be looked at.

        Raises:
            JobNotFoundError: No such job.
            JobSpecError: It writes none, or they are gone.
        """

    def scale(self, job_name: str, num_workers: int) -> None:
        """Ask a running job for another number of workers.

        Raises:
            JobNotFoundError: No such job.
            JobSpecError: The job has ended, or the number is outside its range.
        """

    def kill(
        self, job_name: str, timeout_s: float, on_wait: Callable[[str], None] = unheard
    ) -> None:
        """Cancel the job and wait until none of its processes is left; idempotent.

        Args:
            on_wait: Told again and again what is waited for.

        Raises:
            JobNotFoundError: No such job.
            StillAliveError: Something was still there after `timeout_s`.
        """

    def would_lose(self, status: JobStatus) -> str:
        """What would be lost if a job that has ended were forgotten; empty where nothing is.

        Args:
            status: Of the job.

        Raises:
            JobNotFoundError: No such job.
        """

    def forget(self, job_name: str) -> None:
        """Drop all that is kept of a job that has ended.

        Raises:
            JobNotFoundError: No such job.
            JobExistsError: It runs, or somebody submits it at this moment.
        """

    def logs(
        self,
        job_name: str,
        replicas: Sequence[str],
        follow: bool,
        tail: int | None,
        previous: bool = False,
        since: Since | None = None,
    ) -> Iterator[LogLine]:
        """Lines of the named replicas (all when empty), prefixed by replica.

        With `follow`, goes on until the job has ended; with `previous`, those of the life before
        the present one; with `since`, those written from then on.
        """
