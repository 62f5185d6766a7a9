"""What is in tables of embeddings, as tests look at it."""

import json

import numpy as np

from elastic.checkpoints.contents import MANIFEST, write_manifest

TABLE = "counted"
"""Of the model in `zoo/embedded_counting_torch.py`."""


def rows_of(rows, table=TABLE):
    """All rows of a table in a cut, as a dict of ids to their numbers, slots included."""
    found = {}
    for part in rows.scan(table):
        for row_id, row in zip(part.ids.tolist(), part.values, strict=True):
            assert row_id not in found, f"row {row_id} is there twice"
            found[row_id] = row
    return found


def leave_rows(path):
    """Have a cut be as the version before wrote those whose rows the store holds."""
    for file in path.glob("rows-*"):
        file.unlink()
    said = json.loads((path / MANIFEST).read_text())
    for entry in said["rows"]["tables"]:
        for name in ("file", "digest", "changes"):
            entry.pop(name, None)
    del said["checksum"]
    said["rows"].pop("held", None)
    write_manifest(path, said)
    return path


def check_counts(cut, num_records, num_epochs, done=()):
    """Each record of the counting model has counted once an epoch, in parameters and in rows."""
    rows = rows_of(cut.rows)
    assert sorted(rows) == list(range(num_records)), f"after {done}"
    in_rows = np.array([rows[index][:2] for index in range(num_records)])
    in_parts = counted_parts(cut, num_records)
    for what, counts in (("parts", in_parts), ("rows", in_rows[:, 0]), ("rows", in_rows[:, 1])):
        wrong = np.flatnonzero(np.abs(counts - num_epochs) > 1e-3)
        assert not len(wrong), f"after {done}: {what} {wrong[:10]} counted {counts[wrong[:10]]}"


def counted_parts(cut, num_records):
    """The counts of the parameters, by record."""
    counts = np.empty(num_records, np.float32)
    for part in range(3):
        counts[part::3] = cut.parameters[f"parts.{part}"]
    return counts


def check_lives(cut, num_records, num_epochs, life, done=()):
    """No record is lost whose row comes late or goes: rows have counted what their notes say.

    Args:
        life: Of the rows; those that do not end have missed the updates before they were made.
    """
    off = np.abs(counted_parts(cut, num_records) - num_epochs)
    assert off.max() < 1e-3, f"after {done}: parts {np.flatnonzero(off)} are off"
    rows = rows_of(cut.rows)
    if not {"expire_after", "max_rows"} & set(life):
        assert sorted(rows) == list(range(num_records)), f"after {done}"
        wanted = num_epochs + 1 - life.get("admit_after", 1)
        assert all(np.abs(row[:2] - wanted).max() < 1e-3 for row in rows.values()), f"after {done}"
        return
    assert 0 < len(rows) <= life.get("max_rows", num_records), f"after {done}"
    for row in rows.values():
        (count, seen) = row[-2:].view(np.int32)
        assert np.abs(row[:2] - count).max() < 1e-3, f"after {done}"
        assert seen > cut.version - life.get("expire_after", cut.version) * 9 // 8 - 1
