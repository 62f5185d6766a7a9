"""TFRecord: the records that TensorFlow writes, found and read without it."""

import os

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from support.formats import framed

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.formats import tfrecord
from elastic.errors import DataError

RECORDS = [b"", b"a\0", b"x" * 5000, *(b"record %d" % n for n in range(200)), bytes(70_000), b"end"]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_what_tensorflow_wrote(tmp_path, read_all, compression):
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in RECORDS:
            writer.write(record)
    assert read_all(path) == RECORDS


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that small files have several shards, and records cross the borders of blocks."""
    monkeypatch.setattr(tfrecord, "READ_BLOCK_BYTES", 100)
    monkeypatch.setattr(tfrecord, "SHARD_BYTES", 300)
    monkeypatch.setattr(tfrecord, "_BIG_RECORD_BYTES", 90)


@settings(deadline=None, max_examples=100)
@given(
    st.data(),
    st.lists(st.one_of(st.binary(max_size=20), st.integers(80, 400).map(bytes)), min_size=1),
    st.integers(1, 5),
)
def test_any_records_in_any_tasks(tmp_path_factory, data, records, records_per_task):
    path = tmp_path_factory.getbasetemp() / f"{os.urandom(6).hex()}.tfrecord"
    path.write_bytes(b"".join(map(framed, records)))
    shards = open_reader(str(path), records_per_task, {}, None).create_shards()
    worker = open_reader(str(path), records_per_task, {}, None)
    read = []
    for shard in shards:
        position = shard.start
        while position < shard.end:
            end = min(shard.end, position + data.draw(st.integers(1, 7)))
            read += worker.read_records(ReadTask(shard, position, end))
            position = end
    assert read == records
    assert [shard.start for shard in shards] == [0, *(shard.end for shard in shards[:-1])]
    assert all(shard.num_records % records_per_task == 0 for shard in shards[:-1])


def test_large_records_are_passed_over_unread(tmp_path, monkeypatch):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(framed(bytes(10_000)) for _ in range(100)))
    reader = open_reader(str(path), 10, {}, None)
    file = reader._files.get(str(path))
    read_at, sizes = type(file).read_at, []

    def counted(self, offset, size_bytes):
        data = read_at(self, offset, size_bytes)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(type(file), "read_at", counted)
    shards = reader.create_shards()
    assert sum(shard.num_records for shard in shards) == 100
    # Two samples of 4 KiB tell the file from others.
    assert sum(sizes) < 5000 + 2 * 4096


WHOLE = b"".join(map(framed, [b"one", b"two", b"three"]))


@pytest.mark.parametrize(
    ("content", "before", "message"),
    [
        pytest.param(
            WHOLE[:-1], [], "FILE ends inside record 2, which begins at byte 38", id="cut"
        ),
        pytest.param(
            WHOLE[:40], [], "FILE ends inside record 2, which begins at byte 38", id="head"
        ),
        pytest.param(
            WHOLE[:19] + b"\1" + WHOLE[20:],
            [],
            "FILE, record 1 at byte 19: its length does not match its checksum",
            id="length",
        ),
        pytest.param(
            WHOLE[:33] + b"W" + WHOLE[34:],
            [b"one"],
            "FILE, record 1 at byte 19: its bytes do not match their checksum",
            id="bytes",
        ),
        pytest.param(
            b"no records at all", [], "FILE does not begin as a TFRecord file", id="other-format"
        ),
    ],
)
def test_damage_is_named_by_record_and_byte(tmp_path, content, before, message):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    reader, records = open_reader(str(path), 2, {}, None), []
    with pytest.raises(DataError) as caught:  # noqa: PT012 (what came before the error counts)
        for shard in reader.create_shards():
            records.extend(reader.read_records(ReadTask(shard, shard.start, shard.end)))
    assert str(caught.value).replace(str(path), "FILE").startswith(message)
    assert records == before


def test_the_records_around_a_damaged_one_can_be_read(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(WHOLE[:33] + b"W" + WHOLE[34:])
    reader = open_reader(str(path), 3, {}, None)
    (shard,) = reader.create_shards()
    assert list(reader.read_records(ReadTask(shard, 2, 3))) == [b"three"]
