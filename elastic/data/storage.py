"""Bytes of files, wherever they are: opened once, read by position, watched for changes.

Belongs here: what a file is to all formats, and the content of compressed ones.
Does not belong here: files far away (`remote`), what the bytes mean (`formats`), and which files a
user means (`sources`).
"""

import bz2
import errno
import io
import lzma
import os
import re
import stat
import threading
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from crc32c import crc32c

from elastic.data.base import Extra
from elastic.errors import DataError

# Open files of a reader: few handles, reads by position, and a watch for files that change.
#
# Reads go through `pread` and not through `mmap`: a file that is truncated under a memory map kills
# the process with SIGBUS, where `pread` comes back short and becomes a `DataError`.


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


# Compressed files: which compressions there are, and their content from any position on.
#
# Compressed bytes have no positions. Reading on decompresses on; reading back begins at the last
# point that can be restored. Gzip can be restored every few MiB, once they were passed; the others
# only where a new stream begins, as parallel compressors and `cat` make them.


_READ_BYTES: Final = 1 << 16
"""Compressed bytes taken at a time; they may hold a thousand times as much."""

HEAD_BYTES: Final = 1 << 16
"""Content that stays in memory: every task of a file looks at its begin."""

POINT_BYTES: Final = 4 << 20
"""Content between two points of gzip; each has about 50 KiB."""

MAX_POINTS: Final = 256
"""Points of a file; when there are more, every second one is given up."""

WINDOW_BYTES: Final = 4 << 20
"""Content behind the position that stays readable, for records that are read again, as by the next
task of a window of `picking`."""


class Decompressor(Protocol):
    """What decompresses one stream, as `bz2.BZ2Decompressor` does."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def unused_data(self) -> bytes:
        """What followed the stream in the bytes given so far."""

    def decompress(self, data: bytes, /) -> bytes:
        """The content that these further bytes hold."""


@dataclass(frozen=True, slots=True)
class Codec:
    """One compression.

    Attributes:
        name: As in `--data_reader_params compression=NAME`.
        start: Makes what decompresses a stream.
        errors: What that raises for bytes which are no such stream.
        suffixes: Of files that are compressed so, lower case.
        magic: How such a file begins; None where that could be a text.
        extra: What it needs that may be missing.
    """

    name: str
    start: Callable[[], Decompressor]
    errors: Callable[[], tuple[type[Exception], ...]]
    suffixes: tuple[str, ...] = ()
    magic: re.Pattern[bytes] | None = None
    extra: Extra | None = None


def _zstd() -> Decompressor:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _zstd_errors() -> tuple[type[Exception], ...]:
    import zstandard

    return (zstandard.ZstdError,)


_ALL: Final = (
    Codec(
        "gzip",
        lambda: zlib.decompressobj(31),
        lambda: (zlib.error,),
        (".gz", ".gzip"),
        re.compile(rb"\x1f\x8b\x08"),
    ),
    Codec("zlib", zlib.decompressobj, lambda: (zlib.error,)),
    Codec(
        "bz2",
        bz2.BZ2Decompressor,
        lambda: (OSError,),
        (".bz2",),
        re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    ),
    Codec(
        "xz",
        lzma.LZMADecompressor,
        lambda: (lzma.LZMAError,),
        (".xz",),
        re.compile(rb"\xfd7zXZ\0"),
    ),
    Codec(
        "zstd",
        _zstd,
        _zstd_errors,
        (".zst", ".zstd"),
        # A skippable frame may come first, as pzstd writes it.
        re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
        Extra("zstd", ("zstandard",)),
    ),
)

CODECS: Final = {codec.name: codec for codec in _ALL}

_PART: Final = re.compile(r"-\d+-of-\d+$")
"""How sharded writers end a name, as in `train.csv-00000-of-00010`."""

_BY_SUFFIX: Final = {suffix: codec for codec in _ALL for suffix in codec.suffixes}


def codec_of(name: str) -> Codec | None:
    """The compression that a file's last suffix stands for, the number of a part left aside."""
    return _BY_SUFFIX.get(_suffix(without_part(name)))


def without_codec(name: str) -> str:
    """A file's name as it was before the file was compressed."""
    if codec_of(name) is None:
        return name
    name = without_part(name)
    return name[: -len(_suffix(name))]


def without_part(name: str) -> str:
    """A file's name without the number of a part."""
    return _PART.sub("", name)


def _suffix(name: str) -> str:
    return name[name.rfind(".") :].lower() if "." in name else ""


@dataclass(frozen=True, slots=True)
class Point:
    """Where decompression can begin.

    Attributes:
        position: In the content.
        stored: In the compressed file.
        decompressor: As it was there, not to be used itself; None where a stream begins.
    """

    position: int
    stored: int
    decompressor: Any = None


class Points:
    """The points of one file found so far; the lock guards memory only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points = [Point(0, 0)]
        self._spacing = POINT_BYTES

    def before(self, position: int) -> Point:
        """The last point at or before a position."""
        with self._lock:
            place = bisect_right(self._points, position, key=lambda point: point.position)
            return self._points[place - 1]

    def wants(self, position: int) -> bool:
        """Whether a point here would save much."""
        return position >= self.before(position).position + self._spacing

    def add(self, point: Point) -> None:
        with self._lock:
            place = bisect_right(self._points, point.position, key=lambda one: one.position)
            self._points.insert(place, point)
            if len(self._points) > MAX_POINTS:
                del self._points[1::2]
                self._spacing *= 2


class Cursor:
    """Decompresses a file from a point on, and keeps the last of what it passed."""

    def __init__(self, file: SourceFile, codec: Codec, points: Points, point: Point) -> None:
        self._file = file
        self._codec = codec
        self._points = points
        copied = None if point.decompressor is None else point.decompressor.copy()
        self._decompressor: Decompressor | None = copied
        self._stored = point.stored
        self._pending = b""
        self._window = bytearray()
        self.position = point.position

    @property
    def window_begin(self) -> int:
        return self.position - len(self._window)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Content from `offset`, which is not before the window; fewer bytes only at its end."""
        while self.position < offset + size_bytes and self._step():
            excess = min(len(self._window) - WINDOW_BYTES, offset - self.window_begin)
            if excess > 0:
                del self._window[:excess]
        begin = offset - self.window_begin
        return bytes(self._window[begin : begin + size_bytes]) if begin >= 0 else b""

    def _step(self) -> bool:
        """Decompress some more; False at the end."""
        data = self._pending or self._file.read_at(self._stored, _READ_BYTES)
        if self._decompressor is None:
            # Streams may be padded with zeros, and none begins with one.
            begun = data.lstrip(b"\0")
            self._stored += len(data) - len(begun)
            self._pending = begun
            if not begun:
                return bool(data)
            self._begin_stream()
            data = begun
        elif not data:
            raise DataError(
                f"{self._file.name} ends at byte {self._stored} amid its {self._codec.name} data: "
                "it is truncated; write it again"
            )
        self._decompress(data)
        return True

    def _begin_stream(self) -> None:
        self._decompressor = self._codec.start()
        if self._points.wants(self.position):
            self._points.add(Point(self.position, self._stored))

    def _decompress(self, data: bytes) -> None:
        decompressor = self._decompressor
        assert decompressor is not None
        try:
            content = decompressor.decompress(data)
        except self._codec.errors() as error:
            raise DataError(
                f"{self._file.name} is damaged: its {self._codec.name} data cannot be decompressed "
                f"after byte {self._stored}, which is byte {self.position} of the content "
                f"({error}): write it again"
            ) from error
        self._pending = decompressor.unused_data if decompressor.eof else b""
        self._stored += len(data) - len(self._pending)
        self._window += content
        self.position += len(content)
        if decompressor.eof:
            self._decompressor = None
        elif hasattr(decompressor, "copy") and self._points.wants(self.position):
            self._points.add(Point(self.position, self._stored, decompressor.copy()))


class DecompressedFile(SourceFile):
    """A compressed file as its content; positions are those of the content.

    Attributes:
        size: Bytes of the compressed file: nobody knows the other number before the end.
    """

    is_forward = True

    def __init__(self, file: SourceFile, codec: Codec) -> None:
        super().__init__(file.name, file.version)
        self._file = file
        self._codec = codec
        self._points = Points()
        self._lock = threading.Lock()
        self._cursor: Cursor | None = None
        self._head: bytes | None = None

    def fingerprint(self) -> str:
        return self._file.fingerprint()

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        if self._head is None:
            self._head = self._read(0, HEAD_BYTES)
        if offset + size_bytes <= len(self._head):
            return self._head[offset : offset + size_bytes]
        return self._read(offset, size_bytes)

    def _read(self, offset: int, size_bytes: int) -> bytes:
        # Taken and not locked: another thread meanwhile goes its own way.
        with self._lock:
            cursor, self._cursor = self._cursor, None
        point = self._points.before(offset)
        if cursor is None or offset < cursor.window_begin or cursor.position < point.position:
            cursor = Cursor(self._file, self._codec, self._points, point)
        data = cursor.read(offset, size_bytes)
        with self._lock:
            self._cursor = cursor
        return data
