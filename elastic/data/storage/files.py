"""Open files of a reader: few handles, reads by position, and a watch for files that change.

Reads go through `pread` and not through `mmap`: a file that is truncated under a memory map kills
the process with SIGBUS, where `pread` comes back short and becomes a `DataError`.
"""

import errno
import io
import os
import stat
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from elastic.errors import DataError

MAX_OPEN_FILES: Final = 32
"""Per reader and process; well below the usual limit of 1024, enough for any order of tasks."""

_COUNT_BLOCK_BYTES: Final = 1 << 20

_AROUND_BYTES: Final = 256 << 10
"""Read by the system where a row is wanted: as much as a chunk of shuffled rows."""

_MAX_ASKED: Final = 1 << 10

_NO_FLAGS: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
"""Of file systems that cannot say whether bytes are at hand."""

_SAMPLE_BYTES: Final = 1 << 12
"""Of the begin and of the end of a file. Archives and columnar files end with an index, which tells
of all that is in them."""


@dataclass(frozen=True, slots=True)
class Version:
    """What tells that a file is still the one it was.

    Attributes:
        size: Bytes.
        tag: Changes when the file is written to, as far as its file system tells.
    """

    size: int
    tag: int | str


class SourceFile(ABC):
    """The bytes of one file, as they were when it was opened.

    Attributes:
        name: The path as the user wrote it.
        version: When it was opened.
        is_forward: Whether it is read forward at far less cost than from anywhere.
        is_far: Whether each read is a request to another machine.
    """

    is_forward = False
    is_far = False

    def __init__(self, name: str, version: Version) -> None:
        self.name = name
        self.version = version

    @property
    def size(self) -> int:
        """Bytes, as stored."""
        return self.version.size

    @abstractmethod
    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes`, fewer only at the end of the file as it was opened.

        Raises:
            DataError: The file ends before that, is damaged, or cannot be read.
        """

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill all of `buffer` from `offset` on.

        Raises:
            DataError: The file ends before, or cannot be read.
        """
        data = self.read_at(offset, len(buffer))
        if len(data) < len(buffer):
            raise self._truncated(offset, len(buffer), offset + len(data))
        buffer[:] = data

    def read_rows(self, buffer: memoryview, offsets: Iterable[tuple[int, int]], size: int) -> None:
        """Read runs of one size, each to its place.

        Args:
            buffer: Where they go.
            offsets: Of each run, where in `buffer` it begins, and where in the file.
            size: Bytes of a run.

        Raises:
            DataError: The file ends before, or cannot be read.
        """
        for place, offset in offsets:
            self.read_into(buffer[place : place + size], offset)

    def stream(self) -> io.BufferedReader:
        """The file as Python's libraries read it; closing it does not close this file."""
        return io.BufferedReader(_Stream(self))

    def fingerprint(self) -> str:
        """What tells any process, on any machine, that this is the file that was counted.

        Not the time at which it was written: each machine may have its own copy.

        Raises:
            DataError: It cannot be read.
        """
        return f"{self.version.size}-{self.version.tag}"

    def line_number(self, offset: int) -> int:
        """The 1-based number of the line that holds byte `offset`; reads all before it."""
        lines, position, last = 1, 0, b""
        while position < offset:
            block = self.read_at(position, min(_COUNT_BLOCK_BYTES, offset - position))
            if not block:
                break
            lines += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
            lines -= last == b"\r" and block[:1] == b"\n"
            last = block[-1:]
            position += len(block)
        return lines

    def _truncated(self, offset: int, size_bytes: int, end: int) -> DataError:
        return DataError(
            f"{self.name} ends at byte {end}, but bytes [{offset}, {offset + size_bytes}) were "
            "there when the job began: it was truncated; restore the file and start the job again"
        )


class LocalFile(SourceFile):
    """A file of this machine; the handle closes when nobody refers to it any more."""

    def __init__(self, name: str) -> None:
        self._fd = -1
        self._if_at_hand: int = getattr(os, "RWF_NOWAIT", 0)
        self._asked: set[int] = set()
        try:
            # O_NONBLOCK: opening a named pipe would otherwise wait for a writer forever.
            self._fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            found = os.fstat(self._fd)
        except OSError as error:
            raise unreadable(name, error) from error
        if not stat.S_ISREG(found.st_mode):
            raise DataError(
                f"{name} is not a regular file: name a file, a folder or a glob of files"
            )
        super().__init__(name, _version(found))

    def fingerprint(self) -> str:
        ends = (0, max(0, self.size - _SAMPLE_BYTES))
        sample = b"".join(self.read_at(offset, _SAMPLE_BYTES) for offset in ends)
        return f"{self.size}-{crc32c(sample):08x}"

    # Closed by reference count and not by the cache: a prefetch thread may be reading through a
    # handle that the cache drops, and a closed number is soon given to another file.
    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read_rows(self, buffer: memoryview, offsets: Iterable[tuple[int, int]], size: int) -> None:
        # Without a call for each, which costs a fifth of reading one of some kilobytes.
        preadv, descriptor = os.preadv, self._fd
        for place, offset in offsets:
            row = buffer[place : place + size]
            if not self._if_at_hand:
                self._ask_once(offset, size)
            try:
                count = preadv(descriptor, [row], offset, self._if_at_hand)
            except BlockingIOError:
                self._ask_around(offset, size)
                count = 0
            except OSError as error:
                if error.errno not in _NO_FLAGS:
                    raise unreadable(self.name, error) from error
                self._if_at_hand = count = 0
            if count < size:
                self.read_into(row, offset)

    def _ask_once(self, offset: int, size: int) -> None:
        """Ask for what may be there already: this file system does not tell."""
        around = offset // _AROUND_BYTES
        if around not in self._asked:
            if len(self._asked) >= _MAX_ASKED:
                self._asked.clear()
            self._asked.add(around)
            self._ask_around(offset, size)

    def _ask_around(self, offset: int, size: int) -> None:
        """Have the system read what lies around a row: its neighbours are wanted soon."""
        begin = offset - offset % _AROUND_BYTES
        end = max(begin + _AROUND_BYTES, offset + size)
        # Advice alone, which not every system takes, or has.
        with suppress(OSError, AttributeError):
            os.posix_fadvise(self._fd, begin, end - begin, os.POSIX_FADV_WILLNEED)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._fd, [buffer[done:]], offset + done)
            except OSError as error:
                raise unreadable(self.name, error) from error
            if count == 0:
                raise self._truncated(offset, len(buffer), os.fstat(self._fd).st_size)
            done += count

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        size_bytes = max(0, min(size_bytes, self.size - offset))
        try:
            data = os.pread(self._fd, size_bytes, offset)
        except OSError as error:
            raise unreadable(self.name, error) from error
        if len(data) == size_bytes:
            return data
        rest = bytearray(size_bytes - len(data))
        self.read_into(memoryview(rest), offset + len(data))
        return data + bytes(rest)


class _Stream(io.RawIOBase):
    """A position in a file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read_at(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        if begin + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = begin + offset
        return self._position


class OpenFiles:
    """The files of one reader: the last used stay open, and each must stay as it was first seen.

    Safe to use from several threads; the lock guards memory only.
    """

    def __init__(
        self,
        open_file: Callable[[str], SourceFile] = LocalFile,
        look: "Callable[[str], Version] | None" = None,
        capacity: int = MAX_OPEN_FILES,
    ) -> None:
        """Store how files are opened.

        Args:
            open_file: Opens one.
            look: Tells how one is now, without opening it.
            capacity: Files that stay open.
        """
        self._open_file = open_file
        self._look = look or look_local
        self._capacity = capacity
        self._lock = threading.Lock()
        self._open: OrderedDict[str, SourceFile] = OrderedDict()
        self._seen: dict[str, Version] = {}
        self._expected: dict[str, str] = {}

    def expect(self, name: str, fingerprint: str) -> None:
        """Say what a file must be like when it is first opened; does no I/O."""
        self._expected[name] = fingerprint

    def get(self, name: str) -> SourceFile:
        """Open a file, or hand out its open handle.

        Raises:
            DataError: It cannot be opened, is not as expected, or has changed since this reader
                first opened it.
        """
        found = self._look(name)
        with self._lock:
            file = self._open.get(name)
            if file is not None:
                self._open.move_to_end(name)
        if file is None:
            file = self._add(self._open_file(name))
        self._check(name, found)
        return file

    def _add(self, file: SourceFile) -> SourceFile:
        expected = self._expected.get(file.name)
        if expected is not None and file.name not in self._seen and file.fingerprint() != expected:
            raise _other_file(file, expected)
        with self._lock:
            self._seen.setdefault(file.name, file.version)
            file = self._open.setdefault(file.name, file)
            if len(self._open) > self._capacity:
                self._open.popitem(last=False)
        return file

    def _check(self, name: str, found: Version) -> None:
        first = self._seen[name]
        if found == first:
            return
        change = (
            "was written to"
            if found.size == first.size
            else f"went from {first.size} to {found.size} bytes"
        )
        raise DataError(
            f"{name} {change} while the job reads it, so its records are no longer the ones that "
            "were counted: leave data alone while a job runs, and start the job again"
        )


def _other_file(file: SourceFile, expected: str) -> DataError:
    counted = expected.partition("-")[0]
    how = "other contents" if counted == str(file.size) else f"{file.size} bytes and not {counted}"
    return DataError(
        f"{file.name} is not the file whose records were counted, it has {how}: leave data alone "
        "while a job runs, give all its machines the same, and start the job again"
    )


def look_local(name: str) -> Version:
    """How a file of this machine is now.

    Raises:
        DataError: It is not there.
    """
    try:
        return _version(Path(name).stat())
    except OSError as error:
        raise unreadable(name, error) from error


def _version(found: os.stat_result) -> Version:
    return Version(found.st_size, found.st_mtime_ns)


def unreadable(name: str, error: OSError) -> DataError:
    """Say that the system refused to open or read a file."""
    if isinstance(error, FileNotFoundError):
        hint = "check the path, and where it is a link, that its target exists"
    elif isinstance(error, PermissionError):
        hint = "let the user that runs the job read it"
    else:
        hint = "check the file and its disk"
    return DataError(f"{name} cannot be read ({error.strerror or error}): {hint}")
