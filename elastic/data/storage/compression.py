"""Compressed files: which compressions there are, and their content from any position on.

Compressed bytes have no positions. Reading on decompresses on; reading back begins at the last
point that can be restored. Gzip can be restored every few MiB, once they were passed; the others
only where a new stream begins, as parallel compressors and `cat` make them.
"""

import bz2
import lzma
import re
import threading
import zlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from elastic.data.base import Extra
from elastic.data.storage.files import SourceFile
from elastic.errors import DataError

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
