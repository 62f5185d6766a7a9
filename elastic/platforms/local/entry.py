"""What the local platform offers to commands and programs; see `PlatformEntry`."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import Platform
from elastic.platforms.registry import (
    Check,
    CheckRequest,
    ClusterChoice,
    MakeImage,
    MasterEnvironment,
    Outcome,
    PlatformEntry,
    Surroundings,
)
from elastic.policy.replicas import ReplicaId


class _LocalEntry:
    """Jobs on this machine."""

    def is_meant(self, choice: ClusterChoice) -> bool:  # noqa: ARG002 - of clusters only
        """It is always there."""
        return True

    def open(
        self,
        choice: ClusterChoice,  # noqa: ARG002 - there is one
        patience_s: float,  # noqa: ARG002 - nothing is away
        make_image: MakeImage,  # noqa: ARG002 - nothing is shipped
    ) -> Platform:
        """The jobs below the home of this user."""
        from elastic.platforms.local.directory import default_home
        from elastic.platforms.local.platform import LocalPlatform

        return LocalPlatform(default_home())

    def checks(self, request: CheckRequest) -> Iterator[Check]:  # noqa: ARG002 - of clusters only
        """Whether jobs can be kept."""
        from elastic.platforms.local.directory import default_home

        home = default_home()
        place = next(path for path in (home, *home.parents) if path.exists())
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            yield Check("home", Outcome.OK, f"jobs are kept in {home}")
            return
        fix = "mend its permissions, or set ELASTIC_HOME to another folder"
        yield Check("home", Outcome.FAILURE, f"jobs cannot be kept in {home}", fix)

    def surroundings(self, place: str, replica: ReplicaId | None) -> Surroundings:
        """What the folder of a job says."""
        from elastic.platforms.local.surroundings import LocalSurroundings

        return LocalSurroundings(Path(place), replica)

    def master_environment(self, place: str) -> MasterEnvironment:
        """What a master is given by the folder of its job.

        Raises:
            PlatformError: The folder is not that of a job.
        """
        from elastic.platforms.local.directory import JobDirectory
        from elastic.platforms.local.processes import usable_cores
        from elastic.platforms.local.surroundings import (
            LocalReplicaRunner,
            read_certificate,
            read_last_end,
            read_spec,
            read_token,
        )

        job_dir = Path(place)
        directory = JobDirectory(job_dir)
        submission = directory.submission()
        if submission is None:
            raise PlatformError(
                f"{job_dir} holds no submission.json: it is not the folder of a job"
            )
        return MasterEnvironment(
            spec=read_spec(job_dir),
            token=read_token(job_dir),
            certificate=read_certificate(job_dir),
            run_id=submission.uid,
            runner=LocalReplicaRunner(job_dir),
            recovery_dir=directory.cuts_path,
            host="127.0.0.1",
            room=usable_cores(),
            last_end=read_last_end(job_dir),
            recovery_stays=True,
        )


ENTRY: Final[PlatformEntry] = _LocalEntry()
