"""What the local platform gives the programs of replicas: all of them, and a master the runner."""

import logging
import os
import select
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError, legible
from elastic.platforms.base import (
    ExitReason,
    JobControl,
    Replica,
    ReplicaId,
    ReplicaPhase,
    UntoldEnds,
)
from elastic.platforms.local.directory import Desired, JobDirectory, Termination, modified_ns
from elastic.platforms.local.processes import (
    REPLICA_VARIABLE,
    SHARE_VARIABLE,
    own_gpus,
    parse_replica,
    usable_cores,
)
from elastic.platforms.local.supervisor import start_supervisor
from elastic.platforms.registry import MASTER_PATIENCE_S, THREAD_VARIABLES, share_gpus
from elastic.policy.replicas import exit_text
from elastic.spec.job import JobSpec
from elastic.spec.roles import MASTER, WORKER, is_kept_by_platform
from elastic.spec.status import JobStatus
from elastic.spec.values import Certificate

logger = logging.getLogger(__name__)

GPUS_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"

CHECK_S: Final = 1.0
"""How often `wait` looks after the supervisor, and for changes whose ring was lost."""

MAX_MESSAGE_LENGTH: Final = 4000
"""A message goes into status and tables; the traceback beside it is kept whole."""


class LocalReplicaRunner:
    """Replicas of one job as processes, through the files that its supervisor reads.

    Where the supervisor was lost, `wait` starts another one, which adopts the running replicas.
    """

    def __init__(self, job_dir: Path) -> None:
        self._directory = JobDirectory(job_dir)
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._untold = UntoldEnds()

    def launch(self, replica: ReplicaId) -> None:
        """Ask for a replica to be started; returns at once, launching twice changes nothing.

        Raises:
            PlatformError: The request itself could not be recorded.
        """
        if self._directory.desired_of(replica) is None:
            self._directory.write_desired(Desired(replica))
            self._directory.supervisor_bell.ring()

    def delete(self, replica: ReplicaId, grace_s: float) -> None:
        """Ask for a replica to end: SIGTERM, and SIGKILL after `grace_s`; also if unknown."""
        if self._directory.desired_of(replica) is not None:
            self._directory.write_desired(Desired(replica, delete_grace_s=grace_s))
            self._directory.supervisor_bell.ring()

    def observe(self) -> Sequence[Replica]:
        """All launches of this job that the platform still knows, without the master itself."""
        self._note_changes()
        replicas = {
            desired.replica: Replica(desired.replica, ReplicaPhase.PENDING)
            for desired in self._directory.desired()
        }
        observed = [o.replica for o in self._directory.observed()]
        replicas |= {r.id: r for r in observed if not is_kept_by_platform(r.id.role)}
        told = [replica for replica in replicas.values() if replica.id not in self._untold]
        return sorted(told, key=lambda r: (r.id.role, r.id.index, r.id.launch))

    def wait(self, timeout_s: float) -> bool:
        """Block until something observed or asked may have changed; True if it did."""
        bell = self._directory.master_bell
        poll = select.poll()
        poll.register(bell.listen(), select.POLLIN)
        deadline_s = time.monotonic() + timeout_s
        while True:
            wait_s = max(0.0, min(deadline_s - time.monotonic(), CHECK_S))
            if poll.poll(wait_s * 1000):
                bell.silence()
                return True
            if self._note_changes() or self._replace_supervisor():
                return True
            if time.monotonic() >= deadline_s:
                return False

    def forget(self, replica: ReplicaId) -> None:
        """Drop an ended launch from `observe`; its logs stay.

        The next life of the master finds it again, unless a status has told of a later launch.
        """
        self._untold.add(replica)

    def control(self) -> JobControl:
        """What users have asked for."""
        return self._directory.control()

    def publish_status(self, status: JobStatus) -> None:
        """Make the status readable for everybody, also after the job has ended."""
        self._directory.write_status(status)
        for replica in self._untold.told_by(status):
            self._directory.forget(replica)
            self._untold.discard(replica)

    def last_status(self) -> JobStatus | None:
        """The status published last, by this or an earlier life of the master; none if damaged."""
        return self._directory.sound_status()

    def publish_address(self, address: str) -> None:
        """Tell workers where the master listens (`host:port`)."""
        self._directory.write_address(address)

    def close(self) -> None:
        """Stop listening for changes."""
        self._directory.master_bell.close()

    def _note_changes(self) -> bool:
        """Whether files changed since the last call, as far as their times tell."""
        self._directory.master_bell.listen()
        times = tuple(
            modified_ns(path)
            for path in (
                self._directory.observed_path,
                self._directory.control_path,
                self._directory.cancelled_path,
            )
        )
        with self._lock:
            is_changed, self._seen = times != self._seen, times
        return is_changed

    def _replace_supervisor(self) -> bool:
        if self._directory.supervisor_lock.is_held():
            return False
        logger.warning("the supervisor of this job is gone: starting another one")
        try:
            start_supervisor(self._directory)
        except PlatformError as error:
            # The master trains on without one; the next wait tries again.
            logger.warning("%s", error)
            return False
        return True


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


def read_certificate(job_dir: Path) -> Certificate | None:
    """What encrypts every call within the job; None where they go in clear.

    Raises:
        PlatformError: The job is to be encrypted, and its folder has no certificate.
    """
    if not read_spec(job_dir).tls:
        return None
    certificate = JobDirectory(job_dir).certificate()
    if certificate is None:
        raise PlatformError(
            f"the calls of this job are to be encrypted, and {job_dir} holds no certificate: "
            "submit the job again"
        )
    return certificate


def read_last_end(job_dir: Path) -> str:
    """How the newest master that has ended did so, for people; empty where nobody can tell."""
    try:
        replicas = [observed.replica for observed in JobDirectory(job_dir).observed()]
    except PlatformError as error:
        # It is news for people alone: no master is kept from its work by it.
        logger.warning("%s", error)
        return ""
    ended = [each for each in replicas if each.id.role == MASTER and each.phase.is_final]
    newest = max(ended, key=lambda master: master.id.launch, default=None)
    return "" if newest is None else exit_text(newest)


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
    share = max(1, usable_cores() // max(1, num_processes))
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
        if self._replica is not None and self._replica.role == WORKER:
            visible = os.environ.get(GPUS_VARIABLE)
            gpus = own_gpus(self._replica.index, num_processes, visible)
            if gpus is not None:
                os.environ[GPUS_VARIABLE] = gpus

    def spec(self) -> JobSpec:
        """The specification of the job."""
        return read_spec(self._job_dir)

    def token(self) -> str:
        """The secret that authenticates every call within the job."""
        return read_token(self._job_dir)

    def certificate(self) -> Certificate | None:
        """What encrypts every call within the job; none where its user has not asked for that."""
        return read_certificate(self._job_dir)

    def address(self) -> str | None:
        """Where the master listens (`host:port`), or None where it has not said so yet."""
        return read_address(self._job_dir)

    def own_host(self) -> str:
        """All are on this machine, and nobody else is to reach them."""
        return "127.0.0.1"

    def kept_dir(self) -> Path:
        """In the folder of the job."""
        replica = self._replica or own_replica_id()
        folder = JobDirectory(self._job_dir).kept_path(replica)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def patience_s(self) -> float:
        """See `MASTER_PATIENCE_S`."""
        return MASTER_PATIENCE_S

    def say_end(self, reason: ExitReason, message: str, traceback: str = "") -> None:
        """Say why this process is about to end."""
        replica = self._replica or own_replica_id()
        write_termination(self._job_dir, replica, reason, legible(message), legible(traceback))

    def code_of_leaving(self, spec: JobSpec) -> int:  # noqa: ARG002 - no queue counts processes here
        """As of any that ends well: nobody else looks at it."""
        return 0
