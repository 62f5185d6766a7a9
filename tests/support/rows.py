"""What is in tables of embeddings, as tests look at it."""

import numpy as np

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


def check_counts(cut, num_records, num_epochs, done=()):
    """Each record of the counting model has counted once an epoch, in parameters and in rows."""
    rows = rows_of(cut.rows)
    assert sorted(rows) == list(range(num_records)), f"after {done}"
    in_rows = np.array([rows[index][:2] for index in range(num_records)])
    in_parts = np.empty(num_records, np.float32)
    for part in range(3):
        in_parts[part::3] = cut.parameters[f"parts.{part}"]
    for what, counts in (("parts", in_parts), ("rows", in_rows[:, 0]), ("rows", in_rows[:, 1])):
        wrong = np.flatnonzero(np.abs(counts - num_epochs) > 1e-3)
        assert not len(wrong), f"after {done}: {what} {wrong[:10]} counted {counts[wrong[:10]]}"
