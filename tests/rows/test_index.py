"""Ids keep their positions while others come and go."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from elastic.rows.ids import FEWEST_BITS, IdIndex

STEPS = st.lists(
    st.tuples(st.booleans(), st.sets(st.integers(-4, 60), max_size=30)), min_size=1, max_size=30
)


def array(ids):
    return np.array(sorted(ids), np.int64)


def move(index, kept, positions):
    """Remove, and treat an array beside the index as it says."""
    moved, places = index.remove(positions)
    kept[places] = kept[moved]
    return kept[: len(index)]


@given(STEPS)
def test_every_id_is_found_where_it_is(steps):
    index, kept = IdIndex(), np.empty(0, np.int64)
    wanted = set()
    for is_removal, ids in steps:
        positions = index.find(array(ids))
        assert ((positions >= 0) == [each in wanted for each in sorted(ids)]).all()
        if is_removal:
            kept = move(index, kept, positions[positions >= 0])
            wanted -= ids
        else:
            index.add(array(ids)[positions < 0])
            kept = np.concatenate([kept, array(ids)[positions < 0]])
            wanted |= ids
        assert sorted(index.ids.tolist()) == sorted(wanted)
        assert kept.tolist() == index.ids.tolist()
        assert index.ids[index.find(array(wanted))].tolist() == sorted(wanted)


@given(STEPS, st.booleans())
def test_ids_that_are_looked_for_again_are_found_where_they_are_now(steps, is_cut):
    """Positions are remembered, but of the index as it is, and not by an array that others use."""
    index, asked = IdIndex(), np.arange(-4, 61)
    for is_removal, ids in steps:
        there = index.find(array(ids))
        where = {each: place for place, each in enumerate(index.ids.tolist())}
        for _ in range(3):
            found = index.find(asked.copy())
            assert found.tolist() == [where.get(each, -1) for each in asked.tolist()]
            found[:] = -2
        if not is_removal:
            index.add(array(ids)[there < 0])
        elif is_cut:
            index.cut(len(index) // 2)
        else:
            index.remove(there[there >= 0])
        where = {each: place for place, each in enumerate(index.ids.tolist())}
        assert index.find(asked).tolist() == [where.get(each, -1) for each in asked.tolist()]


def test_ids_in_an_array_that_is_used_again_are_not_taken_for_those_before():
    index, used = IdIndex(), np.arange(8)
    index.add(np.arange(6))
    index.find(used)
    used += 1
    assert index.find(used).tolist() == [1, 2, 3, 4, 5, -1, -1, -1]


def test_ids_that_come_and_go_take_no_more_room():
    """Cells of removed ids are counted, and used again."""
    index = IdIndex()
    for start in range(0, 1_000_000, 400):
        index.add(np.arange(start, start + 400))
        index.remove(np.arange(len(index)))
    assert index.size_bytes() <= 3 * 8 << FEWEST_BITS
    assert (index.find(np.arange(999_000, 1_000_000)) < 0).all()
