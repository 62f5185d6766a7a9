"""Parquet: every type of column, what cannot be read, and what a task costs."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.errors import DataError, JobSpecError


def write(path, columns, **options):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def plain(value):
    """A record as values that compare, with the dtype of its arrays and scalars."""
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.tolist()
    return value


TENSORS = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.int16(), [2, 2]),
    pa.FixedSizeListArray.from_arrays(pa.array(range(8), pa.int16()), 4),
)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        pytest.param(pa.array([1, 2], pa.uint8()), [("uint8", 1), ("uint8", 2)], id="uint8"),
        pytest.param(pa.array([1, -2]), [("int64", 1), ("int64", -2)], id="int64"),
        pytest.param(
            pa.array([0.5, 2], pa.float16()), [("float16", 0.5), ("float16", 2)], id="float16"
        ),
        pytest.param(
            pa.array([0.5, 2], pa.float32()), [("float32", 0.5), ("float32", 2)], id="float32"
        ),
        pytest.param(pa.array([True, False]), [("bool", True), ("bool", False)], id="bool"),
        pytest.param(pa.array(["a", "é中"]), ["a", "é中"], id="text"),
        pytest.param(pa.array(["a", ""], pa.large_string()), ["a", ""], id="large-text"),
        pytest.param(pa.array([b"\0a\0", b""]), [b"\0a\0", b""], id="bytes"),
        pytest.param(pa.array([b"ab", b"cd"], pa.binary(2)), [b"ab", b"cd"], id="fixed-bytes"),
        pytest.param(pa.array(["a", "a"]).dictionary_encode(), ["a", "a"], id="dictionary"),
        pytest.param(
            pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
            [("int32", [1, 2]), ("int32", [3, 4])],
            id="fixed-list",
        ),
        pytest.param(
            pa.array([[[1], [2]], [[3], [4]]], pa.list_(pa.list_(pa.float32(), 1), 2)),
            [("float32", [[1], [2]]), ("float32", [[3], [4]])],
            id="fixed-lists-in-each-other",
        ),
        pytest.param(
            TENSORS, [("int16", [[0, 1], [2, 3]]), ("int16", [[4, 5], [6, 7]])], id="tensor"
        ),
        pytest.param(
            pa.array([[1, 2, 3], []], pa.list_(pa.int32())),
            [("int32", [1, 2, 3]), ("int32", [])],
            id="list-of-any-length",
        ),
        pytest.param(
            pa.array([[[1, 2]], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int8(), 2))),
            [("int8", [[1, 2]]), ("int8", [[3, 4], [5, 6]])],
            id="list-of-fixed-lists",
        ),
        pytest.param(
            pa.array([datetime(1970, 1, 2), datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("ms")),
            [("int64", 86_400_000), ("int64", 1000)],
            id="timestamp",
        ),
        pytest.param(
            pa.array([date(1970, 1, 3), date(1969, 12, 31)]),
            [("int32", 2), ("int32", -1)],
            id="date",
        ),
        pytest.param(
            pa.array([timedelta(seconds=1), timedelta(0)], pa.duration("s")),
            [("int64", 1), ("int64", 0)],
            id="duration",
        ),
        pytest.param(
            pa.array([0.5, None], pa.float32()), [("float32", 0.5), "nan"], id="missing-float"
        ),
    ],
)
def test_types(tmp_path, read_all, column, expected):
    records = read_all(write(tmp_path / "a.parquet", {"x": column}))
    found = [plain(record["x"]) for record in records]
    assert [
        "nan" if isinstance(value, tuple) and value[1] != value[1] else value for value in found
    ] == expected


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        pytest.param(pa.array([Decimal("1.5")]), "decimal128(2, 1)", id="decimal"),
        pytest.param(pa.array([{"a": 1}]), "struct<a: int64>", id="struct"),
        pytest.param(pa.array([["a"]]), "list<element: string>", id="list-of-text"),
        pytest.param(pa.array([[[1]]]), "list<element: list<element: int64>>", id="list-of-lists"),
        pytest.param(pa.array([None]), "null", id="null"),
        pytest.param(
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            "map<string, int64 ('x')>",
            id="map",
        ),
    ],
)
def test_types_that_are_refused_by_the_name_of_the_column(tmp_path, read_all, column, kind):
    path = write(tmp_path / "a.parquet", {"x": column, "y": [1]})
    with pytest.raises(DataError) as caught:
        read_all(path)
    assert str(caught.value) == (
        f"{path}: column 'x' is of type {kind}, which is no text, bytes, number or array of "
        "numbers: convert it, or name the other columns with --data_reader_params columns=[...]"
    )
    assert read_all(path, columns=["y"]) == [{"y": 1}]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array([1, 2, None, 4, 5]), id="number"),
        pytest.param(pa.array(["a", "b", None, "d", "e"]), id="text"),
        pytest.param(pa.array([True, True, None, True, True]), id="bool"),
        pytest.param(pa.array([date.today()] * 2 + [None] + [date.today()] * 2), id="date"),
        pytest.param(
            pa.array([[1.0], [2.0], None, [4.0], [5.0]], pa.list_(pa.float32(), 1)), id="array"
        ),
        pytest.param(
            pa.array([[1, 2]] * 2 + [[3, None]] + [[1, 2]] * 2, pa.list_(pa.int32(), 2)),
            id="number-of-an-array",
        ),
        pytest.param(pa.array([[1], [2, 3], None, [4], [5]]), id="list"),
        pytest.param(pa.array([[1], [], [2, None], [4], [5]]), id="number-of-a-list"),
        pytest.param(
            pa.array(["a", "b", None, "d", "e"]).dictionary_encode(), id="word-of-a-dictionary"
        ),
    ],
)
def test_a_null_is_an_error_of_its_record_alone(tmp_path, column):
    path = str(write(tmp_path / "a.parquet", {"i": range(5), "x": column}))
    reader = open_reader(path, 2, {}, None)
    (shard,) = reader.create_shards()
    records = reader.read_records(ReadTask(shard, 1, 5))
    assert next(records)["i"] == 1
    with pytest.raises(
        DataError, match=re.escape(f"{path}, record 2: column 'x' has no value (null): fill it")
    ):
        next(records)
    assert [r["i"] for r in reader.read_records(ReadTask(shard, 3, 5))] == [3, 4]
    assert [r["i"] for r in reader.read_records(ReadTask(shard, 0, 2))] == [0, 1]


def test_arrays_may_be_changed_by_who_reads_them(tmp_path):
    columns = {
        "fixed": pa.array([[0.0, 0.0]] * 4, pa.list_(pa.float32(), 2)),
        "ragged": pa.array([[0.0], [0.0, 0.0]] * 2),
        "even": pa.array([[0.0, 0.0]] * 4),
    }
    reader = open_reader(str(write(tmp_path / "a.parquet", columns)), 2, {}, None)
    (shard,) = reader.create_shards()
    for _ in range(2):
        for record in reader.read_records(ReadTask(shard, 1, 3)):
            for value in record.values():
                assert value.sum() == 0
                value += 1


def test_chosen_columns(tmp_path, read_all):
    path = write(tmp_path / "a.parquet", {"x": [1], "y": [2], "z": [3]})
    assert [list(record) for record in read_all(path, columns=["z", "x"])] == [["z", "x"]]
    assert read_all(path, columns="y") == [{"y": 2}]
    with pytest.raises(DataError, match=r"a\.parquet has no column 'yy', .*did you mean y\?"):
        read_all(path, columns=["yy"])
    for wrong in ([], ["x", "x"]):
        with pytest.raises(JobSpecError, match="is no list of different names: write columns="):
            read_all(path, columns=wrong)
    with pytest.raises(JobSpecError, match="columns has no meaning for csv files"):
        read_all(path, columns=["x"], format="csv")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        pytest.param({"x": [1]}, "b.parquet has no column 'y' but A has float64 in column", id="-"),
        pytest.param(
            {"x": [1], "y": [1.0], "z": [1]}, "has int64 in column 'z' but A has no column", id="+"
        ),
        pytest.param(
            {"x": [1], "y": [1]}, "has int64 in column 'y' but A has float64 in", id="type"
        ),
        pytest.param(
            {"x": [1], "y": pa.array([[1.0]], pa.list_(pa.float64(), 1))},
            "has float64 (1) in column 'y' but A has float64 in column 'y': make",
            id="shape",
        ),
    ],
)
def test_files_of_another_schema(tmp_path, read_all, other, message):
    first = write(tmp_path / "a.parquet", {"x": [1], "y": [1.0]})
    write(tmp_path / "b.parquet", other)
    with pytest.raises(DataError, match=re.escape(message.replace("A", str(first)))):
        read_all(tmp_path)
    assert read_all(tmp_path, columns=["x"]) == [{"x": 1}, {"x": 1}]


def test_files_that_count_time_differently(tmp_path, read_all):
    for name, unit in (("a", "ms"), ("b", "us")):
        write(tmp_path / f"{name}.parquet", {"t": pa.array([datetime.now()], pa.timestamp(unit))})
    with pytest.raises(
        DataError,
        match=r"has int64 of timestamp\[us\] in column 't' but .* int64 of timestamp\[ms\]",
    ):
        read_all(tmp_path)


def test_timestamps_of_96_bits_count_microseconds_in_any_year(tmp_path, read_all):
    times = [datetime(year, 1, 2, 3, 4, 5, 678901) for year in (1, 1600, 2020, 9999)]
    pq.write_table(
        pa.table({"t": pa.array(times, pa.timestamp("us"))}),
        tmp_path / "a.parquet",
        use_deprecated_int96_timestamps=True,
    )
    microseconds = [(time - datetime(1970, 1, 1)) // timedelta(microseconds=1) for time in times]
    assert [record["t"] for record in read_all(tmp_path / "a.parquet")] == microseconds


def test_columns_may_stand_in_another_order(tmp_path, read_all):
    write(tmp_path / "a.parquet", {"x": [1], "y": [2]})
    write(tmp_path / "b.pq", {"y": [4], "x": [3]})
    assert [record["x"] for record in read_all(tmp_path)] == [1, 3]


def whole(tmp_path):
    columns = {"x": np.random.default_rng(0).random(4000)}
    path = write(
        tmp_path / "whole",
        columns,
        row_group_size=1000,
        use_dictionary=False,
        write_page_checksum=True,
    )
    return path.read_bytes()


def with_last_row_count(content, count):
    """The file of four row groups of 1000 rows, with another count of the last one."""

    def field(number):
        # Thrift's compact protocol: an i64 whose id is the next one, as a zigzag varint.
        zigzag = number * 2 if number >= 0 else -number * 2 - 1
        return bytes([0x16, zigzag & 0x7F | 0x80, zigzag >> 7])

    before, _, after = content.rpartition(field(1000))
    return before + field(count) + after


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda b: b[:-100], "FILE is no readable Parquet file (", id="truncated"),
        pytest.param(lambda b: b"hello", "FILE is no readable Parquet file (", id="other"),
        pytest.param(lambda b: b"", "FILE holds no records: fill it", id="empty"),
        pytest.param(
            lambda b: b[:-60] + b"\xff" * 40 + b[-20:],
            "FILE is no readable Parquet file (",
            id="footer",
        ),
        pytest.param(
            lambda b: with_last_row_count(b, -1000),
            "FILE is no readable Parquet file (it counts 4000 rows, but its row groups 2000): it",
            id="negative-row-count",
        ),
        pytest.param(
            lambda b: with_last_row_count(b, 999),
            "FILE is no readable Parquet file (it counts 4000 rows, but its row groups 3999): it",
            id="row-count-too-small",
        ),
    ],
)
def test_damaged_files(tmp_path, damage, message):
    path = tmp_path / "a.parquet"
    path.write_bytes(damage(whole(tmp_path)))
    with pytest.raises(DataError) as caught:
        open_reader(str(path), 2, {}, None).create_shards()
    assert str(caught.value).replace(str(path), "FILE").startswith(message)


def test_no_rows_and_no_columns(tmp_path, read_all):
    with pytest.raises(DataError, match=r"a\.parquet holds no records"):
        read_all(write(tmp_path / "a.parquet", {"x": pa.array([], pa.int64())}))
    with pytest.raises(DataError, match=r"b\.parquet has no columns"):
        read_all(write(tmp_path / "b.parquet", pa.table({})))


def test_damage_in_one_row_group_leaves_the_others(tmp_path):
    path = tmp_path / "a.parquet"
    content = bytearray(whole(tmp_path))
    path.write_bytes(content)
    group = pq.ParquetFile(path).metadata.row_group(2).column(0)
    content[group.data_page_offset + group.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(content)
    reader = open_reader(str(path), 2, {}, None)
    (shard,) = reader.create_shards()
    assert len(list(reader.read_records(ReadTask(shard, 0, 2000)))) == 2000
    with pytest.raises(
        DataError,
        match=re.escape(f"{path}, row group 2 (records [2000, 3000)) cannot be decoded ("),
    ):
        list(reader.read_records(ReadTask(shard, 1999, 2001)))
    assert len(list(reader.read_records(ReadTask(shard, 3000, 4000)))) == 1000


def test_an_index_beyond_the_dictionary_is_damage(tmp_path, read_all):
    words = pa.array(["a", "b", "c", "a"] * 2).dictionary_encode()
    path = write(tmp_path / "a.parquet", {"x": words}, compression="none")
    assert [record["x"] for record in read_all(path)] == ["a", "b", "c", "a"] * 2
    content = bytearray(path.read_bytes())
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    # The last of the bytes that hold two bits an index.
    content[chunk.dictionary_page_offset + chunk.total_compressed_size - 1] = 0xFF
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=re.escape(f"{path}, row group 0 (records [0, 8)) cannot be decoded (")
    ):
        read_all(path)


def test_text_that_is_no_text(tmp_path, read_all):
    text = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")
    )
    path = write(tmp_path / "a.parquet", {"x": text})
    with pytest.raises(DataError, match=r"records \[0, 1\): column 'x' has text that is not UTF-8"):
        read_all(path)


def test_a_task_reads_its_row_groups_once(tmp_path, monkeypatch):
    from elastic.data.formats import parquet

    path = write(tmp_path / "a.parquet", {"x": range(4000)}, row_group_size=1000)
    read = []
    plain_read = parquet.ParquetReader._read_group

    def counting(self, file, layout, group):
        read.append(group)
        return plain_read(self, file, layout, group)

    monkeypatch.setattr(parquet.ParquetReader, "_read_group", counting)
    reader = open_reader(str(path), 2, {"cache_mb": 0}, None)
    (shard,) = reader.create_shards()
    assert read == []
    tasks = [(900, 1100), (1100, 1200), (1999, 2000), (0, 10)]
    for start, end in tasks:
        assert [r["x"] for r in reader.read_records(ReadTask(shard, start, end))] == list(
            range(start, end)
        )
    assert read == [0, 1, 0]


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(whole(tmp_path))
    size = path.stat().st_size
    reader = open_reader(str(path), 2, {"cache_mb": 0}, None)
    (shard,) = reader.create_shards()
    records = reader.read_records(ReadTask(shard, 0, 4000))
    next(records)
    os.truncate(path, 10_000)
    with pytest.raises(DataError, match=r"a\.parquet ends at byte 10000, but bytes"):
        list(records)
    with pytest.raises(DataError, match=f"went from {size} to 10000 bytes while the job reads it"):
        list(reader.read_records(ReadTask(shard, 0, 1)))
    path.write_bytes(whole(tmp_path))
    os.utime(path, ns=(0, 10**18))
    with pytest.raises(DataError, match="was written to while the job reads it"):
        list(reader.read_records(ReadTask(shard, 0, 1)))


def test_threads_share_a_reader(tmp_path):
    path = write(tmp_path / "a.parquet", {"x": range(4000)}, row_group_size=500)
    reader = open_reader(str(path), 2, {"cache_mb": 0}, None)
    (shard,) = reader.create_shards()

    def read(seed):
        starts = np.random.default_rng(seed).integers(0, 3900, 100).tolist()
        return all(
            [r["x"] for r in reader.read_records(ReadTask(shard, start, start + 100))]
            == list(range(start, start + 100))
            for start in starts
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", {"x": [1]})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=re.escape("pip install pyarrow;")):
        open_reader(str(path), 2, {}, None).create_shards()
