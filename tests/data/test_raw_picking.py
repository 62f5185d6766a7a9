"""Records cut out of chunks as they are stored: what is odd in a file is as it is in order."""

import os
import struct

import numpy as np
import pytest

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.formats.tfrecord import masked_crc32c
from elastic.data.picking import RawPicking
from elastic.errors import DataError
from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle
from elastic.policy.tasks.records import Places

NUM_RECORDS = 1000


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr("elastic.data.picking.CHUNK_BYTES", 512)


def frame(record):
    length = struct.pack("<Q", len(record))
    checksums = [struct.pack("<I", masked_crc32c(part)) for part in (length, record)]
    return length + checksums[0] + record + checksums[1]


def in_order(reader):
    return [
        record
        for shard in reader.create_shards()
        for record in reader.read_records(ReadTask(shard, shard.start, shard.end))
    ]


def picks_of(reader):
    """Of a whole epoch, and the numbers of the records in it."""
    chunks = reader.create_chunks()
    assert len(chunks.shards) > 1
    places = Places(chunks.shards)
    order = RecordOrder(places.num_records, 0, OrderForm(Shuffle.RECORDS, mixed=chunks.mixed))
    numbers = order.records(0, 0, places.num_records)
    return places.pick(numbers), numbers.tolist()


LINES = {
    "crlf": (b"".join(b"line %d\r\n" % number for number in range(NUM_RECORDS)), {}),
    "lone-cr": (b"".join(b"a\r%d\n" % number for number in range(NUM_RECORDS)), {}),
    "empty-lines": (b"".join(b"%d\n\n\r\n" % number for number in range(NUM_RECORDS)), {}),
    "no-last-end": (b"\n".join(b"%d" % number for number in range(NUM_RECORDS)), {}),
    "last-end-cr": (b"\n".join(b"%d\r" % number for number in range(NUM_RECORDS)), {}),
    "not-ascii": ("".join(f"Größe {n} 漢字 😀\n" for n in range(NUM_RECORDS)).encode(), {}),
    "mark": (b"\xef\xbb\xbf" + b"x\n" * NUM_RECORDS, {}),
    "latin": ("".join(f"Größe {n}\n" for n in range(NUM_RECORDS)).encode("latin-1"),
              {"encoding": "latin-1"}),
    "gbk": ("".join(f"漢字 {n}\n" for n in range(NUM_RECORDS)).encode("gbk"), {"encoding": "gbk"}),
}  # fmt: skip

TABLES = {
    "blank-lines": (b"".join(b"%d,1\n\n\r\n" % number for number in range(NUM_RECORDS)), {}),
    "lines-in-quotes": (b"".join(b'%d,"a\n\nb\r\n"\n' % n for n in range(NUM_RECORDS)), {}),
    "quotes": (b"".join(b'%d,"a ""b"" c",5" pipe\n' % n for n in range(NUM_RECORDS)), {}),
    "crlf": (b"".join(b"%d,1\r\n" % number for number in range(NUM_RECORDS)), {}),
    "cr": (b"".join(b"%d,1\r" % number for number in range(NUM_RECORDS)), {}),
    "no-last-end": (b"\n".join(b"%d,1" % number for number in range(NUM_RECORDS)), {}),
    "blank-no-last-end": (b"\n\n".join(b"%d,1" % number for number in range(NUM_RECORDS)), {}),
    "not-ascii": ("".join(f"Größe {n},漢字\n" for n in range(NUM_RECORDS)).encode(), {}),
    "header": (b"i,x\n" + b"".join(b"%d,1\n" % n for n in range(NUM_RECORDS)),
               {"header": True}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("suffix", "content", "params"),
    [
        *(pytest.param("txt", *case, id=f"lines-{name}") for name, case in LINES.items()),
        *(
            pytest.param("csv", content, {"header": False, **params}, id=f"csv-{name}")
            for name, (content, params) in TABLES.items()
        ),
    ],
)
def test_odd_text_is_as_it_is_in_order(tmp_path, suffix, content, params):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content)
    reader = open_reader(str(path), 1, params, None)
    whole = in_order(reader)
    picks, numbers = picks_of(reader)
    assert list(reader.read_picks(picks)) == [whole[number] for number in numbers]


@pytest.mark.parametrize("what", ["tfrecord", "lines"])
def test_a_damaged_record_fails_alone_and_is_named(tmp_path, what):
    bad = 700
    path = tmp_path / f"a.{what}"
    records = [b"%040d" % number for number in range(NUM_RECORDS)]
    framed = [frame(record) if what == "tfrecord" else record + b"\n" for record in records]
    framed[bad] = framed[bad][:20] + b"\xff" + framed[bad][21:]
    path.write_bytes(b"".join(framed))
    reader = open_reader(str(path), 1, {}, None)
    picks, numbers = picks_of(reader)
    come = []
    with pytest.raises(DataError, match=f"record {bad}"):
        come.extend(reader.read_picks(picks))
    assert list(map(int, come)) == numbers[: numbers.index(bad)]
    rest = reader.read_picks(picks.part(numbers.index(bad) + 1, NUM_RECORDS))
    assert list(map(int, rest)) == numbers[numbers.index(bad) + 1 :]


def test_few_large_records_are_made_at_once(tmp_path):
    """A task may have a gigabyte of them."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(frame(bytes([number]) * (1 << 20)) for number in range(40)))
    reader = open_reader(str(path), 1, {}, None)
    form = reader._format("tfrecord")
    made = []

    class Counted:
        read_raw = staticmethod(form.read_raw)

        @staticmethod
        def decode_raw(name, records):
            made.append(len(records))
            return form.decode_raw(name, records)

    picks, numbers = picks_of(reader)
    records = RawPicking(str).read(Counted, reader.read_records, picks)
    assert [record[0] for record in records] == numbers
    assert sum(made) == 40
    assert max(made) == 1


def test_a_chunk_is_read_once_and_dropped_with_its_last_record(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{number}\n" for number in range(20_000)))
    reader = open_reader(str(path), 1, {}, None)
    form = reader._format("lines")
    begun = []

    class Counted:
        decode_raw = staticmethod(form.decode_raw)

        @staticmethod
        def read_raw(task):
            begun.append(task.shard)
            return form.read_raw(task)

    picks, numbers = picks_of(reader)
    picking, come = RawPicking(str), []
    for start in range(0, len(picks), 3000):
        part = picks.part(start, start + 3000)
        come += picking.read(Counted, reader.read_records, part)
    assert list(map(int, come)) == numbers
    assert sorted(begun, key=lambda shard: shard.start) == list(picks.shards)
    assert not picking._window._held


def test_nothing_is_given_of_a_chunk_during_whose_reading_the_file_changed(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{number}\n" for number in range(1000)))
    reader = open_reader(str(path), 1, {}, None)
    form = reader._format("lines")

    class Disturbed:
        decode_raw = staticmethod(form.decode_raw)

        @staticmethod
        def read_raw(task):
            found = form.read_raw(task)
            os.utime(path, ns=(0, 10**18))
            return found

    of_one_chunk = Places(reader.create_chunks().shards).pick(np.arange(50)[::-1])
    assert len(of_one_chunk.shards) == 1
    records = RawPicking(reader._files.get).read(Disturbed, reader.read_records, of_one_chunk)
    with pytest.raises(DataError, match="was written to while the job reads it"):
        next(records)


def test_large_rows_of_several_files_have_their_labels(tmp_path, monkeypatch):
    """Parts of a task have none of a file; files may differ in the order of arrays and bytes."""
    monkeypatch.setattr("elastic.data.formats.arrays._PICKED_ROWS", 4)
    for number, kind in enumerate(("<i4", "<i4", ">i4")):
        labels = np.arange(number * 50, number * 50 + 50)
        images = np.repeat(labels, 2048).reshape(50, 2048).astype(kind)
        arrays = (
            {"label": labels, "image": images} if number else {"image": images, "label": labels}
        )
        np.savez(tmp_path / f"{number}.npz", **arrays)
    for pattern in ("[01].npz", "2.npz", "*.npz"):
        reader = open_reader(str(tmp_path / pattern), 1, {}, None)
        whole = in_order(reader)
        picks, numbers = picks_of(reader)
        for record, number in zip(reader.read_picks(picks), numbers, strict=True):
            assert record["label"] == whole[number]["label"]
            assert set(record["image"].tolist()) == {record["label"]}
            assert record["image"].dtype == np.int32
            record["image"] += 1


def test_rows_of_a_file_that_ends_early_are_told(tmp_path):
    """Also of those that are read one by one, straight to their places."""
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((200, 2048), np.float32))
    reader = open_reader(str(path), 1, {}, None)
    chunks = reader.create_chunks()
    places = Places(chunks.shards)
    picks = places.pick(RecordOrder(200, 0, OrderForm(Shuffle.RECORDS)).records(0, 0, 200))
    records = reader.read_picks(picks)
    next(records)
    with path.open("r+b") as file:
        file.truncate(100_000)
    with pytest.raises(DataError, match="ends at byte 100000, but bytes"):
        list(records)
