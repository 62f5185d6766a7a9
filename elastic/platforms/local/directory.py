"""The folder of one job: where each file lies, what is in it and who writes it.

Files are replaced whole, locks die with their holder, and bells wake a process.
"""

import fcntl
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import ExitReason, JobControl, LogLine, Replica, ReplicaId
from elastic.platforms.process import STEP_NAME, TIME
from elastic.spec.job import JobSpec
from elastic.spec.roles import ROLES
from elastic.spec.status import JobStatus, StoredStatus
from elastic.spec.values import Certificate


def write_whole(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace `path`, so that readers see the old text or the new one and nothing between.

    There is no fsync: a job's processes do not outlive a power cut, so neither need its files.

    Raises:
        PlatformError: The text could not be written; the old file is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise PlatformError(
            f"cannot write {path}: {error.strerror}: make room or mend its permissions, "
            "or set ELASTIC_HOME to another folder"
        ) from error


def read_whole(path: Path) -> str | None:
    """The text of a file, or None where there is none.

    Raises:
        PlatformError: The file is there and cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PlatformError(
            f"cannot read {path}: {error.strerror}: mend its permissions"
        ) from error


def exists(path: Path) -> bool:
    """Whether a file or folder is there.

    Raises:
        PlatformError: That cannot be told.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise PlatformError(
            f"cannot look at {path}: {error.strerror}: mend its permissions"
        ) from error
    return True


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, by name; nothing where there is none.

    Raises:
        PlatformError: The folder is there and cannot be listed.
    """
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise PlatformError(
            f"cannot list {folder}: {error.strerror}: mend its permissions"
        ) from error


def remove(path: Path) -> None:
    """Remove a file; nothing happens where there is none.

    Raises:
        PlatformError: It is there and cannot be removed.
    """
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PlatformError(
            f"cannot remove {path}: {error.strerror}: mend its permissions"
        ) from error


def modified_ns(path: Path) -> int:
    """When a file or folder last changed; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def last_line(path: Path) -> str:
    """The last line of a log that says anything; empty where none does."""
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - 8192))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        # The line decorates a message about something else, which must not be lost for it.
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Lock:
    """A lock on a file, which the system gives back when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the lock if nobody has it; never blocks.

        Raises:
            PlatformError: The file cannot be opened.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise PlatformError(f"cannot lock {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back; nothing happens where it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_held(self) -> bool:
        """Whether somebody holds the lock now.

        Raises:
            PlatformError: The file is there and cannot be opened.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise PlatformError(f"cannot look at {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


class Bell:
    """Wakes the one process that listens; a ring that nobody hears is lost.

    Nothing depends on a ring but speed: all state is in files, which listeners also look at
    from time to time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def ring(self) -> None:
        """Wake the listener, if there is one."""
        with self._opened(os.O_WRONLY) as descriptor:
            if descriptor is not None:
                # A full pipe has rings enough in it, so one that does not fit may be dropped.
                with suppress(BlockingIOError, BrokenPipeError):
                    os.write(descriptor, b"!")

    def listen(self) -> int:
        """A descriptor that is readable after a ring; opened once.

        Raises:
            PlatformError: The bell cannot be made or opened.
        """
        if self._descriptor is None:
            try:
                with suppress(FileExistsError):
                    os.mkfifo(self._path, 0o600)
                # Open for both directions: a pipe without writers would be readable for ever.
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_NONBLOCK)
            except OSError as error:
                raise PlatformError(f"cannot listen at {self._path}: {error.strerror}") from error
        return self._descriptor

    def silence(self) -> None:
        """Forget the rings so far."""
        with suppress(BlockingIOError):
            while os.read(self.listen(), 4096):
                pass

    def close(self) -> None:
        """Stop listening."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextmanager
    def _opened(self, flags: int) -> Iterator[int | None]:
        try:
            descriptor = os.open(self._path, flags | os.O_NONBLOCK)
        except OSError:
            # No pipe or no listener (ENXIO): nobody is there to be woken.
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)


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


# Reads the logs of a job's replicas, as they are or as they grow.


_TIMED: Final = re.compile(TIME + " [DIWEC] ")
_HEADER: Final = re.compile(r"--- launch \d+ of \S+ at (\S+) ---$")

POLL_S: Final = 0.1
CHUNK_BYTES: Final = 1 << 20


class LineClock:
    """Follows the times of one log, line by line.

    The programs of a job begin their lines with the time, and each launch begins with a header that
    has it. Any other line (a traceback, what a user's model prints) belongs to the line before it.
    """

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._now: datetime | None = None

    def stamped(self, texts: Iterable[str], since_s: float | None) -> Iterator[LogLine]:
        """The lines with their times, without those from before `since_s`.

        A line whose time nobody can tell is kept.
        """
        for text in texts:
            self._now = _time_of(text) or self._now
            if since_s is not None and self._now and self._now.timestamp() < since_s:
                continue
            stamp = self._now.isoformat(timespec="milliseconds") if self._now else ""
            yield LogLine(self._replica, text, stamp)


def _time_of(text: str) -> datetime | None:
    timed = _TIMED.match(text)
    header = None if timed else _HEADER.match(text)
    try:
        if timed:
            # A job may live in another time zone than who reads of it.
            text = f"{timed['second']}.{timed['milli']}{timed['zone'] or ''}"
            return datetime.fromisoformat(text).astimezone()
        return datetime.fromisoformat(header[1]) if header else None
    except ValueError:
        # A user's model prints whatever it likes.
        return None


class _LogFile:
    """One replica's log, read on from where the last call ended."""

    def __init__(self, path: Path, since_s: float | None) -> None:
        self.replica = path.stem
        self._path = path
        self._since_s = since_s
        self._clock = LineClock(self.replica)
        self._offset_bytes = 0
        self._rest = b""

    def new_lines(self) -> Iterator[LogLine]:
        """The complete lines that were added."""
        return self._clock.stamped(self._new_texts(), self._since_s)

    def last_words(self) -> Iterator[LogLine]:
        """What stands after the last end of a line; nothing more is added to it."""
        # A generator: to be looked at after the lines before it.
        rest, self._rest = self._rest, b""
        yield from self._clock.stamped([_text(rest)] if rest else [], self._since_s)

    def _new_texts(self) -> Iterator[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset_bytes)
                while chunk := file.read(CHUNK_BYTES):
                    self._offset_bytes += len(chunk)
                    *lines, self._rest = (self._rest + chunk).split(b"\n")
                    yield from map(_text, lines)
        except FileNotFoundError:
            # The job was removed or replaced while we read.
            return
        except OSError as error:
            raise PlatformError(f"cannot read {self._path}: {error.strerror}") from error


def read_logs(
    directory: JobDirectory,
    replicas: Sequence[str],
    tail: int | None,
    since_s: float | None = None,
) -> Iterator[LogLine]:
    """What the logs hold now, replica by replica, the master first.

    Raises:
        PlatformError: A replica was named that has no log.
    """
    paths = _paths(directory)
    for name in replicas:
        if not any(_is_named(path.stem, [name]) for path in paths):
            known = ", ".join(path.stem for path in paths) or "none yet"
            raise PlatformError(
                f"no log of {name!r} in job {directory.path.name!r}: name one of: {known}"
            )
    for path in paths:
        if _is_named(path.stem, replicas):
            file = _LogFile(path, since_s)
            yield from _last(chain(file.new_lines(), file.last_words()), tail)


def follow_logs(
    directory: JobDirectory,
    replicas: Sequence[str],
    tail: int | None,
    has_ended: Callable[[], bool],
    since_s: float | None = None,
) -> Iterator[LogLine]:
    """What the logs hold and what is added, until the job has ended and all was read.

    Replicas that begin to write meanwhile are included, so a name may be unknown at first.
    """
    files: dict[Path, _LogFile] = {}
    is_first_look = True
    while True:
        # Asked before reading: what is in the logs after the end was there when we read them.
        is_last_look = has_ended()
        for path in _paths(directory):
            if not _is_named(path.stem, replicas):
                continue
            file = files.setdefault(path, _LogFile(path, since_s))
            last_words = file.last_words() if is_last_look else iter(())
            yield from _last(chain(file.new_lines(), last_words), tail if is_first_look else None)
        if is_last_look:
            return
        is_first_look = False
        time.sleep(POLL_S)


def _last(lines: Iterator[LogLine], tail: int | None) -> Iterator[LogLine]:
    return lines if tail is None else iter(deque(lines, maxlen=tail))


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", errors="replace")


def _is_named(replica: str, names: Sequence[str]) -> bool:
    """Whether `worker-0` is meant by the names: itself, its role, or everybody."""
    return not names or replica in names or replica.rsplit("-", 1)[0] in names


def _paths(directory: JobDirectory) -> list[Path]:
    ranks = {role: rank for rank, role in enumerate(ROLES)}

    def order(path: Path) -> tuple[int, str, int]:
        role, _, index = path.stem.rpartition("-")
        return ranks.get(role, len(ranks)), role, int(index) if index.isdecimal() else 0

    logs = [path for path in entries(directory.logs_path) if path.suffix == ".log"]
    return sorted(logs, key=order)
