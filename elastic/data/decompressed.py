"""The content of a compressed file from any position on.

Compressed bytes have no positions. Reading on decompresses on; reading back begins at the last
point that can be restored. Gzip can be restored every few MiB, once they were passed; the others
only where a new stream begins, as parallel compressors and `cat` make them.
"""

import threading
import zlib
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Final

from elastic.data.codecs import CODECS, Codec, Decompressor, codec_of
from elastic.data.extras import check_extra
from elastic.data.files import SourceFile
from elastic.data.tfrecord import is_record_head
from elastic.errors import DataError
from elastic.spec.origins import file_name

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

_PROBE_BYTES: Final = 256


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


def as_content(file: SourceFile, choice: str | None) -> SourceFile:
    """The file itself, or its content where it is compressed.

    Args:
        file: As stored.
        choice: Name of a codec, `none`, or None to look at the file.

    Raises:
        DataError: A package is missing, or suffix and content contradict each other.
    """
    if choice == "none":
        return file
    codec = CODECS[choice] if choice else _find_codec(file)
    if codec is None:
        return file
    if codec.extra is not None:
        check_extra(codec.extra, f"files like {file.name}")
    return DecompressedFile(file, codec)


def _find_codec(file: SourceFile) -> Codec | None:
    head = file.read_at(0, _PROBE_BYTES)
    # The length of a first TFRecord may look like the begin of anything.
    if is_record_head(head):
        return None
    for codec in CODECS.values():
        if codec.magic is not None and codec.magic.match(head):
            return codec
    named = codec_of(file_name(file.name))
    if named is not None and head:
        raise DataError(
            f"{file.name} does not begin as {named.name} data: it is damaged or not compressed; "
            "mend or rename it, or say --data_reader_params compression=none"
        )
    return CODECS["zlib"] if _is_zlib_of_records(head) else None


def _is_zlib_of_records(head: bytes) -> bool:
    """Two bytes of zlib's begin may be text, but none that holds a TFRecord."""
    try:
        return is_record_head(zlib.decompressobj().decompress(head))
    except zlib.error:
        return False
