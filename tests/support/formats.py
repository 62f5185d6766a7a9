"""Writers of the formats that have none in a library of ours."""

import gzip
import struct
import zlib

import pyarrow as pa

from elastic.data.checksums import crc32c_of, masked_crc32c


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
        head = (0x01020304, len(part), crc32c_of(data), compressor, len(data))
        out += struct.pack("<5I", *head) + data
    return out
