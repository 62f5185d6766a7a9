"""Rows in cuts: read back as they were, found to be damaged, or left to the store holding them."""

import os
import shutil
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.rows import leave_rows, rows_of

from elastic.checkpoints import contents as row_files
from elastic.checkpoints import table_files
from elastic.checkpoints.contents import MANIFEST, CutRows, read_manifest, read_rows
from elastic.checkpoints.cuts import Cut, copy_cut, newest_cut, read_cut, remove, write_cut
from elastic.checkpoints.table_files import export_tables, exported_tables, rows_folder
from elastic.errors import CheckpointError
from elastic.frameworks.base import UpdaterState
from elastic.rows.base import Change, RowsLostError, Table, TableForm

ITEMS = TableForm(Table("a/items", 2, "zeros"), ("momentum",))
EMPTY = TableForm(Table("empty", 3, "normal(1)"))
# In no order of ids, as a store scans them.
PARTS = (
    Change(np.array([7, 9], np.int64), np.arange(8, dtype=np.float32).reshape(2, 4)),
    Change(np.array([-5, 8], np.int64), np.arange(8, 16, dtype=np.float32).reshape(2, 4)),
)
BY_ID = {
    row_id: row.tolist()
    for part in PARTS
    for row_id, row in zip(part.ids.tolist(), part.values, strict=True)
}


def given(is_held=False):
    return CutRows((ITEMS, EMPTY), {"a/items": PARTS, "empty": ()}.__getitem__, is_held)


def a_cut(version=3, rows=None):
    return Cut(
        version, {"w": np.ones(2, np.float32)}, {}, UpdaterState(), None, run_id="r", rows=rows
    )


def as_lists(rows):
    return {row_id: row.tolist() for row_id, row in rows_of(rows, "a/items").items()}


def test_rows_are_read_back(tmp_path):
    path = write_cut(tmp_path / "cuts", a_cut(rows=given()))
    for found in (read_cut(path).rows, read_rows(copy_cut(path, tmp_path / "copies"))):
        assert found.forms == (ITEMS, EMPTY)
        assert not found.is_held
        assert as_lists(found) == BY_ID
        assert rows_of(found, "empty") == {}


def test_a_cut_without_tables_says_nothing_of_rows(tmp_path):
    """So that a version before reads it."""
    path = write_cut(tmp_path, a_cut())
    assert read_cut(path).rows is None
    assert "rows" not in read_manifest(path).model_fields_set


def _change(path):
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "changed": (_change, "rows-000.bin has changed"),
    "cut-short": (lambda path: path.write_bytes(path.read_bytes()[:-4]), "000.bin has changed"),
    "gone": (lambda path: path.unlink(), "rows-000.bin is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_found_and_an_older_cut_is_used(case, tmp_path):
    damage, message = DAMAGES[case]
    older = write_cut(tmp_path, a_cut(2, given()))
    path = write_cut(tmp_path, a_cut(3, given()))
    damage(path / "rows-000.bin")
    with pytest.raises(CheckpointError, match=message):
        read_cut(path)
    told = []
    found, _ = newest_cut([tmp_path], "r", told.append)
    assert found == older
    assert message in told[0]


def test_a_cut_whose_rows_the_store_holds_has_them_as_well(tmp_path):
    path = write_cut(tmp_path, a_cut(rows=given(is_held=True)))
    found = read_cut(path).rows
    assert found.is_held
    assert found.is_here
    assert as_lists(found) == BY_ID
    assert read_manifest(path).holds_rows


def test_a_cut_of_the_version_before_leaves_its_rows_to_the_store(tmp_path):
    path = leave_rows(write_cut(tmp_path, a_cut(rows=given())))
    found = read_cut(path).rows
    assert found.is_held
    assert not found.is_here
    assert found.forms == (ITEMS, EMPTY)
    assert read_manifest(path).holds_rows


def test_a_cut_whose_held_rows_are_gone_gives_way_to_an_older_one(tmp_path):
    older = write_cut(tmp_path, a_cut(2, given()))
    leave_rows(write_cut(tmp_path, a_cut(3, given())))
    told = []

    def go_back(path, cut):
        if cut.rows.is_held:
            raise CheckpointError(f"{path.name} leaves its rows to the store")

    assert newest_cut([tmp_path], "r", told.append, go_back)[0] == older
    assert told == ["version-0000000003 leaves its rows to the store"]


def test_a_store_that_loses_a_version_leaves_no_cut(tmp_path):
    def scan(_):
        yield PARTS[0]
        raise RowsLostError("the store has gone")

    with pytest.raises(OSError, match="rows of 'a/items' are gone: the store has gone"):
        write_cut(tmp_path, a_cut(rows=replace(given(), scan=scan)))
    assert not list(tmp_path.iterdir())


# -- changes ---------------------------------------------------------------------------------------


def change(rows, removed=()):
    """Rows by id, each one number."""
    ids = np.array(sorted(rows), np.int64)
    values = np.repeat(np.array([rows[each] for each in sorted(rows)], np.float32), 4)
    return Change(ids, values.reshape(-1, 4), np.array(removed, np.int64))


def following(folder, version, before, items=(), **fields):
    """A cut that has these changes of a table, after another."""
    changes = {"a/items": items, "empty": ()}

    def fail(table):
        pytest.fail(f"all rows of {table} are read")

    rows = CutRows((ITEMS, EMPTY), fail, before=before, changed=changes.__getitem__)
    return write_cut(folder, a_cut(version, replace(rows, **fields)))


def whole_again(folder, version, before, **fields):
    """Whether all rows are written, where there is a change to write."""
    before_now = as_lists(read_cut(before).rows)
    scan = {"a/items": PARTS, "empty": ()}.__getitem__
    path = following(folder, version, before, [change({7: 0})], scan=scan, **fields)
    is_whole = as_lists(read_cut(path).rows) == BY_ID
    assert is_whole or as_lists(read_cut(path).rows) == {**before_now, 7: [0] * 4}
    return is_whole


def first(folder):
    return write_cut(folder, a_cut(1, given()))


def test_a_cut_has_what_the_one_before_has_and_what_has_changed_since(tmp_path):
    second = following(
        tmp_path, 2, first(tmp_path), [change({7: 1, 30: 2}), change({-9: 3}, [9, 100])]
    )
    third = following(tmp_path, 3, second, [change({9: 4}, [30])])
    of_second = {-9: [3] * 4, -5: BY_ID[-5], 7: [1] * 4, 8: BY_ID[8], 30: [2] * 4}
    of_third = {-9: [3] * 4, -5: BY_ID[-5], 7: [1] * 4, 8: BY_ID[8], 9: [4] * 4}
    assert as_lists(read_cut(second).rows) == of_second
    assert as_lists(read_cut(third).rows) == of_third
    remove(tmp_path / "version-0000000001")
    remove(second)
    assert as_lists(read_cut(third).rows) == of_third
    assert as_lists(read_rows(copy_cut(third, tmp_path / "copies"))) == of_third


def test_what_has_not_changed_is_written_no_second_time(tmp_path):
    before = first(tmp_path)
    after = following(tmp_path, 2, before, [change({7: 1})])
    same = following(tmp_path, 3, after)
    names = ["rows-000.bin", "rows-000-001.bin", "rows-001.bin"]
    assert sorted(path.name for path in same.glob("rows-*")) == sorted(names)
    assert all((after / name).samefile(same / name) for name in names)
    assert (after / "rows-000-001.bin").stat().st_size == 8 + 4 * 4


def test_a_file_system_without_links_gets_copies(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    before = first(tmp_path)
    path = following(tmp_path, 2, before, [change({7: 1})])
    assert not (before / "rows-000.bin").samefile(path / "rows-000.bin")
    assert as_lists(read_cut(path).rows) == {**BY_ID, 7: [1] * 4}


@pytest.mark.parametrize("case", DAMAGES)
@pytest.mark.parametrize("name", ["rows-000.bin", "rows-000-001.bin"])
def test_a_cut_is_as_damaged_as_the_files_that_it_has_from_others(name, case, tmp_path):
    damage, message = DAMAGES[case]
    path = following(tmp_path, 2, first(tmp_path), [change({7: 1})])
    path = following(tmp_path, 3, path, [change({8: 1})])
    damage(path / name)
    with pytest.raises(CheckpointError, match=message.split(".bin")[-1]):
        read_cut(path)


def test_all_rows_are_written_again_once_changes_are_as_much(tmp_path):
    before = first(tmp_path)
    path = following(tmp_path, 2, before, [change(dict.fromkeys((7, 8, 9), 1))])
    assert not whole_again(tmp_path, 3, path)
    path = following(tmp_path, 3, path, [change({7: 2})])
    assert whole_again(tmp_path, 4, path)


def test_all_rows_are_written_again_before_there_are_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "MAX_CHANGES", 2)
    path = following(tmp_path, 2, first(tmp_path), [change({7: 1})])
    assert not whole_again(tmp_path, 3, path)
    path = following(tmp_path, 3, path, [change({8: 1})])
    assert whole_again(tmp_path, 4, path)


BEFORE = {
    "other-slots": lambda path: {"forms": (replace(ITEMS, slots=("velocity",)), EMPTY)},
    "other-dtype": lambda path: {
        "forms": (replace(ITEMS, table=replace(ITEMS.table, row_dtype="bfloat16"), notes=("a",)),
                  EMPTY)
    },
    "nobody-knows": lambda path: {"changed": None},
    "no-cut": lambda path: {"before": None},
    "held": lambda path: leave_rows(path) and {},
    "damaged": lambda path: (path / MANIFEST).write_text("{") and {},
    "gone": lambda path: remove(path) or {},
    "file-gone": lambda path: (path / "rows-001.bin").unlink() or {},
}  # fmt: skip


@pytest.mark.parametrize("case", BEFORE)
def test_all_rows_are_written_where_nothing_can_be_added(case, tmp_path):
    before = first(tmp_path)
    fields = BEFORE[case](before)
    scan = {"a/items": PARTS, "empty": ()}.__getitem__
    path = following(tmp_path, 2, **{"before": before, "scan": scan, **fields})
    assert as_lists(read_cut(path).rows) == BY_ID


# -- beside exported models ------------------------------------------------------------------------


def test_exported_rows_are_their_values_alone(tmp_path):
    export = tmp_path / "model.safetensors"
    folder = export_tables(export, given(), lambda: None)
    assert folder == rows_folder(export)
    assert {path.name for path in folder.iterdir()} == {"a%2Fitems.parquet", "empty.parquet"}
    found = exported_tables(export, [ITEMS.table, EMPTY.table])
    assert as_lists(found) == {row_id: row[:2] for row_id, row in BY_ID.items()}
    assert rows_of(found, "empty") == {}


def test_any_reader_of_parquet_reads_them(tmp_path):
    pandas = pytest.importorskip("pandas")
    folder = export_tables(tmp_path / "model.keras", given(), lambda: None)
    frame = pandas.read_parquet(folder / "a%2Fitems.parquet")
    assert dict(zip(frame["id"], map(list, frame["row"]), strict=True)) == {
        row_id: row[:2] for row_id, row in BY_ID.items()
    }


def test_rows_of_another_length_are_refused(tmp_path):
    export = tmp_path / "model.safetensors"
    export_tables(export, given(), lambda: None)
    found = exported_tables(export, [replace(ITEMS.table, dim=3)])
    with pytest.raises(CheckpointError, match="of another length than the model's 3 numbers"):
        rows_of(found, "a/items")
    shutil.rmtree(rows_folder(export))
    with pytest.raises(CheckpointError, match="the rows of table 'a/items' are missing"):
        exported_tables(export, [ITEMS.table])


@pytest.mark.parametrize("arrays", [{"id": np.arange(3)}, {"row": np.ones((3, 2), np.float32)}])
def test_a_file_of_something_else_is_refused_by_its_name(tmp_path, arrays):
    export = tmp_path / "model.safetensors"
    folder = export_tables(export, given(), lambda: None)
    (folder / "a%2Fitems.parquet").unlink()
    np.savez(folder / "a%2Fitems.npz", **arrays)
    found = exported_tables(export, [ITEMS.table])
    with pytest.raises(CheckpointError, match=r"items\.npz cannot be read"):
        rows_of(found, "a/items")


@pytest.fixture
def _without_pyarrow(monkeypatch):
    monkeypatch.setattr(table_files, "find_spec", lambda _: None)


@pytest.mark.usefixtures("_without_pyarrow")
def test_numpy_reads_exported_rows_where_pyarrow_is_not_installed(tmp_path):
    export = tmp_path / "model.safetensors"
    folder = export_tables(export, given(), lambda: None)
    assert {path.name for path in folder.iterdir()} == {"a%2Fitems.npz", "empty.npz"}
    with np.load(folder / "a%2Fitems.npz") as arrays:
        assert (arrays["id"].dtype, arrays["row"].dtype) == (np.int64, np.float32)
        by_id = dict(zip(arrays["id"].tolist(), arrays["row"].tolist(), strict=True))
    assert by_id == {row_id: row[:2] for row_id, row in BY_ID.items()}
    found = exported_tables(export, [ITEMS.table, EMPTY.table])
    assert (as_lists(found), rows_of(found, "empty")) == (by_id, {})
    found = exported_tables(export, [replace(ITEMS.table, dim=3)])
    with pytest.raises(CheckpointError, match="of another length than the model's 3 numbers"):
        rows_of(found, "a/items")


@pytest.mark.parametrize(
    "rows",
    [
        np.asfortranarray([[1, 2], [3, 4]], np.float32),
        np.asarray([[1, 2], [3, 4]], np.float64),
        np.asarray([1, 2, 3, 4], np.float32),
    ],
    ids=["fortran", "float64", "flat"],
)
@pytest.mark.usefixtures("_without_pyarrow")
def test_rows_that_others_have_written_with_numpy_are_read(rows, tmp_path):
    folder = rows_folder(tmp_path / "model.safetensors")
    folder.mkdir()
    np.savez(folder / "a%2Fitems.npz", id=[9, -4], row=rows)
    found = exported_tables(tmp_path / "model.safetensors", [ITEMS.table])
    assert as_lists(found) == {9: [1, 2], -4: [3, 4]}


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_exports_are_written_and_read_a_part_at_a_time(suffix, tmp_path, monkeypatch):
    """64 MB of rows."""
    if suffix == "npz":
        monkeypatch.setattr(table_files, "find_spec", lambda _: None)
    table = Table("large", 256, "zeros")
    parts = [np.arange(first, first + 1000) for first in range(0, 64_000, 1000)]

    def scan(_):
        for ids in parts:
            yield Change(ids, np.repeat(ids.astype(np.float32), 256).reshape(-1, 256))

    # What is imported for it takes memory of its own.
    rows_of(exported_tables(export_of(given(), tmp_path), [ITEMS.table]), "a/items")
    with peak_of_arrays() as peak:
        export = export_of(CutRows((TableForm(table),), scan), tmp_path)
        num_rows = 0
        for part in exported_tables(export, [table]).scan("large"):
            assert (part.values == part.ids[:, None]).all()
            num_rows += len(part.ids)
    assert num_rows == 64_000
    assert peak.size_bytes < 16 << 20


def export_of(rows, folder):
    export = folder / "model.safetensors"
    export_tables(export, rows, lambda: None)
    return export


@contextmanager
def peak_of_arrays():
    """The most memory of NumPy's arrays and of Python."""
    peak = SimpleNamespace(size_bytes=0)
    tracemalloc.start()
    try:
        yield peak
        peak.size_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
