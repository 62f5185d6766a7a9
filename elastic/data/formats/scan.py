"""Finding records in a file of text: shards for the master, ranges for the workers.

A format says where records end in a block of bytes (`RecordEnds`); the rest is the same for all:
blocks always begin where a record begins, so a format never carries state from block to block.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import RawRecords, ReadTask
from elastic.data.storage import SourceFile
from elastic.errors import DataError
from elastic.policy.tasks.records import Shard

Positions: TypeAlias = NDArray[np.intp]
Marks: TypeAlias = NDArray[np.bool_]

RecordEnds: TypeAlias = Callable[[bytes, bool], Marks]
"""Marks the last byte of each record of a block.

Takes a block that begins at a record and whether it reaches the end of the file; only then is
a last record without line end one. Bytes after the last mark are seen again with what follows.
Marks and not positions: counting marks is several times as fast, and most blocks are only counted.
"""

SHARD_BYTES: Final = 1 << 20
"""A task skips at most what its shard holds: about 1 ms. Shards of this size stay few: 10⁴ for
10 GB, also where a task is 20 bytes."""

SCAN_BLOCK_BYTES: Final = 1 << 17
"""With what is computed from it, fits the second-level cache; 32 KiB and 512 KiB take twice as
long to scan."""

READ_BLOCK_BYTES: Final = 1 << 16
"""What a task may read beyond its last record."""

CHUNK_BLOCK_BYTES: Final = READ_BLOCK_BYTES * 9 // 8
"""Most chunks of shuffled records are read by one of these."""

MAX_READ_BYTES: Final = 3 << 15
"""Read at a time for a task that is larger: memory from 128 KiB on is mapped anew each time."""

MAX_RECORD_BYTES: Final = 64 << 20
"""Keeps a quote that never closes from pulling a whole file into memory; to look for the end of a
record takes some five times as much."""

MAX_BOOKMARKS: Final = 1 << 15
"""Of a file: 2 GB of text and its tasks; a longer one has them further apart."""

UTF8_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records and perhaps a rest: bytes of a file from `offset` on, with their marks.

    `end` is where the rest begins.
    """

    offset: int
    data: bytes
    marks: Marks
    end: int
    count: int

    def ends(self) -> Positions:
        """Where each record ends in `data`, exclusive."""
        return np.flatnonzero(self.marks) + 1


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive records of one task.

    Attributes:
        first: Index of the first record, in the source.
        offset: Where `data` begins in the file.
        data: The records' bytes, line ends included.
        marks: The last byte of each record.
        count: Records.
    """

    first: int
    offset: int
    data: bytes
    marks: Marks
    count: int

    def ends(self) -> Positions:
        """Where each record ends in `data`, exclusive; only who needs them pays for them."""
        return np.flatnonzero(self.marks) + 1


def text_start(file: SourceFile) -> int:
    """The offset of the first character: 3 after a UTF-8 byte order mark, else 0."""
    return len(UTF8_BOM) if file.read_at(0, len(UTF8_BOM)) == UTF8_BOM else 0


def split_blocks(
    file: SourceFile,
    offset: int,
    record_ends: RecordEnds,
    block_bytes: int,
    num_records: int | None = None,
) -> Iterator[Block]:
    """Read from a record's begin to the end of the file in blocks of whole records.

    Args:
        file: The source.
        offset: Where a record begins.
        record_ends: The format.
        block_bytes: Read at a time, at first.
        num_records: How many are wanted, where that is known: blocks then have the size that these
            seem to need, which spares both many small blocks and reading far beyond them.

    Raises:
        DataError: A record never ends, or the file is shorter than it was.
    """
    begin, seen = offset, 0
    data, wanted = b"", block_bytes
    while True:
        read = file.read_at(offset + len(data), wanted)
        # Nobody knows where a compressed file ends before it does.
        at_eof = len(read) < wanted
        data += read
        marks = record_ends(data, at_eof)
        end = _last_end(marks)
        if end:
            block = Block(offset, data, marks, end, int(np.count_nonzero(marks)))
            yield block
            seen += block.count
            offset += end
            data, wanted = data[end:], block_bytes
            if num_records is not None and seen < num_records:
                needed = (num_records - seen) * (offset - begin) // seen - len(data)
                wanted = read_size(needed, block_bytes)
        if at_eof:
            break
        if len(data) > MAX_RECORD_BYTES:
            raise _too_long(file, offset)
        # Doubling keeps the work linear for a record that is larger than a block.
        wanted = min(max(wanted, len(data)), MAX_RECORD_BYTES + 1 - len(data))
    rest = data.lstrip(b"\r\n")
    if rest:
        raise _never_closed(file, offset + len(data) - len(rest))


def _too_long(file: SourceFile, offset: int) -> DataError:
    return DataError(
        f"{file.name}, line {file.line_number(offset)}: the record is longer than "
        f"{MAX_RECORD_BYTES >> 20} MiB: look for a quote that is never closed"
    )


def _never_closed(file: SourceFile, offset: int) -> DataError:
    return DataError(
        f"{file.name}, line {file.line_number(offset)}: the record has a quote that is never "
        "closed: close it, or write a quote inside a quoted field twice"
    )


def read_size(needed_bytes: int, block_bytes: int) -> int:
    """How much to read for records that seem to need so much: a little more, within bounds."""
    return min(max(needed_bytes * 17 // 16, block_bytes // 8, 1), MAX_READ_BYTES)


def cut_shards(
    file: SourceFile,
    offset: int,
    record_ends: RecordEnds,
    records_per_task: int,
    shard_bytes: int = SHARD_BYTES,
) -> list[Shard]:
    """Scan a file once and cut it into shards of whole tasks and of a size.

    Args:
        file: The source.
        offset: Where its first record begins.
        record_ends: The format.
        records_per_task: Every shard but the last holds a multiple of it.
        shard_bytes: Of each shard but the last, at least.
    """
    shards: list[Shard] = []
    start, start_offset, count = 0, offset, 0
    for block in split_blocks(file, offset, record_ends, SCAN_BLOCK_BYTES):
        while block.offset + len(block.data) >= start_offset + shard_bytes:
            ends = block.ends()
            reached = np.searchsorted(ends, start_offset + shard_bytes - block.offset)
            end = -(-(count + int(reached) + 1) // records_per_task) * records_per_task
            if end - count > block.count:
                break
            shards.append(Shard(file.name, start, end, start_offset))
            start, start_offset = end, block.offset + int(ends[end - count - 1])
        count += block.count
    if count > start:
        shards.append(Shard(file.name, start, count, start_offset))
    return shards


class Bookmarks:
    """Where records begin, as far as a reader has come by; saves it from looking for them again.

    Safe to use from several threads: the lock guards memory only.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, list[tuple[int, int]]] = {}

    def before(self, name: str, record: int) -> tuple[int, int] | None:
        """The last known record at or before one, and the byte at which it begins."""
        with self._lock:
            places = self._places.get(name, ())
            found = bisect_right(places, record, key=lambda place: place[0])
            return places[found - 1] if found else None

    def add(self, name: str, record: int, offset: int) -> None:
        """Remember a place that is well beyond the one before."""
        with self._lock:
            places = self._places.setdefault(name, [])
            found = bisect_right(places, record, key=lambda place: place[0])
            if not found or offset >= places[found - 1][1] + READ_BLOCK_BYTES // 16:
                places.insert(found, (record, offset))
                if len(places) > MAX_BOOKMARKS:
                    del places[1::2]


def read_pieces(
    file: SourceFile,
    task: ReadTask,
    offset: int,
    record_ends: RecordEnds,
    bookmarks: Bookmarks,
    block_bytes: int = READ_BLOCK_BYTES,
) -> Iterator[Piece]:
    """Read exactly the records of a task, given where its shard begins.

    Args:
        file: The source.
        task: Whose records are wanted.
        offset: Where its shard begins.
        record_ends: The format.
        bookmarks: Of this reader.
        block_bytes: Read at a time, at first.

    Raises:
        DataError: The shard does not begin at a record, or ends before the task does.
    """
    position, offset = last_known(file, task, offset, bookmarks)
    end = offset
    num_records = task.end - position
    for block in split_blocks(file, offset, record_ends, block_bytes, num_records):
        bookmarks.add(file.name, position, block.offset)
        low = max(task.start - position, 0)
        high = min(task.end - position, block.count)
        if low < high:
            piece = _piece(block, position, low, high)
            if position + high == task.end:
                bookmarks.add(file.name, task.end, piece.offset + len(piece.data))
            yield piece
        position += block.count
        end = block.offset + len(block.data)
        if position >= task.end:
            return
    raise ended_early(file, task, position, end)


def read_raw_text(
    file: SourceFile,
    task: ReadTask,
    record_ends: RecordEnds,
    bookmarks: Bookmarks,
    encoding: str,
    *,
    with_ends: bool,
) -> RawRecords:
    """All records of a shard as text.

    Args:
        file: The source.
        task: All of a shard.
        record_ends: The format.
        bookmarks: Of this reader.
        encoding: Of the file.
        with_ends: Whether a record has the end of its line.

    Raises:
        DataError: They cannot be read, or a byte is no text in this encoding.
    """
    assert task.shard.offset_bytes is not None, "chunks of text say where they begin"
    offset = task.shard.offset_bytes
    found = list(read_pieces(file, task, offset, record_ends, bookmarks, CHUNK_BLOCK_BYTES))
    data = b"".join(piece.data for piece in found)
    ends = np.flatnonzero(np.concatenate([piece.marks for piece in found])) + 1
    begins = np.concatenate(([0], ends[:-1]))
    if not with_ends:
        ends = _without_ends(data, ends)
    try:
        text = data.decode(encoding)
        if len(text) != len(data):
            bounds = zip(begins.tolist(), ends.tolist(), strict=True)
            records = [data[begin:end].decode(encoding) for begin, end in bounds]
            ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
            begins, text = np.concatenate(([0], ends[:-1])), "".join(records)
    except UnicodeDecodeError as error:
        raise DataError(f"a record of {len(ends)} is no {encoding}") from error
    return RawRecords(text, begins, ends)


def _without_ends(data: bytes, ends: Positions) -> Positions:
    """Where the lines end that end at `ends` with their `\\n` or `\\r\\n`, if they have one."""
    codes = np.frombuffer(data, np.uint8)
    ends = ends - (codes[ends - 1] == ord("\n"))
    return ends - ((codes[ends - 1] == ord("\r")) & (ends > 0)) if b"\r" in data else ends


def last_known(
    file: SourceFile, task: ReadTask, offset: int, bookmarks: Bookmarks
) -> tuple[int, int]:
    """The last record at or before a task's first one whose place is known, and its first byte.

    Args:
        file: The source.
        task: Whose records are wanted.
        offset: Where its shard begins.
        bookmarks: Of this reader.

    Raises:
        DataError: The shard does not begin at a record.
    """
    _check_boundary(file, task.shard, offset)
    place = bookmarks.before(file.name, task.start)
    return (
        place if place is not None and place[0] > task.shard.start else (task.shard.start, offset)
    )


def find_first(
    file: SourceFile, task: ReadTask, offset: int, record_ends: RecordEnds, bookmarks: Bookmarks
) -> int:
    """The byte at which the first record of a task begins; arguments are those of `read_pieces`.

    Raises:
        DataError: The shard does not begin at a record, or ends before the task begins.
    """
    position, offset = last_known(file, task, offset, bookmarks)
    num_records = task.start - position
    if not num_records:
        return offset
    for block in split_blocks(file, offset, record_ends, READ_BLOCK_BYTES, num_records):
        bookmarks.add(file.name, position, block.offset)
        if position + block.count >= task.start:
            return block.offset + int(block.ends()[task.start - position - 1])
        position += block.count
        offset = block.offset + len(block.data)
    raise ended_early(file, task, position, offset)


def ended_early(file: SourceFile, task: ReadTask, num_records: int, end: int) -> DataError:
    """Say that a file ends, at byte `end`, before a task does."""
    return DataError(
        f"{file.name} ends after record {num_records}, at byte {end}, but a task goes on "
        f"to record {task.end}: the file is not the one that was counted; restore it and start the "
        "job again"
    )


def _piece(block: Block, position: int, low: int, high: int) -> Piece:
    """Records `[low, high)` of a block whose first one has the index `position`."""
    ends = block.ends() if low or high < block.count else None
    begin = int(ends[low - 1]) if ends is not None and low else 0
    end = block.end if ends is None else int(ends[high - 1])
    data = block.data[begin:end]
    return Piece(position + low, block.offset + begin, data, block.marks[begin:end], high - low)


def decode_piece(file: SourceFile, piece: Piece, encoding: str) -> Iterator[tuple[Piece, str]]:
    """Decode the records of a piece; those before an invalid byte come first.

    Raises:
        DataError: A byte is no text in this encoding.
    """
    try:
        text = piece.data.decode(encoding)
    except UnicodeDecodeError as error:
        ends = piece.ends()
        bad = int(np.searchsorted(ends, error.start, side="right"))
        if bad:
            end = int(ends[bad - 1])
            whole = Piece(piece.first, piece.offset, piece.data[:end], piece.marks[:end], bad)
            yield whole, whole.data.decode(encoding)
        at = piece.offset + error.start
        raise DataError(
            f"{file.name}, line {file.line_number(at)} (record {piece.first + bad}): byte "
            f"0x{piece.data[error.start]:02x} at offset {at} is not {encoding}: mend the file, or "
            "name its encoding with --data_reader_params encoding=..."
        ) from error
    yield piece, text


def _last_end(marks: Marks) -> int:
    """The end of the last record of a block, 0 where none ends."""
    for size in (4096, len(marks)):
        begin = max(0, len(marks) - size)
        found = marks[begin:].tobytes().rfind(1)
        if found >= 0:
            return begin + found + 1
    return 0


def _check_boundary(file: SourceFile, shard: Shard, offset: int) -> None:
    if offset in (0, text_start(file)) or file.read_at(offset - 1, 1) in (b"\n", b"\r"):
        return
    raise DataError(
        f"{file.name}: no record begins at byte {offset}, where record {shard.start} was found: "
        "the file is not the one that was counted; restore it and start the job again"
    )
