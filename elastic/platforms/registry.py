"""Platforms by their names: what each offers to the command line, and to programs of replicas.

A platform's package has a module `entry` with its `ENTRY`. It is imported when it is asked for, and
imports the rest of its package within its methods, so that nobody pays for what he does not use.

`Surroundings` are what the programs of replicas are given by the platform that started them, and
`run_replica` is how those of workers and servers begin and end.
"""

import argparse
import faulthandler
import logging
import os
import subprocess
import sys
import threading
import traceback
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from elastic.errors import PlatformError, RpcError, SupersededError, told
from elastic.platforms.base import NO_FENCE, Fence, Platform, ReplicaRunner
from elastic.platforms.process import STEP_NAME, start_logging
from elastic.policy.fleet import NO_LAUNCHES, TakenLaunches
from elastic.policy.replicas import ExitReason, ReplicaId
from elastic.spec.job import JobSpec
from elastic.spec.platforms import PLATFORMS, PlatformName, Traits
from elastic.spec.roles import ROLES
from elastic.spec.status import NO_MASTERS, MasterHistory
from elastic.spec.values import Certificate

if TYPE_CHECKING:
    from elastic.platforms.images import ImageRequest


THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
"""How many threads the frameworks compute with; they read them when they are loaded."""

MASTER_PATIENCE_S: Final = 600.0
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


SERVER_PATIENCE_S: Final = 4.0
"""How long people wait for an API server that is away or busy; followers wait longer."""

MakeImage: TypeAlias = "Callable[[ImageRequest], str]"
"""Makes the image of a job where the platform has images, and returns its name."""


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which cluster is meant, by kubectl's conventions; None leaves it to the kubeconfig."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


class Outcome(StrEnum):
    """What a check came to; only a failure stops jobs."""

    OK = "ok"
    WARNING = "warn"
    FAILURE = "fail"
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check.

    Attributes:
        subject: What was looked at, in a word or two.
        fix: What to do; a failure always has it.
    """

    subject: str
    outcome: Outcome
    text: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert self.fix or self.outcome is not Outcome.FAILURE, f"{self.subject} has no fix"


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What `elastic doctor` is asked to look at.

    Attributes:
        service_account: Of the masters.
        docker_base_url: Of the engine that makes images.
        repository: Where images are pushed to; empty where none is named.
    """

    choice: ClusterChoice
    service_account: str
    docker_base_url: str
    repository: str


class PlatformEntry(Protocol):
    """What the package of a platform offers."""

    def is_meant(self, choice: ClusterChoice) -> bool:
        """Whether jobs go there where nobody names a platform; asks no network."""

    def open(self, choice: ClusterChoice, patience_s: float, make_image: MakeImage) -> Platform:
        """The command line's side.

        Args:
            patience_s: How long an API server that does not answer is asked again.

        Raises:
            PlatformError: The platform cannot be used from here.
        """

    def checks(self, request: CheckRequest) -> Iterator[Check]:
        """Look at everything that its jobs need, one by one."""

    def surroundings(self, place: str, replica: ReplicaId | None) -> Surroundings:
        """What the program of a replica is given.

        Args:
            place: What stood behind the program's flag, see `Traits.program_place`.
            replica: Which one this process is; None where only the platform knows.
        """

    def master_environment(self, place: str) -> MasterEnvironment | None:
        """What a master is given; None where its job has come to its end already.

        Raises:
            PlatformError: This process is no master that the platform started.
        """


def entry_of(name: PlatformName) -> PlatformEntry:
    """What the platform of that name offers."""
    return _entry(name.traits)


def add_platform_flags(parser: ArgumentParser) -> None:
    """Give a program the flags of which each says of which platform it is."""
    flags = parser.add_mutually_exclusive_group(required=True)
    for traits in PLATFORMS.values():
        # The place of a platform whose flag stands alone is empty, which is not None.
        if traits.program_place is None:
            flags.add_argument(traits.program_flag, action="store_const", const="")
        else:
            flags.add_argument(traits.program_flag, metavar=traits.program_place)


def entry_of_program(arguments: Namespace) -> tuple[PlatformEntry, str]:
    """The platform that started this program, and what it was told of its place."""
    for traits in PLATFORMS.values():
        place = getattr(arguments, traits.program_flag.removeprefix("--").replace("-", "_"))
        if place is not None:
            return _entry(traits), place
    raise AssertionError("argparse has taken a program without any of its required flags")


def _entry(traits: Traits) -> PlatformEntry:
    return cast("PlatformEntry", import_module(f"{traits.package}.entry").ENTRY)


# What the programs of workers and servers share: how one begins, and says its end.


Work: TypeAlias = Callable[[JobSpec, Surroundings, ReplicaId], int]
"""What a replica does until the job needs it no more; gives its exit code."""


def run_replica(role: str, work: Work) -> int:
    """Begin as the flags say, work, and have the reason of any other end in the record.

    Args:
        role: Of the replica, as the table of roles has it.
        work: What it does.

    Returns:
        The exit code of the process.
    """
    parser = argparse.ArgumentParser(prog=f"elastic.{role}")
    add_platform_flags(parser)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--launch", type=int, required=True)
    arguments = parser.parse_args()
    # A crash in C raises nothing. Of it alone: a node keeps the last 2 KiB of what was written.
    faulthandler.enable(all_threads=False)
    replica = ReplicaId(role, arguments.index, arguments.launch)
    platform, place = entry_of_program(arguments)
    surroundings = platform.surroundings(place, replica)
    try:
        spec = surroundings.spec()
        start_logging(spec.log_level)
        surroundings.prepare(ROLES[role].limits(spec).maximum)
        code = work(spec, surroundings, replica)
    except SupersededError as error:
        logging.getLogger(__name__).info("%s", error)
        with suppress(PlatformError):
            # Nobody waits for it: another has its place.
            surroundings.say_end(ExitReason.COMPLETED, "")
        return 0
    except RpcError as error:
        # Not the user's doing: the master was away too long, or refuses this replica.
        surroundings.say_end(ExitReason.KILLED, str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the one broad catch of this process
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        surroundings.say_end(ExitReason.USER_ERROR, told(error), trace)
        return 1
    surroundings.say_end(ExitReason.COMPLETED, "")
    return code
