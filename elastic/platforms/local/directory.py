"""The folder of one job: where each file lies, what is in it and who writes it."""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, JobControl, Replica, ReplicaId
from elastic.platforms.local.files import (
    Bell,
    Lock,
    entries,
    exists,
    read_whole,
    remove,
    write_whole,
)
from elastic.platforms.traces import STEP_NAME
from elastic.spec.certificate import Certificate
from elastic.spec.job import JobSpec
from elastic.spec.roles import ROLES
from elastic.spec.status import JobStatus, StoredStatus

logger = logging.getLogger(__name__)

T = TypeVar("T")

HOME_VARIABLE: Final = "ELASTIC_HOME"


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission of a job.

    Attributes:
        uid: Random; in the environment of every process of this submission.
        commands: By role, the program and its first arguments.
    """

    uid: str
    submitted_s: float
    commands: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Desired:
    """What the master wants of one launch: that it runs, or that it ends within a grace."""

    replica: ReplicaId
    delete_grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What the supervisor knows of one launch.

    Attributes:
        birth: Of its process: with the pid, its identity.
    """

    replica: Replica
    birth: str | None = None


@dataclass(frozen=True, slots=True)
class Termination:
    """What a replica says about its own end."""

    reason: ExitReason
    message: str
    traceback: str = ""


_SUBMISSION: Final = TypeAdapter(Submission)
_DESIRED: Final = TypeAdapter(Desired)
_OBSERVED: Final = TypeAdapter(Observed)
_TERMINATION: Final = TypeAdapter(Termination)
_SPEC: Final = TypeAdapter(JobSpec)
_STATUS: Final[TypeAdapter[JobStatus]] = TypeAdapter(StoredStatus)
_SIZE: Final = TypeAdapter(int)


class DamagedFileError(PlatformError):
    """A file of a job holds something else than it should, however often it is read."""


def default_home() -> Path:
    """`$ELASTIC_HOME`, or `~/.elastic`."""
    return Path(os.environ.get(HOME_VARIABLE) or "~/.elastic").expanduser().absolute()


class JobDirectory:
    """Typed access to the files of one job; a missing file reads as None.

    Every read raises `PlatformError` for a file that cannot be read or holds something else than
    it should, and every write for a file that could not be written or removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.supervisor_lock = Lock(path / "supervisor.lock")
        self.supervisor_log_path = path / "supervisor.log"
        self.supervisor_bell = Bell(path / "supervisor.bell")
        self.master_bell = Bell(path / "master.bell")
        self.logs_path = path / "logs"
        self.cuts_path = path / "cuts"
        self.kept_paths = (self.cuts_path, path / "checkpoints", path / "predictions")
        """What another submission may go on from, and results that have no other place."""

        self.step_path = path / STEP_NAME
        self.desired_path = path / "desired"
        self.observed_path = path / "observed"
        self.exits_path = path / "exits"
        self.control_path = path / "control.json"
        self.cancelled_path = path / "cancelled"
        self.status_path = path / "status.json"
        self.address_path = path / "address"
        self.token_path = path / "token"
        self.chain_path = path / "tls.crt"
        self.key_path = path / "tls.key"
        self.spec_path = path / "spec.json"
        self.submission_path = path / "submission.json"

    def kept_path(self, replica: ReplicaId) -> Path:
        """The folder of what all launches of a replica keep."""
        return self.path / replica.name

    def replica_paths(self) -> list[Path]:
        """The folders that replicas of any role keep now; see `kept_path`."""
        return [path for role in ROLES for path in self.path.glob(f"{role}-*") if path.is_dir()]

    def log_path(self, replica: ReplicaId) -> Path:
        return self.logs_path / f"{replica.name}.log"

    # -- written when the job is submitted

    def write_submission(
        self,
        spec: JobSpec,
        submission: Submission,
        token: str,
        certificate: Certificate | None = None,
    ) -> None:
        """Make the folders and the files that a job begins with."""
        try:
            # Private before the token is in it, whatever the caller's umask.
            self.path.mkdir(mode=0o700, exist_ok=True)
            for path in (
                self.logs_path,
                self.cuts_path,
                self.desired_path,
                self.observed_path,
                self.exits_path,
            ):
                path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise PlatformError(f"cannot make {error.filename}: {error.strerror}") from error
        write_whole(self.token_path, token)
        if certificate is not None:
            write_whole(self.chain_path, certificate.chain)
            write_whole(self.key_path, certificate.key)
        write_whole(self.spec_path, spec.model_dump_json())
        write_whole(self.submission_path, _SUBMISSION.dump_json(submission).decode())

    def submission(self) -> Submission | None:
        return _read(self.submission_path, _SUBMISSION)

    def spec(self) -> JobSpec | None:
        return _read(self.spec_path, _SPEC)

    def token(self) -> str | None:
        return read_whole(self.token_path)

    def certificate(self) -> Certificate | None:
        chain, key = read_whole(self.chain_path), read_whole(self.key_path)
        return None if chain is None or key is None else Certificate(chain, key)

    # -- written by the master

    def write_status(self, status: JobStatus) -> None:
        write_whole(self.status_path, status.model_dump_json())

    def status(self) -> JobStatus | None:
        return _read(self.status_path, _STATUS)

    def sound_status(self) -> JobStatus | None:
        """The status; None where it is damaged, as the next one that is published replaces it."""
        try:
            return self.status()
        except DamagedFileError as error:
            logger.warning("%s; goes on as if there were none", error)
            return None

    def write_address(self, address: str) -> None:
        write_whole(self.address_path, address)

    def address(self) -> str | None:
        return read_whole(self.address_path)

    def write_desired(self, desired: Desired) -> None:
        path = self.desired_path / _file_name(desired.replica)
        write_whole(path, _DESIRED.dump_json(desired).decode())

    def desired(self) -> list[Desired]:
        return list(_read_all(self.desired_path, _DESIRED))

    def desired_of(self, replica: ReplicaId) -> Desired | None:
        return _read(self.desired_path / _file_name(replica), _DESIRED)

    def forget(self, replica: ReplicaId) -> None:
        """Remove the files of one launch, except its log."""
        # Desired first: a launch that is desired and not observed is one still to be started.
        for folder in (self.desired_path, self.observed_path, self.exits_path):
            remove(folder / _file_name(replica))

    # -- written by the supervisor

    def write_observed(self, observed: Observed) -> None:
        path = self.observed_path / _file_name(observed.replica.id)
        write_whole(path, _OBSERVED.dump_json(observed).decode())

    def observed(self) -> list[Observed]:
        return list(_read_all(self.observed_path, _OBSERVED))

    # -- written by a replica about itself

    def write_termination(self, replica: ReplicaId, termination: Termination) -> None:
        path = self.exits_path / _file_name(replica)
        write_whole(path, _TERMINATION.dump_json(termination).decode())

    def termination(self, replica: ReplicaId) -> Termination | None:
        return _read(self.exits_path / _file_name(replica), _TERMINATION)

    # -- written by the command line

    def write_size(self, num_workers: int) -> None:
        write_whole(self.control_path, str(num_workers))

    def write_cancelled(self) -> None:
        # A file of its own: a `scale` at the same moment cannot undo it.
        write_whole(self.cancelled_path, "")

    def is_cancelled(self) -> bool:
        return exists(self.cancelled_path)

    def control(self) -> JobControl:
        return JobControl(
            num_workers=_read(self.control_path, _SIZE), cancelled=self.is_cancelled()
        )


def _file_name(replica: ReplicaId) -> str:
    # Roles become file names, so one like `../token` must not get further than this.
    if not re.fullmatch(r"[a-z][a-z0-9-]*", replica.role):
        raise PlatformError(f"{replica.role!r} is not a role: use lower-case letters like 'worker'")
    return f"{replica.name}-{replica.launch}.json"


def _read(path: Path, adapter: TypeAdapter[T]) -> T | None:
    text = read_whole(path)
    if text is None:
        return None
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        raise DamagedFileError(
            f"{path} is damaged: {error.errors()[0]['msg']}: mend or remove it"
        ) from error


def _read_all(folder: Path, adapter: TypeAdapter[T]) -> Iterator[T]:
    for path in (path for path in entries(folder) if path.suffix == ".json"):
        value = _read(path, adapter)
        # None: removed since it was listed.
        if value is not None:
            yield value
