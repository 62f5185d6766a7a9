"""What a master is given by the platform that started it."""

from dataclasses import dataclass
from pathlib import Path

from elastic.platforms.base import ReplicaRunner
from elastic.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class MasterEnvironment:
    """The same job runs anywhere from these values.

    Attributes:
        run_id: The same for all lives of the master of one submission.
        recovery_dir: Where cuts outlive the master.
        host: Address that workers reach this process by.
        room: Workers that the platform has room for now, as far as it can tell; a job with a
            range begins with so many of it.
    """

    spec: JobSpec
    token: str
    run_id: str
    runner: ReplicaRunner
    recovery_dir: Path
    host: str
    room: int | None = None
