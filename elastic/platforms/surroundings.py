"""What the programs of replicas are given by the platform that started them."""

import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from elastic.platforms.base import NO_FENCE, ExitReason, Fence, ReplicaRunner
from elastic.platforms.traces import STEP_NAME
from elastic.policy.fleet import NO_LAUNCHES, TakenLaunches
from elastic.spec.certificate import Certificate
from elastic.spec.job import JobSpec
from elastic.spec.status import NO_MASTERS, MasterHistory

THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
"""How many threads the frameworks compute with; they read them when they are loaded."""

PATIENCE_S: Final = 600.0
"""See `Surroundings.patience_s`: for a master that is started again where it was."""

MEMORY_VARIABLE: Final = "TF_FORCE_GPU_ALLOW_GROWTH"


def share_gpus() -> None:
    """Have TensorFlow take the memory of a GPU as it is needed, where the user has not chosen.

    By default the first process to use it takes all, and a job has several. To be called before the
    user's module is imported, which may use the GPU at once.
    """
    os.environ.setdefault(MEMORY_VARIABLE, "true")


class Surroundings(Protocol):
    """The same program runs anywhere from these."""

    def prepare(self, num_processes: int) -> None:
        """Set this process up, before a framework or the user's module is imported.

        Args:
            num_processes: How many of the job's processes a machine may have to carry.
        """

    def spec(self) -> JobSpec:
        """The specification of the job.

        Raises:
            PlatformError: There is none: this process was not started by the platform.
        """

    def token(self) -> str:
        """The secret that authenticates every call within the job.

        Raises:
            PlatformError: There is none.
        """

    def certificate(self) -> Certificate | None:
        """What encrypts every call within the job; None where they go in clear.

        Raises:
            PlatformError: The job is to be encrypted, and has no certificate.
        """

    def address(self) -> str | None:
        """Where the master listens (`host:port`), or None where that is not known yet."""

    def own_host(self) -> str:
        """The address that other processes of the job reach this one by."""

    def kept_dir(self) -> Path:
        """A folder, made where it was missing, for files that the next launch of this replica finds
        again where the platform can keep them."""

    def patience_s(self) -> float:
        """How long a worker waits for a master that is away, before it gives its place up."""

    def say_end(self, reason: ExitReason, message: str, traceback: str = "") -> None:
        """Say why this process is about to end; the platform reports it as the exit reason.

        Raises:
            PlatformError: It could not be written.
        """

    def code_of_leaving(self, spec: JobSpec) -> int:
        """The exit code of a replica that leaves as it was asked to, its work undone."""


class Departure:
    """Asked for by the platform, made ready for by the master. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_asked = False
        self._on_asked: Callable[[], None] | None = None
        self._ready = threading.Event()

    def prepare(self, on_asked: Callable[[], None]) -> None:
        """Have `on_asked` called, once and on any thread; whoever prepares calls `be_ready`."""
        with self._lock:
            self._on_asked = on_asked
            is_asked = self._is_asked
        if is_asked:
            on_asked()

    def be_ready(self) -> None:
        """Nothing is lost from now on."""
        self._ready.set()

    def ask(self, timeout_s: float) -> bool:
        """Wait until nothing is lost by an end; False where that takes too long.

        A master that has not come to `prepare` has nothing to lose.
        """
        with self._lock:
            is_first, self._is_asked = not self._is_asked, True
            on_asked = self._on_asked
        if on_asked is None:
            return True
        if is_first:
            on_asked()
        return self._ready.wait(timeout_s)


@dataclass(frozen=True, slots=True)
class CallsPort:
    """A port at which a process listens, and as which it is told to others; 0 for a free one."""

    bound: int = 0
    told: int = 0


ANY_PORT: Final = CallsPort()


@dataclass(frozen=True, slots=True)
class MasterEnvironment:
    """The same job runs anywhere from these values.

    Attributes:
        run_id: The same for all lives of the master of one submission.
        recovery_dir: Where cuts outlive the master.
        recovery_stays: Whether they outlive all processes of the job, for whoever resumes it.
        host: Address that workers reach this process by.
        master_history: How the masters before this one ended, where the platform leaves it to the
            master to tell.
        last_end: How the master before this one ended, for people; empty where nobody knows.
        beside: A process that serves the job's curves, and ends with this one.
        departure: Asked for before the master is ended from outside; None where nothing outlives
            it that its newest version could be kept in.
        room: Workers that the platform has room for now, as far as it can tell; a job with a
            range begins with so many of it.
        fence: Asked before anything of this master can be seen by others.
        taken_launches: Launch numbers that earlier masters may have given.
        certificate: Encrypts every call within the job; None where they go in clear.
        calls_port: At which calls by sockets are taken from other machines.
    """

    spec: JobSpec
    token: str
    run_id: str
    runner: ReplicaRunner
    recovery_dir: Path
    host: str
    room: int | None = None
    master_history: MasterHistory = NO_MASTERS
    beside: "subprocess.Popen[bytes] | None" = None
    departure: Departure | None = None
    fence: Fence = NO_FENCE
    taken_launches: TakenLaunches = NO_LAUNCHES
    certificate: Certificate | None = None
    last_end: str = ""
    recovery_stays: bool = False
    calls_port: CallsPort = ANY_PORT

    @property
    def keeps_versions(self) -> bool:
        """Whether the newest version can be kept for whoever resumes the job."""
        return self.recovery_stays or self.departure is not None

    @property
    def checkpoint_dir(self) -> Path:
        """Where checkpoints go whose user has named no folder: beside the cuts."""
        return self.recovery_dir.with_name("checkpoints")

    @property
    def step_path(self) -> Path:
        """Where the master says which step of the preparation it is at, for whoever finds it dead.

        Beside the cuts, as it must outlive the master as well.
        """
        return self.recovery_dir.with_name(STEP_NAME)
