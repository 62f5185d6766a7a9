"""Records in any order: the same as in order, each once, at about the same cost."""

import bz2
from collections import Counter
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from support.format_table import FORMATS, IDS, make_rows

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.picking import CHUNK_BYTES, mixed_of
from elastic.data.storage import Cursor
from elastic.errors import DataError
from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle
from elastic.policy.tasks.records import Places

ROWS = make_rows(1000)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr("elastic.data.picking.CHUNK_BYTES", 512)
    monkeypatch.setattr("elastic.data.formats.arrays._CHUNK_BYTES", 512)


def write_files(case, folder, num_files=2):
    for number in range(num_files):
        rows = ROWS[number::num_files]
        (folder / f"part-{number}.{case.suffix}").write_bytes(case.write(rows))
    return str(folder)


def read_in_order(path, params):
    reader = open_reader(path, 1000, params, None)
    return [
        record
        for shard in reader.create_shards()
        for record in reader.read_records(ReadTask(shard, shard.start, shard.end))
    ]


def shuffled(chunks, seed=0):
    places = Places(chunks.shards)
    form = OrderForm(Shuffle.RECORDS, mixed=chunks.mixed or 1, is_forward=chunks.is_forward)
    firsts = places.firsts if chunks.mixed else ()
    return places, RecordOrder(places.num_records, seed, form, firsts)


@pytest.mark.parametrize("case", FORMATS, ids=IDS)
def test_every_format_gives_the_records_of_any_task_in_their_order(tmp_path, case):
    path = write_files(case, tmp_path)
    whole = list(map(str, read_in_order(path, case.params)))
    assert len(whole) == len(ROWS)
    places, order = shuffled(open_reader(path, 1, case.params, None).create_chunks())
    worker = open_reader(path, 1, case.params, None)
    for epoch in range(2):
        for start in range(0, 1000, 96):
            numbers = order.records(epoch, start, min(start + 96, 1000))
            records = worker.read_picks(places.pick(numbers))
            assert list(map(str, records)) == [whole[number] for number in numbers]


@pytest.mark.parametrize("case", FORMATS, ids=IDS)
def test_chunks_are_small_and_the_same_every_time(tmp_path, case):
    path = write_files(case, tmp_path)
    first, second = (open_reader(path, 1, case.params, None).create_chunks() for _ in range(2))
    assert first == second
    assert sum(shard.num_records for shard in first.shards) == 1000
    assert first.mixed >= 16
    assert len(first.shards) >= 16
    assert first.is_forward == (case.suffix.count(".") == 1 or case.name == "tfrecord-gz")


@pytest.mark.parametrize(
    ("total_bytes", "num_chunks", "mixed"),
    [
        pytest.param(64 << 20, 1024, 64, id="by-bytes"),
        pytest.param(1 << 40, 1024, 16, id="large-chunks"),
    ],
)
def test_a_window_is_of_sixteen_chunks_however_large_they_are(total_bytes, num_chunks, mixed):
    assert mixed_of(total_bytes, num_chunks) == mixed


def test_images_are_read_one_by_one(tmp_path):
    for kind in ("cat", "dog"):
        (tmp_path / kind).mkdir()
        for number in range(8):
            Image.new("RGB", (4, 4), (number, 0, 0)).save(tmp_path / kind / f"{number}.png")
    reader = open_reader(f"{tmp_path}/", 1, {}, None)
    chunks = reader.create_chunks()
    assert chunks.mixed is None
    places, order = shuffled(chunks)
    numbers = order.records(0, 0, 16)
    whole = [str(record["path"]) for record in read_in_order(f"{tmp_path}/", {})]
    records = reader.read_picks(places.pick(numbers))
    assert [record["path"] for record in records] == [whole[number] for number in numbers]


@pytest.mark.parametrize("bad", [3, 400])
def test_a_record_that_cannot_be_read_fails_alone(tmp_path, bad):
    """The other records of its chunk come, and those before it in the task first."""
    rows = [f"{number},1" for number in range(1000)]
    rows[bad] = "too,many,fields"
    path = tmp_path / "a.csv"
    path.write_text("\n".join(rows) + "\n")
    reader = open_reader(str(path), 1, {"header": False}, None)
    places, order = shuffled(reader.create_chunks())
    numbers = order.records(0, 0, 1000).tolist()
    at = numbers.index(bad)
    for begin, end in ((0, at), (at + 1, 1000)):
        part = reader.read_picks(places.pick(np.array(numbers[begin:end])))
        assert [int(row[0]) for row in part] == numbers[begin:end]
    come = []
    with pytest.raises(DataError, match=rf"line {bad + 1} \(record {bad}\)"):
        come.extend(reader.read_picks(places.pick(np.array(numbers))))
    assert [int(row[0]) for row in come] == numbers[:at]


def test_a_null_of_parquet_fails_alone(tmp_path):
    path = tmp_path / "a.parquet"
    values = [None if number == 77 else f"text {number}" for number in range(200)]
    pq.write_table(pa.table({"text": values}), path, row_group_size=20)
    reader = open_reader(str(path), 1, {}, None)
    places, order = shuffled(reader.create_chunks())
    numbers = order.records(0, 0, 200).tolist()
    come = []
    with pytest.raises(DataError, match="record 77: column 'text' has no value"):
        come.extend(reader.read_picks(places.pick(np.array(numbers))))
    assert [record["text"] for record in come] == [
        f"text {number}" for number in numbers[: numbers.index(77)]
    ]


@pytest.mark.parametrize("case", [case for case in FORMATS if case.dataset_fn == "from_arrays"])
def test_records_belong_to_who_gets_them(tmp_path, case):
    """What was done to a record in one epoch, or in a try before, is not seen in the next."""
    path = write_files(case, tmp_path)
    reader = open_reader(path, 1, case.params, None)
    places, order = shuffled(reader.create_chunks())
    picks = places.pick(order.records(0, 0, 300))
    first = [record["x"].copy() for record in reader.read_picks(picks)]
    for record in reader.read_picks(picks):
        record["x"] += 1000
    again = [record["x"] for record in reader.read_picks(picks)]
    np.testing.assert_array_equal(first, again)


class Counting:
    """A reader of the user's that says what it was asked for."""

    asked: ClassVar = Counter()

    def create_shards(self):
        return {"a": (0, 2000), "b": (100, 2000)}

    def read_records(self, task):
        self.asked[task.end - task.start] += 1
        return ((task.shard_name, index) for index in range(task.start, task.end))


def test_a_reader_of_the_users_is_asked_for_ranges():
    Counting.asked.clear()
    reader = open_reader("", 1, {}, lambda *_: Counting())
    places, order = shuffled(reader.create_chunks())
    seen = Counter()
    for start in range(0, 4000, 500):
        seen.update(reader.read_picks(places.pick(order.records(0, start, start + 500))))
    assert seen == Counter([("a", i) for i in range(2000)] + [("b", i) for i in range(100, 2100)])
    # Each chunk once: what one task leaves of it is kept for the next.
    assert sum(Counting.asked.values()) == len(places.shards) < 4000 / 10


def test_compressed_files_are_read_forward(tmp_path, monkeypatch):
    """Tasks of one window go back in it, which decompresses nothing again."""
    monkeypatch.setattr("elastic.data.picking.CHUNK_BYTES", CHUNK_BYTES)
    path = tmp_path / "a.txt.bz2"
    text = b"".join(b"%060d\n" % number for number in range(200_000))
    path.write_bytes(bz2.compress(text))
    reader = open_reader(str(path), 1, {}, None)
    chunks = reader.create_chunks()
    assert chunks.is_forward
    assert len(chunks.shards) > 5 * chunks.mixed
    places, order = shuffled(chunks)
    begun = []
    monkeypatch.setattr(
        "elastic.data.storage.Cursor",
        lambda *args, make=Cursor: begun.append(args) or make(*args),
    )
    worker = open_reader(str(path), 1, {}, None)
    lines = []
    for start in range(0, 200_000, 1000):
        lines += worker.read_picks(places.pick(order.records(0, start, start + 1000)))
    assert sorted(lines) == [f"{number:060d}" for number in range(200_000)]
    assert len(begun) == 1


class Mutable(Counting):
    def read_records(self, task):
        return ([index] for index in range(task.start, task.end))


def test_a_record_that_was_given_out_is_read_again():
    """It may have been changed; who tries it again, or has another epoch, gets its own."""
    reader = open_reader("", 1, {}, lambda *_: Mutable())
    places, order = shuffled(reader.create_chunks())
    picks = places.pick(order.records(0, 0, 300))
    for record in reader.read_picks(picks):
        record.append("changed")
    assert [len(record) for record in reader.read_picks(picks)] == [1] * 300
