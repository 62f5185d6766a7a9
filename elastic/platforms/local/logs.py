"""Reads the logs of a job's replicas, as they are or as they grow."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.base import LogLine
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.files import entries
from elastic.platforms.traces import TIME
from elastic.spec.roles import ROLES

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
