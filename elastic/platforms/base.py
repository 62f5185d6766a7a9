"""What the master and the command line ask of a platform.

`Platform` is the command line's side: jobs by name. `ReplicaRunner` is the master's side: the
replicas of its own job, its published status, and what users asked of it meanwhile.
Everything is level-triggered: the observed replicas are always read whole, so a missed event
never matters.

A master that is cut off from everybody may live on when the next one is made. Whatever others see
of a master, such as a cut, an answer or a pod, passes its `Fence` first, so that of two masters one
at the most is heard.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from elastic.errors import InfrastructureError, JobSpecError, PlatformError
from elastic.policy.replicas import ExitReason, Replica, ReplicaId, ReplicaPhase, told_id
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus
from elastic.spec.values import Since

__all__ = [
    "LOST_AFTER_S",
    "NO_FENCE",
    "BoardFolder",
    "BoardInCluster",
    "ExitReason",
    "Fence",
    "FencedError",
    "JobControl",
    "LastLook",
    "LogLine",
    "NoFence",
    "Platform",
    "Replica",
    "ReplicaId",
    "ReplicaPhase",
    "ReplicaRunner",
    "StatusRefusedError",
    "StillAliveError",
    "UntoldEnds",
    "unheard",
    "writes_no_events",
]

T = TypeVar("T")

LOST_AFTER_S: Final = 15.0
"""What nobody can tell, or decides, for so long is given up; less passes by itself."""


class StatusRefusedError(PlatformError):
    """A job's end will not be taken where its status is kept, however often it is tried."""


class StillAliveError(PlatformError):
    """Something of a job that was to end is still there."""


@dataclass(frozen=True, slots=True)
class JobControl:
    """What users asked of a running job since it was submitted.

    Attributes:
        num_workers: The size that a user or an autoscaler asked for; None where nobody did.
        cancelled: `elastic kill` was called.
        autoscaled_for: Why an autoscaler wants `num_workers`, for people; empty where that is a
            user's wish.
        held_until_s: Until when no autoscaler changes a user's wish, in seconds since the epoch;
            None before one has seen it.
        autoscaled_s: When an autoscaler came to want it, in seconds since the epoch; None where it
            is a user's wish.
    """

    num_workers: int | None = None
    cancelled: bool = False
    autoscaled_for: str = ""
    held_until_s: float | None = None
    autoscaled_s: float | None = None

    def by_user(self, num_workers: int) -> "JobControl":
        """The same, once a user has asked for a size."""
        return JobControl(num_workers, self.cancelled)


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


class UntoldEnds:
    """Ends of workers that a master knows of, and that no stored status tells yet. Thread-safe.

    The record of such an end must outlive the master: the next one finds it, and counts it. An end
    that the status tells must not, or it would count twice. A status that has a later launch of the
    same worker tells how the earlier ones ended, since both are decided in one step.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._launches: set[ReplicaId] = set()

    def add(self, replica: ReplicaId) -> None:
        """Forget this one as soon as a status tells of a later launch."""
        with self._lock:
            self._launches.add(replica)

    def __contains__(self, replica: ReplicaId) -> bool:
        with self._lock:
            return replica in self._launches

    def told_by(self, stored: JobStatus) -> list[ReplicaId]:
        """Those that a status tells which has been stored: nothing needs to remember them now."""
        newest = {row.name: row.launch for row in map(told_id, stored.workers)}
        with self._lock:
            return [each for each in self._launches if each.launch < newest.get(each.name, 0)]

    def discard(self, replica: ReplicaId) -> None:
        """This one has been forgotten."""
        with self._lock:
            self._launches.discard(replica)


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


class LastLook(Generic[T]):
    """Looks, and gives what was seen last while the platform cannot tell."""

    def __init__(self, look: Callable[[], T], lost_after_s: float = LOST_AFTER_S) -> None:
        self._look = look
        self._lost_after_s = lost_after_s
        self._seen: tuple[T] | None = None
        self._lost_since_s: float | None = None

    def __call__(self) -> T:
        """What is to be seen now, as far as anybody can tell.

        Raises:
            InfrastructureError: The platform could not tell at the first look, or for
                `lost_after_s`.
        """
        try:
            self._seen = (self._look(),)
        except InfrastructureError:
            now_s = time.monotonic()
            if self._lost_since_s is None:
                self._lost_since_s = now_s
            if self._seen is None or now_s - self._lost_since_s >= self._lost_after_s:
                raise
        else:
            self._lost_since_s = None
        return self._seen[0]


class FencedError(PlatformError):
    """Another master may act for the job in this moment, so this one must not."""


class Fence(Protocol):
    """Asked right before each step that others see. Thread-safe, and costs next to nothing."""

    def check(self) -> None:
        """Return where no other master can act in this moment.

        Raises:
            FencedError: One can, or nobody knows. Where nobody knows it may be otherwise later.
        """


class NoFence:
    """Of a job that has one master at a time by other means: by the name of its only pod."""

    def check(self) -> None:
        """There is no other master."""


NO_FENCE: Final[Fence] = NoFence()
