"""NumPy files: rows, and archives that are damaged or hold something else."""

import io
import re
import zipfile
from weakref import ref

import numpy as np
import pytest

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.formats.columns import RecentlyUsed
from elastic.errors import DataError
from elastic.policy.tasks.records import Shard


def test_archive_rows_are_dicts_of_all_arrays(tmp_path, read_all):
    np.savez(tmp_path / "a.npz", x=np.arange(6.0).reshape(3, 2), y=np.array([7, 8, 9]))
    records = read_all(tmp_path / "a.npz")
    assert [record["x"].tolist() for record in records] == [[0, 1], [2, 3], [4, 5]]
    assert [record["y"] for record in records] == [7, 8, 9]
    assert records[0]["x"].dtype == np.float64


def test_array_rows_are_the_records(tmp_path, read_all):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(3, 2))
    assert [record.tolist() for record in read_all(tmp_path / "a.npy")] == [[0, 1], [2, 3], [4, 5]]


def test_structured_rows_with_any_field_name(tmp_path, read_all):
    # Field names beyond Latin-1 make NumPy write version 3 of the format.
    array = np.array([(1, 2.5), (2, 3.5)], dtype=[("größe中", "i4"), ("y", "f4")])
    with pytest.warns(UserWarning, match="format 3.0"):
        np.save(tmp_path / "a.npy", array)
    assert [(row["größe中"], row["y"]) for row in read_all(tmp_path / "a.npy")] == [
        (1, 2.5),
        (2, 3.5),
    ]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_may_be_changed_by_who_reads_them(tmp_path, save):
    save(tmp_path / "a.npz", x=np.zeros((2, 2)))
    reader = open_reader(str(tmp_path / "a.npz"), 2, {}, None)
    (shard,) = reader.create_shards()
    for _ in range(2):
        (record,) = reader.read_records(ReadTask(shard, 0, 1))
        assert record["x"].sum() == 0
        record["x"] += 1


def test_a_row_larger_than_a_block_and_rows_of_nothing(tmp_path, read_all):
    np.save(tmp_path / "a.npy", np.arange(3 << 19).reshape(2, -1))
    assert [row.sum() for row in read_all(tmp_path / "a.npy")] == [
        sum(range(3 << 18)),
        sum(range(3 << 18, 3 << 19)),
    ]
    np.save(tmp_path / "b.npy", np.empty((2, 0)))
    assert [row.shape for row in read_all(tmp_path / "b.npy")] == [(0,), (0,)]


def npy_bytes(array):
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def archive(members, **options):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return out.getvalue()


TEN = npy_bytes(np.arange(10))
STORED = archive({"x.npy": TEN, "y.npy": TEN})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param(
            "a.npz",
            archive({"x.npy": TEN, "y.npy": npy_bytes(np.arange(9))}),
            "FILE has arrays of different lengths (x: 10, y: 9): the first dimension counts",
            id="lengths",
        ),
        pytest.param(
            "a.npz",
            archive({"x.npy": npy_bytes(np.array([{}, None]))}),
            "array 'x' of FILE holds Python objects, which only pickle can read",
            id="objects-in-archive",
        ),
        pytest.param(
            "a.npy",
            npy_bytes(np.array([{}, None])),
            "the array of FILE holds Python objects",
            id="objects",
        ),
        pytest.param(
            "a.npz",
            archive({"x.npy": TEN, "rate.npy": npy_bytes(np.array(0.5))}),
            "array 'rate' of FILE is a single value without rows",
            id="scalar",
        ),
        pytest.param(
            "a.npz",
            STORED[:200],
            "FILE is no readable npz archive (File is not a zip",
            id="archive-truncated",
        ),
        pytest.param(
            "a.npz",
            b"PK\x03\x04 nonsense",
            "FILE is no readable npz archive (File is not",
            id="archive-corrupt",
        ),
        pytest.param(
            "a.npz",
            archive({"x.npy": TEN[:-8]}),
            "FILE is no readable npz archive ('x' has 200 bytes instead of 208)",
            id="member-truncated",
        ),
        pytest.param(
            "a.npz",
            archive({"notes.txt": b"hi"}),
            "FILE holds 'notes.txt', which is not",
            id="no-array",
        ),
        pytest.param("a.npz", archive({}), "FILE holds no arrays: fill it", id="no-member"),
        pytest.param(
            "a.npz",
            archive({"x.npy": b"nonsense"}),
            "FILE is no readable npz archive (",
            id="member-is-no-array",
        ),
        pytest.param(
            "a.npy",
            TEN[:-1],
            "FILE has 207 bytes instead of 208: it is truncated",
            id="array-truncated",
        ),
        pytest.param(
            "a.npy",
            TEN + TEN,
            "FILE goes on for 208 bytes after its array, which would be left out",
            id="arrays-appended",
        ),
        pytest.param(
            "a.npy",
            npy_bytes(np.asfortranarray(np.ones((3, 2)))) + TEN,
            "FILE goes on for 208 bytes after its array, which would be left out",
            id="array-appended-to-one-in-fortran-order",
        ),
        pytest.param("a.npy", b"hello world", "FILE is no readable npy file (", id="no-npy"),
        pytest.param("a.npy", TEN[:40], "FILE is no readable npy file (", id="header-truncated"),
        pytest.param(
            "a.npy",
            TEN.replace(b"{'descr'", b"{(descr'"),
            "FILE is no readable npy file (",
            id="header-is-no-expression",
        ),
        pytest.param(
            "a.npy",
            TEN.replace(b"<i8", b"+i8").replace(b"NUMPY\x01\0v\0", b"NUMPY\x03\0v\0\0\0"),
            "FILE is no readable npy file (data type '+i8' not understood",
            id="header-of-no-type",
        ),
        pytest.param(
            "a.npz",
            archive({"x.npy": TEN.replace(b"(10,), ", b"(-5,-2)")}),
            "FILE is no readable npz archive (its shape is (-5, -2))",
            id="negative-shape",
        ),
        pytest.param("a.npy", npy_bytes(np.empty((0, 3))), "FILE holds no records", id="no-rows"),
    ],
)
def test_damaged_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        open_reader(str(path), 2, {}, None).create_shards()
    assert str(caught.value).replace(str(path), "FILE").startswith(message)


def test_damage_inside_a_compressed_member(tmp_path):
    array = np.random.default_rng(0).integers(0, 1 << 40, 4000)
    content = bytearray(archive({"x.npy": npy_bytes(array)}, compression=zipfile.ZIP_DEFLATED))
    content[len(content) // 2] ^= 0xFF
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    reader = open_reader(str(path), 2, {}, None)
    (shard,) = reader.create_shards()
    with pytest.raises(DataError, match=r"array 'x' of .*a\.npz is damaged \("):
        list(reader.read_records(ReadTask(shard, 0, 4)))


def test_archives_with_other_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(2))
    np.savez(tmp_path / "b.npz", x=np.arange(2), y=np.arange(2))
    with pytest.raises(DataError, match=r"b\.npz has the arrays x, y but .*a\.npz has x: make"):
        open_reader(str(tmp_path), 2, {}, None).create_shards()


def test_a_shorter_file_than_the_one_that_was_counted(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    name = str(tmp_path / "a.npy")
    reader = open_reader(name, 2, {}, None)
    with pytest.raises(
        DataError, match=re.escape("has 3 records, but the task wants records up to 5")
    ):
        list(reader.read_records(ReadTask(Shard(name, 0, 9), 2, 5)))


def test_the_cache_keeps_the_last_used_and_always_the_newest():
    loads = []

    def get(key, size=800):
        return cache.get(key, lambda: loads.append(key) or b"x" * size)

    cache = RecentlyUsed(1600, len)
    for key in "abacab":
        get(key)
    # `b` was the one used longest ago when `c` came.
    assert loads == ["a", "b", "c", "b"]
    get("big", 9999)
    get("big", 9999)
    assert loads[4:] == ["big"]


class Sized:
    def __len__(self):
        return 800


@pytest.mark.parametrize(("max_bytes", "alive"), [(0, 0), (1600, 1), (2400, 2)])
def test_what_has_no_room_beside_the_next_is_gone_before_that_is_loaded(max_bytes, alive):
    cache = RecentlyUsed(max_bytes, len)
    loaded = []

    def load():
        loaded.append([weakref() is not None for weakref in made].count(True))
        value = Sized()
        made.append(ref(value))
        return value

    made = []
    for key in range(4):
        cache.get(key, load)
    assert loaded[-1] == alive
