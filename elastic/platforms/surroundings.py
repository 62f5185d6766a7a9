"""What the program of a replica is given by the platform that started it."""

from typing import Final, Protocol

from elastic.platforms.base import ExitReason
from elastic.spec.job import JobSpec

THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
"""How many threads the frameworks compute with; they read them when they are loaded."""


class Surroundings(Protocol):
    """The same program runs anywhere from these."""

    def prepare(self, num_processes: int) -> None:
        """Set this process up, before a framework is imported.

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

    def address(self) -> str | None:
        """Where the master listens (`host:port`), or None where that is not known yet."""

    def say_end(self, reason: ExitReason, message: str, traceback: str = "") -> None:
        """Say why this process is about to end; the platform reports it as the exit reason.

        Raises:
            PlatformError: It could not be written.
        """
