"""Snappy, decompressed without a library: what RecordIO files hold, 32 KiB at a time."""

import struct
from typing import Final

from elastic.data.formats.tfrecord import masked_crc32c

_STREAM_BEGIN: Final = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED: Final = 0
_UNCOMPRESSED: Final = 1


def decompress(data: bytes) -> bytes:
    """The content of a block, or of a stream of framed blocks.

    Raises:
        ValueError: The data is damaged.
    """
    return _stream(data) if data.startswith(_STREAM_BEGIN) else decompress_block(data)


def decompress_block(data: bytes) -> bytes:
    """The content of one block without frame.

    Raises:
        ValueError: The data is damaged.
    """
    size, position = _varint(data)
    out = bytearray()
    end = len(data)
    while position < end:
        tag = data[position]
        position += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                length = int.from_bytes(data[position : position + extra], "little") + 1
                position += extra
            out += data[position : position + length]
            position += length
            continue
        if tag & 3 == 1:
            length = (tag >> 2 & 7) + 4
            distance = (tag & 0xE0) << 3 | int.from_bytes(data[position : position + 1], "little")
            position += 1
        else:
            width = 2 if tag & 3 == 2 else 4
            length = (tag >> 2) + 1
            distance = int.from_bytes(data[position : position + width], "little")
            position += width
        _copy(out, distance, length)
    if len(out) != size or position != end:
        raise ValueError(f"snappy gave {len(out)} bytes instead of {size}")
    return bytes(out)


def _copy(out: bytearray, distance: int, length: int) -> None:
    """Append what stands `distance` before the end; it may repeat itself."""
    begin = len(out) - distance
    if distance == 0 or begin < 0:
        raise ValueError(f"snappy refers {distance} bytes back, but has given {len(out)}")
    if distance >= length:
        out += out[begin : begin + length]
    else:
        pattern = out[begin:]
        out += (pattern * (length // distance + 1))[:length]


def _stream(data: bytes) -> bytes:
    parts: list[bytes] = []
    position = 0
    while position < len(data):
        kind = data[position]
        size = int.from_bytes(data[position + 1 : position + 4], "little")
        body = data[position + 4 : position + 4 + size]
        if len(body) < size:
            raise ValueError("a snappy frame goes beyond the end")
        position += 4 + size
        if kind in (_COMPRESSED, _UNCOMPRESSED):
            part = decompress_block(body[4:]) if kind == _COMPRESSED else body[4:]
            if body[:4] != struct.pack("<I", masked_crc32c(part)):
                raise ValueError("a snappy frame does not match its checksum")
            parts.append(part)
        elif kind < 0x80:
            raise ValueError(f"a snappy frame has the unknown kind {kind}")
    return b"".join(parts)


def _varint(data: bytes) -> tuple[int, int]:
    value = 0
    for position, byte in enumerate(data[:5]):
        value |= (byte & 127) << (7 * position)
        if byte < 128:
            return value, position + 1
    raise ValueError("a snappy block has no length")
