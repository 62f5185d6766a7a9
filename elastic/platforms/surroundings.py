"""What the program of a replica is given by the platform that started it."""

import os
from typing import Final, Protocol

from elastic.platforms.base import ExitReason
from elastic.spec.job import JobSpec

THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
"""How many threads the frameworks compute with; they read them when they are loaded."""


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

    def address(self) -> str | None:
        """Where the master listens (`host:port`), or None where that is not known yet."""

    def say_end(self, reason: ExitReason, message: str, traceback: str = "") -> None:
        """Say why this process is about to end; the platform reports it as the exit reason.

        Raises:
            PlatformError: It could not be written.
        """
