"""Writers of the formats that have none in a library of ours."""

import gzip
import struct
import zlib

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from elastic.data.formats.tfrecord import masked_crc32c


def framed(record):
    """One record of a TFRecord file."""
    length = struct.pack("<Q", len(record))
    checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, record)]
    return length + checksums[0] + record + checksums[1]


def snappy_frames(data):
    """A stream of Snappy frames, as Go's writer makes them of 64 KiB each."""
    out = b"\xff\x06\x00\x00sNaPpY"
    for at in range(0, len(data), 1 << 16):
        part = data[at : at + (1 << 16)]
        packed = pa.Codec("snappy").compress(part, asbytes=True)
        kind, body = (0, packed) if len(packed) < len(part) else (1, part)
        body = struct.pack("<I", masked_crc32c(part)) + body
        out += bytes([kind]) + len(body).to_bytes(3, "little") + body
    return out


def go_recordio(records, compressor=0, per_chunk=10):
    """As `pyrecordio` writes it; compressor 0 none, 1 snappy, 2 gzip."""
    pack = (bytes, snappy_frames, gzip.compress)[compressor]
    out = b""
    for at in range(0, len(records), per_chunk):
        part = records[at : at + per_chunk]
        data = pack(b"".join(struct.pack("<I", len(record)) + record for record in part))
        head = (0x01020304, zlib.crc32(data), compressor, len(data), len(part))
        out += struct.pack("<5I", *head) + data
    return out


def python_recordio(records, compressor=1, per_chunk=10):
    """As ElasticDL's own `recordio` writes it; compressor 1 none, 2 snappy, 3 gzip."""

    def block(data):
        return pa.Codec("snappy").compress(data, asbytes=True)

    pack = (bytes, block, gzip.compress)[compressor - 1]
    out = b""
    for at in range(0, len(records), per_chunk):
        part = records[at : at + per_chunk]
        data = pack(b"".join(struct.pack("<I", len(record)) + record for record in part))
        head = (0x01020304, len(part), crc32c(data), compressor, len(data))
        out += struct.pack("<5I", *head) + data
    return out


def example(**arrays):
    """A serialized `tf.train.Example` of float32 and int64 arrays."""

    def message(number, content):
        return bytes([number << 3 | 2]) + varint(len(content)) + content

    def varint(value):
        out = b""
        while value >= 128:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    def feature(array):
        if array.dtype == np.float32:
            return message(2, message(1, array.astype("<f4").tobytes()))
        return message(3, message(1, b"".join(varint(int(value) % 2**64) for value in array)))

    entries = (
        message(1, message(1, name.encode()) + message(2, feature(array)))
        for name, array in arrays.items()
    )
    return message(1, b"".join(entries))
