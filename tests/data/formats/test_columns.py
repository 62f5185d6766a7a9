"""Columns are the records: in any order and any split, up to one that cannot be read."""

import csv
import importlib.util
import io
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.format_table import FORMATS, IDS, make_rows

from elastic.data import open_reader
from elastic.data.base import ReadTask, columns_of, fields_of, open_task
from elastic.data.formats import columns as kept
from elastic.data.formats import parquet
from elastic.data.formats.columns import BadFieldError, Packed, inferred, merged, typed_columns
from elastic.data.formats.delimited import rows_by_arrow
from elastic.data.formats.registry import parse_options
from elastic.errors import DataError, JobSpecError
from elastic.policy.tasks.records import Columns, Places, RecordRange, Shard, Task, TaskKind

NUM_ROWS = 200
EPOCH = Shard("epoch", 0, NUM_ROWS)


def picked_task(reader, order):
    """The records of a source in an order, as a task of shuffled records has them."""
    picks = Places(reader.create_chunks().shards).pick(np.asarray(order, np.int64))
    records = RecordRange(0, 0, len(order))
    return Task(0, 0, TaskKind.TRAINING, 0, records, EPOCH, picks=picks)


def taken(reader, task, size, *, by_columns):
    """What minibatches of a task take."""
    records = task.records
    taking = open_task(reader, task, records.start, records.end, by_columns=by_columns)
    for start in range(records.start, records.end, size):
        yield taking.take(min(size, records.end - start))
    taking.close()


def assert_same(columns, records):
    """Columns hold what records hold; numbers that records have as text are numbers in columns."""
    assert len(columns) == len(records)
    for index, record in enumerate(records):
        fields = fields_of(record)
        assert list(fields) == list(columns.arrays)
        for name, value in fields.items():
            found = columns.arrays[name][index]
            if isinstance(value, str) and columns.arrays[name].dtype != object:
                assert float(value) == found
            else:
                np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("case", FORMATS, ids=IDS)
@pytest.mark.parametrize("size", [7, 64])
def test_columns_are_the_records_in_any_order(tmp_path, case, size):
    path = tmp_path / f"a.{case.suffix}"
    path.write_bytes(case.write(make_rows(NUM_ROWS)))
    reader, other = (open_reader(str(path), 30, case.params, None) for _ in range(2))
    order = np.random.default_rng(0).permutation(NUM_ROWS)
    for task in (picked_task(reader, order), picked_task(reader, np.arange(NUM_ROWS))):
        parts = list(taken(reader, task, size, by_columns=True))
        lists = list(taken(other, task, size, by_columns=False))
        for columns, records in zip(parts, lists, strict=True):
            assert_same(columns, records)
    (shard, *_) = reader.create_shards()
    task = Task(0, 0, TaskKind.PREDICTION, 0, RecordRange(0, 3, 28), shard)
    (columns,) = taken(reader, task, 25, by_columns=True)
    assert_same(columns, list(other.read_records(ReadTask(shard, 3, 28))))


@pytest.mark.parametrize("suffix", ["npz", "parquet", "csv"])
def test_arrays_belong_to_who_takes_them(tmp_path, suffix):
    case = FORMATS[IDS.index(suffix)]
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(case.write(make_rows(NUM_ROWS)))
    reader = open_reader(str(path), 30, case.params, None)
    task = picked_task(reader, np.random.default_rng(1).permutation(NUM_ROWS))
    first = list(taken(reader, task, 50, by_columns=True))
    kept_values = [columns.arrays["label"].copy() for columns in first]
    for columns in first:
        columns.arrays["label"][:] = -1
    for columns, values in zip(taken(reader, task, 50, by_columns=True), kept_values, strict=True):
        np.testing.assert_array_equal(columns.arrays["label"], values)


COLUMN_KINDS = (
    np.int64,
    np.int8,
    np.float32,
    np.float64,
    np.bool_,
    np.uint64,
    np.datetime64,
    object,
)
"""Of columns; the last but one are no numbers that are packed, and the last is text."""


def columns_of_kinds(kinds, num_rows, first):
    """Columns whose values tell which row they are of."""
    rows = np.arange(first, first + num_rows)
    return {
        field: np.array([f"{field} {row}" for row in rows] + [None], object)[:-1]
        if kind is object
        else np.stack([rows, -rows], axis=1)
        if kind is np.int8
        else (rows + number).astype("M8[s]" if kind is np.datetime64 else kind)
        for number, (field, kind) in enumerate(kinds.items())
    }


@given(
    st.lists(st.sampled_from(COLUMN_KINDS), min_size=1, max_size=6),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_rows_of_several_places_are_merged_in_any_order(kinds, sizes, is_alike, random):
    named = {f"f{number}": kind for number, kind in enumerate(kinds)}
    firsts = np.cumsum([0, *sizes]).tolist()
    chunks = []
    for first, size in zip(firsts[:-1], sizes, strict=True):
        chunks.append(columns_of_kinds(named, size, first))
        if not is_alike:
            named = dict(random.sample(sorted(named.items(), key=str), len(named)))
    order = np.array(random.sample(range(firsts[-1]), random.randint(1, firsts[-1])))
    parts = []
    for first, chunk in zip(firsts[:-1], chunks, strict=True):
        rows = order - first
        places = np.flatnonzero((rows >= 0) & (rows < len(next(iter(chunk.values())))))
        if len(places):
            parts.append((places, Packed.of(chunk).take(rows[places])))
    random.shuffle(parts)
    found = merged(parts)
    assert set(found) == set(named)
    for field, array in found.items():
        whole = np.concatenate([chunk[field] for chunk in chunks])
        np.testing.assert_array_equal(array, whole[order], strict=True)
        assert array.flags.writeable
        assert array.flags.c_contiguous


PACKED_MOST = {"all are many": (0, {0}), "few": (64 << 20, {2}), "some are many": (1000, {0, 2})}
"""Bytes that are packed at most, where a row group has 1,440 and the last one 480, and how many
blocks there are then."""


@pytest.mark.parametrize(("most", "blocks"), PACKED_MOST.values(), ids=PACKED_MOST)
def test_numbers_of_a_row_group_are_packed_unless_they_are_very_many(
    tmp_path, monkeypatch, most, blocks
):
    packed = set()

    def merged_and_told(parts):
        packed.update(len(each.blocks) for _, each in parts)
        return merged(parts)

    monkeypatch.setattr(parquet, "_PACKED_BYTES", most)
    monkeypatch.setattr(parquet, "merged", merged_and_told)
    path = tmp_path / "a.parquet"
    numbers = np.arange(NUM_ROWS)
    table = pa.table({"a": numbers, "b": numbers * 0.5, "c": numbers * 2, "d": numbers.astype(str)})
    pq.write_table(table, path, row_group_size=60)
    reader = open_reader(str(path), 30, {}, None)
    order = np.random.default_rng(0).permutation(NUM_ROWS)
    (columns,) = taken(reader, picked_task(reader, order), NUM_ROWS, by_columns=True)
    assert list(columns.arrays) == ["a", "b", "c", "d"]
    for field, values in (("a", order), ("b", order * 0.5), ("c", order * 2)):
        np.testing.assert_array_equal(columns.arrays[field], values)
    assert list(columns.arrays["d"]) == [str(number) for number in order]
    assert len({columns.arrays[field].ctypes.data for field in "abc"}) == 3
    assert packed == blocks


def test_types_are_those_of_the_first_file(tmp_path):
    rows = "whole,real,missing,code,city\n1,1,,007,Ulm\n-2,1.5,3,010,\n"
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "b.csv").write_text("whole,real,missing,code,city\n7,2,4,1,9\n")
    reader = open_reader(str(tmp_path), 30, {"header": True}, None)
    (columns,) = taken(reader, picked_task(reader, [2, 0, 1]), 3, by_columns=True)
    kinds = {name: str(array.dtype) for name, array in columns.arrays.items()}
    assert kinds == {
        "whole": "int64", "real": "float64", "missing": "float64", "code": "object",
        "city": "object",
    }  # fmt: skip
    assert columns.arrays["whole"].tolist() == [7, 1, -2]
    np.testing.assert_array_equal(columns.arrays["missing"], [4, np.nan, 3])
    assert columns.arrays["code"].tolist() == ["1", "007", "010"]
    assert columns.arrays["city"].tolist() == ["9", "Ulm", ""]


def test_types_can_be_declared(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,z\n1,2,3\n4,5,6\n")
    params = {"types": {"x": "str", "*": "float32", "z": "uint8"}}
    reader = open_reader(str(tmp_path / "a.csv"), 30, params, None)
    (columns,) = taken(reader, picked_task(reader, [0, 1]), 2, by_columns=True)
    assert columns.arrays["x"].tolist() == ["1", "4"]
    assert [columns.arrays[name].dtype for name in "yz"] == [np.float32, np.uint8]


@pytest.mark.parametrize(
    ("types", "error", "message"),
    [
        ({"z": "int64"}, DataError, "has no column 'z', which --data_reader_params types names"),
        ({"x": "object"}, JobSpecError, "types={x: object} is no type of a column"),
        ({"x": "complex64"}, JobSpecError, "types={x: complex64} is no type of a column"),
        ("x", JobSpecError, "types=x names no columns"),
    ],
)
def test_types_that_cannot_be(tmp_path, types, error, message):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")

    def read():
        reader = open_reader(str(tmp_path / "a.csv"), 30, {"types": types}, None)
        return list(taken(reader, picked_task(reader, [0]), 1, by_columns=True))

    with pytest.raises(error, match=re.escape(message)):
        read()


BAD_ROW = 137
BAD = {
    "a number of another type": ("1.5,2", "column 'x' holds '1.5', which is no int64"),
    "a missing number": (",2", "column 'x' is empty"),
    "a number that is too large": (f"{2**63},2", f"column 'x' holds '{2**63}', which is no int64"),
    "an underscore": ("1_0,2", "column 'x' holds '1_0', which is no int64"),
    "another number of fields": ("1", "1 fields where the file has 2 columns"),
}


@pytest.mark.parametrize(("row", "message"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("has_arrow", [True, False])
@pytest.mark.parametrize("is_shuffled", [True, False])
def test_a_bad_row_is_named_and_those_before_it_come(
    tmp_path, monkeypatch, row, message, has_arrow, is_shuffled
):
    if not has_arrow:
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    rows = [f"{index},2" for index in range(NUM_ROWS)]
    rows[BAD_ROW] = row
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{each}\n" for each in rows))
    params = {"types": {"x": "int64"}}
    reader = open_reader(str(path), 30, params, None)
    rng = np.random.default_rng(2)
    order = rng.permutation(NUM_ROWS) if is_shuffled else np.arange(NUM_ROWS)
    at = int(np.flatnonzero(order == BAD_ROW)[0])
    taking = open_task(reader, picked_task(reader, order), 0, NUM_ROWS, by_columns=True)
    before = [int(taking.take(1).arrays["x"][0]) for _ in range(at)]
    assert before == order[:at].tolist()
    where = f"{path}, line {BAD_ROW + 2} (record {BAD_ROW}): {message}"
    with pytest.raises(DataError, match=re.escape(where)):
        taking.take(1)
    assert len(taking.take(1)) == 0 or is_shuffled
    # The others of its chunk can be read.
    again = open_task(reader, picked_task(reader, order[at + 1 :]), 0, NUM_ROWS - at - 1,
                      by_columns=True)  # fmt: skip
    after = again.take(NUM_ROWS - at - 1)
    assert after.arrays["x"].tolist() == order[at + 1 :].tolist()


def test_a_null_is_an_error_of_its_record_alone(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": pa.array([1, 2, None, 4])}), path)
    reader = open_reader(str(path), 30, {}, None)
    taking = open_task(reader, picked_task(reader, [3, 1, 2, 0]), 0, 4, by_columns=True)
    assert taking.take(2).arrays["x"].tolist() == [4, 2]
    with pytest.raises(DataError, match=r"record 2: column 'x' has no value \(null\)"):
        taking.take(1)


def test_lists_that_may_differ_in_length_are_objects_always(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ids": pa.array([[1, 2], [3, 4], [5]])}), path)
    reader = open_reader(str(path), 30, {}, None)
    for order in ([0, 1], [1, 2]):
        (columns,) = taken(reader, picked_task(reader, order), 2, by_columns=True)
        ids = columns.arrays["ids"]
        assert (ids.dtype, ids.shape) == (np.dtype(object), (2,))
        assert [each.tolist() for each in ids] == [[[1, 2], [3, 4], [5]][index] for index in order]


def test_columns_that_are_not_kept_are_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "_FIRST_PICKED", 8)
    path = tmp_path / "a.csv"
    path.write_text("x\n" + "".join(f"{index}\n" for index in range(NUM_ROWS)))
    reader = open_reader(str(path), 30, {"cache_mb": 0}, None)
    order = np.random.default_rng(3).permutation(NUM_ROWS)
    parts = list(taken(reader, picked_task(reader, order), 9, by_columns=True))
    assert np.concatenate([part.arrays["x"] for part in parts]).tolist() == order.tolist()


WINDOW_CHUNKS, CHUNK_ROWS = 16, 512


def decoded_between(max_bytes, num_windows=6):
    """Take minibatches of 1,024 records shuffled in windows of 8,192.

    Returns the numbers of records taken, and which chunks were decoded for each minibatch.
    """
    chunks = [
        Shard("a.csv", start, start + CHUNK_ROWS)
        for start in range(0, num_windows * WINDOW_CHUNKS * CHUNK_ROWS, CHUNK_ROWS)
    ]
    decoded = []

    def read(task):
        decoded.append(task.shard)
        yield Columns({"x": np.arange(task.start, task.end)}, task.end - task.start)

    window = np.arange(WINDOW_CHUNKS * CHUNK_ROWS)
    rng = np.random.default_rng(4)
    order = np.concatenate(
        [number * len(window) + rng.permutation(window) for number in range(num_windows)]
    )
    # A task ends within a window, as most do.
    order = order[: -len(window) // 2]
    blocks = kept.ColumnPicking(read, max_bytes).read(Places(chunks).pick(order))
    found, each = [], []
    for block in blocks:
        found.append(block.arrays["x"])
        each.append(list(decoded))
        decoded.clear()
    np.testing.assert_array_equal(np.concatenate(found), order)
    return list(map(len, found)), each


def test_chunks_of_a_window_are_decoded_one_by_one_before_it_begins():
    sizes, decoded = decoded_between(1 << 30)
    # Sixteen belong to each window, that is to eight minibatches.
    assert max(map(len, decoded[2:])) <= 4
    assert sizes[:-3] == [1024] * (len(sizes) - 3)
    every = [shard for each in decoded for shard in each]
    assert len(every) == len(set(every)) == 6 * WINDOW_CHUNKS


@pytest.mark.parametrize("num_windows", [2, 3, 6])
def test_little_is_decoded_twice_where_few_chunks_are_kept(num_windows):
    _, decoded = decoded_between(num_windows * WINDOW_CHUNKS * CHUNK_ROWS * 8)
    assert sum(map(len, decoded)) <= 1.5 * 6 * WINDOW_CHUNKS


FIELDS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.floats(width=32).map(repr),
    st.text(" \t+-.eExX0123456789abcdefnaity_", max_size=6),
    st.sampled_from(["", " ", "nan", "NaN", "inf", "-Infinity", "1e999", "0x1F", "٣", "é"]),
)
KINDS = st.sampled_from([None, *map(np.dtype, ("int8", "uint8", "int64", "uint64", "f4", "f8"))])


@given(st.lists(KINDS, min_size=1, max_size=3).flatmap(
    lambda kinds: st.tuples(
        st.just(kinds),
        st.lists(st.tuples(*[FIELDS] * len(kinds)), min_size=1, max_size=4),
    )
))  # fmt: skip
def test_arrow_reads_what_python_reads_or_nothing(drawn):
    kinds, rows = drawn
    named = {f"c{index}": kind for index, kind in enumerate(kinds)}
    text = "".join(f"{','.join(row)}\n" for row in rows)
    found = list(csv.reader(io.StringIO(text, newline="")))
    if any(len(row) != len(kinds) for row in found) or not found:
        return
    read = rows_by_arrow(text.encode(), named, ",", len(found))
    if read is None:
        return
    expected = typed_columns(named, found)
    for name, array in expected.arrays.items():
        assert array.dtype == read.arrays[name].dtype
        np.testing.assert_array_equal(read.arrays[name], array)


def test_arrow_reads_plain_numbers_and_text():
    named = {"a": np.dtype(np.int64), "b": np.dtype(np.float32), "c": None}
    read = rows_by_arrow(b"1,0.1,x\r\n2,,\r\n", named, ",", 2)
    assert read is not None, "or all of it is read by Python"
    assert read.arrays["a"].tolist() == [1, 2]
    np.testing.assert_array_equal(read.arrays["b"], np.array([0.1, np.nan], np.float32))
    assert read.arrays["c"].tolist() == ["x", ""]


def test_of_several_bad_fields_that_of_the_first_row_is_told():
    kinds = {"a": np.dtype(np.int64), "b": np.dtype(np.int64)}
    with pytest.raises(BadFieldError) as caught:
        typed_columns(kinds, [("1", "2"), ("1", "x"), ("y", "2")])
    assert (caught.value.row, caught.value.name) == (1, "b")


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (["1", "-2"], "int64"),
        (["1", ""], "float64"),
        (["1", "2.0"], "float64"),
        (["1", str(2**63)], "float64"),
        (["01", "2"], "None"),
        (["0", "-0"], "int64"),
        (["", " "], "None"),
        (["1_0"], "None"),
        (["1", "x"], "None"),
    ],
)
def test_what_a_column_seems_to_hold(fields, kind):
    assert str(inferred(["x"], [[field] for field in fields])["x"]) == kind


def test_records_without_columns_become_such():
    columns = columns_of(
        [{"x": np.ones(2), "n": 1, "s": "a"}, {"x": np.zeros(2), "n": 2, "s": "b"}]
    )
    assert columns.arrays["x"].tolist() == [[1, 1], [0, 0]]
    assert columns.arrays["n"].dtype == np.int64
    assert columns.arrays["s"].dtype == object
    assert columns_of([b"a\0", b"b"]).arrays["value"].tolist() == [b"a\0", b"b"]
    assert columns_of([("1", 2)]).arrays["c1"].tolist() == [2]
    ragged = columns_of([{"x": [1]}, {"x": [1, 2]}]).arrays["x"]
    assert [each.tolist() for each in ragged] == [[1], [1, 2]]


def test_records_that_are_no_columns():
    with pytest.raises(DataError, match="a record has the fields y, but the first one"):
        columns_of([{"x": 1}, {"y": 1}])
    with pytest.raises(DataError, match=f"field 'x' holds {2**60} and floating-point numbers"):
        columns_of([{"x": 2**60}, {"x": 0.5}])


def test_parts_of_columns():
    columns = Columns({"x": np.arange(5)}, 5)
    assert columns.part(3, 9).arrays["x"].tolist() == [3, 4]
    assert len(columns.part(5, 6)) == 0


def test_options_of_types():
    assert parse_options({"types": {"x": "str"}}).types == (("x", None),)


@pytest.mark.parametrize(
    "data", [b"0x1F\n", b"0X1F\n", b'"1"\n', b"1_0\n", b"\n", b"1.0\n", b"1\n2\n"]
)
def test_what_arrow_may_read_otherwise_is_left_to_python(data):
    assert rows_by_arrow(data, {"a": np.dtype(np.int64)}, ",", 1) is None
