"""Rows in cuts: read back as they were, found to be damaged, or left to the store holding them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from support.rows import rows_of

from elastic.checkpoints.cuts import Cut, copy_cut, newest_cut, read_cut, write_cut
from elastic.checkpoints.manifest import read_manifest
from elastic.checkpoints.rows import CutRows, read_rows
from elastic.checkpoints.table_files import export_tables, exported_tables, rows_folder
from elastic.errors import CheckpointError
from elastic.frameworks.base import UpdaterState
from elastic.rows.base import Table
from elastic.rows.store import Change, RowsLostError, TableForm

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


def test_held_rows_are_in_no_file(tmp_path):
    path = write_cut(tmp_path, a_cut(rows=given(is_held=True)))
    assert not list(path.glob("rows-*"))
    found = read_cut(path).rows
    assert found.is_held
    assert found.forms == (ITEMS, EMPTY)
    assert read_manifest(path).leaves_rows


def test_a_cut_whose_held_rows_are_gone_gives_way_to_an_older_one(tmp_path):
    older = write_cut(tmp_path, a_cut(2, given()))
    write_cut(tmp_path, a_cut(3, given(is_held=True)))
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
