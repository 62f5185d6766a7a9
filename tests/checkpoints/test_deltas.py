"""A delta applied to a full export is a later full export, rows that were removed included."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.rows import rows_of

from elastic.checkpoints.contents import CutRows
from elastic.checkpoints.cuts import Cut, write_cut
from elastic.checkpoints.table_files import (
    PARQUET,
    apply_delta,
    export_tables,
    exported_tables,
    file_name,
    rows_folder,
    write_changes,
    write_delta,
)
from elastic.cli.main import main
from elastic.errors import CheckpointError
from elastic.frameworks.base import UpdaterState
from elastic.rows.base import Change, Table, TableForm

ITEMS = TableForm(Table("a/items", 2, "zeros"), ("momentum",), ("count", "seen"))
EMPTY = TableForm(Table("empty", 3, "normal(1)"))
COUNTED = TableForm(Table("a/items:candidates", 0, "zeros"), notes=("count", "seen"))
TABLES = [ITEMS.table, EMPTY.table]


def cut_rows(by_id, forms=(ITEMS, EMPTY, COUNTED)):
    """Rows whose values are a number, and whose slots are nobody's business."""
    ids = np.array(sorted(by_id), np.int64)
    values = np.random.default_rng(len(ids)).random((len(ids), ITEMS.width), np.float32)
    values[:, :2] = np.array([by_id[id_] for id_ in sorted(by_id)]).reshape(-1, 1)
    half = len(ids) // 2
    parts = (Change(ids[half:], values[half:]), Change(ids[:half], values[:half]))
    return CutRows(forms, lambda name: parts if name == "a/items" else ())


def written(folder, version, by_id, **other):
    rows = cut_rows(by_id, **other)
    cut = Cut(version, {"w": np.ones(2, np.float32)}, {}, UpdaterState(), None, rows=rows)
    return write_cut(folder, cut)


def exported(export):
    """The first number of each row, as bits."""
    found = exported_tables(export, TABLES)
    assert rows_of(found, "empty") == {}
    return {id_: row.tobytes() for id_, row in rows_of(found, "a/items").items()}


ROWS = st.dictionaries(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9),
                       st.sampled_from([0.0, -0.0, 1.5, np.nan]), max_size=12)  # fmt: skip


@pytest.mark.sampled(2)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ROWS, ROWS)
def test_a_delta_makes_the_later_export_of_the_older_one(tmp_path, before, after):
    cuts = [written(tmp_path / "cuts", at, rows) for at, rows in ((1, before), (2, after))]
    older, newer = tmp_path / "older.keras", tmp_path / "newer.keras"
    export_tables(older, cut_rows(before), lambda: None)
    export_tables(newer, cut_rows(after), lambda: None)
    told = write_delta(*cuts, tmp_path / "delta")
    assert told[0].removed == len(before.keys() - after.keys())
    # Twice is as good as once.
    for _ in range(2):
        apply_delta(tmp_path / "delta", rows_folder(older))
        assert exported(older) == exported(newer)


def test_only_what_has_changed_is_written(tmp_path, capsys):
    cuts = tmp_path / "cuts"
    since = written(cuts, 1, {1: 1.0, 2: 2.0, 3: 3.0})
    written(cuts, 2, {1: 1.0, 2: 7.0, 4: 4.0})
    export_tables(tmp_path / "m.keras", cut_rows({1: 1.0, 2: 2.0, 3: 3.0}), lambda: None)
    assert main(["rows", "delta", str(cuts), "--since", str(since),
                 "--output", str(tmp_path / "delta")]) == 0  # fmt: skip
    assert main(["rows", "apply", str(tmp_path / "delta"), str(tmp_path / "m.keras.rows")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a/items: 2 rows changed, 1 removed"
    assert sorted(exported(tmp_path / "m.keras")) == [1, 2, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("delta", "cuts", "--since", "nowhere", "--output", "d"), "neither a checkpoint nor"),
        (("delta", ".", "--since", "cuts", "--output", "d"), "no folder version-N: name cuts"),
        (("delta", "cuts", "--since", "others", "--output", "d"), "name two checkpoints of one"),
        (("delta", "cuts", "--since", "later", "--output", "d"), "exchange them"),
        (("delta", "cuts", "--since", "cuts", "--output", "cuts"), "has other files than"),
        (("apply", "cuts", "cuts"), "has no .parquet file"),
        (("apply", "delta", "cuts"), "has no a%2Fitems.parquet"),
        (("apply", "m.keras.rows", "delta"), "exchange the two"),
        (("apply", "m.keras.rows", "m.keras.rows"), "m.keras.rows holds rows of a model"),
        (("apply", "delta", "delta"), "delta holds changes, not the rows"),
        (("delta", "cuts", "--since", "cuts", "--output", "m.keras.rows"), "has other files than"),
    ],
)
def test_what_cannot_be_used_is_told(arguments, message, tmp_path, monkeypatch, capsys):
    cut = written(tmp_path / "cuts", 1, {1: 1.0})
    written(tmp_path / "later", 2, {1: 1.0})
    written(tmp_path / "others", 1, {1: 1.0}, forms=(ITEMS,))
    write_delta(cut, cut, tmp_path / "delta")
    export_tables(tmp_path / "m.keras", cut_rows({1: 1.0}), lambda: None)
    before = files(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["rows", *arguments]) != 0
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert files(tmp_path) == before


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_failure_leaves_the_export_as_it_was(tmp_path):
    cut = written(tmp_path / "cuts", 1, {1: 1.0})
    write_delta(cut, cut, tmp_path / "delta")
    export_tables(tmp_path / "m.keras", cut_rows({1: 2.0}), lambda: None)
    before = exported(tmp_path / "m.keras")
    (tmp_path / "delta" / "empty.parquet").write_bytes(b"no Parquet")
    with pytest.raises(CheckpointError, match=r"empty\.parquet cannot be read"):
        apply_delta(tmp_path / "delta", tmp_path / "m.keras.rows")
    assert exported(tmp_path / "m.keras") == before
    assert {path.name for path in tmp_path.iterdir()} == {"cuts", "delta", "m.keras.rows"}


def test_an_export_behind_a_link_is_brought_up_to_date_and_the_link_stays(tmp_path):
    export_tables(tmp_path / "m.keras", cut_rows({1: 1.0}), lambda: None)
    rows_folder(tmp_path / "m.keras").rename(tmp_path / "elsewhere")
    link = rows_folder(tmp_path / "m.keras")
    link.symlink_to("elsewhere")
    cuts = [written(tmp_path / "cuts", at, {1: float(at)}) for at in (1, 2)]
    write_delta(*cuts, tmp_path / "delta")
    apply_delta(tmp_path / "delta", link)
    assert exported(tmp_path / "m.keras") == {1: np.array([2, 2], np.float32).tobytes()}
    export_tables(tmp_path / "m.keras", cut_rows({3: 3.0}), lambda: None)
    assert sorted(exported(tmp_path / "m.keras")) == [3]
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {
        "cuts", "delta", "elsewhere", "m.keras.rows"
    }  # fmt: skip


def test_the_folder_in_which_one_is_has_a_name(tmp_path, monkeypatch, capsys):
    cut = written(tmp_path / "cuts", 1, {1: 1.0})
    (tmp_path / "delta").mkdir()
    monkeypatch.chdir(tmp_path / "delta")
    assert main(["rows", "delta", str(cut), "--since", str(cut), "--output", "."]) == 0
    export_tables(tmp_path / "m.keras", cut_rows({1: 1.0}), lambda: None)
    monkeypatch.chdir(tmp_path / "m.keras.rows")
    assert main(["rows", "apply", str(tmp_path / "delta"), "."]) == 0, capsys.readouterr().err
    assert sorted(exported(tmp_path / "m.keras")) == [1]


def test_rows_of_another_length_are_not_mixed_with_those_that_are_there(tmp_path):
    export_tables(tmp_path / "m.keras", cut_rows({1: 1.0}), lambda: None)
    before = exported(tmp_path / "m.keras")
    (tmp_path / "delta").mkdir()
    rows = Change(np.array([2]), np.ones((1, 3), np.float32))
    for table in TABLES:
        write_changes(tmp_path / "delta" / file_name(table, PARQUET), [rows])
    with pytest.raises(CheckpointError, match=r"has rows of 3 numbers, and .* of 2"):
        apply_delta(tmp_path / "delta", tmp_path / "m.keras.rows")
    assert exported(tmp_path / "m.keras") == before
