"""Processes of this machine: started, recognised again, watched, signalled, found by their job.

And who of a job is there, asked from outside, and what became of the workers of one that has ended:
the master's last word is older than their end, so what is seen of the processes counts.
"""

import math
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Final

import psutil

from elastic.platforms.local.directory import JobDirectory, entries
from elastic.policy.replicas import Replica, ReplicaId, ReplicaPhase, exit_text, told_id, told_phase
from elastic.spec.roles import MASTER
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

JOB_UID_VARIABLE: Final = "ELASTIC_JOB_UID"
"""In the environment of all processes of a submission and so of all that they start."""

REPLICA_VARIABLE: Final = "ELASTIC_REPLICA"

SHARE_VARIABLE: Final = "ELASTIC_SHARE"
"""Names the variables, with commas between, that a replica has set for its own share of cores."""

BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")
START_FIELD: Final = 19
"""Of those behind the program's name in /proc/PID/stat: ticks from the boot to its start."""

ENDING: Final = "Ending"
"""The phase of a worker that is alive though its job has ended: it is about to be ended too."""


@dataclass(frozen=True, slots=True)
class Member:
    """A live process of a job; `replica` is None for the supervisor."""

    pid: int
    replica: ReplicaId | None
    is_leader: bool


def replica_name(replica: ReplicaId) -> str:
    """The text that `parse_replica` reads."""
    return f"{replica.name}-{replica.launch}"


def parse_replica(text: str) -> ReplicaId | None:
    """Read `ROLE-INDEX-LAUNCH`; None where it is something else."""
    parts = text.rsplit("-", 2)
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return ReplicaId(parts[0], int(parts[1]), int(parts[2]))


def find_members(uid: str) -> list[Member]:
    """All live processes that carry the job's uid, this process left out.

    Raises:
        PlatformError: The processes cannot be listed.
    """
    marker = f"{JOB_UID_VARIABLE}={uid}".encode()
    members = []
    for folder in entries(Path("/proc")):
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            # Empty for the dead that nobody has reaped.
            environment = (folder / "environ").read_bytes().split(b"\0")
            if marker in environment:
                members.append(_member(int(folder.name), environment))
        except OSError:
            # Ended meanwhile, or another user's, which no job of ours can be.
            continue
    return members


def _member(pid: int, environment: Sequence[bytes]) -> Member:
    prefix = f"{REPLICA_VARIABLE}=".encode()
    name = next((e[len(prefix) :] for e in environment if e.startswith(prefix)), b"")
    return Member(pid, parse_replica(name.decode(errors="replace")), os.getsid(pid) == pid)


def signal_members(members: Sequence[Member], signal_number: int) -> None:
    """Signal each; those that have ended meanwhile are left out."""
    for member in members:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(member.pid, signal_number)


def is_stopped(pid: int) -> bool:
    """Whether the process is halted by SIGSTOP or a debugger, so that it handles no request."""
    try:
        status: str = psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return False
    return status in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class ReplicaProcess:
    """A live replica: a child of this process, or one adopted from an earlier supervisor.

    It leads a session and a process group of its own, which holds what it starts.
    """

    def __init__(
        self, pid: int, birth: str | None, descriptor: int, child: "subprocess.Popen[bytes] | None"
    ) -> None:
        self.pid = pid
        self.birth = birth
        self._descriptor = descriptor
        self._child = child

    @classmethod
    def start(
        cls, command: Sequence[str], environment: Mapping[str, str], log_path: Path, header: str
    ) -> "ReplicaProcess":
        """Start a program with its output appended to a log.

        Raises:
            OSError: It cannot be started.
        """
        with log_path.open("ab", buffering=0) as log:
            log.write(header.encode())
            child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # A child that has ended already is kept as a zombie until `reap`, so both calls succeed.
        return cls(child.pid, birth_of(child.pid), os.pidfd_open(child.pid), child)

    @classmethod
    def adopt(cls, pid: int, birth: str | None) -> "ReplicaProcess | None":
        """Watch a process that another supervisor started; None where it has ended."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        process = cls(pid, birth, descriptor, None)
        # Identity is checked after the descriptor is open, so that both mean the same process.
        if process.has_ended() or birth is None or birth_of(pid) != birth:
            process.close()
            return None
        return process

    @classmethod
    def adopt_found(cls, pid: int) -> "ReplicaProcess | None":
        """Watch a process that was found by its environment; None where it has ended."""
        return cls.adopt(pid, birth_of(pid))

    def fileno(self) -> int:
        """Readable when the process has ended."""
        return self._descriptor

    def has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def signal(self, signal_number: int) -> None:
        """Signal the process and all of its group."""
        # The pid of a child is taken until we reap it, and an adopted one is checked here.
        if self._child is None and self.has_ended():
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal_number)

    def reap(self) -> int | None:
        """End what is left of the group of an ended process, and close.

        Returns:
            The exit code, negative for a signal; None for an adopted process.
        """
        code = None
        if self._child is not None:
            # Before the wait, which frees the pid for somebody else's group.
            self.signal(signal.SIGKILL)
            code = self._child.wait()
        self.close()
        return code

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)


def birth_of(pid: int) -> str | None:
    """What tells a process from all others that ever have its pid; None where it has ended.

    Counted in ticks since the boot, since times of day move when the clock is set.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of a program may hold blanks and brackets.
    ticks = stat.rpartition(b")")[2].split()[START_FIELD].decode()
    return f"{BOOT_ID_PATH.read_text().strip()}/{ticks}"


def members_of(directory: JobDirectory) -> list[Member]:
    """All live processes of the job's last submission."""
    submission = directory.submission()
    return [] if submission is None else find_members(submission.uid)


def has_supervisor(directory: JobDirectory) -> bool:
    """Whether somebody supervises the job."""
    return directory.supervisor_lock.is_held()


def has_master(directory: JobDirectory) -> bool:
    """Whether a master is alive, with or without a supervisor."""
    return any(
        member.is_leader and member.replica is not None and member.replica.role == MASTER
        for member in members_of(directory)
    )


def has_left(directory: JobDirectory, timeout_s: float) -> bool:
    """Whether nobody of a job is there, or within a while is not there any more."""
    deadline_s = time.monotonic() + timeout_s
    while has_supervisor(directory) or has_master(directory) or members_of(directory):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(0.02)
    return True


def with_seen_workers(directory: JobDirectory, status: JobStatus) -> JobStatus:
    """The same status, its workers as they are seen now instead of as the master saw them."""
    if not status.workers:
        return status
    # Alive first: one that ends in between is then found among the ended, and not nowhere.
    alive = {member.replica for member in members_of(directory) if member.is_leader}
    workers = seen_workers(
        status.workers,
        [observed.replica for observed in directory.observed()],
        {replica for replica in alive if replica is not None},
        status.phase,
    )
    return status.model_copy(update={"workers": workers})


def seen_workers(
    told: Sequence[WorkerStatus],
    observed: Sequence[Replica],
    alive: Collection[ReplicaId],
    job_phase: JobPhase,
) -> tuple[WorkerStatus, ...]:
    """Correct what the master told of its workers by what its supervisor and the system saw.

    Args:
        alive: Launches whose process is there.
        job_phase: Of the job: where it has ended, whoever is alive is about to end.
    """
    is_done = job_phase is JobPhase.SUCCEEDED
    ended = {replica.id: replica for replica in observed if replica.phase.is_final}

    def seen(worker: WorkerStatus) -> WorkerStatus:
        replica_id = told_id(worker)
        if replica_id in ended:
            replica = ended[replica_id]
            # The master knows whom it asked to end.
            is_needed = not is_done and worker.phase != ReplicaPhase.SUCCEEDED
            phase = told_phase(replica, is_needed=is_needed)
            how = {"phase": str(phase), "last_exit": exit_text(replica)}
        elif replica_id in alive:
            return worker.model_copy(update={"phase": ENDING}) if job_phase.is_final else worker
        elif worker.phase in (ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED):
            how = {}
        elif worker.phase == ReplicaPhase.PENDING:
            unneeded = ReplicaPhase.SUCCEEDED if is_done else ReplicaPhase.FAILED
            how = {"phase": str(unneeded), "last_exit": "was not started"}
        else:
            how = {
                "phase": str(ReplicaPhase.FAILED),
                "last_exit": "ended after its supervisor, so nobody saw how",
            }
        return worker.model_copy(update=how | {"pid": None, "samples_per_s": 0.0, "message": ""})

    return tuple(map(seen, told))


# What of the machine a process may use: its cores, and which of the GPUs.


DEVICES: Final = Path("/dev")
GPU_DEVICE: Final = re.compile(r"nvidia\d+")
NO_GPU: Final = "-1"
CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
NO_LIMIT: Final = ("max", "-1")


def usable_cores(cgroups: Path = CGROUPS, own_cgroups: Path = OWN_CGROUPS) -> int:
    """Those that it is bound to (taskset, a cpuset), and at most what its container may take.

    `os.cpu_count` tells those of the machine: who computes with 64 threads on the 2 cores of a
    container takes several times as long as with 2.

    Args:
        cgroups: Where the system's control groups are mounted.
        own_cgroups: Says which are this process's.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    bound = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min([bound, *map(math.ceil, _quotas(cgroups, own_cgroups))]))


def own_gpus(
    index: int, num_workers: int, visible: str | None, devices: Path = DEVICES
) -> str | None:
    """The GPUs of one worker of several on this machine, as `CUDA_VISIBLE_DEVICES` names them.

    Each has as many as there are for each, and takes the first of its own; where there are more
    workers than GPUs, some share one.

    Args:
        index: Of the worker.
        num_workers: How many there are at most.
        visible: What the variable says now; None where it is not set.
        devices: Where the system has its devices.

    Returns:
        None where there is nothing to choose from, so that the variable stays as it is.
    """
    every = _names_of(devices) if visible is None else _told(visible)
    if len(every) < 2 or num_workers < 2:
        return None
    each = max(1, len(every) // num_workers)
    first = index * each % len(every)
    return ",".join(every[first : first + each])


def _names_of(devices: Path) -> list[str]:
    """Those that this container has, counted as CUDA counts them."""
    try:
        found = [each for each in devices.iterdir() if GPU_DEVICE.fullmatch(each.name)]
    except OSError:
        return []
    return [str(number) for number in range(len(found))]


def _told(visible: str) -> list[str]:
    """As CUDA reads it: up to the first that there cannot be."""
    names = [each.strip() for each in visible.split(",")]
    return list(takewhile(lambda name: name not in ("", NO_GPU), names))


def _quotas(cgroups: Path, own_cgroups: Path) -> list[float]:
    """The cores that each control group around this process may take, where it has such a limit."""
    try:
        lines = own_cgroups.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, own = line.split(":", 2)
        if not controllers:
            found += list(_of_version_2(cgroups, own))
        elif "cpu" in controllers.split(","):
            found += list(_of_version_1(cgroups / controllers, own))
    return found


def _of_version_2(mounted: Path, own: str) -> Iterator[float]:
    for group in _around(mounted, own):
        quota, *period = _words(group / "cpu.max")
        if period:
            yield from _cores(quota, period[0])


def _of_version_1(mounted: Path, own: str) -> Iterator[float]:
    for group in _around(mounted, own):
        quota, period = (_words(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        yield from _cores(quota[0], period[0])


def _around(mounted: Path, own: str) -> list[Path]:
    """A group and those that it is part of.

    In a container its own may be the root of what is mounted, and named as outside of it.
    """
    path = PurePosixPath(own.lstrip("/"))
    return [mounted / each for each in (path, *path.parents)]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split() or [""]
    except OSError:
        return [""]


def _cores(quota: str, period: str) -> Iterator[float]:
    if quota in NO_LIMIT or not quota.isdigit() or not period.isdigit() or not int(period):
        return
    yield int(quota) / int(period)
