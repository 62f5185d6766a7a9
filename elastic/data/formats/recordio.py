"""RecordIO files of ElasticDL and PaddlePaddle: chunks of records that may be compressed.

A chunk has a header of five little-endian uint32 and its data: records, each one as its length
(uint32) and its bytes. Two writers agree on the first number only; the checksum tells them apart:

- `pyrecordio` (in Go): magic, CRC-32, compressor (0 none, 1 snappy, 2 gzip), bytes, records.
- `recordio` (in Python): magic, records, CRC-32C, compressor (1 none, 2 snappy, 3 gzip), bytes.
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import cramjam
import numpy as np
from crc32c import crc32c

from elastic.data.base import Chunks, RawRecords, ReadTask
from elastic.data.formats.scan import SHARD_BYTES
from elastic.data.picking import scanned_chunks
from elastic.data.storage import OpenFiles, SourceFile
from elastic.errors import DataError
from elastic.policy.tasks.records import Shard

_HEADER: Final = struct.Struct("<5I")
_LENGTH: Final = struct.Struct("<I")
_MAGIC: Final = 0x01020304
_MXNET_MAGIC: Final = 0xCED7230A


@dataclass(frozen=True, slots=True)
class Layout:
    """How one writer lays out the header; numbers are places in it.

    Attributes:
        checksum: Of the data as stored.
        first_compressor: The number that stands for no compression; snappy and gzip follow.
        crc: What the checksum is.
    """

    num_records: int
    checksum: int
    compressor: int
    size: int
    first_compressor: int
    crc: Callable[[bytes], int]


LAYOUTS: Final = (
    Layout(4, 1, 2, 3, 0, zlib.crc32),
    Layout(1, 2, 3, 4, 1, crc32c),
)

_SNAPPY_STREAM: Final = b"\xff\x06\x00\x00sNaPpY"


def from_snappy(data: bytes) -> bytes:
    """The content of a block of Snappy, as Python's writer makes it, or of Go's framed blocks.

    Raises:
        ValueError: The data is damaged.
    """
    is_stream = data.startswith(_SNAPPY_STREAM)
    try:
        return bytes(
            (cramjam.snappy.decompress if is_stream else cramjam.snappy.decompress_raw)(data)
        )
    except cramjam.DecompressionError as error:
        raise ValueError(error) from error


_DECOMPRESS: Final[tuple[Callable[[bytes], bytes], ...]] = (bytes, from_snappy, gzip.decompress)
_DAMAGED: Final = (ValueError, zlib.error, EOFError, gzip.BadGzipFile, struct.error)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where a chunk lies, and what its header says."""

    offset: int
    num_records: int
    compressor: int
    checksum: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + _HEADER.size + self.size


class RecordIOReader:
    """Records as `bytes`; a shard begins where a chunk does."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files
        self._layouts: dict[str, Layout] = {}

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        return self._cut(names, records_per_task, SHARD_BYTES)

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        return scanned_chunks(self._files, names, lambda size: self._cut(names, 1, size))

    def _cut(self, names: Sequence[str], records_per_task: int, size_bytes: int) -> list[Shard]:
        return [
            shard
            for name in names
            for shard in self._cut_shards(self._files.get(name), records_per_task, size_bytes)
        ]

    def read_records(self, task: ReadTask) -> Iterator[bytes]:
        file = self._files.get(task.shard.name)
        if task.shard.offset_bytes is None:
            raise DataError(f"{file.name}: the shard does not say at which byte it begins")
        first = task.shard.start
        for chunk in self._chunks(file, task.shard.offset_bytes):
            end = first + chunk.num_records
            if end > task.start:
                records = _read_chunk(file, chunk, self._layout_of(file), first)
                yield from records[max(0, task.start - first) : task.end - first]
            first = end
            if first >= task.end:
                return
        raise DataError(
            f"{file.name} ends after record {first}, but the task wants records "
            f"[{task.start}, {task.end}): the file is not the one that was counted; restore it "
            "and start the job again"
        )

    def read_raw(self, task: ReadTask) -> RawRecords:
        records = list(self.read_records(task))
        ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
        return RawRecords(b"".join(records), np.concatenate(([0], ends[:-1])), ends)

    def decode_raw(self, name: str, records: list[bytes]) -> list[bytes]:  # noqa: ARG002 (chunks are checked whole)
        return records

    def _cut_shards(self, file: SourceFile, records_per_task: int, shard_bytes: int) -> list[Shard]:
        """Runs of whole chunks: at least a task, and at least `shard_bytes`."""
        shards: list[Shard] = []
        start, start_offset, count = 0, 0, 0
        for chunk in self._chunks(file, 0):
            is_full = chunk.offset >= start_offset + shard_bytes
            if is_full and count - start >= records_per_task:
                shards.append(Shard(file.name, start, count, start_offset))
                start, start_offset = count, chunk.offset
            count += chunk.num_records
        if count > start:
            shards.append(Shard(file.name, start, count, start_offset))
        return shards

    def _chunks(self, file: SourceFile, offset: int) -> Iterator[Chunk]:
        """The headers of the chunks from `offset` on, without their data."""
        layout = self._layout_of(file)
        while True:
            head = file.read_at(offset, _HEADER.size)
            if not head:
                return
            if len(head) < _HEADER.size:
                raise _truncated(file, offset)
            numbers = _HEADER.unpack(head)
            if numbers[0] != _MAGIC:
                raise DataError(
                    f"{file.name} is damaged: no chunk of RecordIO begins at byte {offset}: write "
                    "it again"
                )
            chunk = _chunk(offset, numbers, layout)
            if len(file.read_at(chunk.end - 1, 1)) < 1:
                raise _truncated(file, offset)
            yield chunk
            offset = chunk.end

    def _layout_of(self, file: SourceFile) -> Layout:
        layout = self._layouts.get(file.name)
        if layout is None:
            layout = self._layouts[file.name] = _find_layout(file)
        return layout


def _find_layout(file: SourceFile) -> Layout:
    head = file.read_at(0, _HEADER.size)
    if len(head) < _HEADER.size:
        raise _truncated(file, 0)
    numbers = _HEADER.unpack(head)
    if numbers[0] == _MXNET_MAGIC:
        raise DataError(
            f"{file.name} is RecordIO of MXNet, which is another format: convert it to TFRecord, "
            "or read it with a custom_data_reader"
        )
    if numbers[0] != _MAGIC:
        raise DataError(
            f"{file.name} does not begin as a RecordIO file: it is damaged or of another format; "
            "name the format with --data_reader_params format=..."
        )
    for layout in LAYOUTS:
        chunk = _chunk(0, numbers, layout)
        if chunk.end <= file.size:
            data = file.read_at(_HEADER.size, chunk.size)
            if layout.crc(data) == chunk.checksum:
                return layout
    raise DataError(
        f"{file.name}: the first chunk of RecordIO matches no checksum: the file is damaged or "
        "truncated; write it again"
    )


def _chunk(offset: int, numbers: Sequence[int], layout: Layout) -> Chunk:
    return Chunk(
        offset,
        numbers[layout.num_records],
        numbers[layout.compressor] - layout.first_compressor,
        numbers[layout.checksum],
        numbers[layout.size],
    )


def _read_chunk(file: SourceFile, chunk: Chunk, layout: Layout, first: int) -> list[bytes]:
    """All records of a chunk, of which `first` is the index of the first."""
    where = f"{file.name}, chunk at byte {chunk.offset} (record {first} on)"
    stored = file.read_at(chunk.offset + _HEADER.size, chunk.size)
    if layout.crc(stored) != chunk.checksum:
        raise DataError(f"{where}: its bytes do not match their checksum: write the file again")
    if not 0 <= chunk.compressor < len(_DECOMPRESS):
        raise DataError(
            f"{where}: its compressor {chunk.compressor + layout.first_compressor} is unknown: "
            "write the file without compression, with snappy or with gzip"
        )
    try:
        data = _DECOMPRESS[chunk.compressor](stored)
        records = list(_split(data, chunk.num_records))
    except _DAMAGED as error:
        raise DataError(f"{where} is damaged ({error}): write the file again") from error
    return records


def _split(data: bytes, num_records: int) -> Iterator[bytes]:
    position = 0
    for _ in range(num_records):
        (length,) = _LENGTH.unpack_from(data, position)
        begin, position = position + _LENGTH.size, position + _LENGTH.size + length
        if position > len(data):
            raise ValueError("a record goes beyond the end of its chunk")
        yield data[begin:position]
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow its last record")


def _truncated(file: SourceFile, offset: int) -> DataError:
    return DataError(
        f"{file.name} ends amid the chunk of RecordIO at byte {offset}: it is truncated; write it "
        "again, and restore it if it was longer when the job began"
    )
