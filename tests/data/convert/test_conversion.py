"""What is written is what was read, whole, once, and in files of the asked size."""

import errno
import fcntl
import re
import shutil
from contextlib import closing

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.converting import convert

from elastic.data import base
from elastic.data.base import unrounded
from elastic.data.convert import ConversionFolder, Plan, _cast, cut_work, write_units
from elastic.data.inspection import forms_of
from elastic.data.writers import WRITERS
from elastic.errors import DataError, ModelDefError

MODULE = """\
import numpy as np


def prepare_data(source, count=5, fails_at=None):
    for index in range(count):
        if index == fails_at:
            raise RuntimeError("boom")
        yield {"x": np.full((2, 3), index, np.float32), "name": f"{source} {index}"}


def wrong():
    pass
"""


@pytest.fixture
def zoo(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / f"net_{tmp_path.name}.py").write_text(MODULE)
    return {"model_zoo": str(tmp_path / "zoo"), "model_def": f"net_{tmp_path.name}.Model"}


@pytest.fixture
def tables(tmp_path):
    """Three files of together 25 records."""
    for name, numbers in {"a": range(12), "b": range(12, 13), "c": range(13, 25)}.items():
        rows = "".join(f"{number},{number / 2},n{number}\n" for number in numbers)
        (tmp_path / f"{name}.csv").write_text(f"i,x,name\n{rows}")
    return str(tmp_path / "*.csv")


def same(record, expected):
    return {name: np.asarray(value).tolist() for name, value in record.items()} == expected


@pytest.mark.parametrize("num_processes", [1, 2])
@pytest.mark.parametrize("format_name", ["npz", "parquet", "csv"])
def test_files_of_another_format(tmp_path, tables, read_all, format_name, num_processes):
    out = tmp_path / "out"
    types = {"i": "int64", "x": "float32"}
    plan = Plan((tables,), str(out), format_name, records_per_file=10, types=types)
    manifest = convert(plan, num_processes)
    assert manifest["num_records"] == 25
    suffix = WRITERS[format_name].suffix
    assert manifest["files"] == {
        f"part-{index:05}{suffix}": count for index, count in enumerate((10, 10, 5))
    }
    assert {path.name for path in out.iterdir()} == {*manifest["files"], "_manifest.json"}
    as_text = str if format_name == "csv" else lambda value: value
    params = {"header": True} if format_name == "csv" else {}
    for number, record in enumerate(read_all(out, **params)):
        expected = {"i": as_text(number), "x": as_text(number / 2), "name": f"n{number}"}
        assert same(record, expected)
    assert number == 24


@pytest.mark.parametrize("num_processes", [1, 2])
def test_prepare_data_of_the_user(tmp_path, zoo, read_all, num_processes):
    out = tmp_path / "out"
    plan = Plan(("s1", "s2"), str(out), "npz", 2, prepare_params={"count": 3}, **zoo)
    manifest = convert(plan, num_processes)
    assert list(manifest["files"].items()) == [
        ("part-00000-00000.npz", 2),
        ("part-00000-00001.npz", 1),
        ("part-00001-00000.npz", 2),
        ("part-00001-00001.npz", 1),
    ]
    assert manifest["fields"] == {"x": "float32 (2, 3)", "name": "str"}
    assert [str(record["name"]) for record in read_all(out)] == [
        f"{source} {index}" for source in ("s1", "s2") for index in range(3)
    ]


VALUES = {
    "number": 7,
    "float": np.float32(0.1),
    "flag": np.bool_(True),
    "text": 'a "quote",\nand a line',
    "vector": np.arange(3, dtype=np.int16),
    "image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    "bytes": b"\0\xff\0",
    "file": 1,
}


@pytest.mark.parametrize(
    ("format_name", "names"),
    [
        ("npz", ["number", "float", "flag", "text", "vector", "image", "file"]),
        ("parquet", list(VALUES)),
        ("csv", ["number", "float", "text"]),
    ],
)
def test_values_come_back_as_they_were(tmp_path, read_all, format_name, names):
    record = {name: VALUES[name] for name in names}
    path = tmp_path / f"a{WRITERS[format_name].suffix}"
    WRITERS[format_name].write([record, record], path)
    params = {"header": True} if format_name == "csv" else {}
    for found in read_all(path, **params):
        for name in names:
            if format_name == "csv":
                assert type(VALUES[name])(found[name]) == VALUES[name]
            else:
                assert np.asarray(found[name]).dtype == np.asarray(VALUES[name]).dtype
                assert np.array_equal(found[name], VALUES[name])


def test_arrays_of_any_length_in_parquet(tmp_path, read_all):
    records = [{"x": np.arange(count)} for count in (2, 0, 3)]
    WRITERS["parquet"].write(records, tmp_path / "a.parquet")
    assert [r["x"].tolist() for r in read_all(tmp_path / "a.parquet")] == [[0, 1], [], [0, 1, 2]]


HASH = 2**63 + 1
ODD = 2**53 + 1
"""No number of double precision, as that above."""


@pytest.mark.parametrize("format_name", ["npz", "parquet"])
@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([HASH, 5], "uint64"),
        ([5, HASH], "uint64"),
        ([np.uint64(5), -1], "int64"),
        ([[1, HASH], [2, 3]], "uint64"),
        ([[[1], [HASH]], ((2,), (3,))], "uint64"),
        ([np.array([True, False]), np.array([1, HASH], np.uint64)], "uint64"),
        ([2**53, 0.5], "float64"),
        ([2**60, float("inf")], "float64"),
        ([[2**60, 0.5], [1, 2]], "float64"),
        ([np.float32(0.5), 7], "float64"),
        ([1e300, float("nan")], "float64"),
    ],
)
def test_numbers_of_several_types_stay_what_they_are(
    tmp_path, read_all, format_name, values, dtype
):
    path = tmp_path / f"a.{format_name}"
    forms = WRITERS[format_name].write([{"x": value} for value in values], path)
    assert forms["x"].kind == dtype
    found = [record["x"] for record in read_all(path)]
    assert {item.dtype.name for item in found} == {dtype}
    for one, value in zip(found, values, strict=True):
        np.testing.assert_equal(one.tolist(), np.asarray(value, object).tolist())


@pytest.mark.parametrize("format_name", ["npz", "parquet"])
@pytest.mark.parametrize(
    ("values", "index", "number"),
    [
        ([0.5, ODD], 1, ODD),
        ([HASH, -1], 0, HASH),
        ([0.5, 2**63 - 1], 1, 2**63 - 1),
        ([0.5, 2**64 - 1], 1, 2**64 - 1),
        ([[1, 2], [ODD, 0.5]], 1, ODD),
        ([[0.5, 1.5], [0.5, ODD]], 1, ODD),
        ([[-1, HASH], [1, 2]], 0, HASH),
        ([np.zeros(2), np.array([0, ODD])], 1, ODD),
        ([1j, ODD], 1, ODD),
    ],
)
def test_numbers_that_would_be_rounded_are_refused(tmp_path, format_name, values, index, number):
    message = f"record {index}: field 'x' holds {number}, which would be rounded, .* --type x=..."
    with pytest.raises(DataError, match=message):
        WRITERS[format_name].write([{"x": value} for value in values], tmp_path / "a")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([[ODD], [], [1, 2]], "int64"),
        ([[], [ODD], [HASH, 2]], "uint64"),
        ([[], []], "float64"),
        ([[0.5], [1, 2]], "float64"),
        ([[True], []], "bool"),
        ([[0.5], [], [1e300, 2**60]], "float64"),
    ],
)
def test_lists_of_any_length_have_one_type(tmp_path, read_all, values, dtype):
    forms = WRITERS["parquet"].write([{"x": value} for value in values], tmp_path / "a.parquet")
    assert str(forms["x"]) == f"{dtype} (*)"
    found = [record["x"] for record in read_all(tmp_path / "a.parquet")]
    assert [item.tolist() for item in found] == values
    assert {item.dtype.name for item in found} == {dtype}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "longdouble"])
@pytest.mark.parametrize("number", [float("inf"), 2.0**60])
def test_large_numbers_in_lists_leave_the_type_of_the_field_alone(tmp_path, dtype, number):
    kinds = set()
    for each in (1, number):
        record = {"x": [np.array([1, 2], dtype), np.array([each, 3], dtype)]}
        kinds.add(WRITERS["npz"].write([record], tmp_path / f"{each}.npz")["x"].kind)
    assert kinds == {np.dtype(dtype).name}


def test_half_precision_in_lists_is_written_without_a_warning(tmp_path):
    # Warnings are errors here.
    forms = WRITERS["npz"].write([{"x": [np.float16(1), np.float16("inf")]}], tmp_path / "a.npz")
    assert forms["x"].kind == "float16"


def test_all_lists_of_whole_numbers_with_and_without_a_sign_have_one_type():
    values = [[np.int64(1), np.uint64(2)], [0.5, float("inf")], [np.int64(1), np.uint64(HASH)]]
    arrays = unrounded(values, [np.asarray(value) for value in values])
    assert [array.dtype.name for array in arrays] == ["uint64", "float64", "uint64"]
    assert arrays[2].tolist() == [1, HASH]


def test_only_lists_with_large_numbers_are_made_again(monkeypatch):
    again = []
    made_again = base._made_again

    def note(index, *args):
        again.append(index)
        return made_again(index, *args)

    monkeypatch.setattr(base, "_made_again", note)
    values = [[], [0.5], [float("inf"), float("nan")], [-1e20, 1], [], [2], [3, 2.0**53], [1j]]
    arrays = [np.asarray(value) for value in values]
    assert all(one is other for one, other in zip(unrounded(values, arrays), arrays, strict=True))
    assert again == [3, 6]


def test_lists_of_different_types_are_refused_where_one_would_be_rounded(tmp_path):
    with pytest.raises(DataError, match=f"record 1: field 'x' holds {ODD}, which would be rounded"):
        WRITERS["parquet"].write([{"x": [0.5]}, {"x": [1, ODD]}], tmp_path / "a")


@pytest.mark.parametrize(
    ("lengths", "others"), [((2, 0, 3), (4,)), ((4,), (2, 0, 3)), ((2, 2), (2, 2))]
)
def test_files_of_arrays_that_happen_to_be_of_one_length(tmp_path, read_all, lengths, others):
    for name, counts in (("a", lengths), ("b", others)):
        records = [{"x": np.arange(count)} for count in counts]
        WRITERS["parquet"].write(records, tmp_path / f"{name}.parquet")
    assert [len(record["x"]) for record in read_all(tmp_path)] == [*lengths, *others]


def test_row_groups_are_small(tmp_path):
    records = [{"x": np.zeros(1 << 18, np.float32)} for _ in range(32)]
    WRITERS["parquet"].write(records, tmp_path / "a.parquet")
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 4


@pytest.mark.parametrize(
    "lines", [["a", "", "é"], ["\ufeffa", "\ufeffb"], ["\ufeff"], ["\ufeff\ufeffa", "b"]]
)
def test_lines(tmp_path, read_all, lines):
    WRITERS["lines"].write(lines, tmp_path / "a.txt")
    assert read_all(tmp_path / "a.txt") == lines


def test_tfrecord(tmp_path, read_all):
    WRITERS["tfrecord"].write([b"a", b"", {"value": b"\xff\0"}], tmp_path / "a.tfrecord")
    assert read_all(tmp_path / "a.tfrecord") == [b"a", b"", b"\xff\0"]


@pytest.mark.parametrize(
    ("format_name", "records", "message"),
    [
        ("tfrecord", ["a"], "record 0 is a str, not one bytes object"),
        ("npz", [{"x": b"a"}], "field 'x' holds bytes, which arrays do not keep whole"),
        ("npz", [{"x": [1]}, {"x": [1, 2]}], "record 1: field 'x' has the shape (2,), but the"),
        ("npz", [{"x": None}], "field 'x' holds NoneType, which is no number, text or array"),
        ("npz", [{"x": 1}, {"y": 1}], "record 1 has the fields y, but the first one has x"),
        ("parquet", [{"x": {}}], "field 'x' holds dict, which is no"),
        ("parquet", [{"x": np.zeros((1, 2))}, {"x": np.zeros((2, 2))}], "record 1: field 'x' has"),
        ("npz", [{"x": "a"}, {"x": 1}], "record 1: field 'x' holds 1 among text: make all of it"),
        ("npz", [{"x": [1, "a"]}], "record 0: field 'x' holds 1 among text"),
        ("npz", [{"x": "a"}, {"x": "b\0"}], "record 1: field 'x' holds text that ends with a zero"),
        ("parquet", [{"x": "a"}, {"x": None}], "record 1: field 'x' holds None, but the first re"),
        ("parquet", [{"x": "a"}, {"x": float("nan")}], "record 1: field 'x' holds nan, but the"),
        ("parquet", [{"x": "a"}, {"x": b"b"}], "record 1: field 'x' holds b'b', but the first"),
        ("parquet", [{"x": b"a"}, {"x": None}], "record 1: field 'x' holds None, but the first"),
        ("parquet", [{"x": ["a", "b"]}], "field 'x' holds str (2), which no reader takes from Par"),
        ("parquet", [{"x": ["a"]}, {"x": []}], "field 'x' holds str (*), which no reader takes"),
        ("parquet", [{"x": [["a"]]}], "field 'x' holds str (1, 1), which no reader takes from Par"),
        ("parquet", [{"x": [b"a"]}], "record 0: field 'x' holds bytes in a list or among other"),
        ("parquet", [{"x": [b"a"]}, {"x": []}], "record 0: field 'x' holds bytes in a list or"),
        ("parquet", [{"x": 1}, {"x": b"2"}], "record 1: field 'x' holds bytes in a list or among"),
        ("npz", [{"x": [b"ab\0", b"c"]}], "record 0: field 'x' holds bytes in a list or among oth"),
        ("npz", [{"x": 1}, {"x": b"2"}], "record 1: field 'x' holds bytes in a list or among"),
        ("npz", [{"x": [1]}, {"x": [[1], []]}], "record 1: field 'x' holds lists of different len"),
        ("parquet", [{"x": [[1, 2], [3]]}], "record 0: field 'x' holds lists of different lengths"),
        ("csv", [{"x": [[1, 2], [3]]}], "record 0: field 'x' holds list, which no field of CSV"),
        ("parquet", [{"x": "a"}, {"x": "\ud800"}], r"record 1: field 'x' holds '\ud800', which is"),
        ("parquet", [{"x": ["a", "\ud800"]}], r"record 0: field 'x' holds '\ud800', which is no"),
        ("csv", [{"y": 1, "x": "a"}, {"y": 2, "x": "\ud800"}], r"record 1: field 'x' holds '\ud8"),
        ("lines", ["a", "b\ud800"], r"record 1: field 'text' holds 'b\ud800', which is no text"),
        *(
            (name, [record], f"record 0: the name of the field {key} is no text: name it")
            for name in ("npz", "parquet", "csv")
            for record, key in (({0: 1.0}, "0"), ({"\ud800": 1.0}, r"'\ud800'"))
        ),
        ("npz", [{"0": 1}, {0: 1, None: 2}], "record 1 has the fields 0, None, but the first one"),
        ("npz", [{"x": np.datetime64("2020")}, {"x": 1}], "field 'x' holds datetime64[Y], int64,"),
        ("csv", [{"x": [1, 2]}], "record 0: field 'x' holds int64 (2), which no field of CSV can"),
        ("csv", [{"x": None}], "record 0: field 'x' holds NoneType, which no field of CSV can be"),
        ("lines", [{"a": "b", "c": "d"}], "record 0 is a dict, not one text"),
        ("lines", [1], "record 0 is a int, not one text"),
        ("lines", ["a\nb"], "record 0 holds a line end, so it would become two"),
    ],
)
def test_what_a_format_cannot_hold(tmp_path, format_name, records, message):
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        WRITERS[format_name].write(records, tmp_path / "a")


@pytest.mark.parametrize("format_name", ["npz", "parquet"])
@pytest.mark.parametrize(
    ("shapes", "kind", "advice"),
    [
        ([(8, 4, 3), (4, 8, 3)], np.uint8, "images of a folder with --data_reader_params size=64"),
        ([(8, 4), (4, 8)], np.uint8, "images of a folder with --data_reader_params size=64"),
        ([(8, 4), (4, 8)], np.float32, "or make them of one dimension and choose --format parquet"),
    ],
)
def test_what_helps_against_different_shapes(tmp_path, format_name, shapes, kind, advice):
    records = [{"x": np.zeros(shape, kind)} for shape in shapes]
    with pytest.raises(DataError) as caught:
        WRITERS[format_name].write(records, tmp_path / "a")
    assert str(caught.value) == (
        f"record 1: field 'x' has the shape {shapes[1]}, but the first record has {shapes[0]}: "
        f"give all one shape, {advice}"
    )


def test_lists_of_any_length_are_for_parquet(tmp_path, read_all):
    records = [{"x": np.zeros(1)}, {"x": np.zeros(2)}]
    with pytest.raises(DataError, match=r"shape, or choose --format parquet$"):
        WRITERS["npz"].write(records, tmp_path / "a.npz")
    WRITERS["parquet"].write(records, tmp_path / "a.parquet")
    assert [len(record["x"]) for record in read_all(tmp_path / "a.parquet")] == [1, 2]


def test_lists_of_text_of_any_length_are_for_no_format(tmp_path):
    with pytest.raises(DataError, match=r"first record has \(1,\): give all one shape$"):
        WRITERS["npz"].write([{"x": ["a"]}, {"x": ["a", "b"]}], tmp_path / "a.npz")


def test_a_conversion_that_was_interrupted_goes_on(tmp_path, tables, read_all):
    out = tmp_path / "out"
    plan = Plan((tables,), str(out), "npz", records_per_file=4, types={"i": "int64"})
    convert(plan, stop_after=5)
    first = (out / "part-00000.npz").stat().st_mtime_ns
    with pytest.raises(DataError, match="is an unfinished conversion, which lacks records"):
        read_all(out)
    with pytest.raises(DataError, match="unfinished conversion of other sources or with other"):
        convert(Plan((tables,), str(out), "npz", records_per_file=5))
    convert(plan)
    assert (out / "part-00000.npz").stat().st_mtime_ns == first
    assert sorted(int(record["i"]) for record in read_all(out)) == list(range(25))


def test_a_folder_that_another_run_fills_is_left_alone(tmp_path, tables, read_all):
    out = tmp_path / "out"
    plan = Plan((tables,), str(out), records_per_file=20)
    units = cut_work(plan).units
    with closing(ConversionFolder(plan, units)) as first:
        first.open()
        for unit, file in write_units(plan, units, 1):
            with pytest.raises(DataError, match=f"another conversion is filling {out}: wait"):
                convert(plan)
            if file is not None:
                first.finish_unit(unit.index, [file])
        first.finish()
        with pytest.raises(DataError, match="is not empty"):
            convert(plan)
    assert len(read_all(out)) == 25


@pytest.mark.parametrize("is_open_elsewhere", [False, True])
def test_a_conversion_ends_well_where_open_files_stay_in_their_folder(
    tmp_path, tables, read_all, monkeypatch, is_open_elsewhere
):
    remove = shutil.rmtree

    def remove_on_nfs(folder, ignore_errors=False):
        with (folder / "lock").open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_open = is_open_elsewhere
            except BlockingIOError:
                is_open = True
        if not is_open:
            remove(folder, ignore_errors)
            return
        (folder / "lock").rename(folder / ".nfs0001")
        if not ignore_errors:
            raise OSError(errno.ENOTEMPTY, "Directory not empty")

    monkeypatch.setattr(shutil, "rmtree", remove_on_nfs)
    out = tmp_path / "out"
    assert convert(Plan((tables,), str(out)))["num_records"] == 25
    assert (out / ".finished").exists() == is_open_elsewhere
    assert len(read_all(out)) == 25
    with pytest.raises(DataError, match=f"{out} is not empty"):
        convert(Plan((tables,), str(out)))


def test_a_run_that_finishes_while_another_one_begins(tmp_path, tables, read_all, monkeypatch):
    out = tmp_path / "out"
    plan = Plan((tables,), str(out))
    convert(plan, stop_after=0)
    take_lock = ConversionFolder._take_lock

    def take_late(folder):
        monkeypatch.undo()
        convert(plan)
        take_lock(folder)

    monkeypatch.setattr(ConversionFolder, "_take_lock", take_late)
    with pytest.raises(DataError, match="another conversion is filling"):
        convert(plan)
    assert len(read_all(out)) == 25


def test_a_file_that_is_lost_meanwhile_is_made_again(tmp_path, tables, read_all, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    # Where the file system has no locks, this is how another run shows.
    monkeypatch.setattr(fcntl, "flock", refuse)
    out = tmp_path / "out"
    plan = Plan((tables,), str(out), records_per_file=10)
    convert(plan, stop_after=4)
    units = cut_work(plan).units
    with closing(ConversionFolder(plan, units)) as folder:
        assert folder.open() == {0, 1}
        (out / "part-00001.npz").unlink()
        with pytest.raises(DataError, match=r"has lost part-00001\.npz, which this conversion had"):
            folder.finish()
    assert not (out / "_manifest.json").exists()
    assert convert(plan)["num_records"] == 25
    assert len(read_all(out)) == 25


def test_what_a_broken_unit_left_is_removed(tmp_path, zoo, read_all):
    out = tmp_path / "out"
    plan = Plan(("s1",), str(out), "npz", 1, prepare_params={"count": 3, "fails_at": 2}, **zoo)
    with pytest.raises(DataError, match=r"^prepare_data\('s1'\) failed: RuntimeError: boom \("):
        convert(plan)
    assert len(list(out.glob("part-*"))) == 2
    # Nothing of it is finished, so another plan may take its place.
    convert(Plan(("s1",), str(out), "npz", 2, prepare_params={"count": 1}, **zoo))
    assert len(read_all(out)) == 1


def test_a_folder_with_something_else_is_left_alone(tmp_path, tables):
    with pytest.raises(DataError, match="is not empty: name a new folder"):
        convert(Plan((tables,), str(tmp_path)))
    with pytest.raises(DataError, match="is no folder to write to"):
        convert(Plan((tables,), str(tmp_path / "a.csv")))


@pytest.mark.parametrize(
    ("was", "becomes", "other"),
    [
        ("np.float32)", 'np.int64 if source == "s2" else np.float32)', "int64 (2, 3)"),
        ("(2, 3)", '(2, 4 if source == "s2" else 3)', "float32 (2, 4)"),
    ],
)
def test_files_must_agree_in_what_they_hold(tmp_path, zoo, was, becomes, other):
    text = MODULE.replace(was, becomes)
    (tmp_path / "zoo" / f"net_{tmp_path.name}.py").write_text(text)
    with pytest.raises(
        DataError,
        match=re.escape(
            f"field 'x' is float32 (2, 3) in part-00000-00000.npz, but {other} in "
            "part-00001-00000.npz: make it the same everywhere, as with --type x=..."
        ),
    ):
        convert(Plan(("s1", "s2"), str(tmp_path / "out"), **zoo))


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_function_that_ends_the_process_has_failed(tmp_path, zoo, num_processes):
    text = MODULE.replace('raise RuntimeError("boom")', "raise SystemExit(0)")
    (tmp_path / "zoo" / f"net_{tmp_path.name}.py").write_text(text)
    plan = Plan(("s1", "s2"), str(tmp_path / "out"), prepare_params={"fails_at": 2}, **zoo)
    with pytest.raises(DataError, match=r"prepare_data\('s[12]'\) failed: SystemExit"):
        convert(plan, num_processes)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "has no absent: define prepare_data(source, **params) that returns records"),
        ("wrong", "wrong() ("),
    ],
)
def test_a_module_without_a_usable_function(tmp_path, zoo, name, message):
    with pytest.raises(ModelDefError, match=re.escape(message)):
        convert(Plan(("s1",), str(tmp_path / "out"), prepare_data=name, **zoo))


def test_a_value_that_is_not_of_the_asked_type(tmp_path, tables):
    with pytest.raises(
        DataError, match=r"\.npz: field 'name' holds 'n0', which is no float32: choo"
    ):
        convert(Plan((tables,), str(tmp_path / "out"), types={"*": "float32"}))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ("7", "int64", 7),
        ("0.5", "float32", 0.5),
        ([1, HASH], "uint64", [1, HASH]),
        ([ODD, 0.5], "int64", None),
        ([-1, HASH], "int64", None),
        ([ODD, 0.5], "float64", [2**53, 0.5]),
        ("False", "bool", False),
        (7, "str", "7"),
        (np.arange(3.0), "uint8", [0, 1, 2]),
        ("18446744073709551615", "uint64", 2**64 - 1),
        ("18446744073709551616", "uint64", None),
        ("-1", "uint64", None),
        ("-1", "uint8", None),
        ("300", "uint8", None),
        (-1, "uint16", None),
        (0.5, "int64", None),
        (float("nan"), "int64", None),
        (np.array([1, 1e30]), "int32", None),
        ("0.5", "int64", None),
        ("maybe", "bool", None),
        (b"caf\xc3\xa9", "str", "café"),
        (b"\xff", "str", None),
        (70000.0, "float16", None),
        ("1e39", "float32", None),
        (float("inf"), "float16", float("inf")),
        ("inf", "float32", float("inf")),
        (1 + 2j, "float64", None),
        (1 + 2j, "int64", None),
    ],
)
def test_types_keep_the_value(tmp_path, zoo, value, dtype, expected):
    if expected is None:
        with pytest.raises(DataError, match=f"field 'x' holds .*, which is no {dtype}: choose"):
            _cast({"x": value}, {"x": dtype})
        return
    found = _cast({"x": value}, {"*": dtype})["x"]
    assert np.asarray(found).tolist() == expected
    assert dtype == "str" or found.dtype == dtype


def test_a_run_that_was_killed_at_once(tmp_path, tables, read_all):
    (tmp_path / "out" / ".unfinished").mkdir(parents=True)
    assert convert(Plan((tables,), str(tmp_path / "out")))["num_records"] == 25


def test_no_records_at_all(tmp_path, zoo):
    with pytest.raises(DataError, match="there are no records to write"):
        convert(Plan(("s",), str(tmp_path / "out"), prepare_params={"count": 0}, **zoo))


def test_forms():
    records = [
        {"x": np.zeros((2, 3)), "y": 1, "z": np.zeros(2), "t": "a"},
        {"x": np.zeros((4, 3)), "y": 1.5, "z": 1.0, "t": np.str_("b")},
    ]
    assert {name: str(form) for name, form in forms_of(records).items()} == {
        "x": "float64 (*, 3)",
        "y": "int64|float64",
        "z": "float64 (of several shapes)",
        "t": "str",
    }
    assert str(forms_of([{"x": [[1, 2], [3]]}])["x"]) == "list"
    assert [list(forms_of([record])) for record in ("a", 1, (1, 2))] == [
        ["text"],
        ["value"],
        ["c0", "c1"],
    ]
