"""Which ids get a row and which rows go: as a plain account of it says, also after a restart."""

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from support.row_lives import LIVES, UPDATES, Account
from support.rows import rows_of

from elastic.errors import CheckpointError
from elastic.master.parameters.tables import Share, Tables
from elastic.rows.arithmetic import RowRule, first_rows, kernel_of
from elastic.rows.base import Life, RowGradient, Table
from elastic.rows.memory import MemoryRows

PLAIN = Table("items", 2, "zeros")
SGD = kernel_of(RowRule("sgd"))


def tables_of(life, kernel=SGD, table=PLAIN):
    tables = Tables(MemoryRows(), [replace(table, life=life)], kernel)
    tables.open()
    return tables


def update(tables, ids):
    """Take 1 from the rows of these ids; gives the version."""
    ids = np.array(sorted(ids), np.int64)
    gradient = RowGradient(ids, np.ones((len(ids), 2), np.float32))
    version = tables.store.version + 1
    changes = tables.changes([Share({"items": gradient}, 1)], 1.0, version)
    tables.store.commit(version, changes)
    return version


def held(tables):
    version = tables.store.version
    tables.store.hold(version)
    return tables.of_version(version, lambda: None)


def stored(tables):
    """All rows, by id: how often 1 was taken, its count and its last update."""
    rows = rows_of(held(tables), "items")
    return {id_: (-row[0], *row[-2:].view(np.int32).tolist()) for id_, row in rows.items()}


def counted(tables):
    """Ids without a row: their count and their last update."""
    rows = rows_of(held(tables), "items:candidates")
    return {id_: tuple(row.view(np.int32).tolist()) for id_, row in rows.items()}


@given(LIVES, UPDATES, st.integers(0, 40))
def test_rows_live_as_the_account_says_whoever_is_restarted_when(life, updates, restart):
    tables, account = tables_of(life), Account(life)
    for number, ids in enumerate(updates):
        if number == restart:
            before, tables = tables, tables_of(life)
            tables.go_back(before.store.version, held(before))
        update(tables, ids)
        account.update(ids)
        found = stored(tables)
        assert {id_: row[1:] for id_, row in found.items()} == account.rows
        # Begun anew, a row has nothing of one that was there before.
        assert all(value == count for value, count, _ in found.values())
        if life.admit_after > 1:
            assert counted(tables) == account.candidates
        if life.max_rows is not None:
            assert len(found) <= life.max_rows


def test_a_row_is_made_when_its_id_has_come_often_enough():
    """Until then the model sees its first values, and its gradients change nothing."""
    table = Table("items", 2, "normal(1)")
    tables, ids = tables_of(Life(admit_after=3), table=table), np.array([5, 7], np.int64)
    first = first_rows(table, ids)
    for come in ([5, 7], [5], [9]):
        update(tables, come)
        np.testing.assert_array_equal(tables.read("items", ids), first)
    (size,) = tables.sizes()
    assert (size.rows, size.candidates) == (0, 3)
    update(tables, [5, 7])
    np.testing.assert_allclose(tables.read("items", ids), first - [[1], [0]])
    (size,) = tables.sizes()
    assert (size.rows, size.candidates) == (1, 2)


def test_rows_that_make_room_are_told():
    tables = tables_of(Life(max_rows=8))
    for ids in (range(8), range(8), [100]):
        update(tables, ids)
    # The new one is as seldom as can be, and of the others the least id goes.
    assert sorted(stored(tables)) == [*range(1, 8)]
    (size,) = tables.sizes()
    assert (size.rows, size.evicted, size.expired) == (7, 2, 0)


def test_an_update_that_looks_at_all_rows_is_known_before():
    """So that nobody else has to wait for it, where they are many."""

    def worked_on(tables, ids, step):
        gradient = RowGradient(np.array(ids, np.int64), np.ones((len(ids), 2), np.float32))
        return tables.num_worked_on([Share({"items": gradient}, 1)], step)

    full, old = tables_of(Life(2, max_rows=8)), tables_of(Life(expire_after=16))
    for tables in (full, old):
        for ids in (range(6), range(6), [100]):
            update(tables, ids)
    assert [worked_on(full, [1, 2], 4), worked_on(full, [1, 2, 3], 4)] == [2, 3 + 6]
    assert [worked_on(old, [1], 4), worked_on(old, [1], 5)] == [1 + 7, 1]


def test_rows_expire_also_in_updates_without_any():
    tables = tables_of(Life(expire_after=8))
    update(tables, [1])
    for _ in range(7):
        update(tables, [])
    assert sorted(stored(tables)) == [1]
    update(tables, [])
    assert stored(tables) == {}
    assert tables.sizes()[0].expired == 1


def test_slots_go_with_their_row():
    tables = tables_of(Life(expire_after=1), kernel_of(RowRule("momentum")))
    update(tables, [1])
    update(tables, [1])
    assert rows_of(held(tables), "items")[1][2] == pytest.approx(1.9)
    update(tables, [2])
    update(tables, [1])
    assert rows_of(held(tables), "items")[1][2] == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [(Life(), Life(max_rows=3)), (Life(2, max_rows=3), Life()), (Life(), Life(admit_after=2))],
)
def test_a_job_that_goes_on_may_change_the_life_of_rows(before, after):
    given = tables_of(before)
    for _ in range(2):
        update(given, [1, 2])
    wanted = {id_: row[:2].tolist() for id_, row in rows_of(held(given), "items").items()}
    tables = tables_of(after)
    tables.go_back(given.store.version, held(given))
    found = rows_of(held(tables), "items")
    assert {id_: row[:2].tolist() for id_, row in found.items()} == wanted
    update(tables, [1, 2])
    assert tables.sizes()[0].rows == 2


def test_a_job_that_begins_with_rows_counts_anew():
    given = tables_of(Life(2, 100))
    for ids in ([1, 2], [1], [1]):
        update(given, ids)
    tables = tables_of(Life(2, 100))
    tables.begin(7, held(given))
    assert stored(tables) == {1: (2, 1, 7)}
    assert counted(tables) == {}


def test_another_table_is_refused_as_ever():
    given = tables_of(Life(2, 100))
    with pytest.raises(CheckpointError, match=r"are items\[2\] zeros, this model's are others"):
        tables_of(Life(), table=Table("others", 2, "zeros")).go_back(0, held(given))
