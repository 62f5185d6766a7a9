"""Open files of a reader: few handles, reads by position, and a watch for files that change.

Reads go through `pread` and not through `mmap`: a file that is truncated under a memory map kills
the process with SIGBUS, where `pread` comes back short and becomes a `DataError`.
"""

import os
import stat
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from elastic.errors import DataError

MAX_OPEN_FILES: Final = 32
"""Per reader and process; well below the usual limit of 1024, enough for any order of tasks."""

_COUNT_BLOCK_BYTES: Final = 1 << 20


class SourceFile:
    """One file open for reading; the handle closes when nobody refers to it any more.

    Attributes:
        name: The path as the user wrote it.
        size: Bytes, when it was opened.
        mtime_ns: Time of the last change, when it was opened.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._fd = -1
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
        self.size = found.st_size
        self.mtime_ns = found.st_mtime_ns

    # Closed by reference count and not by the cache: a prefetch thread may be reading through a
    # handle that the cache drops, and a closed number is soon given to another file.
    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fill all of `buffer` from `offset` on.

        Raises:
            DataError: The file ends before, or cannot be read.
        """
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._fd, [buffer[done:]], offset + done)
            except OSError as error:
                raise unreadable(self.name, error) from error
            if count == 0:
                raise DataError(
                    f"{self.name} ends at byte {os.fstat(self._fd).st_size}, but bytes "
                    f"[{offset}, {offset + len(buffer)}) were there when the job began: it was "
                    "truncated; restore the file and start the job again"
                )
            done += count

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Read up to `size_bytes`, fewer only at the end of the file as it was opened."""
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


class OpenFiles:
    """The files of one reader: the last used stay open, and each must stay as it was first seen.

    Safe to use from several threads; the lock guards memory only.
    """

    def __init__(self, capacity: int = MAX_OPEN_FILES) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._open: OrderedDict[str, SourceFile] = OrderedDict()
        self._seen: dict[str, tuple[int, int]] = {}

    def get(self, name: str) -> SourceFile:
        """Open a file, or hand out its open handle.

        Raises:
            DataError: It cannot be opened, or has changed since this reader first opened it.
        """
        try:
            found = Path(name).stat()
        except OSError as error:
            raise unreadable(name, error) from error
        with self._lock:
            file = self._open.get(name)
            if file is not None:
                self._open.move_to_end(name)
        if file is None:
            file = self._add(SourceFile(name))
        self._check(name, found.st_size, found.st_mtime_ns)
        return file

    def _add(self, file: SourceFile) -> SourceFile:
        with self._lock:
            self._seen.setdefault(file.name, (file.size, file.mtime_ns))
            file = self._open.setdefault(file.name, file)
            if len(self._open) > self._capacity:
                self._open.popitem(last=False)
        return file

    def _check(self, name: str, size: int, mtime_ns: int) -> None:
        first_size, first_mtime_ns = self._seen[name]
        if (size, mtime_ns) == (first_size, first_mtime_ns):
            return
        change = (
            "was written to" if size == first_size else f"went from {first_size} to {size} bytes"
        )
        raise DataError(
            f"{name} {change} while the job reads it, so its records are no longer the ones that "
            "were counted: leave data alone while a job runs, and start the job again"
        )


def unreadable(name: str, error: OSError) -> DataError:
    """Say that the system refused to open or read a file."""
    if isinstance(error, FileNotFoundError):
        hint = "check the path, and where it is a link, that its target exists"
    elif isinstance(error, PermissionError):
        hint = "let the user that runs the job read it"
    else:
        hint = "check the file and its disk"
    return DataError(f"{name} cannot be read ({error.strerror or error}): {hint}")
