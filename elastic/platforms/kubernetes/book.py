"""The launches of a job, as the master asked for them: what no pod can tell once it is gone.

Kept in a file on the volume of the master's pod, so a restarted container knows which launches
were made, which have ended and which number comes next. It is small and replaced whole.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from elastic.errors import PlatformError
from elastic.platforms.base import Replica, ReplicaId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch.

    Attributes:
        pod_uid: Of its pod, once that was created.
        ended: How it ended, once that was seen.
        is_forgotten: The master asked not to be told of it again; the number stays taken.
    """

    replica: ReplicaId
    pod_uid: str | None = None
    ended: Replica | None = None
    is_forgotten: bool = False


_LAUNCHES: Final = TypeAdapter(list[Launch])


class LaunchBook:
    """Launches by replica id. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._launches: dict[ReplicaId, Launch] = {}
        self._is_written = True

    def load(self) -> None:
        """Read what an earlier life of the master has written.

        Raises:
            PlatformError: The file cannot be read, or holds something else.
        """
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except OSError as error:
            raise PlatformError(f"cannot read {self._path}: {error.strerror}") from error
        try:
            self._launches = {launch.replica: launch for launch in _LAUNCHES.validate_json(text)}
        except ValidationError as error:
            raise PlatformError(
                f"{self._path} is damaged: {error.errors()[0]['msg']}: delete the master's pod "
                "and submit the job again with --resume"
            ) from error

    def get(self, replica: ReplicaId) -> Launch | None:
        return self._launches.get(replica)

    def newest(self, index: int) -> int:
        """The highest launch number of an index; 0 where it was never launched."""
        return max((key.launch for key in self._launches if key.index == index), default=0)

    def __iter__(self) -> Iterator[Launch]:
        return iter(list(self._launches.values()))

    def add(self, launch: Launch) -> None:
        """Write a launch down before anything is done for it.

        Raises:
            PlatformError: It could not be written; nothing has changed.
        """
        launches = self._launches | {launch.replica: launch}
        self._write(launches)
        self._launches = launches

    def note(self, launch: Launch) -> None:
        """Note what has become of a launch: it is so, whether or not it can be written now."""
        if self._launches.get(launch.replica) != launch:
            self._launches[launch.replica] = launch
            self._is_written = False
            self.flush()

    def forget(self, replica: ReplicaId) -> None:
        """Tell of a launch no more; it is dropped for good once a later one is known."""
        launch = self._launches.get(replica)
        if launch is None:
            return
        self._launches[replica] = replace(launch, is_forgotten=True)
        for key, other in list(self._launches.items()):
            if other.is_forgotten and key.launch < self.newest(key.index):
                del self._launches[key]
        self._is_written = False
        self.flush()

    def flush(self) -> None:
        """Write what could not be written before."""
        if self._is_written:
            return
        try:
            self._write(self._launches)
        except PlatformError as error:
            # A full disk: the job matters more, and the next change tries again.
            logger.warning("%s", error)
        else:
            self._is_written = True

    def _write(self, launches: dict[ReplicaId, Launch]) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(_LAUNCHES.dump_json(list(launches.values())))
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise PlatformError(f"cannot write {self._path}: {error.strerror}") from error
