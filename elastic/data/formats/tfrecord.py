"""TFRecord files, read without TensorFlow: a record is the bytes that were written.

A record is its length (uint64), the masked CRC-32C of the length's bytes, the bytes, and their
masked CRC-32C, all little-endian. The format has no index, so the master goes once from length to
length; a shard then says at which byte it begins.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from crc32c import crc32c

from elastic.data.base import Chunks, RawRecords, ReadTask
from elastic.data.formats.scan import READ_BLOCK_BYTES, SHARD_BYTES
from elastic.data.picking import scanned_chunks
from elastic.data.storage import OpenFiles, SourceFile
from elastic.errors import DataError
from elastic.policy.tasks.records import Shard

_HEAD: Final = struct.Struct("<QI")
_CHECKSUM: Final = struct.Struct("<I")
_FRAME_BYTES: Final = _HEAD.size + _CHECKSUM.size
"""What a record has around its bytes."""

_MAX_READ_BYTES: Final = 1 << 20

_BIG_RECORD_BYTES: Final = 1 << 13
"""From here on, reading the next length alone is cheaper than reading all that lies between."""


class TFRecordReader:
    """Records as `bytes`; every length and every record that is read is checked."""

    def __init__(self, files: OpenFiles) -> None:
        self._files = files

    def create_shards(self, names: Sequence[str], records_per_task: int) -> list[Shard]:
        return self._cut(names, records_per_task, SHARD_BYTES)

    def create_chunks(self, names: Sequence[str]) -> Chunks:
        return scanned_chunks(self._files, names, lambda size: self._cut(names, 1, size))

    def _cut(self, names: Sequence[str], records_per_task: int, size_bytes: int) -> list[Shard]:
        return [
            shard
            for name in names
            for shard in _cut_shards(self._files.get(name), records_per_task, size_bytes)
        ]

    def read_records(self, task: ReadTask) -> Iterator[bytes]:
        file = self._files.get(task.shard.name)
        if task.shard.offset_bytes is None:
            raise DataError(f"{file.name}: the shard does not say at which byte it begins")
        offset = _skip(file, task.shard.offset_bytes, task.shard.start, task.start)
        block, base = b"", offset
        for index in range(task.start, task.end):
            begin = offset - base + _HEAD.size
            if begin > len(block):
                block, base, begin = file.read_at(offset, READ_BLOCK_BYTES), offset, _HEAD.size
            length = _checked_length(file, block, begin - _HEAD.size, offset, index)
            end = begin + length
            if end + _CHECKSUM.size > len(block):
                block = file.read_at(offset, max(READ_BLOCK_BYTES, length + _FRAME_BYTES))
                base, begin, end = offset, _HEAD.size, _HEAD.size + length
                if end + _CHECKSUM.size > len(block):
                    raise _truncated(file, index, offset)
            record = block[begin:end]
            if masked_crc32c(record) != _CHECKSUM.unpack_from(block, end)[0]:
                raise DataError(
                    f"{file.name}, record {index} at byte {offset}: its bytes do not match their "
                    "checksum, so the file is damaged: write it again"
                )
            yield record
            offset += length + _FRAME_BYTES

    def read_raw(self, task: ReadTask) -> RawRecords:
        """Records with the checksums that follow them, which are looked at as they are decoded."""
        file = self._files.get(task.shard.name)
        offset = task.shard.offset_bytes
        assert offset is not None, "as it was made by this reader"
        # Most chunks are read at once.
        data = file.read_at(offset, READ_BLOCK_BYTES * 9 // 8)
        at, begins, ends = 0, [], []
        for index in range(task.start, task.end):
            if at + _HEAD.size > len(data):
                data += file.read_at(offset + len(data), _rest_bytes(task, index, at))
            length = _checked_length(file, data, at, offset + at, index)
            end = at + length + _FRAME_BYTES
            if end > len(data):
                wanted = max(end - len(data), _rest_bytes(task, index, at))
                data += file.read_at(offset + len(data), wanted)
                if end > len(data):
                    raise _truncated(file, index, offset + at)
            begins.append(at + _HEAD.size)
            ends.append(end)
            at = end
        return RawRecords(data[:at], np.array(begins), np.array(ends))

    def decode_raw(self, name: str, records: list[bytes]) -> list[bytes]:
        found = [record[: -_CHECKSUM.size] for record in records]
        checksums = [record[-_CHECKSUM.size :] for record in records]
        if list(map(masked_crc32c, found)) != [
            *struct.unpack(f"<{len(found)}I", b"".join(checksums))
        ]:
            raise DataError(f"{name}: a record of many does not match its checksum")
        return found


def _rest_bytes(task: ReadTask, index: int, size_bytes: int) -> int:
    """About how much the records of a task from one on have, of which those before had so much."""
    num_before = index - task.start
    rest = size_bytes * (task.end - index) // num_before if num_before else 0
    return min(max(READ_BLOCK_BYTES // 8, rest), _MAX_READ_BYTES)


def masked_crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes as TFRecord stores it: rotated, plus a constant.

    A checksum of data that holds checksums would else be of little use.
    """
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_record_head(head: bytes) -> bool:
    """Tell whether bytes begin as a TFRecord file does."""
    if len(head) < _HEAD.size:
        return False
    return masked_crc32c(head[:8]) == int(_HEAD.unpack_from(head)[1])


def _cut_shards(file: SourceFile, records_per_task: int, shard_bytes: int) -> list[Shard]:
    """Cut a file into shards of whole tasks and at least `shard_bytes` each."""
    shards: list[Shard] = []
    start, start_offset = 0, 0
    count, offset = 0, 0
    block, base, wanted = b"", 0, READ_BLOCK_BYTES
    while True:
        if offset - base + _HEAD.size > len(block):
            block, base = file.read_at(offset, wanted), offset
            if not block:
                break
        if offset >= start_offset + shard_bytes and (count - start) % records_per_task == 0:
            shards.append(Shard(file.name, start, count, start_offset))
            start, start_offset = count, offset
        length = _checked_length(file, block, offset - base, offset, count)
        wanted = _HEAD.size if length >= _BIG_RECORD_BYTES else READ_BLOCK_BYTES
        last, offset, count = offset, offset + length + _FRAME_BYTES, count + 1
    # Past the end there is nothing to read either.
    if count and not file.read_at(offset - 1, 1):
        raise _truncated(file, count - 1, last)
    if count > start:
        shards.append(Shard(file.name, start, count, start_offset))
    return shards


def _skip(file: SourceFile, offset: int, index: int, wanted_index: int) -> int:
    """Where record `wanted_index` begins, given where an earlier one does.

    Lengths are taken as they are: the master has checked them, and the next record is checked.
    """
    block, base, wanted = b"", offset, READ_BLOCK_BYTES
    for skipped in range(index, wanted_index):
        if offset - base + 8 > len(block):
            block, base = file.read_at(offset, wanted), offset
            if len(block) < _HEAD.size:
                raise _truncated(file, skipped, offset)
        length = int.from_bytes(block[offset - base : offset - base + 8], "little")
        wanted = _HEAD.size if length >= _BIG_RECORD_BYTES else READ_BLOCK_BYTES
        offset += length + _FRAME_BYTES
    return offset


def _checked_length(file: SourceFile, block: bytes, at: int, offset: int, index: int) -> int:
    if len(block) < at + _HEAD.size:
        raise _truncated(file, index, offset)
    length: int
    length, checksum = _HEAD.unpack_from(block, at)
    if masked_crc32c(block[at : at + 8]) != checksum:
        if index == 0:
            raise DataError(
                f"{file.name} does not begin as a TFRecord file: it is damaged or of another "
                "format; name the format with --data_reader_params format=..."
            )
        raise DataError(
            f"{file.name}, record {index} at byte {offset}: its length does not match its "
            "checksum, so the file is damaged: write it again"
        )
    return length


def _truncated(file: SourceFile, index: int, offset: int) -> DataError:
    return DataError(
        f"{file.name} ends inside record {index}, which begins at byte {offset}: it is truncated; "
        "write it again, and restore it if it was longer when the job began"
    )


def frame(record: bytes) -> bytes:
    """A record as it stands in a file."""
    length = struct.pack("<Q", len(record))
    return b"".join(
        (
            _HEAD.pack(len(record), masked_crc32c(length)),
            record,
            _CHECKSUM.pack(masked_crc32c(record)),
        )
    )
