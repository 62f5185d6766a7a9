"""RecordIO of both writers, plain and compressed, and what is said about a damaged file."""

import contextlib
import os
import random
import struct

import pyarrow as pa
import pytest
from support.formats import go_recordio, python_recordio, snappy_frames

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.formats import recordio
from elastic.errors import DataError

RECORDS = [b"", *(b"record %d, a text of some length" % n for n in range(95)), bytes(3000)]
WRITTEN = {
    **{f"go-{number}": go_recordio(RECORDS, number) for number in (0, 1, 2)},
    **{f"python-{number}": python_recordio(RECORDS, number) for number in (1, 2, 3)},
}


@pytest.mark.parametrize("content", WRITTEN.values(), ids=WRITTEN)
def test_both_writers_and_all_compressors(tmp_path, read_all, content):
    path = tmp_path / "a.recordio"
    path.write_bytes(content)
    assert read_all(path) == RECORDS


def test_shards_are_runs_of_chunks_and_tasks_any_part_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(recordio, "SHARD_BYTES", 500)
    path = tmp_path / "a.rio"
    path.write_bytes(WRITTEN["go-0"])
    shards = open_reader(str(path), 15, {}, None).create_shards()
    assert [(shard.start, shard.end) for shard in shards[:2]] == [(0, 20), (20, 40)]
    worker = open_reader(str(path), 15, {}, None)
    for shard in shards:
        for start in range(shard.start, shard.end):
            end = min(shard.end, start + 13)
            assert list(worker.read_records(ReadTask(shard, start, end))) == RECORDS[start:end]


def test_snappy_agrees_with_the_library():
    rng = random.Random(0)
    for _ in range(200):
        part = bytes(rng.choices(b"abc", k=rng.randrange(2000)))
        data = part * rng.randrange(1, 40) + os.urandom(rng.randrange(100))
        assert recordio.from_snappy(pa.Codec("snappy").compress(data, asbytes=True)) == data
        assert recordio.from_snappy(snappy_frames(data)) == data


@pytest.mark.parametrize("seed", range(50))
def test_damaged_snappy_never_passes_for_its_content(seed):
    rng = random.Random(seed)
    data = b"some text that repeats itself, " * 30
    packed = bytearray(snappy_frames(data))
    packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
    with contextlib.suppress(ValueError):
        assert recordio.from_snappy(bytes(packed)) == data


ONE = go_recordio([b"one", b"two"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(ONE[:10], "FILE ends amid the chunk of RecordIO at byte 0", id="head"),
        pytest.param(ONE[:-1], "FILE: the first chunk of RecordIO matches no checksum", id="cut"),
        pytest.param(
            ONE + ONE[:-1], "FILE ends amid the chunk of RecordIO at byte 34", id="second-cut"
        ),
        pytest.param(
            ONE + b"x" * 40, "FILE is damaged: no chunk of RecordIO begins at byte 34", id="garbage"
        ),
        pytest.param(
            ONE + ONE[:-1] + b"!",
            "FILE, chunk at byte 34 (record 2 on): its bytes do not match their checksum",
            id="bytes",
        ),
        pytest.param(
            ONE + ONE[:16] + struct.pack("<I", 3) + ONE[20:],
            "FILE, chunk at byte 34 (record 2 on) is damaged (",
            id="count",
        ),
        pytest.param(
            ONE + ONE[:8] + struct.pack("<I", 7) + ONE[12:],
            "FILE, chunk at byte 34 (record 2 on): its compressor 7 is unknown",
            id="compressor",
        ),
        pytest.param(
            struct.pack("<2I", 0xCED7230A, 3) + bytes(30), "FILE is RecordIO of MXNet", id="mxnet"
        ),
        pytest.param(b"x" * 40, "FILE does not begin as a RecordIO file", id="other"),
    ],
)
def test_damage_is_named_by_chunk(tmp_path, read_all, content, message):
    path = tmp_path / "a.recordio"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_all(path)
    assert str(caught.value).replace(str(path), "FILE").startswith(message)
