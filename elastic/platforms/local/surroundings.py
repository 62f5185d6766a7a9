"""What the programs of replicas (master, worker) ask of the local platform about their job."""

import os
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError, legible
from elastic.platforms.base import ExitReason, ReplicaId
from elastic.platforms.local.directory import JobDirectory, Termination
from elastic.platforms.local.processes import REPLICA_VARIABLE, SHARE_VARIABLE, parse_replica
from elastic.platforms.surroundings import THREAD_VARIABLES, share_gpus
from elastic.spec.job import JobSpec

MAX_MESSAGE_LENGTH: Final = 4000
"""A message goes into status and tables; the traceback beside it is kept whole."""


def own_replica_id() -> ReplicaId:
    """Which replica this process is, as its supervisor said when it started it.

    Raises:
        PlatformError: No supervisor started this process.
    """
    name = os.environ.get(REPLICA_VARIABLE, "")
    replica = parse_replica(name)
    if replica is None:
        raise PlatformError(
            f"{REPLICA_VARIABLE}={name!r} names no replica: start jobs with `elastic train`"
        )
    return replica


def write_termination(
    job_dir: Path, replica: ReplicaId, reason: ExitReason, message: str, traceback: str = ""
) -> None:
    """Say why this process is about to end; the platform reports it as the exit reason.

    `ExitReason.COMPLETED` is worth writing too: a supervisor that was itself restarted meanwhile
    cannot see the exit code.

    Raises:
        PlatformError: The record could not be written.
    """
    record = Termination(reason, message[:MAX_MESSAGE_LENGTH], traceback)
    JobDirectory(job_dir).write_termination(replica, record)


def read_address(job_dir: Path) -> str | None:
    """Where the master listens (`host:port`), or None where it has not said so yet."""
    return JobDirectory(job_dir).address()


def read_token(job_dir: Path) -> str:
    """The secret that authenticates every call within the job.

    Raises:
        PlatformError: The folder holds no job.
    """
    token = JobDirectory(job_dir).token()
    if token is None:
        raise PlatformError(f"{job_dir} holds no token: it is not the folder of a job")
    return token


def read_spec(job_dir: Path) -> JobSpec:
    """The specification the job was submitted with.

    Raises:
        PlatformError: The folder holds no job.
    """
    spec = JobDirectory(job_dir).spec()
    if spec is None:
        raise PlatformError(f"{job_dir} holds no spec.json: it is not the folder of a job")
    return spec


def share_cores(num_processes: int) -> None:
    """Give this process its share of the machine, where the user has not said otherwise.

    Frameworks take all cores by default; several processes that each do spend their time switching.
    To be called before a framework is imported.
    """
    share = max(1, (os.cpu_count() or 1) // max(1, num_processes))
    unset = [variable for variable in THREAD_VARIABLES if variable not in os.environ]
    os.environ.update(dict.fromkeys(unset, str(share)))
    # The share of this process is not that of others, should it start a supervisor.
    os.environ[SHARE_VARIABLE] = ",".join(unset)


class LocalSurroundings:
    """What the programs of replicas are given on this machine, see `Surroundings`."""

    def __init__(self, job_dir: Path, replica: ReplicaId | None = None) -> None:
        """Keep the parts.

        Args:
            job_dir: The folder of the job.
            replica: Which one this process is; by default what its supervisor said.
        """
        self._job_dir = job_dir
        self._replica = replica

    def prepare(self, num_processes: int) -> None:
        """Take this process's share of the machine, and of its GPUs."""
        share_cores(num_processes)
        share_gpus()

    def spec(self) -> JobSpec:
        """The specification of the job."""
        return read_spec(self._job_dir)

    def token(self) -> str:
        """The secret that authenticates every call within the job."""
        return read_token(self._job_dir)

    def address(self) -> str | None:
        """Where the master listens (`host:port`), or None where it has not said so yet."""
        return read_address(self._job_dir)

    def say_end(self, reason: ExitReason, message: str, traceback: str = "") -> None:
        """Say why this process is about to end."""
        replica = self._replica or own_replica_id()
        write_termination(self._job_dir, replica, reason, legible(message), legible(traceback))
