"""Which ids a cut has to have that follows another."""

import numpy as np
import pytest
from support.row_store_contract import rows_of

from elastic.rows import ids as changed
from elastic.rows.base import Change
from elastic.rows.ids import ChangedIds, merged


def commit(ids, made, removed=(), table="deep"):
    ids.add({table: rows_of(made, 1, removed=removed)})


def since(ids, version, now):
    noted = ids.since(version, now)
    return noted and {name: merged(parts).tolist() for name, parts in noted.items()}


def test_ids_are_noted_from_one_cut_to_the_next():
    ids = ChangedIds(7)
    commit(ids, [1, 2])
    commit(ids, [2, 5], removed=[3])
    commit(ids, [9], table="wide")
    assert since(ids, 7, 10) == {"deep": [1, 2, 3, 5], "wide": [9]}
    commit(ids, [4])
    assert since(ids, 10, 11) == {"deep": [4]}
    assert since(ids, 11, 11) == {}


def test_a_cut_that_was_not_written_leaves_its_ids_to_the_next():
    ids = ChangedIds()
    commit(ids, [1])
    assert since(ids, 0, 1) == {"deep": [1]}
    commit(ids, [2])
    assert since(ids, 0, 2) == {"deep": [1, 2]}


@pytest.mark.parametrize("version", [None, 3, 9], ids=["no-cut", "one-of-before", "another"])
def test_nobody_knows_what_changed_since_other_cuts(version):
    ids = ChangedIds(4)
    commit(ids, [1])
    assert since(ids, version, 5) is None
    commit(ids, [2])
    assert since(ids, 5, 6) == {"deep": [2]}


def test_ids_that_come_again_take_no_more_room(monkeypatch):
    monkeypatch.setattr(changed, "MERGED_FROM", 100)
    ids = ChangedIds()
    for number in range(1000):
        commit(ids, range(number % 7, 50))
    (parts,) = ids.since(0, 1000).values()
    assert sum(map(len, parts)) <= 3 * 50 + 100
    assert merged(parts).tolist() == list(range(50))


def test_a_message_is_not_kept_for_the_ids_in_it():
    ids, message = ChangedIds(), np.arange(1 << 10)
    ids.add({"deep": Change(message[:1], np.ones((1, 3), np.float32))})
    (parts,) = ids.since(0, 1).values()
    assert [part.tolist() for part in parts] == [[0]]
    assert parts[0].base is None
