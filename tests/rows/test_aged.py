"""Rows that a worker keeps: what they are, how old, and how many there may be."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from elastic.worker.rows import AgedRows

DIM = 3
IDS = st.sets(st.integers(-6, 40), max_size=30)
ROW_BYTES = 4 * DIM + 56


def array(ids):
    return np.array(sorted(ids), np.int64)


def rows_at(ids, version):
    """What rows are at a version: no two of them alike."""
    return (1000 * version + array(ids)[:, None] + np.zeros(DIM)).astype(np.float32)


@given(st.lists(st.tuples(IDS, IDS, st.integers(0, 5)), max_size=20))
def test_a_row_that_is_given_is_the_newest_that_was_put_and_no_older_than_asked(steps):
    kept, put = AgedRows(DIM, 1 << 20), {}
    for version, (written, asked, age) in enumerate(steps, 1):
        kept.put(array(written), rows_at(written, version), version)
        put |= dict.fromkeys(written, version)
        values, is_missing = kept.read(array(asked), version - age)
        for row_id, row, is_gone in zip(sorted(asked), values, is_missing, strict=True):
            assert is_gone == (row_id not in put or put[row_id] < version - age)
            assert is_gone or (row == rows_at([row_id], put[row_id])).all()


@given(st.lists(IDS, max_size=20), st.integers(1, 20))
def test_no_more_rows_are_kept_than_there_is_room_for(steps, max_rows):
    kept, put = AgedRows(DIM, max_rows * ROW_BYTES), {}
    for version, written in enumerate(steps, 1):
        kept.put(array(written), rows_at(written, version), version)
        put |= dict.fromkeys(written, version)
        assert len(kept) <= max_rows
        values, is_missing = kept.read(array(put), 0)
        for row_id, row, is_gone in zip(sorted(put), values, is_missing, strict=True):
            assert is_gone or (row == rows_at([row_id], put[row_id])).all()


def test_what_is_read_is_the_readers_own():
    kept, ids = AgedRows(DIM, 1 << 20), array([1, 2])
    kept.put(ids, rows_at(ids, 1), 1)
    kept.read(ids, 0)[0][:] = 7
    assert (kept.read(ids, 0)[0] == rows_at(ids, 1)).all()
