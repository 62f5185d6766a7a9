"""Rows that a worker uses again: never staler than asked for, and none of a past that is undone."""

from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from elastic.rows.base import Table
from elastic.worker.rows import RowsUsedAgain

TABLES = [Table("items", 1, "zeros"), Table("users", 1, "zeros")]
STALENESS = 3


class Server:
    """Has rows whose number tells session and version, and tells what it was asked for."""

    def __init__(self):
        self.session = -1
        self.newest = 0
        self.asked = []
        self._version = None

    def begin(self, session):
        self.session += 1
        self.newest = session.version

    def read_at(self, version, beside):
        self._version = version

    def read(self, table, ids):
        self.asked += [(table.name, each) for each in ids.tolist()]
        version = self.newest if self._version is None else self._version
        return np.full((len(ids), 1), 1000 * self.session + version, np.float32)


def begun(staleness=STALENESS):
    server = Server()
    rows = RowsUsedAgain(server, TABLES, staleness)
    rows.begin(SimpleNamespace(version=0))
    return rows, server


def read(rows, table, ids):
    return rows.read(TABLES[table], np.array(sorted(ids), np.int64))[:, 0].tolist()


STEP = st.tuples(
    # Updates that others make before and after the parameters are pulled.
    st.sampled_from([0, 1, 1, 2, 3]),
    st.sampled_from([0, 0, 1]),
    # Where the job goes back, mostly nowhere.
    st.sampled_from([None, None, None, None, None, 0, 1]),
    st.sets(st.integers(0, 3), min_size=1),
)


@given(st.lists(STEP, min_size=8, max_size=25), st.integers(1, 4))
def test_rows_lack_at_most_so_many_updates_and_are_of_no_session_before(steps, staleness):
    rows, server = begun(staleness)
    for before, after, back_to, ids in steps:
        if back_to is not None:
            rows.begin(SimpleNamespace(version=back_to))
        server.newest += before
        filled = server.newest
        server.newest += after
        rows.read_at(None, filled)
        for number in read(rows, 0, ids):
            session, version = divmod(number, 1000)
            assert session == server.session
            assert filled - staleness <= version <= server.newest


def test_only_rows_that_are_too_old_are_asked_for_again():
    rows, server = begun()
    rows.read_at(None, 0)
    read(rows, 0, [1, 2])
    server.newest = STALENESS
    rows.read_at(None, STALENESS)
    assert read(rows, 0, [1, 2, 3]) == [0, 0, STALENESS]
    server.newest = STALENESS + 1
    rows.read_at(None, STALENESS + 1)
    assert read(rows, 0, [1, 3]) == [STALENESS + 1, STALENESS]
    read(rows, 1, [1])
    assert server.asked == [
        ("items", 1), ("items", 2), ("items", 3), ("items", 1), ("users", 1),
    ]  # fmt: skip


def test_a_version_that_is_named_is_read_as_it_is():
    rows, server = begun()
    server.newest = 9
    rows.read_at(None, 9)
    assert read(rows, 0, [1]) == [9]
    rows.read_at(7, 7)
    assert read(rows, 0, [1]) == [7]
    rows.read_at(None, 9)
    assert read(rows, 0, [1]) == [9]
    assert server.asked == [("items", 1), ("items", 1)]
